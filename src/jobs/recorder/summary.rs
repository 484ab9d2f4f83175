//! The line that `gpuwatch run` prints when its job is over: the first finding, and how to see all of them.

use crate::{
    facts::text,
    model::{
        alerts,
        analysis::{episode::Axis, severity::Severity},
        findings::{Finding, Findings, follow},
        session::{Session, process::OnDevice},
    },
    storage::{replay::short_name, sink::store::Store},
};
use std::path::Path;

/// Most bytes of a path that are shown.
const PATH_MAX: usize = 4096;

/// Most characters of the first finding: with the rest of the line, it fits into a wide terminal.
const FOUND_MAX: usize = 100;

/// Returns the line: `plain.py:33 keeps 564 KiB a step; full after 41 min more; and 2 more · gpuwatch replay 3`.
pub(super) fn line(session: &Session, found: &Findings, replay: Option<&str>) -> String {
    let open: Vec<&Finding> = found.all.iter().filter(|it| !it.is_allowed() && alerts::is_open(it, session)).collect();
    let open = follow::grouped(&open, None, session);
    let is_alone = |group: &&Vec<&Finding>| group.first().is_some_and(|it| it.follows.is_none());
    // What follows from another finding is over once that one is fixed.
    let alone: Vec<&Vec<&Finding>> = open.iter().filter(is_alone).collect();
    let what = match (alone.first().copied().or_else(|| open.first()), session.processes.is_empty()) {
        (Some(first), _) => one(first) + &others(alone.len().saturating_sub(1)),
        (None, false) => unjudged(session).unwrap_or_else(|| "no alerts".to_owned()),
        (None, true) => "no process was probed".to_owned(),
    };
    let fits = found.all.iter().find_map(Finding::would_have_fit);
    [Some(what), fits, replay.map(str::to_owned)].into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

/// Returns the command that replays a recording, which it calls by its short name if it has one.
pub(super) fn replay(recording: &Path) -> String {
    let name = Store::user().and_then(|it| short_name::of(&it.directory, recording));
    let name = name.unwrap_or_else(|| recording.to_string_lossy().into_owned());
    text::command(["gpuwatch", "replay", &name].into_iter(), PATH_MAX)
}

/// Describes a finding, or a leak that several ranks share.
fn one(group: &[&Finding]) -> String {
    group.first().map_or_else(String::new, |it| {
        let weight = if it.severity == Severity::Info { "info: " } else { "" };
        format!("{weight}{}", bounded(&it.headline(group)))
    })
}

/// Cuts a text to its limit, and drops a full stop at its end.
fn bounded(text: &str) -> String {
    let text = text.trim_end_matches('.');
    match text.char_indices().nth(FOUND_MAX) {
        None => text.to_owned(),
        Some(_) => format!("{}…", text.chars().take(FOUND_MAX - 1).collect::<String>().trim_end()),
    }
}

fn others(count: usize) -> String {
    if count == 0 { String::new() } else { format!("; and {count} more") }
}

/// Returns `not judged (30 of 300 s)` for a job that counted no steps and ended before the absence of growth meant
/// something.
fn unjudged(session: &Session) -> Option<String> {
    let all = || session.processes.iter().flat_map(|it| &it.devices).filter(|it| it.growth.watched() > 0);
    let is_short = |it: &&OnDevice| it.growth.axis() == Some(Axis::Seconds) && it.growth.watched() < it.growth.enough();
    let longest = all().filter(is_short).max_by_key(|it| it.growth.watched())?;
    let is_whole = all().any(|it| !is_short(&it));
    (!is_whole).then(|| format!("not judged ({})", longest.growth.progress()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_of_any_length_fits_into_the_line() {
        assert_eq!(bounded("plain.py:33 keeps 564 KiB a step."), "plain.py:33 keeps 564 KiB a step");
        for text in ["x".repeat(500), "训 ".repeat(99), "µ".repeat(FOUND_MAX)] {
            let cut = bounded(&text);
            assert!(cut.chars().count() <= FOUND_MAX && (cut == text || cut.ends_with('…')), "{cut}");
        }
        assert_eq!([others(0), others(2)], ["", "; and 2 more"]);
    }
}
