//! `gpuwatch diff`: compares two runs, or two memory snapshots: does the second need more?

/// The answer as a page.
mod page;
/// Two memory snapshots.
mod snapshots;

use super::{
    Invocation, Subcommand,
    check::{Limits, Verdict, judged, share},
};
use crate::model::statistics;
use crate::{
    cli::{
        inputs, is_json,
        next_commands::{NextCommand, with_next, word},
        write_text,
    },
    facts::{
        event::wire::{Edge, Sample},
        text::{Foreign, escape_json},
        units::{self, Bytes},
    },
    model::{alerts::Policy, anatomy, peaks::DevicePeaks},
    storage::{
        output, pickle,
        replay::{recording_set::RecordingSet, run},
    },
};
use anyhow::{Result, bail};
use serde_json::{Value, json};
pub use snapshots::{Snapshots, snapshots};
use std::{
    collections::BTreeMap,
    fmt::Write,
    path::{Path, PathBuf},
};

/// The arguments of `gpuwatch diff`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  gpuwatch diff main.jsonl.zst branch.jsonl.zst --tolerance 2%\n  gpuwatch \
                            diff 3 last -o diff.html")]
pub(super) struct DiffArgs {
    /// A recording, by path or short name, or a directory of recordings, of which the newest run is taken. Or a
    /// memory snapshot of PyTorch.
    #[arg(value_name = "FIRST")]
    first: PathBuf,
    /// The run to compare with it.
    #[arg(value_name = "SECOND")]
    second: PathBuf,
    /// By how much the second may exceed the first.
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = share)]
    tolerance: f64,
    /// The file to make in place of text on standard output: JSON where it ends in .json, else a page; it must not
    /// be there yet (- is standard output).
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// As JSON (schema 1), whatever the file's name.
    #[arg(long)]
    json: bool,
}

impl Subcommand for DiffArgs {
    fn failure_code(&self) -> u8 {
        2
    }

    fn answers(&self) -> bool {
        self.output.as_deref().is_none_or(output::is_stdout)
    }

    fn run(&self, _: &Invocation) -> Result<u8> {
        let names = [&self.first, &self.second].map(|it| Foreign::new(it.to_string_lossy()));
        if let Some(both) = both_snapshots(&self.first, &self.second)? {
            let (diff, code) = diff_snapshots(both, self.tolerance)?;
            self.write(|| diff.text(), || diff.json(), || diff.html(&names))?;
            return Ok(code);
        }
        let open = |it: &Path| inputs::recordings(&[it.to_owned()]);
        let both = open(&self.first).and_then(|first| Ok((first, open(&self.second)?)));
        let compared = both.map(|(first, second)| {
            first.notes.iter().chain(&second.notes).for_each(|it| output::message(format_args!("{it}")));
            diff(&first.recordings, &second.recordings, self.tolerance)
        });
        let diff = compared.unwrap_or_else(|e| unreadable(format!("{e:#}")));
        self.write(|| diff.text(), || diff.json(), || diff.html(&names))?;
        Ok(diff.code())
    }
}

impl DiffArgs {
    /// Returns what follows: pages of the second run and of the comparison.
    fn after(&self) -> Vec<NextCommand> {
        let Some((first, second)) = word(&self.first).zip(word(&self.second)) else { return Vec::new() };
        vec![
            NextCommand::new(["diff", &first, &second, "-o", "diff.html"], "shows the comparison on a page"),
            NextCommand::new(["report", &second, "-o", "report.html"], "shows the second one on a page"),
        ]
    }

    /// Writes the answer: text or JSON to standard output, a page or JSON into a file.
    fn write(
        &self,
        text: impl FnOnce() -> String,
        json: impl FnOnce() -> String,
        page: impl FnOnce() -> String,
    ) -> Result<()> {
        let output = self.output.as_deref();
        let answer = match output {
            Some(file) if !self.json && !is_json(file) => page(),
            None if !self.json => text(),
            _ => with_next(&json(), &self.after()),
        };
        write_text(output, &answer)
    }
}

/// Returns the two snapshots to compare; `None` if neither is one.
///
/// # Errors
/// Fails if only one of them is.
fn both_snapshots<'a>(first: &'a Path, second: &'a Path) -> Result<Option<[&'a Path; 2]>> {
    match [first, second].map(pickle::is_one) {
        [true, true] => Ok(Some([first, second])),
        [false, false] => Ok(None),
        _ => bail!("one is a memory snapshot and the other is not: compare two snapshots, or two recordings"),
    }
}

/// Compares two snapshots; returns the exit code as well.
fn diff_snapshots(both: [&Path; 2], tolerance: f64) -> Result<(Snapshots, u8)> {
    let [first, second] = both.map(inputs::snapshot);
    let (first, second) = (first?, second?);
    let diff = snapshots(&first.trace, &second.trace, tolerance);
    // A damaged snapshot cannot be compared.
    let code = if first.ended.is_some() || second.ended.is_some() { 2 } else { diff.code() };
    Ok((diff, code))
}

/// The schema version of `--json`.
const SCHEMA: u32 = 1;

/// Differences up to the allocator's granule never count, whatever the tolerance.
const GRANULE: f64 = 2.0 * 1_048_576.0;

/// The least and the most characters for the names of figures.
const NAME: usize = 26;
const NAME_MAX: usize = 60;

/// Growth that never counts, in bytes per step.
const GROWTH_GRANULE: f64 = 512.0;

/// Where runs are compared step by step, in percent of their common steps.
const PLACES: [u64; 5] = [1, 25, 50, 75, 100];

/// The unit of a line's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Bytes,
    BytesPerStep,
    /// 0 to 1.
    Share,
    Count,
}

/// One figure of both runs; `None` is unknown.
struct Figure {
    name: String,
    unit: Unit,
    a: Option<f64>,
    b: Option<f64>,
    /// Whether higher is worse; otherwise it is only shown.
    judged: bool,
    worse: bool,
}

/// Two runs, compared.
pub struct Diff {
    figures: Vec<Figure>,
    /// The allocated memory of both, by step.
    courses: Option<[page::Course; 2]>,
    doubts: Vec<String>,
    notes: Vec<String>,
}

/// One run: its verdict, and allocated memory at each step.
#[derive(Default)]
struct Run {
    verdict: Verdict,
    /// By step, for the rank and device with the most.
    allocated: BTreeMap<u64, u64>,
    retries: Option<u64>,
    ooms: Option<u64>,
}

impl Run {
    fn read(recordings: &RecordingSet) -> Self {
        let mut run = Self::default();
        let whole = run::Run::read(recordings, |_, event, _| {
            if let Some((_, sample)) = event.sample() {
                run.sample(sample);
            }
        });
        run.verdict = judged(whole, &Limits::none(), &Policy::default());
        run
    }

    fn sample(&mut self, sample: &Sample) {
        self.retries = self.retries.max(sample.counters.retries);
        self.ooms = self.ooms.max(sample.counters.ooms);
        let at = (sample.edge != Edge::Tick).then_some(sample.step).flatten();
        if let Some((step, allocated)) = at.zip(sample.counters.allocated) {
            let most = self.allocated.entry(step).or_default();
            *most = allocated.max(*most);
        }
    }

    /// Returns the median of the later half of the steps: what the run needs after its warm-up.
    fn steady(&self) -> Option<f64> {
        let later = self.allocated.values().copied().skip(self.allocated.len() / 2);
        statistics::median(later).map(|it| it as f64)
    }

    /// Returns the fastest lasting growth of a process's own memory, on the host or on devices; 0 without growth.
    fn growth(&self, is_host: bool) -> Option<f64> {
        self.verdict.run.steps()?;
        let own = self.verdict.findings.iter().filter(|it| it.is_own_growth() && it.is_active());
        let found = own.filter(|it| it.is_on_host() == is_host);
        Some(found.filter_map(|it| it.bytes_per_step).fold(0.0, f64::max))
    }

    fn at_step(&self, step: u64) -> Option<f64> {
        self.allocated.range(..=step).next_back().map(|(_, bytes)| *bytes as f64)
    }

    fn peak(&self, of: impl Fn(&DevicePeaks) -> Option<Bytes>) -> Option<f64> {
        self.verdict.run.peaks.devices.values().filter_map(of).max().map(|it| it.0 as f64)
    }

    fn stuck(&self) -> Option<f64> {
        self.verdict.run.peaks.devices.values().filter_map(DevicePeaks::fragmentation).reduce(f64::max)
    }
}

/// Compares two runs. `tolerance` is the share by which the second may need more than the first, from 0 to 1.
pub fn diff(a: &RecordingSet, b: &RecordingSet, tolerance: f64) -> Diff {
    let (a, b) = (Run::read(a), Run::read(b));
    let mut diff = Diff { figures: Vec::new(), courses: None, doubts: Vec::new(), notes: Vec::new() };
    let common = a.verdict.run.steps().zip(b.verdict.run.steps()).map(|(a, b)| a.min(b)).filter(|it| *it > 0);
    if common.is_none() {
        diff.doubts.push("one of them has no steps: growth and the steady state cannot be compared".to_owned());
    }
    for (name, run) in [("the first", &a), ("the second", &b)] {
        diff.doubts.extend(run.verdict.doubts.iter().map(|it| format!("{name}: {it}")));
        diff.notes.extend(run.verdict.notes.iter().map(|it| format!("{name}: {it}")));
    }
    let count = |it: Option<u64>| it.map(|count| count as f64);
    let mut add = |name: &str, unit, a, b, judged| {
        let worse = judged && is_worse(unit, a, b, tolerance);
        diff.figures.push(Figure { name: name.to_owned(), unit, a, b, judged, worse });
    };
    add("steps", Unit::Count, count(a.verdict.run.steps()), count(b.verdict.run.steps()), false);
    add("peak allocated", Unit::Bytes, a.peak(|it| it.allocated), b.peak(|it| it.allocated), true);
    add("peak reserved", Unit::Bytes, a.peak(|it| it.reserved), b.peak(|it| it.reserved), true);
    add("steady allocated", Unit::Bytes, a.steady(), b.steady(), true);
    add("growth", Unit::BytesPerStep, a.growth(false), b.growth(false), true);
    add("growth of host memory", Unit::BytesPerStep, a.growth(true), b.growth(true), true);
    // A larger share of much less memory is no loss.
    let stuck_bytes = |run: &Run| Some(run.stuck()? * run.peak(|it| it.reserved)?);
    let is_more = is_worse(Unit::Bytes, stuck_bytes(&a), stuck_bytes(&b), tolerance);
    add("stuck", Unit::Share, a.stuck(), b.stuck(), is_more);
    add("retries", Unit::Count, count(a.retries), count(b.retries), true);
    add("out of memory", Unit::Count, count(a.ooms), count(b.ooms), true);
    for place in PLACES.into_iter().filter(|_| common.is_some()) {
        let step = (common.unwrap_or(0).saturating_mul(place) / 100).max(1);
        add(&format!("allocated at step {step}"), Unit::Bytes, a.at_step(step), b.at_step(step), false);
    }
    for (name, it) in anatomy::changes([a.verdict.moment(), b.verdict.moment()]) {
        add(&name, Unit::Bytes, count(Some(it.before)), count(Some(it.now)), false);
    }
    diff.courses = Some([a.allocated, b.allocated]);
    diff
}

/// Returns the result if one of them could not be read.
pub fn unreadable(why: String) -> Diff {
    Diff { figures: Vec::new(), courses: None, doubts: vec![why], notes: Vec::new() }
}

fn is_worse(unit: Unit, a: Option<f64>, b: Option<f64>, tolerance: f64) -> bool {
    let Some((a, b)) = a.zip(b) else { return false };
    match unit {
        Unit::Bytes => b > a * (1.0 + tolerance) + GRANULE,
        Unit::BytesPerStep => b > a * (1.0 + tolerance) + GROWTH_GRANULE,
        Unit::Share => b > a + tolerance,
        Unit::Count => b > a,
    }
}

impl Diff {
    /// Returns the exit code: 0 if the second needs no more, 1 if it does, 2 if they cannot be compared.
    pub fn code(&self) -> u8 {
        if self.figures.iter().any(|it| it.worse) {
            1
        } else if self.doubts.is_empty() {
            0
        } else {
            2
        }
    }

    /// Returns the result as text, with its last newline.
    pub fn text(&self) -> String {
        // Writing into a String cannot fail.
        let mut out = String::new();
        // Names of lines come from the job.
        let name = |it: &Figure| Foreign::new(it.name.as_str()).to_string();
        let width = self.figures.iter().map(|it| name(it).chars().count()).fold(NAME, usize::max).min(NAME_MAX);
        if !self.figures.is_empty() {
            let _ = writeln!(out, "{:<width$} {:>16} {:>16}  change", "", "first", "second");
        }
        for it in &self.figures {
            let shown = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| it.unit.text(value));
            let change = it.a.zip(it.b).map_or_else(|| "–".to_owned(), |(a, b)| it.unit.change(a, b));
            let mark = if it.worse { "  more than tolerated" } else { "" };
            let _ = writeln!(out, "{:<width$} {:>16} {:>16}  {change}{mark}", name(it), shown(it.a), shown(it.b));
        }
        for it in &self.doubts {
            let _ = writeln!(out, "not compared: {}", Foreign::new(it.as_str()));
        }
        for it in &self.notes {
            let _ = writeln!(out, "note: {}", Foreign::new(it.as_str()));
        }
        out
    }

    /// Returns the result as JSON (schema 1), with its last newline: `verdict`, `figures[]`, `doubts[]`, `notes[]`
    /// (text); sizes in bytes, shares from 0 to 1, unknown is null.
    pub fn json(&self) -> String {
        let figures: Vec<Value> = self
            .figures
            .iter()
            .map(|it| {
                let unit = it.unit.name();
                json!({"name": it.name, "unit": unit, "a": it.a, "b": it.b, "judged": it.judged, "worse": it.worse})
            })
            .collect();
        let verdict = ["pass", "fail", "unjudged"].get(usize::from(self.code())).copied();
        let words = |lines: &[String]| lines.iter().map(|it| Foreign::new(it.as_str())).collect::<Vec<_>>();
        let (doubts, notes) = (words(&self.doubts), words(&self.notes));
        let whole = json!({"schema": SCHEMA, "verdict": verdict, "figures": figures, "doubts": doubts, "notes": notes});
        escape_json(&format!("{whole:#}")) + "\n"
    }
}

impl Diff {
    /// Returns the result as a self-contained page; `names` are those of the two runs.
    pub fn html(&self, names: &[Foreign; 2]) -> String {
        page::of_runs(self, names)
    }
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::BytesPerStep => "bytes_per_step",
            Self::Share => "share",
            Self::Count => "count",
        }
    }

    fn text(self, value: f64) -> String {
        match self {
            Self::Bytes => Bytes(units::whole(value)).to_string(),
            Self::BytesPerStep => units::per_step(value).trim_start_matches('+').to_owned(),
            Self::Share => format!("{:.0} %", value * 100.0),
            Self::Count => format!("{value:.0}"),
        }
    }

    fn change(self, a: f64, b: f64) -> String {
        match self {
            _ if (b - a).abs() < f64::EPSILON => "same".to_owned(),
            Self::Bytes => units::signed(b - a, 4, ""),
            Self::BytesPerStep => units::per_step(b - a),
            Self::Share => format!("{:+.0} points", (b - a) * 100.0),
            Self::Count => format!("{:+.0}", b - a),
        }
    }
}
