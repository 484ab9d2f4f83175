//! Looks each second for processes that hold device memory and do nothing, with a probe or without.

use super::{Latest, PROCESS_INFO, Session, device::Device, process::Process, seconds::METRICS_STALE_US};
use crate::{
    facts::{
        event::{ProcessInfo, ProcessUse},
        figures::Figure,
        metrics::Metric,
        units::{Bytes, Stamp},
    },
    model::analysis::{
        idle::{HolderReading, Idle, IdlePeriod, Nature, Work},
        stall::{self, Load},
    },
};
use serde::{Deserialize, Serialize};
use std::{cmp::Reverse, collections::BTreeMap};

/// Older lists of processes do not count, in µs. gpuwatch reads one each second.
const STALE_US: u64 = 10_000_000;

/// A probe's sign of life counts for so long, in µs.
const LIFE_US: u64 = 2_000_000;

/// Spells that are over, kept.
const OVER: usize = 16;

/// Words of a command line that decide what a process is.
const WORDS: usize = 8;

/// NVIDIA's service that runs the kernels of several processes: the driver attributes their work to it.
const SERVICE: &str = "nvidia-cuda-mps";

/// The processes that hold device memory, and the spells that are over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Holders {
    by_pid: BTreeMap<u32, Idle>,
    over: Latest<IdlePeriod, OVER>,
}

impl Holders {
    /// Returns the spells: those that are over, then those that last.
    pub fn spells(&self) -> impl Iterator<Item = &IdlePeriod> {
        self.over.iter().chain(self.by_pid.values().filter_map(Idle::spell))
    }

    /// Returns for how long a process has done nothing, in µs; `None` if it works, or if that is unknown.
    pub fn idle_us(&self, pid: u32) -> Option<u64> {
        let rested = self.by_pid.get(&pid)?.rested_s();
        (rested > 0).then(|| rested.saturating_mul(1_000_000))
    }
}

/// A process in the lists of the driver.
type Places<'s> = Vec<(&'s Device, ProcessUse)>;

impl Session {
    /// Judges one second of the processes in the driver's lists.
    pub(super) fn look_for_idle(&mut self, at: Stamp) {
        let mut holders = std::mem::take(&mut self.holders);
        let (listed, is_whole) = self.listed(at);
        for (pid, places) in &listed {
            if holders.by_pid.len() >= PROCESS_INFO && !holders.by_pid.contains_key(pid) {
                continue;
            }
            let idle = holders.by_pid.entry(*pid).or_insert_with(|| Idle::new(at));
            let over = self.holder(*pid, places, at).and_then(|seen| idle.second(*pid, &seen, at));
            if let Some(it) = over {
                holders.over.push(it);
            }
        }
        // A process that a list does not have any more holds nothing, unless one of the lists is unknown.
        let is_gone = |pid: &u32| is_whole && !listed.contains_key(pid);
        let gone: Vec<u32> = holders.by_pid.keys().copied().filter(is_gone).collect();
        for pid in gone {
            let over = holders.by_pid.remove(&pid).and_then(|mut it| it.end(at));
            if let Some(it) = over {
                holders.over.push(it);
            }
        }
        self.holders = holders;
    }

    /// Returns the processes by pid, and whether every list is known.
    fn listed(&self, at: Stamp) -> (BTreeMap<u32, Places<'_>>, bool) {
        let (mut listed, mut is_whole) = (BTreeMap::<u32, Places>::new(), true);
        for device in self.devices.iter().filter(|it| it.gone.is_none()) {
            let fresh = device.processes.as_ref().filter(|it| at.since(it.at) <= STALE_US);
            let Some(list) = fresh.and_then(|it| it.value.as_ref().ok()) else {
                is_whole = false;
                continue;
            };
            for used in list {
                listed.entry(used.pid).or_default().push((device, *used));
            }
        }
        (listed, is_whole)
    }

    /// Returns what is known of a process that holds memory.
    fn holder<'s>(&self, pid: u32, places: &Places<'s>, at: Stamp) -> Option<HolderReading<'s>> {
        let (most, _) = places.iter().max_by_key(|(device, it)| (it.used, Reverse(device.index)))?;
        let used = places.iter().try_fold(Bytes(0), |sum, (_, it)| Some(sum.plus(it.used?)));
        let info = self.process_info.get(&pid);
        Some(HolderReading {
            nature: info.map_or(Nature::Other, nature),
            work: self.work(pid, places, at),
            device: &most.id,
            used,
        })
    }

    /// Returns whether a process works on one of its devices or on its host.
    fn work(&self, pid: u32, places: &Places, at: Stamp) -> Work {
        let figure = |figure| self.figures.get(&pid)?.host.get(figure);
        let is_suspended = self.process_info.get(&pid).is_some_and(|it| it.suspended);
        let lives = |it: &Process| it.is_alive() && it.pid == Some(pid) && at.since(it.stall.life().0) < LIFE_US;
        if is_suspended {
            return Work::Unknown;
        }
        if stall::is_host_at_work(figure(Figure::CpuPercent), figure(Figure::IoWaitPercent))
            || self.processes.iter().any(lives)
        {
            return Work::Works;
        }
        let each = places.iter().map(|(device, _)| self.work_on(pid, device, at));
        each.reduce(|one, other| match (one, other) {
            (Work::Works, _) | (_, Work::Works) => Work::Works,
            (Work::Unknown, _) | (_, Work::Unknown) => Work::Unknown,
            _ => Work::Rests,
        })
        .unwrap_or(Work::Unknown)
    }

    fn work_on(&self, pid: u32, device: &Device, at: Stamp) -> Work {
        let percent_of = |pid: u32| self.figures.get(&pid)?.get(Figure::SmPercent, &device.id);
        if percent_of(pid).is_some_and(|it| it > 0) {
            return Work::Works;
        }
        let reading = device.metrics.as_ref().filter(|it| at.since(it.at) < METRICS_STALE_US);
        let load = Load::of(reading.and_then(|it| it.value.get(Metric::GpuPercent)));
        let list = device.process_list().unwrap_or_default();
        let others = || list.iter().filter(|it| it.pid != pid);
        match load {
            Some(Load::Idle) => Work::Rests,
            Some(_) if others().next().is_none() => Work::Works,
            Some(_) if percent_of(pid).is_some() => Work::Rests,
            // The driver has no sample of a process whose kernels do not run.
            Some(_)
                if device.maker.row().samples_all
                    && others().any(|it| percent_of(it.pid).is_some())
                    && !self.has_service(list) =>
            {
                Work::Rests
            }
            _ => Work::Unknown,
        }
    }

    /// Whether one of the processes runs the kernels of others.
    fn has_service(&self, list: &[ProcessUse]) -> bool {
        let programs = list.iter().filter_map(|it| self.process_info.get(&it.pid)?.argv.first());
        programs.into_iter().any(|it| it.raw().contains(SERVICE))
    }
}

fn nature(info: &ProcessInfo) -> Nature {
    if info.ended {
        return Nature::Ended;
    }
    let argv: Vec<String> = info.argv.iter().take(WORDS).map(|it| it.raw().to_owned()).collect();
    Nature::of(&argv, info.orphaned)
}
