//! `gpuwatch stream`: this machine's events for a gpuwatch on another one, and its requests.

/// The requests that it answers.
pub mod desk;

use crate::{
    facts::{event::Fact, remote::Request},
    sources::{
        self, Sources,
        thinner::{STREAM_US, Thinner},
    },
    storage::{
        recording::{self, Closed, encode, encode_closed},
        stream::{Beat, Header, encode_answer, encode_beat, encode_header},
    },
};
use desk::Desk;
use std::{
    future::Future,
    io::{self, Write},
    pin::pin,
    time::Duration,
};
use tokio::{
    select,
    sync::mpsc::{Receiver, error::TryRecvError},
    time::{MissedTickBehavior, interval},
};

/// Time between two writes.
const EVERY: Duration = Duration::from_millis(100);

/// Most events between two writes.
const BATCH: usize = 2048;

/// Writes events as lines, and answers requests, until `stop` completes.
///
/// While the reader does not read, the write blocks and no source is read: the probes keep their history meanwhile, and
/// report what they had to drop.
///
/// # Errors
/// Fails if no process reads any more.
pub async fn stream(
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
