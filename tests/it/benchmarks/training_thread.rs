//! Measures the probe's cost for the training thread. The short form checks only what viewers receive.
//!
//! In full, with at least 10,000 steps each way and a machine that does nothing else:
//!
//! ```text
//! GPUWATCH_BENCHMARK=full cargo test --test it training_thread::the_hook -- --nocapture
//! ```
//!
//! The probe's library is built optimised in every profile.

use std::thread;

use crate::probe::pytorch::{Job, script, to_the_end};

/// The whole hook, in bare reads of the counters in its place.
const BUDGET: f64 = 1.15;

/// How the job steps: with an optimizer's work, and in a tight loop.
const LOOPS: [&str; 2] = ["busy", "idle"];

fn measure(viewers: usize, how: &str) -> String {
    let full = test_tiers::is_benchmark();
    let (rounds, steps) = if full { ("120", "250") } else { ("12", "100") };
    let mut job = Job::start(&[&script("cost.py"), rounds, steps, how]);
    assert_eq!(job.next()["warm"], true);
    let viewers: Vec<_> = (0..viewers)
        .map(|_| {
            let probe = job.connect();
            thread::spawn(move || to_the_end(probe).len())
        })
        .collect();
    job.go_on();
    let measured = job.next();
    job.finish();
    for viewer in viewers {
        assert!(viewer.join().unwrap() > 100, "the viewer saw the steps");
    }
    let ratio = measured["ratio"].as_f64().unwrap();
    assert!(!full || ratio <= BUDGET, "the hook costs {ratio} bare reads ({how}): {measured}");
    measured.to_string()
}

#[test]
fn the_hook_costs_little_with_no_viewer_and_with_four() {
    // What viewers receive needs some of them.
    let all = if test_tiers::is_benchmark() { &[0, 4][..] } else { &[4] };
    for viewers in all {
        for how in LOOPS {
            println!("{viewers} viewers, {how}: {}", measure(*viewers, how));
        }
    }
}
