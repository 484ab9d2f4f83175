//! Opens files that a user names, so that a FIFO without a writer does not block gpuwatch.

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::{
    fs::{File, Metadata, OpenOptions},
    io::{self, Cursor, Read},
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
        let Self::File(file) = self else { return None };
        file.metadata().ok().filter(Metadata::is_file).map(|it| it.len())
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
        let mut text = String::new();
        open(path)?.read_to_string(&mut text).map(|_| text)
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
