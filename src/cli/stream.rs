//! `gpuwatch stream`: its flags, and what ends it.

use crate::{
    commands::stream::{self, desk::Desk},
    config::{File, Watching},
    facts::remote::{REQUEST_MAX, Request},
    jobs::recorder::file::header,
    screen::hands::Hands,
    sources::Sources,
};
use anyhow::Result;
use clap::builder::FalseyValueParser;
use std::{
    io::{self, BufRead, Read},
    thread,
    time::Duration,
};
use tokio::sync::{mpsc, oneshot};

/// What `gpuwatch stream` does.
#[derive(Debug, clap::Args)]
pub(super) struct Asked {
    #[command(flatten)]
    watching: Watching,
    /// Take no requests from the reader: it can only watch.
    #[arg(long, env = "GPUWATCH_READONLY", value_parser = FalseyValueParser::new())]
    readonly: bool,
}

/// The end of its help.
pub(super) const AFTER: &str = "Example:\n  ssh node01 gpuwatch stream | jq -c 'select(.type == \"memory\")'\n\n\
    It ends when standard input ends or when no process reads its output, so it needs an open standard input: \
    `ssh -n` gives it none. Each line of standard input is a request of `gpuwatch --hosts`: to signal a process, to \
    start a probe or a trace in it, or to capture its call stacks. Of fast jobs, at most four samples a second pass for each device of a process.";

/// Requests that may wait; a user sends fewer, and more are dropped.
const QUEUE: usize = 64;

/// How long a write to a reader that does not read may last after standard input has ended.
const GRACE: Duration = Duration::from_secs(1);

/// Streams this machine's events, and answers requests, until standard input ends.
pub(super) fn stream(asked: &Asked, config: &File) -> Result<u8> {
    gpuwatch_probe::socket::prepare();
    super::runtime()?.block_on(async {
        let mut sources = Sources::start(asked.watching.sources().recorded());
        let hands = (!asked.readonly).then(|| Hands::new(Some(sources.asks.clone()), Some(config.clone())));
        let (sender, requests) = mpsc::channel(QUEUE);
        let ended = input(sender)?;
        let stop = async {
            // An error means that the thread has ended, and with it standard input.
            let _ = ended.await;
        };
        stream::stream(&mut sources, header(None), Desk::new(hands), requests, io::stdout().lock(), stop).await
    })?;
    Ok(0)
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
