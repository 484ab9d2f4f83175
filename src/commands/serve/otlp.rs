//! The figures as an OTLP request for metrics, in its JSON encoding.
//!
//! <https://opentelemetry.io/docs/specs/otlp/>, <https://opentelemetry.io/docs/specs/semconv/hardware/gpu/>

use super::{
    families::{Family, Kind, Row},
    series::Series,
};
use crate::{
    facts::text::{Foreign, escape_json},
    net::{
        backoff::Backoff,
        client::{Origin, PostError},
    },
};
use anyhow::Result;
use http_body_util::{BodyExt, Collected, Limited};
use hyper::{
    Response, StatusCode,
    body::{Bytes, Incoming},
    header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER},
};
use serde_json::{Value, json};
use std::{fmt, future::pending, str::FromStr, time::Duration};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`
const CUMULATIVE: u64 = 2;

/// The families that OpenTelemetry has names for, and these. They come in addition to gpuwatch's own.
const CONVENTIONS: [(Family, &str); 2] =
    [(Family::DeviceTotal, "hw.gpu.memory.limit"), (Family::DeviceUsed, "hw.gpu.memory.usage")];

/// Returns the body of a request with all series of one moment, in µs of Unix time.
pub fn text(series: &[Series], host: &str, unix_us: u64) -> String {
    let own = Family::TABLE.iter().filter_map(|row| metric(row, &name(row), series, unix_us, attributes));
    let conventions =
        CONVENTIONS.iter().filter_map(|(family, name)| metric(family.row(), name, series, unix_us, hardware));
    let resource = [("service.name", "gpuwatch"), ("service.version", env!("CARGO_PKG_VERSION")), ("host.name", host)];
    let resource: Vec<_> = resource.iter().map(|(name, value)| attribute(name, &Foreign::new(*value))).collect();
    let request = json!({ "resourceMetrics": [{
        "resource": { "attributes": resource },
        "scopeMetrics": [{
            "scope": { "name": "gpuwatch", "version": env!("CARGO_PKG_VERSION") },
            "metrics": own.chain(conventions).collect::<Vec<_>>(),
        }],
    }] });
    escape_json(&request.to_string())
}

/// Returns a family's name here: `gpuwatch.memory` with a unit of its own for `gpuwatch_memory_bytes`. One keeps its
/// suffix if another family has the rest as its name.
fn name(row: &Row) -> String {
    let short = row.name.strip_suffix(row.unit).and_then(|it| it.strip_suffix('_'));
    let is_free = |short: &&str| !row.unit.is_empty() && Family::TABLE.iter().all(|it| it.name != *short);
    short.filter(is_free).unwrap_or(row.name).replacen('_', ".", 1)
}

/// Returns a unit as UCUM has it.
fn unit(row: &Row) -> &'static str {
    match row.unit {
        "bytes" => "By",
        "seconds" => "s",
        "celsius" => "Cel",
        _ => "1",
    }
}

fn metric(
    row: &Row,
    name: &str,
    series: &[Series],
    unix_us: u64,
    attributes: impl Fn(&Series) -> Vec<Value>,
) -> Option<Value> {
    let time = format!("{unix_us}000");
    let point = |it: &Series| json!({ "attributes": attributes(it), "timeUnixNano": time, "asDouble": it.value });
    let points: Vec<_> = series.iter().filter(|it| it.family == row.family).map(point).collect();
    if points.is_empty() {
        return None;
    }
    let mut metric = json!({ "name": name, "description": row.meaning, "unit": unit(row) });
    let (kind, data) = match row.kind {
        Kind::Gauge => ("gauge", json!({ "dataPoints": points })),
        Kind::Counter => {
            ("sum", json!({ "dataPoints": points, "aggregationTemporality": CUMULATIVE, "isMonotonic": true }))
        }
    };
    metric[kind] = data;
    Some(metric)
}

fn attributes(series: &Series) -> Vec<Value> {
    series.labels.iter().map(|(name, value)| attribute(name, value)).collect()
}

/// Returns the attributes of OpenTelemetry's own metrics of a GPU.
fn hardware(series: &Series) -> Vec<Value> {
    let id = series.labels.iter().find(|it| it.0 == "gpu_uuid").map(|it| attribute("hw.id", &it.1));
    id.into_iter().chain([attribute("hw.type", &"gpu".into())]).collect()
}

fn attribute(name: &str, value: &Foreign) -> Value {
    json!({ "key": name, "value": { "stringValue": value.to_string() } })
}

/// The path of metrics below a receiver's address.
const PATH: &str = "/v1/metrics";

/// The port of `http` without one in the address.
const PORT: u16 = 4318;

/// Requests that may wait; later ones are lost.
const WAITING: usize = 4;

/// How long a request and its answer may take.
const REQUEST: Duration = Duration::from_secs(10);

/// Most attempts of a request, and the time before the second; it doubles.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_secs(1);

/// The longest pause that a receiver may ask for.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Most bytes of an answer that are read.
const ANSWER_MAX: usize = 64 << 10;

/// Most characters of a receiver's message that are shown.
const MESSAGE_MAX: usize = 200;

/// The address of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    origin: Origin,
    path: String,
}

impl FromStr for Endpoint {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (origin, base) = Origin::parse(text, PORT)?;
        // The variable OTEL_EXPORTER_OTLP_ENDPOINT has the address without the path, too.
        let path = if base.ends_with(PATH) { base } else { format!("{base}{PATH}") };
        Ok(Self { origin, path })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin, self.path)
    }
}

/// Why a request was not taken.
enum Refusal {
    /// The receiver may take it later, perhaps after this time.
    Later(String, Option<Duration>),
    /// It never will.
    Never(String),
}

/// Pushes in the background.
pub(super) struct Pushes {
    pub(super) endpoint: Endpoint,
    /// Requests that no receiver took.
    pub(super) lost: u64,
    is_failing: bool,
    requests: mpsc::Sender<String>,
    outcomes: mpsc::Receiver<Result<(), String>>,
}

impl Pushes {
    /// Starts; needs a tokio runtime.
    pub(super) fn start(endpoint: Endpoint) -> Self {
        let (requests, queue) = mpsc::channel(WAITING);
        let (sender, outcomes) = mpsc::channel(WAITING);
        tokio::spawn(push(endpoint.clone(), queue, sender));
        Self { endpoint, lost: 0, is_failing: false, requests, outcomes }
    }

    /// Queues a request. It is lost if earlier ones still wait.
    pub(super) fn offer(&mut self, request: String) {
        self.lost += u64::from(self.requests.try_send(request).is_err());
    }

    /// Notes the outcome of a request, and returns what is new for the user.
    fn note(&mut self, outcome: Result<(), String>) -> Option<String> {
        self.lost += u64::from(outcome.is_err());
        let was_failing = std::mem::replace(&mut self.is_failing, outcome.is_err());
        match outcome {
            Err(why) if !was_failing => Some(format!("{} takes no figures: {why}", self.endpoint)),
            Ok(()) if was_failing => {
                Some(format!("{} takes figures again; {} pushes were lost", self.endpoint, self.lost))
            }
            _ => None,
        }
    }
}

/// Waits until the user should know something about the pushes; for ever without any.
pub(super) async fn message(pushes: &mut Option<Pushes>) -> String {
    let Some(pushes) = pushes else { return pending().await };
    loop {
        let Some(outcome) = pushes.outcomes.recv().await else { return pending().await };
        if let Some(text) = pushes.note(outcome) {
            return text;
        }
    }
}

/// Sends requests until there are no more, and reports for each whether it was taken, or why not.
async fn push(endpoint: Endpoint, mut requests: mpsc::Receiver<String>, outcomes: mpsc::Sender<Result<(), String>>) {
    while let Some(request) = requests.recv().await {
        let outcome = deliver(&endpoint, request.into()).await;
        if outcomes.send(outcome).await.is_err() {
            return;
        }
    }
}

async fn deliver(endpoint: &Endpoint, body: Bytes) -> Result<(), String> {
    let mut backoff = Backoff::new(PAUSE, PAUSE_MAX);
    for attempt in 1.. {
        let refusal = match timeout(REQUEST, post(endpoint, body.clone())).await {
            Ok(Ok(())) => break,
            Ok(Err(refusal)) => refusal,
            Err(_) => Refusal::Later("it does not answer".to_owned(), None),
        };
        match refusal {
            Refusal::Later(_, wanted) if attempt < ATTEMPTS => {
                let pause = backoff.pause();
                sleep(wanted.unwrap_or(pause).min(PAUSE_MAX)).await;
            }
            Refusal::Later(why, _) | Refusal::Never(why) => return Err(why),
        }
    }
    Ok(())
}

async fn post(endpoint: &Endpoint, body: Bytes) -> Result<(), Refusal> {
    let headers = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    let response = endpoint.origin.post(&endpoint.path, &headers, body).await.map_err(|error| match error {
        PostError::Unreachable(why) | PostError::Unanswered(why) => Refusal::Later(format!("{why:#}"), None),
        PostError::Untrusted(why) | PostError::Invalid(why) => Refusal::Never(format!("{why:#}")),
    })?;
    judged(response).await
}

/// Returns whether a receiver has taken all of a request.
async fn judged(response: Response<Incoming>) -> Result<(), Refusal> {
    let status = response.status();
    if !status.is_success() {
        let why = format!("it answers {status}");
        let wanted = response.headers().get(RETRY_AFTER).and_then(|it| it.to_str().ok()?.parse().ok());
        return Err(match status {
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Refusal::Later(why, wanted.map(Duration::from_secs)),
            _ => Refusal::Never(why),
        });
    }
    let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await.map(Collected::to_bytes);
    let answer: Value = body.ok().and_then(|it| serde_json::from_slice(&it).ok()).unwrap_or_default();
    match rejected(&answer["partialSuccess"]) {
        Some(why) => Err(Refusal::Never(why)),
        None => Ok(()),
    }
}

/// Returns what a receiver reports of points that it did not take.
fn rejected(partial: &Value) -> Option<String> {
    let count = &partial["rejectedDataPoints"];
    let count = count.as_u64().or_else(|| count.as_str()?.parse().ok()).filter(|number| *number > 0)?;
    let message: String = partial["errorMessage"].as_str().unwrap_or_default().chars().take(MESSAGE_MAX).collect();
    Some(format!("it rejects {count} of the points: {}", Foreign::new(message)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_names_and_units_of_their_own() {
        let named = |family: Family| (name(family.row()), unit(family.row()));
        assert_eq!(named(Family::Gap), ("gpuwatch.memory".to_owned(), "By"));
        assert_eq!(named(Family::StepTime), ("gpuwatch.step_seconds".to_owned(), "s"));
        assert_eq!(named(Family::DeviceUtilisation), ("gpuwatch.device_utilisation".to_owned(), "1"));
        assert_eq!(named(Family::DeviceTemperature), ("gpuwatch.device_temperature".to_owned(), "Cel"));
        assert_eq!(named(Family::Ooms), ("gpuwatch.ooms".to_owned(), "1"));
        assert_eq!(named(Family::Growth), ("gpuwatch.growth_bytes_per_step".to_owned(), "1"));
        let distinct: std::collections::BTreeSet<String> = Family::TABLE.iter().map(name).collect();
        assert_eq!(distinct.len(), Family::TABLE.len());
    }

    #[test]
    fn an_endpoint_is_an_address_with_or_without_the_path() {
        let parsed = |text: &str| text.parse::<Endpoint>().map(|it| it.to_string());
        for (text, shown) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/metrics"),
            ("http://collector/", "http://collector:4318/v1/metrics"),
            ("http://[::1]:9/otlp/v1/metrics", "http://[::1]:9/otlp/v1/metrics"),
            ("https://collector", "https://collector:443/v1/metrics"),
        ] {
            assert_eq!(parsed(text).unwrap(), shown);
        }
        for text in ["collector:4318", "ftp://it", ""] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn points_that_are_rejected_are_reported() {
        assert_eq!(rejected(&Value::Null), None);
        assert_eq!(rejected(&serde_json::json!({ "rejectedDataPoints": "0" })), None);
        let partial = serde_json::json!({ "rejectedDataPoints": "3", "errorMessage": "no\u{1b}" });
        assert_eq!(rejected(&partial).unwrap(), "it rejects 3 of the points: no\\u{1b}");
    }
}
