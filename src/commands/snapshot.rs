//! `gpuwatch snapshot`: the contents of a PyTorch memory snapshot, as text or JSON.

/// The account as JSON.
mod json;
/// The account as text.
mod text;

use crate::{
    model::{
        analysis::ladder::{DeviceFigures, Ladder, OwnFigures, ladder},
        trace::{Fit, Moment, Setting, Share, Totals, Trace},
    },
    storage::pickle::{self, Fault, Reading},
};
use std::{collections::BTreeMap, path::Path};

/// The account of a snapshot.
pub struct Account {
    trace: Trace,
    bytes: u64,
    ended: Option<Fault>,
    devices: Vec<Device>,
}

/// One device of it.
struct Device {
    ordinal: u32,
    totals: Totals,
    ladder: Ladder,
    /// By stream and pool.
    parts: Vec<(u64, Option<u32>, Totals)>,
    live: Vec<Share>,
    /// Number of events in its trace.
    events: usize,
    peak: Option<Moment>,
    asked: Option<Asked>,
}

/// Whether a request would fit.
#[derive(Clone, Copy)]
struct Asked {
    bytes: u64,
    stream: u64,
    fit: Fit,
}

/// Reads and analyses a snapshot; `fits` is a request to test.
///
/// # Errors
/// Fails if it cannot be read at all.
pub fn account(path: &Path, fits: Option<u64>) -> Result<Account, Fault> {
    let Reading { trace, bytes, ended } = pickle::open(path)?;
    Ok(Account::new(trace, bytes, ended, fits))
}

impl Account {
    fn new(trace: Trace, bytes: u64, ended: Option<Fault>, fits: Option<u64>) -> Self {
        let devices = trace.ordinals().into_iter().map(|it| Device::new(&trace, it, fits)).collect();
        Self { trace, bytes, ended, devices }
    }

    /// Returns why it is incomplete, if it is.
    pub fn ended(&self) -> Option<String> {
        self.ended.as_ref().map(|it| format!("{it}; what follows is what was read up to there"))
    }

    /// Returns the account as text.
    pub fn text(&self) -> String {
        text::account(self)
    }

    /// Returns the account as JSON, schema 1.
    pub fn json(&self) -> String {
        json::account(self)
    }

    /// The text of the allocator's settings; `None` if the snapshot lacks it.
    fn settings(&self) -> Option<String> {
        self.trace.settings.as_ref().map(|it| self.trace.stacks.texts.get(it.text).into_owned())
    }
}

impl Device {
    fn new(trace: &Trace, ordinal: u32, fits: Option<u64>) -> Self {
        let totals = Totals::of(trace, trace.segments_on(ordinal));
        let mut kinds = BTreeMap::<_, Vec<_>>::new();
        for it in trace.segments_on(ordinal) {
            kinds.entry((it.stream, it.pool)).or_default().push(it);
        }
        let part = |((stream, pool), segments)| (stream, pool, Totals::of(trace, segments));
        let asked = fits.zip(trace.main_stream(ordinal)).map(|(bytes, stream)| {
            let fit = trace.fit(ordinal, stream, bytes, largest_split(trace));
            Asked { bytes, stream, fit }
        });
        Self {
            ordinal,
            totals,
            ladder: ladder(&DeviceFigures::default(), &[figures(&totals)]),
            parts: kinds.into_iter().map(part).collect(),
            live: trace.live(ordinal),
            events: trace.devices.get(ordinal as usize).map_or(0, ExactSizeIterator::len),
            peak: trace.peak(ordinal),
            asked,
        }
    }
}

/// Returns the allocator's counters at that moment, from its segments.
fn figures(it: &Totals) -> OwnFigures {
    OwnFigures {
        requested: it.requested,
        allocated: Some(it.allocated),
        active: Some(it.allocated.saturating_add(it.pending)),
        inactive_split: Some(it.stuck),
        reserved: Some(it.reserved),
        private_pools: Some(it.private_pools),
        expandable: it.expandable > 0,
        ..OwnFigures::default()
    }
}

/// The setting `max_split_size`; negative where it is not set.
fn largest_split(trace: &Trace) -> Option<u64> {
    let values = &trace.settings.as_ref()?.values;
    values.iter().find(|it| trace.stacks.texts.get(it.0) == "max_split_size").and_then(|it| match it.1 {
        Setting::Number(it) => u64::try_from(it).ok(),
        _ => None,
    })
}
