//! The questions, in PromQL.

use super::{Question, rows::Key};
use crate::{
    model::cluster::overview::figure::{RankFigure, Worse},
    net::escape_label,
};
use anyhow::{Result, bail};
use std::{fmt::Write, str::FromStr};

/// The families of each rank, and of each device.
const OF_RANKS: [&str; 10] = [
    "gpuwatch_process_info",
    "gpuwatch_process_up",
    "gpuwatch_allocated_bytes",
    "gpuwatch_reserved_bytes",
    "gpuwatch_unused_bytes",
    "gpuwatch_step",
    "gpuwatch_step_seconds",
    "gpuwatch_growth_bytes_per_step",
    "gpuwatch_full_seconds",
    "gpuwatch_alert",
];
const OF_DEVICES: [&str; 5] = [
    "gpuwatch_device_memory_total_bytes",
    "gpuwatch_device_memory_used_bytes",
    "gpuwatch_device_utilisation_ratio",
    "gpuwatch_device_temperature_celsius",
    "gpuwatch_device_alert",
];

/// The labels that only `gpuwatch_process_info` has.
const OF_PROCESSES: [&str; 8] =
    ["pid", "host", "script", "framework", "framework_version", "scheduler", "scheduler_job", "world_size"];

/// The labels that devices lack.
const NOT_OF_DEVICES: [&str; 3] = ["rank", "run", "process"];

/// Seconds between two values of a past that are compared: no more than between two scrapes, so that each counts.
const FINE_S: u64 = 5;

/// Most values of a past, and most of one for which the store reads all ranks of a run: 4,096 ranks take seconds.
const VALUES: u64 = 50_000;
const VALUES_OF_RUN: u64 = 480;

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

/// Returns the question for the worst value of a rank's figure in the `step` seconds before each point.
pub(super) fn past(of: &Question, step: u64) -> String {
    let most = if of.figure == RankFigure::Behind { VALUES_OF_RUN } else { VALUES };
    let fine = (of.seconds / most).max(FINE_S).min(step);
    let over_time = match of.figure.row().worse {
        Worse::High => "max_over_time",
        Worse::Low => "min_over_time",
    };
    // A subquery, because a step that is shorter than the pause between two scrapes has no sample of its own.
    format!("{over_time}(({})[{step}s:{fine}s])", of_rank(&of.rank, of.figure))
}

/// Returns the question for a figure of a rank.
fn of_rank(key: &Key, figure: RankFigure) -> String {
    let all = [
        ("instance", &key.instance),
        ("gpu_uuid", &key.device),
        ("rank", &key.rank),
        ("run", &key.run),
        ("process", &key.process),
    ];
    let all = all.map(|(label, value)| Matcher { label: label.to_owned(), value: value.raw().to_owned() });
    let own = |name| selector(&[name], &all);
    let of_device = |name| selector(&[name], all.iter().filter(|it| it.is_of_devices()));
    match figure {
        RankFigure::Device => {
            let [total, used, ..] = OF_DEVICES.map(of_device);
            format!("{used} / on (instance, gpu_uuid) {total}")
        }
        RankFigure::Allocated => own("gpuwatch_allocated_bytes"),
        RankFigure::Reserved => own("gpuwatch_reserved_bytes"),
        RankFigure::Unused => {
            format!("{} / on ({JOIN}) {}", own("gpuwatch_unused_bytes"), own("gpuwatch_reserved_bytes"))
        }
        RankFigure::Growth => own("gpuwatch_growth_bytes_per_step"),
        RankFigure::Full => own("gpuwatch_full_seconds"),
        RankFigure::StepTime => own("gpuwatch_step_seconds"),
        RankFigure::Behind => behind(&own("gpuwatch_step"), &running(key, &all)),
        RankFigure::Utilisation => of_device("gpuwatch_device_utilisation_ratio"),
        RankFigure::Temperature => of_device("gpuwatch_device_temperature_celsius"),
    }
}

/// Returns the selector of the steps of a rank's run, of the processes that run. One without a run is alone. `unless`
/// takes half the time of `and … == 1`, because few processes have ended.
fn running(key: &Key, own: &[Matcher]) -> String {
    let is_of_run = |it: &&Matcher| key.run.is_empty() || it.label == "run";
    let [steps, up] =
        ["gpuwatch_step", "gpuwatch_process_up"].map(|name| selector(&[name], own.iter().filter(is_of_run)));
    format!("({steps} unless on ({JOIN}) ({up} == 0))")
}

/// Returns how many steps `own` is behind the median of `all`. Of an even number it is the upper one, as on the screen;
/// `quantile` without its parameter interpolates.
fn behind(own: &str, all: &str) -> String {
    let place = format!("scalar(floor(count({all}) / 2) / clamp_min(count({all}) - 1, 1))");
    format!("clamp_min(scalar(quantile({place}, {all})) - {own}, 0)")
}

fn selector<'a>(names: &[&str], matchers: impl IntoIterator<Item = &'a Matcher>) -> String {
    let mut out = match names {
        [only] => format!("{{__name__=\"{only}\""),
        _ => format!("{{__name__=~\"{}\"", names.join("|")),
    };
    for Matcher { label, value } in matchers {
        let _ = write!(out, ",{label}=\"{}\"", escape_label(value));
    }
    out + "}"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::cluster::Past;

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
        assert!(devices.ends_with("_device_alert\",cluster=\"x\"}"), "{devices}");
    }

    #[test]
    fn the_past_of_a_rank_is_of_its_own_series_or_of_its_device() {
        let key = Key { instance: "a:1".into(), device: "GPU-0".into(), rank: "3".into(), ..Key::default() };
        let own = of_rank(&key, RankFigure::Reserved);
        let labels = ",instance=\"a:1\",gpu_uuid=\"GPU-0\"";
        assert_eq!(own, format!("{{__name__=\"gpuwatch_reserved_bytes\"{labels},rank=\"3\",run=\"\",process=\"\"}}"));
        let device = of_rank(&key, RankFigure::Device);
        let used = format!("{{__name__=\"gpuwatch_device_memory_used_bytes\"{labels}}}");
        assert!(
            device.starts_with(&format!("{used} / on (instance, gpu_uuid) {{")) && !device.contains("rank"),
            "{device}"
        );
        // A process without a run is compared with itself, a rank with its run.
        let alone = of_rank(&key, RankFigure::Behind);
        assert!(alone.contains(&format!("{{__name__=\"gpuwatch_process_up\"{labels},rank=\"3\"")), "{alone}");
        let together = of_rank(&Key { run: "r".into(), ..key }, RankFigure::Behind);
        assert!(together.contains("({__name__=\"gpuwatch_process_up\",run=\"r\"} == 0)"), "{together}");
    }

    #[test]
    fn a_past_has_the_worst_values_at_every_scrape_and_of_a_whole_run_fewer() {
        let rank = Key { instance: "a:1".into(), ..Key::default() };
        for (figure, seconds, begin, end) in [
            (RankFigure::Allocated, 3600, "max_over_time(({__name__=\"gpuwatch_allocated_bytes\"", "})[15s:5s])"),
            (RankFigure::Utilisation, 86_400, "min_over_time(({__name__=\"gpuwatch_device_util", "})[360s:5s])"),
            (RankFigure::Unused, 604_800, "max_over_time(({__name__=\"gpuwatch_unused_bytes\"", "})[2520s:12s])"),
            (RankFigure::Full, 900, "min_over_time(({__name__=\"gpuwatch_full_seconds\"", "})[3s:3s])"),
            (RankFigure::Behind, 86_400, "max_over_time((clamp_min(scalar(quantile(", ", 0))[360s:180s])"),
        ] {
            let of = Question { rank: rank.clone(), figure, seconds, points: Past::POINTS };
            let text = past(&of, Past::step(seconds, Past::POINTS));
            assert!(text.starts_with(begin) && text.ends_with(end), "{text}");
        }
    }

    #[test]
    fn a_matcher_is_a_label_and_its_value() {
        for text in ["", "x", "=x", "1a=x", "a-b=x", "__name__=x", "a b=c", "a}=b"] {
            assert!(text.parse::<Matcher>().is_err(), "{text}");
        }
    }
}
