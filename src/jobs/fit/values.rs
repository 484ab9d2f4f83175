//! Values that were not computed, as far as they matter to a verdict: the lines that read them, sizes that depend on
//! them, steps that did not run.

use super::{job_report::Read, trial::Trial};
use crate::facts::units::counted;

/// Lines that are named one by one.
pub(super) const NAMED: usize = 6;

/// Steps that a job runs at least, unless the user asked for another number.
const LEAST: u64 = 3;

/// Returns the lines that read values, as text: those that decide first.
pub(super) fn reads(trial: &Trial) -> Vec<String> {
    let named = named(trial);
    let mut all: Vec<String> = named.iter().take(NAMED).map(|it| words(it)).collect();
    let more = named.len().saturating_sub(NAMED);
    if more > 0 {
        all.push(format!("{} that read values", counted(more as u64, "more line")));
    }
    all
}

/// The lines to name: the user's, and those of libraries that decide about sizes or loops.
fn named(trial: &Trial) -> Vec<&Read> {
    let mut named: Vec<&Read> = Vec::new();
    for it in trial.accounts.iter().flat_map(|it| &it.reads) {
        if (it.own || matches!(it.kind.as_str(), "shape" | "size" | "loop")) && !named.contains(&it) {
            named.push(it);
        }
    }
    named.sort_by_key(|it| (rank(it), it.line));
    named
}

/// The order of kinds: how much they decide.
fn rank(it: &Read) -> usize {
    let kinds = ["shape", "loop", "branch", "size", "draw", "value"];
    let at = kinds.iter().position(|kind| *kind == it.kind).unwrap_or(kinds.len());
    // What follows from finite numbers decides nothing.
    if it.known { kinds.len() } else { at }
}

fn words(it: &Read) -> String {
    let what = match it.kind.as_str() {
        "shape" if it.absent => {
            "makes a tensor whose size depends on what absent ranks send; taken to be what a present one sends"
                .to_owned()
        }
        "branch" if it.absent => "decides by what absent ranks send; taken to be what a present one sends".to_owned(),
        _ if it.absent => "reads what absent ranks send; taken to be what a present one sends".to_owned(),
        "shape" => "makes a tensor whose size depends on values, and values are not computed".to_owned(),
        "size" => "makes a tensor whose size depends on values: the largest one is assumed".to_owned(),
        "draw" => format!("draws a size at random: the largest one, {}, was tried", it.answer),
        "loop" => "reads a value many times without a step between, and then gets other answers, so that a loop \
                   ends; how often it repeats is not known"
            .to_owned(),
        "branch" if it.answer.is_empty() => "decides by values, which are not computed".to_owned(),
        "value" if it.answer.is_empty() => "reads values, which are not computed".to_owned(),
        "branch" if it.known => format!("decides by a value; {} here, as in a healthy run", it.answer),
        "branch" => format!("decides by a value, and values are not computed: it is {} here", it.answer),
        _ if it.known => format!("reads a value; {} here, as in a healthy run", it.answer),
        _ => format!("reads a value, and values are not computed: it is {} here", it.answer),
    };
    format!("{}: `{}` {what}", it.place(), it.text)
}

/// Whether the size of a tensor depends on values and has no known bound.
pub(super) fn is_unbounded(trial: &Trial) -> bool {
    has(trial, &["shape"])
}

/// Whether the peak is an upper bound: it depends on values, and the largest sizes and many repetitions were assumed.
pub(super) fn is_upper_bound(trial: &Trial) -> bool {
    has(trial, &["size", "loop"])
}

fn has(trial: &Trial, kinds: &[&str]) -> bool {
    trial.accounts.iter().flat_map(|it| &it.reads).any(|it| kinds.contains(&it.kind.as_str()))
}

/// Returns why a run is too short for a yes: fewer optimizer steps than asked for.
pub(super) fn incomplete(trial: &Trial, asked: Option<u32>) -> Option<String> {
    let on_device = || trial.accounts.iter().filter(|it| !it.devices.is_empty());
    if on_device().any(|it| it.steady > 0) {
        return None;
    }
    let steps = on_device().map(|it| it.steps).max().unwrap_or(0);
    let deciding = on_device().flat_map(|it| &it.reads).find(|it| decides(it));
    // A short script that reads nothing is over, and was seen wholly.
    let least = asked.map_or(if deciding.is_some() { LEAST } else { 1 }, u64::from);
    if steps >= least {
        return None;
    }
    let ran = match steps {
        0 => "no optimizer step ran".to_owned(),
        steps => format!("only {} of {least} ran", counted(steps, "optimizer step")),
    };
    let reader = named(trial).into_iter().find(|it| decides(it)).or(deciding);
    let line = reader.map(|it| format!("; {} reads a value that may decide about it", it.place()));
    Some(format!("{ran}{}", line.unwrap_or_default()))
}

fn decides(it: &Read) -> bool {
    !matches!(it.kind.as_str(), "size" | "draw")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::fit::{
        job_report::{JobReport, OnDevice},
        trial::Outcome,
    };

    fn trial(steps: u64, ended: &str, kinds: &[&str]) -> Trial {
        let read = |(at, kind): (usize, &&str)| Read {
            file: "train.py".to_owned(),
            line: at as u64 + 1,
            kind: (*kind).to_owned(),
            text: "if bad:".to_owned(),
            own: true,
            answer: "false".to_owned(),
            known: false,
            absent: false,
        };
        let account = JobReport {
            steps,
            ended: Some(ended.to_owned()),
            devices: vec![OnDevice::default()],
            reads: kinds.iter().enumerate().map(read).collect(),
            ..JobReport::default()
        };
        Trial { accounts: vec![account], outcome: Outcome::Finished, seconds: 0, ending: None }
    }

    #[test]
    fn fewer_steps_than_asked_for_are_no_plain_yes() {
        let why = |steps, ended, kinds: &[&str], asked| incomplete(&trial(steps, ended, kinds), asked);
        assert_eq!(why(0, "exit", &[], None).as_deref(), Some("no optimizer step ran"));
        let line = "; train.py:2 reads a value that may decide about it";
        assert_eq!(why(0, "exit", &["value", "branch"], None), Some(format!("no optimizer step ran{line}")));
        assert_eq!(why(2, "exit", &["value", "branch"], None), Some(format!("only 2 optimizer steps of 3 ran{line}")));
        assert_eq!(why(2, "exit", &[], None), None);
        assert_eq!(why(2, "exit", &[], Some(5)).as_deref(), Some("only 2 optimizer steps of 5 ran"));
        assert_eq!(why(3, "steps", &["branch"], None), None);
        assert_eq!(why(3, "exit", &["branch"], None), None);
    }

    #[test]
    fn lines_that_decide_are_named_first() {
        let all = reads(&trial(3, "steps", &["value", "size", "branch", "loop"]));
        let places: Vec<_> = all.iter().map(|it| it.split(": ").next().unwrap()).collect();
        assert_eq!(places, ["train.py:4", "train.py:3", "train.py:2", "train.py:1"]);
        assert!(all.get(1).unwrap().ends_with("it is false here"), "{all:?}");
    }
}
