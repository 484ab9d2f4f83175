//! Writes a recording on its own thread: frames with checksums, flushed each second, synced on another thread.

use crate::{
    facts::{
        event::{Event, Fact},
        text::Foreign,
        units::counted,
    },
    storage::{
        recording::{Closed, Header, encode_closed, encode_header},
        sink::{sync::Syncer, writing::Writing},
    },
};
use std::{
    fs::File,
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

const QUEUE: usize = 8192;
const FLUSH_EVERY: Duration = Duration::from_secs(1);
const SYNC_EVERY: Duration = Duration::from_secs(10);

/// An item of the queue.
enum Item {
    Event(Event),
    /// A line that is not an event, with its newline; readers derive its contents themselves.
    Line(String),
}

/// A recording in progress.
pub struct Recorder {
    queue: Option<SyncSender<Item>>,
    thread: Option<JoinHandle<()>>,
    state: Arc<State>,
}

/// The result of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Events dropped because the queue was full.
    pub lost: u64,
    /// Why writing stopped, for the user.
    pub trouble: Option<String>,
}

impl Outcome {
    /// Describes the losses; `None` without.
    pub fn loss(&self) -> Option<String> {
        (self.lost > 0).then(|| format!("{} lost: the disk is too slow", counted(self.lost, "event")))
    }

    /// Describes why the recording is incomplete; `None` if it is complete.
    pub fn fault(&self) -> Option<String> {
        self.trouble.clone().or_else(|| self.loss())
    }
}

#[derive(Default)]
struct State {
    lost: AtomicU64,
    trouble: Mutex<Option<String>>,
}

impl Recorder {
    /// Writes the header and starts the thread.
    ///
    /// # Errors
    /// Fails if the header cannot be written, so that the user learns of a full disk before the job starts.
    pub fn start(file: File, header: &Header) -> io::Result<Self> {
        let state = Arc::new(State::default());
        let (queue, items) = sync_channel(QUEUE);
        let mut writing = Writing::new(file, Instant::now());
        writing.line(&encode_header(header))?;
        writing.flush(Instant::now())?;
        let shared = Arc::clone(&state);
        let thread = thread::Builder::new().name("record".into()).spawn(move || record(writing, &items, &shared))?;
        Ok(Self { queue: Some(queue), thread: Some(thread), state })
    }

    /// Queues an event without waiting. If the queue is full, counts and records the loss.
    pub fn offer(&self, event: &Event) {
        self.hand_over(Item::Event(event.clone()));
    }

    /// The same for an alert's line, from [`encode_alert`](crate::storage::recording::encode_alert).
    pub fn offer_line(&self, line: String) {
        self.hand_over(Item::Line(line));
    }

    fn hand_over(&self, item: Item) {
        let Some(queue) = &self.queue else { return };
        if let Err(TrySendError::Full(_)) = queue.try_send(item) {
            self.state.lost.fetch_add(1, Relaxed);
        }
    }

    /// Returns the result so far.
    pub fn outcome(&self) -> Outcome {
        let trouble = self.state.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Outcome { lost: self.state.lost.load(Relaxed), trouble }
    }

    /// Ends the last frame and syncs.
    pub fn finish(mut self) -> Outcome {
        self.end();
        self.outcome()
    }

    fn end(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed already.
            let _ = thread.join();
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.end();
    }
}

/// Writes until the queue ends. After a fault it continues to empty the queue without writing.
fn record(writing: Writing, items: &Receiver<Item>, state: &State) {
    if let Err(trouble) = write_all(writing, items, state) {
        *state.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(words(&trouble));
        items.iter().for_each(drop);
    }
}

fn write_all(mut writing: Writing, items: &Receiver<Item>, state: &State) -> io::Result<()> {
    let syncer = Syncer::start()?;
    let mut lost = 0;
    let mut flush_at = Instant::now() + FLUSH_EVERY;
    let mut sync_at = Instant::now() + SYNC_EVERY;
    loop {
        match items.recv_timeout(flush_at.saturating_duration_since(Instant::now())) {
            Ok(Item::Event(event)) => writing.event(&event)?,
            Ok(Item::Line(line)) => writing.line(&line)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        let now = Instant::now();
        if now < flush_at {
            continue;
        }
        let lost_now = state.lost.load(Relaxed);
        if lost_now > lost {
            let text = format!("the recording lost {} here: the disk is too slow", counted(lost_now - lost, "event"));
            writing.event(&Event { at: writing.last(), fact: Fact::Notice(Foreign::new(text)) })?;
            lost = lost_now;
        }
        writing.flush(now)?;
        flush_at = now + FLUSH_EVERY;
        if now >= sync_at {
            syncer.ask([writing.file()])?;
            sync_at = now + SYNC_EVERY;
        }
    }
    writing.line(&encode_closed(&Closed { at_us: writing.last(), lost: state.lost.load(Relaxed) }))?;
    let file = writing.finish()?;
    syncer.finish(vec![file])
}

fn words(trouble: &io::Error) -> String {
    match trouble.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("the recording stopped: {trouble}; the job continues without it")
        }
        io::ErrorKind::NotFound | io::ErrorKind::StaleNetworkFileHandle => {
            "the recording stopped: its file or directory is gone; the job continues without it".to_owned()
        }
        _ => format!("the recording stopped: {trouble}; the job continues without it"),
    }
}
