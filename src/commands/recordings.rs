//! `gpuwatch recordings`: lists the recordings, newest first: when, what, how much, and the result.

use super::{Invocation, Subcommand};
use crate::{
    cli::{
        inputs,
        next_commands::{NextCommand, with_next, word},
    },
    commands::check::{Limits, Verdict, check},
    facts::{
        event::ending,
        text::{Foreign, escape_json},
        units::{self, Bytes},
    },
    jobs::recorder::summary::unjudged,
    model::{alerts::Policy, findings::Finding, session::process::Process},
    sources,
    storage::{
        output,
        replay::find::{self, find},
        sink::store,
        traces,
    },
};
use anyhow::Result;
use serde_json::{Value, json};
use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

/// The schema version of `--json`.
const SCHEMA: u32 = 1;

/// Findings named in a line of text.
const FINDINGS: usize = 2;

/// The arguments of `gpuwatch recordings`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  gpuwatch recordings --json | jq '.recordings[] | select(.exit_code != 0)'")]
pub(super) struct RecordingsArgs {
    /// A directory of recordings; by default that of `gpuwatch run`.
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
    /// The largest number to list.
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    last: usize,
    /// As JSON (schema 1).
    #[arg(long)]
    json: bool,
}

impl Subcommand for RecordingsArgs {
    fn run(&self, invocation: &Invocation) -> Result<u8> {
        let is_numbered = self.directory.is_none();
        let directory = self.directory.clone().map_or_else(inputs::store, Ok)?;
        output::write(|out| list(&directory, is_numbered, self, &invocation.policy, out))?;
        Ok(0)
    }
}

/// The state of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecordingState {
    /// Closed properly.
    Closed,
    /// Its writer is running.
    Running,
    /// Its writer was killed, or it is damaged: it has the part before that.
    Open,
    /// Nothing in it is readable.
    Unreadable,
}

impl RecordingState {
    fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Running => "running",
            Self::Open => "open",
            Self::Unreadable => "unreadable",
        }
    }
}

/// One recording.
struct ListedRecording {
    path: PathBuf,
    /// Counted from the oldest, if commands open it by its number.
    number: Option<usize>,
    bytes: Bytes,
    state: RecordingState,
    /// Wall clock at its beginning, µs of Unix time.
    started_unix_us: Option<u64>,
    host: Option<Foreign>,
    /// The name that its user gave it.
    called: Option<Foreign>,
    verdict: Verdict,
    trouble: Option<String>,
}

/// Lists the newest recordings of a directory; prints each as soon as it is read. Allowed findings are marked, and come
/// last. `is_numbered` says whether commands open its recordings by their numbers.
///
/// # Errors
/// Fails if the directory cannot be read, or the list cannot be written.
fn list(
    directory: &Path,
    is_numbered: bool,
    args: &RecordingsArgs,
    policy: &Policy,
    out: &mut impl Write,
) -> io::Result<()> {
    let (most, json, host) = (args.last, args.json, sources::host());
    let shown = Foreign::new(directory.to_string_lossy());
    let files = match find::files(directory) {
        Ok(files) => files,
        Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(e) => return Err(io::Error::new(e.kind(), format!("cannot read {shown}: {e}"))),
    };
    let left = files.len().saturating_sub(most);
    let newest = files.iter().enumerate().rev().take(most);
    let entries = newest.map(|(place, path)| ListedRecording {
        number: is_numbered.then_some(place + 1),
        ..entry(path, &host, policy)
    });
    if json {
        let recordings: Vec<Value> = entries.map(|it| it.json()).collect();
        let whole = json!({"schema": SCHEMA, "directory": shown, "recordings": recordings, "left_out": left});
        let newest = files.last().and_then(|it| word(it));
        let next = newest.map(|it| NextCommand::new(["check", &it], "judges the newest run"));
        return out.write_all(with_next(&escape_json(&format!("{whole:#}")), next.as_slice()).as_bytes());
    }
    if files.is_empty() {
        return writeln!(out, "there is no recording in {shown}: `gpuwatch run -- CMD` records a job");
    }
    writeln!(out, "{shown}")?;
    for it in entries {
        it.text(out)?;
        out.flush()?;
    }
    if left > 0 {
        writeln!(out, "\n{left} older: `gpuwatch recordings --last {}` lists them too", most + left)?;
    }
    Ok(())
}

fn entry(path: &Path, host: &str, policy: &Policy) -> ListedRecording {
    let about = fs::metadata(path).ok();
    let bytes = Bytes(about.as_ref().map_or(0, fs::Metadata::len) + traces::bytes(path));
    let mut entry = ListedRecording {
        path: path.to_owned(),
        number: None,
        bytes,
        state: RecordingState::Unreadable,
        started_unix_us: None,
        host: None,
        called: None,
        verdict: Verdict::default(),
        trouble: None,
    };
    match find(&[path.to_owned()]) {
        Ok(found) => {
            let header = found.recordings.tracks.first().and_then(|it| it.header.as_ref());
            entry.started_unix_us = header.map(|it| it.started_unix_us);
            entry.called = header.and_then(|it| it.name.clone());
            entry.host = header.map(|it| it.host.clone());
            entry.verdict = check(&found.recordings, &Limits::none(), policy);
            entry.trouble = entry.verdict.damage.first().cloned();
            entry.state = if entry.verdict.run.closed {
                RecordingState::Closed
            } else if entry.trouble.is_none() && about.is_some_and(|it| store::may_be_written(path, &it, host)) {
                RecordingState::Running
            } else {
                RecordingState::Open
            };
        }
        Err(e) => entry.trouble = Some(format!("{e:#}")),
    }
    entry
}

impl ListedRecording {
    fn name(&self) -> Foreign {
        Foreign::new(self.path.file_name().unwrap_or_default().to_string_lossy())
    }

    /// Returns the µs from its first event to its last.
    fn took_us(&self) -> Option<u64> {
        self.verdict.run.span_us.filter(|_| self.state != RecordingState::Unreadable)
    }

    fn argv(&self) -> Option<&Vec<String>> {
        let first = self.verdict.run.session.processes.iter().find_map(|it| it.hello.as_ref());
        first.map(|it| &it.argv)
    }

    /// Returns the most memory that probed processes had allocated on one device.
    fn peak(&self) -> Option<Bytes> {
        self.verdict.run.peaks.devices.values().filter_map(|it| it.allocated).max()
    }

    fn text(&self, out: &mut impl Write) -> io::Result<()> {
        let when = self.started_unix_us.map_or_else(|| "–".to_owned(), date);
        let took = self.took_us().map_or_else(|| "–".to_owned(), units::duration);
        let processes = self.verdict.run.session.processes.len();
        let ranks = units::counted(processes as u64, "process");
        let steps = self.verdict.run.steps().map_or_else(|| "no steps".to_owned(), |it| format!("step {it}"));
        let peak = self.peak().map_or_else(|| "–".to_owned(), |it| it.to_string());
        let called = self.called.as_ref().map_or_else(String::new, |it| format!("  {it}"));
        let number = self.number.map_or_else(String::new, |it| format!("{it}  "));
        writeln!(out, "\n{number}{}{called}", self.name())?;
        writeln!(out, "  {when}  {took}  {ranks}  {steps}  peak {peak}  {} on disk", self.bytes)?;
        if let Some(argv) = self.argv() {
            let words: Vec<_> = argv.iter().map(|it| Foreign::new(it.as_str()).to_string()).collect();
            writeln!(out, "  {}", words.join(" "))?;
        }
        writeln!(out, "  {}", self.went().join("; "))
    }

    /// Says whether the processes ended before the recording did; `None` without any.
    fn last_seen(&self) -> Option<&'static str> {
        let processes = &self.verdict.run.session.processes;
        let is_running = processes.iter().any(Process::is_alive);
        (!processes.is_empty()).then_some(if is_running { "still running at its end" } else { "ended" })
    }

    /// Describes the result.
    fn went(&self) -> Vec<String> {
        let mut out = Vec::new();
        if let Some(trouble) = &self.trouble {
            out.push(Foreign::new(trouble.as_str()).to_string());
        }
        if self.state == RecordingState::Unreadable {
            return out;
        }
        match self.verdict.run.session.job.and_then(|it| ending(it.code, it.signal)) {
            Some(how) => out.push(how),
            _ if self.state == RecordingState::Running => out.push("running".to_owned()),
            _ if self.state == RecordingState::Open && self.trouble.is_none() => {
                out.push("not closed: its writer was killed".to_owned());
            }
            // A job that was attached to, or started beside its recorder, has no exit code here.
            _ => out.extend(self.last_seen().map(str::to_owned)),
        }
        out.extend(self.verdict.run.session.losses.missing());
        let finding = |it: &Finding| {
            let cause = it.because().map_or_else(String::new, |cause| format!(" ({cause})"));
            format!("{}: {}{cause}", it.weight(), it.kind.name())
        };
        out.extend(self.verdict.findings.iter().take(FINDINGS).map(finding));
        let more = self.verdict.findings.len().saturating_sub(FINDINGS);
        if more > 0 {
            out.push(format!("{more} more"));
        }
        if self.verdict.findings.is_empty() {
            let unjudged = unjudged(&self.verdict.run.session);
            out.push(unjudged.unwrap_or_else(|| "nothing found".to_owned()));
        }
        out
    }

    fn json(&self) -> Value {
        let job = self.verdict.run.session.job.as_ref();
        let finding = |it: &Finding| {
            let state = if it.is_active() { "active" } else { "resolved" };
            json!({
                "kind": it.kind.name(),
                "cause": it.cause.id(),
                "severity": it.severity.name(),
                "standing": it.standing.name(),
                "state": state,
            })
        };
        json!({
            "file": self.name(),
            "number": self.number,
            "name": self.called,
            "state": self.state.name(),
            "trouble": self.trouble.as_ref().map(|it| Foreign::new(it.as_str())),
            "started_unix_us": self.started_unix_us,
            "took_us": self.took_us(),
            "host": self.host,
            "argv": self.argv(),
            "processes": self.verdict.run.session.processes.len(),
            "steps": self.verdict.run.steps(),
            "peak_allocated": self.peak(),
            "missing": self.verdict.run.session.losses.missing(),
            "bytes": self.bytes,
            "exit_code": job.and_then(|it| it.code),
            "signal": job.and_then(|it| it.signal),
            "findings": self.verdict.findings.iter().map(finding).collect::<Vec<_>>(),
        })
    }
}

/// Formats a date such as `2026-11-20 22:40:53Z`.
fn date(unix_us: u64) -> String {
    store::utc(unix_us / 1_000_000, "%Y-%m-%d %H:%M:%SZ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_read_by_people() {
        assert_eq!(date(1_795_214_453_000_000), "2026-11-20 22:40:53Z");
    }
}
