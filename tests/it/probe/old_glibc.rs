//! The probe's library loads where glibc is old: what it asks of it, as a loader reads that.

use crate::{helpers::terminal::PROGRAM, probe::launch::Home};
use std::process::Command;

/// The oldest minor version of glibc 2 that the library has to load with.
const FLOOR: u32 = 28;

#[test]
fn the_library_asks_for_no_newer_glibc_than_2_28() {
    let home = Home::new();
    let script = format!("eval \"$('{PROGRAM}' env)\" && objdump -p \"$GPUWATCH_PROBE_SO\"");
    let output = Command::new("sh").args(["-c", &script]).envs(home.variables()).env("LC_ALL", "C").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let header = String::from_utf8(output.stdout).unwrap();
    let newer = newer(&header);
    assert!(newer.is_empty(), "bind these in the probe's sys/floor.rs: {newer:?}\n{header}");
    // Before 2.34 the calls for threads and libraries are there, and a job in C may have loaded neither.
    let needed: Vec<&str> = header.lines().filter_map(|it| it.trim_start().strip_prefix("NEEDED")).collect();
    for name in ["libpthread.so.0", "libdl.so.2"] {
        assert!(needed.iter().any(|it| it.trim() == name), "{name}: {header}");
    }
}

/// Returns the releases beyond the floor that a library requires, according to `objdump -p`.
pub(crate) fn newer(header: &str) -> Vec<&str> {
    let asked: Vec<&str> = header.split_whitespace().filter_map(|it| it.strip_prefix("GLIBC_")).collect();
    assert!(asked.len() > 2, "{header}");
    asked.into_iter().filter(|it| minor(it).is_none_or(|version| version > FLOOR)).collect()
}

/// Returns 28 for `2.28`, 2 for `2.2.5`; `None` for other names such as `ABI_DT_RELR`.
fn minor(version: &str) -> Option<u32> {
    version.strip_prefix("2.")?.split('.').next()?.parse().ok()
}
