//! The jobs: ranks, machines, steps, and their findings below. Those with the worst findings come first.

use super::{Scene, cells, put, take, verdict};
use crate::{
    facts::units::counted,
    model::cluster::overview::JobRow,
    screen::{theme::Role, view::title},
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

/// Findings of a job that are listed.
const FINDINGS: usize = 3;

/// Draws the title and as many lines as there are, at most `most` rows, and cuts them off the rest.
pub(super) fn draw(buffer: &mut Buffer, rest: &mut Rect, most: usize, scene: &Scene) {
    let order = scene.overview.job_order();
    let jobs = order.iter().filter_map(|it| scene.overview.jobs.get(*it)).filter(|it| is_listed(it));
    let mut lines: Vec<Line> = jobs.flat_map(|it| lines(it, scene)).collect();
    if lines.is_empty() || most < 2 {
        return;
    }
    if lines.len() + 1 > most {
        lines.truncate(most.saturating_sub(2));
        lines.push(Line::styled(" …", scene.context.style(Role::Dim)));
    }
    let area = take(rest, lines.len() + 1);
    title(buffer, area, "jobs", Vec::new(), &scene.context);
    lines.iter().enumerate().for_each(|(row, line)| put(buffer, area, row + 1, line));
}

/// Whether a job is more than a process on its own.
fn is_listed(it: &JobRow) -> bool {
    it.present > 1 || it.expected.is_some() || !it.findings.is_empty()
}

/// Returns ` slurm 4242  512 of 512 ranks on 64 machines, steps 10200 to 10204`, and a line for each finding.
fn lines<'a>(it: &'a JobRow, scene: &'a Scene) -> impl Iterator<Item = Line<'static>> + 'a {
    let style = |role| scene.context.style(role);
    let ranks = match it.expected {
        Some(expected) => format!("{} of {}", it.present, counted(expected, "rank")),
        None => counted(it.present, "rank"),
    };
    let machines = counted(it.nodes, "machine");
    let steps = match it.steps {
        Some((last, first)) if last == first => format!(", step {first}"),
        Some((last, first)) => format!(", steps {last} to {first}"),
        None => String::new(),
    };
    let head = Line::from(vec![
        Span::styled(format!(" {}", cells::foreign(&it.name)), style(Role::Text)),
        Span::styled(format!("  {ranks} on {machines}{steps}"), style(Role::Dim)),
    ]);
    let found = it.findings.iter().take(FINDINGS).map(move |found| {
        Line::from(vec![
            Span::styled(format!("   {}: ", found.severity.name()), style(verdict::role(found.severity))),
            Span::styled(cells::raw(&found.title), style(Role::Text)),
        ])
    });
    std::iter::once(head).chain(found)
}
