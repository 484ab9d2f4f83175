//! Derives the findings for one process on one device from the session.

use super::{
    finding::{Finding, Kind},
    follow, host_limits, replayed,
};
use crate::{
    facts::{
        event::{DeviceId, wire::Sites},
        text::Foreign,
        units::{Bytes, Stamp},
    },
    model::{
        analysis::{
            cause::Cause,
            culprit::{Breakdown, Culprit},
            diagnosis,
            episode::{Axis, End, Episode, Resolved, Resource},
            evidence::{Evidence, Unit},
            host as host_memory,
            latch::LatchPeriod,
            pace,
            severity::{self, Severity},
            signature::Signature,
            strain,
        },
        findings,
        session::{
            Session,
            device::Device,
            process::{GrownPart, OnDevice, Process},
        },
    },
};

/// Smallest share of the growth that a capture must see to name its cause. If rises are rare, a capture of a few steps
/// sees more or fewer of them than the average.
const LEAST_SHARE: f64 = 0.25;

/// Most bytes of host memory per step that the nodes of one step's graph take: thousands of nodes of a few hundred
/// bytes.
const MOST_NODES: f64 = 4.0 * 1_048_576.0;

/// What a capture found explains growth if its pace is within this ratio of it.
const FITS: f64 = 1.5;

/// A smaller share of the growth of reserved memory is an error of its slopes.
const A_TRIFLE: f64 = 0.1;

/// Free parts of split segments that grow with at least this part of the allocated memory's growth grow beside it.
const BESIDE: f64 = 0.02;

/// Steps that take this many times as long deserve a warning; below, other jobs of the node may be the reason.
const MUCH_SLOWER: f64 = 1.5;

/// Returns every finding of a session, in the order of [`follow::order`].
pub(super) fn all(session: &Session) -> Vec<Finding> {
    let mut out = Vec::new();
    for process in &session.processes {
        for on in &process.devices {
            let place = ProcessOnDevice { session, process, on };
            out.extend(on.growth.episodes().filter(|it| place.reports(it.resource)).map(|it| place.growth(it)));
            out.extend(Resource::ALL.iter().filter(|it| place.reports(**it)).filter_map(|it| place.sawtooth(*it)));
            let ooms = process.ooms.iter().filter(|it| it.reported.device == on.ordinal);
            let ooms = caught_once(ooms.filter_map(|it| Some((it.line(), place.oom(it)?))).collect());
            let strained = on.strain.spells().map(|(cause, it)| place.strain(cause, it));
            let errors = process.ooms.iter().filter(|it| it.reported.device == on.ordinal).count() as u64;
            out.extend(strained.filter(|it| !is_of_search(it, &ooms) && !is_of_errors(it, on, errors)));
            out.extend(ooms);
            out.extend(on.pace.slowdowns().iter().map(|it| place.slowdown(it)));
            out.extend(place.stalls());
            out.extend(on.skew.spells().iter().map(|it| place.slow_rank(it)));
            out.extend(on.hardware.spells().filter(|_| place.is_first()).map(|(cause, it)| place.hardware(cause, it)));
        }
        let trains = process.devices.iter().find(|it| it.step.is_some());
        for (on, context) in trains.iter().flat_map(|on| process.contexts.iter().map(move |it| (*on, it))) {
            let place = ProcessOnDevice { session, process, on };
            out.extend(context.latch.spells().iter().map(|it| place.context(&context.device, it)));
        }
    }
    out.extend(findings::all(session));
    out.extend(host_limits::all(session));
    follow::order(&mut out);
    replayed::attach(&mut out, session);
    out
}

/// One process on one device.
pub(super) struct ProcessOnDevice<'a> {
    pub(super) session: &'a Session,
    pub(super) process: &'a Process,
    pub(super) on: &'a OnDevice,
}

/// Joins errors that a program caught at one line, for one cause: a batch that is too large comes once an epoch, and
/// the program retries with less.
fn caught_once(all: Vec<(Option<String>, Finding)>) -> Vec<Finding> {
    let mut joined: Vec<(Option<String>, Finding, u64, String)> = Vec::new();
    for (line, it) in all {
        let is_caught = it.severity < Severity::Critical && it.cause != Cause::SizeSearch && line.is_some();
        let place = it.place(it.first_alert_step);
        let same = |other: &&mut (Option<String>, Finding, u64, String)| {
            is_caught && other.2 > 0 && other.0 == line && other.1.cause == it.cause
        };
        match joined.iter_mut().find(same) {
            Some((_, first, count, last)) => {
                first.severity = first.severity.max(it.severity);
                (*count, *last) = (*count + 1, place);
            }
            None => joined.push((line, it, u64::from(is_caught), place)),
        }
    }
    let told = |(_, mut it, count, last): (Option<String>, Finding, u64, String)| {
        if count > 1 {
            let words = format!("the program caught {count} errors at this line, the last one at {last}");
            it.account.insert(0, words);
        }
        it
    };
    joined.into_iter().map(told).collect()
}

/// Whether the allocator retried for errors, and for nothing else.
fn is_of_errors(it: &Finding, on: &OnDevice, errors: u64) -> bool {
    it.cause == Cause::Thrashing && errors > 0 && on.counters.retries.is_some_and(|retries| retries <= errors)
}

/// Whether the allocator retried for a search for a size that fits, whose finding says it.
fn is_of_search(it: &Finding, ooms: &[Finding]) -> bool {
    let mut searches = ooms.iter().filter(|it| it.cause == Cause::SizeSearch);
    it.kind == Kind::Retries && searches.any(|search| it.first_alert_at <= search.first_alert_at)
}

/// Says which part of the allocated memory grew, what is kept beside it, and by how much it can still grow.
fn words_of(it: &GrownPart) -> Vec<String> {
    let (what, why) = match it.name {
        "retained" => return vec!["weights, gradients and optimizer state do not grow".to_owned()],
        "weights" => ("weights alone", "parameters are added that are not trained"),
        "gradients" => ("gradients alone", "more parameters get one, and no optimizer steps them"),
        "optimizer" => ("optimizer state alone", "states of parameters that are gone, or former optimizers, are kept"),
        "trained" => ("gradients and optimizer state, not the weights", "layers are no longer frozen"),
        _ => ("the model, with its gradients and its optimizer state", "parameters are added"),
    };
    let kept = Some(it.kept_per_step).filter(|it| *it > 0);
    let kept = kept.map(|it| format!("other memory grows with it, {} a step: that is no part of the model", Bytes(it)));
    let left =
        it.left.map(|it| format!("with all weights trained, {} more are needed, and no more than that", Bytes(it)));
    let grows = format!("what grows is {what}, {} a step: {why}", Bytes(it.bytes_per_step));
    left.into_iter().chain(kept).chain([grows]).collect()
}

impl ProcessOnDevice<'_> {
    /// Whether this device reports a resource. Host memory belongs to the process, so the process reports it once.
    fn reports(&self, resource: Resource) -> bool {
        let sees = |on: &&OnDevice| on.growth.curve(resource).is_some();
        !is_of_host(resource)
            || self.process.devices.iter().find(sees).is_none_or(|first| first.ordinal == self.on.ordinal)
    }

    pub(super) fn finding(&self, kind: Kind, cause: Cause, evidence: Evidence, first: (u64, Stamp)) -> Finding {
        Finding {
            device: Some(self.on.device.clone()),
            ordinal: Some(self.on.ordinal),
            probe: Some(self.process.probe),
            pid: self.process.any_pid(),
            rank: self.process.rank(),
            attached_step: self.process.attached_step(),
            approximate: self.process.stride > 1 || self.process.lost > 0,
            ..Finding::new(kind, cause, evidence, first)
        }
    }

    pub(super) fn growth(&self, it: &Episode) -> Finding {
        let signature = self.on.trail.signature(it);
        let (cause, evidence) = diagnosis::diagnose(it, &signature);
        let step_us = match it.axis {
            Axis::Steps => self.on.trail.step_us(),
            Axis::Seconds => Some(1_000_000),
        };
        let lasts = it.resolved.is_none();
        let part = self.grown_part(it);
        let filling = if self.ends_before_it_is_full(it, part.as_ref()) { 0.0 } else { filling(it, cause, &signature) };
        let is_host = is_of_host(it.resource);
        let found = self.finding(Kind::Growth, cause, evidence, (it.first_alert_step, it.first_alert_at));
        let found = Finding {
            resource: Some(it.resource),
            device: found.device.filter(|_| !is_host),
            ordinal: found.ordinal.filter(|_| !is_host),
            axis: it.axis,
            since_step: it.since_step,
            resolved_step: it.resolved.map(|it| it.step),
            resolved_at: it.resolved.map(|it| it.at),
            bytes_per_step: Some(it.bytes_per_step),
            blocks_per_step: it.blocks_per_step,
            stairs: it.stairs,
            ..found
        };
        let mut found = self.blamed(found);
        if lasts {
            let (filling, room) = match (found.cause, self.room(it.resource)) {
                // It is copied into a larger one, and lives until then.
                (Cause::GrowingTensor, Some(room)) => {
                    (2.0 * filling, Some(room.saturating_sub(self.of_copy(it.resource))))
                }
                (_, room) => self.beside_stuck(it, &signature, filling, room),
            };
            let full = severity::full(filling, room, step_us);
            found.severity = severity::of_growth(filling, full, step_us);
            found.full_in_steps = full.in_steps.filter(|_| it.axis == Axis::Steps);
            found.full_in_us = full.in_us;
            found.ends_us = severity::assumed(filling, full, step_us);
        }
        if let Some(part) = part {
            found.account.extend(words_of(&part));
            // The line that keeps what grows tells more, and so does a leak beside the model.
            let is_kept = found.culprit.as_deref().is_some_and(|it| it.kept.is_some()) || part.kept_per_step > 0;
            if part.name != "retained" && !is_kept && keeps(found.cause) {
                (found.cause, found.advice) = (Cause::LargerModel, Cause::LargerModel.advice());
            }
        }
        found
    }

    /// Returns how fast the device fills, and the room for it, where allocated memory grows: if the free parts of split
    /// segments grow beside it, the steps do not use them.
    fn beside_stuck(&self, it: &Episode, of: &Signature, filling: f64, room: Option<u64>) -> (f64, Option<u64>) {
        let stuck = of.inactive_split.filter(|stuck| it.resource == Resource::Allocated && *stuck > BESIDE * filling);
        match (stuck, self.on.counters.inactive_split) {
            (Some(more), Some(now)) if filling > 0.0 => (filling + more, room.map(|it| it.saturating_sub(now))),
            _ => (filling, room),
        }
    }

    /// Bytes that a step has for a while beyond what it leaves: of a tensor that is replaced by a larger one, at least
    /// the new one.
    fn of_copy(&self, resource: Resource) -> u64 {
        let counters = &self.on.counters;
        let beyond = counters.allocated_peak.zip(counters.allocated).and_then(|(peak, now)| peak.checked_sub(now));
        beyond.filter(|_| resource == Resource::Allocated).unwrap_or(0)
    }

    /// Returns the part of allocated memory that grows.
    fn grown_part(&self, it: &Episode) -> Option<GrownPart> {
        let is_of_parts = it.resource == Resource::Allocated && it.axis == Axis::Steps;
        self.on.grown_part(it.since_step).filter(|_| is_of_parts)
    }

    /// Whether the growth of a part has an end for which there is room.
    fn ends_before_it_is_full(&self, it: &Episode, part: Option<&GrownPart>) -> bool {
        let left = part.filter(|it| it.kept_per_step == 0).and_then(|it| it.left);
        left.zip(self.room(it.resource)).is_some_and(|(left, room)| left <= room)
    }

    /// Adds the line that allocates what grows and its holder, from the latest capture since the growth began that
    /// found one; otherwise adds what that capture reported.
    fn blamed(&self, it: Finding) -> Finding {
        if !matches!(it.resource, Some(Resource::Allocated | Resource::Host)) {
            return it;
        }
        let within = |sites: &Sites| match (it.axis, sites.step) {
            (Axis::Steps, Some(step)) => it.since_step < step && it.resolved_step.is_none_or(|end| step <= end),
            _ => it.first_alert_at.0 <= sites.at_us && it.resolved_at.is_none_or(|end| sites.at_us <= end.0),
        };
        let Some((sites, Breakdown { culprits, notes })) = self.process.answer(self.on.ordinal, within) else {
            let account = self.why_not_looked(&it).filter(|_| it.resource == Some(Resource::Allocated));
            return Finding { account: account.into_iter().collect(), ..it };
        };
        if it.resource == Some(Resource::Host) {
            return with_nodes_of(culprits, it);
        }
        let mut culprits = of_growth(culprits, &it).into_iter();
        let first = culprits.next().map(Box::new);
        let others = culprits.map(|it| format!("also: {}", it.summary()));
        let account = others.chain(notes).collect();
        // A tensor that is replaced by a larger one is seen in any steps; larger inputs come and go.
        let is_of_inputs = first.is_none() && it.cause == Cause::GrowingTensor && sites.trouble.is_none();
        let usual = if is_of_inputs { Cause::LargerInputs } else { it.cause };
        let cause = first.as_ref().filter(|culprit| explains(culprit, &it)).map_or(usual, |culprit| culprit.cause);
        Finding { cause, advice: cause.advice(), culprit: first, account, ..it }
    }

    /// Returns why it is not known which line grows, as a sentence; `None` while it can still be found.
    fn why_not_looked(&self, it: &Finding) -> Option<String> {
        let hello = self.process.hello.as_ref()?;
        if let Some(why) = hello.capture_refusal() {
            return Some(format!("the line cannot be found: {}", Foreign::new(why)));
        }
        if let Some(why) = &self.process.refused {
            return Some(format!("the line was not found: {why}"));
        }
        let (ended, can) = (!self.process.is_alive(), hello.can_capture());
        if can && !it.is_active() {
            return Some("the line was not found: the growth was over before its steps could be compared".to_owned());
        }
        (can && ended).then(|| "the line was not found: the job ended before its steps could be compared".to_owned())
    }

    /// Bytes by which a resource can grow before the device, or the host, is full: free memory, and for live memory
    /// also the allocator's unused memory. What is free after the end of a process says nothing about it.
    fn room(&self, resource: Resource) -> Option<u64> {
        if is_of_host(resource) {
            let host = &self.session.host.memory.as_ref()?.value;
            return host_memory::nearest(host, self.process.pid?).map(|it| it.left());
        }
        let counters = &self.on.counters;
        let figures = self.session.device(&self.on.device).and_then(Device::figures);
        let driver = figures.map(|it| it.free.0);
        let hello = self.process.hello.as_ref();
        let total =
            counters.device_total.or_else(|| hello?.devices.iter().find(|it| it.ordinal == self.on.ordinal)?.total);
        let own = counters.device_free;
        let seen = if self.process.is_alive() { driver.or(own) } else { own.or(driver) };
        // The driver's figure is older than what the allocator has reserved since.
        let whole = figures.map(|it| it.total.0).or(total);
        let beside = whole.zip(counters.reserved).map(|(whole, reserved)| whole.saturating_sub(reserved));
        let free = seen.into_iter().chain(beside).min()?;
        let cached = counters.reserved.zip(counters.active).and_then(|(reserved, active)| reserved.checked_sub(active));
        Some(match resource {
            Resource::Allocated => free.saturating_add(cached.unwrap_or(0)),
            _ => free,
        })
    }

    /// A second release of a resource shows a sawtooth.
    fn sawtooth(&self, resource: Resource) -> Option<Finding> {
        let is_release = |it: &Resolved| it.end == End::Released;
        let releases: Vec<(&Episode, Resolved)> = self
            .on
            .growth
            .episodes()
            .filter(|it| it.resource == resource)
            .filter_map(|it| Some((it, it.resolved.filter(is_release)?)))
            .collect();
        let [(first, _), (_, second), ..] = releases.as_slice() else { return None };
        let (latest, _) = releases.last()?;
        let mut evidence = Evidence::default();
        evidence.add("releases", releases.len() as f64, Unit::Count);
        evidence.add("gained", releases.iter().map(|(it, _)| it.gained).max().unwrap_or(0) as f64, Unit::Bytes);
        let (cause, _) = diagnosis::diagnose(latest, &self.on.trail.signature(latest));
        let found = self.finding(Kind::Sawtooth, cause, evidence, (second.step, second.at));
        let found = Finding { resource: Some(resource), axis: first.axis, since_step: first.since_step, ..found };
        Some(self.blamed(found))
    }

    fn strain(&self, cause: Cause, it: &LatchPeriod) -> Finding {
        let counters = &self.on.counters;
        let mut evidence = Evidence::default();
        let kind = match cause {
            Cause::Fragmentation => {
                evidence.add("stuck_at_most", it.worst, Unit::Share);
                add_bytes(&mut evidence, "stuck", counters.inactive_split);
                add_bytes(&mut evidence, "reserved", counters.reserved);
                Kind::Fragmentation
            }
            Cause::Pressure => {
                evidence.add("wanted_at_most", it.worst, Unit::Share);
                add_bytes(&mut evidence, "allocated_peak", counters.allocated_peak);
                Kind::Pressure
            }
            Cause::RankImbalance => {
                let now = self.against_others().filter(|_| it.resolved.is_none());
                evidence.add("against_the_other_ranks", now.unwrap_or(it.worst), Unit::Times);
                add_bytes(&mut evidence, "wanted", strain::wanted(counters));
                add_bytes(&mut evidence, "others_want", self.memory().map(|(_, others)| others));
                Kind::Imbalance
            }
            Cause::Churn => {
                evidence.add("steps_that_give_segments_back", it.worst, Unit::Share);
                Kind::Retries
            }
            _ => {
                evidence.add("retries", counters.retries.unwrap_or(0) as f64, Unit::Count);
                Kind::Retries
            }
        };
        let matters = match kind {
            Kind::Retries => true,
            // Stuck memory hurts only if nothing else is left.
            Kind::Fragmentation => {
                self.room(Resource::Reserved).zip(counters.inactive_split).is_some_and(|(room, stuck)| room < stuck)
            }
            _ => false,
        };
        let mut found = self.spell(kind, cause, evidence, it);
        let severity = if matters && found.is_active() { Severity::Warning } else { Severity::Info };
        if kind == Kind::Pressure {
            found.saving = findings::advice_words(self.process);
        }
        Finding { severity, ..found }
    }

    /// Whether it is the first process that trains on its device, and reports what concerns the device.
    fn is_first(&self) -> bool {
        let is_here = |it: &OnDevice| it.device == self.on.device && it.step.is_some();
        let first = self.session.processes.iter().find(|it| it.devices.iter().any(is_here));
        first.is_some_and(|it| it.probe == self.process.probe)
    }

    fn hardware(&self, cause: Cause, it: &LatchPeriod) -> Finding {
        let mut evidence = Evidence::default();
        let figure = match cause {
            Cause::ThermalThrottling => Some(("hottest", Unit::Celsius)),
            Cause::PowerThrottling => Some(("clock_lost", Unit::Share)),
            Cause::DegradedLink => Some(("bandwidth_lost", Unit::Share)),
            Cause::RowsPending => Some(("rows_replaced", Unit::Count)),
            _ => None,
        };
        if let Some((name, unit)) = figure.filter(|_| it.worst > 0.0) {
            evidence.add(name, it.worst, unit);
        }
        let found = self.spell(Kind::Hardware, cause, evidence, it);
        // Administrators lower the power limit on purpose.
        let matters = found.is_active() && cause != Cause::PowerThrottling;
        Finding { severity: if matters { Severity::Warning } else { Severity::Info }, ..found }
    }

    fn slowdown(&self, it: &pace::SlowPeriod) -> Finding {
        let mut evidence = Evidence::default();
        evidence.add("slower", it.ratio(), Unit::Times);
        evidence.add("now_us", it.now_us, Unit::Micros);
        evidence.add("before_us", it.before_us, Unit::Micros);
        let found = self.finding(Kind::Slowdown, Cause::Slowdown, evidence, (it.first_alert_step, it.first_alert_at));
        let matters = it.resolved.is_none() && it.ratio() >= MUCH_SLOWER;
        Finding {
            severity: if matters { Severity::Warning } else { Severity::Info },
            since_step: it.since_step,
            resolved_step: it.resolved.map(|it| it.0),
            resolved_at: it.resolved.map(|it| it.1),
            ..found
        }
    }

    fn context(&self, device: &DeviceId, it: &LatchPeriod) -> Finding {
        let mut evidence = Evidence::default();
        if it.worst > 0.0 {
            evidence.add("used", it.worst, Unit::Bytes);
        }
        let found = self.spell(Kind::ExtraContext, Cause::ExtraContext, evidence, it);
        Finding { device: Some(device.clone()), ordinal: None, ..found }
    }

    pub(super) fn spell(&self, kind: Kind, cause: Cause, evidence: Evidence, it: &LatchPeriod) -> Finding {
        let found = self.finding(kind, cause, evidence, (it.first_alert_step, it.first_alert_at));
        Finding {
            axis: self.on.growth.axis().unwrap_or_default(),
            since_step: it.since_step,
            resolved_step: it.resolved.map(|it| it.0),
            resolved_at: it.resolved.map(|it| it.1),
            ..found
        }
    }
}

/// Whether a culprit explains growth: a capture shows that it is most of it, and the growth's course shows no other
/// cause (it did not end by itself or follow the inputs).
fn explains(culprit: &Culprit, growth: &Finding) -> bool {
    let is_most = growth.bytes_per_step.is_none_or(|rate| culprit.bytes_per_step >= LEAST_SHARE * rate);
    is_most && !matches!(growth.cause, Cause::CacheFilling | Cause::LargerInputs)
}

/// Whether a cause is that of growth which lasts, by counters that do not tell parts apart.
fn keeps(it: Cause) -> bool {
    use Cause::{GrowingTensor, LargerInputs, ScalarsRetained, TensorsRetained, Unknown};
    matches!(it, TensorsRetained | ScalarsRetained | GrowingTensor | LargerInputs | Unknown)
}

/// Host memory grows along with tensors kept with their graphs, because the graphs' nodes live there.
fn with_nodes_of(culprits: Vec<Culprit>, it: Finding) -> Finding {
    let may_be_nodes = it.cause == Cause::HostGrowth && it.bytes_per_step.is_some_and(|rate| rate <= MOST_NODES);
    match culprits.into_iter().find(|it| it.grad).filter(|_| may_be_nodes) {
        Some(culprit) => {
            let (cause, culprit) = (Cause::GraphRetained, Some(Box::new(culprit)));
            let account = vec!["the nodes of its graph are in host memory".to_owned()];
            Finding { cause, advice: cause.advice(), culprit, account, ..it }
        }
        None => it,
    }
}

/// Puts what explains a growth first: of what a capture found, some may have been a buffer that filled, or a list that
/// was cleared later. Then the rest has about the pace of the growth, and all together have more.
fn of_growth(mut culprits: Vec<Culprit>, it: &Finding) -> Vec<Culprit> {
    // Rare rises have another pace in a capture that looks for one of them.
    let pace = it.bytes_per_step.filter(|pace| *pace > 0.0 && it.stairs.is_none());
    let Some(pace) = pace else { return culprits };
    let all: f64 = culprits.iter().map(|it| it.bytes_per_step).sum();
    let mut rest = all;
    for count in 0..culprits.len() {
        if rest <= pace * FITS {
            if rest >= pace / FITS {
                culprits.rotate_left(count);
            }
            break;
        }
        rest -= culprits.get(count).map_or(0.0, |it| it.bytes_per_step);
    }
    culprits
}

/// Returns how fast growth fills the device, in bytes a step. Of reserved memory, free segments do not: the allocator
/// gives them back before a request fails. Nor do those of smaller inputs, once inputs no longer grow.
fn filling(it: &Episode, cause: Cause, signature: &Signature) -> f64 {
    if it.resource != Resource::Reserved {
        return it.bytes_per_step;
    }
    // The signature's span may be longer than the growth, so its share counts.
    let whole = signature.reserved.filter(|it| *it > 0.0).unwrap_or(it.bytes_per_step);
    let stays = 1.0 - signature.releasable() / whole;
    if stays < A_TRIFLE || cause == Cause::LargerInputs { 0.0 } else { stays * it.bytes_per_step }
}

fn is_of_host(resource: Resource) -> bool {
    matches!(resource, Resource::Pinned | Resource::Host)
}

fn add_bytes(evidence: &mut Evidence, name: &'static str, bytes: Option<u64>) {
    if let Some(bytes) = bytes {
        evidence.add(name, bytes as f64, Unit::Bytes);
    }
}
