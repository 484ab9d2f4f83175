//! The first line: findings, what is watched, the driver's state, losses, and whether the view is frozen.

use crate::{
    facts::{
        event::DriverState,
        units::{self, Stamp},
    },
    model::{analysis::severity::Severity, session::process::Process},
    screen::{
        theme::Role,
        view::{RenderContext, cells, footer, put, verdict},
    },
    storage::replay::{Position, Progress},
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
    widgets::{Clear, Widget},
};

/// The width of the reason why a machine's events do not arrive.
const TROUBLE: usize = 40;

/// Draws `gpuwatch  1 warning  2 devices  4 probes  12 samples lost          driver 570.86`; without a footer, its end
/// shows how to leave.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, context: &RenderContext, footed: bool) {
    let session = context.session;
    let alive = session.processes.iter().filter(|it| it.is_alive()).count();
    let sum = |of: fn(&Process) -> u64| session.processes.iter().map(of).fold(0, u64::saturating_add);
    let lost = [(sum(|it| it.lost), "sample"), (sum(|it| it.lost_error_lines), "error line")];
    let mut pieces = vec![("gpuwatch".to_owned(), Role::Title)];
    if let Some(machine) = &context.ui.machine {
        pieces.push((cells::foreign(&machine.host), Role::Key));
        pieces.extend(machine.trouble.as_ref().map(|why| (cells::elide(&cells::foreign(why), TROUBLE), Role::Warning)));
    }
    if context.ui.frozen {
        pieces.push(("FROZEN".to_owned(), Role::Warning));
    }
    let all = context.ui.open_alerts(context.findings, session);
    for severity in [Severity::Critical, Severity::Warning, Severity::Info] {
        let open = all.iter().filter(|it| it.severity == severity && !it.is_allowed()).count();
        if open > 0 {
            pieces.push((format!("{open} {}", severity.name()), verdict::role(severity)));
        }
    }
    pieces.push((units::counted(session.devices.len() as u64, "device"), Role::Dim));
    pieces.push((units::counted(alive as u64, "probe"), Role::Dim));
    if let Some(pace) = context.ui.interval {
        pieces.push((format!("every {}", units::pause(pace)), Role::Dim));
    }
    let lost = lost.into_iter().filter(|(number, _)| *number > 0);
    pieces.extend(lost.map(|(number, what)| (format!("{} lost", units::counted(number, what)), Role::Warning)));
    if !session.losses.words().is_empty() {
        pieces.push(("not everything is seen".to_owned(), Role::Warning));
    }
    let (driver, role) = if footed { driver(context) } else { ("q quit".to_owned(), Role::Dim) };
    let width = usize::from(area.width).saturating_sub(if footed { 0 } else { 8 });
    let (spans, taken) = fitting(pieces, width, context);
    put(buffer, area, 0, &Line::from(spans));
    if !footed || taken + cells::width(&driver) + 2 <= width {
        put(buffer, area, 0, &Line::from(Span::styled(driver, context.style(role))).right_aligned());
    }
}

/// Returns the first pieces that fit into a width, and the width that all up to the first one that does not would take.
pub(super) fn fitting<'a>(
    pieces: Vec<(String, Role)>,
    width: usize,
    context: &RenderContext,
) -> (Vec<Span<'a>>, usize) {
    let mut spans: Vec<Span> = Vec::new();
    let mut taken = 0;
    for (text, role) in pieces {
        let text = format!("{}{text}", if spans.is_empty() { "" } else { "  " });
        taken += cells::width(&text);
        if taken > width {
            break;
        }
        spans.push(Span::styled(text, context.style(role)));
    }
    (spans, taken)
}

fn driver(context: &RenderContext) -> (String, Role) {
    match context.session.driver_shown().map(|it| it.1) {
        Some(DriverState::Up { version: Some(version) }) => {
            (cells::elide(&format!("driver {}", cells::foreign(version)), 30), Role::Dim)
        }
        Some(DriverState::Up { version: None }) => ("driver up".to_owned(), Role::Dim),
        Some(DriverState::Stalled { since }) => {
            (format!("driver stalled {}", units::duration(context.session.now.since(*since))), Role::Bad)
        }
        Some(DriverState::Absent { .. }) => ("no driver".to_owned(), Role::Warning),
        Some(DriverState::Off) => ("driver off".to_owned(), Role::Dim),
        None => (String::new(), Role::Dim),
    }
}

/// Takes the last rows of a screen for the position and for the keys, which `keys` draws. Low screens have no row for
/// the keys beside a message of the replay; a question or an answer to the user takes it anyway.
pub(super) fn draw_playback(
    buffer: &mut Buffer,
    rest: &mut Rect,
    whole: u16,
    context: &RenderContext,
    keys: impl FnOnce(&mut Buffer, Rect),
) {
    let Some(progress) = context.progress else { return };
    let height = if whole >= 20 { 3 } else { 2 }.min(rest.height);
    let bottom = Rect { y: rest.bottom() - height, height, ..*rest };
    rest.height -= height;
    let has_keys = match progress {
        Progress::Loading { read, total, preview } => {
            loading(buffer, bottom, context, (*read, *total), *preview);
            false
        }
        Progress::At(it) => {
            put(buffer, bottom, 0, &first(usize::from(bottom.width), context, it));
            if let Some((words, warns)) = &it.word {
                let words = cells::elide(&cells::raw(words), usize::from(bottom.width));
                let role = if *warns { Role::Warning } else { Role::Text };
                put(buffer, bottom, 1, &Line::styled(words, context.style(role)));
            }
            height > 2 || (height == 2 && it.word.is_none())
        }
    };
    let row = Rect { y: bottom.bottom().saturating_sub(1), height: height.min(1), ..bottom };
    if footer::has_text(context) {
        Clear.render(row, buffer);
        footer::draw(buffer, row, context);
    } else if has_keys {
        keys(buffer, row);
    }
}

/// Draws how much is read.
fn loading(buffer: &mut Buffer, area: Rect, context: &RenderContext, (read, total): (u64, u64), preview: bool) {
    let share = read.saturating_mul(100).checked_div(total).unwrap_or(100).min(100);
    let end = if preview { "; this is its end, without growth" } else { "" };
    let words = format!("reading the recording: {share} %{end}");
    put(buffer, area, 0, &Line::styled(words, context.style(Role::Title)));
    let filled = usize::from(area.width).saturating_mul(usize::try_from(share).unwrap_or(100)) / 100;
    put(buffer, area, 1, &Line::styled("━".repeat(filled), context.style(Role::Spark)));
}

fn first<'a>(width: usize, context: &RenderContext, it: &Position) -> Line<'a> {
    let state = if it.playing { "▶" } else { "║" };
    let state = if context.theme.is_ascii() && !it.playing { "|" } else { state };
    let at = it.at.since(it.from);
    let left = format!("{state} {}  {} ", speed(it.percent), cells::clock(at));
    let step = it.step.map_or_else(String::new, |it| format!("  step {it}"));
    let wall = it.unix_us.map_or_else(String::new, |it| format!("  {}Z", cells::clock(it % 86_400_000_000)));
    let mut right = format!(" {}{step}{wall}", cells::clock(it.to.since(it.from)));
    if cells::width(&left) + cells::width(&right) + 10 > width {
        right = step;
    }
    let room = width.saturating_sub(cells::width(&left) + cells::width(&right));
    let mut spans = vec![Span::styled(left, context.style(Role::Title))];
    if room >= 10 {
        spans.extend(line(room, context, it));
    }
    spans.push(Span::styled(right, context.style(Role::Text)));
    Line::from(spans)
}

/// Draws the whole recording as a line; the part before the position is heavier.
fn line<'a>(width: usize, context: &RenderContext, it: &Position) -> Vec<Span<'a>> {
    let column = |at: Stamp| {
        let (past, whole) = (u128::from(at.since(it.from)), u128::from(it.to.since(it.from)).max(1));
        usize::try_from(past * (width as u128 - 1) / whole).unwrap_or(0).min(width - 1)
    };
    let here = column(it.at);
    let mut cells: Vec<(&str, Role)> =
        (0..width).map(|x| if x < here { ("━", Role::Spark) } else { ("─", Role::Border) }).collect();
    let marks = it.marks.iter().map(|at| (*at, "◇", Role::Dim));
    let alerts = it.alerts.iter().map(|at| (*at, "▲", Role::Warning));
    let troubles = it.troubles.iter().map(|at| (*at, "◆", Role::Bad));
    for (at, sign, role) in marks.chain(alerts).chain(troubles).chain([(it.at, "●", Role::Title)]) {
        if let Some(cell) = cells.get_mut(column(at)) {
            *cell = (sign, role);
        }
    }
    cells.into_iter().map(|(sign, role)| Span::styled(sign, context.style(role))).collect()
}

fn speed(percent: u64) -> String {
    if percent.is_multiple_of(100) {
        format!("{}×", percent / 100)
    } else {
        format!("{:.2}×", percent as f64 / 100.0)
    }
}
