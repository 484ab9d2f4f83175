//! `gpuwatch whatif`: its flags and its output, with a counter of replays on a terminal.

use crate::{
    facts::text::Foreign,
    jobs::whatif::{self, Question},
    storage::{output, replay::find},
};
use anyhow::{Context, Result};
use std::{
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
};

/// What `gpuwatch whatif` asks.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Asked {
    /// What `torch.cuda.memory._dump_snapshot` wrote, plain or packed by gzip or zstd; or a recording of `gpuwatch run
    /// --trace`, by path or by name.
    #[arg(value_name = "SOURCE")]
    source: PathBuf,
    /// The memory of the device on which the run should fit [default: the recorded device's, where the trace shows it].
    #[arg(long, value_name = "SIZE", value_parser = crate::facts::units::parse_bytes)]
    gpu: Option<u64>,
    /// Try these allocator settings, as in `PYTORCH_CUDA_ALLOC_CONF`; may be given several times [default: the recorded
    /// ones, and some that are worth trying].
    #[arg(long = "set", value_name = "SETTINGS")]
    settings: Vec<String>,
    /// The Python with the job's PyTorch [default: that of the traced job, or the first on the path].
    #[arg(long = "torch", value_name = "PYTHON")]
    python: Option<PathBuf>,
}

impl Asked {
    /// Returns the question; a source that is not a path may be the name of a recording in the store.
    pub(super) fn question(self, store: Option<&Path>) -> Question {
        let Self { source, gpu, settings, python } = self;
        let stored = store.filter(|_| !source.exists()).and_then(|it| find::stored(it, &source));
        let source = stored.unwrap_or(source);
        Question { source, gpu, settings, python }
    }
}

pub(super) fn whatif(question: &Question, json: bool) -> Result<u8> {
    let name = Foreign::new(question.source.to_string_lossy());
    let mut counter = Counter { is_shown: io::stderr().is_terminal() };
    let answer = whatif::answer(question, |done| counter.show(done));
    counter.clear();
    let answer = answer.with_context(|| format!("{name}"))?;
    if let Some(why) = answer.ended() {
        super::print_message(format_args!("{name}: {why}"));
    }
    output::print(&if json { answer.json() } else { answer.text() })?;
    Ok(u8::from(answer.ended().is_some()))
}

/// A counter in a line on a terminal's standard error.
struct Counter {
    is_shown: bool,
}

impl Counter {
    fn show(&mut self, done: u64) {
        if self.is_shown {
            // Without stderr there is no place left for a message.
            let _ = write!(io::stderr(), "\r\x1b[Kreplayed {}", crate::facts::units::counted(done, "time"));
        }
    }

    fn clear(&mut self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
