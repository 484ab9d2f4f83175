//! The work of a stub as bytes in its library: preparation writes them, a call of the stub reads them.

use std::mem;

/// How many arguments are in registers.
#[cfg(target_arch = "x86_64")]
pub(crate) const REGISTERS: usize = 6;
/// How many arguments are in registers.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const REGISTERS: usize = 8;

/// How a stub answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It is reviewed: it takes its steps.
    Reviewed,
    /// Not reviewed: returns its library's documented error.
    Refused,
    /// The same, of the CUDA runtime: the error is also the thread's last one.
    RefusedRuntime,
    /// It is NVML's, and not supported.
    Unsupported,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Reviewed, Self::Refused, Self::RefusedRuntime, Self::Unsupported];

    pub(crate) fn of(number: u8) -> Self {
        Self::ALL.into_iter().find(|it| *it as u8 == number).unwrap_or(Self::Refused)
    }
}

/// The work of a step; `at`, `a` and `b` are arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Stands for a kernel on the stream of the handle, the first argument.
    Work,
    /// The same, on the stream `at`.
    WorkOn,
    /// Sets the handle's stream to `at`.
    Stream,
    /// Writes a new handle through `at`.
    Handle,
    /// Frees the handle `at`.
    Free,
    /// Writes the value through `at`, as `int`.
    Int,
    /// The same, as `size_t`.
    Size,
    /// Writes the product of `a` and `b` through `at`, as `int`.
    Elements,
    /// The same times 8, as `size_t`.
    Bytes,
    /// Writes so many zeroes through `at`.
    Zero,
    /// Writes a text's address through `at`.
    Text,
    /// Writes one heuristic result through `at`.
    Heuristic,
    /// Answers a text's address.
    AnswerText,
}

impl Verb {
    const ALL: [Self; 13] = [
        Self::Work,
        Self::WorkOn,
        Self::Stream,
        Self::Handle,
        Self::Free,
        Self::Int,
        Self::Size,
        Self::Elements,
        Self::Bytes,
        Self::Zero,
        Self::Text,
        Self::Heuristic,
        Self::AnswerText,
    ];

    pub(crate) fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|it| *it as u8 == number)
    }
}

/// A stub's beginning. Its steps follow, and then its name and its library's, each with a zero byte.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    /// The stub's answer.
    pub(crate) answer: i64,
    /// A `Kind`.
    pub(crate) kind: u8,
    /// How many steps it has.
    pub(crate) steps: u8,
    /// The offset of its name.
    pub(crate) name: u16,
    /// The offset of its library's name.
    pub(crate) library: u16,
    spare: u16,
}

/// One step.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// A `Verb`.
    pub(crate) verb: u8,
    pub(crate) at: u8,
    pub(crate) a: u8,
    pub(crate) b: u8,
    spare: u32,
    pub(crate) value: i64,
}

/// The bytes before the first step, and of each.
pub(crate) const SIZE: usize = mem::size_of::<Form>();

const _: () = assert!(SIZE == 16 && mem::size_of::<Step>() == SIZE);

impl Step {
    pub(crate) fn new(verb: Verb, at: usize, value: i64) -> Self {
        Self { verb: verb as u8, at: u8::try_from(at).unwrap_or(u8::MAX), a: 0, b: 0, spare: 0, value }
    }

    pub(crate) fn product(verb: Verb, at: usize, [a, b]: [usize; 2]) -> Self {
        let [a, b] = [a, b].map(|it| u8::try_from(it).unwrap_or(u8::MAX));
        Self { a, b, ..Self::new(verb, at, 0) }
    }
}

/// A stub as bytes.
pub(crate) fn bytes(kind: Kind, answer: i64, steps: &[Step], name: &str, library: &str) -> Vec<u8> {
    let short = |it: usize| u16::try_from(it).unwrap_or(u16::MAX);
    let after = SIZE * (1 + steps.len());
    let mut bytes = answer.to_ne_bytes().to_vec();
    bytes.extend([kind as u8, u8::try_from(steps.len()).unwrap_or(u8::MAX)]);
    for it in [short(after), short(after + name.len() + 1), 0] {
        bytes.extend(it.to_ne_bytes());
    }
    for it in steps {
        bytes.extend([it.verb, it.at, it.a, it.b, 0, 0, 0, 0]);
        bytes.extend(it.value.to_ne_bytes());
    }
    for it in [name, library] {
        bytes.extend(it.as_bytes());
        bytes.push(0);
    }
    bytes
}
