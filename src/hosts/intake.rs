//! The lines of one machine: what they mean, and when they are not those of a gpuwatch. Pure.

use super::requests::Takes;
use crate::{
    facts::{
        remote::Answer,
        text::{self, Foreign},
    },
    model::cluster::{Greeting, Link, What},
    storage::{
        recording::{FORMAT, Header},
        stream::{self, Entry, decode},
    },
};

/// Most lines before the first one of the stream: a banner of the machine's.
const BANNER_LINES: usize = 200;

/// Most bytes of a line that a message quotes.
const QUOTED: usize = 80;

/// Most bytes of an error that are shown.
const ERROR_MAX: usize = 240;

/// The meaning of a line.
#[derive(Clone, Debug, PartialEq)]
pub enum Got {
    /// News of the machine.
    News(What),
    /// Its answer to a request.
    Answer(Answer),
}

/// Reads the lines of one connection.
#[derive(Debug, Default)]
pub struct Intake {
    /// Set once the stream has begun.
    takes: Option<Takes>,
    lines: usize,
    /// The first line that is not of a stream.
    banner: Option<Foreign>,
}

impl Intake {
    /// Returns which requests the machine takes, once the stream has begun.
    pub fn takes(&self) -> Option<&Takes> {
        self.takes.as_ref()
    }

    fn is_greeted(&self) -> bool {
        self.takes.is_some()
    }

    /// Takes a line without its newline. `unix_us` is this machine's wall clock.
    ///
    /// # Errors
    /// Fails with the link's state if this is not a stream that this gpuwatch reads.
    pub fn line(&mut self, bytes: &[u8], unix_us: u64) -> Result<Option<Got>, Link> {
        self.lines += 1;
        let entry = std::str::from_utf8(bytes).map_err(|e| text::fault(&e));
        let entry = entry.and_then(|line| decode(line).map_err(|e| text::fault(&e)));
        match entry {
            Ok(Entry::Header(stream::Header { recording: header, requests })) if !self.is_greeted() => {
                let gpuwatch = Foreign::new(header.gpuwatch);
                if header.format > FORMAT {
                    return Err(Link::incompatible(format!(
                        "gpuwatch {gpuwatch} there streams format {}, this one reads up to {FORMAT}: use a newer one here",
                        header.format
                    )));
                }
                self.takes = Some(Takes { gpuwatch: gpuwatch.clone(), kinds: requests });
                let Header { host, started_unix_us, monotonic_us, writer, .. } = header;
                let boot_id = writer.map(|it| it.boot_id);
                let greeting = Greeting { gpuwatch, host, started_unix_us, monotonic_us, boot_id };
                Ok(Some(Got::News(What::Greeting(greeting))))
            }
            Ok(Entry::Event(event)) if self.is_greeted() => Ok(Some(Got::News(What::Event(event)))),
            Ok(Entry::Beat(beat)) if self.is_greeted() => {
                let beat = What::Beat { there: beat.at_us, unix_there: beat.unix_us, unix_here: unix_us };
                Ok(Some(Got::News(beat)))
            }
            Ok(Entry::Answer(answer)) if self.is_greeted() => Ok(Some(Got::Answer(answer))),
            Err(why) if self.is_greeted() => {
                Err(Link::incompatible(format!("line {} is not a line of a stream ({why})", self.lines)))
            }
            Ok(_) if self.is_greeted() => Ok(None),
            _ => self.before(bytes),
        }
    }

    /// A line before the stream begins.
    fn before(&mut self, bytes: &[u8]) -> Result<Option<Got>, Link> {
        self.banner.get_or_insert_with(|| quoted(bytes));
        if self.lines < BANNER_LINES {
            return Ok(None);
        }
        Err(Link::incompatible(format!("its output is not a stream of gpuwatch{}", self.quote())))
    }

    /// Returns the state of a link whose connection ended, from the exit code and the last words on standard error.
    pub fn end(&self, code: Option<i32>, errors: &[u8]) -> Link {
        let words = last_words(errors);
        let ending = code.map_or_else(|| "a signal ended the connection".to_owned(), |it| format!("exit code {it}"));
        match code {
            _ if words.contains("unrecognized subcommand") => {
                Link::incompatible("gpuwatch there is older and has no `stream`: use a newer one there".to_owned())
            }
            Some(126 | 127) if !self.is_greeted() => {
                let why = if words.is_empty() { ending } else { words };
                Link::refused(format!(
                    "gpuwatch does not start there ({why}): name its path with --remote-program, or copy it there with --push"
                ))
            }
            Some(0) if !self.is_greeted() => {
                Link::refused(format!("the command ended without a stream of gpuwatch{}", self.quote()))
            }
            Some(0) => Link::refused("the connection ended".to_owned()),
            _ if words.is_empty() => Link::refused(ending),
            _ => Link::refused(words),
        }
    }

    fn quote(&self) -> String {
        self.banner.as_ref().map_or_else(String::new, |it| format!(": {it:?}", it = it.to_string()))
    }
}

/// Returns the beginning of a line.
fn quoted(bytes: &[u8]) -> Foreign {
    let text = String::from_utf8_lossy(bytes.get(..bytes.len().min(4 * QUOTED)).unwrap_or_default()).into_owned();
    Foreign::new(text.chars().take(QUOTED).collect::<String>())
}

/// Returns the line of a program's errors that names the reason: the one that begins with `error`, or the last.
pub(super) fn last_words(errors: &[u8]) -> String {
    let text = String::from_utf8_lossy(errors);
    let lines = || text.lines().map(str::trim).filter(|it| !it.is_empty());
    let line = lines().find(|it| it.starts_with("error:")).or_else(|| lines().next_back()).unwrap_or_default();
    line.chars().take(ERROR_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{event::Fact, units::Stamp};

    const HEADER: &str =
        r#"{"type":"recording","format":1,"gpuwatch":"0.9.0","host":"n","started_unix_us":1,"monotonic_us":1}"#;

    fn refused(result: Result<Option<Got>, Link>) -> String {
        let Err(Link::Incompatible { why }) = result else { panic!("{result:?}") };
        why.to_string()
    }

    #[test]
    fn a_stream_may_follow_a_banner() {
        let mut it = Intake::default();
        assert_eq!(it.line(b"Welcome to node01", 0), Ok(None));
        assert_eq!(it.line(b"\xff\x1b[2J", 0), Ok(None));
        let (gpuwatch, host) = ("0.9.0".into(), "n".into());
        let greeting = Greeting { gpuwatch, host, started_unix_us: 1, monotonic_us: 1, boot_id: None };
        assert_eq!(it.line(HEADER.as_bytes(), 0), Ok(Some(Got::News(What::Greeting(greeting)))));
        let notice = it.line(br#"{"type":"notice","at_us":5,"text":"x"}"#, 0).unwrap();
        assert!(matches!(notice, Some(Got::News(What::Event(event))) if event.fact == Fact::Notice("x".into())));
        let beat = it.line(br#"{"type":"beat","at_us":7,"unix_us":9}"#, 10).unwrap();
        assert_eq!(beat, Some(Got::News(What::Beat { there: Stamp(7), unix_there: 9, unix_here: 10 })));
        assert_eq!(it.line(br#"{"type":"of a later release","at_us":5}"#, 0), Ok(None));
        assert!(refused(it.line(b"garbage", 0)).contains("line 7"));
    }

    #[test]
    fn endless_garbage_and_newer_formats_are_refused() {
        let mut it = Intake::default();
        for _ in 1..BANNER_LINES {
            assert_eq!(it.line(b"y\x1b[31m", 0), Ok(None));
        }
        let why = refused(it.line(b"y\x1b[31m", 0));
        assert!(why.contains("not a stream of gpuwatch") && !why.contains('\u{1b}'), "{why}");
        let newer = HEADER.replace("\"format\":1", "\"format\":7");
        let why = refused(Intake::default().line(newer.as_bytes(), 0));
        assert!(why.contains("0.9.0") && why.contains("format 7"), "{why}");
    }

    #[test]
    fn the_end_of_a_connection_has_its_reason() {
        let it = Intake::default();
        let why = |code, errors: &str| it.end(code, errors.as_bytes()).why().unwrap().to_string();
        assert!(why(Some(127), "sh: 1: gpuwatch: not found\n").contains("gpuwatch: not found"));
        assert_eq!(why(Some(255), "x\nssh: no route\n\n"), "ssh: no route");
        assert_eq!(
            (why(Some(3), "").as_str(), why(None, "").as_str()),
            ("exit code 3", "a signal ended the connection")
        );
        let older = it.end(Some(2), b"error: unrecognized subcommand 'stream'\n\nUsage: gpuwatch\n");
        assert!(matches!(older, Link::Incompatible { .. }), "{older:?}");
        assert!(!why(Some(1), "\u{1b}]0;x\u{7}\u{202e}").contains('\u{1b}'));
    }
}
