//! What the peak is: how much, in which step, at which line, and what it consists of.

use super::job_report::{JobReport, OnDevice};
use crate::{
    facts::units::Bytes,
    model::fit::{
        Need, Overhead, PeakPart,
        peak_parts::{self, KeptAddresses},
    },
    storage::pickle,
};
use std::collections::{BTreeMap, BTreeSet};

/// The peak of one device.
#[derive(Clone, Debug, Default)]
pub(super) struct Peak {
    pub(super) need: Need,
    /// What the allocator reserves where it has all the room.
    pub(super) wanted: u64,
    /// The step in which the most was reserved, from 1.
    pub(super) step: Option<u64>,
    pub(super) line: Option<String>,
    /// What the allocated bytes are, where the run could be traced.
    pub(super) kinds: BTreeMap<PeakPart, u64>,
    /// Optimizer steps that ran.
    pub(super) steps: u64,
    /// PyTorch's version.
    pub(super) torch: String,
}

impl Peak {
    /// Reads the peak of a process on a device.
    pub(super) fn read(account: &JobReport, device: &OnDevice, need: Need) -> Self {
        let found = traced(account, device).unwrap_or_default();
        Self {
            wanted: need.reserved,
            need,
            step: device.step(account.steps),
            line: found.line,
            kinds: found.kinds,
            steps: account.steps,
            torch: account.torch.clone(),
        }
    }
}

fn traced(account: &JobReport, device: &OnDevice) -> Option<peak_parts::Peak> {
    let trace = pickle::open(account.snapshot.as_deref()?).ok()?.trace;
    let set = |kind: &str| -> BTreeSet<u64> {
        let of = account.tensors.as_ref().and_then(|it| it.get(kind)?.get(&device.ordinal));
        of.cloned().unwrap_or_default()
    };
    let kept = KeptAddresses {
        weights: set("weights"),
        gradients: set("gradients"),
        optimizer: set("optimizer"),
        workspaces: account.facts.blas.get(&device.ordinal).copied().unwrap_or(0),
        backward: account.backward.clone(),
    };
    peak_parts::consists(&trace, device.ordinal, &kept)
}

/// Returns the job's line that allocates what one step makes and the next one does not free.
pub(super) fn keeps(account: &JobReport, device: &OnDevice) -> Option<String> {
    let steps = usize::try_from(account.steps_of_training()).ok()?;
    let ends = account.ends.get(..steps.min(account.ends.len()))?;
    peak_parts::keeps(&pickle::open(account.snapshot.as_deref()?).ok()?.trace, device.ordinal, ends)
}

/// What is uncertain beside the allocator, in words.
pub(super) fn unknown(need: &Need) -> Vec<String> {
    let words = |it: &Overhead| {
        let how = if it.is_measured { format!(", {}", it.source) } else { String::new() };
        format!("{}: {} to {}{how}", it.name, Bytes(it.low), Bytes(it.high))
    };
    need.outside.iter().map(words).collect()
}
