//! A snapshot's figures agree with each other, and its account has what the trace has.

use super::{
    as_json, outputs_for,
    writer::{Py, pickle},
};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

const MIB: i64 = 1 << 20;

/// A Python frame, or a native one with line 0.
fn frame(file: &str, line: i64, name: &str) -> Py {
    Py::Dict(vec![("name", name.into()), ("filename", file.into()), ("line", line.into())])
}

/// A job's stack with a native frame below, which a line does not show.
fn stack(line: i64, native: &str) -> Py {
    Py::List(vec![frame("??", 0, native), frame("train.py", line, "step"), frame("train.py", 90, "main")])
}

/// A block: MiB, state, stack.
type Block = (i64, &'static str, Py);

fn segment(address: i64, pool: (i64, i64), is_expandable: bool, blocks: Vec<Block>) -> Py {
    let mut at = address;
    let sum = |of: &dyn Fn(&str) -> bool| blocks.iter().filter(|it| of(it.1)).map(|it| it.0 * MIB).sum::<i64>();
    let (total, live) = (sum(&|_| true), sum(&|it| it == "active_allocated"));
    let blocks = blocks.into_iter().map(|(mib, state, frames)| {
        let (address, size) = (at, mib * MIB);
        at += size;
        Py::Dict(vec![
            ("address", address.into()),
            ("size", size.into()),
            ("requested_size", size.into()),
            ("state", state.into()),
            ("frames", frames),
        ])
    });
    let blocks = Py::List(blocks.collect());
    Py::Dict(vec![
        ("device", 0.into()),
        ("address", address.into()),
        ("total_size", total.into()),
        ("allocated_size", live.into()),
        ("active_size", live.into()),
        ("requested_size", live.into()),
        ("stream", 0.into()),
        ("segment_type", "large".into()),
        ("segment_pool_id", Py::Pair(pool.0, pool.1)),
        ("is_expandable", Py::Bool(is_expandable)),
        ("frames", Py::List(Vec::new())),
        ("blocks", blocks),
    ])
}

fn event(action: &str, address: i64, size: i64, frames: Py) -> Py {
    let free = if action == "oom" { "device_free" } else { "addr" };
    Py::Dict(vec![
        ("action", action.into()),
        (free, address.into()),
        ("size", size.into()),
        ("stream", 0.into()),
        ("time_us", 1_700_000_000_000_000.into()),
        ("frames", frames),
    ])
}

/// Writes a snapshot of one device.
fn written(segments: Vec<Py>, events: Vec<Py>) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("snapshot.pickle");
    let traces = Py::List(vec![Py::List(events)]);
    let all = Py::Dict(vec![("segments", Py::List(segments)), ("device_traces", traces)]);
    fs::write(&file, pickle(4, &all)).unwrap();
    (dir, file)
}

const LIVE: &str = "active_allocated";
const FREE: &str = "inactive";

fn none() -> Py {
    Py::List(Vec::new())
}

/// Each kind of segment, with a size of free memory that no other has.
fn every_kind() -> Vec<Py> {
    let part = |mib| vec![(4, LIVE, stack(1, "a")), (mib, FREE, none())];
    vec![
        segment(1 << 40, (0, 0), false, part(1)),
        segment(2 << 40, (0, 0), false, vec![(2, FREE, none())]),
        segment(3 << 40, (0, 0), true, part(3)),
        segment(4 << 40, (7, 0), false, part(5)),
        segment(5 << 40, (0, 7), false, part(11)),
        segment(6 << 40, (0, 7), true, vec![(16, FREE, none())]),
    ]
}

#[test]
fn every_free_byte_is_of_one_kind_in_the_ladder_and_in_the_sums() {
    let (_dir, file) = written(every_kind(), Vec::new());
    let all = as_json(&file, &[]);
    let device = &all["devices"][0];
    let mib = |it: &Value| it.as_i64().unwrap() / MIB;
    let kinds = [
        ("stuck", "stuck", 1),
        ("releasable", "releasable", 2),
        ("cached", "cached", 3),
        ("graph_pools_free", "graph_pools", 5),
        ("mem_pools_free", "mem_pools", 27),
    ];
    for (sum, rung, free) in kinds {
        assert_eq!((mib(&device[sum]), mib(&device["ladder"][rung])), (free, free), "{sum}: {device:#}");
        let parts = device["parts"].as_array().unwrap().iter().filter_map(|it| it[sum].as_i64()).sum::<i64>() / MIB;
        assert_eq!(parts, free, "{sum} by stream and pool: {device:#}");
    }
    let rungs = device["ladder"].as_object().unwrap().values().filter_map(Value::as_i64).sum::<i64>();
    assert_eq!(rungs, device["reserved"].as_i64().unwrap(), "{device:#}");
    let text = outputs_for(&file, &[]).0;
    assert!(text.contains("stream 0, graph pool (7, 0): 1 segment, 9.00 MiB"), "{text}");
    assert!(text.contains("stream 0, private pool (0, 7): 2 segments, 31.00 MiB"), "{text}");
}

#[test]
fn a_pool_that_the_job_made_is_no_graph_pool() {
    let (_dir, file) = written(vec![segment(1 << 40, (0, 7), false, vec![(8, FREE, none())])], Vec::new());
    let text = outputs_for(&file, &[]).0;
    assert!(text.contains("mem pools      8.00 MiB") && !text.contains("graph"), "{text}");
    // Only expandable segments have memory that is cached and neither stuck nor releasable.
    let of_pool = &as_json(&file, &[])["devices"][0];
    assert!(of_pool["cached"].is_null() && of_pool["stuck"] == 0, "{of_pool:#}");
}

#[test]
fn an_expandable_segment_has_nothing_stuck() {
    let (_dir, file) =
        written(vec![segment(1 << 40, (0, 0), true, vec![(4, LIVE, none()), (6, FREE, none())])], Vec::new());
    let text = outputs_for(&file, &["--fits", "64MiB"]).0;
    assert!(text.contains("cached         6.00 MiB") && text.contains("6.00 MiB free (0 B stuck"), "{text}");
    assert!(text.contains("gives back up to 6.00 MiB"), "{text}");
}

#[test]
fn an_out_of_memory_event_of_the_trace_is_in_text_and_json() {
    let first = segment(1 << 40, (0, 0), false, vec![(20, LIVE, stack(3, "a"))]);
    let events = vec![
        event("segment_alloc", 1 << 40, 20 * MIB, stack(3, "a")),
        event("alloc", 1 << 40, 20 * MIB, stack(3, "a")),
        event("oom", 5 * MIB, 64 * MIB, stack(8, "a")),
    ];
    let (_dir, file) = written(vec![first], events);
    let text = outputs_for(&file, &[]).0;
    let line = "out of memory at event 3 of 3: 64.00 MiB asked for, 5.00 MiB free on the device, 20.00 MiB reserved, \
                20.00 MiB requested and live: train.py:8 step < train.py:90 main";
    assert!(text.contains(line), "{text}");
    let all = as_json(&file, &[]);
    let [it] = &all["devices"][0]["out_of_memory"].as_array().unwrap()[..] else { panic!("{all:#}") };
    let figures = ["event", "tried", "device_free", "reserved", "requested"].map(|name| it[name].as_i64().unwrap());
    assert_eq!(figures, [2, 64 * MIB, 5 * MIB, 20 * MIB, 20 * MIB]);
    assert_eq!(it["frames"][1]["line"], 8);
    let (_dir, file) = written(every_kind(), Vec::new());
    assert_eq!(as_json(&file, &[])["devices"][0]["out_of_memory"], serde_json::json!([]));
    assert!(!outputs_for(&file, &[]).0.contains("out of memory"));
}

/// A native stack of the backward pass of an operation, as PyTorch records it.
fn backward(node: &str, operation: &str) -> Py {
    let names = [
        "torch::unwind::unwind()".to_owned(),
        format!("at::_ops::{operation}::call(at::Tensor const&, at::Tensor const&)"),
        format!("torch::autograd::{node}::apply(std::vector<at::Tensor, std::allocator<at::Tensor> >&&)"),
        "torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&)".to_owned(),
        "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)".to_owned(),
        "__clone".to_owned(),
    ];
    Py::List(names.iter().map(|it| frame("??", 0, it)).collect())
}

#[test]
fn rows_with_the_same_text_are_one_and_the_backward_pass_is_named() {
    let blocks = vec![
        (2, LIVE, stack(1, "at::mul(int)")),
        (3, LIVE, stack(1, "at::add(int)")),
        (4, LIVE, stack(2, "at::add(int)")),
        (7, LIVE, backward("generated::MmBackward0", "mm")),
        (8, LIVE, backward("generated::MmBackward0", "sum")),
        (6, LIVE, backward("AccumulateGrad", "empty")),
        (1, LIVE, Py::List(vec![frame("??", 0, "at::cuda::getNewWorkspace()")])),
    ];
    let (_dir, file) = written(vec![segment(1 << 40, (0, 0), false, blocks)], Vec::new());
    let text = outputs_for(&file, &[]).0;
    let rows = text.split("live blocks by call stack:\n").nth(1).unwrap();
    let rows: Vec<String> =
        rows.lines().take(5).map(|it| it.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let expected = [
        "15.00 MiB 2 blocks backward pass (no Python frame), MmBackward0",
        "6.00 MiB 1 block backward pass (no Python frame), AccumulateGrad",
        "5.00 MiB 2 blocks train.py:1 step < train.py:90 main",
        "4.00 MiB 1 block train.py:2 step < train.py:90 main",
        "1.00 MiB 1 block at::cuda::getNewWorkspace",
    ];
    assert_eq!(rows, expected, "{text}");
    // JSON has every stack with its frames.
    assert_eq!(as_json(&file, &[])["devices"][0]["live"].as_array().unwrap().len(), 7);
}

fn diff(a: &Path, b: &Path) -> String {
    let output = Command::new(crate::helpers::terminal::PROGRAM).arg("diff").args([a, b]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_diff_finds_stacks_whose_lines_have_moved() {
    let at = |line: i64, mib: i64| (mib, LIVE, stack(line, "a"));
    let (_a, a) = written(vec![segment(1 << 40, (0, 0), false, vec![at(10, 20), at(30, 4)])], Vec::new());
    let (_b, b) = written(vec![segment(1 << 40, (0, 0), false, vec![at(12, 20), at(32, 9)])], Vec::new());
    let text = diff(&a, &b);
    let row = "+5.00 MiB 1 → 1 block train.py:32 step < train.py:90 main (before: train.py:30 step < train.py:90 main)";
    let rows: Vec<String> = text
        .lines()
        .skip_while(|it| !it.starts_with("live blocks"))
        .skip(1)
        .map(|it| it.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(rows, [row], "{text}");
}

#[test]
fn a_peak_is_told_by_when_its_blocks_were_allocated() {
    let module = "/venv/site-packages/torch/nn/modules/module.py";
    let stacks = [
        // Weights that are moved to the device: of no call of a module.
        vec![frame(module, 900, "_apply"), frame("/job/train.py", 4, "main")],
        vec![frame("/job/net.py", 7, "forward"), frame(module, 1700, "_call_impl"), frame("/job/train.py", 9, "main")],
        vec![frame("/venv/site-packages/torch/optim/adamw.py", 50, "step"), frame("/job/train.py", 11, "main")],
        vec![frame("/job/train.py", 8, "main")],
    ];
    let mut events = vec![event("segment_alloc", 1 << 40, 64 * MIB, none())];
    let mut at = 1 << 40;
    for (size, frames) in (1..).zip(stacks.into_iter().map(Py::List).chain([backward("MulBackward0", "mul"), none()])) {
        events.push(event("alloc", at, size * MIB, frames));
        at += size * MIB;
    }
    // A block from before the trace.
    events.push(event("free_completed", at, 7 * MIB, none()));
    let (_dir, file) = written(vec![], events);
    let peak = &as_json(&file, &[])["devices"][0]["peak"];
    let expected = serde_json::json!({"before": 7 * MIB, "forward": 2 * MIB, "loss": 5 * MIB, "backward": 11 * MIB, "optimizer": 3 * MIB});
    assert_eq!((&peak["anatomy"]["phases"], peak["requested"].as_i64()), (&expected, Some(28 * MIB)));
    let text = outputs_for(&file, &[]).0;
    for words in ["11.00 MiB  39 %  in backward", " 7.00 MiB  25 %  before the trace"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}
