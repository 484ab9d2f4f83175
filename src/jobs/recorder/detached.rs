//! Records an attached job in the background: a process of its own, which needs neither the terminal nor the shell that
//! started it, and ends with the job or with its probes.

use super::{JobRecorder, file::RecordingPlan, replays::FindingReplays};
use crate::{
    config::{self, Driver},
    facts::event::Fact,
    jobs::launch::sys,
    model::{
        alerts::Policy,
        session::{Session, process::ProbeState},
    },
    screen::event_loop,
    sources::system,
    storage::{output, sink::delivery::Delivery},
};
use anyhow::{Context, Result, anyhow, bail};
use signal_hook::iterator::Signals;
use std::{
    env, fmt,
    io::{BufRead, BufReader},
    path,
    process::{Command, Stdio},
    str::FromStr,
    thread,
};

/// How the recorder reports that it has started, before the file's path; any other line is the reason why not.
const STARTED: &str = "recording to ";

/// The processes of one job, and its run: `RUN:PID-TICKS,PID-TICKS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachedJob {
    /// The id of its run.
    pub run: String,
    /// Each process's pid, and when it was started, in ticks.
    processes: Vec<(u32, u64)>,
}

impl AttachedJob {
    /// Describes the processes of a job that still run.
    pub fn new(run: String, pids: &[u32]) -> Self {
        Self { run, processes: pids.iter().filter_map(|pid| Some((*pid, system::runs_since(*pid)?))).collect() }
    }

    /// Whether every process has ended, or its probe has.
    fn is_over(&self, session: &Session) -> bool {
        let has_left = |pid: u32| {
            let mut own = session.processes.iter().filter(|it| it.pid == Some(pid));
            own.any(|it| matches!(it.life, ProbeState::Ended { .. }))
        };
        self.processes.iter().all(|(pid, ticks)| system::runs_since(*pid) != Some(*ticks) || has_left(*pid))
    }
}

impl fmt::Display for AttachedJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let processes: Vec<String> = self.processes.iter().map(|(pid, ticks)| format!("{pid}-{ticks}")).collect();
        write!(f, "{}:{}", self.run, processes.join(","))
    }
}

impl FromStr for AttachedJob {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (run, processes) = text.split_once(':').context("a run is missing")?;
        let process = |it: &str| {
            let (pid, ticks) = it.split_once('-').ok_or_else(|| anyhow!("{it:?} does not name a process"))?;
            Ok((pid.parse()?, ticks.parse()?))
        };
        let processes = processes.split(',').filter(|it| !it.is_empty()).map(process).collect::<Result<_>>()?;
        Ok(Self { run: run.to_owned(), processes })
    }
}

/// Starts this program again, with the same arguments, as the recorder of a job; returns the path of its file.
pub fn start(job: &AttachedJob) -> Result<String> {
    let mut command = Command::new(env::current_exe()?);
    command.args(env::args_os().skip(1)).arg(format!("--recorder={job}"));
    let mut recorder = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut line = String::new();
    if let Some(out) = recorder.stdout.take() {
        BufReader::new(out).read_line(&mut line)?;
    }
    match line.trim_end().strip_prefix(STARTED) {
        Some(path) => Ok(path.to_owned()),
        None if line.is_empty() => bail!("the recorder ended at once"),
        None => bail!("{}", line.trim_end()),
    }
}

/// Records until the job is over: what [`start`] starts.
pub fn record(
    job: &AttachedJob,
    plan: &RecordingPlan,
    delivery: Delivery,
    policy: Policy,
    watching: (Driver, bool),
) -> Result<u8> {
    // A session of its own has no terminal whose end could end it.
    let _ = rustix::process::setsid();
    let mut signals = Signals::new(event_loop::ending_signals().filter(|it| !sys::is_ignored(*it)))?;
    let recorder = match plan.start() {
        Ok(it) => it,
        Err(why) => {
            output::print(&format!("{why:#}\n"))?;
            return Ok(1);
        }
    };
    let started = format!("{STARTED}{}\n", recorder.1.display());
    let replays = path::absolute(&recorder.1).ok().map(|it| FindingReplays::new(it, false));
    // A file system of the user's must not stay busy.
    let _ = env::set_current_dir("/");
    let (sender, stopped) = tokio::sync::oneshot::channel();
    thread::Builder::new().name("signals".into()).spawn(move || sender.send(signals.forever().next()))?;
    let stop = async {
        // If the signal thread is gone, only a forced end is left.
        if stopped.await.is_err() {
            std::future::pending::<()>().await;
        }
        Vec::<Fact>::new()
    };
    let (driver, is_asking) = watching;
    let sources = config::job_sources(&job.run, driver, plan.no_arguments());
    let mut job_recorder = JobRecorder::new(Some(recorder), delivery, policy);
    job_recorder.replays = replays;
    // The job may end at once: its probe has been found by then.
    job_recorder.begun = Some(Box::new(move || drop(output::print(&started))));
    job_recorder.follow(sources, is_asking, stop, |session| job.is_over(session))?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_survives_a_command_line() {
        let job = AttachedJob { run: "0123".to_owned(), processes: vec![(4102, 998_877), (4103, 998_878)] };
        assert_eq!(job.to_string().parse::<AttachedJob>().unwrap(), job);
        assert!("0123:4102".parse::<AttachedJob>().is_err());
    }

    #[test]
    fn a_job_is_over_once_all_its_processes_have_ended() {
        let own = AttachedJob::new(String::new(), &[std::process::id()]);
        assert!(!own.is_over(&Session::default()));
        let other =
            AttachedJob { processes: own.processes.iter().map(|(pid, ticks)| (*pid, ticks + 1)).collect(), ..own };
        assert!(other.is_over(&Session::default()));
    }
}
