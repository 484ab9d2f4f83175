//! `gpuwatch serve --otlp`: what a receiver gets, and what becomes of figures that none takes.

use crate::{
    helpers::venv::Venv,
    probe::{launch::Home, pytorch::script},
    serve::{Server, exposed, story},
};
use gpuwatch::{
    commands::serve::{families::Kind, otlp},
    facts::text::Foreign,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    process::{Command, Stdio},
    sync::OnceLock,
};

/// A decoder of OTLP.
static DECODER: Venv = Venv {
    variable: "GPUWATCH_OTLP_VENV",
    name: "venv-otlp-1",
    holds: "opentelemetry-proto (a download of about 1 MB)",
    packages: &[&["opentelemetry-proto==1.45.2", "protobuf==7.36.2"]],
    above: None,
    python: OnceLock::new(),
};

/// Takes one request, answers it, and returns its head and its body.
pub(crate) fn received(listener: &TcpListener, answer: &str) -> (String, Value) {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(crate::helpers::terminal::PATIENCE)).unwrap();
    received_on(stream, answer)
}

/// The same of one connection.
pub(crate) fn received_on(stream: impl Read + Write, answer: &str) -> (String, Value) {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap() <= 2 {
            break;
        }
        if let Some(it) = line.to_lowercase().strip_prefix("content-length:") {
            length = it.trim().parse().unwrap();
        }
        head += &line;
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    reader.get_mut().write_all(answer.as_bytes()).unwrap();
    (head, serde_json::from_slice(&body).unwrap())
}

pub(crate) fn answer(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

/// The value of a metric without attributes.
fn value(body: &Value, name: &str) -> Option<f64> {
    let all = body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().unwrap();
    let metric = all.iter().find(|it| it["name"] == name)?;
    metric["sum"]["dataPoints"][0]["asDouble"].as_f64()
}

#[test]
fn a_receiver_that_is_busy_is_tried_again_and_losses_are_counted() {
    let home = Home::new();
    let receiver = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", receiver.local_addr().unwrap());
    let server = Server::start(&home, &["--otlp", &url, "--every", "1s"]);
    let (head, first) = received(&receiver, &answer("503 Service Unavailable", ""));
    assert!(head.starts_with("POST /v1/metrics HTTP/1.1\r\n"), "{head}");
    assert!(head.to_lowercase().contains("content-type: application/json\r\n"), "{head}");
    assert_eq!(value(&first, "gpuwatch.otlp_lost"), Some(0.0));
    let (_, again) = received(&receiver, &answer("200 OK", "{}"));
    assert_eq!(first, again);
    // A request that is refused for good is lost, and so is one of which a part is refused.
    received(&receiver, &answer("400 Bad Request", ""));
    let rejected = json!({ "partialSuccess": { "rejectedDataPoints": "2", "errorMessage": "no" } });
    received(&receiver, &answer("200 OK", &rejected.to_string()));
    let mut last = None;
    // Requests that were written before the losses may come first.
    for _ in 0..20 {
        last = value(&received(&receiver, &answer("200 OK", "{}")).1, "gpuwatch.otlp_lost");
        if last >= Some(2.0) {
            break;
        }
    }
    assert!(last >= Some(2.0), "{last:?}");
    server.end();
}

#[test]
fn an_independent_decoder_reads_every_figure() {
    test_tiers::full!("a decoder of OTLP");
    let python = test_tiers::needs!(DECODER.found());
    let all = exposed(&story());
    let mut child =
        Command::new(python).arg(script("otlp.py")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(otlp(&all, "node-7", 1_795_214_453_000_001).as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let decoded: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(decoded["resource"]["host.name"], "node-7");
    let points = decoded["points"].as_array().unwrap();
    let (own, conventions): (Vec<_>, Vec<_>) =
        points.iter().partition(|it| it["name"].as_str().unwrap().starts_with("gpuwatch."));
    assert_eq!(own.len(), all.len());
    for (point, series) in own.iter().zip(&all_in_order(&all)) {
        let row = series.family.row();
        let labels: BTreeMap<&str, &str> =
            series.labels.iter().map(|(name, value)| (*name, Foreign::raw(value))).collect();
        assert_eq!(point["attributes"], json!(labels), "{}", row.name);
        assert_eq!(
            (point["value"].as_f64(), &point["nano"]),
            (Some(series.value), &json!(1_795_214_453_000_001_000_u64))
        );
        assert_eq!(point["monotonic"], json!(row.kind == Kind::Counter), "{}", row.name);
        let unit = match row.unit {
            "bytes" => "By",
            "seconds" => "s",
            "celsius" => "Cel",
            _ => "1",
        };
        assert_eq!(point["unit"], unit, "{}", row.name);
    }
    let limit = conventions.iter().find(|it| it["name"] == "hw.gpu.memory.limit").unwrap();
    assert_eq!(limit["attributes"], json!({ "hw.id": "GPU-0", "hw.type": "gpu" }));
}

/// The series, family by family, as every format has them.
fn all_in_order(all: &[gpuwatch::commands::serve::Series]) -> Vec<gpuwatch::commands::serve::Series> {
    let mut sorted = all.to_vec();
    sorted.sort_by_key(|it| it.family as usize);
    sorted
}
