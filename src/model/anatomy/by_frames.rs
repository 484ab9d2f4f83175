//! What the blocks of a memory snapshot are, by their stacks and by how long they live.
//!
//! A snapshot has neither models nor optimizers. Its history shows where steps lie: backward ends where the thread that
//! calls modules allocates again, and an optimizer's step ends where anything else is allocated. What modules move to
//! the device or make for themselves are weights; what backward leaves are gradients, and what an optimizer's step
//! leaves is its state. What else these made is a temporary. What was made in forward or around it is an activation if
//! it lives until the next step at most, whose variables replace it. The rest is other memory: what is kept for longer,
//! what was there before the history without a stack, what may be of several kinds, and the workspaces of cuBLAS that
//! stay. Native frames show these; without such frames one is known by its bytes, where no weight has a gradient of as
//! many.

use super::{
    Held, LARGE_WORKSPACE, ROUND, WORKSPACE, collect,
    phase::{is_of_optimizer, phase},
};
use crate::{
    facts::event::anatomy::{Anatomy, AnatomyPart, StepPhase},
    model::trace::{Action, Block, BlockState, Frame, History, Life, StackId, Stacks, TextId, Trace, time},
};
use std::{collections::HashMap, ops::Range};

/// Where PyTorch's modules are.
const MODULES: &str = "torch/nn/modules/";

/// What a stack shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// It makes parameters.
    Weights,
    /// It makes what an optimizer keeps.
    State,
    /// It makes the gradients with which backward begins.
    Seed,
    /// It is of a phase of a step.
    Phase(StepPhase),
    /// It makes parameters or buffers, is of a thread that does not train, or has no frame.
    Unknown,
}

/// The steps of a device's history.
#[derive(Clone, Debug, Default)]
pub(in crate::model) struct Steps {
    /// What each stack shows, and the phase that it is of, by its number.
    sources: Vec<(Source, StepPhase)>,
    /// When modules were called.
    forward: Vec<u32>,
    /// When backward had ended, and when optimizers' steps had.
    backward_ends: Vec<u32>,
    optimizer_ends: Vec<u32>,
    /// Whether stacks have frames of native code.
    has_native: bool,
}

impl Steps {
    /// Finds the steps in a device's history.
    pub(in crate::model) fn new(trace: &Trace, device: u32) -> Self {
        let range = trace.devices.get(device as usize).cloned().unwrap_or_default();
        let (allocated, freed) = known_stacks(trace, range.clone());
        let training = training_root(&trace.stacks, &allocated);
        let has_native = ids(&trace.stacks).any(|it| trace.stacks.is_backward(it));
        let mut found = Self { sources: sources(&trace.stacks, training), has_native, ..Self::default() };
        let mut all: Vec<(u32, StackId, bool)> = allocated.into_iter().map(|it| (it.0, it.1, false)).collect();
        all.extend(freed.into_iter().map(|it| (it.0, it.1, true)));
        all.sort_unstable_by_key(|it| it.0);
        let (mut is_backward, mut is_step) = (false, false);
        for (time, stack, is_free) in all {
            let source = found.source(stack);
            let is_training = training.is_some() && root(&trace.stacks, stack) == training;
            if source == Source::Phase(StepPhase::Backward) {
                is_backward |= !is_free;
            } else if is_training && std::mem::take(&mut is_backward) {
                found.backward_ends.push(time);
            }
            if source == Source::Phase(StepPhase::Forward) && !is_free {
                found.forward.push(time);
            }
            let is_known = source != Source::Unknown || is_training;
            if is_step && is_known && !is_of_step(source) {
                found.optimizer_ends.push(time);
            }
            is_step = if is_known && (!is_free || !is_of_step(source)) { is_of_step(source) } else { is_step };
        }
        // A snapshot is written between steps, unless a request failed.
        let actions = trace.events.actions(range);
        let latest = actions.iter().rev().find(|it| matches!(it, Action::Alloc | Action::Oom));
        if latest != Some(&Action::Oom) {
            let end = time(actions.len());
            found.backward_ends.extend(is_backward.then_some(end));
            found.optimizer_ends.extend(is_step.then_some(end));
        }
        found
    }

    /// Returns what is live after an event, in bytes of blocks; `None` without such an event.
    pub(in crate::model) fn moment(&self, trace: &Trace, history: &History, event: usize) -> Option<Anatomy> {
        history.live(event)?;
        let lives = history.lives(event).map(|it| (it.bytes.next_multiple_of(ROUND), *it));
        Some(self.collect(trace, lives, time(event)))
    }

    /// Returns what is live on a device at the end.
    pub(in crate::model) fn end(&self, trace: &Trace, history: &History, device: u32) -> Anatomy {
        let lives: HashMap<u64, &Life> = history.last_lives().map(|it| (it.address, it)).collect();
        let blocks = trace.segments_on(device).flat_map(|it| trace.blocks_of(it));
        let live = blocks.filter(|it| it.state == BlockState::Live).map(|block| {
            let Block { address, stack, size: bytes, .. } = *block;
            let older = Life { address, stack, born: 0, died: u32::MAX, bytes };
            (bytes, lives.get(&address).map_or(older, |life| **life))
        });
        self.collect(trace, live, u32::MAX)
    }

    fn collect(&self, trace: &Trace, lives: impl Iterator<Item = (u64, Life)>, now: u32) -> Anatomy {
        let of = |it: &Life| self.sources.get(it.stack.0 as usize).map(|found| found.1);
        let mut lives: Vec<(u64, Life, AnatomyPart)> =
            lives.map(|(bytes, life)| (bytes, life, self.part(&life, now))).collect();
        self.take_workspaces(&trace.stacks, &mut lives);
        let held = lives.into_iter().map(|(bytes, life, part)| {
            let phase = of(&life).filter(|_| !life.is_older()).unwrap_or(StepPhase::Before);
            Held { bytes, stack: life.stack, part, phase }
        });
        collect(&trace.stacks, held, &[])
    }

    /// Calls a workspace what it is where it was taken for a gradient or an activation.
    fn take_workspaces(&self, stacks: &Stacks, lives: &mut [(u64, Life, AnatomyPart)]) {
        if self.has_native {
            let stays = |it: &Life, part: AnatomyPart| {
                part == AnatomyPart::Gradients || part == AnatomyPart::Activations && it.died == u32::MAX
            };
            let of_them = lives.iter_mut().filter(|it| stays(&it.1, it.2) && is_workspace(stacks, it.1.stack));
            of_them.for_each(|it| it.2 = AnatomyPart::Other);
            return;
        }
        let as_large = |it: &&mut (u64, Life, AnatomyPart)| it.0 == LARGE_WORKSPACE;
        let (gradients, others): (Vec<_>, Vec<_>) =
            lives.iter_mut().filter(as_large).partition(|it| it.2 == AnatomyPart::Gradients);
        // What is older than the history may be a weight.
        let may_be_weights = others.iter().filter(|it| it.2 == AnatomyPart::Weights || it.1.is_older()).count();
        if gradients.len() > may_be_weights
            && let Some(first) = gradients.into_iter().min_by_key(|it| it.1.born)
        {
            first.2 = AnatomyPart::Other;
        }
    }

    fn source(&self, stack: StackId) -> Source {
        self.sources.get(stack.0 as usize).map_or(Source::Unknown, |it| it.0)
    }

    /// Returns what a block holds, at a time when it is live.
    fn part(&self, it: &Life, now: u32) -> AnatomyPart {
        // A block without a stack that is older than the history may be anything.
        let is_unknown = it.is_older() && it.stack == StackId::default();
        if it.bytes == WORKSPACE || is_unknown {
            return AnatomyPart::Other;
        }
        match self.source(it.stack) {
            Source::Weights => AnatomyPart::Weights,
            Source::State => AnatomyPart::Optimizer,
            Source::Seed => AnatomyPart::Temporaries,
            Source::Phase(StepPhase::Backward) => left(it, &self.backward_ends, AnatomyPart::Gradients),
            Source::Phase(StepPhase::Optimizer) => left(it, &self.optimizer_ends, AnatomyPart::Optimizer),
            Source::Phase(phase) if self.is_of_a_step(it, phase, now) => AnatomyPart::Activations,
            Source::Phase(_) | Source::Unknown => AnatomyPart::Other,
        }
    }

    /// Whether a block that was made in forward or around it is used by a step, and not kept for longer.
    fn is_of_a_step(&self, it: &Life, phase: StepPhase, now: u32) -> bool {
        let ends = &self.backward_ends;
        let next = ends.partition_point(|end| *end <= it.born);
        let is_dead = it.died < u32::MAX;
        let is_short = match (ends.get(next), ends.get(next + 1)) {
            (_, Some(second)) => it.died <= *second,
            (first, None) => is_dead || first.is_none_or(|end| *end > now),
        };
        // Before modules are called, and after the last step, what is made around them is of no step.
        let begun = next.checked_sub(1).and_then(|at| ends.get(at)).copied().unwrap_or(0);
        let called = self.forward.get(self.forward.partition_point(|at| *at < begun));
        let until = if is_dead { it.died } else { it.born };
        is_short && (phase == StepPhase::Forward || called.is_some_and(|at| *at <= until))
    }
}

/// Returns the part of a block that what made it leaves behind when it ends, and otherwise whether it is a temporary.
fn left(it: &Life, ends: &[u32], part: AnatomyPart) -> AnatomyPart {
    match ends.get(ends.partition_point(|end| *end <= it.born)) {
        Some(end) if *end <= it.died => part,
        None if it.died == u32::MAX => AnatomyPart::Other,
        _ => AnatomyPart::Temporaries,
    }
}

fn is_of_step(it: Source) -> bool {
    matches!(it, Source::State | Source::Phase(StepPhase::Optimizer))
}

type Root = (TextId, TextId);

/// Returns the outermost function of a stack, which tells threads of Python apart.
fn root(stacks: &Stacks, id: StackId) -> Option<Root> {
    stacks.python_frames(id).next_back().map(|it| (it.file, it.name))
}

/// Returns the outermost function of the thread that calls modules; `None` where no module was called.
fn training_root(stacks: &Stacks, allocated: &[(u32, StackId)]) -> Option<Root> {
    let is_forward = |it: &&(u32, StackId)| phase(stacks, it.1, false) == StepPhase::Forward;
    root(stacks, allocated.iter().find(is_forward)?.1)
}

type Stacked = Vec<(u32, StackId)>;

/// Returns the times of requests and of frees with what made them; of frees, only where PyTorch recorded that, instead
/// of what had requested the block.
fn known_stacks(trace: &Trace, range: Range<usize>) -> (Stacked, Stacked) {
    let (mut allocated, mut freed, mut at) = (Stacked::new(), Stacked::new(), HashMap::new());
    let mut is_own = false;
    for (time, event) in (0..).map(time).zip(trace.events.range(range)) {
        match event.action {
            Action::Alloc => {
                at.insert(event.address, event.stack);
                allocated.push((time, event.stack));
            }
            Action::FreeRequested => {
                is_own |= at.remove(&event.address).is_some_and(|it| it != event.stack);
                freed.push((time, event.stack));
            }
            _ => {}
        }
    }
    (allocated, if is_own { freed } else { Stacked::new() })
}

/// Returns the numbers of all stacks.
fn ids(stacks: &Stacks) -> impl Iterator<Item = StackId> {
    (0..stacks.count()).map(|it| StackId(u32::try_from(it).unwrap_or(u32::MAX)))
}

/// Whether a stack's native frames make a workspace.
fn is_workspace(stacks: &Stacks, id: StackId) -> bool {
    let name = |it: Frame| stacks.texts.get(it.name);
    stacks.frames(id).any(|it| ["BlasWorkspace", "BlasHandle"].iter().any(|part| name(it).contains(part)))
}

/// Returns what each stack shows, and its phase, in the order of their numbers.
fn sources(stacks: &Stacks, training: Option<Root>) -> Vec<(Source, StepPhase)> {
    let ids = || ids(stacks);
    // The lines at which modules move parameters, gradients and buffers come in this order.
    let is_base = |it: Frame| stacks.texts.get(it.file).ends_with("torch/nn/modules/module.py");
    let moving = |id| innermost(stacks, id, MODULES).filter(|it| is_base(*it) && is_named(stacks, *it, "_apply"));
    let parameters = ids().filter_map(moving).map(|it| it.line).min();
    // Where native frames are recorded, no stack of backward is empty.
    let has_native = ids().any(|it| stacks.is_backward(it));
    let source = |id: StackId, phase: StepPhase| {
        let is_thread = root(stacks, id).is_some_and(|it| stacks.texts.get(it.1).ends_with("_bootstrap"));
        match moving(id) {
            Some(it) if Some(it.line) == parameters => return Source::Weights,
            Some(_) => return Source::Unknown,
            None if id == StackId::default() && (has_native || training.is_none()) => return Source::Unknown,
            None => {}
        }
        if stacks.python_frames(id).any(|it| is_named(stacks, it, "_make_grads")) {
            Source::Seed
        } else if makes_parameters(stacks, id) {
            Source::Weights
        } else if phase == StepPhase::Optimizer && makes_state(stacks, id) {
            Source::State
        } else if phase != StepPhase::Loss || root(stacks, id) == training {
            Source::Phase(phase)
        } else if is_thread || training.is_none() {
            Source::Unknown
        } else {
            // The job's own hooks, which PyTorch's threads call.
            Source::Phase(StepPhase::Backward)
        }
    };
    ids().map(|it| (it, phase(stacks, it, false))).map(|(it, phase)| (source(it, phase), phase)).collect()
}

/// Returns the innermost frame of a stack in a file with this in its path, without the functions within functions that
/// it calls there.
fn innermost(stacks: &Stacks, id: StackId, file: &str) -> Option<Frame> {
    let is_inner = |it: Frame| ["convert", "<lambda>"].iter().any(|name| is_named(stacks, it, name));
    stacks.python_frames(id).find(|it| stacks.texts.get(it.file).contains(file) && !is_inner(*it))
}

fn is_named(stacks: &Stacks, frame: Frame, name: &str) -> bool {
    stacks.texts.get(frame.name).ends_with(name)
}

/// Whether a module makes its own parameters: a module of PyTorch in its `__init__` (those that normalise by batch have
/// buffers as well), a recurrent one that makes them one block, or a sharded one.
fn makes_parameters(stacks: &Stacks, id: StackId) -> bool {
    let is = |file, name| innermost(stacks, id, file).is_some_and(|it| is_named(stacks, it, name));
    is(MODULES, "__init__") && !stacks.python_frames(id).any(|it| stacks.texts.get(it.file).ends_with("batchnorm.py"))
        || is(MODULES, "flatten_parameters")
        || is("_fully_shard/_fsdp_param.py", "_init_sharded_param")
}

/// Whether an optimizer makes what it keeps, and nothing else.
fn makes_state(stacks: &Stacks, id: StackId) -> bool {
    let mut frames = stacks.python_frames(id).filter(|it| stacks.texts.get(it.file).contains("torch/optim/"));
    is_of_optimizer(stacks, id)
        && frames.any(|it| ["_init_group", "load_state_dict"].iter().any(|name| is_named(stacks, it, name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::trace::Event;
    use std::collections::BTreeMap;

    const TRAIN: &str = "/j/train.py:<module>";
    const CALL: &str = "/v/torch/nn/modules/module.py:_call_impl";
    const STEP: &str = "/v/torch/optim/sgd.py:step";

    /// An event of a block of 512 B, with its frames, the outermost first.
    type Given<'a> = (Action, u64, &'a [&'a str]);

    fn trace(events: &[Given<'_>]) -> Trace {
        let mut trace = Trace::default();
        for (action, address, frames) in events {
            let frames: Vec<u32> = frames.iter().rev().map(|it| frame(&mut trace, it)).collect();
            let stack = trace.stacks.id(&frames);
            let (action, address, size) = (*action, Some(*address), Some(512));
            trace.events.push(&Event { action, address, size, stack, ..Event::default() });
        }
        trace.devices.push(0..events.len());
        trace
    }

    /// The number of a frame `file:function`, or `file:function@line`.
    fn frame(trace: &mut Trace, it: &str) -> u32 {
        let (file, rest) = it.split_once(':').unwrap();
        let (name, line) = rest.split_once('@').unwrap_or((rest, "1"));
        let [file, name] = [file, name].map(|it| trace.stacks.texts.id(it.as_bytes()));
        trace.stacks.frames.id(Frame { file, name, line: line.parse().unwrap() })
    }

    /// The parts after the last event, in blocks.
    fn parts(events: &[Given<'_>]) -> Vec<(AnatomyPart, u64)> {
        let trace = trace(events);
        let found = Steps::new(&trace, 0).moment(&trace, &trace.history(0), events.len() - 1).unwrap();
        found.parts.into_iter().map(|it| (it.0, it.1 / 512)).collect()
    }

    use Action::{Alloc, FreeRequested, Oom};
    use AnatomyPart::{Activations, Gradients, Optimizer, Other, Temporaries, Weights};

    const APPLY: &str = "/v/torch/nn/modules/module.py:_apply";

    /// A model with a buffer, and the beginning of a step.
    fn begun() -> Vec<Given<'static>> {
        vec![
            (Alloc, 1, &[TRAIN, "/v/torch/nn/modules/module.py:_apply@20", "/v/torch/nn/modules/module.py:<lambda>"]),
            (Alloc, 2, &[TRAIN, "/v/torch/nn/modules/module.py:_apply@90", "/v/torch/nn/modules/module.py:<lambda>"]),
            (Alloc, 3, &[TRAIN]),
            (Alloc, 4, &[TRAIN, CALL, "/j/net.py:forward"]),
            (Alloc, 5, &[TRAIN]),
            (Alloc, 6, &[TRAIN, "/v/torch/autograd/__init__.py:_make_grads"]),
            (Alloc, 7, &[]),
        ]
    }

    #[test]
    fn where_a_request_of_backward_fails_gradients_are_not_known_from_temporaries() {
        let mut events = begun();
        let of_step = [(Weights, 1), (Gradients, 1), (Activations, 2), (Temporaries, 1), (Other, 2)];
        assert_eq!(parts(&events), of_step, "the input may be kept");
        events.push((Oom, 0, &[]));
        let at_error = [(Weights, 1), (Activations, 2), (Temporaries, 1), (Other, 3)];
        assert_eq!(parts(&events), at_error);
        // The stacks of the frees show that backward is over.
        events.extend([(FreeRequested, 4, &[TRAIN][..]), (Oom, 0, &[])]);
        assert_eq!(parts(&events), [(Weights, 1), (Gradients, 1), (Temporaries, 1), (Other, 3)]);
    }

    #[test]
    fn what_outlives_the_next_step_is_no_activation() {
        let mut events = begun();
        events.extend([
            (Alloc, 8, &[TRAIN, STEP, "/v/torch/optim/sgd.py:_init_group"][..]),
            (Alloc, 9, &[TRAIN, STEP]),
            (Alloc, 10, &[TRAIN, "/v/torch/optim/swa_utils.py:__init__"]),
            (Alloc, 11, &[TRAIN, CALL]),
            (Alloc, 12, &[]),
            (Alloc, 13, &[TRAIN]),
            (Alloc, 14, &["/v/threading.py:_bootstrap", "/j/load.py:run"]),
        ]);
        // Two blocks of backward; what the optimizer left; the average, the thread's and all before are kept.
        assert_eq!(parts(&events), [(Weights, 1), (Gradients, 2), (Optimizer, 2), (Temporaries, 1), (Other, 8)]);
    }

    #[test]
    fn without_stacks_nothing_is_known() {
        let events: Vec<Given<'_>> = begun().into_iter().map(|it| (it.0, it.1, &[][..])).collect();
        assert_eq!(parts(&events), [(Other, 7)]);
        // Where native frames are recorded, a block without any is not of backward.
        let mut events = begun();
        events.push((Alloc, 8, &["libtorch.so:torch::autograd::Engine::thread_main()"]));
        assert_eq!(parts(&events), [(Weights, 1), (Gradients, 1), (Activations, 2), (Temporaries, 1), (Other, 3)]);
        // A module that was moved by another function than those of PyTorch.
        assert_eq!(parts(&[(Alloc, 1, &[TRAIN, APPLY, "/j/move.py:<lambda>"])]), [(Weights, 1)]);
    }

    /// Weights of so many bytes, blocks that backward leaves, and two steps; what the blocks of these bytes are.
    fn of_large(weights: u64, stacks: &[&[&str]]) -> BTreeMap<AnatomyPart, u64> {
        let mut events: Vec<Given<'_>> = (0..weights).map(|it| (Alloc, 100 + it, &[TRAIN, APPLY][..])).collect();
        events.push((Alloc, 1, &[TRAIN, CALL]));
        events.extend((200..).zip(stacks).map(|(at, it)| (Alloc, at, *it)));
        events.push((Alloc, 2, &[TRAIN, STEP]));
        let mut trace = trace(&[]);
        trace.devices.clear();
        for (action, address, frames) in &events {
            let frames: Vec<u32> = frames.iter().rev().map(|it| frame(&mut trace, it)).collect();
            let (stack, size) = (trace.stacks.id(&frames), if *address < 100 { 512 } else { LARGE_WORKSPACE });
            let (action, address, size) = (*action, Some(*address << 30), Some(size));
            trace.events.push(&Event { action, address, size, stack, ..Event::default() });
        }
        trace.devices.push(0..events.len());
        let found = Steps::new(&trace, 0).moment(&trace, &trace.history(0), events.len() - 1).unwrap();
        found.parts.into_iter().map(|it| (it.0, it.1 / LARGE_WORKSPACE)).filter(|it| it.1 > 0).collect()
    }

    #[test]
    fn a_workspace_as_large_as_a_tensor_is_no_gradient() {
        const ENGINE: &str = "libtorch.so:torch::autograd::Engine::thread_main()";
        let (workspace, tensor) = ([ENGINE, "lib.so:at::cuda::allocateCUDABlasWorkspace(unsigned long)"], [ENGINE]);
        let of = |weights, stacks: &[&[&str]]| of_large(weights, stacks).into_iter().collect::<Vec<_>>();
        assert_eq!(of(0, &[&[]]), [(Other, 1)]);
        assert_eq!(of(1, &[&[], &[]]), [(Weights, 1), (Gradients, 1), (Other, 1)]);
        assert_eq!(of(2, &[&[], &[]]), [(Weights, 2), (Gradients, 2)], "each weight has a gradient");
        // Native frames tell what made it.
        assert_eq!(of(2, &[&workspace, &tensor]), [(Weights, 2), (Gradients, 1), (Other, 1)]);
        assert_eq!(of(0, &[&tensor]), [(Gradients, 1)]);
    }
}
