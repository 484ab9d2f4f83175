//! `gpuwatch replay`: the same screen as the live view's, fed from recordings.

use crate::{
    commands::live::{self, End},
    model::{alerts::Policy, session::Session},
    screen::{
        effects::{Effects, Options},
        term::Screen,
        ui::{Request, Source, Ui},
        view::{self, Drawn},
    },
    storage::replay::{
        Progress, Replay, cache,
        glimpse::{LONG, glimpse},
        recording_set::RecordingSet,
    },
};
use crossterm::event::{Event as Input, EventStream};
use std::{io, thread, time::Duration};
use tokio::{
    sync::mpsc::{Receiver, Sender, channel},
    time::{Instant, MissedTickBehavior, interval},
};

/// At most ten pictures a second.
const FRAME: Duration = Duration::from_millis(100);

/// What one tick may advance by: where folding is slower than playing, the playing slows down.
const TICK_MAX: Duration = Duration::from_millis(200);

/// At least one picture a second, so that a terminal that is gone is noticed.
const FRAME_AT_LEAST: Duration = Duration::from_secs(1);

/// What the reading thread says.
enum Said {
    /// What was known at the end, in short.
    Glimpse(Box<Session>),
    /// So many bytes were read, and this is known by then.
    Read(u64, Box<Session>),
    /// Everything was.
    Loaded(Box<Replay>),
}

/// Plays recordings until the user, a signal or the terminal ends it, alerts as the policy has them; it opens at its end.
/// Needs a tokio runtime around it.
///
/// # Errors
/// When there is no terminal. One that goes away later is an end, not an error.
pub async fn play(recordings: RecordingSet, options: Options, policy: Policy) -> io::Result<End> {
    let mut signals = live::signals()?;
    let mut screen = Screen::take(options.mouse)?;
    let mut inputs = EventStream::new();
    let mut picture = ReplayView {
        total: recordings.bytes(),
        ui: Ui { policy, source: Source::Replay, ..Ui::default() },
        ..ReplayView::default()
    };
    let mut effects = Effects::new(options, &mut picture.ui);
    let mut loading = load(recordings)?;
    let mut frame = interval(FRAME);
    frame.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (mut ticked, mut drawn) = (Instant::now(), None::<Instant>);
    let (mut dirty, mut open) = (true, true);
    while !picture.ui.quit {
        tokio::select! {
            biased;
            Some(signal) = signals.recv() => return Ok(End::Signal(signal)),
            input = live::next(&mut inputs) => {
                // No more input: the terminal is gone.
                let Some(Ok(input)) = input else { return Ok(End::Quit) };
                picture.input(&input, &mut effects);
                if effects.serve(&mut picture.ui, &mut screen).is_err() {
                    return Ok(End::Quit);
                }
                dirty = true;
            }
            _ = frame.tick() => {
                let passed = ticked.elapsed().min(TICK_MAX);
                ticked = Instant::now();
                dirty |= picture.tick(passed);
                if dirty || drawn.is_none_or(|it| it.elapsed() >= FRAME_AT_LEAST) {
                    if picture.draw(&mut screen, &mut effects).is_err() {
                        return Ok(End::Quit);
                    }
                    drawn = Some(Instant::now());
                    dirty = false;
                }
            }
            said = loading.recv(), if open => {
                open = said.is_some();
                if let Some(said) = said {
                    picture.hear(said);
                    dirty = true;
                }
            }
        }
    }
    Ok(End::Quit)
}

/// Reads on a thread of its own; what it says on the way is left out when nobody has heard the last.
fn load(recordings: RecordingSet) -> io::Result<Receiver<Said>> {
    let (tell, told) = channel(1);
    thread::Builder::new().name("replay".into()).spawn(move || read(recordings, &tell))?;
    Ok(told)
}

fn read(recordings: RecordingSet, tell: &Sender<Said>) {
    let cache = cache::directory();
    if let Some(replay) = cache.as_deref().and_then(|it| Replay::kept(&recordings, it)) {
        let _ = tell.blocking_send(Said::Loaded(Box::new(replay)));
        return;
    }
    if let Some(session) = glimpse(&recordings, LONG) {
        let session = session.as_it_ended().unwrap_or(session);
        let _ = tell.blocking_send(Said::Glimpse(Box::new(session)));
    }
    let mut told = Instant::now();
    let replay = Replay::load(recordings, cache.as_deref(), |read, session| {
        if told.elapsed() >= FRAME && tell.try_send(Said::Read(read, Box::new(session.clone()))).is_ok() {
            told = Instant::now();
        }
    });
    // With the viewer gone there is nobody left to tell.
    let _ = tell.blocking_send(Said::Loaded(Box::new(replay)));
}

/// What is shown, and what the user looks at.
#[derive(Default)]
struct ReplayView {
    /// Until the replay is there: what is known so far.
    session: Session,
    glimpse: bool,
    read: u64,
    total: u64,
    replay: Option<Box<Replay>>,
    ui: Ui,
}

impl ReplayView {
    fn hear(&mut self, said: Said) {
        match said {
            Said::Glimpse(session) => (self.glimpse, self.session) = (true, *session),
            Said::Read(read, _) if self.glimpse => self.read = read,
            Said::Read(read, session) => (self.read, self.session) = (read, *session),
            Said::Loaded(replay) => {
                self.session = Session::default();
                self.replay = Some(replay);
            }
        }
    }

    fn input(&mut self, input: &Input, effects: &mut Effects) {
        let session = self.replay.as_ref().map_or(&self.session, |it| it.shown());
        effects.obey(input, &mut self.ui, session);
        let asked = self.ui.request.take_if(|it| matches!(it, Request::Replay(_)));
        if let (Some(Request::Replay(command)), Some(replay)) = (asked, &mut self.replay) {
            replay.update(command);
        }
    }

    /// Whether anything moved.
    fn tick(&mut self, passed: Duration) -> bool {
        let Some(replay) = self.replay.as_mut().filter(|it| it.head.playing) else { return false };
        replay.tick(u64::try_from(passed.as_micros()).unwrap_or(u64::MAX));
        true
    }

    fn draw(&mut self, screen: &mut Screen, effects: &mut Effects) -> io::Result<()> {
        let (session, progress) = if let Some(replay) = &self.replay {
            (replay.shown(), Progress::At(replay.position()))
        } else {
            let Self { read, total, glimpse, .. } = *self;
            (&self.session, Progress::Loading { read, total, glimpse })
        };
        let findings = self.ui.policy.findings(session);
        self.ui.attend(session, &findings);
        let ui = &self.ui;
        let mut drawn = Drawn::default();
        screen.draw(|it| drawn = view::draw_replay(it, session, &findings, ui, &effects.theme, &progress))?;
        effects.drawn(drawn, &mut self.ui);
        Ok(())
    }
}
