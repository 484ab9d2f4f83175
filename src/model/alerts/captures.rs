//! Decides which jobs to ask for a capture of the lines that allocate what grows, without a user's request.

use super::is_open;
use crate::{
    facts::{
        event::{CaptureRequest, ProbeId, Rises, replayed::About},
        units::{Stamp, counted},
    },
    model::{
        analysis::{
            cause::Cause,
            episode::{Axis, Episode, Resource, Stairs},
            severity::Severity,
        },
        findings::{Finding, Findings, Identity, Kind, Standing},
        session::{
            Session,
            process::{OnDevice, Process},
        },
    },
};
use std::collections::{BTreeMap, BTreeSet};

/// Steps that a capture compares, unless growth is slower than that.
const STEPS: u64 = 8;

/// Blocks, and rises, that a capture should see.
const BLOCKS: f64 = 4.0;
const RISES: u64 = 3;

/// The longest capture, in steps; it misses slower growth.
const STEPS_MAX: u64 = 400;

/// If rises are further apart than this, the probe waits for each and records nothing in between.
const RARE: u64 = 16;

/// How often gpuwatch asks about one growth while no capture finds its line, and by which factor each capture is
/// longer.
const TIMES: u32 = 3;
const LONGER: u64 = 4;

/// µs between two of these captures: a probe accepts three in ten minutes.
const BETWEEN_US: u64 = 610 * 1_000_000;

/// Which captures gpuwatch requested, how often, and when last. Each probe limits how often it captures.
#[derive(Clone, Debug, Default)]
pub struct Captures {
    asked: BTreeMap<Identity, (u32, Stamp)>,
}

impl Captures {
    /// Returns the captures to request: for growth of live memory whose line no capture has found yet. Call it on the
    /// grid of events, as [`News`](super::News). Severity does not matter, because the most common leak, a list of
    /// losses, is too small to raise an alert.
    pub fn at(&mut self, session: &Session, findings: &Findings) -> Vec<CaptureRequest> {
        let known: BTreeSet<Identity> = findings.all.iter().map(Finding::identity).collect();
        self.asked.retain(|it, _| known.contains(it));
        let is_wanted = |it: &&Finding| {
            let of_live = it.kind == Kind::Growth && it.resource == Some(Resource::Allocated);
            // A capture finds what is kept longer than a step; larger inputs are not.
            let is_kept = it.cause != Cause::LargerInputs && it.culprit.is_none();
            of_live && is_kept && it.standing == Standing::Usual && is_open(it, session)
        };
        // The probe answers one request at a time, so the worst finding comes first.
        findings.all.iter().filter(is_wanted).filter_map(|it| self.ask(session, it)).collect()
    }

    fn ask(&mut self, session: &Session, it: &Finding) -> Option<CaptureRequest> {
        let (process, on) = can_be_asked(it, session)?;
        let (times, at) = self.asked.get(&it.identity()).copied().unwrap_or_default();
        let has_answered = process.sites.iter().any(|its| its.step > Some(it.since_step) && its.steps > 0);
        // Also where the probe refused the first one.
        let is_due = times == 0 && !has_answered || times < TIMES && session.now.since(at) >= BETWEEN_US;
        if !is_due {
            return None;
        }
        self.asked.insert(it.identity(), (times + 1, session.now));
        let ask = CaptureRequest { growth: true, ..question(process.probe, on) };
        Some((0..times).fold(ask, |it, _| longer(&it).unwrap_or(it)))
    }
}

fn can_be_asked<'a>(it: &Finding, session: &'a Session) -> Option<(&'a Process, &'a OnDevice)> {
    let process = it.process(session)?;
    let is_ready = process.hello.as_ref().is_some_and(|it| it.can_capture());
    let on = process.devices.iter().find(|on| Some(on.ordinal) == it.ordinal)?;
    (is_ready && process.life == crate::model::session::process::ProbeState::Live).then_some((process, on))
}

/// Returns the request whose capture spans the growth on a device.
pub fn question(probe: ProbeId, on: &OnDevice) -> CaptureRequest {
    let ask = CaptureRequest { probe, steps: STEPS, rises: None, growth: false, collect: false };
    let Some(episode) = growing(on) else { return ask };
    let of_stairs = |it: Stairs| Rises { every: it.every, last: it.last, slack: it.slack };
    let rises = episode.stairs.map(of_stairs).or_else(|| on.trail.cadence(episode));
    let apart = rises.map_or_else(|| spacing(on, episode), |it| it.every);
    CaptureRequest {
        steps: steps(episode.blocks_per_step, apart),
        // A job that counts no steps cannot match seconds to its own numbers.
        rises: rises.filter(|it| it.every > RARE && episode.axis == Axis::Steps),
        ..ask
    }
}

/// Returns the lasting growth of a device's live memory.
fn growing(on: &OnDevice) -> Option<&Episode> {
    let live = on.growth.episodes().filter(|it| it.resolved.is_none() && it.resource == Resource::Allocated);
    live.max_by_key(|it| it.last_step)
}

/// Returns the request for a process, for the device on which it grows, and whether it grows at all.
pub fn question_of(process: &Process) -> (CaptureRequest, bool) {
    let on = process.devices.iter().find(|it| growing(it).is_some());
    let nothing = CaptureRequest { probe: process.probe, steps: STEPS, rises: None, growth: false, collect: false };
    (on.map_or(nothing, |it| question(process.probe, it)), on.is_some())
}

/// Returns the next, longer request after a capture that found nothing; `None` once the longest has been tried.
pub fn longer(ask: &CaptureRequest) -> Option<CaptureRequest> {
    (ask.steps < STEPS_MAX).then(|| CaptureRequest { steps: (ask.steps * LONGER).min(STEPS_MAX), rises: None, ..*ask })
}

/// Average steps between two rises; 0 if unknown.
fn spacing(on: &OnDevice, episode: &Episode) -> u64 {
    on.trail.signature(episode).rises.map_or(0, |it| it.steps / it.count.max(1))
}

/// Steps within which enough blocks and rises come.
fn steps(blocks_per_step: Option<f64>, apart: u64) -> u64 {
    let wanted = blocks_per_step.filter(|it| *it > 0.0).map_or(0.0, |it| (BLOCKS / it).ceil());
    crate::facts::units::whole(wanted).max(apart.saturating_mul(RISES)).clamp(STEPS, STEPS_MAX)
}

/// Describes a request: `its next 8 steps are compared`.
pub fn words(ask: &CaptureRequest) -> String {
    match ask.rises {
        Some(Rises { every, .. }) => format!("its next rises are compared, one every {every} steps"),
        None => format!("its next {} are compared", counted(ask.steps, "step")),
    }
}

/// Replays of one process while it runs; one more follows when the job is over.
const REPLAYS: usize = 3;

/// Which findings gpuwatch has replayed for. Each counts once.
#[derive(Clone, Debug, Default)]
pub struct Replays {
    begun: BTreeSet<(ProbeId, u32, About)>,
    times: BTreeMap<ProbeId, usize>,
}

/// A finding to replay for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The probe of its process.
    pub probe: ProbeId,
    /// The pid that the process reports, which names its trace.
    pub pid: u32,
    /// The process's own ordinal of the device.
    pub device: u32,
    /// The finding.
    pub about: About,
    /// When it was raised.
    pub raised_at: Stamp,
}

impl Replays {
    /// Returns the findings to replay for now: those of the process with the worst one. One replay serves them all.
    pub fn due(&self, session: &Session, findings: &Findings) -> Vec<Due> {
        let is_new = |it: &Due| !self.begun.contains(&(it.probe, it.device, it.about.clone()));
        let has_left = |it: &Due| self.times.get(&it.probe).is_none_or(|times| *times < REPLAYS);
        let mut all = wanted(session, findings).filter(|it| is_new(it) && has_left(it));
        let Some(first) = all.next() else { return Vec::new() };
        let probe = first.probe;
        std::iter::once(first).chain(all.filter(|it| it.probe == probe)).collect()
    }

    /// Notes that a replay begins.
    pub fn begin(&mut self, all: &[Due]) {
        if let Some(it) = all.first() {
            *self.times.entry(it.probe).or_default() += 1;
        }
        self.begun.extend(all.iter().map(|it| (it.probe, it.device, it.about.clone())));
    }
}

/// Returns the findings to replay for when the job is over: those that are still open, of every process.
pub fn replays_at_end(session: &Session, findings: &Findings) -> Vec<Due> {
    wanted(session, findings).collect()
}

/// Returns whether an error is among the findings.
pub fn has_error(all: &[Due]) -> bool {
    all.iter().any(|it| it.about.kind.raw() == Kind::Oom.name())
}

/// Returns the open findings that other settings may help.
fn wanted<'a>(session: &'a Session, findings: &'a Findings) -> impl Iterator<Item = Due> + 'a {
    let is_wanted =
        |it: &&Finding| it.standing == Standing::Usual && it.may_need_other_settings() && is_open(it, session);
    findings.all.iter().filter(is_wanted).filter_map(|it| {
        let probe = it.probe?;
        let pid = session.process(probe)?.hello.as_ref()?.pid;
        Some(Due { probe, pid, device: it.ordinal?, about: it.about(), raised_at: it.first_alert_at })
    })
}

/// µs and steps after which what a job allocates at first is over.
const SETTLED_US: u64 = 60 * 1_000_000;
const SETTLED_STEPS: u64 = 20;

/// Returns whether a process trains and nothing happens that a capture may have to look at: the time to trace one of
/// its steps with call stacks without a request.
pub fn is_settled(process: &Process, session: &Session, findings: &Findings) -> bool {
    let is_eventful = |it: &Finding| it.severity >= Severity::Warning || it.kind == Kind::Growth;
    let mut own = findings.all.iter().filter(|it| it.is_of(process) && is_open(it, session));
    let is_settled = |on: &OnDevice| {
        let lasts = on.first.is_some_and(|first| session.now.since(first) >= SETTLED_US);
        lasts && on.parts.is_some() && on.step.is_some_and(|it| it >= SETTLED_STEPS)
    };
    process.devices.iter().any(is_settled) && !own.any(is_eventful)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_growth_gets_a_longer_capture() {
        assert_eq!(steps(None, 0), 8);
        assert_eq!(steps(Some(3.0), 1), 8);
        assert_eq!(steps(Some(0.25), 0), 16);
        assert_eq!(steps(Some(1e-9), 0), 400);
        assert_eq!(steps(Some(-1.0), 0), 8);
        // Ten outputs every 15 steps all come in one step.
        assert_eq!(steps(Some(10.0 / 15.0), 15), 45);
    }
}
