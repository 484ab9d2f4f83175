//! One process on one device: its description, memory, growth and findings.

use crate::{
    facts::{
        event::{
            ProcessInfo,
            wire::{Counters, Group, Label, Unit},
        },
        figures::{Figure, Figures},
        units::{self, Bytes},
    },
    model::{
        analysis::{
            curve::Curve,
            episode::{Axis, Resource},
            fragmentation::{self, Stuck},
        },
        findings::{Finding, Kind, advised_words, replay_words},
        session::process::{OnDevice, ProbeState, Process},
    },
    screen::{
        theme::Role,
        view::{
            RenderContext,
            alerts::{self, replay_roles},
            cells, culprit,
            growth::{self, dash},
            heading, host, messages, peak,
            processes::{self, SILENT_US},
            scroll::{Scrolled, moved, scrolled},
            step_times, title, verdict,
        },
    },
    sources::makers::gives_figure,
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

/// From this width on, the curves are next to the figures.
const WIDE: u16 = 132;

/// The width of the figures next to the curves.
const FIGURES: u16 = 82;

/// Rows of figures before there is a curve below them, and rows of that curve.
const ROWS: u16 = 22;
const CURVE: std::ops::RangeInclusive<u16> = 5..=14;

/// Below this many rows growth comes first, and the description is only the command.
const SMALL: u16 = 12;

/// Most marks listed, the latest ones.
const MARKS: usize = 12;

/// Draws figures and curves, and returns how far the figures can be scrolled:
///
/// ```text
/// title     who, and where in its life
/// identity  command, framework, allocator settings, …
/// culprit   the line that allocates the growing memory and its holder, after a capture
/// alerts    what was found of it
/// settings  what other allocator settings would save, if a user asked
/// where     the culprit's lines of source, its holders, its stack, what looking for it cost
/// memory    every counter
/// peak      parts and lines of the highest moment of a step, once one was traced
/// growth    a row for each resource, with its whole run
/// step time how long steps take, with the whole run
/// marks     what the job named
/// use       its part of the device's time, CPU time, host memory, whose it is, settings in its environment
/// host      the limit of host memory that comes first, and its rungs
/// curve     what grows, with the fitted line ahead of it; beside the figures from 132 columns on, with a second one
/// ```
///
/// The figures scroll; below 27 rows they also use the curve's room.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, context: &RenderContext) -> Scrolled {
    let Some((process, on)) = context.ui.process(context.session) else { return nobody(buffer, area, context) };
    let mut figures = area;
    if area.width >= WIDE {
        let right = Rect { x: area.x + FIGURES + 2, width: area.width - FIGURES - 2, ..area };
        figures.width = FIGURES;
        curves(buffer, right, process, on, context);
    } else if let Some(spare) = area.height.checked_sub(ROWS).filter(|it| it >= CURVE.start()) {
        let height = spare.clamp(*CURVE.start(), *CURVE.end());
        let curve = Rect { y: area.bottom() - height, height, ..area };
        figures.height -= height;
        growth::draw(buffer, curve, context);
    }
    let life = vec![Span::styled(life(process, on, context), context.style(Role::Dim))];
    title(buffer, figures, &verdict::place(process, on, context), life, context);
    let width = usize::from(figures.width);
    let mut lines = identity_lines(process, on, width, context);
    let mut growth = vec![heading("growth", width, context)];
    growth.extend(growths_lines(process, on, width, context));
    let mut counters = vec![heading("memory", width, context)];
    counters.extend(counters_lines(process, on, width, context));
    let is_small = area.height < SMALL;
    if is_small {
        // Growth is what should be visible without scrolling.
        lines.truncate(1);
    }
    lines.extend(culprit::answer(process, on, width, context));
    if is_small {
        lines.append(&mut growth);
    }
    let (found, spots) = alerts::listed(width, context);
    if !found.is_empty() {
        lines.push(heading("alerts", width, context));
    }
    let spots = moved(spots, lines.len());
    lines.extend(found);
    lines.extend(settings_lines(process, on, width, context));
    lines.extend(advice_lines(process, width, context));
    lines.extend(culprit::details(process, on, width, context));
    lines.extend(counters);
    lines.extend(peak::lines(process, on, width, context));
    lines.extend(growth);
    let pace = step_times::lines(on, width, context);
    if !pace.is_empty() {
        lines.push(heading(&cells::elide(step_times::TITLE, width.saturating_sub(4)), width, context));
    }
    lines.extend(pace);
    lines.extend(marks(process, width, context));
    lines.push(heading("use", width, context));
    lines.extend(figures_lines(process, on, width, context));
    let (limit, rungs) = host::lines(process, width, context);
    if !limit.is_empty() {
        lines.push(heading("host memory", width, context));
        lines.extend(limit);
        lines.extend(counters_grid(&rungs, width, context));
    }
    scrolled(buffer, figures, &lines, &spots, context)
}

fn nobody(buffer: &mut Buffer, area: Rect, context: &RenderContext) -> Scrolled {
    title(buffer, area, "process", Vec::new(), context);
    let words = "no probed process here: gpuwatch run -- python train.py starts one, gpuwatch attach PID gives a running job a probe";
    let lines: Vec<Line> = cells::wrapped(words, usize::from(area.width).saturating_sub(2))
        .into_iter()
        .map(|it| Line::styled(format!(" {it}"), context.style(Role::Dim)))
        .collect();
    scrolled(buffer, area, &lines, &[], context)
}

/// Draws the curve of growth, and below it unused memory.
fn curves(buffer: &mut Buffer, mut area: Rect, process: &Process, on: &OnDevice, context: &RenderContext) {
    let half = usize::from(area.height / 2);
    growth::draw(buffer, super::take(&mut area, half), context);
    growth::unused(buffer, area, process, on, context);
}

fn life(process: &Process, on: &OnDevice, context: &RenderContext) -> String {
    let ago = |at| units::duration(context.session.now.since(at));
    match &process.life {
        ProbeState::Found => "not connected yet".to_owned(),
        ProbeState::Incompatible { protocol } => format!("speaks version {protocol} of the wire"),
        ProbeState::CatchingUp => "its history is coming".to_owned(),
        ProbeState::Live if context.session.now.since(process.last_line_at) < SILENT_US => "live".to_owned(),
        ProbeState::Live => format!("silent for {}", ago(process.last_line_at)),
        ProbeState::Ended { at, reason } => {
            let what = processes::end(process, on, context);
            format!("{what} {} ago: {}", ago(*at), cells::elide(&cells::foreign(reason), 20))
        }
        ProbeState::Gone { at, .. } => format!("{} {} ago", processes::lost(process, on, context), ago(*at)),
    }
}

/// Returns the latest marks, and the number of earlier ones.
fn marks(process: &Process, width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    if process.marks.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![heading("marks", width, context)];
    for it in process.marks.iter().rev().take(MARKS) {
        let ago = units::duration(context.session.now.since(units::Stamp(it.at_us)));
        let value = it.value.map_or_else(String::new, |it| format!(" {it}"));
        let room = width.saturating_sub(14);
        let name = cells::left(&format!("{}{value}", cells::raw(&it.name)), room.min(40));
        lines.push(Line::from(vec![
            Span::styled(format!(" {name}"), context.style(Role::Text)),
            Span::styled(cells::right(&format!("{ago} ago"), 12), context.style(Role::Dim)),
        ]));
    }
    let more = process.marks.iter().len().saturating_sub(MARKS) as u64 + process.marks.gone();
    if more > 0 {
        lines.push(Line::styled(format!(" and {more} before"), context.style(Role::Dim)));
    }
    lines
}

/// Returns `name   words`, wrapped and aligned.
fn named(name: &str, words: &str, width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    const NAME: usize = 11;
    let words = cells::wrapped(words, width.saturating_sub(NAME + 1));
    let line = |(at, words): (usize, String)| {
        let name = if at == 0 { name } else { "" };
        Line::from(vec![
            Span::styled(format!(" {}", cells::left(name, NAME - 1)), context.style(Role::Dim)),
            Span::styled(words, context.style(Role::Text)),
        ])
    };
    words.into_iter().enumerate().map(line).collect()
}

/// Returns the figures, then who started the process, and its settings.
fn figures_lines(process: &Process, on: &OnDevice, width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    let known = process.pid.and_then(|it| context.session.figures.get(&it));
    let figure = |figure: Figure| {
        let value = known.and_then(|it| it.get(figure, &on.device)).map(|it| (figure, it));
        let text = value.and_then(|it| Figures::from_iter([it]).format(figure));
        (figure.row().label, text.unwrap_or_else(|| cells::UNKNOWN.to_owned()))
    };
    let maker = context.session.device(&on.device).map(|it| it.maker).unwrap_or_default();
    let given = Figure::TABLE.iter().filter(|it| gives_figure(maker, it.figure));
    let entries: Vec<_> = given.map(|it| figure(it.figure)).collect();
    let mut lines = counters_grid(&entries, width, context);
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

/// Returns what was measured to save memory, unless an alert of the process shows it.
fn advice_lines(process: &Process, width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    let Some(answer) = &process.advised else { return Vec::new() };
    let is_shown = |it: &&Finding| it.is_of(process) && !it.saving.is_empty() && it.is_active();
    if context.findings.all.iter().any(|it| is_shown(&it)) {
        return Vec::new();
    }
    let mut lines = vec![heading("what saves memory", width, context)];
    for words in advised_words(answer) {
        let wrapped = cells::wrapped(&words, width.saturating_sub(2));
        lines.extend(
            wrapped.into_iter().map(|it| Line::from(Span::styled(format!(" {it}"), context.style(Role::Text)))),
        );
    }
    lines
}

/// Returns the latest answer, unless an alert of the process shows it.
fn settings_lines(process: &Process, on: &OnDevice, width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    let Some(answer) = process.replayed(on.ordinal, None) else { return Vec::new() };
    let mut own = context.findings.all.iter().filter(|it| it.is_of(process));
    if own.any(|it| it.replayed.as_deref() == Some(answer)) {
        return Vec::new();
    }
    let mut lines = vec![heading("allocator settings", width, context)];
    for (words, role) in replay_words(answer).iter().zip(replay_roles(Some(answer))) {
        let wrapped = cells::wrapped(words, width.saturating_sub(2));
        lines.extend(wrapped.into_iter().map(|it| Line::from(Span::styled(format!(" {it}"), context.style(role)))));
    }
    lines
}

const NAME: usize = 10;
const NOW: usize = 11;
const RATE: usize = 11;

/// Fewest and most columns of a run in one line.
const RUN: std::ops::RangeInclusive<usize> = 8..=40;

/// Returns `allocated   51.61 GiB  +4.00 MiB  ▁▂▃▄▅▆▇█  since step 12, full in 20128 steps`.
fn growths_lines(process: &Process, on: &OnDevice, width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    let unit = if on.growth.axis() == Some(Axis::Seconds) { "per second" } else { "per step" };
    let titles =
        format!(" {}{} {}  the whole run", cells::left("", NAME), cells::right("now", NOW), cells::right(unit, RATE));
    let mut lines = vec![Line::styled(cells::elide(&titles, width), context.style(Role::Dim))];
    lines.extend(Resource::ALL.iter().map(|it| line(process, on, *it, width, context)));
    lines
}

fn line(process: &Process, on: &OnDevice, resource: Resource, width: usize, context: &RenderContext) -> Line<'static> {
    let own = || {
        let lasting = context.findings.all.iter().filter(|it| it.kind == Kind::Growth && it.is_active());
        lasting.filter(|it| it.is_of(process) && it.ordinal.is_none_or(|ordinal| ordinal == on.ordinal))
    };
    let growing = own().find(|it| it.resource == Some(resource));
    let grows = |resource| own().any(|it| it.resource == Some(resource));
    // Host memory belongs to the process, so each of its devices has the curve.
    let curve = on.growth.curve(resource);
    // Growth is judged at the ends of steps; between them, the counters are newer.
    let counted = match resource {
        Resource::Allocated => on.counters.allocated,
        Resource::Reserved => on.counters.reserved,
        _ => None,
    };
    let last = || curve.and_then(|it| it.buckets().newest()).map(|it| it.last);
    let now = counted.or_else(last).map(Bytes);
    let follows = resource == Resource::Reserved && grows(Resource::Allocated);
    // A flat run is a thin line.
    let rises = growing.is_some() || follows;
    let (rate, role) = match (growing, now) {
        (Some(it), _) if it.is_companion() => ("follows".to_owned(), Role::Text),
        (Some(it), _) => {
            (it.bytes_per_step.map_or_else(|| "grows".to_owned(), cells::rate), verdict::role(it.severity))
        }
        // Live memory is reserved too: one cause, one alert.
        (None, Some(_)) if follows => ("follows".to_owned(), Role::Text),
        (None, Some(_)) if resource == Resource::Reserved && verdict::rises(on) => {
            (verdict::level(on).to_owned(), Role::Text)
        }
        // Memory outside the allocator is judged later than what is allocated.
        (None, Some(_)) if resource != Resource::Allocated && curve.is_some_and(Curve::rises) => {
            ("rises".to_owned(), Role::Text)
        }
        (None, Some(_)) if on.growth.watched() >= on.growth.enough() => ("flat".to_owned(), Role::Good),
        _ => (cells::UNKNOWN.to_owned(), Role::Dim),
    };
    let mut spans = vec![
        Span::styled(format!(" {}", cells::left(resource.name(), NAME)), context.style(Role::Text)),
        Span::styled(cells::right(&cells::bytes(now), NOW), context.style(Role::Text)),
        Span::styled(format!(" {}  ", cells::right(&rate, RATE)), context.style(role)),
    ];
    let left = width.saturating_sub(NAME + NOW + RATE + 4);
    let wordings = growing.map_or_else(Vec::new, |it| wordings(it, verdict::continues(process, context)));
    let fits = |it: &String| left >= cells::width(it) + 2 + RUN.start();
    let words = wordings.into_iter().find(fits).unwrap_or_default();
    let room = left.saturating_sub(if words.is_empty() { 0 } else { cells::width(&words) + 2 });
    if let Some(curve) = curve.filter(|_| room >= *RUN.start()) {
        let role = if growing.is_some() { role } else { Role::Spark };
        let symbols = if rises { context.eighths() } else { std::array::from_fn(dash) };
        spans.push(Span::styled(run(curve, room.min(*RUN.end()), &symbols), context.style(role)));
        spans.push(Span::styled(format!("  {words}"), context.style(Role::Dim)));
    }
    Line::from(spans)
}

/// Returns when growth began and when the device is full; longest wording first.
fn wordings(it: &Finding, is_alive: bool) -> Vec<String> {
    let since = format!("since {}", it.since());
    let Some(full) = it.forecast().filter(|_| is_alive) else { return vec![since] };
    let soon = it.left().map(|it| format!("full in {it}"));
    [format!("{since}, {full}"), full].into_iter().chain(soon).collect()
}

/// Draws a curve in one line of cells, with nearly constant values in the middle.
fn run(curve: &Curve, columns: usize, symbols: &[char; 8]) -> String {
    let highs = curve.highs(columns);
    let known = || highs.iter().flatten().copied();
    let (Some(low), Some(high)) = (known().min(), known().max()) else { return String::new() };
    let span = (high - low).max(high / 50).max(1);
    let low = low.saturating_sub((span - (high - low)) / 2);
    let mut before = None;
    let level = |value: u64| {
        let level = u128::from(value - low) * (symbols.len() as u128 - 1) / u128::from(span);
        usize::try_from(level).unwrap_or(0).min(symbols.len() - 1)
    };
    highs
        .iter()
        .map(|it| {
            before = it.or(before);
            before.map_or(' ', |value| symbols.get(level(value)).copied().unwrap_or(' '))
        })
        .collect()
}

/// Most lines of the command; the recording has all of it.
const COMMAND: usize = 3;

/// Returns the description, with a name before each line.
fn identity_lines(process: &Process, on: &OnDevice, width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    let hello = process.hello.as_deref();
    let argv = hello.map(|it| it.argv.as_slice()).unwrap_or_default();
    let command = cells::command(argv.iter().map(String::as_str));
    let command = if command.is_empty() { cells::UNKNOWN.to_owned() } else { command };
    let mut lines = named("command", &command, width, context);
    lines.truncate(COMMAND);
    lines.extend(named("process", &about(process, context), width, context));
    lines.extend(named("runs", &runs(process, on), width, context));
    let conf = hello.and_then(|it| it.allocator_conf.as_deref());
    if let Some(conf) = conf.filter(|it| !it.is_empty()) {
        let expandable = fragmentation::is_expandable(Some(conf));
        let note = if expandable { "; what is stuck is not measurable with it" } else { "" };
        lines.extend(named("set to", &format!("{}{note}", cells::raw(conf)), width, context));
    }
    lines
}

/// Returns `pid 4242 on node7, up 3 min, in /home/ada, slurm 12`.
fn about(process: &Process, context: &RenderContext) -> String {
    let mut words = vec![messages::who(process)];
    let Some(hello) = process.hello.as_deref() else { return words.concat() };
    if let Some(world) = hello.world_size {
        words.push(format!("of {world}"));
    }
    if !hello.host.is_empty() {
        words.push(format!("host {}", cells::raw(&hello.host)));
    }
    if let Some(start) = hello.start_us {
        let there = hello.unix_us.saturating_sub(start);
        let since = context.session.now.0.saturating_sub(hello.monotonic_us);
        if process.is_alive() {
            words.push(format!("up {}", units::duration(there.saturating_add(since))));
        }
    }
    if let Some(attached) = hello.attached_us.filter(|_| process.is_alive()) {
        let there = hello.unix_us.saturating_sub(attached);
        let since = context.session.now.0.saturating_sub(hello.monotonic_us);
        words.push(format!("attached {} ago", units::duration(there.saturating_add(since))));
    }
    if let Some(job) = &hello.job {
        words.push(format!("{} {}", cells::raw(&job.scheduler), cells::raw(&job.id)));
    }
    if hello.restart.is_some_and(|it| it > 0) {
        let times = hello.restart.unwrap_or(0);
        words.push(if times == 1 { "restarted once".to_owned() } else { format!("restarted {times} times") });
    }
    if let Some(cwd) = &hello.cwd {
        words.push(format!("in {}", cells::raw(cwd)));
    }
    words.join(", ").replacen(", of", " of", 1)
}

/// Returns `torch 2.15.0, native allocator, step 1181 at 98 ms a step, 12 samples lost`.
fn runs(process: &Process, on: &OnDevice) -> String {
    let hello = process.hello.as_deref();
    let framework = hello.and_then(|it| it.framework.as_deref()).map_or_else(|| cells::UNKNOWN.to_owned(), cells::raw);
    let version = hello.and_then(|it| it.framework_version.as_deref()).map_or_else(String::new, cells::raw);
    let mut words = vec![format!("{framework} {version}").trim_end().to_owned()];
    words.extend(hello.and_then(|it| it.backend.as_deref()).map(|it| format!("{} allocator", cells::raw(it))));
    words.push(match (on.step, on.pace.latest_us()) {
        (Some(step), Some(us)) => format!("step {step}, {} a step", units::brief(us)),
        (Some(step), None) => format!("step {step}"),
        (None, _) => "no step yet".to_owned(),
    });
    words.extend(process.attached_step().map(|it| match it {
        0..=1 => "counted since attachment".to_owned(),
        first => format!("attached at step {first}"),
    }));
    if process.stride > 1 {
        words.push(format!("one sample in {} of its past", process.stride));
    }
    if process.lost > 0 {
        words.push(format!("{} lost", units::counted(process.lost, "sample")));
    }
    if process.lost_error_lines > 0 {
        words.push(format!("{} lost", units::counted(process.lost_error_lines, "error line")));
    }
    words.join(", ")
}

/// The width of an entry: name, figure, and the space between two.
const ENTRY: usize = 26;
const COUNTERS_NAME: usize = 13;
const FIGURE: usize = 11;

/// Returns the counters, column by column.
fn counters_lines(process: &Process, on: &OnDevice, width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    counters_grid(&entries(process, on, context), width, context)
}

/// Returns entries of a name and a figure, column by column.
fn counters_grid(entries: &[(&str, String)], width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    let columns = ((width + 1) / ENTRY).clamp(1, 4);
    let rows = entries.len().div_ceil(columns);
    let line = |row: usize| {
        let both = entries.iter().skip(row).step_by(rows.max(1));
        both.flat_map(|(name, figure)| {
            let role = if figure == cells::UNKNOWN { Role::Dim } else { Role::Text };
            [
                Span::styled(format!(" {}", cells::left(name, COUNTERS_NAME)), context.style(Role::Dim)),
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

    #[test]
    fn every_label_has_room() {
        for counter in Counters::TABLE {
            let (Label::Always(label) | Label::IfKnown(label)) = counter.label else { continue };
            assert!(label.chars().count() <= COUNTERS_NAME, "{label}");
        }
        for it in Figure::TABLE {
            assert!(it.label.chars().count() <= COUNTERS_NAME, "{}", it.label);
        }
    }
}
