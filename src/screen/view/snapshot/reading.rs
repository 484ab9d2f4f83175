//! How much of the file is read, until there is something to see.

use super::Scene;
use crate::{
    screen::{
        theme::Role,
        view::{cells, put, take},
    },
    storage::pickle::Progress,
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

/// Draws the bytes that are read, and a bar where the file's size is known.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, progress: Progress, scene: &Scene) {
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
