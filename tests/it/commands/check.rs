//! `gpuwatch check` judges recordings of real training loops, and reports which ones it cannot judge.

use crate::{
    helpers::{terminal::PROGRAM, torch},
    house::schemas,
    probe::{launch::Home, pytorch::script},
};
use gpuwatch::{
    facts::{
        event::{Event, Fact, Line, ProbeId},
        units::Stamp,
    },
    storage::recording::{Closed, FORMAT, Header, encode, encode_closed, encode_header},
};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

pub(crate) const HEALTHY: &str = "h_mlp-1409";
pub(crate) const SCALARS: &str = "l_losses-1801";
pub(crate) const ACTIVATIONS: &str = "l_hook_act-1692";

pub(crate) fn header() -> String {
    encode_header(&Header {
        format: FORMAT,
        gpuwatch: "0".into(),
        host: "h".into(),
        started_unix_us: 1_795_214_453_000_000,
        monotonic_us: 0,
        name: None,
        writer: None,
    })
}

/// Records a trace of the corpus as `gpuwatch run` would; `change` may change the probe's lines.
pub(crate) fn lines_of(trace: &str, change: impl Fn(&mut Line)) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/corpus/{trace}.jsonl.zst"));
    let mut at = Stamp(0);
    let mut lines = vec![header()];
    for line in BufReader::new(zstd::Decoder::new(fs::File::open(path).unwrap()).unwrap()).lines() {
        let mut line: Line = serde_json::from_str(&line.unwrap()).unwrap();
        change(&mut line);
        if let Line::Sample(it) = &line {
            at = Stamp(it.at_us);
        }
        let mut text = String::new();
        encode(&Event { at, fact: Fact::Probe { probe: ProbeId(0), line: Box::new(line) } }, &mut text);
        lines.push(text);
    }
    lines.push(encode_closed(&Closed { at_us: at, lost: 0 }));
    lines
}

pub(crate) fn write(path: &Path, lines: &[String]) {
    let mut encoder = zstd::Encoder::new(fs::File::create(path).unwrap(), 1).unwrap();
    encoder.include_checksum(true).unwrap();
    for it in lines {
        encoder.write_all(it.as_bytes()).unwrap();
    }
    encoder.finish().unwrap();
}

pub(crate) fn recorded(dir: &Path, trace: &str) -> PathBuf {
    let path = dir.join(format!("{trace}.jsonl.zst"));
    write(&path, &lines_of(trace, |_| {}));
    path
}

pub(crate) fn check(path: &Path, arguments: &[&str]) -> Output {
    Command::new(PROGRAM).arg("check").arg(path).args(arguments).env("GPUWATCH_CONFIG", "/dev/null").output().unwrap()
}

/// The exit code and the verdict in JSON.
pub(crate) fn judged(path: &Path, arguments: &[&str]) -> (i32, Value) {
    let output = check(path, &[&["--json"], arguments].concat());
    let json = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    schemas::check("check", &json);
    (output.status.code().unwrap(), json)
}

#[test]
fn check_fails_on_a_leak_and_reports_its_cause_and_figures() {
    let dir = tempfile::tempdir().unwrap();
    let path = recorded(dir.path(), ACTIVATIONS);
    let (code, json) = judged(&path, &[]);
    assert_eq!((code, &json["verdict"], &json["schema"]), (1, &"fail".into(), &1.into()), "{json:#}");
    let found = json["findings"].as_array().unwrap().iter().find(|it| it["resource"] == "allocated").unwrap();
    assert_eq!((&found["kind"], &found["cause"]), (&"growth".into(), &"tensors-retained".into()));
    assert_eq!((&found["severity"], &found["state"]), (&"critical".into(), &"active".into()));
    let number = |it: &Value| it.as_f64().unwrap();
    let (slope, low, high) = (&found["bytes_per_step"], &found["interval"][0], &found["interval"][1]);
    assert!(number(low) <= number(slope) && number(slope) <= number(high), "{found:#}");
    assert!((number(slope) / 813_643.54 - 1.0).abs() < 0.1, "{slope}");
    assert!((285..=320).contains(&found["since_step"].as_u64().unwrap()), "{found:#}");
    assert!(found["first_alert_step"].as_u64() >= found["since_step"].as_u64());
    let peak = &json["devices"][0]["peak"];
    assert!(peak["reserved"].as_u64() >= peak["allocated"].as_u64() && peak["allocated"].as_u64() > Some(1 << 29));
    let text = String::from_utf8(check(&path, &[]).stdout).unwrap();
    assert!(text.starts_with("FAIL  1257 steps, 1 probed process\n"), "{text}");
    assert!(text.contains("tensors-retained: ") && text.contains("gpuwatch explain CAUSE"), "{text}");
    // The run is over: nothing is still to come.
    let steps = found["full_in_steps"].as_u64().unwrap();
    let end = format!(", to the end; the device would be full after {steps} steps more, ");
    assert!(text.contains(&end) && !text.contains("full in") && !text.contains("lasts"), "{text}");
}

#[test]
fn a_healthy_run_passes_within_its_limits() {
    let dir = tempfile::tempdir().unwrap();
    let path = recorded(dir.path(), HEALTHY);
    let (code, json) = judged(&path, &["--fail-on", "info", "--max-growth", "0"]);
    assert_eq!((code, &json["verdict"]), (0, &"pass".into()), "{json:#}");
    let reserved = json["devices"][0]["peak"]["reserved"].as_u64().unwrap();
    let stuck = json["devices"][0]["stuck"].as_f64().unwrap();
    assert!((0.01..0.99).contains(&stuck), "{stuck}");
    let limits = [
        (format!("--max-peak={reserved}"), 0),
        (format!("--max-peak={}", reserved - 1), 1),
        ("--max-peak=50%".to_owned(), 0),
        ("--max-peak=0%".to_owned(), 1),
        (format!("--max-fragmentation={}%", stuck * 100.0 + 1.0), 0),
        (format!("--max-fragmentation={}%", stuck * 100.0 - 1.0), 1),
    ];
    for (limit, expected) in limits {
        let (code, json) = judged(&path, &[&limit]);
        assert_eq!((code, json["hits"].as_array().unwrap().len()), (expected, usize::from(expected == 1)), "{limit}");
    }
}

#[test]
fn check_fails_only_on_the_requested_kinds_and_severities() {
    let dir = tempfile::tempdir().unwrap();
    let path = recorded(dir.path(), SCALARS);
    let cases: [(&[&str], i32); 8] = [
        (&[], 0),
        (&["--fail-on", "info"], 1),
        (&["--fail-on", "critical"], 0),
        (&["--fail-on", "oom,growth"], 1),
        (&["--fail-on", "oom,fragmentation"], 0),
        (&["--max-growth", "1MiB/step"], 0),
        (&["--max-growth", "256B/step"], 1),
        (&["--fail-on", "never", "--max-growth", "256"], 1),
    ];
    for (arguments, expected) in cases {
        assert_eq!(judged(&path, arguments).0, expected, "{arguments:?}");
    }
    assert_eq!(check(&path, &["--fail-on", "often"]).status.code(), Some(2));
    assert_eq!(check(&path, &["--max-peak", "a lot"]).status.code(), Some(2));
}

/// Whoever allows a rate of growth wants slower growth to pass, also where it would be a warning.
#[test]
fn a_limit_on_growth_takes_the_place_of_the_default_severity() {
    let dir = tempfile::tempdir().unwrap();
    let path = recorded(dir.path(), ACTIVATIONS);
    let cases: [(&[&str], i32); 6] = [
        (&[], 1),
        (&["--max-growth", "8MiB/step"], 0),
        (&["--max-growth", "64KiB/step"], 1),
        (&["--max-fragmentation", "99%"], 1),
        (&["--fail-on", "warning", "--max-growth", "8MiB/step"], 1),
        (&["--fail-on", "growth", "--max-growth", "8MiB/step"], 1),
    ];
    for (arguments, expected) in cases {
        let (code, json) = judged(&path, arguments);
        let kinds: Vec<&str> =
            json["findings"].as_array().unwrap().iter().filter_map(|it| it["kind"].as_str()).collect();
        assert!(code == expected && kinds.contains(&"growth"), "{arguments:?}: {code} {kinds:?}");
    }
}

/// A job that ends early keeps every limit: memory alone says nothing of its success.
#[test]
fn a_run_whose_command_failed_passes_only_where_its_success_is_not_required() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ended.jsonl.zst");
    let nothing = "--require-success: how the command ended is not recorded";
    for (end, required, why) in [
        (Some((Some(0), None)), 0, ""),
        (Some((Some(1), None)), 2, "--require-success: the command ended with exit code 1"),
        (Some((None, Some(11))), 2, "--require-success: the command was killed by SIGSEGV"),
        (Some((None, None)), 2, nothing),
        (None, 2, nothing),
    ] {
        let mut lines = lines_of(HEALTHY, |_| ());
        let closed = lines.pop().unwrap();
        let at = Stamp(serde_json::from_str::<Value>(&closed).unwrap()["at_us"].as_u64().unwrap());
        lines.extend(end.map(|(code, signal)| {
            let mut text = String::new();
            encode(&Event { at, fact: Fact::JobEnded { code, signal } }, &mut text);
            text
        }));
        lines.push(closed);
        write(&path, &lines);
        assert_eq!(judged(&path, &[]).0, 0, "{end:?}");
        let (code, json) = judged(&path, &["--require-success"]);
        assert_eq!((code, json["doubts"][0].as_str().unwrap_or_default()), (required, why), "{end:?}: {json:#}");
    }
}

#[test]
fn a_run_too_short_for_the_growth_limit_does_not_pass() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("short.jsonl.zst");
    let mut lines = lines_of(HEALTHY, |_| ());
    let end = lines.pop().unwrap();
    lines.truncate(14);
    lines.push(end);
    write(&path, &lines);
    let (code, json) = judged(&path, &[]);
    assert_eq!((code, json["doubts"].as_array().map(Vec::len)), (0, Some(0)), "{json:#}");
    let (code, json) = judged(&path, &["--max-growth", "1MiB/step"]);
    assert!(code == 2 && json["doubts"][0].as_str().unwrap().contains("not enough data to judge growth"), "{json:#}");
}

#[test]
fn check_judges_the_lines_of_a_probe() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/corpus/{ACTIVATIONS}.jsonl.zst"));
    assert_eq!(judged(&path, &[]).0, 1);
}

#[test]
fn check_reads_standard_input_and_recompressed_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("wide.jsonl.zst");
    let mut encoder = zstd::Encoder::new(fs::File::create(&path).unwrap(), 3).unwrap();
    encoder.long_distance_matching(true).unwrap();
    encoder.window_log(27).unwrap();
    for it in lines_of(ACTIVATIONS, |_| {}) {
        encoder.write_all(it.as_bytes()).unwrap();
    }
    encoder.finish().unwrap();
    assert_eq!(judged(&path, &[]).0, 1);
    let piped = |bytes: &[u8]| {
        let mut child =
            Command::new(PROGRAM).args(["check", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(bytes).unwrap();
        child.wait().unwrap().code()
    };
    assert_eq!(piped(&fs::read(&path).unwrap()), Some(1));
    assert_eq!(piped(b"nothing to see\n"), Some(2));
    assert_eq!(piped(b""), Some(2));
}

#[test]
fn the_ranks_of_one_run_are_judged_together_and_other_runs_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let of_run = |run: &'static str, rank: u64| {
        move |line: &mut Line| {
            if let Line::Hello(it) = line {
                it.run = Some(run.to_owned());
                it.rank = Some(rank);
                it.pid += u32::try_from(rank).unwrap();
            }
        }
    };
    let (one, two, other) = (dir.path().join("one"), dir.path().join("two"), dir.path().join("other"));
    fs::write(&one, lines_of(HEALTHY, of_run("a", 0)).concat()).unwrap();
    fs::write(&two, lines_of(ACTIVATIONS, of_run("a", 1)).concat()).unwrap();
    fs::write(&other, lines_of(HEALTHY, of_run("b", 0)).concat()).unwrap();
    let two = two.to_str().unwrap();
    let (code, json) = judged(&one, &[two]);
    assert_eq!((code, json["processes"].as_array().unwrap().len()), (1, 2), "{json:#}");
    let found = json["findings"].as_array().unwrap();
    assert!(!found.is_empty() && found.iter().all(|it| it["rank"] == 1), "{json:#}");
    let (code, json) = judged(&other, &[two]);
    assert_eq!(code, 2);
    assert!(json["doubts"][0].as_str().unwrap().contains("different runs"), "{json:#}");
}

#[test]
fn a_file_that_is_not_a_recording_cannot_be_judged() {
    let dir = tempfile::tempdir().unwrap();
    let closed = encode_closed(&Closed::default());
    let contents: [(&str, Vec<u8>); 10] = [
        ("another program's lines", b"{\"type\":\"loss\",\"value\":1}\n".repeat(3)),
        ("no object", b"[1,2]\n".to_vec()),
        ("gzip", vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0]),
        ("a word of megabytes", format!("{{\"type\":\"hello\",\"pid\":\"{}\"}}\n", "x".repeat(1_000_000)).into_bytes()),
        ("empty", Vec::new()),
        ("words", b"loss 0.1\nloss 0.2\n".to_vec()),
        ("noise", (0..4096_u32).map(|it| u8::try_from(it.wrapping_mul(2_654_435_761) >> 24).unwrap()).collect()),
        ("truncated", vec![0x28, 0xb5, 0x2f, 0xfd, 0x04]),
        ("nothing happened", (header() + &closed).into_bytes()),
        ("another format", header().replace("\"format\":1", "\"format\":99").into_bytes()),
    ];
    for (name, bytes) in contents {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        let (code, json) = judged(&path, &[]);
        assert_eq!((code, &json["verdict"]), (2, &"unjudged".into()), "{name}: {json:#}");
        assert_eq!(json["doubts"].as_array().unwrap().len(), 1, "{name}");
        assert!(json["doubts"][0].as_str().unwrap().len() < 1000, "{name}");
    }
    assert_eq!(judged(&dir.path().join("missing"), &[]).0, 2);
    assert_eq!(judged(dir.path(), &[]).0, 2, "a directory without a recording");
}

#[test]
fn a_run_without_steps_cannot_be_judged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ticks.jsonl.zst");
    write(
        &path,
        &lines_of(HEALTHY, |line| {
            if let Line::Sample(it) = line {
                it.step = None;
            }
        }),
    );
    let (code, json) = judged(&path, &[]);
    assert_eq!((code, &json["steps"]), (2, &Value::Null));
    assert!(json["doubts"][0].as_str().unwrap().contains("gpuwatch run"), "{json:#}");
    // A limit that was hit is a fact all the same.
    assert_eq!(judged(&path, &["--max-peak", "1MiB"]).0, 1);
}

#[test]
fn a_recording_whose_writer_was_killed_is_judged_and_a_damaged_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("killed.jsonl");
    let lines = lines_of(HEALTHY, |_| {});
    let whole: String = lines.iter().take(400).map(String::as_str).collect();
    fs::write(&path, &whole.as_bytes()[..whole.len() - 9]).unwrap();
    let (code, json) = judged(&path, &[]);
    assert_eq!((code, json["notes"].as_array().unwrap().len()), (0, 1), "{json:#}");
    assert!(json["notes"][0].as_str().unwrap().contains("not closed"), "{json:#}");
    fs::write(&path, whole + "}\n" + &lines[500]).unwrap();
    let (code, json) = judged(&path, &[]);
    assert_eq!(code, 2, "{json:#}");
    // Findings before the damage remain.
    let lines = lines_of(ACTIVATIONS, |_| {});
    let leak: String = lines.iter().take(1200).map(String::as_str).collect();
    fs::write(&path, leak + "}\n").unwrap();
    assert_eq!(judged(&path, &[]).0, 1);
}

/// Each verdict on a part of a run names that part in its first line.
#[test]
fn a_run_whose_end_is_not_recorded_is_judged_up_to_the_step_that_was_seen() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("full-disk.jsonl.zst");
    let lines = lines_of(HEALTHY, |_| {});
    let seen = |json: &Value| (json["end_recorded"].clone(), json["seen_to_step"].clone());
    write(&path, &lines);
    assert_eq!(seen(&judged(&path, &["--require-end"]).1), (true.into(), 986.into()));
    let first = |path: &Path, arguments: &[&str]| {
        let text = String::from_utf8(check(path, arguments).stdout).unwrap();
        text.lines().next().unwrap().to_owned()
    };
    assert_eq!(first(&path, &[]), "PASS  986 steps, 1 probed process");
    // Cut in a line, cut between two frames, and cut between two lines.
    write(&path, &lines[..400]);
    let bytes = fs::read(&path).unwrap();
    let cut = dir.path().join("cut.jsonl.zst");
    fs::write(&cut, &bytes[..bytes.len() - 9]).unwrap();
    let plain = dir.path().join("plain.jsonl");
    fs::write(&plain, lines[..400].concat()).unwrap();
    for path in [&path, &cut, &plain] {
        let (code, json) = judged(path, &[]);
        assert_eq!((code, &json["end_recorded"], &json["verdict"]), (0, &false.into(), &"pass".into()), "{path:?}");
        let step = json["seen_to_step"].as_u64().unwrap();
        let first_line =
            format!("PASS  {step} steps, 1 probed process; seen up to step {step} of a run whose end is not recorded");
        assert!((300..400).contains(&step) && first(path, &[]) == first_line, "{path:?}: {}", first(path, &[]));
        let (code, json) = judged(path, &["--require-end"]);
        assert_eq!((code, &json["verdict"]), (2, &"unjudged".into()), "{json:#}");
        let page = path.with_extension("html");
        assert!(Command::new(PROGRAM).arg("report").arg(path).arg("-o").arg(&page).status().unwrap().success());
        assert!(fs::read_to_string(page).unwrap().contains(&first_line));
    }
    // A captured stream ends with its probe's bye.
    let path = dir.path().join("stream.jsonl");
    let goodbye = "{\"type\":\"bye\",\"at_us\":9999999999,\"reason\":\"exit\"}\n";
    fs::write(&path, lines[1..400].concat()).unwrap();
    assert_eq!(judged(&path, &[]).1["end_recorded"], false);
    fs::write(&path, lines[1..400].concat() + goodbye).unwrap();
    assert_eq!(judged(&path, &[]).1["end_recorded"], true);
}

#[test]
fn a_file_named_twice_is_read_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = recorded(dir.path(), HEALTHY);
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let output = check(&path, &["--json", link.to_str().unwrap()]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), json["processes"].as_array().unwrap().len()), (Some(0), 1));
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(printed.contains("link was named before: it is read once"), "{printed}");
}

#[test]
fn how_the_command_ended_is_noted_and_not_judged() {
    let dir = tempfile::tempdir().unwrap();
    let ends = [((Some(0), None), None), ((Some(3), None), Some("exit code 3")), ((None, Some(9)), Some("SIGKILL"))];
    for ((code, signal), cause) in ends {
        let path = dir.path().join("ended.jsonl");
        let mut lines = lines_of(HEALTHY, |_| {});
        let closed = lines.pop().unwrap();
        let mut end = String::new();
        encode(&Event { at: Stamp(u64::MAX / 2), fact: Fact::JobEnded { code, signal } }, &mut end);
        fs::write(&path, lines.concat() + &end + &closed).unwrap();
        let (exit, json) = judged(&path, &[]);
        assert_eq!((exit, json["notes"].as_array().unwrap().len()), (0, usize::from(cause.is_some())), "{json:#}");
        assert!(cause.is_none_or(|it| json["notes"][0].as_str().unwrap().contains(it)), "{json:#}");
    }
}

#[test]
fn names_in_a_recording_cannot_send_terminal_escapes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("\u{1b}[31m\u{202e}.jsonl.zst");
    let nasty = "\u{1b}]0;x\u{7}\u{9b}2J\u{202e}\nPASS";
    let mut lines = lines_of(SCALARS, |line| {
        if let Line::Hello(it) = line {
            it.host = nasty.to_owned();
            it.argv = vec![nasty.to_owned()];
            for device in &mut it.devices {
                device.name = Some(nasty.to_owned());
                device.uuid = Some(nasty.to_owned());
            }
        }
    });
    lines.pop();
    write(&path, &lines);
    for arguments in [&["--max-peak", "1B", "--max-fragmentation", "0"] as &[&str], &["--json"]] {
        let output = check(&path, arguments);
        let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        assert!(text.chars().all(|it| it == '\n' || !(it.is_control() || it == '\u{202e}')), "{text:?}");
        assert!(!text.lines().any(|it| it.starts_with("PASS") && arguments.len() > 1), "{text:?}");
    }
    assert_eq!(judged(&path, &[]).1["processes"][0]["argv"][0], nasty);
}

#[test]
fn without_a_file_the_newest_run_is_judged() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("gpuwatch/recordings");
    fs::create_dir_all(&store).unwrap();
    let later = lines_of(ACTIVATIONS, |_| {});
    let mut earlier = lines_of(HEALTHY, |_| {});
    earlier[0] = earlier[0].replace("1795214453", "1795214452");
    write(&store.join("b.jsonl.zst"), &earlier);
    write(&store.join("a.jsonl.zst"), &later);
    let output = Command::new(PROGRAM).arg("check").env("XDG_STATE_HOME", dir.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("a.jsonl.zst, the newest of 2 recordings"));
}

/// As a CI job has it: train on the simulated device, then judge what `run` recorded.
#[test]
fn a_smoke_test_fails_the_build_when_it_leaks() {
    let trained = |mode: &str| {
        let (gpu, home) = (torch::machine(), Home::new());
        let mut run = gpu.command(PROGRAM);
        run.args(["run", "--"]).arg(torch::python()).args([&script("smoke.py"), mode]).envs(home.variables());
        torch::stdout(&run.output().unwrap());
        let mut check = gpu.command(PROGRAM);
        check.args(["check", "--json", "--max-growth", "64KiB/step", "--max-peak", "1GiB"]).envs(home.variables());
        let output = check.output().unwrap();
        let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
        (output.status.code(), json)
    };
    let (code, json) = trained("well");
    assert_eq!((code, &json["steps"]), (Some(0), &200.into()), "{json:#}");
    let (code, json) = trained("leak");
    assert_eq!(code, Some(1), "{json:#}");
    let found = json["findings"].as_array().unwrap().iter().find(|it| it["resource"] == "allocated").unwrap();
    assert_eq!((&found["cause"], &found["bytes_per_step"]), (&"tensors-retained".into(), &262_144.0.into()));
}
