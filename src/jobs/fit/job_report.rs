//! What a process of the job left behind: the file that `_fit.py` writes.

use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// One process's account.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct JobReport {
    pub(super) torch: String,
    /// Optimizer steps.
    pub(super) steps: u64,
    /// How it ended: `steps`, `time` (the limit) and `cpu` (it trained without a device) where the account ended the
    /// process, `exit` where it ended by itself, nothing where it was killed.
    pub(super) ended: Option<String>,
    pub(super) error: Option<Failure>,
    /// Where the job was when it was ended early.
    pub(super) line: Option<String>,
    pub(super) devices: Vec<OnDevice>,
    pub(super) reads: Vec<Read>,
    pub(super) refused: Vec<Refused>,
    /// Lines that load kernels of the job's own.
    pub(super) modules: Vec<String>,
    /// When backward ran, and for which line.
    pub(super) backward: Vec<(u64, u64, String)>,
    /// When steps ended, in µs since 1970.
    pub(super) ends: Vec<u64>,
    pub(super) facts: Learnt,
    pub(super) tensors: Option<BTreeMap<String, BTreeMap<u32, BTreeSet<u64>>>>,
    pub(super) snapshot: Option<PathBuf>,
}

/// An error that ended the process.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Failure {
    pub(super) kind: String,
    pub(super) text: String,
    pub(super) line: Option<String>,
}

/// What a process had on one device.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OnDevice {
    pub(super) ordinal: u32,
    pub(super) uuid: String,
    pub(super) retries: u64,
    pub(super) ooms: u64,
    /// The highest allocated and reserved bytes so far, after each step and at the end.
    pub(super) peaks: Vec<(u64, u64)>,
}

impl OnDevice {
    /// Returns the peaks of the run: allocated, reserved.
    pub(super) fn peak(&self) -> (u64, u64) {
        self.peaks.last().copied().unwrap_or_default()
    }

    /// Returns the step in which the most was reserved, from 1.
    pub(super) fn step(&self, steps: u64) -> Option<u64> {
        let (_, reserved) = self.peak();
        let at = self.peaks.iter().position(|it| it.1 >= reserved)? as u64 + 1;
        (steps > 0).then(|| at.min(steps))
    }
}

/// A line that reads a value which was never computed.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub(super) struct Read {
    pub(super) file: String,
    pub(super) line: u64,
    /// `value`, `branch`, `loop` (it reads again and again), `size` (of a tensor, with a bound) or `shape` (without).
    pub(super) kind: String,
    /// The line's source.
    pub(super) text: String,
    /// Whether it is user code.
    pub(super) own: bool,
    /// What was read instead.
    pub(super) answer: String,
    /// Whether the answer follows from constants, or from the assumption that all numbers are finite.
    pub(super) known: bool,
}

impl Read {
    /// Returns the line as `train.py:41`.
    pub(super) fn place(&self) -> String {
        let name = Path::new(&self.file).file_name().map(|it| it.to_string_lossy().into_owned());
        format!("{}:{}", name.as_deref().unwrap_or(&self.file), self.line)
    }
}

/// A call that is not simulated.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Refused {
    pub(super) name: String,
    pub(super) line: Option<String>,
}

/// What the process learnt of the job.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Learnt {
    pub(super) convolutions: bool,
    /// Bytes of the tensors of cuDNN's largest operation.
    pub(super) convolution: u64,
    pub(super) benchmark: bool,
    pub(super) compiled: bool,
    /// NCCL's groups.
    pub(super) groups: u64,
    /// Bytes of cuBLAS's workspaces by device.
    pub(super) blas: BTreeMap<u32, u64>,
}

impl JobReport {
    /// Reads the accounts of a folder; skips unreadable files.
    pub(super) fn all(folder: &Path) -> Vec<Self> {
        let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|it| it.path());
        let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|it| it == "json")).collect();
        files.sort();
        let read = |it: &PathBuf| serde_json::from_slice::<Self>(&fs::read(it).ok()?).ok();
        files.iter().filter_map(read).filter(Self::is_evidence).collect()
    }

    fn is_evidence(&self) -> bool {
        !self.devices.is_empty() || self.error.is_some() || self.ended.as_deref() == Some("cpu")
    }

    /// Returns the most steps of a process that uses a device so far; `None` while none does.
    pub(super) fn steps_so_far(folder: &Path) -> Option<u64> {
        let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|it| it.path());
        let files = files.filter(|path| path.extension().is_some_and(|it| it == "json"));
        files.filter_map(|it| serde_json::from_slice::<Self>(&fs::read(it).ok()?).ok()).map(|it| it.steps).max()
    }
}
