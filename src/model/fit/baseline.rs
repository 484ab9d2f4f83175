//! An answer of `gpuwatch fit` that was saved, to compare a later one with it.

use crate::{
    facts::{
        text::Foreign,
        units::{on_ranks, whole},
    },
    model::analysis::culprit::Culprit,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use thiserror::Error;

/// The version of the JSON.
const SCHEMA: u64 = 1;

/// What of an answer is compared; bytes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Baseline {
    /// PyTorch's version; nothing of a job that did not use it.
    pub torch: Option<String>,
    /// Whether the job fits: `yes`, `no`, `unknown`; nothing for a test's answer.
    pub fits: Option<String>,
    /// The devices that were asked for.
    pub devices: Vec<SavedDevice>,
    /// The peak; nothing where the job could not be judged.
    pub peak: Option<SavedPeak>,
    /// What each step adds, where the job grows in each step.
    pub growth: Option<Growth>,
    /// What ran.
    pub phases: SavedPhases,
    /// The ranks that ran, of a plan.
    pub ranks: Vec<SavedRank>,
    /// Why there is no peak, and other unknowns.
    pub unknown: Vec<String>,
    /// Whether its figures were measured on a device, as a recording's are.
    #[serde(skip)]
    pub is_measured: bool,
    /// What `--advise` measured for techniques, where the file has its table.
    #[serde(skip)]
    pub advised: Vec<Advised>,
}

/// What the job takes with a technique, or with several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Advised {
    /// The name of the only one.
    pub technique: Option<String>,
    /// The names of several.
    pub techniques: Vec<String>,
    /// The highest sum of live allocations; nothing where it was refused.
    pub allocated: Option<u64>,
    /// The most that the allocator reserves.
    pub reserved: Option<u64>,
    /// With what is estimated outside the allocator.
    pub device: Option<u64>,
    /// Whether it fits then.
    pub fits: Option<String>,
    /// Why it was not measured.
    pub refused: Option<String>,
    /// What it costs.
    pub price: Option<SavedPrice>,
    /// The lines to write.
    pub edit: Vec<String>,
}

/// What a technique costs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SavedPrice {
    /// As in `same result`.
    pub class: String,
    /// Blocks whose forward runs twice.
    pub recomputed_blocks: u64,
    /// Bytes that go to the host and back in each step.
    pub host_bytes: u64,
    /// Kernels that a step launches beyond those of the job as it is; fewer are negative.
    pub kernel_launches: Option<i64>,
}

impl Advised {
    /// Returns its name, as `checkpoint + bf16`.
    pub fn name(&self) -> String {
        self.technique.clone().unwrap_or_else(|| self.techniques.join(" + "))
    }
}

/// A device by its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct DeviceName {
    /// Its name.
    pub name: String,
}

/// A device that was asked for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SavedDevice {
    /// Its name.
    pub name: String,
    /// Its bytes.
    pub total: u64,
    /// Whether the job fits on it.
    pub fits: Option<String>,
    /// What the job takes there.
    pub peak: Option<SavedPeak>,
}

/// A rank that ran.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SavedRank {
    /// Its number.
    pub rank: u64,
    /// What it takes.
    pub peak: SavedPeak,
    /// The most bytes of the host's memory.
    pub host: u64,
}

/// A peak, in bytes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SavedPeak {
    /// The highest sum of live allocations.
    pub allocated: u64,
    /// The most that the allocator reserves.
    pub reserved: u64,
    /// The same where it has all the room.
    pub wanted: u64,
    /// With what is estimated outside the allocator.
    pub device: u64,
    /// The line whose request made it.
    pub line: Option<String>,
    /// What the allocated bytes are.
    pub parts: BTreeMap<String, u64>,
    /// Where they were made; nothing in an answer of an earlier release.
    pub lines: Option<Vec<PeakLine>>,
    /// What lies outside the allocator, by name.
    pub outside: Vec<DeviceName>,
}

/// What a line holds at the peak.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PeakLine {
    /// As `model.py:211`.
    pub line: String,
    /// The file's path, relative to the folder of the run where it lies in it.
    pub path: String,
    /// The function, and its class where it has one, as `LMHead.forward`.
    pub function: String,
    /// The source, without comments and with single spaces.
    pub text: String,
    /// Bytes by part.
    pub parts: BTreeMap<String, u64>,
    /// The job's lines that led there, the innermost first.
    pub calls: Vec<String>,
    /// The path of the module that made it, or that has the parameter; `*` stands for several alike.
    pub module: Option<String>,
    /// What holds it between steps, in words.
    pub holder: Option<String>,
}

impl PeakLine {
    /// Returns the sum of its parts.
    pub fn bytes(&self) -> u64 {
        self.parts.values().fold(0, |sum, it| sum.saturating_add(*it))
    }
}

/// What each step of a job adds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Growth {
    /// Bytes a step.
    pub bytes: u64,
    /// The line that allocates what stays.
    pub line: Option<String>,
    /// What keeps it, the most first.
    pub culprits: Vec<SavedCulprit>,
    /// The ranks that grow; empty of a job without ranks.
    pub ranks: Vec<u64>,
}

impl Growth {
    /// Returns what one of its lines does, with the ranks on which it does where others grow, too.
    pub fn sentence(&self, of: &SavedCulprit) -> String {
        let ranks = if of.ranks == self.ranks { String::new() } else { on_ranks(&of.ranks) };
        format!("{}{ranks}", of.sentence)
    }
}

/// A line that keeps memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SavedCulprit {
    /// The line to blame: the one that keeps, otherwise the one that allocates.
    pub line: String,
    /// Bytes a step.
    pub bytes: u64,
    /// What happens, with what holds it.
    pub sentence: String,
    /// The remedy.
    pub advice: String,
    /// The ranks on which it does; empty of a job without ranks.
    pub ranks: Vec<u64>,
}

impl From<&Culprit> for SavedCulprit {
    fn from(it: &Culprit) -> Self {
        Self {
            line: it.leading().place(),
            bytes: whole(it.bytes_per_step),
            sentence: it.sentence.clone(),
            advice: it.advice.clone(),
            ranks: Vec::new(),
        }
    }
}

/// The phases that ran.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SavedPhases {
    /// In the order in which they began.
    pub ran: Vec<SavedPhase>,
}

/// A phase that ran.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SavedPhase {
    /// Its name.
    pub name: String,
    /// Where it began.
    pub line: Option<String>,
    /// How often it ran.
    pub count: u64,
    /// The highest sum of live allocations in it.
    pub allocated: u64,
}

/// Reasons why a file is no baseline.
#[derive(Debug, Error)]
pub enum BaselineTrouble {
    /// It is something else.
    #[error("is no answer of gpuwatch fit: write one with gpuwatch fit --save FILE -- CMD")]
    Other,
    /// Another version wrote it.
    #[error("has schema {0}, and this gpuwatch reads schema {SCHEMA}: save it again")]
    Schema(u64),
    /// An earlier release wrote it.
    #[error("was written by a release that did not save lines: save it again")]
    WithoutLines,
    /// The job could not be judged then.
    #[error("has no peak to compare with: {0}")]
    NoPeak(Foreign),
}

impl Baseline {
    /// Reads an answer, or the answer for the job as it was of a table of `--advise`.
    ///
    /// # Errors
    /// When the text is not JSON of `gpuwatch fit`.
    pub fn parse(text: &str) -> Result<Self, BaselineTrouble> {
        let value: serde_json::Value = serde_json::from_str(text).map_err(|_invalid| BaselineTrouble::Other)?;
        let schema = value.get("schema").and_then(serde_json::Value::as_u64).ok_or(BaselineTrouble::Other)?;
        if schema != SCHEMA {
            return Err(BaselineTrouble::Schema(schema));
        }
        if let Some(before) = value.get("baseline").filter(|_| value.get("rows").is_some()) {
            let mut baseline = Self::parse(&before.to_string())?;
            let all = ["rows", "combinations"].into_iter().filter_map(|it| value.get(it)?.as_array()).flatten();
            let read = |it: &serde_json::Value| Advised::deserialize(it).map_err(|_invalid| BaselineTrouble::Other);
            baseline.advised = all.map(read).collect::<Result<_, _>>()?;
            return Ok(baseline);
        }
        if value.get("fits").is_none() {
            return Err(BaselineTrouble::Other);
        }
        serde_json::from_value(value).map_err(|_invalid| BaselineTrouble::Other)
    }

    /// Returns it if it has what a later answer is compared with.
    ///
    /// # Errors
    /// When it has no peak, or no lines.
    pub fn usable(self) -> Result<Self, BaselineTrouble> {
        match &self.peak {
            None => {
                let why = self.unknown.first().and_then(|it| it.lines().next()).unwrap_or("the job used no GPU");
                Err(BaselineTrouble::NoPeak(Foreign::new(why)))
            }
            Some(peak) if peak.lines.is_none() => Err(BaselineTrouble::WithoutLines),
            Some(_) => Ok(self),
        }
    }

    /// Returns the phase that takes the most.
    pub fn highest_phase(&self) -> Option<&SavedPhase> {
        self.phases.ran.iter().rev().max_by_key(|it| it.allocated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_baseline_is_refused_with_the_reason() {
        let why = |text: &str| Baseline::parse(text).and_then(Baseline::usable).unwrap_err().to_string();
        for other in ["", "{", "[]", "{}", "3", r#"{"schema":"1"}"#, r#"{"schema":1,"verdict":"pass"}"#] {
            assert!(why(other).starts_with("is no answer of gpuwatch fit"), "{other}");
        }
        assert!(why(r#"{"schema":1,"fits":"yes","peak":{"parts":{"weights":-1}}}"#).starts_with("is no answer"));
        assert!(why(r#"{"schema":2,"fits":"yes"}"#).starts_with("has schema 2, and this gpuwatch reads schema 1"));
        let failed =
            r#"{"schema":1,"fits":"unknown","torch":null,"peak":null,"unknown":["the job failed: exit code 3\nmore"]}"#;
        assert_eq!(why(failed), "has no peak to compare with: the job failed: exit code 3");
        assert!(why(r#"{"schema":1,"fits":"yes","peak":{"allocated":3}}"#).contains("did not save lines"));
        let saved = Baseline::parse(r#"{"schema":1,"fits":"yes","peak":{"allocated":3,"lines":[]}}"#);
        assert_eq!(saved.unwrap().usable().unwrap().peak.unwrap().allocated, 3);
        let table = r#"{"schema":1,"rows":[{"technique":"bf16","allocated":2,"reserved":4}],"combinations":[],"baseline":
                       {"schema":1,"fits":"yes","peak":{"allocated":3,"lines":[]}}}"#;
        let saved = Baseline::parse(table).unwrap();
        assert_eq!((saved.peak.unwrap().allocated, saved.advised[0].name().as_str()), (3, "bf16"));
        for other in
            [r#"{"schema":1,"rows":3,"baseline":{}}"#, r#"{"schema":1,"rows":[3],"baseline":{"schema":1,"fits":"no"}}"#]
        {
            assert!(why(other).starts_with("is no answer of gpuwatch fit"), "{other}");
        }
    }
}
