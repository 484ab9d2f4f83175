//! `gpuwatch serve`: the figures for Prometheus equal those of `gpuwatch once --json`, and only their owner reads them.

pub(crate) mod fleet;
pub(crate) mod otlp;
pub(crate) mod tls;

use crate::{
    driver::nvml::Bench,
    helpers::{
        debian,
        story::{GIB, MIB, Story, counters},
        terminal::{PATIENCE, PROGRAM, until},
    },
    probe::{
        launch::Home,
        pytorch::{Job, script},
    },
};
use ::simgpu::Fault;
use gpuwatch::{
    commands::serve::{
        Series,
        families::{Family, Kind},
        series,
    },
    facts::event::wire::{Bye, Line},
    model::alerts::Policy,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::Path,
    process::{Child, ChildStderr, Command, Stdio},
};

/// A running `gpuwatch serve`, and what it printed about its places.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
    errors: BufReader<ChildStderr>,
}

impl Server {
    pub(crate) fn start(home: &Home, arguments: &[&str]) -> Self {
        let mut command = Command::new(PROGRAM);
        command.arg("serve").args(arguments).args(["--no-nvml"]).envs(home.variables());
        Self::of(command)
    }

    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        let mut server = Self { child, address: String::new(), errors };
        server.address = server.line().rsplit_once(' ').map_or(String::new(), |it| it.1.to_owned());
        server
    }

    /// Waits for the next line that it prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.errors.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn host(&self) -> &str {
        self.address.split_once("://").and_then(|it| it.1.strip_suffix("/metrics")).unwrap()
    }

    /// Sends a request, and gives the status line with the headers, and the body.
    fn ask(&self, request: &str, headers: &str) -> (String, String) {
        asked(TcpStream::connect(self.host()).unwrap(), request, headers)
    }

    pub(crate) fn scrape(&self) -> String {
        let (head, body) = self.ask("GET /metrics", "");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        body
    }

    pub(crate) fn end(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

pub(crate) fn asked(mut stream: impl Read + Write, request: &str, headers: &str) -> (String, String) {
    write!(stream, "{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// Two ranks, one of which grows, and one of which runs out of memory again and again.
pub(crate) fn story() -> Story {
    let mut story = Story::default();
    story.device(0, 90 * GIB, &[(4240, 80 * GIB)]).probe(0, 4240, 0, None);
    story.device(1, 60 * GIB, &[(4241, 50 * GIB)]).probe(1, 4241, 1, None);
    for step in 1..400 {
        story.wait(100_000).sample(0, step, counters(20 * GIB + step * 16 * MIB, GIB));
        story.sample(1, step, counters(20 * GIB, GIB));
    }
    story
}

pub(crate) fn exposed(story: &Story) -> Vec<Series> {
    let session = story.session();
    series(&session, &Policy::default().findings(&session))
}

fn value(all: &[Series], family: Family, labels: &[(&str, &str)]) -> Option<f64> {
    let has = |it: &Series| {
        labels.iter().all(|(name, value)| it.labels.iter().any(|own| own.0 == *name && own.1.raw() == *value))
    };
    let mut found = all.iter().filter(|it| it.family == family && has(it));
    let first = found.next().map(|it| it.value);
    assert!(found.next().is_none(), "{family:?} {labels:?} is not one series");
    first
}

#[test]
fn a_rank_has_its_ladder_steps_growth_and_findings() {
    let all = exposed(&story());
    let (grows, steady) = ([("rank", "0")], [("rank", "1")]);
    assert_eq!(value(&all, Family::Step, &grows), Some(399.0));
    assert_eq!(value(&all, Family::StepTime, &grows), Some(0.1));
    let rate = value(&all, Family::Growth, &grows).unwrap();
    assert!((rate / (16 * MIB) as f64 - 1.0).abs() < 0.02, "{rate}");
    assert!(value(&all, Family::Full, &grows).unwrap() > 0.0);
    assert_eq!((value(&all, Family::Growth, &steady), value(&all, Family::Full, &steady)), (Some(0.0), None));
    assert!(value(&all, Family::Alert, &[("rank", "0"), ("kind", "growth")]).is_some_and(|it| it >= 1.0));
    assert_eq!(value(&all, Family::Alert, &[("rank", "1"), ("kind", "growth")]), None);
    assert_eq!(value(&all, Family::Allocated, &steady), Some((20 * GIB) as f64));
    // The rungs of a device's ladder fill it.
    let of_device = |it: &&Series| {
        matches!(it.family, Family::Gap | Family::DeviceGap) && it.labels.contains(&("gpu_uuid", "GPU-1".into()))
    };
    let sum: f64 = all.iter().filter(of_device).map(|it| it.value).sum();
    assert_eq!(Some(sum), value(&all, Family::DeviceTotal, &[("gpu_uuid", "GPU-1")]));
}

#[test]
fn a_rank_has_at_most_thirty_series_and_twelve_labels_and_no_series_comes_twice() {
    let mut story = story();
    // Two processes with the same rank.
    story.probe(1, 4242, 1, None).wait(1).sample(1, 1, counters(GIB, GIB));
    for number in [7, 8] {
        story.probe(number, 5000 + number, 0, None).wait(1).sample(number, 1, counters(GIB, GIB));
    }
    let all = exposed(&story);
    let mut known_series = BTreeSet::new();
    let mut of_rank: BTreeMap<String, usize> = BTreeMap::new();
    for it in &all {
        assert!(it.labels.len() <= 12, "{it:?}");
        assert!(it.labels.iter().all(|(name, _)| *name != "step" && (*name != "pid" || it.family == Family::Process)));
        let known = it.family.row().labels;
        assert!(it.labels.iter().all(|(name, _)| *name == "process" || known.contains(name)), "{it:?}");
        let labels: Vec<String> = it.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert!(known_series.insert((it.family.row().name, labels.join(","))), "{it:?} comes twice");
        if let Some((_, rank)) = it.labels.iter().find(|it| it.0 == "rank") {
            *of_rank.entry(rank.to_string()).or_default() += 1;
        }
    }
    assert!(of_rank.len() > 1 && of_rank.values().all(|it| *it <= 30), "{of_rank:?}");
}

#[test]
fn a_process_that_has_ended_keeps_its_figures_for_five_minutes() {
    let mut story = story();
    story.line(0, Line::Bye(Bye { reason: "exit".to_owned(), ..Bye::default() }));
    story.wait(290_000_000).sample(1, 400, counters(20 * GIB, GIB));
    let all = exposed(&story);
    let up = |all: &[Series], rank| value(all, Family::Up, &[("rank", rank)]);
    assert_eq!((up(&all, "0"), up(&all, "1")), (Some(0.0), Some(1.0)));
    story.wait(20_000_000).sample(1, 401, counters(20 * GIB, GIB));
    let all = exposed(&story);
    assert_eq!((up(&all, "0"), up(&all, "1")), (None, Some(1.0)));
}

/// A job that waits after some steps.
fn waiting() -> Job {
    let mut job = Job::start(&[&script("truth.py"), "40", "{}", "wait"]);
    while job.next()["pending"] != true {}
    job
}

/// The figures of a text in Prometheus's format, by their series.
fn parsed(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|it| !it.starts_with('#'));
    lines
        .map(|it| it.rsplit_once(' ').unwrap())
        .map(|(series, value)| (series.to_owned(), value.parse().unwrap()))
        .collect()
}

/// The figures of the one rank that differ between a text in Prometheus's format and the answer of `once`.
fn differences_to_once(text: &str, once: &Value) -> Vec<String> {
    let all = parsed(text);
    let figure = |start: &str, label: &str| {
        all.iter().find(|(series, _)| series.starts_with(start) && series.contains(label)).map(|it| *it.1)
    };
    let on = &once["probes"][0]["devices"][0];
    let counters = &on["counters"];
    let mut pairs = vec![
        ("gpuwatch_allocated_bytes{", String::new(), &counters["allocated"]),
        ("gpuwatch_reserved_bytes{", String::new(), &counters["reserved"]),
        ("gpuwatch_unused_bytes{", String::new(), &on["fragmentation"]["cached"]),
        ("gpuwatch_allocated_peak_bytes{", String::new(), &counters["allocated_peak"]),
        ("gpuwatch_alloc_retries_total{", String::new(), &counters["retries"]),
        ("gpuwatch_ooms_total{", String::new(), &counters["ooms"]),
        ("gpuwatch_step{", String::new(), &on["step"]),
    ];
    let rungs = once["devices"][0]["ladder"]["rungs"].as_array().unwrap();
    for rung in rungs.iter().filter(|rung| !rung["probe"].is_null()) {
        pairs.push(("gpuwatch_memory_bytes{", format!("rung=\"{}\"", rung["gap"].as_str().unwrap()), &rung["bytes"]));
    }
    let mut differences = Vec::new();
    for (start, label, known) in pairs {
        let (served, known) = (figure(start, &label), known.as_u64().map(|bytes| bytes as f64));
        if served != known {
            differences.push(format!("{start}{label}: {served:?} instead of {known:?}"));
        }
    }
    // Before its first step, a rank has no figures in either.
    if figure("gpuwatch_allocated_bytes{", "").is_none() {
        differences.push("no figures yet".to_owned());
    }
    differences
}

#[test]
fn the_figures_of_a_job_are_those_of_once() {
    let job = waiting();
    let server = Server::start(&job.home, &["--metrics", "127.0.0.1:0"]);
    // The job waits, but its last figures arrive at the server and at `once` at different times.
    let (mut text, mut differences) = (String::new(), Vec::new());
    until(PATIENCE, || {
        text = server.scrape();
        differences = differences_to_once(&text, &job.gpuwatch(&["once", "--json", "--no-nvml"]));
        differences.is_empty()
    });
    assert!(differences.is_empty(), "{}\n{text}", differences.join("\n"));
    assert!(text.contains("script=\"truth.py\"") && !text.contains("--"), "{text}");
    server.end();
    job.ended();
}

#[test]
fn the_figures_of_devices_are_those_of_once() {
    let bench = Bench::new();
    let set = ["answer=55 nvmlDeviceGetUtilizationRates 0", "answer=71 nvmlDeviceGetTemperature 0"];
    let once = bench.once(&set.map(|it| Fault::Line(it.to_owned())));
    let server = Server::of(bench.command(&["serve", "--metrics", "127.0.0.1:0"]));
    let mut all = BTreeMap::new();
    assert!(
        until(PATIENCE, || {
            all = parsed(&server.scrape());
            all.keys().any(|it| it.starts_with("gpuwatch_device_temperature_celsius{"))
        }),
        "{all:?}"
    );
    for device in once["devices"].as_array().unwrap() {
        let figure = |name: &str| all.get(&format!("{name}{{gpu_uuid={}}}", device["id"])).copied();
        let (memory, metrics) = (&device["memory"], &device["metrics"]);
        for (name, known, unit) in [
            ("gpuwatch_device_memory_total_bytes", &memory["total"], 1.0),
            ("gpuwatch_device_memory_used_bytes", &memory["used"], 1.0),
            ("gpuwatch_device_memory_free_bytes", &memory["free"], 1.0),
            ("gpuwatch_device_utilisation_ratio", &metrics["gpu_percent"], 100.0),
            ("gpuwatch_device_temperature_celsius", &metrics["celsius"], 1.0),
        ] {
            assert!(known.is_u64(), "{name}: {device}");
            assert_eq!(figure(name), known.as_f64().map(|it| it / unit), "{name}: {all:?}");
        }
    }
    assert_eq!(once["devices"][0]["metrics"]["celsius"], 71);
    server.end();
}

#[test]
fn only_what_is_asked_for_is_answered() {
    let home = Home::new();
    let token = home.0.path().join("token");
    fs::write(&token, "open sesame\n").unwrap();
    let server = Server::start(&home, &["--metrics", "127.0.0.1:0", "--token", token.to_str().unwrap()]);
    let status = |request: &str, headers: &str| server.ask(request, headers).0.split(' ').nth(1).unwrap().to_owned();
    let key = "Authorization: Bearer open sesame\r\n";
    assert_eq!(status("GET /metrics", ""), "401");
    assert_eq!(status("GET /metrics", "Authorization: Bearer open\r\n"), "401");
    assert_eq!(status("GET /metrics", key), "200");
    assert_eq!(status("GET /metrics", &key.replace("Bearer", "bEARER")), "200");
    assert_eq!((status("GET /", key), status("POST /metrics", key)), ("404".to_owned(), "405".to_owned()));
    let open = format!("{key}Accept: application/openmetrics-text;version=1.0.0\r\n");
    let (head, body) = server.ask("GET /metrics", &open);
    assert!(head.contains("application/openmetrics-text; version=1.0.0") && body.ends_with("# EOF\n"), "{head}{body}");
    // Garbage, and a peer that sends nothing, keep no other peer waiting.
    let silent: Vec<TcpStream> = (0..4).map(|_| TcpStream::connect(server.host()).unwrap()).collect();
    TcpStream::connect(server.host()).unwrap().write_all(b"\x00\xff\r\n\r\n").unwrap();
    assert_eq!(status("GET /metrics", key), "200");
    drop(silent);
    server.end();
}

/// A page that reaches this machine under a name of its own domain gets no figures: DNS rebinding.
#[test]
fn a_port_of_this_machine_answers_to_its_own_names_alone() {
    let home = Home::new();
    let server = Server::start(&home, &["--metrics", "127.0.0.1:0", "--allow-host", "gpu.example.org"]);
    let port = server.host().rsplit_once(':').unwrap().1.to_owned();
    let status = |host: &str| {
        let mut stream = TcpStream::connect(server.host()).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\n{host}Connection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert_eq!(text.contains("gpuwatch_build_info"), text.starts_with("HTTP/1.1 200 "), "{text}");
        text.split(' ').nth(1).unwrap().to_owned()
    };
    for own in ["localhost", "LocalHost", "127.0.0.1", "127.9.9.9", "[::1]", "gpu.example.org"] {
        assert_eq!(status(&format!("Host: {own}\r\n")), "200", "{own}");
        assert_eq!(status(&format!("Host: {own}:{port}\r\n")), "200", "{own}");
    }
    for foreign in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil", "192.0.2.1", ""] {
        assert_eq!(status(&format!("Host: {foreign}\r\n")), "403", "{foreign}");
    }
    assert_eq!(status("Host: localhost\r\nHost: evil.example\r\n"), "403");
    assert_ne!(status(""), "200");
    server.end();
    // No page reaches a socket.
    let path = home.0.path().join("metrics.sock");
    let server = Server::start(&home, &["--metrics", &format!("unix:{}", path.display())]);
    let mut stream = UnixStream::connect(&path).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    server.end();
}

/// Readers that ask again and again and take nothing: the server waits in writes to them.
#[test]
fn slow_readers_keep_no_scraper_waiting() {
    let home = Home::new();
    let server = Server::start(&home, &["--metrics", "127.0.0.1:0"]);
    let requests = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(2000);
    let slow: Vec<TcpStream> = (0..40)
        .map(|_| {
            let mut stream = TcpStream::connect(server.host()).unwrap();
            stream.set_nonblocking(true).unwrap();
            // What does not fit any more is not needed.
            let _ = stream.write(requests.as_bytes());
            stream
        })
        .collect();
    for _ in 0..3 {
        let scraper = TcpStream::connect(server.host()).unwrap();
        scraper.set_read_timeout(Some(PATIENCE)).unwrap();
        assert!(asked(scraper, "GET /metrics", "").1.contains("gpuwatch_build_info"));
    }
    drop(slow);
    server.end();
}

#[test]
fn a_socket_is_its_owners_alone_and_goes_with_the_server() {
    let home = Home::new();
    let path = home.0.path().join("metrics.sock");
    let address = format!("unix:{}", path.display());
    for _ in 0..2 {
        let server = Server::start(&home, &["--metrics", &address]);
        assert_eq!(server.address, address);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let (head, _) = asked(UnixStream::connect(&path).unwrap(), "GET /metrics", "");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        server.end();
        assert!(!path.exists());
        // A server that was killed leaves its socket, which the next one replaces.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
    }
    fs::remove_file(&path).unwrap();
    fs::write(&path, "mine").unwrap();
    let mut command = Command::new(PROGRAM);
    let refused = command.args(["serve", "--metrics", &address]).envs(home.variables()).output().unwrap();
    assert!(!refused.status.success() && fs::read_to_string(&path).unwrap() == "mine", "{refused:?}");
}

#[test]
fn a_file_for_collectors_is_kept_up_to_date_and_removed() {
    let home = Home::new();
    let path = home.0.path().join("gpuwatch.prom");
    let server = Server::start(&home, &["--textfile", path.to_str().unwrap(), "--every", "1s"]);
    let text = || fs::read_to_string(&path).unwrap_or_default();
    assert!(until(PATIENCE, || text().contains("gpuwatch_build_info")));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
    let first = fs::metadata(&path).unwrap().modified().unwrap();
    assert!(until(PATIENCE, || fs::metadata(&path).is_ok_and(|it| it.modified().unwrap() > first)));
    server.end();
    let left: Vec<_> = fs::read_dir(home.0.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert!(left.iter().all(|it| !it.to_string_lossy().contains("prom")), "{left:?}");
}

/// Prometheus and `promtool`, as the distribution has them.
pub(crate) fn prometheus() -> Result<std::path::PathBuf, String> {
    debian::programs("prometheus")
}

#[test]
fn a_real_prometheus_takes_every_family() {
    test_tiers::full!("a Prometheus");
    let programs = test_tiers::needs!(prometheus());
    let job = waiting();
    let server = Server::start(&job.home, &["--metrics", "127.0.0.1:0"]);
    assert!(until(PATIENCE, || server.scrape().contains("gpuwatch_allocated_bytes{")));
    promtool(&programs, &["check", "metrics"], &server.scrape());
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("prometheus.yml");
    let scrape = format!(
        "scrape_configs:\n  - job_name: gpuwatch\n    scrape_interval: 1s\n    static_configs:\n      - targets: ['{}']\n",
        server.host()
    );
    fs::write(&config, scrape).unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut store = Command::new(programs.join("prometheus"))
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
        .arg(format!("--web.listen-address={port}"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let query = |name: &str| -> Vec<Value> {
        let Ok(stream) = TcpStream::connect(port) else { return Vec::new() };
        let body = asked(stream, &format!("GET /api/v1/query?query={name}"), "").1;
        let from = body.find('{').unwrap_or(body.len());
        let to = body.rfind('}').map_or(from, |it| it + 1);
        let answer: Value = serde_json::from_str(body.get(from..to).unwrap_or_default()).unwrap_or_default();
        answer["data"]["result"].as_array().cloned().unwrap_or_default()
    };
    assert!(until(PATIENCE, || !query("gpuwatch_step").is_empty()), "nothing was scraped");
    let all = parsed(&server.scrape());
    for row in Family::TABLE {
        let name = format!("{}{}", row.name, if row.kind == Kind::Counter { "_total" } else { "" });
        let own = all.keys().filter(|it| it.split('{').next() == Some(&name)).count();
        assert_eq!(query(&name).len(), own, "{name}");
    }
    store.kill().unwrap();
    store.wait().unwrap();
    server.end();
    job.ended();
}

pub(crate) fn promtool(programs: &Path, arguments: &[&str], input: &str) {
    let mut child = Command::new(programs.join("promtool"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}\n{input}");
}
