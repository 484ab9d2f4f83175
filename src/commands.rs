//! The subcommands: a file or a folder for each, with its arguments and what it does with them.

/// `gpuwatch run`: a job with its probe, recorded.
pub mod run;

/// `gpuwatch attach`: starts the probe in running jobs.
pub mod attach;

/// `gpuwatch detach`: ends the probe of running jobs.
pub mod detach;

/// `gpuwatch env`: the environment that probes jobs.
pub mod env;

/// `gpuwatch record`: records what is running.
pub mod record;

/// `gpuwatch once`: the current state without a terminal.
pub mod once;

/// The live view's loop.
pub mod live;

/// The loop of the screen of several hosts.
pub mod cluster;

/// `gpuwatch` without a subcommand: a screen of this host, of others, or of ranks.
pub mod watch;

/// `gpuwatch demo`: a seeded job through the real probe.
pub mod demo;

/// `gpuwatch replay`: the same screens, fed from recordings.
pub mod replay;

/// `gpuwatch stream`: the events of this host for a gpuwatch on another one.
pub mod stream;

/// `gpuwatch serve`: the figures for Prometheus.
pub mod serve;

/// `gpuwatch check`: whether a recorded run passes.
pub mod check;

/// `gpuwatch recordings`: the recordings and their results.
pub mod recordings;

/// `gpuwatch snapshot`: the contents of a PyTorch memory snapshot.
pub mod snapshot;

/// `gpuwatch export`: a recording as a table.
pub mod export;

/// `gpuwatch report`: a run in one file, to read later.
pub mod report;

/// `gpuwatch diff`: compares two runs.
pub mod diff;

/// `gpuwatch explain`: explains a cause.
pub mod explain;

/// `gpuwatch sites`: which lines allocate what grows.
pub mod sites;

/// `gpuwatch whatif`: a run under other allocator settings.
pub mod whatif;

/// `gpuwatch peak`: what a job's memory consists of at a step's highest moment.
pub mod peak;

/// `gpuwatch fit`: whether a job fits on another GPU.
pub mod fit;

/// What the pytest plugin calls.
pub mod pytest;

/// `gpuwatch mcp`: the answers as tools for assistants.
pub mod mcp;

/// `gpuwatch doctor`: what does not work here, and how to fix it.
pub mod doctor;

/// Parses the command line.
pub mod command_line;

/// `gpuwatch generate`: config, completions and manual, from the command line.
pub mod generate;

use crate::{
    config::{self, Driver},
    facts::text::Foreign,
    jobs::launch::sys,
    model::alerts::Policy,
    screen::theme,
    storage::output,
};
use anyhow::{Context, Result};
use clap::error::ErrorKind;
use std::io::{self, Write};

/// The subcommands, in the order of the help.
#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Run a job with its probe, and record it.
    Run(Box<run::RunArgs>),
    /// Start the probe in a PyTorch job that runs already.
    Attach(Box<attach::AttachArgs>),
    /// End the probe of a job, which runs on.
    Detach(detach::DetachArgs),
    /// Print the environment that probes jobs started without `gpuwatch run`.
    Env(env::EnvArgs),
    /// Watch four simulated ranks: no GPU and no Python needed.
    Demo(Box<demo::DemoArgs>),
    /// Record what is already running, until Ctrl-C.
    Record(Box<record::RecordArgs>),
    /// Show a recording on the live screens: its end first, then any moment.
    Replay(Box<replay::ReplayArgs>),
    /// Judge recordings: exit code 0 if the run passes, 1 if it does not, 2 if it cannot be judged.
    Check(Box<check::CheckArgs>),
    /// Ask a job which lines allocate the memory that grows, and what holds it.
    Sites(sites::SitesArgs),
    /// Ask a job what its memory consists of at a step's highest moment: by part, and by line.
    Peak(peak::PeakArgs),
    /// Open a memory snapshot of PyTorch: what is live, stuck and free, and by which call stacks.
    Snapshot(Box<snapshot::SnapshotArgs>),
    /// Replay a run under other allocator settings: what it would have reserved, and the smallest device it fits on.
    Whatif(Box<whatif::WhatifArgs>),
    /// Find out whether a job fits on a GPU that is not there: exit code 0 if it fits, 1 if it does not, 2 if that is
    /// not certain.
    Fit(Box<fit::FitArgs>),
    /// List what was recorded, the newest first, and how it went.
    Recordings(recordings::RecordingsArgs),
    /// Write a recording as a table: a row for each sample of each rank.
    Export(export::ExportArgs),
    /// Write a run, or a memory snapshot, as one file: a self-contained page, or JSON.
    Report(report::ReportArgs),
    /// Compare two runs, or two memory snapshots; exit code 1 when the second needs more memory than the first.
    Diff(diff::DiffArgs),
    /// Print the current figures once; needs no terminal.
    Once(Box<once::OnceArgs>),
    /// Serve the current figures to Prometheus on this machine, until Ctrl-C.
    Serve(Box<serve::ServeArgs>),
    /// Print this machine's events as JSON lines for a gpuwatch on another machine, until standard input ends.
    Stream(stream::StreamArgs),
    /// Answer an assistant: findings, peaks, fit and more as tools of the Model Context Protocol.
    Mcp(mcp::McpArgs),
    /// Explain a cause, a kind of alert or a resource: how gpuwatch recognises it, what it is not, and what to do.
    Explain(explain::ExplainArgs),
    /// Print the commented config, completions for a shell, or the manual.
    Generate(generate::GenerateArgs),
    /// Check what keeps gpuwatch from working fully, and how to fix it.
    Doctor(doctor::DoctorArgs),
    /// Replays a traced job for its findings: a request on standard input, the answers on standard output.
    #[command(hide = true)]
    ReplayJob(run::ReplayJobArgs),
    /// Answers the pytest plugin: a request on standard input, the answer on standard output.
    #[command(hide = true)]
    Pytest(pytest::PytestArgs),
    /// One simulated rank of the demo.
    #[command(hide = true)]
    DemoJob(demo::job::Job),
}

impl Command {
    fn subcommand(&self) -> &dyn Subcommand {
        match self {
            Self::Run(it) => &**it,
            Self::Attach(it) => &**it,
            Self::Detach(it) => it,
            Self::Env(it) => it,
            Self::Demo(it) => &**it,
            Self::Record(it) => &**it,
            Self::Replay(it) => &**it,
            Self::Check(it) => &**it,
            Self::Sites(it) => it,
            Self::Peak(it) => it,
            Self::Snapshot(it) => &**it,
            Self::Whatif(it) => &**it,
            Self::Fit(it) => &**it,
            Self::Recordings(it) => it,
            Self::Export(it) => it,
            Self::Report(it) => it,
            Self::Diff(it) => it,
            Self::Once(it) => &**it,
            Self::Serve(it) => &**it,
            Self::Stream(it) => it,
            Self::Mcp(it) => it,
            Self::Explain(it) => it,
            Self::Generate(it) => it,
            Self::Doctor(it) => it,
            Self::ReplayJob(it) => it,
            Self::Pytest(it) => it,
            Self::DemoJob(it) => it,
        }
    }
}

/// What is to be known of a subcommand beside its arguments, and how it runs.
trait Subcommand {
    /// Returns what it does with the config file.
    fn config_use(&self) -> ConfigUse {
        ConfigUse::Required
    }

    /// Returns the exit code of a failure; 2 if 1 is an answer.
    fn failure_code(&self) -> u8 {
        1
    }

    /// Returns whether its answer goes to standard output, so that it cannot run without one.
    fn answers(&self) -> bool {
        true
    }

    /// Runs it; returns the exit code.
    fn run(&self, invocation: &Invocation) -> Result<u8>;
}

/// What a subcommand does with the config file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConfigUse {
    /// Reads it, and does not run if it has errors.
    Required,
    /// Reads it, and runs even if it has errors.
    Tolerant,
    /// Does not read it.
    Unused,
}

/// What subcommands get beside their own arguments.
struct Invocation {
    /// The config file.
    config: config::File,
    /// Whether `gpuwatch` itself queries the driver.
    driver: Driver,
    /// The user's rules for alerts; the default ones if the config file has an error or is not read.
    policy: Policy,
    /// The error in the config file.
    config_error: Option<config::Fault>,
}

/// Parses and runs a command; returns the exit code: 0 done, 1 failed, 2 used wrongly, 128 + n ended by signal n.
pub fn main() -> u8 {
    let (cli, policy) = match command_line::parse(std::env::args_os()) {
        Ok(parsed) => parsed,
        Err(e) => return exit_code(help(&command_line::escaped(e)), 1),
    };
    let subcommand = cli.subcommand();
    let failure = subcommand.failure_code();
    if subcommand.answers() && sys::was_closed(1) {
        return exit_code(Err(closed().into()), failure);
    }
    let (policy, config_error) = match policy {
        Ok(policy) => (policy, None),
        Err(fault) if subcommand.config_use() == ConfigUse::Tolerant => (Policy::default(), Some(fault)),
        Err(fault) => return exit_code(Err(fault.into()), failure),
    };
    let (config, driver) = (cli.watch.config.clone(), cli.watch.watching.driver);
    exit_code(subcommand.run(&Invocation { config, driver, policy, config_error }), failure)
}

/// Prints the help, the version, or an error in the command line.
fn help(error: &clap::Error) -> Result<u8> {
    let is_answer = !error.use_stderr();
    if is_answer && sys::was_closed(1) {
        return Err(closed().into());
    }
    let examples =
        (error.kind() == ErrorKind::MissingRequiredArgument).then(|| command_line::examples(std::env::args_os()));
    let print_examples = || examples.flatten().map_or(Ok(()), |it| writeln!(io::stderr(), "\n{it}"));
    match error.print().and_then(|()| print_examples()).and_then(|()| io::stdout().flush()) {
        Err(e) if is_answer => Err(e).context("cannot write to standard output"),
        // Without stderr there is no place left for a message.
        _ => Ok(u8::try_from(error.exit_code()).unwrap_or(2)),
    }
}

/// The error of a write to a closed standard output: Rust's runtime has opened `/dev/null` in its place.
fn closed() -> io::Error {
    io::Error::other("cannot write to standard output: it is closed")
}

/// Returns the exit code; for an error `failure`, after printing its reason on standard error.
fn exit_code(done: Result<u8>, failure: u8) -> u8 {
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

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|it| it.downcast_ref::<io::Error>()).any(|it| it.kind() == io::ErrorKind::BrokenPipe)
}
