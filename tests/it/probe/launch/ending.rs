//! What `gpuwatch run` prints when its job is over, where it records, and the options it accepts before `--`.

use super::{Home, done, text};
use crate::helpers::terminal::PROGRAM;
use std::{
    fs,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// A probed job that leaks until an alert came, writes a word to either stream, and ends with 7.
fn leak(home: &Home, flags: &[&str]) -> Output {
    let folder = home.0.path().join("sockets");
    let alerted = home.0.path().join("alerted");
    let _ = fs::DirBuilder::new().mode(0o700).create(&folder);
    let _ = fs::remove_file(&alerted);
    let wait = format!("for it in $(seq 2400); do [ -e '{}' ] && break; sleep 0.05; done", alerted.display());
    let leaking = format!("{PROGRAM:?} demo-job --kind leaking --rate 200 --directory '{}'", folder.display());
    let job = format!("({wait}) | {leaking}; echo out; echo err >&2; exit 7");
    let mut command = home.gpuwatch(&["run", "--on-alert", "touch", "--on-alert-arg", alerted.to_str().unwrap()]);
    command.args(flags).args(["--", "sh", "-c", &job]);
    let output = done(command);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(7), "out\n".to_owned()), "{output:?}");
    output
}

fn recordings(home: &Home) -> Vec<PathBuf> {
    let files = fs::read_dir(home.0.path().join("state/gpuwatch/recordings")).into_iter().flatten();
    files.map(|it| it.unwrap().path()).collect()
}

fn printed(output: &Output) -> String {
    text(&output.stderr)
}

#[test]
fn the_end_of_a_probed_job_is_summed_up_in_one_line() {
    let home = Home::new();
    let file = home.0.path().join("a run.jsonl.zst");
    let output = leak(&home, &["-o", file.to_str().unwrap(), "--name", "baseline"]);
    let printed = printed(&output);
    let line = printed.strip_prefix("err\ngpuwatch: ").unwrap_or_else(|| panic!("{printed}"));
    let (found, how) = line.split_once(" · ").unwrap();
    assert_eq!(how, format!("gpuwatch replay '{}'\n", file.display()), "{printed}");
    // It names what the report's title does, and what a check fails on.
    assert!(found.contains("train.py:87 keeps 4.00 MiB a step") && found.contains("full after "), "{printed}");
    let check = Command::new(PROGRAM).args(["check", file.to_str().unwrap()]).envs(home.variables()).output().unwrap();
    assert_eq!(check.status.code(), Some(1), "{check:?}");
    assert!(recordings(&home).is_empty(), "it is where it was asked for");
    let listed = done(home.gpuwatch(&["recordings", home.0.path().to_str().unwrap()]));
    assert!(text(&listed.stdout).contains("a run.jsonl.zst  baseline\n"), "{listed:?}");
}

/// Two ranks with one leak: `run` ends with one finding, and `once` meanwhile explains it once.
#[test]
fn a_leak_of_two_ranks_is_one_finding_in_the_last_line_and_of_once() {
    let home = Home::new();
    let folder = home.0.path().join("sockets");
    fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
    let path = |name: &str| home.0.path().join(name).display().to_string();
    let wait = |until: &str| format!("for it in $(seq 2400); do {until} && break; sleep 0.05; done");
    let once = path("once");
    // A leak that ranks share alerts once, so that the second rank is waited for here.
    let both = wait(&format!("{PROGRAM:?} once --no-nvml > {once}; grep -q 'tensors-retained (ranks 0, 1)' {once}"));
    let rank = |it: usize| {
        format!(
            "{PROGRAM:?} demo-job --kind leaking --rank {it} --ranks 2 --rate 200 --directory '{}'",
            folder.display()
        )
    };
    let last = wait(&format!("[ -e {} ]", path("done")));
    let job = format!("({both}; touch {}) | {} & ({last}) | {}; wait", path("done"), rank(0), rank(1));
    let output = done(home.gpuwatch(&["run", "--", "sh", "-c", &job]));
    let (printed, once) = (printed(&output), fs::read_to_string(path("once")).unwrap());
    assert!(printed.contains("train.py:87 keeps 4.00 MiB a step (ranks 0, 1); full after "), "{printed}\n{once}");
    assert!(!printed.contains("; and "), "{printed}");
    assert_eq!(once.matches("tensors-retained (ranks 0, 1)").count(), 1, "{once}");
    assert_eq!(once.matches("tensors-retained").count(), 1, "{once}");
    assert!(once.contains(", the same leak as of rank 0"), "{once}");
}

#[test]
fn the_last_line_calls_a_recording_by_its_name_and_a_second_one_of_that_name_is_another_file() {
    let home = Home::new();
    let command = || {
        let printed =
            printed(&done(home.gpuwatch(&["run", "--summary", "always", "--name", "night run", "--", "true"])));
        printed.split_once(" · ").unwrap_or_else(|| panic!("{printed}")).1.to_owned()
    };
    assert_eq!([command(), command()], ["gpuwatch replay 'night run'\n"; 2]);
    assert_eq!(recordings(&home).len(), 2, "none is written over");
    let listed = text(&done(home.gpuwatch(&["recordings"])).stdout);
    let numbers: Vec<_> =
        listed.lines().filter(|it| it.ends_with("  night run")).filter_map(|it| it.split("  ").next()).collect();
    assert_eq!(numbers, ["2", "1"], "{listed}");
    // A file of that name in the current folder comes first, so the line has the number.
    fs::write(home.0.path().join("night run"), "mine").unwrap();
    let mut command = home.gpuwatch(&["run", "--summary", "always", "--name", "night run", "--", "true"]);
    let printed = printed(&done({
        command.current_dir(home.0.path());
        command
    }));
    assert!(printed.ends_with(" · gpuwatch replay 3\n"), "{printed}");
}

#[test]
fn the_summary_can_be_turned_off_and_forced() {
    let home = Home::new();
    assert_eq!(printed(&leak(&home, &["--summary", "never", "--name", "quiet one"])), "err\n");
    let made = recordings(&home);
    assert!(made.len() == 1 && made[0].to_string_lossy().ends_with("_quiet-one.jsonl.zst"), "{made:?}");
    let run = |flags: &[&str], variable: &str, config: &str| {
        let file = home.0.path().join("config.toml");
        fs::write(&file, config).unwrap();
        let mut command = home.gpuwatch(&["run", "--config", file.to_str().unwrap()]);
        command.args(flags).args(["--", "sh", "-c", "exit 3"]).env("GPUWATCH_SUMMARY", variable);
        let output = done(command);
        assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(3), true));
        printed(&output)
    };
    assert_eq!(run(&[], "auto", ""), "", "nothing was probed, and nobody asked");
    for asked in [run(&["--summary", "always"], "never", ""), run(&[], "always", "[recordings]\nsummary = 'never'\n")] {
        let number = asked.strip_prefix("gpuwatch: exit code 3; no process was probed · gpuwatch replay ").unwrap();
        assert!(number.trim_end().parse::<usize>().is_ok_and(|it| it >= 2), "one line with a short name: {asked}");
    }
    let killed = done(home.gpuwatch(&["run", "--summary", "always", "--", "sh", "-c", "kill -9 $$"]));
    assert!(printed(&killed).starts_with("gpuwatch: killed by SIGKILL; no process was probed · "), "{killed:?}");
    let mut command = home.run(&["true"]);
    let config = home.0.path().join("config.toml");
    fs::write(&config, "[recordings]\nsummary = 'always'\n").unwrap();
    command.env("GPUWATCH_CONFIG", &config).env_remove("GPUWATCH_SUMMARY");
    assert!(printed(&done(command)).starts_with("gpuwatch: no process was probed"));
}

#[test]
fn without_a_summary_nothing_is_printed_whatever_goes_wrong() {
    let home = Home::new();
    let path = |name: &str| home.0.path().join(name);
    fs::write(path("there.jsonl.zst"), "mine").unwrap();
    fs::write(path("broken.toml"), "[alerts").unwrap();
    for name in ["mpirun", "python3"] {
        fs::write(path(name), "#!/bin/sh\nexit 3\n").unwrap();
        fs::set_permissions(path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let there = path("there.jsonl.zst");
    let (launcher, python, broken) = (path("mpirun"), path("python3"), path("broken.toml"));
    let [there, launcher, python, broken] = [&there, &launcher, &python, &broken].map(|it| it.to_str().unwrap());
    let plain = ["sh", "-c", "exit 3"];
    for (flags, variables, command) in [
        (&["-o", there][..], &[][..], &plain[..]),
        (&["-o", "/nowhere/at/all.zst"], &[], &plain),
        (&["--config", broken], &[], &plain),
        (&[], &[("GPUWATCH_SOCKET_DIR", "/proc/version/x")], &plain),
        (&[], &[("XDG_STATE_HOME", "/proc/version/x")], &plain),
        (&[], &[], &[launcher]),
        (&[], &[], &[python, "-I", "x.py"]),
    ] {
        let run = |when: &str| {
            let mut run = home.gpuwatch(&[&["run", "--summary", when], flags, &["--"], command].concat());
            run.envs(variables.iter().copied());
            done(run)
        };
        let (always, never) = (run("always"), run("never"));
        assert!(!printed(&always).is_empty());
        assert_eq!(
            (printed(&never), never.status.code()),
            (String::new(), Some(3)),
            "{flags:?} {variables:?} {command:?}"
        );
    }
}

#[test]
fn a_file_that_cannot_be_made_costs_the_recording_and_not_the_job() {
    let home = Home::new();
    let file = home.0.path().join("there.jsonl.zst");
    fs::write(&file, "mine").unwrap();
    let run = |file: &Path| {
        let mut command = home.gpuwatch(&["run", "-o"]);
        command.arg(file).args(["--", "sh", "-c", "echo out; exit 3"]);
        done(command)
    };
    let output = run(&file);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(3), "out\n".to_owned()));
    assert!(printed(&output).contains("nothing was recorded: cannot make "), "{output:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    let output = run(Path::new("-"));
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), String::new()));
    assert!(printed(&output).contains("standard output is the job's: name a file"), "{output:?}");
}

#[test]
fn an_unknown_flag_of_run_is_an_error_and_not_the_command() {
    let home = Home::new();
    for arguments in [
        &["run", "--no-such-flag-of-ours"][..],
        &["run", "--no-such-flag-of-ours", "--", "echo", "ran"],
        &["run", "-x", "echo", "ran"],
        &["run", "--name", "a/b", "--", "echo", "ran"],
        &["run", "--name", "", "--", "echo", "ran"],
        &["run", "--name", "last", "--", "echo", "ran"],
        &["run", "--name", "3", "--", "echo", "ran"],
        &["run", "--name", "a\u{1b}[2J", "--", "echo", "ran"],
    ] {
        let output = done(home.gpuwatch(arguments));
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), String::new()), "{arguments:?}");
    }
    let unknown = done(home.gpuwatch(&["run", "--sumary", "never", "--", "true"]));
    assert!(printed(&unknown).contains("'--summary'"), "the nearest is named: {unknown:?}");
    // Arguments after the command belong to the command.
    let own = done(home.gpuwatch(&["run", "echo", "--name", "x", "-o", "y", "--no-such-flag-of-ours"]));
    assert_eq!(text(&own.stdout), "--name x -o y --no-such-flag-of-ours\n");
}
