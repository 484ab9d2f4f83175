//! What the allocated peak consists of: from a trace of the whole run, and the addresses of what the job keeps.

use crate::model::trace::{Action, SourceLine, StackId, Stacks, Trace};
use hashbrown::HashMap;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

/// Bytes of PyTorch's workspace for cuBLAS on all but the newest architectures (`:4096:2:16:8`): no tensor has as many.
const WORKSPACE: u64 = 8_519_680;

/// What a live block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum PeakPart {
    /// Parameters and buffers of modules.
    Weights,
    /// Gradients of parameters.
    Gradients,
    /// What optimizers keep between steps.
    Optimizer,
    /// Made outside of backward and of optimizers: activations, inputs, outputs.
    Activations,
    /// Made in backward, and no parameter's gradient.
    Backward,
    /// Made by an optimizer for one step.
    Step,
    /// cuBLAS's workspaces.
    Workspaces,
}

impl PeakPart {
    /// Every kind with its words, from what stays longest to what goes first.
    pub const WORDS: [(Self, &'static str); 7] = [
        (Self::Weights, "weights and buffers"),
        (Self::Gradients, "gradients"),
        (Self::Optimizer, "optimizer state"),
        (Self::Activations, "activations, inputs and outputs"),
        (Self::Backward, "temporaries of backward"),
        (Self::Step, "temporaries of the optimizer"),
        (Self::Workspaces, "cuBLAS workspaces"),
    ];

    /// Returns the words for a name in JSON; the name itself where it is of a later release.
    pub fn words(name: &str) -> &str {
        Self::WORDS.iter().find(|it| it.0.name() == name).map_or(name, |it| it.1)
    }

    /// Returns the name in JSON.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Addresses of what a job keeps on a device.
#[derive(Clone, Debug, Default)]
pub struct KeptAddresses {
    /// Of parameters and buffers.
    pub weights: BTreeSet<u64>,
    /// Of gradients, at any step.
    pub gradients: BTreeSet<u64>,
    /// Of optimizers' states.
    pub optimizer: BTreeSet<u64>,
    /// Bytes of cuBLAS's workspaces.
    pub workspaces: u64,
    /// When backward ran, and for which line: begin and end in µs since 1970.
    pub backward: Vec<(u64, u64, SourceLine)>,
    /// The lines that make parameters, buffers and optimizers, by the addresses of what these hold.
    pub makers: BTreeMap<u64, SourceLine>,
}

/// The allocated peak of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// Bytes by kind, asked for and live.
    pub kinds: BTreeMap<PeakPart, u64>,
    /// The job's own line whose request made it, as `train.py:41`.
    pub line: Option<String>,
    /// Blocks by kind and by the lines that made them, the innermost first; without those whose line is unknown.
    pub lines: BTreeMap<(PeakPart, Vec<SourceLine>), u64>,
}

/// Returns what a device's peak consists of; `None` where the trace has none.
pub fn consists(trace: &Trace, device: u32, kept: &KeptAddresses) -> Option<Peak> {
    let moment = trace.peak(device)?;
    let range = trace.devices.get(device as usize)?;
    let (mut kinds, mut lines) = (BTreeMap::new(), BTreeMap::new());
    let times = births(trace, range.start..=range.start + moment.event);
    let within = |at: u64| kept.backward.iter().find(|it| it.0 <= at && at <= it.1).map(|it| it.2.clone());
    for (address, bytes, stack) in trace.live_after(device, moment.event) {
        let kind = if bytes == WORKSPACE { PeakPart::Workspaces } else { kind(&trace.stacks, kept, address, stack) };
        *kinds.entry(kind).or_insert(0_u64) += bytes;
        let is_kept = matches!(kind, PeakPart::Weights | PeakPart::Gradients | PeakPart::Optimizer);
        let mut made: Vec<SourceLine> = kept.makers.get(&address).filter(|_| is_kept).cloned().into_iter().collect();
        if made.is_empty() {
            made.extend(trace.stacks.own_lines(stack));
        }
        if made.is_empty() {
            made.extend(times.get(&address).copied().and_then(within));
        }
        if kind != PeakPart::Workspaces && !made.is_empty() {
            *lines.entry((kind, made)).or_insert(0) += bytes;
        }
    }
    // Where they are as large as any tensor, only their sum is known: one was made in forward, one in backward.
    let mut rest = kept.workspaces.saturating_sub(kinds.get(&PeakPart::Workspaces).copied().unwrap_or(0));
    for kind in [PeakPart::Activations, PeakPart::Backward] {
        let Some(all) = kinds.get_mut(&kind) else { continue };
        let taken = rest.min(*all);
        *all -= taken;
        rest -= taken;
        *kinds.entry(PeakPart::Workspaces).or_insert(0) += taken;
    }
    kinds.retain(|_, bytes| *bytes > 0);
    let event = trace.events.get(range.start + moment.event)?;
    let line = trace.stacks.own_line(event.stack).or_else(|| Some(within(event.unix_us?)?.short()));
    Some(Peak { kinds, line, lines })
}

/// Returns when the latest block at each address was allocated, in µs since 1970.
fn births(trace: &Trace, events: RangeInclusive<usize>) -> HashMap<u64, u64> {
    let all = events.filter_map(|at| trace.events.get(at)).filter(|it| it.action == Action::Alloc);
    all.filter_map(|it| Some((it.address?, it.unix_us?))).collect()
}

/// Returns the job's own line that allocated the most of what a step made and the next one did not free. `ends` are the
/// times at which steps ended, in µs since 1970.
pub fn keeps(trace: &Trace, device: u32, ends: &[u64]) -> Option<String> {
    let range = trace.devices.get(device as usize)?;
    let [.., first, second, third] = ends else { return None };
    let blocks_at = |end: u64| -> Option<BTreeSet<(u64, u64, StackId)>> {
        let time = |at: usize| trace.events.get(range.start + at).and_then(|it| it.unix_us);
        // Events are in the order of their times.
        let (mut low, mut high) = (0, range.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if time(middle).is_some_and(|it| it <= end) { low = middle + 1 } else { high = middle }
        }
        Some(trace.live_after(device, low.checked_sub(1)?).into_iter().collect())
    };
    let (before, after, later) = (blocks_at(*first)?, blocks_at(*second)?, blocks_at(*third)?);
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for (_, bytes, stack) in after.intersection(&later).filter(|it| !before.contains(it)) {
        let Some(line) = trace.stacks.own_line(*stack) else { continue };
        *lines.entry(line).or_default() += bytes;
    }
    lines.into_iter().max_by_key(|it| it.1).map(|it| it.0)
}

fn kind(stacks: &Stacks, kept: &KeptAddresses, address: u64, stack: StackId) -> PeakPart {
    let is_in = |part: &str| stacks.frames(stack).any(|it| stacks.texts.get(it.file).contains(part));
    if kept.weights.contains(&address) {
        return PeakPart::Weights;
    }
    if kept.optimizer.contains(&address) {
        return PeakPart::Optimizer;
    }
    // PyTorch's own threads run backward, and have no Python frames but those of the probe's operations.
    let is_operation = |file: &str| file.contains("/gpuwatch_probe/") || file.ends_with("torch/_ops.py");
    let has_none = stacks.frames(stack).all(|it| is_operation(&stacks.texts.get(it.file)));
    let is_backward = has_none || is_in("torch/autograd/");
    match is_backward {
        true if kept.gradients.contains(&address) => PeakPart::Gradients,
        true => PeakPart::Backward,
        false if is_in("torch/optim/") => PeakPart::Step,
        false => PeakPart::Activations,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::trace::{Event, Frame};

    #[test]
    fn the_line_that_keeps_memory_is_found_between_steps() {
        let mut trace = Trace::default();
        let file = trace.stacks.texts.id(b"/job/train.py");
        let mut stack = |line: u32| {
            let frame = trace.stacks.frames.id(Frame { file, line, ..Frame::default() });
            trace.stacks.id(&[frame])
        };
        let (kept, freed) = (stack(7), stack(9));
        for step in 1..=4_u64 {
            for (action, address, size, stack) in [
                (Action::Alloc, step, 10, kept),
                (Action::Alloc, 100, 500, freed),
                (Action::FreeCompleted, 100, 500, freed),
            ] {
                let event = Event { action, address: Some(address), size: Some(size), stack, ..Event::default() };
                trace.events.push(&Event { unix_us: Some(step * 10), ..event });
            }
        }
        trace.devices.push(0..12);
        assert_eq!(keeps(&trace, 0, &[15, 25, 35, 45]).as_deref(), Some("train.py:7"));
        assert_eq!(keeps(&trace, 0, &[15, 25]), None);
        assert_eq!(keeps(&trace, 3, &[15, 25, 35]), None);
    }

    #[test]
    fn blocks_are_sorted_by_who_keeps_them_and_where_they_were_made() {
        let mut trace = Trace::default();
        let mut stack = |file: &str| {
            let file = trace.stacks.texts.id(file.as_bytes());
            let frame = trace.stacks.frames.id(Frame { file, line: 41, ..Frame::default() });
            trace.stacks.id(&[frame])
        };
        let [own, optim] = ["/job/train.py", "/venv/site-packages/torch/optim/adamw.py"].map(&mut stack);
        let none = StackId::default();
        let operation = stack("/run/gpuwatch_probe/_fit_values.py");
        for (address, size, stack) in
            [(1, 10, own), (2, 20, optim), (3, 5, optim), (4, 40, own), (5, 7, none), (6, 3, operation)]
        {
            let event =
                Event { action: Action::Alloc, address: Some(address), size: Some(size), stack, ..Event::default() };
            trace.events.push(&Event { unix_us: Some(address), ..event });
        }
        trace.devices.push(0..6);
        let set = |it: u64| BTreeSet::from([it]);
        let line = |file: &str, line| SourceLine { file: format!("/job/{file}"), line, function: String::new() };
        let kept = KeptAddresses {
            weights: set(1),
            gradients: set(5),
            optimizer: set(2),
            workspaces: 8,
            backward: vec![(5, 6, line("train.py", 50))],
            makers: BTreeMap::from([(5, line("net.py", 7)), (4, line("never.py", 1))]),
        };
        let found = consists(&trace, 0, &kept).unwrap();
        let all: Vec<_> = found.kinds.into_iter().collect();
        let expected = [
            (PeakPart::Weights, 10),
            (PeakPart::Gradients, 7),
            (PeakPart::Optimizer, 20),
            (PeakPart::Activations, 32),
            (PeakPart::Backward, 3),
            (PeakPart::Step, 5),
            (PeakPart::Workspaces, 8),
        ];
        assert_eq!((all.as_slice(), found.line.as_deref()), (expected.as_slice(), Some("train.py:50")));
        assert_eq!(trace.stacks.own_line(own).as_deref(), Some("train.py:41"));
        let lines: Vec<_> = found.lines.into_iter().map(|((kind, of), bytes)| (kind, of[0].short(), bytes)).collect();
        let expected = [
            (PeakPart::Weights, "train.py:41".to_owned(), 10),
            (PeakPart::Gradients, "net.py:7".to_owned(), 7),
            (PeakPart::Activations, "train.py:41".to_owned(), 40),
            (PeakPart::Backward, "train.py:50".to_owned(), 3),
        ];
        assert_eq!(lines, expected, "optimizers' blocks have no line of the job here");
        assert_eq!(consists(&trace, 7, &kept), None);
    }
}
