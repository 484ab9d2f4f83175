//! The figures as an OTLP request for metrics, in its JSON encoding.
//!
//! <https://opentelemetry.io/docs/specs/otlp/>, <https://opentelemetry.io/docs/specs/semconv/hardware/gpu/>

use super::{
    families::{Family, Kind, Row},
    series::Series,
};
use crate::facts::text::{Foreign, escape_json};
use serde_json::{Value, json};

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
}
