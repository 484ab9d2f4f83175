//! Consumers of events. A sink has a bounded queue and its own thread; a slow one drops events, counts them and reports
//! that.

use crate::{
    facts::event::{Event, Fact, ProbeId},
    sources::Sources,
};
use std::{collections::BTreeSet, future::Future, time::Duration};
use tokio::{
    pin, select,
    time::{Instant, sleep_until},
};

/// Syncs the traces beside a recording.
mod trace_sync;

/// A file that continues once its disk takes bytes again.
mod disk;

/// A recording's file and its frames.
pub mod writing;

/// A recording with its holes.
mod journal;

/// Recordings: the event stream on disk.
pub mod record;

/// The directory of recordings and its limits.
pub mod store;

/// The numbers of probes over several connections to their host.
mod probe_numbers;

/// Recordings of several hosts in one directory.
pub mod host_recordings;

/// Delivers alerts.
pub mod delivery;

/// How long to wait for a job's probes after it ended, since their last line. Only a process that outlives its job
/// makes gpuwatch wait that long.
const LAST_EVENTS: Duration = Duration::from_secs(1);

/// Limit for the last scan and its events of a job that ended, on a busy machine: less than `gpuwatch run` waits.
pub const LAST_SCAN: Duration = Duration::from_secs(5);

/// How long a recorder that a signal ends waits for what probes have already sent: their jobs continue.
pub const PENDING: Duration = Duration::from_millis(300);

/// Passes every event to `receive` until `stop` completes and all pending events have arrived, for which it waits up to
/// `limit`.
pub async fn follow(
    sources: &mut Sources,
    stop: impl Future<Output = Vec<Fact>>,
    limit: Duration,
    mut receive: impl FnMut(&Event),
) {
    pin!(stop);
    // Without connected probes, there are no last events to wait for.
    let mut connected = BTreeSet::new();
    loop {
        select! {
            biased;
            last = &mut stop => {
                receive_last_events(sources, &mut connected, limit, &mut receive).await;
                for fact in last {
                    receive(&Event { at: crate::sources::now(), fact });
                }
                return;
            }
            event = sources.events.recv() => {
                let Some(event) = event else { return };
                note_connection(&mut connected, &event);
                receive(&event);
            }
        }
    }
}

/// Receives pending events, the probes' last lines, and what the last scan finds.
async fn receive_last_events(
    sources: &mut Sources,
    connected: &mut BTreeSet<ProbeId>,
    limit: Duration,
    receive: &mut impl FnMut(&Event),
) {
    let last_scan = sources.last_scan();
    pin!(last_scan);
    let end = Instant::now() + limit;
    let (mut quiet, mut has_scanned) = (Instant::now() + LAST_EVENTS, false);
    while !(has_scanned && connected.is_empty() && sources.events.is_empty()) {
        select! {
            biased;
            event = sources.events.recv() => {
                let Some(event) = event else { return };
                if matches!(event.fact, Fact::Probe { .. } | Fact::ProbeFound { .. }) {
                    quiet = Instant::now() + LAST_EVENTS;
                }
                note_connection(connected, &event);
                receive(&event);
            }
            () = &mut last_scan, if !has_scanned => has_scanned = true,
            () = sleep_until(if has_scanned { quiet.min(end) } else { end }) => return,
        }
    }
}

/// Updates which probes are connected.
fn note_connection(connected: &mut BTreeSet<ProbeId>, event: &Event) {
    match &event.fact {
        Fact::ProbeFound { probe, .. } => {
            connected.insert(*probe);
        }
        Fact::Probe { probe, .. } | Fact::ProbeGone { probe, .. } if event.ends_probe() => {
            connected.remove(probe);
        }
        _ => {}
    }
}
