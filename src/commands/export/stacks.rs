//! A snapshot's live blocks by call stack, for flame graphs: folded stacks, and speedscope's JSON.

use crate::{
    facts::text::{Foreign, escape_json},
    model::trace::{Frame, Share, Stacks, Trace, Tree},
};
use serde_json::{Value, json};
use std::io::{self, Write};

/// Which blocks to export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum At {
    /// Blocks that are live in the snapshot.
    #[default]
    End,
    /// Blocks that were live at the peak of the snapshot's trace.
    Peak,
}

/// Writes a line for each call stack: its frames, outermost first after the device, and its bytes, as `flamegraph.pl`,
/// inferno and speedscope read them.
///
/// # Errors
/// Fails if `out` cannot be written.
pub(super) fn folded(trace: &Trace, at: At, out: &mut impl Write) -> io::Result<()> {
    for device in trace.ordinals() {
        let tree = tree(trace, &shares(trace, device, at));
        for (path, bytes) in tree.paths() {
            let frames = path.iter().map(|frame| trace.stacks.label(*frame).replace(';', ":"));
            let line: Vec<String> = std::iter::once(format!("GPU {device}")).chain(frames).collect();
            writeln!(out, "{} {bytes}", line.join(";"))?;
        }
    }
    Ok(())
}

/// Writes speedscope's file: a profile for each device's live blocks, and one for its peak if it has a trace.
///
/// # Errors
/// Fails if `out` cannot be written.
pub(super) fn speedscope(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    let mut profiles = Vec::new();
    for device in trace.ordinals() {
        for (at, name) in [(At::End, "live"), (At::Peak, "peak")] {
            let shares = shares(trace, device, at);
            if !shares.is_empty() {
                profiles.push(profile(trace, &format!("GPU {device}: {name}"), &tree(trace, &shares)));
            }
        }
    }
    // The last frame stands for blocks without a stack.
    let frames = trace.stacks.frames.values().iter().map(|it| frame(&trace.stacks, it));
    let file = json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": concat!("gpuwatch ", env!("CARGO_PKG_VERSION")),
        "shared": { "frames": frames.chain([json!({ "name": trace.stacks.label(None) })]).collect::<Vec<_>>() },
        "profiles": profiles,
    });
    writeln!(out, "{}", escape_json(&file.to_string()))
}

fn frame(stacks: &Stacks, it: &Frame) -> Value {
    let text = |id| Foreign::new(stacks.texts.get(id)).to_string();
    json!({ "name": text(it.name), "file": text(it.file), "line": it.line })
}

fn profile(trace: &Trace, name: &str, tree: &Tree) -> Value {
    let unknown = trace.stacks.frames.values().len();
    let paths = tree.paths();
    let places = |path: &[Option<u32>]| -> Vec<usize> {
        path.iter().map(|frame| frame.map_or(unknown, |number| number as usize)).collect()
    };
    json!({
        "type": "sampled",
        "name": name,
        "unit": "bytes",
        "startValue": 0,
        "endValue": tree.calls.first().map(|root| root.bytes),
        "samples": paths.iter().map(|path| places(&path.0)).collect::<Vec<_>>(),
        "weights": paths.iter().map(|path| path.1).collect::<Vec<_>>(),
    })
}

fn shares(trace: &Trace, device: u32, at: At) -> Vec<Share> {
    match at {
        At::End => trace.live(device),
        At::Peak => trace.peak(device).map(|peak| peak.shares).unwrap_or_default(),
    }
}

fn tree(trace: &Trace, shares: &[Share]) -> Tree {
    Tree::new(shares, trace.stacks.shown())
}
