//! What the peak is: how much, in which step, at which line, and what it consists of.

use super::job_report::{JobReport, OnDevice};
use crate::{
    facts::{
        event::{anatomy::AnatomyPart, wire::Site},
        units::Bytes,
    },
    model::{
        analysis::culprit,
        fit::{
            Need, Overhead,
            baseline::{Growth, PeakLine, SavedCulprit},
            peak_parts::{self, KeptByRun, MadeThere},
            source,
        },
        trace::SourceLine,
    },
    storage::{input, pickle},
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    env,
    path::Path,
};

/// Bytes of a source file that are read at most.
const SOURCE_MAX: u64 = 8 << 20;

/// Lines that are kept.
const LINES: usize = 5_000;

/// Calls that lead to a line that are kept.
const CALLS: usize = 4;

/// The peak of one device.
#[derive(Clone, Debug, Default)]
pub(super) struct Peak {
    pub(super) need: Need,
    /// What the allocator reserves where it has all the room.
    pub(super) wanted: u64,
    /// The step in which the most was reserved, from 1.
    pub(super) step: Option<u64>,
    pub(super) line: Option<String>,
    /// What the allocated bytes are, where the run could be traced.
    pub(super) kinds: BTreeMap<AnatomyPart, u64>,
    /// Where they were made, by the lines of the job, the largest first.
    pub(super) lines: Vec<PeakLine>,
    /// Optimizer steps that ran.
    pub(super) steps: u64,
    /// PyTorch's version.
    pub(super) torch: String,
}

impl Peak {
    /// Reads the peak of a process on a device.
    pub(super) fn read(account: &JobReport, device: &OnDevice, need: Need) -> Self {
        let found = traced(account, device).unwrap_or_default();
        Self {
            wanted: need.reserved,
            need,
            step: device.step(account.steps),
            line: found.line,
            kinds: found.kinds,
            lines: lines(found.lines, account),
            steps: account.steps,
            torch: account.torch.clone(),
        }
    }
}

/// What a process's peak consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Consists {
    /// Bytes by part.
    pub(super) parts: BTreeMap<AnatomyPart, u64>,
    /// Bytes by part and line of the job.
    pub(super) lines: BTreeMap<(AnatomyPart, SourceLine), u64>,
}

impl Consists {
    /// Reads it; empty where the run could not be traced.
    pub(super) fn read(account: &JobReport, device: &OnDevice) -> Self {
        let Some(found) = traced(account, device) else { return Self::default() };
        let mut lines = BTreeMap::new();
        for ((part, made), it) in found.lines {
            if let Some(line) = made.into_iter().next() {
                *lines.entry((part, line)).or_default() += it.bytes;
            }
        }
        Self { parts: found.kinds, lines }
    }
}

fn traced(account: &JobReport, device: &OnDevice) -> Option<peak_parts::Peak> {
    let mut trace = pickle::open(account.snapshot.as_deref()?).ok()?.trace;
    trace.left = account.left.iter().flat_map(|(device, all)| all.iter().map(|it| (*device, *it))).collect();
    let of = |kind| account.kept.as_ref().map(|it| it.of(kind, device.ordinal)).unwrap_or_default();
    let kept = KeptByRun {
        weights: of("weights"),
        buffers: of("buffers"),
        gradients: of("gradients"),
        optimizer: of("optimizer"),
        workspaces: account.facts.blas.get(&device.ordinal).copied().unwrap_or(0),
        backward: account.backward.clone(),
        paths: account.paths.iter().map(|it| ((it.0.clone(), it.1), it.2.clone())).collect(),
        modules: account.modules_of.clone(),
    };
    peak_parts::consists(&trace, device.ordinal, &kept)
}

/// Returns what each line holds, with its source, its module and what holds that.
fn lines(blocks: BTreeMap<(AnatomyPart, Vec<SourceLine>), MadeThere>, account: &JobReport) -> Vec<PeakLine> {
    let folder = env::current_dir().unwrap_or_default();
    let mut sources: HashMap<String, String> = HashMap::new();
    let mut sums: BTreeMap<SourceLine, (PeakLine, u64, BTreeSet<Option<String>>)> = BTreeMap::new();
    for ((part, made), MadeThere { bytes, modules }) in blocks {
        let [line, calls @ ..] = made.as_slice() else { continue };
        let source = sources.entry(line.file.clone()).or_insert_with(|| {
            // What cannot be read, as a notebook's cell, is compared by bytes.
            input::small_text(Path::new(&line.file), SOURCE_MAX).unwrap_or_default()
        });
        let (sum, largest, all_modules) = sums.entry(line.clone()).or_insert_with(|| {
            let path = Path::new(&line.file);
            let path = path.strip_prefix(&folder).unwrap_or_else(|_| path.file_name().map_or(path, Path::new));
            let sum = PeakLine {
                line: line.short(),
                path: path.to_string_lossy().into_owned(),
                function: source::qualified(source, line.line, &line.function),
                text: source::statement(source, line.line),
                holder: holder(account, line),
                ..PeakLine::default()
            };
            (sum, 0, BTreeSet::new())
        });
        all_modules.extend(modules);
        *sum.parts.entry(part.name().to_owned()).or_default() += bytes;
        if bytes > *largest {
            *largest = bytes;
            sum.calls = calls.iter().take(CALLS).map(SourceLine::short).collect();
        }
    }
    // A line that serves several modules has no module of its own.
    let one = |it: BTreeSet<Option<String>>| it.first().cloned().flatten().filter(|_| it.len() == 1);
    let whole = |(sum, _, modules)| PeakLine { module: one(modules), ..sum };
    let mut lines: Vec<PeakLine> = sums.into_values().map(whole).collect();
    // Of equal ones, in the order of the program.
    lines.sort_by_key(|it| Reverse(it.bytes()));
    lines.truncate(LINES);
    lines
}

/// Returns what holds blocks of a line between steps, in words.
fn holder(account: &JobReport, line: &SourceLine) -> Option<String> {
    let grown = account.grows.iter().flat_map(|it| &it.sites);
    let is_there = |it: &&Site| it.line == u64::from(line.line) && it.file == line.file;
    let words = |site: &Site| Some(culprit::holders(site).join(", held by ")).filter(|it| !it.is_empty());
    grown.chain(&account.held).filter(is_there).find_map(words)
}

/// Returns what each step adds, of the processes that grow in each step, those that grow the most first.
pub(super) fn growth(growing: &[(&JobReport, &OnDevice, u64)]) -> Option<Growth> {
    let (account, device, bytes) = growing.first()?;
    let mut culprits: Vec<SavedCulprit> = Vec::new();
    for (account, device, _) in growing {
        let found = account.grows.as_ref().map(|it| culprit::account(it, device.ordinal).culprits).unwrap_or_default();
        for it in found.iter().map(SavedCulprit::from) {
            // Of several ranks, one sentence is enough where only its figures differ.
            let same = culprits.iter_mut().find(|one| one.line == it.line && one.advice == it.advice);
            if let Some(same) = same.filter(|one| !account.rank.is_some_and(|rank| one.ranks.contains(&rank))) {
                same.ranks.extend(account.rank);
            } else {
                culprits.push(SavedCulprit { ranks: account.rank.into_iter().collect(), ..it });
            }
        }
    }
    for it in &mut culprits {
        it.ranks.sort_unstable();
    }
    let ranks = growing.iter().filter_map(|it| it.0.rank).collect::<BTreeSet<_>>().into_iter().collect();
    Some(Growth { bytes: *bytes, line: keeps(account, device), culprits, ranks })
}

/// Returns the job's line that allocates what one step makes and the next one does not free.
pub(super) fn keeps(account: &JobReport, device: &OnDevice) -> Option<String> {
    let steps = usize::try_from(account.steps_of_training()).ok()?;
    let ends = account.ends.get(..steps.min(account.ends.len()))?;
    peak_parts::keeps(&pickle::open(account.snapshot.as_deref()?).ok()?.trace, device.ordinal, ends)
}

/// What is uncertain beside the allocator, in words.
pub(super) fn unknown(need: &Need) -> Vec<String> {
    let words = |it: &Overhead| {
        let how = if it.is_measured { format!(", {}", it.source) } else { String::new() };
        format!("{}: {} to {}{how}", it.name, Bytes(it.low), Bytes(it.high))
    };
    need.outside.iter().map(words).collect()
}
