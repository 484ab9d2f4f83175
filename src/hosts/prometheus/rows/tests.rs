//! Rows of planted series.

use super::*;

fn figure(name: &str, labels: &[(&str, &str)], value: f64) -> Figure {
    let mut all = serde_json::Map::new();
    all.insert("__name__".to_owned(), format!("gpuwatch_{name}").into());
    all.extend(labels.iter().map(|(label, it)| ((*label).to_owned(), (*it).into())));
    let text = serde_json::json!({"metric": all, "value": [1_700_000_000, value.to_string()]});
    serde_json::from_value(text).unwrap()
}

const DEVICE: [(&str, &str); 2] = [("instance", "10.0.0.1:9477"), ("gpu_uuid", "GPU-a")];

fn rank<'a>(rank: &'a str, device: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let own = [("instance", "10.0.0.1:9477"), ("gpu_uuid", device), ("rank", rank), ("run", "r")];
    own.iter().chain(more).copied().collect()
}

#[test]
fn a_rank_is_one_row_on_the_device_where_it_has_most() {
    let info = [("host", "node1"), ("pid", "42"), ("scheduler", "slurm"), ("scheduler_job", "7"), ("world_size", "2")];
    let all = [
        figure("process_info", &rank("0", "GPU-a", &info), 1.0),
        figure("process_info", &rank("0", "GPU-b", &info), 1.0),
        figure("allocated_bytes", &rank("0", "GPU-a", &[]), 1e9),
        figure("allocated_bytes", &rank("0", "GPU-b", &[]), 7e9),
        figure("step", &rank("0", "GPU-b", &[]), 12.0),
        figure("growth_bytes_per_step", &rank("0", "GPU-b", &[]), f64::NAN),
        figure("process_up", &rank("0", "GPU-b", &[]), 1.0),
    ];
    let devices =
        [figure("device_memory_total_bytes", &DEVICE, 80e9), figure("device_memory_used_bytes", &DEVICE, 20e9)];
    let Fleet { overview, series } = fleet(&all, &devices, true);
    let [row] = &overview.ranks[..] else { panic!("{overview:#?}") };
    assert_eq!((row.rank, row.pid, row.step, row.ended), (Some(0), Some(42), Some(12), false));
    assert_eq!((row.figures.get(RankFigure::Allocated), row.figures.get(RankFigure::Growth)), (Some(7e9), None));
    assert_eq!((series[0].key.device.raw(), overview.jobs[0].name.raw()), ("GPU-b", "slurm 7"));
    assert_eq!((overview.jobs[0].expected, overview.jobs[0].present), (Some(2), 1));
    let [node] = &overview.nodes[..] else { panic!("{overview:#?}") };
    assert_eq!((node.host.raw(), node.devices, node.probes), ("node1", 1, 1));
    assert_eq!(node.memory, Some((Bytes(20_000_000_000), Bytes(80_000_000_000))));
}

#[test]
fn a_process_is_the_same_on_whichever_device_it_has_most() {
    let both = |on_a: f64, on_b: f64| {
        let info = [("host", "node1"), ("pid", "42")];
        let all = [("GPU-a", "2", on_a), ("GPU-b", "", on_b)].map(|(device, number, bytes)| {
            // Another process comes first on one of the devices.
            let labels =
                |more: &[(&'static str, &'static str)]| rank("", device, &[&[("process", number)], more].concat());
            [figure("process_info", &labels(&info), 1.0), figure("allocated_bytes", &labels(&[]), bytes)]
        });
        fleet(&all.concat(), &[], true)
    };
    let (before, after) = (both(2e9, 1e9), both(1e9, 2e9));
    assert_eq!((before.overview.ranks.len(), after.overview.ranks.len()), (1, 1));
    assert_eq!((before.series[0].key.device.raw(), after.series[0].key.device.raw()), ("GPU-a", "GPU-b"));
    assert_eq!(before.series[0].id, after.series[0].id);
    assert_eq!(before.overview.ranks[0].id(), after.overview.ranks[0].id());
}

#[test]
fn containers_with_the_same_pid_behind_one_address_are_rows_of_their_own() {
    let container = |host: &'static str, number: &'static str| {
        let own = [&DEVICE[..], &[("process", number), ("pid", "1"), ("host", host)]].concat();
        figure("process_info", &own, 1.0)
    };
    for (hosts, machines) in [(["one", "two"], 2), (["host", "host"], 1)] {
        let all = [container(hosts[0], ""), container(hosts[1], "2")];
        let Fleet { overview, series } = fleet(&all, &[], true);
        let [one, two] = &overview.ranks[..] else { panic!("{overview:#?}") };
        assert!(one.id() != two.id() && series[0].id != series[1].id && one.job != two.job, "{overview:#?}");
        assert_eq!((overview.nodes.len(), overview.nodes[two.node].host.raw()), (machines, hosts[1]));
    }
}

#[test]
fn an_alert_of_a_device_is_its_machines_and_no_ranks() {
    let alert = |device: &'static str, kind: &'static str, severity: &'static str| {
        let own = [("instance", "10.0.0.1:9477"), ("gpu_uuid", device), ("kind", kind), ("severity", severity)];
        figure("device_alert", &own, 1.0)
    };
    let ranks = [
        figure("allocated_bytes", &rank("0", "GPU-a", &[]), 1.0),
        figure("alert", &rank("0", "GPU-a", &[("kind", "growth"), ("severity", "info")]), 1.0),
    ];
    let devices = [
        alert("GPU-a", "stall", "of a later release"),
        alert("GPU-b", "idle-memory", "warning"),
        alert("GPU-b", "hardware", "info"),
    ];
    let Fleet { overview, .. } = fleet(&ranks, &devices, true);
    let title = |it: &Option<Concern>| it.as_ref().map(|worst| worst.title.clone());
    assert_eq!(title(&overview.nodes[0].worst).as_deref(), Some("idle-memory"));
    assert_eq!(title(&overview.ranks[0].worst).as_deref(), Some("growth"));
    assert_eq!((overview.nodes[0].devices, overview.jobs[0].findings.len()), (2, 1));
}

#[test]
fn alerts_are_of_ranks_jobs_and_machines_and_the_worst_comes_first() {
    let alert = |severity| [("kind", "growth"), ("cause", "graph-retained"), ("severity", severity)];
    let all = [
        figure("allocated_bytes", &rank("0", "GPU-a", &[]), 1.0),
        figure("allocated_bytes", &rank("1", "GPU-b", &[]), 1.0),
        figure("alert", &rank("1", "GPU-b", &alert("warning")), 1.0),
        figure("alert", &rank("1", "GPU-b", &alert("critical")), 1.0),
        figure("alert", &rank("0", "GPU-a", &alert("of a later release")), 1.0),
    ];
    let Fleet { overview, .. } = fleet(&all, &[], true);
    let titles: Vec<&str> = overview.jobs[0].findings.iter().map(|it| it.title.as_str()).collect();
    assert_eq!(titles, ["growth (graph-retained) on 1 rank"; 2]);
    assert_eq!(overview.jobs[0].findings[0].severity, Severity::Critical);
    assert_eq!(overview.nodes[0].worst.as_ref().unwrap().severity, Severity::Critical);
    assert_eq!((overview.nodes[0].host.raw(), overview.nodes[0].probes), ("10.0.0.1:9477", 2));
    assert_eq!(overview.rank_order(RankFigure::default()), [1, 0]);
    assert!(overview.ranks[0].worst.is_none());
}

#[test]
fn processes_without_a_run_are_jobs_of_their_own() {
    let process = |number: &'static str, pid: &'static str| {
        [&DEVICE[..], &[("process", number), ("pid", pid), ("host", "node1")]].concat()
    };
    let all = [figure("process_info", &process("", "7"), 1.0), figure("process_info", &process("2", "8"), 1.0)];
    let Fleet { overview, .. } = fleet(&all, &[], true);
    let names: Vec<&str> = overview.jobs.iter().map(|it| it.name.raw()).collect();
    assert_eq!(names, ["pid 7 on node1", "pid 8 on node1"]);
    let devices = [figure("device_memory_total_bytes", &DEVICE, 80e9)];
    assert_eq!(fleet(&[], &devices, true).overview.nodes.len(), 1);
    assert_eq!(fleet(&[], &devices, false).overview, Overview::default());
}
