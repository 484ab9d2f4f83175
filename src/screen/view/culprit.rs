//! The line that allocates what grows, and its holder: the answer first, then its evidence.

use super::{RenderContext, cells, heading};
use crate::{
    facts::{event::wire::Sites, units},
    model::{
        analysis::{
            culprit::{Breakdown, Culprit, Spot},
            episode::Resource,
            severity::Severity,
        },
        session::process::{OnDevice, Process},
    },
    screen::{
        keys,
        theme::Role,
        ui::{Command, HostCommand},
    },
};
use ratatui::text::{Line, Span};

/// Columns of a label before its lines.
const WORD: usize = 11;

/// Returns the answer: what happens and what to do; without a capture, how to request one.
///
/// ```text
/// ─ culprit · at step 690, over 8 steps ──────────
///  train.py:41 `losses.append(loss)` keeps 3 blocks a step (4.00 MiB) through …
///  → append `loss.item()`
/// ```
pub(super) fn answer(process: &Process, on: &OnDevice, width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    let Some((sites, account)) = process.answer(on.ordinal, |_| true) else {
        let hint = hint(process, on, context);
        let title = hint.iter().map(|_| heading("culprit", width, context));
        let words = hint.iter().flat_map(|it| indented(it, 1, width, Role::Dim, context));
        return title.chain(words).collect();
    };
    let mut lines = vec![heading(&name(sites), width, context)];
    match account.culprits.first() {
        Some(it) => {
            lines.extend(indented(&it.sentence, 1, width, Role::Text, context));
            lines.extend(indented(&format!("→ {}", it.advice), 1, width, Role::Good, context));
        }
        None => lines.extend(account.notes.iter().flat_map(|it| indented(it, 1, width, Role::Text, context))),
    }
    lines
}

/// The most lines of an excerpt that is shown with another one.
const BESIDE_ANOTHER: usize = 3;

/// Returns the evidence: the lines around it, its holders, the stack, notes, and the cost.
pub(super) fn details(process: &Process, on: &OnDevice, width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    let Some((_, Breakdown { culprits, notes })) = process.answer(on.ordinal, |_| true) else { return Vec::new() };
    let Some((first, others)) = culprits.split_first() else { return Vec::new() };
    let mut lines = vec![heading("where it comes from", width, context)];
    // Of two places, both are to be seen before the list is scrolled.
    let most = if first.excerpts().len() > 1 { BESIDE_ANOTHER } else { usize::MAX };
    lines.extend(source(first, most, 1, width, context));
    lines.extend(listed("held by", &first.holders, width, context));
    lines.extend(listed("stack", &stack(&first.frames), width, context));
    let others: Vec<String> = others.iter().map(Culprit::summary).collect();
    lines.extend(listed("also", &others, width, context));
    lines.extend(notes.iter().flat_map(|it| indented(it, 1, width, Role::Dim, context)));
    lines
}

/// Returns at most `most` of the lines around the leading one, which is marked, and as many around the allocating one
/// if that is elsewhere.
///
/// ```text
///   allocated at model.py:12
/// · 12  return self.net(x)
///   kept at train.py:41
///   40  loss = model(batch)
/// ▸ 41  losses.append(loss)
/// ```
pub(super) fn source(
    it: &Culprit,
    most: usize,
    indent: usize,
    width: usize,
    context: &RenderContext,
) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for (label, excerpt) in it.excerpts() {
        if let Some(label) = label {
            let words = format!("{}  {label}", " ".repeat(indent));
            lines.push(Line::styled(cells::elide(&words, width), context.style(Role::Dim)));
        }
        lines.extend(self::excerpt(it, excerpt, most, indent, width, context));
    }
    lines
}

fn excerpt(
    it: &Culprit,
    lines: &[Spot],
    most: usize,
    indent: usize,
    width: usize,
    context: &RenderContext,
) -> Vec<Line<'static>> {
    let leading = it.leading();
    let place_of = |spot: &Spot| lines.iter().position(|line| line.is_at(spot));
    let lead = place_of(leading).or_else(|| place_of(&it.allocated)).unwrap_or(lines.len() / 2);
    let from = lead.saturating_sub(most / 2).min(lines.len().saturating_sub(most));
    let shown = lines.iter().skip(from).take(most);
    // Remove their common indentation.
    let depth = |it: &Spot| it.text.raw().len() - it.text.raw().trim_start_matches(' ').len();
    let common = lines.iter().filter(|it| !it.text.raw().trim().is_empty()).map(depth).min().unwrap_or(0);
    let line = |line: &Spot| {
        let (mark, role) = match (line.is_at(leading), line.is_at(&it.allocated)) {
            (true, _) => ('▸', Role::Title),
            (false, true) => ('·', Role::Text),
            (false, false) => (' ', Role::Dim),
        };
        let words = format!(
            "{}{mark} {:>4}  {}",
            " ".repeat(indent),
            line.line,
            cells::raw(line.text.raw().get(common..).unwrap_or_default())
        );
        Line::styled(cells::elide(words.trim_end(), width), context.style(role))
    };
    shown.map(line).collect()
}

/// Returns why there is no answer, and how to get one; empty if nothing relevant grows.
pub(super) fn hint(process: &Process, on: &OnDevice, context: &RenderContext) -> Option<String> {
    let hello = process.hello.as_ref().filter(|it| it.sites.is_some())?;
    let matters = |it: &Severity| *it >= Severity::Warning;
    let growing = context.findings.growing(process.probe, on.ordinal)?;
    if growing.resource != Some(Resource::Allocated) || !matters(&growing.severity) || !process.is_alive() {
        return None;
    }
    if let Some(why) = hello.capture_refusal() {
        return Some(format!("the line cannot be found: {}", cells::raw(why)));
    }
    if let Some(why) = &process.refused {
        return Some(format!("the line was not found: {}", cells::foreign(why)));
    }
    // A replay cannot send requests.
    let pid = process.any_pid().filter(|_| context.progress.is_none())?;
    let is_meant = context.ui.process(context.session).is_some_and(|(it, _)| it.probe == process.probe);
    let key = keys::BINDINGS
        .iter()
        .find(|it| it.command == Command::Host(HostCommand::Sites) && keys::reaches(it, context.ui));
    let how = match key.filter(|_| is_meant) {
        Some(key) => format!("{} finds it", key.keys),
        None => format!("gpuwatch sites {pid}"),
    };
    Some(format!("the line is not known yet: {how}"))
}

/// Returns `culprit · at step 690, over 8 steps`.
fn name(sites: &Sites) -> String {
    let step = sites.step.map_or_else(String::new, |it| format!("at step {it}, "));
    format!("culprit · {step}over {}", units::counted(sites.steps, "step"))
}

/// Returns a line per frame, consecutive frames of a package as one: `train.py:40 in main() · /home/ada`.
fn stack(frames: &[Spot]) -> Vec<String> {
    let mut out = Vec::new();
    for run in frames.chunk_by(|one, other| package(one).is_some() && package(one) == package(other)) {
        match run.first().map(|it| (it, package(it))) {
            Some((_, Some(package))) if run.len() > 1 => {
                out.push(format!("{} of {package}", units::counted(run.len() as u64, "frame")));
            }
            Some((it, Some(package))) => out.push(format!("{} of {package}", it.call())),
            Some((it, None)) => out.push(format!("{}{}", it.call(), directory(it))),
            None => {}
        }
    }
    out
}

fn directory(it: &Spot) -> String {
    let directory = it.file.raw().rsplit_once('/').map(|it| it.0);
    directory.map_or_else(String::new, |it| format!(" · {}", cells::raw(it)))
}

/// Returns the name of the installed package of a frame, if any.
fn package(it: &Spot) -> Option<String> {
    if !it.is_library() {
        return None;
    }
    let parts: Vec<&str> = it.file.raw().split('/').collect();
    let place = parts.iter().rposition(|it| matches!(*it, "site-packages" | "dist-packages"));
    let name = place.and_then(|it| parts.get(it + 1)).map_or("Python", |it| it.strip_suffix(".py").unwrap_or(it));
    Some(cells::raw(name))
}

/// Returns a label with its lines next to it, wrapped and aligned.
fn listed(word: &str, all: &[String], width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    let wrapped = all.iter().flat_map(|it| cells::wrapped(it, width.saturating_sub(WORD + 1)));
    let line = |(at, words): (usize, String)| {
        let word = if at == 0 { word } else { "" };
        Line::from(vec![
            Span::styled(format!(" {}", cells::left(word, WORD - 1)), context.style(Role::Dim)),
            Span::styled(words, context.style(Role::Text)),
        ])
    };
    wrapped.enumerate().map(line).collect()
}

fn indented(words: &str, indent: usize, width: usize, role: Role, context: &RenderContext) -> Vec<Line<'static>> {
    let wrapped = cells::wrapped(words, width.saturating_sub(indent + 1));
    wrapped.into_iter().map(|it| Line::styled(format!("{}{it}", " ".repeat(indent)), context.style(role))).collect()
}
