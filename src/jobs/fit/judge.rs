//! From runs to verdicts.

use super::{
    Answer, Question, Trouble,
    job_report::{JobReport, OnDevice},
    peak::{self, Peak},
    phases::{self, Phases},
    ranks::{ClusterPlan, Present},
    trial::{Bench, Limit, Outcome, Setup, Trial},
    values::{self, NAMED},
};
use crate::{
    facts::units::{Bytes, counted},
    model::fit::{Device, Facts, Fits, Need, Table, full_after, overhead::outside},
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

/// The card whose architecture a question without a device is answered for first.
const USUAL: &str = "RTX 4090";

/// One device's verdict.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) device: Device,
    pub(super) fits: Fits,
    /// What the job wants, with all the room.
    pub(super) need: Option<Need>,
    /// What it takes on a device of that size, where it ran on one: an allocator that is short of memory gives its
    /// cache back.
    pub(super) there: Option<Need>,
    /// What the job wants if sizes that depend on values are the smallest, where that matters.
    pub(super) least: Option<Need>,
    /// How the job ran on a device of that size, where it did.
    pub(super) note: Option<String>,
    /// Why the verdict is unknown although the figures are not.
    pub(super) doubt: Option<String>,
}

impl Judged {
    /// Returns what the job takes on this device; what it wants, where it did not run there or had all the room.
    pub(super) fn peak(&self) -> Option<&Need> {
        self.there.as_ref().or(self.need.as_ref())
    }

    /// Adds what else may make the job need more, or shows that it needs too much.
    fn weigh(&mut self, own: &Found, doubt: Option<&String>) {
        if is_full(&own.trial) {
            let why = why(&own.trial.outcome);
            (self.note, self.doubt) = if self.fits == Fits::No { (why, None) } else { (None, why) };
            self.fits = if self.fits == Fits::No { Fits::No } else { Fits::Unknown };
            return;
        }
        let capacity = self.device.capacity();
        let growth = self.need.as_ref().and_then(|need| own.grown.as_ref()?.on(need, capacity));
        if self.fits == Fits::Yes {
            let fills = growth.as_ref().filter(|it| it.fills).map(|it| it.words.clone());
            self.doubt = fills.or_else(|| doubt.cloned());
            self.fits = if self.doubt.is_some() { Fits::Unknown } else { Fits::Yes };
            self.note = self.note.take().or(growth.filter(|it| !it.fills).map(|it| it.words));
        }
    }

    /// Returns the bytes if all that is uncertain takes the least.
    pub(super) fn low(&self) -> Option<u64> {
        let low = self.peak()?.low();
        Some(self.least.as_ref().map_or(low, |it| it.low().min(low)))
    }
}

/// What runs on a device of the requested size showed.
pub(super) struct Confirmed {
    pub(super) fits: Fits,
    pub(super) there: Option<Need>,
    note: Option<String>,
}

/// What a run without a limit showed.
struct Found {
    driver_name: &'static str,
    count: u32,
    trial: Trial,
    /// The same with the smallest sizes, where it ran.
    least: Option<Trial>,
    /// How it grows, if it does.
    grown: Option<Grown>,
}

impl Bench {
    /// Runs the job, and judges each device.
    pub(super) fn judged(
        &mut self,
        question: &Question,
        progress: &mut impl FnMut(&str),
    ) -> Result<(Answer, Vec<Trial>), Trouble> {
        let is_named = !question.devices.is_empty();
        let devices = if is_named { question.devices.clone() } else { Device::all() };
        let usual = Device::parse(USUAL).ok();
        let tried: Vec<_> = if is_named { devices.iter().collect() } else { usual.iter().collect() };
        let mut answer = Answer { is_named, ..Answer::default() };
        let mut found: Vec<Found> = Vec::new();
        for device in tried {
            if found.iter().any(|it| it.driver_name == device.driver_name && it.count == device.count) {
                continue;
            }
            let value = self.value().map_or_else(String::new, |it| format!("with {it}, measured: "));
            progress(&format!("{value}running on a simulated {}", device.driver_name));
            let setup = Setup { device, limit: None, is_least: false };
            let trial = self.run_whole(&setup, found.is_empty(), progress)?;
            answer.why = answer.why.or_else(|| why(&trial.outcome).filter(|_| !is_full(&trial)));
            let grown = Grown::of(&trial);
            found.push(Found { driver_name: device.driver_name, count: device.count, trial, least: None, grown });
        }
        let Some(first) = found.first() else { return Ok((answer, Vec::new())) };
        let tables = &question.tables;
        answer.unknown = unknown(&first.trial);
        answer.plan = self.present.as_ref().and_then(|it| ClusterPlan::read(it, &first.trial.accounts));
        let about = |it: &Present| [it.notes.clone(), it.missed(&first.trial.accounts)].concat();
        answer.unknown.splice(0..0, self.present.iter().flat_map(about));
        let is_failure = matches!(first.trial.outcome, Outcome::Failed(_));
        answer.is_after_reads = is_failure && first.trial.accounts.iter().any(|it| !it.reads.is_empty());
        if answer.why.is_none() {
            answer.unknown.extend(unused(tables, &devices, &first.trial));
        }
        let doubt = doubt(&first.trial, question.steps);
        for device in devices {
            let own = found.iter().position(|it| it.driver_name == device.driver_name && it.count == device.count);
            let Some(own) = found.get_mut(own.unwrap_or(0)) else { continue };
            let need = need(&own.trial, &device, tables).filter(|_| answer.why.is_none());
            let mut judged =
                Judged { device, fits: Fits::Unknown, need, there: None, least: None, note: None, doubt: None };
            self.judge(&mut judged, own, (question, is_named), progress)?;
            judged.weigh(own, doubt.as_ref());
            answer.devices.push(judged);
        }
        let Some(first) = found.first() else { return Ok((answer, Vec::new())) };
        let is_enough = |it: &Device| need(&first.trial, it, tables).is_some_and(|need| need.must() <= it.capacity());
        // The verdict on a card on which the job ran is better than what another card's figures say of it.
        let judged = |card: &Device| {
            let is_it = |it: &&Judged| (it.device.driver_name, it.device.total) == (card.driver_name, card.total);
            let it = answer.devices.iter().filter(|it| it.device.count == 1).find(is_it)?;
            // Of a job that grows, it does not say for how many steps.
            (it.fits != Fits::Unknown || first.grown.is_none()).then_some(it.fits == Fits::Yes)
        };
        let enough = |card: &Device| judged(card).unwrap_or_else(|| is_enough(card) && lasts(first, card, tables));
        let smallest = Device::all().into_iter().find(enough);
        answer.smallest = smallest.filter(|_| answer.why.is_none() && !is_full(&first.trial));
        answer.lasts = first.grown.as_ref().map_or(0, |it| it.passes);
        answer.is_doubted = doubt.is_some();
        // With several devices, the peak is what the job wants; with one, what it takes there.
        answer.peak = match answer.devices.as_slice() {
            _ if answer.why.is_some() => None,
            [one] if is_named => one.peak().and_then(|it| Peak::of(&first.trial, it)),
            all => all.first().and_then(|it| Peak::of(&first.trial, it.need.as_ref()?)),
        };
        answer.phases = phases(&first.trial);
        answer.growth = peak::growth(&growing(&first.trial));
        if let ([one], true) = (answer.devices.as_mut_slice(), is_named) {
            judge_phases(&mut answer.phases, one);
        }
        let parts = answer.peak.as_ref().map(|it| peak::unknown(&it.need)).unwrap_or_default();
        answer.unknown.splice(0..0, parts);
        Ok((answer, found.into_iter().map(|it| it.trial).collect()))
    }

    /// Judges one device. Where the largest sizes do not fit, the job also runs with the smallest ones: only these make
    /// the verdict a no.
    fn judge(
        &self,
        judged: &mut Judged,
        found: &mut Found,
        (question, is_named): (&Question, bool),
        progress: &mut impl FnMut(&str),
    ) -> Result<(), Trouble> {
        let capacity = judged.device.capacity();
        let Some(need) = &mut judged.need else { return Ok(()) };
        judged.fits = need.fits(capacity);
        if judged.fits == Fits::Yes && need.high() > capacity {
            judged.note = Some(format!("with more room, it would take up to {}, for workspaces", Bytes(need.high())));
            need.capacity = Some(capacity);
        }
        if judged.fits == Fits::Unknown && is_named {
            let confirmed = self.confirmed(&judged.device, need, (&found.trial, false), progress)?;
            (judged.fits, judged.there, judged.note) = (confirmed.fits, confirmed.there, confirmed.note);
        }
        if judged.fits == Fits::Yes || !values::is_upper_bound(&found.trial) {
            return Ok(());
        }
        if found.least.is_none() {
            progress("running with the smallest sizes that values can give");
            let setup = Setup { device: &judged.device, limit: None, is_least: true };
            found.least = Some(self.run(&setup, false, progress)?);
        }
        let Some(least) = &found.least else { return Ok(()) };
        let need = self::need(least, &judged.device, &question.tables)
            .filter(|_| why(&least.outcome).is_none() || is_full(least));
        let mut fits = need.as_ref().map_or(Fits::Unknown, |it| it.fits(capacity));
        if let Some(need) = need.as_ref().filter(|_| fits == Fits::Unknown && is_named) {
            fits = self.confirmed(&judged.device, need, (least, true), progress)?.fits;
        }
        judged.doubt = match (judged.fits, fits) {
            (_, Fits::No) => None,
            (_, Fits::Yes) => {
                Some("fits only if sizes that depend on values are smaller than the largest ones".to_owned())
            }
            _ => Some(
                "does not fit with the largest sizes that values can give; with smaller ones, it is unknown".to_owned(),
            ),
        };
        judged.fits = if fits == Fits::No { Fits::No } else { Fits::Unknown };
        judged.least = need;
        Ok(())
    }

    /// Runs the job on a device of the size: with the most, then with the least that lies outside its allocator.
    pub(super) fn confirmed(
        &self,
        device: &Device,
        need: &Need,
        (trial, is_least): (&Trial, bool),
        progress: &mut impl FnMut(&str),
    ) -> Result<Confirmed, Trouble> {
        let facts = facts(trial, &busiest(trial));
        for (most, fits, other) in [(true, Fits::Yes, None), (false, Fits::Unknown, Some(Fits::No))] {
            progress(&format!("running on {} of {}", device.name, Bytes(device.capacity())));
            let limit = Limit::of(need, facts.processes, facts.communicators, most);
            let trial = self.run(&Setup { device, limit: Some(limit), is_least }, false, progress)?;
            match &trial.outcome {
                Outcome::Finished => {
                    let there = there(&trial, device, need);
                    return Ok(Confirmed { fits, note: retries(&trial, need), there: Some(there) });
                }
                Outcome::Full(line) => {
                    if let Some(fits) = other {
                        let at = line.as_ref().map_or_else(String::new, |it| format!(" at {it}"));
                        return Ok(Confirmed { fits, there: None, note: Some(format!("runs out of memory{at}")) });
                    }
                }
                other => return Ok(Confirmed { fits: Fits::Unknown, there: None, note: why(other) }),
            }
        }
        Ok(Confirmed { fits: Fits::Unknown, there: None, note: None })
    }

    /// Runs the job on a device of the size, with the most memory that may lie outside its allocator. Returns whether
    /// it runs there and the bytes that its allocator wants, or why that is unknown.
    pub(super) fn runs_on(
        &mut self,
        device: &Device,
        question: &Question,
        progress: &mut impl FnMut(&str),
    ) -> Result<Result<(bool, u64), String>, Trouble> {
        let free = self.run_whole(&Setup { device, limit: None, is_least: false }, false, progress)?;
        if let Some(why) = why(&free.outcome).filter(|_| !is_full(&free)).or_else(|| doubt(&free, question.steps)) {
            return Ok(Err(why));
        }
        let tables = &question.tables;
        let Some(need) = need(&free, device, tables) else { return Ok(Err("the job uses no GPU".to_owned())) };
        if is_full(&free) {
            return Ok(Ok((false, need.reserved)));
        }
        let facts = facts(&free, &busiest(&free));
        let limit = Some(Limit::of(&need, facts.processes, facts.communicators, true));
        let trial = self.run(&Setup { device, limit, is_least: false }, false, progress)?;
        Ok(match trial.outcome {
            Outcome::Finished => Ok((true, need.reserved)),
            Outcome::Full(_) => Ok((false, need.reserved)),
            other => Err(why(&other).unwrap_or_default()),
        })
    }
}

/// Whether the job ran out of memory with all the room.
fn is_full(trial: &Trial) -> bool {
    matches!(trial.outcome, Outcome::Full(_))
}

/// Returns why a run proves nothing; `None` if it does.
pub(super) fn why(outcome: &Outcome) -> Option<String> {
    let at = |line: &Option<String>| line.as_ref().map_or_else(String::new, |it| format!(" at {it}"));
    match outcome {
        Outcome::Finished => None,
        Outcome::Full(line) => Some(format!("the job runs out of memory{} even on a device of 512 GiB", at(line))),
        Outcome::Refused(name, line) => Some(format!("the job calls {name}{}, which is not simulated", at(line))),
        Outcome::Unused => Some("no process of the job used a GPU with its probe".to_owned()),
        Outcome::Processor(line) => Some(format!("the job trains{} without a CUDA call: on the CPU", at(line))),
        Outcome::Late(seconds, None, _) => {
            Some(format!("the job made no CUDA call in {}", counted(*seconds, "second")))
        }
        Outcome::Late(seconds, Some(steps), line) => {
            let (steps, seconds) = (counted(*steps, "optimizer step"), counted(*seconds, "second"));
            Some(format!("the job made {steps} in {seconds}, and was{} then; --time-limit gives it longer", at(line)))
        }
        Outcome::Failed(why) => Some(why.clone()),
    }
}

/// Whether the job ran only because cached memory was given back, and what it wants.
fn retries(trial: &Trial, wanted: &Need) -> Option<String> {
    let count: u64 = trial.accounts.iter().flat_map(|it| &it.devices).map(|it| it.retries).sum();
    let (count, wanted) = (Some(count).filter(|it| *it > 0)?, Bytes(wanted.reserved));
    let times = counted(count, "time");
    Some(format!("the allocator, which wants {wanted}, has to give its cache back {times}, which costs time"))
}

/// The uuid of the device with the most reserved.
pub(super) fn busiest(trial: &Trial) -> String {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for it in trial.accounts.iter().flat_map(|it| &it.devices) {
        *sums.entry(&it.uuid).or_default() += it.peak().1;
    }
    sums.into_iter().max_by_key(|it| it.1).map(|it| it.0.to_owned()).unwrap_or_default()
}

/// Each process on a device.
pub(super) fn on<'a>(trial: &'a Trial, uuid: &'a str) -> impl Iterator<Item = (&'a JobReport, &'a OnDevice)> {
    let all = trial.accounts.iter().flat_map(|account| account.devices.iter().map(move |it| (account, it)));
    all.filter(move |it| it.1.uuid == uuid)
}

fn facts(trial: &Trial, uuid: &str) -> Facts {
    let mut facts = Facts::default();
    for (account, it) in on(trial, uuid) {
        facts.processes += 1;
        facts.communicators += account.facts.groups;
        facts.uses_cudnn |= account.facts.convolutions;
        facts.convolution = facts.convolution.max(account.facts.convolution);
        facts.is_benchmarking |= account.facts.benchmark;
        facts.is_compiled |= account.facts.compiled;
        // Which ranks a communicator has is not known: each may span all machines.
        facts.communicators_across += if account.nodes > 1 { account.facts.groups } else { 0 };
        facts.reserved += it.peak().1;
    }
    facts
}

/// What the busiest device needs; `None` where none was used.
pub(super) fn need(trial: &Trial, device: &Device, tables: &[Table]) -> Option<Need> {
    let uuid = busiest(trial);
    let facts = facts(trial, &uuid).on(device);
    let allocated = on(trial, &uuid).map(|it| it.1.peak().0).sum();
    let outside = outside(&facts, tables.iter().find(|it| it.suits(device, torch(trial))));
    (facts.processes > 0).then_some(Need { allocated, reserved: facts.reserved, outside, capacity: None })
}

/// What the busiest device takes, in a run on a device of its size.
fn there(trial: &Trial, device: &Device, wanted: &Need) -> Need {
    let uuid = busiest(trial);
    let peaks = || on(trial, &uuid).map(|it| it.1.peak());
    Need {
        allocated: peaks().map(|it| it.0).sum(),
        reserved: peaks().map(|it| it.1).sum(),
        outside: wanted.outside.clone(),
        capacity: Some(device.capacity()),
    }
}

/// The version of the job's PyTorch.
fn torch(trial: &Trial) -> &str {
    trial.accounts.iter().find(|it| !it.devices.is_empty()).map_or("", |it| &it.torch)
}

/// Names the tables that stand for none of the devices under this PyTorch.
fn unused(tables: &[Table], devices: &[Device], trial: &Trial) -> Vec<String> {
    let torch = torch(trial);
    let of_none = tables.iter().filter(|table| !devices.iter().any(|it| table.suits(it, torch)));
    let is = |it: &Table| format!("a table that is not used, because GPU or PyTorch ({torch}) differ: {}", it.source());
    of_none.map(is).collect()
}

impl Peak {
    /// The peak of the busiest device.
    fn of(trial: &Trial, need: &Need) -> Option<Self> {
        let uuid = busiest(trial);
        let (account, device) = on(trial, &uuid).max_by_key(|it| it.1.peak().1)?;
        let wanted = on(trial, &uuid).map(|it| it.1.peak().1).sum();
        Some(Self { wanted, ..Self::read(account, device, need.clone()) })
    }
}

/// The phases of the process that takes the most, on the busiest device.
fn phases(trial: &Trial) -> Phases {
    let uuid = busiest(trial);
    let most = on(trial, &uuid).max_by_key(|it| it.1.peak().1);
    most.map(|(account, device)| Phases::of(account, device)).unwrap_or_default()
}

/// Judges each phase on the only device asked for, and names one that does not fit although training does.
fn judge_phases(phases: &mut Phases, judged: &mut Judged) {
    if let Some(need) = &judged.need {
        phases.judge(need, judged.device.capacity(), judged.there.is_some());
    }
    if judged.fits == Fits::No {
        phases.deny();
    }
    if judged.fits != Fits::Yes && judged.doubt.is_none() {
        judged.note = phases.culprit().or_else(|| judged.note.take());
    }
}

/// A training that would have to be so many times longer to fill the device, and would need so many steps for it, is no
/// leak.
const SPARE: (u64, u64) = (10, 10_000);

/// How a job grows on a device.
struct Growing {
    words: String,
    /// Whether it fills the device, as far as is known of the job's loops.
    fills: bool,
}

/// How a job grows in each step. Its line is in a trace, which is large: it is read once for all devices.
struct Grown {
    bytes: u64,
    /// The same of what is reserved for it.
    reserved: u64,
    /// Steps that ran, and whether these were all.
    steps: u64,
    is_over: bool,
    /// As in the report of the process that grows.
    round: u64,
    passes: u64,
    /// The line that allocates what it keeps, in words.
    line: String,
}

impl Grown {
    /// Returns how a job grows; `None` where it does not.
    fn of(trial: &Trial) -> Option<Self> {
        let (account, device, bytes) = *growing(trial).first()?;
        let rank = account.rank.map_or_else(String::new, |it| format!(" on rank {it}"));
        let line = peak::keeps(account, device);
        let line = line.map_or_else(String::new, |it| format!("; {it} allocates what it keeps{rank}"));
        Some(Self {
            bytes,
            reserved: account.growth_of_reserved(device, bytes),
            steps: account.steps,
            is_over: account.whole,
            round: account.round,
            passes: account.passes,
            line,
        })
    }

    /// Returns how it grows where it fits.
    fn on(&self, need: &Need, capacity: u64) -> Option<Growing> {
        let step = full_after(self.steps, capacity.saturating_sub(need.must()), self.reserved)?;
        // What a round keeps is given back before the device is full, or the whole training is over long before.
        let is_given_back = self.round > 0 && step > self.steps + self.round;
        let is_short = self.passes > 0 && step > self.passes.saturating_mul(SPARE.0).max(SPARE.1);
        let why = match self.passes {
            _ if is_given_back => format!(", but every {} give it back", counted(self.round, "step")),
            _ if self.is_over => format!(", and the job makes {}", self.steps),
            passes if is_short => format!(", and its loops make {passes}"),
            passes if passes > 0 => format!(" (its loops make {passes})"),
            _ => String::new(),
        };
        let (bytes, step, line) = (Bytes(self.bytes), counted(step, "step"), &self.line);
        let words = format!("grows {bytes} a step: full after about {step}{why}{line}");
        Some(Growing { words, fills: !is_given_back && !is_short && !self.is_over })
    }
}

/// Whether a card is enough for all steps of a job, as far as they are known, if it grows in each of them.
fn lasts(found: &Found, card: &Device, tables: &[Table]) -> bool {
    let Some(grown) = &found.grown else { return true };
    let Some(need) = need(&found.trial, card, tables) else { return false };
    let steps = if grown.passes > 0 { grown.passes } else { SPARE.1 };
    let full = full_after(grown.steps, card.capacity().saturating_sub(need.must()), grown.reserved);
    grown.on(&need, card.capacity()).is_none_or(|it| !it.fills) || full.is_none_or(|it| it > steps)
}

/// The processes and the devices whose peak rises in each step, and by how many bytes, the most first.
fn growing(trial: &Trial) -> Vec<(&JobReport, &OnDevice, u64)> {
    let all = trial.accounts.iter().flat_map(|it| it.devices.iter().map(move |on| (it, on)));
    let grows = |(account, device)| Some((account, device, JobReport::growth(account, device)?));
    let mut found: Vec<_> = all.filter_map(grows).collect();
    // Of equal ones, in the order of their ranks.
    found.sort_by_key(|it| (Reverse(it.2), it.0.rank));
    found
}

/// Returns why a job that fits may not fit all the same.
pub(super) fn doubt(trial: &Trial, asked: Option<u32>) -> Option<String> {
    if let Some(why) = values::incomplete(trial, asked) {
        return Some(format!("fits as far as it ran, but {why}"));
    }
    if let Some(why) = phases::unfinished(trial) {
        return Some(why);
    }
    let on_all = trial.accounts.iter().flat_map(|it| it.devices.iter().map(move |on| (it, on)));
    let trend = on_all.filter_map(|(it, on)| it.trend(on)).max();
    if let Some((bytes, steps)) = trend.filter(|_| growing(trial).is_empty()) {
        let (bytes, steps) = (Bytes(bytes), counted(steps, "step"));
        return Some(format!("fits as far as it ran, but its peak rose by {bytes} in the last {steps}"));
    }
    values::is_unbounded(trial).then(|| "fits, unless sizes that depend on values are larger".to_owned())
}

/// Returns the facts about the job that the simulation cannot know, as text.
fn unknown(trial: &Trial) -> Vec<String> {
    let mut all = values::reads(trial);
    for it in trial.accounts.iter().flat_map(|it| &it.refused).take(NAMED) {
        let at = it.line.as_ref().map_or_else(String::new, |it| format!(" ({it})"));
        all.push(format!("{}{at} is not simulated; the job went on without it", it.name));
    }
    all.extend(phases::unknown(trial));
    let modules: BTreeSet<&String> = trial.accounts.iter().flat_map(|it| &it.modules).collect();
    let of_module = |it: &&String| format!("{it}: loads kernels of its own, which compute nothing here");
    all.extend(modules.iter().take(NAMED).map(of_module));
    if trial.accounts.iter().any(rises) && growing(trial).is_empty() {
        all.push("the peak was still rising at the last step that ran: use --steps".to_owned());
    }
    all
}

/// Whether the peak rose in the last step that ran.
fn rises(it: &JobReport) -> bool {
    let at = usize::try_from(it.steps_of_training()).unwrap_or(0);
    it.steady > 0
        && it
            .devices
            .iter()
            .any(|device| at >= 3 && device.peaks.get(at - 1).zip(device.peaks.get(at - 2)).is_some_and(|(a, b)| a > b))
}
