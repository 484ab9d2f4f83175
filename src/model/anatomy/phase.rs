//! When in a step a block was made, by its stack.

use crate::{
    facts::event::anatomy::StepPhase,
    model::trace::{Frame, StackId, Stacks, TextId},
};

/// Returns when a block was made. One from before the trace is older.
pub(super) fn phase(stacks: &Stacks, stack: StackId, is_older: bool) -> StepPhase {
    if is_older {
        StepPhase::Before
    } else if is_of_backward(stacks, stack) {
        StepPhase::Backward
    } else if is_of_optimizer(stacks, stack) {
        StepPhase::Optimizer
    } else if has_call(stacks, stacks.python_frames(stack)) && !is_in(stacks, stack, "torch/nn/modules/loss.py") {
        StepPhase::Forward
    } else {
        StepPhase::Loss
    }
}

/// Whether PyTorch's own threads were at work, which run backward and have no Python frames but those of the probe's
/// operations and of functions' `backward`, or backward was begun by Python.
pub(super) fn is_of_backward(stacks: &Stacks, stack: StackId) -> bool {
    let text = |id: TextId| stacks.texts.get(id);
    let is_operation = |file: &str| file.contains("/gpuwatch_probe/") || file.ends_with("torch/_ops.py");
    let (python, all) = (stacks.python_frames(stack).count(), stacks.numbers(stack).len());
    if python == all && stacks.python_frames(stack).all(|it| is_operation(&text(it.file))) {
        return true;
    }
    // Python's own frames show what it does on such a thread: it computes again, or a hook takes a step.
    if python == 0 && stacks.is_backward(stack) {
        return true;
    }
    // In forward, a function of the job is applied by what the job calls, which is further out.
    let outermost = stacks.python_frames(stack).next_back();
    outermost.is_some_and(|it| text(it.file).ends_with("torch/autograd/function.py"))
        || stacks.python_frames(stack).any(|it| {
            let (file, name) = (text(it.file), text(it.name));
            file.ends_with("torch/autograd/__init__.py")
                || file.ends_with("torch/autograd/graph.py") && name.ends_with("_engine_run_backward")
        })
}

/// Whether an optimizer made a block for itself, and not for what it calls: a closure runs forward within its step, and
/// an averaged model is called in a file of the optimizers.
pub(super) fn is_of_optimizer(stacks: &Stacks, stack: StackId) -> bool {
    let text = |id: TextId| stacks.texts.get(id);
    let frames: Vec<Frame> = stacks.python_frames(stack).collect();
    let Some(at) = frames.iter().position(|it| is_optimizers(&text(it.file))) else { return false };
    let (within, around) = (&frames[..at], &frames[at + 1..]);
    if has_call(stacks, within.iter().copied()) {
        return false;
    }
    // PyTorch's base class and its schedulers call the step of an optimizer from elsewhere, whose file is no closure's.
    let file = text(frames[at].file);
    let library = file.split_once("torch/optim/").map_or("", |it| it.0);
    let is_own = |frame: &&Frame| text(frame.file).strip_prefix(library).is_some_and(|rest| rest.starts_with("torch/"));
    let is_base = ["torch/optim/optimizer.py", "torch/optim/lr_scheduler.py"].iter().any(|it| file.ends_with(it));
    let elsewhere = within.iter().rev().find(|it| !is_own(it)).filter(|_| is_base).map(|it| it.file);
    // A closure is in a file from which the step is called.
    let is_closure = |it: &Frame| Some(it.file) != elsewhere && around.iter().any(|outer| outer.file == it.file);
    !within.iter().filter(|it| !is_own(it)).any(is_closure)
}

/// Whether a file is of PyTorch's optimizers; averaged models are beside them.
fn is_optimizers(file: &str) -> bool {
    file.contains("torch/optim/") && !file.ends_with("swa_utils.py")
}

/// Whether a stack has a frame of a file with this in its path.
fn is_in(stacks: &Stacks, stack: StackId, part: &str) -> bool {
    stacks.python_frames(stack).any(|it| stacks.texts.get(it.file).contains(part))
}

/// Whether a module was called: other functions of its class move it to a device, or clear its gradients.
fn has_call(stacks: &Stacks, mut frames: impl Iterator<Item = Frame>) -> bool {
    let text = |id| stacks.texts.get(id);
    frames.any(|it| text(it.name).contains("_call_impl") && text(it.file).contains("torch/nn/modules/module.py"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The phase of a stack of `file:function` frames, the outermost first.
    fn of(frames: &[&str]) -> StepPhase {
        let mut stacks = Stacks::default();
        let mut ids: Vec<u32> = Vec::new();
        for it in frames.iter().rev() {
            let (file, name) = it.split_once(':').unwrap();
            let [file, name] = [file, name].map(|it| stacks.texts.id(it.as_bytes()));
            ids.push(stacks.frames.id(Frame { name, file, line: 1 }));
        }
        let id = stacks.id(&ids);
        phase(&stacks, id, false)
    }

    const CALL: &str = "/v/torch/nn/modules/module.py:_call_impl";
    const BASE: &str = "/v/torch/optim/optimizer.py:profile_hook_step";
    const STEP: &str = "/v/torch/optim/sgd.py:step";

    #[test]
    fn what_an_optimizer_calls_is_not_its_own() {
        for (frames, expected) in [
            (&["/j/train.py:main", BASE, STEP, "/v/torch/optim/sgd.py:sgd"][..], StepPhase::Optimizer),
            (&["/j/train.py:main", BASE, STEP, "/v/torch/utils/_foreach_utils.py:group"], StepPhase::Optimizer),
            (
                &["bin:_start", "/j/train.py:main", "so:eval", BASE, "so:eval", STEP, "so:at::zeros"],
                StepPhase::Optimizer,
            ),
            // A closure that calls a module, and one that does not.
            (&["/j/train.py:main", BASE, STEP, "/j/train.py:closure", CALL], StepPhase::Forward),
            (&["/j/train.py:main", BASE, STEP, "/j/train.py:loss_of"], StepPhase::Loss),
            (&["/j/train.py:main", "/f/loop.py:run", BASE, STEP, "/f/loop.py:closure", "/j/net.py:f"], StepPhase::Loss),
            // An optimizer of another library, and of the job itself, with helpers and with a closure.
            (&["/j/train.py:main", BASE, "/b/lion.py:step", "/b/functional.py:update"], StepPhase::Optimizer),
            (&["/j/train.py:main", BASE, "/b/lion.py:step", "/j/train.py:closure"], StepPhase::Loss),
            (&["/j/train.py:main", BASE, "/j/train.py:step", "/j/train.py:update"], StepPhase::Optimizer),
            (&["/j/train.py:main", BASE, "/j/train.py:step", "/j/train.py:closure", CALL], StepPhase::Forward),
            // A compiled step runs a file that nobody wrote.
            (&["/j/train.py:main", BASE, STEP, "/tmp/inductor/ab/cab.py:call"], StepPhase::Optimizer),
            (
                &["/j/train.py:main", CALL, "/v/torch/optim/swa_utils.py:forward", CALL, "/j/net.py:f"],
                StepPhase::Forward,
            ),
            (&["/j/train.py:main", "/v/torch/optim/swa_utils.py:__init__", "/p/copy.py:deepcopy"], StepPhase::Loss),
        ] {
            assert_eq!(of(frames), expected, "{frames:?}");
        }
    }

    #[test]
    fn a_function_of_the_job_is_applied_in_forward_and_in_backward() {
        for (frames, expected) in [
            (
                &["/j/train.py:main", CALL, "/v/torch/autograd/function.py:apply", "/j/ops.py:forward"][..],
                StepPhase::Forward,
            ),
            (&["/v/torch/autograd/function.py:apply", "/j/ops.py:backward"], StepPhase::Backward),
            (
                &["/j/train.py:main", "/v/torch/_tensor.py:backward", "/v/torch/autograd/__init__.py:backward"],
                StepPhase::Backward,
            ),
            (&["/j/train.py:main", "/v/torch/autograd/graph.py:_engine_run_backward"], StepPhase::Backward),
            (&["/j/train.py:main", CALL, "/v/torch/autograd/graph.py:pack_to_cpu"], StepPhase::Forward),
            (&[], StepPhase::Backward),
            // With native frames: of a thread of PyTorch, of another one, and forward that is computed again.
            (
                &["libc.so:clone", "lib.so:torch::autograd::Engine::thread_main()", "lib.so:at::mm()"],
                StepPhase::Backward,
            ),
            (&["libc.so:clone", "lib.so:ncclCommInit"], StepPhase::Loss),
            (
                &["lib.so:torch::autograd::Engine::thread_main()", "/v/torch/utils/checkpoint.py:unpack_hook", CALL],
                StepPhase::Forward,
            ),
        ] {
            assert_eq!(of(frames), expected, "{frames:?}");
        }
    }
}
