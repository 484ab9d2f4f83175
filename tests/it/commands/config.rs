//! The config: named alerts are allowed or silenced everywhere, and an error in the file is reported before anything
//! starts.

use crate::{
    analysis::alerts::messages_under,
    commands::check::{ACTIVATIONS, check, judged, recorded},
    helpers::{
        story::{GIB, MIB, alerted, one_rank, picture_of, steps, text},
        terminal::{PATIENCE, PROGRAM, Terminal, until},
    },
    probe::launch::Home,
};
use gpuwatch::{
    model::{
        alerts::{self, Name, Policy},
        findings::Kind,
    },
    screen::{
        theme::{Role, Theme},
        ui::{Screen, Ui},
    },
};
use serde_json::Value;
use std::{
    fs,
    io::Read,
    os::unix::fs::DirBuilderExt,
    path::Path,
    process::{Command, Stdio},
};

fn policy(allow: &[&str], silence: &[&str]) -> Policy {
    let names = |texts: &[&str]| texts.iter().map(|it| Name::read(it).unwrap()).collect();
    Policy { allow: names(allow), silence: names(silence) }
}

fn broken(dir: &Path) -> String {
    let path = dir.join("broken.toml");
    fs::write(&path, "[alerts]\nallow = [\"growht\"]\n").unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn allowed_and_silenced_alerts_are_not_sent() {
    let mut story = one_rank();
    steps(&mut story, 1..=300, |step| 20 * GIB + step * 4 * MIB);
    for (names, count) in [
        (&[][..], 1),
        (&["sawtooth", "growth:host", "graph-retained"], 1),
        (&["growth"], 0),
        (&["growth:allocated"], 0),
        (&["oom", "tensors-retained"], 0),
    ] {
        assert_eq!(messages_under(&policy(names, &[]), &story).len(), count, "{names:?}");
        assert_eq!(messages_under(&policy(&[], names), &story).len(), count, "{names:?}");
    }
}

/// An expected leak does not cover the out-of-memory error that it causes.
#[test]
fn an_expected_cause_allows_no_out_of_memory_error() {
    let session = alerted().session();
    let allowed = |names: &[&str]| {
        let found = policy(names, &[]).findings(&session);
        let it = found.all.into_iter().find(|it| it.kind == Kind::Oom).unwrap();
        (it.is_allowed(), alerts::name(&it), it.cause.id())
    };
    let (is_allowed, name, cause) = allowed(&[]);
    assert_eq!((is_allowed, name.as_str()), (false, "oom"));
    assert!(!allowed(&["tensors-retained", "growth"]).0 && allowed(&["oom"]).0);
    assert!(cause == "oom" || !allowed(&[cause]).0, "{cause}");
}

#[test]
fn allowed_alerts_count_in_no_badge_and_the_list_marks_allowed_and_silenced() {
    let session = alerted().session();
    let theme = Theme::builtin("dusk").unwrap();
    let ui = Ui { screen: Screen::Alerts, ..Ui::default() };
    let drawn = |it: &Policy| picture_of(&session, &it.findings(&session), &ui, &theme, 80, 24);

    let picture = drawn(&policy(&["oom"], &["growth:allocated"]));
    let shown = text(&picture);
    insta::assert_snapshot!("alerts-by-policy-80x24", shown);
    assert!(shown.starts_with("gpuwatch  1 info  2 devices"), "{shown}");
    let row = shown.lines().position(|it| it.starts_with(" critical") && it.ends_with("oom, expected")).unwrap();
    let cell = picture.cell((1, u16::try_from(row).unwrap())).unwrap();
    assert_eq!(Some(cell.fg), theme.style(Role::Dim).fg, "it alarms nobody");
    assert!(shown.contains("scalars-retained, silenced") && shown.contains("cache-filling, silenced"), "{shown}");

    // An alert in both lists is allowed.
    let both = text(&drawn(&policy(&["oom", "growth"], &["growth"])));
    assert!(both.starts_with("gpuwatch  2 devices") && both.contains("0 open, 2 expected, 1 ended"), "{both}");
}

#[test]
fn check_fails_on_silenced_findings_and_not_on_allowed_ones() {
    let dir = tempfile::tempdir().unwrap();
    let recording = recorded(dir.path(), ACTIVATIONS);
    let file = dir.path().join("config.toml");
    let named = ["--config", file.to_str().unwrap()];
    let strict = [&named[..], &["--fail-on", "growth,info", "--max-growth", "1B/step"]].concat();
    for (text, code, standing) in [
        ("", 1, "usual"),
        ("alerts.silence = ['growth']", 1, "silenced"),
        ("alerts.allow = ['growth']", 0, "allowed"),
        ("alerts.allow = ['sawtooth']", 1, "usual"),
    ] {
        fs::write(&file, text).unwrap();
        let (exit, json) = judged(&recording, &strict);
        assert_eq!(exit, code, "{text}: {json:#}");
        let found = json["findings"].as_array().unwrap().iter().find(|it| it["kind"] == "growth").unwrap();
        assert_eq!(found["standing"], standing, "{json:#}");
        let printed = String::from_utf8(check(&recording, &named).stdout).unwrap();
        let label = if standing == "allowed" { "expected" } else { standing };
        assert_eq!(printed.contains(&format!("critical, {label}: growth of")), standing != "usual", "{printed}");
    }
}

#[test]
fn the_list_of_recordings_marks_allowed_findings() {
    let home = Home::new();
    let dir = home.0.path().join("shelf");
    fs::create_dir(&dir).unwrap();
    recorded(&dir, ACTIVATIONS);
    let folder = home.0.path().join("config/gpuwatch");
    fs::create_dir_all(&folder).unwrap();
    // Where nothing is named, the user's own file is read.
    fs::write(folder.join("config.toml"), "[alerts]\nallow = ['growth']").unwrap();
    let listed = |arguments: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.arg("recordings").arg(&dir).args(arguments).envs(home.variables()).env_remove("GPUWATCH_CONFIG");
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert!(listed(&[]).contains("critical, expected: growth (tensors-retained)"), "{}", listed(&[]));
    let json: Value = serde_json::from_str(&listed(&["--json"])).unwrap();
    assert_eq!(json["recordings"][0]["findings"][0]["standing"], "allowed", "{json:#}");
    assert!(listed(&["--config", "/dev/null"]).contains("critical: growth (tensors-retained)"));
}

#[test]
fn a_broken_config_is_reported_in_one_line_before_anything_starts() {
    let home = Home::new();
    let broken = broken(home.0.path());
    let missing = home.0.path().join("missing.toml");
    let missing = missing.to_str().unwrap();
    let near =
        format!("gpuwatch: {broken}:2: there is no alert for alerts.allow \"growht\"; the nearest is \"growth\"\n");
    let gone = format!("gpuwatch: {missing}: cannot be read: No such file or directory (os error 2)\n");
    for command in [&["check", "--json"][..], &["recordings"], &["replay"], &["report", "-o", "/dev/null"], &[]] {
        for (file, line) in [(broken.as_str(), &near), (missing, &gone)] {
            let mut by_flag = Command::new(PROGRAM);
            by_flag.args(command).args(["--config", file]).env_remove("GPUWATCH_CONFIG");
            let mut by_variable = Command::new(PROGRAM);
            by_variable.args(command).env("GPUWATCH_CONFIG", file);
            for mut it in [by_flag, by_variable] {
                let output = it.envs(home.variables()).output().unwrap();
                let printed = String::from_utf8(output.stderr).unwrap();
                assert_eq!((output.status.code(), &printed, &*output.stdout), (Some(2), line, &b""[..]), "{command:?}");
            }
        }
    }
}

#[test]
fn run_starts_the_job_despite_a_broken_config() {
    let home = Home::new();
    let broken = broken(home.0.path());
    let run = |variable: &str, flags: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.arg("run").args(flags).args(["--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
        let output = command.envs(home.variables()).env("GPUWATCH_CONFIG", variable).output().unwrap();
        assert_eq!((output.status.code(), &*output.stdout), (Some(7), &b"out\n"[..]), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    // Reports come after the job is over.
    for printed in [run(&broken, &[]), run("", &["--config", &broken])] {
        assert!(printed.starts_with(&format!("err\ngpuwatch: {broken}:2: there is no alert ")), "{printed}");
        assert!(printed.ends_with("; the nearest is \"growth\" (the job ran without it)\n"), "{printed}");
    }
    assert!(run("/nonexistent", &[]).contains("/nonexistent: cannot be read: "));
    assert_eq!(run("", &[]), "err\n", "an empty variable names nothing, and the user's own file need not be there");
    let recordings = fs::read_dir(home.0.path().join("state/gpuwatch/recordings")).unwrap().count();
    assert_eq!(recordings, 4, "each was recorded");
}

#[test]
fn run_records_silenced_alerts_and_starts_no_program_for_them() {
    let home = Home::new();
    let folder = home.0.path().join("sockets");
    fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
    let (file, touched) = (home.0.path().join("config.toml"), home.0.path().join("touched"));
    fs::write(&file, "alerts.silence = ['growth:allocated']").unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(["run", "--on-alert", "touch", "--on-alert-arg"]).arg(&touched).arg("--config").arg(&file);
    command.args(["--", PROGRAM, "demo-job", "--rate", "200", "--kind", "leaking", "--directory"]).arg(&folder);
    let mut job = command.envs(home.variables()).stdin(Stdio::piped()).spawn().unwrap();
    let recorded = || {
        let mut lines = Vec::new();
        let files = fs::read_dir(home.0.path().join("state/gpuwatch/recordings"));
        for it in files.into_iter().flatten() {
            // It is being written: what has come so far is what there is.
            let _ = zstd::Decoder::new(fs::File::open(it.unwrap().path()).unwrap()).unwrap().read_to_end(&mut lines);
        }
        String::from_utf8(lines).unwrap()
    };
    let is_raised = || {
        let text = recorded();
        let mut lines = text.lines().filter(|it| it.contains("\"edge\":\"raised\""));
        lines.any(|it| it.contains("\"standing\":\"silenced\""))
    };
    assert!(until(PATIENCE, is_raised), "{}", recorded());
    drop(job.stdin.take());
    assert!(job.wait().unwrap().success());
    assert!(!touched.exists());
}

#[test]
fn a_replay_reads_the_allowed_alerts_from_the_config() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    fs::write(&file, "[alerts]\nallow = ['growth']\n").unwrap();
    let recording = recorded(dir.path(), ACTIVATIONS);
    let shown = |config: &str, phrase: &str| {
        let arguments = ["replay", recording.to_str().unwrap(), "--config", config];
        let mut terminal = Terminal::start_sized((24, 80), &arguments, &[]);
        terminal.shows("allocated");
        terminal.press("a");
        terminal.shows(phrase);
        terminal.press("q");
        assert_eq!(terminal.ends(PATIENCE), 0);
    };
    shown(file.to_str().unwrap(), "tensors-retained, expected");
    shown("/dev/null", "gpuwatch  1 critical");
}
