//! Jobs whose steps differ in size: the largest step is seen, and what the allocator reserves for it among the others.

use super::{Asked, bytes};
use crate::helpers::torch::{Gpu, stdout};
use serde_json::Value;
use std::process::Output;

const JOB: &str = include_str!("../python/sizes.py");
const SCHEDULES: &str = include_str!("../python/schedules.py");

/// What a process of the simulated machine takes beside its allocator, and a bit more.
const CONTEXT: u64 = 520;

/// Runs the job to its end where so many bytes are free for its allocator.
fn run(case: &str, room: u64) -> Output {
    let device = format!("NVIDIA X:{}MiB:0MiB", (room >> 20) + CONTEXT);
    Gpu::new(&device).script(JOB).arg(case).output().unwrap()
}

fn steps(answer: &Value) -> u64 {
    let ran = answer["phases"]["ran"].as_array().unwrap();
    ran.iter().find(|it| it["name"] == "training").and_then(|it| it["count"].as_u64()).unwrap()
}

#[test]
fn the_largest_step_is_seen_wherever_it_comes() {
    let cases = ["texts", "drawn", "scales", "workers", "stream", "numbers", "tensors", "boxes", "generators"];
    for case in test_tiers::vary!(cases, "other ways in which sizes differ") {
        let (answer, code) = Asked::new(JOB).json(&["--gpu", "24GiB"], &[case]);
        assert_eq!(code, 0, "{case}: {answer:#}");
        let printed = stdout(&run(case, 32 << 30));
        let (allocated, with_room) = printed.trim().split_once(' ').unwrap();
        let (allocated, with_room) = (allocated.parse::<u64>().unwrap(), with_room.parse::<u64>().unwrap());
        let found = bytes(&answer["peak"], "allocated");
        assert!((99..103).contains(&(found * 100 / allocated)), "{case}: {found} of {allocated}");
        // The whole run fits into the memory that the answer names, although its sizes come in another order.
        let reserved = bytes(&answer["peak"], "reserved");
        assert!(reserved < with_room * 3 / 2, "{case}: {answer:#}");
        let on_that = run(case, reserved);
        assert!(on_that.status.success(), "{case}: {reserved}\n{}", String::from_utf8_lossy(&on_that.stderr));
        // The sizes of a loader are not drawn by the job's lines.
        let draws = answer["unknown"].to_string().contains("draws a size at random: the largest one, ");
        assert_eq!(draws, !["texts", "workers"].contains(&case), "{case}: {answer:#}");
    }
}

/// The longest batch alone, in a fresh allocator, needs less.
#[test]
fn what_is_cut_for_other_sizes_counts() {
    let need = |flags: &[&str]| {
        let (answer, _) = Asked::new(JOB).json(&[&["--gpu", "24GiB"], flags].concat(), &["texts"]);
        (bytes(&answer["peak"], "reserved"), steps(&answer))
    };
    let (few, many) = (need(&["--steps", "3"]), need(&[]));
    assert!(few.1 == 3 && many.1 >= 24, "{few:?} {many:?}");
    assert!(many.0 > few.0, "{few:?} {many:?}");
}

/// Steps of one size are known after a few, also where it is drawn which part of the data they take; and what a
/// compiled function draws is left to it.
#[test]
fn equal_steps_end_soon() {
    for case in test_tiers::vary!(["offsets", "constant"], "steps of one size") {
        let (answer, code) = Asked::new(JOB).json(&["--gpu", "24GiB"], &[case]);
        assert!(code == 0 && steps(&answer) < 9, "{case}: {answer:#}");
        assert!(!answer["unknown"].to_string().contains("draws a size"), "{case}: {answer:#}");
    }
}

/// The order of sizes is the same in each run, so that one commit's answers are equal to the byte.
#[test]
fn two_runs_of_drawn_sizes_are_equal() {
    test_tiers::change!("starts PyTorch twice");
    let peak = || Asked::new(JOB).json(&["--gpu", "24GiB"], &["drawn"]).0["peak"].clone();
    assert_eq!(peak(), peak());
}

/// Sizes that grow by a table, a counter, an object that counts its calls, or from what is only known by running it.
#[test]
fn the_largest_size_of_a_schedule_is_seen() {
    let cases = ["called", "stages", "tokens", "epochs", "batches", "calls_back", "chained"];
    for case in test_tiers::vary!(cases, "other ways to set sizes") {
        let (answer, code) = Asked::new(SCHEDULES).json(&["--gpu", "24GiB"], &[case]);
        assert_eq!(code, 0, "{case}: {answer:#}");
        let whole = Gpu::new("NVIDIA X:24GiB").script(SCHEDULES).arg(case).output().unwrap();
        let allocated = stdout(&whole).trim().parse::<u64>().unwrap();
        let found = bytes(&answer["peak"], "allocated");
        assert!((98..102).contains(&(found * 100 / allocated)), "{case}: {found} of {allocated}");
    }
}

/// Sizes that still grow when the loop has to be left are no plain yes; those that do not are one, and named.
#[test]
fn sizes_that_only_a_run_tells_are_named() {
    test_tiers::change!("starts PyTorch twice");
    let (answer, code) = Asked::new(SCHEDULES).json(&["--gpu", "24GiB"], &["streamed"]);
    let doubt = answer["unknown"].to_string();
    assert!(code == 2 && doubt.contains("memory still rose by"), "{answer:#}");
    let (answer, code) = Asked::new(SCHEDULES).json(&["--gpu", "24GiB"], &["steady"]);
    assert!(code == 0 && answer["unknown"].to_string().contains("only running it tells"), "{answer:#}");
}
