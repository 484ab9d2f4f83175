//! A finding in gpuwatch's own words and numbers: how fast, where, when the device is full.

use super::{Finding, Identity, Kind, Standing, follow};
use crate::{
    facts::units,
    model::analysis::{
        cause::Cause,
        episode::{Axis, Resource},
        growth, skew,
    },
};

/// Shorter times are not shown, in µs.
const A_SECOND: u64 = 1_000_000;

impl Finding {
    /// Returns its severity with the user's rule: `warning, silenced`.
    pub fn weight(&self) -> String {
        format!("{}{}", self.severity.name(), self.aside())
    }

    /// Returns the user's rule: `, silenced`, `, expected`, or nothing.
    pub fn aside(&self) -> String {
        match self.standing {
            Standing::Usual => String::new(),
            Standing::Allowed => ", expected".to_owned(),
            Standing::Silenced => ", silenced".to_owned(),
        }
    }

    /// Returns its slope: `+4.00 MiB/step`, `/s` if the job counts no steps, `+40.00 MiB every 60 steps` for stairs,
    /// with `≈` if samples are missing.
    pub fn slope(&self) -> Option<String> {
        let rate = units::per_step(self.bytes_per_step?);
        let rate = match (self.stairs, self.axis) {
            (Some(it), Axis::Steps) => format!("+{} every {} steps", units::Bytes(it.bytes), it.every),
            (Some(it), Axis::Seconds) => format!("+{} every {} s", units::Bytes(it.bytes), it.every),
            (None, Axis::Steps) => rate,
            (None, Axis::Seconds) => rate.replace("/step", "/s"),
        };
        Some(format!("{}{rate}", if self.approximate { "≈" } else { "" }))
    }

    /// Returns what grows and how fast: `reserved +4.00 MiB/step`; live memory is not named.
    pub fn growth(&self) -> Option<String> {
        let slope = self.slope()?;
        Some(match self.resource {
            Some(Resource::Allocated) | None => slope,
            Some(other) => format!("{} {slope}", other.name()),
        })
    }

    /// Returns its cause, if that adds something to its kind.
    pub fn because(&self) -> Option<&'static str> {
        // `rank-imbalance` adds nothing to `imbalance`.
        let id = self.cause.id();
        Some(id).filter(|it| self.kind == Kind::Growth || !it.ends_with(self.kind.name()))
    }

    /// Returns `full in 16270 steps, 27 min`, or the known part of it; `None` if no time is left.
    pub fn forecast(&self) -> Option<String> {
        self.remaining("").map(|it| format!("full in {it}"))
    }

    /// Returns the same of a run that is over: `full after 16270 steps more, 27 min`.
    pub fn forecast_of_ended(&self) -> Option<String> {
        self.remaining(" more").map(|it| format!("full after {it}"))
    }

    /// Returns `16270 steps, 27 min` until the device is full; `more` follows the steps.
    fn remaining(&self, more: &str) -> Option<String> {
        let left = self.full_in_steps.filter(|it| *it > 0 && self.follows.is_none());
        let both: Vec<String> = left.map(|it| steps(it) + more).into_iter().chain(self.left()).collect();
        (!both.is_empty()).then(|| both.join(", "))
    }

    /// Returns the time until the device is full, such as `27 min`; `None` if it is unknown or zero, or if the finding
    /// that causes this one shows it.
    pub fn left(&self) -> Option<String> {
        let is_over = self.full_in_steps == Some(0) || self.follows.is_some();
        self.full_in_us.filter(|it| *it >= A_SECOND && !is_over).map(units::duration)
    }

    /// Describes it in a few words, without its rank: `out of memory at step 170`, `memory grows 1011 KiB a step`.
    pub fn brief(&self) -> String {
        let rate = self.slope().map_or_else(String::new, |it| {
            format!(" {}", it.replace('+', "").replace("/step", " a step").replace("/s", " a second"))
        });
        match (self.kind, self.resource) {
            (Kind::Oom, _) if self.cause == Cause::SizeSearch => self.cause.entry().title.to_owned(),
            (Kind::Oom, _) => format!("out of memory at {}", self.place(self.first_alert_step)),
            (Kind::Growth, Some(Resource::Host)) => format!("host memory grows{rate}"),
            (Kind::Growth, Some(Resource::Pinned)) => format!("pinned host memory grows{rate}"),
            (Kind::Growth, Some(Resource::Reserved)) => format!("reserved memory grows{rate}"),
            (Kind::Growth, Some(Resource::Driver)) => format!("memory outside the allocator grows{rate}"),
            (Kind::Growth, Some(Resource::Device)) => format!("other processes' memory grows{rate}"),
            (Kind::Growth, _) if self.cause == Cause::LargerModel => format!("the model grows{rate}"),
            (Kind::Growth, _) => format!("memory grows{rate}"),
            (Kind::Slowdown, _) => {
                let ratio = self.evidence.get("slower").unwrap_or(1.0);
                format!("steps take {} as long since {}", units::times(ratio), self.since())
            }
            (Kind::Stall, _) => {
                let stopped = units::whole(self.evidence.get("stopped_us").unwrap_or(0.0));
                format!("no step for {} after {}", units::duration(stopped), self.place(self.first_alert_step))
            }
            (Kind::IdleMemory, _) => self.held(),
            (Kind::HostFull, _) if self.limit.is_some() => {
                let limit = self.limit.as_deref().unwrap_or_default();
                self.left().map_or_else(|| format!("{limit} fills up"), |it| format!("{limit} is full in {it}"))
            }
            (Kind::WorkerGrowth | Kind::ShmFull | Kind::OomKilled, _) if self.sentence.is_some() => {
                self.sentence.clone().unwrap_or_default()
            }
            (kind, _) => match self.comparison() {
                Some(figures) => format!("{}: {figures}", kind.name()),
                None => self.cause.entry().title.to_owned(),
            },
        }
    }

    /// Describes it with its rank, or the ranks that share it: `memory grows 1011 KiB a step (ranks 0, 1)`.
    pub fn brief_of(&self, sharing: &[&Self]) -> String {
        format!("{}{}", self.brief(), self.of_whom(sharing))
    }

    /// Returns ` (rank 1)`, ` (ranks 0, 1)` of those that share it, or nothing.
    fn of_whom(&self, sharing: &[&Self]) -> String {
        let own = || self.rank.map(|it| format!("rank {it}"));
        follow::ranks(sharing).or_else(own).map_or_else(String::new, |it| format!(" ({it})"))
    }

    /// Compares a rank with the others of its run: `steps take 82 ms, the others' 21 ms`, `wants 61.20 GiB, the others
    /// 40.10 GiB`. `None` once it is over, without these figures, and for other kinds.
    pub fn comparison(&self) -> Option<String> {
        let figure = |name| self.evidence.get(name).filter(|_| self.is_active());
        let time = |us: f64| units::brief(units::whole(us));
        let bytes = |it: f64| units::Bytes(units::whole(it));
        match self.kind {
            Kind::SlowRank => {
                let (slower, usual) = (figure("step_against_the_other_ranks")?, figure("usual_us")?);
                // A rank that arrives last makes the steps of all ranks equally long.
                let late = figure("later_us").filter(|us| slower < skew::LONGER && *us > 0.0);
                Some(match late {
                    Some(us) => format!("reaches a step {} after the others", time(us)),
                    None => format!("steps take {}, the others' {}", time(slower * usual), time(usual)),
                })
            }
            Kind::Imbalance => {
                let (own, others) = (figure("wanted")?, figure("others_want")?);
                Some(format!("wants {}, the others {}", bytes(own), bytes(others)))
            }
            _ => None,
        }
    }

    /// Describes it in a few words with the line to blame, if one is known: `train.py:33 keeps 564 KiB a step; full
    /// after 41 min more`, `out of memory at step 170: train.py:33 keeps 4.00 MiB a step`. It names the ranks that
    /// share it.
    pub fn headline(&self, sharing: &[&Self]) -> String {
        let who = self.of_whom(sharing);
        let full = self.left().map_or_else(String::new, |it| format!("; full after {it} more"));
        match (self.kind, self.blamed()) {
            (Kind::HostFull, _) => self.brief_of(sharing),
            (Kind::Growth, Some(line)) => format!("{line}{who}{full}"),
            (Kind::Oom, Some(line)) => format!("{}: {line}", self.brief_of(sharing)),
            (Kind::Oom, None) if self.is_active() => {
                let sentence = self.sentence.as_ref().map(|it| it.replacen("Out of", "out of", 1));
                sentence.unwrap_or_else(|| self.brief_of(sharing))
            }
            _ => format!("{}{full}", self.brief_of(sharing)),
        }
    }

    /// Returns which line keeps or allocates what grows, and how fast: `train.py:33 keeps 564 KiB a step`.
    fn blamed(&self) -> Option<String> {
        // Of a larger model, the line may be any that trains it.
        let culprit = self.culprit.as_deref().filter(|_| self.cause != Cause::LargerModel)?;
        let (line, unit) = (culprit.leading(), if self.axis == Axis::Steps { "step" } else { "second" });
        let verb = if culprit.kept.as_ref() == Some(line) { "keeps" } else { "allocates" };
        Some(format!("{} {verb} {} a {unit}", line.place(), units::Bytes(units::whole(culprit.bytes_per_step))))
    }

    /// Describes memory that a process holds and does not use: `a notebook holds device memory and does nothing: 24.00
    /// GiB, for 60 min`.
    fn held(&self) -> String {
        let figure = |name| self.evidence.get(name).map(units::whole);
        let held = figure("held").map(|it| units::Bytes(it).to_string());
        let time = figure("idle_us").or_else(|| figure("ended_us")).map(|it| format!("for {}", units::duration(it)));
        let parts: Vec<String> = held.into_iter().chain(time).collect();
        format!("{}: {}", self.cause.entry().title, parts.join(", "))
    }

    /// Describes its link: `follows from growth of allocated`, `led to the error at step 200`; `None` without one.
    pub fn following(&self) -> Option<String> {
        let Identity { kind, resource, step, .. } = self.follows?;
        Some(match (kind, self.kind, resource) {
            (Kind::Oom, Kind::Oom, _) => "the same error came again".to_owned(),
            (Kind::IdleMemory, ..) => "its launcher has ended".to_owned(),
            (Kind::OomKilled, ..) => "led to the kill by the kernel".to_owned(),
            (Kind::Oom, ..) => format!("led to the out-of-memory error at {}", self.place(step)),
            (_, _, resource) => format!("follows from growth of {}", resource.map_or("memory", Resource::name)),
        })
    }

    /// Returns when it began: `step 12`. In a job that gpuwatch attached to, `attachment` if it may be older than the
    /// probe, and `step 12 after attachment` where the probe counts steps from there.
    pub fn since(&self) -> String {
        let place = self.place(self.since_step);
        let Some(first) = self.attached_step else { return place };
        let first = if self.axis == Axis::Seconds { 0 } else { first };
        // The first rise that growth analysis can see is that of the sample after those that it ignores and one more.
        if self.since_step <= first + growth::FIRST + 1 {
            "attachment".to_owned()
        } else if first <= 1 {
            format!("{place} after attachment")
        } else {
            place
        }
    }

    /// Formats a step as `step 12`, or as a second if the job counts no steps.
    pub fn place(&self, step: u64) -> String {
        match self.axis {
            Axis::Steps => format!("step {step}"),
            Axis::Seconds => format!("second {step}"),
        }
    }
}

/// Formats a count that may be very large: `16270 steps`, `4.2 M steps`.
fn steps(count: u64) -> String {
    match count {
        0..1_000_000 => units::counted(count, "step"),
        1_000_000..1_000_000_000 => format!("{:.1} M steps", count as f64 / 1e6),
        _ => "over 1000 M steps".to_owned(),
    }
}
