//! `gpuwatch fit --advise`: what would save memory in this job, measured.
//!
//! The job runs as it is; then once with every technique looking on, which shows those that apply, and whose peaks must
//! equal the first ones to the byte; then once with each technique that applies; then with combinations of the best
//! ones, because savings do not add. Runs are beside one another, as far as processors and memory allow.

/// Writes the table.
mod table;

use super::{
    Answer, Question, Trouble, answered,
    job_report::{InjectedTechnique, JobReport},
    judge::{busiest, doubt, need, on, why},
    phases,
    trial::{Bench, Injected, Outcome, Setup, Trial},
};
use crate::{
    facts::{
        event::Advised,
        units::{Bytes, counted, duration},
    },
    model::fit::{
        Device, Fits, Need,
        technique::{Price, TECHNIQUES, Technique},
    },
    sources::proc,
};
use std::{
    num::NonZero,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

/// The card whose architecture a question without a device is answered for.
const USUAL: &str = "RTX 4090";

/// Techniques of which pairs are tried.
const PAIRED: usize = 3;

/// Host memory that a run takes at most, beside what the first one took.
const MARGIN: u64 = 512 << 20;

/// The techniques to try.
#[derive(Clone, Debug)]
pub struct Chosen {
    techniques: Vec<&'static Technique>,
    /// Whether only those that are for such a job are meant.
    is_all: bool,
}

impl Chosen {
    /// Reads names, with commas, or `all`.
    ///
    /// # Errors
    /// When a name is not one of a technique, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self { techniques: TECHNIQUES.iter().collect(), is_all: true });
        }
        let of = |name: &str| {
            TECHNIQUES.iter().find(|it| it.name == name.trim()).ok_or_else(|| {
                let names: Vec<_> = TECHNIQUES.iter().map(|it| it.name).collect();
                format!("no technique is called {name:?}; there are {}", names.join(", "))
            })
        };
        let techniques = text.split(',').map(of).collect::<Result<_, _>>()?;
        Ok(Self { techniques, is_all: false })
    }
}

/// What was tried, the best first, and what was not.
#[derive(Debug)]
pub struct Advice {
    baseline: Answer,
    /// The peak of the job as it is, on the first device.
    need: Option<Need>,
    /// Whether the user named devices.
    is_named: bool,
    device: Device,
    rows: Vec<Measurement>,
    combinations: Vec<Measurement>,
    /// Why nothing was tried.
    why: Option<String>,
    interruption: Option<Interruption>,
}

/// A request to end that came before all techniques were tried.
#[derive(Clone, Copy, Debug)]
struct Interruption {
    signal: i32,
    tried: usize,
    of: usize,
}

/// The first part of the peak that is no reason to change a job: savings below 0.5 %.
const LEAST: u64 = 200;

/// Whether a change from a peak to another one saves enough to be named.
fn saves(before: u64, now: u64) -> bool {
    now + before / LEAST < before
}

/// One technique or several, tried together.
#[derive(Clone, Debug, Default)]
struct Measurement {
    techniques: Vec<&'static Technique>,
    applied: Option<String>,
    refused: Option<String>,
    /// The peak with all the room; `None` where it was refused.
    need: Option<Need>,
    /// On every named device; without one, on any known card.
    fits: Option<Fits>,
    /// The smallest known card that is enough.
    smallest: Option<Device>,
    price: Option<Price>,
    recomputed_blocks: u64,
    host_bytes: u64,
    /// Kernels that a step launches beyond those of the job as it is.
    kernel_launches: Option<i64>,
    edit: Vec<String>,
    /// The largest varied value that fits with it, where one was searched.
    largest: Option<String>,
    notes: serde_json::Map<String, serde_json::Value>,
}

impl Measurement {
    /// The names, as in `checkpoint + bf16`.
    fn name(&self) -> String {
        self.techniques.iter().map(|it| it.name).collect::<Vec<_>>().join(" + ")
    }

    fn refused(technique: &'static Technique, why: String, edit: Vec<String>) -> Self {
        Self { techniques: vec![technique], refused: Some(why), edit, ..Self::default() }
    }

    /// Bytes on the device.
    fn device(&self) -> Option<u64> {
        self.need.as_ref().map(Need::usual)
    }
}

impl Advice {
    /// Returns the table in words.
    pub fn text(&self) -> String {
        table::text(self)
    }

    /// Returns the table as JSON, schema 1.
    pub fn json(&self) -> String {
        table::json(self)
    }

    /// Returns what a recording and viewers of the job show of it; `None` without a measurement. They know the probe.
    pub fn advised(&self) -> Option<Advised> {
        table::advised(self)
    }

    /// Returns why not everything was tried, in words.
    fn interruption(&self) -> Option<String> {
        let it = self.interruption?;
        Some(format!("interrupted after {} of {}", it.tried, counted(it.of as u64, "measurement")))
    }

    /// Returns the signal that ended it before everything was tried.
    pub fn interrupted_by(&self) -> Option<i32> {
        self.interruption.map(|it| it.signal)
    }

    /// Returns whether the job fits as it is.
    pub fn fits(&self) -> Fits {
        self.baseline.fits()
    }
}

/// Measures what each technique saves. `progress` gets what is done next, in words.
///
/// # Errors
/// When no machine can be simulated for the job, or when it cannot be started.
pub fn advise(question: &Question, chosen: &Chosen, mut progress: impl FnMut(&str)) -> Result<Advice, Trouble> {
    let mut bench = Bench::new(question)?;
    let (baseline, mut trials) = answered(&mut bench, question, &mut progress)?;
    let device = match question.devices.first() {
        Some(it) => it.clone(),
        None => Device::parse(USUAL).map_err(Trouble::Unmeasured)?,
    };
    let mut advice = Advice {
        is_named: baseline.is_named,
        why: baseline.why.clone(),
        need: None,
        baseline,
        device,
        rows: Vec::new(),
        combinations: Vec::new(),
        interruption: None,
    };
    if advice.why.is_some() || trials.is_empty() {
        return Ok(advice);
    }
    let first = trials.swap_remove(0);
    let tries = Tries { bench: &bench, question, device: advice.device.clone(), baseline: &first };
    advice.need = need(&first, &advice.device, &question.tables);
    progress("looking for techniques that apply");
    let observed = match tries.observed(chosen, &mut progress)? {
        Ok(it) => it,
        Err(why) => {
            advice.why = Some(why);
            return Ok(advice);
        }
    };
    tries.fill(&mut advice, observed, &mut progress)?;
    Ok(advice)
}

/// Returns what the observers noted, as JSON by technique.
fn notes(observed: &[Measurement]) -> String {
    let all: serde_json::Map<_, _> = observed.iter().flat_map(|it| it.notes.clone()).collect();
    serde_json::Value::Object(all).to_string()
}

/// Returns combinations of techniques that save, the best first: pairs of the best, all that leave the result as it is,
/// and all together.
fn combinations(rows: &[&Measurement]) -> Vec<Vec<&'static Technique>> {
    let all: Vec<&'static Technique> = rows.iter().filter_map(|it| it.techniques.first().copied()).collect();
    let mut out: Vec<Vec<&'static Technique>> = Vec::new();
    let best: Vec<_> = all.iter().take(PAIRED).copied().collect();
    for (at, one) in best.iter().enumerate() {
        out.extend(best.iter().skip(at + 1).filter(|it| one.goes_with(it)).map(|it| vec![*one, *it]));
    }
    for price in Price::ALL {
        let mut together: Vec<&'static Technique> = Vec::new();
        for it in all.iter().filter(|it| it.price <= price) {
            if together.iter().all(|other| other.goes_with(it)) {
                together.push(it);
            }
        }
        out.push(together);
    }
    let key = |together: &Vec<&'static Technique>| {
        let mut names: Vec<_> = together.iter().map(|it| it.name).collect();
        names.sort_unstable();
        names
    };
    let mut seen = std::collections::BTreeSet::new();
    out.retain(|it| it.len() > 1 && seen.insert(key(it)));
    out
}

/// What all tries have in common.
struct Tries<'a> {
    bench: &'a Bench,
    question: &'a Question,
    device: Device,
    baseline: &'a Trial,
}

impl Tries<'_> {
    /// Tries the techniques that apply, and combinations of those that save.
    fn fill(
        &self,
        advice: &mut Advice,
        observed: Vec<Measurement>,
        progress: &mut impl FnMut(&str),
    ) -> Result<(), Trouble> {
        let notes = notes(&observed);
        let (apply, refused): (Vec<_>, Vec<_>) = observed.into_iter().partition(|it| it.refused.is_none());
        let apply: Vec<_> = apply.into_iter().map(|it| it.techniques).collect();
        let workers = self.workers();
        let seconds = apply.len() as u64 * self.baseline.seconds.max(1) / workers as u64;
        let (count, time) = (counted(apply.len() as u64, "technique"), duration(seconds * 1_000_000));
        progress(&format!("trying {count}, {workers} at a time: about {time}, and then combinations"));
        let (mut rows, signal) = self.each(&apply, &notes, progress)?;
        rows.sort_by_key(|it| (it.refused.is_some(), it.device()));
        if let Some(signal) = signal {
            advice.interruption = Some(Interruption { signal, tried: rows.len(), of: apply.len() });
            advice.rows = rows;
            advice.rows.extend(refused);
            return Ok(());
        }
        let peak = advice.need.as_ref().map_or(0, Need::usual);
        let is_saving = |it: &&Measurement| it.refused.is_none() && it.device().is_some_and(|now| saves(peak, now));
        let together = combinations(&rows.iter().filter(is_saving).collect::<Vec<_>>());
        let (found, signal) = self.each(&together, &notes, progress)?;
        advice.combinations = found;
        advice.combinations.sort_by_key(|it| (it.refused.is_some(), it.device()));
        if let Some(signal) = signal {
            let (tried, of) = (rows.len() + advice.combinations.len(), apply.len() + together.len());
            advice.interruption = Some(Interruption { signal, tried, of });
        } else {
            for best in [rows.first_mut(), advice.combinations.first_mut()].into_iter().flatten() {
                self.largest(best, &notes, progress)?;
            }
        }
        advice.rows = rows;
        advice.rows.extend(refused);
        Ok(())
    }

    fn setup(&self) -> Setup<'_> {
        Setup { device: &self.device, limit: None, is_least: false }
    }

    /// Runs the job with every technique looking on. Returns each with the reason why it does not apply, if so, or why
    /// none can be tried.
    fn observed(
        &self,
        chosen: &Chosen,
        progress: &mut impl FnMut(&str),
    ) -> Result<Result<Vec<Measurement>, String>, Trouble> {
        let trial = self.bench.with(Injected::Observers).run(&self.setup(), false, &mut *progress)?;
        if let Some(why) = why(&trial.outcome) {
            return Ok(Err(format!("with the techniques looking on, {why}")));
        }
        if let Some((before, now)) = difference(self.baseline, &trial) {
            let text = "the job's peak differs between two runs, so no technique can be measured: allocated";
            return Ok(Err(format!("{text} {before} and {now} bytes")));
        }
        let row = |technique: &'static Technique| {
            if let Some((why, edit)) = technique.unmeasured {
                return Measurement::refused(technique, why.to_owned(), vec![edit.to_owned()]);
            }
            let Some(it) = injected(&trial, technique) else {
                return Measurement::refused(technique, "the job's PyTorch does not allow it".to_owned(), Vec::new());
            };
            let notes = std::iter::once((technique.name.to_owned(), it.notes)).collect();
            Measurement {
                techniques: vec![technique],
                refused: it.refused,
                edit: it.edit,
                notes,
                ..Measurement::default()
            }
        };
        let ranks = self.ranks();
        let meant = chosen.techniques.iter().copied().filter(|it| !chosen.is_all || it.is_for(ranks));
        Ok(Ok(meant.map(row).collect()))
    }

    /// Tries techniques, several at once. Returns those that were tried, and the signal that ended it before the others
    /// were.
    fn each(
        &self,
        all: &[Vec<&'static Technique>],
        notes: &str,
        progress: &mut impl FnMut(&str),
    ) -> Result<(Vec<Measurement>, Option<i32>), Trouble> {
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::new());
        let (sender, receiver) = mpsc::channel::<String>();
        thread::scope(|scope| {
            for _ in 0..self.workers().min(all.len()) {
                let (sender, next, done) = (sender.clone(), &next, &done);
                scope.spawn(move || {
                    while let Some(techniques) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let tried = self.tried(techniques, notes);
                        let is_ended = tried.is_err();
                        if let Ok(it) = &tried {
                            // The receiver lives until all have ended.
                            let _ = sender.send(words(it));
                        }
                        done.lock().unwrap_or_else(PoisonError::into_inner).push(tried);
                        if is_ended {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            for (at, text) in receiver.iter().enumerate() {
                progress(&format!("{} of {}: {text}", at + 1, all.len()));
            }
        });
        let (mut rows, mut signal) = (Vec::new(), None);
        for tried in done.into_inner().unwrap_or_else(PoisonError::into_inner) {
            match tried {
                Err(Trouble::Interrupted(by)) => signal = Some(by),
                tried => rows.push(tried?),
            }
        }
        match signal.filter(|_| rows.is_empty()) {
            Some(signal) => Err(Trouble::Interrupted(signal)),
            None => Ok((rows, signal)),
        }
    }

    /// How many ranks the job has: of a plan, also those that are absent.
    fn ranks(&self) -> u64 {
        let accounts = &self.baseline.accounts;
        let ran = accounts.iter().filter(|it| !it.devices.is_empty()).count();
        accounts.iter().map(|it| it.world).fold(ran as u64, u64::max)
    }

    /// Runs that may go on beside one another: as many as there are processors, and as the host has memory for.
    fn workers(&self) -> usize {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let each = self.baseline.accounts.iter().map(|it| it.host_bytes).sum::<u64>() + MARGIN;
        let free = proc::available_memory().unwrap_or(u64::MAX);
        let room = usize::try_from(free / each).unwrap_or(processors);
        processors.min(room).max(1)
    }

    /// Runs the job with techniques.
    fn tried(&self, techniques: &[&'static Technique], notes: &str) -> Result<Measurement, Trouble> {
        let bench = self.bench.with(Injected::These(techniques.to_vec(), notes.to_owned()));
        let trial = bench.run(&self.setup(), false, &mut |_| {})?;
        let mut out = Measurement { techniques: techniques.to_vec(), ..Measurement::default() };
        let all: Vec<_> = techniques.iter().map(|it| injected(&trial, it)).collect();
        out.edit = all.iter().flatten().flat_map(|it| it.edit.clone()).collect();
        if let Some(why) = failure(&trial, self.baseline) {
            out.refused = Some(why);
            return Ok(out);
        }
        let mut applied = Vec::new();
        for (technique, found) in techniques.iter().zip(all) {
            let Some(found) = found else {
                out.refused = Some(format!("{} left no report", technique.name));
                return Ok(out);
            };
            if let Some(why) = found.refused {
                out.refused = Some(why);
                return Ok(out);
            }
            applied.extend(found.applied);
            out.recomputed_blocks += found.price.recomputed_blocks;
            out.host_bytes = out.host_bytes.max(found.price.host_bytes);
            let price = found.price.class.and_then(|it| it.parse().ok()).unwrap_or(technique.price);
            out.price = out.price.max(Some(price));
        }
        out.applied = Some(applied.join(", "));
        out.kernel_launches =
            launches(&trial).zip(launches(self.baseline)).and_then(|(now, before)| now.checked_sub(before));
        self.judge(&bench, &trial, &mut out)?;
        Ok(out)
    }

    /// Searches the largest varied value that fits with techniques.
    fn largest(&self, out: &mut Measurement, notes: &str, progress: &mut impl FnMut(&str)) -> Result<(), Trouble> {
        let Some(vary) = self.question.vary.as_ref().filter(|_| out.need.is_some()) else { return Ok(()) };
        let mut bench = self.bench.with(Injected::These(out.techniques.clone(), notes.to_owned()));
        let name = out.name();
        let found = vary.search(&mut bench, self.question, &mut |it: &str| progress(&format!("{name}: {it}")))?;
        out.largest = found.largest.and_then(|at| found.values.get(at).cloned());
        Ok(())
    }

    fn judge(&self, bench: &Bench, trial: &Trial, out: &mut Measurement) -> Result<(), Trouble> {
        let tables = &self.question.tables;
        out.need = need(trial, &self.device, tables);
        let is_enough = |it: &Device| need(trial, it, tables).is_some_and(|need| need.must() <= it.capacity());
        let doubt = doubt(trial, self.question.steps);
        out.smallest = Device::all().into_iter().find(is_enough).filter(|_| doubt.is_none());
        if self.question.devices.is_empty() {
            out.fits = Some(if out.smallest.is_some() { Fits::Yes } else { Fits::Unknown });
            return Ok(());
        }
        let mut fits = Fits::Yes;
        for device in &self.question.devices {
            let Some(need) = need(trial, device, tables) else { continue };
            let there = match need.fits(device.capacity()) {
                Fits::Unknown => bench.confirmed(device, &need, (trial, false), &mut |_: &str| {})?.fits,
                known => known,
            };
            fits = fits.and(there);
        }
        let is_doubtful = fits == Fits::Yes && doubt.is_some();
        out.fits = Some(if is_doubtful { Fits::Unknown } else { fits });
        Ok(())
    }
}

/// Returns `checkpoint takes 3.9 GiB`, or why not.
fn words(it: &Measurement) -> String {
    match (it.device(), &it.refused) {
        (Some(bytes), None) => format!("{} takes {}", it.name(), Bytes(bytes)),
        (_, Some(why)) => format!("{}: {}", it.name(), why.lines().next().unwrap_or_default()),
        _ => it.name(),
    }
}

/// Why a run with a technique proves nothing.
fn failure(trial: &Trial, baseline: &Trial) -> Option<String> {
    let steps = |trial: &Trial| trial.accounts.iter().map(|it| it.steps).max().unwrap_or(0);
    // Where what follows training fails, its peak is not among those that were seen.
    let later = |trial: &Trial| {
        let errors = trial.accounts.iter().filter_map(|it| it.error.as_ref());
        errors.filter(|it| !it.is_out_of_memory()).map(phases::failed).next()
    };
    match &trial.outcome {
        Outcome::Finished if steps(trial) == 0 && steps(baseline) > 0 => {
            Some("no optimizer step ran with it".to_owned())
        }
        Outcome::Finished if later(baseline).is_none() => later(trial).map(|it| format!("with it, {it}")),
        Outcome::Failed(why) => Some(format!("with it, {}", why.lines().next().unwrap_or_default())),
        other => why(other).map(|it| format!("with it, {it}")),
    }
}

/// The kernels that a step of the process that takes the most launches.
fn launches(trial: &Trial) -> Option<i64> {
    let uuid = busiest(trial);
    on(trial, &uuid).find_map(|it| it.0.launches)?.try_into().ok()
}

/// What a technique did in the process that takes the most.
fn injected(trial: &Trial, technique: &Technique) -> Option<InjectedTechnique> {
    let uuid = busiest(trial);
    let all: Vec<&JobReport> = on(trial, &uuid).map(|it| it.0).collect();
    let of = |it: &&JobReport| it.techniques.get(technique.name).cloned();
    // A process that refuses it decides.
    let refused = all.iter().filter_map(of).find(|it| it.refused.is_some());
    refused.or_else(|| all.iter().find_map(of))
}

/// Returns the first step of training whose allocated peak differs between two runs: both peaks.
fn difference(one: &Trial, other: &Trial) -> Option<(u64, u64)> {
    let peaks = |trial: &Trial| -> Vec<(u64, u64)> {
        let uuid = busiest(trial);
        let of = |(report, device): (&JobReport, &super::job_report::OnDevice)| {
            let steps = usize::try_from(report.steps_of_training()).unwrap_or(usize::MAX);
            device.peaks.iter().take(steps).copied().collect::<Vec<_>>()
        };
        let mut all: Vec<_> = on(trial, &uuid).map(of).collect();
        all.sort();
        all.concat()
    };
    peaks(one).into_iter().zip(peaks(other)).find(|(a, b)| a != b).map(|(a, b)| (a.0, b.0))
}
