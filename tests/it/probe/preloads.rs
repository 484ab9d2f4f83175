//! Jobs with another allocator, or a sanitizer, loaded before all else: the probe and gpuwatch work in them as in any.

use crate::{
    helpers::{
        debian::{APT, unpacked},
        torch::{self, stdout},
    },
    probe::{
        launch::Home,
        pytorch::{is_quiet, script},
    },
    recordings::writer::{read, steps},
};
use gpuwatch::storage::recording::Entry;
use std::{ffi::OsString, fs, path::PathBuf, process::Command};

/// Steps of the job.
const STEPS: u64 = 60;

/// Starts a job of some steps on a machine of its own, with libraries before all others; its output without its pid.
fn printed(launcher: &[&str], libraries: &[PathBuf], home: &Home) -> Vec<String> {
    let gpu = torch::machine();
    let python = torch::python();
    let steps = STEPS.to_string();
    let job = [python.to_str().unwrap(), &script("stormed.py"), &steps].map(ToOwned::to_owned);
    let line: Vec<String> = launcher.iter().map(|it| (*it).to_owned()).chain(job).collect();
    let mut command = gpu.command(&line[0]);
    let machine = gpu.environment().into_iter().find(|it| it.0 == "LD_PRELOAD").map(|it| it.1);
    let all: Vec<OsString> = libraries.iter().map(|it| it.clone().into()).chain(machine).collect();
    command.args(&line[1..]).env("LD_PRELOAD", all.join(":".as_ref())).envs(home.variables());
    // Python keeps its objects to its end, and PyTorch's libraries are built without a sanitizer.
    command.env("ASAN_OPTIONS", "detect_leaks=0:detect_odr_violation=0");
    let done = command.output().unwrap();
    let printed = stdout(&done);
    let aside = String::from_utf8_lossy(&done.stderr);
    assert!(is_quiet(&aside), "{aside}");
    printed.lines().skip(1).map(ToOwned::to_owned).collect()
}

/// Compares a job under `gpuwatch run` with one without both, and reads its recording.
fn is_as_without(library: PathBuf, mapped: &str) {
    let home = Home::new();
    let without = printed(&[], &[], &home);
    assert!(without.last().is_some_and(|it| it.contains("left")), "{without:?}");
    let mut maps = Command::new(env!("CARGO_BIN_EXE_gpuwatch"));
    maps.args(["run", "--", "cat", "/proc/self/maps"]).envs(Home::new().variables());
    maps.env("LD_PRELOAD", &library).env("ASAN_OPTIONS", "detect_leaks=0");
    assert!(stdout(&maps.output().unwrap()).contains(mapped), "the job has the library");
    let with = printed(&[env!("CARGO_BIN_EXE_gpuwatch"), "run", "--"], &[library], &home);
    assert_eq!(with, without);
    let folder = fs::read_dir(home.0.path().join("state/gpuwatch/recordings")).unwrap();
    let file = folder.map(|it| it.unwrap().path()).find(|it| it.is_file()).expect("a recording");
    let (entries, fault) = read(&file);
    assert!(fault.is_none() && matches!(entries.last(), Some(Entry::Closed(_))), "{fault:?}");
    let mut all = steps(&entries);
    all.dedup();
    assert_eq!(all, (1..=STEPS).collect::<Vec<_>>());
}

#[test]
fn a_job_with_jemalloc_is_as_without_gpuwatch_and_recorded_whole() {
    test_tiers::full!("downloads a package of Debian");
    let found = unpacked("libjemalloc2", &format!("{APT}\nunpack libjemalloc2\n"));
    let lib = test_tiers::needs!(found).join("usr/lib");
    let folders = fs::read_dir(lib).unwrap().map(|it| it.unwrap().path().join("libjemalloc.so.2"));
    is_as_without(folders.into_iter().find(|it| it.exists()).expect("the library"), "libjemalloc.so.2");
}

/// GCC's library of the address sanitizer; or why there is none.
fn sanitizer() -> Result<PathBuf, String> {
    let output = Command::new("gcc").arg("-print-file-name=libasan.so").output().map_err(|it| format!("gcc: {it}"))?;
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    // What it does not have it prints as it was given.
    fs::canonicalize(&path).ok().filter(|_| path.is_absolute()).ok_or_else(|| "gcc has no libasan.so".to_owned())
}

#[test]
fn a_job_with_an_address_sanitizer_is_as_without_gpuwatch_and_recorded_whole() {
    test_tiers::change!("starts PyTorch twice, once with a sanitizer");
    is_as_without(test_tiers::needs!(sanitizer()), "libasan.so");
}
