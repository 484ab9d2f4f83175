//! An alert as a line of text, environment variables and a JSON object.

use crate::{
    facts::text::Foreign,
    model::{
        analysis::{culprit::Culprit, episode::Resource},
        findings::{Finding, Kind},
        session::Session,
    },
};
use serde_json::{Value, json};
use std::fmt::Display;

/// The object's schema version.
pub(super) const SCHEMA: u32 = 1;

/// Most characters of a name from outside.
const NAME: usize = 100;

/// Most characters of a sentence about a job, and most lines of an account.
pub(super) const SENTENCE: usize = 240;
const LINES: usize = 5;

/// An alert for readers outside gpuwatch. Of one machine only the object, where JSON escapes it, carries text from
/// outside: the driver's name of the device, and the host's. Of several machines the line does too, escaped and cut:
/// the machine, the job, why a rank ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// One line: `warning: rank 1, GPU 1: allocated +4.00 MiB/step, full in 43 min`.
    pub line: String,
    /// Variables with ids and numbers only: `GPUWATCH_ALERT_SEVERITY`, `_KIND`, `_CAUSE`, and where they are known
    /// `_RESOURCE`, `_GPU` (the driver's number), `_PID`, `_RANK`, `_STEP`, `_BYTES_PER_STEP`, `_FULL_IN_STEPS`,
    /// `_FULL_IN_S`.
    pub environment: Vec<(&'static str, String)>,
    /// One JSON object in one line: `schema` (1), `gpuwatch` (version), `host`, `gpu` (the driver's number), and the
    /// fields of [`Finding::json`] without `replay`. Of a culprit it has `file`, `line`, `kept` (its line),
    /// `bytes_per_step`, `blocks_per_step`, `sentence`, `advice` and the first lines of the account.
    pub object: String,
}

impl Message {
    pub(super) fn new(it: &Finding, session: &Session) -> Self {
        let gpu = gpu(it, session);
        let host = it.process(session).and_then(|it| Some(short(&it.hello.as_ref()?.host)));
        let mut object = it.json();
        object.insert("culprit".to_owned(), it.culprit.as_deref().map_or(Value::Null, culprit));
        let account: Vec<_> = it.account.iter().take(LINES).map(|it| cut(it, SENTENCE)).collect();
        object.insert("account".to_owned(), json!(account));
        object.insert("sentence".to_owned(), json!(it.sentence.as_deref().map(|it| cut(it, SENTENCE))));
        object.insert("device_id".to_owned(), json!(it.device.as_ref().map(|it| short(&it.0))));
        // A new alert has none yet.
        object.remove("replay");
        object.insert("schema".to_owned(), json!(SCHEMA));
        object.insert("gpuwatch".to_owned(), json!(env!("CARGO_PKG_VERSION")));
        object.insert("host".to_owned(), json!(host));
        object.insert("gpu".to_owned(), json!(gpu));
        Self {
            line: in_a_line(it, gpu),
            environment: environment(it, gpu),
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
pub(super) fn short(name: &str) -> String {
    cut(name, NAME)
}

pub(super) fn cut(text: &str, most: usize) -> String {
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

/// Formats an alert as one line in gpuwatch's own words and numbers: `warning: rank 1, GPU 1: allocated +4.00 MiB/step,
/// …`.
pub fn line(it: &Finding, session: &Session) -> String {
    in_a_line(it, gpu(it, session))
}

/// Returns the driver's number of the finding's device.
fn gpu(it: &Finding, session: &Session) -> Option<u32> {
    it.device.as_ref().and_then(|id| session.device(id)?.index)
}

fn in_a_line(it: &Finding, gpu: Option<u32>) -> String {
    let who = it.rank.map(|it| format!("rank {it}")).or(it.pid.map(|it| format!("pid {it}")));
    let gpu = gpu.map(|it| format!("GPU {it}"));
    let place: Vec<String> = who.into_iter().chain(gpu).collect();
    let what = match (it.kind, it.resource, it.slope()) {
        (Kind::Growth, Some(resource), Some(slope)) => format!("{} {slope}", resource.name()),
        (kind, _, _) => kind.name().to_owned(),
    };
    let cause = it.because().map(str::to_owned);
    let parts: Vec<String> = [Some(what), cause, it.forecast()].into_iter().flatten().collect();
    let pieces = [it.severity.name().to_owned(), place.join(", "), parts.join(", ")];
    pieces.into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join(": ")
}

fn environment(it: &Finding, gpu: Option<u32>) -> Vec<(&'static str, String)> {
    fn word(value: Option<impl Display>) -> Option<String> {
        value.map(|it| it.to_string())
    }
    let values = [
        ("GPUWATCH_ALERT_SEVERITY", word(Some(it.severity.name()))),
        ("GPUWATCH_ALERT_KIND", word(Some(it.kind.name()))),
        ("GPUWATCH_ALERT_CAUSE", word(Some(it.cause.id()))),
        ("GPUWATCH_ALERT_RESOURCE", word(it.resource.map(Resource::id))),
        ("GPUWATCH_ALERT_GPU", word(gpu)),
        ("GPUWATCH_ALERT_PID", word(it.pid)),
        ("GPUWATCH_ALERT_RANK", word(it.rank)),
        ("GPUWATCH_ALERT_STEP", word(Some(it.first_alert_step))),
        ("GPUWATCH_ALERT_BYTES_PER_STEP", word(it.bytes_per_step.map(f64::round))),
        ("GPUWATCH_ALERT_FULL_IN_STEPS", word(it.full_in_steps)),
        ("GPUWATCH_ALERT_FULL_IN_S", word(it.full_in_us.map(|it| it / 1_000_000))),
    ];
    values.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}
