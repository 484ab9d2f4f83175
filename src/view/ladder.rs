//! The ladder of the selected device: one stacked bar, and a legend with every gap by name.

use super::{Look, cells, device_name, devices::used, put, title};
use crate::{
    analysis::ladder::{Gap, Rung},
    theme::Role,
    units::Bytes,
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

/// Below this width the title says only the device; the list says how full it is.
const NARROW: usize = 56;

/// The narrowest legend entry.
const ENTRY: usize = 36;

/// The least place in which an explanation says anything.
const EXPLANATION: usize = 36;

/// The place for a rung's bytes.
const FIGURE: usize = 11;

/// The rows that the box wants.
pub(super) fn height(area: Rect, look: &Look, explained: bool) -> usize {
    let rungs = rungs(look).len();
    let columns = columns(area, explained);
    1 + bar_height(area) + rungs.div_ceil(columns)
}

/// Draws title, bar and legend.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, look: &Look, explained: bool) {
    let (Some(device), Some(found)) = (look.device(), look.found()) else { return };
    let rungs = rungs(look);
    let alone = found.processes.is_empty();
    let total = found.ladder.total;
    let mut right = vec![Span::styled(
        format!("{} used of {}", cells::bytes(used(device, look)), cells::bytes(total)),
        look.style(Role::Text),
    )];
    if total.is_none() {
        right = vec![Span::styled(
            format!("total unknown; {} known", cells::bytes(Some(found.ladder.sum()))),
            look.style(Role::Warning),
        )];
    }
    if usize::from(area.width) < NARROW {
        right.clear();
    }
    let when = if device.ended.is_some() { " when the job ended" } else { "" };
    title(buffer, area, &format!("memory of {}{when}", device_name(device)), right, look);
    let columns = columns(area, explained);
    let legend = rungs.len().div_ceil(columns);
    let bars = usize::from(area.height).saturating_sub(1 + legend).clamp(1, 2);
    let bar = bar(&rungs, total.unwrap_or_else(|| found.ladder.sum()), usize::from(area.width), look);
    for row in 1..=bars {
        put(buffer, area, row, &bar);
    }
    let rows = usize::from(area.height).saturating_sub(1 + bars);
    let shown = most_telling(rungs, rows * columns);
    let height = shown.len().div_ceil(columns);
    let width = area.width / u16::try_from(columns).unwrap_or(1);
    for (place, rung) in shown.iter().enumerate() {
        let (column, row) = (place / height.max(1), place % height.max(1));
        let offset = width.saturating_mul(u16::try_from(column).unwrap_or(0));
        let cell = Rect { x: area.x.saturating_add(offset), width, ..area }.intersection(area);
        put(buffer, cell, 1 + bars + row, &entry(rung, total, alone, usize::from(cell.width), look));
    }
}

/// The rungs of the selected device worth a place, from the inside out.
pub(super) fn rungs(look: &Look) -> Vec<Rung> {
    let Some(found) = look.found() else { return Vec::new() };
    let mut rungs = found.ladder.by_gap();
    // What nobody could know anything of without a probe is not worth a row.
    rungs.retain(|it| it.bytes.is_some() || it.inconsistent.is_some() || !found.processes.is_empty());
    rungs
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

/// Where not all fit, the largest; in their order from the inside out.
fn most_telling(mut rungs: Vec<Rung>, room: usize) -> Vec<Rung> {
    if rungs.len() > room {
        rungs.sort_by_key(|it| std::cmp::Reverse(it.bytes));
        rungs.truncate(room);
        rungs.sort_by_key(|it| it.gap);
    }
    rungs
}

/// `█ releasable    12.00 GiB   9 %`, and where there is room, why and what to do.
fn entry(rung: &Rung, total: Option<Bytes>, alone: bool, width: usize, look: &Look) -> Line<'static> {
    let meaning = rung.gap.meaning();
    let colour = look.style(Role::Gap(rung.gap));
    let name = if alone && rung.gap == Gap::Others { "processes" } else { meaning.name };
    let text = look.style(Role::Text);
    let mut spans = vec![
        Span::raw(" "),
        Span::styled(glyph(rung.gap, look).to_string(), colour),
        Span::styled(format!(" {}", cells::left(name, width.saturating_sub(FIGURE + 3).min(12))), text),
        Span::styled(cells::right(&cells::bytes(rung.bytes), width.saturating_sub(3).min(FIGURE)), text),
    ];
    if width >= 33 {
        spans.push(Span::styled(cells::right(&cells::percent(rung.bytes, total), 6), look.style(Role::Dim)));
    }
    if rung.inconsistent.is_some() {
        spans.push(Span::styled(" !", look.style(Role::Warning)));
    }
    let taken: usize = spans.iter().map(Span::width).sum();
    if let Some(room) = width.checked_sub(taken + EXPLANATION) {
        let mut words = if rung.inconsistent.is_some() {
            "two readings contradict each other".to_owned()
        } else {
            meaning.cause.to_owned()
        };
        if !meaning.remedy.is_empty() && rung.bytes.is_some_and(|it| it.0 > 0) {
            words = format!("{words} → {}", meaning.remedy);
        }
        spans.push(Span::styled(format!("  {}", cells::elide(&words, room + EXPLANATION - 2)), look.style(Role::Dim)));
    }
    Line::from(spans)
}

/// The whole device as one row of cells. Every rung that is there gets a cell, however small, and the
/// largest pay for it.
pub(super) fn bar(rungs: &[Rung], whole: Bytes, width: usize, look: &Look) -> Line<'static> {
    let mut spans: Vec<_> = rungs
        .iter()
        .zip(widths(rungs, whole, width))
        .map(|(rung, cells)| {
            Span::styled(glyph(rung.gap, look).to_string().repeat(cells), look.style(Role::Gap(rung.gap)))
        })
        .collect();
    spans.retain(|it| !it.content.is_empty());
    Line::from(spans)
}

/// The cells that each rung has in the bar.
pub(super) fn widths(rungs: &[Rung], whole: Bytes, width: usize) -> Vec<usize> {
    let parts: Vec<u64> = rungs.iter().map(|it| it.bytes.map_or(0, |it| it.0)).collect();
    apportion(&parts, whole.0, width)
}

/// Shares `width` cells among parts of a whole, by the largest remainder.
fn apportion(parts: &[u64], whole: u64, width: usize) -> Vec<usize> {
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

/// What a gap is drawn with: the picture must be readable by its shapes. Half cells are ragged, so that they
/// stand only where no colour tells one full cell from another.
pub(super) fn glyph(gap: Gap, look: &Look) -> char {
    match gap {
        Gap::NonTorch | Gap::Others | Gap::Driver if look.theme.coloured => '█',
        Gap::Wanted | Gap::Allocated | Gap::Reserved => '█',
        Gap::Rounding => '▓',
        Gap::Pending => '▞',
        Gap::Stuck => '▚',
        Gap::Pools => '▙',
        Gap::Releasable | Gap::Cached => '▒',
        Gap::NonTorch => '▄',
        Gap::Others => '▀',
        Gap::Driver => '▐',
        Gap::Unattributed => '░',
        Gap::Free => '·',
    }
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
}
