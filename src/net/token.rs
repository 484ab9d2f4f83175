//! Bearer tokens: those that gpuwatch sends, and the one that requests to it must have.

use super::tls::private;
use crate::{facts::text::Foreign, storage::input};
use anyhow::{Context, Result, anyhow, bail};
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use std::{fmt, fs::Metadata, io, path::Path};

/// What a request with a token begins its credentials with.
const SCHEME: &[u8] = b"bearer";

/// A bearer token. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(HeaderValue);

impl Token {
    /// Takes a token as a variable of the environment has it.
    ///
    /// # Errors
    /// Fails if no request can carry it.
    pub fn new(text: &str) -> Result<Self> {
        let text = text.trim();
        if text.is_empty() {
            bail!("the token is empty");
        }
        let value = HeaderValue::from_str(&format!("Bearer {text}"));
        // The error would show the token.
        let mut value =
            value.map_err(|_shows_it| anyhow!("the token has characters that no HTTP request can carry"))?;
        value.set_sensitive(true);
        Ok(Self(value))
    }

    /// Returns the value of the header `Authorization`, which no log shows.
    pub fn header(&self) -> HeaderValue {
        self.0.clone()
    }

    /// Reads the first line of a file.
    ///
    /// # Errors
    /// Fails if it cannot be read, is too long or empty.
    pub fn read(path: &Path) -> Result<Self> {
        let line = first_line(path, |_| Ok(()))?;
        let shown = Foreign::new(path.to_string_lossy());
        Self::new(&line).with_context(|| format!("cannot use the token in {shown}"))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// Reads the token that requests to gpuwatch must have: the first line of a file. Other users must not be able to read
/// a token that other machines can use.
///
/// # Errors
/// Fails if the file cannot be read, has no token, or if other users could read what other machines can use.
pub fn secret(path: &Path, is_public: bool) -> Result<String> {
    let token = first_line(path, |it| if is_public { private("token", path, it) } else { Ok(()) })?;
    if token.is_empty() {
        bail!("{} has no token in its first line", path.display());
    }
    Ok(token)
}

/// Returns whether a request has the token. Compares all bytes of it, so that the time shows nothing about it. The
/// scheme has any case (RFC 9110).
pub fn is_authorized(headers: &HeaderMap, token: &str) -> bool {
    let given = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    let Some((scheme, rest)) = given.split_at_checked(SCHEME.len()) else { return false };
    let (given, wanted) = (rest.trim_ascii(), token.as_bytes());
    scheme.eq_ignore_ascii_case(SCHEME)
        && rest.first() == Some(&b' ')
        && given.len() == wanted.len()
        && given.iter().zip(wanted).fold(0, |all, (one, other)| all | (one ^ other)) == 0
}

/// Most bytes of a file with a token.
const BYTES_MAX: u64 = 4096;

/// Returns the first line of a file, if its metadata allow that.
fn first_line(path: &Path, allow: impl Fn(&Metadata) -> Result<()>) -> Result<String> {
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
        let read = |path: &str| first_line(Path::new(path), |_| Ok(())).map_err(|it| format!("{it:#}"));
        assert!(read("/dev/zero").unwrap_err().contains("too long for a token: it has more than 4096 bytes"));
        assert_eq!(read("/dev/null"), Ok(String::new()));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, "  it \nnot this\n").unwrap();
        assert_eq!(read(path.to_str().unwrap()), Ok("it".to_owned()));
        assert!(first_line(&path, |_| bail!("not this one")).is_err());
    }

    #[test]
    fn a_token_is_what_a_header_can_carry() {
        for bad in ["", " ", "a\u{7}b"] {
            assert!(Token::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_token_is_compared_whole() {
        let mut headers = HeaderMap::new();
        assert!(!is_authorized(&headers, "it"));
        for (given, is_right) in [
            ("Bearer it", true),
            ("bearer it", true),
            ("BEARER  it", true),
            ("Bearer i", false),
            ("Bearer itt", false),
            ("Bearer IT", false),
            ("Bearerit", false),
            ("Bearer", false),
            ("Basic it", false),
            ("it", false),
        ] {
            headers.insert(AUTHORIZATION, given.parse().unwrap());
            assert_eq!(is_authorized(&headers, "it"), is_right, "{given}");
        }
    }
}
