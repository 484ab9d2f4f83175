//! An out-of-memory error: the probe's report, with what else was known at the time.

use crate::{
    facts::{
        event::{
            PeakMoment,
            wire::{Counters, GROUPS_MAX, Oom, Parts, Sites},
        },
        text::Foreign,
        units::Bytes,
    },
    model::{
        analysis::{
            culprit::{self, Spot},
            episode::Episode,
            ladder::{self, Gap, OwnFigures},
            oom::{
                self, Blocks, OomFigures, Tenant, rare_rises,
                reason::{Before, OomEvidence},
            },
            signature::CounterHistory,
        },
        anatomy,
    },
};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;

/// Other processes kept per error.
const TENANTS: usize = 16;

/// Characters kept of a framework's message.
const MESSAGE_CHARS: usize = 4096;

/// An allocation that failed for good.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutOfMemory {
    /// The probe's report.
    pub reported: Oom,
    /// The figures at that moment: the probe's, the allocator's, the driver's, and those that only the message has.
    pub figures: OomFigures,
    /// The other processes on the device then, as the driver listed them, largest first.
    pub tenants: Vec<Tenant>,
    /// The process's growth on the device then.
    pub growing: Vec<Episode>,
    /// The course of live memory up to then.
    pub before: Before,
    /// What the allocated bytes consisted of when that was counted last.
    pub parts: Option<Parts>,
}

/// The parts of allocated memory.
const CONSISTS: [Gap; 5] = [Gap::Weights, Gap::Gradients, Gap::Optimizer, Gap::Retained, Gap::Transient];

/// Smaller rises are noise, in bytes.
const SMALLEST_RISE: u64 = 1 << 20;

/// Two rises show that more would have come, if memory has run out.
const RISES: u64 = 2;

/// Returns the course of live memory up to an error of a job that counts steps.
pub(super) fn before(trail: &CounterHistory, oom: &Oom) -> Before {
    let Some(step) = oom.step.filter(|it| *it > 0) else { return Before::default() };
    let (live, peak) = trail.live();
    let live: Vec<(u64, u64)> = live.into_iter().filter(|it| it.0 <= step).collect();
    Before {
        live: live.last().map(|it| it.1),
        peak,
        step: Some(step),
        since_us: trail.latest_at().map_or(0, |it| oom.at_us.saturating_sub(it.0)),
        step_us: trail.step_us(),
        rises: rare_rises::find(&live, RISES, SMALLEST_RISE),
    }
}

/// The processes with memory on a device, as the driver lists them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tenancy {
    /// The memory of the process itself.
    pub(super) own: Option<Bytes>,
    /// The other processes, largest first.
    pub(super) others: Vec<Tenant>,
}

impl OutOfMemory {
    /// Builds it from the report, the counters at the time, and whether expandable segments are on. The kernel knows
    /// the process as `pid`.
    pub(super) fn new(
        oom: &Oom,
        known: &Counters,
        expandable: bool,
        tenancy: Option<Tenancy>,
        pid: Option<u32>,
    ) -> Self {
        let all = |it: &Tenancy| it.others.iter().try_fold(Bytes(0), |sum, tenant| Some(sum.plus(tenant.used?)));
        let figures = OomFigures {
            tried: oom.tried,
            total: known.device_total,
            free: oom.device_free,
            allowed: oom.limit.filter(|it| known.device_total.is_some_and(|total| *it < total)),
            process: tenancy.as_ref().and_then(|it| it.own).map(|it| it.0),
            others: tenancy.as_ref().and_then(all).map(|it| it.0),
            allocated: known.allocated,
            reserved: known.reserved,
            private_pools: known.private_pools,
            pools_live: None,
            pools_held: known.private_pools,
            largest_free: oom.largest_free,
            stuck: known.inactive_split.filter(|_| !expandable),
            expandable,
        };
        let mut reported = oom.clone();
        reported.blocks.truncate(GROUPS_MAX);
        let message = reported.message.take();
        let mut tenants = tenancy.unwrap_or_default().others;
        tenants.truncate(TENANTS);
        let mut it = Self { reported, figures, tenants, growing: Vec::new(), before: Before::default(), parts: None };
        if let Some(message) = message {
            it.worded(&message, pid);
        }
        it
    }

    /// Adds the framework's message; the kernel knows the process as `pid`. Its figures are rounded, so exact ones
    /// stay. But they are from the moment of the error, and the driver's latest list is older.
    pub(super) fn worded(&mut self, message: &str, pid: Option<u32>) {
        let (ours, words) = (self.figures, oom::parse(message));
        let strangers = oom::strangers(message, &words, pid);
        let listed = self.list(&strangers);
        self.figures = OomFigures {
            tried: ours.tried.or(words.tried),
            total: ours.total.or(words.total),
            free: ours.free.or(words.free),
            allowed: ours.allowed.or(words.allowed),
            process: words.process.or(ours.process),
            others: if strangers.is_empty() { ours.others.or(words.others) } else { ours.others.max(listed) },
            allocated: ours.allocated.or(words.allocated),
            reserved: ours.reserved.or(words.reserved),
            private_pools: words.private_pools.or(ours.private_pools),
            pools_live: words.pools_live,
            ..ours
        };
        self.reported.message = Some(message.chars().take(MESSAGE_CHARS).collect());
    }

    /// Adds the processes of the message to those that the driver listed, and returns the bytes of all of them.
    fn list(&mut self, strangers: &[(u32, u64)]) -> Option<u64> {
        for (pid, used) in strangers {
            match self.tenants.iter_mut().find(|it| it.pid == *pid) {
                Some(it) => it.used = it.used.or(Some(Bytes(*used))),
                None => self.tenants.push(Tenant { pid: *pid, name: Foreign::default(), used: Some(Bytes(*used)) }),
            }
        }
        self.tenants.sort_by_key(|it| (Reverse(it.used), it.pid));
        let sum = self.tenants.iter().try_fold(Bytes(0), |sum, it| Some(sum.plus(it.used?)));
        self.tenants.truncate(TENANTS);
        sum.map(|it| it.0)
    }

    /// Returns what is known of it apart from the figures, with the live blocks and their holders at that moment.
    pub fn seen<'a>(&'a self, lines: Option<&Sites>) -> OomEvidence<'a> {
        let device = self.reported.device;
        OomEvidence {
            phase: self.reported.phase.as_deref(),
            again: self.reported.again_bytes,
            of_tracebacks: lines.map_or(0, |it| culprit::of_tracebacks(it, device)),
            items: lines.and_then(|it| culprit::live_holder(it, device)?.items),
            blocks: &self.reported.blocks,
            before: self.before,
        }
    }

    /// Returns the line that asked for the memory: `train.py:40 in main()`; `None` if the probe did not report it.
    pub fn line(&self) -> Option<String> {
        self.reported.frames.first().map(|it| Spot::of(it).call())
    }

    /// Returns what the allocated bytes consisted of, the largest part first.
    fn parts(&self) -> Vec<(Gap, u64)> {
        let allocated = self.figures.allocated;
        let figures = OwnFigures { allocated, parts: self.parts, is_between_steps: true, ..OwnFigures::default() };
        let mut parts: Vec<(Gap, u64)> = ladder::parts(&figures)
            .into_iter()
            .filter(|it| CONSISTS.contains(&it.gap))
            .filter_map(|it| Some((it.gap, it.bytes.filter(|bytes| *bytes > 0)?)))
            .collect();
        parts.sort_by_key(|it| Reverse(it.1));
        parts
    }

    /// Describes what the allocated bytes consisted of.
    fn consists(&self) -> Option<String> {
        let parts = self.parts();
        let allocated = self.figures.allocated.filter(|_| !parts.is_empty())?;
        let each: Vec<String> =
            parts.iter().map(|(gap, bytes)| format!("{} {}", gap.row().name, Bytes(*bytes))).collect();
        Some(format!("of {} allocated: {}", Bytes(allocated), each.join(", ")))
    }

    /// Describes the largest part of the allocated bytes and what makes it smaller; for an error whose reason is that
    /// the job needs so much.
    pub fn largest_part(&self) -> Option<String> {
        let row = self.parts().first()?.0.row();
        let words = || format!("the largest part is {}: {}; less with {}", row.name, row.cause, row.remedy);
        (!row.remedy.is_empty()).then(words)
    }

    /// Describes the highest moment of an earlier step, and what has grown since.
    fn since(&self, it: &PeakMoment) -> Vec<String> {
        let is_earlier = |step: u64| self.reported.step.is_none_or(|at| step <= at);
        if it.device != self.reported.device || !it.anatomy.step.is_some_and(is_earlier) {
            return Vec::new();
        }
        let mut lines = vec![anatomy::sentence(&it.anatomy)];
        let more = self.figures.allocated.and_then(|now| now.checked_sub(it.anatomy.allocated));
        if let Some(more) = more.filter(|it| *it > 0) {
            lines.push(format!("at the error, {} more was allocated than at that moment", Bytes(more)));
        }
        lines
    }

    /// Explains the failure, a line each; with live memory by line and by holder, and what an earlier step's highest
    /// moment consisted of.
    pub fn account(&self, lines: Option<&Sites>, peak: Option<&PeakMoment>) -> Vec<String> {
        let blocks = Blocks { groups: &self.reported.blocks, others: self.reported.other_blocks };
        let mut account = self.figures.account(blocks, &self.tenants);
        if let Some(line) = self.line() {
            let inside = self.reported.library.as_ref().map(|it| format!(", inside of {}", Spot::of(it).call()));
            let phase = match self.reported.phase.as_deref() {
                Some("forward") => ", in the forward pass",
                Some("backward") => ", in the backward pass",
                Some("optimizer") => ", in the optimizer's step",
                Some("inference") => ", while no gradients are recorded",
                Some("placement") => ", while a module is moved to the device",
                _ => "",
            };
            account.insert(0, format!("the request came from {line}{}{phase}", inside.unwrap_or_default()));
        }
        account.extend(self.consists());
        account.extend(peak.into_iter().flat_map(|it| self.since(it)));
        let device = self.reported.device;
        account.extend(lines.and_then(|it| culprit::live(it, device)));
        account.extend(lines.into_iter().flat_map(|it| culprit::held(it, device)));
        account
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const WORDS: &str = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 4.00 GiB of which \
                         1.00 GiB is free. Process 7 has 1.50 GiB memory in use. Process 8 has 100.00 MiB memory in use. \
                         Including non-PyTorch memory, this process has 1.40 GiB memory in use. Of the allocated memory \
                         1.00 GiB is allocated by PyTorch, with 79.87 MiB allocated in private pools (e.g., CUDA Graphs), \
                         and 0 bytes is reserved by PyTorch but unallocated.";

    fn tenant(pid: u32, used: u64) -> Tenant {
        Tenant { pid, name: Foreign::new("train.py"), used: Some(Bytes(used)) }
    }

    /// The limit equals the capacity; rounded, it would look like a limit of the job.
    #[test]
    fn exact_figures_stay_and_the_message_adds_missing_ones() {
        let oom = Oom { tried: Some(2047 * MIB), device_free: Some(1020 * MIB), ..Oom::default() };
        let oom = Oom { limit: Some(4090 * MIB), ..oom };
        let known = Counters {
            device_total: Some(4090 * MIB),
            allocated: Some(1025 * MIB),
            reserved: Some(1026 * MIB),
            private_pools: Some(100 * MIB),
            ..Counters::default()
        };
        let tenancy = Tenancy { own: Some(Bytes(1400 * MIB)), others: vec![tenant(7, 1530 * MIB)] };
        let mut it = OutOfMemory::new(&oom, &known, false, Some(tenancy), Some(42));
        assert_eq!((it.figures.others, it.figures.allowed), (Some(1530 * MIB), None));
        it.worded(WORDS, Some(42));
        let figures = it.figures;
        assert_eq!((figures.tried, figures.free, figures.total), (oom.tried, oom.device_free, known.device_total));
        assert_eq!((figures.allocated, figures.reserved, figures.allowed), (known.allocated, known.reserved, None));
        assert_eq!(figures.private_pools.map(|it| it / MIB), Some(79));
        assert_eq!((figures.others, figures.process.map(|it| it / MIB)), (Some(1630 * MIB), Some(1433)));
        let each: Vec<_> = it.tenants.iter().map(|it| (it.pid, it.name.raw(), it.used)).collect();
        assert_eq!(each, [(7, "train.py", Some(Bytes(1530 * MIB))), (8, "", Some(Bytes(100 * MIB)))]);
        assert_eq!(it.reported.message.as_deref(), Some(WORDS));
        let reported = Oom { message: Some(WORDS.to_owned()), ..oom };
        let tenancy = Tenancy { own: None, others: vec![tenant(7, 1530 * MIB)] };
        let at_once = OutOfMemory::new(&reported, &known, false, Some(tenancy), Some(42));
        assert_eq!((at_once.figures, at_once.tenants), (figures, it.tenants), "whether it comes at once or later");
    }

    #[test]
    fn without_the_driver_only_the_message_is_known_and_the_process_itself_is_not_another_one() {
        let words = WORDS.replace("Including non-PyTorch memory, this process", "Process 42");
        for (pid, text) in [(None, WORDS), (Some(42), &words), (None, &words)] {
            let reported = Oom { message: Some(text.to_owned()), ..Oom::default() };
            let it = OutOfMemory::new(&reported, &Counters::default(), false, None, pid);
            assert_eq!(it.tenants.iter().map(|it| it.pid).collect::<Vec<_>>(), [7, 8], "{pid:?} {text}");
            assert_eq!(it.figures.others, Some(1636 * MIB));
            let account = it.account(None, None).join("\n");
            assert!(
                account.contains("2.00 GiB was asked for, 1.00 GiB of the device's 4.00 GiB was free"),
                "{account}"
            );
            assert!(account.contains("private pools (CUDA graphs) had 79.87 MiB"), "{account}");
            assert!(account.contains("pid 7 1.50 GiB, pid 8 100.0 MiB"), "{account}");
        }
        let empty = OutOfMemory::new(&Oom::default(), &Counters::default(), false, None, None);
        assert!(empty.account(None, None).is_empty() && empty.reported.message.is_none());
    }

    #[test]
    fn the_largest_part_of_what_is_allocated_has_advice() {
        let known = Counters { allocated: Some(1000 * MIB), ..Counters::default() };
        let parts = |[weights, gradients, optimizer, retained]: [u64; 4]| {
            let [weights, gradients, optimizer, retained] =
                [weights, gradients, optimizer, retained].map(|it| it * MIB);
            let parts = Parts { weights, gradients, optimizer, retained };
            let it = OutOfMemory::new(&Oom::default(), &known, false, None, None);
            OutOfMemory { parts: Some(parts), ..it }
        };
        let of_activations = parts([100, 100, 200, 50]);
        assert_eq!(
            of_activations.consists().as_deref(),
            Some(
                "of 1000 MiB allocated: transient 650.0 MiB, optimizer 200.0 MiB, weights 100.0 MiB, retained 50.00 MiB"
            )
        );
        let largest = |it: &OutOfMemory| it.largest_part().unwrap_or_default();
        assert!(
            largest(&of_activations).ends_with("less with a smaller batch, or activation checkpointing"),
            "{}",
            largest(&of_activations)
        );
        assert!(largest(&parts([200, 200, 600, 10])).starts_with("the largest part is optimizer: "));
        assert_eq!(parts([900, 0, 0, 10]).largest_part(), None, "weights have none");
        assert_eq!(parts([900, 0, 200, 0]).consists(), None, "they are more than there is");
    }
}
