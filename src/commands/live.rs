//! `gpuwatch`: the live view's loop. Select, fold whole batches, draw at the pace at which the driver is read.

use crate::{
    facts::{
        event::{Event, Fact},
        text::Foreign,
        units::counted,
    },
    model::{alerts::Policy, session::Session},
    screen::{
        effects::{Effects, Options},
        signal,
        term::{self, Screen},
        ui::Ui,
        view::{self, Drawn},
    },
    sources::{Feed, beat},
    storage::sink::delivery::Delivery,
};
use crossterm::event::{Event as Input, EventStream};
use futures_core::Stream;
use signal_hook::iterator::Signals;
use std::{io, pin::Pin, process, thread, time::Duration};
use tokio::{
    sync::mpsc::{self, channel},
    task::yield_now,
    time::{Instant, sleep_until},
};

/// Events folded before anything else gets its turn.
const BATCH: usize = 1024;

/// At most ten pictures a second, which nobody reads faster; at least one, so that a terminal that is gone is noticed.
const FASTEST: Duration = Duration::from_millis(100);
const FRAME_AT_LEAST: Duration = Duration::from_secs(1);

/// Between pictures where no driver sets the pace.
const FRAME: Duration = FASTEST;

/// While a view begins, everything that is found is shown soon.
const BEGINNING: Duration = Duration::from_secs(2);

/// What a key asks for is shown as if at once.
const ANSWER: Duration = Duration::from_millis(30);

/// What happens comes in bursts, and to wake up costs more than to fold. A queue that brought few events is left alone
/// until the next picture, which cannot show them sooner; one that brought many, for a moment, so that it never fills up.
const FEW: usize = 256;
const REST: Duration = Duration::from_millis(50);

/// What comes with an event is in the same picture.
const BURST: Duration = Duration::from_millis(5);

/// A terminal that is stuck in a write must not keep the program alive after a signal.
const GRACE: Duration = Duration::from_millis(700);
const LAST_GRACE: Duration = Duration::from_millis(150);

/// Notifications of one moment; of more, their number is told.
const NOTIFIED: usize = 4;

/// How a person is told of alerts beside the picture: not at all, unless asked for.
#[derive(Default)]
pub struct AlertOutputs {
    /// Ring the terminal's bell.
    pub bell: bool,
    /// Ask the terminal for a notification.
    pub notify: bool,
    /// To a program, and as questions to jobs.
    pub delivery: Delivery,
}

/// How the view ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The user asked, or the terminal is gone.
    Quit,
    /// By this signal.
    Signal(i32),
}

/// Shows what is told until the user, a signal or the terminal ends it, alerts as the policy has them. Needs a tokio runtime around it.
///
/// # Errors
/// When there is no terminal. One that goes away later is an end, not an error.
pub async fn watch(feed: Feed<'_>, options: Options, policy: Policy, outputs: &mut AlertOutputs) -> io::Result<End> {
    let events = feed.events;
    let mut signals = signals()?;
    let mut screen = Screen::take(options.mouse)?;
    let mut inputs = EventStream::new();
    let mut picture = LiveView { ui: Ui { policy, ..Ui::default() }, ..LiveView::default() };
    let mut effects = Effects::new(options, &mut picture.ui);
    let mut batch = Vec::with_capacity(BATCH);
    let mut rhythm = Rhythm::new(feed.begun);
    let mut open = true;
    while !picture.ui.quit {
        tokio::select! {
            biased;
            Some(signal) = signals.recv() => return Ok(End::Signal(signal)),
            input = next(&mut inputs) => {
                // No more input: the terminal is gone.
                let Some(Ok(input)) = input else { return Ok(End::Quit) };
                picture.input(&input, &mut effects);
                if effects.serve(&mut picture.ui, &mut screen).is_err() {
                    return Ok(End::Quit);
                }
                rhythm.draw_within(ANSWER);
            }
            () = sleep_until(rhythm.due) => {
                // What recurs at the same moment tells first.
                yield_now().await;
                batch.extend(std::iter::from_fn(|| events.try_recv().ok()).take(BATCH));
                let count = batch.len();
                let folded = picture.fold(&mut batch, &mut screen, outputs);
                if folded.and_then(|()| picture.draw(&mut screen, &mut effects)).is_err() {
                    return Ok(End::Quit);
                }
                rhythm.drawn(count, picture.ui.interval);
            }
            count = events.recv_many(&mut batch, BATCH), if open && rhythm.rest.is_none() => {
                open = count > 0;
                if picture.fold(&mut batch, &mut screen, outputs).is_err() {
                    return Ok(End::Quit);
                }
                rhythm.folded(count, picture.ui.interval);
            }
            () = feed.hurry.notified() => rhythm.hurry(),
            () = sleep_until(rhythm.rest.unwrap_or(rhythm.due)), if rhythm.rest.is_some() => {
                rhythm.rested(!events.is_empty(), picture.ui.interval);
            }
        }
    }
    Ok(End::Quit)
}

/// When the next picture is due, and until when events may wait.
struct Rhythm {
    /// Pictures come whole intervals after it.
    begun: Instant,
    first: Instant,
    drawn: Option<Instant>,
    due: Instant,
    rest: Option<Instant>,
}

impl Rhythm {
    fn new(begun: Instant) -> Self {
        let now = Instant::now();
        Self { begun, first: now, drawn: None, due: now, rest: None }
    }

    /// A picture was drawn, with so many events that had waited for it.
    fn drawn(&mut self, count: usize, interval: Option<Duration>) {
        let now = Instant::now();
        self.drawn = Some(now);
        self.due = beat(self.begun, FRAME_AT_LEAST, now);
        self.rest = if count == 0 { None } else { Self::rest(count, now, self.after(now, now, interval)) };
    }

    /// There is something to be seen: so long after the last picture at the latest.
    fn draw_within(&mut self, time: Duration) {
        self.due = self.due.min(self.drawn.map_or(self.due, |it| it + time));
    }

    /// So many events were folded.
    fn folded(&mut self, count: usize, interval: Option<Duration>) {
        let now = Instant::now();
        let next = self.drawn.map_or(now, |it| self.after(it, now, interval));
        self.due = self.due.min(next.max(now + BURST));
        self.rest = Self::rest(count, now, self.due);
    }

    /// Until when the queue is left alone. Where there is more, as of a history, it is not made to wait.
    fn rest(count: usize, now: Instant, next: Instant) -> Option<Instant> {
        match count {
            BATCH.. => None,
            FEW.. => Some(now + REST),
            _ => Some(next),
        }
    }

    /// Events may be folded again; where some have waited for the next picture, it is drawn from them at once.
    fn rested(&mut self, is_waiting: bool, interval: Option<Duration>) {
        let now = Instant::now();
        self.rest = None;
        if is_waiting && self.drawn.is_none_or(|it| self.after(it, now, interval) <= now) {
            self.due = now;
        }
    }

    /// What was told is to be seen at once.
    fn hurry(&mut self) {
        self.due = Instant::now();
        self.rest = None;
    }

    /// The first moment for a picture after that one.
    fn after(&self, drawn: Instant, now: Instant, interval: Option<Duration>) -> Instant {
        let is_beginning = now.duration_since(self.first) < BEGINNING;
        let pace = if is_beginning { FASTEST } else { interval.unwrap_or(FRAME).clamp(FASTEST, FRAME_AT_LEAST) };
        beat(self.begun, pace, drawn)
    }
}

/// What is shown, and what the user looks at.
#[derive(Default)]
struct LiveView {
    session: Session,
    ui: Ui,
    /// The moment that stands still while `ui.frozen`.
    frozen: Option<Box<Session>>,
}

impl LiveView {
    fn input(&mut self, input: &Input, effects: &mut Effects) {
        let shown = self.frozen.as_deref().unwrap_or(&self.session);
        effects.obey(input, &mut self.ui, shown);
        if !self.ui.frozen {
            self.frozen = None;
        } else if self.frozen.is_none() {
            self.frozen = Some(Box::new(self.session.clone()));
        }
    }

    fn fold(&mut self, events: &mut Vec<Event>, screen: &mut Screen, outputs: &mut AlertOutputs) -> io::Result<()> {
        for event in events.drain(..) {
            self.session.apply(&event);
            if event.fact == Fact::Second {
                self.tell(screen, outputs)?;
            }
        }
        Ok(())
    }

    /// Tells what is new, each alert once; a second is the grid, whatever is drawn.
    fn tell(&mut self, screen: &mut Screen, outputs: &mut AlertOutputs) -> io::Result<()> {
        if !outputs.bell && !outputs.notify && outputs.delivery.is_idle() {
            return Ok(());
        }
        let findings = self.ui.policy.findings(&self.session);
        let news = outputs.delivery.deliver(&self.session, &findings, |_, _| ());
        if outputs.bell && !news.is_empty() {
            screen.ring()?;
        }
        if outputs.notify {
            for message in news.iter().take(NOTIFIED) {
                screen.notify(&message.line)?;
            }
            if news.len() > NOTIFIED {
                screen.notify(&format!("and {} more", counted((news.len() - NOTIFIED) as u64, "alert")))?;
            }
        }
        // It is the viewer's own affair: the session takes what a recording has as well, and nothing else.
        self.ui.complaint = outputs.delivery.complaint().map(Foreign::new);
        Ok(())
    }

    fn draw(&mut self, screen: &mut Screen, effects: &mut Effects) -> io::Result<()> {
        let theme = &effects.theme;
        let mut drawn = Drawn::default();
        let session = self.frozen.as_deref().unwrap_or(&self.session);
        let findings = self.ui.policy.findings(session);
        if self.frozen.is_none() {
            self.ui.attend(session, &findings);
        }
        screen.draw(|it| drawn = view::draw(it, session, &findings, &self.ui, theme))?;
        effects.drawn(drawn, &mut self.ui);
        Ok(())
    }
}

pub(crate) async fn next(inputs: &mut EventStream) -> Option<io::Result<Input>> {
    std::future::poll_fn(|context| Pin::new(&mut *inputs).poll_next(context)).await
}

/// The signals that end the view, from a thread of their own. Whoever ignores SIGHUP (nohup) still wants
/// the end when the terminal is gone.
pub(crate) fn signals() -> io::Result<mpsc::Receiver<i32>> {
    let (tell, told) = channel(4);
    let mut signals = Signals::new(signal::ending())?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        let Some(signal) = signals.forever().next() else { return };
        if tell.try_send(signal).is_ok() {
            thread::sleep(GRACE);
            // Still here, so the loop is stuck, most likely in a write to the terminal; giving the terminal
            // back may get stuck as well.
            thread::spawn(term::leave);
            thread::sleep(LAST_GRACE);
            process::exit(128 + signal);
        }
    })?;
    Ok(told)
}
