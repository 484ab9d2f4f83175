//! `gpuwatch recordings` lists what there is, however it ended.

pub(crate) mod clocks;
pub(crate) mod damaged;
pub(crate) mod ended_processes;
pub(crate) mod export;
pub(crate) mod failing_disk;
pub(crate) mod formats;
pub(crate) mod full_disk;
pub(crate) mod killed;
mod killed_recorders;
pub(crate) mod limits;
pub(crate) mod other_tools;
pub(crate) mod parquet;
pub(crate) mod replay;
pub(crate) mod roundtrip;
pub(crate) mod writer;

use crate::{
    commands::check::{HEALTHY, SCALARS, lines_of, write},
    helpers::terminal::PROGRAM,
    house::schemas,
    probe::launch::Home,
};
use gpuwatch::{
    facts::{
        event::{Event, Fact},
        text::Foreign,
        units::Stamp,
    },
    storage::recording::{FORMAT, Header, encode, encode_header},
};
use serde_json::{Value, json};
use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Output},
};

fn listed(arguments: &[&str]) -> Output {
    let output =
        Command::new(PROGRAM).arg("recordings").args(arguments).env("GPUWATCH_CONFIG", "/dev/null").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A closed recording, one whose writer was killed, one in progress, an invalid one, and another file.
fn checkpoints(dir: &Path) {
    let ended = |code, signal| {
        let mut line = String::new();
        encode(&Event { at: Stamp(u64::MAX >> 12), fact: Fact::JobEnded { code, signal } }, &mut line);
        line
    };
    let name = |time: &str, pid: u32| dir.join(format!("20261120T{time}Z_{}_{pid}_x.jsonl.zst", host()));
    let mut healthy = lines_of(HEALTHY, |_| ());
    healthy.insert(healthy.len() - 1, ended(Some(0), None));
    write(&name("010000", 4_194_305), &healthy);
    let mut leak = lines_of(SCALARS, |_| ());
    leak.pop();
    leak.push(ended(None, Some(9)));
    write(&name("020000", 4_194_305), &leak);
    leak.pop();
    write(&name("030000", std::process::id()), &leak);
    fs::write(name("040000", 4_194_305), "\u{1b}[31m no recording").unwrap();
    fs::write(dir.join("notes.txt"), "").unwrap();
}

fn host() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned()
}

#[test]
fn recordings_are_listed_newest_first_with_their_result() {
    let home = tempfile::tempdir().unwrap();
    checkpoints(home.path());
    let dir = home.path().to_str().unwrap();
    let whole: Value = serde_json::from_slice(&listed(&[dir, "--json"]).stdout).unwrap();
    schemas::check("recordings", &whole);
    assert_eq!((&whole["schema"], &whole["left_out"]), (&json!(1), &json!(0)));
    let all = whole["recordings"].as_array().unwrap();
    let of = |name: &str| all.iter().map(|it| it[name].clone()).collect::<Vec<_>>();
    assert_eq!(of("state"), ["unreadable", "running", "open", "closed"]);
    assert_eq!(of("exit_code"), [Value::Null, Value::Null, Value::Null, json!(0)]);
    assert_eq!(of("signal"), [Value::Null, Value::Null, json!(9), Value::Null]);
    assert_eq!(all[0]["peak_allocated"], Value::Null);
    let leak = &all[2];
    assert_eq!(
        (&leak["findings"][0]["kind"], &leak["findings"][0]["cause"]),
        (&json!("growth"), &json!("scalars-retained"))
    );
    assert_eq!(all[3]["findings"], json!([]));
    assert!(leak["steps"].as_u64() > Some(100) && leak["peak_allocated"].as_u64() > Some(0), "{leak}");

    let printed = text(&listed(&[dir]));
    let place = |phrase: &str| printed.find(phrase).unwrap_or_else(|| panic!("{phrase} in {printed}"));
    assert!(place("T040000Z") < place("T030000Z") && place("T020000Z") < place("T010000Z"));
    assert!(
        place("killed by SIGKILL; info: growth (scalars-retained)") < place("exit code 0; nothing found"),
        "{printed}"
    );
    assert!(place("running; info: growth") < place("T020000Z") && !printed.contains('\u{1b}'), "{printed}");

    assert_eq!(of("number"), [Value::Null, Value::Null, Value::Null, Value::Null], "no command opens those by number");
    let newest = text(&listed(&[dir, "--last", "1"]));
    assert!(newest.contains("T040000Z") && !newest.contains("T030000Z"), "{newest}");
    assert!(newest.contains("3 older: `gpuwatch recordings --last 4`"), "{newest}");
}

#[test]
fn an_empty_list_of_recordings_shows_how_to_make_one() {
    let home = tempfile::tempdir().unwrap();
    let nowhere = home.path().join("nowhere");
    let printed = text(&listed(&[nowhere.to_str().unwrap()]));
    assert!(printed.contains("there is no recording in") && printed.contains("gpuwatch run -- CMD"), "{printed}");
    let file = home.path().join("file");
    fs::write(&file, "").unwrap();
    let refused = Command::new(PROGRAM).arg("recordings").arg(&file).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("cannot read"), "{refused:?}");
}

/// Names as `recordings` prints them, and as `run --name` gives them, stand for recordings of the store.
#[test]
fn a_recording_is_opened_by_its_name() {
    let home = Home::new();
    let store = home.0.path().join("state/gpuwatch/recordings");
    fs::create_dir_all(&store).unwrap();
    let called = |name: Option<&str>, started_unix_us: u64| {
        let mut lines = lines_of(HEALTHY, |_| ());
        let name = name.map(Foreign::from);
        lines[0] = encode_header(&Header {
            format: FORMAT,
            gpuwatch: "0".into(),
            host: "h".into(),
            started_unix_us,
            monotonic_us: 0,
            name,
            writer: None,
        });
        lines
    };
    write(&store.join("20261120T010000Z_h_1_x.jsonl.zst"), &called(Some("night"), 3));
    write(&store.join("20261120T020000Z_h_2_x.jsonl.zst"), &called(Some("night"), 7));
    write(&store.join("20261120T030000Z_h_3_x.jsonl.zst"), &called(None, 9));
    let started = |name: &str| {
        let mut command = Command::new(PROGRAM);
        let done = command.args(["export", name, "--format", "jsonl"]).envs(home.variables()).output().unwrap();
        let row =
            String::from_utf8(done.stdout).unwrap().lines().next().map(|it| serde_json::from_str::<Value>(it).unwrap());
        row.map(|it| it["unix_us"].as_u64().unwrap() - it["at_us"].as_u64().unwrap())
    };
    let by_name = ["night", "20261120T010000Z_h_1_x", "20261120T030000Z_h_3_x.jsonl.zst", "day"].map(started);
    assert_eq!(by_name, [Some(7), Some(3), Some(9), None]);
    let by_short_name = ["last", "1", "2", "nig", "20261120T03", "4"].map(started);
    assert_eq!(by_short_name, [Some(9), Some(3), Some(7), Some(7), Some(9), None]);

    // Each command refuses an unknown name, and the beginning of several.
    for (name, why) in [
        ("4", "there is neither a file nor a recording 4: `gpuwatch recordings` lists the recordings"),
        ("2026", "several recordings begin with 2026: 20261120T010000Z_h_1_x, 20261120T020000Z_h_2_x, "),
        ("./1", "cannot open ./1: No such file"),
    ] {
        for arguments in [
            &["check", name][..],
            &["diff", name, "1"],
            &["export", name],
            &["replay", name],
            &["report", name, "-o", "-"],
        ] {
            let done = Command::new(PROGRAM).args(arguments).envs(home.variables()).output().unwrap();
            let printed = text(&done) + &String::from_utf8_lossy(&done.stderr);
            assert!(!done.status.success() && printed.contains(why), "{arguments:?}: {printed}");
        }
    }
    let whole = Command::new(PROGRAM).args(["recordings", "--json"]).envs(home.variables()).output().unwrap();
    let whole: Value = serde_json::from_slice(&whole.stdout).unwrap();
    schemas::check("recordings", &whole);
    let numbers: Vec<_> = whole["recordings"].as_array().unwrap().iter().map(|it| it["number"].clone()).collect();
    assert_eq!(numbers, [3, 2, 1], "newest first");
}

/// A file of 30 KB whose text is 256 MiB of valid lines: each command reads a bounded part of it, and reports that.
#[test]
fn a_file_that_unpacks_without_end_is_read_no_further() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("20261120T050000Z_it_4194305_x.jsonl.zst");
    let mut bomb = zstd::Encoder::new(fs::File::create(&path).unwrap(), 1).unwrap();
    let lines = lines_of(HEALTHY, |_| ());
    for it in &lines[..lines.len() - 1] {
        bomb.write_all(it.as_bytes()).unwrap();
    }
    let idle = "{\"at_us\":1,\"type\":\"later\"}\n".repeat(1 << 16);
    for _ in 0..(256 << 20) / idle.len() {
        bomb.write_all(idle.as_bytes()).unwrap();
    }
    bomb.finish().unwrap();
    let list: Value = serde_json::from_slice(&listed(&[dir.path().to_str().unwrap(), "--json"]).stdout).unwrap();
    let entry = &list["recordings"][0];
    assert!(entry["trouble"].as_str().unwrap().contains("unpacks to far more than a recording can"), "{entry}");
    assert_eq!(entry["state"], "open");
    let check = Command::new(PROGRAM).arg("check").arg(&path).env("GPUWATCH_CONFIG", "/dev/null").output().unwrap();
    let printed = format!("{}{}", text(&check), String::from_utf8_lossy(&check.stderr));
    assert!(printed.contains("unpacks to far more") && check.status.code() != Some(0), "{printed}");
}
