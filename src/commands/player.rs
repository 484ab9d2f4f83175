//! `gpuwatch replay`: the same screen as the live view's, fed from recordings.

/// The recordings of several machines.
pub mod nodes;

use crate::{
    model::{alerts::Policy, session::Session},
    screen::{
        effects::{Effects, Options},
        event_loop::{self, End, FASTEST, FRAME_AT_LEAST, View},
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
use crossterm::event::Event as Input;
use std::{io, thread, time::Duration};
use tokio::{
    sync::mpsc::{Receiver, Sender, channel},
    time::Instant,
};

/// The longest time that one picture may advance by: where folding is slower than playing, the playing slows down.
const TICK_MAX: Duration = Duration::from_millis(200);

/// A message of the reading thread.
enum Loading {
    /// The last state of the recordings, in short.
    Glimpse(Box<Session>),
    /// So many bytes are read, and the state by then.
    Read(u64, Box<Session>),
    /// The recordings are read.
    Loaded(Box<Replay>),
}

/// Plays recordings until the user, a signal or the terminal ends it, alerts as the policy has them; it opens at its
/// end. Needs a tokio runtime around it.
///
/// # Errors
/// When there is no terminal. One that goes away later is an end, not an error.
pub async fn play(recordings: RecordingSet, options: Options, policy: Policy) -> io::Result<End> {
    let mouse = options.mouse;
    let mut ui = Ui { policy, source: Source::Replay, ..Ui::default() };
    let effects = Effects::new(options, &mut ui);
    let now = Instant::now();
    let mut view = ReplayView {
        session: Session::default(),
        glimpse: false,
        read: 0,
        total: recordings.bytes(),
        replay: None,
        ui,
        loading: Some(load(recordings)?),
        drawn: now,
        due: now,
    };
    event_loop::run(&mut view, effects, mouse).await
}

/// Reads on a thread of its own; it skips a state in between while the view has not taken the one before.
fn load(recordings: RecordingSet) -> io::Result<Receiver<Loading>> {
    let (sender, receiver) = channel(1);
    thread::Builder::new().name("replay".into()).spawn(move || read(recordings, &sender))?;
    Ok(receiver)
}

fn read(recordings: RecordingSet, sender: &Sender<Loading>) {
    let cache = cache::directory();
    if let Some(replay) = cache.as_deref().and_then(|it| Replay::kept(&recordings, it)) {
        let _ = sender.blocking_send(Loading::Loaded(Box::new(replay)));
        return;
    }
    if let Some(session) = glimpse(&recordings, LONG) {
        let session = session.as_it_ended().unwrap_or(session);
        let _ = sender.blocking_send(Loading::Glimpse(Box::new(session)));
    }
    let mut sent = Instant::now();
    let replay = Replay::load(recordings, cache.as_deref(), |read, session| {
        if sent.elapsed() >= FASTEST && sender.try_send(Loading::Read(read, Box::new(session.clone()))).is_ok() {
            sent = Instant::now();
        }
    });
    // It fails when the view is closed, and then the replay is not needed.
    let _ = sender.blocking_send(Loading::Loaded(Box::new(replay)));
}

/// The displayed replay, and the state of the user interface.
struct ReplayView {
    /// The state so far, until the replay is loaded.
    session: Session,
    glimpse: bool,
    read: u64,
    total: u64,
    replay: Option<Box<Replay>>,
    ui: Ui,
    /// The reading thread, until it is done.
    loading: Option<Receiver<Loading>>,
    /// The time of the latest picture, and of the next one.
    drawn: Instant,
    due: Instant,
}

impl View for ReplayView {
    type News = Option<Loading>;

    fn ui(&mut self) -> &mut Ui {
        &mut self.ui
    }

    fn input(&mut self, input: &Input, effects: &mut Effects) {
        let session = self.replay.as_ref().map_or(&self.session, |it| it.shown());
        effects.obey(input, &mut self.ui, session);
        let asked = self.ui.request.take_if(|it| matches!(it, Request::Replay(_)));
        if let (Some(Request::Replay(command)), Some(replay)) = (asked, &mut self.replay) {
            replay.update(command);
        }
        self.draw_soon();
    }

    fn due(&self) -> Instant {
        self.due
    }

    async fn wait(&mut self) -> Option<Loading> {
        event_loop::sent(&mut self.loading).await
    }

    fn fold(&mut self, news: Option<Loading>, _: &mut Screen) -> io::Result<()> {
        match news {
            None => self.loading = None,
            Some(Loading::Glimpse(session)) => (self.glimpse, self.session) = (true, *session),
            Some(Loading::Read(read, _)) if self.glimpse => self.read = read,
            Some(Loading::Read(read, session)) => (self.read, self.session) = (read, *session),
            Some(Loading::Loaded(replay)) => {
                self.session = Session::default();
                self.replay = Some(replay);
            }
        }
        self.draw_soon();
        Ok(())
    }

    fn draw(&mut self, screen: &mut Screen, effects: &mut Effects) -> io::Result<()> {
        let now = Instant::now();
        let playing = self.replay.as_mut().filter(|it| it.head.playing);
        self.due = now + playing.as_ref().map_or(FRAME_AT_LEAST, |_| FASTEST);
        if let Some(replay) = playing {
            let passed = (now - self.drawn).min(TICK_MAX);
            replay.tick(u64::try_from(passed.as_micros()).unwrap_or(u64::MAX));
        }
        self.drawn = now;
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

impl ReplayView {
    /// Draws as soon as the shortest time between two pictures is over.
    fn draw_soon(&mut self) {
        self.due = self.due.min(self.drawn + FASTEST);
    }
}
