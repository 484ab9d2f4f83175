//! `gpuwatch demo`: seeded simulated jobs through the real probe and its real socket, so that the demo is the
//! product and not a drawing.
//!
//! Four ranks are four processes. Only what a driver would say is made up, from what the probes said, and when the
//! steps were that lie behind the ranks at the first look.

mod driver;
pub mod job;
mod outputs;
mod past;
pub mod still;

use crate::{
    facts::event::{DriverState, Event, Fact},
    sources::{Feed, Options, Sources, probe},
};
use driver::Driver;
use job::Kind;
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

/// Steps that are already behind a job when the first viewer looks.
const HEAD_START: u64 = 240;

/// The ranks: what they do, and on which devices.
pub const RANKS: [(Kind, &[u32]); 4] =
    [(Kind::Steady, &[0]), (Kind::Leaking, &[1]), (Kind::Fragmenting, &[2]), (Kind::Pending, &[3, 0])];

/// A running demo. Dropping it ends its jobs.
pub struct Demo {
    /// What happens.
    pub events: Receiver<Event>,
    /// The pace at which the driver of the demo is read, until somebody takes it.
    pub pace: Option<watch::Sender<Duration>>,
    begun: Instant,
    jobs: Vec<Child>,
    directory: PathBuf,
}

impl Demo {
    /// Starts the ranks and listens to them; needs a tokio runtime around it.
    ///
    /// # Errors
    /// When there is no place for sockets, or this program cannot start itself.
    pub fn start(seed: u64) -> io::Result<Self> {
        let directory = env::temp_dir().join(format!("gpuwatch-demo-{}", process::id()));
        fs::DirBuilder::new().mode(0o700).create(&directory)?;
        let probes = probe::Options { directories: vec![directory.clone()], private_tmp: false, run: None };
        let mut sources = Sources::start(Options { probes: Some(probes), ..Options::default() });
        let (tell, events) = channel(1024);
        let (pace, read_every) = watch::channel(driver::FASTEST);
        let mut demo = Self { events, pace: Some(pace), begun: sources.feed().begun, jobs: Vec::new(), directory };
        for (rank, (kind, devices)) in RANKS.iter().enumerate() {
            demo.jobs.push(start_job(seed, rank, *kind, devices, &demo.directory)?);
        }
        tokio::spawn(async move {
            let mut driver = Driver::default();
            while let Some(event) = sources.events.recv().await.map(past::paced) {
                // The driver of the demo is our own.
                driver.read_every(*read_every.borrow());
                let derived = driver.after(&event);
                let kept = !matches!(event.fact, Fact::Driver(DriverState::Off));
                for event in kept.then_some(event).into_iter().chain(derived) {
                    if tell.send(event).await.is_err() {
                        return;
                    }
                }
            }
        });
        Ok(demo)
    }

    /// What a view of it is fed with.
    pub fn feed(&mut self) -> Feed<'_> {
        Feed { events: &mut self.events, begun: self.begun, hurry: Arc::new(Notify::new()) }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // Closing their standard input ends them in good order; who lingers is killed.
        for job in &mut self.jobs {
            drop(job.stdin.take());
        }
        for job in &mut self.jobs {
            if !ends_soon(job) {
                // It ended meanwhile, or cannot be ended.
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
        // A group of their own: a terminal that hangs up must not kill them before they have cleaned up.
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}
