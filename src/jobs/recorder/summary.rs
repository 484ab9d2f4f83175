//! The line that `gpuwatch run` prints when its job is over: the first finding, and how to see all of them.

use crate::{
    facts::{
        event::{killed_by, unsuccessful},
        text,
    },
    model::{
        alerts,
        analysis::{episode::Axis, severity::Severity},
        findings::{Finding, Findings, Kind, follow},
        session::{Session, process::OnDevice},
    },
    storage::{replay::short_name, sink::store::Store},
};
use std::{collections::BTreeSet, path::Path};

/// Most bytes of a path that are shown.
const PATH_MAX: usize = 4096;

/// Most characters of the first finding on a terminal, where the line is to stay one for the eye, and elsewhere.
const FOUND_MAX: usize = 100;
const FOUND_MAX_ELSEWHERE: usize = 1000;

/// What stands before the line, as before each message.
const PROGRAM: &str = "gpuwatch: ";

/// Returns the line, for a terminal of some columns if it is to be read on one:
///
/// ```text
/// killed by SIGKILL; plain.py:33 keeps 564 KiB a step; full after 41 min more; and 2 more · gpuwatch replay 3
/// ```
///
/// Where the command would be broken at the terminal's edge, it is a line of its own, to be copied.
pub(super) fn lines(session: &Session, found: &Findings, replay: Option<&str>, columns: Option<u16>) -> Vec<String> {
    let open: Vec<&Finding> = found.all.iter().filter(|it| !it.is_allowed() && alerts::is_open(it, session)).collect();
    let open = follow::grouped(&open, None, session);
    let is_alone = |group: &&Vec<&Finding>| group.first().is_some_and(|it| it.follows.is_none());
    // What follows from another finding is over once that one is fixed.
    let alone: Vec<&Vec<&Finding>> = open.iter().filter(is_alone).collect();
    let most = if columns.is_some() { FOUND_MAX } else { FOUND_MAX_ELSEWHERE };
    let what = match (alone.first().copied().or_else(|| open.first()), session.processes.is_empty()) {
        (Some(first), _) => one(first, most) + &others(alone.len().saturating_sub(1)),
        (None, false) => over(&ended(found)).or_else(|| unjudged(session)).unwrap_or_else(|| "no alerts".to_owned()),
        (None, true) => "no process was probed".to_owned(),
    };
    let is_said = open.iter().flatten().any(|it| it.kind == Kind::OomKilled);
    // An exit code says nothing new beside what was found.
    let how = if open.is_empty() { unsuccessful } else { killed_by };
    let ended = session.job.and_then(|it| how(it.code, it.signal)).filter(|_| !is_said);
    let what = ended.map_or_else(|| what.clone(), |it| format!("{it}; {what}"));
    let fits = found.all.iter().find_map(Finding::would_have_fit);
    let said = [Some(what), fits].into_iter().flatten().collect::<Vec<_>>().join(" · ");
    let Some(replay) = replay else { return vec![said] };
    let line = format!("{said} · {replay}");
    let width = line.chars().count() + PROGRAM.len();
    if columns.is_some_and(|it| usize::from(it) < width) { vec![said, replay.to_owned()] } else { vec![line] }
}

/// Returns the command that replays a recording, which it calls by its short name if it has one.
pub(super) fn replay(recording: &Path) -> String {
    let name = Store::user().and_then(|it| short_name::of(&it.directory, recording));
    let name = name.unwrap_or_else(|| recording.to_string_lossy().into_owned());
    text::command(["gpuwatch", "replay", &name].into_iter(), PATH_MAX)
}

/// Describes a finding, or a leak that several ranks share.
fn one(group: &[&Finding], most: usize) -> String {
    group.first().map_or_else(String::new, |it| {
        let weight = if it.severity == Severity::Info { "info: " } else { "" };
        format!("{weight}{}", bounded(&it.headline(group), most))
    })
}

/// Cuts a text to a limit, and drops a full stop at its end.
fn bounded(text: &str, most: usize) -> String {
    let text = text.trim_end_matches('.');
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some(_) => format!("{}…", text.chars().take(most - 1).collect::<String>().trim_end()),
    }
}

fn others(count: usize) -> String {
    if count == 0 { String::new() } else { format!("; and {count} more") }
}

/// Returns `no alert is open, 2 are over (growth, oom)` where there were some.
fn over(kinds: &[Kind]) -> Option<String> {
    let names: BTreeSet<&str> = kinds.iter().map(|it| it.name()).collect();
    let are = if kinds.len() == 1 { "is" } else { "are" };
    let names = names.into_iter().collect::<Vec<_>>().join(", ");
    (!kinds.is_empty()).then(|| format!("no alert is open, {} {are} over ({names})", kinds.len()))
}

/// Returns the kinds of what was found, where none of it is open.
fn ended(found: &Findings) -> Vec<Kind> {
    found.all.iter().filter(|it| !it.is_allowed() && it.follows.is_none()).map(|it| it.kind).collect()
}

/// Returns `not judged (30 of 300 s)` for a job that counted no steps and ended before the absence of growth meant
/// something.
pub fn unjudged(session: &Session) -> Option<String> {
    let all = || session.processes.iter().flat_map(|it| &it.devices).filter(|it| it.growth.watched() > 0);
    let is_short = |it: &&OnDevice| it.growth.axis() == Some(Axis::Seconds) && it.growth.watched() < it.growth.enough();
    let longest = all().filter(is_short).max_by_key(|it| it.growth.watched())?;
    let is_whole = all().any(|it| !is_short(&it));
    (!is_whole).then(|| format!("not judged ({})", longest.growth.progress()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{facts::units::Stamp, model::session::JobEnd};

    #[test]
    fn the_command_is_never_broken_at_the_edge_of_a_terminal() {
        let mut session = Session::default();
        session.job = Some(JobEnd { at: Stamp(0), code: None, signal: Some(9) });
        let (found, replay) = (Findings::default(), Some("gpuwatch replay 3"));
        let (said, whole) = ("killed by SIGKILL; no process was probed", 70);
        for columns in [None, Some(200), Some(whole)] {
            assert_eq!(
                lines(&session, &found, replay, columns),
                [format!("{said} · gpuwatch replay 3")],
                "{columns:?}"
            );
        }
        for columns in [whole - 1, 40, 1] {
            assert_eq!(lines(&session, &found, replay, Some(columns)), [said, "gpuwatch replay 3"], "{columns}");
        }
        assert_eq!(lines(&session, &found, None, Some(10)), [said]);
        session.job = Some(JobEnd { at: Stamp(0), code: Some(1), signal: None });
        assert_eq!(lines(&session, &found, None, None), ["exit code 1; no process was probed"]);
    }

    #[test]
    fn alerts_that_are_over_are_not_no_alerts() {
        let said = over(&[Kind::Oom, Kind::Growth, Kind::Oom]);
        assert_eq!(said.as_deref(), Some("no alert is open, 3 are over (growth, oom)"));
        assert_eq!((over(&[]), over(&[Kind::Growth]).map(|it| it.contains("1 is over"))), (None, Some(true)));
    }

    #[test]
    fn a_finding_of_any_length_fits_into_the_line() {
        assert_eq!(bounded("plain.py:33 keeps 564 KiB a step.", FOUND_MAX), "plain.py:33 keeps 564 KiB a step");
        for text in ["x".repeat(500), "训 ".repeat(99), "µ".repeat(FOUND_MAX)] {
            let cut = bounded(&text, FOUND_MAX);
            assert!(cut.chars().count() <= FOUND_MAX && (cut == text || cut.ends_with('…')), "{cut}");
        }
        assert_eq!([others(0), others(2)], ["", "; and 2 more"]);
    }
}
