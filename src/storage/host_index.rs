//! A directory with the recordings of several machines: an index, and one or more recordings of each machine.
//!
//! The index has JSON lines: first who recorded and which machines, then when a recording began, when the link of a
//! machine changed, and how far its clock is apart. Each line is written at once, so the index of a killed writer has
//! all but perhaps the last one. Recordings have the stamps of their own machine's clock, the index those of the
//! recorder's.

use super::recording::FORMAT;
use crate::{
    facts::{
        text::{self, Foreign, escape_json},
        units::Stamp,
    },
    model::cluster::Link,
};
use anyhow::{Context, Result, bail};
use gpuwatch_probe::wire::{LINE_MAX, limits};
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read as _, Write},
    path::{Path, PathBuf},
};

/// The index's name.
pub const INDEX: &str = "nodes.jsonl";

/// Most machines.
const NODES_MAX: usize = 4096;

/// Most lines of an index that are read.
const LINES_MAX: usize = 1 << 20;

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Major version of the format, the same as a recording's.
    pub format: u32,
    /// Version of the gpuwatch that wrote it.
    #[serde(deserialize_with = "limits::text::<_, { limits::NAME_MAX }>")]
    pub gpuwatch: String,
    /// The host that wrote it.
    pub host: Foreign,
    /// Its wall clock at the start, µs of Unix time.
    pub started_unix_us: u64,
    /// Its `CLOCK_MONOTONIC` at the same instant, in µs; `at_us` counts on that clock.
    pub monotonic_us: u64,
    /// The machines, in the order of the user's list.
    pub nodes: Vec<Foreign>,
}

/// A line of the index of a directory with recordings of several hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Line {
    /// The first one.
    Nodes(Head),
    /// A recording of a machine began.
    File {
        /// When.
        at_us: Stamp,
        /// The machine's place in the list.
        node: usize,
        /// The file's name in the directory.
        file: Foreign,
    },
    /// A link changed.
    Link {
        /// When.
        at_us: Stamp,
        /// The machine's place in the list.
        node: usize,
        /// Its name in reports.
        link: Foreign,
        /// Why it is not up.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<Foreign>,
    },
    /// How far the recorder's monotonic clock is ahead of a machine's.
    Clock {
        /// When it was measured.
        at_us: Stamp,
        /// The machine's place in the list.
        node: usize,
        /// In µs.
        ahead_us: i64,
    },
    /// The recorder ended properly.
    Closed {
        /// When.
        at_us: Stamp,
    },
    /// A type of a later release.
    #[serde(other)]
    Unknown,
}

/// What `nodes.jsonl` says of the recordings beside it.
#[derive(Clone, Debug)]
pub struct Index {
    /// The first line.
    pub head: Head,
    /// The machines.
    pub nodes: Vec<Node>,
    /// When the recorder ended; `None` if it was killed or is running.
    pub closed: Option<Stamp>,
}

/// What an index has of a machine.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Its name in the user's list.
    pub host: Foreign,
    /// Its recordings: one, unless it rebooted meanwhile.
    pub files: Vec<Recording>,
    /// The states of its link, and when each began.
    pub links: Vec<(Stamp, Link)>,
}

/// A recording of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// Its file.
    pub path: PathBuf,
    /// How far the recorder's clock was ahead of the machine's, in µs, as it was measured last; `None` before.
    pub ahead_us: Option<i64>,
}

impl Line {
    /// Writes the line.
    ///
    /// # Errors
    /// Fails if it cannot be written.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut line = escape_json(&serde_json::to_string(self)?);
        line.push('\n');
        out.write_all(line.as_bytes())
    }
}

impl Node {
    /// Returns the latest state of its link.
    pub fn link(&self) -> Link {
        self.links.last().map_or_else(Link::default, |it| it.1.clone())
    }

    /// Returns how far the recorder's clock was ahead of that of its first recording, in µs; `None` if that was never
    /// measured.
    pub fn ahead_us(&self) -> Option<i64> {
        self.files.first()?.ahead_us
    }
}

/// Returns whether a directory has recordings of several machines.
pub fn is_one(directory: &Path) -> bool {
    directory.join(INDEX).is_file()
}

/// Reads the index of a directory.
///
/// # Errors
/// Fails if it cannot be read, has a newer format, or names files outside of the directory.
pub fn read(directory: &Path) -> Result<Index> {
    let path = directory.join(INDEX);
    let shown = Foreign::new(path.to_string_lossy());
    let file = File::open(&path).with_context(|| format!("cannot read {shown}"))?;
    parse(directory, &mut BufReader::new(file)).with_context(|| format!("cannot read {shown}"))
}

fn parse(directory: &Path, from: &mut impl BufRead) -> Result<Index> {
    let Some(Line::Nodes(head)) = line(from)? else { bail!("its first line does not name machines") };
    if head.format > FORMAT {
        bail!("it has format {}, this gpuwatch reads up to {FORMAT}: use a newer one", head.format);
    }
    if head.nodes.len() > NODES_MAX {
        bail!("it names more than {NODES_MAX} machines");
    }
    let nodes = head.nodes.iter().map(|it| Node { host: it.clone(), ..Node::default() }).collect();
    let mut index = Index { head, nodes, closed: None };
    for _ in 0..LINES_MAX {
        let Some(line) = line(from)? else { break };
        index.take(directory, line)?;
    }
    Ok(index)
}

/// Reads a whole line; `None` at the end, also if the writer was killed in the last line.
fn line(from: &mut impl BufRead) -> Result<Option<Line>> {
    let mut text = Vec::new();
    from.take(LINE_MAX as u64).read_until(b'\n', &mut text)?;
    if text.pop() != Some(b'\n') {
        return Ok(None);
    }
    serde_json::from_slice(&text).map(Some).map_err(|e| anyhow::anyhow!("{}", text::fault(&e)))
}

impl Index {
    fn take(&mut self, directory: &Path, line: Line) -> Result<()> {
        let (Line::File { node, .. } | Line::Link { node, .. } | Line::Clock { node, .. }) = &line else {
            if let Line::Closed { at_us } = line {
                self.closed = Some(at_us);
            }
            return Ok(());
        };
        let Some(node) = self.nodes.get_mut(*node) else { bail!("it has a line of a machine that it does not name") };
        match line {
            Line::File { file, .. } => {
                let name = file.raw();
                if name.is_empty() || name.contains('/') || name.starts_with('.') {
                    bail!("{file} is not the name of a recording");
                }
                node.files.push(Recording { path: directory.join(name), ahead_us: None });
            }
            Line::Link { at_us, link: name, why, .. } => {
                node.links.extend(link(name.raw(), why).map(|it| (at_us, it)));
            }
            Line::Clock { ahead_us, .. } => {
                if let Some(it) = node.files.last_mut() {
                    it.ahead_us = Some(ahead_us);
                }
            }
            Line::Nodes(_) | Line::Closed { .. } | Line::Unknown => {}
        }
        Ok(())
    }
}

/// Returns the link of a name in reports; `None` for a name of a later release.
fn link(name: &str, why: Option<Foreign>) -> Option<Link> {
    let why = why.unwrap_or_default();
    let all = [
        Link::Connecting,
        Link::Up,
        Link::Refused { why: why.clone() },
        Link::Silent { why: why.clone() },
        Link::Incompatible { why },
    ];
    all.into_iter().find(|it| it.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(nodes: &[&str]) -> Head {
        Head {
            format: FORMAT,
            gpuwatch: "0".into(),
            host: "h".into(),
            started_unix_us: 9,
            monotonic_us: 1,
            nodes: nodes.iter().map(|it| Foreign::from(*it)).collect(),
        }
    }

    fn text(lines: &[Line]) -> Vec<u8> {
        let mut out = Vec::new();
        for it in lines {
            it.write(&mut out).unwrap();
        }
        out
    }

    fn parsed(bytes: &[u8]) -> Result<Index> {
        parse(Path::new("d"), &mut &bytes[..])
    }

    #[test]
    fn an_index_comes_back_as_far_as_it_was_written() {
        let why = Foreign::from("no \u{1b}[2Jroute");
        let lines = [
            Line::Nodes(head(&["a", "b"])),
            Line::File { at_us: Stamp(2), node: 0, file: "a.jsonl.zst".into() },
            Line::Link { at_us: Stamp(2), node: 0, link: "up".into(), why: None },
            Line::Link { at_us: Stamp(3), node: 1, link: "refused".into(), why: Some(why.clone()) },
            Line::Clock { at_us: Stamp(4), node: 0, ahead_us: -7 },
            Line::Clock { at_us: Stamp(9), node: 0, ahead_us: 8 },
            Line::Closed { at_us: Stamp(10) },
        ];
        let mut bytes = text(&lines);
        assert!(!bytes.contains(&0x1b));
        let index = parsed(&bytes).unwrap();
        assert_eq!(index.nodes[0].files, [Recording { path: "d/a.jsonl.zst".into(), ahead_us: Some(8) }]);
        assert_eq!((index.nodes[0].link(), index.closed), (Link::Up, Some(Stamp(10))));
        assert_eq!(index.nodes[1].link(), Link::Refused { why });
        assert_eq!((index.nodes[0].ahead_us(), index.nodes[1].ahead_us()), (Some(8), None));
        bytes.truncate(bytes.len() - 3);
        assert_eq!(parsed(&bytes).unwrap().closed, None);
    }

    #[test]
    fn an_index_of_others_is_refused() {
        let newer = Head { format: FORMAT + 1, ..head(&["a"]) };
        let outside = Line::File { at_us: Stamp(2), node: 0, file: "../a".into() };
        let unnamed = Line::Clock { at_us: Stamp(2), node: 7, ahead_us: 0 };
        for (bytes, words) in [
            (text(&[Line::Nodes(newer)]), "use a newer one"),
            (text(&[Line::Nodes(head(&["a"])), outside]), "not the name of a recording"),
            (text(&[Line::Nodes(head(&["a"])), unnamed]), "does not name"),
            (text(&[]), "first line"),
            (b"garbage\n".to_vec(), "expected"),
        ] {
            let why = parsed(&bytes).unwrap_err().to_string();
            assert!(why.contains(words), "{why}");
        }
        let later = [text(&[Line::Nodes(head(&["a"]))]), b"{\"type\":\"later\",\"x\":1}\n".to_vec()].concat();
        assert!(parsed(&later).is_ok());
    }
}
