//! Errors that a job expects: a search for the largest size that fits.
//!
//! Such a job runs out of memory before training has settled, handles the error and tries something smaller. Only its
//! course shows that, and at first it looks like a job that fails in its first steps. So an early error of a running
//! job is open until steps follow, the process ends, or nothing happens for a while.

use crate::{
    facts::units::Stamp,
    model::session::{
        oom::OutOfMemory,
        process::{OOMS, OnDevice, Process},
    },
};

/// The latest step of an error of a search: those that train a few steps with each size end before it.
const EARLY: u64 = 64;

/// A search is over once this many times as many steps have passed as at its last error.
const CALM: u64 = 3;

/// How long an early error is open without a step or another attempt, in µs.
const WAIT_US: u64 = 60_000_000;

/// How long a search may take, in µs: a server whose requests fail again and again searches nothing.
const SEARCH_US: u64 = 300_000_000;

/// What an error is to its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// An early error of a running job: it may be handled.
    Open,
    /// One of so many attempts of a search that found a size; whether it is the last of them, and whether another error
    /// came after the search.
    Fitted { attempts: u64, last: bool, is_followed: bool },
    /// No error of a search.
    Usual,
}

/// Returns what an error is to its job.
pub(super) fn stage(process: &Process, on: &OnDevice, it: &OutOfMemory, now: Stamp) -> Stage {
    let errors: Vec<&OutOfMemory> =
        process.ooms.iter().filter(|error| error.reported.device == it.reported.device).collect();
    let step = |error: &OutOfMemory| error.reported.step.unwrap_or(0);
    let latest = on.step.unwrap_or(0);
    let following = |place: usize| errors.get(place + 1).map_or(latest, |next| step(next));
    let has_settled = |(place, error): &(usize, &&OutOfMemory)| {
        let at = step(error);
        at <= EARLY && following(*place) > at && following(*place) >= at.saturating_mul(CALM)
    };
    let found = errors.iter().enumerate().rev().find(has_settled);
    let place = errors.iter().position(|error| std::ptr::eq(*error, it)).unwrap_or(usize::MAX);
    if let Some((end, _)) = found.filter(|(end, _)| place <= *end) {
        let is_followed = end + 1 < errors.len();
        return Stage::Fitted { attempts: end as u64 + 1, last: place == end, is_followed };
    }
    let since = |error: Option<&&OutOfMemory>| now.since(Stamp(error.map_or(0, |it| it.reported.at_us)));
    let is_search = since(errors.last()) < WAIT_US && since(errors.first()) < SEARCH_US && errors.len() < OOMS;
    let is_open = step(it) <= EARLY && process.is_alive() && is_search;
    if is_open { Stage::Open } else { Stage::Usual }
}
