//! Compares the ranks of each run that train on this host.

use super::{
    Session,
    process::{Life, Process},
};
use crate::{
    facts::units::Stamp,
    model::analysis::skew::{self, Skew},
};
use std::collections::BTreeMap;

impl Process {
    /// Returns what the ranks of its run share: the run, or their number and directory if gpuwatch did not start the
    /// job. `None` for a process on its own.
    pub fn group(&self) -> Option<String> {
        let hello = self.hello.as_ref()?;
        let unnamed = || {
            let (_, size) = hello.rank.zip(hello.world_size.filter(|it| *it > 1))?;
            Some(format!("{size} ranks in {}", hello.cwd.as_deref().unwrap_or_default()))
        };
        hello.run.clone().or_else(unnamed)
    }
}

impl Session {
    /// Compares the ranks of each run that have made enough steps since the time before.
    pub(super) fn compare_ranks(&mut self, at: Stamp) {
        let mut runs: BTreeMap<(String, String), Vec<usize>> = BTreeMap::new();
        for (place, process) in self.processes.iter().enumerate() {
            if let Some(run) = rank_of(process) {
                runs.entry(run).or_default().push(place);
            }
        }
        for places in runs.into_values().filter(|it| it.len() > 1) {
            self.compare(&places, at);
        }
    }

    fn compare(&mut self, places: &[usize], at: Stamp) {
        let ranks: Vec<&Process> = places.iter().filter_map(|it| self.processes.get(*it)).collect();
        let skews: Vec<&Skew> = ranks.iter().filter_map(|it| own(it)).collect();
        if skews.len() < places.len() || !skews.iter().all(|it| it.is_ready(at)) {
            return;
        }
        // A probe that counts from its attachment numbers steps as no other one does.
        let are_aligned = ranks.iter().all(|it| it.attached_step().is_none_or(|first| first > 1));
        let compared = skew::compare(&skews, are_aligned);
        for (place, compared) in places.iter().zip(compared) {
            let process = self.processes.get_mut(*place);
            let on = process.and_then(|it| it.devices.iter_mut().find(|on| on.step.is_some()));
            if let Some((on, compared)) = on.zip(compared) {
                on.skew.observe(compared, at);
            }
        }
    }
}

/// Returns the run and host of a rank that is watched live.
fn rank_of(process: &Process) -> Option<(String, String)> {
    let hello = process.hello.as_ref().filter(|it| it.rank.is_some() && process.life == Life::Live)?;
    Some((process.group()?, hello.host.clone()))
}

fn own(process: &Process) -> Option<&Skew> {
    process.devices.iter().find(|it| it.step.is_some()).map(|it| &it.skew)
}
