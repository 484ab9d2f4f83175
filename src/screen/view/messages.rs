//! Messages that need attention now: errors first, each with the next step.

use super::{RenderContext, cells, device_name, put};
use crate::{
    facts::{
        event::{DriverState, ReadError, ending, wire::Oom},
        maker::Maker,
        units::{self, Bytes},
    },
    model::{
        analysis::{cause::Cause, severity::Severity},
        findings::{Finding, Kind},
        first_contact::locked,
        session::{
            device::Device,
            process::{ProbeState, Process},
        },
    },
    screen::{theme::Role, ui::Screen},
};
use ratatui::{buffer::Buffer, layout::Rect, text::Line};

/// A broken connection is shown here for this long, in µs; then only in the table.
const GONE_US: u64 = 60_000_000;

/// The beginning of an out-of-memory error's sentence, which the message words differently.
const SENTENCE: &str = "Out of memory";

/// Most sizes of live blocks listed for an out-of-memory error.
const GROUPS: usize = 4;

/// A line and its role.
pub(super) type Message = (Role, String);

/// Returns all messages, worst first.
pub(super) fn messages(context: &RenderContext) -> Vec<Message> {
    let mut out: Vec<Message> = context.session.processes.iter().filter_map(|it| oom(it, context)).collect();
    let session = context.session;
    if let Some(end) = &session.job {
        let role = match (end.code, end.signal) {
            (Some(0), _) => Role::Good,
            (None, None) => Role::Warning,
            _ => Role::Bad,
        };
        let how = ending(end.code, end.signal).unwrap_or_else(|| "how is not known".to_owned());
        // The age of an end in a recording says nothing.
        let when = context.progress.is_none().then(|| format!(" {} ago", units::duration(session.now.since(end.at))));
        out.push((role, format!("the command has ended{}: {how}", when.unwrap_or_default())));
    }
    match session.driver_shown() {
        Some((maker, DriverState::Stalled { since })) => out.push((
            Role::Bad,
            format!(
                "the driver has not answered for {}: its figures are that old; see whether {} hangs too, and dmesg",
                units::duration(session.now.since(*since)),
                maker.row().tool
            ),
        )),
        // Without a device, the screen shows it, with the next command.
        Some((_, DriverState::Absent { why })) if !session.devices.is_empty() => {
            out.push((Role::Warning, cells::foreign(why)));
        }
        _ => {}
    }
    let others =
        session.surroundings.as_deref().filter(|_| session.processes.is_empty() && !session.devices.is_empty());
    out.extend(others.and_then(locked).map(|it| (Role::Dim, it)));
    out.extend(context.device().and_then(|it| trouble(it, context)));
    out.extend(others_in_trouble(context));
    if context.found().is_some_and(|it| it.foreign_pids) {
        out.push((
            Role::Warning,
            "the driver numbers processes as another pid namespace does: its figures cannot be given to anyone; run \
             gpuwatch on the host"
                .to_owned(),
        ));
    }
    out.extend(session.losses.words().into_iter().map(|it| (Role::Warning, it)));
    out.extend(session.process_info.values().filter(|it| it.suspended).map(|it| suspended(it.pid, context)));
    out.extend(session.processes.iter().filter_map(|it| life(it, context)));
    out.extend(session.notices.iter().next_back().map(|it| (Role::Dim, cells::foreign(&it.value))));
    out.extend(context.ui.complaint.iter().map(|it| (Role::Dim, cells::foreign(it))));
    out
}

/// Wraps the messages to a width, with at most `most` lines. A message ends with the next step, which must not be cut
/// off. `key` opens the messages that have no room.
pub(super) fn lines(messages: &[Message], width: usize, most: usize, key: Option<&str>) -> Vec<Message> {
    let mut out: Vec<Message> = Vec::new();
    for (at, (role, text)) in messages.iter().enumerate() {
        let wrapped = cells::wrapped(text, width);
        let left = most - out.len();
        let more = messages.len() - at - 1;
        if wrapped.len() > left || (wrapped.len() == left && more > 0) {
            // As much of it as fits, and the number of omitted ones.
            let tail = match key {
                _ if more == 0 => String::new(),
                Some(key) => format!(" (+{more}: {key})"),
                None => format!(" (+{more} more)"),
            };
            let rest = wrapped.get(left.saturating_sub(1)..).unwrap_or_default().join(" ");
            out.extend(wrapped.iter().take(left.saturating_sub(1)).map(|it| (*role, it.clone())));
            if left > 0 {
                out.push((*role, cells::elide(&rest, width.saturating_sub(cells::width(&tail))) + &tail));
            }
            break;
        }
        out.extend(wrapped.into_iter().map(|it| (*role, it)));
    }
    out
}

/// Draws lines that fit already.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, lines: &[Message], context: &RenderContext) {
    for (row, (role, text)) in lines.iter().enumerate() {
        put(buffer, area, row, &Line::styled(text.as_str(), context.style(*role)));
    }
}

fn oom(process: &Process, context: &RenderContext) -> Option<Message> {
    let oom = &process.ooms.last()?.reported;
    let on = process.devices.iter().find(|it| it.ordinal == oom.device);
    let device = on.and_then(|it| context.session.device(&it.device));
    let place = device.map_or_else(|| format!("device {}", oom.device), device_name);
    let step = oom.step.map_or_else(String::new, |it| format!(", step {it}"));
    let total = on.and_then(|it| it.counters.device_total);
    let limit = match oom.limit.zip(total) {
        Some((limit, total)) if limit < total => format!(", its limit is {}", Bytes(limit)),
        _ => String::new(),
    };
    // A sentence has no column to keep a unit for.
    let size = |it: Option<u64>| it.map_or_else(|| cells::UNKNOWN.to_owned(), |bytes| Bytes(bytes).to_string());
    let (tried, free) = (size(oom.tried), size(oom.device_free));
    let who = short(process);
    let is_it = |it: &&Finding| it.kind == Kind::Oom && it.is_of(process) && it.first_alert_at.0 == oom.at_us;
    let found = context.findings.all.iter().find(is_it);
    // The job expects it.
    if found.is_some_and(|it| it.cause == Cause::SizeSearch) {
        return None;
    }
    // The cause is worth more than its figures; the sentence may have the first two already. The screen of the device
    // has it in its alerts.
    let is_listed = |it: &&Finding| {
        let listed = context.ui.alerts(context.findings, context.session);
        context.ui.screen == Screen::Device && listed.iter().any(|alert| alert.identity() == it.identity())
    };
    let sentence = found.filter(|it| !is_listed(it)).and_then(|it| it.sentence.as_deref()?.strip_prefix(SENTENCE));
    // What follows is the cause, or the line that asked for the memory.
    let why = sentence.map(|it| cells::raw(it.trim_start_matches([':', ' '])));
    let is_grown = found.is_none_or(|it| it.led_by.is_some());
    let figures = is_grown.then(|| format!("Asked for {tried}, {free} was free{limit}"));
    let rest = figures.into_iter().chain(held(oom)).collect::<Vec<_>>().join(". ");
    let words = why.into_iter().chain(Some(rest)).collect::<Vec<_>>().join(" ");
    let role = if found.is_some_and(|it| it.severity == Severity::Info) { Role::Warning } else { Role::Bad };
    Some((role, format!("OUT OF MEMORY  {who} on {place}{step}: {}", words.trim_end())))
}

/// Describes the allocator then: the largest hole, and the sizes with the most memory.
fn held(oom: &Oom) -> Vec<String> {
    // Blocks are small: in one unit for all, most would be 0.
    let size = |bytes: u64| Bytes(bytes).to_string();
    let hole = oom.largest_free.map(|it| format!("Largest unused block: {}", size(it)));
    let sizes: Vec<_> =
        oom.blocks.iter().take(GROUPS).map(|(bytes, count)| format!("{count} x {}", size(*bytes))).collect();
    let more = oom.blocks.len() > GROUPS || oom.other_blocks.is_some_and(|it| it > 0);
    let live = format!("Live blocks: {}{}", sizes.join(", "), if more { ", …" } else { "" });
    hole.into_iter().chain((!sizes.is_empty()).then_some(live)).collect()
}

fn trouble(device: &Device, context: &RenderContext) -> Option<Message> {
    let name = device_name(device);
    if let Some(gone) = device.gone {
        let ago = units::duration(context.session.now.since(gone));
        let list = device.maker.row().list;
        let words = format!("{name} has been gone from the driver's list for {ago}; see {list}, and dmesg");
        return Some((Role::Bad, words));
    }
    if let Some(trouble) = memory_trouble(device) {
        return Some(refused(&names(context, device.maker, trouble), "memory", device.maker, trouble));
    }
    match device.processes.as_ref().map(|it| &it.value) {
        Some(Err(ReadError::Suspended)) => None,
        Some(Err(trouble)) => Some(refused(&name, "process list", device.maker, trouble)),
        _ => unreported(device, &name),
    }
}

fn memory_trouble(device: &Device) -> Option<&ReadError> {
    let trouble = device.memory.as_ref().filter(|_| device.gone.is_none())?.value.as_ref().err();
    // The list of devices shows which ones sleep, which is as it should be.
    trouble.filter(|it| **it != ReadError::Suspended)
}

fn trouble_of(device: &Device) -> Option<(Maker, &ReadError)> {
    Some((device.maker, memory_trouble(device)?))
}

/// Names the devices of a maker whose memory has the same trouble.
fn names(context: &RenderContext, maker: Maker, trouble: &ReadError) -> String {
    let is_same = |it: &&Device| it.maker == maker && memory_trouble(it) == Some(trouble);
    let same = context.session.devices.iter().filter(is_same);
    same.map(device_name).collect::<Vec<_>>().join(", ")
}

/// Returns what is wrong with devices that are not selected: once for all with the same trouble.
fn others_in_trouble(context: &RenderContext) -> Vec<Message> {
    let mut known: Vec<(Maker, &ReadError)> = context.device().and_then(trouble_of).into_iter().collect();
    let mut out = Vec::new();
    for (maker, trouble) in context.session.devices.iter().filter_map(trouble_of) {
        if !known.contains(&(maker, trouble)) {
            known.push((maker, trouble));
            out.push(refused(&names(context, maker, trouble), "memory", maker, trouble));
        }
    }
    out
}

fn refused(name: &str, what: &str, maker: Maker, trouble: &ReadError) -> Message {
    let why = match trouble {
        ReadError::Other(words) => cells::foreign(words),
        known => known.words(maker),
    };
    (if matches!(trouble, ReadError::Lost) { Role::Bad } else { Role::Warning }, format!("{name} {what}: {why}"))
}

fn unreported(device: &Device, name: &str) -> Option<Message> {
    let list = device.process_list()?;
    let words = "the driver does not say what its processes use (WSL does not, MIG to root only): it is unattributed";
    let is_unreported = !list.is_empty() && list.iter().all(|it| it.used.is_none());
    is_unreported
        .then(|| (Role::Warning, format!("{name}: {words}; run jobs with `gpuwatch run`, or `gpuwatch attach` them")))
}

fn suspended(pid: u32, context: &RenderContext) -> Message {
    let probed = context.session.processes.iter().find(|it| it.pid == Some(pid) && it.is_alive());
    let name = probed.map_or_else(|| format!("pid {pid}"), who);
    (Role::Warning, format!("{name} is suspended: it neither runs nor reports; `kill -CONT {pid}` resumes it"))
}

fn life(process: &Process, context: &RenderContext) -> Option<Message> {
    match &process.life {
        ProbeState::Incompatible { protocol } => Some((
            Role::Warning,
            format!(
                "{} speaks version {protocol} of the wire: use the same release of gpuwatch for both",
                who(process)
            ),
        )),
        ProbeState::Gone { at, why } if context.session.now.since(*at) < GONE_US => {
            Some((Role::Warning, format!("{}: {}", who(process), cells::foreign(why))))
        }
        _ => None,
    }
}

/// Returns `rank 3 (pid 4242)`, or the known part of it.
pub(super) fn who(process: &Process) -> String {
    let pid = process.any_pid().map_or_else(|| "a probe".to_owned(), |pid| format!("pid {pid}"));
    process.rank().map_or_else(|| pid.clone(), |rank| format!("rank {rank} ({pid})"))
}

/// Returns `rank 3`, or `pid 4242`.
pub(super) fn short(process: &Process) -> String {
    process.rank().map_or_else(|| who(process), |rank| format!("rank {rank}"))
}
