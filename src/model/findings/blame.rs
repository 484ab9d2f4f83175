//! Explains an out-of-memory error in one sentence: growth of the job, what it keeps otherwise, its neighbours, or the
//! request itself.

use super::{
    Stage,
    derive::ProcessOnDevice,
    finding::{Finding, Kind},
};
use crate::{
    facts::units::{Bytes, Stamp},
    model::{
        analysis::{
            cause::Cause,
            culprit::{self, Culprit, LiveHolder},
            episode::{Axis, Episode, Resource},
            evidence::{Evidence, Unit},
            oom::{
                OomFigures,
                reason::{self, Reason},
            },
            severity::Severity,
        },
        findings,
        session::oom::OutOfMemory,
    },
};

/// What to do where an evaluation keeps the graphs of its outputs.
const WITHOUT_GRAPHS: &str = "evaluate under torch.no_grad(): without it, each output keeps its batch's graph, also where \
                              it is copied to the host";

/// Names only one culprit if its share of the growth is at least this.
const ALONE: f64 = 0.9;

/// If nothing else explains the error, growth leads if it took this share of the device.
const MATTERS: f64 = 0.04;

/// Growth that was noticed is one of rare rises if they are this part of it.
const RARE: f64 = 0.75;

impl ProcessOnDevice<'_> {
    /// The finding for an out-of-memory error; `None` for all but the last error of a search for a size that fits. If
    /// steps follow, the program caught the error, and it no longer ends the run.
    pub(super) fn oom(&self, it: &OutOfMemory) -> Option<Finding> {
        let figures = &it.figures;
        let step = it.reported.step.unwrap_or(0);
        let stage = findings::stage(self.process, self.on, it, self.session.now);
        if let Stage::Fitted { attempts, last, is_followed } = stage {
            return last.then(|| self.searched(it, attempts, is_followed));
        }
        let sites = self.process.lines_at(it);
        // The step itself may have ended all the same, as the last one of a command that ended well.
        let is_done_well = self.session.job.is_some_and(|it| it.code == Some(0));
        let later = self.on.step.map_or(0, |it| it.saturating_sub(step));
        let is_caught = later > 1 || (later == 1 && is_done_well);
        let severity = match stage {
            Stage::Open => Severity::Info,
            _ if is_caught => Severity::Warning,
            _ => Severity::Critical,
        };
        let (seen, growth) = (it.seen(sites), self.growth_into(it));
        let reason = Reason::of(figures, &seen).filter(|it| leads(it, growth.as_ref(), figures));
        let reason = reason.filter(|_| !is_too_much(figures));
        let (axis, place) = self.place_of(it, reason.as_ref());
        let is_of_growth = match &reason {
            Some(it) => matches!(it, Reason::SinceStep(..) | Reason::RareRises(_) | Reason::Equal(..)),
            None => growth.is_some(),
        };
        let found = self.finding(Kind::Oom, figures.cause(), figures.evidence(), (place, Stamp(it.reported.at_us)));
        let account = it.account(sites, self.process.peak.as_deref());
        let found = Finding { severity, axis, ends_us: 0, account, ..found };
        let (why, found) = match (reason, growth) {
            (Some(reason), growth) => {
                // The growth that was noticed is the same rises.
                let growth = growth.filter(|_| matches!(reason, Reason::RareRises(_)));
                let led_by = growth.map(|(growth, _)| growth.identity());
                self.explained(&reason, it, Finding { led_by, ..found })
            }
            (None, Some((mut growth, gained))) => {
                // The search at the error may find what the capture has not.
                let held = sites.and_then(|sites| culprit::live_holder(sites, it.reported.device));
                let held = held.filter(|it| it.bytes >= gained.0 / 4);
                if let Some((culprit, held)) = growth.culprit.as_deref_mut().zip(held) {
                    culprit.held_by(&held);
                }
                (grown(&growth, gained), led_by(growth, found))
            }
            (None, None) => {
                if let Some(reason) = Reason::left(figures, &seen).filter(|_| is_unexplained(figures)) {
                    self.explained(&reason, it, found)
                } else {
                    let account = found.account.iter().cloned().chain(it.largest_part()).collect();
                    (unexplained_by_growth(figures, found.cause), Finding { account, ..found })
                }
            }
        };
        let mut found = found;
        if found.cause == Cause::Fragmentation && seen.before.step.is_none() {
            let words = "no step was complete yet: it may need more than the pieces hold together";
            found.account.push(words.to_owned());
        }
        // A technique does not help against what grows, nor much against others.
        if self.process.advised.is_some() || !(is_of_growth || found.cause == Cause::OtherProcess) {
            found.saving = findings::advice_words(self.process);
        }
        let at = it.line().map_or_else(String::new, |it| format!(" at {it}"));
        let others = also_used_by_others(figures, found.cause);
        Some(Finding { sentence: Some(format!("Out of memory{at}: {why}{others}")), ..found })
    }

    /// Returns where an error was: at a step, or in a job that counts none and was judged by time, at a second since
    /// the first sample.
    fn place_of(&self, it: &OutOfMemory, reason: Option<&Reason>) -> (Axis, u64) {
        let step = it.reported.step.unwrap_or(0);
        let is_timed =
            it.growing.iter().any(|it| it.axis == Axis::Seconds) || matches!(reason, Some(Reason::Equal(..)));
        match self.on.first.filter(|_| step == 0 && is_timed) {
            Some(first) => (Axis::Seconds, Stamp(it.reported.at_us).since(first) / 1_000_000),
            None => (Axis::Steps, step),
        }
    }

    /// The finding of a search for a size that fits: all its errors in one.
    fn searched(&self, it: &OutOfMemory, attempts: u64, is_followed: bool) -> Finding {
        let mut evidence = Evidence::default();
        evidence.add("attempts", attempts as f64, Unit::Count);
        let (step, at) = (it.reported.step.unwrap_or(0), Stamp(it.reported.at_us));
        let with = self.process.hello.as_ref().and_then(|it| it.fitted.as_deref());
        let with = with.map_or_else(String::new, |it| format!(", with {it}"));
        let failed = if attempts == 1 { "1 attempt".to_owned() } else { format!("{attempts} attempts") };
        let line = it.line().map_or_else(String::new, |it| format!(" at {it}"));
        let when = if step == 0 { "before the first step that fitted" } else { "before training settled" };
        let after = if is_followed { "" } else { "; no error came after it" };
        let sentence = format!("{failed} ran out of memory{line} {when}{with}{after}.");
        Finding {
            sentence: Some(sentence),
            resolved_step: Some(step + 1),
            resolved_at: Some(at),
            ..self.finding(Kind::Oom, Cause::SizeSearch, evidence, (step, at))
        }
    }

    /// Adds a reason of the job's own to the finding of an error; returns the sentence as well.
    fn explained(&self, reason: &Reason, it: &OutOfMemory, found: Finding) -> (String, Finding) {
        let sites = self.process.lines_at(it);
        let holder = sites.and_then(|sites| culprit::live_holder(sites, it.reported.device));
        // The parameters of a network are held by it, which explains nothing.
        let kept = holder.filter(|it| (it.items.is_some() || it.is_local) && matters(it, reason));
        let held = match reason {
            Reason::SinceStep(..) | Reason::RareRises(_) | Reason::Equal(..) => {
                kept.as_ref().map_or_else(String::new, |it| format!(", held by {}", it.path))
            }
            _ => String::new(),
        };
        // Outputs that keep their graphs keep them also where they are copied to the host.
        let is_of_graphs = matches!(reason, Reason::SinceStep(..)) && kept.as_ref().is_some_and(|it| it.is_graph);
        let cause = if is_of_graphs { Cause::GraphRetained } else { reason.cause() };
        let sentence = format!("{}{held}.", reason.sentence(&it.figures, &it.before, |step| found.place(step)));
        let switch = matches!(reason, Reason::SinceStep(..) | Reason::Equal(..)).then(|| {
            let frames = it.reported.library.iter().chain(&it.reported.frames).map(|it| &*it.file);
            let holders = sites.into_iter().flat_map(|it| &it.sites).flat_map(|it| &it.holders);
            reason::switch(frames.chain(holders.filter_map(|it| it.file.as_deref())))
        });
        let own = match reason {
            Reason::SinceStep(..) if is_of_graphs => Some(WITHOUT_GRAPHS.to_owned()),
            Reason::Equal(..) => kept.map(|it| it.advice),
            _ => reason.remedy().map(str::to_owned),
        };
        let switch = switch.flatten().filter(|_| !is_of_graphs);
        let own_remedy = switch.map(str::to_owned).or(own);
        let mut found = Finding { cause, advice: cause.advice(), own_remedy, ..found };
        if reason.bytes() > 0 {
            found.evidence.add("explained", reason.bytes() as f64, Unit::Bytes);
        }
        if matches!(reason, Reason::Larger(_) | Reason::First | Reason::Model) {
            let varies = *reason != Reason::Model;
            found.account.extend(it.largest_part());
            let argv = self.process.hello.as_deref().map_or(&[][..], |it| &it.argv);
            found.account.extend(findings::words(argv, varies, it.figures.total));
        }
        (sentence, found)
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

/// Whether a reason comes before growth that was noticed, and before what is in pieces or of other processes.
fn leads(reason: &Reason, growth: Option<&(Finding, Bytes)>, figures: &OomFigures) -> bool {
    let bytes = reason.bytes();
    let elsewhere = match figures.cause() {
        Cause::OtherProcess => figures.others,
        Cause::Fragmentation => figures.stuck.or(figures.unallocated()),
        _ => None,
    };
    let by_growth = growth.is_none_or(|(found, gained)| match reason {
        Reason::RareRises(_) => found.culprit.is_none() && bytes as f64 >= RARE * gained.0 as f64,
        _ => bytes > gained.0,
    });
    by_growth && elsewhere.is_none_or(|it| bytes > it)
}

/// Whether neither the figures nor a limit of the job explain an error. A small neighbour does not.
fn is_unexplained(figures: &OomFigures) -> bool {
    let is_own = match figures.cause() {
        Cause::Oom => true,
        Cause::OtherProcess => !figures.has_large_neighbours(),
        _ => false,
    };
    is_own && figures.own_limit().is_none() && !is_too_much(figures)
}

/// Whether the request is larger than the device, which nothing that is freed can change.
fn is_too_much(figures: &OomFigures) -> bool {
    figures.total.is_some_and(|total| figures.tried > Some(total))
}

/// Whether the holder has a large part of what a reason explains.
fn matters(it: &LiveHolder, reason: &Reason) -> bool {
    it.bytes.saturating_mul(4) >= reason.bytes()
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
