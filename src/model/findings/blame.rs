//! Explains an out-of-memory error in one sentence: growth of the job, its neighbours, or the request itself.

use super::{
    derive::Place,
    finding::{Finding, Kind},
};
use crate::{
    facts::units::{Bytes, Stamp},
    model::{
        analysis::{
            cause::Cause,
            culprit::Culprit,
            episode::{Episode, Resource},
            oom::OomFigures,
            severity::Severity,
        },
        session::oom::OutOfMemory,
    },
};

/// Names only one culprit if its share of the growth is at least this.
const ALONE: f64 = 0.9;

/// If nothing else explains the error, growth leads if it took this share of the device.
const MATTERS: f64 = 0.04;

impl Place<'_> {
    /// The finding for an out-of-memory error. If steps follow, the program caught the error, and it no longer ends the
    /// run.
    pub(super) fn oom(&self, it: &OutOfMemory) -> Finding {
        let figures = &it.figures;
        let step = it.reported.step.unwrap_or(0);
        let found = self.finding(Kind::Oom, figures.cause(), figures.evidence(), (step, Stamp(it.reported.at_us)));
        let is_caught = self.on.step.is_some_and(|it| it > step + 1);
        let severity = if is_caught { Severity::Warning } else { Severity::Critical };
        let found = Finding { severity, ends_us: 0, account: it.account(self.process.lines_at(it)), ..found };
        let (why, found) = match self.growth_into(it) {
            Some((growth, gained)) => (grown(&growth, gained), led_by(growth, found)),
            None => (unexplained_by_growth(figures, found.cause), found),
        };
        Finding {
            sentence: Some(format!("Out of memory: {why}{}", also_used_by_others(figures, found.cause))),
            ..found
        }
    }

    /// Returns the growth that explains an error, with the bytes it had taken by then. It explains the error if the
    /// request would have fitted without it, or if it is large and nothing else does.
    fn growth_into(&self, oom: &OutOfMemory) -> Option<(Finding, Bytes)> {
        let is_own = |it: &&Episode| matches!(it.resource, Resource::Allocated | Resource::Reserved | Resource::Driver);
        let open = oom.growing.iter().filter(is_own);
        let then = open.max_by_key(|it| (it.resource == Resource::Allocated, it.gained))?;
        let is_same = |it: &&Episode| (it.resource, it.first_alert_at) == (then.resource, then.first_alert_at);
        let now = self.on.growth.episodes().find(is_same).unwrap_or(then);
        explains(then.gained, &oom.figures).then(|| (self.growth(now), Bytes(then.gained)))
    }
}

/// Whether growth by these bytes explains an error.
fn explains(gained: u64, figures: &OomFigures) -> bool {
    if figures.would_fit_without(gained) {
        return true;
    }
    let most = figures.own_limit().or(figures.total);
    let is_too_much = figures.tried > most && most.is_some();
    let is_no_trifle = !is_too_much && gained as f64 >= MATTERS * most.or(figures.allocated).unwrap_or(0) as f64;
    match figures.cause() {
        Cause::Oom => is_no_trifle,
        Cause::OtherProcess => is_no_trifle && figures.others.is_some_and(|it| it < gained),
        _ => false,
    }
}

/// An error caused by growth: the growth's line, cause and remedy come first.
fn led_by(growth: Finding, oom: Finding) -> Finding {
    let led_by = Some(growth.identity());
    Finding { cause: growth.cause, advice: growth.advice, culprit: growth.culprit, led_by, ..oom }
}

/// `oom.py:8 has kept 136.1 GiB since step 33.`
fn grown(growth: &Finding, gained: Bytes) -> String {
    let since = growth.since();
    let kept = |it: &Culprit| {
        let place = it.leading().place();
        if it.share >= ALONE {
            format!("{place} has kept {gained} since {since}.")
        } else {
            format!("{place} and other lines have kept {gained} since {since}.")
        }
    };
    growth.culprit.as_deref().map_or_else(|| format!("{} {gained} since {since}.", subject(growth)), kept)
}

/// The subject of the sentence if no line is known.
fn subject(growth: &Finding) -> &'static str {
    match growth.resource {
        Some(Resource::Reserved) => "what the allocator holds from the driver grew by",
        Some(Resource::Driver) => "this process's memory outside the allocator grew by",
        _ if growth.cause == Cause::LargerInputs => "each step needs more than the one before: live memory grew by",
        _ => "the job's live memory grew by",
    }
}

fn unexplained_by_growth(figures: &OomFigures, cause: Cause) -> String {
    let tried = figures.tried.map_or_else(|| "the request".to_owned(), |it| Bytes(it).to_string());
    let free = figures.free.map_or_else(String::new, |it| format!("; {} was free", Bytes(it)));
    if let (Cause::Oom, Some(total)) = (cause, figures.total.filter(|it| figures.tried > Some(*it))) {
        return format!("{tried} is more than the device has, which is {}.", Bytes(total));
    }
    match (cause, figures.others, figures.unallocated()) {
        (Cause::OtherProcess, Some(others), _) => {
            let share = share(others, figures.total).map_or_else(String::new, |it| format!(" ({it})"));
            format!(
                "other processes hold {}{share} of the device. Without them, {tried} would have fitted.",
                Bytes(others)
            )
        }
        (Cause::Fragmentation, _, Some(unused)) => {
            format!("the allocator holds {} unused, but in pieces too small for {tried}.", Bytes(unused))
        }
        _ => match figures.own_limit() {
            Some(limit) => format!("the job may take at most {}, and {tried} more did not fit.", Bytes(limit)),
            None => match figures.allocated {
                Some(live) => format!("{tried} did not fit beside the {} that the job uses{free}.", Bytes(live)),
                None => format!("{tried} did not fit{free}."),
            },
        },
    }
}

/// The other processes' memory, unless the sentence already blames them.
fn also_used_by_others(figures: &OomFigures, cause: Cause) -> String {
    if cause == Cause::OtherProcess {
        return String::new();
    }
    match figures.others {
        None => String::new(),
        Some(0) => " No other process uses the device.".to_owned(),
        Some(others) => {
            share(others, figures.total).map_or_else(String::new, |it| format!(" Other processes hold {it}."))
        }
    }
}

/// Formats a share of the device, such as `2 %`; `None` if its total is unknown.
fn share(bytes: u64, total: Option<u64>) -> Option<String> {
    let share = bytes as f64 / total.filter(|it| *it > 0)? as f64 * 100.0;
    Some(if share < 0.5 { "less than 1 %".to_owned() } else { format!("{share:.0} %") })
}
