//! The command line.

/// What it takes.
mod arguments;
/// What is done beside a job.
mod beside;
/// Config, completions, manual.
mod generate;
/// What a verdict comes to.
mod judge;
/// How screens look, and what they may do.
mod look;
/// A picture of a screen, into a file.
mod picture;
/// What is recorded, and where.
mod record;
/// A report, into a file.
mod report;
/// What the user's file sets, and flags that no file knows.
mod settings;
/// What is shown on a screen.
mod show;

use self::arguments::{Cli, Command, Format, Live};
use crate::{
    alerts::Policy,
    config, demo, diff, doctor, explain, export, launch, once, recordings,
    replay::find::{Found, find},
    sink::store::Store,
    sites,
    source::{self, Sources},
    text::Foreign,
    theme,
};
use anyhow::{Context, Result};
use std::{
    env, fmt,
    io::{self, BufWriter, Write},
    path::PathBuf,
};

/// Parses, does, and says the exit code: 0 done, 1 failed, 2 used wrongly, 128 + n ended by signal n.
pub fn main() -> u8 {
    let (cli, policy) = match settings::parse(env::args_os()) {
        Ok(parsed) => parsed,
        Err(e) => {
            // A reader that has gone away wants no help.
            let _ = e.print();
            return u8::try_from(e.exit_code()).unwrap_or(2);
        }
    };
    match dispatch(cli, policy) {
        Ok(code) => code,
        Err(e) if is_broken_pipe(&e) => 0,
        Err(e) => {
            say(format_args!("{}", Foreign::new(format!("{e:#}"))));
            if e.is::<config::Fault>() || e.is::<theme::Fault>() { 2 } else { 1 }
        }
    }
}

fn dispatch(cli: Cli, policy: Result<Policy, config::Fault>) -> Result<u8> {
    match cli.command {
        // A job runs, whatever is wrong with the file.
        Some(Command::Run { on_alert, asking, keep, command }) => {
            Ok(launch::run(&command, move |started| beside::beside(started, &on_alert, &keep, policy, asking)))
        }
        command => shown(command, &cli.live, policy?),
    }
}

fn shown(command: Option<Command>, live: &Live, policy: Policy) -> Result<u8> {
    match command {
        None => show::view(live, policy),
        Some(Command::Env { shell }) => Ok(launch::env(shell)),
        Some(Command::Demo { seed, look }) => show::demo(seed, &look),
        Some(Command::Record { output, watching, keep }) => record::record(output, &watching, &keep),
        Some(Command::Replay { files, look }) => show::replay(files, &look, policy),
        Some(Command::Once { json, watching }) => {
            runtime()?
                .block_on(async { once::print(&mut Sources::start(watching.sources()).events, 0, json).await })?;
            Ok(0)
        }
        Some(Command::Sites { question }) => {
            let question = question.asked();
            runtime()?.block_on(async {
                let mut sources = Sources::start(config::probes_alone());
                sites::ask(&mut sources, &question, |it| say(format_args!("{it}"))).await
            })?;
            Ok(0)
        }
        Some(Command::Check { files, json, format, limits }) => {
            Ok(judge::judge(files, json || format == Format::Json, &limits, &policy))
        }
        Some(Command::Recordings { directory, last, json }) => {
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
        Some(Command::Report { files, output }) => report::write(files, &output, &policy),
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
        Some(Command::Generate { what }) => {
            generate::generate(&what)?;
            Ok(0)
        }
        Some(Command::Doctor { json }) => doctor::examine(&live.config, json),
        // It is told apart before.
        Some(Command::Run { .. }) => Ok(2),
        Some(Command::DemoJob { job }) => {
            demo::job::run(&job)?;
            Ok(0)
        }
    }
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
