//! Sources until told to stop, and then for their last words.

use crate::{
    event::{Event, Fact, ProbeId},
    source::Sources,
};
use gpuwatch_probe::wire::Line;
use std::{collections::BTreeSet, future::Future, time::Duration};
use tokio::{
    pin, select,
    time::{Instant, timeout_at},
};

/// What a job's probes may still have to say after it ended.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// Says every event to `hear` until `stop` is done and what was under way has been taken.
pub async fn follow(sources: &mut Sources, stop: impl Future<Output = Vec<Fact>>, mut hear: impl FnMut(&Event)) {
    pin!(stop);
    // Probes that have not said goodbye: where there is none, nobody waits for last words.
    let mut speaking = BTreeSet::new();
    loop {
        select! {
            biased;
            last = &mut stop => {
                let until = Instant::now() + LAST_WORDS;
                while let Ok(event) = sources.events.try_recv() {
                    note_speaker(&mut speaking, &event);
                    hear(&event);
                }
                while !speaking.is_empty()
                    && let Ok(Some(event)) = timeout_at(until, sources.events.recv()).await
                {
                    note_speaker(&mut speaking, &event);
                    hear(&event);
                }
                for fact in last {
                    hear(&Event { at: crate::source::now(), fact });
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
