//! Traces of jobs, beside their recordings: what the probe of each process wrote of its allocator's events.
//!
//! A trace is a line of JSON that describes the process, then pieces: a line with the number of bytes, and as many
//! bytes, a memory snapshot in gzip's format. The last line names the reason of the end. If the process was killed,
//! that line is missing. The reader ignores bytes after the last complete piece.

use crate::{
    facts::text::Foreign,
    model::trace::{Join, JoinedTrace, Pauses, Trace},
    storage::{
        input,
        pickle::{self, Fault, Reading},
        recording::ENDING,
    },
};
use flate2::read::ZlibDecoder;
use gpuwatch_probe::error_file;
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};
use thiserror::Error;

/// What the name of a recording's folder of traces ends in, and the name of each file in it.
const TRACE: &str = "trace";

/// Bytes of a line.
const LINE_MAX: u64 = 16 << 10;

/// Bytes of a packed piece.
const PIECE_MAX: u64 = 256 << 20;

/// Bytes of what a job keeps, unpacked.
const KEPT_MAX: u64 = 64 << 20;

/// The version of the format.
const FORMAT: u32 = 1;

/// Why a trace cannot be read.
#[derive(Debug, Error)]
pub enum Trouble {
    /// The file is not a trace.
    #[error("{0} is not a trace that gpuwatch wrote")]
    None(Foreign),
    /// A newer gpuwatch wrote it.
    #[error("the trace is of format {0}: read it with the gpuwatch that made it, or a newer one")]
    Newer(u32),
    /// A piece cannot be read.
    #[error(transparent)]
    Piece(#[from] Fault),
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A process's trace.
#[derive(Debug)]
pub struct Traced {
    /// The process.
    pub pid: u32,
    /// Its Python.
    pub python: PathBuf,
    /// The joined pieces.
    pub trace: Trace,
    /// How many times events were lost; the trace begins after the last loss.
    pub gaps: u64,
    /// Why it ends before the process did; `None` if it does not.
    pub ended: Option<String>,
    /// CPU time that tracing took in the background of the job, µs.
    pub cpu_us: u64,
    /// What it covers, of a window.
    pub window: Option<Window>,
    /// What the blocks of weights, gradients and optimizer state are, of a window with stacks.
    pub kept: Option<WindowKept>,
}

/// What a job keeps, in a window with stacks.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct WindowKept {
    /// The ends of steps: µs since 1970, and the number of the step that ended.
    pub boundaries: Vec<(u64, u64)>,
    /// Functions of modules: file, first line, name, and the module's path.
    pub modules: Vec<(String, u32, String, String)>,
    /// µs for which the job was paused.
    pub paused_us: u64,
    /// µs of the longest pause: by a piece, or by all that happens at the end of a step.
    pub longest_us: u64,
    /// Whether the pauses reached their limit with the first piece, so that no event of a step was written down.
    pub cut: bool,
    /// The most bytes that were allocated before the trace, by device.
    pub highest: BTreeMap<u32, u64>,
    /// Addresses by device and part: `weights`, `gradients` and `optimizer`.
    pub blocks: BTreeMap<u32, BTreeMap<String, BTreeSet<u64>>>,
}

/// The first line.
#[derive(Deserialize)]
struct Header {
    gpuwatch_trace: u32,
    pid: u32,
    python: PathBuf,
    ring: usize,
    reserved: u64,
}

/// Every further line.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Line {
    bytes: Option<u64>,
    /// Whether the piece has events, and no blocks.
    lean: bool,
    kept: Option<u64>,
    cpu_us: u64,
    unix_us: u64,
    took_us: u64,
    allocations: Option<u64>,
    end: Option<String>,
    steps: u64,
    ms: Option<u64>,
    refused: Option<String>,
}

/// Ends of traces that are complete.
const ENDS: &[&str] = &["exit", "the probe ended", "complete"];

/// Returns the path of a recording's folder of traces, which may not exist.
pub fn folder(recording: &Path) -> PathBuf {
    let name = recording.file_name().unwrap_or_default().to_string_lossy();
    recording.with_file_name(format!("{}.{TRACE}", name.strip_suffix(ENDING).unwrap_or(&name)))
}

/// Returns the traces of a recording, by name.
pub fn files(recording: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder(recording)).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries.map(|it| it.path()).filter(|it| is_named(it) && it.is_file()).collect();
    files.sort();
    files
}

/// Returns the latest trace of a process, by the pid that the process reports.
pub fn newest(recording: &Path, pid: u32) -> Option<PathBuf> {
    let start = format!("{pid}_");
    let is_of_it = |it: &PathBuf| it.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&start));
    files(recording).into_iter().rfind(is_of_it)
}

/// Returns the bytes of a recording's traces.
pub fn bytes(recording: &Path) -> u64 {
    files(recording).iter().filter_map(|it| fs::metadata(it).ok()).map(|it| it.len()).sum()
}

/// Removes a recording's traces, as far as that is possible, and returns their bytes.
pub fn remove(recording: &Path) -> u64 {
    let bytes = bytes(recording);
    for it in files(recording) {
        let _ = fs::remove_file(it);
    }
    // Files of another name are the user's.
    let _ = fs::remove_dir(folder(recording));
    bytes
}

/// Returns whether a file's name is that of a trace.
pub fn is_named(path: &Path) -> bool {
    path.extension().is_some_and(|it| it == TRACE)
}

/// Reads a process's trace, as far as it goes.
///
/// # Errors
/// Fails if the file cannot be read or is not a trace.
pub fn read(path: &Path) -> Result<Traced, Trouble> {
    let mut from = BufReader::new(input::open(path)?);
    let none = || Trouble::None(Foreign::new(path.to_string_lossy()));
    let header: Header = line(&mut from)?.and_then(|it| serde_json::from_str(&it).ok()).ok_or_else(none)?;
    if header.gpuwatch_trace != FORMAT {
        return Err(Trouble::Newer(header.gpuwatch_trace));
    }
    let mut join = Join::new(header.ring);
    let (mut ended, mut cpu_us) = (Some("its process was killed, or still runs".to_owned()), 0);
    let mut kept: Option<WindowKept> = None;
    // When the first piece was taken that has neither all events nor the blocks.
    let mut cut: Option<u64> = None;
    let (mut window, mut snapshots, mut allocations) = (None, Vec::new(), Vec::new());
    while let Some(it) = line(&mut from)?.and_then(|it| serde_json::from_str::<Line>(&it).ok()) {
        cpu_us += it.cpu_us;
        if let Some(why) = it.end {
            ended = Some(why).filter(|it| !ENDS.contains(&it.as_str()));
            window = it.ms.map(|ms| Window { steps: it.steps, ms, ..Window::default() });
        }
        if let Some(length) = it.kept.filter(|it| *it <= PIECE_MAX) {
            kept = serde_json::from_reader(ZlibDecoder::new(from.by_ref().take(length)).take(KEPT_MAX)).ok();
            continue;
        }
        let Some(length) = it.bytes.filter(|it| *it <= PIECE_MAX) else { break };
        let mut packed = Vec::new();
        from.by_ref().take(length).read_to_end(&mut packed)?;
        if (packed.len() as u64) < length {
            break;
        }
        let trace = match whole(pickle::read(packed.as_slice())) {
            Ok(trace) => trace,
            Err(why) if snapshots.is_empty() => return Err(why.into()),
            Err(why) => {
                ended = Some(format!("a piece of it is damaged: {why}"));
                break;
            }
        };
        cut = cut.or_else(|| (it.lean && !join.continues_with(&trace)).then_some(it.unix_us));
        if cut.is_some() {
            continue;
        }
        join.add(trace, snapshots.is_empty() && header.reserved > 0);
        snapshots.push((it.unix_us, it.took_us));
        allocations.extend(it.allocations);
    }
    let JoinedTrace { trace, mut gaps } = join.finish().unwrap_or_default();
    gaps += u64::from(cut.is_some());
    if gaps > 0
        && let Some(it) = &mut kept
    {
        let times: Vec<u64> = trace.events.range(0..trace.events.len()).filter_map(|it| it.unix_us).collect();
        let (first, last) = (times.iter().min().copied().unwrap_or(u64::MAX), times.iter().max().copied().unwrap_or(0));
        it.boundaries.retain(|it| it.0 >= first && (cut.is_none() || it.0 <= last));
    }
    if let Some(it) = &mut window {
        let Pauses { total_us, longest_us } = Pauses::of(&trace, &snapshots);
        (it.paused_us, it.longest_us, it.snapshots) = (total_us, longest_us, snapshots.len() as u64);
        let first = allocations.first().copied().unwrap_or_default();
        it.allocations = allocations.last().map_or(0, |last| last.saturating_sub(first));
    }
    Ok(Traced { pid: header.pid, python: header.python, trace, gaps, ended, cpu_us, window, kept })
}

/// Returns the contents of a piece that has its end.
fn whole(piece: Result<Reading, Fault>) -> Result<Trace, Fault> {
    let Reading { trace, ended, .. } = piece?;
    ended.map_or(Ok(trace), Err)
}

/// Returns the next line; `None` at the end, and if the rest is not a line.
fn line(from: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    from.take(LINE_MAX).read_until(b'\n', &mut bytes)?;
    if bytes.pop() != Some(b'\n') {
        return Ok(None);
    }
    Ok(String::from_utf8(bytes).ok())
}

/// What a window covered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Number of optimizer steps that it covers.
    pub steps: u64,
    /// How long it lasted, in milliseconds.
    pub ms: u64,
    /// Number of allocations during these steps.
    pub allocations: u64,
    /// Snapshots of the allocator.
    pub snapshots: u64,
    /// The longest pause of the job by one of them, in µs; an upper bound.
    pub longest_us: u64,
    /// All pauses together, in µs.
    pub paused_us: u64,
}

/// A window's file so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WindowState {
    /// The trace continues; allocations so far.
    Tracing(u64),
    /// The job cannot be traced, for this reason.
    Refused(String),
    /// The trace is complete.
    Complete,
}

/// Returns the name of a window's file.
pub fn window_name(pid: u32, id: u32) -> String {
    format!("{pid}.{id}.{TRACE}")
}

/// Returns how far a window is; `None` before its file exists.
///
/// # Errors
/// Fails if the file cannot be read, or is not a regular file of this user.
pub fn window_state(path: &Path) -> io::Result<Option<WindowState>> {
    let file = match error_file::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut from = BufReader::new(file);
    let (mut first, mut last) = (None, None);
    // The first line describes the process.
    line(&mut from)?;
    while let Some(it) = line(&mut from)?.and_then(|it| serde_json::from_str::<Line>(&it).ok()) {
        if let Some(why) = it.refused {
            return Ok(Some(WindowState::Refused(why)));
        }
        if it.end.is_some() {
            return Ok(Some(WindowState::Complete));
        }
        first = first.or(it.allocations);
        last = it.allocations.or(last);
        let bytes = it.bytes.or(it.kept).filter(|it| *it <= PIECE_MAX).and_then(|it| i64::try_from(it).ok());
        from.seek(SeekFrom::Current(bytes.unwrap_or(0)))?;
    }
    let allocations = last.unwrap_or(0).saturating_sub(first.unwrap_or(0));
    Ok(Some(WindowState::Tracing(allocations)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A snapshot without segments, of one device without events.
    const SNAPSHOT: &[u8] = b"\x80\x02}(X\x08\x00\x00\x00segments]X\x0d\x00\x00\x00device_traces]]au.";

    /// As where a disk lost a part of what it had accepted.
    #[test]
    fn a_trace_is_read_up_to_a_damaged_piece() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("7_1.trace");
        let write = |pieces: &[&[u8]]| {
            let header = "{\"gpuwatch_trace\":1,\"pid\":7,\"python\":\"/p\",\"ring\":9,\"reserved\":0}\n";
            let mut bytes = header.as_bytes().to_vec();
            for it in pieces {
                bytes.extend(format!("{{\"bytes\":{},\"cpu_us\":5}}\n", it.len()).as_bytes());
                bytes.extend(*it);
            }
            bytes.extend(b"{\"end\":\"exit\"}\n");
            fs::write(&path, bytes).unwrap();
            read(&path)
        };
        assert_eq!(write(&[SNAPSHOT, SNAPSHOT]).unwrap().ended, None);
        for damaged in [&[0; 70][..], &SNAPSHOT[..20]] {
            let it = write(&[SNAPSHOT, damaged, SNAPSHOT]).unwrap();
            assert!(it.ended.unwrap().starts_with("a piece of it is damaged: "), "{damaged:?}");
            assert_eq!(it.cpu_us, 10, "nothing after it is read");
        }
        assert!(write(&[&[0; 70]]).is_err());
    }
}
