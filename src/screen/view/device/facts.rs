//! The processes on a device, and the driver's figures.

use crate::{
    facts::{
        event::{DriverState, ProcessUse},
        units::{self, Bytes},
    },
    model::session::{
        device::Device,
        process::{OnDevice, Process},
    },
    screen::{
        theme::Role,
        ui::{mouse::Target, rows::Row},
        view::{RenderContext, cells, course, devices, heading, messages, scroll::Spot},
    },
};
use ratatui::text::{Line, Span};

/// Returns `76.83 GiB used of 140.40 GiB, 55 %`.
pub(super) fn full(device: &Device, context: &RenderContext) -> String {
    let (used, total) = (devices::used(device, context), devices::total(device, context));
    let share = cells::percent(used, total);
    format!("{} used of {}, {share}", cells::bytes(used), cells::bytes(total))
}

/// Returns its clickable processes, then the driver's figures.
pub(super) fn lines(device: &Device, width: usize, context: &RenderContext) -> (Vec<Line<'static>>, Vec<Spot>) {
    let mut lines = vec![heading("on this device", width, context)];
    let probed = context.ui.probed(Some(&device.id), context.session);
    let unprobed = context.session.unprobed(Some(&device.id));
    lines.extend(probed.iter().map(|(process, on)| own(process, on, device, width, context)));
    lines.extend(unprobed.iter().map(|(_, it)| stranger(it, device, width, context)));
    let rows = probed.iter().map(|(process, on)| Row::Probed(process, on));
    let rows = rows.chain(unprobed.iter().map(|(device, it)| Row::Unprobed(device, *it)));
    let spots = rows.zip(1..).map(|(it, line)| (Target::Row(it.id()), line..line + 1)).collect();
    if probed.is_empty() && unprobed.is_empty() {
        let words =
            if device.process_list().is_some() { " no process" } else { " unknown: the driver has not reported it" };
        lines.push(Line::styled(words, context.style(Role::Dim)));
    }
    lines.extend(course::lines(device, width, context));
    lines.push(heading("device", width, context));
    lines.extend(super::metrics::lines(device, width, context));
    lines.extend(source(device, width, context));
    (lines, spots)
}

/// Returns `rank 1   pid 8891   67.82 GiB  48 %  train.py --leaking`.
fn own(process: &Process, on: &OnDevice, device: &Device, width: usize, context: &RenderContext) -> Line<'static> {
    let found = context.found_for(process, on);
    let argv = process.hello.as_ref().map(|it| it.argv.as_slice()).unwrap_or_default();
    let command = cells::command(argv.iter().map(String::as_str));
    let reserved = on.counters.reserved.map(Bytes).filter(|_| process.is_alive());
    let used = found.and_then(|it| it.driver_used).or(reserved);
    let name = if process.is_alive() { messages::short(process) } else { "ended".to_owned() };
    row(&name, process.any_pid(), used, device, &command, width, context)
}

fn stranger(it: &ProcessUse, device: &Device, width: usize, context: &RenderContext) -> Line<'static> {
    let who = context.session.process_info.get(&it.pid);
    let command = who.map_or_else(
        || cells::UNKNOWN.to_owned(),
        |it| {
            format!(
                "{}: {}",
                cells::foreign(&it.user),
                cells::command(it.argv.iter().map(crate::facts::text::Foreign::raw))
            )
        },
    );
    row("no probe", Some(it.pid), it.used, device, &command, width, context)
}

fn row(
    name: &str,
    pid: Option<u32>,
    used: Option<Bytes>,
    device: &Device,
    command: &str,
    width: usize,
    context: &RenderContext,
) -> Line<'static> {
    let figures = vec![
        Span::styled(format!(" {}", cells::left(name, 9)), context.style(Role::Text)),
        Span::styled(cells::right(&cells::known(pid, ""), 8), context.style(Role::Dim)),
        Span::styled(cells::right(&cells::bytes(used), 12), context.style(Role::Text)),
        Span::styled(cells::right(&cells::percent(used, devices::total(device, context)), 6), context.style(Role::Dim)),
    ];
    let taken: usize = figures.iter().map(Span::width).sum();
    let mut line = Line::from(figures);
    let room = width.saturating_sub(taken + 2);
    if room >= 8 {
        line.push_span(Span::styled(format!("  {}", cells::elide(command, room)), context.style(Role::Dim)));
    }
    line
}

/// Returns the driver's version, the time of its last reading, and the device's identity.
fn source(device: &Device, width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    let version = match &context.session.driver {
        Some(DriverState::Up { version: Some(version) }) => format!("driver {}, ", cells::foreign(version)),
        _ => String::new(),
    };
    let read = device.memory.as_ref().map(|it| units::duration(context.session.now.since(it.at)));
    let read = read.map_or_else(|| "never read".to_owned(), |it| format!("read {it} ago"));
    let mut words = vec![format!(" {version}{read}, {}", cells::raw(&device.id.0))];
    words.extend(device.parent.as_ref().map(|parent| format!(" a part of {}", cells::raw(&parent.0))));
    words.iter().map(|it| Line::styled(cells::elide(it, width), context.style(Role::Dim))).collect()
}
