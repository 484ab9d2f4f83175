//! `gpuwatch whatif`: replays a run under other allocator settings. Of a running job, it traces some steps first.

use super::{
    ConfigUse, Invocation, Subcommand,
    sites::{find, unasked},
};
use crate::{
    cli::{
        ProgressLine, inputs,
        next_commands::{NextCommand, with_next, word},
        runtime,
    },
    config,
    facts::{
        event::{Event, Fact, Line, ProbeId, WindowDetail, WindowRequest, replayed::WINDOW_STEPS},
        text::Foreign,
        units::{self, Stamp, counted},
    },
    jobs::{
        recorder::trace_windows::{file, new_id},
        whatif::{self, Progress, Question},
    },
    model::session::Session,
    sources::{Sources, probe::answers, proc, system, users},
    storage::{
        output,
        traces::{self, WindowState},
    },
};
use anyhow::{Context, Result, bail};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::{
    select,
    time::{MissedTickBehavior, interval, timeout},
};

/// Time between two checks of the file.
const EVERY: Duration = Duration::from_millis(100);

/// Events of a recording among which its job says what it is.
const FIRST: usize = 1000;

/// The arguments of `gpuwatch whatif`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  gpuwatch whatif snapshot.pickle --torch .venv/bin/python\n  gpuwatch whatif oom.pickle.gz \
                            --gpu 16GiB --set expandable_segments:True --json\n  gpuwatch whatif 4242\n\nThe recorded allocations are replayed \
                            through PyTorch's own allocator on a simulated GPU; no real GPU is used. Trace the run from \
                            its start: torch.cuda.memory._record_memory_history() before the first allocation, \
                            torch.cuda.memory._dump_snapshot(\"snapshot.pickle\") at the end.\n\nA device's size is in its \
                            trace where an allocation failed or was retried; otherwise give --gpu, or there is no limit. 512 \
                            MiB of it are taken for the CUDA context."
)]
pub(super) struct WhatifArgs {
    /// What `torch.cuda.memory._dump_snapshot` wrote, plain or packed by gzip or zstd; or a recording of `gpuwatch run
    /// --trace`, by its path or its short name; or the PID of a job with a probe, of which gpuwatch traces some steps.
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
    /// As JSON (schema 1).
    #[arg(long)]
    json: bool,
}

impl Subcommand for WhatifArgs {
    fn config_use(&self) -> ConfigUse {
        ConfigUse::Unused
    }

    fn run(&self, _: &Invocation) -> Result<u8> {
        let name = Foreign::new(self.source.to_string_lossy());
        let (question, viewers, job) = self.question()?;
        let mut line = ProgressLine::new();
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
        let next = || self.after(answer.better(), &job);
        output::print(&if self.json { with_next(&answer.json(), &next()) } else { answer.text() })?;
        Ok(u8::from(answer.ended().is_some()))
    }
}

impl WhatifArgs {
    /// Returns what follows from an answer: the job under the better settings, or a look at what it keeps.
    fn after(&self, better: Option<&str>, job: &[String]) -> Vec<NextCommand> {
        let run = better.filter(|_| job.len() > 1).map(|settings| {
            let words = ["run", "--"].into_iter().chain(job.iter().map(String::as_str));
            NextCommand::new(words, "runs the job with the better settings, and records it")
                .with(whatif::VARIABLE, settings.to_owned())
        });
        let source = word(&self.source);
        let look = match (self.pid(), source) {
            (Some(pid), _) => Some(NextCommand::new(
                ["peak", &pid.to_string()],
                "tells what the job's memory consists of, where no setting helps",
            )),
            (None, Some(file)) if !job.is_empty() => {
                Some(NextCommand::new(["check", "--json", &file], "judges the run, and names lines to change"))
            }
            (None, Some(file)) => Some(NextCommand::new(
                ["snapshot", "--json", &file],
                "tells what holds the memory, and how much of it is fragmented",
            )),
            (None, None) => None,
        };
        run.into_iter().chain(look).collect()
    }

    /// Returns the process that is meant, unless it is a file or a recording.
    fn pid(&self) -> Option<u32> {
        inputs::process(&self.source)
    }

    /// Returns the question; a source that is not a path may be a process, of which it traces some steps first, or the
    /// short name of a recording. Also returns the file for the viewers of that process, and the job's command.
    fn question(&self) -> Result<(Question, Option<PathBuf>, Vec<String>)> {
        let pid = self.pid();
        let is_window = pid.is_some();
        let (source, answers, job) = match pid {
            Some(pid) => {
                let mut line = ProgressLine::new();
                let it = runtime()?.block_on(async {
                    let mut sources = Sources::start(config::probes_alone());
                    let of = TraceQuestion { pid, steps: self.steps, detail: WindowDetail::Events, command: "whatif" };
                    trace(&mut sources, of, self.timeout, |it| line.show(it)).await
                })?;
                (it.file, it.answers, it.argv)
            }
            None => (inputs::recording(&self.source)?, None, if self.json { self.recorded_job() } else { Vec::new() }),
        };
        let (gpu, settings, python) = (self.gpu, self.settings.clone(), self.python.clone());
        // They show which setting is better on the job's own device.
        let answers = answers.filter(|_| gpu.is_none() && settings.is_empty());
        Ok((Question { source, gpu, settings, python, is_window }, answers, job))
    }

    /// Returns the command of the job that a recording is of; empty for anything else.
    fn recorded_job(&self) -> Vec<String> {
        let found = inputs::recordings(std::slice::from_ref(&self.source)).ok();
        let mut events = found.map(|it| it.recordings.play());
        let mut next = || events.as_mut()?.next_by(Stamp(u64::MAX));
        let hello = (0..FIRST).map_while(|_| next()).find_map(|(_, event)| match event.line()?.1 {
            Line::Hello(hello) => Some(hello.argv.clone()),
            _ => None,
        });
        hello.unwrap_or_default()
    }
}

/// Which steps of which job to trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct TraceQuestion {
    /// The process.
    pub(super) pid: u32,
    /// How many steps.
    pub(super) steps: u64,
    /// What the trace has beside the events.
    pub(super) detail: WindowDetail,
    /// The subcommand that asks.
    pub(super) command: &'static str,
}

/// A trace of some steps.
#[derive(Clone, Debug)]
pub(super) struct Traced {
    /// The file; its reader removes it.
    pub(super) file: PathBuf,
    /// The file for answers to the viewers of the job, beside the probe's socket.
    pub(super) answers: Option<PathBuf>,
    /// The job's command.
    pub(super) argv: Vec<String>,
}

/// Traces some steps of a job; waits `limit` for them. `report` gets the progress. Where this future is
/// dropped and the connection closed, the job ends the trace and removes the file.
///
/// # Errors
/// Fails if the process has no probe, if it cannot be traced, or if it does not finish in time.
pub(super) async fn trace(
    sources: &mut Sources,
    TraceQuestion { pid, steps, detail, command }: TraceQuestion,
    limit: Duration,
    report: impl FnMut(String),
) -> Result<Traced> {
    if let Some(why) = of_another_user(pid, command) {
        bail!("{why}");
    }
    let mut session = Session::default();
    let found = find(sources, &mut session, pid, limit).await;
    let Some(process) = found.and_then(|it| session.process(it)) else { bail!("{}", missing(&session, pid)) };
    let id = new_id();
    let Some(file) = file(process, id) else { bail!("{}", missing(&session, pid)) };
    let hello = process.hello.as_deref();
    let answers = hello.and_then(|it| answers::beside(Path::new(process.socket.raw()), it));
    let argv = hello.map(|it| it.argv.clone()).unwrap_or_default();
    let ask = WindowRequest { probe: process.probe, id, steps, detail, alert: false };
    if sources.asks.send(ask.into()).await.is_err() {
        bail!("the thread that reads probes has ended");
    }
    match timeout(limit, completed(sources, &ask, &file, pid, report)).await {
        Ok(done) => done.map(|()| Traced { file, answers, argv }),
        Err(_) => {
            bail!("process {pid} did not finish these steps in time: is it still training? --timeout waits longer")
        }
    }
}

/// Waits for the end of a window.
async fn completed(
    sources: &mut Sources,
    ask: &WindowRequest,
    file: &Path,
    pid: u32,
    mut report: impl FnMut(String),
) -> Result<()> {
    report(format!("asked process {pid} to trace {}", counted(ask.steps, "step")));
    let mut look = interval(EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut before = None;
    loop {
        let event = select! {
            event = sources.events.recv() => Some(event),
            _ = look.tick() => None,
        };
        // A job that ends writes its trace before it sends its bye.
        let state = traces::window_state(file)?;
        match &state {
            Some(WindowState::Complete) => return Ok(()),
            Some(WindowState::Refused(why)) => {
                let _ = std::fs::remove_file(file);
                bail!("process {pid} is not traced: {}", advised(why));
            }
            Some(WindowState::Tracing(allocations)) if state != before => {
                report(format!("tracing process {pid}: {}", counted(*allocations, "allocation")));
            }
            _ => {}
        }
        before = state;
        match event {
            Some(None) => bail!("the thread that reads probes has ended"),
            Some(Some(event)) => {
                if let Some(why) = ended(&event, ask.probe) {
                    bail!("process {pid} {why}");
                }
            }
            None => {}
        }
    }
}

/// Returns why no trace will come, after an event.
fn ended(event: &Event, probe: ProbeId) -> Option<String> {
    if let Fact::ProbeGone { probe: gone, why } = &event.fact
        && *gone == probe
    {
        return Some(format!("is gone: {why}"));
    }
    match event.line().filter(|it| it.0 == probe)?.1 {
        Line::Refused(it) if it.reason == "unknown verb" || it.reason.starts_with("window takes ") => {
            Some("has a probe of an older gpuwatch: start it with the `gpuwatch run` of this one".to_owned())
        }
        Line::Refused(it) => Some(format!("is not traced: {}", Foreign::new(it.reason.as_str()))),
        Line::Bye(_) => Some("ended before it was traced".to_owned()),
        _ => None,
    }
}

/// Adds the next step to a job's own reason.
fn advised(why: &str) -> String {
    let next = if why.contains("memory history itself") {
        "; have it call torch.cuda.memory._dump_snapshot(FILE), and replay that file with `gpuwatch whatif FILE`"
    } else if why.starts_with("the allocator ") {
        "; the settings that gpuwatch whatif tries are those of PyTorch's own allocator"
    } else {
        ""
    };
    format!("{}{next}", Foreign::new(why))
}

/// Returns what to do about another user's process, whose Python gpuwatch would have to run.
fn of_another_user(pid: u32, command: &str) -> Option<String> {
    let owner = proc::owner(pid)?;
    let is_own = owner == rustix::process::geteuid().as_raw();
    let user = users::within_patience(owner).map_or_else(|| owner.to_string(), |it| it.to_string());
    (!is_own).then(|| format!("process {pid} belongs to user {user}: run `gpuwatch {command} {pid}` as that user"))
}

/// Describes that there is no probe.
pub(super) fn missing(session: &Session, pid: u32) -> String {
    if let Some(why) = unasked(session, pid) {
        return why;
    }
    let next = format!("start the job with `gpuwatch run`, or run `gpuwatch attach {pid}`");
    if system::start_ticks(pid).is_none() && session.processes.iter().all(|it| it.any_pid() != Some(pid)) {
        return format!("{pid} is neither a file, a recording nor a running process");
    }
    format!("no probe was found in process {pid}: {next}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_carry_the_next_step() {
        assert!(advised("the job records its memory history itself").contains("gpuwatch whatif FILE"));
        assert!(advised("the allocator cudaMallocAsync keeps no trace").contains("PyTorch's own allocator"));
        assert_eq!(advised("no \u{1b}[2J"), "no \\u{1b}[2J");
    }

    #[test]
    fn what_follows_is_the_job_under_better_settings_or_a_look_at_what_it_keeps() {
        let of = |source: &str, better: Option<&str>, job: &[&str]| {
            let arguments = WhatifArgs {
                source: source.into(),
                gpu: None,
                settings: Vec::new(),
                python: None,
                steps: 1,
                timeout: Duration::ZERO,
                json: true,
            };
            let job: Vec<String> = job.iter().map(|it| (*it).to_owned()).collect();
            let whole: serde_json::Value =
                serde_json::from_str(&with_next("{}", &arguments.after(better, &job))).unwrap();
            let all: Vec<String> =
                whole["next"].as_array().unwrap().iter().map(|it| it["command"].to_string()).collect();
            all.join(" ")
        };
        let job = ["python", "train.py", "--batch", "16"];
        assert_eq!(
            of("4242", Some("expandable_segments:True"), &job),
            "\"env PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True gpuwatch run -- python train.py --batch 16\" \"gpuwatch peak 4242\""
        );
        assert_eq!(of("last", None, &job), "\"gpuwatch check --json last\"");
        assert_eq!(of("oom.pickle", Some("a:1"), &[]), "\"gpuwatch snapshot --json oom.pickle\"");
    }
}
