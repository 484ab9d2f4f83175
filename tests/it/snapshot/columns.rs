//! Prints the contents of a trace line by line, in the format of `columns.py`.

use gpuwatch::model::trace::{Action, BlockState, Event, Segment, Setting, StackId, Trace};
use std::fmt::{Display, Write as _};

pub(crate) fn listing(trace: &Trace) -> String {
    let mut out = String::new();
    let devices = trace.devices.iter().enumerate().map(|(ordinal, events)| (format!("device {ordinal}"), events));
    let host = Some(("host".to_owned(), &trace.host)).filter(|it| !it.1.is_empty());
    for (title, events) in devices.chain(host) {
        writeln!(out, "{title}").unwrap();
        for it in trace.events.range(events.clone()) {
            event(&mut out, trace, &it);
        }
    }
    for it in trace.segments.iter().chain(&trace.host_segments) {
        segment(&mut out, trace, it);
    }
    let text = |id| trace.stacks.texts.get(id);
    for it in &trace.notes {
        let stage = if it.begins.unwrap() { "START" } else { "END" };
        writeln!(out, "note {stage} {} {} {}", text(it.name), it.device.unwrap(), it.unix_us.unwrap()).unwrap();
    }
    for (name, value) in trace.settings.iter().flat_map(|it| &it.values) {
        let value = match value {
            Setting::Switch(it) => python(*it).to_owned(),
            Setting::Number(it) => it.to_string(),
            Setting::Fraction(it) => format!("{it:?}"),
            Setting::Text(it) => text(*it).into_owned(),
            Setting::BySize(all) => {
                all.iter().map(|(size, it)| format!("{}={it}", text(*size))).collect::<Vec<_>>().join(",")
            }
        };
        writeln!(out, "setting {} {value}", text(*name)).unwrap();
    }
    out
}

fn event(out: &mut String, trace: &Trace, it: &Event) {
    let action = Action::WORDS.iter().find(|word| word.1 == it.action).map_or("other", |word| word.0);
    let (place, size, stream, time) = (known(it.address), known(it.size), known(it.stream), known(it.unix_us));
    let (pool, stack) = (pool(trace, it.pool), frames(trace, it.stack));
    writeln!(out, "{action} {place} {size} {stream} {time} {pool} {stack}").unwrap();
}

fn segment(out: &mut String, trace: &Trace, it: &Segment) {
    let (device, allocated, active) = (known(it.device), known(it.allocated), known(it.active));
    let (requested, small, expandable) = (known(it.requested), python(it.is_small), python(it.is_expandable));
    let (pool, stack) = (pool(trace, it.pool), frames(trace, it.stack));
    let figures = format!("{} {} {allocated} {active} {requested} {}", it.address, it.size, it.stream);
    writeln!(out, "segment {device} {figures} {small} {expandable} {pool} {stack}").unwrap();
    for it in trace.blocks_of(it) {
        let state = match it.state {
            BlockState::Live => "active_allocated",
            BlockState::Pending => "active_pending_free",
            BlockState::Free => "inactive",
            BlockState::Other => "other",
        };
        let (requested, stack) = (known(it.requested), frames(trace, it.stack));
        writeln!(out, "block {} {} {requested} {state} {stack}", it.address, it.size).unwrap();
    }
}

fn frames(trace: &Trace, id: StackId) -> String {
    let text = |id| trace.stacks.texts.get(id);
    let frames = trace.stacks.frames(id).map(|it| format!("{}@{}:{}", text(it.name), text(it.file), it.line));
    frames.collect::<Vec<_>>().join(";")
}

fn pool(trace: &Trace, id: Option<u32>) -> String {
    id.and_then(|it| trace.pools.get(it)).map_or_else(|| "-".to_owned(), |(a, b)| format!("{a}.{b}"))
}

fn known(it: Option<impl Display>) -> String {
    it.map_or_else(|| "-".to_owned(), |it| it.to_string())
}

fn python(it: bool) -> &'static str {
    if it { "True" } else { "False" }
}
