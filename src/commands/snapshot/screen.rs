//! `gpuwatch snapshot` on a screen. A thread reads the file, and walks through the trace after the first picture.

use crate::{
    facts::text::Foreign,
    model::snapshot::{Histories, Snapshot},
    screen::{
        effects::{Effects, Options},
        event_loop::{self, End, FASTEST, FRAME_AT_LEAST, View},
        term::Screen,
        ui::{Ui, snapshot_ui::SnapshotUi},
        view::{self, Drawn},
    },
    storage::pickle::{Fault, Progress},
};
use crossterm::event::Event as Input;
use std::{fs, io, path::Path, thread};
use tokio::{
    sync::mpsc::{Receiver, Sender, channel},
    time::Instant,
};

/// Reports of the reading thread that wait for the loop. Where there are more, the loop is behind, and a later report
/// will do.
const WAITING: usize = 8;

/// A message of the reading thread.
enum Loading {
    /// So much of the file is read.
    Reading(Progress),
    /// The file is read, except for the history of its trace; or it cannot be read.
    Read(Result<Box<Snapshot>, Fault>),
    /// The history of the trace is known.
    Walked(Histories),
}

/// Shows a snapshot until the user, a signal or the terminal ends it; `request` is the first request to test. Needs a
/// tokio runtime around it.
///
/// # Errors
/// When there is no terminal, or the file cannot be read. A terminal that goes away later is an end, not an error.
pub async fn show(path: &Path, request: Option<u64>, options: Options) -> Result<End, Fault> {
    let total = Some(fs::metadata(path)?).filter(fs::Metadata::is_file).map(|it| it.len());
    let mouse = options.mouse;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let mut ui = SnapshotUi::new(Foreign::new(name), Some(Progress { read: 0, total }), request);
    let effects = Effects::new(options, &mut ui.base);
    let mut view = SnapshotView {
        snapshot: Snapshot::default(),
        ui,
        loading: Some(load(path)?),
        fault: None,
        drawn: None,
        due: Instant::now(),
    };
    let end = event_loop::run(&mut view, effects, mouse).await?;
    view.fault.map_or(Ok(end), Err)
}

fn load(path: &Path) -> io::Result<Receiver<Loading>> {
    let (sender, receiver) = channel(WAITING);
    let path = path.to_owned();
    thread::Builder::new().name("snapshot".into()).spawn(move || read(&path, &sender))?;
    Ok(receiver)
}

/// Sending fails when the view is closed, and then the rest is not needed.
fn read(path: &Path, sender: &Sender<Loading>) {
    let report = |it| drop(sender.try_send(Loading::Reading(it)));
    let snapshot = match super::open(path, report) {
        Ok(snapshot) => snapshot,
        Err(fault) => {
            let _ = sender.blocking_send(Loading::Read(Err(fault)));
            return;
        }
    };
    if sender.blocking_send(Loading::Read(Ok(Box::new(snapshot.clone())))).is_ok() {
        let _ = sender.blocking_send(Loading::Walked(snapshot.histories()));
    }
}

/// A snapshot, and the state of the user interface.
struct SnapshotView {
    snapshot: Snapshot,
    ui: SnapshotUi,
    /// The reading thread, until it is done.
    loading: Option<Receiver<Loading>>,
    /// Why the file cannot be read.
    fault: Option<Fault>,
    /// The time of the last picture.
    drawn: Option<Instant>,
    /// The time of the next picture.
    due: Instant,
}

impl View for SnapshotView {
    type Update = Option<Loading>;

    fn ui(&mut self) -> &mut Ui {
        &mut self.ui.base
    }

    fn input(&mut self, input: &Input, effects: &mut Effects) {
        effects.apply_snapshot_input(input, &mut self.ui, &self.snapshot);
        self.due = Instant::now();
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
            Some(Loading::Reading(progress)) => {
                self.ui.reading = Some(progress);
                self.due = self.drawn.map_or(self.due, |it| self.due.min(it + FASTEST));
                return Ok(());
            }
            Some(Loading::Read(Ok(snapshot))) => (self.snapshot, self.ui.reading) = (*snapshot, None),
            Some(Loading::Read(Err(fault))) => (self.fault, self.ui.base.quit) = (Some(fault), true),
            Some(Loading::Walked(histories)) => self.snapshot.complete(histories),
        }
        self.ui.refresh(&self.snapshot);
        self.due = Instant::now();
        Ok(())
    }

    fn draw(&mut self, screen: &mut Screen, effects: &mut Effects) -> io::Result<()> {
        let now = Instant::now();
        (self.drawn, self.due) = (Some(now), now + FRAME_AT_LEAST);
        let mut drawn = Drawn::default();
        screen.draw(|frame| drawn = view::snapshot::paint(frame, &self.snapshot, &self.ui, &effects.theme))?;
        effects.drawn(drawn, &mut self.ui.base);
        Ok(())
    }
}
