//! `gpuwatch check --against`: what a recorded run needs more than an earlier one.

use super::{Limits, Verdict, check};
use crate::{
    cli::inputs,
    facts::{
        event::anatomy::{Anatomy, LineShare},
        units::{Bytes, whole},
    },
    jobs::fit::comparison_text,
    model::{
        alerts::Policy,
        findings::Finding,
        fit::{
            Baseline, Budget, Comparison,
            baseline::{Growth, PeakLine, SavedCulprit, SavedDevice, SavedPeak},
            comparison,
        },
    },
    storage::output,
};
use std::path::PathBuf;

/// The part by which rates of growth of two equal runs differ, as they are estimated from samples.
const NOISE: f64 = 0.1;

/// The flags of a comparison.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct AgainstArgs {
    /// Compare with an earlier recording, and print what the run needs more. The exit code is then 0 within the budget,
    /// 1 over it, 2 if they cannot be compared.
    #[arg(long, value_name = "FILE")]
    pub(super) against: Option<PathBuf>,
    /// How much more passes with --against: a share of the earlier allocated bytes as in 0.5%, or bytes as in 64MiB.
    #[arg(long, value_name = "SHARE|BYTES", default_value = "0", value_parser = Budget::parse, requires = "against")]
    budget: Budget,
    /// Print the comparison as Markdown, for a comment on a pull request.
    #[arg(long, requires = "against", conflicts_with = "json")]
    markdown: bool,
}

/// Prints what a run needs more than an earlier one, and returns the exit code.
pub(super) fn print(files: &[PathBuf], args: &AgainstArgs, json: bool, policy: &Policy) -> u8 {
    let read = |files: &[PathBuf]| {
        let found = inputs::recordings(files).map_err(|e| format!("{e:#}"))?;
        found.notes.iter().for_each(|it| output::message(format_args!("{it}")));
        let verdict = check(&found.recordings, &Limits::none(), policy);
        // What a run lacks may be its peak.
        match verdict.doubts.first() {
            Some(doubt) => Err(doubt.clone()),
            None => Ok(verdict),
        }
    };
    let compared = read(args.against.as_slice()).map_err(|e| format!("the earlier run: {e}"));
    let compared = compared.and_then(|before| Ok(compared_runs(&before, &read(files)?, args.budget)));
    let comparison = compared.unwrap_or_else(|doubt| Comparison { doubt: Some(doubt), ..Comparison::default() });
    let text = match () {
        () if json => comparison_text::json(&comparison),
        () if args.markdown => comparison_text::markdown(&comparison),
        () => comparison_text::text(&comparison),
    };
    match output::print(&text) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            output::message(format_args!("{e}"));
            2
        }
        _ => comparison.code(),
    }
}

fn compared_runs(before: &Verdict, now: &Verdict, budget: Budget) -> Comparison {
    let (mut old, mut new) = (figures(before), figures(now));
    let moments = [before.moment(), now.moment()];
    if let [Some(was), Some(is)] = moments {
        consist(&mut old, was);
        consist(&mut new, is);
    }
    let is_noise = |(old, new): (&Growth, &Growth)| new.bytes as f64 <= old.bytes as f64 * (1.0 + NOISE);
    if old.growth.as_ref().zip(new.growth.as_ref()).is_some_and(is_noise) {
        new.growth.clone_from(&old.growth);
    }
    let mut compared = comparison::compare(&old, &new, budget);
    match moments {
        [Some(Anatomy { step: Some(was), .. }), Some(Anatomy { step: Some(is), .. })] => {
            compared
                .notes
                .push(format!("parts and lines are those of step {was} of the earlier run, and step {is} of this one"));
        }
        _ => compared.not_compared.push(format!("parts and lines: {}", without_moment(moments))),
    }
    compared
}

/// Says which run lacks what parts and lines are taken from.
fn without_moment(moments: [Option<&Anatomy>; 2]) -> String {
    let who = match moments {
        [None, None] => "neither run has",
        [None, _] => "the earlier run does not have",
        _ => "this run does not have",
    };
    format!("{who} the highest moment of a whole step on record; gpuwatch peak PID traces one")
}

/// Adds what the memory consisted of at the highest moment of a step.
fn consist(of: &mut Baseline, moment: &Anatomy) {
    let Some(peak) = &mut of.peak else { return };
    peak.parts = moment.parts.iter().map(|(part, bytes)| (part.name().to_owned(), *bytes)).collect();
    let line = |it: &LineShare| {
        let line = it.line.to_string();
        PeakLine {
            path: line.rsplit_once(':').map_or_else(String::new, |(path, _)| path.to_owned()),
            line,
            parts: [(it.part.name().to_owned(), it.bytes)].into(),
            module: it.module.as_ref().map(ToString::to_string),
            ..PeakLine::default()
        }
    };
    peak.lines = Some(moment.lines.iter().map(line).collect());
}

/// What is compared of a run: the device with the most.
fn figures(verdict: &Verdict) -> Baseline {
    let session = &verdict.run.session;
    let most = verdict.run.peaks.devices.iter().max_by_key(|it| it.1.allocated);
    let name = |id| session.device(id).map(|it| it.name.to_string()).unwrap_or_default();
    let bytes = |known: Option<Bytes>| known.map_or(0, |it| it.0);
    let peak = most.filter(|it| it.1.allocated.is_some()).map(|(_, it)| SavedPeak {
        allocated: bytes(it.allocated),
        wanted: bytes(it.reserved),
        device: bytes(it.used),
        lines: Some(Vec::new()),
        ..SavedPeak::default()
    });
    let grows = |it: &&Finding| it.is_own_growth() && it.is_active() && !it.is_allowed() && !it.is_companion();
    let growth = verdict.findings.iter().filter(grows).filter_map(|finding| {
        let line = finding.culprit.as_ref().map(|it| it.kept.as_ref().unwrap_or(&it.allocated).place());
        let culprits = finding.culprit.iter().map(|it| SavedCulprit::from(&**it)).collect();
        Some(Growth { bytes: whole(finding.bytes_per_step?), line, culprits, ranks: Vec::new() })
    });
    let torch = session.processes.iter().find_map(|it| Some(it.hello.as_ref()?.framework_version.as_ref()?.clone()));
    Baseline {
        torch,
        devices: most.map(|(id, _)| SavedDevice { name: name(id), ..SavedDevice::default() }).into_iter().collect(),
        peak,
        growth: growth.max_by_key(|it| it.bytes),
        unknown: vec!["no process said what it allocated".to_owned()],
        is_measured: true,
        ..Baseline::default()
    }
}
