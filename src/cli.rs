//! The command line.

use crate::{
    analysis::cause::Cause,
    check,
    config::{self, Watching},
    demo,
    event::Fact,
    explain,
    launch::{self, job::Ended},
    live, once, player,
    recording::{FORMAT, Header},
    replay::find::{Found, find},
    sink::{
        follow::follow,
        record::Recorder,
        store::{Store, Writer, open_new},
    },
    source::{self, Sources},
    term,
    text::Foreign,
    theme::Theme,
};
use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use std::{
    env,
    ffi::OsString,
    fmt,
    fs::{self, File},
    io::{self, Write},
    path::PathBuf,
    sync::mpsc::Receiver,
    thread,
};

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
                            output, signals and the exit code are the job's own.")]
    Run {
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
    },
    /// Judge recordings: exit code 0 if the run passes, 1 if it does not, 2 if it cannot be judged.
    #[command(after_help = "Example:\n  gpuwatch run -- python train.py && gpuwatch check --max-growth 1MiB/step\n\n\
                            Without a file: the newest recording of `gpuwatch run`. Several files must be of one run; \
                            of a directory, the newest run is taken.")]
    Check {
        /// Recordings of one run (or what a probe said, line by line), or one directory of recordings.
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
            1
        }
    }
}

fn dispatch(cli: Cli) -> Result<u8> {
    match cli.command {
        None => view(&cli.live),
        Some(Command::Run { command }) => Ok(launch::run(&command, record_run)),
        Some(Command::Env { shell }) => Ok(launch::env(shell)),
        Some(Command::Demo { seed, look }) => show_demo(seed, &look),
        Some(Command::Record { output, watching }) => record(output, &watching),
        Some(Command::Replay { files, look }) => replay(files, &look),
        Some(Command::Once { json, watching }) => {
            runtime()?
                .block_on(async { once::print(&mut Sources::start(watching.sources()).events, 0, json).await })?;
            Ok(0)
        }
        Some(Command::Check { files, json, format, limits }) => {
            Ok(judge(files, json || format == Format::Json, &limits))
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
    let theme = theme(&live.look)?;
    runtime()?.block_on(async {
        let mut sources = Sources::start(live.watching.sources());
        if !term::is_screen() {
            say(format_args!("no terminal for the live view (stdin, stdout or TERM): the same as `gpuwatch once`"));
            once::print(&mut sources.events, 0, false).await?;
            return Ok(0);
        }
        Ok(code(live::watch(&mut sources.events, &theme).await?))
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
        Ok(code(live::watch(&mut demo.events, &theme).await?))
    })
}

fn judge(files: Vec<PathBuf>, json: bool, limits: &check::Limits) -> u8 {
    let verdict = match recordings(files) {
        Ok(found) => {
            found.notes.iter().for_each(|it| say(format_args!("{it}")));
            check::check(&found.tape, limits)
        }
        Err(e) => check::unreadable(format!("{e:#}")),
    };
    let text = if json { verdict.json() } else { verdict.text() };
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // A reader that has gone away knows enough: the exit code says the rest.
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            say(format_args!("cannot write the verdict: {e}"));
            check::Outcome::Unjudged.code()
        }
        _ => verdict.outcome().code(),
    }
}

/// The named files; without any, the newest run's.
fn recordings(mut files: Vec<PathBuf>) -> Result<Found> {
    if files.is_empty() {
        files.push(Store::user().context("there is no home directory for recordings: name a file")?.directory);
    }
    find(&files)
}

fn replay(files: Vec<PathBuf>, look: &Look) -> Result<u8> {
    let theme = theme(look)?;
    let found = recordings(files)?;
    found.notes.iter().for_each(|it| say(format_args!("{it}")));
    if !term::is_screen() {
        bail!(
            "a replay needs a terminal (stdin, stdout and TERM); `zstdcat FILE | jq .` reads a recording without one"
        );
    }
    runtime()?.block_on(async { Ok(code(player::play(found.tape, &theme).await?)) })
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

fn record(output: Option<PathBuf>, watching: &Watching) -> Result<u8> {
    let (path, file) = match output {
        Some(path) => {
            let file = open_new(&path).with_context(|| format!("cannot make {}", path.display()))?;
            (path, file)
        }
        None => keep("record")?,
    };
    let recorder = Recorder::start(file, &header()).context("cannot write the recording")?;
    say(format_args!("recording to {} until Ctrl-C", Foreign::new(path.to_string_lossy())));
    let wanted = [SIGHUP, SIGINT, SIGTERM];
    let mut signals = Signals::new(wanted.iter().filter(|it| !is_ignored(**it)))?;
    let (tell, told) = tokio::sync::oneshot::channel();
    thread::spawn(move || tell.send(signals.forever().next()));
    runtime()?.block_on(async {
        let mut sources = Sources::start(watching.sources());
        let stop = async {
            // Without a signal's thread there is no end but a harder one.
            if told.await.is_err() {
                std::future::pending::<()>().await;
            }
            Vec::new()
        };
        follow(&mut sources, &recorder, stop, |trouble| say(format_args!("{trouble}"))).await;
        Ok::<_, io::Error>(())
    })?;
    let outcome = recorder.finish();
    if outcome.lost > 0 {
        say(format_args!("{} events were lost: the disk is too slow", outcome.lost));
    }
    Ok(u8::from(outcome.trouble.is_some()))
}

/// Whether whoever started us wants a signal ignored, as nohup does: then it stays so.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|it| it.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|it| u64::from_str_radix(it.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

/// Beside a job: its probes and the driver, recorded. Whatever fails here, the job goes on.
fn record_run(started: launch::Started) {
    let launch::Started { run, over, .. } = started;
    // There is no place to say it: standard output and error are the job's.
    let _ = record_job(&run, over);
}

fn record_job(run: &str, over: Receiver<Ended>) -> Result<()> {
    let (_, file) = keep(run)?;
    let recorder = Recorder::start(file, &header())?;
    let (tell, told) = tokio::sync::oneshot::channel();
    thread::Builder::new().name("over".into()).spawn(move || tell.send(over.recv().ok()))?;
    runtime()?.block_on(async {
        let mut sources = Sources::start(config::job_sources(run));
        let stop = async { told.await.ok().flatten().map(ended).into_iter().collect() };
        follow(&mut sources, &recorder, stop, |_| {}).await;
    });
    recorder.finish();
    Ok(())
}

fn ended(how: Ended) -> Fact {
    match how {
        Ended::Code(code) => Fact::JobEnded { code: Some(code.into()), signal: None },
        Ended::Signal(signal) => Fact::JobEnded { code: None, signal: Some(signal) },
    }
}

/// A new file in the user's store.
fn keep(run: &str) -> Result<(PathBuf, File)> {
    let store = Store::user().context("there is no home directory for recordings: use `gpuwatch record -o FILE`")?;
    let writer = Writer {
        started_unix_us: source::unix_us(),
        host: source::host(),
        pid: std::process::id(),
        run: run.to_owned(),
    };
    store.create(&writer).with_context(|| format!("cannot record in {}", store.directory.display()))
}

fn header() -> Header {
    Header {
        format: FORMAT,
        gpuwatch: env!("CARGO_PKG_VERSION").to_owned(),
        host: Foreign::new(source::host()),
        started_unix_us: source::unix_us(),
        monotonic_us: source::now().0,
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
