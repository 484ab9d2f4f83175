//! `gpuwatch fit`: its flags, and the answer written, with what is done shown on a terminal meanwhile.

use crate::{
    facts::text::Foreign,
    jobs::fit::{self, Question, Vary},
    model::fit::Device,
    storage::output,
};
use anyhow::Result;
use std::{
    ffi::OsString,
    io::{self, IsTerminal, Write},
    path::PathBuf,
};

/// What its help ends with.
pub(super) const HELP: &str = "Examples:\n  gpuwatch fit --gpu \"RTX 4090\" -- python train.py --batch 16\n  gpuwatch fit --gpu 24GiB --vary \
     batch=8..64:8 -- python train.py --batch {batch}\n\nThe job runs for some optimizer steps with its own PyTorch on a \
     simulated GPU: its allocations are real, its numbers are not computed. What lies outside the allocator is estimated, so \
     the answer is an interval.\n\nWith several --gpu the job has to fit on each of them.";

/// What `gpuwatch fit` asks.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Asked {
    /// The GPU to fit on: a name, a size, or several alike as in 2xA100-80GB; may be given several times [default:
    /// every known card].
    #[arg(long = "gpu", value_name = "GPU", value_parser = Device::parse)]
    devices: Vec<Device>,
    /// Optimizer steps to run [default: 3, or more while the peak still rises].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    steps: Option<u32>,
    /// Find the largest value that fits: `batch=8,16,32` or `batch=8..64:8` stands for {batch} in the command, and for
    /// the variable `batch` of its environment.
    #[arg(long, value_name = "NAME=VALUES", value_parser = Vary::parse, requires = "devices")]
    vary: Option<Vary>,
    /// The file to record the job into, which must not exist yet; by default a new one among the recordings.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The job and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Asked {
    pub(super) fn question(self) -> Question {
        let Self { devices, steps, vary, output, command } = self;
        Question { devices, steps, vary, command, recording: output }
    }
}

pub(super) fn fit(question: &Question, json: bool) -> Result<u8> {
    let is_shown = io::stderr().is_terminal();
    let show = |words: &str| {
        if is_shown {
            // Without stderr there is no place left for a message.
            let _ = write!(io::stderr(), "\r\x1b[K{}", Foreign::new(words.to_owned()));
        }
    };
    let answer = fit::answer(question, |it| show(&format!("{it} …")));
    show("");
    let answer = answer?;
    output::print(&if json { answer.json() } else { answer.text() })?;
    Ok(answer.fits().code())
}
