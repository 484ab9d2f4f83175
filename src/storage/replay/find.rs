//! Finds the files to replay together: those of one run.

use super::recording_set::{RecordingSet, Track};
use crate::{
    facts::{
        event::{Event, Line},
        text::Foreign,
    },
    storage::{
        host_index,
        input::{self, Input},
        pickle,
        recording::{Entry, Fault, Header, Reader},
        sink::store::{self, ENDING},
    },
};
use anyhow::{Context, Result, bail};
use rustix::fs::{MemfdFlags, memfd_create};
use std::{
    cmp::Reverse,
    collections::HashSet,
    fs::{self, File},
    io::{self, Read, Seek},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
};

/// Lines of a file that are searched for the run's id.
const LINES: usize = 4096;

/// Stands for standard input.
const STDIN: &str = "-";

/// Most bytes of a stream that are kept in memory.
const STREAM_MAX: u64 = 1 << 30;

/// The advice if there is no recording.
const ADVICE: &str = "`gpuwatch run -- CMD` records a job";

/// The chosen recordings, and notes about how they were chosen.
pub struct Found {
    /// The files of one run.
    pub recordings: RecordingSet,
    /// Notes, a line each.
    pub notes: Vec<String>,
}

/// Opens the files (`-` is standard input); for a directory, the files of the newest run in it.
///
/// # Errors
/// Fails if a file cannot be opened, is not a recording, has a newer format or is empty, and if files belong to
/// different runs.
pub fn find(paths: &[PathBuf]) -> Result<Found> {
    if let [directory] = paths
        && directory.is_dir()
    {
        return newest(directory);
    }
    let mut openings = paths.iter().map(|it| open(it)).collect::<Result<Vec<_>>>()?;
    let notes = once_each(&mut openings);
    let mut runs = openings.iter().filter_map(|it| Some((it.run.as_ref()?, &it.track.name)));
    if let Some((run, first)) = runs.next()
        && let Some((_, other)) = runs.find(|(it, _)| *it != run)
    {
        bail!("{first} and {other} are of different runs: name the files of one run");
    }
    let recordings = RecordingSet::new(openings.into_iter().map(|it| it.track).collect());
    Ok(Found { recordings, notes })
}

/// Opens one file.
///
/// # Errors
/// As [`find`].
pub(super) fn track(path: &Path) -> Result<Track> {
    open(path).map(|it| it.track)
}

/// Removes repeated files, and notes that.
fn once_each(openings: &mut Vec<Opening>) -> Vec<String> {
    let (mut seen, mut notes) = (HashSet::new(), Vec::new());
    openings.retain(|it| {
        let is_new = seen.insert(it.inode);
        if !is_new {
            notes.push(format!("{} was named before: it is read once", it.track.name));
        }
        is_new
    });
    notes
}

/// Returns the files of the run that began last.
fn newest(directory: &Path) -> Result<Found> {
    let shown = Foreign::new(directory.to_string_lossy());
    if host_index::is_one(directory) {
        bail!("{shown} has the recordings of several machines: name one of its files, or use `gpuwatch check {shown}`");
    }
    let (mut openings, mut notes) = (Vec::new(), Vec::new());
    for path in files(directory).with_context(|| format!("cannot read {shown}: {ADVICE}"))? {
        match open(&path) {
            Ok(it) => openings.push(it),
            Err(e) => notes.push(format!("left out: {e:#}")),
        }
    }
    openings.sort_by_key(|it| Reverse(it.track.header.as_ref().map(|header| header.started_unix_us)));
    let files = openings.len();
    let Some(first) = openings.first() else {
        notes.truncate(3);
        let why = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) };
        bail!("there is no recording in {shown}{why}: {ADVICE}");
    };
    let run = first.run.clone();
    let mut place = 0;
    openings.retain(|it| {
        place += 1;
        place == 1 || (run.is_some() && it.run == run)
    });
    let names: Vec<String> = openings.iter().map(|it| it.track.name.to_string()).collect();
    let of = if files == openings.len() { String::new() } else { format!(", the newest of {files} recordings there") };
    notes.push(format!("reading {}{of}", names.join(", ")));
    Ok(Found { recordings: RecordingSet::new(openings.into_iter().map(|it| it.track).collect()), notes })
}

/// Returns the recordings in a directory, oldest first.
pub(crate) fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory)?.flatten();
    let mut files: Vec<PathBuf> = entries
        .filter(|it| it.file_name().to_string_lossy().ends_with(ENDING))
        .map(|it| it.path())
        .filter(|it| it.is_file())
        .collect();
    files.sort_by_cached_key(|it| (store::began(it), it.clone()));
    Ok(files)
}

struct Opening {
    track: Track,
    run: Option<String>,
    /// Identifies the file, whatever path leads to it.
    inode: (u64, u64),
}

fn open(path: &Path) -> Result<Opening> {
    let is_stdin = path.as_os_str() == STDIN;
    let name = Foreign::new(if is_stdin { "standard input".into() } else { path.to_string_lossy() });
    let opened = if is_stdin { spooled(io::stdin().lock()) } else { file(path) };
    let mut file = opened.with_context(|| format!("cannot open {name}"))?;
    let about = file.metadata()?;
    if about.is_dir() {
        bail!("{name} is a directory: name it alone, or name files");
    }
    if pickle::is_one(path) {
        bail!("{name} is a memory snapshot of PyTorch: `gpuwatch snapshot FILE` shows it");
    }
    let inode = (about.dev(), about.ino());
    let (header, run) = beginning(&file).with_context(|| format!("cannot read {name}"))?;
    file.rewind()?;
    Ok(Opening { track: Track::new(file, name, header)?, run, inode })
}

/// Opens a file; copies a FIFO's contents into one.
fn file(path: &Path) -> io::Result<File> {
    match input::open(path)? {
        Input::File(file) => Ok(file),
        Input::Stream(stream) => spooled(stream),
    }
}

/// Copies a stream to a file, which can be read more than once.
fn spooled(stream: impl Read) -> io::Result<File> {
    let mut file = File::from(memfd_create("recording", MemfdFlags::CLOEXEC)?);
    if io::copy(&mut stream.take(STREAM_MAX), &mut file)? == STREAM_MAX {
        return Err(io::Error::other("it is longer than 1 GiB: name a file instead"));
    }
    file.rewind()?;
    Ok(file)
}

/// Whether it begins like a gzip file.
fn is_gzip(file: &File) -> bool {
    let mut first = [0; 2];
    file.read_exact_at(&mut first, 0).is_ok() && first == [0x1f, 0x8b]
}

/// Returns the header, and the id of the first run.
fn beginning(file: &File) -> Result<(Option<Header>, Option<String>)> {
    if is_gzip(file) {
        bail!("it is packed by gzip: unpack it, as in `zcat FILE | gpuwatch check -`");
    }
    let (mut header, mut events, mut others) = (None, 0, 0);
    let mut entries = Reader::new(file)?;
    for entry in entries.by_ref().take(LINES) {
        match entry {
            Ok(Entry::Header(it)) => header = Some(it),
            Ok(Entry::Event(event)) => {
                events += 1;
                if let Some(run) = run(&event) {
                    return Ok((header, Some(run)));
                }
            }
            Ok(Entry::Closed(_)) => {}
            Ok(Entry::Unknown) => others += 1,
            Err(Fault::NotALine { line: 1, why }) => bail!("it is not a recording ({why}); {ADVICE}"),
            // Keep what was read before the end of a truncated file.
            Err(_) if events > 0 => break,
            Err(fault @ Fault::Cut { .. }) if header.is_some() => {
                bail!("nothing had happened when its writer was killed, or has yet ({fault})")
            }
            Err(fault) => return Err(fault.into()),
        }
    }
    if events == 0 {
        let why = match (&header, others) {
            (Some(_), _) => "nothing happened while it was written",
            (None, 0) => "it is empty",
            (None, _) => "it is not a recording: another program wrote its lines",
        };
        bail!("{why}; {ADVICE}");
    }
    Ok((header, None))
}

/// Returns the id of the run that a hello belongs to.
fn run(event: &Event) -> Option<String> {
    let (_, Line::Hello(hello)) = event.line()? else { return None };
    hello.run.clone()
}
