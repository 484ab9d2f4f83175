//! The first line: findings, what is watched, the driver's state, losses, and whether the view is frozen.

use super::{RenderContext, cells, put, verdict};
use crate::{
    facts::{event::DriverState, units},
    model::{analysis::severity::Severity, session::process::Process},
    screen::theme::Role,
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
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
    match &context.session.driver {
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
