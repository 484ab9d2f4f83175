//! `gpuwatch check`: whether a recorded run passes, for users and for CI jobs.

/// Recordings of several hosts.
pub mod cluster_check;
/// Against an earlier run.
mod comparison;
mod limits;
mod verdict_report;

use super::{Invocation, Subcommand};
use crate::{
    cli::{
        inputs,
        next_commands::{NextCommand, with_next, word},
    },
    facts::{
        event::{anatomy::Anatomy, failure, wire::limits::grouped},
        text as foreign,
        units::{self, Bytes},
    },
    model::{
        alerts::Policy,
        analysis::{episode::Axis, fragmentation::is_expandable, severity::Severity},
        findings::{Finding, Kind, follow},
        peaks::DevicePeaks,
        session::process::ProbeState,
    },
    sources::system,
    storage::{
        output,
        recording::Fault,
        replay::{
            self,
            recording_set::{Ending, RecordingSet},
            run::{File, Run},
        },
        traces,
    },
};
use anyhow::Result;
pub use limits::{FailOn, Limits, Peak, share};
use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

/// Most bytes of a path that are shown.
const PATH_MAX: usize = 4096;

/// The arguments of `gpuwatch check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  gpuwatch run -- python train.py; gpuwatch check --max-growth 1MiB/step\n\n\
                            A run whose end is not recorded is judged up to the last recorded step, and the verdict \
                            says so; with --require-end it does not pass. How the command ended is only noted, unless \
                            --require-success is given. A run that gpuwatch could not watch in full is not judged, nor \
                            one whose recorder was killed on this machine.\n\n\
                            Without a file: the newest recording of `gpuwatch run`. Several files must be of one run; \
                            of a directory, the newest run is taken.")]
pub(super) struct CheckArgs {
    /// Recordings of one run, by path or short name (or lines of a probe; - reads standard input), or one directory
    /// of recordings.
    #[arg(value_name = "FILE|DIR")]
    files: Vec<PathBuf>,
    /// As JSON (schema 1); the same as --format json.
    #[arg(long)]
    json: bool,
    /// The format of the verdict.
    #[arg(long, value_enum, default_value_t)]
    format: VerdictFormat,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    against: comparison::AgainstArgs,
}

/// The format of a verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum VerdictFormat {
    #[default]
    Text,
    Json,
}

impl Subcommand for CheckArgs {
    fn failure_code(&self) -> u8 {
        2
    }

    fn run(&self, invocation: &Invocation) -> Result<u8> {
        let json = self.json || self.format == VerdictFormat::Json;
        if self.against.against.is_some() {
            return Ok(comparison::print(&self.files, &self.against, json, &invocation.policy));
        }
        Ok(print_verdict(&self.files, json, &self.limits, &invocation.policy))
    }
}

/// Causes that are explained after a verdict.
const EXPLAINED: usize = 3;

/// Returns what follows from a verdict about recordings.
fn after(files: &[PathBuf], verdict: &Verdict) -> Vec<NextCommand> {
    let mut next = Vec::new();
    let named: Option<Vec<String>> = if files.is_empty() { Some(vec!["last".to_owned()]) } else { words(files) };
    if let Some(named) =
        named.as_ref().filter(|_| verdict.outcome() != CheckOutcome::Pass && !verdict.run.session.processes.is_empty())
    {
        let named = named.iter().map(String::as_str);
        let words = ["report"].into_iter().chain(named).chain(["-o", "report.html"]);
        next.push(NextCommand::new(words, "shows the run on a page"));
    }
    let mut causes: Vec<&str> = Vec::new();
    for it in &verdict.findings {
        let cause = it.cause.id();
        if !causes.contains(&cause) && causes.len() < EXPLAINED {
            causes.push(cause);
            next.push(NextCommand::new(["explain", cause], "explains the cause, and what to do about it"));
        }
    }
    let ran_out = verdict.run.session.processes.iter().find(|it| !it.ooms.is_empty());
    if let Some(job) = ran_out.and_then(|it| it.hello.as_ref()).filter(|it| it.argv.len() > 1) {
        // One file can show it.
        let file = named.as_deref().and_then(|it| if let [one] = it { Some(one.as_str()) } else { None });
        let shown_for = file.filter(|it| !Path::new(it).is_dir()).map(|it| ["--for", it]);
        let words = ["fit", "--advise"].into_iter().chain(shown_for.into_iter().flatten()).chain(["--"]);
        let words = words.chain(job.argv.iter().map(String::as_str));
        next.push(NextCommand::new(words, "measures what would save memory in the job"));
    }
    next
}

/// Returns what follows from verdicts about a folder of several machines' recordings.
fn after_hosts(files: &[PathBuf], outcome: CheckOutcome) -> Vec<NextCommand> {
    let named = words(files).filter(|_| outcome != CheckOutcome::Pass);
    named
        .map(|it| NextCommand::new(["replay".to_owned()].into_iter().chain(it), "shows the machines on a screen"))
        .into_iter()
        .collect()
}

fn words(files: &[PathBuf]) -> Option<Vec<String>> {
    files.iter().map(|it| word(it)).collect()
}

/// Prints the verdict, and returns its exit code.
fn print_verdict(files: &[PathBuf], json: bool, limits: &Limits, policy: &Policy) -> u8 {
    let (text, outcome) = match inputs::recordings_of_hosts(files) {
        Ok(Some(recorded)) => {
            let verdicts = cluster_check::judge(&recorded, limits, policy);
            let next = || after_hosts(files, verdicts.outcome());
            (if json { with_next(&verdicts.json(), &next()) } else { verdicts.text() }, verdicts.outcome())
        }
        other => {
            let verdict = match other.and_then(|_| inputs::recordings(files)) {
                Ok(found) => {
                    found.notes.iter().for_each(|it| output::message(format_args!("{it}")));
                    check(&found.recordings, limits, policy)
                }
                Err(e) => unreadable(format!("{e:#}")),
            };
            let next = || after(files, &verdict);
            (if json { with_next(&verdict.json(), &next()) } else { verdict.text() }, verdict.outcome())
        }
    };
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // A reader that is gone gets the result from the exit code.
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            output::message(format_args!("cannot write the verdict: {e}"));
            CheckOutcome::Unjudged.code()
        }
        _ => outcome.code(),
    }
}

/// The judgement of a run.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Which limits were exceeded; with one, the run fails.
    pub hits: Vec<String>,
    /// Why it cannot be judged; with one, a run that does not fail does not pass either.
    pub doubts: Vec<String>,
    /// Why a file was not read to its end, except if it is truncated; also a doubt.
    pub damage: Vec<String>,
    /// Other notes.
    pub notes: Vec<String>,
    /// The findings: worst first, allowed ones last.
    pub findings: Vec<Finding>,
    /// The run: its final session, its peaks, and how its files end.
    pub run: Run,
}

impl Verdict {
    /// Returns the highest moment of a whole step that was traced, of the process with the most allocated bytes.
    pub fn moment(&self) -> Option<&Anatomy> {
        let all = self.run.session.processes.iter().filter_map(|it| Some(&it.peak.as_deref()?.anatomy));
        all.filter(|it| it.step.is_some()).max_by_key(|it| it.allocated)
    }
}

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckOutcome {
    /// No limit was exceeded.
    Pass,
    /// A limit was exceeded.
    Fail,
    /// The recording is not sufficient to judge.
    Unjudged,
}

impl CheckOutcome {
    /// Returns its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Unjudged => "unjudged",
        }
    }

    /// Returns its exit code: 0 passes, 1 fails, 2 cannot be judged.
    pub fn code(self) -> u8 {
        match self {
            Self::Pass => 0,
            Self::Fail => 1,
            Self::Unjudged => 2,
        }
    }
}

/// Reads recordings to the end and judges the run, without what is allowed.
pub fn check(recordings: &RecordingSet, limits: &Limits, policy: &Policy) -> Verdict {
    judged(Run::read(recordings, |_, _, _| ()), limits, policy)
}

/// Judges a run, without what is allowed.
pub fn judged(run: Run, limits: &Limits, policy: &Policy) -> Verdict {
    let findings = policy.findings(&run.session).all;
    let mut verdict = Verdict { findings, run, ..Verdict::default() };
    for file in std::mem::take(&mut verdict.run.files) {
        verdict.ends(&file);
        verdict.note_unanswered(&file);
    }
    verdict.judge(limits);
    verdict
}

/// Returns the verdict if nothing could be read.
pub fn unreadable(why: String) -> Verdict {
    Verdict { doubts: vec![why], ..Verdict::default() }
}

impl Verdict {
    /// Returns the verdict: a limit that was exceeded fails, a doubt leaves the run unjudged, otherwise it passes.
    pub fn outcome(&self) -> CheckOutcome {
        if !self.hits.is_empty() {
            CheckOutcome::Fail
        } else if self.doubts.is_empty() {
            CheckOutcome::Pass
        } else {
            CheckOutcome::Unjudged
        }
    }

    /// Describes the outcome in one line: `1 critical: out of memory at step 170`.
    pub fn title(&self) -> String {
        verdict_report::title(self)
    }

    /// Returns the verdict as text, with its last newline.
    pub fn text(&self) -> String {
        verdict_report::text(self)
    }

    /// Returns the verdict as JSON (schema 1), with its last newline.
    pub fn json(&self) -> String {
        verdict_report::json(self)
    }

    /// Returns some of the findings, those of ranks that share a leak together.
    fn shared(&self, is_meant: impl Fn(&Finding) -> bool) -> Vec<Vec<&Finding>> {
        let meant: Vec<&Finding> = self.findings.iter().filter(|it| is_meant(it)).collect();
        follow::grouped(&meant, None, &self.run.session)
    }

    /// A file that is still written, or may be, is judged as far as it goes. What a killed writer left, or a damaged
    /// file, is not sufficient.
    fn ends(&mut self, file: &File) {
        let Some(words) = replay::words(&file.ending, file.has_header) else { return };
        let line = format!("{}: {words}", file.name);
        match &file.ending {
            Ending::Fault(fault) if !matches!(fault, Fault::Cut { .. }) => {
                self.damage.push(words);
                self.doubts.push(line);
            }
            _ => self.notes.push(line),
        }
        let is_over = self.run.session.job.is_some() || self.run.living().next().is_none();
        let is_killed = file.writer.as_ref().and_then(system::runs) == Some(false);
        if !matches!(file.ending, Ending::Closed(_)) && is_killed && !is_over {
            let seen = self.run.seen_to_step().map_or_else(String::new, |it| format!("after step {} ", grouped(it)));
            self.doubts.push(format!("{}: what came {seen}is missing: its writer was killed", file.name));
        }
    }

    /// A finding of a traced job has no answer of a replay if gpuwatch was killed.
    fn note_unanswered(&mut self, file: &File) {
        let path = Path::new(file.name.raw());
        let has_trace = |it: &Finding| {
            let pid = it.process(&self.run.session).and_then(|process| Some(process.hello.as_ref()?.pid));
            pid.is_some_and(|pid| traces::newest(path, pid).is_some())
        };
        let is_unanswered = |it: &&Finding| !it.is_allowed() && it.may_need_other_settings() && it.replayed.is_none();
        if self.findings.iter().filter(is_unanswered).any(has_trace) {
            let command = foreign::command(["gpuwatch", "whatif", file.name.raw()].into_iter(), PATH_MAX);
            self.notes.push(format!(
                "the job's allocations are traced, but not replayed: `{command}` finds the settings that reserve less"
            ));
        }
    }

    /// How the command ended is only noted, unless the user asks for its success: `run` passes its exit code on.
    fn judge_end(&mut self, is_success_required: bool) {
        let ended = self.run.session.job.map(|it| (it.code, it.signal));
        let failed = ended.and_then(|(code, signal)| failure(code, signal));
        if !is_success_required {
            self.notes.extend(failed);
        } else if let Some(failed) = failed {
            self.doubts.push(format!("--require-success: {failed}"));
        } else if ended.is_none_or(|it| it == (None, None)) {
            self.doubts.push("--require-success: how the command ended is not recorded".to_owned());
        }
    }

    /// A process whose lines are unreadable is not judged. Lost samples only make figures less exact.
    fn note_unread(&mut self) {
        for it in &self.run.session.processes {
            if let ProbeState::Incompatible { protocol } = it.life {
                self.doubts.push(format!(
                    "{} speaks version {protocol} of the wire, which this gpuwatch does not: nothing is known of it",
                    verdict_report::process(it)
                ));
            }
            if it.lost > 0 {
                let lost = format!("{}: {} samples were lost", verdict_report::process(it), it.lost);
                // A reader that is too slow for all of it does not get the end either, unless it is there.
                match (&it.life, it.devices.iter().filter_map(|on| on.step).max()) {
                    (ProbeState::Gone { .. }, Some(step)) => {
                        self.doubts.push(format!("{lost}, and what came after step {} as well", grouped(step)));
                    }
                    _ => self.notes.push(format!("{lost}; figures are approximate")),
                }
            }
            if it.lost_error_lines > 0 {
                self.notes.push(format!(
                    "{}: {} lines about out-of-memory errors were lost; there were more errors than are listed",
                    verdict_report::process(it),
                    it.lost_error_lines
                ));
            }
        }
    }

    /// An early error of a process whose end is not recorded may have been the end of the job.
    fn note_undecided(&mut self) {
        let is_open = |it: &&Finding| it.kind == Kind::Oom && it.severity == Severity::Info && it.is_active();
        // An error that came again is reported once.
        let is_alone = |it: &&Finding| it.follows.is_none() && !it.is_allowed();
        for it in self.findings.iter().filter(is_open).filter(is_alone) {
            self.doubts.push(format!(
                "{}: the recording does not show whether the job handled it",
                verdict_report::subject(&[it], &self.run.session)
            ));
        }
    }

    fn judge(&mut self, limits: &Limits) {
        self.doubts.extend(self.run.session.losses.words());
        if limits.require_end && !self.run.is_whole {
            self.doubts.push(format!("--require-end: {}", verdict_report::seen(self)));
        }
        self.judge_end(limits.require_success);
        self.note_unread();
        self.note_undecided();
        self.judge_steps(limits.max_growth.is_some());
        let worst = self.shared(|it| !it.is_allowed() && limits.are_hit_by(it));
        let hit = |group: &Vec<&Finding>| {
            Some(format!("{}: {}", group.first()?.severity.name(), verdict_report::subject(group, &self.run.session)))
        };
        let hits: Vec<String> = worst.iter().filter_map(hit).collect();
        self.hits.extend(hits);
        if let Some(most) = limits.max_growth {
            self.judge_growth(most);
        }
        if limits.max_peak.is_none() && limits.max_fragmentation.is_none() {
            return;
        }
        let peaks = std::mem::take(&mut self.run.peaks);
        let mut any = false;
        for (id, peaks) in peaks.devices.iter().filter(|(_, it)| it.reserved.is_some()) {
            any = true;
            let name = verdict_report::device(&self.run.session, id);
            self.judge_peak(&name, peaks, limits.max_peak);
            self.judge_fragmentation(&name, peaks, limits.max_fragmentation);
        }
        self.run.peaks = peaks;
        if !any {
            self.doubts.push("no process said what it reserved, so that limits on it cannot be judged".to_owned());
        }
    }

    /// A run that is too short shows no growth, whatever it does; without steps, the recording may show nothing of what
    /// the job does.
    fn judge_steps(&mut self, is_growth_limited: bool) {
        let has_grown = self.findings.iter().any(|it| it.kind == Kind::Growth);
        if has_grown || self.run.on_devices().any(|it| it.growth.watched() >= it.growth.enough()) {
            return;
        }
        let longest = self.run.on_devices().max_by_key(|it| it.growth.watched()).map(|it| it.growth.progress());
        match longest.filter(|_| self.run.steps().is_some_and(|it| it > 0)) {
            Some(progress) if is_growth_limited => {
                self.doubts.push(format!("--max-growth: not enough data to judge growth ({progress})"));
            }
            Some(progress) => self.notes.push(format!("not enough data to judge growth ({progress})")),
            None => {
                let by_second = self.run.on_devices().filter(|it| it.growth.axis() == Some(Axis::Seconds));
                let by_second = by_second.max_by_key(|it| it.growth.watched());
                let by_second = by_second
                    .map(|it| format!(", and it ran too short to be judged by time ({})", it.growth.progress()));
                let why = self.why_no_step();
                self.doubts.push(format!("no step was recorded{}: {why}", by_second.unwrap_or_default()));
            }
        }
    }

    /// Returns why no step was recorded, as far as known, and what to do.
    fn why_no_step(&self) -> &'static str {
        let processes = &self.run.session.processes;
        let has_run = processes.iter().any(|it| it.hello.as_ref().is_some_and(|hello| hello.run.is_some()));
        let is_run = self.run.session.job.is_some() || has_run;
        if processes.iter().any(|it| it.ooms.iter().next().is_some()) {
            "memory ran out before the first one"
        } else if !is_run {
            "start the job with `gpuwatch run` or attach to it, and let an optimizer step or call gpuwatch_probe.step()"
        } else if processes.is_empty() {
            "no process had a probe, which comes with `import torch` and CUDA, unless Python runs with -I, -E or -S"
        } else {
            "let an optimizer step, or call gpuwatch_probe.step()"
        }
    }

    fn judge_growth(&mut self, most: u64) {
        let is_over = |it: &Finding| it.bytes_per_step.is_some_and(|bytes| bytes > most as f64);
        let counts = |it: &Finding| it.is_own_growth() && it.is_active() && !it.is_allowed() && !it.is_companion();
        let over = self.shared(|it| counts(it) && is_over(it));
        let limit = units::per_step(most as f64);
        let words = |group: &Vec<&Finding>| {
            format!(
                "{}: more than {}",
                verdict_report::subject(group, &self.run.session),
                limit.trim_start_matches('+')
            )
        };
        let hits: Vec<_> = over.iter().map(words).collect();
        self.hits.extend(hits);
    }

    fn judge_peak(&mut self, name: &str, peaks: &DevicePeaks, most: Option<Peak>) {
        let limit = match most {
            None => return,
            Some(Peak::Bytes(bytes)) => Some(bytes),
            Some(Peak::Share(share)) => peaks.total.map(|it| units::whole(it.0 as f64 * share)),
        };
        match (peaks.reserved, limit.map(Bytes)) {
            (Some(peak), Some(limit)) if peak > limit => {
                self.hits.push(format!("{name}: {peak} were reserved, more than {limit}"));
            }
            (_, None) => {
                self.doubts.push(format!("{name}: its total is not known, so that no share of it can be judged"));
            }
            _ => {}
        }
    }

    fn judge_fragmentation(&mut self, name: &str, peaks: &DevicePeaks, most: Option<f64>) {
        let Some(most) = most else { return };
        match peaks.fragmentation() {
            Some(share) if share > most => self.hits.push(format!(
                "{name}: {:.0} % of what is reserved is stuck, more than {:.0} %",
                share * 100.0,
                most * 100.0
            )),
            Some(_) => {}
            None => {
                let expandable = self.run.session.processes.iter().filter_map(|it| it.hello.as_ref());
                let mut expandable = expandable.filter(|it| is_expandable(it.allocator_conf.as_deref()));
                let why = if expandable.next().is_some() {
                    "under expandable segments, which hardly fragment, it cannot be measured"
                } else {
                    "its allocator does not say"
                };
                self.notes.push(format!("{name}: fragmentation was not judged: {why}"));
            }
        }
    }
}
