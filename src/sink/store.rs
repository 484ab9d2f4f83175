//! Where recordings are kept: their names, and which go when there are too many.
//!
//! No locks, as home directories are on NFS: a name says who writes, and a file that somebody may still
//! be writing is never removed.

use etcetera::{BaseStrategy, choose_base_strategy};
use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

/// What every recording's name ends in.
pub const ENDING: &str = ".jsonl.zst";

/// A directory of recordings and its bounds.
#[derive(Clone, Debug)]
pub struct Store {
    /// Where.
    pub directory: PathBuf,
    /// How many recordings are kept.
    pub files_max: usize,
    /// How many bytes they may hold together.
    pub bytes_max: u64,
}

/// Who writes a recording: what its name is made of.
#[derive(Clone, Debug)]
pub struct Writer {
    /// Wall clock at the start, µs of Unix time.
    pub started_unix_us: u64,
    /// Host name.
    pub host: String,
    /// The writing process.
    pub pid: u32,
    /// The run's id, or what else tells it apart.
    pub run: String,
}

impl Store {
    /// `$XDG_STATE_HOME/gpuwatch/recordings` with 200 files and 4 GiB; `None` without a home directory.
    pub fn user() -> Option<Self> {
        let strategy = choose_base_strategy().ok()?;
        let directory = strategy.state_dir()?.join("gpuwatch").join("recordings");
        Some(Self { directory, files_max: 200, bytes_max: 4 << 30 })
    }

    /// Makes the directory (0700) and a new file in it (0600), after removing the oldest beyond the bounds.
    ///
    /// # Errors
    /// When the directory or the file cannot be made.
    pub fn create(&self, writer: &Writer) -> io::Result<(PathBuf, fs::File)> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        self.prune(writer);
        let path = self.directory.join(name(writer));
        let file = open_new(&path)?;
        Ok((path, file))
    }

    /// Removes the oldest recordings until one more fits, except those that may still be written.
    fn prune(&self, writer: &Writer) {
        let mut recordings = recordings(&self.directory);
        recordings.sort();
        let mut files = recordings.len();
        let mut bytes: u64 = recordings.iter().map(|it| it.bytes).sum();
        for old in recordings {
            if files < self.files_max && bytes < self.bytes_max {
                break;
            }
            let may_be_written = fs::metadata(&old.path).is_ok_and(|it| may_be_written(&old.path, &it, &writer.host));
            if !may_be_written && fs::remove_file(&old.path).is_ok() {
                files -= 1;
                bytes -= old.bytes;
            }
        }
    }
}

/// Opens a file that must not exist yet, readable by its owner only.
///
/// # Errors
/// When it exists or cannot be made.
pub fn open_new(path: &Path) -> io::Result<fs::File> {
    let made = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    made.map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => {
            io::Error::new(e.kind(), "it exists already and is not written over: name another file")
        }
        _ => e,
    })
}

/// `20261120T224053Z_node7_4242_0123abcd.jsonl.zst`: sorting by name is sorting by time.
fn name(writer: &Writer) -> String {
    let word = |text: &str| -> String {
        text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '.' { c } else { '-' }).take(64).collect()
    };
    let time = utc(writer.started_unix_us / 1_000_000);
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
            Some(Recording { modified: about.modified().ok()?, path: it.path(), bytes: about.len() })
        })
        .collect()
}

/// Whether somebody may still write a recording. Of this host: its process still lives. Of another (a shared home
/// directory): it was touched within a day.
pub fn may_be_written(path: &Path, about: &fs::Metadata, host: &str) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut parts = name.split('_').skip(1);
    let of = parts.next().unwrap_or_default();
    let pid: Option<u32> = parts.next().and_then(|it| it.parse().ok());
    if of == host {
        return pid.is_some_and(|it| Path::new("/proc").join(it.to_string()).exists());
    }
    about.modified().is_ok_and(|it| it.elapsed().unwrap_or_default() < Duration::from_secs(24 * 3600))
}

/// Unix seconds as `20261120T224053Z`. The calendar is Howard Hinnant's: years begin in March, so that
/// the leap day is the last one.
pub fn utc(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(pid: u32, run: &str) -> Writer {
        Writer { started_unix_us: 1_795_214_453_000_000, host: "no/de 7".into(), pid, run: run.into() }
    }

    #[test]
    fn seconds_become_dates() {
        let cases = [(0, "19700101T000000Z"), (951_827_696, "20000229T123456Z"), (1_795_214_453, "20261120T224053Z")];
        for (unix_s, text) in cases {
            assert_eq!(utc(unix_s), text);
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
        let put = |name: &str, age_s: u64| {
            let path = store.directory.join(name);
            let file = fs::File::create(&path).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age_s)).unwrap();
            path
        };
        let written = put(&format!("a_{host}_{own_pid}_x{ENDING}"), 900);
        let elsewhere = put(&format!("b_other_1_x{ENDING}"), 800);
        let oldest = put(&format!("c_{host}_4194305_x{ENDING}"), 700);
        let older = put(&format!("d_{host}_4194305_x{ENDING}"), 600);
        let newer = put(&format!("e_{host}_4194305_x{ENDING}"), 500);
        let foreign = put("notes.txt", 99_999);
        let (path, _) = store.create(&writer).unwrap();
        let there: Vec<bool> =
            [&written, &elsewhere, &oldest, &older, &newer, &foreign, &path].iter().map(|it| it.exists()).collect();
        assert_eq!(there, [true, true, false, false, false, true, true]);
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
