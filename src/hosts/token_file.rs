//! Files with a bearer token in their first line.

use crate::{facts::text::Foreign, storage::input};
use anyhow::{Context, Result, bail};
use std::{fs::Metadata, io, path::Path};

/// Most bytes of such a file.
const BYTES_MAX: u64 = 4096;

/// Returns the first line of a file, if its metadata allow that.
///
/// # Errors
/// Fails if it cannot be read, is too long, or if `allow` does.
pub fn read(path: &Path, allow: impl Fn(&Metadata) -> Result<()>) -> Result<String> {
    let shown = Foreign::new(path.to_string_lossy());
    let cannot = || format!("cannot read the token in {shown}");
    let file = input::open(path).with_context(cannot)?;
    allow(&file.metadata().with_context(cannot)?)?;
    let text = match input::bounded(file, BYTES_MAX).and_then(input::text) {
        Err(why) if why.kind() == io::ErrorKind::FileTooLarge => {
            bail!("{shown} is too long for a token: it has more than {BYTES_MAX} bytes")
        }
        read => read.with_context(cannot)?,
    };
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_an_end_is_no_token() {
        let read = |path: &str| super::read(Path::new(path), |_| Ok(())).map_err(|it| format!("{it:#}"));
        assert!(read("/dev/zero").unwrap_err().contains("too long for a token: it has more than 4096 bytes"));
        assert_eq!(read("/dev/null"), Ok(String::new()));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, "  it \nnot this\n").unwrap();
        assert_eq!(read(path.to_str().unwrap()), Ok("it".to_owned()));
        assert!(super::read(&path, |_| bail!("not this one")).is_err());
    }
}
