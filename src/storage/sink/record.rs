//! Writes a recording on its own thread: frames with checksums, flushed each second, synced on another thread.

use crate::{
    facts::{
        event::Event,
        units::{Stamp, counted},
    },
    storage::{
        recording::{Header, encode_header},
        sink::{
            disk::{Syncer, last_sync},
            journal::{Journal, Missed, State, TOO_SLOW},
            trace_sync::TraceSync,
            writing::Writing,
        },
    },
};
use std::{
    fs::File,
    io, mem,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, channel, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

const QUEUE: usize = 8192;
const FLUSH_EVERY: Duration = Duration::from_secs(1);
const SYNC_EVERY: Duration = Duration::from_secs(10);

/// How long a recording's end may take on a disk that does not answer. A job's end waits for it.
const END_WITHIN: Duration = Duration::from_secs(5);

/// An item of the queue.
enum Item {
    Event(Event),
    /// A line that is not an event, with its newline; readers derive its contents themselves.
    Line(Stamp, String),
}

/// A recording in progress.
pub struct Recorder {
    queue: Option<SyncSender<Item>>,
    /// Disconnects when the thread has ended.
    ended: Receiver<()>,
    shared: Arc<Shared>,
}

/// The result of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Events that the recording lacks.
    pub lost: u64,
    /// Why it lacks them.
    pub why: Option<String>,
    /// Why it cannot be written now, for the user.
    pub trouble: Option<String>,
}

impl Outcome {
    /// Describes the losses; `None` without.
    pub fn loss(&self) -> Option<String> {
        let why = self.why.as_ref()?;
        let lost = counted(self.lost, "event");
        let words = || match why.as_str() {
            TOO_SLOW => format!("{lost} lost: {why}"),
            _ => format!("the recording stopped for a while and lacks {lost}: {why}"),
        };
        (self.lost > 0).then(words)
    }

    /// Describes why the recording is incomplete; `None` if it is complete.
    pub fn fault(&self) -> Option<String> {
        self.trouble.clone().or_else(|| self.loss())
    }
}

#[derive(Default)]
struct Shared {
    /// What the queue had no room for.
    missed: Mutex<Missed>,
    state: Mutex<State>,
    /// Whether the file has its end; the disk may still have to take it.
    is_closed: AtomicBool,
}

fn locked<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recorder {
    /// Writes the header and starts the thread.
    ///
    /// # Errors
    /// Fails if the header cannot be written, so that the user learns of a full disk before the job starts.
    pub fn start(file: File, header: &Header) -> io::Result<Self> {
        let now = Instant::now();
        Self::write(Journal::begin(Writing::new(file, now), encode_header(header), now)?)
    }

    /// Starts the thread, which makes the file once there is room for it.
    ///
    /// # Errors
    /// Fails if no thread can be started.
    pub fn planned(path: PathBuf, header: &Header) -> io::Result<Self> {
        Self::write(Journal::planned(Writing::planned(path, Instant::now()), encode_header(header)))
    }

    fn write(journal: Journal) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (queue, items) = sync_channel(QUEUE);
        let (end, ended) = channel();
        let syncer = Syncer::start(traces(&journal))?;
        let of_thread = Arc::clone(&shared);
        thread::Builder::new().name("record".into()).spawn(move || {
            let _end = end;
            record(journal, &items, &of_thread, &syncer);
        })?;
        Ok(Self { queue: Some(queue), ended, shared })
    }

    /// Queues an event without waiting. If the queue is full, counts and records the loss.
    pub fn offer(&self, event: &Event) {
        self.hand_over(Item::Event(event.clone()));
    }

    /// The same for an alert's line, from [`encode_alert`](crate::storage::recording::encode_alert).
    pub fn offer_line(&self, at: Stamp, line: String) {
        self.hand_over(Item::Line(at, line));
    }

    fn hand_over(&self, item: Item) {
        let Some(queue) = &self.queue else { return };
        // After a loss everything is missed until the queue is empty, so that the hole has one place.
        let mut missed = locked(&self.shared.missed);
        let left = if missed.is_empty() { queue.try_send(item) } else { Err(TrySendError::Full(item)) };
        if let Err(TrySendError::Full(item)) = left {
            item.miss(&mut missed);
        }
    }

    /// Returns the result so far.
    pub fn outcome(&self) -> Outcome {
        let State { lost, why, trouble } = locked(&self.shared.state).clone();
        let lost = lost + locked(&self.shared.missed).lost();
        Outcome { lost, why: why.or_else(|| Some(TOO_SLOW.to_owned())), trouble: trouble.map(|it| words(&it)) }
    }

    /// Closes the recording.
    pub fn finish(self) -> Outcome {
        self.finish_within(END_WITHIN)
    }

    /// The same if a signal asks for it: the disk may take until `patience`.
    pub fn finish_within(mut self, patience: Duration) -> Outcome {
        self.end(patience);
        self.outcome()
    }

    fn end(&mut self, patience: Duration) {
        let is_late =
            self.queue.take().is_some() && self.ended.recv_timeout(patience) == Err(RecvTimeoutError::Timeout);
        if is_late && !self.shared.is_closed.load(Ordering::Acquire) {
            let why = "the disk does not answer".to_owned();
            locked(&self.shared.state).trouble = Some(why);
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.end(END_WITHIN);
    }
}

impl Item {
    fn miss(&self, missed: &mut Missed) {
        match self {
            Self::Event(event) => missed.event(event),
            Self::Line(at, _) => missed.line(*at),
        }
    }
}

/// Writes until the queue ends.
fn record(mut journal: Journal, items: &Receiver<Item>, shared: &Shared, syncer: &Syncer) {
    let mut flush_at = Instant::now() + FLUSH_EVERY;
    let mut sync_at = Instant::now() + SYNC_EVERY;
    loop {
        let item = items.try_recv().or_else(|why| {
            if why == TryRecvError::Empty {
                take_missed(&mut journal, shared);
            }
            items.recv_timeout(flush_at.saturating_duration_since(Instant::now()))
        });
        match item {
            Ok(Item::Event(event)) => journal.event(&event),
            Ok(Item::Line(at, line)) => journal.line(at, &line),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        let now = Instant::now();
        if now < flush_at {
            continue;
        }
        journal.flush(now);
        *locked(&shared.state) = journal.state();
        flush_at = now + FLUSH_EVERY;
        if now >= sync_at {
            syncer.ask(journal.sync());
            sync_at = now + SYNC_EVERY;
        }
    }
    take_missed(&mut journal, shared);
    journal.end(Instant::now());
    let mut state = journal.state();
    *locked(&shared.state) = state.clone();
    shared.is_closed.store(true, Ordering::Release);
    let traces = traces(&journal);
    let last_sync = last_sync(vec![journal.into_disk()], traces);
    state.trouble = state.trouble.or_else(|| Some(last_sync.err()?.to_string()));
    *locked(&shared.state) = state;
}

/// Returns the traces that may lie beside the recording.
fn traces(journal: &Journal) -> Option<TraceSync> {
    journal.path().map(|it| TraceSync::of(it.to_owned()))
}

/// Records what the queue had no room for.
fn take_missed(journal: &mut Journal, shared: &Shared) {
    let missed = mem::take(&mut *locked(&shared.missed));
    if !missed.is_empty() {
        journal.lose(missed);
        journal.flush(Instant::now());
        *locked(&shared.state) = journal.state();
    }
}

fn words(trouble: &str) -> String {
    format!("the recording stopped: {trouble}; it continues once that is over, and the job continues without it")
}
