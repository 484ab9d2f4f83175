//! The processes of the selected device: the probed ones with their counters, the others as the driver
//! lists them, and the command line that would probe them.

use super::{
    Look, cells, put,
    table::{self, Column, Row},
    title,
};
use crate::{
    analysis::growth::Trend,
    event::{ProcessInfo, ProcessUse},
    findings::ProcessFindings,
    session::{
        device::Device,
        process::{Life, OnDevice, Process},
    },
    theme::Role,
    ui::Focus,
    units::Bytes,
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

const PROBED: [Column; 8] = [
    Column { title: "rank", width: 4, rank: 3 },
    Column { title: "pid", width: 7, rank: 0 },
    Column { title: "step", width: 7, rank: 5 },
    Column { title: "allocated", width: 10, rank: 1 },
    Column { title: "reserved", width: 10, rank: 4 },
    Column { title: "unused", width: 6, rank: 6 },
    Column { title: "per step", width: 9, rank: 2 },
    Column { title: "driver", width: 10, rank: 7 },
];

const UNPROBED: [Column; 3] = [
    Column { title: "pid", width: 7, rank: 0 },
    Column { title: "driver", width: 10, rank: 1 },
    Column { title: "user", width: 10, rank: 2 },
];

/// The rows that would show everything.
pub(super) fn height(look: &Look) -> usize {
    let Some(device) = look.device() else { return 0 };
    let probed: Vec<_> = look.session.on_device(&device.id).collect();
    let strangers = strangers(device, &probed);
    2 + (probed.len() + strangers.len()).max(1) + usize::from(hint(&strangers, look).is_some())
}

/// Draws title, table and hint.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, look: &Look) {
    let Some(device) = look.device().filter(|_| area.height >= 2) else { return };
    let probed: Vec<_> = look.session.on_device(&device.id).collect();
    let strangers = strangers(device, &probed);
    let any_rank = probed.iter().any(|(it, _)| it.rank().is_some());
    let with_probes = !probed.is_empty();
    let mut rows: Vec<Row> = probed.iter().map(|(process, it)| probed_row(process, it, any_rank, look)).collect();
    rows.extend(strangers.iter().map(|it| stranger_row(it, with_probes, any_rank, look)));
    for (at, row) in rows.iter_mut().enumerate() {
        if at == look.ui.row && look.ui.focus == Focus::Processes {
            row.style = Some(look.style(Role::Selected));
        }
    }
    let height = usize::from(area.height);
    let hint = hint(&strangers, look).filter(|_| height > 3);
    let room = height.saturating_sub(2 + usize::from(hint.is_some()));
    let first = table::first_row(look.ui.row.min(rows.len().saturating_sub(1)), rows.len(), room.max(1));
    let shown = rows.len().min(room);
    let count = if shown < rows.len() { format!("{shown} of {}", rows.len()) } else { rows.len().to_string() };
    title(buffer, area, "processes", vec![Span::styled(count, look.style(Role::Dim))], look);
    let body = Rect { y: area.y.saturating_add(1), height: area.height.saturating_sub(1), ..area };
    if rows.is_empty() {
        let words = match (&device.processes, device.process_list()) {
            (_, Some(_)) => "none",
            (None, _) => "unknown: the driver has not said",
            (Some(_), None) => "unknown: the driver does not say",
        };
        put(buffer, body, 0, &Line::styled(format!(" {words}"), look.style(Role::Dim)));
    } else {
        let kept = Rect { height: u16::try_from(room + 1).unwrap_or(u16::MAX).min(body.height), ..body };
        let rows = rows.get(first..).unwrap_or_default();
        let dim = look.style(Role::Dim);
        // The text's place comes off the width that columns may fill.
        if with_probes {
            let skip = usize::from(!any_rank);
            table::draw(buffer, kept, PROBED.get(skip..).unwrap_or_default(), "command", rows, TEXT, dim);
        } else {
            table::draw(buffer, kept, &UNPROBED, "command", rows, TEXT, dim);
        }
    }
    if let Some(words) = hint {
        let line = Line::styled(cells::elide(&words, usize::from(area.width)), look.style(Role::Key));
        put(buffer, area, height.saturating_sub(1), &line);
    }
}

/// Processes that only the driver knows, the largest first.
fn strangers(device: &Device, probed: &[(&Process, &OnDevice)]) -> Vec<ProcessUse> {
    let mut out: Vec<ProcessUse> = device.process_list().unwrap_or_default().to_vec();
    out.retain(|it| probed.iter().all(|(process, _)| process.pid != Some(it.pid)));
    out.sort_by_key(|it| (std::cmp::Reverse(it.used), it.pid));
    out
}

fn probed_row(process: &Process, it: &OnDevice, any_rank: bool, look: &Look) -> Row {
    let alive = process.is_alive();
    let text = look.style(if alive { Role::Text } else { Role::Dim });
    let found = look
        .findings
        .device(&it.device)
        .and_then(|all| all.processes.iter().find(|its| its.probe == process.probe && its.ordinal == it.ordinal));
    let trend = it.growth.trend();
    let (rate, rate_style) = rate(trend, found, look);
    let mut figures = vec![
        (cells::known(process.any_pid(), ""), text),
        (cells::known(it.step, ""), text),
        (cells::bytes(it.counters.allocated.map(Bytes)), text),
        (cells::bytes(it.counters.reserved.map(Bytes)), text),
        (cells::share(found.and_then(|it| it.fragmentation.share())), text),
        (rate, rate_style),
        (cells::bytes(found.and_then(|it| it.driver_used)), text),
    ];
    if any_rank {
        figures.insert(0, (cells::known(process.rank(), ""), text));
    }
    let argv = process.hello.as_ref().map(|it| it.argv.as_slice()).unwrap_or_default();
    let command = shortened(argv.iter().map(String::as_str));
    let (state, role) = state(process, look);
    let words = if state.is_empty() { command } else { format!("{state}: {command}") };
    Row { figures, text: (words, look.style(role)), style: None }
}

fn rate(trend: Trend, found: Option<&ProcessFindings>, look: &Look) -> (String, Style) {
    let sign = if found.is_some_and(|it| it.approximate) { "≈" } else { "" };
    let (words, role) = match trend {
        Trend::TooFew { .. } => (cells::UNKNOWN.to_owned(), Role::Dim),
        Trend::Flat { .. } => ("flat".to_owned(), Role::Good),
        Trend::Growing { per_step, .. } => (cells::rate(per_step), Role::Warning),
        Trend::Shrinking { per_step, .. } => (cells::rate(per_step), Role::Good),
    };
    (format!("{sign}{words}"), look.style(role))
}

/// Where a probe is in its life, in a word; nothing while all is well.
fn state(process: &Process, look: &Look) -> (String, Role) {
    let silent = look.session.now.since(process.heard);
    match &process.life {
        Life::Found => ("no hello".to_owned(), Role::Dim),
        Life::Incompatible { protocol } => (format!("wire {protocol}"), Role::Warning),
        Life::CatchingUp => ("history".to_owned(), Role::Dim),
        Life::Live if silent > SILENT_US => (format!("silent {}", cells::ago(silent)), Role::Warning),
        Life::Live => (String::new(), Role::Dim),
        Life::Ended { .. } => ("ended".to_owned(), Role::Dim),
        Life::Gone { .. } => ("lost".to_owned(), Role::Warning),
    }
}

fn stranger_row(it: &ProcessUse, with_probes: bool, any_rank: bool, look: &Look) -> Row {
    let (text, dim) = (look.style(Role::Text), look.style(Role::Dim));
    let who = look.session.people.get(&it.pid);
    let figures = if with_probes {
        let unknown = || (cells::UNKNOWN.to_owned(), dim);
        let mut figures = vec![(it.pid.to_string(), text)];
        figures.extend((0..5).map(|_| unknown()));
        figures.push((cells::bytes(it.used), text));
        if any_rank {
            figures.insert(0, unknown());
        }
        figures
    } else {
        let user = who.map_or_else(|| cells::UNKNOWN.to_owned(), |it| cells::elide(&cells::foreign(&it.user), 10));
        vec![(it.pid.to_string(), text), (cells::bytes(it.used), text), (user, text)]
    };
    let command = who.map_or_else(|| cells::UNKNOWN.to_owned(), |it| shortened(words(it)));
    Row { figures, text: (command, dim), style: None }
}

/// The line that would probe a job: of the selected process, else of the largest that runs Python.
fn hint(strangers: &[ProcessUse], look: &Look) -> Option<String> {
    let python = |it: &&ProcessInfo| it.argv.first().is_some_and(|it| it.raw().contains("python"));
    let known = || strangers.iter().filter_map(|it| look.session.people.get(&it.pid));
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
