//! Errors of `gpuwatch fit`, each a sentence with what to do.

use crate::{
    facts::{event::ending, text::Foreign, units::Bytes},
    jobs::simulated,
};
use std::io;
use thiserror::Error;

/// An error of `gpuwatch fit`.
#[derive(Debug, Error)]
pub enum Trouble {
    /// No Python of the command has PyTorch.
    #[error(
        "{}; activate the environment that has it, or name its Python, as in gpuwatch fit -- .venv/bin/python train.py",
        Foreign::new(.0.as_str())
    )]
    NoTorch(String),
    /// No machine can be simulated.
    #[error(transparent)]
    Simulated(#[from] simulated::Trouble),
    /// A GPU cannot be measured.
    #[error("cannot measure a GPU: {}", Foreign::new(.0.as_str()))]
    Unmeasured(String),
    /// Each value of what is varied needs the same, and the command has no place for it.
    #[error(
        "{0} changes nothing: the job wants {1} with each of {2} values; write {{{0}}} in the command where the value \
         belongs"
    )]
    Unvaried(String, Bytes, usize),
    /// The command has a place for another name than the one that is varied.
    #[error("the command has {{{1}}}, and --vary names {0}: give both the same name")]
    OtherPlace(String, String),
    /// The job was interrupted.
    #[error("the job was {}", ending(None, Some(*.0)).unwrap_or_default())]
    Interrupted(i32),
    /// A file cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
}
