//! The ladder of the selected device: one stacked bar, and a legend with the name of every gap.

use crate::{
    facts::units::Bytes,
    model::{
        analysis::{
            episode::Resource,
            fragmentation::Stuck,
            ladder::{Gap, Rung},
        },
        findings::{self, DeviceFindings, Finding, ProcessFindings},
        session::device::Device,
    },
    screen::{
        theme::Role,
        ui::{Focus, mouse::Target, rows::ProcessRow},
        view::{RenderContext, cells, device_name, devices::used, messages, put, title},
    },
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

/// Below this width the title has only the device; the list shows how full it is.
const NARROW: usize = 56;

/// The narrowest legend entry.
const ENTRY: usize = 36;

/// The least room for an explanation.
const EXPLANATION: usize = 36;

/// The columns of a rung's bytes.
const FIGURE: usize = 11;

/// The most columns before a rung's explanation: mark, sign, name, bytes, part, the sign of a contradiction, a gap.
const FIGURES: usize = 2 + 13 + FIGURE + 6 + 2 + 2;

/// Returns the rows that the box wants.
pub(super) fn height(area: Rect, context: &RenderContext, explained: bool) -> usize {
    let columns = columns(area, explained);
    1 + bar_height(area) + legend(context).len().div_ceil(columns) + notes(usize::from(area.width), context).len()
}

/// Draws title, bar and legend; if it is focused, the remedy of the selected rung below them.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, context: &RenderContext, explained: bool) {
    let (Some(device), Some(found)) = (context.device(), context.found()) else { return };
    context.claim(area, Target::Box(Focus::Ladder));
    let legend = legend(context);
    let alone = found.processes.is_empty();
    let total = found.ladder.total;
    let mut right = vec![Span::styled(
        format!("{} used of {}", cells::bytes(used(device, context)), cells::bytes(total)),
        context.style(Role::Text),
    )];
    if total.is_none() {
        right = vec![Span::styled(
            format!("total unknown; {} known", cells::bytes(Some(found.ladder.sum()))),
            context.style(Role::Warning),
        )];
    }
    if usize::from(area.width) < NARROW {
        right.clear();
    }
    title(buffer, area, &name(device, found, context), right, context);
    let columns = columns(area, explained);
    let mut notes = notes(usize::from(area.width), context);
    notes.truncate(usize::from(area.height).saturating_sub(3));
    let below = usize::from(area.height).saturating_sub(1 + notes.len());
    let bars = below.saturating_sub(legend.len().div_ceil(columns)).clamp(1, 2);
    let bar = bar(&rungs(context), total.unwrap_or_else(|| found.ladder.sum()), usize::from(area.width), context);
    for row in 1..=bars {
        put(buffer, area, row, &bar);
    }
    let selected = context.ui.rung(&legend).filter(|_| context.ui.focus == Focus::Ladder).map(|it| it.gap);
    let needed: Vec<Gap> = selected.into_iter().chain(alerted(&legend, context)).collect();
    let (shown, left_out) = kept(legend, below.saturating_sub(bars) * columns, &needed);
    let height = (shown.len() + usize::from(left_out.is_some())).div_ceil(columns);
    let width = area.width / u16::try_from(columns).unwrap_or(1);
    let cell = |place: usize| {
        let (column, row) = (place / height.max(1), place % height.max(1));
        let offset = width.saturating_mul(u16::try_from(column).unwrap_or(0));
        let top = u16::try_from(1 + bars + row).unwrap_or(u16::MAX);
        let cell = Rect { x: area.x.saturating_add(offset), y: area.y.saturating_add(top), width, height: 1 };
        cell.intersection(area)
    };
    if let Some(count) = left_out {
        put(buffer, cell(shown.len()), 0, &Line::styled(format!("   +{count} more"), context.style(Role::Dim)));
    }
    for (place, rung) in shown.iter().enumerate() {
        let cell = cell(place);
        let is_selected = Some(rung.gap) == selected;
        put(buffer, cell, 0, &entry(rung, total, (alone, is_selected), usize::from(cell.width), context));
        context.claim(cell, Target::Rung(rung.gap));
    }
    for (row, words) in notes.iter().enumerate() {
        put(buffer, area, 1 + bars + height + row, &Line::styled(format!("   {words}"), context.style(Role::Good)));
    }
}

/// Returns whose memory it is, with the selected process: `memory of GPU 0 · rank 0 and 1 more`. The bar has the memory
/// of all processes of the device.
fn name(device: &Device, found: &DeviceFindings, context: &RenderContext) -> String {
    let chosen = context.ui.chosen(context.session).filter(|it| *it.device() == device.id);
    let probed = chosen.as_ref().and_then(ProcessRow::probed).map(|(process, _)| process);
    // Memory of a process that has ended is in the bar only until the driver frees it.
    let probed = probed.filter(|process| found.processes.iter().any(|it| it.probe == process.probe));
    let who = match (probed, &chosen, found.processes.len()) {
        (Some(process), _, 0..=1) => format!(" · {}", messages::short(process)),
        (Some(process), _, count) => format!(" · {} and {} more", messages::short(process), count - 1),
        // On a device without probed processes, the bar names none.
        (None, Some(ProcessRow::Unprobed(_, it)), 1..) => format!(" · pid {} in {}", it.pid, Gap::Others.row().name),
        (None, ..) => String::new(),
    };
    let when = if device.ended.is_some() { " when the job ended" } else { "" };
    format!("memory of {}{who}{when}", device_name(device))
}

/// Returns the rungs of the selected device that have a row.
fn legend(context: &RenderContext) -> Vec<Rung> {
    context.found().map_or_else(Vec::new, |it| context.ui.rungs(it))
}

/// Returns the remedy of the selected rung, or without one its description, wrapped: a user can copy it. Empty while
/// another box is focused.
fn notes(width: usize, context: &RenderContext) -> Vec<String> {
    let selected = context.ui.rung(&legend(context)).filter(|_| context.ui.focus == Focus::Ladder);
    let Some(row) = selected.map(|it| it.gap.row()) else { return Vec::new() };
    // The arrow stays with its word.
    let words = if row.remedy.is_empty() { row.cause.to_owned() } else { format!("→\u{a0}{}", row.remedy) };
    let room = width.saturating_sub(4).max(1);
    // Wraps a word that is longer than a line.
    let letters: Vec<char> = words.chars().collect();
    let parts = letters.split(|it| *it == ' ').flat_map(|word| word.chunks(room));
    let parts: Vec<String> = parts.map(|it| it.iter().collect()).collect();
    cells::wrapped(&parts.join(" "), room).into_iter().map(|it| it.replace('\u{a0}', " ")).collect()
}

/// Returns the rungs of the selected device in the order of the bar, from the inside out.
pub(super) fn rungs(context: &RenderContext) -> Vec<Rung> {
    context.found().map_or_else(Vec::new, |it| it.ladder.by_gap())
}

fn bar_height(area: Rect) -> usize {
    match area.height {
        0..=28 => 1,
        _ => 2,
    }
}

fn columns(area: Rect, explained: bool) -> usize {
    if explained { 1 } else { (usize::from(area.width) / ENTRY).clamp(1, 3) }
}

/// Returns the rung that the device's first open finding is about: what grows, or what is stuck.
fn alerted(rungs: &[Rung], context: &RenderContext) -> Option<Gap> {
    let found = context.found()?;
    let is_here = |it: &&Finding| it.device.as_ref() == Some(&found.device) && findings::is_open(it, context.session);
    context.findings.all.iter().filter(is_here).find_map(|finding| {
        let gaps = gaps_of(finding, context);
        let own = rungs.iter().filter(|it| gaps.contains(&it.gap));
        own.max_by_key(|it| it.bytes).map(|it| it.gap)
    })
}

/// Returns the gaps that may hold the memory of a finding.
fn gaps_of(it: &Finding, context: &RenderContext) -> &'static [Gap] {
    let on = || it.process(context.session)?.devices.iter().find(|on| Some(on.ordinal) == it.ordinal);
    let grown = || on()?.grown_part(it.since_step);
    match it.memory() {
        Some(Resource::Allocated) => match grown().map(|it| it.name) {
            Some("weights") => &[Gap::Weights],
            Some("gradients") => &[Gap::Gradients],
            Some("optimizer") => &[Gap::Optimizer],
            Some("model" | "trained") => &[Gap::Weights, Gap::Gradients, Gap::Optimizer],
            _ => &[Gap::Retained, Gap::Wanted, Gap::Allocated],
        },
        Some(Resource::Reserved) => {
            &[Gap::Stuck, Gap::Pools, Gap::MemPools, Gap::Releasable, Gap::Cached, Gap::Reserved]
        }
        Some(Resource::Driver) => &[Gap::NonTorch],
        Some(Resource::Device) => &[Gap::Others, Gap::Unattributed],
        Some(Resource::Pinned | Resource::Host) | None => &[],
    }
}

/// If not all fit, keeps the needed ones first, then the largest, in their order from the inside out, and counts the
/// others, in the room of one.
fn kept(mut rungs: Vec<Rung>, room: usize, needed: &[Gap]) -> (Vec<Rung>, Option<usize>) {
    let left_out = (rungs.len() + 1).saturating_sub(room.max(1));
    if left_out < 2 {
        return (rungs, None);
    }
    let rank = |gap: Gap| needed.iter().position(|it| *it == gap).unwrap_or(needed.len());
    rungs.sort_by_key(|it| (rank(it.gap), std::cmp::Reverse(it.bytes)));
    rungs.truncate(room.saturating_sub(1).max(room.min(1)));
    rungs.sort_by_key(|it| it.gap);
    (rungs, (room > 1).then_some(left_out))
}

/// Returns `█ releasable    12.00 GiB   9 %`, and if it fits, the cause and the remedy, the remedy completely if
/// possible.
fn entry(
    rung: &Rung,
    total: Option<Bytes>,
    (alone, selected): (bool, bool),
    width: usize,
    context: &RenderContext,
) -> Line<'static> {
    let row = rung.gap.row();
    let colour = context.style(Role::Gap(rung.gap));
    let name = if alone && rung.gap == Gap::Others { "processes" } else { row.name };
    let text = context.style(Role::Text);
    let mut spans = vec![
        Span::styled(if selected { "▸" } else { " " }, text),
        Span::styled(glyph(rung.gap, context).to_string(), colour),
        Span::styled(format!(" {}", cells::left(name, width.saturating_sub(FIGURE + 3).min(12))), text),
        Span::styled(cells::right(&cells::bytes(rung.bytes), width.saturating_sub(3).min(FIGURE)), text),
    ];
    if width >= 33 {
        spans.push(Span::styled(cells::right(&cells::percent(rung.bytes, total), 6), context.style(Role::Dim)));
    }
    if rung.inconsistent.is_some() {
        spans.push(Span::styled(" !", context.style(Role::Warning)));
    }
    let taken: usize = spans.iter().map(Span::width).sum();
    if let Some(room) = width.checked_sub(taken + EXPLANATION) {
        let words = explanation(rung, room + EXPLANATION - 2);
        spans.push(Span::styled(format!("  {words}"), context.style(Role::Dim)));
    }
    let line = Line::from(spans);
    if !selected {
        return line;
    }
    let style = context.style(Role::Selected);
    line.spans.into_iter().map(|it| it.patch_style(style)).collect::<Line>().style(style)
}

/// Returns a rung's cause, and its remedy if it has one and bytes.
fn reasons(rung: &Rung) -> (&'static str, Option<String>) {
    let row = rung.gap.row();
    let cause = if rung.inconsistent.is_some() { "two readings contradict each other" } else { row.cause };
    let has_remedy = !row.remedy.is_empty() && rung.bytes.is_some_and(|it| it.0 > 0);
    (cause, has_remedy.then(|| format!("→ {}", row.remedy)))
}

/// Returns a rung's cause and remedy; if only one fits, the remedy.
fn explanation(rung: &Rung, room: usize) -> String {
    let (cause, remedy) = reasons(rung);
    let Some(remedy) = remedy else { return cells::elide(cause, room) };
    match room.checked_sub(cells::width(&remedy) + 1) {
        Some(left) if left >= cells::width(cause) => format!("{cause} {remedy}"),
        _ => cells::elide(&remedy, room),
    }
}

/// Returns the width from which on each rung's remedy, or otherwise its cause, is whole.
pub(super) fn whole_width(context: &RenderContext) -> u16 {
    let words = |it: &Rung| match reasons(it) {
        (_, Some(remedy)) => cells::width(&remedy),
        (cause, None) => cells::width(cause),
    };
    let longest = legend(context).iter().map(words).max().unwrap_or(0);
    u16::try_from(FIGURES + longest).unwrap_or(u16::MAX)
}

/// Draws the whole device as one row of cells. Every existing rung gets a cell, however small, at the cost of the
/// largest.
pub(super) fn bar(rungs: &[Rung], whole: Bytes, width: usize, context: &RenderContext) -> Line<'static> {
    let mut spans: Vec<_> = rungs
        .iter()
        .zip(widths(rungs, whole, width))
        .map(|(rung, cells)| {
            Span::styled(glyph(rung.gap, context).to_string().repeat(cells), context.style(Role::Gap(rung.gap)))
        })
        .collect();
    spans.retain(|it| !it.content.is_empty());
    Line::from(spans)
}

/// Returns the number of cells of each rung in the bar.
pub(super) fn widths(rungs: &[Rung], whole: Bytes, width: usize) -> Vec<usize> {
    let parts: Vec<u64> = rungs.iter().map(|rung| rung.bytes.map_or(0, |bytes| bytes.0)).collect();
    apportion(&parts, whole.0, width)
}

/// Distributes `width` cells among parts of a whole, by the largest remainder.
pub(super) fn apportion(parts: &[u64], whole: u64, width: usize) -> Vec<usize> {
    if whole == 0 {
        return vec![0; parts.len()];
    }
    let exact = |part: u64| u128::from(part.min(whole)) * width as u128;
    let floor = |part: u64| usize::try_from(exact(part) / u128::from(whole)).unwrap_or(0);
    let mut cells: Vec<usize> = parts.iter().map(|it| floor(*it)).collect();
    let sum = parts.iter().fold(0_u64, |sum, it| sum.saturating_add(*it)).min(whole);
    let wanted = usize::try_from((exact(sum) + u128::from(whole) / 2) / u128::from(whole)).unwrap_or(width);
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|it| std::cmp::Reverse(exact(parts[*it]) % u128::from(whole)));
    for place in order {
        if cells.iter().sum::<usize>() >= wanted {
            break;
        }
        cells[place] += 1;
    }
    for place in 0..parts.len() {
        if parts[place] > 0
            && cells[place] == 0
            && let Some(richest) = (0..parts.len()).max_by_key(|it| cells[*it])
            && cells[richest] > 1
        {
            cells[richest] -= 1;
            cells[place] = 1;
        }
    }
    cells
}

/// Returns the sign of a gap: shapes alone must distinguish gaps. Half cells look ragged, so they are used only without
/// colours.
pub(super) fn glyph(gap: Gap, context: &RenderContext) -> char {
    let row = gap.row();
    if context.theme.coloured { row.sign } else { row.colourless }
}

/// Returns the rows that it wants: none if no probe reports reserved memory.
pub(super) fn gauge_height(context: &RenderContext) -> usize {
    usize::from(context.found().is_some_and(|it| !it.processes.is_empty()))
}

/// Draws `21 % of reserved is unused   stuck 9.00 GiB   releasable 12.00 GiB`, in the words of the gaps:
/// how to release it is a matter of the job's allocator.
pub(super) fn draw_gauge(buffer: &mut Buffer, area: Rect, context: &RenderContext) {
    let Some(found) = context.found().filter(|it| !it.processes.is_empty()) else { return };
    let text = context.style(Role::Text);
    let reserved = sum(&found.processes, |it| it.fragmentation.reserved);
    let cached = sum(&found.processes, |it| it.fragmentation.cached);
    let releasable = sum(&found.processes, |it| it.releasable);
    let share = cached.zip(reserved).filter(|(_, all)| all.0 > 0).map(|(part, all)| part.0 as f64 / all.0 as f64);
    let mut pieces = vec![vec![
        Span::styled(cells::right(&cells::share(share), 5), text),
        Span::styled(" of reserved is unused", context.style(Role::Dim)),
    ]];
    if found.processes.iter().any(|it| it.fragmentation.stuck == Stuck::NotMeasurable) {
        pieces.push(vec![Span::styled("stuck: not measurable (expandable segments)", context.style(Role::Dim))]);
    } else {
        let stuck = sum(&found.processes, |it| match it.fragmentation.stuck {
            Stuck::Known(bytes) => Some(bytes),
            _ => None,
        });
        pieces.push(vec![
            Span::styled(format!("{} ", Gap::Stuck.row().name), context.style(Role::Gap(Gap::Stuck))),
            Span::styled(cells::bytes(stuck), text),
        ]);
        pieces.push(vec![
            Span::styled(format!("{} ", Gap::Releasable.row().name), context.style(Role::Gap(Gap::Releasable))),
            Span::styled(cells::bytes(releasable), text),
        ]);
    }
    let mut spans = Vec::new();
    let mut left = usize::from(area.width);
    for piece in pieces {
        let width: usize = piece.iter().map(Span::width).sum();
        let Some(rest) = left.checked_sub(width + 3) else { break };
        left = rest;
        spans.push(Span::raw(if spans.is_empty() { " " } else { "   " }));
        spans.extend(piece);
    }
    put(buffer, area, 0, &Line::from(spans));
}

/// Returns the sum over all processes, `None` if one is unknown.
fn sum(processes: &[ProcessFindings], part: impl Fn(&ProcessFindings) -> Option<Bytes>) -> Option<Bytes> {
    processes.iter().map(part).try_fold(Bytes(0), |sum, it| Some(sum.plus(it?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_is_exactly_as_wide_as_the_device() {
        for width in 1..200 {
            let cells = apportion(&[61, 1, 0, 9, 12, 3, 14], 100, width);
            assert_eq!(cells.iter().sum::<usize>(), width);
        }
        assert_eq!(apportion(&[1, 999_999], 1_000_000, 10), [1, 9]);
        assert_eq!(apportion(&[5, 5], 0, 10), [0, 0]);
        assert_eq!(apportion(&[u64::MAX, u64::MAX], u64::MAX, 4), [4, 4]);
        assert!(apportion(&[], 1, 4).is_empty());
    }

    #[test]
    fn rungs_that_have_no_room_are_counted() {
        let gaps = [Gap::Weights, Gap::Gradients, Gap::Retained, Gap::Releasable, Gap::Free];
        let bytes = [3_u64, 1, 4, 2, 5];
        let all: Vec<Rung> = gaps
            .into_iter()
            .zip(bytes)
            .map(|(gap, it)| Rung { gap, owner: None, bytes: Some(Bytes(it)), inconsistent: None })
            .collect();
        let shown = |room, needed: &[Gap]| {
            let (shown, left_out) = kept(all.clone(), room, needed);
            (shown.iter().map(|it| it.gap).collect::<Vec<_>>(), left_out)
        };
        assert_eq!(shown(5, &[]), (gaps.to_vec(), None));
        assert_eq!(shown(4, &[]), (vec![Gap::Weights, Gap::Retained, Gap::Free], Some(2)));
        assert_eq!(shown(3, &[Gap::Gradients]), (vec![Gap::Gradients, Gap::Free], Some(3)));
        assert_eq!(shown(3, &[Gap::Gradients, Gap::Weights]), (vec![Gap::Weights, Gap::Gradients], Some(3)));
        assert_eq!(shown(1, &[Gap::Gradients, Gap::Weights]), (vec![Gap::Gradients], None));
        assert_eq!(shown(1, &[]), (vec![Gap::Free], None));
        assert_eq!(shown(0, &[]), (Vec::new(), None));
    }
}
