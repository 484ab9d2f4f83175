//! The user's rules for alerts: expected ones by name, and silenced ones.

use crate::model::{
    analysis::{
        cause::{self, Cause},
        culprit::Spot,
        episode::Resource,
    },
    cluster::{
        Cluster,
        findings::{Found, Subject},
    },
    findings::{Finding, Findings, Kind, Standing, findings},
    session::Session,
};

/// Kinds that name one resource and may be followed by it.
const OF_RESOURCES: [Kind; 2] = [Kind::Growth, Kind::Sawtooth];

/// The user's rules; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Expected findings: shown as allowed, never counted, never alerted, and they fail no check.
    pub allow: Vec<Name>,
    /// Silenced findings: counted and judged, never alerted. A finding that is allowed too is allowed.
    pub silence: Vec<Name>,
}

impl Policy {
    /// Returns the findings of a session with their standing, the allowed ones last.
    pub fn findings(&self, session: &Session) -> Findings {
        let mut found = findings(session);
        for it in &mut found.all {
            it.standing = self.standing(it, session);
        }
        found.all.sort_by_key(Finding::is_allowed);
        found
    }

    /// Returns the findings of each machine of a cluster with their standing, and the rules for those of its jobs.
    pub fn found(&self, cluster: &Cluster) -> Found {
        let named = |names: &[Name]| {
            Subject::COMPARED.into_iter().filter(|it| names.iter().any(|name| name.is_about(*it))).collect()
        };
        Found {
            machines: cluster.nodes.iter().map(|it| self.findings(&it.session)).collect(),
            expected: named(&self.allow),
            silenced: named(&self.silence),
        }
    }

    /// Returns the names that make a finding expected.
    pub fn allowing<'a>(&'a self, it: &Finding, session: &Session) -> Vec<&'a Name> {
        self.allow.iter().filter(|name| name.is_of(it, session)).collect()
    }

    fn standing(&self, it: &Finding, session: &Session) -> Standing {
        if !self.allowing(it, session).is_empty() {
            Standing::Allowed
        } else if self.silence.iter().any(|name| name.is_of(it, session)) {
            Standing::Silenced
        } else {
            Standing::Usual
        }
    }
}

/// Returns the name to allow a finding by: its cause, the narrowest name, or its kind and resource if it has no cause.
pub fn name(it: &Finding) -> String {
    match it.resource {
        _ if it.kind != Kind::Oom && it.cause != Cause::Unknown => it.cause.id().to_owned(),
        Some(resource) if OF_RESOURCES.contains(&it.kind) => format!("{}:{}", it.kind.name(), resource.name()),
        _ => it.kind.name().to_owned(),
    }
}

/// Separates a name from the script or the line that it is limited to.
const ONLY: char = '@';

/// Returns a name that is limited to a script or a line: `tensors-retained@train.py:87`.
pub fn limited(name: &str, only: &str) -> String {
    format!("{name}{ONLY}{only}")
}

/// Returns the line to blame of a finding, such as `train.py:87`.
pub fn line(it: &Finding) -> Option<String> {
    it.culprit.as_ref().map(|it| it.leading()).filter(|it| !it.file.raw().is_empty()).map(Spot::place)
}

/// Returns the name of the script of a finding's process, such as `train.py`.
pub fn script<'a>(it: &Finding, session: &'a Session) -> Option<&'a str> {
    it.process(session)?.script()
}

/// A name of findings: a kind, a cause, a kind with its resource, or what only a comparison of ranks shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    text: String,
    kind: Option<Kind>,
    /// Some names, such as `fragmentation`, are both a kind and a cause.
    cause: Option<Cause>,
    resource: Option<Resource>,
    subject: Option<Subject>,
    /// The script, such as `train.py`, or the line, such as `train.py:87`.
    only: Option<String>,
}

impl Name {
    /// Parses `growth`, `tensors-retained`, `growth:host` or `rank-ended`, and those limited to a script
    /// (`growth@train.py`) or a line (`growth@train.py:87`); `None` for an unknown name.
    pub fn read(text: &str) -> Option<Self> {
        let Some((name, only)) = text.split_once(ONLY) else { return Self::read_whole(text) };
        let known = Self::read_whole(name).filter(|it| !only.is_empty() && (it.kind, it.cause) != (None, None))?;
        Some(Self { text: text.to_owned(), only: Some(only.to_owned()), ..known })
    }

    /// Returns it as the user wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn read_whole(text: &str) -> Option<Self> {
        let whole = Self { text: text.to_owned(), kind: None, cause: None, resource: None, subject: None, only: None };
        let (word, behind) = text.split_once(':').map_or((text, None), |(word, behind)| (word, Some(behind)));
        let kind = Kind::ALL.into_iter().find(|it| it.name() == word);
        let Some(behind) = behind else {
            let cause = Cause::from_id(word);
            let subject = Subject::OF_RANKS.into_iter().find(|it| it.name() == word);
            let is_known = kind.is_some() || cause.is_some() || subject.is_some();
            return is_known.then_some(Self { kind, cause, subject, ..whole });
        };
        let kind = kind.filter(|it| OF_RESOURCES.contains(it))?;
        let resource = Resource::ALL.into_iter().find(|it| [it.name(), it.id()].contains(&behind))?;
        Some(Self { kind: Some(kind), resource: Some(resource), ..whole })
    }

    /// Returns every valid name that is not limited.
    pub fn all() -> impl Iterator<Item = String> {
        let causes = cause::entries().iter().map(|it| it.id.to_owned());
        let of = |kind: Kind| Resource::ALL.map(|it| format!("{}:{}", kind.name(), it.name()));
        let kinds = Kind::ALL.into_iter().map(|it| it.name().to_owned());
        let subjects = Subject::OF_RANKS.into_iter().map(|it| it.name().to_owned());
        kinds.chain(subjects).chain(causes).chain(OF_RESOURCES.into_iter().flat_map(of))
    }

    fn is_about(&self, it: Subject) -> bool {
        // A job on several machines has no line.
        if self.only.is_some() {
            return false;
        }
        self.subject == Some(it) || (self.kind.is_some() && self.resource.is_none() && self.kind == it.kind())
    }

    fn is_of(&self, it: &Finding, session: &Session) -> bool {
        let is_there = |only: &String| line(it).as_ref() == Some(only) || script(it, session) == Some(only.as_str());
        self.is_of_kind(it) && self.only.as_ref().is_none_or(is_there)
    }

    fn is_of_kind(&self, it: &Finding) -> bool {
        match self.resource {
            // Expecting a leak does not imply expecting the out-of-memory error it may cause.
            None => self.kind == Some(it.kind) || (it.kind != Kind::Oom && self.cause == Some(it.cause)),
            resource => self.kind == Some(it.kind) && resource == it.resource,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_and_nothing_else_is() {
        for text in Name::all() {
            assert!(Name::read(&text).is_some(), "{text}");
        }
        for text in ["growth@train.py", "growth:host@train.py", "tensors-retained@train.py:87"] {
            assert_eq!(Name::read(text).unwrap().text(), text);
        }
        // Both the JSON name and the displayed name of a resource are valid.
        for (id, name) in [("growth:driver", "growth:non-torch"), ("growth:device", "growth:others")] {
            let resource = |text| Name::read(text).unwrap().resource;
            assert_eq!(resource(id), resource(name), "{id}");
        }
        for text in [
            "",
            ":",
            "growht",
            "Growth",
            "growth:",
            ":host",
            "growth:vram",
            "oom:host",
            "unknown:host",
            "growth:host:",
            "rank-ended:host",
            "growth@",
            "@train.py",
            "growht@train.py",
            "rank-ended@train.py",
        ] {
            assert_eq!(Name::read(text), None, "{text}");
        }
    }
}
