//! Jobs of torchrun on simulated devices: one rank hangs, or is slower than the others. Recorded by `gpuwatch run`,
//! and made longer: the clock runs faster, or what was last reported lasts.

use crate::{
    analysis::step_time::recorded,
    commands::check,
    helpers::{
        prolonged::{faster, goes_on},
        story::Story,
        terminal::{PATIENCE, PROGRAM, until},
        torch::{self, Gpu, H200},
    },
    probe::{launch::Home, pytorch::script},
};
use ::simgpu::Fault;
use gpuwatch::{
    facts::{
        event::{Event, wire::Edge},
        figures::Figure,
    },
    model::session::{Session, process::Process},
    storage::recording::{Entry, Reader},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{fs::File, path::Path, process::Stdio};

/// Runs torchrun with so many ranks on as many devices, which are busy for so many percent, until the events show
/// something, and returns the events up to then.
fn recording(mode: &str, percents: &[u64], shows: impl Fn(&[Event]) -> bool) -> Vec<Event> {
    let (gpu, home) = (Gpu::new(&vec![H200; percents.len()].join(";")), Home::new());
    let loads = percents.iter().enumerate();
    let loads = loads.map(|(device, it)| Fault::Line(format!("answer={it} nvmlDeviceGetUtilizationRates {device}")));
    gpu.machine.set_faults(&loads.collect::<Vec<_>>()).unwrap();
    let file = gpu.dir().join("run.jsonl.zst");
    let mut command = gpu.command(PROGRAM);
    command.args(["run", "-o", file.to_str().unwrap(), "--"]).arg(torch::python());
    command.args(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", &percents.len().to_string()]);
    command.arg(script("hangs.py")).arg(mode).envs(home.variables());
    command.env("GPUWATCH_NVML_PATH", torch::libraries().join("libnvidia-ml.so.1"));
    let mut run = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let is_there = until(6 * PATIENCE, || shows(&events(&file)));
    let all = events(&file);
    let _ = kill_process(Pid::from_child(&run), Signal::TERM);
    run.wait().unwrap();
    assert!(is_there, "{} events of {mode}", all.len());
    all
}

fn events(file: &Path) -> Vec<Event> {
    let Ok(file) = File::open(file) else { return Vec::new() };
    let Ok(reader) = Reader::new(file) else { return Vec::new() };
    let event = |it| if let Entry::Event(event) = it { Some(event) } else { None };
    reader.map_while(Result::ok).filter_map(event).collect()
}

/// Counts the samples of a kind of each rank, at this step or later.
fn samples(all: &[Event], ranks: u32, edge: Edge, from: u64) -> Vec<usize> {
    let is_one = |it: &&Event, rank: u32| {
        it.sample().is_some_and(|(probe, sample)| probe.0 == rank && sample.edge == edge && sample.step >= Some(from))
    };
    (0..ranks).map(|rank| all.iter().filter(|it| is_one(it, rank)).count()).collect()
}

/// Whether the latest reading shows that a rank's host rests; it is read every ten seconds.
fn rests(all: &[Event], rank: u64) -> bool {
    let mut session = Session::default();
    for it in all {
        session.apply(it);
    }
    let is_one = |it: &&Process| it.hello.as_ref().is_some_and(|hello| hello.rank == Some(rank));
    let pid = session.processes.iter().find(is_one).and_then(|it| it.pid);
    let figures = pid.and_then(|it| session.figures.get(&it));
    figures.and_then(|it| it.host.get(Figure::CpuPercent)).is_some_and(|percent| percent < 10)
}

fn judged(events: Vec<Event>, fail_on: &str) -> (i32, Vec<Value>) {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("run.jsonl.zst");
    recorded(&Story { events, ..Story::default() }, &file);
    let (code, verdict) = check::judged(&file, &["--fail-on", fail_on]);
    let of_kind = |it: &&Value| it["kind"] == fail_on;
    (code, verdict["findings"].as_array().unwrap().iter().filter(of_kind).cloned().collect())
}

#[test]
fn a_rank_that_never_joins_a_collective_is_named() {
    test_tiers::change!("torchrun with two ranks");
    // The last rank sleeps beside an idle device; the kernels of the other one spin.
    let all = recording("hangs", &[100, 0], |all| {
        samples(all, 2, Edge::Tick, 60).iter().all(|count| *count >= 3) && rests(all, 1)
    });
    let (code, found) = judged(goes_on(&all, 240), "stall");
    assert_eq!((code, found.len()), (0, 0), "it is slow to raise: {found:#?}");
    let (code, found) = judged(goes_on(&all, 700), "stall");
    let [it] = &found[..] else { panic!("{found:#?}") };
    assert_eq!((code, &it["cause"], &it["state"]), (1, &"stalled-busy".into(), &"active".into()), "{it:#}");
    let account = it["account"].to_string();
    for words in ["behind: rank 1 after step 60", "the device of rank 1 is idle"] {
        assert!(account.contains(words), "{words}: {account}");
    }
}

#[test]
fn a_slow_rank_is_named_and_equal_ranks_are_not() {
    test_tiers::change!("torchrun with three ranks");
    for (mode, expected) in [("slow", Some(2)), ("equal", None)] {
        let all =
            recording(mode, &[95, 95, 95], |all| samples(all, 3, Edge::Step, 1).iter().all(|count| *count >= 120));
        let (code, found) = judged(faster(&all, 8), "slow-rank");
        let ranks: Vec<Option<u64>> = found.iter().map(|it| it["rank"].as_u64()).collect();
        assert_eq!((code, ranks), (i32::from(expected.is_some()), expected.map(Some).into_iter().collect()), "{mode}");
        for it in &found {
            let slower = it["evidence"]["step_against_the_other_ranks"].as_f64().unwrap();
            assert!((1.3..2.5).contains(&slower), "{slower}");
        }
        let (_, stalls) = judged(faster(&all, 8), "stall");
        assert!(stalls.is_empty(), "{stalls:#?}");
    }
}
