//! The recordings of several machines, and the command that opens each.

use crate::{
    facts::{
        text::{Foreign, command},
        units::counted,
    },
    storage::{nodes::Node, replay::nodes::Recorded},
};
use std::fmt::Write;

/// Most bytes of a path that are shown.
const PATH_MAX: usize = 4096;

/// Returns a line for each machine.
pub fn list(recorded: &Recorded) -> String {
    let nodes = &recorded.index.nodes;
    let mut out = format!("recordings of {}:\n", counted(nodes.len() as u64, "machine"));
    let width = nodes.iter().map(|it| it.host.to_string().chars().count()).max().unwrap_or(0);
    for it in nodes {
        let _ = writeln!(out, "  {:<width$}  {}", it.host, opened(it));
    }
    for it in &recorded.notes {
        let _ = writeln!(out, "note: {}", Foreign::new(it.as_str()));
    }
    out
}

/// Returns the command that opens a machine's recordings, or why it has no recording.
fn opened(node: &Node) -> String {
    if node.files.is_empty() {
        let link = node.link();
        let why = link.why().map_or_else(String::new, |why| format!(": {why}"));
        return format!("{}{why}", link.name());
    }
    let paths: Vec<_> = node.files.iter().map(|it| it.path.to_string_lossy()).collect();
    command(["gpuwatch", "replay"].into_iter().chain(paths.iter().map(|it| &**it)), PATH_MAX)
}
