//! `gpuwatch stream`: this machine's events for a gpuwatch on another one, and its requests.

/// The requests that it answers.
pub mod desk;

use super::{Invocation, Subcommand};
use crate::{
    cli::runtime,
    config::Watching,
    facts::{
        event::Fact,
        remote::{REQUEST_MAX, Request},
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
use desk::Desk;
use std::{
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
    watching: Watching,
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
            stream(&mut sources, header(None), Desk::new(actions), requests, io::stdout().lock(), stop).await
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
    mut desk: Desk,
    mut requests: Receiver<Request>,
    mut out: impl Write,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let mut stop = pin!(stop);
    let mut thinner = Thinner::new(STREAM_US);
    let mut tick = interval(EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut text = encode_header(&Header { recording: header, requests: Some(desk.kinds()) });
    loop {
        out.write_all(text.as_bytes())?;
        out.flush()?;
        text.clear();
        select! {
            biased;
            // Those that came before the end of input are carried out.
            Some(request) = requests.recv() => {
                text.extend(desk.answer(request).map(encode_answer));
                continue;
            }
            () = &mut stop => break,
            answer = desk.late() => {
                text.push_str(&encode_answer(answer));
                continue;
            }
            _ = tick.tick() => {}
        }
        let is_open = take(sources, &mut thinner, &mut desk, &mut text);
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
fn take(sources: &mut Sources, thinner: &mut Thinner, desk: &mut Desk, text: &mut String) -> bool {
    for _ in 0..BATCH {
        match sources.events.try_recv() {
            Ok(event) if event.fact == Fact::Second => {
                text.push_str(&encode_beat(&Beat { at_us: sources::now(), unix_us: sources::unix_us() }));
            }
            Ok(event) => {
                desk.note(&event);
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
