//! A job that its launcher starts again after a failure: other processes, the same ranks, one run.

use crate::{
    helpers::{
        terminal::{PATIENCE, until},
        torch,
    },
    probe::{launch::Home, pytorch::Job},
};
use gpuwatch::{
    facts::event::{Event, Fact, Line, wire::Hello},
    storage::recording::{Entry, Reader},
};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs::{self, File},
};

/// Fails in its first life, and waits for a file in the second.
const RANK: &str = r"
import os, sys, time, torch
rank, life = int(os.environ['RANK']), int(os.environ['TORCHELASTIC_RESTART_COUNT'])
parameter = torch.ones(4, device='cuda', requires_grad=True)
optimizer = torch.optim.SGD([parameter], lr=0.1)
for _ in range(5 + life):
    parameter.sum().backward()
    optimizer.step()
torch.cuda.synchronize()
if life == 0 and rank == 1:
    while not os.path.exists('fail'):
        time.sleep(0.02)
    sys.exit(3)
while not os.path.exists('go-on'):
    time.sleep(0.02)
";

/// Returns what `once` reports about the living probes, as soon as two of them have that count of restarts.
fn ranks(job: &Job, restart: u64) -> Vec<Value> {
    let mut printed = Vec::new();
    // Two interpreters import PyTorch, one beside the other.
    let found = until(3 * PATIENCE, || {
        let all = job.gpuwatch(&["once", "--json"]);
        printed.clone_from(all["probes"].as_array().unwrap());
        printed.iter().filter(|it| it["hello"]["restart"] == restart && it["devices"][0]["step"] == 5 + restart).count()
            == 2
    });
    assert!(found, "{printed:#?}");
    printed
}

#[test]
fn ranks_that_torchrun_starts_again_are_restarts_of_one_run() {
    test_tiers::change!("starts PyTorch five times");
    let gpu = torch::machine();
    let dir = gpu.dir().to_owned();
    fs::write(dir.join("rank.py"), RANK).unwrap();
    let rank = dir.join("rank.py");
    let torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1"];
    let job = Job::start_on(gpu, &[&torchrun[..], &[rank.to_str().unwrap()]].concat());
    let before = ranks(&job, 0);
    fs::write(dir.join("fail"), "").unwrap();
    let after = ranks(&job, 1);
    let runs: BTreeSet<&str> = before.iter().chain(&after).map(|it| it["hello"]["run"].as_str().unwrap()).collect();
    assert_eq!(runs.len(), 1, "{runs:?}");
    let ranks: BTreeSet<u64> = after.iter().map(|it| it["hello"]["rank"].as_u64().unwrap()).collect();
    assert_eq!(ranks, [0, 1].into());
    let text = job.output_of(&["once"]);
    for rank in 0..2 {
        assert!(text.contains(&format!("rank {rank}, restart 1, pid ")), "{text}");
    }
    fs::write(dir.join("go-on"), "").unwrap();
    let home = job.ended();
    let lives: BTreeSet<(u64, u64)> =
        recorded(&home).iter().map(|it| (it.restart.unwrap(), it.rank.unwrap())).collect();
    assert_eq!(lives, [(0, 0), (0, 1), (1, 0), (1, 1)].into(), "one recording has both lives of both ranks");
}

/// Returns the probes in the only recording of a job.
fn recorded(home: &Home) -> Vec<Hello> {
    let folder = home.0.path().join("state/gpuwatch/recordings");
    let files: Vec<_> = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect();
    let [file] = &files[..] else { panic!("{files:?}") };
    let hello = |it: Entry| match it {
        Entry::Event(Event { fact: Fact::Probe { line, .. }, .. }) => match *line {
            Line::Hello(hello) => Some(hello),
            _ => None,
        },
        _ => None,
    };
    Reader::new(File::open(file).unwrap()).unwrap().map(Result::unwrap).filter_map(hello).collect()
}
