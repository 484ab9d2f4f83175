//! `gpuwatch replay DIR`: the screen of many machines, and the screens of each, fed from their recordings.

use crate::{
    commands::cluster::screens::Screens,
    model::{
        alerts::Policy,
        cluster::{Cluster, findings::ClusterFindings, overview::Overview},
    },
    screen::{
        effects::{Effects, Options},
        event_loop::{self, End, FASTEST, FRAME_AT_LEAST, View},
        term::Screen,
        ui::{Request, Ui, cluster_ui::ClusterUi},
    },
    storage::replay::{
        Progress, cache,
        host_replay::{Recorded, Together},
        recording_set::RecordingSet,
    },
};
use crossterm::event::Event as Input;
use std::{io, thread, time::Duration};
use tokio::{
    sync::mpsc::{Receiver, Sender, channel},
    time::Instant,
};

/// The longest time that one picture may advance by, as for one machine.
const TICK_MAX: Duration = Duration::from_millis(500);

/// Time between two pictures of all machines while they play: each is made of all their findings.
const PLAYING: Duration = Duration::from_millis(500);

/// A message of the reading thread.
enum Loading {
    /// So many bytes are read.
    Read(u64),
    /// The recordings are read.
    Loaded(Box<Together>),
}

/// Plays the recordings of several machines until the user, a signal or the terminal ends it, alerts as the policy has
/// them; it opens at the end. Needs a tokio runtime around it.
///
/// # Errors
/// When there is no terminal. One that goes away later is an end, not an error.
pub async fn play(recorded: Recorded, options: Options, policy: Policy) -> io::Result<End> {
    let (mouse, preset) = (options.mouse, options.preset);
    let mut ui = ClusterUi::of_recordings(Ui { policy, ..Ui::default() });
    let effects = Effects::new(options, &mut ui.base);
    let cluster = recorded.play().cluster;
    let now = Instant::now();
    let mut view = ClusterReplayView {
        screens: Screens::new(ui, Overview::of(&cluster, &ClusterFindings::default()), preset),
        cluster,
        read: 0,
        total: recorded.nodes.iter().flatten().map(RecordingSet::bytes).sum(),
        together: None,
        loading: Some(load(recorded)?),
        moved: false,
        drawn: now,
        due: now,
    };
    event_loop::run(&mut view, effects, mouse).await
}

/// Reads on threads of their own; they skip a message while the view has not taken the one before.
fn load(recorded: Recorded) -> io::Result<Receiver<Loading>> {
    let (sender, receiver) = channel(1);
    thread::Builder::new().name("replay".into()).spawn(move || read(recorded, &sender))?;
    Ok(receiver)
}

fn read(recorded: Recorded, sender: &Sender<Loading>) {
    let cache = cache::directory();
    let mut sent = Instant::now();
    let together = Together::load(recorded, cache.as_deref(), |read| {
        if sent.elapsed() >= FASTEST && sender.try_send(Loading::Read(read)).is_ok() {
            sent = Instant::now();
        }
    });
    // It fails when the view is closed, and then nothing needs them.
    let _ = sender.blocking_send(Loading::Loaded(Box::new(together)));
}

/// The machines during a replay, and the state of the user interface.
struct ClusterReplayView {
    screens: Screens,
    /// The machines before their recordings are read.
    cluster: Cluster,
    read: u64,
    total: u64,
    together: Option<Box<Together>>,
    /// The reading thread, until it is done.
    loading: Option<Receiver<Loading>>,
    /// Whether the overview is of another position, or of other allowed alerts.
    moved: bool,
    /// The time of the latest picture, and of the next one.
    drawn: Instant,
    due: Instant,
}

impl View for ClusterReplayView {
    type Update = Option<Loading>;

    fn ui(&mut self) -> &mut Ui {
        self.screens.current()
    }

    fn input(&mut self, input: &Input, effects: &mut Effects) {
        let opened = self.screens.opened();
        let cluster = match &mut self.together {
            Some(together) => together.cluster_with(opened),
            None => &self.cluster,
        };
        self.screens.input(input, cluster, effects);
        // What is allowed on a machine's screens is allowed in the list.
        self.moved |= self.screens.opened() != opened;
        let asked = self.screens.current().request.take_if(|it| matches!(it, Request::Replay(_)));
        if let (Some(Request::Replay(command)), Some(together)) = (asked, &mut self.together) {
            together.update(command, opened);
            self.moved = true;
        }
        self.draw_soon();
    }

    fn due(&self) -> Instant {
        self.due
    }

    async fn wait(&mut self) -> Option<Loading> {
        event_loop::sent(&mut self.loading).await
    }

    fn fold(&mut self, update: Option<Loading>, _: &mut Screen) -> io::Result<()> {
        match update {
            None => self.loading = None,
            Some(Loading::Read(read)) => self.read = read,
            Some(Loading::Loaded(together)) => (self.together, self.moved) = (Some(together), true),
        }
        self.draw_soon();
        Ok(())
    }

    fn draw(&mut self, screen: &mut Screen, effects: &mut Effects) -> io::Result<()> {
        let now = Instant::now();
        let passed = (now - self.drawn).min(TICK_MAX);
        (self.drawn, self.due) = (now, now + FRAME_AT_LEAST);
        let Some(together) = &mut self.together else {
            let progress = Progress::Loading { read: self.read, total: self.total, preview: false };
            return self.screens.draw(screen, &self.cluster, Some(&progress), effects);
        };
        let opened = self.screens.opened();
        if together.head.playing {
            self.due = now + if opened.is_some() { FASTEST } else { PLAYING };
            together.tick(u64::try_from(passed.as_micros()).unwrap_or(u64::MAX));
            self.moved = true;
        }
        let progress = Progress::At(together.position(opened));
        let cluster = if opened.is_some() { together.cluster_with(opened) } else { together.cluster() };
        if opened.is_none() && std::mem::take(&mut self.moved) {
            let found = self.screens.ui.base.policy.found(cluster);
            self.screens.overview = Overview::of(cluster, &found);
        }
        self.screens.draw(screen, cluster, Some(&progress), effects)
    }
}

impl ClusterReplayView {
    /// Draws as soon as the shortest time between two pictures is over.
    fn draw_soon(&mut self) {
        self.due = self.due.min(self.drawn + FASTEST);
    }
}
