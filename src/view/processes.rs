//! The processes of the selected device: the probed ones with their counters, the others as the driver
//! lists them, and the command line that would probe them.

use super::{
    Look, cells, put,
    table::{self, Column, Row},
    title, verdict,
};
use crate::{
    event::{ProcessInfo, ProcessUse},
    session::{
        device::Device,
        process::{Life, OnDevice, Process},
    },
    theme::Role,
    ui::{Focus, Scope},
    units::{self, Bytes},
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

/// A probe ticks once a second; silent this long, it is said.
const SILENT_US: u64 = 5_000_000;

/// The place kept for state and command line.
const TEXT: usize = 12;

const PROBED: [Column; 9] = [
    Column { title: "gpu", width: 3, rank: 0 },
    Column { title: "rank", width: 4, rank: 3 },
    Column { title: "pid", width: 7, rank: 0 },
    Column { title: "step", width: 7, rank: 5 },
    Column { title: "allocated", width: 10, rank: 1 },
    Column { title: "reserved", width: 10, rank: 4 },
    Column { title: "unused", width: 6, rank: 6 },
    Column { title: "per step", width: 10, rank: 2 },
    Column { title: "driver", width: 10, rank: 7 },
];

const UNPROBED: [Column; 4] = [
    Column { title: "gpu", width: 3, rank: 0 },
    Column { title: "pid", width: 7, rank: 0 },
    Column { title: "driver", width: 10, rank: 1 },
    Column { title: "user", width: 10, rank: 2 },
];

/// The rows that would show everything.
pub(super) fn height(look: &Look) -> usize {
    let listed = look.ui.listed(look.session);
    let unprobed = look.session.unprobed(listed);
    2 + (look.session.probed(listed).len() + unprobed.len()).max(1) + usize::from(hint(&unprobed, look).is_some())
}

/// Draws title, table and hint.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, look: &Look) {
    let Some(device) = look.device().filter(|_| area.height >= 2) else { return };
    let (listed, all) = (look.ui.listed(look.session), look.ui.scope == Scope::All);
    let (probed, unprobed) = (look.session.probed(listed), look.session.unprobed(listed));
    let with_probes = !probed.is_empty();
    let mut rows: Vec<Row> = probed.iter().map(|(process, it)| probed_row(process, it, look)).collect();
    rows.extend(unprobed.iter().map(|(device, it)| stranger_row(device, it, with_probes, look)));
    for (at, row) in rows.iter_mut().enumerate() {
        if at == look.ui.row && look.ui.focus == Focus::Processes {
            row.style = Some(look.style(Role::Selected));
        }
    }
    let height = usize::from(area.height);
    let hint = hint(&unprobed, look).filter(|_| height > 3);
    let room = height.saturating_sub(2 + usize::from(hint.is_some()));
    let first = table::first_row(look.ui.row.min(rows.len().saturating_sub(1)), rows.len(), room.max(1));
    let shown = rows.len().min(room);
    let count = if shown < rows.len() { format!("{shown} of {}", rows.len()) } else { rows.len().to_string() };
    let name = if all { "processes of all devices" } else { "processes" };
    title(buffer, area, name, vec![Span::styled(count, look.style(Role::Dim))], look);
    let body = Rect { y: area.y.saturating_add(1), height: area.height.saturating_sub(1), ..area };
    if rows.is_empty() {
        let words = match (&device.processes, device.process_list()) {
            (_, Some(_)) if look.session.probed(None).is_empty() && look.session.unprobed(None).is_empty() => "none",
            (_, Some(_)) => "none on this device; p: those of all devices",
            (None, _) => "unknown: the driver has not said",
            (Some(_), None) => "unknown: the driver does not say",
        };
        put(buffer, body, 0, &Line::styled(format!(" {words}"), look.style(Role::Dim)));
    } else {
        let kept = Rect { height: u16::try_from(room + 1).unwrap_or(u16::MAX).min(body.height), ..body };
        let mut columns = if with_probes { PROBED.to_vec() } else { UNPROBED.to_vec() };
        let mut shown = vec![true; columns.len()];
        shown[0] = all;
        if with_probes {
            shown[1] = probed.iter().any(|(it, _)| it.rank().is_some());
        }
        let mut keep = shown.iter();
        columns.retain(|_| keep.next().is_some_and(|it| *it));
        for row in &mut rows {
            let mut keep = shown.iter();
            row.figures.retain(|_| keep.next().is_some_and(|it| *it));
        }
        let rows = rows.get(first..).unwrap_or_default();
        table::draw(buffer, kept, &columns, "command", rows, TEXT, look.style(Role::Dim));
    }
    if let Some(words) = hint {
        let line = Line::styled(cells::elide(&words, usize::from(area.width)), look.style(Role::Key));
        put(buffer, area, height.saturating_sub(1), &line);
    }
}

fn probed_row(process: &Process, it: &OnDevice, look: &Look) -> Row {
    let alive = process.is_alive();
    let text = look.style(if alive { Role::Text } else { Role::Dim });
    let found = look.found_for(process, it);
    let (rate, rate_style) = rate(process, it, look);
    let device = look.session.device(&it.device).and_then(|it| it.index);
    let figures = vec![
        (cells::known(device, ""), text),
        (cells::known(process.rank(), ""), text),
        (cells::known(process.any_pid(), ""), text),
        (cells::known(it.step, ""), text),
        (cells::bytes(it.counters.allocated.map(Bytes)), text),
        (cells::bytes(it.counters.reserved.map(Bytes)), text),
        (cells::share(found.and_then(|it| it.fragmentation.share())), text),
        (rate, rate_style),
        (cells::bytes(found.and_then(|it| it.driver_used)), text),
    ];
    let argv = process.hello.as_ref().map(|it| it.argv.as_slice()).unwrap_or_default();
    let command = shortened(argv.iter().map(String::as_str));
    let (state, role) = state(process, look);
    let words = if state.is_empty() { command } else { format!("{state}: {command}") };
    Row { figures, text: (words, look.style(role)), style: None }
}

fn rate(process: &Process, it: &OnDevice, look: &Look) -> (String, Style) {
    let (words, role) = match look.findings.growing(process.probe, it.ordinal) {
        Some(found) => (verdict::rate(found), verdict::role(found.severity)),
        None if it.growth.watched() < it.growth.enough() => (cells::UNKNOWN.to_owned(), Role::Dim),
        None => {
            let is_approximate = look.found_for(process, it).is_some_and(|it| it.approximate);
            (if is_approximate { "≈flat" } else { "flat" }.to_owned(), Role::Good)
        }
    };
    (words, look.style(role))
}

/// Where a probe is in its life, in a word; nothing while all is well.
fn state(process: &Process, look: &Look) -> (String, Role) {
    let silent = look.session.now.since(process.heard);
    match &process.life {
        Life::Found => ("no hello".to_owned(), Role::Dim),
        Life::Incompatible { protocol } => (format!("wire {protocol}"), Role::Warning),
        Life::CatchingUp => ("history".to_owned(), Role::Dim),
        Life::Live if silent > SILENT_US => (format!("silent {}", units::duration(silent)), Role::Warning),
        Life::Live => (String::new(), Role::Dim),
        Life::Ended { .. } => ("ended".to_owned(), Role::Dim),
        Life::Gone { .. } => ("lost".to_owned(), Role::Warning),
    }
}

fn stranger_row(device: &Device, it: &ProcessUse, with_probes: bool, look: &Look) -> Row {
    let (text, dim) = (look.style(Role::Text), look.style(Role::Dim));
    let who = look.session.people.get(&it.pid);
    let device = (cells::known(device.index, ""), text);
    let (pid, used) = ((it.pid.to_string(), text), (cells::bytes(it.used), text));
    let figures = if with_probes {
        let unknown = || (cells::UNKNOWN.to_owned(), dim);
        vec![device, unknown(), pid, unknown(), unknown(), unknown(), unknown(), unknown(), used]
    } else {
        let owner = who.map_or_else(|| cells::UNKNOWN.to_owned(), |it| cells::elide(&cells::foreign(&it.user), 10));
        vec![device, pid, used, (owner, text)]
    };
    let command = who.map_or_else(|| cells::UNKNOWN.to_owned(), |it| shortened(words(it)));
    Row { figures, text: (command, dim), style: None }
}

/// The line that would probe a job: of the selected process, else of the largest that runs Python.
fn hint(unprobed: &[(&Device, ProcessUse)], look: &Look) -> Option<String> {
    let python = |it: &&ProcessInfo| it.argv.first().is_some_and(|it| it.raw().contains("python"));
    let known = || unprobed.iter().filter_map(|(_, it)| look.session.people.get(&it.pid));
    let job = known().find(python)?;
    let place = if job.contained { ", in its container" } else { "" };
    Some(format!(" to probe pid {}{place}:  gpuwatch run -- {}", job.pid, shortened(words(job))))
}

fn words(who: &ProcessInfo) -> impl Iterator<Item = &str> {
    who.argv.iter().map(crate::text::Foreign::raw)
}

/// A command line whose program is named without its path.
fn shortened<'a>(mut argv: impl Iterator<Item = &'a str>) -> String {
    let program = argv.next().map(|it| it.rsplit('/').next().unwrap_or(it));
    cells::command(program.into_iter().chain(argv))
}
