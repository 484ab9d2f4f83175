//! Reads the kernel's files about devices: bounded, and with the reason where one has no figure.

use crate::facts::event::ReadError;
use rustix::io::Errno;
use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

/// Most bytes read of a file; those with figures have a few lines.
const TEXT_MAX: u64 = 16 << 10;

/// Most entries read of a folder.
const ENTRIES_MAX: usize = 1 << 16;

/// Reads a file's text without the blanks around it.
///
/// # Errors
/// Why there is none: the kernel's driver does not have the file, this user may not read it, or the device is lost.
pub(super) fn text(path: &Path) -> Result<String, ReadError> {
    bounded(path, TEXT_MAX).map(|it| it.trim().to_owned()).map_err(|it| trouble(&it))
}

/// Reads a file's beginning, at most so many bytes. Bytes that are no text are replaced.
///
/// # Errors
/// Fails if the file cannot be read.
pub(super) fn bounded(path: &Path, most: u64) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&beginning(path, most)?).into_owned())
}

/// Reads the first bytes of a file, at most so many.
///
/// # Errors
/// Fails if the file cannot be read.
pub(super) fn beginning(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a file with one number that is not negative.
///
/// # Errors
/// As [`text`], and for other content.
pub(super) fn number(path: &Path) -> Result<u64, ReadError> {
    let text = text(path)?;
    text.parse().map_err(|_not_a_number| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        ReadError::Other(format!("{name} has no number").as_str().into())
    })
}

/// Reads a file with one hexadecimal number, with or without `0x`.
pub(super) fn hexadecimal(path: &Path) -> Option<u64> {
    let text = text(path).ok()?;
    u64::from_str_radix(text.strip_prefix("0x").unwrap_or(&text), 16).ok()
}

/// Returns the value behind a key in text with a key and a value on each line, as in `uevent` (`DRIVER=amdgpu`) and in
/// KFD's `properties` (`simd_count 1216`).
pub(super) fn value<'t>(text: &'t str, key: &str, between: char) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(between)).map(str::trim)
}

/// Returns the names in a folder, sorted; none if it cannot be read.
pub(super) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().take(ENTRIES_MAX).flatten();
    let mut names: Vec<String> = entries.filter_map(|it| it.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

/// Returns the number behind a prefix: 128 for `renderD128`.
pub(super) fn numbered(name: &str, prefix: &str) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?;
    // Without a sign, which a number may have and a name does not.
    digits.bytes().all(|it| it.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

/// Returns the folder of a device's sensors that its driver made; `None` without one.
pub(super) fn sensors(device: &Path, driver: &str) -> Option<PathBuf> {
    let folder = device.join("hwmon");
    let all = names(&folder).into_iter().filter(|it| numbered(it, "hwmon").is_some()).map(|it| folder.join(it));
    all.into_iter().find(|it| text(&it.join("name")).is_ok_and(|name| name == driver))
}

/// Converts an error of reading a file of a device.
fn trouble(error: &io::Error) -> ReadError {
    let unsupported = [Errno::OPNOTSUPP, Errno::INVAL, Errno::NOSYS, Errno::NODATA];
    let lost = [Errno::NODEV, Errno::NXIO];
    let number = Errno::from_io_error(error);
    match error.kind() {
        io::ErrorKind::NotFound => ReadError::NotSupported,
        io::ErrorKind::PermissionDenied => ReadError::NoPermission,
        _ if number.is_some_and(|it| unsupported.contains(&it)) => ReadError::NotSupported,
        _ if number.is_some_and(|it| lost.contains(&it)) => ReadError::Lost,
        _ => ReadError::Other(error.to_string().as_str().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_content_has_a_number_or_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let of = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            number(&path)
        };
        assert_eq!(of(b"42\n"), Ok(42));
        assert_eq!(of(b"18446744073709551615"), Ok(u64::MAX));
        for odd in [&b""[..], b"-1", b"18446744073709551616", b"N/A", b"\xff\xfe", b"1 2", &vec![b'9'; 1 << 17]] {
            assert_eq!(of(odd), Err(ReadError::Other("file has no number".into())));
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(number(&path), Err(ReadError::NotSupported));
        assert!(matches!(number(folder.path()), Err(ReadError::Other(_))), "a folder is no file");
    }

    #[test]
    fn errors_of_the_kernel_are_reasons() {
        let of = |errno: Errno| trouble(&errno.into());
        assert_eq!([Errno::ACCESS, Errno::PERM].map(of), [ReadError::NoPermission, ReadError::NoPermission]);
        assert_eq!([Errno::OPNOTSUPP, Errno::NOENT].map(of), [ReadError::NotSupported, ReadError::NotSupported]);
        assert_eq!(of(Errno::NODEV), ReadError::Lost);
        assert!(matches!(of(Errno::BUSY), ReadError::Other(_)));
    }

    #[test]
    fn names_have_numbers() {
        for (name, prefix, number) in [
            ("card0", "card", Some(0)),
            ("card0-DP-1", "card", None),
            ("renderD128", "renderD", Some(128)),
            ("card", "card", None),
            ("card+1", "card", None),
            ("card99999999999", "card", None),
        ] {
            assert_eq!(numbered(name, prefix), number, "{name}");
        }
    }
}
