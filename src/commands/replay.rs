//! `gpuwatch replay`: the same screen as the live view's, fed from recordings.

/// The recordings of several hosts.
pub mod cluster_replay;

use super::{Invocation, Subcommand};
use crate::{
    cli::{
        flags::{OverviewOptions, READONLY, exit_code},
        inputs, picture, runtime,
    },
    config,
    facts::{
        text::{Foreign, command},
        units::counted,
    },
    model::{alerts::Policy, session::Session},
    screen::{
        effects::{Effects, Options},
        event_loop::{self, End, FASTEST, FRAME_AT_LEAST, View},
        term::{self, Screen},
        theme::Choice,
        ui::{Request, Source, Ui},
        view::{self, Drawn},
    },
    storage::{
        host_index::Node,
        output,
        replay::{
            Progress, Replay, cache,
            host_replay::{Recorded, Together},
            recording_set::RecordingSet,
            run::{LONG, preview},
        },
    },
};
use anyhow::{Result, bail};
use crossterm::event::Event as Input;
use std::{fmt::Write as _, io, path::PathBuf, thread, time::Duration};
use tokio::{
    sync::mpsc::{Receiver, Sender, channel},
    time::Instant,
};

/// The longest time that one picture may advance by: where folding is slower than playing, the playing slows down.
const TICK_MAX: Duration = Duration::from_millis(200);

/// Most bytes of a path that are shown.
const PATH_MAX: usize = 4096;

/// The arguments of `gpuwatch replay`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  gpuwatch replay last\n  gpuwatch replay 3\n  gpuwatch replay night\n  gpuwatch \
                            replay ./night.jsonl.zst\n\nWithout a file: the newest recording of `gpuwatch run`. A \
                            short name is `last`, a number that `gpuwatch recordings` lists, the name that `run \
                            --name` gave, the name of its file, or the beginning of one name. A file of that name in \
                            the current folder comes first. Several files must be of one run; of a directory, the \
                            newest run is taken. A directory that `record --hosts` has made is shown on the screen of many machines; without \
                            a terminal, the command that opens each machine is printed.")]
pub(super) struct ReplayArgs {
    /// Recordings of one run, by path or short name, or one directory of recordings.
    #[arg(value_name = "FILE|DIR")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    screen: OverviewOptions,
}

impl Subcommand for ReplayArgs {
    fn answers(&self) -> bool {
        false
    }

    fn run(&self, invocation: &Invocation) -> Result<u8> {
        let (screen, config, policy) = (&self.screen, &invocation.config, invocation.policy.clone());
        let theme = screen.theme()?;
        if let Some(recorded) = inputs::recordings_of_hosts(&self.files)? {
            return replay_hosts(recorded, screen, config, policy);
        }
        let found = inputs::recordings(&self.files)?;
        found.notes.iter().for_each(|it| output::message(format_args!("{it}")));
        if let Some(file) = &screen.shot.screenshot {
            let replay = Replay::load(found.recordings, None, |_, _| {});
            let progress = Progress::At(replay.position());
            return picture::of_session(replay.shown(), &policy, Some(&progress), screen, file);
        }
        if !term::is_screen() {
            bail!(
                "a replay needs a terminal (stdin, stdout and TERM); `zstdcat FILE | jq .` reads a recording without one"
            );
        }
        let options = options(screen, config, theme);
        runtime()?.block_on(async { Ok(exit_code(play(found.recordings, options, policy).await?)) })
    }
}

/// Shows the recordings of several hosts; without a suitable terminal, prints the command that opens each.
fn replay_hosts(recorded: Recorded, screen: &OverviewOptions, config: &config::File, policy: Policy) -> Result<u8> {
    let theme = screen.theme()?;
    if let Some(file) = &screen.shot.screenshot {
        let mut together = Together::load(recorded, None, |_| {});
        let progress = Progress::At(together.position(None));
        return picture::of_cluster(together.cluster(), &policy, Some(&progress), screen, file);
    }
    if !term::is_screen() {
        output::print(&list(&recorded))?;
        return Ok(0);
    }
    recorded.notes.iter().for_each(|it| output::message(format_args!("{}", Foreign::new(it.as_str()))));
    let options = options(screen, config, theme);
    runtime()?.block_on(async { Ok(exit_code(cluster_replay::play(recorded, options, policy).await?)) })
}

/// Returns the permissions of a view of recordings, and its initial appearance.
fn options(screen: &OverviewOptions, config: &config::File, theme: Choice) -> Options {
    let no_signals = Some("these processes belong to a recording: no signals are sent to them");
    let config = if screen.readonly { Err(READONLY) } else { Ok(config.clone()) };
    Options { preset: screen.preset, no_signals, config, ..screen.options(theme) }
}

/// Returns a line for each host, with the command that opens its recordings.
fn list(recorded: &Recorded) -> String {
    let nodes = &recorded.index.nodes;
    let mut out = format!("recordings of {}:\n", counted(nodes.len() as u64, "machine"));
    let width = nodes.iter().map(|it| it.host.to_string().chars().count()).max().unwrap_or(0);
    for it in nodes {
        let _ = writeln!(out, "  {:<width$}  {}", it.host, opened(it));
    }
    for it in &recorded.notes {
        let _ = writeln!(out, "note: {}", Foreign::new(it.as_str()));
    }
    out
}

/// Returns the command that opens a machine's recordings, or why it has no recording.
fn opened(node: &Node) -> String {
    if node.files.is_empty() {
        let link = node.link();
        let why = link.why().map_or_else(String::new, |why| format!(": {why}"));
        return format!("{}{why}", link.name());
    }
    let paths: Vec<_> = node.files.iter().map(|it| it.path.to_string_lossy()).collect();
    command(["gpuwatch", "replay"].into_iter().chain(paths.iter().map(|it| &**it)), PATH_MAX)
}

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
        preview: false,
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
    if let Some(session) = preview(&recordings, LONG) {
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
    preview: bool,
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
    type Update = Option<Loading>;

    fn ui(&mut self) -> &mut Ui {
        &mut self.ui
    }

    fn input(&mut self, input: &Input, effects: &mut Effects) {
        let session = self.replay.as_ref().map_or(&self.session, |it| it.shown());
        effects.apply_input(input, &mut self.ui, session);
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

    fn fold(&mut self, update: Option<Loading>, _: &mut Screen) -> io::Result<()> {
        match update {
            None => self.loading = None,
            Some(Loading::Glimpse(session)) => (self.preview, self.session) = (true, *session),
            Some(Loading::Read(read, _)) if self.preview => self.read = read,
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
            let Self { read, total, preview, .. } = *self;
            (&self.session, Progress::Loading { read, total, preview })
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
