//! The figures are PyTorch's own, to the byte, and watching does not change them.

use std::collections::BTreeMap;

use gpuwatch_probe::wire::{Counter, Counters, Edge, Line, Oom, Sample, Torch};
use serde_json::Value;

use crate::{
    helpers::torch,
    probe::pytorch::{Job, script, to_the_end},
};

const STEPS: u64 = 40;

/// The size of a context on the simulated machine, in bytes.
const CONTEXT: u64 = 512 << 20;

#[test]
fn every_step_matches_torch_to_the_byte() {
    let steps = STEPS.to_string();
    let mut job = Job::start(&[&script("truth.py"), &steps, &asked(), "wait"]);
    let mut printed = Vec::new();
    while !printed.last().is_some_and(|it: &Value| it["end"] == true) {
        printed.push(job.next());
        if printed.last().is_some_and(|it| it["pending"] == true) {
            check_ladder(&job.gpuwatch(&["once", "--json"])["devices"][0], printed.last().unwrap());
            job.go_on();
        }
    }
    let probe = job.connect();
    assert_eq!(job.finish(), "");
    let lines = to_the_end(probe);

    let rows: Vec<&Sample> = lines
        .iter()
        .filter_map(|it| if let Line::Sample(it) = it { Some(it) } else { None })
        .filter(|it| it.edge == Edge::Step)
        .collect();
    let reported: Vec<&Value> = printed.iter().filter(|it| it["step"].is_u64()).collect();
    assert_eq!(reported.len() as u64, STEPS + 1);
    assert_eq!(
        rows.iter().map(|it| it.step.unwrap()).collect::<Vec<_>>(),
        (1..=STEPS).chain([STEPS + 2]).collect::<Vec<_>>()
    );
    for (row, reported) in rows.iter().zip(reported) {
        assert_same(row, reported);
    }
    check_pending(rows.last().unwrap());
    let contexts: Vec<&Value> = printed.iter().filter_map(|it| it.get("context")).collect();
    assert_eq!(contexts, [&Value::from(CONTEXT); 2], "what the driver charges, less what torch holds");
    let oom = lines.iter().find_map(|it| if let Line::Oom(it) = it { Some(it) } else { None }).expect("an oom line");
    assert_eq!((oom.device, oom.tried), (0, Some(1 << 42)));
    check_blocks(oom, &lines);
    assert!(printed.iter().any(|it| it["oom"] == "CUDA out of memory"));

    // Without us the job prints the very same: figures, peaks, errors.
    let gpu = torch::machine();
    let mut alone = gpu.command(torch::python());
    let alone = torch::stdout(&alone.arg(script("truth.py")).args([&steps, &asked()]).output().unwrap());
    let alone: Vec<Value> = alone.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    assert_eq!(alone, printed);
}

/// The counters that PyTorch's script is to print: its names by ours, as JSON.
fn asked() -> String {
    let named = |it: &Counter| if let Torch::Stats(key) = it.torch { Some((it.name, key)) } else { None };
    serde_json::to_string(&Counters::TABLE.iter().filter_map(named).collect::<BTreeMap<_, _>>()).unwrap()
}

fn assert_same(row: &Sample, reported: &Value) {
    let named = Counters::NAMES.iter().zip(row.counters.values());
    let both: Vec<_> = named.filter_map(|(name, value)| Some((name, value, reported.get(name)?))).collect();
    assert!(both.len() >= 8, "the script prints too little: {reported}");
    for (name, value, reported) in both {
        assert_eq!(value, reported.as_u64(), "{name} at step {:?}", row.step);
    }
}

/// Every live byte is in a group, and the row just before has their number.
fn check_blocks(oom: &Oom, lines: &[Line]) {
    let before = lines.iter().rev().skip_while(|it| !matches!(it, Line::Oom(_)));
    let row = before.into_iter().find_map(|it| if let Line::Sample(it) = it { Some(it) } else { None }).unwrap();
    let (count, bytes) = oom.blocks.iter().fold((0, 0), |(count, bytes), (size, n)| (count + n, bytes + size * n));
    assert_eq!(Some(bytes + oom.other_bytes.unwrap()), row.counters.active);
    assert_eq!(Some(count + oom.other_blocks.unwrap()), row.counters.blocks);
    assert!(oom.blocks.windows(2).all(|it| it[0].0 * it[0].1 >= it[1].0 * it[1].1), "{oom:?}");
    assert!(oom.largest_free.unwrap() <= row.counters.reserved.unwrap() - row.counters.active.unwrap(), "{oom:?}");
}

/// A block that another stream still uses: no longer allocated, but active and requested.
fn check_pending(row: &Sample) {
    let it = row.counters;
    let [requested, allocated, active] = [it.requested, it.allocated, it.active].map(Option::unwrap);
    assert_eq!(active - allocated, 4 << 20);
    assert!(requested > allocated, "{it:?}");
    assert!(it.reserved.unwrap() >= active);
}

/// Every byte of the device has a name, with a block pending and the context outside torch.
fn check_ladder(device: &Value, reported: &Value) {
    let rungs = device["ladder"]["rungs"].as_array().unwrap();
    let bytes = |gap: &str| rungs.iter().find(|it| it["gap"] == gap).unwrap()["bytes"].as_u64().unwrap();
    // Unknown is only what not every PyTorch counts, and gradients between two steps.
    let may_be_unknown = |it: &Value| it["gap"] == "graph_pools" || it["gap"] == "gradients";
    assert!(rungs.iter().all(|it| it["bytes"].is_u64() || may_be_unknown(it)), "{rungs:#?}");
    assert_eq!(rungs.iter().filter_map(|it| it["bytes"].as_u64()).sum::<u64>(), device["memory"]["total"]);
    assert_eq!((bytes("pending"), bytes("non_torch")), (4 << 20, CONTEXT));
    let of = |gap: &str| rungs.iter().find(|it| it["gap"] == gap).and_then(|it| it["bytes"].as_u64()).unwrap_or(0);
    let parts: u64 = ["weights", "gradients", "optimizer", "retained", "transient"].into_iter().map(of).sum();
    assert!(parts > 0 || bytes("wanted") > 0, "{rungs:#?}");
    assert_eq!(parts + of("wanted") + of("rounding"), reported["allocated"]);
    assert_eq!((bytes("others"), bytes("unattributed")), (0, 0));
    assert!(rungs.iter().all(|it| it["inconsistent"].is_null()), "{rungs:#?}");
}
