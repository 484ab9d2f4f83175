//! Errors of `gpuwatch whatif`, each a sentence with what to do.

use crate::{
    facts::text::Foreign,
    jobs::simulated,
    storage::{pickle::Fault, traces},
};
use std::{io, path::PathBuf};
use thiserror::Error;

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum Trouble {
    /// The source is a recording without traces.
    #[error("the recording holds no allocations: record the next run with `gpuwatch run --trace`")]
    Recording,
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] traces::Trouble),
    /// The snapshot cannot be read.
    #[error(transparent)]
    Snapshot(#[from] Fault),
    /// There is no Python on the path.
    #[error("there is no `python` on the path: name the job's with --torch PYTHON")]
    NoPython,
    /// A Python cannot be started.
    #[error("{}: {why}: name the job's Python with --torch PYTHON", Foreign::new(program.to_string_lossy()))]
    Unstarted {
        /// The Python.
        program: PathBuf,
        /// The reason.
        why: io::Error,
    },
    /// A Python has no PyTorch.
    #[error("{} has no PyTorch: name the job's Python with --torch PYTHON", Foreign::new(program.to_string_lossy()))]
    NoTorch {
        /// The Python.
        program: PathBuf,
    },
    /// No machine can be simulated.
    #[error(transparent)]
    Simulated(#[from] simulated::Trouble),
    /// PyTorch cannot be imported.
    #[error("PyTorch cannot be imported on the simulated GPU: {}", Foreign::new(.0.as_str()))]
    Unusable(String),
    /// PyTorch rejects settings that the user named.
    #[error("PyTorch refuses --set {}: {}", Foreign::new(settings.as_str()), Foreign::new(why.as_str()))]
    Refused {
        /// The settings.
        settings: String,
        /// PyTorch's words.
        why: String,
    },
    /// Another process ended a replay.
    #[error("the replay was interrupted ({}); run it again", Foreign::new(.0.as_str()))]
    Interrupted(String),
    /// A file cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
}
