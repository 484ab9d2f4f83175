//! The user's rules for alerts: expected ones by name, and silenced ones.

use crate::model::{
    analysis::{
        cause::{self, Cause},
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
            it.standing = self.standing(it);
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

    fn standing(&self, it: &Finding) -> Standing {
        if self.allow.iter().any(|name| name.is_of(it)) {
            Standing::Allowed
        } else if self.silence.iter().any(|name| name.is_of(it)) {
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

/// A name of findings: a kind, a cause, a kind with its resource, or what only a comparison of ranks shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    kind: Option<Kind>,
    /// Some names, such as `fragmentation`, are both a kind and a cause.
    cause: Option<Cause>,
    resource: Option<Resource>,
    subject: Option<Subject>,
}

impl Name {
    /// Parses `growth`, `tensors-retained`, `growth:host` or `rank-ended`; `None` for an unknown name.
    pub fn read(text: &str) -> Option<Self> {
        let (word, behind) = text.split_once(':').map_or((text, None), |(word, behind)| (word, Some(behind)));
        let kind = Kind::ALL.into_iter().find(|it| it.name() == word);
        let Some(behind) = behind else {
            let cause = Cause::from_id(word);
            let subject = Subject::OF_RANKS.into_iter().find(|it| it.name() == word);
            let is_known = kind.is_some() || cause.is_some() || subject.is_some();
            return is_known.then_some(Self { kind, cause, resource: None, subject });
        };
        let kind = kind.filter(|it| OF_RESOURCES.contains(it))?;
        let resource = Resource::ALL.into_iter().find(|it| [it.name(), it.id()].contains(&behind))?;
        Some(Self { kind: Some(kind), cause: None, resource: Some(resource), subject: None })
    }

    /// Returns every valid name.
    pub fn all() -> impl Iterator<Item = String> {
        let causes = cause::entries().iter().map(|it| it.id.to_owned());
        let of = |kind: Kind| Resource::ALL.map(|it| format!("{}:{}", kind.name(), it.name()));
        let kinds = Kind::ALL.into_iter().map(|it| it.name().to_owned());
        let subjects = Subject::OF_RANKS.into_iter().map(|it| it.name().to_owned());
        kinds.chain(subjects).chain(causes).chain(OF_RESOURCES.into_iter().flat_map(of))
    }

    fn is_about(self, it: Subject) -> bool {
        self.subject == Some(it) || (self.kind.is_some() && self.resource.is_none() && self.kind == it.kind())
    }

    fn is_of(self, it: &Finding) -> bool {
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
        // Both the JSON name and the displayed name of a resource are valid.
        for (id, name) in [("growth:driver", "growth:non-torch"), ("growth:device", "growth:others")] {
            assert_eq!(Name::read(id), Name::read(name), "{id}");
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
        ] {
            assert_eq!(Name::read(text), None, "{text}");
        }
    }
}
