//! `gpuwatch fit`: its flags, and the answer written, with what is done shown on a terminal meanwhile.

mod against;
mod shown_for;

use self::{against::AgainstArgs, shown_for::ShownFor};
use super::{ConfigUse, Invocation, Subcommand};
use crate::{
    cli::next_commands::{NextCommand, next_text, with_next},
    facts::{text::Foreign, units::parse_bytes},
    jobs::{
        fit::{
            self, Alone, Answer, Nodes, Question, Ranks, Trouble, Vary,
            advise::{self, Chosen},
            stop,
        },
        launch::job,
    },
    model::fit::{Device, Fits, Table},
    storage::{input, output},
};
use anyhow::{Context, Result};
use std::{
    ffi::OsString,
    fs,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
};

/// The end of its help.
const HELP: &str = "Examples:\n  gpuwatch fit --gpu \"RTX 4090\" -- python train.py --batch 16\n  gpuwatch fit --gpu 24GB --vary \
     batch=8..64:8 -- python train.py --batch {batch}\n  gpuwatch fit --advise --gpu L4 -- python train.py\n\nThe job runs for some optimizer steps with its own PyTorch on a \
     simulated GPU: its allocations are real, its numbers are not computed. What lies outside the allocator is estimated, so \
     the answer is an interval.\n\nWith several --gpu the job has to fit on each of them.";

/// The bytes of a table that are read at most.
const LARGEST: u64 = 4 << 20;

/// The arguments of `gpuwatch fit`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct FitArgs {
    /// The GPU to fit on: a name, the GB that it is sold with as in 24GB, a capacity as in 22.5GiB, or several alike as
    /// in 2xA100-80GB; may be given several times [default: every known card].
    #[arg(long = "gpu", value_name = "GPU", value_parser = Device::parse)]
    devices: Vec<Device>,
    /// Optimizer steps to run [default: 3, or more while the peak still rises].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    steps: Option<u32>,
    /// Let the job continue by itself for long, a tenth of --time-limit and at most 90 seconds, before it is led out of
    /// its training loop to what follows; and let what follows take its time.
    #[arg(long)]
    whole: bool,
    /// Lead the job out of its training loop as soon as the peak of its steps is known, without the 40,000 allocations
    /// that it first makes by itself otherwise: faster, and less certain. --whole comes before it.
    #[arg(long)]
    quick: bool,
    /// Seconds that one run of the job takes at most; gpuwatch ends one that takes longer, and names the line where it
    /// was.
    #[arg(long, value_name = "SECONDS", default_value_t = 900, value_parser = clap::value_parser!(u64).range(1..=864_000))]
    time_limit: u64,
    /// Find the largest value that fits: `batch=8,16,32` or `batch=8..64:8` stands for {batch} in the command, and for
    /// the variable `batch` of its environment.
    #[arg(long, value_name = "NAME=VALUES", value_parser = Vary::parse, requires = "devices")]
    vary: Option<Vary>,
    /// Machines of the job, each with the devices of --gpu: a few of its ranks run, and what the others would send is
    /// taken to be what these send. As 1..16 it asks for the smallest number that is enough.
    #[arg(long, value_name = "COUNT", value_parser = Nodes::parse, requires = "devices")]
    nodes: Option<Nodes>,
    /// The ranks that run, with commas; negative ones count from the end [default: the first and the last, and those
    /// from which the first one gets tensors].
    #[arg(long, value_name = "RANKS", value_delimiter = ',', allow_hyphen_values = true, requires = "devices")]
    ranks: Vec<i64>,
    /// The memory of each machine itself, as in 2TiB: whether its ranks have enough of it.
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "devices")]
    host: Option<u64>,
    /// Measure what techniques would save in this job: run it once with each that applies, or with each of these names,
    /// and with combinations of the best. The job's files are not changed.
    #[arg(
        long, value_name = "NAMES", num_args = 0..=1, require_equals = true, default_missing_value = "all",
        value_parser = Chosen::parse,
    )]
    advise: Option<Chosen>,
    /// Of --advise: show the answer in this recording, too, or in the viewers of a running job, by its PID.
    #[arg(long = "for", value_name = "PID|RECORDING", requires = "advise", conflicts_with = "vary")]
    shown_for: Option<PathBuf>,
    /// A table that --calibrate wrote; may be given several times. It takes the place of the built-in ranges for GPUs
    /// of its compute capability and for its PyTorch release.
    #[arg(long = "table", value_name = "FILE", value_parser = table)]
    tables: Vec<Table>,
    /// Measure this machine's GPU instead, and write a table for --table into this file, which must not exist yet; CMD
    /// is then the job's Python [default: python3].
    #[arg(long, value_name = "FILE", conflicts_with_all = ["devices", "steps", "whole", "quick", "vary", "advise", "tables", "output"])]
    calibrate: Option<PathBuf>,
    /// The file to record the job into, which must not exist yet; by default a new one in the folder `fit` of the
    /// recordings.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    against: AgainstArgs,
    /// The job and its arguments.
    #[arg(required_unless_present = "calibrate", trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
    /// As JSON (schema 1).
    #[arg(long)]
    json: bool,
}

impl Subcommand for FitArgs {
    fn config_use(&self) -> ConfigUse {
        ConfigUse::Unused
    }

    fn failure_code(&self) -> u8 {
        2
    }

    fn run(&self, _: &Invocation) -> Result<u8> {
        stop::pass_on()?;
        match &self.calibrate {
            Some(out) => calibrate(out, &self.command).map(|()| 0),
            None => match &self.advise {
                Some(chosen) => self.advise(chosen),
                None => fit(&self.clone().question(), self),
            },
        }
    }
}

impl FitArgs {
    /// Returns what follows from an answer.
    fn after(&self, answer: &Answer) -> Vec<NextCommand> {
        // A recording that is there already is not written over, and advice is not saved.
        let is_free = self.output.is_none() && !self.against.saves();
        // What follows a quick answer is not quick.
        let without = if self.quick { "--quick" } else { "--whole" };
        let again =
            |flag: &str, why| is_free.then(|| NextCommand::again(flag, without, self.command.len(), why)).flatten();
        let job = self.command.iter().map(|it| it.to_str()).collect::<Option<Vec<_>>>();
        let run = job.map(|it| NextCommand::new(["run", "--"].into_iter().chain(it), "runs the job, and records it"));
        match answer.fits() {
            Fits::Yes => run.into_iter().collect(),
            Fits::No => again("--advise", "measures what would save memory").into_iter().collect(),
            // A job that failed does so again.
            Fits::Unknown if self.whole || !answer.has_peak() => Vec::new(),
            Fits::Unknown => again("--whole", "lets the job run longer").into_iter().collect(),
        }
    }

    /// Returns the lines that say what to do about a no.
    fn remedies(&self, answer: &Answer) -> String {
        if answer.fits() == Fits::No { next_text(&self.after(answer)) } else { String::new() }
    }

    fn advise(&self, chosen: &Chosen) -> Result<u8> {
        let shown_for = self.shown_for.as_deref().map(ShownFor::find).transpose()?;
        let measure = |progress: &mut dyn FnMut(&str)| advise::advise(&self.clone().question(), chosen, progress);
        shown(measure, |found| {
            let json = || with_next(&found.json(), &self.after_advice());
            let code = print(&if self.json { json() } else { found.text() }, found.fits())?;
            if let (Some(place), Some(answer)) = (&shown_for, found.advised()) {
                place.show(&answer)?;
            }
            Ok(found.interrupted_by().map_or(code, job::die_by))
        })
    }

    fn after_advice(&self) -> Vec<NextCommand> {
        let again = || {
            NextCommand::again(
                "--against=advice.json",
                "--advise",
                self.command.len(),
                "confirms an edit by this answer",
            )
        };
        let is_kept = self.vary.is_none() && self.output.is_none();
        is_kept.then(again).flatten().into_iter().collect()
    }

    fn question(self) -> Question {
        let Self { devices, steps, time_limit: seconds, vary, tables, output, command, .. } = self;
        let alone = match (self.whole, self.quick) {
            (true, _) => Alone::Long,
            (_, true) => Alone::No,
            _ => Alone::Usual,
        };
        let ranks = (self.nodes.is_some() || !self.ranks.is_empty())
            .then(|| Ranks { nodes: self.nodes.unwrap_or_default(), chosen: self.ranks });
        let host = self.host;
        Question { devices, steps, alone, seconds, vary, ranks, host, tables, command, recording: output }
    }
}

/// Reads a size.
fn size(text: &str) -> Result<u64, String> {
    parse_bytes(text).map_err(|e| format!("{e:#}; give a size, as in 2TiB or 512GB"))
}

/// Reads a table.
fn table(path: &str) -> Result<Table, String> {
    Table::parse(&input::small_text(Path::new(path), LARGEST).map_err(|e| e.to_string())?)
}

fn calibrate(out: &Path, command: &[OsString]) -> Result<()> {
    // Measuring takes minutes, so a file that cannot be written is found out first.
    let mut file = output::create(out).with_context(|| Foreign::new(out.to_string_lossy()).to_string())?;
    let written = fit::calibrate(command).map_err(Into::into).and_then(|it| Ok(file.write_all(it.as_bytes())?));
    if written.is_err() && !output::is_stdout(out) {
        let _ = fs::remove_file(out);
    }
    written
}

fn fit(question: &Question, arguments: &FitArgs) -> Result<u8> {
    let (against, json) = (&arguments.against, arguments.json);
    let baseline = against.baseline()?;
    let answer = |progress: &mut dyn FnMut(&str)| fit::answer(question, progress);
    shown(answer, |answer| {
        against.save(answer)?;
        match &baseline {
            Some(baseline) => against.compare(answer, baseline, (json, &arguments.command)),
            None if json => print(&with_next(&answer.json(), &arguments.after(answer)), answer.fits()),
            None => print(&(answer.text() + &arguments.remedies(answer)), answer.fits()),
        }
    })
}

fn print(text: &str, fits: Fits) -> Result<u8> {
    output::print(text)?;
    Ok(fits.code())
}

/// Shows what is done meanwhile, then lets `print` write the answer, which returns the exit code.
fn shown<T>(
    answer: impl FnOnce(&mut dyn FnMut(&str)) -> Result<T, Trouble>,
    print: impl FnOnce(&T) -> Result<u8>,
) -> Result<u8> {
    let is_shown = io::stderr().is_terminal();
    let show = |text: &str| {
        let text = Foreign::new(text.to_owned());
        // Without stderr there is no place left for a message.
        let _ = if is_shown { write!(io::stderr(), "\r\x1b[K{text}") } else { writeln!(io::stderr(), "{text}") };
    };
    let answer = answer(&mut |text| show(&format!("{text} …")));
    if is_shown {
        show("");
    }
    match answer {
        // Its files are gone, so that it may end as any other program.
        Err(Trouble::Interrupted(signal)) => Ok(job::die_by(signal)),
        answer => print(&answer?),
    }
}
