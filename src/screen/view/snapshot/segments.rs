//! The segments of a device: all of them as one map, a row for each, and what holds the selected one.

use crate::{
    facts::units::{Bytes, counted},
    model::{
        analysis::ladder::Gap,
        snapshot::{Device, Matches, Piece, kind},
        trace::{Fit, StackId},
    },
    screen::{
        theme::Role,
        ui::{mouse::Target, snapshot_ui::Order},
        view::{
            cells, columns,
            ladder::glyph,
            put,
            scroll::select,
            snapshot::{Scene, stacks},
            take, title,
        },
    },
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

/// A column of figures, its width, and the width of the screen from which on it is there.
type Column = (&'static str, usize, u16, fn(&Piece) -> String);

const COLUMNS: [Column; 6] = [
    ("size", 11, 0, |it| Bytes(it.totals.reserved).to_string()),
    ("live", 6, 34, |it| cells::percent(Some(Bytes(it.totals.allocated)), Some(Bytes(it.totals.reserved)))),
    ("stuck", 11, 56, |it| Bytes(it.totals.stuck).to_string()),
    ("largest free", 13, 72, |it| Bytes(it.totals.largest_free).to_string()),
    ("free", 11, 120, |it| Bytes(it.totals.free()).to_string()),
    ("releasable", 11, 140, |it| Bytes(it.totals.releasable).to_string()),
];

/// From the top: whether the request fits, the map of all segments, the list, the selected segment.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, scene: &Scene) {
    let Some(device) = scene.device() else { return };
    let (all, pieces) = (scene.ui.all_segments(scene.snapshot), scene.ui.segments(scene.snapshot));
    let mut rest = area;
    let right = format!("{} in {}", Bytes(device.totals.reserved), counted(device.totals.segments, "segment"));
    let name = format!("map of device {}", device.ordinal);
    title(
        buffer,
        take(&mut rest, 1),
        &name,
        vec![Span::styled(right, scene.context.style(Role::Text))],
        &scene.context,
    );
    put(buffer, take(&mut rest, 1), 0, &fits_line(scene, area.width));
    if let Some(matches) = &scene.ui.matches {
        put(buffer, take(&mut rest, 1), 0, &filtered(matches, all.len(), scene));
    }
    let rows = usize::from(area.height / 9).clamp(1, 6);
    if all.len() > 1 && area.height >= 9 {
        let place = take(&mut rest, rows);
        let lines = map_lines(&all, usize::from(place.width), rows, scene);
        lines.iter().enumerate().for_each(|(row, line)| put(buffer, place, row, line));
        if area.height >= 14 {
            scale(buffer, take(&mut rest, 1), &all, rows, scene);
        }
    }
    if pieces.is_empty() && scene.ui.matches.is_some() {
        unmatched(buffer, rest, device, scene);
        return;
    }
    // The list has what it needs, the selected segment a third at least.
    let listed = u16::try_from(pieces.len() + 1).unwrap_or(u16::MAX);
    let below = if rest.height >= 12 { (rest.height / 3).max(rest.height.saturating_sub(listed)) } else { 0 };
    let bottom = Rect { y: rest.bottom() - below, height: below, ..rest };
    rest.height -= below;
    list(buffer, rest, &pieces, scene);
    if let Some(piece) = pieces.get(scene.ui.segment).filter(|_| below > 0) {
        selected(buffer, bottom, piece, scene);
    }
}

/// ` 1 block of 8.00 MiB in 1 of 4 segments matches "adam"; Esc clears the filter`
fn filtered(matches: &Matches, all: usize, scene: &Scene) -> Line<'static> {
    let [segments, blocks, bytes] = matches.counts();
    let filter = cells::raw(&scene.ui.base.filter.text);
    let verb = if blocks == 1 { "matches" } else { "match" };
    let blocks = counted(blocks, "block");
    let all = counted(all as u64, "segment");
    let words = format!(" {blocks} of {} in {segments} of {all} {verb} \"{filter}\"; Esc clears it", Bytes(bytes));
    Line::styled(words, scene.context.style(Role::Warning))
}

/// Which filters find something.
fn unmatched(buffer: &mut Buffer, area: Rect, device: &Device, scene: &Scene) {
    let names = scene.snapshot.filter_names(device).join(", ");
    let words = format!("nothing matches; type a part of a call or file, an address, or one of: {names}");
    let width = usize::from(area.width).saturating_sub(1);
    for (row, words) in cells::wrapped(&words, width).into_iter().enumerate() {
        put(buffer, area, row, &Line::styled(format!(" {words}"), scene.context.style(Role::Dim)));
    }
}

/// What a cell of the map above is, and the order of its segments.
fn scale(buffer: &mut Buffer, row: Rect, pieces: &[&Piece], rows: usize, scene: &Scene) {
    let whole: u128 = pieces.iter().map(|it| u128::from(it.totals.reserved)).sum();
    let cells = usize::from(row.width) * rows;
    let each = whole.checked_div(cells as u128).and_then(|it| u64::try_from(it).ok()).unwrap_or(0);
    let words = match scene.ui.order {
        Order::Size => "the largest segment first",
        Order::Stuck => "the segment with most stuck memory first",
        Order::LargestFree => "the segment with the largest free block first",
        Order::Address => "by address",
    };
    let dots = if scene.ui.matches.is_some() { "; other blocks are dots" } else { "" };
    let line = Line::styled(format!(" a cell is {}; {words}{dots}", Bytes(each)), scene.context.style(Role::Dim));
    put(buffer, row, 0, &line);
}

/// `      size  live       stuck  largest free  map`
fn list(buffer: &mut Buffer, area: Rect, pieces: &[&Piece], scene: &Scene) {
    let style = |bytes: &str| scene.context.style(if bytes == "0 B" { Role::Dim } else { Role::Text });
    let columns: Vec<&Column> = COLUMNS.iter().filter(|it| area.width >= it.2).collect();
    let titles: Vec<String> = columns.iter().map(|it| cells::right(it.0, it.1)).collect();
    put(buffer, area, 0, &Line::styled(format!(" {}   blocks", titles.join(" ")), scene.context.style(Role::Dim)));
    let rows = usize::from(area.height).saturating_sub(1);
    let first = columns::first_row(scene.ui.segment, pieces.len(), rows);
    let serving = serving(scene);
    for (place, (at, piece)) in columns::places(area).zip(pieces.iter().enumerate().skip(first)) {
        let mut spans: Vec<Span> = columns
            .iter()
            .map(|it| (it.3(piece), it.1))
            .map(|(figure, width)| Span::styled(format!(" {}", cells::right(&figure, width)), style(&figure)))
            .collect();
        let mark = if serving.is_some_and(|size| serves(piece, size, scene)) { " ● " } else { "   " };
        spans.push(Span::styled(mark, scene.context.style(Role::Good)));
        let taken: usize = spans.iter().map(Span::width).sum();
        let room = usize::from(area.width).saturating_sub(taken + 1);
        let is_selected = at == scene.ui.segment;
        put(buffer, place, 0, &Line::from(spans));
        let bar = Rect { x: place.x + u16::try_from(taken).unwrap_or(0).min(place.width), ..place };
        scene.context.claim(place, Target::Line(at));
        if is_selected {
            select(buffer, place, &scene.context);
        }
        let bar = Rect { width: u16::try_from(room).unwrap_or(0), ..bar }.intersection(place);
        put(buffer, bar, 0, &map_line(&[*piece], room, scene));
    }
}

/// Whether the free block that would serve the request is in a segment.
fn serves(piece: &Piece, size: u64, scene: &Scene) -> bool {
    let Some((segment, stream)) = scene.snapshot.segment(piece).zip(scene.device().and_then(|it| it.stream)) else {
        return false;
    };
    piece.totals.largest_free >= size && segment.stream == stream && !scene.snapshot.trace.is_private(segment)
}

/// Describes the selected segment, and the stacks whose blocks hold it.
fn selected(buffer: &mut Buffer, area: Rect, piece: &Piece, scene: &Scene) {
    let Some(segment) = scene.snapshot.segment(piece) else { return };
    let trace = &scene.snapshot.trace;
    let mut rest = area;
    let part = scene.snapshot.part_name(segment.stream, segment.pool);
    let name = format!("segment {:#x}, {part}, {}", segment.address, kind(segment));
    title(buffer, take(&mut rest, 1), &name, Vec::new(), &scene.context);
    let it = &piece.totals;
    let holds = if it.stuck > 0 {
        format!("{} stuck beside", Bytes(it.stuck))
    } else {
        format!("{} free beside", Bytes(it.free()))
    };
    let shares = trace.live_in(std::iter::once(segment));
    let blocks: u64 = shares.iter().map(|it| it.blocks).sum();
    let pending = if it.pending > 0 { format!(", {} pending", Bytes(it.pending)) } else { String::new() };
    let words = format!(" {holds} {} of {}{pending}", counted(blocks, "live block"), Bytes(it.allocated));
    put(buffer, take(&mut rest, 1), 0, &Line::styled(words, scene.context.style(Role::Text)));
    let taken_for = format!(" taken for {}", trace.stacks.line(segment.stack));
    if rest.height > 3 && segment.stack != StackId::default() {
        put(buffer, take(&mut rest, 1), 0, &Line::styled(taken_for, scene.context.style(Role::Dim)));
    }
    stacks::draw(buffer, rest, &shares, it.allocated, 0, scene);
}

/// `Would a free block hold 512.0 MiB?  yes: stream 0 has one of 600.0 MiB`, with as much of the reason as has room.
pub(super) fn fits_line(scene: &Scene, width: u16) -> Line<'static> {
    let Some(device) = scene.device() else { return Line::default() };
    let request = Bytes(scene.ui.request());
    let (role, answer, why) = match scene.snapshot.fit(device, request.0) {
        None => (Role::Dim, "–", vec![": the allocator holds nothing".to_owned()]),
        Some(Fit::Block { size }) => {
            (Role::Good, "yes", vec![format!(": stream {} has one of {}", stream(scene), Bytes(size))])
        }
        Some(Fit::Segment { size, largest }) => {
            let (size, largest) = (Bytes(size), Bytes(largest));
            let free = format!(": the largest has {largest}");
            let asks = format!("{free}, so the allocator asks the driver for {size}");
            let back = Bytes(device.totals.releasable.saturating_add(device.totals.cached));
            let up_to = if device.totals.cached > 0 { "up to " } else { "" };
            let mut why = vec![
                format!("{asks}; it can give back {up_to}{back}"),
                format!("{free}; it can give back {up_to}{back}"),
            ];
            if back.0 == 0 {
                why = vec![asks];
            }
            why.push(free);
            (Role::Warning, "no", why)
        }
    };
    let style = |role| scene.context.style(role);
    let asked = format!(" Would a free block hold {request}?  ");
    let room = usize::from(width).saturating_sub(asked.len() + answer.len());
    let why = why.into_iter().find(|it| it.len() <= room).unwrap_or_default();
    Line::from(vec![
        Span::styled(asked, style(Role::Text)),
        Span::styled(answer.to_owned(), style(role)),
        Span::styled(why, style(Role::Dim)),
    ])
}

/// The free block that would serve the request, by its bytes.
pub(super) fn serving(scene: &Scene) -> Option<u64> {
    match scene.snapshot.fit(scene.device()?, scene.ui.request())? {
        Fit::Block { size } => Some(size),
        Fit::Segment { .. } => None,
    }
}

fn stream(scene: &Scene) -> u64 {
    scene.device().and_then(|it| it.stream).unwrap_or(0)
}

/// Draws segments, one behind the other, in so many cells.
pub(super) fn map_line(pieces: &[&Piece], cells: usize, scene: &Scene) -> Line<'static> {
    spans(&gaps(pieces, cells, scene), scene)
}

/// The same in rows of a width.
pub(super) fn map_lines(pieces: &[&Piece], width: usize, rows: usize, scene: &Scene) -> Vec<Line<'static>> {
    let gaps = gaps(pieces, width * rows, scene);
    gaps.chunks(width.max(1)).map(|row| spans(row, scene)).collect()
}

fn spans(gaps: &[Option<Gap>], scene: &Scene) -> Line<'static> {
    let runs = gaps.chunk_by(|a, b| a == b);
    let span = |run: &[Option<Gap>]| match run.first().copied().flatten() {
        Some(gap) => {
            let sign = glyph(gap, &scene.context).to_string();
            Span::styled(sign.repeat(run.len()), scene.context.style(Role::Gap(gap)))
        }
        None => Span::styled("·".repeat(run.len()), scene.context.style(Role::Dim)),
    };
    runs.map(span).collect()
}

/// The gap of each cell; `None` where no block is known, or none matches the filter.
fn gaps(pieces: &[&Piece], cells: usize, scene: &Scene) -> Vec<Option<Gap>> {
    let whole: u128 = pieces.iter().map(|it| u128::from(it.totals.reserved)).sum();
    if whole == 0 || cells == 0 {
        return Vec::new();
    }
    let mut sums: Vec<[u128; Gap::ALL.len()]> = vec![[0; Gap::ALL.len()]; cells];
    let mut begin = 0_u128;
    for piece in pieces {
        let Some(segment) = scene.snapshot.segment(piece) else { continue };
        for (place, block) in scene.snapshot.trace.blocks_of(segment).iter().enumerate() {
            if scene.ui.matches.as_ref().is_some_and(|it| !it.has_block(segment, place)) {
                continue;
            }
            let gap = scene.snapshot.gap(piece, block.state) as usize;
            let offset = u128::from(block.address.saturating_sub(segment.address).min(segment.size));
            let end = (offset + u128::from(block.size)).min(u128::from(segment.size));
            // In parts of a byte, of which every cell has as many as there are bytes in all.
            let (from, to) = ((begin + offset) * cells as u128, (begin + end) * cells as u128);
            let mut at = from;
            while at < to {
                let cell = at / whole;
                let next = ((cell + 1) * whole).min(to);
                if let Some(sum) = usize::try_from(cell).ok().and_then(|cell| sums.get_mut(cell)) {
                    sum[gap] += next - at;
                }
                at = next;
            }
        }
        begin += u128::from(segment.size);
    }
    let most = |sums: &[u128; Gap::ALL.len()]| {
        let (gap, bytes) = Gap::ALL.into_iter().zip(sums).max_by_key(|it| it.1)?;
        (*bytes > 0).then_some(gap)
    };
    sums.iter().map(most).collect()
}
