//! `gpuwatch demo`: seeded simulated jobs with the real probe and its real socket, so that the demo shows the product.
//!
//! Four ranks are four processes. Only the driver's and the host's figures, which are derived from the probes', and the
//! times of the steps before the view began are simulated.

mod driver;
pub mod job;
pub mod still;

use super::{ConfigUse, Invocation, Subcommand, live, once};
use crate::{
    cli::{
        alert_outputs::AlertOutputs,
        flags::{OverviewOptions, exit_code},
        picture, runtime,
    },
    facts::{
        event::{DriverState, Event, Fact, Line},
        units::Stamp,
    },
    model::alerts::Policy,
    screen::{effects::Options as ScreenActions, term},
    sources::{Feed, Options, Sources, probe},
    storage::output,
};
use anyhow::{Context, Result};
use driver::Driver;
use job::{Kind, RATE};
use std::{
    env, fs, io,
    os::unix::{fs::DirBuilderExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{self, Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{
        Notify,
        mpsc::{Receiver, channel},
        watch,
    },
    time::Instant,
};

/// The arguments of `gpuwatch demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  gpuwatch demo --seed 7")]
pub(super) struct DemoArgs {
    /// The same seed gives the same jobs.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    screen: OverviewOptions,
}

impl Subcommand for DemoArgs {
    fn run(&self, _: &Invocation) -> Result<u8> {
        let screen = &self.screen;
        if let Some(file) = &screen.shot.screenshot {
            return picture::of_session(&still::still(self.seed), &Policy::default(), None, screen, file);
        }
        let theme = screen.theme()?;
        runtime()?.block_on(async {
            let mut demo = Demo::start(self.seed).context("cannot start the demo")?;
            if !term::is_screen() {
                output::message(format_args!(
                    "no terminal for the live view (stdin, stdout or TERM): the demo as text"
                ));
                once::print(&mut demo.events, RANKS.len(), once::OnceForm::Text).await?;
                return Ok(0);
            }
            // Simulated alerts are not sent.
            let no_signals = Some("the demo's jobs are its own: no signals are sent to them from here");
            let (preset, pace) = (screen.preset, demo.pace.take());
            let options = ScreenActions { preset, no_signals, pace, ..screen.options(theme) };
            Ok(exit_code(live::watch(demo.feed(), options, Policy::default(), &mut AlertOutputs::default()).await?))
        })
    }
}

impl Subcommand for job::Job {
    fn config_use(&self) -> ConfigUse {
        ConfigUse::Unused
    }

    fn answers(&self) -> bool {
        false
    }

    fn run(&self, _: &Invocation) -> Result<u8> {
        job::run(self)?;
        Ok(0)
    }
}

/// Steps that a job has completed when the view begins.
const HEAD_START: u64 = 240;

/// The ranks: their behaviour and devices.
pub const RANKS: [(Kind, &[u32]); 4] =
    [(Kind::Steady, &[0]), (Kind::Leaking, &[1]), (Kind::Fragmenting, &[2]), (Kind::Pending, &[3, 0])];

/// A running demo. Dropping it ends its jobs.
pub struct Demo {
    /// The events.
    pub events: Receiver<Event>,
    /// The refresh rate of the simulated driver, until the view takes it.
    pub pace: Option<watch::Sender<Duration>>,
    begun: Instant,
    jobs: Vec<Child>,
    directory: PathBuf,
}

impl Demo {
    /// Starts the ranks and reads their probes; needs a tokio runtime.
    ///
    /// # Errors
    /// Fails if there is no directory for sockets, or if this program cannot start itself.
    pub fn start(seed: u64) -> io::Result<Self> {
        let directory = env::temp_dir().join(format!("gpuwatch-demo-{}", process::id()));
        fs::DirBuilder::new().mode(0o700).create(&directory)?;
        let probes =
            probe::Options { directories: vec![directory.clone()], private_tmp: false, run: None, whole: false };
        let mut sources = Sources::start(Options { probes: Some(probes), ..Options::default() });
        let (sender, events) = channel(1024);
        let (pace, read_every) = watch::channel(driver::FASTEST);
        let mut demo = Self { events, pace: Some(pace), begun: sources.feed().begun, jobs: Vec::new(), directory };
        for (rank, (kind, devices)) in RANKS.iter().enumerate() {
            demo.jobs.push(start_job(seed, rank, *kind, devices, &demo.directory)?);
        }
        tokio::spawn(async move {
            let mut driver = Driver::default();
            while let Some(event) = sources.events.recv().await.map(paced) {
                // The demo has its own driver.
                driver.read_every(*read_every.borrow());
                let derived = driver.after(&event);
                // Nor is this machine that of its ranks.
                let kept = !matches!(event.fact, Fact::Driver(DriverState::Off) | Fact::HostMemory(_));
                for event in kept.then_some(event).into_iter().chain(derived) {
                    if sender.send(event).await.is_err() {
                        return;
                    }
                }
            }
        });
        Ok(demo)
    }

    /// Returns the input of a view.
    pub fn feed(&mut self) -> Feed<'_> {
        Feed { events: &mut self.events, begun: self.begun, hurry: Arc::new(Notify::new()) }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // The jobs end when their standard input closes; kill those that do not.
        for job in &mut self.jobs {
            drop(job.stdin.take());
        }
        for job in &mut self.jobs {
            if !ends_soon(job) {
                // It ended meanwhile, or cannot be killed.
                let _ = job.kill();
                let _ = job.wait();
            }
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn ends_soon(job: &mut Child) -> bool {
    use std::thread;
    for _ in 0..60 {
        if job.try_wait().is_ok_and(|it| it.is_some()) {
            return true;
        }
        thread::sleep(Duration::from_millis(5));
    }
    false
}

fn start_job(seed: u64, rank: usize, kind: Kind, devices: &[u32], directory: &Path) -> io::Result<Child> {
    let devices: Vec<String> = devices.iter().map(u32::to_string).collect();
    Command::new(env::current_exe()?)
        .args(["demo-job", "--seed", &seed.to_string(), "--rank", &rank.to_string()])
        .args(["--ranks", &RANKS.len().to_string(), "--kind", kind.name(), "--devices", &devices.join(",")])
        .arg("--directory")
        .arg(directory)
        // A separate group, so that a terminal that hangs up does not kill them before they have cleaned up.
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

const STEP_US: u64 = 1_000_000 / RATE as u64;

/// The µs that the head start would have taken.
const HEAD_START_US: u64 = HEAD_START * STEP_US;

/// Returns the event with the stamp of its step at the job's usual pace, the first epoch's mark at the first step, and
/// the start of the process before it. Leaves other events unchanged.
pub(super) fn paced(mut event: Event) -> Event {
    let Fact::Probe { line, .. } = &mut event.fact else { return event };
    match &mut **line {
        Line::Sample(sample) => {
            let ahead = sample.step.and_then(|it| (HEAD_START + 1).checked_sub(it)).unwrap_or(0) * STEP_US;
            sample.at_us = sample.at_us.saturating_sub(ahead);
            event.at = Stamp(event.at.0.saturating_sub(ahead));
        }
        Line::Mark(mark) if mark.value == Some(0) => {
            mark.at_us = mark.at_us.saturating_sub(HEAD_START_US);
            event.at = Stamp(event.at.0.saturating_sub(HEAD_START_US));
        }
        Line::Hello(hello) => hello.start_us = hello.start_us.map(|it| it.saturating_sub(HEAD_START_US)),
        _ => {}
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::event::{ProbeId, wire::Sample};

    #[test]
    fn the_head_start_goes_over_into_the_steps_after_it() {
        let at_us = 100_000_000;
        let stamps: Vec<u64> = (1..=HEAD_START + 1)
            .map(|step| {
                let line = Box::new(Line::Sample(Sample { at_us, step: Some(step), ..Sample::default() }));
                let event = paced(Event { at: Stamp(at_us), fact: Fact::Probe { probe: ProbeId(0), line } });
                let Fact::Probe { line, .. } = &event.fact else { panic!("another fact: {event:?}") };
                let Line::Sample(sample) = &**line else { panic!("another line: {event:?}") };
                assert_eq!(Stamp(sample.at_us), event.at);
                sample.at_us
            })
            .collect();
        assert!(stamps.windows(2).all(|it| it[1] - it[0] == STEP_US), "{stamps:?}");
        assert_eq!(stamps.last(), Some(&at_us));
    }
}
