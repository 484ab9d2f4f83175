//! The directory of recordings: their names, and which to remove when there are too many.
//!
//! No locks, because home directories may be on NFS: the name identifies the writer, and a file that may still be
//! written is never removed.

pub use crate::storage::recording::ENDING;
use crate::{
    sources::system,
    storage::{
        output::open_new,
        recording::{Entry, Header, Reader},
        traces,
    },
};
use etcetera::{BaseStrategy, choose_base_strategy};
use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// How a name writes the time.
const TIME: &str = "%Y%m%dT%H%M%SZ";

/// Most recordings in the user's directory, unless the config sets another number.
pub const FILES_MAX: usize = 200;

/// A directory of recordings and its limits.
#[derive(Clone, Debug)]
pub struct Store {
    /// Where.
    pub directory: PathBuf,
    /// Most recordings.
    pub files_max: usize,
    /// Most bytes of all recordings.
    pub bytes_max: u64,
}

/// The writer of a recording, from which its name is made.
#[derive(Clone, Debug)]
pub struct Writer {
    /// Wall clock at the start, µs of Unix time.
    pub started_unix_us: u64,
    /// Host name.
    pub host: String,
    /// The writing process.
    pub pid: u32,
    /// The run's id, or another identification.
    pub run: String,
}

impl Store {
    /// Returns `$XDG_STATE_HOME/gpuwatch/recordings` with 200 files and 4 GiB; `None` without a home directory.
    pub fn user() -> Option<Self> {
        let strategy = choose_base_strategy().ok()?;
        let directory = strategy.state_dir()?.join("gpuwatch").join("recordings");
        Some(Self { directory, files_max: FILES_MAX, bytes_max: 4 << 30 })
    }

    /// Creates the directory (0700) and a new file in it (0600), after removing the oldest beyond the limits.
    ///
    /// # Errors
    /// Fails if the directory or the file cannot be created.
    pub fn create(&self, writer: &Writer) -> io::Result<(PathBuf, fs::File)> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        self.prune(writer);
        let path = self.path(writer);
        let file = open_new(&path)?;
        Ok((path, file))
    }

    /// Returns the path of the file that [`Self::create`] makes for a writer.
    pub fn path(&self, writer: &Writer) -> PathBuf {
        self.directory.join(name(writer))
    }

    /// Removes the oldest recordings until one more fits, except those that may still be written. Files with other
    /// names belong to the user.
    fn prune(&self, writer: &Writer) {
        let mut recordings = recordings(&self.directory);
        recordings.retain(|it| is_named(&it.path));
        recordings.sort();
        let mut files = recordings.len();
        let mut bytes: u64 = recordings.iter().map(|it| it.bytes).sum();
        for old in recordings {
            if files < self.files_max && bytes < self.bytes_max {
                break;
            }
            let may_be_written = fs::metadata(&old.path).is_ok_and(|it| may_be_written(&old.path, &it, &writer.host));
            if !may_be_written && fs::remove_file(&old.path).is_ok() {
                traces::remove(&old.path);
                files -= 1;
                bytes -= old.bytes;
            }
        }
    }
}

/// Returns a name such as `20261120T224053Z_node7_4242_0123abcd.jsonl.zst`, which sorts by time.
fn name(writer: &Writer) -> String {
    let time = utc(writer.started_unix_us / 1_000_000, TIME);
    format!("{time}_{}_{}_{}{ENDING}", word(&writer.host), writer.pid, word(&writer.run))
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Recording {
    modified: SystemTime,
    path: PathBuf,
    bytes: u64,
}

fn recordings(directory: &Path) -> Vec<Recording> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries
        .flatten()
        .filter(|it| it.file_name().to_string_lossy().ends_with(ENDING))
        .filter_map(|it| {
            let about = it.metadata().ok().filter(fs::Metadata::is_file)?;
            let bytes = about.len() + traces::bytes(&it.path());
            Some(Recording { modified: about.modified().ok()?, path: it.path(), bytes })
        })
        .collect()
}

/// Returns whether a recording may still be written. Its first line identifies the writer, or in recordings of earlier
/// releases its name. A writer that cannot be seen from here, on another host or in another container, counts as
/// running if the file changed within a day.
pub fn may_be_written(path: &Path, about: &fs::Metadata, host: &str) -> bool {
    let Ok(modified) = about.modified() else { return false };
    // A file may seem to be of the future: its host's clock was ahead, or this one's was set back.
    let age = modified.elapsed().unwrap_or_else(|ahead| ahead.duration());
    let is_recent = age < Duration::from_secs(24 * 3600);
    let (of, pid) = match header(path) {
        Some(Header { host: of, writer: Some(writer), .. }) if of.raw() == host => match system::runs(&writer) {
            Some(runs) => return runs,
            // The host has rebooted since, or the writer is in another container.
            None => return is_recent && system::booted().is_none_or(|it| modified >= it),
        },
        Some(Header { writer: Some(_), .. }) => return is_recent,
        _ => named(path),
    };
    if of != word(host) {
        return is_recent;
    }
    // A process that started after the last write only reuses the writer's pid.
    pid.and_then(system::started).is_some_and(|it| it <= modified + Duration::from_secs(2))
}

/// Reads a recording's first line.
fn header(path: &Path) -> Option<Header> {
    match Reader::new(fs::File::open(path).ok()?).ok()?.next()? {
        Ok(Entry::Header(header)) => Some(header),
        _ => None,
    }
}

/// Parses the host and the pid in a recording's name.
fn named(path: &Path) -> (String, Option<u32>) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // A host's name may contain the separator; the parts after it do not.
    let mut parts = name.rsplitn(3, '_').skip(1);
    let pid = parts.next().and_then(|it| it.parse().ok());
    let host = parts.next().and_then(|it| it.split_once('_')).map_or("", |(_, host)| host);
    (word(host), pid)
}

/// Returns when a recording began, as [`name`] writes it: from its name, or from the first line of a file with another
/// name; empty if neither has it.
pub fn began(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match name.split('_').next().filter(|_| is_named(path)) {
        Some(time) => time.to_owned(),
        None => header(path).map_or_else(String::new, |it| utc(it.started_unix_us / 1_000_000, TIME)),
    }
}

/// Whether [`name`] makes such names.
fn is_named(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let time = name.split('_').next().unwrap_or_default().as_bytes();
    let is_time = time.len() == 16
        && time.iter().enumerate().all(|(place, it)| match place {
            8 => *it == b'T',
            15 => *it == b'Z',
            _ => it.is_ascii_digit(),
        });
    is_time && named(path).1.is_some()
}

/// Escapes a part of a name.
pub(super) fn word(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '.' { c } else { '-' }).take(64).collect()
}

/// Formats Unix seconds with `strftime`, in UTC; empty beyond the year 9999.
pub fn utc(unix_s: u64, format: &str) -> String {
    let at = i64::try_from(unix_s).ok().and_then(|it| jiff::Timestamp::from_second(it).ok());
    at.map_or_else(String::new, |it| it.strftime(format).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{facts::event::WritingProcess, storage::recording::encode_header};

    fn writer(pid: u32, run: &str) -> Writer {
        Writer { started_unix_us: 1_795_214_453_000_000, host: "no/de 7".into(), pid, run: run.into() }
    }

    #[test]
    fn seconds_become_dates() {
        let cases = [(0, "19700101T000000Z"), (951_827_696, "20000229T123456Z"), (1_795_214_453, "20261120T224053Z")];
        for (unix_s, text) in cases {
            assert_eq!(utc(unix_s, "%Y%m%dT%H%M%SZ"), text);
        }
    }

    #[test]
    fn the_oldest_go_first_and_never_one_that_is_being_written() {
        let home = tempfile::tempdir().unwrap();
        let store = Store { directory: home.path().join("state/recordings"), files_max: 3, bytes_max: 1 << 20 };
        let own_pid = std::process::id();
        let host = "no-de-7";
        let writer = Writer { host: host.into(), ..writer(own_pid, "run") };
        fs::create_dir_all(&store.directory).unwrap();
        let put = |name: &str, age_s: u64, text: &str| {
            let path = store.directory.join(name);
            fs::write(&path, text).unwrap();
            let file = fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age_s)).unwrap();
            path
        };
        let written = put(&format!("20260101T000000Z_{host}_{own_pid}_x{ENDING}"), 900, &by(host, system::writer()));
        let elsewhere = put(&format!("20260102T000000Z_other_1_x{ENDING}"), 800, "");
        let oldest = put(&format!("20260103T000000Z_{host}_4194305_x{ENDING}"), 700, "");
        let older = put(&format!("20260104T000000Z_{host}_4194305_x{ENDING}"), 600, "");
        let newer = put(&format!("20260105T000000Z_{host}_4194305_x{ENDING}"), 500, "");
        let foreign = put("notes.txt", 99_999, "");
        let own = put("the-run-that-leaked.jsonl.zst", 99_998, "");
        let dated = put("20260101T000000Z.jsonl.zst", 99_997, "");
        // A recording's traces go with it.
        let traces = [&oldest, &elsewhere].map(|it| traces::folder(it));
        for it in &traces {
            fs::create_dir(it).unwrap();
            fs::write(it.join("7_1.trace"), "{}").unwrap();
        }
        let (path, _) = store.create(&writer).unwrap();
        assert_eq!(traces.map(|it| it.exists()), [false, true]);
        let there: Vec<bool> =
            [&written, &elsewhere, &oldest, &older, &newer, &foreign, &own, &dated, &path].map(|it| it.exists()).into();
        assert_eq!(there, [true, true, false, false, false, true, true, true, true]);
    }

    /// The first line of a recording that this process of a host writes.
    fn by(host: &str, writer: Option<WritingProcess>) -> String {
        let host = host.into();
        encode_header(&Header {
            format: 1,
            gpuwatch: "0".into(),
            host,
            started_unix_us: 1,
            monotonic_us: 0,
            name: None,
            writer,
        })
    }

    #[test]
    fn a_writer_is_a_process_of_one_boot_and_not_the_next_one_with_its_pid() {
        let home = tempfile::tempdir().unwrap();
        let own = || system::writer().unwrap();
        let pid = std::process::id();
        let long_ago = 3 * 24 * 3600;
        let before_boot = SystemTime::now().duration_since(system::booted().unwrap()).unwrap().as_secs() + 60;
        let is_written = |name: &str, age_s: u64, text: &str| {
            let path = home.path().join(name);
            fs::write(&path, text).unwrap();
            let file = fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age_s)).unwrap();
            may_be_written(&path, &fs::metadata(&path).unwrap(), "my_host")
        };
        let boot_id = || "11111111-2222-3333-4444-555555555555".to_owned();
        let cases = [
            ("its process runs but writes rarely", long_ago, by("my_host", Some(own())), true),
            ("its number was reused", 0, by("my_host", Some(WritingProcess { start_ticks: 1, ..own() })), false),
            ("its process ended", 0, by("my_host", Some(WritingProcess { pid: 4_194_305, ..own() })), false),
            (
                "before a reboot",
                before_boot,
                by("my_host", Some(WritingProcess { boot_id: boot_id(), ..own() })),
                false,
            ),
            ("a host of the same name", 0, by("my_host", Some(WritingProcess { boot_id: boot_id(), ..own() })), true),
            ("another container", 0, by("my_host", Some(WritingProcess { pid_namespace: 1, ..own() })), true),
            ("another host", 60, by("other", Some(WritingProcess { start_ticks: 1, ..own() })), true),
            ("another host, long ago", long_ago, by("other", Some(own())), false),
        ];
        for (name, age_s, text, expected) in cases {
            assert_eq!(is_written("t_x_1_r.jsonl.zst", age_s, &text), expected, "{name}");
        }
        // Recordings of earlier releases have only their names, in which `_` becomes `-`.
        assert!(is_written(&format!("t_my-host_{pid}_r.jsonl.zst"), 0, &by("my_host", None)));
        assert!(is_written(&format!("t_my_host_{pid}_r.jsonl.zst"), 0, ""));
        assert!(!is_written("t_my-host_4194305_r.jsonl.zst", 0, &by("my_host", None)), "it ended");
        assert!(!is_written(&format!("t_my-host_{pid}_r.jsonl.zst"), long_ago, ""), "its number was reused");
        assert!(is_written("t_other_4194305_r.jsonl.zst", 60, ""));
        // The clock of one of the hosts was wrong.
        let path = home.path().join("t_other_4194305_r.jsonl.zst");
        let file = fs::File::options().write(true).open(&path).unwrap();
        for (ahead_s, expected) in [(3600, true), (long_ago, false)] {
            file.set_modified(SystemTime::now() + Duration::from_secs(ahead_s)).unwrap();
            assert_eq!(may_be_written(&path, &fs::metadata(&path).unwrap(), "my_host"), expected, "{ahead_s} s ahead");
        }
    }

    #[test]
    fn a_name_is_one_word_and_the_file_is_private() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        let store = Store { directory: home.path().join("r"), files_max: 3, bytes_max: 1 << 20 };
        let (path, file) = store.create(&writer(7, "../../x")).unwrap();
        assert_eq!(path.file_name().unwrap().to_str().unwrap(), "20261120T224053Z_no-de-7_7_..-..-x.jsonl.zst");
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(&store.directory).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
