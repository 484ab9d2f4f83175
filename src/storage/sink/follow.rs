//! Runs the sources until they are stopped, and then receives their last events.

use crate::{
    facts::event::{Event, Fact, ProbeId},
    sources::Sources,
};
use gpuwatch_probe::wire::Line;
use std::{collections::BTreeSet, future::Future, time::Duration};
use tokio::{
    pin, select,
    time::{Instant, sleep_until},
};

/// What a job's probes may still have to say after it ended, since they last said something. Only a process that goes on
/// without its job makes anybody wait for so long.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long it may take to look for what they left, and to hear it, on a machine that is busy: less than `gpuwatch run`
/// waits for us.
const LAST_LOOK: Duration = Duration::from_secs(5);

/// Says every event to `hear` until `stop` is done and what was under way has been taken.
pub async fn follow(sources: &mut Sources, stop: impl Future<Output = Vec<Fact>>, mut hear: impl FnMut(&Event)) {
    pin!(stop);
    // Without probes that are still connected, there are no last events to wait for.
    let mut speaking = BTreeSet::new();
    loop {
        select! {
            biased;
            last = &mut stop => {
                hear_last_words(sources, &mut speaking, &mut hear).await;
                for fact in last {
                    hear(&Event { at: crate::sources::now(), fact });
                }
                return;
            }
            event = sources.events.recv() => {
                let Some(event) = event else { return };
                note_speaker(&mut speaking, &event);
                hear(&event);
            }
        }
    }
}

/// Hears what was under way, what probes still say, and what is found of those that nobody knew.
async fn hear_last_words(sources: &mut Sources, speaking: &mut BTreeSet<ProbeId>, hear: &mut impl FnMut(&Event)) {
    let look = sources.last_look();
    pin!(look);
    let end = Instant::now() + LAST_LOOK;
    let (mut quiet, mut has_looked) = (Instant::now() + LAST_WORDS, false);
    while !(has_looked && speaking.is_empty() && sources.events.is_empty()) {
        select! {
            biased;
            event = sources.events.recv() => {
                let Some(event) = event else { return };
                if matches!(event.fact, Fact::Probe { .. } | Fact::ProbeFound { .. }) {
                    quiet = Instant::now() + LAST_WORDS;
                }
                note_speaker(speaking, &event);
                hear(&event);
            }
            () = &mut look, if !has_looked => has_looked = true,
            () = sleep_until(if has_looked { quiet.min(end) } else { end }) => return,
        }
    }
}

fn note_speaker(speaking: &mut BTreeSet<ProbeId>, event: &Event) {
    match &event.fact {
        Fact::ProbeFound { probe, .. } => {
            speaking.insert(*probe);
        }
        Fact::Probe { probe, line } if matches!(**line, Line::Bye(_)) => {
            speaking.remove(probe);
        }
        Fact::ProbeGone { probe, .. } => {
            speaking.remove(probe);
        }
        _ => {}
    }
}
