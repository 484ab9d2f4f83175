//! Finds the holders of tensors that a job keeps: leaks of many kinds, in PyTorch and on every installed Python.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::{
    helpers::torch,
    probe::{
        launch::Home,
        pytorch::{library, script},
    },
};

/// Runs a script in a folder of its own with the probe's Python side, and returns what it reports.
fn printed(mut python: Command) -> Value {
    let dir = tempfile::tempdir().unwrap();
    python.env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/probes/python")).current_dir(dir.path());
    serde_json::from_str(&torch::stdout(&python.output().unwrap())).unwrap()
}

/// What the search takes of a processor among a million objects (its longest slice and all of them, µs), after it named
/// the holders of many leaks.
fn searched(python: impl Fn() -> Command, arguments: &[&str]) -> (u64, u64) {
    let run = |name: &str| {
        let mut command = python();
        command.arg(script(name)).args(arguments);
        printed(command)
    };
    let (leaks, searches) = (run("holders.py"), run("searches.py"));
    assert!(leaks["cases"].as_u64().unwrap() >= 22 && searches["cases"].as_u64().unwrap() >= 11);
    assert!(searches["objects"].as_u64().unwrap() >= 1_000_000);
    (searches["longest_us"].as_u64().unwrap(), searches["us"].as_u64().unwrap())
}

#[test]
fn the_holder_of_every_kind_of_leak_is_named() {
    let gpu = torch::machine();
    let (longest, total) = searched(|| gpu.command(torch::python()), &[]);
    println!("a million objects: {longest} µs at most at once, {total} µs in all");
}

#[test]
fn the_variables_of_frames_are_read_on_every_python() {
    test_tiers::change!("every Python of the machine");
    let pythons = pythons();
    assert!(!pythons.is_empty());
    for it in pythons {
        let (longest, total) = searched(|| Command::new(&it), &["standin"]);
        println!("{}: a million objects: {longest} µs at most at once, {total} µs in all", it.display());
    }
}

/// Jobs on such a build are refused while the lock is off; the search itself names fewer holders there, and no others.
#[test]
fn builds_without_the_lock_are_refused_and_name_fewer_holders() {
    test_tiers::full!("every Python of the machine that can do without the lock");
    let pythons = of_builds(&["t"]);
    if pythons.is_empty() {
        test_tiers::skip!("no Python of this machine can do without its lock");
    }
    for (it, lock) in pythons.iter().flat_map(|it| [(it, "0"), (it, "1")]) {
        searched(
            || {
                let mut command = Command::new(it);
                command.env("PYTHON_GIL", lock);
                command
            },
            &["standin"],
        );
    }
}

#[test]
fn the_line_that_keeps_a_tensor_is_distinguished_from_others() {
    let mut python = Command::new("python3");
    python.arg(script("source.py"));
    assert!(printed(python)["cases"].as_u64().unwrap() >= 13);
}

#[test]
fn the_latest_containers_are_listed_as_by_the_collector_on_every_python() {
    let home = Home::new();
    let library = library(&home);
    for it in pythons_of_all_builds() {
        let mut command = Command::new(&it);
        command.arg(script("young.py")).env("GPUWATCH_PROBE_SO", &library);
        printed(command);
    }
}

/// The Pythons of this machine, one for each release that the probe supports.
pub(crate) fn pythons() -> Vec<PathBuf> {
    of_builds(&[""])
}

/// The same, with builds that can do without the lock (`python3.14t`). They do not read the frames of other threads.
pub(crate) fn pythons_of_all_builds() -> Vec<PathBuf> {
    of_builds(&["", "t"])
}

fn of_builds(builds: &[&str]) -> Vec<PathBuf> {
    let mut folders: Vec<_> = env::split_paths(&env::var_os("PATH").unwrap()).collect();
    let pyenv = env::var_os("HOME").map(|it| Path::new(&it).join(".pyenv/versions"));
    if let Some(versions) = pyenv.and_then(|it| it.read_dir().ok()) {
        folders.extend(versions.flatten().map(|it| it.path().join("bin")));
    }
    let names = (9..=15).flat_map(|minor| builds.iter().map(move |it| format!("python3.{minor}{it}")));
    names.filter_map(|name| folders.iter().map(|it| it.join(&name)).find(|it| works(it))).collect()
}

fn works(python: &Path) -> bool {
    Command::new(python).arg("-c").arg("import ctypes").output().is_ok_and(|it| it.status.success())
}
