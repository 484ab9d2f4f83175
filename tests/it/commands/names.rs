//! What a user may write for a process, a recording, and in front of a subcommand.

use crate::{
    analysis::culprit::sites,
    commands::check::{header, write},
    helpers::terminal::PROGRAM,
    house::schemas,
    probe::launch::Home,
};
use gpuwatch::{
    facts::{
        event::{
            Event, Fact, Line, ProbeId,
            wire::{Hello, Sites},
        },
        units::Stamp,
    },
    storage::recording::{Closed, encode, encode_closed},
};
use std::{
    fs,
    path::Path,
    process::{self, Command, Output},
};

fn done(home: &Home, arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).envs(home.variables()).output().unwrap()
}

/// Standard output, and standard error.
fn printed(home: &Home, arguments: &[&str]) -> (String, String) {
    let output = done(home, arguments);
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// A home with a recording of process 7, with these captures.
fn recorded(captures: &[Line]) -> Home {
    let home = Home::new();
    let folder = home.0.path().join("state/gpuwatch/recordings");
    fs::create_dir_all(&folder).unwrap();
    let hello = Line::Hello(Hello { protocol: 1, pid: 7, ..Hello::default() });
    let mut lines = vec![header()];
    for (at, line) in [&hello].into_iter().chain(captures).enumerate() {
        let mut text = String::new();
        let fact = Fact::Probe { probe: ProbeId(0), line: Box::new(line.clone()) };
        encode(&Event { at: Stamp(at as u64), fact }, &mut text);
        lines.push(text);
    }
    lines.push(encode_closed(&Closed { at_us: Stamp(9), lost: 0 }));
    write(&folder.join("20261120T010000Z_a_1_0.jsonl.zst"), &lines);
    home
}

#[test]
fn the_lines_that_a_job_kept_are_in_its_recording_too() {
    let empty = Sites { sites: Vec::new(), ..sites(3, 400) };
    let home = recorded(&[Line::Sites(sites(1, 100)), Line::Sites(sites(2, 200)), Line::Sites(empty)]);
    for name in ["last", "1", "20261120T01"] {
        let (text, aside) = printed(&home, &["sites", name]);
        assert!(text.starts_with("process 7 at step 200:\n"), "{name}: {text}{aside}");
        assert!(text.contains("train.py:41 `losses.append(loss)` keeps ") && text.contains("  >   41"), "{text}");
    }
    let (json, _) = printed(&home, &["sites", "last", "--json"]);
    let answer = serde_json::from_str(&json).unwrap();
    schemas::check("sites", &answer);
    assert_eq!((&answer["pid"], &answer["step"]), (&7.into(), &200.into()));
    assert_eq!(answer["next"][0]["command"], "gpuwatch report last -o report.html");
    let (text, aside) = printed(&recorded(&[]), &["sites", "last"]);
    assert!(text.is_empty() && aside.contains("last has no capture of call stacks"), "{text}{aside}");
}

#[test]
fn what_is_no_process_is_told_what_is_meant() {
    let home = Home::new();
    for command in ["attach", "detach"] {
        for word in ["last", "train.py", "0", "-1", "4294967296"] {
            let (_, aside) = printed(&home, &[command, "--", word]);
            let is_named = aside.contains(&format!("'{word}'")) && aside.contains("a process is meant by its number");
            assert!(is_named && !aside.contains("invalid digit"), "{command} {word}: {aside}");
        }
    }
    let own = process::id().to_string();
    for command in [&["replay"][..], &["export"], &["check"], &["report", "-o", "-"]] {
        let (text, aside) = printed(&home, &[command, &[&own]].concat());
        assert!(
            (text + &aside).contains(&format!("`gpuwatch attach {own}` records the process")),
            "{command:?}: {aside}"
        );
    }
    for command in ["peak", "sites", "whatif"] {
        let (_, aside) = printed(&home, &[command, &own]);
        assert!(aside.contains(&format!("gpuwatch attach {own}")), "{command}: {aside}");
    }
    let (_, aside) = printed(&recorded(&[]), &["snapshot", "last"]);
    assert!(aside.contains("this is text, such as JSON or a recording"), "{aside}");
}

#[test]
fn flags_of_the_view_before_a_subcommand_are_the_subcommands() {
    let home = Home::new();
    let picture = home.0.path().join("demo.svg");
    let paper = |arguments: &[&str]| {
        let output = done(&home, arguments);
        assert!(output.status.success(), "{output:?}");
        fs::read_to_string(Path::new(&picture)).unwrap()
    };
    let shown = picture.to_str().unwrap();
    let before = paper(&["--theme", "paper", "--color=truecolor", "demo", "--seed", "3", "--screenshot", shown]);
    fs::remove_file(&picture).unwrap();
    let after = paper(&["demo", "--theme", "paper", "--color=truecolor", "--seed", "3", "--screenshot", shown]);
    assert_eq!(before, after);
    let (_, aside) = printed(&home, &["--bell", "doctor"]);
    assert!(aside.contains("unexpected argument '--bell'") && aside.contains("gpuwatch doctor"), "{aside}");
}
