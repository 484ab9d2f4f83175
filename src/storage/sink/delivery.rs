//! Delivers each alert once: to a program, a recording, the screen, and as requests to jobs.
//!
//! The alert program runs on its own thread, once at a time, each with a deadline. Processes of a job that ask for the
//! figures of their recorder get them each second, in a file beside the probe's socket (`gpuwatch_latest` in
//! `gpuwatch_probe.h`); the probe removes that file at its end.

use crate::{
    facts::{
        event::{Event, Fact, Request},
        text::Foreign,
        units::counted,
    },
    model::{
        alerts::{Captures, Edges, Message, NewAlerts, Policy},
        findings::{Finding, Findings},
        session::Session,
        tracker,
    },
    storage::output,
};
use gpuwatch_probe::{error_file, socket};
use rustix::process::{Pid, Signal, kill_process_group};
use std::{
    ffi::OsString,
    io::{self, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};
use tokio::sync::mpsc;

/// Receivers of alerts besides the screen.
#[derive(Default)]
pub struct Delivery {
    hook: Option<Hook>,
    asks: Option<(Captures, mpsc::Sender<Request>)>,
    news: NewAlerts,
    edges: Edges,
}

impl Delivery {
    /// Delivers to a program, and requests captures from jobs in which growth is found.
    pub fn new(hook: Option<Hook>, asks: Option<mpsc::Sender<Request>>) -> Self {
        let mut delivery = Self { hook, ..Self::default() };
        if let Some(asks) = asks {
            delivery.ask(asks);
        }
        delivery
    }

    /// Requests captures from now on.
    pub fn ask(&mut self, asks: mpsc::Sender<Request>) {
        self.asks = Some((Captures::default(), asks));
    }

    /// Returns whether no program receives alerts and no probe receives requests.
    pub fn is_idle(&self) -> bool {
        self.hook.is_none() && self.asks.is_none()
    }

    /// Folds an event, and delivers what is new on the grid of events: at each [`Fact::Second`]. Returns and keeps the
    /// same as [`Self::deliver`].
    pub fn fold(
        &mut self,
        session: &mut Session,
        policy: &Policy,
        event: &Event,
        keep: impl FnMut(&'static str, &Finding),
    ) -> Vec<Message> {
        session.apply(event);
        if event.fact != Fact::Second {
            return Vec::new();
        }
        self.deliver(session, &policy.findings(session), keep)
    }

    /// Delivers what is new, and returns it for the screen; `keep` gets each alert with `raised` or `resolved`.
    pub fn deliver(
        &mut self,
        session: &Session,
        findings: &Findings,
        mut keep: impl FnMut(&'static str, &Finding),
    ) -> Vec<Message> {
        for (edge, it) in self.edges.at(findings) {
            keep(edge, it);
        }
        if let Some((captures, asks)) = &mut self.asks {
            for ask in captures.at(session, findings) {
                // A full queue has the same request already.
                let _ = asks.try_send(ask.into());
            }
        }
        let news = self.news.at(session, findings);
        self.offer(&news);
        news
    }

    /// Delivers alerts of several machines.
    pub fn offer(&self, news: &[Message]) {
        for message in news {
            self.hook.iter().for_each(|it| it.offer(message.clone()));
        }
    }

    /// Describes problems with the program, if any.
    pub fn complaint(&self) -> Option<String> {
        self.hook.as_ref()?.outcome().complaint()
    }

    /// Stops and describes problems; queued alerts may take until `patience`.
    pub fn finish(self, patience: Duration) -> Option<String> {
        self.hook?.finish(patience).complaint()
    }
}

/// Alerts that may be queued.
const QUEUE: usize = 16;

/// How long the program may take for one alert.
pub const LIMIT: Duration = Duration::from_secs(10);

/// How often to check a running program.
const POLL_EVERY: Duration = Duration::from_millis(20);

/// A program and its arguments: never a shell's command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its path, or its name, which is searched in `PATH`.
    pub path: OsString,
    /// The arguments of the program, one for each `--on-alert-arg`.
    pub arguments: Vec<OsString>,
}

/// The thread that runs a program for alerts.
pub struct Hook {
    queue: Option<SyncSender<Message>>,
    finished: Receiver<()>,
    state: Arc<State>,
}

/// The result so far.
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
    /// Describes problems, if any.
    pub fn complaint(&self) -> Option<String> {
        let were = if self.lost == 1 { "was" } else { "were" };
        let lost =
            (self.lost > 0).then(|| format!("{} {were} dropped: the program is too slow", counted(self.lost, "alert")));
        let problems: Vec<String> = self.trouble.clone().into_iter().chain(lost).collect();
        (!problems.is_empty()).then(|| format!("--on-alert: {}", problems.join("; ")))
    }
}

#[derive(Default)]
struct State {
    done: AtomicU64,
    lost: AtomicU64,
    trouble: Mutex<Option<String>>,
    /// When everything must have ended.
    end: Mutex<Option<Instant>>,
}

impl Hook {
    /// Starts the thread; the program may take `limit` for each alert.
    ///
    /// # Errors
    /// Fails if no thread can be started.
    pub fn start(program: Program, limit: Duration) -> io::Result<Self> {
        let (queue, messages) = sync_channel(QUEUE);
        let (done, finished) = channel();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        thread::Builder::new().name("alert".into()).spawn(move || {
            let _finished: std::sync::mpsc::Sender<()> = done;
            for message in messages {
                shared.run(&program, &message, limit);
            }
        })?;
        Ok(Self { queue: Some(queue), finished, state })
    }

    /// Queues an alert without waiting; counts it as lost if the queue is full.
    pub fn offer(&self, message: Message) {
        let Some(queue) = &self.queue else { return };
        if let Err(TrySendError::Full(_)) = queue.try_send(message) {
            self.state.lost.fetch_add(1, Relaxed);
        }
    }

    /// Returns the result so far.
    pub fn outcome(&self) -> Outcome {
        let trouble = locked(&self.state.trouble).clone();
        Outcome { done: self.state.done.load(Relaxed), lost: self.state.lost.load(Relaxed), trouble }
    }

    /// Waits for the running program. After `patience`, kills it and drops the queued alerts.
    pub fn finish(mut self, patience: Duration) -> Outcome {
        *locked(&self.state.end) = Some(Instant::now() + patience);
        self.queue = None;
        // Nothing is ever sent: the wait ends when the thread does. A program that cannot be killed is left.
        let _ = self.finished.recv_timeout(patience + 10 * POLL_EVERY);
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
        let trouble = match self.start_and_wait(program, message, limit) {
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

    /// Runs the program and returns how it ended; `None` if it had to be killed.
    fn start_and_wait(&self, program: &Program, message: &Message, limit: Duration) -> io::Result<Option<ExitStatus>> {
        let mut child = Command::new(&program.path)
            .args(&program.arguments)
            .envs(message.environment.iter().map(|(name, value)| (name, value)))
            // The program is not a job; with a probe it would be watched as one.
            .env("GPUWATCH", "off")
            .stdin(Stdio::piped())
            // The terminal belongs to the screen or the job.
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A separate group: signals of the terminal do not reach it, and it is killed with its children.
            .process_group(0)
            .spawn()?;
        let started = Instant::now();
        if let Some(mut input) = child.stdin.take() {
            // A program need not read it. It fits the pipe, so the write does not block.
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
            thread::sleep(POLL_EVERY);
        }
    }
}

fn is_over(end: &Mutex<Option<Instant>>) -> bool {
    locked(end).is_some_and(|it| Instant::now() >= it)
}

fn kill(child: &mut Child) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // It may have ended meanwhile; its pid is not reused before the wait.
    let _ = group.map(|it| kill_process_group(it, Signal::KILL));
    let _ = child.wait();
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes the figures of every running process that has asked for them.
pub fn write(session: &Session, findings: &Findings) {
    for process in session.processes.iter().filter(|it| it.is_alive()) {
        let path = Path::new(process.socket.raw()).with_extension(socket::FIGURES);
        // The file and its folder are this user's alone.
        let is_asked = error_file::open(&path).is_ok() && path.parent().is_some_and(|it| socket::check(it).is_ok());
        if is_asked {
            let text = tracker::figures(session, findings, process).to_string();
            // Without it the process has its own counters.
            let _ = output::replace(&path, 0o600, &text);
        }
    }
}
