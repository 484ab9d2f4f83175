//! What a process of the job left behind: the file that `_fit.py` writes.

use crate::{
    facts::event::wire::{Site, Sites},
    model::{
        fit::{
            self,
            peak_parts::{KeptKind, KeptLook},
        },
        trace::SourceLine,
    },
};
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// One process's account.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct JobReport {
    pub(super) torch: String,
    /// The most bytes of the host's memory that it had.
    pub(super) host_bytes: u64,
    /// Optimizer steps.
    pub(super) steps: u64,
    /// The step after which the peak of training was known; 0 if it never was.
    pub(super) steady: u64,
    /// The same before the job continued by itself.
    pub(super) known: u64,
    /// How it ended: `steps`, `later` (it has done enough of what follows), `late` (what follows took too long), `time`
    /// (the limit), `host` (it took all of this
    /// machine's memory) and `cpu` (it trained without a device) where the account ended the process, `exit` where it
    /// ended by itself, nothing where it was killed.
    pub(super) ended: Option<String>,
    /// In the order in which they began.
    pub(super) phases: Vec<Phase>,
    /// Kernels that a step launches.
    pub(super) launches: Option<u64>,
    /// Tests that a later step would enter, and that were entered for that: line and source.
    pub(super) entered: Vec<(String, String)>,
    /// Loaders that ended while memory still rose: line, bytes of a batch, batches, batches of the whole loader.
    pub(super) unfinished: Vec<(String, u64, u64, u64)>,
    /// Loops that were left although sizes come from what they go over: line, passes, bytes by which memory still rose
    /// with each step (0 if it did not).
    pub(super) unseen: Vec<(String, u64, u64)>,
    /// Datasets of which too few items were looked at for their sizes: items, all items.
    pub(super) looked: Vec<(u64, u64)>,
    /// Allocated bytes at the end of each of the first steps.
    pub(super) levels: Vec<u64>,
    /// The same as it was asked for, without what the allocator adds to large blocks.
    pub(super) asked: Vec<u64>,
    /// Steps of a round of training whose end gives back what its steps keep; 0 where none does.
    pub(super) round: u64,
    /// The most passes that the loops around its steps make; 0 where that is not known.
    pub(super) passes: u64,
    /// Whether it ended by itself after all of its steps, of which none was left out.
    pub(super) whole: bool,
    /// What did not run: phase and line.
    pub(super) not_run: Vec<(String, String)>,
    pub(super) error: Option<Failure>,
    /// Where the job was when it was ended early.
    pub(super) line: Option<String>,
    pub(super) devices: Vec<OnDevice>,
    pub(super) reads: Vec<Read>,
    pub(super) refused: Vec<Refused>,
    /// Lines that load kernels of the job's own.
    pub(super) modules: Vec<String>,
    /// When backward ran, and for which line.
    pub(super) backward: Vec<(u64, u64, SourceLine)>,
    /// When steps ended, in µs since 1970.
    pub(super) ends: Vec<u64>,
    pub(super) facts: Learnt,
    /// What it keeps.
    pub(super) kept: Option<KeptReport>,
    /// What such lines make, as its path in the model: file, line, path.
    pub(super) paths: Vec<(String, u32, String)>,
    /// Functions of modules: file, first line, name, and the module's path.
    pub(super) modules_of: Vec<(String, u32, String, String)>,
    /// The lines that allocate what grows from step to step, and what holds it.
    pub(super) grows: Option<Sites>,
    /// What holds the rest that lives between steps.
    pub(super) held: Vec<Site>,
    pub(super) snapshot: Option<PathBuf>,
    /// Blocks that were there before a test and are not the test's: their addresses by device, and the bytes of all.
    pub(super) left: BTreeMap<u32, Vec<u64>>,
    pub(super) before: u64,
    /// Its rank, and how many ranks the job has, where not all of them run.
    pub(super) rank: Option<u64>,
    pub(super) world: u64,
    pub(super) nodes: u64,
    /// The ranks that were to run.
    pub(super) ran: Vec<u64>,
    /// Ranks with which it exchanges tensors directly.
    pub(super) peers: Vec<u64>,
    /// Absent ranks whose values it waits for.
    pub(super) sources: Vec<u64>,
    /// Techniques that the run injected or looked for, by name.
    pub(super) techniques: BTreeMap<String, InjectedTechnique>,
}

/// What a process keeps (`_fit_kept.py`), by kind: `weights`, `buffers`, `optimizer`, `gradients`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KeptReport {
    /// When it was looked at, in µs since 1970.
    looks: BTreeMap<String, Vec<u64>>,
    /// Lines that make parameters, buffers and optimizers.
    lines: Vec<SourceLine>,
    /// By device.
    blocks: BTreeMap<String, BTreeMap<u32, KeptAt>>,
}

/// By address: the looks that found it, each with the number of the line.
type KeptAt = BTreeMap<u64, Vec<(usize, Option<usize>)>>;

impl KeptReport {
    /// Returns what a device has of a kind.
    pub(super) fn of(&self, kind: &str, device: u32) -> KeptKind {
        let looks = self.looks.get(kind).cloned().unwrap_or_default();
        let found = |(look, line): &(usize, Option<usize>)| {
            let line = line.and_then(|it| self.lines.get(it)).cloned();
            Some(KeptLook { unix_us: *looks.get(*look)?, line })
        };
        let of_device = self.blocks.get(kind).and_then(|it| it.get(&device)).into_iter().flatten();
        let blocks = of_device.map(|(address, it)| (*address, it.iter().filter_map(found).collect())).collect();
        KeptKind { blocks, last: looks.last().copied().unwrap_or(0) }
    }
}

/// What a technique did in a process (`_advise.py`).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct InjectedTechnique {
    /// How far it took effect, as in `24 of 24 blocks`.
    pub(super) applied: Option<String>,
    /// Why it did not.
    pub(super) refused: Option<String>,
    pub(super) price: Counts,
    /// Lines to write, with their places.
    pub(super) edit: Vec<String>,
    /// What it notes for the runs that inject it.
    pub(super) notes: serde_json::Value,
}

/// What a technique costs in a step.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Counts {
    /// Blocks whose forward runs twice.
    pub(super) recomputed_blocks: u64,
    /// Bytes that are copied to the host and back.
    pub(super) host_bytes: u64,
    /// What it changes, where that is more than usual.
    pub(super) class: Option<String>,
}

/// An error that ended the process.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Failure {
    pub(super) kind: String,
    pub(super) text: String,
    pub(super) line: Option<String>,
    /// Name and line of the phase that it ended.
    pub(super) phase: Option<(String, Option<String>)>,
}

impl Failure {
    pub(super) fn is_out_of_memory(&self) -> bool {
        self.kind.contains("OutOfMemory") || self.text.contains("CUDA out of memory")
    }
}

/// The phase of an optimizer step, with the forward and the backward before it.
pub(super) const TRAINING: &str = "training";

/// What a job does for a while, such as evaluation (`_fit_phases.py`).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Phase {
    pub(super) name: String,
    /// Where it began.
    pub(super) line: Option<String>,
    pub(super) count: u64,
    /// The optimizer steps before its peak.
    pub(super) step: Option<u64>,
    /// Device, the highest allocated bytes there, and the highest reserved ones if these were more than ever before.
    pub(super) peaks: Vec<(u32, u64, u64)>,
}

impl Phase {
    /// Returns the highest allocated bytes of a device, and the reserved ones where they were more than ever before.
    pub(super) fn peak(&self, ordinal: u32) -> Option<(u64, Option<u64>)> {
        self.peaks.iter().find(|it| it.0 == ordinal).map(|it| (it.1, (it.2 > 0).then_some(it.2)))
    }
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

    /// Returns the first step in which both the most was reserved and the most was allocated, from 1; `None` where that
    /// was after the last step whose peak is known.
    pub(super) fn step(&self, steps: u64) -> Option<u64> {
        let (allocated, reserved) = self.peak();
        let at = self.peaks.iter().position(|it| it.0 >= allocated && it.1 >= reserved)? as u64 + 1;
        let known = self.peaks.len() as u64 - 1;
        (steps > 0 && (at <= known || steps <= known)).then(|| at.min(steps))
    }
}

/// A line that reads a value which was never computed.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub(super) struct Read {
    pub(super) file: String,
    pub(super) line: u64,
    /// `value`, `branch`, `loop` (it reads again and again), `size` (of a tensor, with a bound), `shape` (without) or
    /// `draw` (of a size, at random).
    pub(super) kind: String,
    /// The line's source.
    pub(super) text: String,
    /// Whether it is user code.
    pub(super) own: bool,
    /// What was read instead.
    pub(super) answer: String,
    /// Whether the answer follows from constants, or from the assumption that all numbers are finite.
    pub(super) known: bool,
    /// Whether absent ranks would send some of it: what a present one sends was taken for it.
    pub(super) absent: bool,
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
        !self.devices.is_empty() || self.error.is_some() || matches!(self.ended.as_deref(), Some("cpu" | "host"))
    }

    /// Returns the steps after which the peak of training was known; all of them where it never was.
    pub(super) fn steps_of_training(&self) -> u64 {
        if self.steady > 0 { self.steady } else { self.steps }
    }

    /// Returns the bytes that each step of training adds on a device, where it grows in each step.
    pub(super) fn growth(&self, device: &OnDevice) -> Option<u64> {
        let steps = usize::try_from(self.steps_of_training()).ok()?;
        // The last peak is that of the end, which may be many steps after the one before.
        let known = steps.min(device.peaks.len().saturating_sub(1));
        let peaks: Vec<u64> = device.peaks.iter().take(known).map(|it| it.0).collect();
        let levels = self.levels.get(..steps.min(self.levels.len()))?;
        let asked = self.asked.get(..levels.len()).unwrap_or_default();
        fit::growth(&peaks).or_else(|| fit::level_growth(levels, asked))
    }

    /// Returns the bytes by which each step of training makes the allocator reserve more on a device that grows by so
    /// many bytes a step: segments that hold no whole number of its blocks grow faster.
    pub(super) fn growth_of_reserved(&self, device: &OnDevice, growth: u64) -> u64 {
        let known = usize::try_from(self.steps_of_training()).map_or(0, |it| it.min(device.peaks.len()));
        let reserved: Vec<u64> = device.peaks.iter().take(known).map(|it| it.1).collect();
        fit::reserved_growth(&reserved, growth)
    }

    /// Returns by how many bytes the allocated peak rose in the last quarter of the training's steps, and these, where
    /// it rose so often there that no order of sizes explains it, and nothing that came later was higher.
    pub(super) fn trend(&self, device: &OnDevice) -> Option<(u64, u64)> {
        let steps = usize::try_from(self.steps_of_training()).ok()?;
        let peaks: Vec<u64> = device.peaks.get(..steps)?.iter().map(|it| it.0).collect();
        let quarter = peaks.get(steps.checked_sub(steps / 4 + 1)?..).filter(|_| steps >= TREND)?;
        let (first, last) = (*quarter.first()?, *quarter.last()?);
        let rises = quarter.windows(2).filter(|it| it[1] > it[0]).count();
        // What came later is known if it took more than this goes on for.
        let (after, later) = (self.steps.saturating_sub(steps as u64), device.peak().0.saturating_sub(last));
        let goes_on = (last - first).saturating_mul(after).saturating_mul(AS_FAST) / quarter.len() as u64;
        // Sizes count as known where they rise no more, so that it takes as many steps to show that they do again.
        let is_longer = self.known > 0 && self.steady >= 2 * self.known;
        let is_trend = is_longer && rises >= RECORDS && last - first > last / PART && later <= goes_on;
        (is_trend && !self.whole).then_some((last - first, steps as u64 / 4))
    }

    /// Whether this process was ended after all that was asked of it, or would not have done more.
    pub(super) fn is_complete(&self) -> bool {
        match self.ended.as_deref() {
            Some("steps" | "later" | "late") => true,
            Some("time") => self.steady > 0,
            _ => false,
        }
    }

    /// Returns the most steps of a process that uses a device so far; `None` while none does.
    pub(super) fn steps_so_far(folder: &Path) -> Option<u64> {
        let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|it| it.path());
        let files = files.filter(|path| path.extension().is_some_and(|it| it == "json"));
        files.filter_map(|it| serde_json::from_slice::<Self>(&fs::read(it).ok()?).ok()).map(|it| it.steps).max()
    }
}

/// The fewest steps whose last quarter is looked at; peaks there that are higher than all before, and the part of the
/// peak by which they are; how many times as fast the peak may rise later if that is no more than this. Of sizes in any
/// order, the last quarter has 0.3 records on the average, and three in 1 of 300.
const TREND: usize = 24;
const RECORDS: usize = 3;
const PART: u64 = 100;
const AS_FAST: u64 = 3;

/// Lines of a failed job's output that are shown.
const SHOWN: usize = 12;

/// The error by which a launcher reports that a process of it failed.
const LAUNCHER: &str = "ChildFailedError";

/// Folders of Python and its packages: a line in one of them is not the user's.
const PACKAGES: [&str; 3] = ["/site-packages/", "/dist-packages/", "/lib/python"];

/// Returns the sentence, and below it the end of the output where that adds something.
pub(super) fn why(how: &str, accounts: &[JobReport], output: &str) -> String {
    let mut errors: Vec<&Failure> = accounts.iter().filter_map(|it| it.error.as_ref()).collect();
    errors.sort_by_key(|it| it.kind == LAUNCHER);
    let error = errors.first().map(|it| (*it).clone()).or_else(|| printed(output)).filter(|it| it.kind != "SystemExit");
    let last = last_lines(output);
    let Some(error) = error else {
        return if last.is_empty() {
            format!("the job failed: {how}")
        } else {
            format!("the job failed: {how}\n{last}")
        };
    };
    let at = error.line.as_ref().map_or_else(String::new, |it| format!(" at {it}"));
    if let Some(package) = missing(&error) {
        return format!("the job imports {package}{at}, which its Python does not have");
    }
    let text = error.text.lines().next().unwrap_or_default();
    let colon = if text.is_empty() { "" } else { ": " };
    format!("the job failed{at}: {}{colon}{text}\n{last}", error.kind)
}

/// The package of `No module named 'flash_attn.bert'`.
fn missing(error: &Failure) -> Option<&str> {
    let name = error.text.strip_prefix("No module named '")?.split('\'').next()?;
    (error.kind == "ModuleNotFoundError").then(|| name.split('.').next().unwrap_or(name))
}

/// Reads Python's last traceback: the error and the innermost line that is the user's.
fn printed(output: &str) -> Option<Failure> {
    let begun = output.rfind("Traceback (most recent call last):")?;
    let mut lines = output.get(begun..)?.lines().skip(1);
    let mut line = None;
    let last = loop {
        let text = lines.next()?;
        if !text.starts_with(' ') {
            break text;
        }
        line = own_line(text).or(line);
    };
    let (kind, text) = last.split_once(": ").unwrap_or((last, ""));
    Some(Failure { kind: kind.to_owned(), text: text.to_owned(), line, phase: None })
}

/// `train.py:3` of `  File "/home/me/train.py", line 3, in <module>`; nothing of a package's file.
fn own_line(text: &str) -> Option<String> {
    let (path, rest) = text.trim_start().strip_prefix("File \"")?.split_once("\", line ")?;
    let number: u64 = rest.split(',').next()?.trim().parse().ok()?;
    let name = Path::new(path).file_name()?.to_string_lossy();
    (!PACKAGES.iter().any(|it| path.contains(it))).then(|| format!("{name}:{number}"))
}

fn last_lines(output: &str) -> String {
    let lines: Vec<_> = output.lines().filter(|it| !it.trim().is_empty()).collect();
    lines.get(lines.len().saturating_sub(SHOWN)..).unwrap_or_default().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "Traceback (most recent call last):\n  File \"/home/me/train.py\", line 3, in <module>\n    \
                           load()\n  File \"/venv/lib/python3.11/site-packages/some/load.py\", line 9, in load\n    raise \
                           it\n";

    #[test]
    fn a_traceback_becomes_a_sentence_with_the_line_of_the_user() {
        let of = |last: &str| why("exit code 1", &[], &format!("{PRINTED}{last}\n"));
        assert_eq!(
            of("ModuleNotFoundError: No module named 'flash_attn.bert'"),
            "the job imports flash_attn at train.py:3, which its Python does not have"
        );
        assert!(of("some.Trouble: no kernel").starts_with("the job failed at train.py:3: some.Trouble: no kernel\n"));
        assert!(of("KeyboardInterrupt").starts_with("the job failed at train.py:3: KeyboardInterrupt\n"));
        assert_eq!(why("exit code 3", &[], "one\n\ntwo\n"), "the job failed: exit code 3\none\ntwo");
        assert_eq!(why("signal: 6", &[], ""), "the job failed: signal: 6");
    }

    #[test]
    fn a_peak_that_rises_again_and_again_is_not_known() {
        let of = |peaks: Vec<u64>, after: u64, whole: bool, known: u64| {
            let steady = peaks.len() as u64;
            let peaks = peaks.into_iter().chain([after]).map(|it| (it, it)).collect();
            JobReport { steps: steady + 2, steady, known, whole, ..JobReport::default() }
                .trend(&OnDevice { peaks, ..OnDevice::default() })
        };
        let trend = |peaks: Vec<u64>, after: u64, whole: bool| of(peaks, after, whole, 12);
        let rising: Vec<u64> = (0..100).map(|at| 1000 + at / 5 * 20).collect();
        assert_eq!([1380, 1400].map(|it| trend(rising.clone(), it, false)), [Some((100, 25)); 2]);
        assert_eq!(of(rising.clone(), 1380, false, 60), None, "it rose no more where it counted as known");
        // What came later is known, as is all that a job does by itself.
        assert_eq!((trend(rising.clone(), 2000, false), trend(rising, 1380, true)), (None, None));
        let once: Vec<u64> = (0..100).map(|at| if at < 90 { 1000 } else { 5000 }).collect();
        let little: Vec<u64> = (0..100).map(|at| 100_000 + at).collect();
        let few: Vec<u64> = (0..20).map(|at| 1000 + 100 * at).collect();
        for peaks in [once, little, few] {
            let last = *peaks.last().unwrap();
            assert_eq!(trend(peaks.clone(), last, false), None, "{peaks:?}");
        }
    }

    #[test]
    fn a_rank_knows_more_than_its_launcher() {
        let failure =
            |kind: &str| Failure { kind: kind.to_owned(), line: Some("a.py:1".to_owned()), ..Failure::default() };
        let account = |kind| JobReport { error: Some(failure(kind)), ..JobReport::default() };
        let accounts = [account(LAUNCHER), account("ValueError")];
        assert!(why("exit code 1", &accounts, "").starts_with("the job failed at a.py:1: ValueError\n"));
    }
}
