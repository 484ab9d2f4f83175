//! What the blocks of a snapshot are, compared with what a script counts of its own objects.

use super::{as_json, outputs_for};
use crate::helpers::{
    terminal::PROGRAM,
    torch::{self, stdout},
};
use serde_json::Value;
use std::{fs, path::Path, process::Command};

/// The trainings of `parts.py` and of `moments.py`.
const TRAININGS: [&str; 16] = [
    "leaking",
    "buffers",
    "hooked",
    "on_device",
    "other_thread",
    "pictures",
    "language",
    "recomputed",
    "recurrent",
    "mixed",
    "accumulated",
    "adversaries",
    "averaged",
    "frozen",
    "rewarded",
    "deep",
];

/// What the other thread of `other_thread` makes at once: 99 rows of 64 numbers, as the allocator rounds them.
const OF_THREAD: u64 = 25_600;

/// The stacks that PyTorch records: of Python and of native code, or of Python alone.
const STACKS: [&str; 2] = ["all", "python"];

/// Trains, and returns what the script counts and what gpuwatch finds on the device of the snapshot.
fn compared(name: &str, stacks: &str) -> (Value, Value) {
    let gpu = torch::machine();
    let file = gpu.dir().join("snapshot.pickle");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/snapshot/parts.py");
    let printed = stdout(&gpu.command(torch::python()).arg(script).arg(name).arg(&file).arg(stacks).output().unwrap());
    let found = as_json(&file, &[])["devices"][0].clone();
    if (name, stacks) == (TRAININGS[0], STACKS[0]) {
        shown(&file, &found);
    }
    (serde_json::from_str(&printed).unwrap(), found)
}

/// Text and page have the parts too.
fn shown(file: &Path, found: &Value) {
    let text = outputs_for(file, &[]).0;
    for words in [
        "live blocks by what they hold, as rounded by the allocator:",
        "optimizer state",
        "by when it was allocated:",
        "in forward",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let page = file.with_extension("html");
    stdout(&Command::new(PROGRAM).arg("report").arg(file).arg("-o").arg(&page).output().unwrap());
    let page = fs::read_to_string(page).unwrap();
    assert_eq!(page.matches("<svg class=\"bar icicle\"").count(), 2, "{page}");
    let line = found["anatomy"]["lines"][0]["line"].as_str().unwrap();
    assert!(page.contains(line), "{line}: {page}");
}

#[test]
fn the_parts_of_a_snapshot_are_those_that_a_script_counts() {
    for name in test_tiers::vary!(TRAININGS, "other trainings") {
        for stacks in test_tiers::vary!(STACKS, "stacks of Python alone") {
            println!("{name} {stacks}");
            let (expected, found) = compared(name, stacks);
            let (end, peak) = (&found["anatomy"], &found["peak"]["anatomy"]);
            assert_eq!(end["allocated"], expected["end"]["allocated"], "{end:#}");
            assert_eq!(end["allocated"], found["allocated"], "{end:#}");
            for part in ["weights", "gradients", "optimizer"] {
                assert_eq!(end["parts"][part], expected["end"][part], "{name}, {part}: {end:#}");
                assert_eq!(peak["parts"][part], expected["peak"][part], "{name}, {part}: {peak:#}");
            }
            let bytes = |it: &Value| it.as_u64().unwrap();
            for it in [end, peak] {
                let sum = |of: &str| it[of].as_object().unwrap().values().map(bytes).sum::<u64>();
                assert_eq!([sum("parts"), sum("phases")], [bytes(&it["allocated"]); 2], "{it:#}");
            }
            let more = match name {
                // An output of the first network is used by the steps of both, and so is not known to be of one.
                "adversaries" => 64 * 256 * 4,
                // What another thread makes just then is not known to be of the step.
                "other_thread" => bytes(&peak["parts"]["other"]) / OF_THREAD * OF_THREAD,
                _ => 0,
            };
            let of_step = bytes(&peak["parts"]["activations"]) + bytes(&peak["parts"]["temporaries"]);
            assert_eq!(of_step + more, bytes(&expected["peak"]["step"]), "{name}: {peak:#}");
        }
    }
}
