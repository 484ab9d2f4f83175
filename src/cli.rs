//! The command line.

/// What is done beside a job.
mod beside;
/// What a verdict comes to.
mod judge;
/// What is recorded, and where.
mod record;
/// A report, into a file.
mod report;

use crate::{
    alerts::Policy,
    analysis::cause::Cause,
    check,
    config::{self, OnAlert, Watching},
    demo, diff, explain, export, launch,
    live::{self, Telling},
    once, player, recordings,
    replay::find::{Found, find},
    sink::store::Store,
    source::{self, Sources},
    term,
    text::Foreign,
    theme::Theme,
};
use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use std::{
    ffi::OsString,
    fmt,
    io::{self, BufWriter, Write},
    path::PathBuf,
    time::Duration,
};

/// How long a program that is told of an alert may still take when the view is left.
const HOOK_PATIENCE: Duration = Duration::from_secs(1);

/// Shows, live and per training step, where a GPU's memory goes.
#[derive(Debug, Parser)]
#[command(name = "gpuwatch", version, args_conflicts_with_subcommands = true)]
#[command(
    after_help = "Example:\n  gpuwatch run -- python train.py    in one terminal\n  gpuwatch                           \
                        in another, at any time\n\nWithout a command: the live view of all devices and probed jobs."
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    live: Live,
}

#[derive(Debug, clap::Args)]
struct Live {
    #[command(flatten)]
    watching: Watching,
    #[command(flatten)]
    look: Look,
    #[command(flatten)]
    config: config::File,
    /// Ring the terminal's bell, once for each alert from warning on.
    #[arg(long)]
    bell: bool,
    /// Let the terminal show a notification (OSC 9) of each alert from warning on; tmux passes only the bell on.
    #[arg(long)]
    notify: bool,
    #[command(flatten)]
    on_alert: OnAlert,
}

#[derive(Debug, clap::Args)]
struct Look {
    /// Colours: dusk, paper (for light terminals) or plain.
    #[arg(long, env = "GPUWATCH_THEME", value_name = "NAME", default_value = "dusk")]
    theme: String,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a job with its probe, and record it.
    #[command(after_help = "Example:\n  gpuwatch run -- torchrun --nproc-per-node 8 train.py --epochs 3\n\nInput, \
                            output, signals and the exit code are the job's own.\n\nTo be told by mail:\n  \
                            gpuwatch run --on-alert mail --on-alert-arg=-s --on-alert-arg='GPU memory grows' \
                            --on-alert-arg=ada -- python train.py")]
    Run {
        #[command(flatten)]
        on_alert: OnAlert,
        #[command(flatten)]
        config: config::File,
        /// The job and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
        command: Vec<OsString>,
    },
    /// Print the exports that probe jobs started otherwise.
    #[command(after_help = "Example:\n  eval \"$(gpuwatch env)\" && python train.py")]
    Env {
        /// Whose syntax.
        #[arg(long, value_enum, default_value_t)]
        shell: launch::shell::Shell,
    },
    /// Watch four simulated ranks: no GPU and no Python needed.
    #[command(after_help = "Example:\n  gpuwatch demo --seed 7")]
    Demo {
        /// Same seed, same jobs.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        #[command(flatten)]
        look: Look,
    },
    /// Record what is already running, until Ctrl-C.
    #[command(after_help = "Example:\n  gpuwatch record -o night.jsonl.zst\n  zstdcat night.jsonl.zst | jq .")]
    Record {
        /// The file to make; by default a new one among the recordings that `run` makes.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        #[command(flatten)]
        watching: Watching,
    },
    /// Look at recordings as at a live job: the end first, then any moment of it.
    #[command(after_help = "Example:\n  gpuwatch replay night.jsonl.zst\n\nWithout a file: the newest recording of \
                            `gpuwatch run`. Several files must be of one run; of a directory, the newest run is taken.")]
    Replay {
        /// Recordings of one run, or one directory of recordings.
        #[arg(value_name = "FILE|DIR")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        look: Look,
        #[command(flatten)]
        config: config::File,
    },
    /// Judge recordings: exit code 0 if the run passes, 1 if it does not, 2 if it cannot be judged.
    #[command(after_help = "Example:\n  gpuwatch run -- python train.py && gpuwatch check --max-growth 1MiB/step\n\n\
                            Without a file: the newest recording of `gpuwatch run`. Several files must be of one run; \
                            of a directory, the newest run is taken.")]
    Check {
        /// Recordings of one run (or what a probe said, line by line; - is standard input), or one directory of
        /// recordings.
        #[arg(value_name = "FILE|DIR")]
        files: Vec<PathBuf>,
        /// As JSON (schema 1); the same as --format json.
        #[arg(long)]
        json: bool,
        /// How the verdict is written.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
        #[command(flatten)]
        limits: check::Limits,
        #[command(flatten)]
        config: config::File,
    },
    /// List what was recorded, the newest first, and how it went.
    #[command(after_help = "Example:\n  gpuwatch recordings --json | jq '.recordings[] | select(.exit_code != 0)'")]
    Recordings {
        /// A directory of recordings; by default that of `gpuwatch run`.
        #[arg(value_name = "DIR")]
        directory: Option<PathBuf>,
        /// How many at most.
        #[arg(long, value_name = "COUNT", default_value_t = 20)]
        last: usize,
        /// As JSON (schema 1).
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        config: config::File,
    },
    /// Write a recording as a table: a row for each sample of each rank.
    #[command(
        after_help = "Examples:\n  gpuwatch export night.jsonl.zst > night.csv\n  gpuwatch export --format jsonl \
                            night.jsonl.zst | jq -c 'select(.rank == 0) | [.step, .allocated]'"
    )]
    Export {
        /// Recordings of one run, or one directory of recordings; without any, the newest run's.
        #[arg(value_name = "FILE|DIR")]
        files: Vec<PathBuf>,
        /// How the table is written.
        #[arg(long, value_enum, default_value_t)]
        format: export::Format,
    },
    /// Write a run into one file: a page that needs nothing else, or JSON.
    #[command(after_help = "Example:\n  gpuwatch report night.jsonl.zst -o night.html")]
    Report {
        /// Recordings of one run, or one directory of recordings; without any, the newest run's.
        #[arg(value_name = "FILE|DIR")]
        files: Vec<PathBuf>,
        /// The file to make: JSON where it ends in .json, else a page; it must not be there yet.
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        #[command(flatten)]
        config: config::File,
    },
    /// Compare two runs; exit code 1 when the second needs more memory than the first.
    #[command(after_help = "Example:\n  gpuwatch diff main.jsonl.zst branch.jsonl.zst --tolerance 2%")]
    Diff {
        /// A recording, or a directory of recordings, of which the newest run is taken.
        #[arg(value_name = "FIRST")]
        first: PathBuf,
        /// What is compared with it.
        #[arg(value_name = "SECOND")]
        second: PathBuf,
        /// By how much the second may exceed the first.
        #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = check::share)]
        tolerance: f64,
        /// As JSON (schema 1).
        #[arg(long)]
        json: bool,
    },
    /// Print what is known now, once, without a terminal.
    #[command(after_help = "Example:\n  gpuwatch once --json | jq '.devices[].ladder'")]
    Once {
        /// As JSON (schema 1).
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        watching: Watching,
    },
    /// Tell how a cause is recognised, what it is not, and what to do about it.
    #[command(after_help = "Example:\n  gpuwatch explain graph-retained\n\nWithout a cause: a line for each.")]
    Explain {
        /// The cause, as a finding names it.
        #[arg(hide_possible_values = true, value_parser = explain::cause())]
        cause: Option<Cause>,
    },
    /// One simulated rank of the demo.
    #[command(hide = true)]
    DemoJob {
        #[command(flatten)]
        job: demo::job::Job,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    #[default]
    Text,
    Json,
}

/// Parses, does, and says the exit code: 0 done, 1 failed, 2 used wrongly, 128 + n ended by signal n.
pub fn main() -> u8 {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            // A reader that has gone away wants no help.
            let _ = e.print();
            return u8::try_from(e.exit_code()).unwrap_or(2);
        }
    };
    match dispatch(cli) {
        Ok(code) => code,
        Err(e) if is_broken_pipe(&e) => 0,
        Err(e) => {
            say(format_args!("{}", Foreign::new(format!("{e:#}"))));
            if e.is::<config::Fault>() { 2 } else { 1 }
        }
    }
}

fn dispatch(cli: Cli) -> Result<u8> {
    match cli.command {
        None => view(&cli.live),
        Some(Command::Run { on_alert, config, command }) => {
            Ok(launch::run(&command, move |started| beside::beside(started, &on_alert, &config)))
        }
        Some(Command::Env { shell }) => Ok(launch::env(shell)),
        Some(Command::Demo { seed, look }) => show_demo(seed, &look),
        Some(Command::Record { output, watching }) => record::record(output, &watching),
        Some(Command::Replay { files, look, config }) => replay(files, &look, config.read()?),
        Some(Command::Once { json, watching }) => {
            runtime()?
                .block_on(async { once::print(&mut Sources::start(watching.sources()).events, 0, json).await })?;
            Ok(0)
        }
        Some(Command::Check { files, json, format, limits, config }) => {
            Ok(judge::judge(files, json || format == Format::Json, &limits, &config.read()?))
        }
        Some(Command::Recordings { directory, last, json, config }) => {
            let policy = config.read()?;
            let directory = directory.map_or_else(store, Ok)?;
            recordings::list(&directory, last, &source::host(), &policy, json, &mut io::stdout().lock())?;
            Ok(0)
        }
        Some(Command::Export { files, format }) => {
            let found = named(files)?;
            let mut out = BufWriter::new(io::stdout().lock());
            let troubles = export::export(&found.tape, format, &mut out)?;
            out.flush()?;
            found.notes.iter().chain(&troubles).for_each(|it| say(format_args!("{it}")));
            Ok(0)
        }
        Some(Command::Report { files, output, config }) => report::write(files, &output, &config.read()?),
        Some(Command::Diff { first, second, tolerance, json }) => {
            let both = named(vec![first]).and_then(|first| Ok((first, named(vec![second])?)));
            let diff = both.map(|(first, second)| diff::diff(&first.tape, &second.tape, tolerance));
            let diff = diff.unwrap_or_else(|e| diff::unreadable(format!("{e:#}")));
            io::stdout().lock().write_all(if json { diff.json() } else { diff.text() }.as_bytes())?;
            Ok(diff.code())
        }
        Some(Command::Explain { cause }) => {
            explain::print(cause)?;
            Ok(0)
        }
        Some(Command::DemoJob { job }) => {
            demo::job::run(&job)?;
            Ok(0)
        }
    }
}

/// The live view; where there is no screen for it, the same facts once, as text.
fn view(live: &Live) -> Result<u8> {
    let (theme, policy) = (theme(&live.look)?, live.config.read()?);
    runtime()?.block_on(async {
        let mut sources = Sources::start(live.watching.sources());
        if !term::is_screen() {
            if live.on_alert.on_alert.is_some() {
                bail!("no terminal for the live view (stdin, stdout or TERM); `gpuwatch run --on-alert` needs none");
            }
            say(format_args!("no terminal for the live view (stdin, stdout or TERM): the same as `gpuwatch once`"));
            once::print(&mut sources.events, 0, false).await?;
            return Ok(0);
        }
        let telling = Telling { bell: live.bell, notify: live.notify, hook: live.on_alert.hook()? };
        let end = live::watch(&mut sources.events, &theme, policy, &telling).await?;
        if let Some(hook) = telling.hook {
            hook.finish(HOOK_PATIENCE);
        }
        Ok(code(end))
    })
}

fn show_demo(seed: u64, look: &Look) -> Result<u8> {
    let theme = theme(look)?;
    runtime()?.block_on(async {
        let mut demo = demo::Demo::start(seed).context("cannot start the demo")?;
        if !term::is_screen() {
            say(format_args!("no terminal for the live view (stdin, stdout or TERM): the demo as text"));
            once::print(&mut demo.events, demo::RANKS.len(), false).await?;
            return Ok(0);
        }
        // What is simulated alarms nobody.
        Ok(code(live::watch(&mut demo.events, &theme, Policy::default(), &Telling::default()).await?))
    })
}

/// Where `gpuwatch run` keeps its recordings.
fn store() -> Result<PathBuf> {
    Ok(Store::user().context("there is no home directory for recordings: name a file or a directory")?.directory)
}

/// The named files; without any, the newest run's.
fn named(mut files: Vec<PathBuf>) -> Result<Found> {
    if files.is_empty() {
        files.push(store()?);
    }
    find(&files)
}

fn replay(files: Vec<PathBuf>, look: &Look, policy: Policy) -> Result<u8> {
    let theme = theme(look)?;
    let found = named(files)?;
    found.notes.iter().for_each(|it| say(format_args!("{it}")));
    if !term::is_screen() {
        bail!(
            "a replay needs a terminal (stdin, stdout and TERM); `zstdcat FILE | jq .` reads a recording without one"
        );
    }
    runtime()?.block_on(async { Ok(code(player::play(found.tape, &theme, policy).await?)) })
}

fn theme(look: &Look) -> Result<Theme> {
    config::theme(&look.theme, term::color_depth(), term::is_ascii_only())
}

fn code(end: live::End) -> u8 {
    match end {
        live::End::Quit => 0,
        live::End::Signal(signal) => u8::try_from(128 + signal).unwrap_or(1),
    }
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|it| it.downcast_ref::<io::Error>()).any(|it| it.kind() == io::ErrorKind::BrokenPipe)
}

fn say(what: fmt::Arguments) {
    // With stderr gone there is nobody left to tell.
    let _ = writeln!(io::stderr(), "gpuwatch: {what}");
}
