//! `gpuwatch once --prometheus`: a real Prometheus with thousands of ranks, and stores that refuse.

/// The past of a rank.
mod past;

use super::{Daemon, daemon, free_port, screen::serve};
use crate::{
    helpers::{
        story::{GIB, MIB, counters},
        terminal::{PATIENCE, PROGRAM, Terminal, until},
    },
    house::schemas,
    probe::launch::Home,
    serve::{exposed, prometheus, story},
};
use gpuwatch::{
    commands::serve::{
        Format, Series,
        families::Family::{
            self, Alert, Allocated, DeviceTemperature, DeviceTotal, DeviceUsed, DeviceUtilisation, Process, Reserved,
            Step, StepTime, Unused, Up,
        },
    },
    facts::{
        event::{Fact, wire::Line},
        units::Stamp,
    },
    hosts::prometheus::fleet,
    model::{
        alerts::Policy,
        cluster::{
            Cluster,
            overview::{Overview, figure::RankFigure},
        },
    },
};
use serde_json::{Value, json};
use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    path::Path,
    process::{Command, Output},
    thread,
    time::Instant,
};

const RANKS: usize = 4096;
const WORST: usize = 3210;

fn once(arguments: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(["once", "--prometheus"]).args(arguments).envs(Home::new().variables());
    command.env_remove("GPUWATCH_PROMETHEUS_TOKEN").output().unwrap()
}

/// The figures of all ranks, eight on each machine; one of them grows.
fn exposition() -> String {
    let mut all = Vec::new();
    for rank in 0..RANKS {
        let (device, host) = (format!("GPU-{rank:04}"), format!("node{:03}", rank / 8));
        let run = if rank < RANKS / 2 { "a" } else { "b" };
        let mut add = |family: Family, more: &[(&'static str, &str)], value: f64| {
            let own = [("gpu_uuid", device.as_str()), ("rank", &rank.to_string()), ("run", run)];
            let own = if family.row().labels == ["gpu_uuid"] { &own[..1] } else { &own[..] };
            let labels = own.iter().chain(more).map(|(label, it)| (*label, (*it).into())).collect();
            all.push(Series { family, labels, value });
        };
        let job = if run == "a" { "41" } else { "42" };
        let info = [("host", host.as_str()), ("pid", "7"), ("scheduler", "slurm"), ("scheduler_job", job)];
        add(Process, &[&info[..], &[("world_size", "2048")]].concat(), 1.0);
        add(DeviceTotal, &[], 80e9);
        add(DeviceUsed, &[], 60e9);
        add(DeviceUtilisation, &[], 0.97);
        add(DeviceTemperature, &[], 61.0);
        add(Allocated, &[], if rank == WORST { 55e9 } else { 40e9 + rank as f64 });
        add(Reserved, &[], 58e9);
        add(Unused, &[], 14.5e9);
        add(Step, &[], if rank == WORST { 996.0 } else { 1000.0 });
        add(StepTime, &[], 0.25);
        add(Up, &[], 1.0);
        if rank == WORST {
            let labels = [("kind", "growth"), ("cause", "graph-retained"), ("severity", "critical")];
            add(Alert, &labels, 1.0);
        }
    }
    Format::Prometheus.text(&all)
}

/// Answers every request with this.
fn server(answer: impl Fn() -> String + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // A part of the request is enough: none is longer than what the sockets hold.
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer().as_bytes());
        }
    });
    address
}

pub(super) fn answer(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

fn scraping(programs: &Path, folder: &Path, target: SocketAddr) -> (Daemon, String) {
    let port = free_port();
    let text = format!(
        "global: {{scrape_interval: 5s, scrape_timeout: 5s}}\n\
         scrape_configs: [{{job_name: gpuwatch, static_configs: [{{targets: ['{target}']}}]}}]\n"
    );
    fs::write(folder.join("prometheus.yml"), text).unwrap();
    let flag = |name: &str, value: String| format!("--{name}={value}");
    let arguments = [
        flag("config.file", folder.join("prometheus.yml").display().to_string()),
        flag("storage.tsdb.path", folder.join("data").display().to_string()),
        flag("web.listen-address", format!("127.0.0.1:{port}")),
    ];
    (daemon(&programs.join("prometheus"), &arguments), format!("http://127.0.0.1:{port}"))
}

fn json(output: &Output) -> Value {
    let whole = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    schemas::check("fleet", &whole);
    whole
}

#[test]
fn the_worst_of_thousands_of_ranks_in_a_prometheus_comes_first() {
    test_tiers::full!("a Prometheus");
    let programs = test_tiers::needs!(prometheus());
    let text = exposition();
    let target = server(move || answer("200 OK", &text));
    let folder = tempfile::tempdir().unwrap();
    let (_store, url) = scraping(&programs, folder.path(), target);
    let begins = format!("{url}: {RANKS} ranks on {} machines\n", RANKS / 8);
    let has_all = || String::from_utf8_lossy(&once(&[&url]).stdout).starts_with(&begins);
    assert!(until(PATIENCE, has_all), "{:?}", once(&[&url]));
    // The past is read at whole multiples of 5 s, and the first of them after the first scrape may be to come.
    let ask = || json(&once(&[&url, "--json"]));
    assert!(until(PATIENCE, || !ask()["past"].as_array().unwrap().is_empty()), "no past");
    let begun = Instant::now();
    let whole = ask();
    eprintln!("{RANKS} ranks after {:?}", begun.elapsed());
    let first = &whole["ranks"][0];
    assert_eq!((&first["rank"], &first["host"]), (&WORST.into(), &format!("node{:03}", WORST / 8).into()));
    assert_eq!((&first["worst"]["severity"], &first["figures"]["allocated"]), (&"critical".into(), &55e9.into()));
    assert_eq!((whole["ranks"].as_array().unwrap().len(), whole["jobs"].as_array().unwrap().len()), (RANKS, 2));
    assert_eq!((&whole["nodes"][0]["host"], &whole["nodes"][0]["devices"]), (&first["host"], &8.into()));
    assert_eq!(whole["past"].as_array().unwrap().last().unwrap()[1], 55e9, "{}", whole["past"]);
    let follows = format!("gpuwatch once --hosts node{:03} --json", WORST / 8);
    assert_eq!(whole["next"][0]["command"], follows, "{}", whole["next"]);
    // Labels of all series, and those of processes alone.
    for label in ["run=a", "scheduler_job=41"] {
        let whole = json(&once(&[&url, "--json", "--match", label]));
        assert_eq!(
            (whole["ranks"].as_array().unwrap().len(), &whole["jobs"][0]["name"]),
            (RANKS / 2, &"slurm 41".into())
        );
    }
    let mut terminal = Terminal::start(&["--prometheus", &url, "--match", "run=b"], &[]);
    terminal.shows(&format!("rank {WORST} on node{:03}", WORST / 8));
    terminal.press("\r");
    terminal.shows(&format!("device, the last hour: rank {WORST} on"));
    terminal.shows("─ 75 % ─");
    terminal.press(">");
    terminal.shows("─ 51.22 GiB ─");
    for (keys, words) in [(">>", "─ 25 % ─"), (">>", "─ 4 steps ─"), (">", "─ 97 % ─"), (">", "─ 61 °C ─")]
    {
        terminal.press(keys);
        terminal.shows(words);
    }
    terminal.press("q");
    assert_eq!(terminal.ends(PATIENCE), 0);
    let none = once(&[&url, "--match", "run=c"]);
    assert!(String::from_utf8_lossy(&none.stdout).ends_with("with these labels\n"), "{none:?}");
}

/// The answer of a store that has scraped these series.
fn scraped(all: &[Series], question: &str) -> String {
    let figure = |it: &Series| {
        let labels = it.labels.iter().map(|(label, value)| (*label, value.raw()));
        let labels = labels.chain([("__name__", it.family.row().name), ("instance", "a:9477")]);
        let labels: serde_json::Map<_, _> = labels.map(|(label, text)| (label.to_owned(), text.into())).collect();
        json!({"metric": labels, "value": [1_700_000_000, it.value.to_string()]})
    };
    let asked = all.iter().filter(|it| question.contains(it.family.row().name));
    let result: Vec<_> = asked.map(figure).collect();
    answer("200 OK", &json!({"status": "success", "data": {"resultType": "vector", "result": result}}).to_string())
}

#[test]
fn a_rank_has_the_same_figures_through_a_store_as_on_its_machine() {
    let mut story = story();
    // The other rank is three steps behind.
    for step in 400..403 {
        story.wait(100_000).sample(0, step, counters(20 * GIB + step * 16 * MIB, GIB));
    }
    // Between two readings of the driver, a machine adds what its ranks have reserved since.
    story.device(0, 90 * GIB, &[(4240, 80 * GIB)]);
    for it in &mut story.events {
        if let Fact::Probe { line, .. } = &mut it.fact
            && let Line::Hello(hello) = &mut **line
        {
            hello.run = Some("r".to_owned());
        }
    }
    let all = exposed(&story);
    let url = serve(move |it| scraped(&all, it)).parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let there = runtime.block_on(fleet(&url, &[])).unwrap().overview;
    let mut cluster = Cluster::new(["a".to_owned()], Stamp(0));
    cluster.nodes[0].session = story.session();
    let here = Overview::of(&cluster, &Policy::default().found(&cluster));
    let figures = |it: &Overview| -> Vec<_> {
        let order = it.rank_order(RankFigure::Device).into_iter().filter_map(|place| it.ranks.get(place));
        order.map(|row| (row.rank, row.step, row.figures)).collect()
    };
    assert_eq!((figures(&there), there.ranks.len()), (figures(&here), 2));
    let known = |it: &RankFigure| here.ranks.iter().any(|row| row.figures.get(*it).is_some_and(|value| value > 0.0));
    let unknown: Vec<_> = RankFigure::TABLE.iter().map(|it| it.figure).filter(|it| !known(it)).collect();
    assert_eq!(unknown, []);
}

#[test]
fn a_store_that_refuses_is_one_sentence() {
    let error = r#"{"status":"error","errorType":"bad_data","error":"no \u001b[2J such"}"#;
    let empty = r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#;
    for (status, body, words) in [
        ("401 Unauthorized", "", "it wants a token, see --prometheus-token"),
        ("404 Not Found", "", "it has no API of Prometheus there"),
        ("302 Found\r\nLocation: http://other/", "", "it refers to http://other/"),
        ("400 Bad Request", error, "no \\u{1b}[2J such"),
        ("503 Service Unavailable", "<html>", "answers 503 Service Unavailable"),
        ("200 OK", "<html>", "is not one of Prometheus's API"),
        ("200 OK\r\nContent-Length: 99", empty, "does not answer"),
    ] {
        let address = server(move || answer(status, body));
        let output = once(&[&format!("http://{address}")]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && output.stdout.is_empty(), "{status}: {output:?}");
        assert!(
            errors.contains(words) && errors.lines().count() == 1 && !errors.contains('\u{1b}'),
            "{status}: {errors}"
        );
    }
    let huge = answer("200 OK", &" ".repeat(65 << 20));
    let address = server(move || huge.clone());
    let output = once(&[&format!("http://{address}")]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("answers more than 64 MiB"), "{output:?}");
    let closed = once(&[&format!("http://127.0.0.1:{}", free_port())]);
    assert!(String::from_utf8_lossy(&closed.stderr).contains("cannot reach http://127.0.0.1:"), "{closed:?}");
    let address = server(move || answer("200 OK", empty));
    let output = once(&[&format!("http://{address}")]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("has no figures of `gpuwatch serve`"), "{output:?}");
}

#[test]
fn a_token_comes_from_a_file_or_a_variable_and_reaches_only_this_machine() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "hush\n").unwrap();
    let mut by_file = Command::new(PROGRAM);
    by_file.args(["once", "--prometheus", &url, "--prometheus-token"]).arg(&file);
    let mut by_variable = Command::new(PROGRAM);
    by_variable.args(["once", "--prometheus", &url]).env("GPUWATCH_PROMETHEUS_TOKEN", "hush");
    for mut command in [by_file, by_variable] {
        let mut child = command.envs(Home::new().variables()).stderr(std::process::Stdio::null()).spawn().unwrap();
        let mut stream = listener.accept().unwrap().0;
        let (mut text, mut byte) = (String::new(), [0]);
        while !text.ends_with("\r\n\r\n") && stream.read(&mut byte).unwrap() > 0 {
            text.push(char::from(byte[0]));
        }
        assert!(text.to_lowercase().contains("authorization: bearer hush\r\n"), "{text}");
        let _ = stream.write_all(answer("401 Unauthorized", "").as_bytes());
        drop(stream);
        // The other question of the same program.
        if let Some(code) = child.try_wait().unwrap() {
            assert!(!code.success());
        }
        let _ = child.kill();
        let _ = child.wait();
        listener.set_nonblocking(true).unwrap();
        while listener.accept().is_ok() {}
        listener.set_nonblocking(false).unwrap();
    }
    let away = once(&["http://192.0.2.1", "--prometheus-token", file.to_str().unwrap()]);
    let errors = String::from_utf8_lossy(&away.stderr);
    assert!(!away.status.success() && errors.contains("without encryption") && !errors.contains("hush"), "{errors}");
}
