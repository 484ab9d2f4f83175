//! Every analysis of one session, at the session's own time: one ladder per device, fragmentation and growth per
//! process, and the findings.

mod blame;
mod derive;
mod finding;
/// Findings that follow from another, and leaks that several ranks share.
pub mod follow;
mod host_limits;
mod message;
mod replayed;
mod steps;

use crate::{
    facts::{
        event::{Advised, DeviceId, ProbeId, Replayed},
        text::{self, COMMAND_MAX, Foreign, command},
        units::{Bytes, Stamp, counted},
    },
    model::{
        analysis::{
            cause::Cause,
            episode::{Axis, Resource},
            evidence::{Evidence, Unit},
            fragmentation::{self, Fragmentation},
            idle::IdlePeriod,
            ladder::{self, Gap, Ladder, OwnFigures},
            severity::Severity,
        },
        fit::technique::Price,
        session::{
            Session,
            attribution::Attribution,
            device::Device,
            oom::OutOfMemory,
            process::{OOMS, OnDevice, Process},
        },
    },
};
pub use finding::{Finding, Identity, Kind, Standing, Subject, names};
pub use replayed::{VARIABLE, replay_words};
use serde_json::{Map, Value, json};
pub use steps::against_others;

/// All analyses of a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// Per device, in the session's order.
    pub devices: Vec<DeviceFindings>,
    /// All findings: worst first, active before resolved, then as raised.
    pub all: Vec<Finding>,
}

/// The analyses of one device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceFindings {
    /// The device.
    pub device: DeviceId,
    /// Its ladder.
    pub ladder: Ladder,
    /// Its probed processes, in the order of the ladder's owners.
    pub processes: Vec<ProcessFindings>,
    /// Number of processes that the driver lists without a probe; `None` if there is no list.
    pub unprobed: Option<usize>,
    /// Whether the driver's list has pids of another namespace, so that its figures cannot be attributed.
    pub foreign_pids: bool,
}

/// The analyses of one process on one device.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessFindings {
    /// The probe.
    pub probe: ProbeId,
    /// The process's own ordinal of the device.
    pub ordinal: u32,
    /// The bytes that the driver reports for it.
    pub driver_used: Option<Bytes>,
    /// How much of its reserved memory is unused.
    pub fragmentation: Fragmentation,
    /// Whole free segments that are certain to be in no private pool: `empty_cache()` gives them back.
    pub releasable: Option<Bytes>,
    /// Whether samples are missing in what this rests on.
    pub approximate: bool,
    /// Whether it has ended while its memory is still in use.
    pub ended: bool,
}

/// Returns all analyses of a session.
pub fn findings(session: &Session) -> Findings {
    Findings { devices: of_devices(session), all: derive::all(session) }
}

fn of_devices(session: &Session) -> Vec<DeviceFindings> {
    session.devices.iter().map(|it| of_device(session, it)).collect()
}

/// Returns whether a finding still needs attention: it and its process are active. An out-of-memory error stays open.
/// When no process is left, the final findings stay open for some minutes. If a process continues without its probe, it
/// is unknown whether they last.
pub fn is_open(it: &Finding, session: &Session) -> bool {
    let is_over = || {
        let process = it.process(session);
        let has_ended = process.is_none_or(|it| !it.is_alive());
        let is_unseen = || process.is_some_and(|it| it.next.is_some() || session.continues(it));
        let is_old = || process.is_some_and(|it| it.ended_long_ago(session.now));
        // What is judged without a probe ends by itself.
        let is_probed = it.probe.is_some() && it.kind != Kind::Oom;
        is_probed && has_ended && (is_unseen() || is_old() || session.processes.iter().any(Process::is_alive))
    };
    it.is_active() && !is_over()
}

impl Findings {
    /// Returns the same findings with the ladders and figures of a later moment.
    #[must_use]
    pub fn with_figures_of(self, session: &Session) -> Self {
        Self { devices: of_devices(session), ..self }
    }

    /// Returns the analyses of one device.
    pub fn device(&self, id: &DeviceId) -> Option<&DeviceFindings> {
        self.devices.iter().find(|it| it.device == *id)
    }

    /// Returns a process's lasting growth on a device: of its live allocations, otherwise the fastest.
    pub fn growing(&self, probe: ProbeId, ordinal: u32) -> Option<&Finding> {
        let own = self.lasting_growth().filter(|it| it.probe == Some(probe) && it.ordinal == Some(ordinal));
        let own = own.filter(|it| it.resource != Some(Resource::Device));
        own.max_by(|one, other| {
            let is_live = |it: &Finding| it.resource == Some(Resource::Allocated);
            is_live(one).cmp(&is_live(other)).then(rate(one).total_cmp(&rate(other)))
        })
    }

    /// Returns how fast a process grows on a device, in bytes per step: 0 without growth, `None` before enough steps
    /// were seen, and for growth that is measured per second.
    pub fn rate_per_step(&self, probe: ProbeId, on: &OnDevice) -> Option<f64> {
        let flat = (on.growth.watched() >= on.growth.enough()).then_some(0.0);
        let growing = self.growing(probe, on.ordinal);
        growing.map_or(flat, |it| it.bytes_per_step.filter(|_| it.axis == Axis::Steps))
    }

    /// Returns the worst lasting finding of a process's memory on a device apart from growth, with its resource.
    pub fn strained(&self, probe: ProbeId, ordinal: u32) -> Option<(Resource, &Finding)> {
        let own = self.all.iter().filter(|it| it.probe == Some(probe) && it.ordinal == Some(ordinal));
        own.filter(|it| it.is_active() && it.kind != Kind::Growth).find_map(|it| Some((it.memory()?, it)))
    }

    /// Returns the fastest lasting growth of a process's host memory.
    pub fn growing_on_host(&self, probe: ProbeId) -> Option<&Finding> {
        let own = self.lasting_growth().filter(|it| it.probe == Some(probe) && it.ordinal.is_none());
        own.max_by(|one, other| rate(one).total_cmp(&rate(other)))
    }

    /// Returns the fastest lasting growth on a device, of a running process or of no process in particular.
    pub fn growing_on(&self, device: &DeviceFindings) -> Option<&Finding> {
        let living = device.processes.iter().filter(|it| !it.ended);
        let own = living.filter_map(|it| self.growing(it.probe, it.ordinal));
        let is_nobodys =
            |it: &&Finding| it.resource == Some(Resource::Device) && it.device.as_ref() == Some(&device.device);
        own.chain(self.lasting_growth().filter(is_nobodys)).max_by(|one, other| rate(one).total_cmp(&rate(other)))
    }

    fn lasting_growth(&self) -> impl Iterator<Item = &Finding> {
        self.all.iter().filter(|it| it.kind == Kind::Growth && it.is_active())
    }
}

fn rate(growth: &Finding) -> f64 {
    growth.bytes_per_step.unwrap_or(0.0)
}

/// Analyses the memory of one device.
pub fn of_device(session: &Session, device: &Device) -> DeviceFindings {
    let Attribution { device: figures, own, unprobed, foreign_pids } = session.attribution(device);
    let own_figures: Vec<_> = own.iter().map(|it| it.figures).collect();
    DeviceFindings {
        device: device.id.clone(),
        ladder: ladder::ladder(&figures, &own_figures),
        processes: own.iter().map(|it| process_findings(it.process, it.on, it.driver_used)).collect(),
        unprobed,
        foreign_pids,
    }
}

fn process_findings(process: &Process, it: &OnDevice, driver_used: Option<Bytes>) -> ProcessFindings {
    let (counters, is_expandable) = (&it.counters, process.is_expandable());
    let figures = OwnFigures::counted(counters, is_expandable, Stamp(0));
    ProcessFindings {
        probe: process.probe,
        ordinal: it.ordinal,
        driver_used,
        fragmentation: fragmentation::fragmentation(counters, is_expandable),
        releasable: ladder::part(&figures, Gap::Releasable).map(Bytes),
        approximate: process.stride > 1 || process.lost > 0,
        ended: !process.is_alive(),
    }
}

/// Most bytes of a command line.
const COMMAND: usize = 100;

/// Returns them, those that are over too.
fn all(session: &Session) -> impl Iterator<Item = Finding> {
    session.holders.spells().map(|it| finding(session, it))
}

fn finding(session: &Session, it: &IdlePeriod) -> Finding {
    let cause = it.cause();
    let mut evidence = Evidence::default();
    if let Some(used) = it.used {
        evidence.add("held", used.0 as f64, Unit::Bytes);
    }
    let rested = if cause == Cause::EndedProcess { "ended_us" } else { "idle_us" };
    evidence.add(rested, it.rested_s as f64 * 1e6, Unit::Micros);
    let found = Finding::new(Kind::IdleMemory, cause, evidence, (it.raised_s, it.first_alert_at));
    let lasts = it.resolved.is_none();
    // A user may still want a notebook or a script, but not what an end or a launcher left behind.
    let is_wanted = matches!(cause, Cause::IdleNotebook | Cause::IdleProcess);
    let own = session.processes.iter().find(|process| process.pid == Some(it.pid));
    Finding {
        severity: if lasts && !is_wanted { Severity::Warning } else { Severity::Info },
        device: Some(it.device.clone()),
        pid: Some(it.pid),
        rank: own.and_then(Process::rank),
        axis: Axis::Seconds,
        since_step: it.since_s,
        resolved_step: it.resolved.map(|(second, _)| second),
        resolved_at: it.resolved.map(|(_, at)| at),
        account: if lasts { account(session, it) } else { Vec::new() },
        ..found
    }
}

fn account(session: &Session, it: &IdlePeriod) -> Vec<String> {
    let info = session.process_info.get(&it.pid);
    let who = info.map(|info| {
        let command = text::command(info.argv.iter().map(Foreign::raw), COMMAND);
        format!("pid {}: {command}, user {}", it.pid, info.user)
    });
    let is_new = !it.has_worked && it.cause() != Cause::EndedProcess;
    let unseen = is_new.then(|| "gpuwatch has not seen it use a device since it watches".to_owned());
    who.into_iter().chain(unseen).collect()
}

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
enum Stage {
    /// An early error of a running job: it may be handled.
    Open,
    /// One of so many attempts of a search that found a size; whether it is the last of them, and whether another error
    /// came after the search.
    Fitted { attempts: u64, last: bool, is_followed: bool },
    /// No error of a search.
    Usual,
}

/// Returns what an error is to its job.
fn stage(process: &Process, on: &OnDevice, it: &OutOfMemory, now: Stamp) -> Stage {
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

impl Finding {
    /// Fields: `kind`, `severity`, `standing` (`usual`, `silenced`, `allowed`: the config's rule), `state` (`active`,
    /// `resolved`), `cause`, `advice`, `resource`, `device` (the process's ordinal), `device_id`, `pid`, `rank`, `axis`
    /// (`steps`, `seconds`), `since_step`, `since` (in words), `first_alert_step`, `first_alert_us`, `resolved_step`,
    /// `resolved_us`, `bytes_per_step`, `interval` (95 %), `blocks_per_step`, `full_in_steps`, `full_in_us`, `evidence`
    /// (figures by name), `culprit` ([`Culprit::json`]; `null` if no capture found one), `sentence` (an out-of-memory
    /// error in words), `follows` (`kind`, `resource` and `step` of the finding that causes this one, and `words`),
    /// `account[]` (lines of text), `replay` (`null` without one: `comparison` and `cost` as in recordings, `why` if
    /// there is no answer, and `words[]`), `approximate`.
    ///
    /// [`Culprit::json`]: crate::model::analysis::culprit::Culprit::json
    pub fn json(&self) -> Map<String, Value> {
        let figures = self.evidence.figures.iter();
        let evidence: Map<_, _> = figures.map(|it| (it.name.to_owned(), json!(it.value))).collect();
        let interval = self.evidence.get("interval_low").zip(self.evidence.get("interval_high"));
        let axis = match self.axis {
            Axis::Steps => "steps",
            Axis::Seconds => "seconds",
        };
        let follows = self.follows.map(|Identity { kind, resource, step, .. }| {
            json!({"kind": kind.name(), "resource": resource.map(Resource::name), "step": step, "words": self.following()})
        });
        let pairs = [
            ("kind", json!(self.kind.name())),
            ("severity", json!(self.severity.name())),
            ("standing", json!(self.standing.name())),
            ("state", json!(if self.is_active() { "active" } else { "resolved" })),
            ("cause", json!(self.cause.id())),
            ("advice", json!(self.remedy())),
            ("resource", json!(self.resource.map(Resource::id))),
            ("device", json!(self.ordinal)),
            ("device_id", json!(self.device)),
            ("pid", json!(self.pid)),
            ("rank", json!(self.rank)),
            ("axis", json!(axis)),
            ("since_step", json!(self.since_step)),
            ("since", json!(self.since())),
            ("first_alert_step", json!(self.first_alert_step)),
            ("first_alert_us", json!(self.first_alert_at)),
            ("resolved_step", json!(self.resolved_step)),
            ("resolved_us", json!(self.resolved_at)),
            ("bytes_per_step", json!(self.bytes_per_step)),
            ("interval", json!(interval.map(|(low, high)| [low, high]))),
            ("blocks_per_step", json!(self.blocks_per_step)),
            ("full_in_steps", json!(self.full_in_steps)),
            ("full_in_us", json!(self.full_in_us)),
            ("evidence", json!(evidence)),
            ("culprit", json!(self.culprit.as_ref().map(|it| it.json()))),
            ("sentence", json!(self.sentence)),
            ("follows", json!(follows)),
            ("account", json!(self.account.iter().chain(&self.saving).collect::<Vec<_>>())),
            ("replay", json!(self.replayed.as_deref().map(|it| replay(it, &self.replay_words())))),
            ("approximate", json!(self.approximate)),
        ];
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

fn replay(it: &Replayed, words: &[String]) -> Value {
    let (comparison, why) = (it.result.as_ref().ok(), it.result.as_ref().err());
    json!({ "comparison": comparison, "why": why, "cost": it.cost, "words": words })
}

/// Returns a line with the command that finds the largest batch that fits, or on which devices the job fits as it is;
/// `None` without the job's command, or without the device's bytes where the batch varies.
fn words(argv: &[String], varies: bool, total: Option<u64>) -> Option<String> {
    if argv.len() < 2 {
        return None;
    }
    if !varies {
        let line = command(["gpuwatch", "fit", "--"].into_iter().chain(argv.iter().map(String::as_str)), COMMAND_MAX);
        return Some(format!("to find a device on which it fits: {}", Foreign::new(line)));
    }
    let mut words: Vec<String> = argv.to_vec();
    let batch = batch(&mut words);
    let range = format!("batch=1..{}", batch.unwrap_or(64));
    let size = format!("{}MiB", total? >> 20);
    let start = ["gpuwatch", "fit", "--gpu", &size, "--vary", &range, "--"].into_iter();
    let line = command(start.chain(words.iter().map(String::as_str)), COMMAND_MAX);
    let how = if batch.is_some() { "" } else { " (where the script reads the environment variable `batch`)" };
    Some(format!("to find the largest batch that fits: {}{how}", Foreign::new(line)))
}

/// Returns what was measured to save memory in a job, or a line with the command that measures it; nothing without the
/// job's command.
fn advice_words(process: &Process) -> Vec<String> {
    if let Some(it) = &process.advised {
        return advised_words(it);
    }
    let argv = process.hello.as_deref().map_or(&[][..], |it| &it.argv);
    advise_words(argv, process.pid.filter(|_| process.is_alive())).into_iter().collect()
}

/// The viewers of a living process show the answer, too.
fn advise_words(argv: &[String], living: Option<u32>) -> Option<String> {
    let living = living.map(|it| it.to_string());
    let shown = living.iter().flat_map(|it| ["--for", it.as_str()]);
    let start = ["gpuwatch", "fit", "--advise"].into_iter().chain(shown).chain(["--"]);
    let line = (argv.len() > 1).then(|| command(start.chain(argv.iter().map(String::as_str)), COMMAND_MAX))?;
    Some(format!("to measure what would save memory: {}", Foreign::new(line)))
}

/// Describes a measured answer: of each class of price the row that takes the least, where it takes less than those of
/// smaller price, and what to write for it.
pub fn advised_words(it: &Advised) -> Vec<String> {
    let before = Bytes(it.peak);
    if it.rows.is_empty() {
        let tried = match it.measured {
            0 => "nothing could be tried".to_owned(),
            count => format!("none of {} that were tried saves memory", counted(count, "change")),
        };
        return vec![format!("measured: the job takes {before} as it is, and {tried}")];
    }
    let mut words = vec![format!("measured: the job takes {before} as it is")];
    let mut least = u64::MAX;
    for price in Price::ALL.map(Price::name) {
        let Some(row) = it.rows.iter().find(|row| row.price.raw() == price && row.peak < least) else { continue };
        least = row.peak;
        let verdict = row.verdict.as_ref().map_or_else(String::new, |it| format!(", {it}"));
        words.push(format!("{} with {} ({price}){verdict}", Bytes(row.peak), row.techniques));
        words.extend(row.edit.iter().map(|it| format!("  {it}")));
    }
    words
}

/// Puts `{batch}` in the place of the batch size of a command, and returns that size.
fn batch(words: &mut [String]) -> Option<u64> {
    let is_name = |it: &str| {
        let name = it.trim_start_matches('-').rsplit('.').next().unwrap_or_default().to_lowercase();
        let name = name.replace(['-', '_'], "");
        name == "bs" || ["batch", "batchsize"].iter().any(|ending| name.ends_with(ending)) && !name.starts_with("num")
    };
    for place in 1..words.len() {
        let word = words.get(place)?.clone();
        if let Some((name, value)) = word.split_once('=') {
            if let Some(size) = value.parse().ok().filter(|it| *it > 0 && is_name(name)) {
                *words.get_mut(place)? = format!("{name}={{batch}}");
                return Some(size);
            }
        } else if word.starts_with('-')
            && is_name(&word)
            && let Some(value) = words.get_mut(place + 1)
            && let Some(size) = value.parse().ok().filter(|it| *it > 0)
        {
            "{batch}".clone_into(value);
            return Some(size);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::event::advised::AdvisedRow;

    fn line(of: &str) -> Option<String> {
        words(&of.split(' ').map(str::to_owned).collect::<Vec<_>>(), true, Some(24 << 30))
    }

    #[test]
    fn the_batch_size_of_the_command_varies() {
        let start = "to find the largest batch that fits: gpuwatch fit --gpu 24576MiB --vary batch=1..";
        for (command, expected) in [
            ("python train.py --batch-size 48 --lr 1", "48 -- python train.py --batch-size '{batch}' --lr 1"),
            ("python t.py --per_device_train_batch_size=8", "8 -- python t.py '--per_device_train_batch_size={batch}'"),
            ("python -m app data.batch_size=16", "16 -- python -m app 'data.batch_size={batch}'"),
            (
                "python t.py --limit_train_batches=100 --train-batch 8",
                "8 -- python t.py --limit_train_batches=100 --train-batch '{batch}'",
            ),
            (
                "python t.py --num-batches 5 --eval_every_batches 9 --bs 4",
                "4 -- python t.py --num-batches 5 --eval_every_batches 9 --bs '{batch}'",
            ),
            ("python train.py", "64 -- python train.py (where the script reads the environment variable `batch`)"),
            ("python train.py --batch auto", "64 -- python train.py --batch auto (where the script reads"),
        ] {
            let found = line(command).unwrap();
            assert!(found.starts_with(&format!("{start}{expected}")), "{found}");
        }
        assert_eq!(line("python"), None);
        let argv = ["python", "train.py", "--lr", "1"].map(str::to_owned);
        let expected = "to measure what would save memory: gpuwatch fit --advise -- python train.py --lr 1";
        assert_eq!((advise_words(&argv, None).as_deref(), advise_words(&argv[..1], None)), (Some(expected), None));
        assert!(advise_words(&argv, Some(7)).unwrap().contains("fit --advise --for 7 -- python train.py"));
    }

    #[test]
    fn measured_advice_names_the_best_of_each_price_and_what_to_write() {
        let row = |name: &str, mib: u64, price: Price, edit: &[&str]| AdvisedRow {
            techniques: name.into(),
            peak: mib << 20,
            price: price.name().into(),
            verdict: Some("fits on L4".into()),
            edit: edit.iter().map(|it| Foreign::new(*it)).collect(),
        };
        let rows = vec![
            row("checkpoint + bf16", 900, Price::OtherNumerics, &["t.py:3: a", "t.py:4: b"]),
            row("bf16", 950, Price::OtherNumerics, &["t.py:4: b"]),
            row("checkpoint", 1000, Price::SameResult, &["t.py:3: a"]),
            row("accumulate", 1100, Price::OtherTraining, &[]),
        ];
        let it = Advised { probe: ProbeId(0), peak: 2000 << 20, measured: 9, rows };
        assert_eq!(
            advised_words(&it),
            [
                "measured: the job takes 1.95 GiB as it is",
                "1000 MiB with checkpoint (same result), fits on L4",
                "  t.py:3: a",
                "900.0 MiB with checkpoint + bf16 (other numerics), fits on L4",
                "  t.py:3: a",
                "  t.py:4: b",
            ]
        );
        let none = advised_words(&Advised { rows: Vec::new(), ..it });
        assert_eq!(
            none,
            ["measured: the job takes 1.95 GiB as it is, and none of 9 changes that were tried saves memory"]
        );
    }
}
