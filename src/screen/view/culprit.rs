//! Which line allocates what grows and who keeps it: the answer first, then where it rests on.

use super::{RenderContext, cells, heading};
use crate::{
    facts::{event::wire::Sites, units},
    model::{
        analysis::{
            culprit::{Account, Culprit, Spot},
            episode::Resource,
            severity::Severity,
        },
        session::process::{OnDevice, Process},
    },
    screen::{keys, theme::Role, ui::Command},
};
use ratatui::text::{Line, Span};

/// What a probe says that can be asked.
const READY: &str = "ready";

/// Columns of a word before its lines.
const WORD: usize = 11;

/// The answer: what happens and what to do; where it was not looked for yet, how to.
///
/// ```text
/// ─ culprit · at step 690, over 8 steps ──────────
///  train.py:41 `losses.append(loss)` keeps 3 blocks a step (4.00 MiB) through …
///  → append `loss.item()` or `loss.detach()`
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

/// What the answer rests on: the lines around it, who holds it, the stack, what else was seen, what it cost.
pub(super) fn details(process: &Process, on: &OnDevice, width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    let Some((_, Account { culprits, notes })) = process.answer(on.ordinal, |_| true) else { return Vec::new() };
    let Some((first, others)) = culprits.split_first() else { return Vec::new() };
    let mut lines = vec![heading("where it comes from", width, context)];
    lines.extend(source(first, usize::MAX, 1, width, context));
    lines.extend(listed("held by", &first.holders, width, context));
    lines.extend(listed("stack", &stack(&first.frames), width, context));
    let others: Vec<String> = others.iter().map(Culprit::summary).collect();
    lines.extend(listed("also", &others, width, context));
    lines.extend(notes.iter().flat_map(|it| indented(it, 1, width, Role::Dim, context)));
    lines
}

/// At most so many of the lines around the one that leads, which is marked; so is the one that allocates.
pub(super) fn source(
    it: &Culprit,
    most: usize,
    indent: usize,
    width: usize,
    context: &RenderContext,
) -> Vec<Line<'static>> {
    let leading = it.leading();
    let is = |one: &Spot, other: &Spot| one.line == other.line && one.file == other.file;
    let lead = it.source.iter().position(|line| is(line, leading)).unwrap_or(it.source.len() / 2);
    let from = lead.saturating_sub(most / 2).min(it.source.len().saturating_sub(most));
    let shown = it.source.iter().skip(from).take(most);
    // How deep they all stand says nothing.
    let depth = |it: &Spot| it.text.raw().len() - it.text.raw().trim_start_matches(' ').len();
    let common = it.source.iter().filter(|it| !it.text.raw().trim().is_empty()).map(depth).min().unwrap_or(0);
    let line = |line: &Spot| {
        let (mark, role) = match (is(line, leading), is(line, &it.allocated)) {
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

/// Why there is no answer, and how to come to one; nothing where nothing of weight grows.
pub(super) fn hint(process: &Process, on: &OnDevice, context: &RenderContext) -> Option<String> {
    let asked = process.hello.as_ref()?.sites.as_deref()?;
    let matters = |it: &Severity| *it >= Severity::Warning;
    let growing = context.findings.growing(process.probe, on.ordinal)?;
    if growing.resource != Some(Resource::Allocated) || !matters(&growing.severity) || !process.is_alive() {
        return None;
    }
    if asked != READY {
        return Some(format!("which line it is cannot be looked for: {}", cells::raw(asked)));
    }
    if let Some(why) = &process.refused {
        return Some(format!("it was not looked for: {}", cells::foreign(why)));
    }
    // What is past cannot be asked.
    let pid = process.any_pid().filter(|_| context.progress.is_none())?;
    let is_meant = context.ui.process(context.session).is_some_and(|(it, _)| it.probe == process.probe);
    let key = keys::BINDINGS.iter().find(|it| it.command == Command::Sites && keys::reaches(it, context.ui));
    let how = match key.filter(|_| is_meant) {
        Some(key) => format!("{} looks", key.keys),
        None => format!("gpuwatch sites {pid}"),
    };
    Some(format!("it was not looked for yet which line it is: {how}"))
}

/// `culprit · at step 690, over 8 steps`
fn name(sites: &Sites) -> String {
    let step = sites.step.map_or_else(String::new, |it| format!("at step {it}, "));
    format!("culprit · {step}over {}", units::counted(sites.steps, "step"))
}

/// A frame a line, those of a package that follow each other as one: `train.py:40 in main() · /home/ada`.
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

/// The name of an installed package, of a frame that is of one.
fn package(it: &Spot) -> Option<String> {
    if !it.is_library() {
        return None;
    }
    let parts: Vec<&str> = it.file.raw().split('/').collect();
    let place = parts.iter().rposition(|it| matches!(*it, "site-packages" | "dist-packages"));
    let name = place.and_then(|it| parts.get(it + 1)).map_or("Python", |it| it.strip_suffix(".py").unwrap_or(it));
    Some(cells::raw(name))
}

/// A word, and beside it its lines, each wrapped below itself.
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
