//! The host's memory in the reports of `gpuwatch once`.

use crate::{
    facts::units::Bytes,
    model::{
        analysis::host::{self, HostLadder, Limit, LimitOf},
        findings::{Findings, Kind},
        session::{Session, host_state::Kill},
    },
};
use serde_json::{Value, json};
use std::fmt::{self, Write};

/// Writes the ladder of each limit at which the kernel kills, and what else is limited.
pub(super) fn write(out: &mut String, session: &Session, findings: &Findings) -> fmt::Result {
    let Some(memory) = session.host.memory.as_ref().map(|it| &it.value) else { return Ok(()) };
    if memory.machine.total.0 == 0 {
        return Ok(());
    }
    writeln!(out, "\nhost memory")?;
    for it in host::ladders(memory, &session.own_memory()) {
        ladder(out, &it, &host::words(&it.limit.of, memory))?;
    }
    for it in host::limits(memory) {
        if matches!(it.of, LimitOf::Shm | LimitOf::Slowed(_) | LimitOf::AddressSpace(_)) {
            writeln!(out, "  {}: used {} of {}", host::words(&it.of, memory), Bytes(it.used), Bytes(it.size))?;
        }
    }
    let swap = memory.machine.swap;
    if swap.size.0 > 0 {
        writeln!(out, "  swap: used {} of {}", swap.used, swap.size)?;
    }
    let own = [Kind::HostFull, Kind::WorkerGrowth, Kind::ShmFull, Kind::OomKilled];
    for it in findings.all.iter().filter(|it| own.contains(&it.kind) && it.is_active() && it.follows.is_none()) {
        if let Some(sentence) = &it.sentence {
            writeln!(out, "  {}: {sentence}", it.severity.name())?;
        }
    }
    Ok(())
}

fn ladder(out: &mut String, it: &HostLadder, name: &str) -> fmt::Result {
    let Limit { size, used, .. } = it.limit;
    writeln!(out, "  {name}: {} of {} cannot be given back", Bytes(used), Bytes(size))?;
    for part in &it.parts {
        let bytes = part.bytes.map_or_else(|| super::UNKNOWN.to_owned(), |it| it.to_string());
        writeln!(out, "    {:<12} {bytes:>10}", part.rung.row().name)?;
    }
    writeln!(out, "    {:<12} {:>10}", "limit", Bytes(it.sum()).to_string())
}

/// Returns it as JSON; `null` before it was read.
pub(super) fn value(session: &Session) -> Value {
    let Some(reading) = &session.host.memory else { return Value::Null };
    let memory = &reading.value;
    let ladders = host::ladders(memory, &session.own_memory());
    let limit = |limit: Limit| {
        let ladder = ladders.iter().find(|ladder| ladder.limit.of == limit.of);
        let rungs = |ladder: &HostLadder| -> Vec<Value> {
            ladder.parts.iter().map(|it| json!({"rung": it.rung.row().id, "bytes": it.bytes})).collect()
        };
        let path = if let LimitOf::Group(path) | LimitOf::Slowed(path) = &limit.of { Some(path) } else { None };
        let pids = match &limit.of {
            LimitOf::AddressSpace(pid) => Some(vec![*pid]),
            _ => ladder.map(|it| it.pids.clone()),
        };
        json!({
            "of": limit.of.id(),
            "words": host::words(&limit.of, memory),
            "path": path,
            "size": limit.size,
            "room": limit.room,
            "used": limit.used,
            "pids": pids,
            "rungs": ladder.map(rungs),
        })
    };
    let processes: Vec<Value> = memory
        .processes
        .iter()
        .map(|process| {
            let tree = session.host.trees.get(&process.pid);
            json!({"pid": process.pid, "anonymous": process.anonymous, "data": process.data, "tree": tree})
        })
        .collect();
    let kill = |it: &Kill| json!({"at_us": it.at, "of": it.of.id(), "words": it.place, "count": it.count});
    json!({
        "at_us": reading.at,
        "limits": host::limits(memory).into_iter().map(limit).collect::<Vec<_>>(),
        "machine": memory.machine,
        "shm": memory.shm,
        "processes": processes,
        "kills": session.host.kills.iter().map(kill).collect::<Vec<_>>(),
    })
}
