//! The text of `gpuwatch once`: devices with their ladders, probed jobs, notices.

use super::{host_memory, is_suspended};
use crate::{
    facts::{
        event::{DeviceId, DriverState},
        figures::Figure,
        text::Foreign,
        units::Bytes,
    },
    model::{
        analysis::{episode::Axis, fragmentation::Stuck},
        findings::{DeviceFindings, Finding, Findings, ProcessFindings, follow, is_open},
        first_contact::contact,
        session::{
            Session,
            device::Device,
            process::{OnDevice, ProbeState, Process},
        },
    },
};
use std::fmt::Write;

const UNKNOWN: &str = "–";

/// Returns the whole report, with its last newline.
pub(super) fn report(session: &Session, findings: &Findings) -> String {
    let mut out = String::new();
    // Writing into a String cannot fail.
    let _ = write_report(&mut out, session, findings);
    out
}

fn write_report(out: &mut String, session: &Session, findings: &Findings) -> std::fmt::Result {
    driver(out, session)?;
    if session.devices.is_empty() {
        writeln!(out, "no devices")?;
        if let Some(it) = contact(session) {
            writeln!(out, "found: {}\nmissing: {}\nnext: `{}` {}", it.there.join("; "), it.missing, it.next, it.does)?;
        }
    }
    for (it, found) in session.devices.iter().zip(&findings.devices) {
        device(out, session, it, found, findings)?;
    }
    for process in &session.processes {
        if !process.is_alive() || process.devices.is_empty() {
            writeln!(out, "\n{}: {}", who(process), life(process))?;
            errors(out, process, findings)?;
        }
    }
    host_memory::write(out, session, findings)?;
    for it in session.losses.words() {
        writeln!(out, "\nnot seen: {it}")?;
    }
    for notice in session.notices.iter() {
        writeln!(out, "\nnote: {}", notice.value)?;
    }
    Ok(())
}

fn driver(out: &mut String, session: &Session) -> std::fmt::Result {
    let Some((maker, state)) = session.driver_shown() else { return writeln!(out, "driver: no answer yet") };
    match state {
        DriverState::Up { version: Some(version) } => writeln!(out, "driver {version}"),
        DriverState::Up { version: None } => writeln!(out, "driver {UNKNOWN}"),
        DriverState::Stalled { .. } => writeln!(
            out,
            "driver: a call has not come back, figures are missing; see whether {} hangs too, and dmesg",
            maker.row().tool
        ),
        DriverState::Absent { why } => writeln!(out, "driver: {why}"),
        DriverState::Off => writeln!(out, "driver: not asked (--no-nvml)"),
    }
}

fn device(
    out: &mut String,
    session: &Session,
    it: &Device,
    found: &DeviceFindings,
    findings: &Findings,
) -> std::fmt::Result {
    let index = it.index.map_or_else(|| UNKNOWN.to_owned(), |it| it.to_string());
    let unknown = Foreign::from(UNKNOWN);
    let id = if it.id.is_by_index() { "the driver reports no UUID".into() } else { Foreign::new(it.id.0.as_str()) };
    writeln!(out, "\ndevice {index}  {}  {id}", if it.name.is_empty() { &unknown } else { &it.name })?;
    if it.gone.is_some() {
        writeln!(out, "  gone from the driver's list: see `{}`, and dmesg for the reason", it.maker.row().list)?;
    }
    match it.memory.as_ref().map(|it| &it.value) {
        Some(Ok(memory)) => {
            writeln!(out, "  used {} of {}, free {}", memory.used, memory.total, memory.free)?;
            if let Some(it) = memory.unified {
                let swap = format!("swap {} of {}", it.swap.used, it.swap.size);
                writeln!(out, "  shares the system's memory: {} of what is free is page cache, {swap}", it.cache)?;
            }
        }
        Some(Err(why)) => writeln!(out, "  memory: {}", why.words(it.maker))?,
        None => {}
    }
    for rung in found.ladder.by_gap() {
        let bytes = rung.bytes.map_or_else(|| UNKNOWN.to_owned(), |it| it.to_string());
        let clash = if rung.inconsistent.is_some() { "  inconsistent: read at different instants" } else { "" };
        writeln!(out, "    {:<12} {bytes:>10}{clash}", rung.gap.row().name)?;
    }
    let sum = found.ladder.sum();
    writeln!(out, "    {:<12} {sum:>10}", if found.ladder.total.is_some() { "total" } else { "known" })?;
    for process in &found.processes {
        if let Some(probed) = session.process(process.probe) {
            probed_process(out, session, probed, process, findings)?;
        }
    }
    match it.processes.as_ref().map(|it| &it.value) {
        Some(Err(why)) => writeln!(out, "  processes: {}", why.words(it.maker))?,
        _ if found.foreign_pids => writeln!(
            out,
            "  the driver's process numbers are the host's: what is used here cannot be attributed; gpuwatch on the host can"
        )?,
        _ => unprobed(out, session, it)?,
    }
    Ok(())
}

/// Returns where the count of steps begins, if the probe was started in a running job.
fn attached(process: &Process) -> String {
    match process.attached_step() {
        None => String::new(),
        Some(0..=1) => " since attachment".to_owned(),
        Some(first) => format!(" (attached at step {first})"),
    }
}

/// Returns how long a step takes: `, 98 ms ± 2 ms a step`.
fn pace(on: &OnDevice) -> String {
    on.pace.typical().map_or_else(String::new, |it| format!(", {} a step", it.words()))
}

fn probed_process(
    out: &mut String,
    session: &Session,
    process: &Process,
    found: &ProcessFindings,
    findings: &Findings,
) -> std::fmt::Result {
    let Some(on) = process.devices.iter().find(|it| it.ordinal == found.ordinal) else { return Ok(()) };
    let step = on.step.map_or_else(|| UNKNOWN.to_owned(), |it| it.to_string());
    let bytes = |it: Option<u64>| it.map_or_else(|| UNKNOWN.to_owned(), |bytes| Bytes(bytes).to_string());
    writeln!(
        out,
        "  {}: step {step}{}{}, allocated {}, reserved {}{}",
        who(process),
        attached(process),
        pace(on),
        bytes(on.counters.allocated),
        bytes(on.counters.reserved),
        if is_suspended(session, process) { ", suspended" } else { "" }
    )?;
    if let Some(words) = process.pid.and_then(|it| figures(session, it, &on.device)) {
        writeln!(out, "    {words}")?;
    }
    if process.is_alive() {
        errors(out, process, findings)?;
    }
    let watched = on.growth.watched();
    let unit = if on.growth.axis() == Some(Axis::Seconds) { "s" } else { "steps" };
    let growth = match findings.growing(process.probe, on.ordinal) {
        Some(it) => {
            let (severity, cause, place) = (it.severity.name(), it.cause.id(), it.since());
            let growth = it.growth().unwrap_or_default();
            let open: Vec<&Finding> = findings.all.iter().filter(|it| is_open(it, session)).collect();
            let sharing = follow::sharing(it, &open, session);
            match (sharing.first(), follow::ranks(&sharing)) {
                (Some(first), Some(ranks)) if first.identity() == it.identity() => {
                    format!("{severity}: {growth} since {place}: {cause} ({ranks})")
                }
                (Some(Finding { rank: Some(first), .. }), Some(_)) => {
                    format!("{growth} since {place}, the same leak as of rank {first}")
                }
                _ => format!("{severity}: {growth} since {place}: {cause}"),
            }
        }
        None if watched < on.growth.enough() => {
            format!("not enough data to judge growth yet ({})", on.growth.progress())
        }
        None => format!("no growth over {watched} {unit}"),
    };
    let share = |it: Option<f64>| it.map_or_else(|| UNKNOWN.to_owned(), |share| format!("{:.0} %", share * 100.0));
    let stuck = match found.fragmentation.stuck {
        Stuck::NotMeasurable => "stuck not measurable with expandable segments".to_owned(),
        _ => format!("stuck {}", share(found.fragmentation.stuck_share())),
    };
    writeln!(out, "    {growth}; cached {} of reserved, {stuck}", share(found.fragmentation.share()))
}

/// Returns what a process uses beside device memory: `GPU 34 %, CPU 210 %, resident 3.00 GiB`; `None` if nothing is
/// known.
fn figures(session: &Session, pid: u32, device: &DeviceId) -> Option<String> {
    let known = session.figures.get(&pid)?;
    // A single report is too short to see a sleep.
    let words = Figure::TABLE.iter().filter(|it| it.figure != Figure::Asleep).filter_map(|it| {
        let value = it.unit.format(known.get(it.figure, device)?);
        Some(format!("{} {value}", it.label))
    });
    Some(words.collect::<Vec<_>>().join(", ")).filter(|it| !it.is_empty())
}

/// Writes a process's out-of-memory errors.
fn errors(out: &mut String, process: &Process, findings: &Findings) -> std::fmt::Result {
    let own = findings.all.iter().filter(|it| it.is_of(process) && it.follows.is_none());
    for (severity, sentence) in own.filter_map(|it| Some((it.severity, it.sentence.as_ref()?))) {
        writeln!(out, "    {}: {sentence}", severity.name())?;
    }
    Ok(())
}

/// Writes the processes that only the driver lists, each with the command line that would probe it.
fn unprobed(out: &mut String, session: &Session, it: &Device) -> std::fmt::Result {
    for used in it.process_list().unwrap_or_default() {
        if session.on_device(&it.id).any(|(process, _)| process.pid == Some(used.pid)) {
            continue;
        }
        let bytes = used.used.map_or_else(|| UNKNOWN.to_owned(), |it| it.to_string());
        let Some(who) = session.process_info.get(&used.pid) else {
            writeln!(out, "  pid {}: {bytes}, not a process that can be seen from here", used.pid)?;
            continue;
        };
        if who.suspended {
            // It may have a probe that cannot answer.
            let (pid, user) = (used.pid, &who.user);
            writeln!(out, "  pid {pid} of {user}: {bytes}, suspended; `kill -CONT {pid}` resumes it")?;
            continue;
        }
        if who.ended {
            let parent = who.parent.map_or_else(String::new, |it| format!(" until pid {it} waits for it"));
            writeln!(out, "  pid {} of {}: {bytes}; it has ended, and is listed{parent}", used.pid, who.user)?;
            continue;
        }
        let commands = who.commands_for_a_probe();
        writeln!(out, "  pid {} of {}: {bytes}; it has no probe", used.pid, who.user)?;
        if let Some(words) = figures(session, used.pid, &it.id) {
            writeln!(out, "    {words}")?;
        }
        if !commands.is_empty() {
            writeln!(out, "    this would give it one:")?;
        }
        for command in commands {
            writeln!(out, "    {command}")?;
        }
    }
    Ok(())
}

fn who(process: &Process) -> String {
    let pid = process.any_pid().map_or_else(|| UNKNOWN.to_owned(), |it| it.to_string());
    let rank = process.rank().map_or_else(String::new, |it| format!("rank {it}, "));
    let restart = process.hello.as_ref().and_then(|it| it.restart).filter(|it| *it > 0);
    let restart = restart.map_or_else(String::new, |it| format!("restart {it}, "));
    let argv: Vec<Foreign> =
        process.hello.iter().flat_map(|it| &it.argv).take(3).map(|it| Foreign::new(it.as_str())).collect();
    let words: Vec<String> = argv.iter().map(ToString::to_string).collect();
    format!("{rank}{restart}pid {pid} ({})", words.join(" "))
}

fn life(process: &Process) -> String {
    match &process.life {
        ProbeState::Found | ProbeState::CatchingUp => "its history is coming".to_owned(),
        ProbeState::Live => "live, nothing read yet".to_owned(),
        ProbeState::Incompatible { protocol } => format!("speaks protocol {protocol}, which this gpuwatch does not"),
        ProbeState::Ended { reason, .. } => format!("ended ({reason})"),
        ProbeState::Gone { why, .. } => why.to_string(),
    }
}
