//! Runs the alert program: one at a time, on a thread of its own, each with a deadline.

use crate::{
    facts::{text::Foreign, units::counted},
    model::alerts::Message,
};
use rustix::process::{Pid, Signal, kill_process_group};
use std::{
    ffi::OsString,
    io::{self, Write},
    os::unix::process::CommandExt,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

/// Alerts that may wait for the one before.
const QUEUE: usize = 16;

/// How long the program may take for one alert.
pub const LIMIT: Duration = Duration::from_secs(10);

/// How often a running program is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// A program and its arguments: never a line for a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its path, or its name to be looked for in `PATH`.
    pub path: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

/// A program that waits for alerts.
pub struct Hook {
    queue: Option<SyncSender<Message>>,
    finished: Receiver<()>,
    state: Arc<State>,
}

/// How it went so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Alerts whose program exited with 0.
    pub done: u64,
    /// Alerts dropped because the queue was full or the job ended.
    pub lost: u64,
    /// Why it last failed, in words for the user.
    pub trouble: Option<String>,
}

impl Outcome {
    /// What a user should know of it, if anything.
    pub fn complaint(&self) -> Option<String> {
        let were = if self.lost == 1 { "was" } else { "were" };
        let lost =
            (self.lost > 0).then(|| format!("{} {were} dropped: the program is too slow", counted(self.lost, "alert")));
        let said: Vec<String> = self.trouble.clone().into_iter().chain(lost).collect();
        (!said.is_empty()).then(|| format!("--on-alert: {}", said.join("; ")))
    }
}

#[derive(Default)]
struct State {
    done: AtomicU64,
    lost: AtomicU64,
    trouble: Mutex<Option<String>>,
    /// When everything has to be over.
    end: Mutex<Option<Instant>>,
}

impl Hook {
    /// Starts the thread; the program may take `limit` for each alert.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn start(program: Program, limit: Duration) -> io::Result<Self> {
        let (queue, messages) = sync_channel(QUEUE);
        let (tell, finished) = channel();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        thread::Builder::new().name("alert".into()).spawn(move || {
            let _finished: Sender<()> = tell;
            for message in messages {
                shared.run(&program, &message, limit);
            }
        })?;
        Ok(Self { queue: Some(queue), finished, state })
    }

    /// Hands over an alert; never waits. What finds the queue full is counted.
    pub fn offer(&self, message: Message) {
        let Some(queue) = &self.queue else { return };
        if let Err(TrySendError::Full(_)) = queue.try_send(message) {
            self.state.lost.fetch_add(1, Relaxed);
        }
    }

    /// How it goes so far.
    pub fn outcome(&self) -> Outcome {
        let trouble = locked(&self.state.trouble).clone();
        Outcome { done: self.state.done.load(Relaxed), lost: self.state.lost.load(Relaxed), trouble }
    }

    /// Waits for what is under way; what is not over after `patience` is killed, and what still waits is lost.
    pub fn finish(mut self, patience: Duration) -> Outcome {
        *locked(&self.state.end) = Some(Instant::now() + patience);
        self.queue = None;
        // Nothing is ever sent: what ends the wait is that the thread is done. One that cannot be killed is left.
        let _ = self.finished.recv_timeout(patience + 10 * LOOK);
        self.outcome()
    }
}

impl State {
    fn run(&self, program: &Program, message: &Message, limit: Duration) {
        if is_over(&self.end) {
            self.lost.fetch_add(1, Relaxed);
            return;
        }
        let name = Foreign::new(program.path.to_string_lossy());
        let trouble = match self.tell(program, message, limit) {
            Ok(Some(status)) if status.success() => {
                self.done.fetch_add(1, Relaxed);
                return;
            }
            Ok(Some(status)) => format!("{name} has failed: {status}"),
            Ok(None) if is_over(&self.end) => format!("{name} was killed: it was still running when gpuwatch ended"),
            Ok(None) => format!("{name} was killed: it took longer than {} ms", limit.as_millis()),
            Err(error) => format!("{name} cannot be started: {error}"),
        };
        *locked(&self.trouble) = Some(trouble);
    }

    /// How the program ended; `None` when it had to be killed.
    fn tell(&self, program: &Program, message: &Message, limit: Duration) -> io::Result<Option<ExitStatus>> {
        let mut child = Command::new(&program.path)
            .args(&program.arguments)
            .envs(message.environment.iter().map(|(name, value)| (name, value)))
            // It is no job: a probe in it would be watched as one.
            .env("GPUWATCH", "off")
            .stdin(Stdio::piped())
            // The terminal is the picture's, or the job's.
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A group of its own: what the terminal says to us is not for it, and it is killed with its children.
            .process_group(0)
            .spawn()?;
        let started = Instant::now();
        if let Some(mut input) = child.stdin.take() {
            // A program need not read it. It fits the pipe, so the write does not wait.
            let _ = writeln!(input, "{}", message.object);
        }
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            let end = locked(&self.end).unwrap_or(started + limit);
            if Instant::now() >= end.min(started + limit) {
                kill(&mut child);
                return Ok(None);
            }
            thread::sleep(LOOK);
        }
    }
}

fn is_over(end: &Mutex<Option<Instant>>) -> bool {
    locked(end).is_some_and(|it| Instant::now() >= it)
}

fn kill(child: &mut Child) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // It may have ended meanwhile; its number stays its own until it was waited for.
    let _ = group.map(|it| kill_process_group(it, Signal::KILL));
    let _ = child.wait();
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
