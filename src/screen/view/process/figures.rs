//! What a process uses beside device memory, and what it belongs to: from the table of figures, and from /proc.

use super::{counters::grid, named};
use crate::{
    facts::{
        event::ProcessInfo,
        figures::{Figure, Figures},
    },
    model::session::process::{OnDevice, Process},
    screen::view::{RenderContext, cells},
};
use ratatui::text::Line;

/// Returns the figures, then who started the process, and its settings.
pub(super) fn lines(process: &Process, on: &OnDevice, width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    let known = process.pid.and_then(|it| context.session.figures.get(&it));
    let figure = |figure: Figure| {
        let value = known.and_then(|it| it.get(figure, &on.device)).map(|it| (figure, it));
        let text = value.and_then(|it| Figures::from_iter([it]).format(figure));
        (figure.row().label, text.unwrap_or_else(|| cells::UNKNOWN.to_owned()))
    };
    let entries: Vec<_> = Figure::TABLE.iter().map(|it| figure(it.figure)).collect();
    let mut lines = grid(&entries, width, context);
    if let Some(info) = process.pid.and_then(|it| context.session.process_info.get(&it)) {
        lines.extend(named("user", &owner(info), width, context));
        let settings: Vec<String> = info.environment.iter().map(cells::foreign).collect();
        if !settings.is_empty() {
            lines.extend(named("set by env", &settings.join(" "), width, context));
        }
    }
    lines
}

/// Returns `ada, slurm 4242, docker 0123456789ab`.
fn owner(info: &ProcessInfo) -> String {
    let words: Vec<String> =
        [Some(&info.user), info.place.as_ref()].into_iter().flatten().map(cells::foreign).collect();
    words.join(", ")
}
