//! What the allocated peak consists of: from a trace of the whole run, and the addresses of what the job keeps.

use crate::{
    facts::event::anatomy::AnatomyPart,
    model::{
        anatomy::{KeptAddresses, WORKSPACE, module, part},
        trace::{Action, SourceLine, StackId, Trace},
    },
};
use hashbrown::HashMap;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

/// What a job keeps on a device in the whole run.
#[derive(Clone, Debug, Default)]
pub struct KeptByRun {
    /// Where it is.
    pub addresses: KeptAddresses,
    /// Bytes of cuBLAS's workspaces.
    pub workspaces: u64,
    /// When backward ran, and for which line: begin and end in µs since 1970.
    pub backward: Vec<(u64, u64, SourceLine)>,
    /// The lines that make parameters, buffers and optimizers, by the addresses of what these hold.
    pub makers: BTreeMap<u64, SourceLine>,
    /// What these lines make, as its path in the model, by file and line.
    pub paths: HashMap<(String, u32), String>,
    /// Functions of modules: file, first line, name, and the module's path.
    pub modules: Vec<(String, u32, String, String)>,
}

/// The allocated peak of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// Bytes by kind, asked for and live.
    pub kinds: BTreeMap<AnatomyPart, u64>,
    /// The job's own line whose request made it, as `train.py:41`.
    pub line: Option<String>,
    /// Blocks by kind and by the lines that made them, the innermost first; without those whose line is unknown.
    pub lines: BTreeMap<(AnatomyPart, Vec<SourceLine>), MadeThere>,
}

/// Blocks that were made at one place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MadeThere {
    /// Their bytes.
    pub bytes: u64,
    /// The paths of the modules that made them, or that have them.
    pub modules: BTreeSet<Option<String>>,
}

/// Returns what a device's peak consists of; `None` where the trace has none.
pub fn consists(trace: &Trace, device: u32, kept: &KeptByRun) -> Option<Peak> {
    let moment = trace.peak(device)?;
    let range = trace.devices.get(device as usize)?;
    let (mut kinds, mut lines, mut workspaces) = (BTreeMap::new(), BTreeMap::new(), 0);
    let times = births(trace, range.start..=range.start + moment.event);
    let within = |at: u64| kept.backward.iter().find(|it| it.0 <= at && at <= it.1).map(|it| it.2.clone());
    for (address, bytes, stack) in trace.live_after(device, moment.event) {
        let is_workspace = bytes == WORKSPACE;
        workspaces += if is_workspace { bytes } else { 0 };
        let kind = part(&trace.stacks, &kept.addresses, (address, bytes, stack), false);
        *kinds.entry(kind).or_insert(0_u64) += bytes;
        let is_kept = !matches!(kind, AnatomyPart::Activations | AnatomyPart::Temporaries);
        let mut made: Vec<SourceLine> = kept.makers.get(&address).filter(|_| is_kept).cloned().into_iter().collect();
        let mut owner = made.first().and_then(|it| kept.paths.get(&(it.file.clone(), it.line)).cloned());
        if made.is_empty() {
            made.extend(trace.stacks.own_lines(stack));
            owner = module(&trace.stacks, stack, &kept.modules);
        }
        if made.is_empty() {
            made.extend(times.get(&address).copied().and_then(within));
        }
        if !is_workspace && !made.is_empty() {
            let there: &mut MadeThere = lines.entry((kind, made)).or_default();
            there.bytes += bytes;
            there.modules.insert(owner.filter(|it| !it.is_empty()));
        }
    }
    // Where they are as large as any tensor, only their sum is known: one was made in forward, one in backward.
    let mut rest = kept.workspaces.saturating_sub(workspaces);
    for kind in [AnatomyPart::Activations, AnatomyPart::Temporaries] {
        let Some(all) = kinds.get_mut(&kind) else { continue };
        let taken = rest.min(*all);
        *all -= taken;
        rest -= taken;
        *kinds.entry(AnatomyPart::Other).or_insert(0) += taken;
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
            [(7, 6, own), (1, 10, own), (2, 20, optim), (3, 5, optim), (4, 40, own), (5, 7, none), (6, 3, operation)]
        {
            let event = Event {
                action: Action::Alloc,
                address: Some(address * 100),
                size: Some(size),
                stack,
                ..Event::default()
            };
            trace.events.push(&Event { unix_us: Some(address), ..event });
        }
        trace.devices.push(0..7);
        let set = |it: u64| BTreeSet::from([it * 100]);
        let line = |file: &str, line| SourceLine { file: format!("/job/{file}"), line, function: String::new() };
        let kept = KeptByRun {
            addresses: KeptAddresses { weights: set(1), buffers: set(7), gradients: set(5), optimizer: set(2) },
            workspaces: 8,
            backward: vec![(5, 6, line("train.py", 50))],
            makers: BTreeMap::from([(500, line("net.py", 7)), (400, line("never.py", 1))]),
            paths: HashMap::from([(("/job/net.py".to_owned(), 7), "head.weight".to_owned())]),
            modules: vec![("/job/train.py".to_owned(), 40, String::new(), "blocks.*".to_owned())],
        };
        let found = consists(&trace, 0, &kept).unwrap();
        let all: Vec<_> = found.kinds.into_iter().collect();
        let expected = [
            (AnatomyPart::Weights, 10),
            (AnatomyPart::Gradients, 7),
            (AnatomyPart::Optimizer, 20),
            (AnatomyPart::Activations, 32),
            (AnatomyPart::Temporaries, 8),
            (AnatomyPart::Other, 14),
        ];
        assert_eq!((all.as_slice(), found.line.as_deref()), (expected.as_slice(), Some("train.py:50")));
        assert_eq!(trace.stacks.own_line(own).as_deref(), Some("train.py:41"));
        let lines: Vec<_> = found
            .lines
            .into_iter()
            .map(|((kind, of), it)| (kind, of[0].short(), it.bytes, it.modules.into_iter().flatten().next()))
            .collect();
        let row =
            |kind, line: &str, bytes, module: Option<&str>| (kind, line.to_owned(), bytes, module.map(str::to_owned));
        let expected = [
            row(AnatomyPart::Weights, "train.py:41", 10, Some("blocks.*")),
            row(AnatomyPart::Gradients, "net.py:7", 7, Some("head.weight")),
            row(AnatomyPart::Activations, "train.py:41", 40, Some("blocks.*")),
            row(AnatomyPart::Temporaries, "train.py:50", 3, None),
            row(AnatomyPart::Other, "train.py:41", 6, Some("blocks.*")),
        ];
        assert_eq!(lines, expected, "optimizers' blocks have no line of the job here");
        assert_eq!(consists(&trace, 7, &kept), None);
    }
}
