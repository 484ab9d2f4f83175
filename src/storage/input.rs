//! Opens files that a user names, so that a FIFO without a writer does not block gpuwatch, and reads small ones, so
//! that one without an end (`/dev/zero`) takes no memory.

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::{
    fs::{File, Metadata, OpenOptions},
    io::{
        self, Cursor,
        ErrorKind::{FileTooLarge, InvalidData},
        Read,
    },
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
    path::Path,
    thread,
    time::Duration,
};

/// How often to check a FIFO for a writer, and the time between two checks.
const POLLS: u32 = 50;
const POLL_EVERY: Duration = Duration::from_millis(20);

/// What a name leads to.
pub enum Input {
    /// A seekable file.
    File(File),
    /// A FIFO with a writer, as in `<(zcat FILE)`; it can be read once.
    Stream(io::Chain<Cursor<Vec<u8>>, File>),
}

impl Input {
    /// Returns the bytes of a file; `None` of a FIFO or a device.
    pub fn size(&self) -> Option<u64> {
        self.metadata().ok().filter(Metadata::is_file).map(|it| it.len())
    }

    /// Returns what the kernel knows of it.
    ///
    /// # Errors
    /// Fails as `fstat` does.
    pub fn metadata(&self) -> io::Result<Metadata> {
        match self {
            Self::File(it) => it.metadata(),
            Self::Stream(it) => it.get_ref().1.metadata(),
        }
    }
}

impl Read for Input {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::File(it) => it.read(buf),
            Self::Stream(it) => it.read(buf),
        }
    }
}

/// Opens a file for reading.
///
/// # Errors
/// Fails if it cannot be opened or is a FIFO without a writer.
pub fn open(path: &Path) -> io::Result<Input> {
    // Without O_NONBLOCK, opening a FIFO waits for a writer forever.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let read = if file.metadata()?.file_type().is_fifo() { Some(first(&file)?) } else { None };
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(match read {
        Some(bytes) => Input::Stream(Cursor::new(bytes).chain(file)),
        None => Input::File(file),
    })
}

/// Reads a small file: a list, a token, a config. It may be a FIFO or a device.
///
/// # Errors
/// Fails if it cannot be opened or read, and with [`io::ErrorKind::FileTooLarge`] if it has more than `most` bytes.
pub fn small(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    bounded(open(path)?, most)
}

/// Reads a small file of text.
///
/// # Errors
/// Fails as [`small`] does, and if it is not UTF-8.
pub fn small_text(path: &Path, most: u64) -> io::Result<String> {
    text(small(path, most)?)
}

/// Returns what is wrong with a small file, as the end of a sentence about it.
pub fn fault(why: &io::Error) -> String {
    let words = why.to_string();
    match words.strip_prefix("it ") {
        Some(about_it) if matches!(why.kind(), FileTooLarge | InvalidData) => about_it.to_owned(),
        _ => format!("cannot be read: {words}"),
    }
}

/// Reads all of an opened small file.
///
/// # Errors
/// Fails as [`small`] does.
pub fn bounded(from: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let what = format!("it is larger than {} KiB", most >> 10);
        return Err(io::Error::new(FileTooLarge, what));
    }
    Ok(bytes)
}

/// Returns bytes as text.
///
/// # Errors
/// Fails if they are not UTF-8.
pub fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|_invalid| io::Error::new(InvalidData, "it is not UTF-8 text"))
}

/// Returns the first bytes of a FIFO; none if its writer has written nothing yet.
fn first(mut fifo: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 4096];
    for _ in 0..POLLS {
        match fifo.read(&mut bytes) {
            // End of file without a writer.
            Ok(0) => thread::sleep(POLL_EVERY),
            Ok(count) => {
                bytes.truncate(count);
                return Ok(bytes);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Vec::new()),
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::other("it is a FIFO, and no process writes to it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, mkfifoat};
    use std::{fs, io::Write};

    fn text(path: &Path) -> io::Result<String> {
        small_text(path, 1 << 10)
    }

    #[test]
    fn a_small_file_is_read_whole_or_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for (bytes, fits) in [(0, true), (4096, true), (4097, false), (1 << 20, false)] {
            fs::write(&path, vec![b'x'; bytes]).unwrap();
            assert_eq!(small(&path, 4096).map_or(usize::MAX, |it| it.len()) == bytes, fits, "{bytes}");
        }
        let why = small(Path::new("/dev/zero"), 4096).unwrap_err();
        assert_eq!((why.kind(), &*why.to_string()), (FileTooLarge, "it is larger than 4 KiB"));
        assert_eq!(fault(&why), "is larger than 4 KiB");
        assert!(small(dir.path(), 4096).is_err());
        // A file that is all hole.
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(small(&path, 4096).unwrap_err().kind(), FileTooLarge);
        fs::write(&path, b"\xff").unwrap();
        assert!(small_text(&path, 4096).unwrap_err().to_string().contains("not UTF-8"));
    }

    #[test]
    fn a_fifo_is_read_while_a_process_writes_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fifo");
        mkfifoat(CWD, &path, Mode::RWXU).unwrap();
        assert!(text(&path).unwrap_err().to_string().contains("no process writes to it"));
        let (mut there, writing) = (File::options().read(true).write(true).open(&path).unwrap(), path.clone());
        // A writer that has written nothing yet: the reader waits.
        let reader = thread::spawn(move || {
            let mut four = [0; 4];
            open(&writing).unwrap().read_exact(&mut four).unwrap();
            four
        });
        there.write_all(b"text").unwrap();
        assert_eq!(&reader.join().unwrap(), b"text");
        fs::write(dir.path().join("file"), "plain").unwrap();
        assert_eq!(text(&dir.path().join("file")).unwrap(), "plain");
        assert_eq!(text(Path::new("/dev/null")).unwrap(), "");
        assert_eq!(open(&dir.path().join("none")).err().unwrap().kind(), io::ErrorKind::NotFound);
    }
}
