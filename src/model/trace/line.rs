//! A call stack in a line: the user's own frames, the innermost first.

use super::{Frame, StackId, Stacks};
use crate::facts::text::Foreign;
use std::path::Path;

/// Frames that a line shows.
const SHOWN: usize = 3;

/// Returns a stack in a line: `train.py:40 step < train.py:80 main`, or what is known instead.
pub fn line(stacks: &Stacks, id: StackId) -> String {
    let some = |which: &dyn Fn(&Frame) -> bool| stacks.frames(id).filter(which).take(SHOWN).collect::<Vec<_>>();
    let choices =
        [some(&|it| is_own(stacks, it)), some(&|it| is_python(stacks, it)), some(&|it| !is_recorder(stacks, it))];
    let Some(shown) = choices.into_iter().find(|it| !it.is_empty()) else {
        return "no stack recorded".to_owned();
    };
    shown.iter().map(|it| place(stacks, it)).collect::<Vec<_>>().join(" < ")
}

fn place(stacks: &Stacks, it: &Frame) -> String {
    let (file, name) = (stacks.texts.get(it.file), stacks.texts.get(it.name));
    let file = Path::new(&*file).file_name().map_or_else(|| file.clone(), |it| it.to_string_lossy());
    Foreign::new(format!("{file}:{} {name}", it.line)).to_string()
}

/// Whether a frame is in Python, and in no library.
fn is_own(stacks: &Stacks, it: &Frame) -> bool {
    let file = stacks.texts.get(it.file);
    is_python(stacks, it) && !["site-packages/", "dist-packages/", "/lib/python"].iter().any(|it| file.contains(it))
}

fn is_python(stacks: &Stacks, it: &Frame) -> bool {
    let file = stacks.texts.get(it.file);
    // A notebook's cell has a name such as `<ipython-input-3-…>`.
    Path::new(&*file).extension().is_some_and(|it| it == "py") || file.starts_with("<ipython")
}

/// Whether a frame is of the allocator or of what records stacks for it: those are in every stack.
fn is_recorder(stacks: &Stacks, it: &Frame) -> bool {
    let name = stacks.texts.get(it.name);
    ["torch::unwind::", "torch::CapturedTraceback::", "torch::cuda::(anonymous namespace)::gather", "c10::cuda::"]
        .iter()
        .any(|it| name.starts_with(it))
}
