//! `gpuwatch whatif`: its flags and its output, with its progress on a terminal.

use super::progress::Line;
use crate::{
    commands::window::{self, Traced},
    config,
    facts::{event::replayed::WINDOW_STEPS, text::Foreign, units},
    jobs::whatif::{self, Progress, Question},
    sources::{Sources, probe::answers},
    storage::output,
};
use anyhow::{Context, Result};
use std::{path::PathBuf, time::Duration};

/// What `gpuwatch whatif` asks.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Asked {
    /// What `torch.cuda.memory._dump_snapshot` wrote, plain or packed by gzip or zstd; or a recording of `gpuwatch run
    /// --trace`, by its path or its short name, but not by its number; or the PID of a job with a probe, of which
    /// gpuwatch traces some steps.
    #[arg(value_name = "SOURCE")]
    source: PathBuf,
    /// The memory of the device on which the run should fit [default: the recorded device's, where the trace shows it].
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes)]
    gpu: Option<u64>,
    /// Try these allocator settings, as in `PYTORCH_CUDA_ALLOC_CONF`; may be given several times [default: the recorded
    /// ones, and some that are worth trying].
    #[arg(long = "set", value_name = "SETTINGS")]
    settings: Vec<String>,
    /// The Python with the job's PyTorch [default: that of the traced job, or the first on the path].
    #[arg(long = "torch", value_name = "PYTHON")]
    python: Option<PathBuf>,
    /// Of a running job: steps to trace. The trace ends after a minute in any case, and after ten seconds if the job
    /// counts no steps.
    #[arg(long, value_name = "COUNT", default_value_t = WINDOW_STEPS, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    steps: u64,
    /// Of a running job: how long to wait for the trace.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = config::duration)]
    timeout: Duration,
}

impl Asked {
    /// Returns the question; a source that is not a path may be a process, of which it traces some steps first, or the
    /// short name of a recording. Also returns the file for the viewers of that process.
    fn question(self) -> Result<(Question, Option<PathBuf>)> {
        let Self { source, gpu, settings, python, steps, timeout } = self;
        let pid = source.to_str().filter(|_| !source.exists()).and_then(|it| it.parse().ok());
        let is_window = pid.is_some();
        let (source, answers) = match pid {
            Some(pid) => {
                let it = traced(&window::Question { pid, steps, limit: timeout })?;
                (it.file, it.answers)
            }
            None => (super::recording(&source)?, None),
        };
        // They show which setting is better on the job's own device.
        let answers = answers.filter(|_| gpu.is_none() && settings.is_empty());
        Ok((Question { source, gpu, settings, python, is_window }, answers))
    }
}

/// Traces some steps of a running job.
fn traced(question: &window::Question) -> Result<Traced> {
    let mut line = Line::new();
    super::runtime()?.block_on(async {
        let mut sources = Sources::start(config::probes_alone());
        window::trace(&mut sources, question, |it| line.show(it)).await
    })
}

pub(super) fn whatif(asked: Asked, json: bool) -> Result<u8> {
    let name = Foreign::new(asked.source.to_string_lossy());
    let (question, viewers) = asked.question()?;
    let mut line = Line::new();
    let answer = whatif::answer(&question, |it| match it {
        Progress::Reading(it) if it.percent() == Some(100) => line.show("starting PyTorch".to_owned()),
        Progress::Reading(it) => line.show_reading(&question.source, it),
        Progress::Replayed(times) => line.show(format!("replayed {}", units::counted(times, "time"))),
    });
    drop(line);
    let answer = answer.with_context(|| format!("{name}"))?;
    if let Some(file) = viewers {
        // Viewers lack the answer then, which this process prints.
        let _ = answers::append(&file, &answer.replayed());
    }
    if let Some(why) = answer.ended() {
        output::message(format_args!("{name}: {why}"));
    }
    output::print(&if json { answer.json() } else { answer.text() })?;
    Ok(u8::from(answer.ended().is_some()))
}
