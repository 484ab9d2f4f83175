//! What the probe costs the training thread: a benchmark, and in its short form a test.
//!
//! In full, with at least 10,000 steps each way and a machine that does nothing else:
//!
//! ```text
//! GPUWATCH_BENCHMARK=full cargo test --test it cost::the_hook -- --nocapture
//! ```
//!
//! The probe's library is built optimised in every profile.

use std::{env, thread};

use crate::shim::{Job, script, to_the_end};

/// The whole hook, in bare reads of the counters.
const BUDGET: f64 = 1.35;

/// What a short run on a loaded machine may measure.
const LOOSE: f64 = 2.0;

fn measure(viewers: usize) -> String {
    let full = env::var("GPUWATCH_BENCHMARK").is_ok_and(|it| it == "full");
    let (rounds, steps) = if full { ("120", "250") } else { ("12", "100") };
    let mut job = Job::start(&[&script("cost.py"), rounds, steps]);
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
    let allowed = if full { BUDGET } else { LOOSE };
    assert!(ratio <= allowed, "the hook costs {ratio} of a bare read: {measured}");
    measured.to_string()
}

#[test]
fn the_hook_costs_little_with_no_viewer_and_with_four() {
    for viewers in [0, 4] {
        println!("{viewers} viewers: {}", measure(viewers));
    }
}
