//! What is live at the highest moment of a step: by part, by the job's own line, by module.
//!
//! The trace has whole steps with their call stacks, and the job has said which blocks are weights, gradients and
//! optimizer state. Blocks that are none of these were made in forward (activations, inputs, outputs), or in backward
//! and by optimizers (temporaries). Those from before the trace are other memory: buffers, caches, copies. Sizes are
//! rounded up as the allocator does.

/// What blocks of a snapshot are.
pub(in crate::model) mod by_frames;
/// What is different between two moments.
mod change;
/// When a block was made.
mod phase;

use crate::{
    facts::{
        event::{
            PeakMoment,
            anatomy::{Anatomy, AnatomyPart, LINES_MAX, LineShare, StepPhase},
        },
        text::Foreign,
        units::Bytes,
    },
    model::trace::{Action, History, StackId, Stacks, Trace},
};
pub use change::{Change, changes};
use phase::{is_of_backward, is_of_optimizer, phase};
use serde_json::{Map, Value, json};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Write as _,
};

/// The allocator rounds a block up to a multiple of this.
const ROUND: u64 = 512;

/// Bytes of PyTorch's workspace for cuBLAS on all but the newest architectures (`:4096:2:16:8`): no tensor has as many.
pub const WORKSPACE: u64 = 8_519_680;

/// The same from compute capability 9.0 on; tensors may have as many.
const LARGE_WORKSPACE: u64 = 32 << 20;

/// The addresses of what a job keeps on a device: each lies within a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptAddresses {
    /// Of parameters.
    pub weights: BTreeSet<u64>,
    /// Of buffers of modules, where they are known.
    pub buffers: BTreeSet<u64>,
    /// Of gradients, at any step.
    pub gradients: BTreeSet<u64>,
    /// Of optimizers' states.
    pub optimizer: BTreeSet<u64>,
}

/// What a job keeps on a device, and when its steps ended.
#[derive(Clone, Debug, Default)]
pub struct KeptBlocks<'a> {
    /// Where it is.
    pub addresses: KeptAddresses,
    /// The ends of steps: µs since 1970, and the number of the step that ended.
    pub boundaries: &'a [(u64, u64)],
    /// The most bytes that were allocated before the trace.
    pub highest: Option<u64>,
    /// Functions of modules: file, first line, name, and the module's path.
    pub modules: &'a [(String, u32, String, String)],
}

/// Returns what is live at a device's highest moment, within whole steps if there is one; `None` without any event.
pub fn anatomy(trace: &Trace, device: u32, kept: &KeptBlocks<'_>) -> Option<Anatomy> {
    let history = trace.history(device);
    let (event, step) = highest(trace, device, &history, kept.boundaries)?;
    let held = history.lives(event).map(|life| Held {
        bytes: life.bytes.next_multiple_of(ROUND),
        stack: life.stack,
        part: part(&trace.stacks, &kept.addresses, (life.address, life.bytes, life.stack), life.is_older()),
        phase: phase(&trace.stacks, life.stack, life.is_older()),
    });
    let mut held: Vec<Held> = held.collect();
    limit_gradients(&mut held);
    let mut found = collect(&trace.stacks, held.into_iter(), kept.modules);
    (found.step, found.phase) = (step, phase_of_event(trace, device, event));
    if found.step.is_none() && kept.highest.is_some_and(|it| is_as_high(found.allocated, it)) {
        found.step = unended_step(trace, device, event, kept.boundaries);
    }
    Some(found)
}

/// A live block.
struct Held {
    bytes: u64,
    stack: StackId,
    part: AnatomyPart,
    phase: StepPhase,
}

/// Gradients are known by their addresses, at which backward may have made something else since: there is one for each
/// weight at most, of its size, and buckets of several have no more bytes than all of them.
fn limit_gradients(held: &mut [Held]) {
    let mut weights = HashMap::<u64, usize>::new();
    let mut room: u64 = 0;
    for it in held.iter().filter(|it| it.part == AnatomyPart::Weights) {
        *weights.entry(it.bytes).or_default() += 1;
        room = room.saturating_add(it.bytes);
    }
    if weights.is_empty() {
        return;
    }
    let (of_a_size, mut buckets): (Vec<&mut Held>, Vec<&mut Held>) =
        held.iter_mut().filter(|it| it.part == AnatomyPart::Gradients).partition(|it| weights.contains_key(&it.bytes));
    buckets.sort_by_key(|it| it.bytes);
    for it in of_a_size.into_iter().chain(buckets) {
        let is_left =
            weights.get_mut(&it.bytes).is_none_or(|count| count.checked_sub(1).map(|it| *count = it).is_some());
        match room.checked_sub(it.bytes).filter(|_| is_left) {
            Some(left) => room = left,
            None if it.phase == StepPhase::Before => it.part = AnatomyPart::Other,
            None => it.part = AnatomyPart::Temporaries,
        }
    }
}

/// Adds up live blocks by part, by phase, and by the job's own line with the module that it is in.
fn collect(stacks: &Stacks, held: impl Iterator<Item = Held>, modules: &[(String, u32, String, String)]) -> Anatomy {
    let (mut found, mut lines) = (Anatomy::default(), BTreeMap::<String, Line>::new());
    let mut places = HashMap::new();
    let add = |sum: &mut u64, bytes| *sum = sum.saturating_add(bytes);
    for Held { bytes, stack, part, phase } in held {
        add(&mut found.allocated, bytes);
        add(found.parts.entry(part).or_default(), bytes);
        add(found.phases.entry(phase).or_default(), bytes);
        let place = || stacks.own_line(stack).map(|line| (line, module(stacks, stack, modules)));
        if let Some((line, module)) = places.entry(stack).or_insert_with(place) {
            let it = lines.entry(line.clone()).or_default();
            (it.bytes, it.blocks) = (it.bytes.saturating_add(bytes), it.blocks + 1);
            add(it.parts.entry(part).or_default(), bytes);
            add(it.modules.entry(module.clone()).or_default(), bytes);
        }
    }
    found.lines = lines.into_iter().filter_map(|(line, it)| it.share(line)).collect();
    found.lines.sort_by_key(|it| Reverse(it.bytes));
    found.lines.truncate(LINES_MAX);
    found
}

/// The version of the JSON object.
const SCHEMA: u32 = 1;

/// Returns a moment of the process with this pid as JSON (schema 1, the one of `gpuwatch peak --json`).
pub fn json(pid: Option<u32>, PeakMoment { device, anatomy, cost, .. }: &PeakMoment) -> Value {
    let mut object = json!({
        "schema": SCHEMA,
        "pid": pid,
        "device": device,
        "step": anatomy.step,
        "phase": anatomy.phase.map(StepPhase::name),
        "cost": cost,
    });
    if let Value::Object(object) = &mut object {
        object.extend(bytes_json(anatomy));
    }
    object
}

/// Returns what is live as JSON: `allocated`, and the same by part, by phase and by line.
pub fn bytes_json(it: &Anatomy) -> Map<String, Value> {
    let part = |part: AnatomyPart| it.parts.get(&part).copied().unwrap_or(0).into();
    let parts = AnatomyPart::WORDS.map(|(of, _)| (of.name().to_owned(), part(of)));
    let line = |it: &LineShare| json!({"line": it.line, "bytes": it.bytes, "blocks": it.blocks, "part": it.part.name(), "module": it.module});
    let lines: Vec<Value> = it.lines.iter().map(line).collect();
    [
        ("allocated", it.allocated.into()),
        ("parts", Value::Object(parts.into_iter().collect())),
        ("phases", Value::Object(phases_json(&it.phases))),
        ("lines", lines.into()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

/// Returns bytes by phase as JSON, with 0 for each phase that has none.
fn phases_json(phases: &BTreeMap<StepPhase, u64>) -> Map<String, Value> {
    let bytes = |phase: StepPhase| phases.get(&phase).copied().unwrap_or(0).into();
    StepPhase::WORDS.map(|(phase, _)| (phase.name().to_owned(), bytes(phase))).into_iter().collect()
}

/// Most lines of the job that a sentence names.
const NAMED: usize = 2;

/// A smaller share, in percent, is not named.
const SHARE: u64 = 5;

/// Describes a moment in a sentence: its parts, largest first, and the lines with the most bytes.
pub fn sentence(it: &Anatomy) -> String {
    let share = |bytes: u64| bytes.saturating_mul(100) / it.allocated.max(1);
    let mut parts: Vec<(AnatomyPart, u64)> = it.parts.iter().map(|(part, bytes)| (*part, *bytes)).collect();
    parts.sort_by_key(|it| Reverse(it.1));
    parts.retain(|it| share(it.1) >= SHARE);
    let parts: Vec<String> = parts.iter().map(|(part, bytes)| format!("{} {} %", part.name(), share(*bytes))).collect();
    let of = it.step.map_or_else(|| "a part of a step".to_owned(), |step| format!("step {step}"));
    let parts = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
    let mut out = format!("the highest moment of {of} had {}{parts}", Bytes(it.allocated));
    for (at, line) in it.lines.iter().filter(|it| share(it.bytes) >= SHARE).take(NAMED).enumerate() {
        let module = line.module.as_ref().map_or_else(String::new, |it| format!(" of {}", short(it)));
        let before = if at == 0 { "; " } else { ", " };
        let (bytes, part, line) = (Bytes(line.bytes), line.part.name(), short(&line.line));
        // Writing into a String cannot fail.
        let _ = write!(out, "{before}{bytes} for {part}{module} at {line}");
    }
    out
}

/// Most characters of a line or a module in a sentence.
const SHORT: usize = 80;

/// Cuts a name to its limit.
fn short(text: &Foreign) -> String {
    text.raw().chars().take(SHORT).collect()
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
        let (line, module) = (Foreign::new(line), module.map(Foreign::new));
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

/// A moment is as high as any before it if it lacks at most a part in so many.
const NEARLY: u64 = 200;

/// Whether a moment is as high as the most that was allocated before.
fn is_as_high(moment: u64, before: u64) -> bool {
    moment.saturating_add(moment / NEARLY) >= before
}

/// Returns the step in which an event is that comes after the last end of a step.
fn unended_step(trace: &Trace, device: u32, event: usize, boundaries: &[(u64, u64)]) -> Option<u64> {
    let range = trace.devices.get(device as usize)?;
    let at = trace.events.get(range.start.checked_add(event)?)?.unix_us?;
    boundaries.last().filter(|it| it.0 < at).map(|it| it.1.saturating_add(1))
}

/// Returns what a block holds, by its address, bytes and stack. One from before the trace is older.
pub fn part(
    stacks: &Stacks,
    kept: &KeptAddresses,
    (address, bytes, stack): (u64, u64, StackId),
    is_older: bool,
) -> AnatomyPart {
    // Views of one storage have addresses of their own.
    let has_any = |of: &BTreeSet<u64>| of.range(address..address.saturating_add(bytes.max(1))).next().is_some();
    if has_any(&kept.weights) {
        return AnatomyPart::Weights;
    }
    if has_any(&kept.optimizer) {
        return AnatomyPart::Optimizer;
    }
    if has_any(&kept.buffers) || bytes == WORKSPACE {
        return AnatomyPart::Other;
    }
    // At the address of an activation there may have been a gradient of an earlier step.
    match (is_older, is_of_backward(stacks, stack)) {
        (true, _) | (_, true) if has_any(&kept.gradients) => AnatomyPart::Gradients,
        (true, _) => AnatomyPart::Other,
        (_, true) => AnatomyPart::Temporaries,
        _ if is_of_optimizer(stacks, stack) => AnatomyPart::Temporaries,
        _ => AnatomyPart::Activations,
    }
}

/// Returns the phase in which an event of a device's trace allocates.
fn phase_of_event(trace: &Trace, device: u32, event: usize) -> Option<StepPhase> {
    let range = trace.devices.get(device as usize)?;
    let it = trace.events.get(range.start.checked_add(event)?)?;
    (it.action == Action::Alloc).then(|| phase(&trace.stacks, it.stack, false))
}

/// Returns the path of the innermost module in whose function a stack is; `None` if that has no path of its own, as the
/// whole model.
pub fn module(stacks: &Stacks, stack: StackId, modules: &[(String, u32, String, String)]) -> Option<String> {
    stacks
        .frames(stack)
        .find_map(|frame| {
            let (file, name) = (stacks.texts.get(frame.file), stacks.texts.get(frame.name));
            let is_of = |it: &&(String, u32, String, String)| it.0 == file && it.2 == name && it.1 <= frame.line;
            modules.iter().filter(is_of).max_by_key(|it| it.1).map(|it| it.3.clone())
        })
        .filter(|path| !path.is_empty())
}

/// Returns a row for each part that has bytes.
pub fn part_rows(it: &Anatomy) -> String {
    AnatomyPart::WORDS.iter().filter_map(|(part, words)| Some(row(*it.parts.get(part)?, it.allocated, words))).collect()
}

/// Returns a row for each phase in which some of it was allocated.
pub fn phase_rows(it: &Anatomy) -> String {
    StepPhase::WORDS.iter().filter_map(|(of, words)| Some(row(*it.phases.get(of)?, it.allocated, words))).collect()
}

/// Returns `  11.32 GiB  61 %  words`, with its newline.
pub fn row(bytes: u64, of: u64, words: &str) -> String {
    format!("  {:>10}  {:>4}  {words}\n", Bytes(bytes).to_string(), percent(bytes, of))
}

fn percent(bytes: u64, of: u64) -> String {
    format!("{:.0} %", 100.0 * bytes as f64 / of.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::trace::{Event, Frame};

    pub(super) fn share(line: &str, bytes: u64, module: Option<&str>) -> LineShare {
        let (line, module) = (line.into(), module.map(Foreign::from));
        LineShare { line, bytes, blocks: 1, part: AnatomyPart::Activations, module }
    }

    #[test]
    fn a_sentence_has_the_large_parts_and_lines() {
        let parts =
            BTreeMap::from([(AnatomyPart::Weights, 200), (AnatomyPart::Activations, 780), (AnatomyPart::Other, 20)]);
        let lines =
            vec![share("net.py:31", 500, Some("layers.*")), share("train.py:9", 250, None), share("a.py:1", 30, None)];
        let it = Anatomy { step: Some(40), allocated: 1000, parts, lines, ..Anatomy::default() };
        let words = "the highest moment of step 40 had 1000 B: activations 78 %, weights 20 %; 500 B for activations of \
                     layers.* at net.py:31, 250 B for activations at train.py:9";
        assert_eq!(sentence(&it), words);
        assert!(sentence(&Anatomy { step: None, ..it }).starts_with("the highest moment of a part of a step had"));
        assert_eq!(sentence(&Anatomy::default()), "the highest moment of a part of a step had 0 B");
    }

    #[test]
    fn the_highest_moment_of_whole_steps_is_split_by_part_line_and_module() {
        let mut trace = Trace::default();
        let mut stack = |file: &str, name: &str, line: u32| {
            let [file, name] = [file, name].map(|it| trace.stacks.texts.id(it.as_bytes()));
            let frame = trace.stacks.frames.id(Frame { name, file, line });
            trace.stacks.id(&[frame])
        };
        let (own, inner) = (stack("/job/train.py", "main", 9), stack("/job/net.py", "forward", 31));
        let whole = stack("/job/net.py", "forward", 41);
        let (optim, none) = (stack("/venv/site-packages/torch/optim/adamw.py", "step", 7), StackId::default());
        let (alloc, free) = (Action::Alloc, Action::FreeCompleted);
        for (at, action, address, size, stack) in [
            // Before the first end of a step; higher than what follows.
            (5, alloc, 90, 99_000, own),
            (6, free, 90, 99_000, none),
            (11, alloc, 10, 1000, own),
            (12, alloc, 20, 4096, inner),
            (13, alloc, 30, 600, none),
            (13, alloc, 35, 512, whole),
            (14, alloc, 40, 512, none),
            (15, alloc, 50, 512, optim),
            (16, free, 20, 4096, none),
            // Blocks from before the trace.
            (17, free, 60, 2048, none),
            (18, free, 70, 1024, none),
        ] {
            let event = Event { action, address: Some(address << 20), size: Some(size), stack, ..Event::default() };
            trace.events.push(&Event { unix_us: Some(at), ..event });
        }
        trace.devices.push(0..11);
        let kept = KeptBlocks {
            addresses: KeptAddresses {
                weights: BTreeSet::from([70 << 20]),
                gradients: BTreeSet::from([10 << 20, 30 << 20]),
                ..KeptAddresses::default()
            },
            boundaries: &[(10, 4), (20, 5)],
            highest: None,
            modules: &[
                ("/job/net.py".to_owned(), 30, "forward".to_owned(), "layers.*".to_owned()),
                ("/job/net.py".to_owned(), 40, "forward".to_owned(), String::new()),
            ],
        };
        let found = anatomy(&trace, 0, &kept).unwrap();
        let expected = [
            (AnatomyPart::Weights, 1024),
            (AnatomyPart::Gradients, 1024),
            (AnatomyPart::Activations, 5632),
            (AnatomyPart::Temporaries, 1024),
            (AnatomyPart::Other, 2048),
        ];
        assert_eq!(found.parts.into_iter().collect::<Vec<_>>(), expected);
        assert_eq!((found.step, found.allocated, found.phase), (Some(5), 10752, Some(StepPhase::Optimizer)));
        let phases = [
            (StepPhase::Before, 3072),
            (StepPhase::Loss, 5632),
            (StepPhase::Backward, 1536),
            (StepPhase::Optimizer, 512),
        ];
        assert_eq!(found.phases.into_iter().collect::<Vec<_>>(), phases);
        let lines = [("net.py:31", 4096, Some("layers.*")), ("train.py:9", 1024, None), ("net.py:41", 512, None)];
        assert_eq!(found.lines, lines.map(|(line, bytes, module)| share(line, bytes, module)));
        // A step that did not end in the trace: a later moment of it may be higher, unless none ever was.
        let began = KeptBlocks { boundaries: &[(4, 4)], ..kept.clone() };
        let step = |highest| anatomy(&trace, 0, &KeptBlocks { highest, ..began.clone() }).unwrap().step;
        assert_eq!([None, Some(110_000), Some(99_000)].map(step), [None, None, Some(5)]);
        let without = KeptBlocks { boundaries: &[(100, 4)], ..kept };
        assert_eq!(anatomy(&trace, 0, &without).map(|it| it.step), Some(None), "no whole step");
        assert_eq!(anatomy(&trace, 3, &without), None);
    }

    #[test]
    fn there_is_no_more_than_one_gradient_for_each_weight() {
        use AnatomyPart::{Gradients, Other, Temporaries, Weights};
        let limited = |weights: &[u64], gradients: &[u64]| {
            let of = |part, phase| move |bytes: &u64| Held { bytes: *bytes, stack: StackId::default(), part, phase };
            let weights = weights.iter().map(of(Weights, StepPhase::Before));
            let mut held: Vec<Held> = weights.chain(gradients.iter().map(of(Gradients, StepPhase::Backward))).collect();
            limit_gradients(&mut held);
            held.iter().filter(|it| it.part != Weights).map(|it| it.part).collect::<Vec<_>>()
        };
        assert_eq!(limited(&[4096, 4096, 512], &[4096, 512, 4096]), [Gradients; 3]);
        // A third one of their size, and one with more bytes than are left.
        assert_eq!(limited(&[4096, 4096], &[4096, 4096, 4096, 9000]), [Gradients, Gradients, Temporaries, Temporaries]);
        // Buckets have several.
        assert_eq!(limited(&[4096, 4096, 4096], &[8192, 4096]), [Gradients, Gradients]);
        assert_eq!(limited(&[], &[4096]), [Gradients], "weights are not known");
        let mut older = [Weights, Gradients, Gradients].map(|part| Held {
            bytes: 512,
            stack: StackId::default(),
            part,
            phase: StepPhase::Before,
        });
        limit_gradients(&mut older);
        assert_eq!(older.map(|it| it.part), [Weights, Gradients, Other]);
    }
}
