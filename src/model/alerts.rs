//! Alerts: which findings are open, what the user's rules are, and which findings to report, each once.

/// Decides which jobs to ask for a capture.
mod captures;
/// Which findings of several machines and their jobs to report, each once.
mod machines;

pub use super::findings::is_open;
use crate::{
    facts::{text::Foreign, units::Stamp},
    model::{
        analysis::{
            cause::{self, Cause},
            culprit::{Culprit, Spot},
            episode::Resource,
            severity::Severity,
        },
        cluster::{
            Cluster,
            findings::{ClusterFindings, Subject},
        },
        findings::{Finding, Findings, Identity, Kind, Standing, findings, follow},
        session::{
            Session,
            process::{ProbeState, Process},
        },
    },
};
pub use captures::{
    Captures, Due, Replays, has_error, is_settled, longer, question, question_of, replays_at_end, words,
};
pub use machines::NewClusterAlerts;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
};

/// Which findings gpuwatch has reported. It forgets those that the session has forgotten.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewAlerts {
    reported: BTreeSet<Identity>,
    /// Those that other ranks may share or whose line is looked for, and when they were first seen.
    waiting: BTreeMap<Identity, Stamp>,
}

impl NewAlerts {
    /// Returns findings that are open, at least a warning, neither silenced nor allowed, and not yet reported. Call it
    /// on the grid of events, at each [`Fact::Second`](crate::facts::event::Fact::Second), so that alerts do not depend
    /// on when frames are drawn.
    ///
    /// While a process's backlog arrives its findings wait, because they may end within the backlog. A leak that
    /// several ranks share is reported once: one that other ranks may share waits for them until the next second. One
    /// whose line a capture may find waits for it, for 20 seconds at most and while its process lives.
    pub fn at(&mut self, session: &Session, findings: &Findings) -> Vec<Message> {
        let known: BTreeSet<Identity> = findings.all.iter().map(Finding::identity).collect();
        self.reported.retain(|it| known.contains(it));
        self.waiting.retain(|it, _| known.contains(it));
        // What has waited is reported also where its process has ended meanwhile.
        let matters = |it: &&Finding| it.severity >= Severity::Warning && it.standing == Standing::Usual;
        let has_waited = |it: &&Finding| matters(it) && it.is_active() && self.waiting.contains_key(&it.identity());
        let alerts: Vec<&Finding> = findings.all.iter().filter(|it| is_alert(it, session) || has_waited(it)).collect();
        let groups = follow::grouped(&alerts, None, session).into_iter();
        let news = groups.filter(|group| self.is_news(group, session));
        news.filter_map(|group| Some(Message::new(group.first()?, &group, session))).collect()
    }

    /// Returns whether ranks with the same leak are to be reported now.
    fn is_news(&mut self, group: &[&Finding], session: &Session) -> bool {
        let is_reported = group.iter().any(|it| self.reported.contains(&it.identity()));
        let may_grow = follow::may_grow(group, session);
        let is_looked_for = group.iter().all(|it| awaits_line(it, session));
        if !is_reported && (may_grow || is_looked_for) {
            let since = group.iter().map(|it| *self.waiting.entry(it.identity()).or_insert(session.now)).min();
            let waited = since.map_or(0, |since| session.now.since(since));
            if (may_grow && waited == 0) || (is_looked_for && waited < LINE_US) {
                return false;
            }
        }
        for it in group {
            self.waiting.remove(&it.identity());
        }
        self.reported.extend(group.iter().map(|it| it.identity()));
        !is_reported
    }
}

/// How long an alert waits for its line, in µs: a capture compares some steps, and searches in the next ones.
const LINE_US: u64 = 20_000_000;

/// Whether a capture that runs may yet name the line.
fn awaits_line(it: &Finding, session: &Session) -> bool {
    let is_of_live = it.kind == Kind::Growth && it.resource == Some(Resource::Allocated) && it.culprit.is_none();
    let can_answer = |process: &Process| {
        let has_answered = process.sites.iter().any(|its| its.step > Some(it.since_step) && its.steps > 0);
        let is_ready = process.hello.as_ref().is_some_and(|it| it.can_capture()) && process.refused.is_none();
        is_ready && !has_answered && process.life == ProbeState::Live
    };
    is_of_live && it.process(session).is_some_and(can_answer)
}

/// Returns whether a finding is an alert: open, at least a warning, neither silenced nor allowed, and its process's
/// backlog has arrived.
pub fn is_alert(it: &Finding, session: &Session) -> bool {
    let is_ready = |process: &Process| !matches!(process.life, ProbeState::Found | ProbeState::CatchingUp);
    let is_caught_up = || it.probe.is_none() || it.process(session).is_some_and(is_ready);
    it.severity >= Severity::Warning && it.standing == Standing::Usual && is_open(it, session) && is_caught_up()
}

/// Which findings of any severity were raised and resolved; each is reported once.
#[derive(Clone, Debug, Default)]
pub struct Edges {
    active: BTreeMap<Identity, bool>,
}

impl Edges {
    /// Returns what changed since the last call: `raised` or `resolved`, and the finding.
    pub fn at<'a>(&mut self, findings: &'a Findings) -> Vec<(&'static str, &'a Finding)> {
        let known: BTreeSet<Identity> = findings.all.iter().map(Finding::identity).collect();
        self.active.retain(|it, _| known.contains(it));
        let mut out = Vec::new();
        for it in &findings.all {
            let before = self.active.insert(it.identity(), it.is_active());
            match (before, it.is_active()) {
                (None | Some(false), true) => out.push(("raised", it)),
                // A finding that was raised and resolved between two calls gets both edges.
                (None, false) => out.extend([("raised", it), ("resolved", it)]),
                (Some(true), false) => out.push(("resolved", it)),
                _ => {}
            }
        }
        out
    }
}

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
    pub fn found(&self, cluster: &Cluster) -> ClusterFindings {
        let named = |names: &[Name]| {
            Subject::COMPARED.into_iter().filter(|it| names.iter().any(|name| name.is_about(*it))).collect()
        };
        ClusterFindings {
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
pub fn line_to_blame(it: &Finding) -> Option<String> {
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
        let kind = word.parse::<Kind>().ok();
        let Some(behind) = behind else {
            let cause = Cause::from_id(word);
            let subject = Subject::OF_RANKS.into_iter().find(|it| it.name() == word);
            let is_known = kind.is_some() || cause.is_some() || subject.is_some();
            return is_known.then_some(Self { kind, cause, subject, ..whole });
        };
        let kind = kind.filter(|it| OF_RESOURCES.contains(it))?;
        let resource = Resource::ALL.iter().copied().find(|it| [it.name(), it.id()].contains(&behind))?;
        Some(Self { kind: Some(kind), resource: Some(resource), ..whole })
    }

    /// Returns every valid name that is not limited.
    pub fn all() -> impl Iterator<Item = String> {
        let causes = cause::entries().iter().map(|it| it.id.to_owned());
        let of = |kind: Kind| Resource::ALL.iter().map(move |it| format!("{}:{}", kind.name(), it.name()));
        let kinds = Kind::ALL.iter().map(|it| it.name().to_owned());
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
        let is_there =
            |only: &String| line_to_blame(it).as_ref() == Some(only) || script(it, session) == Some(only.as_str());
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

/// The object's schema version.
const SCHEMA: u32 = 1;

/// Most characters of a name from outside.
const NAME: usize = 100;

/// Most characters of a sentence about a job, and most lines of an account.
const SENTENCE: usize = 240;
const LINES: usize = 5;

/// An alert for readers outside gpuwatch. Of one machine only the object, where JSON escapes it, carries text from
/// outside: the driver's name of the device, and the host's. Of several machines the line does too, escaped and cut:
/// the machine, the job, why a rank ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// One line: `warning: rank 1 on GPU 1: allocated +4.00 MiB/step, full in 43 min`.
    pub line: String,
    /// Variables with ids and numbers only: `GPUWATCH_ALERT_SEVERITY`, `_KIND`, `_CAUSE`, and where they are known
    /// `_RESOURCE`, `_GPU` (the driver's number), `_PID`, `_RANK`, `_RANKS` (all that share the leak), `_STEP`,
    /// `_BYTES_PER_STEP`, `_FULL_IN_STEPS`, `_FULL_IN_S`.
    pub environment: Vec<(&'static str, String)>,
    /// One JSON object in one line: `schema` (1), `gpuwatch` (version), `host`, `gpu` (the driver's number), `ranks`
    /// (all that share the leak), and the fields of [`Finding::json`] without `replay`. Of a culprit it has `file`,
    /// `line`, `kept` (its line), `bytes_per_step`, `blocks_per_step`, `sentence`, `advice` and the first lines of the
    /// account.
    pub object: String,
}

impl Message {
    /// Creates the message of a finding; `group` are those of all ranks that have it.
    fn new(it: &Finding, group: &[&Finding], session: &Session) -> Self {
        let gpu = gpu(it, session);
        let ranks = follow::numbers(group);
        let host = it.process(session).and_then(|it| Some(short(&it.hello.as_ref()?.host)));
        let mut object = it.json();
        object.insert("culprit".to_owned(), it.culprit.as_deref().map_or(Value::Null, culprit));
        let account: Vec<_> = it.account.iter().chain(&it.saving).take(LINES).map(|it| cut(it, SENTENCE)).collect();
        object.insert("account".to_owned(), json!(account));
        object.insert("sentence".to_owned(), json!(it.sentence.as_deref().map(|it| cut(it, SENTENCE))));
        object.insert("device_id".to_owned(), json!(it.device.as_ref().map(|it| short(&it.0))));
        // A new alert has none yet.
        object.remove("replay");
        object.insert("schema".to_owned(), json!(SCHEMA));
        object.insert("gpuwatch".to_owned(), json!(env!("CARGO_PKG_VERSION")));
        object.insert("host".to_owned(), json!(host));
        object.insert("gpu".to_owned(), json!(gpu));
        object.insert("ranks".to_owned(), json!(ranks));
        Self {
            line: in_a_line(it, group, session),
            environment: environment(it, gpu, &ranks),
            object: serde_json::Value::from(object).to_string(),
        }
    }
}

impl Message {
    /// Returns the message as one of a machine in a list, by the machine's name there.
    #[must_use]
    pub fn on(self, host: &Foreign) -> Self {
        let mut object: Value = serde_json::from_str(&self.object).unwrap_or_default();
        object["host"] = json!(short(host.raw()));
        Self { line: format!("{host}: {}", self.line), object: object.to_string(), ..self }
    }
}

/// Cuts a name from outside to the usual length: the object has to fit a pipe that no process reads.
fn short(name: &str) -> String {
    cut(name, NAME)
}

fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

/// The parts of a culprit that fit.
fn culprit(it: &Culprit) -> Value {
    json!({
        "file": short(it.allocated.file.raw()),
        "line": it.allocated.line,
        "kept": it.kept.as_ref().map(|it| it.line),
        "bytes_per_step": it.bytes_per_step,
        "blocks_per_step": it.blocks_per_step,
        "sentence": cut(&it.sentence, SENTENCE),
        "advice": cut(&it.advice, SENTENCE),
    })
}

/// Formats an alert as one line in gpuwatch's own words and numbers:
/// `warning: rank 1 on GPU 1: allocated +4.00 MiB/step, …`.
pub fn line(it: &Finding, session: &Session) -> String {
    in_a_line(it, &[it], session)
}

/// Returns the driver's number of the finding's device.
fn gpu(it: &Finding, session: &Session) -> Option<u32> {
    it.device.as_ref().and_then(|id| session.device(id)?.index)
}

fn in_a_line(it: &Finding, group: &[&Finding], session: &Session) -> String {
    let who = || it.rank.map(|it| format!("rank {it}")).or(it.pid.map(|it| format!("pid {it}")));
    let ranks = follow::ranks(group);
    // Each of several ranks has its own.
    let gpu = gpu(it, session).filter(|_| ranks.is_none()).map(|it| format!("GPU {it}"));
    let who = ranks.or_else(who);
    let place: Vec<String> = who.into_iter().chain(gpu).collect();
    let what = match (it.kind, it.resource, it.slope()) {
        (Kind::Growth, Some(resource), Some(slope)) => format!("{} {slope}", resource.name()),
        (kind, ..) if it.limit.is_some() => {
            format!("{} of {}", kind.name(), it.limit.as_deref().unwrap_or_default())
        }
        (kind, _, _) => kind.name().to_owned(),
    };
    let cause = it.because().map(str::to_owned);
    let parts: Vec<String> = [Some(what), cause, it.forecast()].into_iter().flatten().collect();
    let pieces = [it.severity.name().to_owned(), place.join(" on "), parts.join(", ")];
    pieces.into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join(": ")
}

fn environment(it: &Finding, gpu: Option<u32>, ranks: &[u64]) -> Vec<(&'static str, String)> {
    fn word(value: Option<impl Display>) -> Option<String> {
        value.map(|it| it.to_string())
    }
    let joined = |ranks: &[u64]| ranks.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let values = [
        ("GPUWATCH_ALERT_SEVERITY", word(Some(it.severity.name()))),
        ("GPUWATCH_ALERT_KIND", word(Some(it.kind.name()))),
        ("GPUWATCH_ALERT_CAUSE", word(Some(it.cause.id()))),
        ("GPUWATCH_ALERT_RESOURCE", word(it.resource.map(Resource::id))),
        ("GPUWATCH_ALERT_GPU", word(gpu)),
        ("GPUWATCH_ALERT_PID", word(it.pid)),
        ("GPUWATCH_ALERT_RANK", word(it.rank)),
        ("GPUWATCH_ALERT_RANKS", Some(joined(ranks)).filter(|it| !it.is_empty())),
        ("GPUWATCH_ALERT_STEP", word(Some(it.first_alert_step))),
        ("GPUWATCH_ALERT_BYTES_PER_STEP", word(it.bytes_per_step.map(f64::round))),
        ("GPUWATCH_ALERT_FULL_IN_STEPS", word(it.full_in_steps)),
        ("GPUWATCH_ALERT_FULL_IN_S", word(it.full_in_us.map(|it| it / 1_000_000))),
    ];
    values.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
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
