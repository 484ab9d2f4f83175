//! `gpuwatch stream`: this machine's events for a gpuwatch on another one, and its requests.

use super::{Invocation, Subcommand};
use crate::{
    cli::runtime,
    config::WatchFlags,
    facts::{
        event::{Event, Fact, Line, ProbeId},
        remote::{Action, Answer, KINDS, Kind, Outcome, REQUEST_MAX, Request},
        text::Foreign,
    },
    jobs::recorder::file::header,
    screen::actions::LocalActions,
    sources::{
        self, Sources,
        thinner::{STREAM_US, Thinner},
    },
    storage::{
        recording::{self, Closed, encode, encode_closed},
        stream::{Beat, Header, encode_answer, encode_beat, encode_header},
    },
};
use anyhow::Result;
use clap::builder::FalseyValueParser;
use std::{
    collections::BTreeMap,
    future::Future,
    io::{self, BufRead, Read, Write},
    pin::pin,
    thread,
    time::Duration,
};
use tokio::{
    select,
    sync::{
        mpsc::{self, Receiver, error::TryRecvError},
        oneshot,
    },
    time::{MissedTickBehavior, interval},
};

/// The end of its help.
const AFTER: &str = "Example:\n  ssh node01 gpuwatch stream | jq -c 'select(.type == \"memory\")'\n\n\
    It ends when standard input ends or when no process reads its output, so it needs an open standard input: \
    `ssh -n` gives it none. Each line of standard input is a request of `gpuwatch --hosts`: to signal a process, to \
    start a probe or a trace in it, or to capture its call stacks. Of fast jobs, at most four samples a second pass for each device of a process.";

/// Requests that may wait; a user sends fewer, and more are dropped.
const QUEUE: usize = 64;

/// How long a write to a reader that does not read may last after standard input has ended.
const GRACE: Duration = Duration::from_secs(1);

/// Time between two writes.
const EVERY: Duration = Duration::from_millis(100);

/// Most events between two writes.
const BATCH: usize = 2048;

/// The arguments of `gpuwatch stream`.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(super) struct StreamArgs {
    #[command(flatten)]
    watching: WatchFlags,
    /// Take no requests from the reader: it can only watch.
    #[arg(long, env = "GPUWATCH_READONLY", value_parser = FalseyValueParser::new())]
    readonly: bool,
}

impl Subcommand for StreamArgs {
    fn run(&self, invocation: &Invocation) -> Result<u8> {
        gpuwatch_probe::socket::prepare();
        runtime()?.block_on(async {
            let mut sources = Sources::start(self.watching.sources().recorded());
            let actions = (!self.readonly)
                .then(|| LocalActions::new(Some(sources.asks.clone()), Some(invocation.config.clone())));
            let (sender, requests) = mpsc::channel(QUEUE);
            let ended = input(sender)?;
            let stop = async {
                // An error means that the thread has ended, and with it standard input.
                let _ = ended.await;
            };
            stream(&mut sources, header(None), RequestServer::new(actions), requests, io::stdout().lock(), stop).await
        })?;
        Ok(0)
    }
}

/// Writes events as lines, and answers requests, until `stop` completes.
///
/// While the reader does not read, the write blocks and no source is read: the probes keep their history meanwhile, and
/// report what they had to drop.
///
/// # Errors
/// Fails if no process reads any more.
async fn stream(
    sources: &mut Sources,
    header: recording::Header,
    mut server: RequestServer,
    mut requests: Receiver<Request>,
    mut out: impl Write,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let mut stop = pin!(stop);
    let mut thinner = Thinner::new(STREAM_US);
    let mut tick = interval(EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut text = encode_header(&Header { recording: header, requests: Some(server.kinds()) });
    loop {
        out.write_all(text.as_bytes())?;
        out.flush()?;
        text.clear();
        select! {
            biased;
            // Those that came before the end of input are carried out.
            Some(request) = requests.recv() => {
                text.extend(server.answer(request).map(encode_answer));
                continue;
            }
            () = &mut stop => break,
            answer = server.late() => {
                text.push_str(&encode_answer(answer));
                continue;
            }
            _ = tick.tick() => {}
        }
        let is_open = take(sources, &mut thinner, &mut server, &mut text);
        thinner.flush(sources::now(), &mut |it| encode(&it, &mut text));
        if !is_open {
            break;
        }
    }
    thinner.finish(&mut |it| encode(&it, &mut text));
    text.push_str(&encode_closed(&Closed { at_us: sources::now(), lost: 0 }));
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Encodes the waiting events; false without sources.
fn take(sources: &mut Sources, thinner: &mut Thinner, server: &mut RequestServer, text: &mut String) -> bool {
    for _ in 0..BATCH {
        match sources.events.try_recv() {
            Ok(event) if event.fact == Fact::Second => {
                text.push_str(&encode_beat(&Beat { at_us: sources::now(), unix_us: sources::unix_us() }));
            }
            Ok(event) => {
                server.note(&event);
                thinner.take(event, &mut |it| encode(&it, text));
            }
            Err(TryRecvError::Empty) => return true,
            Err(TryRecvError::Disconnected) => return false,
        }
    }
    true
}

/// Sends the requests on standard input; completes when that has ended.
fn input(requests: mpsc::Sender<Request>) -> io::Result<oneshot::Receiver<()>> {
    let (sender, ended) = oneshot::channel();
    thread::Builder::new().name("input".into()).spawn(move || {
        read(io::stdin().lock(), |request| {
            let _ = requests.try_send(request);
        });
        if sender.send(()).is_ok() {
            thread::sleep(GRACE);
            // The program is still here: it is stuck in a write.
            std::process::exit(0);
        }
    })?;
    Ok(ended)
}

/// Reads lines to their end; skips those that are not requests, or are too long for one.
fn read(mut input: impl BufRead, mut take: impl FnMut(Request)) {
    let (mut line, mut is_rest) = (Vec::new(), false);
    while let Ok(1..) = (&mut input).take(REQUEST_MAX as u64).read_until(b'\n', &mut line) {
        let is_whole = line.ends_with(b"\n");
        if is_whole && !is_rest {
            Request::read(&line).into_iter().for_each(&mut take);
        }
        is_rest = !is_whole;
        line.clear();
    }
}

/// Most probes whose processes are remembered; beyond that, the oldest are forgotten.
const PROBES: usize = 4096;

/// Answers requests: what a key does on this host, at a gpuwatch on another one.
#[derive(Debug, Default)]
pub struct RequestServer {
    /// What acts on processes; `None` in a read-only stream.
    actions: Option<LocalActions>,
    /// The request that holds a process.
    held: Option<u64>,
    /// The pid that each probe reports.
    probes: BTreeMap<ProbeId, u32>,
}

impl RequestServer {
    /// Returns a server that refuses every request without `actions`.
    pub fn new(actions: Option<LocalActions>) -> Self {
        Self { actions, ..Self::default() }
    }

    /// Returns the types of requests that it answers.
    pub fn kinds(&self) -> Vec<Kind> {
        if self.actions.is_some() { KINDS.to_vec() } else { Vec::new() }
    }

    /// Takes an event that the reader gets.
    pub(super) fn note(&mut self, event: &Event) {
        if let Fact::Probe { probe, line } = &event.fact
            && let Line::Hello(hello) = &**line
        {
            self.probes.insert(*probe, hello.pid);
            if self.probes.len() > PROBES {
                self.probes.pop_first();
            }
        }
    }

    /// Carries a request out. Returns its answer; `None` if that comes with [`Self::late`].
    pub(super) fn answer(&mut self, request: Request) -> Option<Answer> {
        let id = request.id;
        let outcome = match self.act(request) {
            Ok(outcome) => outcome?,
            Err(why) => Outcome::Error(Foreign::new(why)),
        };
        Some(Answer { id, outcome })
    }

    fn act(&mut self, Request { id, action }: Request) -> Result<Option<Outcome>, String> {
        let actions = self.actions.as_mut().ok_or("gpuwatch there is --readonly: it takes no requests")?;
        let held = self.held;
        let is_held = |it: u64| (held == Some(it)).then_some(()).ok_or("the process is not selected any more");
        Ok(match action {
            Action::Hold(subject) => {
                self.held = None;
                let info = actions.hold(&subject)?.clone();
                self.held = Some(id);
                Some(Outcome::Held(Box::new(info)))
            }
            Action::Signal { held, signal } => {
                is_held(held)?;
                Some(Outcome::Text(Foreign::new(actions.send(signal)?)))
            }
            Action::Start { held, start } => {
                is_held(held)?;
                actions.start(start, id)?;
                None
            }
            Action::Capture(it) if self.probes.get(&it.ask.probe) == Some(&it.pid) => {
                actions.capture(it.ask)?;
                Some(Outcome::Done)
            }
            Action::Capture(it) => return Err(format!("pid {} has no probe any more", it.pid)),
            Action::Unknown => {
                return Err(format!(
                    "gpuwatch {} there has no such request: use a newer one there",
                    env!("CARGO_PKG_VERSION")
                ));
            }
        })
    }

    /// Waits for the answer of what a request has started.
    pub(super) async fn late(&mut self) -> Answer {
        match &mut self.actions {
            Some(actions) => {
                let (id, words) = actions.answer().await;
                Answer { id, outcome: Outcome::Text(Foreign::new(words)) }
            }
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_between_garbage_and_lines_without_end() {
        let request = |id: u64| format!("{{\"id\":{id},\"type\":\"dance\"}}\n");
        let long = format!("{}{}\n", "x".repeat(3 * REQUEST_MAX), request(7).trim_end());
        let text = [&request(1), "\n", "garbage\n", &long, &request(2), "\u{0}\n", request(3).trim_end()].concat();
        let mut read_ids = Vec::new();
        read(text.as_bytes(), |it| read_ids.push(it.id));
        assert_eq!(read_ids, [1, 2]);
    }
}
