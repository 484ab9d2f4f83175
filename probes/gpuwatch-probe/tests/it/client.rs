//! A viewer for tests: reads lines with a deadline.

use gpuwatch_probe::socket;
use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::Path,
    thread,
    time::{Duration, Instant},
};

pub(crate) struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    pub(crate) fn connect(path: &Path) -> Self {
        let stream = socket::connect(path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    pub(crate) fn stream(&mut self) -> &mut UnixStream {
        self.stream.get_mut()
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.stream().write_all(text.as_bytes()).unwrap();
    }

    /// Returns the next line; `None` at the end.
    pub(crate) fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => Some(line.trim_end().to_owned()),
            // A probe that closes with unread requests resets the connection.
            Err(fault) if fault.kind() == std::io::ErrorKind::ConnectionReset => None,
            Err(fault) => panic!("no line came: {fault}"),
        }
    }

    /// Returns every line up to the first one that matches `last`.
    pub(crate) fn until(&mut self, last: impl Fn(&str) -> bool) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let line = self.line().unwrap_or_else(|| panic!("the stream ended after {:?}", lines.last()));
            lines.push(line);
            if lines.last().is_some_and(|it| last(it)) {
                return lines;
            }
        }
    }

    /// Returns every line to the end.
    pub(crate) fn rest(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.line()).collect()
    }
}

/// Returns a number from a line.
pub(crate) fn field(line: &str, name: &str) -> Option<u64> {
    let rest = line.split_once(&format!("\"{name}\":"))?.1;
    rest.split([',', '}']).next()?.parse().ok()
}

pub(crate) fn samples(lines: &[String]) -> Vec<&String> {
    lines.iter().filter(|it| it.starts_with("{\"type\":\"sample\"")).collect()
}

pub(crate) fn seqs(lines: &[String]) -> Vec<u64> {
    lines.iter().filter(|it| it.contains("\"at_us\"")).filter_map(|it| field(it, "seq")).collect()
}

/// Waits until something holds, with a deadline.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}
