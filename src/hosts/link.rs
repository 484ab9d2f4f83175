//! The children that read machines' streams: one for each machine, which is started again when it ends. No machine
//! waits for another: each has a task, and the queue takes turns.

use super::{
    intake::{Got, Intake},
    plan::{Plan, not_started},
    push::Push,
    requests::{self, Desk, Requests, Takes},
};
use crate::{
    facts::remote::Answer,
    model::cluster::{HostUpdate, Link, What},
    net::backoff::Backoff,
    sources::{child, now, unix_us},
};
use gpuwatch_probe::wire::LINE_MAX;
use std::{
    num::NonZero,
    process::Stdio,
    sync::{Arc, OnceLock},
    thread,
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader},
    process::{Child, ChildStdout, Command},
    select,
    sync::{
        OnceCell, Semaphore,
        mpsc::{self, Receiver, Sender},
    },
    task::JoinHandle,
    time::{MissedTickBehavior, interval, sleep, timeout},
};

/// News that may be queued for the reader; when the queue is full, links wait.
const QUEUE: usize = 4096;

/// A connection without a line for this long is closed, and tried again.
const DEAD: Duration = Duration::from_secs(30);

/// After a connection that lasts this long, in µs, the next one begins soon.
const GOOD_US: u64 = 60_000_000;

/// Children that begin at the same time, for each core: to begin costs this machine more than to read, and of children
/// that all begin at once, all answer late.
const BEGINNING: usize = 4;

/// A child that does not answer delays the next one by this time at most.
const BEGINS_WITHIN: Duration = Duration::from_millis(250);

/// How long a child that closed its output may take to end.
const ENDING: Duration = Duration::from_secs(2);

/// Most bytes kept of the beginning of a child's standard error, and of its end.
const ERRORS: usize = 4 << 10;

/// After a line of more bytes, which is rare, a link waits before the next one.
const HEAVY: usize = 32 << 10;
const AFTER_HEAVY: Duration = Duration::from_millis(20);

/// Running links. Dropping it ends their children.
pub struct Links {
    /// Their news, in order of arrival.
    pub news: Receiver<HostUpdate>,
    /// Requests to them; a view takes it.
    pub requests: Option<Requests>,
    tasks: Vec<JoinHandle<()>>,
}

impl Links {
    /// Starts a link to each machine of a plan; needs a tokio runtime.
    pub fn start(plan: &Plan) -> Self {
        let (sender, news) = mpsc::channel(QUEUE);
        let mut tasks = vec![tokio::spawn(seconds(sender.clone()))];
        let push = plan.push.then(|| Arc::new(OnceCell::new()));
        let plan = Arc::new(plan.clone());
        let (requests, desks) = Requests::new(&plan.hosts);
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let beginning = Arc::new(Semaphore::new(BEGINNING * cores));
        for (node, (host, desk)) in plan.hosts.iter().zip(desks).enumerate() {
            let (plan, push, beginning) = (Arc::clone(&plan), push.clone(), Arc::clone(&beginning));
            let task = Task { node, host: host.clone(), plan, push, beginning, news: sender.clone() };
            tasks.push(tokio::spawn(task.run(desk)));
        }
        Self { news, requests: Some(requests), tasks }
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Sends a tick each second.
async fn seconds(news: Sender<HostUpdate>) {
    let mut second = interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        second.tick().await;
        if news.send(HostUpdate { node: 0, at: now(), what: What::Second }).await.is_err() {
            return;
        }
    }
}

/// The link to one machine.
struct Task {
    node: usize,
    host: String,
    plan: Arc<Plan>,
    /// What is copied there first, described by the first link that needs it.
    push: Option<Arc<OnceCell<Push>>>,
    /// Lets so many children begin.
    beginning: Arc<Semaphore>,
    news: Sender<HostUpdate>,
}

/// Why reading ended.
enum End {
    /// The output ended.
    Closed,
    /// The connection is of no use.
    Fault(Link),
    /// Nothing receives the news any more.
    Unread,
}

impl Task {
    async fn run(self, mut desk: Desk) {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60)).staggered(self.node);
        loop {
            let begun = now();
            if !self.send(What::Link(Link::Connecting)).await {
                return;
            }
            let connected = self.connect(&mut desk).await;
            desk.close().await;
            let Some(link) = connected else { return };
            if !self.send(What::Link(link)).await {
                return;
            }
            if now().since(begun) >= GOOD_US {
                backoff.reset();
            }
            desk.refuse_for(backoff.pause()).await;
        }
    }

    /// Sends news; false without a receiver.
    async fn send(&self, what: What) -> bool {
        self.news.send(HostUpdate { node: self.node, at: now(), what }).await.is_ok()
    }

    /// Starts the child and reads it to its end. Returns the link's state then; `None` without a receiver.
    async fn connect(&self, desk: &mut Desk) -> Option<Link> {
        let program = match self.program().await {
            Ok(it) => it,
            Err(e) => return Some(Link::refused(format!("{e:#}"))),
        };
        if self.push.is_some() && !self.send(What::Link(Link::Connecting)).await {
            return None;
        }
        let command = self.plan.command(&self.host, &program);
        let begins = self.beginning.acquire().await.ok()?;
        let mut child = match spawn(&command) {
            Ok(it) => it,
            Err(e) => {
                let program = command.first().map_or("", |it| it);
                return Some(Link::refused(not_started(program, &e)));
            }
        };
        // The stream there ends when this one does.
        let mut input = child.stdin.take()?;
        let (mut intake, mut errors) = (Intake::default(), Vec::new());
        let takes = OnceLock::new();
        let (answered, mut answers) = mpsc::channel(requests::QUEUE);
        let mut stdout = BufReader::new(child.stdout.take()?);
        let mut stderr = child.stderr.take()?;
        // Its first bytes, or its end.
        let _ = timeout(BEGINS_WITHIN, stdout.fill_buf()).await;
        drop(begins);
        let end = select! {
            biased;
            end = self.read(stdout, &mut intake, &takes, &answered) => end,
            () = drain(&mut stderr, &mut errors, true) => End::Closed,
            () = desk.serve(&mut input, &takes, &mut answers) => End::Closed,
        };
        match end {
            End::Unread => None,
            End::Fault(link) => Some(link),
            End::Closed => {
                let ended = timeout(ENDING, async {
                    drain(&mut stderr, &mut errors, false).await;
                    child.wait().await
                });
                let code = ended.await.ok().and_then(Result::ok).and_then(|it| it.code());
                Some(intake.end(code, &errors))
            }
        }
    }

    /// Returns the gpuwatch to start there, after copying this one if it shall be.
    async fn program(&self) -> anyhow::Result<String> {
        let Some(push) = &self.push else { return Ok(self.plan.program.clone()) };
        let push = push.get_or_try_init(|| async { Push::of_this() }).await?;
        push.ensure(&self.plan.transport, &self.host, async || _ = self.send(What::Link(Link::Copying)).await).await
    }

    /// Reads the stream to its end. Sets which requests the machine takes, and passes its answers on.
    async fn read(
        &self,
        mut stdout: BufReader<ChildStdout>,
        intake: &mut Intake,
        takes: &OnceLock<Takes>,
        answered: &Sender<Answer>,
    ) -> End {
        let mut line = Vec::new();
        loop {
            line.clear();
            let mut bounded = (&mut stdout).take(LINE_MAX as u64);
            let got = match timeout(DEAD, bounded.read_until(b'\n', &mut line)).await {
                Ok(Ok(got)) => got,
                Ok(Err(_)) => return End::Closed,
                Err(_) => {
                    let why = format!("no line for {} s: gpuwatch connects again", DEAD.as_secs());
                    return End::Fault(Link::Silent { why: why.as_str().into() });
                }
            };
            if got == 0 || (line.last() != Some(&b'\n') && got < LINE_MAX) {
                return End::Closed;
            }
            if line.pop() != Some(b'\n') {
                return End::Fault(Link::incompatible("it sent a line of more than 1 MiB".to_owned()));
            }
            match intake.line(&line, unix_us()) {
                Ok(None) => {}
                // One that does not fit answers no request.
                Ok(Some(Got::Answer(answer))) => _ = answered.try_send(answer),
                Ok(Some(Got::News(what))) => {
                    if let Some(it) = intake.takes() {
                        takes.get_or_init(|| it.clone());
                    }
                    if !self.send(what).await {
                        return End::Unread;
                    }
                }
                Err(fault) => return End::Fault(fault),
            }
            if got > HEAVY {
                line.shrink_to(HEAVY);
                sleep(AFTER_HEAVY).await;
            }
        }
    }
}

/// Starts a child in a process group of its own, so that it cannot read the terminal. All that it writes comes through
/// pipes.
fn spawn(command: &[String]) -> std::io::Result<Child> {
    let (program, arguments) = command.split_first().ok_or(std::io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    child::ends_with_us(command.as_std_mut());
    command.process_group(0).kill_on_drop(true).spawn()
}

/// Reads a child's standard error, and keeps its beginning and its end. Then it returns, or never if it shall stay.
async fn drain(from: &mut (impl AsyncRead + Unpin), kept: &mut Vec<u8>, stay: bool) {
    let mut chunk = [0; 1024];
    while let Ok(got @ 1..) = from.read(&mut chunk).await {
        kept.extend(chunk.get(..got).unwrap_or_default());
        if kept.len() > 2 * ERRORS {
            let surplus = kept.len() - 2 * ERRORS;
            kept.drain(ERRORS..ERRORS + surplus);
        }
    }
    if stay {
        std::future::pending::<()>().await;
    }
}
