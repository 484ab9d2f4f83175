//! A snapshot's blocks, or the events of its trace, as rows.

use super::Row;
use crate::model::trace::{Action, StackId, State, Trace};
use serde_json::Value;
use std::io;

/// What rows are made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Table {
    /// The blocks of all segments.
    #[default]
    Blocks,
    /// What the allocator did, in order.
    Events,
}

const BLOCKS: [&str; 11] = [
    "device",
    "stream",
    "pool",
    "segment",
    "segment_size",
    "expandable",
    "address",
    "size",
    "requested",
    "state",
    "stack",
];
const EVENTS: [&str; 9] = ["device", "event", "unix_us", "action", "address", "size", "stream", "pool", "stack"];

impl Table {
    /// Returns the names of its columns.
    pub(super) fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Blocks => &BLOCKS,
            Self::Events => &EVENTS,
        }
    }

    /// Passes on every row. Sizes are bytes, addresses and streams are the driver's numbers, pools are numbered from 0
    /// by first use, a stack has its outermost frame first.
    pub(super) fn rows(self, trace: &Trace, write: &mut dyn FnMut(Row) -> io::Result<()>) -> io::Result<()> {
        match self {
            Self::Blocks => blocks(trace, write),
            Self::Events => events(trace, write),
        }
    }
}

fn blocks(trace: &Trace, write: &mut dyn FnMut(Row) -> io::Result<()>) -> io::Result<()> {
    let stack = stacks(trace);
    for segment in &trace.segments {
        for block in trace.blocks_of(segment) {
            let state = match block.state {
                State::Live => Some("live"),
                State::Pending => Some("pending"),
                State::Free => Some("free"),
                State::Other => None,
            };
            let values = [
                segment.device.map(Value::from),
                Some(segment.stream.into()),
                segment.pool.map(Value::from),
                Some(segment.address.into()),
                Some(segment.size.into()),
                Some(segment.is_expandable.into()),
                Some(block.address.into()),
                Some(block.size.into()),
                block.requested.map(Value::from),
                state.map(Value::from),
                stack(block.stack),
            ];
            write(BLOCKS.into_iter().zip(values).collect())?;
        }
    }
    Ok(())
}

fn events(trace: &Trace, write: &mut dyn FnMut(Row) -> io::Result<()>) -> io::Result<()> {
    let stack = stacks(trace);
    for (device, range) in trace.devices.iter().enumerate() {
        for (place, event) in trace.events.range(range.clone()).enumerate() {
            let action = Action::WORDS.iter().find(|(_, action)| *action == event.action).map(|(word, _)| *word);
            let values = [
                Some(device.into()),
                Some(place.into()),
                event.unix_us.map(Value::from),
                action.map(Value::from),
                event.address.map(Value::from),
                event.size.map(Value::from),
                event.stream.map(Value::from),
                event.pool.map(Value::from),
                stack(event.stack),
            ];
            write(EVENTS.into_iter().zip(values).collect())?;
        }
    }
    Ok(())
}

/// Writes a stack's frames, the outermost first.
fn stacks(trace: &Trace) -> impl Fn(StackId) -> Option<Value> {
    let shown = trace.stacks.shown();
    move |id| {
        let frames: Vec<String> = shown(id).into_iter().map(|frame| trace.stacks.label(Some(frame))).collect();
        (!frames.is_empty()).then(|| frames.join(";").into())
    }
}
