//! The host's memory: a row of the overview, and a box of the process screen.

use crate::{
    facts::units::Bytes,
    model::{
        analysis::{
            host::{self, HostLadder, HostPart, LimitOf},
            ladder::Gap,
        },
        findings::Kind,
        session::process::Process,
    },
    screen::{
        theme::Role,
        view::{
            RenderContext, cells,
            ladder::{apportion, glyph},
        },
    },
};
use ratatui::text::{Line, Span};

/// Most cells of the bar in a row of words.
const BAR: usize = 24;

/// Fewest cells of a bar.
const BAR_MIN: usize = 8;

/// Returns the ladder of the limit with the least room, and the limit's name; `None` before it was read.
fn nearest(pid: Option<u32>, context: &RenderContext) -> Option<(HostLadder, String)> {
    let memory = &context.session.host.memory.as_ref()?.value;
    let own = context.session.own_memory();
    let is_of = |it: &HostLadder| pid.is_none_or(|pid| it.limit.of == LimitOf::Machine || it.pids.contains(&pid));
    let ladders = host::ladders(memory, &own).into_iter().filter(is_of);
    // Without a job, a group of this machine's is no concern.
    let ladders = ladders.filter(|it| it.limit.of == LimitOf::Machine || !it.pids.is_empty());
    let nearest = ladders.min_by_key(|it| it.limit.left())?;
    let name = host::words(&nearest.limit.of, memory);
    Some((nearest, name))
}

/// Returns when it is full: `full in 11 min`.
fn full(name: &str, context: &RenderContext) -> Option<String> {
    let mut own = context.findings.all.iter().filter(|it| it.kind == Kind::HostFull && it.is_active());
    let left = own.find(|it| it.limit.as_deref() == Some(name))?.left()?;
    Some(format!("full in {left}"))
}

/// Returns the row of the overview: ` host  ██▓▒▒···  50.00 GiB of 64.00 GiB, full in 11 min: the cgroup of …`; `None`
/// before a job's was read.
pub(super) fn row(width: usize, context: &RenderContext) -> Option<Line<'static>> {
    let (ladder, name) = nearest(None, context)?;
    if ladder.pids.is_empty() {
        return None;
    }
    let full = full(&name, context);
    let (used, size) = (Bytes(ladder.limit.used), Bytes(ladder.limit.size));
    let soon = full.as_ref().map_or_else(String::new, |it| format!(", {it}"));
    let wordings =
        [format!("{used} of {size}{soon}: {name}"), format!("{used} of {size}{soon}"), format!("{used}{soon}")];
    let room = width.saturating_sub(7 + BAR_MIN);
    let words = wordings.iter().find(|it| cells::width(it) + 2 <= room)?;
    let cells = width.saturating_sub(7 + cells::width(words) + 2).min(BAR);
    let mut spans = vec![Span::styled(" host  ", context.style(Role::Dim))];
    spans.extend(bar(&ladder, cells, context));
    let role = if full.is_some() { Role::Warning } else { Role::Text };
    spans.push(Span::styled(format!("  {words}"), context.style(role)));
    Some(Line::from(spans))
}

/// Returns the lines of a process: its nearest limit, a bar, and the rungs; none before they were read.
pub(super) fn lines(
    process: &Process,
    width: usize,
    context: &RenderContext,
) -> (Vec<Line<'static>>, Vec<(&'static str, String)>) {
    let Some((ladder, name)) = process.pid.and_then(|pid| nearest(Some(pid), context)) else {
        return (Vec::new(), Vec::new());
    };
    let (used, size) = (Bytes(ladder.limit.used), Bytes(ladder.limit.size));
    let full = full(&name, context).map_or_else(String::new, |it| format!(", {it}"));
    let words = format!(" {used} of {size} cannot be given back{full}: {name}");
    let bar = [Span::raw(" ")].into_iter().chain(bar(&ladder, width.saturating_sub(2), context));
    let lines =
        vec![Line::styled(cells::elide(&words, width), context.style(Role::Text)), Line::from(bar.collect::<Vec<_>>())];
    let entries = ladder.parts.iter().map(|it| (it.rung.row().name, cells::bytes(it.bytes))).collect();
    (lines, entries)
}

/// Returns the whole limit as cells, in the colours of the device's ladder.
fn bar(ladder: &HostLadder, width: usize, context: &RenderContext) -> Vec<Span<'static>> {
    let sizes: Vec<u64> = ladder.parts.iter().map(|part| part.bytes.map_or(0, |it| it.0)).collect();
    let cell = |(it, count): (&HostPart, usize)| {
        let gap: Gap = it.rung.row().like;
        Span::styled(glyph(gap, context).to_string().repeat(count), context.style(Role::Gap(gap)))
    };
    let counts = apportion(&sizes, ladder.limit.size, width);
    ladder.parts.iter().zip(counts).filter(|it| it.1 > 0).map(cell).collect()
}
