//! `gpuwatch stream`: this machine's events for a gpuwatch on another one.

use crate::{
    facts::event::Fact,
    sources::{self, Sources},
    storage::{
        recording::{Closed, Header, encode, encode_closed, encode_header},
        stream::{Beat, Thinner, encode_beat},
    },
};
use std::{
    future::Future,
    io::{self, Write},
    pin::pin,
    time::Duration,
};
use tokio::{
    select,
    sync::mpsc::error::TryRecvError,
    time::{MissedTickBehavior, interval},
};

/// Time between two writes.
const EVERY: Duration = Duration::from_millis(100);

/// Most events between two writes.
const BATCH: usize = 2048;

/// Writes events as lines until `stop` completes.
///
/// While the reader does not read, the write blocks and no source is read: the probes keep their history meanwhile, and
/// report what they had to drop.
///
/// # Errors
/// Fails if no process reads any more.
pub async fn stream(
    sources: &mut Sources,
    header: &Header,
    mut out: impl Write,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let mut stop = pin!(stop);
    let mut thinner = Thinner::default();
    let mut tick = interval(EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut text = encode_header(header);
    loop {
        out.write_all(text.as_bytes())?;
        out.flush()?;
        text.clear();
        select! {
            biased;
            () = &mut stop => break,
            _ = tick.tick() => {}
        }
        let is_open = take(sources, &mut thinner, &mut text);
        thinner.flush(sources::now(), &mut |it| encode(it, &mut text));
        if !is_open {
            break;
        }
    }
    thinner.flush(sources::now(), &mut |it| encode(it, &mut text));
    text.push_str(&encode_closed(&Closed { at_us: sources::now(), lost: 0 }));
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Encodes the waiting events; false without sources.
fn take(sources: &mut Sources, thinner: &mut Thinner, text: &mut String) -> bool {
    for _ in 0..BATCH {
        match sources.events.try_recv() {
            Ok(event) if event.fact == Fact::Second => {
                text.push_str(&encode_beat(&Beat { at_us: sources::now(), unix_us: sources::unix_us() }));
            }
            Ok(event) => thinner.take(&event, &mut |it| encode(it, text)),
            Err(TryRecvError::Empty) => return true,
            Err(TryRecvError::Disconnected) => return false,
        }
    }
    true
}
