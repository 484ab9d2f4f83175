//! Every counter of a process on a device, in as many columns as fit.

use crate::{
    facts::{
        event::wire::{Counters, Group, Label, Unit},
        units::Bytes,
    },
    model::{
        analysis::fragmentation::Stuck,
        session::process::{OnDevice, Process},
    },
    screen::{
        theme::Role,
        view::{RenderContext, cells},
    },
};
use ratatui::text::{Line, Span};

/// The width of an entry: name, figure, and the space between two.
const ENTRY: usize = 26;
const NAME: usize = 13;
const FIGURE: usize = 11;

/// Returns the counters, column by column.
pub(super) fn lines(process: &Process, on: &OnDevice, width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    grid(&entries(process, on, context), width, context)
}

/// Returns entries of a name and a figure, column by column.
pub(super) fn grid(entries: &[(&str, String)], width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    let columns = ((width + 1) / ENTRY).clamp(1, 4);
    let rows = entries.len().div_ceil(columns);
    let line = |row: usize| {
        let both = entries.iter().skip(row).step_by(rows.max(1));
        both.flat_map(|(name, figure)| {
            let role = if figure == cells::UNKNOWN { Role::Dim } else { Role::Text };
            [
                Span::styled(format!(" {}", cells::left(name, NAME)), context.style(Role::Dim)),
                Span::styled(format!("{} ", cells::right(figure, FIGURE)), context.style(role)),
            ]
        })
        .collect()
    };
    (0..rows).map(line).collect()
}

fn entries(process: &Process, on: &OnDevice, context: &RenderContext) -> Vec<(&'static str, String)> {
    let values = on.counters.values();
    let mut entries = Vec::new();
    for group in Group::ALL {
        for (counter, value) in Counters::TABLE.iter().zip(values).filter(|(counter, _)| counter.group == group) {
            let label = match counter.label {
                Label::Always(label) => label,
                Label::IfKnown(label) if value.is_some() => label,
                Label::IfKnown(_) | Label::None => continue,
            };
            let figure = match counter.unit {
                Unit::Bytes => cells::bytes(value.map(Bytes)),
                Unit::Count => cells::known(value, ""),
            };
            entries.push((label, figure));
        }
        entries.extend(derived(group, process, on, context));
    }
    entries
}

/// Returns figures derived from the counters of a group and others.
fn derived(group: Group, process: &Process, on: &OnDevice, context: &RenderContext) -> Vec<(&'static str, String)> {
    let found = context.found_for(process, on);
    let fragmentation = found.map(|it| it.fragmentation);
    match group {
        Group::Live => {
            let stuck = fragmentation.and_then(|it| match it.stuck {
                Stuck::Known(bytes) => Some(bytes),
                Stuck::Unknown | Stuck::NotMeasurable => None,
            });
            let releasable = found.and_then(|it| it.releasable);
            vec![("stuck", cells::bytes(stuck)), ("releasable", cells::bytes(releasable))]
        }
        Group::Held => vec![("total", cells::bytes(found.and_then(|it| it.driver_used)))],
        Group::Host => vec![("unused", cells::share(fragmentation.and_then(|it| it.share())))],
        Group::Peak | Group::Number => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::figures::Figure;

    #[test]
    fn every_label_has_room() {
        for counter in Counters::TABLE {
            let (Label::Always(label) | Label::IfKnown(label)) = counter.label else { continue };
            assert!(label.chars().count() <= NAME, "{label}");
        }
        for it in Figure::TABLE {
            assert!(it.label.chars().count() <= NAME, "{}", it.label);
        }
    }
}
