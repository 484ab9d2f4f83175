//! What the command line takes: every command, its flags and its words of help.

use super::{
    flags::{Format, Generated, Live, Question},
    screen_options::{OverviewOptions, ScreenOptions},
};
use crate::{
    commands::{check, demo, explain, export},
    config::{Asking, Driver, Keep, OnAlert, Recording, Watching},
    facts::{text::Shell, units},
    storage::output,
};
use clap::{Parser, Subcommand};
use std::{ffi::OsString, path::PathBuf};

const EXAMPLE: &str = "Example:
  gpuwatch run -- python train.py    in one terminal
  gpuwatch                           in another, at any time

Without a command: the live view of all devices and probed jobs.";

/// Answers to questions of new users.
const ANSWERS: &str = "\
Jobs that run already: gpuwatch lists them with the driver's figures alone (bytes on each device, user, command). \
`gpuwatch attach PID` starts the probe in a running PyTorch job. A job that begins with its probe, by `gpuwatch run` or from \
a shell after `eval \"$(gpuwatch env)\"`, can be watched from its first step on.

Several machines: `gpuwatch --hosts node[01-16]` shows them through ssh, and `gpuwatch once --hosts node[01-16]` prints their \
state; nothing listens on the network for that. `gpuwatch --prometheus URL` shows what Prometheus knows of thousands of ranks \
from `gpuwatch serve`. For one run \
over all nodes: `eval \"$(gpuwatch env)\"`, then `srun gpuwatch run -- python train.py`. Each task records for itself; \
copy the files into one directory, and `gpuwatch replay`, `check` and `report` open it as one run. The machines' clocks \
have to agree.

For a team: gpuwatch is one file that contains the probe and depends on glibc alone. Build it on the oldest system that \
it runs on, and copy it to a shared directory. `gpuwatch doctor` says what is missing on a machine.";

/// Shows, live and per training step, where a GPU's memory goes.
#[derive(Debug, Parser)]
#[command(name = "gpuwatch", version, long_version = env!("GPUWATCH_VERSION"), args_conflicts_with_subcommands = true)]
#[command(after_help = EXAMPLE, after_long_help = format!("{EXAMPLE}\n\n{ANSWERS}"))]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Option<Command>,
    #[command(flatten)]
    pub(super) live: Live,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run a job with its probe, and record it.
    #[command(after_help = "Example:\n  gpuwatch run -- torchrun --nproc-per-node 8 train.py --epochs 3\n\nInput, \
                            output, signals and the exit code are the job's own. After a probed job, one line on \
                            standard error gives the first finding and the command to replay it; --summary never turns \
                            it off.\n\nTo get alerts by mail:\n  \
                            gpuwatch run --on-alert mail --on-alert-arg=-s --on-alert-arg='GPU memory grows' \
                            --on-alert-arg=ada -- python train.py")]
    Run {
        #[command(flatten)]
        on_alert: OnAlert,
        #[command(flatten)]
        asking: Asking,
        #[command(flatten)]
        driver: Driver,
        #[command(flatten)]
        keep: Keep,
        #[command(flatten)]
        recording: Recording,
        /// The job and its arguments.
        #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
        command: Vec<OsString>,
    },
    /// Start the probe in a PyTorch job that runs already.
    #[command(after_help = super::attach::AFTER)]
    Attach(Box<super::attach::Asked>),
    /// End the probe of a job, which runs on.
    Detach(super::attach::Ended),
    /// Print the environment that probes jobs started without `gpuwatch run`.
    #[command(after_help = "Example:\n  eval \"$(gpuwatch env)\" && python train.py")]
    Env {
        /// The shell to print for.
        #[arg(long, value_enum, default_value_t)]
        shell: Shell,
    },
    /// Watch four simulated ranks: no GPU and no Python needed.
    #[command(after_help = "Example:\n  gpuwatch demo --seed 7")]
    Demo {
        /// The same seed gives the same jobs.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        #[command(flatten)]
        screen: OverviewOptions,
    },
    /// Record what is already running, until Ctrl-C.
    #[command(after_help = "Examples:\n  gpuwatch record -o night.jsonl.zst\n  gpuwatch record --hosts \
                            'node[01-16]' -o night\n  zstdcat night.jsonl.zst | jq .\n\nOf other machines, gpuwatch \
                            makes a directory with a recording of each: `gpuwatch check night` judges them together.")]
    Record {
        /// The file to make (- is standard output); by default a new one among the recordings that `run` makes. Of
        /// other machines: the directory to make.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        #[command(flatten)]
        reach: super::hosts::Reach,
        #[command(flatten)]
        watching: Watching,
        #[command(flatten)]
        asking: Asking,
        #[command(flatten)]
        keep: Keep,
    },
    /// Show a recording on the live screens: its end first, then any moment.
    #[command(
        after_help = "Examples:\n  gpuwatch replay last\n  gpuwatch replay 3\n  gpuwatch replay night\n  gpuwatch \
                            replay ./night.jsonl.zst\n\nWithout a file: the newest recording of `gpuwatch run`. A \
                            short name is `last`, a number that `gpuwatch recordings` lists, the name that `run \
                            --name` gave, the name of its file, or the beginning of one name. A file of that name in \
                            the current folder comes first. Several files must be of one run; of a directory, the \
                            newest run is taken. A directory that `record --hosts` has made is shown on the screen of many machines; without \
                            a terminal, the command that opens each machine is printed."
    )]
    Replay {
        /// Recordings of one run, by path or short name, or one directory of recordings.
        #[arg(value_name = "FILE|DIR")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        screen: OverviewOptions,
    },
    /// Judge recordings: exit code 0 if the run passes, 1 if it does not, 2 if it cannot be judged.
    #[command(after_help = "Example:\n  gpuwatch run -- python train.py; gpuwatch check --max-growth 1MiB/step\n\n\
                            A run whose end is not recorded is judged up to the last recorded step, and the verdict \
                            says so; with --require-end it does not pass. A run that gpuwatch could not watch in \
                            full is not judged.\n\n\
                            Without a file: the newest recording of `gpuwatch run`. Several files must be of one run; \
                            of a directory, the newest run is taken.")]
    Check {
        /// Recordings of one run, by path or short name (or lines of a probe; - reads standard input), or one directory
        /// of recordings.
        #[arg(value_name = "FILE|DIR")]
        files: Vec<PathBuf>,
        /// As JSON (schema 1); the same as --format json.
        #[arg(long)]
        json: bool,
        /// The format of the verdict.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
        #[command(flatten)]
        limits: check::Limits,
    },
    /// Ask a job which lines allocate the memory that grows, and what holds it.
    #[command(
        after_help = "Example:\n  gpuwatch sites 4242 --json | jq '.sites[] | [.file, .line, .bytes_per_step]'\n\n\
                            The job records the stacks of its allocations for that many steps only. With \
                            GPUWATCH=nosites in its environment it records none."
    )]
    Sites {
        #[command(flatten)]
        question: Question,
    },
    /// Open a memory snapshot of PyTorch: what is live, stuck and free, and by which call stacks.
    #[command(
        after_help = "Examples:\n  gpuwatch snapshot snapshot.pickle\n  gpuwatch snapshot snapshot.pickle --text --fits 2GiB\n  gpuwatch snapshot oom.pickle.gz --json \
                            | jq '.devices[].live[] | [.bytes, .frames[0]]'\n\nThe job writes the file: \
                            torch.cuda.memory._record_memory_history() at its beginning, \
                            torch.cuda.memory._dump_snapshot(\"snapshot.pickle\") when it matters. Nothing in the file is run.\n\nExit code 1 if the file is cut or damaged."
    )]
    Snapshot {
        /// What `torch.cuda.memory._dump_snapshot` wrote, plain or packed by gzip or zstd.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Reports whether a request of this size would have fitted at that moment.
        #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes)]
        fits: Option<u64>,
        /// As JSON (schema 1).
        #[arg(long, conflicts_with = "screenshot")]
        json: bool,
        /// As text, also on a terminal.
        #[arg(long, conflicts_with_all = ["json", "screenshot"])]
        text: bool,
        #[command(flatten)]
        screen: ScreenOptions<super::shot::OfSnapshot>,
    },
    /// Replay a run under other allocator settings: what it would have reserved, and the smallest device it fits on.
    #[command(
        after_help = "Examples:\n  gpuwatch whatif snapshot.pickle --torch .venv/bin/python\n  gpuwatch whatif oom.pickle.gz \
                            --gpu 16GiB --set expandable_segments:True --json\n  gpuwatch whatif 4242\n\nThe recorded allocations are replayed \
                            through PyTorch's own allocator on a simulated GPU; no real GPU is used. Trace the run from \
                            its start: torch.cuda.memory._record_memory_history() before the first allocation, \
                            torch.cuda.memory._dump_snapshot(\"snapshot.pickle\") at the end.\n\nA device's size is in its \
                            trace where an allocation failed or was retried; otherwise give --gpu, or there is no limit. 512 \
                            MiB of it are taken for the CUDA context."
    )]
    Whatif {
        #[command(flatten)]
        question: super::whatif::Asked,
        /// As JSON (schema 1).
        #[arg(long)]
        json: bool,
    },
    /// Find out whether a job fits on a GPU that is not there: exit code 0 if it fits, 1 if it does not, 2 if that is
    /// not certain.
    #[command(after_help = super::fit::HELP)]
    Fit {
        #[command(flatten)]
        question: super::fit::Asked,
        /// As JSON (schema 1).
        #[arg(long)]
        json: bool,
    },
    /// List what was recorded, the newest first, and how it went.
    #[command(after_help = "Example:\n  gpuwatch recordings --json | jq '.recordings[] | select(.exit_code != 0)'")]
    Recordings {
        /// A directory of recordings; by default that of `gpuwatch run`.
        #[arg(value_name = "DIR")]
        directory: Option<PathBuf>,
        /// The largest number to list.
        #[arg(long, value_name = "COUNT", default_value_t = 20)]
        last: usize,
        /// As JSON (schema 1).
        #[arg(long)]
        json: bool,
    },
    /// Write a recording as a table: a row for each sample of each rank.
    #[command(
        after_help = "Examples:\n  gpuwatch export night.jsonl.zst -o night.csv\n  gpuwatch export --format jsonl \
                            night.jsonl.zst | jq -c 'select(.rank == 0) | [.step, .allocated]'"
    )]
    Export {
        /// Recordings of one run, by path or short name, or one directory of recordings; without any, the newest run's.
        /// Or a memory snapshot of PyTorch.
        #[arg(value_name = "FILE|DIR")]
        files: Vec<PathBuf>,
        /// What to write.
        #[arg(long, value_enum, default_value_t)]
        format: export::Format,
        /// What the rows of a snapshot's table are.
        #[arg(long, value_enum, default_value_t)]
        table: export::Table,
        /// Which blocks of a snapshot folded stacks are of.
        #[arg(long, value_enum, default_value_t)]
        at: export::At,
        /// The file to make; it must not be there yet (- is standard output) [default: standard output].
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Write a run, or a memory snapshot, as one file: a self-contained page, or JSON.
    #[command(after_help = "Example:\n  gpuwatch report night.jsonl.zst -o night.html")]
    Report {
        /// Recordings of one run, by path or short name, or one directory of recordings; without any, the newest run's.
        /// Or a memory snapshot of PyTorch.
        #[arg(value_name = "FILE|DIR")]
        files: Vec<PathBuf>,
        /// The file to make: JSON where it ends in .json, else a page; it must not be there yet (- is standard output).
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// As JSON (schema 1), whatever the file's name.
        #[arg(long)]
        json: bool,
    },
    /// Compare two runs, or two memory snapshots; exit code 1 when the second needs more memory than the first.
    #[command(after_help = "Examples:\n  gpuwatch diff main.jsonl.zst branch.jsonl.zst --tolerance 2%\n  gpuwatch \
                            diff 3 last -o diff.html")]
    Diff {
        /// A recording, by path or short name, or a directory of recordings, of which the newest run is taken. Or a
        /// memory snapshot of PyTorch.
        #[arg(value_name = "FIRST")]
        first: PathBuf,
        /// The run to compare with it.
        #[arg(value_name = "SECOND")]
        second: PathBuf,
        /// By how much the second may exceed the first.
        #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = check::share)]
        tolerance: f64,
        /// The file to make in place of text on standard output: JSON where it ends in .json, else a page; it must not
        /// be there yet (- is standard output).
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// As JSON (schema 1), whatever the file's name.
        #[arg(long)]
        json: bool,
    },
    /// Print the current figures once; needs no terminal.
    #[command(
        after_help = "Examples:\n  gpuwatch once --json | jq '.devices[].ladder'\n  gpuwatch once --by user\n  gpuwatch once --hosts \
                            'node[01-16]' --json | jq '.jobs[].findings'\n  gpuwatch once --prometheus \
                            http://127.0.0.1:9090 --match scheduler_job=4242"
    )]
    Once {
        /// As JSON (schema 1).
        #[arg(long)]
        json: bool,
        /// What the processes on this machine's devices hold, in a line for each.
        #[arg(long, value_name = "WHOM", conflicts_with_all = ["json", "hosts", "hosts_file", "slurm", "prometheus"])]
        by: Option<super::hosts::By>,
        #[command(flatten)]
        others: super::hosts::Others,
        #[command(flatten)]
        watching: Watching,
    },
    /// Serve the current figures to Prometheus on this machine, until Ctrl-C.
    #[command(after_help = super::serve::AFTER)]
    Serve {
        #[command(flatten)]
        asked: super::serve::Asked,
    },
    /// Print this machine's events as JSON lines for a gpuwatch on another machine, until standard input ends.
    #[command(after_help = super::stream::AFTER)]
    Stream(super::stream::Asked),
    /// Explain a cause, a kind of alert or a resource: how gpuwatch recognises it, what it is not, and what to do.
    #[command(
        after_help = "Examples:\n  gpuwatch explain graph-retained\n  gpuwatch explain growth\n  gpuwatch explain \
                            host\n\nWithout a name: a line for each."
    )]
    Explain {
        /// The name, as an alert has it.
        #[arg(hide_possible_values = true, value_parser = explain::topic(), value_name = "NAME")]
        topic: Option<String>,
    },
    /// Print the commented config, completions for a shell, or the manual.
    #[command(
        after_help = "Examples:\n  gpuwatch generate config > ~/.config/gpuwatch/config.toml\n  gpuwatch generate \
                            completions bash > ~/.local/share/bash-completion/completions/gpuwatch\n  gpuwatch generate \
                            man ~/.local/share/man/man1"
    )]
    Generate {
        /// What to print.
        #[command(subcommand)]
        what: Generated,
    },
    /// Check what keeps gpuwatch from working fully, and how to fix it.
    #[command(after_help = "Example:\n  gpuwatch doctor\n\nExit code 1 if something does not work.")]
    Doctor {
        /// As JSON (schema 1).
        #[arg(long)]
        json: bool,
    },
    /// Replays a traced job for its findings: a request on standard input, the answers on standard output.
    #[command(hide = true)]
    ReplayJob,
    /// One simulated rank of the demo.
    #[command(hide = true)]
    DemoJob {
        #[command(flatten)]
        job: demo::job::Job,
    },
}

impl Cli {
    /// Returns the exit code of a failure; not 1 if that is an answer.
    pub(super) fn failure(&self) -> u8 {
        if matches!(
            self.command,
            Some(Command::Check { .. } | Command::Diff { .. } | Command::Fit { .. } | Command::Attach(_))
        ) {
            2
        } else {
            1
        }
    }

    /// Returns whether the command's answer goes to standard output.
    pub(super) fn answers(&self) -> bool {
        match &self.command {
            Some(Command::Run { .. } | Command::Replay { .. } | Command::Serve { .. } | Command::DemoJob { .. }) => {
                false
            }
            Some(Command::Record { output, .. }) => output.as_deref().is_some_and(output::is_stdout),
            Some(Command::Report { output, .. }) => output::is_stdout(output),
            Some(Command::Export { output, .. } | Command::Diff { output, .. }) => {
                output.as_deref().is_none_or(output::is_stdout)
            }
            Some(_) => true,
            None => self.live.screen.shot.screenshot.is_none(),
        }
    }

    /// Returns whether the command uses the config file.
    pub(super) fn uses_config(&self) -> bool {
        !matches!(
            self.command,
            Some(
                Command::Env { .. }
                    | Command::Detach(..)
                    | Command::Explain { .. }
                    | Command::Generate { .. }
                    | Command::Doctor { .. }
                    | Command::Fit { .. }
                    | Command::Whatif { .. }
                    | Command::ReplayJob
                    | Command::DemoJob { .. }
            )
        )
    }
}
