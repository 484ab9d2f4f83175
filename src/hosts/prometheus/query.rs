//! The questions, in PromQL.

use super::rows::Key;
use anyhow::{Result, bail};
use std::{fmt::Write, str::FromStr};

/// The families of each rank, and of each device.
const OF_RANKS: [&str; 9] = [
    "gpuwatch_process_info",
    "gpuwatch_process_up",
    "gpuwatch_allocated_bytes",
    "gpuwatch_reserved_bytes",
    "gpuwatch_step",
    "gpuwatch_step_seconds",
    "gpuwatch_growth_bytes_per_step",
    "gpuwatch_full_seconds",
    "gpuwatch_alert",
];
const OF_DEVICES: [&str; 2] = ["gpuwatch_device_memory_total_bytes", "gpuwatch_device_memory_used_bytes"];

/// The labels that only `gpuwatch_process_info` has.
const OF_PROCESSES: [&str; 8] =
    ["pid", "host", "script", "framework", "framework_version", "scheduler", "scheduler_job", "world_size"];

/// The labels that devices lack.
const NOT_OF_DEVICES: [&str; 3] = ["rank", "run", "process"];

/// What joins the series of a rank.
const JOIN: &str = "instance, gpu_uuid, rank, run, process";

/// A label and its value: `scheduler_job=4242`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matcher {
    label: String,
    value: String,
}

impl FromStr for Matcher {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let Some((label, value)) = text.split_once('=') else { bail!("{text:?} is not LABEL=VALUE") };
        let is_name = |it: char| it.is_ascii_alphanumeric() || it == '_';
        let begins = label.starts_with(|it: char| it.is_ascii_alphabetic() || it == '_');
        if !begins || !label.chars().all(is_name) || label.starts_with("__") {
            bail!("{label:?} is not the name of a label");
        }
        Ok(Self { label: label.to_owned(), value: value.to_owned() })
    }
}

impl Matcher {
    fn is_of_devices(&self) -> bool {
        !NOT_OF_DEVICES.iter().chain(&OF_PROCESSES).any(|label| *label == self.label)
    }
}

/// Returns the question for all figures of ranks.
pub(super) fn ranks(matchers: &[Matcher]) -> String {
    let is_of_process = |it: &&Matcher| OF_PROCESSES.contains(&it.label.as_str());
    let own = selector(&OF_RANKS, matchers.iter().filter(|it| !is_of_process(it)));
    if !matchers.iter().any(|it| is_of_process(&it)) {
        return own;
    }
    let info = selector(&["gpuwatch_process_info"], matchers.iter().filter(is_of_process));
    format!("{own} and on ({JOIN}) {info}")
}

/// Returns the question for the devices.
pub(super) fn devices(matchers: &[Matcher]) -> String {
    selector(&OF_DEVICES, matchers.iter().filter(|it| it.is_of_devices()))
}

/// Returns whether all devices of the answer belong to it, also those without a rank.
pub(super) fn has_all_devices(matchers: &[Matcher]) -> bool {
    matchers.iter().all(Matcher::is_of_devices)
}

/// Returns the question for what a rank has allocated.
pub(super) fn of_rank(key: &Key) -> String {
    let labels = [
        ("instance", &key.instance),
        ("gpu_uuid", &key.device),
        ("rank", &key.rank),
        ("run", &key.run),
        ("process", &key.process),
    ];
    let all = labels.map(|(label, value)| Matcher { label: label.to_owned(), value: value.raw().to_owned() });
    selector(&["gpuwatch_allocated_bytes"], &all)
}

fn selector<'a>(names: &[&str], matchers: impl IntoIterator<Item = &'a Matcher>) -> String {
    let mut out = match names {
        [only] => format!("{{__name__=\"{only}\""),
        _ => format!("{{__name__=~\"{}\"", names.join("|")),
    };
    for Matcher { label, value } in matchers {
        let _ = write!(out, ",{label}=\"{}\"", escaped(value));
    }
    out + "}"
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matchers(all: &[&str]) -> Vec<Matcher> {
        all.iter().map(|it| it.parse().unwrap()).collect()
    }

    #[test]
    fn labels_of_processes_are_joined_and_devices_have_only_their_own() {
        let plain = ranks(&matchers(&["run=a\"b\\c", "cluster=x=y"]));
        assert!(plain.starts_with("{__name__=~\"gpuwatch_process_info|gpuwatch_process_up|"), "{plain}");
        assert!(plain.ends_with(",run=\"a\\\"b\\\\c\",cluster=\"x=y\"}"), "{plain}");
        let joined = ranks(&matchers(&["scheduler_job=4242", "cluster=x"]));
        let end =
            format!(",cluster=\"x\"}} and on ({JOIN}) {{__name__=\"gpuwatch_process_info\",scheduler_job=\"4242\"}}");
        assert!(joined.ends_with(&end), "{joined}");
        let devices = devices(&matchers(&["scheduler_job=4242", "rank=1", "cluster=x"]));
        assert!(devices.ends_with("_used_bytes\",cluster=\"x\"}"), "{devices}");
    }

    #[test]
    fn a_matcher_is_a_label_and_its_value() {
        for text in ["", "x", "=x", "1a=x", "a-b=x", "__name__=x", "a b=c", "a}=b"] {
            assert!(text.parse::<Matcher>().is_err(), "{text}");
        }
    }
}
