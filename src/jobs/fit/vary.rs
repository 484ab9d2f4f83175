//! The largest value of something that the user varies, such as the batch.

use super::{Question, Trouble, trial::Bench};
use crate::facts::units::{Bytes, counted};
use std::collections::VecDeque;

/// The most values of a range.
const MOST: u64 = 100_000;

/// What is varied: `batch=8,16,32`, `batch=8..64` or `batch=8..64:8`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vary {
    name: String,
    /// From the one that needs least to the one that needs most.
    values: Vec<String>,
}

/// What came of it.
#[derive(Clone, Debug)]
pub(super) struct Varied {
    pub(super) name: String,
    pub(super) values: Vec<String>,
    /// The place of the largest value that fits.
    pub(super) largest: Option<usize>,
    /// Why a value could not be judged.
    pub(super) why: Option<String>,
    /// The values that ran, in this order.
    pub(super) tried: Vec<Tried>,
}

/// A value that ran.
#[derive(Clone, Debug)]
pub(super) struct Tried {
    pub(super) value: String,
    /// Whether the job runs on each device.
    pub(super) runs: bool,
    /// Bytes that its allocator wants on the device that decided.
    pub(super) wanted: u64,
}

impl Vary {
    /// Reads a name and its values.
    ///
    /// # Errors
    /// When it has no name or no values, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let usage = || "give a name and its values, as in batch=8,16,32 or batch=8..64:8".to_owned();
        let (name, values) = text.split_once('=').ok_or_else(usage)?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(is_name) {
            return Err(usage());
        }
        let values = match values.split_once("..") {
            Some((first, rest)) => range(first, rest).ok_or_else(usage)?,
            None => values.split(',').map(|it| it.trim().to_owned()).filter(|it| !it.is_empty()).collect(),
        };
        if values.is_empty() {
            return Err(usage());
        }
        let mut vary = Self { name: name.to_owned(), values };
        let numbers: Option<Vec<f64>> = vary.values.iter().map(|it| it.parse().ok()).collect();
        if let Some(numbers) = numbers {
            let mut all: Vec<_> = numbers.into_iter().zip(vary.values).collect();
            all.sort_by(|a, b| a.0.total_cmp(&b.0));
            vary.values = all.into_iter().map(|it| it.1).collect();
        }
        Ok(vary)
    }

    /// Finds the largest value: the last one, or by bisection one that runs on the device, where the next one does not.
    ///
    /// Where the command has no place for the value, the first one runs as well, because the value may change nothing.
    pub(super) fn search(
        &self,
        bench: &mut Bench,
        question: &Question,
        progress: &mut impl FnMut(&str),
    ) -> Result<Varied, Trouble> {
        if let Some(other) = bench.other_place(&self.name) {
            return Err(Trouble::OtherPlace(self.name.clone(), other));
        }
        let (name, values) = (self.name.clone(), self.values.clone());
        let mut found = Varied { name, values, largest: None, why: None, tried: Vec::new() };
        // Below `low` all fit, from `high` on none does.
        let (mut low, mut high) = (0, self.values.len());
        let is_placed = bench.has_place(&self.name);
        let mut ends = VecDeque::from([high - 1]);
        ends.extend((!is_placed && high > 1).then_some(0));
        for run in 1.. {
            let is_end = !ends.is_empty();
            let Some(at) = ends.pop_front().or_else(|| (low < high).then(|| low + (high - low) / 2)) else { break };
            let Some(value) = self.values.get(at) else { break };
            let left = runs((high - low).saturating_sub(usize::from(is_end))) - u32::from(!is_end);
            let more = left + u32::try_from(ends.len()).unwrap_or(0);
            let before = found.tried.last().map_or_else(String::new, |it| format!("{}; ", it.words(&self.name)));
            let words = format!("{before}now {}={value}, run {run} of at most {}", self.name, run + more);
            progress(&words);
            bench.set((self.name.clone(), value.clone()));
            match runs_on_all(bench, question, progress)? {
                Ok((runs, wanted)) => {
                    found.tried.push(Tried { value: value.clone(), runs, wanted });
                    (low, high) = if runs { (low.max(at + 1), high) } else { (low, high.min(at)) };
                }
                Err(why) => {
                    found.why = Some(format!("{}={value}: {why}", self.name));
                    high = high.min(at);
                }
            }
            if let ([first, second], false) = (found.tried.as_slice(), is_placed)
                && first.wanted == second.wanted
            {
                return Err(Trouble::Unvaried(self.name.clone(), Bytes(first.wanted), found.tried.len()));
            }
        }
        found.largest = low.checked_sub(1);
        Ok(found)
    }
}

/// Returns the most runs by which one of so many values, or none of them, is found.
fn runs(values: usize) -> u32 {
    usize::BITS - values.leading_zeros()
}

/// Whether the job runs on each device that was asked for and what it wants there, or why that is unknown.
pub(super) fn runs_on_all(
    bench: &mut Bench,
    question: &Question,
    progress: &mut impl FnMut(&str),
) -> Result<Result<(bool, u64), String>, Trouble> {
    let mut most = 0;
    for device in &question.devices {
        match bench.runs_on(device, question, progress)? {
            Ok((true, wanted)) => most = most.max(wanted),
            other => return Ok(other),
        }
    }
    Ok(Ok((true, most)))
}

impl Tried {
    /// `batch=32 runs (3.20 GiB reserved)`.
    fn words(&self, name: &str) -> String {
        let runs = if self.runs { "runs" } else { "does not run" };
        format!("{name}={} {runs} ({} reserved)", self.value, Bytes(self.wanted))
    }
}

impl Varied {
    /// The value whose run is shown: the largest that fits, or the first of all.
    pub(super) fn shown(&self) -> (String, String) {
        let value = self.values.get(self.largest.unwrap_or(0));
        (self.name.clone(), value.cloned().unwrap_or_default())
    }

    /// Returns the values that ran as text; `None` with a single one.
    pub(super) fn ran(&self) -> Option<String> {
        let all: Vec<_> = self.tried.iter().map(|it| it.words(&self.name)).collect();
        let values = counted(self.values.len() as u64, "value");
        (all.len() > 1).then(|| format!("tried {} of {values}: {}", all.len(), all.join(", ")))
    }

    /// The value above the largest one.
    pub(super) fn next(&self) -> Option<&String> {
        self.values.get(self.largest.map_or(0, |it| it + 1))
    }
}

/// `64` or `64:8` after the first value.
fn range(first: &str, rest: &str) -> Option<Vec<String>> {
    let (last, step) = rest.split_once(':').unwrap_or((rest, "1"));
    let (first, last, step): (u64, u64, u64) = (first.parse().ok()?, last.parse().ok()?, step.parse().ok()?);
    if step == 0 || last < first || (last - first) / step >= MOST {
        return None;
    }
    (first..=last).step_by(usize::try_from(step).ok()?).map(|it| Some(it.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_takes_at_most_so_many_runs() {
        assert_eq!([0, 1, 2, 3, 4, 7, 8, 100_000].map(runs), [0, 1, 2, 2, 3, 3, 4, 17]);
        // Whatever fits, one run less remains.
        for values in 1..200 {
            let middle = values / 2;
            assert!(runs(middle) < runs(values) && runs(values - middle - 1) < runs(values), "{values}");
        }
    }

    #[test]
    fn a_value_is_told_with_what_it_reserved() {
        let tried = Tried { value: "8".to_owned(), runs: false, wanted: 3 << 29 };
        assert_eq!(tried.words("batch"), "batch=8 does not run (1.50 GiB reserved)");
    }

    #[test]
    fn values_are_listed_or_a_range_and_go_upwards() {
        let values = |text| Vary::parse(text).map(|it| it.values.join(" "));
        assert_eq!(values("batch=8,32, 16").unwrap(), "8 16 32");
        assert_eq!(values("batch=8..64:16").unwrap(), "8 24 40 56");
        assert_eq!(values("n=1..3").unwrap(), "1 2 3");
        assert_eq!(values("size=small,large").unwrap(), "small large");
        for wrong in ["batch", "=8", "batch=", "a b=1", "batch=8..4", "batch=1..9:0", "batch=0..99999999999"] {
            assert!(values(wrong).is_err(), "{wrong}");
        }
    }
}
