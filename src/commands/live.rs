//! `gpuwatch`: the live view. Folds whole batches of events and draws at the pace at which the driver,
//! or without one the probes, are read.

use crate::{
    cli::alert_outputs::AlertOutputs,
    facts::{
        event::{Event, Fact},
        text::Foreign,
    },
    model::{alerts::Policy, findings::Findings, session::Session},
    screen::{
        effects::{Effects, Options},
        event_loop::{self, End, FASTEST, FRAME_AT_LEAST, View},
        term::Screen,
        ui::Ui,
        view::{self, Drawn},
    },
    sources::{Feed, beat, probe},
};
use crossterm::event::Event as Input;
use std::{io, iter, time::Duration};
use tokio::{
    select,
    time::{Instant, sleep_until},
};

/// Events folded before anything else gets its turn.
const BATCH: usize = 1024;

/// Between pictures where neither the driver nor the number of probes sets the pace.
const FRAME: Duration = FASTEST;

/// While a view begins, it shows every finding soon.
const BEGINNING: Duration = Duration::from_secs(2);

/// The effect of a key is visible within this time.
const ANSWER: Duration = Duration::from_millis(30);

/// Events come in bursts, and waking up costs more than folding. After few events the view leaves the queue alone until
/// the next picture, which cannot show them sooner; after many, only for a moment, so that the queue never fills up.
const FEW: usize = 256;
const REST: Duration = Duration::from_millis(50);

/// Events that come together are in the same picture.
const BURST: Duration = Duration::from_millis(5);

/// Shows events until the user, a signal or the terminal ends it, alerts as the policy has them. Needs a tokio runtime
/// around it.
///
/// # Errors
/// When there is no terminal. One that goes away later is an end, not an error.
pub async fn watch(feed: Feed<'_>, options: Options, policy: Policy, outputs: &mut AlertOutputs) -> io::Result<End> {
    let mouse = options.mouse;
    let mut ui = Ui { policy, ..Ui::default() };
    let effects = Effects::new(options, &mut ui);
    let schedule = DrawSchedule::new(feed.begun);
    let mut view = LiveView {
        session: Session::default(),
        ui,
        frozen: None,
        found: None,
        feed,
        is_open: true,
        batch: Vec::new(),
        schedule,
        outputs,
    };
    event_loop::run(&mut view, effects, mouse).await
}

/// When the next picture is due, and until when events may wait.
struct DrawSchedule {
    /// Pictures come whole intervals after it.
    begun: Instant,
    first: Instant,
    drawn: Option<Instant>,
    due: Instant,
    rest: Option<Instant>,
}

impl DrawSchedule {
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

    /// Draws the latest events at once.
    fn draw_now(&mut self) {
        self.due = Instant::now();
        self.rest = None;
    }

    fn is_beginning(&self, now: Instant) -> bool {
        now.duration_since(self.first) < BEGINNING
    }

    /// The first moment for a picture after that one.
    fn after(&self, drawn: Instant, now: Instant, interval: Option<Duration>) -> Instant {
        let pace =
            if self.is_beginning(now) { FASTEST } else { interval.unwrap_or(FRAME).clamp(FASTEST, FRAME_AT_LEAST) };
        beat(self.begun, pace, drawn)
    }
}

/// What ends a wait for events.
enum LiveUpdate {
    /// So many events are in the batch; none when the sources have ended.
    Events(usize),
    /// A fact should not wait for the next picture.
    DrawNow,
    /// The queue was left alone for long enough.
    Rested,
}

/// The displayed session, the state of the user interface, and the source of events.
struct LiveView<'a> {
    session: Session,
    ui: Ui,
    /// The moment that stands still while `ui.frozen`.
    frozen: Option<Box<Session>>,
    /// What is found in what is shown, as of the latest second; `None` if that is over. Nothing found comes or goes
    /// faster, and with hundreds of processes it takes most of a picture's time.
    found: Option<Findings>,
    feed: Feed<'a>,
    is_open: bool,
    batch: Vec<Event>,
    schedule: DrawSchedule,
    outputs: &'a mut AlertOutputs,
}

impl View for LiveView<'_> {
    type Update = LiveUpdate;

    fn ui(&mut self) -> &mut Ui {
        &mut self.ui
    }

    fn input(&mut self, input: &Input, effects: &mut Effects) {
        let shown = self.frozen.as_deref().unwrap_or(&self.session);
        effects.apply_input(input, &mut self.ui, shown);
        if !self.ui.frozen {
            self.frozen = None;
        } else if self.frozen.is_none() {
            self.frozen = Some(Box::new(self.session.clone()));
        }
        self.found = None;
        self.schedule.draw_within(ANSWER);
    }

    fn due(&self) -> Instant {
        self.schedule.due
    }

    async fn wait(&mut self) -> LiveUpdate {
        let rest = self.schedule.rest;
        select! {
            biased;
            count = self.feed.events.recv_many(&mut self.batch, BATCH), if self.is_open && rest.is_none() => LiveUpdate::Events(count),
            () = self.feed.hurry.notified() => LiveUpdate::DrawNow,
            () = sleep_until(rest.unwrap_or(self.schedule.due)), if rest.is_some() => LiveUpdate::Rested,
        }
    }

    fn fold(&mut self, update: LiveUpdate, screen: &mut Screen) -> io::Result<()> {
        match update {
            LiveUpdate::Events(count) => {
                self.is_open = count > 0;
                self.fold_batch(screen)?;
                self.schedule.folded(count, self.pace());
            }
            LiveUpdate::DrawNow => {
                self.found = None;
                self.schedule.draw_now();
            }
            LiveUpdate::Rested => self.schedule.rested(!self.feed.events.is_empty(), self.pace()),
        }
        Ok(())
    }

    fn draw(&mut self, screen: &mut Screen, effects: &mut Effects) -> io::Result<()> {
        self.batch.extend(iter::from_fn(|| self.feed.events.try_recv().ok()).take(BATCH));
        let count = self.batch.len();
        self.fold_batch(screen)?;
        let theme = &effects.theme;
        let mut drawn = Drawn::default();
        let session = self.frozen.as_deref().unwrap_or(&self.session);
        let findings = match self.found.take().filter(|_| !self.schedule.is_beginning(Instant::now())) {
            Some(found) => found.with_figures_of(session),
            None => self.ui.policy.findings(session),
        };
        if self.frozen.is_none() {
            self.ui.attend(session, &findings);
        }
        screen.draw(|it| drawn = view::draw(it, session, &findings, &self.ui, theme))?;
        effects.drawn(drawn, &mut self.ui);
        self.found = Some(findings);
        self.schedule.drawn(count, self.pace());
        Ok(())
    }
}

impl LiveView<'_> {
    /// Returns the time between two pictures: what the driver is read at or, without one, the probes.
    fn pace(&self) -> Option<Duration> {
        let alive = || self.session.processes.iter().filter(|it| it.is_alive()).count();
        self.ui.interval.or_else(|| probe::pace(alive()))
    }

    fn fold_batch(&mut self, screen: &mut Screen) -> io::Result<()> {
        for event in self.batch.drain(..) {
            self.session.apply(&event);
            if event.fact == Fact::Second {
                // On the grid of events, so that alerts do not depend on when pictures are drawn.
                let found = self.ui.policy.findings(&self.session);
                let alerts = self.outputs.deliver(&self.session, &found);
                self.outputs.show(&alerts, screen)?;
                self.found = Some(found).filter(|_| self.frozen.is_none());
            }
        }
        // The complaint belongs to this viewer: the session holds what a recording has, and nothing else.
        self.ui.complaint = self.outputs.delivery.complaint().map(Foreign::new);
        Ok(())
    }
}
