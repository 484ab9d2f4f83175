//! `gpuwatch record --hosts`: a directory with a recording of each machine, and what is made of it.

use super::hosts::Machines;
use crate::{
    helpers::{
        story::{GIB, MIB, Story, counters},
        terminal::{PATIENCE, PROGRAM, until},
    },
    house::schemas,
    probe::launch::Home,
    recordings::writer::{read, steps},
};
use gpuwatch::{
    facts::{
        event::{Fact, Line, WritingProcess},
        units::Stamp,
    },
    model::cluster::{Greeting, HostUpdate, Link, What},
    storage::{
        host_index,
        recording::{FORMAT, Header},
        replay::host_replay::Recorded,
        sink::host_recordings::Nodes,
    },
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{
    fs,
    path::Path,
    process::{Child, Command, Output, Stdio},
};

fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap()
}

fn gpuwatch(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).envs(Home::new().variables()).output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

/// Records two machines with a rank each, and one that refuses, until both have steps.
fn recorded(machines: &Machines, directory: &Path) -> Child {
    let mut command = machines.command(&["record", "--hosts", "node[01-02],away", "-o", directory.to_str().unwrap()]);
    let child = command.stderr(Stdio::null()).spawn().unwrap();
    let has_steps = |name: &str| {
        let path = directory.join(format!("{name}.jsonl.zst"));
        path.exists() && steps(&read(&path).0).len() > 2
    };
    assert!(until(PATIENCE, || has_steps("node01") && has_steps("node02")));
    child
}

#[test]
fn several_machines_are_recorded_into_a_directory_that_check_and_export_read() {
    let machines = Machines::new();
    machines.faulty("away", "echo 'ssh: \u{1b}[31mno route' >&2; exit 255");
    let _ranks = [
        machines.rank("node01", &["--rank", "0", "--ranks", "2"]),
        machines.rank("node02", &["--rank", "1", "--ranks", "2"]),
    ];
    let directory = machines.path("night");
    let mut child = recorded(&machines, &directory);
    kill_process(pid(&child), Signal::INT).unwrap();
    assert!(child.wait().unwrap().success());

    for name in ["node01", "node02"] {
        schemas::check_recording(&directory.join(format!("{name}.jsonl.zst")));
    }
    let index = host_index::read(&directory).unwrap();
    for line in std::fs::read_to_string(directory.join(host_index::INDEX)).unwrap().lines() {
        schemas::check("nodes", &serde_json::from_str(line).unwrap());
    }
    assert!(index.closed.is_some());
    assert_eq!(index.nodes.iter().map(|it| it.files.len()).collect::<Vec<_>>(), [1, 1, 0]);
    assert!(index.nodes[0].ahead_us().is_some());
    assert!(matches!(index.nodes[2].link(), Link::Refused { .. }));

    let shown = directory.to_str().unwrap();
    let output = gpuwatch(&["check", shown, "--json"]);
    let whole = json(&output);
    schemas::check("check-nodes", &whole);
    assert_eq!((&whole["verdict"], output.status.code()), (&"unjudged".into(), Some(2)), "{whole:#}");
    assert!(whole["doubts"].as_array().unwrap().iter().any(|it| it.as_str().unwrap().starts_with("away: ")));
    assert_eq!(whole["nodes"][1]["check"]["processes"][0]["rank"], 1);
    assert!(whole["nodes"][2]["check"].is_null() && whole["nodes"][2]["link"] == "refused");
    assert_eq!((&whole["jobs"][0]["ranks"], whole["jobs"].as_array().unwrap().len()), (&2.into(), 1));
    let text = String::from_utf8(gpuwatch(&["check", shown]).stdout).unwrap();
    assert!(text.starts_with("NOT JUDGED  3 machines, 1 job\n") && !text.contains('\u{1b}'), "{text}");

    let table = String::from_utf8(gpuwatch(&["export", shown]).stdout).unwrap();
    let ranks: Vec<&str> = table.lines().skip(1).map(|it| it.split(',').nth(3).unwrap()).collect();
    assert!(ranks.contains(&"0") && ranks.contains(&"1"), "{table}");
    let listed = json(&gpuwatch(&["recordings", shown, "--json"]));
    assert_eq!(listed["recordings"].as_array().unwrap().len(), 2);
    let replay = String::from_utf8(gpuwatch(&["replay", shown]).stdout).unwrap();
    assert!(replay.contains("node01  gpuwatch replay ") && replay.contains("away    refused: "), "{replay}");
    let report = gpuwatch(&["report", shown, "-o", "-"]);
    assert!(!report.status.success());
    assert!(String::from_utf8_lossy(&report.stderr).contains("several machines: name one of its files"));
    let page = gpuwatch(&["report", directory.join("node01.jsonl.zst").to_str().unwrap(), "--json", "-o", "-"]);
    assert!(page.status.success());
}

#[test]
fn a_killed_recorder_leaves_what_was_recorded_and_a_directory_in_use_is_refused() {
    let machines = Machines::new();
    machines.faulty("away", "exit 255");
    let _ranks = [machines.rank("node01", &[]), machines.rank("node02", &[])];
    let directory = machines.path("night");
    let mut child = recorded(&machines, &directory);
    kill_process(pid(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    let whole = json(&gpuwatch(&["check", directory.to_str().unwrap(), "--json"]));
    schemas::check("check-nodes", &whole);
    assert!(whole["nodes"][0]["check"]["steps"].as_u64() > Some(0), "{whole:#}");
    assert!(whole["notes"].as_array().unwrap().iter().any(|it| it.as_str().unwrap().starts_with("not closed")));
    for (arguments, words) in [
        (&["-o", directory.to_str().unwrap()][..], "not empty"),
        (&[], "name it with `-o DIR`"),
        (&["-o", "-"], "name it with `-o DIR`"),
    ] {
        let output = machines.command(&[&["record", "--hosts", "node01"], arguments].concat()).output().unwrap();
        assert!(!output.status.success());
        assert!(String::from_utf8_lossy(&output.stderr).contains(words), "{output:?}");
    }
}

fn about(host: &str) -> Header {
    Header {
        format: FORMAT,
        gpuwatch: "0".into(),
        host: host.into(),
        started_unix_us: 1_800_000_000_000_000,
        monotonic_us: 0,
        name: None,
        writer: None,
    }
}

fn write(directory: &Path, held: impl Fn(u32, u64) -> u64) {
    assert_eq!(begun(directory, held).finish(Stamp(60_000_000)), (true, Vec::new()));
}

/// Two machines whose clocks are 1,000 s apart, with two ranks each, which take 600 steps in a minute.
pub(super) fn begun(directory: &Path, held: impl Fn(u32, u64) -> u64) -> Nodes {
    let hosts = ["node0".to_owned(), "node1".to_owned()];
    let mut nodes = Nodes::create(directory, &hosts, about("here")).unwrap();
    for machine in 0..2_u32 {
        let ahead_us = u64::from(machine) * 1_000_000_000;
        let mut news = |at: Stamp, what| nodes.take(HostUpdate { node: machine as usize, at, what });
        news(
            Stamp(0),
            What::Greeting(Greeting {
                gpuwatch: "0".into(),
                host: hosts[machine as usize].as_str().into(),
                started_unix_us: 1_700_000_000_000_000,
                monotonic_us: ahead_us,
                boot_id: None,
            }),
        );
        news(Stamp(0), What::Beat { there: Stamp(ahead_us), unix_there: 0, unix_here: 0 });
        let mut story = Story { now: ahead_us, ..Story::default() };
        for local in 0..2 {
            story.device(local, 80 * GIB, &[]).probe(local, 4240 + local, local, None);
        }
        for event in &mut story.events {
            if let Fact::Probe { probe, line } = &mut event.fact
                && let Line::Hello(hello) = &mut **line
            {
                hello.rank = Some(u64::from(2 * machine + probe.0));
                (hello.world_size, hello.run) = (Some(4), Some("r".to_owned()));
            }
        }
        for step in 1..=600 {
            story.wait(100_000);
            for local in 0..2 {
                story.sample(local, step, counters(held(2 * machine + local, step), GIB));
            }
        }
        for event in story.events {
            news(Stamp(event.at.0 - ahead_us), What::Event(event));
        }
    }
    nodes
}

#[test]
fn a_directory_is_judged_by_the_findings_over_all_ranks() {
    let folder = tempfile::tempdir().unwrap();
    for (name, held, kind) in [
        ("steady", (|_, _| 40 * GIB) as fn(u32, u64) -> u64, None),
        ("uneven", |rank, _| if rank == 3 { 72 * GIB } else { 36 * GIB }, Some("imbalance")),
        ("grows", |rank, step| 20 * GIB + if rank == 2 { step * MIB } else { 0 }, Some("growth")),
    ] {
        let directory = folder.path().join(name);
        write(&directory, held);
        let output = gpuwatch(&["check", directory.to_str().unwrap(), "--json"]);
        let whole = json(&output);
        schemas::check("check-nodes", &whole);
        let [job] = &whole["jobs"].as_array().unwrap()[..] else { panic!("{whole:#}") };
        let kinds: Vec<_> = job["findings"].as_array().unwrap().iter().map(|it| it["kind"].as_str()).collect();
        assert_eq!(kinds, kind.map(Some).into_iter().collect::<Vec<_>>(), "{name}: {job:#}");
        assert_eq!(output.status.code(), Some(i32::from(kind.is_some())), "{name}: {}", whole["doubts"]);
    }
    // What the user expects of ranks that are compared fails nothing, and what is only silent does.
    let directory = folder.path().join("uneven");
    for (rule, code) in [("allow", 0), ("silence", 1)] {
        let config = folder.path().join("config.toml");
        fs::write(&config, format!("[alerts]\n{rule} = ['imbalance']\n")).unwrap();
        let output = gpuwatch(&["check", directory.to_str().unwrap(), "--config", config.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(code), "{rule}: {output:?}");
    }
    // The machines' clocks are one in a table, although neither agrees with the recorder's.
    let directory = folder.path().join("steady");
    let table = String::from_utf8(gpuwatch(&["export", directory.to_str().unwrap()]).stdout).unwrap();
    let first = |rank: &str| {
        let mut rows = table.lines().skip(1).map(|it| it.split(',').collect::<Vec<_>>());
        rows.find(|it| it[3] == rank).unwrap()[0].to_owned()
    };
    assert_eq!(first("0"), "1800000000100000");
    assert_eq!(first("0"), first("3"));
}

/// A run on a machine whose wall clock is set while its link is down, and one after a reboot.
#[test]
fn a_wall_clock_that_is_set_splits_no_recording() {
    const HOUR: i64 = 3_600_000_000;
    let folder = tempfile::tempdir().unwrap();
    let wall: u64 = 1_700_000_000_000_000;
    let played = |set_by: i64, boots: [&str; 2], second: u64| {
        let directory = folder.path().join(format!("{set_by} {boots:?} {second}"));
        let own = WritingProcess { boot_id: "of the recorder".into(), pid_namespace: 1, pid: 7, start_ticks: 1 };
        let about = Header { writer: Some(own), ..about("here") };
        let mut nodes = Nodes::create(&directory, &["a".to_owned()], about).unwrap();
        let connections =
            [(boots[0], wall, 900_000_000, 1..=9), (boots[1], wall.saturating_add_signed(set_by), second, 10..=20)];
        for (at, (boot, unix, clock, steps)) in (1..).zip(connections) {
            let mut news = |what| nodes.take(HostUpdate { node: 0, at: Stamp(at * 60_000_000), what });
            news(What::Greeting(Greeting {
                gpuwatch: "0".into(),
                host: "a".into(),
                started_unix_us: unix,
                monotonic_us: clock,
                boot_id: Some(boot.to_owned()),
            }));
            news(What::Beat { there: Stamp(clock), unix_there: unix, unix_here: wall });
            let mut story = Story { now: clock, ..Story::default() };
            story.device(0, 80 * GIB, &[]).probe(0, 4240, 0, None);
            for step in steps {
                story.wait(1_000_000).sample(0, step, counters(GIB, GIB));
            }
            for it in story.events {
                news(What::Event(it));
            }
            news(What::Link(Link::refused("it broke off".to_owned())));
        }
        assert!(nodes.finish(Stamp(180_000_000)).0);
        let recorded = Recorded::open(&directory).unwrap();
        let mut cursor = recorded.nodes[0].as_ref().unwrap().play();
        let (mut first, mut last) = (None, Stamp(0));
        while let Some((at, _)) = cursor.next_by(Stamp(u64::MAX)) {
            (first, last) = (first.or(Some(at)), last.max(at));
        }
        (recorded.index.nodes[0].files.len(), last.0 - first.unwrap().0)
    };
    let length = 60_000_000 + 11_000_000;
    assert_eq!([0, -HOUR, HOUR].map(|it| played(it, ["1", "1"], 960_000_000)), [(1, length); 3]);
    assert_eq!([0, -HOUR, HOUR].map(|it| played(it, ["1", "2"], 5)), [(2, length); 3], "after a reboot");
}

#[test]
fn a_machine_that_rebooted_has_another_recording() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("d");
    let mut nodes = Nodes::create(&directory, &["a/b".to_owned(), "a-b".to_owned()], about("here")).unwrap();
    let mut greet = |node, monotonic_us| {
        let what = What::Greeting(Greeting {
            gpuwatch: "0".into(),
            host: "h".into(),
            started_unix_us: 1_700_000_000_000_000,
            monotonic_us,
            boot_id: None,
        });
        nodes.take(HostUpdate { node, at: Stamp(1), what });
        let mut story = Story { now: monotonic_us, ..Story::default() };
        story.device(0, GIB, &[]);
        for event in story.events {
            nodes.take(HostUpdate { node, at: Stamp(2), what: What::Event(event) });
        }
    };
    greet(0, 900_000_000);
    greet(0, 900_000_001);
    greet(0, 5);
    greet(1, 5);
    nodes.finish(Stamp(9));
    let names = |node: &host_index::Node| {
        node.files.iter().map(|it| it.path.file_name().unwrap().to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let recorded = Recorded::open(&directory).unwrap();
    let all: Vec<_> = recorded.index.nodes.iter().map(names).collect();
    assert_eq!(all, [vec!["a-b.jsonl.zst", "a-b-2.jsonl.zst"], vec!["a-b-3.jsonl.zst"]]);
    assert!(recorded.notes.is_empty() && recorded.nodes.iter().all(Option::is_some));
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 4);
}
