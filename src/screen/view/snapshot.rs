//! The screens of a memory snapshot: pure, and total for every size down to 0×0, as all views.

/// The segments of a device.
mod segments;
/// Blocks by call stack, a row each.
mod stacks;
/// Devices, the ladder, streams and pools, the largest stacks.
mod summary;
/// The trace: memory over events, and the stacks at the cursor and at the peak.
mod trace;

use crate::{
    facts::units::{Bytes, counted},
    model::{
        findings::Findings,
        session::Session,
        snapshot::{At, Device, Snapshot},
    },
    screen::{
        theme::{Role, Theme},
        ui::{
            Chart, Command, Motion,
            mouse::Target,
            snapshot_ui::{Page, SnapshotCommand, SnapshotUi},
        },
        view::{self, Drawn, RenderContext, Scrolled, cells, footer, help, put, take},
    },
    sources::focus,
    storage::pickle::Progress,
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use std::cell::RefCell;

/// Rows from which on the tabs have one.
const TABS: u16 = 16;

/// The most rows that show why a snapshot is incomplete.
const ENDED: usize = 2;

/// The input of every box on a snapshot's screens.
struct Scene<'a> {
    snapshot: &'a Snapshot,
    ui: &'a SnapshotUi,
    /// Styles, keys, regions: what all screens have.
    context: RenderContext<'a>,
}

impl<'a> Scene<'a> {
    fn device(&self) -> Option<&'a Device> {
        self.ui.device(self.snapshot)
    }
}

/// Draws the whole screen.
pub fn paint(buffer: &mut Buffer, snapshot: &Snapshot, ui: &SnapshotUi, theme: &Theme) -> Drawn {
    let area = buffer.area;
    // No job is watched here.
    let (session, findings) = (Session::default(), Findings::default());
    let regions = RefCell::default();
    let context =
        RenderContext { session: &session, findings: &findings, ui: &ui.base, theme, progress: None, regions };
    let scene = Scene { snapshot, ui, context };
    buffer.set_style(area, scene.context.style(Role::Text));
    let scrolled = arrange(buffer, area, &scene);
    let help_most = if ui.base.help { help::draw(buffer, area, &scene.context) } else { 0 };
    if theme.is_ascii() {
        view::draw_ascii(buffer, area);
    }
    Drawn { scrolled, help_most, columns: 0, regions: scene.context.regions.take(), focus: focus::Focus::None }
}

/// Header, why the snapshot is not whole, tabs, the screen, footer:
///
/// The footer is left out below 8 rows, the tabs below 16.
fn arrange(buffer: &mut Buffer, area: Rect, scene: &Scene) -> Scrolled {
    let mut rest = area;
    header(buffer, take(&mut rest, 1), scene);
    if area.height >= 8 || footer::has_text(&scene.context) {
        let bottom = Rect { y: rest.bottom().saturating_sub(1), height: rest.height.min(1), ..rest };
        rest.height = rest.height.saturating_sub(1);
        footer::draw_with(buffer, bottom, keys(scene), &scene.context);
    }
    let ended = scene.snapshot.ended.as_ref().map(|why| format!("{why}; this is what was read up to there"));
    let mut notes = ended.map_or_else(Vec::new, |why| cells::wrapped(&cells::raw(&why), usize::from(area.width)));
    notes.truncate(if area.height >= TABS { ENDED } else { 1 });
    let place = take(&mut rest, notes.len());
    for (row, words) in notes.into_iter().enumerate() {
        put(buffer, place, row, &Line::styled(words, scene.context.style(Role::Warning)));
    }
    if area.height >= TABS {
        tabs(buffer, take(&mut rest, 1), scene);
    }
    if let Some(progress) = scene.ui.reading {
        draw_reading(buffer, rest, progress, scene);
        return Scrolled::default();
    }
    if let Some(words) = blank(scene) {
        for (row, words) in cells::wrapped(&words, usize::from(rest.width)).into_iter().enumerate() {
            put(buffer, rest, row + 1, &Line::styled(words, scene.context.style(Role::Dim)));
        }
        return Scrolled::default();
    }
    match scene.ui.page {
        Page::Overview => summary::draw(buffer, rest, scene),
        Page::Segments => segments::draw(buffer, rest, scene),
        Page::Stacks => stacks::draw_tree(buffer, rest, scene),
        Page::Flame => stacks::draw_flame(buffer, rest, scene),
        Page::Trace => return trace::draw(buffer, rest, scene),
    }
    Scrolled::default()
}

/// Why there is nothing to be seen, where that is so.
fn blank(scene: &Scene) -> Option<String> {
    if !scene.snapshot.devices.is_empty() {
        return None;
    }
    let none =
        if scene.snapshot.ended.is_some() { "no segment could be read" } else { "nothing was allocated on any device" };
    Some(none.to_owned())
}

/// `gpuwatch  snapshot.pickle  1.02 GiB read  2 devices  12,345 events      max_split_size_mb:64`
fn header(buffer: &mut Buffer, area: Rect, scene: &Scene) {
    let snapshot = scene.snapshot;
    let events = snapshot.devices.iter().map(|it| it.events as u64).sum();
    let name = cells::elide(&cells::foreign(&scene.ui.name), usize::from(area.width / 2));
    let mut pieces = vec![("gpuwatch".to_owned(), Role::Title), (name, Role::Text)];
    if scene.ui.reading.is_none() {
        pieces.push((format!("{} read", Bytes(snapshot.bytes)), Role::Dim));
        pieces.push((counted(snapshot.devices.len() as u64, "device"), Role::Dim));
        pieces.push((counted(events, "event"), Role::Dim));
    }
    if snapshot.ended.is_some() {
        pieces.insert(2, ("INCOMPLETE".to_owned(), Role::Warning));
    }
    let mut spans: Vec<Span> = Vec::new();
    for (text, role) in pieces {
        spans.push(Span::raw(if spans.is_empty() { "" } else { "  " }));
        spans.push(Span::styled(text, scene.context.style(role)));
    }
    let taken: usize = spans.iter().map(Span::width).sum();
    put(buffer, area, 0, &Line::from(spans));
    let settings = settings(snapshot);
    let room = usize::from(area.width).saturating_sub(taken + 2);
    if scene.ui.reading.is_none() && cells::width(&settings) <= room {
        put(buffer, area, 0, &Line::styled(settings, scene.context.style(Role::Dim)).right_aligned());
    }
}

/// Returns the allocator's settings.
fn settings(snapshot: &Snapshot) -> String {
    match snapshot.settings() {
        None => "settings not recorded".to_owned(),
        Some(text) if text.is_empty() => "default settings".to_owned(),
        Some(text) => cells::raw(&text),
    }
}

/// The screens by name, with their keys; a click opens one.
fn tabs(buffer: &mut Buffer, area: Rect, scene: &Scene) {
    let mut rest = area;
    for (page, name) in Page::ALL {
        let command = Command::Snapshot(SnapshotCommand::Show(page));
        let key = crate::screen::keys::first(command, scene.context.ui).unwrap_or_default();
        let is_shown = page == scene.ui.page;
        let style = scene.context.style(if is_shown { Role::Selected } else { Role::Dim });
        let key = Span::styled(format!(" {key}"), if is_shown { style } else { scene.context.style(Role::Key) });
        let name = Span::styled(format!(" {name} "), style);
        let width = u16::try_from(key.width() + name.width()).unwrap_or(u16::MAX);
        if width > rest.width {
            return;
        }
        let place = Rect { width, ..rest };
        put(buffer, place, 0, &Line::from(vec![key, name]));
        scene.context.claim(place, Target::Key(command));
        let taken = (width + 1).min(rest.width);
        (rest.x, rest.width) = (rest.x + taken, rest.width - taken);
    }
}

/// The keys worth a place in the last line.
fn keys(scene: &Scene) -> &'static [footer::Hint] {
    const BACK: footer::Hint = (&[Command::Back], "back");
    const QUIT: footer::Hint = (&[Command::Quit], "quit");
    const HELP: footer::Hint = (&[Command::Help], "help");
    const MOVE: footer::Hint = (&[Command::Move(Motion::Up), Command::Move(Motion::Down)], "move");
    const FILTER: footer::Hint = (&[Command::Filter], "filter");
    const NEXT: footer::Hint = (&[Command::NextBox], "screen");
    const REQUEST: footer::Hint = (&[Command::Chart(Chart::Plus), Command::Chart(Chart::Minus)], "request");
    const BLOCKS: footer::Hint = (&[Command::Snapshot(SnapshotCommand::Show(Page::Stacks))], "blocks");
    const MAP: footer::Hint = (&[Command::Snapshot(SnapshotCommand::Show(Page::Segments))], "map");
    const FLAME: footer::Hint = (&[Command::Snapshot(SnapshotCommand::Show(Page::Flame))], "flame graph");
    const TRACE: footer::Hint = (&[Command::Snapshot(SnapshotCommand::Show(Page::Trace))], "trace");
    const PEAK: footer::Hint = (&[Command::Snapshot(SnapshotCommand::Peak)], "peak");
    match scene.ui.page {
        _ if scene.ui.base.help => &[BACK, QUIT, MOVE],
        _ if scene.ui.reading.is_some() => &[QUIT, HELP],
        Page::Overview if scene.snapshot.devices.len() > 1 => {
            &[QUIT, HELP, NEXT, (&[Command::Device(0)], "device"), MAP, BLOCKS, FLAME, TRACE, PEAK, REQUEST, FILTER]
        }
        Page::Overview => &[QUIT, HELP, NEXT, MAP, BLOCKS, FLAME, TRACE, PEAK, REQUEST, FILTER],
        Page::Segments => &[
            BACK,
            QUIT,
            MOVE,
            REQUEST,
            (&[Command::Open], "its blocks"),
            FILTER,
            (&[Command::Order], "sort"),
            NEXT,
            HELP,
        ],
        Page::Stacks => {
            &[BACK, QUIT, MOVE, (&[Command::Open], "open, close"), FILTER, (&[Command::Invert], "invert"), FLAME, HELP]
        }
        Page::Flame => {
            &[BACK, QUIT, MOVE, (&[Command::Open], "zoom"), FILTER, (&[Command::Invert], "invert"), BLOCKS, HELP]
        }
        Page::Trace => &[
            BACK,
            QUIT,
            (&[Command::Move(Motion::Left), Command::Move(Motion::Right)], "cursor"),
            (
                &[Command::Snapshot(SnapshotCommand::PreviousEvent), Command::Snapshot(SnapshotCommand::NextEvent)],
                "event",
            ),
            PEAK,
            (&[Command::Open], "blocks"),
            (&[Command::Chart(Chart::Plus), Command::Chart(Chart::Minus)], "zoom"),
            (&[Command::Chart(Chart::Reset)], "all"),
            HELP,
        ],
    }
}

/// Which blocks the tree and the flame graph are of, and their bytes.
fn subject(scene: &Scene) -> (String, u64) {
    let bytes = scene.ui.profile.tree.get(0).map_or(0, |it| it.bytes);
    let device = scene.device().map_or(0, |it| it.ordinal);
    let what = match scene.ui.at {
        At::End => format!("live blocks of device {device}"),
        At::Event(event) => {
            let peak = scene.device().and_then(|it| it.peak.as_ref());
            let peak = if peak.is_some_and(|it| it.event == event) { " (the peak)" } else { "" };
            format!("live after event {} of device {device}{peak}", event + 1)
        }
        At::Segment(place) => {
            let address = scene.snapshot.trace.segments.get(place).map_or(0, |it| it.address);
            format!("live blocks of segment {address:#x}")
        }
    };
    let filter = &scene.ui.base.filter.text;
    let filter = if filter.is_empty() { String::new() } else { format!(" with \"{}\"", cells::raw(filter)) };
    (format!("{what}{filter}"), bytes)
}

/// Draws the bytes that are read, and a bar where the file's size is known.
fn draw_reading(buffer: &mut Buffer, area: Rect, progress: Progress, scene: &Scene) {
    let mut rest = area;
    take(&mut rest, 1);
    for words in cells::wrapped(&words(progress, scene), usize::from(rest.width)) {
        put(buffer, take(&mut rest, 1), 0, &Line::styled(words, scene.context.style(Role::Dim)));
    }
    let Some(percent) = progress.percent() else { return };
    let width = usize::from(rest.width);
    let filled = width * usize::try_from(percent).unwrap_or(100) / 100;
    let bar = [("━".repeat(filled), Role::Spark), ("─".repeat(width - filled), Role::Border)];
    let bar = bar.map(|(cells, role)| Span::styled(cells, scene.context.style(role)));
    put(buffer, take(&mut rest, 1), 0, &Line::from(bar.to_vec()));
}

/// `reading run.pickle: 412.0 MiB of 1.00 GiB, 40 %`
fn words(progress: Progress, scene: &Scene) -> String {
    let name = cells::foreign(&scene.ui.name);
    match progress.percent() {
        Some(100) => format!("adding up the blocks of {name}…"),
        Some(percent) => format!("reading {name}: {progress}, {percent} %"),
        None => format!("reading {name}: {progress}"),
    }
}
