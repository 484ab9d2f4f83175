//! Sources into a recording, until told to stop.

use super::record::Recorder;
use crate::{
    event::{Event, Fact},
    source::Sources,
};
use std::{future::Future, time::Duration};
use tokio::{
    pin, select,
    time::{Instant, timeout_at},
};

/// What a job's probes may still have to say after it ended.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// Records until `stop` is done and what was under way has been taken; `note` is told of trouble, once.
pub async fn follow(
    sources: &mut Sources,
    recorder: &Recorder,
    stop: impl Future<Output = Vec<Fact>>,
    mut note: impl FnMut(&str),
) {
    pin!(stop);
    let mut noted = false;
    loop {
        select! {
            biased;
            last = &mut stop => {
                let until = Instant::now() + LAST_WORDS;
                while let Ok(Some(event)) = timeout_at(until, sources.events.recv()).await {
                    recorder.offer(&event);
                }
                for fact in last {
                    recorder.offer(&Event { at: crate::source::now(), fact });
                }
                return;
            }
            event = sources.events.recv() => {
                let Some(event) = event else { return };
                recorder.offer(&event);
                if event.fact == Fact::Second && !noted
                    && let Some(trouble) = recorder.outcome().trouble
                {
                    note(&trouble);
                    noted = true;
                }
            }
        }
    }
}
