//! What a job needs more than a baseline: in all, by part, and by line.

use super::{
    baseline::{Advised, Baseline, Growth, PeakLine, SavedPeak},
    line_match,
};
use crate::{
    facts::units::{parse_bytes, whole},
    model::anatomy::Change,
};
use anyhow::{Context, Result, bail};
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fmt,
};

/// Bytes that depend on how blocks happen to fall into segments: the allocator's larger segment.
const SEGMENT: u64 = 20 << 20;

/// How much more than the baseline passes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Budget {
    /// So many bytes.
    Bytes(u64),
    /// A share of the baseline's allocated bytes.
    Share(f64),
}

impl Budget {
    /// Parses `0.5%`, `64MiB` or bytes.
    ///
    /// # Errors
    /// When it is neither.
    pub fn parse(text: &str) -> Result<Self> {
        let Some(number) = text.strip_suffix('%') else {
            return parse_bytes(text).map(Self::Bytes).context("write a share as in 0.5%, or bytes as in 64MiB");
        };
        let share: f64 = number.trim_end().parse().context("write a share as in 0.5%")?;
        if !(0.0..=1000.0).contains(&share) {
            bail!("a share lies between 0% and 1000%");
        }
        Ok(Self::Share(share / 100.0))
    }

    /// Returns the bytes that pass beyond so many.
    pub fn bytes(self, before: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Share(share) => whole(before as f64 * share),
        }
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self::Bytes(0)
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => crate::facts::units::Bytes(*bytes).fmt(f),
            Self::Share(share) => write!(f, "{} %", (share * 1e5).round() / 1e3),
        }
    }
}

/// What a line holds more than before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedLine {
    /// The line now; as it was, where it is gone.
    pub line: PeakLine,
    /// The line in the baseline, where it is another one.
    pub was: Option<String>,
    /// Whether it holds nothing at the peak now.
    pub is_gone: bool,
    /// Bytes by part, without those that are equal.
    pub parts: BTreeMap<String, i64>,
}

impl ChangedLine {
    /// Returns the bytes that it holds more.
    pub fn bytes(&self) -> i64 {
        self.parts.values().fold(0, |sum, it| sum.saturating_add(*it))
    }
}

/// A job and its baseline.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// Bytes that pass.
    pub budget: u64,
    /// The highest sum of live allocations.
    pub allocated: Change,
    /// What the job asked for of it, where that is known: a block has more where the allocator splits no larger one.
    pub asked: Option<Change>,
    /// The most that the allocator reserves.
    pub reserved: Change,
    /// With what is outside the allocator.
    pub device: Change,
    /// Whether that was measured, as in recordings; otherwise it is estimated.
    pub is_measured: bool,
    /// What the allocated bytes are, without parts that are equal.
    pub parts: BTreeMap<String, Change>,
    /// Lines that hold more or less at the peak, the most first.
    pub lines: Vec<ChangedLine>,
    /// What each step adds, before and now.
    pub growth: (Option<Growth>, Option<Growth>),
    /// What else is different, as text.
    pub notes: Vec<String>,
    /// What is not compared, as text.
    pub not_compared: Vec<String>,
    /// Why they cannot be compared, as text.
    pub doubt: Option<String>,
}

/// Compares an answer with its baseline.
pub fn compare(before: &Baseline, now: &Baseline, budget: Budget) -> Comparison {
    let doubt = doubt(before, now);
    let (Some(old), Some(new)) = (&before.peak, &now.peak) else {
        let why = doubt.unwrap_or_else(|| "there is no peak to compare".to_owned());
        return Comparison { doubt: Some(why), ..Comparison::default() };
    };
    let change = |of: fn(&SavedPeak) -> u64| Change { before: of(old), now: of(new) };
    let parts = parts(old, new);
    let allocated = change(|it| it.allocated);
    let reserved = change(|it| it.wanted);
    // Another moment with as much is no difference; what was measured are moments of a chosen step.
    let is_measured = before.is_measured && now.is_measured;
    let is_equal = allocated.difference() == 0 && reserved.difference() == 0 && !is_measured;
    let is_known = !before.is_measured && !now.is_measured && !old.parts.is_empty() && !new.parts.is_empty();
    Comparison {
        budget: budget.bytes(old.allocated),
        allocated,
        asked: is_known.then(|| change(|it| it.parts.values().sum())),
        reserved,
        device: change(|it| it.device),
        is_measured,
        lines: if is_equal { Vec::new() } else { lines(old, new) },
        parts,
        growth: (before.growth.clone(), now.growth.clone()),
        notes: notes(before, now),
        not_compared: not_compared(old, new),
        doubt,
    }
    .with_rounding()
}

impl Comparison {
    /// Returns whether the job stays within the budget; `None` where that cannot be told.
    pub fn is_within(&self) -> Option<bool> {
        self.doubt.is_none().then(|| self.over().is_empty())
    }

    /// Returns the exit code: 0 within the budget, 1 over it, 2 cannot tell.
    pub fn code(&self) -> u8 {
        match self.is_within() {
            Some(true) => 0,
            Some(false) => 1,
            None => 2,
        }
    }

    fn is_over(&self, it: Change, more: u64) -> bool {
        it.now > it.before.saturating_add(self.budget).saturating_add(more)
    }

    /// Returns how much more the allocator may add to the blocks of a job that asks for no more.
    fn rounding(&self) -> u64 {
        if self.asked.is_some_and(|it| !self.is_over(it, 0)) { SEGMENT } else { 0 }
    }

    /// Names what the allocator adds where that alone would be over the budget.
    fn with_rounding(mut self) -> Self {
        if self.is_over(self.allocated, 0) && !self.is_over(self.allocated, self.rounding()) {
            let why = "what the allocator adds to large blocks: it depends on which free ones there are";
            self.not_compared.push(why.to_owned());
        }
        self
    }

    /// Returns what is over the budget.
    pub fn over(&self) -> Vec<Over> {
        let growth = |of: &Option<Growth>| of.as_ref().map_or(0, |it| it.bytes);
        let all = [
            (Over::Allocated, self.is_over(self.allocated, self.rounding())),
            (Over::Reserved, self.is_over(self.reserved, SEGMENT)),
            (Over::Growth, growth(&self.growth.1) > growth(&self.growth.0)),
        ];
        all.into_iter().filter(|it| it.1).map(|it| it.0).collect()
    }
}

/// A figure that is over the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Allocated bytes.
    Allocated,
    /// Reserved bytes, beyond one segment.
    Reserved,
    /// What each step adds.
    Growth,
}

/// Returns why two answers cannot be compared, as text.
fn doubt(before: &Baseline, now: &Baseline) -> Option<String> {
    let names = |of: &Baseline| {
        let names: Vec<&str> = of.devices.iter().map(|it| it.name.as_str()).collect();
        if names.len() > 4 { format!("{} cards", names.len()) } else { names.join(", ") }
    };
    if now.peak.is_none() {
        return Some(now.unknown.first().cloned().unwrap_or_else(|| "the job used no GPU".to_owned()));
    }
    if !before.devices.iter().map(|it| &it.name).eq(now.devices.iter().map(|it| &it.name)) {
        return Some(format!("the baseline is of another card: {}, and this is {}", names(before), names(now)));
    }
    if before.torch != now.torch {
        let [was, is] = [before, now].map(|of| of.torch.as_deref().unwrap_or("unknown"));
        return Some(format!("the baseline is of another PyTorch release: {was}, and this is {is}"));
    }
    let highest = before.highest_phase()?;
    let is_there = now.phases.ran.iter().any(|it| it.name == highest.name);
    let rose = |of: &Option<SavedPeak>| of.as_ref().map_or(0, |it| it.allocated);
    (!is_there && rose(&now.peak) <= rose(&before.peak))
        .then(|| format!("{}, which had the baseline's peak, did not run here", highest.name))
}

fn parts(old: &SavedPeak, new: &SavedPeak) -> BTreeMap<String, Change> {
    let names: BTreeSet<&String> = old.parts.keys().chain(new.parts.keys()).collect();
    let of = |it: &SavedPeak, name: &str| it.parts.get(name).copied().unwrap_or(0);
    let all = names.into_iter().map(|it| (it.clone(), Change { before: of(old, it), now: of(new, it) }));
    all.filter(|it| it.1.before != it.1.now).collect()
}

fn lines(old: &SavedPeak, new: &SavedPeak) -> Vec<ChangedLine> {
    let of = |it: &SavedPeak| it.lines.clone().unwrap_or_default();
    let (old, new) = (of(old), of(new));
    let mut all: Vec<ChangedLine> =
        line_match::pairs(&old, &new).into_iter().filter_map(|(old, new)| changed(old, new)).collect();
    all.sort_by(|a, b| b.bytes().cmp(&a.bytes()).then_with(|| a.line.line.cmp(&b.line.line)));
    all
}

fn changed(old: Option<&PeakLine>, new: Option<&PeakLine>) -> Option<ChangedLine> {
    let line = new.or(old)?.clone();
    let mut parts: BTreeMap<String, i64> = BTreeMap::new();
    for (of, sign) in [(new, 1), (old, -1)] {
        for (name, bytes) in of.into_iter().flat_map(|it| &it.parts) {
            let bytes = i64::try_from(*bytes).unwrap_or(i64::MAX);
            let sum = parts.entry(name.clone()).or_default();
            *sum = sum.saturating_add(bytes * sign);
        }
    }
    parts.retain(|_, bytes| *bytes != 0);
    let was = old.filter(|_| new.is_some()).map(|it| it.line.clone()).filter(|it| *it != line.line);
    (!parts.is_empty()).then_some(ChangedLine { line, was, is_gone: new.is_none(), parts })
}

/// What else is different.
fn notes(before: &Baseline, now: &Baseline) -> Vec<String> {
    let mut all = Vec::new();
    let (old, new) = (before.highest_phase(), now.highest_phase());
    if let Some((old, new)) = old.zip(new).filter(|it| it.0.name != it.1.name) {
        let at = new.line.as_ref().map_or_else(String::new, |it| format!(" at {it}"));
        all.push(format!("the peak is in {}{at} now; it was in {}", new.name, old.name));
    }
    let ran: HashSet<&str> = now.phases.ran.iter().map(|it| it.name.as_str()).collect();
    for phase in &before.phases.ran {
        if !ran.contains(phase.name.as_str()) {
            all.push(format!("{} ran in the baseline, and did not run here", phase.name));
        }
    }
    if let Some(peak) = now.peak.as_ref().filter(|_| !before.advised.is_empty()) {
        let is_it = |of: &&Advised| of.allocated == Some(peak.allocated) && of.reserved == Some(peak.wanted);
        let names: Vec<String> = before.advised.iter().filter(is_it).map(Advised::name).collect();
        all.push(if names.is_empty() {
            "the peak equals that of none of the techniques that were measured".to_owned()
        } else {
            format!("the peak equals, to the byte, what was measured for {}", names.join(", "))
        });
    }
    all
}

fn not_compared(old: &SavedPeak, new: &SavedPeak) -> Vec<String> {
    let names: BTreeSet<&str> = old.outside.iter().chain(&new.outside).map(|it| it.name.as_str()).collect();
    names.into_iter().map(|it| format!("{it}: estimated, outside the allocator")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::fit::baseline::{SavedDevice, SavedPhases};

    fn answer(allocated: u64, wanted: u64) -> Baseline {
        let text = format!(
            r#"{{"schema":1,"fits":"yes","torch":"2.9","devices":[{{"name":"L4"}}],"peak":{{"allocated":{allocated},
            "wanted":{wanted},"device":{wanted},"parts":{{"weights":{allocated}}},"lines":[{{"line":"a.py:1",
            "text":"w","parts":{{"weights":{allocated}}}}}]}},"phases":{{"ran":[{{"name":"training","allocated":9}}]}}}}"#
        );
        Baseline::parse(&text).unwrap()
    }

    #[test]
    fn an_edit_is_confirmed_by_the_table_of_advice() {
        let advised = |name: &str, allocated| Advised {
            technique: Some(name.to_owned()),
            allocated: Some(allocated),
            reserved: Some(20),
            ..Advised::default()
        };
        let before = Baseline { advised: vec![advised("bf16", 7), advised("checkpoint", 5)], ..answer(9, 30) };
        let notes = |now: &Baseline| compare(&before, now, Budget::Bytes(0)).notes;
        assert_eq!(notes(&answer(5, 20)), ["the peak equals, to the byte, what was measured for checkpoint"]);
        assert_eq!(notes(&answer(6, 20)), ["the peak equals that of none of the techniques that were measured"]);
    }

    #[test]
    fn a_budget_is_a_share_or_bytes() {
        let bytes = |text: &str| Budget::parse(text).unwrap().bytes(1000);
        assert_eq!([bytes("0.5%"), bytes("10 %"), bytes("0"), bytes("2KiB"), bytes("7")], [5, 100, 0, 2048, 7]);
        assert_eq!(
            (Budget::parse("0.5%").unwrap().to_string(), Budget::default().to_string()),
            ("0.5 %".into(), "0 B".into())
        );
        for bad in ["", "%", "-1%", "x", "NaN%", "inf%"] {
            assert!(Budget::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_the_allocator_adds_to_blocks_is_not_the_jobs() {
        let with = |allocated: u64, asked: u64| {
            let mut answer = answer(allocated, 200 << 20);
            if let Some(peak) = &mut answer.peak {
                peak.parts = [("weights".to_owned(), asked)].into();
            }
            answer
        };
        let compared = |now: &Baseline| compare(&with(100 << 20, 99 << 20), now, Budget::Share(0.005));
        let named = |it: &Comparison| it.not_compared.iter().any(|why| why.contains("adds to large blocks"));
        let more = compared(&with(101 << 20, 99 << 20));
        assert!(more.code() == 0 && named(&more), "{more:?}");
        // It is not without bounds, and what is asked for counts.
        for now in [with(130 << 20, 99 << 20), with(101 << 20, 100 << 20)] {
            let more = compared(&now);
            assert!(more.over() == [Over::Allocated] && !named(&more), "{more:?}");
        }
        let measured = Baseline { is_measured: true, ..with(101 << 20, 99 << 20) };
        assert_eq!(compared(&measured).code(), 1);
        assert!(!named(&compared(&with(100 << 20, 99 << 20))));
    }

    #[test]
    fn more_than_the_budget_is_over_it() {
        let compared = |now: &Baseline, budget| compare(&answer(1000, 4096), now, budget);
        assert_eq!(compared(&answer(1000, 4096), Budget::default()).code(), 0);
        let more = compared(&answer(1006, 4096), Budget::Share(0.005));
        assert_eq!((more.code(), more.over(), more.lines[0].bytes()), (1, vec![Over::Allocated], 6));
        assert_eq!(compared(&answer(1005, 4096), Budget::Share(0.005)).code(), 0);
        assert_eq!(compared(&answer(900, 4096), Budget::default()).code(), 0);
        assert_eq!(compared(&answer(1000, 4096 + SEGMENT), Budget::default()).code(), 0, "one segment");
        assert_eq!(compared(&answer(1000, 4097 + SEGMENT), Budget::default()).over(), [Over::Reserved]);
        let growing = Baseline { growth: Some(Growth { bytes: 512, ..Growth::default() }), ..answer(1000, 4096) };
        assert_eq!(compared(&growing, Budget::Bytes(1 << 30)).over(), [Over::Growth], "no budget lasts");
    }

    #[test]
    fn answers_of_other_cards_and_releases_are_not_compared() {
        let why = |now: &Baseline| compare(&answer(9, 9), now, Budget::default()).doubt.unwrap_or_default();
        let other = Baseline { torch: Some("2.10".to_owned()), ..answer(9, 9) };
        assert_eq!(why(&other), "the baseline is of another PyTorch release: 2.9, and this is 2.10");
        let other =
            Baseline { devices: vec![SavedDevice { name: "T4".to_owned(), ..SavedDevice::default() }], ..answer(9, 9) };
        assert_eq!(why(&other), "the baseline is of another card: L4, and this is T4");
        let failed = Baseline { peak: None, unknown: vec!["the job failed".to_owned()], ..answer(9, 9) };
        assert_eq!(why(&failed), "the job failed");
        let shorter = Baseline { phases: SavedPhases::default(), ..answer(9, 9) };
        assert_eq!(why(&shorter), "training, which had the baseline's peak, did not run here");
    }
}
