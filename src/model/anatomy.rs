//! What is live at the highest moment of a step: by part, by the job's own line, by module.
//!
//! The trace has whole steps with their call stacks, and the job has said which blocks are weights, gradients and
//! optimizer state. Blocks that are none of these were made in forward (activations, inputs, outputs), or in backward
//! and by optimizers (temporaries). Those from before the trace are other memory: buffers, caches, copies. Sizes are
//! rounded up as the allocator does.

use crate::model::trace::{History, StackId, Stacks, Trace};
use serde::Serialize;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

/// The allocator rounds a block up to a multiple of this.
const ROUND: u64 = 512;

/// Bytes of PyTorch's workspace for cuBLAS on all but the newest architectures (`:4096:2:16:8`): no tensor has as many.
const WORKSPACE: u64 = 8_519_680;

/// What a live block holds.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, strum::IntoStaticStr, strum::EnumIter,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum AnatomyPart {
    /// Parameters.
    Weights,
    /// Gradients of parameters.
    Gradients,
    /// What optimizers keep between steps.
    Optimizer,
    /// Made outside of backward and of optimizers: activations, inputs, outputs.
    Activations,
    /// Made in backward or by an optimizer, for this step.
    Temporaries,
    /// From before the trace, and workspaces.
    Other,
}

impl AnatomyPart {
    /// Every part with its words.
    pub const WORDS: [(Self, &'static str); 6] = [
        (Self::Weights, "weights"),
        (Self::Gradients, "gradients"),
        (Self::Optimizer, "optimizer state"),
        (Self::Activations, "activations, inputs and outputs"),
        (Self::Temporaries, "temporaries of backward and of the optimizer"),
        (Self::Other, "other: buffers, caches, workspaces"),
    ];

    /// Returns its name in JSON.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// What a job keeps on a device, and when its steps ended.
#[derive(Clone, Debug, Default)]
pub struct KeptBlocks<'a> {
    /// Addresses of parameters.
    pub weights: BTreeSet<u64>,
    /// Of gradients, at any step.
    pub gradients: BTreeSet<u64>,
    /// Of optimizers' states.
    pub optimizer: BTreeSet<u64>,
    /// The ends of steps: µs since 1970, and the number of the step that ended.
    pub boundaries: &'a [(u64, u64)],
    /// Functions of modules: file, first line, name, and the module's path.
    pub modules: &'a [(String, u32, String, String)],
}

/// What a device's highest moment consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Anatomy {
    /// The step in which it was; `None` if no step ended in the trace.
    pub step: Option<u64>,
    /// Bytes of all live blocks, which is the sum of the parts.
    pub allocated: u64,
    /// Bytes by part; those without any are absent.
    pub parts: BTreeMap<AnatomyPart, u64>,
    /// The lines that allocated blocks, the one with the most bytes first.
    pub lines: Vec<LineShare>,
}

/// What one line of the job allocated and is live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineShare {
    /// The line, as `train.py:88`.
    pub line: String,
    /// Bytes of the live blocks.
    pub bytes: u64,
    /// How many they are.
    pub blocks: u64,
    /// The part of most of these bytes.
    pub part: AnatomyPart,
    /// The module in whose forward function most of these bytes were allocated, as `layers.*.mlp`.
    pub module: Option<String>,
}

/// Returns what is live at a device's highest moment, within whole steps if there is one; `None` without any event.
pub fn anatomy(trace: &Trace, device: u32, kept: &KeptBlocks<'_>) -> Option<Anatomy> {
    let history = trace.history(device);
    let (event, step) = highest(trace, device, &history, kept.boundaries)?;
    let mut found = Anatomy { step, ..Anatomy::default() };
    let mut lines: BTreeMap<String, Line> = BTreeMap::new();
    for ((address, bytes, stack), is_older) in history.aged_blocks(event) {
        let rounded = bytes.next_multiple_of(ROUND);
        let part = part(&trace.stacks, kept, (address, bytes, stack), is_older);
        found.allocated = found.allocated.saturating_add(rounded);
        let of_part = found.parts.entry(part).or_default();
        *of_part = of_part.saturating_add(rounded);
        if let Some(line) = trace.stacks.own_line(stack) {
            let it = lines.entry(line).or_default();
            (it.bytes, it.blocks) = (it.bytes.saturating_add(rounded), it.blocks + 1);
            *it.parts.entry(part).or_default() += rounded;
            *it.modules.entry(module(&trace.stacks, stack, kept.modules)).or_default() += rounded;
        }
    }
    found.lines = lines.into_iter().filter_map(|(line, it)| it.share(line)).collect();
    found.lines.sort_by_key(|it| Reverse(it.bytes));
    Some(found)
}

/// Sums of a line.
#[derive(Default)]
struct Line {
    bytes: u64,
    blocks: u64,
    parts: BTreeMap<AnatomyPart, u64>,
    modules: BTreeMap<Option<String>, u64>,
}

impl Line {
    fn share(self, line: String) -> Option<LineShare> {
        let part = self.parts.into_iter().max_by_key(|it| it.1)?.0;
        let module = self.modules.into_iter().max_by_key(|it| it.1)?.0;
        Some(LineShare { line, bytes: self.bytes, blocks: self.blocks, part, module })
    }
}

/// Returns the event after which most was live, among those between the ends of two steps, and the step.
fn highest(trace: &Trace, device: u32, history: &History, boundaries: &[(u64, u64)]) -> Option<(usize, Option<u64>)> {
    let range = trace.devices.get(device as usize)?;
    let step = |event: usize| {
        let at = trace.events.get(range.start + event)?.unix_us?;
        let after = boundaries.iter().position(|it| it.0 >= at)?;
        boundaries.get(after).filter(|_| after > 0).map(|it| it.1)
    };
    let live = |event: &usize| (history.live(*event), Reverse(*event));
    let within = (0..history.len()).filter(|it| step(*it).is_some()).max_by_key(live);
    let event = within.or_else(|| (0..history.len()).max_by_key(live))?;
    Some((event, step(event)))
}

/// Returns what a block holds.
fn part(
    stacks: &Stacks,
    kept: &KeptBlocks<'_>,
    (address, bytes, stack): (u64, u64, StackId),
    is_older: bool,
) -> AnatomyPart {
    let is_in = |part: &str| stacks.frames(stack).any(|it| stacks.texts.get(it.file).contains(part));
    if kept.weights.contains(&address) {
        return AnatomyPart::Weights;
    }
    if kept.optimizer.contains(&address) {
        return AnatomyPart::Optimizer;
    }
    // PyTorch's own threads run backward, and have no Python frames. At the address of an activation there may have
    // been a gradient of an earlier step.
    let is_backward = stacks.frames(stack).next().is_none() || is_in("torch/autograd/");
    match (is_older, is_backward) {
        (true, _) | (_, true) if kept.gradients.contains(&address) => AnatomyPart::Gradients,
        (true, _) => AnatomyPart::Other,
        _ if bytes == WORKSPACE => AnatomyPart::Other,
        (_, true) => AnatomyPart::Temporaries,
        _ if is_in("torch/optim/") => AnatomyPart::Temporaries,
        _ => AnatomyPart::Activations,
    }
}

/// Returns the path of the innermost module in whose function a stack is.
fn module(stacks: &Stacks, stack: StackId, modules: &[(String, u32, String, String)]) -> Option<String> {
    stacks.frames(stack).find_map(|frame| {
        let (file, name) = (stacks.texts.get(frame.file), stacks.texts.get(frame.name));
        let is_of = |it: &&(String, u32, String, String)| it.0 == file && it.2 == name && it.1 <= frame.line;
        modules.iter().filter(is_of).max_by_key(|it| it.1).map(|it| it.3.clone())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::trace::{Action, Event, Frame};

    #[test]
    fn the_highest_moment_of_whole_steps_is_split_by_part_line_and_module() {
        let mut trace = Trace::default();
        let mut stack = |file: &str, name: &str, line: u32| {
            let [file, name] = [file, name].map(|it| trace.stacks.texts.id(it.as_bytes()));
            let frame = trace.stacks.frames.id(Frame { name, file, line });
            trace.stacks.id(&[frame])
        };
        let (own, inner) = (stack("/job/train.py", "main", 9), stack("/job/net.py", "forward", 31));
        let (optim, none) = (stack("/venv/site-packages/torch/optim/adamw.py", "step", 7), StackId::default());
        let (alloc, free) = (Action::Alloc, Action::FreeCompleted);
        for (at, action, address, size, stack) in [
            // Before the first end of a step; higher than what follows.
            (5, alloc, 90, 99_000, own),
            (6, free, 90, 99_000, none),
            (11, alloc, 10, 1000, own),
            (12, alloc, 20, 4096, inner),
            (13, alloc, 30, 600, none),
            (14, alloc, 40, 512, none),
            (15, alloc, 50, 512, optim),
            (16, free, 20, 4096, none),
            // Blocks from before the trace.
            (17, free, 60, 2048, none),
            (18, free, 70, 512, none),
        ] {
            let event = Event { action, address: Some(address), size: Some(size), stack, ..Event::default() };
            trace.events.push(&Event { unix_us: Some(at), ..event });
        }
        trace.devices.push(0..10);
        let kept = KeptBlocks {
            weights: BTreeSet::from([70]),
            gradients: BTreeSet::from([10, 30]),
            boundaries: &[(10, 4), (20, 5)],
            modules: &[("/job/net.py".to_owned(), 30, "forward".to_owned(), "layers.*".to_owned())],
            ..KeptBlocks::default()
        };
        let found = anatomy(&trace, 0, &kept).unwrap();
        let expected = [
            (AnatomyPart::Weights, 512),
            (AnatomyPart::Gradients, 1024),
            (AnatomyPart::Activations, 5120),
            (AnatomyPart::Temporaries, 1024),
            (AnatomyPart::Other, 2048),
        ];
        assert_eq!(found.parts.into_iter().collect::<Vec<_>>(), expected);
        assert_eq!((found.step, found.allocated), (Some(5), 9728));
        let line = |line: &str, bytes, module: Option<&str>| LineShare {
            line: line.to_owned(),
            bytes,
            blocks: 1,
            part: AnatomyPart::Activations,
            module: module.map(str::to_owned),
        };
        assert_eq!(found.lines, [line("net.py:31", 4096, Some("layers.*")), line("train.py:9", 1024, None)]);
        let without = KeptBlocks { boundaries: &[(100, 4)], ..kept };
        assert_eq!(anatomy(&trace, 0, &without).map(|it| it.step), Some(None), "no whole step");
        assert_eq!(anatomy(&trace, 3, &without), None);
    }
}
