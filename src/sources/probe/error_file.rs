//! A probe's spill: lines of the wire in a file, from a process that may be gone.

use super::{
    directory::Found,
    known::Probes,
    lines::{Lines, Next, Report},
};
use crate::{
    facts::{
        event::{Fact, Line},
        text::Foreign,
    },
    sources::{EventSender, system},
};
use gpuwatch_probe::{
    error_file::{BYTES_MAX, name, open},
    wire::Hello,
};
use std::{fs, io::Read, path::Path};
use tokio::sync::mpsc;

/// The contents of a spill.
#[derive(Debug)]
pub(super) struct Spilled {
    pub(super) hello: Hello,
    /// The lines after the hello.
    pub(super) lines: Vec<Line>,
}

impl Spilled {
    /// Reads this probe's spill next to its socket.
    pub(super) fn of(hello: &Hello, socket: &Path) -> Option<Self> {
        let spilled = Self::read(&socket.with_file_name(name(hello.pid, hello.instance.as_deref()?)))?;
        (spilled.hello.instance == hello.instance).then_some(spilled)
    }

    /// Reads a file as far as it was written; its process may have been killed while writing.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let mut bytes = Vec::new();
        open(path).ok()?.take(BYTES_MAX as u64 + 1).read_to_end(&mut bytes).ok()?;
        let whole = bytes.iter().rposition(|it| *it == b'\n')?;
        let text = String::from_utf8_lossy(bytes.get(..whole)?);
        let mut lines = text.lines().map_while(|it| super::lines::parse(it).ok()).map(|it| *it);
        match lines.next()? {
            Line::Hello(hello) if hello.instance.is_some() => Some(Self { hello, lines: lines.collect() }),
            _ => None,
        }
    }

    /// Returns whether the process that wrote it still runs here, in which case its socket delivers the same.
    pub(super) fn is_written(&self) -> bool {
        let ends_after = |start_us: u64| self.hello.start_us.is_none_or(|it| it.abs_diff(start_us) < 2_000_000);
        system::runs_since_us(self.hello.pid).is_some_and(ends_after)
    }

    /// Returns the process's pid on this host; `None` if the process may see another pid.
    pub(super) fn pid(&self, path: &Path) -> Option<u32> {
        let is_here = self.hello.host == crate::sources::host() && !path.starts_with("/proc");
        is_here.then_some(self.hello.pid)
    }
}

/// Sends the lines of a gone probe's spill that its socket did not deliver. If the spill belongs to the job that this
/// reader was started with, no other reader needs it.
pub(super) async fn read(
    found: Found,
    spilled: Spilled,
    probes: Probes,
    is_run: bool,
    sender: EventSender,
    reports: mpsc::Sender<Report>,
) {
    let pid = spilled.pid(&found.path);
    let instance = spilled.hello.instance.as_deref().unwrap_or_default();
    let introduced = probes.introduce_spilled(instance, pid);
    if let Ok(known) = introduced {
        let mut lines = Lines::after(known.seq, known.probe, &sender);
        if known.seq == 0 {
            lines.find(pid, Foreign::new(found.path.to_string_lossy()), &spilled.hello).await;
        }
        for line in spilled.lines {
            let line = Box::new(line);
            let _ = if known.seq == 0 { lines.pass_on(line).await } else { lines.pass_on_news(line).await };
        }
        if known.seq == 0 && !lines.has_bye {
            let why = Foreign::new("the process ended without a word: was it killed?");
            sender.send(Fact::ProbeGone { probe: known.probe, why }).await;
        }
        probes.part(known.probe, lines.seq);
    }
    // If a socket is still read, its reader may need the file.
    if is_run && introduced.is_ok() {
        let _ = fs::remove_file(&found.path);
    }
    let _ = reports.send(Report::Ended(found.id, Next::Again)).await;
}
