//! Runs kinds of training and allocators: every rung is PyTorch's own figure, or is unknown.

use crate::{
    helpers::{
        terminal::{PATIENCE, until},
        torch::{self, Gpu},
    },
    probe::pytorch::{Job, script},
};
use serde_json::Value;

/// The size of a context on the simulated machine, in bytes.
const CONTEXT: u64 = 512 << 20;

const MIB: u64 = 1 << 20;

/// A job of one kind, PyTorch's counters in it on each device, and the program's output once its latest row has
/// arrived.
struct Picture {
    job: Job,
    figures: Vec<Value>,
    reported: Value,
}

impl Picture {
    fn of(kind: &str, devices: &str, allocator: &str) -> Self {
        let mut job = Job::start_with(Gpu::new(devices), &[&script("backends.py"), kind], |it| {
            // Of what is allocated, the ladder has what was asked for, and no parts.
            it.env("PYTORCH_CUDA_ALLOC_CONF", allocator).env("GPUWATCH", "noparts");
        });
        let figures = job.next()["devices"].as_array().unwrap().clone();
        let mut reported = Value::Null;
        // The tick after the last step reports what happened after it.
        let is_reported = until(PATIENCE, || {
            reported = job.gpuwatch(&["once", "--json"]);
            let on = reported["probes"][0]["devices"].as_array();
            on.is_some_and(|it| {
                it.iter().zip(&figures).all(|(on, figures)| on["counters"]["allocated"] == figures["allocated"])
            })
        });
        assert!(is_reported, "{figures:?} and {reported:#}");
        Self { job, figures, reported }
    }

    /// The probe on its device of that number.
    fn on(&self, device: usize) -> &Value {
        &self.reported["probes"][0]["devices"][device]
    }

    fn bytes(&self, device: usize, gap: &str) -> Option<u64> {
        let rungs = self.reported["devices"][device]["ladder"]["rungs"].as_array().unwrap();
        rungs.iter().find(|it| it["gap"] == gap).unwrap_or_else(|| panic!("{gap} in {rungs:?}"))["bytes"].as_u64()
    }

    fn torch(&self, device: usize, counter: &str) -> u64 {
        self.figures[device][counter].as_u64().unwrap()
    }

    /// Checks that each device's rungs sum to its total without contradiction, with a context outside of torch.
    fn check(&self) {
        let devices = self.reported["devices"].as_array().unwrap();
        assert!(!devices.is_empty() && !self.figures.is_empty(), "{:#}", self.reported);
        for device in devices {
            let ladder = &device["ladder"];
            assert_eq!(ladder["sum"], ladder["total"]);
            assert!(ladder["rungs"].as_array().unwrap().iter().all(|it| it["inconsistent"].is_null()), "{ladder:#}");
        }
        for device in 0..self.figures.len() {
            assert_eq!(self.bytes(device, "non_torch"), Some(CONTEXT));
            assert_eq!(self.on(device)["counters"]["reserved"], self.torch(device, "reserved"));
        }
    }
}

#[test]
fn stream_ordered_pools_have_no_blocks_and_no_rounding() {
    let picture = Picture::of("plain", torch::H200, "backend:cudaMallocAsync");
    picture.check();
    assert_eq!(picture.bytes(0, "allocated"), Some(picture.torch(0, "allocated")));
    let unused = picture.torch(0, "reserved") - picture.torch(0, "active");
    assert_eq!(picture.bytes(0, "cached"), Some(unused));
    assert_eq!((picture.bytes(0, "rounding"), picture.bytes(0, "stuck")), (None, None));
    let on = picture.on(0);
    assert_eq!((&on["counters"]["blocks"], &on["step"]), (&Value::Null, &5.into()));
    picture.job.finish();
}

#[test]
fn stuck_memory_is_unknown_with_expandable_segments() {
    let picture = Picture::of("plain", torch::H200, "expandable_segments:True");
    picture.check();
    let unused = picture.torch(0, "reserved") - picture.torch(0, "active");
    assert_eq!((picture.bytes(0, "stuck"), picture.bytes(0, "cached")), (None, Some(unused)));
    assert_eq!(picture.on(0)["fragmentation"]["stuck_measurable"], false);
    picture.job.finish();
}

#[test]
fn the_native_allocator_reports_every_rung() {
    let picture = Picture::of("plain", torch::H200, "");
    picture.check();
    let (split, unused) =
        (picture.torch(0, "inactive_split"), picture.torch(0, "reserved") - picture.torch(0, "active"));
    assert_eq!((picture.bytes(0, "stuck"), picture.bytes(0, "releasable")), (Some(split), Some(unused - split)));
    let rounding = picture.torch(0, "active") - picture.torch(0, "requested");
    assert_eq!(picture.bytes(0, "rounding"), Some(rounding));
    assert_eq!(picture.bytes(0, "wanted"), Some(picture.torch(0, "allocated") - rounding));
    picture.job.finish();
}

#[test]
fn private_pools_do_not_count_as_releasable() {
    for (kind, least) in
        test_tiers::vary!([("graphs", 2 * 40 * MIB), ("private_pool", 40 * MIB)], "a pool of the job's")
    {
        let picture = Picture::of(kind, torch::H200, "");
        picture.check();
        let pools = &picture.on(0)["counters"]["private_pools"];
        assert_eq!(*pools, picture.figures[0]["private_pools"]);
        let split = picture.torch(0, "inactive_split");
        let unused = picture.torch(0, "reserved") - picture.torch(0, "active") - split;
        // Not every release counts them: then it is not known how much of what is unused they keep.
        let apart = pools.as_u64().map(|it| it.min(unused));
        assert!(pools.as_u64().is_none_or(|it| it >= least), "{kind}: {pools}");
        let releasable = unused - apart.unwrap_or(0);
        let reported = (picture.bytes(0, "graph_pools"), picture.bytes(0, "releasable"), picture.bytes(0, "stuck"));
        assert_eq!(reported, (apart, Some(releasable), Some(split)), "{kind}");
        // The certainly releasable memory is the same in every output.
        assert_eq!(picture.on(0)["fragmentation"]["releasable"], releasable, "{kind}");
        picture.job.finish();
    }
}

#[test]
fn each_device_of_one_process_has_its_own_ladder() {
    let picture = Picture::of("devices", "NVIDIA H200:143771MiB:615MiB;NVIDIA A10:24GiB:512MiB", "");
    picture.check();
    for device in 0..2 {
        let rounding = picture.torch(device, "active") - picture.torch(device, "requested");
        assert_eq!(picture.bytes(device, "wanted"), Some(picture.torch(device, "allocated") - rounding));
        assert_eq!((&picture.on(device)["ordinal"], &picture.on(device)["step"]), (&device.into(), &5.into()));
        assert_eq!(picture.on(device)["device"], picture.reported["devices"][device]["id"]);
    }
    assert!(picture.torch(1, "allocated") >= picture.torch(0, "allocated") + 64 * MIB);
    picture.job.finish();
}

#[test]
fn optimizers_that_take_turns_make_one_step() {
    test_tiers::change!("golden cases of steps are quicker");
    let picture = Picture::of("several_optimizers", torch::H200, "");
    picture.check();
    assert_eq!(picture.on(0)["step"], 8);
    picture.job.finish();
}

#[test]
fn a_job_that_makes_no_steps_is_watched_by_the_second() {
    let picture = Picture::of("inference", torch::H200, "");
    picture.check();
    assert_eq!((&picture.on(0)["step"], &picture.on(0)["growth"]["trend"]), (&Value::Null, &"too_few".into()));
    assert_eq!(picture.torch(0, "allocated"), 100 * MIB);
    assert_eq!(picture.bytes(0, "wanted"), Some(100 * MIB));
    picture.job.finish();
}
