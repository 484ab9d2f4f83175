//! The machines, a row each: link, devices, memory, a figure's worst value, the ranks as cells, and what is wrong.

use crate::{
    facts::units,
    model::cluster::{
        Link,
        overview::{NodeRow, RankRow},
    },
    screen::{
        theme::Role,
        ui::mouse::Target,
        view::{
            cells,
            cluster::{Scene, cell, mark, summary},
            columns::first_row,
            put, title, verdict,
        },
    },
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

/// The widths of the names: the least and the most.
const NAMES: (usize, usize) = (7, 28);

/// The width of the link's state.
const LINK: usize = 12;

/// The least width of the text at the end.
const TEXT: usize = 24;

/// Ranks of a machine that have a cell here.
const CELLS: usize = 16;

/// The width of the title above them.
const RANKS: usize = 5;

/// A machine's wall clock that is this far apart is named, in µs.
const APART_US: u64 = 1_000_000;

/// A column of figures.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Devices,
    Used,
    Full,
    Worst,
    Ranks,
}

/// The columns with their widths, the most important first.
const COLUMNS: [(Column, usize); 5] =
    [(Column::Full, 5), (Column::Worst, 15), (Column::Ranks, CELLS), (Column::Used, 11), (Column::Devices, 4)];

/// The same from left to right.
const ORDER: [Column; 5] = [Column::Devices, Column::Used, Column::Full, Column::Worst, Column::Ranks];

/// Draws the title, the columns' titles and as many machines as fit, always including the selected one.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, scene: &Scene) {
    let listed = scene.ui.nodes(scene.overview);
    let selected = scene.ui.node_place(&listed);
    let style = scene.context.style(Role::Dim);
    let head = if area.height > 3 { 2 } else { 0 };
    let room = usize::from(area.height).saturating_sub(head);
    let first = first_row(selected, listed.len(), room.max(1));
    let width = usize::from(area.width);
    let names = listed.iter().filter_map(|it| scene.overview.nodes.get(*it));
    let names = names.map(|it| cells::width(&cells::foreign(&it.host))).max().unwrap_or(0).clamp(NAMES.0, NAMES.1);
    let columns = fitting(width.saturating_sub(names + LINK + TEXT + 4), most_ranks(scene));
    if head > 0 {
        let range = if room < listed.len() {
            format!(" {}–{} of {}", first + 1, listed.len().min(first + room), listed.len())
        } else {
            String::new()
        };
        let right = summary(scene).map(|it| Span::styled(it, style)).into_iter().collect();
        let name = format!("machines by {}{range}", scene.ui.figure.row().label);
        title(buffer, area, &name, right, &scene.context);
        put(buffer, area, 1, &titles(names, &columns, scene));
    }
    if listed.is_empty() {
        put(buffer, area, head, &Line::styled(" no machine matches the filter", style));
    }
    for (row, place) in listed.iter().enumerate().skip(first).take(room) {
        let Some(it) = scene.overview.nodes.get(*place) else { continue };
        let y = area.y + u16::try_from(head + row - first).unwrap_or(u16::MAX);
        let own = Rect { y, height: 1, ..area }.intersection(area);
        let mut line = line(*place, it, names, &columns, scene);
        if row == selected {
            let style = scene.context.style(Role::Selected);
            line = line.spans.into_iter().map(|span| span.patch_style(style)).collect::<Line>().style(style);
            buffer.set_style(own, style);
        }
        put(buffer, own, 0, &line);
        scene.context.claim(own, Target::Line(row));
    }
}

/// Returns the columns that fit, from left to right.
fn fitting(mut width: usize, ranks: usize) -> Vec<(Column, usize)> {
    let mut kept = Vec::new();
    for (column, most) in COLUMNS {
        let taken = if column == Column::Ranks { ranks.clamp(RANKS, most) } else { most };
        let Some(left) = width.checked_sub(taken + 1) else { break };
        width = left;
        kept.push((column, taken));
    }
    ORDER.into_iter().filter_map(|it| kept.iter().find(|own| own.0 == it).copied()).collect()
}

/// Returns the number of ranks on the machine that has the most.
fn most_ranks(scene: &Scene) -> usize {
    let mut counts = vec![0; scene.overview.nodes.len()];
    for it in &scene.overview.ranks {
        counts.get_mut(it.node).into_iter().for_each(|count| *count += 1);
    }
    counts.into_iter().max().unwrap_or(0)
}

fn titles(names: usize, columns: &[(Column, usize)], scene: &Scene) -> Line<'static> {
    let head = [cells::left("machine", names), cells::left("link", LINK)].into_iter();
    let own = columns.iter().map(|(column, width)| {
        let title = match column {
            Column::Devices => "gpus",
            Column::Used => "used",
            Column::Full => "full",
            Column::Worst => scene.ui.figure.row().label,
            Column::Ranks => "ranks",
        };
        let is_left = *column == Column::Ranks;
        if is_left { cells::left(title, *width) } else { cells::right(title, *width) }
    });
    let titles = head.chain(own).chain(["state".to_owned()]).collect::<Vec<_>>().join(" ");
    Line::styled(format!("  {titles}"), scene.context.style(Role::Dim))
}

fn line(place: usize, it: &NodeRow, names: usize, columns: &[(Column, usize)], scene: &Scene) -> Line<'static> {
    let style = |role: Role| scene.context.style(role);
    let link = if it.link == Link::Up { Role::Good } else { Role::Warning };
    let link = if matches!(it.link, Link::Connecting | Link::Copying) { Role::Dim } else { link };
    let figures = style(if it.link == Link::Up { Role::Text } else { Role::Dim });
    let mut spans = vec![
        Span::styled(format!("  {} ", cells::left(&cells::foreign(&it.host), names)), style(Role::Text)),
        Span::styled(cells::left(it.link.name(), LINK), style(link)),
    ];
    for (column, width) in columns {
        spans.push(Span::raw(" "));
        let text = match column {
            Column::Devices => cells::known(Some(it.devices).filter(|_| it.memory.is_some() || it.devices > 0), ""),
            Column::Used => cells::bytes(it.memory.map(|memory| memory.0)),
            Column::Full => cells::percent(it.memory.map(|memory| memory.0), it.memory.map(|memory| memory.1)),
            Column::Worst => worst(place, scene),
            Column::Ranks => {
                spans.extend(ranks(place, *width, scene));
                continue;
            }
        };
        spans.push(Span::styled(cells::right(&text, *width), figures));
    }
    spans.push(Span::raw(" "));
    spans.extend(state(it, style));
    Line::from(spans)
}

fn ranks_of<'a>(place: usize, scene: &'a Scene) -> impl Iterator<Item = &'a RankRow> {
    scene.overview.ranks.iter().filter(move |it| it.node == place)
}

/// Returns the worst value of the figure on a machine.
fn worst(place: usize, scene: &Scene) -> String {
    let figure = scene.ui.figure;
    let values = ranks_of(place, scene).filter(|it| !it.ended).filter_map(|it| it.figures.get(figure));
    let worst = values.max_by(|one, other| figure.badness(*one).total_cmp(&figure.badness(*other)));
    worst.map_or_else(|| cells::UNKNOWN.to_owned(), |it| figure.format(it))
}

/// Returns the ranks of a machine as cells: the mark of a finding, otherwise how bad the figure is.
fn ranks(place: usize, width: usize, scene: &Scene) -> Vec<Span<'static>> {
    let mut own: Vec<&RankRow> = ranks_of(place, scene).collect();
    own.sort_by_key(|it| (it.ended, it.rank));
    let shown = own.iter().take(width).map(|it| {
        let found = mark(it.worst.as_ref().map(|worst| worst.severity)).filter(|_| !it.ended);
        let (sign, role) = found.unwrap_or_else(|| cell(it, scene));
        Span::styled(sign.to_string(), scene.context.style(role))
    });
    let mut spans: Vec<Span> = shown.collect();
    spans.push(Span::raw(" ".repeat(width.saturating_sub(own.len()))));
    spans
}

/// Returns why the link is not up, the worst finding, and that the clock is apart.
pub(super) fn state(it: &NodeRow, style: impl Fn(Role) -> Style) -> Vec<Span<'static>> {
    let mut spans = Vec::new();
    if let Some(why) = it.link.why() {
        spans.push(Span::styled(cells::foreign(why), style(Role::Warning)));
    }
    if let Some(worst) = &it.worst {
        let gap = if spans.is_empty() { "" } else { "; " };
        spans.push(Span::styled(format!("{gap}{}: ", worst.severity.name()), style(verdict::role(worst.severity))));
        spans.push(Span::styled(cells::raw(&worst.title), style(Role::Text)));
    }
    if let Some(apart) = it.clock_us.filter(|it| it.unsigned_abs() >= APART_US) {
        let gap = if spans.is_empty() { "" } else { "; " };
        let direction = if apart > 0 { "ahead" } else { "behind" };
        let words = format!("{gap}clock {} {direction}", units::brief(apart.unsigned_abs()));
        spans.push(Span::styled(words, style(Role::Dim)));
    }
    spans
}

/// What the signs mean.
const LEGEND: &str = " 0 best  9 worst  ! critical  + warning  - unknown  x ended  ? no link";

/// Rows from which on there is a legend.
const EXPLAINED: usize = 6;

/// The width of a cell with a mark of its own; if not all ranks fit so, a mark takes the digit's place.
const WIDE: usize = 2;

/// Draws the title, the cells and the legend; returns the cells in a row.
pub(super) fn draw_map(buffer: &mut Buffer, area: Rect, scene: &Scene) -> usize {
    let listed = scene.ui.ranks(scene.overview);
    let style = scene.context.style(Role::Dim);
    let height = usize::from(area.height);
    let (head, foot) = (usize::from(height > 2), usize::from(height >= EXPLAINED));
    let rows = height.saturating_sub(head + foot);
    let inner = usize::from(area.width).saturating_sub(2);
    let cell_width = if listed.len() <= inner / WIDE * rows { WIDE } else { 1 };
    let columns = inner / cell_width;
    if columns == 0 || rows == 0 {
        return 0;
    }
    let selected = scene.ui.rank_place(&listed, scene.overview);
    let first = first_row(selected / columns, listed.len().div_ceil(columns), rows);
    if head > 0 {
        let right = summary(scene).map(|it| Span::styled(it, style)).into_iter().collect();
        let hidden = listed.len() > columns * rows;
        let range =
            if hidden { format!(" {}–{}", first * columns + 1, (first + rows) * columns) } else { String::new() };
        let name = format!("ranks by {}{range}", scene.ui.figure.row().label);
        title(buffer, area, &name, right, &scene.context);
    }
    if listed.is_empty() {
        let words = if scene.overview.ranks.is_empty() { " no rank yet" } else { " no rank matches the filter" };
        put(buffer, area, head, &Line::styled(words, style));
    }
    for (place, rank) in listed.iter().enumerate().skip(first * columns).take(columns * rows) {
        let (row, column) = (place / columns - first, place % columns);
        let at = |offset: usize| u16::try_from(offset).unwrap_or(u16::MAX);
        let own = Rect {
            x: area.x.saturating_add(1 + at(column * cell_width)),
            y: area.y.saturating_add(at(head + row)),
            width: at(cell_width),
            height: 1,
        };
        let own = own.intersection(area);
        put(buffer, own, 0, &map_line(*rank, cell_width, scene));
        if place == selected {
            buffer.set_style(own, scene.context.style(Role::Selected));
        }
        scene.context.claim(own, Target::Line(place));
    }
    if foot > 0 {
        put(buffer, area, height - 1, &Line::styled(LEGEND, style));
    }
    columns
}

fn map_line(place: usize, width: usize, scene: &Scene) -> Line<'static> {
    let Some(it) = scene.overview.ranks.get(place) else { return Line::default() };
    let (digit, role) = cell(it, scene);
    let found = mark(it.worst.as_ref().map(|worst| worst.severity)).filter(|_| !it.ended);
    let span = |(sign, role): (char, Role)| Span::styled(sign.to_string(), scene.context.style(role));
    if width < WIDE {
        return Line::from(span(found.unwrap_or((digit, role))));
    }
    Line::from(vec![span((digit, role)), span(found.unwrap_or((' ', Role::Text)))])
}
