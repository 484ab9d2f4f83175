//! Not a test: prints, after all tests of the workspace, which of them were skipped and why.

#![allow(clippy::print_stdout, reason = "this is what the program is for")]

use std::{collections::BTreeMap, env};

fn main() {
    // A program that lists tests for editors finds none here.
    if env::args().any(|it| it == "--list") {
        return;
    }
    let mut by_reason: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (test, reason) in test_tiers::taken() {
        by_reason.entry(reason).or_default().push(test);
    }
    let number: usize = by_reason.values().map(Vec::len).sum();
    println!("\nskipped tests (tier {}): {number}", test_tiers::tier().name());
    for (reason, tests) in by_reason {
        println!("  {reason}");
        for test in tests {
            println!("    {test}");
        }
    }
    if test_tiers::tier() < test_tiers::Tier::Full {
        println!("`GPUWATCH_TESTS=full cargo test --workspace` runs everything.");
    }
    println!();
}
