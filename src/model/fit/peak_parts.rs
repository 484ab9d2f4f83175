//! What the allocated peak consists of: from a trace of the whole run, and the addresses of what the job keeps.

use crate::{
    facts::event::anatomy::AnatomyPart,
    model::{
        anatomy::{KeptAddresses, WORKSPACE, module, part},
        trace::{Action, Event, SourceLine, StackId, Trace},
    },
};
use hashbrown::HashMap;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

/// What a job keeps on a device in the whole run.
#[derive(Clone, Debug, Default)]
pub struct KeptByRun {
    /// Parameters.
    pub weights: KeptKind,
    /// Buffers of modules.
    pub buffers: KeptKind,
    /// Gradients.
    pub gradients: KeptKind,
    /// Optimizers' states.
    pub optimizer: KeptKind,
    /// Bytes of cuBLAS's workspaces.
    pub workspaces: u64,
    /// When backward ran, and for which line: begin and end in µs since 1970.
    pub backward: Vec<(u64, u64, SourceLine)>,
    /// What these lines make, as its path in the model, by file and line.
    pub paths: HashMap<(String, u32), String>,
    /// Functions of modules: file, first line, name, and the module's path.
    pub modules: Vec<(String, u32, String, String)>,
}

/// What a job keeps of one kind. An address has other blocks at other times.
#[derive(Clone, Debug, Default)]
pub struct KeptKind {
    /// The looks that found something at an address, in order.
    pub blocks: BTreeMap<u64, Vec<KeptLook>>,
    /// When the last look was.
    pub last: u64,
}

/// A look that found what is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptLook {
    /// µs since 1970.
    pub unix_us: u64,
    /// The line that makes it.
    pub line: Option<SourceLine>,
}

impl KeptKind {
    /// Returns the look that found a block; `None` of one that is not of this kind. It lives for some time, also at a
    /// moment. A look in that time tells; where none came after the moment, one that found the address before is all
    /// that is known.
    fn of(&self, addresses: Range<u64>, life: &Range<u64>, moment: u64) -> Option<&KeptLook> {
        let all: Vec<_> = self.blocks.range(addresses).flat_map(|it| it.1).collect();
        let in_time = all.iter().filter(|it| life.contains(&it.unix_us));
        let nearest = in_time.min_by_key(|it| it.unix_us.abs_diff(moment));
        nearest.or_else(|| all.last().filter(|_| self.last < moment)).copied()
    }
}

/// The blocks of a moment that are kept.
#[derive(Debug, Default)]
struct KeptThen<'a> {
    addresses: KeptAddresses,
    lines: BTreeMap<(AnatomyPart, u64), &'a SourceLine>,
}

impl<'a> KeptThen<'a> {
    /// Finds them among the blocks that live at a moment, when so many events had passed.
    fn at(
        kept: &'a KeptByRun,
        trace: &Trace,
        events: &Range<usize>,
        passed: usize,
        blocks: &[(u64, u64, StackId)],
    ) -> Self {
        let now = events.start + passed;
        let (births, deaths) = (births(trace, events.start..now), deaths(trace, now..events.end));
        let last = events.clone().nth(passed.saturating_sub(1)).and_then(|it| trace.events.get(it));
        let moment = last.and_then(|it| it.unix_us).unwrap_or(u64::MAX);
        let mut found = Self::default();
        for (address, bytes, _) in blocks {
            let begin = births.get(address).copied().unwrap_or(0);
            let life = begin..deaths.get(address).copied().unwrap_or(u64::MAX);
            // Views of one storage have addresses of their own.
            let addresses = *address..address.saturating_add((*bytes).max(1));
            for (part, kind, into) in [
                (AnatomyPart::Weights, &kept.weights, &mut found.addresses.weights),
                (AnatomyPart::Other, &kept.buffers, &mut found.addresses.buffers),
                (AnatomyPart::Gradients, &kept.gradients, &mut found.addresses.gradients),
                (AnatomyPart::Optimizer, &kept.optimizer, &mut found.addresses.optimizer),
            ] {
                let Some(look) = kind.of(addresses.clone(), &life, moment) else { continue };
                into.insert(*address);
                found.lines.extend(look.line.as_ref().map(|made| ((part, *address), made)));
            }
        }
        found
    }
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
    let history = trace.history(device);
    let range = &trace.devices.get(device as usize).cloned().unwrap_or_default();
    let (mut kinds, mut lines, mut workspaces) = (BTreeMap::new(), BTreeMap::new(), 0);
    let passed = history.highest();
    let times = births(trace, range.start..range.start + passed);
    let within = |at: u64| kept.backward.iter().find(|it| it.0 <= at && at <= it.1).map(|it| it.2.clone());
    let blocks: Vec<_> = history.blocks_after(passed).collect();
    if blocks.is_empty() && range.is_empty() {
        return None;
    }
    let then = KeptThen::at(kept, trace, range, passed, &blocks);
    for (address, bytes, stack) in blocks {
        let is_workspace = bytes == WORKSPACE;
        workspaces += if is_workspace { bytes } else { 0 };
        let kind = part(&trace.stacks, &then.addresses, (address, bytes, stack), false);
        *kinds.entry(kind).or_insert(0_u64) += bytes;
        let mut made: Vec<SourceLine> = then.lines.get(&(kind, address)).map(|it| (*it).clone()).into_iter().collect();
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
    let event = passed.checked_sub(1).and_then(|it| trace.events.get(range.clone().nth(it)?));
    let line = event.and_then(|it| trace.stacks.own_line(it.stack).or_else(|| Some(within(it.unix_us?)?.short())));
    Some(Peak { kinds, line, lines })
}

/// Returns when the latest block at each address was allocated, in µs since 1970.
fn births(trace: &Trace, events: Range<usize>) -> HashMap<u64, u64> {
    let all = events.filter_map(|at| trace.events.get(at)).filter(|it| it.action == Action::Alloc);
    all.filter_map(|it| Some((it.address?, it.unix_us?))).collect()
}

/// Returns when the block that is at each address at the beginning was freed, in µs since 1970.
fn deaths(trace: &Trace, events: Range<usize>) -> HashMap<u64, u64> {
    let is_free = |it: &Event| matches!(it.action, Action::FreeRequested | Action::FreeCompleted);
    let mut found = HashMap::new();
    for it in events.filter_map(|at| trace.events.get(at)).filter(is_free) {
        if let (Some(address), Some(at)) = (it.address, it.unix_us) {
            found.entry(address).or_insert(at);
        }
    }
    found
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
    use crate::model::trace::Frame;

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

    fn look(unix_us: u64, line: Option<SourceLine>) -> KeptLook {
        KeptLook { unix_us, line }
    }

    #[test]
    fn an_address_holds_what_it_held_at_the_moment() {
        let line = |line| Some(SourceLine { file: "net.py".into(), line, function: String::new() });
        let gradients = KeptKind {
            blocks: BTreeMap::from([(100, vec![look(10, line(1)), look(30, line(3))]), (200, vec![look(10, line(2))])]),
            last: 30,
        };
        let at = |address: u64, life: Range<u64>, moment| {
            let found = gradients.of(address..address + 50, &life, moment);
            found.map(|look| look.line.as_ref().map(|it| it.line))
        };
        // Blocks that lived at looks, of which the nearest tells the line.
        assert_eq!(at(100, 5..12, 8), Some(Some(1)));
        assert_eq!(at(100, 25..u64::MAX, 26), Some(Some(3)));
        assert_eq!(at(100, 5..u64::MAX, 27), Some(Some(3)));
        assert_eq!(at(90, 5..12, 8), Some(Some(1)), "a view");
        // Others that were there between two looks, or when one found nothing.
        assert_eq!(at(100, 15..20, 16), None);
        assert_eq!(at(200, 25..u64::MAX, 26), None);
        // After the last look, a place is all that is known.
        assert_eq!(at(200, 35..40, 36), Some(Some(2)));
        assert_eq!(at(300, 35..40, 36), None);
        let without = KeptKind { blocks: BTreeMap::from([(7, vec![look(10, None)])]), last: 10 };
        assert_eq!(without.of(7..8, &(5..20), 6), Some(&look(10, None)));
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
        let kind = |it: u64, line| KeptKind { blocks: BTreeMap::from([(it * 100, vec![look(8, line)])]), last: 8 };
        let line = |file: &str, line| SourceLine { file: format!("/job/{file}"), line, function: String::new() };
        let kept = KeptByRun {
            weights: kind(1, None),
            buffers: kind(7, None),
            gradients: kind(5, Some(line("net.py", 7))),
            optimizer: kind(2, None),
            workspaces: 8,
            backward: vec![(5, 6, line("train.py", 50))],
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
