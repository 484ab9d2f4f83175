//! The trace: memory over events with a cursor, and whose blocks were live there and at the peak.

use super::{Scene, chart, stacks};
use crate::{
    facts::units::{Bytes, counted},
    model::{
        snapshot::Device,
        trace::{Action, Moment},
    },
    screen::{
        theme::Role,
        view::{Scrolled, cells, put, take, title},
    },
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

/// Wide enough for two lists side by side.
const WIDE: u16 = 130;

/// Rows of the chart at most.
const CHART_MAX: u16 = 28;

const NO_TRACE: &str = "no trace of allocations: call torch.cuda.memory._record_memory_history() when the job begins";

/// From the top: the chart, what the cursor is on, the stacks there, the stacks at the peak.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, scene: &Scene) -> Scrolled {
    let mut rest = area;
    let Some(device) = scene.device() else { return Scrolled::default() };
    let name = format!("trace of device {}", device.ordinal);
    let events = counted(device.events as u64, "event");
    title(
        buffer,
        take(&mut rest, 1),
        &name,
        vec![Span::styled(events, scene.context.style(Role::Dim))],
        &scene.context,
    );
    let Some(event) = scene.ui.event(scene.snapshot) else {
        let words = if device.events == 0 { NO_TRACE } else { "walking through the trace…" };
        for (row, words) in cells::wrapped(words, usize::from(rest.width)).into_iter().enumerate() {
            put(buffer, rest, row, &Line::styled(words, scene.context.style(Role::Dim)));
        }
        return Scrolled::default();
    };
    let height = (rest.height * 2 / 5).max(rest.height.saturating_sub(listed(device, scene))).max(rest.height.min(3));
    let height = height.min(CHART_MAX);
    if let Some(history) = &device.history {
        let range = scene.ui.window(scene.snapshot);
        chart::draw(buffer, take(&mut rest, usize::from(height)), history, &range, Some(event), scene);
    }
    put(buffer, take(&mut rest, 1), 0, &at_cursor(device, event, scene));
    lists(buffer, rest, device, scene)
}

/// The rows that the lists have a use for, and the line above them.
fn listed(device: &Device, scene: &Scene) -> u16 {
    let rows = |moment: Option<&Moment>| moment.map_or(0, |it| it.shares.len() + 1);
    let (here, peak) = (rows(scene.ui.moment.as_ref()), rows(device.peak.as_ref()));
    u16::try_from(here + peak + 1).unwrap_or(u16::MAX)
}

/// `event 12 of 345: alloc 1.00 MiB at train.py:40 step`
fn at_cursor(device: &Device, event: usize, scene: &Scene) -> Line<'static> {
    let trace = &scene.snapshot.trace;
    let place = trace.devices.get(device.ordinal as usize).map_or(0, |it| it.start) + event;
    let Some(it) = trace.events.get(place) else { return Line::default() };
    let word = Action::WORDS.iter().find(|word| word.1 == it.action).map_or("unknown", |word| word.0);
    let size = it.size.map_or_else(String::new, |bytes| format!(" {}", Bytes(bytes)));
    let stack = trace.stacks.line(it.stack);
    let begun = trace.events.range(trace.devices.get(device.ordinal as usize).cloned().unwrap_or_default());
    let begun = begun.take(1).find_map(|first| first.unix_us);
    let after = it.unix_us.zip(begun).and_then(|(now, begun)| now.checked_sub(begun));
    let after = after.map_or_else(String::new, |us| format!(" (+{:.3}s)", us as f64 / 1e6));
    let role = if it.action == Action::Oom { Role::Bad } else { Role::Text };
    let style = |role| scene.context.style(role);
    Line::from(vec![
        Span::styled(format!(" event {} of {}{after}: ", event + 1, device.events), style(Role::Dim)),
        Span::styled(format!("{word}{size}"), style(role)),
        Span::styled(format!("  {stack}"), style(Role::Dim)),
    ])
}

/// The stacks at the cursor and at the peak: side by side where there is room, one list where they are the same moment.
fn lists(buffer: &mut Buffer, area: Rect, device: &Device, scene: &Scene) -> Scrolled {
    let (here, peak) = (scene.ui.moment.as_ref(), device.peak.as_ref());
    let is_peak = here.zip(peak).is_some_and(|(here, peak)| here.event == peak.event);
    let scroll = scene.ui.base.scroll;
    if is_peak || peak.is_none() {
        let name = if is_peak { "live at the cursor, the peak" } else { "live at the cursor" };
        return list(buffer, area, name, here, scroll, scene);
    }
    let [first, second] = if area.width >= WIDE {
        let half = area.width / 2;
        let left = Rect { width: half - 1, ..area };
        [left, Rect { x: area.x + half, width: area.width - half, ..area }]
    } else {
        let half = area.height.div_ceil(2);
        [Rect { height: half, ..area }, Rect { y: area.y + half, height: area.height - half, ..area }]
    };
    let scrolled = list(buffer, first, "live at the cursor", here, scroll, scene);
    list(buffer, second, "live at the peak", peak, scrolled.scroll, scene);
    scrolled
}

fn list(
    buffer: &mut Buffer,
    area: Rect,
    name: &str,
    moment: Option<&Moment>,
    scroll: usize,
    scene: &Scene,
) -> Scrolled {
    let Some(moment) = moment else { return Scrolled::default() };
    let mut rest = area;
    let older =
        if moment.older > 0 { format!(", {} older than the trace", Bytes(moment.older)) } else { String::new() };
    let right = format!("event {}, {}", moment.event + 1, Bytes(moment.bytes));
    let is_wide = name.len() + right.len() + older.len() + 12 <= usize::from(area.width);
    let right = if is_wide { right + &older } else { right };
    let right = vec![Span::styled(right, scene.context.style(Role::Text))];
    title(buffer, take(&mut rest, 1), name, right, &scene.context);
    let most = stacks::scrolls(&moment.shares, usize::from(rest.height), scene);
    let scroll = scroll.min(most);
    stacks::draw(buffer, rest, &moment.shares, moment.bytes, scroll, scene);
    Scrolled { scroll, most, ..Scrolled::default() }
}
