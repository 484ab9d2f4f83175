//! Jobs with CUDA graphs on real PyTorch: gpuwatch reports their reserved memory to the byte, finds their growth, and
//! disturbs no capture.

use crate::{
    helpers::{terminal::PROGRAM, torch},
    probe::{
        captures,
        launch::Home,
        pytorch::{Job, script, to_the_end},
    },
};
use gpuwatch_probe::wire::{Edge, Line, Sample};
use serde_json::Value;
use std::process::Stdio;

fn steps(lines: &[Line]) -> Vec<&Sample> {
    let samples = lines.iter().filter_map(|it| if let Line::Sample(it) = it { Some(it) } else { None });
    samples.filter(|it| it.edge == Edge::Step).collect()
}

#[test]
fn steps_with_graph_captures_have_the_figures_of_torch() {
    let mut job = Job::start(&[&script("graphs.py"), "again"]);
    let mut reported = Vec::new();
    while !reported.last().is_some_and(|it: &Value| it["end"] == true) {
        reported.push(job.next());
    }
    reported.pop();
    let probe = job.connect();
    // PyTorch warns about such graphs on standard error.
    job.ended();
    let lines = to_the_end(probe);
    // The first step is the warm-up, outside of any graph.
    let rows = &steps(&lines)[1..];
    assert_eq!((rows.len(), reported.len()), (20, 20));
    for (row, reported) in rows.iter().zip(&reported) {
        let it = &row.counters;
        let counted = serde_json::json!({"allocated": it.allocated, "active": it.active, "reserved": it.reserved,
            "private_pools": it.private_pools});
        assert_eq!(counted, *reported, "step {:?}", row.step);
        assert!(it.private_pools.is_none_or(|it| it > 0), "{row:?}");
    }
}

#[test]
fn graphs_that_are_captured_and_kept_are_found_as_growth_of_their_pools() {
    let (gpu, home) = (torch::machine(), Home::new());
    let mut run = gpu.command(PROGRAM);
    run.args(["run", "--"]).arg(torch::python()).args([&script("graphs.py"), "keeps"]).envs(home.variables());
    let counted = torch::stdout(&run.stdin(Stdio::null()).output().unwrap());
    // A release that does not count them leaves it open what holds the memory.
    let cause = if counted.contains("\"counts_pools\": true") { "graph-pools" } else { "unknown" };
    let mut check = gpu.command(PROGRAM);
    let output = check.args(["check", "--json"]).envs(home.variables()).output().unwrap();
    let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    let [found] = &json["findings"].as_array().unwrap()[..] else { panic!("{json:#}") };
    assert_eq!((&found["resource"], &found["cause"]), (&"reserved".into(), &cause.into()), "{found:#}");
    // A segment of 2 MiB with every fourth step.
    let pace = found["bytes_per_step"].as_f64().unwrap();
    assert!((pace / 524_288.0 - 1.0).abs() < 0.02, "{pace}");
    assert_eq!(output.status.code(), Some(1));
}

/// The optimizer is in the graph, so the probe's hook, and any request, comes in the middle of a capture.
#[test]
fn a_stack_capture_during_graph_captures_breaks_none_of_them() {
    let allocators = [("", true), ("expandable_segments:True", true), ("backend:cudaMallocAsync", false)];
    for (allocator, captures) in test_tiers::vary!(allocators, "other settings of the allocator") {
        let mut job = Job::start_with(torch::machine(), &[&script("graphs.py"), "within"], |it| {
            it.env("PYTORCH_CUDA_ALLOC_CONF", allocator);
        });
        assert_eq!(job.next()["ready"], true);
        let mut viewer = job.connect();
        crate::probe::pytorch::backlog(&mut viewer);
        if captures {
            captures::ask(&mut viewer, "steps=8");
        }
        job.go_on();
        assert_eq!(job.next()["enabled"], false, "nothing is switched on during a capture");
        assert_eq!(job.next()["enabled"], false, "nothing stays switched on");
        assert_eq!(job.next()["end"], true);
        if captures {
            let sites = captures::reported(&mut viewer);
            assert_eq!((sites.steps, sites.trouble), (8, None), "{:#?}", sites.sites);
        }
        let mut other = job.connect();
        let mut lines = crate::probe::pytorch::backlog(&mut other);
        job.ended();
        lines.extend(to_the_end(other));
        let last = steps(&lines).last().and_then(|it| it.step);
        assert_eq!(last, Some(1 + 30 + 25), "{allocator}: captured or not, a step is one");
    }
}
