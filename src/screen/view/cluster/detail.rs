//! What is selected, in full: a machine with its link's state, or a rank with its figures.

use super::{Scene, cells, nodes, put, verdict};
use crate::{
    model::cluster::overview::{RankRow, figure::RankFigure},
    screen::{theme::Role, ui::cluster::Shape, view::heading},
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

/// Returns the rows that it has on a screen of this height.
pub(super) fn height(screen: u16) -> u16 {
    if screen < 20 { 2 } else { 4 }
}

/// Draws a heading and as many lines as fit.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, scene: &Scene) {
    let width = usize::from(area.width);
    let Some((name, text, role)) = words(scene) else { return };
    put(buffer, area, 0, &heading(&cells::elide(&name, width.saturating_sub(6)), width, &scene.context));
    for (row, words) in cells::wrapped(&text, width.saturating_sub(2)).into_iter().enumerate() {
        put(buffer, area, row + 1, &Line::from(Span::styled(format!(" {words}"), scene.context.style(role))));
    }
}

/// Returns the name of what is selected, its description, and the description's role.
fn words(scene: &Scene) -> Option<(String, String, Role)> {
    let overview = scene.overview;
    match scene.ui.shape(overview) {
        Shape::Machines => {
            let node = overview.nodes.get(scene.ui.selected(overview)?.node)?;
            let state: String =
                nodes::state(node, |it| scene.context.style(it)).iter().map(|it| it.content.as_ref()).collect();
            let role = node.severity().map_or(Role::Dim, verdict::role);
            let state = if state.is_empty() { "nothing needs attention".to_owned() } else { state };
            Some((format!("{}: {}", cells::foreign(&node.host), node.link.name()), state, role))
        }
        Shape::Map => {
            let listed = scene.ui.ranks(overview);
            let rank = overview.ranks.get(*listed.get(scene.ui.rank_place(&listed, overview))?)?;
            let role = rank.worst.as_ref().map_or(Role::Dim, |worst| verdict::role(worst.severity));
            Some((name(rank, scene), figures(rank), role))
        }
    }
}

/// Returns `rank 5 on node03, pid 4242, slurm 7`.
pub(super) fn name(it: &RankRow, scene: &Scene) -> String {
    let overview = scene.overview;
    let host = overview.nodes.get(it.node).map_or_else(String::new, |node| cells::foreign(&node.host));
    let rank = it.rank.map_or_else(|| "a process".to_owned(), |rank| format!("rank {rank}"));
    let pid = it.pid.map_or_else(String::new, |pid| format!(", pid {pid}"));
    let job = it.job.and_then(|job| overview.jobs.get(job));
    let job = job.map_or_else(String::new, |job| format!(", {}", cells::foreign(&job.name)));
    let ended = if it.ended { ", ended" } else { "" };
    format!("{rank} on {host}{pid}{job}{ended}")
}

/// Returns the worst finding, and every known figure with its label.
pub(super) fn figures(it: &RankRow) -> String {
    let worst = it.worst.as_ref().map(|worst| format!("{}: {}", worst.severity.name(), cells::raw(&worst.title)));
    let step = it.step.map(|step| format!("step {step}"));
    let known = RankFigure::TABLE.iter().filter_map(|row| {
        let value = it.figures.get(row.figure)?;
        Some(format!("{} {}", row.label, row.figure.format(value)))
    });
    worst.into_iter().chain(step).chain(known).collect::<Vec<_>>().join(" · ")
}
