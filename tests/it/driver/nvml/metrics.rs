//! Metrics of devices: the simulated driver's values call by call, absent where it has none, each call as often as the
//! table of metrics allows.

use super::{Bench, events, live, shows};
use crate::helpers::terminal::{PATIENCE, Terminal, until};
use ::simgpu::Fault;
use gpuwatch::{
    facts::{
        event::Fact,
        metrics::{Every, Metric, MetricRow},
    },
    sources::nvml::call,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Each metric, the calls that it comes from, the number that they return, and the metric's value then.
pub(crate) const ANSWERS: [(&str, &[&str], u64, u64); 40] = [
    ("gpu_percent", &["UtilizationRates"], 55, 55),
    ("memory_percent", &["UtilizationRates"], 55, 27),
    ("encoder_percent", &["EncoderUtilization"], 3, 3),
    ("decoder_percent", &["DecoderUtilization"], 4, 4),
    ("sm_mhz", &["ClockInfo:1"], 1410, 1410),
    ("sm_max_mhz", &["MaxClockInfo:1"], 1981, 1981),
    ("memory_mhz", &["ClockInfo:2"], 2619, 2619),
    ("memory_max_mhz", &["MaxClockInfo:2"], 3202, 3202),
    ("performance_state", &["PerformanceState"], 2, 2),
    ("throttle_reasons", &["CurrentClocksThrottleReasons"], 0x24, 0x24),
    ("power_mw", &["PowerUsage"], 512_345, 512_345),
    ("power_limit_mw", &["EnforcedPowerLimit"], 650_000, 650_000),
    ("celsius", &["Temperature"], 71, 71),
    ("slowdown_celsius", &["TemperatureThreshold:1"], 88, 88),
    ("shutdown_celsius", &["TemperatureThreshold:0"], 93, 93),
    ("memory_celsius", &["FieldValues:82"], 79, 79),
    ("fan_percent", &["FanSpeed_v2"], 45, 45),
    ("pcie_generation", &["CurrPcieLinkGeneration"], 3, 3),
    ("pcie_generation_max", &["MaxPcieLinkGeneration"], 4, 4),
    ("pcie_width", &["CurrPcieLinkWidth"], 8, 8),
    ("pcie_width_max", &["MaxPcieLinkWidth"], 32, 32),
    ("pcie_sent", &["PcieThroughput:0"], 10, 10 << 10),
    ("pcie_received", &["PcieThroughput:1"], 11, 11 << 10),
    ("pcie_replays", &["FieldValues:94"], 12, 12),
    ("nvlinks_active", &["NvLinkState:17"], 0, 17),
    ("nvlinks", &["FieldValues:91"], 18, 18),
    ("nvlink_errors", &["FieldValues:38", "FieldValues:45", "FieldValues:52", "FieldValues:59"], 5, 20),
    ("ecc_errors", &["TotalEccErrors"], 21, 21),
    ("ecc_errors_ever", &["FieldValues:6"], 22, 22),
    ("ecc_corrected", &["FieldValues:3"], 23, 23),
    ("ecc_corrected_ever", &["FieldValues:5"], 24, 24),
    ("rows_corrected", &["FieldValues:142"], 25, 25),
    ("rows_uncorrected", &["FieldValues:143"], 26, 26),
    ("rows_pending", &["FieldValues:144"], 1, 1),
    ("rows_failed", &["FieldValues:145"], 1, 1),
    ("bar1_used", &["BAR1MemoryInfo"], 77 << 20, 77 << 20),
    ("bar1_total", &[], 0, 256 << 30),
    ("persistence", &["PersistenceMode"], 0, 0),
    ("compute_mode", &["ComputeMode"], 3, 3),
    ("mig", &[], 0, 0),
];

/// Metrics that a single report of a whole device lacks: rates, which take two readings, and figures of MIG devices.
pub(crate) const ELSEWHERE: [&str; 4] = ["nvlink_sent", "nvlink_received", "mig_slices", "mig_multiprocessors"];

/// Makes the first device answer with these numbers.
pub(crate) fn answers() -> Vec<Fault> {
    let set = |(_, calls, number, _): &(_, &[&str], u64, _)| {
        calls.iter().map(|it| Fault::Line(format!("answer={number} nvmlDeviceGet{it} 0"))).collect::<Vec<_>>()
    };
    ANSWERS.iter().flat_map(set).collect()
}

#[test]
fn every_metric_is_the_drivers_call_by_call() {
    let bench = Bench::new();
    let reported = bench.once(&answers());
    let metrics = &reported["devices"][0]["metrics"];
    let expected: BTreeMap<&str, u64> = ANSWERS.iter().map(|it| (it.0, it.3)).collect();
    assert_eq!(metrics, &json!(expected));
    let of_nvml = Metric::TABLE.iter().filter(|it| call(it.metric).is_some()).count();
    assert_eq!(expected.len() + ELSEWHERE.len(), of_nvml, "every metric of NVML's");
    assert_eq!(reported["devices"][0]["load"]["power_mw"], 512_345, "as in earlier releases");

    // The other device answers with values of its own, and has no fan.
    let other = &reported["devices"][1]["metrics"];
    assert_eq!(
        (&other["sm_mhz"], &other["throttle_reasons"], &other["fan_percent"]),
        (&json!(345), &json!(1), &Value::Null)
    );
    assert_eq!((&other["nvlinks_active"], &other["pcie_width"]), (&json!(18), &json!(16)));
}

#[test]
fn mig_devices_have_a_layout() {
    let bench = Bench::new();
    let reported = bench.once(&[Fault::Mig(0, 3)]);
    let layout = |device: usize| {
        let metrics = &reported["devices"][device]["metrics"];
        (metrics["mig_slices"].as_u64(), metrics["mig_multiprocessors"].as_u64())
    };
    // The whole device, its three parts, and the other device.
    let part = (Some(2), Some(32));
    assert_eq!([0, 1, 2, 3, 4].map(layout), [(None, None), part, part, part, (None, None)], "{reported:#}");
}

/// Returns the two words behind a label of the screen.
pub(crate) fn behind(terminal: &Terminal, label: &str) -> String {
    let text = terminal.text();
    let after = text.lines().find_map(|it| it.split_once(label)).map_or("", |it| it.1);
    after.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}

/// The driver has totals; a rate takes two readings, of the device on the screen.
#[test]
fn throughput_of_nvlink_moves_and_is_absent_without_the_counters() {
    let bench = Bench::new();
    let rates = |terminal: &Terminal| behind(terminal, "NVLink out/s");
    let mut terminal = live(&bench);
    terminal.shows("NVIDIA H200");
    terminal.press("\r");
    let mut seen = std::collections::BTreeSet::new();
    let moves = until(PATIENCE, || {
        let now = rates(&terminal);
        if now.ends_with("GiB") {
            seen.insert(now);
        }
        seen.len() >= 2
    });
    assert!(moves, "{seen:?}\n{}", terminal.text());
    let lacks = [138, 139].map(|id| Fault::Line(format!("not-supported nvmlDeviceGetFieldValues:{id}")));
    bench.machine.set_faults(&lacks).unwrap();
    assert!(until(PATIENCE, || rates(&terminal).starts_with('–')), "{}", terminal.text());
}

#[test]
fn metrics_that_a_driver_lacks_are_absent_and_quiet() {
    let bench = Bench::new();
    let calls: Vec<&str> = Metric::TABLE.iter().filter_map(|it| call(it.metric)).collect();
    for word in ["no-function", "not-supported", "no-permission", "unknown"] {
        let lacks: Vec<Fault> = calls.iter().map(|it| Fault::Line(format!("{word} {it}"))).collect();
        let reported = bench.once(&lacks);
        let device = &reported["devices"][0];
        assert_eq!((&device["metrics"], &device["load"]), (&json!({}), &json!({})), "{word}");
        assert_eq!(device["memory"]["total"], bench.machine.cards().unwrap()[0].total, "{word}");
        assert_eq!((&reported["notices"], &reported["driver"]["state"]), (&json!([]), &json!("up")), "{word}");
    }
    let mut terminal = live(&bench);
    terminal.shows("NVIDIA H200");
    terminal.press("\r");
    assert!(until(PATIENCE, || shows(&terminal, "PCIe lanes")), "{}", terminal.text());
    let shown = |label: &str| terminal.text().lines().any(|it| it.contains(&format!("{label}   ")) && it.contains('–'));
    assert!(["PCIe lanes", "persistence"].iter().all(|it| shown(it)), "{}", terminal.text());
}

#[test]
fn each_call_is_made_as_often_as_the_table_allows_and_only_changes_are_recorded() {
    let bench = Bench::new();
    bench.machine.set_faults(&[Fault::Line("log".into())]).unwrap();
    let calls =
        |of: &str| bench.machine.calls().iter().filter(|it| **it == format!("nvmlDeviceGet{of} 0")).count() as u64;
    let file = bench.home.path().join("metrics.jsonl.zst");
    let mut recorder = bench.command(&["record", "-o", file.to_str().unwrap()]).spawn().unwrap();
    let is_read = until(PATIENCE, || calls("UtilizationRates") >= 6);
    let seconds = calls("UtilizationRates");
    let log = bench.machine.calls();
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    assert!(is_read, "{log:?}");
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for line in &log {
        *counts.entry(line).or_default() += 1;
    }
    let fields = |id: u32| counts.contains_key(format!("nvmlDeviceGetFieldValues:{id} 0").as_str());
    assert!(fields(142) && !fields(138) && !fields(139), "throughput of NVLink is read for the screen: {counts:?}");
    let shares =
        |row: &MetricRow| Metric::TABLE.iter().any(|it| call(it.metric) == call(row.metric) && it.every < row.every);
    for row in Metric::TABLE.iter().filter(|it| it.every != Every::Watched || !shares(it)) {
        // A call with several arguments counts for each of them, and the list of devices has the mode of MIG too.
        let of_it = counts.iter().filter(|(line, _)| {
            line.strip_suffix(" 0").is_some_and(|it| it.split(':').next() == call(row.metric) && row.name != "mig")
        });
        let most = if row.every == Every::Watched { 0 } else { seconds / row.every.seconds() + 2 };
        for (line, count) in of_it {
            let extra = u64::from(*line == "nvmlDeviceGetFieldValues 0") * 2;
            assert!(*count <= most + extra, "{}: {line} {count} times in {seconds} s, {most} allowed", row.name);
        }
    }
    let changes: Vec<String> = events(&file)
        .into_iter()
        .filter_map(|it| if let Fact::Metrics { device, changes } = it.fact { Some((device, changes)) } else { None })
        .filter(|(device, _)| device.0 == bench.machine.cards().unwrap()[0].uuid)
        .map(|(_, changes)| serde_json::to_string(&changes).unwrap())
        .collect();
    let having = |name: &str| changes.iter().filter(|it| it.contains(&format!("\"{name}\""))).count();
    assert_eq!((having("sm_max_mhz"), having("persistence")), (1, 1), "{changes:#?}");
    assert!(having("power_mw") > 2, "{changes:#?}");
}

#[test]
fn costly_calls_are_made_for_the_device_on_the_screen_alone() {
    let bench = Bench::new();
    bench.machine.set_faults(&[Fault::Line("log".into())]).unwrap();
    let calls = |of: &str| bench.machine.calls().iter().filter(|it| it.contains(of)).count();
    let mut terminal = live(&bench);
    terminal.shows("NVIDIA H200");
    assert!(until(PATIENCE, || calls("UtilizationRates 0") >= 3));
    assert_eq!(calls("PcieThroughput"), 0, "the memory view does not show it");
    terminal.press("\r");
    assert!(until(PATIENCE, || calls("PcieThroughput:1 0") >= 2), "{}", terminal.text());
    assert_eq!(calls("PcieThroughput:1 1"), 0, "nor of the other device");
    terminal.press("\x1b");
    terminal.shows("processes on GPU 0");
    let before = calls("UtilizationRates 0");
    assert!(until(PATIENCE, || calls("UtilizationRates 0") >= before + 2));
    let costly = calls("PcieThroughput");
    assert!(until(PATIENCE, || calls("UtilizationRates 0") >= before + 4));
    assert_eq!(calls("PcieThroughput"), costly, "they end with the device screen");
}
