//! Draws the screen: the frame and the arrangement of its boxes. Pure, for every size down to 0×0.

/// All findings, the open ones in detail.
mod alerts;
/// Formats figures and foreign text for a given width.
mod cells;
/// Many machines.
pub mod cluster;
/// Columns that fit.
mod columns;
/// The course of a device's metrics.
mod course;
/// The line that allocates what grows, and its holder.
mod culprit;
/// One device: its ladder large, with every gap explained.
mod device;
/// The device list.
mod devices;
/// The menu of signals.
mod dialogs;
/// The line of keys.
mod footer;
/// Growth of memory.
mod growth;
/// The first line.
mod header;
/// The keys.
mod help;
/// The host's memory.
mod host;
/// The ladder as a bar and its legend.
mod ladder;
/// Messages that need attention now.
mod messages;
/// Devices, the selected one's ladder, its growth, its processes.
mod overview;
/// The highest moment of a step.
mod peak;
/// One process on one device.
mod process;
/// The processes of a device.
mod processes;
/// Scrolling.
mod scroll;
/// A memory snapshot.
pub mod snapshot;
/// How long steps take, as bars.
mod step_times;
/// The run of a process.
mod timeline;
/// Descriptions of findings.
mod verdict;

pub use crate::screen::view::scroll::Scrolled;
use crate::{
    model::{
        analysis::ladder::Gap,
        findings::{DeviceFindings, Finding, Findings, Identity, ProcessFindings},
        session::{
            Session,
            device::Device,
            process::{OnDevice, Process},
        },
    },
    screen::{
        keys,
        theme::{Graph, Role, Theme},
        ui::{
            Command, Focus, Screen, Ui,
            mouse::{Regions, Target},
            order::By,
            preset::Part,
        },
    },
    sources::focus,
    storage::replay::Progress,
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
    widgets::Widget,
};
use std::cell::RefCell;

/// The results of a frame, for scrolling and clicks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drawn {
    /// How far the open box is scrolled, and can be.
    pub scrolled: Scrolled,
    /// Lines by which the help can be scrolled.
    pub help_most: usize,
    /// Cells in a row of the map of ranks; 0 without one.
    pub columns: usize,
    /// Clickable regions.
    pub regions: Regions,
    /// What the screen shows beside what is always read.
    pub focus: focus::Focus,
}

/// Draws the whole screen.
pub fn draw(buffer: &mut Buffer, session: &Session, findings: &Findings, ui: &Ui, theme: &Theme) -> Drawn {
    paint(buffer, session, findings, ui, theme, None)
}

/// Draws the screen with the position of a replay instead of the line of keys.
pub fn draw_replay(
    buffer: &mut Buffer,
    session: &Session,
    findings: &Findings,
    ui: &Ui,
    theme: &Theme,
    progress: &Progress,
) -> Drawn {
    paint(buffer, session, findings, ui, theme, Some(progress))
}

/// Draws either.
pub fn paint(
    buffer: &mut Buffer,
    session: &Session,
    findings: &Findings,
    ui: &Ui,
    theme: &Theme,
    progress: Option<&Progress>,
) -> Drawn {
    let area = buffer.area;
    let context = &RenderContext { session, findings, ui, theme, progress, regions: RefCell::default() };
    buffer.set_style(area, context.style(Role::Text));
    let scrolled = arrange(buffer, area, context);
    let help_most =
        if context.ui.help { help::draw(buffer, area, context) } else { help::draw_explain(buffer, area, context) };
    dialogs::draw(buffer, area, context);
    help::question(buffer, area, context);
    dialogs::draw_start(buffer, area, context);
    if context.theme.is_ascii() {
        draw_ascii(buffer, area);
    }
    Drawn { scrolled, help_most, columns: 0, regions: context.regions.take(), focus: context.focus() }
}

/// The input of every box.
struct RenderContext<'a> {
    session: &'a Session,
    findings: &'a Findings,
    ui: &'a Ui,
    theme: &'a Theme,
    progress: Option<&'a Progress>,
    /// Filled while drawing, so that clicks match what is visible.
    regions: RefCell<Regions>,
}

impl<'a> RenderContext<'a> {
    /// Returns what the screen shows beside what is always read.
    fn focus(&self) -> focus::Focus {
        let of_device = || Some(focus::Focus::Device(self.device()?.id.clone()));
        let of_process = || {
            let (process, on) = self.ui.process(self.session)?;
            Some(focus::Focus::Process(process.pid?, on.device.clone()))
        };
        let preset = self.ui.preset.row();
        let has_figures = preset.figures || matches!(self.ui.order.by, By::Figure(_));
        let has_metrics = preset.boxes.contains(&Part::Metrics);
        let focus = match self.ui.screen {
            Screen::Device => of_device(),
            Screen::Process => of_process(),
            Screen::Overview if has_figures => {
                let device = self.device().filter(|_| has_metrics).map(|it| it.id.clone());
                Some(focus::Focus::Processes(device))
            }
            Screen::Overview if has_metrics => of_device(),
            _ => None,
        };
        focus.unwrap_or_default()
    }

    fn style(&self, role: Role) -> Style {
        self.theme.style(role)
    }

    /// Returns the characters of graphs by height, lowest first.
    fn eighths(&self) -> [char; 8] {
        match self.theme.graph {
            Graph::Braille => ['⡀', '⣀', '⣄', '⣤', '⣦', '⣶', '⣷', '⣿'],
            Graph::Block | Graph::Ascii => ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
        }
    }

    /// Makes an area clickable.
    fn claim(&self, area: Rect, target: Target) {
        self.regions.borrow_mut().claim(area, target);
    }

    fn device(&self) -> Option<&'a Device> {
        self.session.devices.get(self.ui.selected(self.session))
    }

    fn found_for(&self, process: &Process, on: &OnDevice) -> Option<&'a ProcessFindings> {
        let all = &self.findings.device(&on.device)?.processes;
        all.iter().find(|it| it.probe == process.probe && it.ordinal == on.ordinal)
    }

    /// Returns the alert that the arrows are on.
    fn selected_alert(&self) -> Option<Identity> {
        let listed = self.ui.alerts(self.findings, self.session);
        let it = listed.get(self.ui.alert_place(&listed)).filter(|_| self.ui.is_among_alerts());
        it.copied().map(Finding::identity)
    }

    fn found(&self) -> Option<&'a DeviceFindings> {
        self.findings.device(&self.device()?.id)
    }
}

/// Arranges header, messages and footer, and between them the screen:
///
/// ```text
/// header     what was found, what is watched, how the driver is
/// messages   what must be known now, only when there is any; the screen of a device has them itself
/// screen     overview, device, process, timeline, alerts
/// footer     the keys; of a replay, where it stands
/// ```
///
/// Below 8 rows there is no footer; messages have 3 rows at most, and below 20 rows one.
fn arrange(buffer: &mut Buffer, area: Rect, context: &RenderContext) -> Scrolled {
    let (mut rest, tall) = (area, area.height >= 20);
    let footed = area.height >= 8 || footer::has_text(context);
    header::draw(buffer, take(&mut rest, 1), context, footed && context.progress.is_none());
    if context.progress.is_some() {
        header::draw_playback(buffer, &mut rest, area.height, context, |buffer, row| {
            footer::keys(buffer, row, context);
        });
    } else if footed {
        let bottom = Rect { y: rest.bottom().saturating_sub(1), height: 1, ..rest };
        rest.height = rest.height.saturating_sub(1);
        footer::draw(buffer, bottom, context);
    }
    let room = match (context.session.devices.is_empty(), tall) {
        (true, _) => usize::from(area.height / 2),
        (false, true) => 3,
        (false, false) => 1,
    };
    // The screen of a device has them in full.
    let is_listed = context.ui.screen == Screen::Device && context.device().is_some();
    let said = if is_listed { Vec::new() } else { messages::messages(context) };
    let lines = messages::lines(&said, usize::from(area.width), room, key_to_more(context));
    messages::draw(buffer, take(&mut rest, lines.len()), &lines, context);
    if context.session.devices.is_empty() && context.ui.screen != Screen::Alerts {
        overview::draw_no_device(buffer, rest, context);
        return Scrolled::default();
    }
    // The opened screen is about one device, which is named in one line.
    let mut alone = |rest: &mut Rect| devices::draw(buffer, take(rest, 1), context);
    match context.ui.screen {
        Screen::Overview => overview::draw(buffer, area, rest, context),
        Screen::Alerts => return alerts::draw(buffer, rest, context),
        Screen::Device => {
            alone(&mut rest);
            return device::draw(buffer, rest, context);
        }
        Screen::Process => {
            alone(&mut rest);
            return process::draw(buffer, rest, context);
        }
        Screen::Timeline => {
            alone(&mut rest);
            timeline::draw(buffer, rest, context);
        }
    }
    Scrolled::default()
}

/// Returns the key that opens the device, where all messages have room; `None` if it does something else.
fn key_to_more(context: &RenderContext) -> Option<&'static str> {
    let ui = context.ui;
    let is_free = !ui.help && ui.explained.is_none() && !keys::KeyContext::of(ui).is_asking();
    let opens_device = ui.screen == Screen::Overview && ui.focus == Focus::Devices && context.found().is_some();
    let open = keys::BINDINGS.iter().find(|it| it.command == Command::Open && keys::reaches(it, ui));
    open.filter(|_| is_free && opens_device).map(|it| it.keys)
}

/// Cuts rows off the top of the rest.
fn take(rest: &mut Rect, rows: usize) -> Rect {
    let height = u16::try_from(rows).unwrap_or(u16::MAX).min(rest.height);
    let top = Rect { height, ..*rest };
    rest.y = rest.y.saturating_add(height);
    rest.height -= height;
    top
}

/// Writes a line in a row of an area, if the row exists; elides a line that is too long, never within a number.
fn put(buffer: &mut Buffer, area: Rect, row: usize, line: &Line) {
    let Ok(row) = u16::try_from(row) else { return };
    if row < area.height {
        let place = Rect { y: area.y + row, height: 1, ..area };
        let width = usize::from(area.width);
        if line.width() > width {
            cells::fitting(line, width).render(place.intersection(buffer.area), buffer);
        } else {
            line.render(place.intersection(buffer.area), buffer);
        }
    }
}

/// Draws a box's first line: its name, a rule, and its most important figure at the right end.
fn title(buffer: &mut Buffer, area: Rect, name: &str, right: Vec<Span>, context: &RenderContext) {
    let width = usize::from(area.width);
    let tail: usize = right.iter().map(Span::width).sum();
    // The right end is a figure or a verdict; it is drawn completely or not at all.
    let right = if tail + 12 > width { Vec::new() } else { right };
    let tail: usize = right.iter().map(Span::width).sum();
    let name = cells::elide(name, width.saturating_sub(tail + 6));
    let rule = width.saturating_sub(cells::width(&name) + tail + 3 + if tail > 0 { 3 } else { 0 });
    let line = context.style(Role::Border);
    let mut spans = vec![
        Span::styled("─ ", line),
        Span::styled(name, context.style(Role::Title)),
        Span::styled(format!(" {}", "─".repeat(rule)), line),
    ];
    if !right.is_empty() {
        spans.push(Span::raw(" "));
        spans.extend(right);
        spans.push(Span::styled(" ─", line));
    }
    put(buffer, area, 0, &Line::from(spans));
}

/// Returns a separator between two groups of figures.
fn heading(name: &str, width: usize, context: &RenderContext) -> Line<'static> {
    let rule = "─".repeat(width.saturating_sub(cells::width(name) + 4));
    Line::from(vec![
        Span::styled("─ ", context.style(Role::Border)),
        Span::styled(name.to_owned(), context.style(Role::Title)),
        Span::styled(format!(" {rule}"), context.style(Role::Border)),
    ])
}

/// Returns the displayed name of a device: `GPU 0`, or the ordinal in its process.
fn device_name(device: &Device) -> String {
    device.index.map_or_else(|| cells::raw(&device.id.0), |index| format!("GPU {index}"))
}

/// Replaces every non-ASCII symbol by the most similar ASCII one.
fn draw_ascii(buffer: &mut Buffer, area: Rect) {
    for position in area.positions() {
        if let Some(cell) = buffer.cell_mut(position)
            && !cell.symbol().is_ascii()
        {
            let plain = plain(cell.symbol());
            cell.set_char(plain);
        }
    }
}

fn plain(symbol: &str) -> char {
    let sign = symbol.chars().next().unwrap_or(' ');
    let mut rows = Gap::ALL.iter().map(|it| it.row());
    if let Some(row) = rows.find(|it| it.colourless == sign) {
        return row.ascii;
    }
    match sign {
        '–' | '─' | '⠤' | '⠒' => '-',
        '│' | '╵' | '⡇' | '▏' => '|',
        '█' | '▇' | '▆' => '#',
        '▅' | '▄' | '━' => '=',
        '▃' | '▂' | '▁' => '_',
        '⋮' => ':',
        '◇' | '┌' | '┐' | '└' | '┘' => '+',
        '⣀' => '.',
        '⠉' => '\'',
        '×' => 'x',
        '▸' | '→' | '▶' => '>',
        '●' => 'O',
        '◆' => '!',
        '◎' => '@',
        '✕' => 'X',
        '≈' | '…' => '~',
        '°' => ' ',
        '↑' | '▲' => '^',
        '↓' | '▾' => 'v',
        '←' => '<',
        _ => '?',
    }
}
