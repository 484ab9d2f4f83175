//! Short names of the recordings in the user's folder: `last`, a number, a name, the beginning of a name.

use super::find;
use crate::{
    facts::text::Foreign,
    sources::system,
    storage::{
        recording::{Entry, Reader},
        sink::store::{ENDING, FILES_MAX},
    },
};
use anyhow::{Context, Result, bail};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

/// Stands for the newest recording.
const LAST: &str = "last";

/// Most candidates that an error lists.
const LISTED: usize = 5;

/// Returns the recording that a name stands for: `last`; its number, counted from the oldest, as `gpuwatch recordings`
/// lists it; its file's name, with or without the ending; the name that its user gave it, of several the newest; the
/// beginning of one of these names. A path is returned as it is, and so is a name that exists in the current folder.
///
/// # Errors
/// Fails if the folder cannot be read, if no recording has the name, and if names of several begin with it.
pub fn resolve(folder: &Path, named: &Path) -> Result<PathBuf> {
    let Some(name) = named.to_str().filter(|it| is_short(it)) else { return Ok(named.to_owned()) };
    if is_here(named) {
        return Ok(named.to_owned());
    }
    let all = all(folder)?;
    let place = if name == LAST { Some(all.len()) } else { number(name) };
    let at = |place: usize| all.get(place.checked_sub(1)?);
    let own = || all.iter().find(|it| is_file(it, name));
    let called = || all.iter().rev().find(|it| called(it).as_deref() == Some(name));
    if let Some(path) = place.and_then(at).or_else(own).or_else(called) {
        return Ok(path.clone());
    }
    let candidates = beginning(&all, name);
    let shown = Foreign::new(name);
    match &candidates.values().collect::<Vec<_>>()[..] {
        [path] => Ok((*path).clone()),
        [] if is_process(name) => bail!(
            "there is neither a file nor a recording {shown}: `gpuwatch recordings` lists the recordings, and \
             `gpuwatch attach {shown}` records the process of this number"
        ),
        [] if all.is_empty() => {
            bail!("there is no file {shown}, and no recording yet: `gpuwatch run -- CMD` records a job")
        }
        [] => bail!("there is neither a file nor a recording {shown}: `gpuwatch recordings` lists the recordings"),
        several => {
            let listed: Vec<String> = candidates.keys().take(LISTED).map(|it| Foreign::new(it).to_string()).collect();
            let more = several.len().saturating_sub(LISTED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            bail!("several recordings begin with {shown}: {}{more}; write more of the name", listed.join(", "))
        }
    }
}

/// Returns the shortest name that [`resolve`] finds a recording by now: the one that its user gave it, its number, or
/// that of its file.
/// `None` if it is not in the folder.
pub fn of(folder: &Path, recording: &Path) -> Option<String> {
    let all = find::files(folder).ok()?;
    let place = all.iter().position(|it| it == recording)?;
    // In a full folder, each new recording takes the place of the oldest, and the numbers move.
    let number = Some((place + 1).to_string()).filter(|_| all.len() < FILES_MAX);
    let names = [called(recording), number, stem(recording).map(str::to_owned)];
    let opens = |name: &String| resolve(folder, Path::new(name)).is_ok_and(|it| it == recording);
    names.into_iter().flatten().find(opens)
}

/// Returns whether a name stands for the newest recording, and not for a file of that name.
pub fn is_last(named: &Path) -> bool {
    named.as_os_str() == LAST && !is_here(named)
}

/// Whether the current folder has something of this name, even if that is a link to nothing.
fn is_here(named: &Path) -> bool {
    fs::symlink_metadata(named).is_ok()
}

/// Returns whether a recording can have this name: it must be neither a path, `last`, a number nor a flag.
pub fn is_free(name: &str) -> bool {
    let is_path = matches!(name, "." | "..");
    is_short(name) && !is_path && name != LAST && number(name).is_none() && !name.starts_with('-')
}

/// Whether a text is a name in place of a path or of standard input.
fn is_short(text: &str) -> bool {
    !text.is_empty() && text != "-" && !text.contains('/')
}

fn number(text: &str) -> Option<usize> {
    text.parse().ok().filter(|_| text.bytes().all(|it| it.is_ascii_digit()))
}

/// Whether this is the number of a process that runs, and too high for a recording's.
fn is_process(name: &str) -> bool {
    number(name).is_some_and(|it| it > FILES_MAX) && name.parse().is_ok_and(|pid| system::runs_since(pid).is_some())
}

/// Returns the recordings, oldest first; none if there is no such folder.
fn all(folder: &Path) -> Result<Vec<PathBuf>> {
    match find::files(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.with_context(|| {
            let shown = Foreign::new(folder.to_string_lossy());
            format!("cannot read the recordings in {shown} (name a file by its path, as in ./FILE)")
        }),
    }
}

/// Returns the file's name without the ending.
fn stem(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    Some(name.strip_suffix(ENDING).unwrap_or(name))
}

fn is_file(path: &Path, name: &str) -> bool {
    stem(path).is_some_and(|it| it == name.strip_suffix(ENDING).unwrap_or(name))
}

/// Returns the name that the user gave a recording.
fn called(path: &Path) -> Option<String> {
    match Reader::new(File::open(path).ok()?).ok()?.next()? {
        Ok(Entry::Header(header)) => header.name.map(|it| it.raw().to_owned()),
        _ => None,
    }
}

/// Returns the names that begin with a text, and the newest recording of each.
fn beginning(all: &[PathBuf], text: &str) -> BTreeMap<String, PathBuf> {
    let begins = |name: &String| name.starts_with(text);
    let name = |path: &PathBuf| called(path).filter(begins).or_else(|| stem(path).map(str::to_owned).filter(begins));
    all.iter().filter_map(|path| Some((name(path)?, path.clone()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::recording::{FORMAT, Header, encode_header};
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    /// A folder with recordings of these days of November, and the names that users gave them.
    fn folder(recordings: &[(&str, Option<&str>)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (stem, name) in recordings {
            let header = encode_header(&Header {
                format: FORMAT,
                gpuwatch: "0".into(),
                host: "h".into(),
                started_unix_us: 1_795_214_453_000_000,
                monotonic_us: 0,
                name: name.map(Foreign::from),
                writer: None,
            });
            fs::write(folder.path().join(format!("{stem}{ENDING}")), header).unwrap();
        }
        folder
    }

    fn found(folder: &Path, name: &str) -> Result<String, String> {
        let found = resolve(folder, Path::new(name)).map_err(|e| format!("{e:#}"))?;
        Ok(stem(&found).unwrap().to_owned())
    }

    const THREE: [(&str, Option<&str>); 3] = [
        ("20261118T010000Z_h_1_x", Some("night")),
        ("20261119T010000Z_h_1_x", Some("night")),
        ("20261121T010000Z_h_1_x", Some("noon")),
    ];

    #[test]
    fn last_and_numbers_count_from_the_oldest() {
        let home = folder(&THREE);
        for (name, day) in [("1", "18"), ("2", "19"), ("3", "21"), ("last", "21")] {
            assert_eq!(found(home.path(), name).unwrap(), format!("202611{day}T010000Z_h_1_x"), "{name}");
        }
        for none in ["0", "4", "+1", "99999999999999999999999"] {
            let why = found(home.path(), none).unwrap_err();
            assert!(why.contains("neither a file nor a recording") && why.contains("`gpuwatch recordings`"), "{why}");
        }
        // A file that the user put there counts by when it began, not by its name.
        let copied = folder(&[("zzz", None), ("20261121T010000Z_h_1_x", None)]);
        assert_eq!(["1", "last"].map(|it| found(copied.path(), it).unwrap()), ["zzz", "20261121T010000Z_h_1_x"]);
    }

    #[test]
    fn a_name_is_the_files_or_the_users_whole_or_as_far_as_it_is_unique() {
        let home = folder(&THREE);
        for (name, day) in [
            ("20261118T010000Z_h_1_x", "18"),
            ("20261118T010000Z_h_1_x.jsonl.zst", "18"),
            ("20261118", "18"),
            ("night", "19"),
            ("ni", "19"),
            ("no", "21"),
        ] {
            assert_eq!(found(home.path(), name).unwrap(), format!("202611{day}T010000Z_h_1_x"), "{name}");
        }
        let why = found(home.path(), "n").unwrap_err();
        assert_eq!(why, "several recordings begin with n: night, noon; write more of the name");
        let many: Vec<String> = (10..30).map(|it| format!("202611{it}T010000Z_h_1_x")).collect();
        let many: Vec<_> = many.iter().map(|it| (&**it, None)).collect();
        let why = found(folder(&many).path(), "2026").unwrap_err();
        assert!(why.contains("20261114T010000Z_h_1_x and 15 more"), "{why}");
    }

    #[test]
    fn a_path_and_a_file_of_the_current_folder_come_first() {
        let home = folder(&THREE);
        let here = Path::new("Cargo.toml");
        assert!(here.exists(), "tests run in the package's folder");
        for path in ["Cargo.toml", "./last", "/nowhere/3", "src", ".", "-", ""] {
            assert_eq!(resolve(home.path(), Path::new(path)).unwrap(), Path::new(path));
        }
        let shadowed = folder(&[("20261118T010000Z_h_1_x", Some("Cargo.toml"))]);
        let own = shadowed.path().join(format!("20261118T010000Z_h_1_x{ENDING}"));
        assert_eq!(of(shadowed.path(), &own).unwrap(), "1", "its own name opens another file from here");
    }

    #[test]
    fn the_short_name_of_a_recording_opens_it() {
        let home = folder(&THREE);
        let names = THREE.map(|(stem, _)| of(home.path(), &home.path().join(format!("{stem}{ENDING}"))));
        assert_eq!(names, ["1", "night", "noon"].map(|it| Some(it.to_owned())), "a newer one has the first one's name");
        assert_eq!(of(home.path(), Path::new("/elsewhere/night.jsonl.zst")), None);
    }

    #[test]
    fn hostile_names_and_folders_are_refused_in_words() {
        let home =
            folder(&[("20261118T010000Z_h_1_x", Some("a\u{1b}[2J")), ("20261119T010000Z_h_1_x", Some("a\u{202e}"))]);
        fs::write(home.path().join(format!("20261120T010000Z_h_1_x{ENDING}")), "\u{1b} no recording").unwrap();
        let why = found(home.path(), "a").unwrap_err();
        assert!(why.contains("a\\u{1b}[2J, a\\u{202e}"), "{why}");
        assert_eq!(found(home.path(), "3").unwrap(), "20261120T010000Z_h_1_x", "opening it reports what it is");
        assert!(!found(home.path(), "b\u{1b}[2J").unwrap_err().contains('\u{1b}'));
        let no_text = Path::new(OsStr::from_bytes(b"\xff"));
        assert_eq!(resolve(home.path(), no_text).unwrap(), no_text);
        let empty = found(&home.path().join("none"), "last").unwrap_err();
        assert_eq!(empty, "there is no file last, and no recording yet: `gpuwatch run -- CMD` records a job");
        let unreadable = home.path().join("file");
        fs::write(&unreadable, "").unwrap();
        assert!(found(&unreadable, "last").unwrap_err().contains("name a file by its path"));
    }

    #[test]
    fn a_name_with_another_meaning_cannot_be_given() {
        for taken in ["last", "3", "007", "-x", "-", ".", "..", "a/b", ""] {
            assert!(!is_free(taken), "{taken}");
        }
        assert!(["night", "3rd", "last one", "träin"].iter().all(|it| is_free(it)));
    }
}
