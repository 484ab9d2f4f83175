//! The command line.

/// Commands and flags.
mod arguments;
/// Starts the probe in a running job.
mod attach;
/// Compares runs and snapshots.
mod diff;
/// Judges whether a job fits.
mod fit;
/// Flags that belong together.
mod flags;
/// Config, completions, manual.
mod generate;
/// Other machines.
mod hosts;
/// Prints verdicts.
mod judge;
/// Shows other machines.
mod machines;
/// Writes screenshots.
mod picture;
/// A line of progress.
mod progress;
/// Creates recordings.
mod record;
/// Writes reports.
mod report;
/// Options of screens.
mod screen_options;
/// Serves figures to Prometheus.
mod serve;
/// Values from the config file, and flags that it cannot set.
mod settings;
/// Flags of a screenshot.
mod shot;
/// Starts screens.
mod show;
/// Commands on memory snapshots.
mod snapshot;
/// Streams events to another machine.
mod stream;
/// Replays with other settings.
mod whatif;

use self::{
    arguments::{Cli, Command},
    flags::{Format, Live},
};
use crate::{
    commands::{demo, doctor, explain, export, recordings, sites},
    config,
    facts::text::Foreign,
    jobs::{
        launch::{self, sys},
        recorder::{file::RecordingPlan, record_job, replays},
    },
    model::alerts::Policy,
    screen::theme,
    sources::{self, Sources},
    storage::{
        nodes, output,
        replay::{
            find::{self, Found},
            nodes::Recorded,
            short_name,
        },
        sink::store::Store,
    },
};
use anyhow::{Context, Result, bail};
use clap::error::ErrorKind;
use std::{
    env,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

/// Parses and runs a command; returns the exit code: 0 done, 1 failed, 2 used wrongly, 128 + n ended by signal n.
pub fn main() -> u8 {
    let (cli, policy) = match settings::parse(env::args_os()) {
        Ok(parsed) => parsed,
        Err(e) => return code(help(&e), 1),
    };
    let failure = cli.failure();
    if cli.answers() && sys::was_closed(1) {
        return code(Err(closed().into()), failure);
    }
    code(dispatch(cli, policy), failure)
}

/// Prints the help, the version, or an error in the command line.
fn help(asked: &clap::Error) -> Result<u8> {
    let is_answer = !asked.use_stderr();
    if is_answer && sys::was_closed(1) {
        return Err(closed().into());
    }
    let examples = (asked.kind() == ErrorKind::MissingRequiredArgument).then(|| settings::examples(env::args_os()));
    let print_examples = || examples.flatten().map_or(Ok(()), |it| writeln!(io::stderr(), "\n{it}"));
    match asked.print().and_then(|()| print_examples()).and_then(|()| io::stdout().flush()) {
        Err(e) if is_answer => Err(e).context("cannot write to standard output"),
        // Without stderr there is no place left for a message.
        _ => Ok(u8::try_from(asked.exit_code()).unwrap_or(2)),
    }
}

/// The error of a write to a closed standard output: Rust's runtime has opened `/dev/null` in its place.
fn closed() -> io::Error {
    io::Error::other("cannot write to standard output: it is closed")
}

/// Returns the exit code; for an error `failure`, after printing its reason on standard error.
fn code(done: Result<u8>, failure: u8) -> u8 {
    match done {
        Ok(code) => code,
        // A reader that is gone needs no more output.
        Err(e) if is_broken_pipe(&e) => 0,
        Err(e) => {
            output::message(format_args!("{}", Foreign::new(format!("{e:#}"))));
            if e.is::<config::Fault>() || e.is::<theme::Fault>() { 2 } else { failure }
        }
    }
}

fn dispatch(cli: Cli, policy: Result<Policy, config::Fault>) -> Result<u8> {
    match cli.command {
        // A job runs even if the file has errors.
        Some(Command::Run { on_alert, asking, driver, keep, recording, command }) => {
            let run = launch::run_id();
            let plan = RecordingPlan::new(&run, keep, recording);
            Ok(launch::run(&command, &plan.options(run), move |started| {
                record_job(started, &on_alert, &plan, policy, asking, driver);
            }))
        }
        command => shown(command, &cli.live, policy?),
    }
}

fn shown(command: Option<Command>, live: &Live, policy: Policy) -> Result<u8> {
    match command {
        None => watch(live, policy),
        Some(Command::Attach(asked)) => attach::attach(asked, policy),
        Some(Command::Detach(asked)) => attach::detach(&asked),
        Some(Command::Env { shell }) => Ok(launch::env(shell)?),
        Some(Command::Demo { seed, screen }) => show::demo(seed, &screen),
        Some(Command::Record { output, reach, watching, asking, keep }) => match reach.plan()? {
            Some(plan) => record::nodes::record(&plan, output.as_deref()),
            None => record::record(output, &watching, &keep, &policy, asking),
        },
        Some(Command::Replay { files, screen }) => show::replay(&files, &screen, &live.config, policy),
        Some(Command::Once { json, by, others, watching }) => hosts::once(&others, &watching, json, by),
        Some(Command::Serve { asked }) => serve::serve(asked, &policy),
        Some(Command::Stream(asked)) => stream::stream(&asked, &live.config),
        Some(Command::Sites { question }) => {
            let question = question.asked();
            runtime()?.block_on(async {
                let mut sources = Sources::start(config::probes_alone());
                sites::ask(&mut sources, &question, |it| output::message(format_args!("{it}"))).await
            })?;
            Ok(0)
        }
        Some(Command::Snapshot { file, fits, json, text, screen }) => {
            snapshot::snapshot(&snapshot::Asked { file: &file, fits, json, text, screen: &screen })
        }
        Some(Command::Fit { question, json }) => fit::run(question, json),
        Some(Command::Whatif { question, json }) => whatif::whatif(question, json),
        Some(Command::Check { files, json, format, limits }) => {
            Ok(judge::judge(&files, json || format == Format::Json, &limits, &policy))
        }
        Some(Command::Recordings { directory, last, json }) => {
            let is_numbered = directory.is_none();
            let directory = directory.map_or_else(store, Ok)?;
            let asked = recordings::Asked { directory: &directory, is_numbered, most: last, json };
            output::write(|out| recordings::list(&asked, &sources::host(), &policy, out))?;
            Ok(0)
        }
        Some(Command::Export { files, format, table, at, output }) => {
            let output = output.as_deref();
            if let Some(file) = snapshot::named(&files, format) {
                return snapshot::export(file, format, (table, at), output);
            }
            let (sets, notes) = match of_nodes(&files)? {
                Some(recorded) => (recorded.nodes.into_iter().flatten().collect(), recorded.notes),
                None => named(&files).map(|found| (vec![found.recordings], found.notes))?,
            };
            let troubles = write(output, |mut out| export::export(&sets, format, &mut out))?;
            notes.iter().chain(&troubles).for_each(|it| output::message(format_args!("{it}")));
            Ok(0)
        }
        Some(Command::Report { files, output, json }) => report::write(&files, &output, json, &policy),
        Some(Command::Diff { first, second, tolerance, json, output }) => {
            diff::compare(&first, &second, tolerance, &diff::Form { json, output })
        }
        Some(Command::Explain { topic }) => {
            explain::print(topic.as_deref())?;
            Ok(0)
        }
        Some(Command::Generate { what }) => {
            generate::generate(&what)?;
            Ok(0)
        }
        Some(Command::Doctor { json }) => doctor::examine(&live.config, live.watching.driver, json),
        // Handled above.
        Some(Command::Run { .. }) => Ok(2),
        Some(Command::ReplayJob) => replays::replay(),
        Some(Command::DemoJob { job }) => {
            demo::job::run(&job)?;
            Ok(0)
        }
    }
}

/// Shows the live view, of this machine, of those that flags name, or of those that a store knows.
fn watch(live: &Live, policy: Policy) -> Result<u8> {
    if let Some(store) = live.fleet.store()? {
        return machines::watch_store(store, live);
    }
    let Some(plan) = live.reach.plan()? else { return show::view(live, policy) };
    machines::watch(&plan, live, policy)
}

/// Returns where `gpuwatch run` keeps its recordings.
fn store() -> Result<PathBuf> {
    Ok(Store::user().context("there is no home directory for recordings: name a file or a directory")?.directory)
}

/// Opens a directory with the recordings of several machines, if that is what is named.
fn of_nodes(files: &[PathBuf]) -> Result<Option<Recorded>> {
    match files {
        [directory] if nodes::is_one(directory) => Recorded::open(directory).map(Some),
        _ => Ok(None),
    }
}

/// Opens recordings by their paths or their short names; without any, and as `last` alone, the newest run's.
fn named(files: &[PathBuf]) -> Result<Found> {
    let is_newest = match files {
        [] => true,
        [name] => short_name::is_last(name),
        _ => false,
    };
    if is_newest {
        let store = store()?;
        if !store.is_dir() {
            let shown = Foreign::new(store.to_string_lossy());
            bail!("there is no recording yet in {shown}: `gpuwatch run -- CMD` records a job");
        }
        return find::find(&[store]);
    }
    let paths = files.iter().map(|it| recording(it)).collect::<Result<Vec<_>>>()?;
    let mut found = find::find(&paths)?;
    let short = files.iter().zip(&paths).filter(|(name, path)| name != path);
    found.notes.extend(short.map(|(name, path)| {
        let [name, path] = [name, path].map(|it| Foreign::new(it.to_string_lossy()));
        format!("{name} is {path}")
    }));
    Ok(found)
}

/// Returns the path of a recording by its short name; a path is returned as it is.
fn recording(named: &Path) -> Result<PathBuf> {
    match store() {
        Ok(store) => short_name::resolve(&store, named),
        Err(_) => Ok(named.to_owned()),
    }
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|it| it.downcast_ref::<io::Error>()).any(|it| it.kind() == io::ErrorKind::BrokenPipe)
}

/// Writes an answer into a new file and reports that; without a file, or for `-`, to standard output.
fn write<T>(to: Option<&Path>, how: impl FnOnce(&mut dyn Write) -> io::Result<T>) -> Result<T> {
    let Some(path) = to.filter(|it| !output::is_stdout(it)) else {
        let whole = output::write(|out| {
            let mut out = BufWriter::new(out);
            how(&mut out).and_then(|it| out.flush().map(|()| it))
        });
        return Ok(whole?);
    };
    let name = Foreign::new(path.to_string_lossy());
    let whole = output::save_with(path, how).with_context(|| format!("cannot make {name}"))?;
    output::message(format_args!("wrote {name}"));
    Ok(whole)
}

/// Writes a text as [`write`] does.
fn write_text(to: Option<&Path>, text: &str) -> Result<()> {
    write(to, |out| out.write_all(text.as_bytes()))
}
