//! Formats call stack frames, and selects those worth showing.

use super::{Frame, StackId, StackShare, Stacks};
use crate::facts::text::Foreign;
use hashbrown::HashMap;
use std::{cmp::Reverse, path::Path};

/// Shown for a stack without frames.
const NO_STACK: &str = "no stack recorded";

/// Shown for a stack of a thread of the backward pass, on which no Python runs.
const BACKWARD: &str = "backward pass (no Python frame)";

/// What the threads of the backward pass run, and what they call for each operation.
const ENGINE: &str = "torch::autograd::Engine::";
const NODE: &str = "torch::autograd::";
const APPLY: &str = "::apply(";

/// PyTorch's file name for native code without symbols, and a useless part of C++ names.
const NO_FILE: &str = "??";
const UNNAMED: &str = "(anonymous namespace)::";

/// Parts of the paths of files that are not the job's own: of libraries, of the probe, and of what is compiled.
const LIBRARIES: [&str; 5] = ["site-packages/", "dist-packages/", "/lib/python", "/gpuwatch_probe/", "/torchinductor_"];

/// Frames per line.
const SHOWN: usize = 3;

/// A line of a program's source.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize)]
pub struct SourceLine {
    /// The file's path.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The function.
    pub function: String,
}

impl SourceLine {
    /// Returns the line without its folder, as `train.py:40`.
    pub fn short(&self) -> String {
        let name = Path::new(&self.file).file_name().map_or(self.file.as_str().into(), |name| name.to_string_lossy());
        format!("{name}:{}", self.line)
    }
}

impl Stacks {
    /// Formats a stack as one line, innermost frame first: `train.py:40 step < train.py:80 main`, or why there is none.
    pub fn line(&self, id: StackId) -> String {
        let some = |which: &dyn Fn(&Frame) -> bool| self.frames(id).filter(which).take(SHOWN).collect::<Vec<_>>();
        let mut shown = some(&|frame| is_own(self, frame));
        if shown.is_empty() {
            shown = some(&|frame| is_python(self, frame));
        }
        if shown.is_empty() {
            if let Some(words) = self.backward(id) {
                return words;
            }
            shown = some(&|frame| !is_recorder(self, frame));
        }
        if shown.is_empty() {
            return NO_STACK.to_owned();
        }
        shown.iter().map(|frame| self.place(frame)).collect::<Vec<_>>().join(" < ")
    }

    /// Returns a stack's frames of Python, the innermost first: PyTorch may record native ones between and around them.
    pub fn python_frames(&self, id: StackId) -> impl DoubleEndedIterator<Item = Frame> {
        self.frames(id).filter(|it| is_python(self, it))
    }

    /// Whether a stack is a native one of the backward pass.
    pub fn is_backward(&self, id: StackId) -> bool {
        self.frames(id).any(|frame| self.texts.get(frame.name).starts_with(ENGINE))
    }

    /// Describes a native stack of the backward pass, with the operation if the stack has it.
    fn backward(&self, id: StackId) -> Option<String> {
        if !self.is_backward(id) {
            return None;
        }
        let names = || self.frames(id).map(|frame| self.texts.get(frame.name));
        let operation = names().find_map(|it| {
            let (node, _) = it.strip_prefix(NODE)?.split_once(APPLY)?;
            Some(Foreign::new(node.rsplit("::").next().unwrap_or(node)).to_string())
        });
        Some(operation.map_or_else(|| BACKWARD.to_owned(), |it| format!("{BACKWARD}, {it}")))
    }

    /// Returns shares with one for each line, the largest first: stacks that differ only in frames that a line does not
    /// show are one. Each has the stack of its largest part.
    pub fn merged(&self, shares: &[StackShare]) -> Vec<StackShare> {
        let mut places: HashMap<String, usize> = HashMap::new();
        let mut all: Vec<StackShare> = Vec::new();
        for it in shares {
            let place = *places.entry(self.line(it.stack)).or_insert(all.len());
            match all.get_mut(place) {
                Some(known) => {
                    known.bytes = known.bytes.saturating_add(it.bytes);
                    known.blocks = known.blocks.saturating_add(it.blocks);
                }
                None => all.push(*it),
            }
        }
        all.sort_by_key(|it| Reverse(it.bytes));
        all
    }

    /// Returns the innermost line of a stack that is in no library, as `train.py:40`.
    pub fn own_line(&self, id: StackId) -> Option<String> {
        self.own_lines(id).next().map(|it| it.short())
    }

    /// Returns the lines of a stack that are in no library, the innermost first.
    pub fn own_lines(&self, id: StackId) -> impl Iterator<Item = SourceLine> {
        let text = |id| self.texts.get(id).into_owned();
        let own = self.frames(id).filter(|frame| is_own(self, frame));
        own.map(move |it| SourceLine { file: text(it.file), line: it.line, function: text(it.name) })
    }

    /// Formats a frame as `train.py:40 step`, or as `at::empty` if its file is unknown.
    pub fn place(&self, frame: &Frame) -> String {
        let (file, name) = (self.texts.get(frame.file), self.texts.get(frame.name));
        if file == NO_FILE || file.is_empty() {
            // The arguments of C++ functions are types, and longer than the rest of the name.
            let bare = name.replace(UNNAMED, "").split('(').next().unwrap_or_default().to_owned();
            return Foreign::new(if bare.is_empty() { name.into_owned() } else { bare }).to_string();
        }
        let file = Path::new(&*file).file_name().map_or_else(|| file.clone(), |name| name.to_string_lossy());
        let place = if frame.line == 0 { format!("{file} {name}") } else { format!("{file}:{} {name}", frame.line) };
        Foreign::new(place).to_string()
    }

    /// Formats the frame with this number as [`Stacks::place`] does, or reports that there is no stack.
    pub fn label(&self, frame: Option<u32>) -> String {
        frame.and_then(|number| self.frames.get(number)).map_or_else(|| NO_STACK.to_owned(), |frame| self.place(&frame))
    }

    /// Returns a function that lists the frames of a stack that are worth showing, outermost first: Python frames if
    /// the stack has any, otherwise all frames outside the allocator.
    pub fn shown(&self) -> impl Fn(StackId) -> Vec<u32> {
        let each =
            |is: fn(&Self, &Frame) -> bool| self.frames.values().iter().map(|it| is(self, it)).collect::<Vec<_>>();
        let (python, recorder) = (each(is_python), each(is_recorder));
        let is = |of: &[bool], frame: u32| of.get(frame as usize) == Some(&true);
        move |stack| {
            let frames = self.numbers(stack);
            let has_python = frames.iter().any(|frame| is(&python, *frame));
            let is_shown = |frame: &u32| if has_python { is(&python, *frame) } else { !is(&recorder, *frame) };
            frames.iter().rev().copied().filter(is_shown).collect()
        }
    }

    /// Returns whose code the frame with this number is; `None` where there is no stack.
    pub fn origin(&self, frame: Option<u32>) -> Option<Origin> {
        let frame = self.frames.get(frame?)?;
        Some(match () {
            () if is_own(self, &frame) => Origin::Job,
            () if is_python(self, &frame) => Origin::Library,
            () => Origin::Native,
        })
    }

    /// Returns for each frame, by its number, whether its place or its file contains a text; ignores case.
    pub fn matches(&self, text: &str) -> Vec<bool> {
        let text = text.trim().to_lowercase();
        let has = |words: &str| words.to_lowercase().contains(&text);
        let found = |it: &Frame| has(&self.place(it)) || has(&self.texts.get(it.file));
        self.frames.values().iter().map(found).collect()
    }
}

/// Whose code a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The job's own Python.
    Job,
    /// Python of a library.
    Library,
    /// Native code.
    Native,
}

/// Whether a frame is Python code outside libraries.
fn is_own(stacks: &Stacks, it: &Frame) -> bool {
    let file = stacks.texts.get(it.file);
    is_python(stacks, it) && !LIBRARIES.iter().any(|it| file.contains(it)) && !is_generated(&file)
}

/// Whether a library has made a file for one of its modules, as `torch_geometric.nn.conv.gcn_conv_propagate.py`.
fn is_generated(file: &str) -> bool {
    Path::new(file).file_stem().is_some_and(|it| it.to_string_lossy().matches('.').count() > 1)
}

fn is_python(stacks: &Stacks, it: &Frame) -> bool {
    let file = stacks.texts.get(it.file);
    // A notebook's cell has a name such as `<ipython-input-3-…>`.
    Path::new(&*file).extension().is_some_and(|it| it == "py") || file.starts_with("<ipython")
}

/// Whether a frame belongs to the allocator or to the stack recorder, which are in every stack.
fn is_recorder(stacks: &Stacks, it: &Frame) -> bool {
    let name = stacks.texts.get(it.name);
    ["torch::unwind::", "torch::CapturedTraceback::", "torch::cuda::(anonymous namespace)::gather", "c10::cuda::"]
        .iter()
        .any(|it| name.starts_with(it))
}
