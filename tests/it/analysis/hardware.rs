//! Findings of the hardware, from the driver's metrics of a device that a job trains on: raised when they last,
//! resolved when they are gone, and none of a healthy device.

use crate::{
    commands::check,
    driver::nvml::{Bench, device_metrics},
    helpers::story::{GIB, Story, counters, device, picture, text},
};
use ::simgpu::Fault;
use gpuwatch::{
    facts::{
        event::Fact,
        metrics::{
            Changes,
            Metric::{
                self, GpuPercent, PcieGeneration, PcieGenerationMax, PcieWidth, PcieWidthMax, RowsPending,
                RowsUncorrected, SmMaxMhz, SmMhz, ThrottleReasons,
            },
        },
    },
    model::{
        alerts::Policy,
        analysis::{cause::Cause, severity::Severity},
        findings::{Finding, Kind, findings},
    },
    screen::{
        theme::Theme,
        ui::{Screen, Ui},
    },
    storage::recording::{Closed, encode, encode_closed},
};

/// A job that trains on a healthy device for a few seconds.
fn job() -> Story {
    let mut story = Story::default();
    story.device(0, 40 * GIB, &[(4242, 33 * GIB)]).probe(0, 4242, 0, None);
    go_on(&mut story, 5, &[]);
    story
}

/// So many more seconds with a step each, and these metrics.
fn go_on(story: &mut Story, seconds: u64, metrics: &[(Metric, u64)]) {
    let changes: Changes = metrics.iter().copied().collect();
    story.add(Fact::Metrics { device: device(0), changes });
    for _ in 0..seconds {
        story.wait(1_000_000);
        let step = story.now / 1_000_000;
        story.sample(0, step, counters(30 * GIB, 2 * GIB)).add(Fact::Second);
        if step.is_multiple_of(60) {
            story.add(Fact::Metrics { device: device(0), changes: Changes::default() });
        }
    }
}

fn found(story: &Story) -> Vec<Finding> {
    findings(&story.session()).all.into_iter().filter(|it| it.kind == Kind::Hardware).collect()
}

type Reported = &'static [(Metric, u64)];

/// Each cause: what the driver reports, and what it reports of a healthy device.
const CAUSES: [(Cause, Severity, Reported, Reported); 6] = [
    (Cause::ThermalThrottling, Severity::Warning, &[(ThrottleReasons, 0x20)], &[(ThrottleReasons, 0)]),
    (Cause::PowerBrake, Severity::Warning, &[(ThrottleReasons, 0x88)], &[(ThrottleReasons, 0)]),
    (Cause::PowerThrottling, Severity::Info, &[(ThrottleReasons, 4), (SmMhz, 900)], &[(SmMhz, 1900)]),
    (Cause::DegradedLink, Severity::Warning, &[(PcieWidth, 8)], &[(PcieWidth, 16)]),
    (Cause::DegradedLink, Severity::Warning, &[(PcieGeneration, 3)], &[(PcieGeneration, 5)]),
    (Cause::RowsPending, Severity::Warning, &[(RowsPending, 1), (RowsUncorrected, 2)], &[(RowsPending, 0)]),
];

#[test]
fn each_fault_is_one_finding_until_it_is_gone() {
    for (cause, severity, planted, healthy) in CAUSES {
        let mut story = job();
        go_on(&mut story, 70, planted);
        let all = found(&story);
        let [it] = all.as_slice() else { panic!("{cause:?}: {all:?}") };
        assert_eq!((it.cause, it.severity, it.is_active()), (cause, severity, true));
        assert_eq!((it.pid, it.device.as_ref()), (Some(4242), Some(&device(0))));
        go_on(&mut story, 300, planted);
        assert_eq!(found(&story).len(), 1, "{cause:?} is raised once");
        go_on(&mut story, 130, healthy);
        let all = found(&story);
        assert_eq!((all.len(), all[0].is_active(), all[0].severity), (1, false, Severity::Info), "{cause:?}");
    }
}

/// A recording has no ticks: its seconds follow from its stamps.
#[test]
fn a_recording_of_each_fault_fails_its_check_and_a_healthy_one_passes() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("run.jsonl.zst");
    let judged = |story: &Story, fail_on: &str| {
        let mut lines = vec![check::header()];
        for event in &story.events {
            let mut line = String::new();
            encode(event, &mut line);
            lines.push(line);
        }
        lines.push(encode_closed(&Closed { at_us: story.events.last().unwrap().at, lost: 0 }));
        check::write(&file, &lines);
        check::judged(&file, &["--fail-on", fail_on])
    };
    for (cause, severity, planted, healthy) in CAUSES {
        let mut story = job();
        go_on(&mut story, 70, healthy);
        assert_eq!(judged(&story, "hardware").0, 0, "{cause:?}");
        go_on(&mut story, 70, planted);
        let (code, json) = judged(&story, "hardware");
        assert_eq!((code, &json["findings"][0]["cause"]), (1, &cause.id().into()), "{json:#}");
        assert_eq!(judged(&story, "warning").0, i32::from(severity >= Severity::Warning), "{cause:?}");
        assert_eq!(judged(&story, "growth,oom").0, 0, "{cause:?}");
    }
}

#[test]
fn a_finding_of_hardware_is_shown_with_figures_and_can_be_allowed() {
    let mut story = job();
    go_on(&mut story, 70, &[(PcieWidth, 8), (PcieGeneration, 4)]);
    let all = found(&story);
    assert_eq!(all[0].evidence.words(), ["75 % of the bandwidth missing"]);
    assert_eq!(all[0].json()["cause"], "degraded-link");
    let ui = Ui { screen: Screen::Alerts, ..Ui::default() };
    let shown = text(&picture(&story.session(), &ui, &Theme::builtin("dusk").unwrap(), 120, 40));
    for words in ["hardware, degraded-link", "75 % of the bandwidth missing", "reseat the device"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    for name in ["hardware", "degraded-link"] {
        let policy = Policy { allow: vec![gpuwatch::model::alerts::Name::read(name).unwrap()], ..Policy::default() };
        assert!(policy.findings(&story.session()).all.iter().all(Finding::is_allowed), "{name}");
    }
}

#[test]
fn an_hour_of_a_healthy_device_raises_nothing() {
    let mut story = job();
    // At its power limit; idle, with its clocks and its link lowered; hot for moments; at work again.
    let power_cap = [(ThrottleReasons, 4), (SmMhz, 1700), (SmMaxMhz, 1980)];
    let idle = [(GpuPercent, 0), (ThrottleReasons, 1), (SmMhz, 345), (PcieGeneration, 1), (PcieGenerationMax, 5)];
    let work = [(GpuPercent, 97), (ThrottleReasons, 0), (SmMhz, 1980), (PcieGeneration, 5), (PcieWidthMax, 16)];
    for _ in 0..10 {
        go_on(&mut story, 180, &power_cap);
        go_on(&mut story, 100, &idle);
        go_on(&mut story, 50, &work);
        go_on(&mut story, 30, &[(ThrottleReasons, 0x20)]);
    }
    assert!(found(&story).is_empty(), "{:?}", found(&story));
}

#[test]
fn of_several_processes_on_a_device_one_reports_it() {
    let mut story = job();
    story.probe(1, 4243, 0, None);
    for _ in 0..70 {
        story.sample(1, story.now / 1_000_000, counters(GIB, GIB));
        go_on(&mut story, 1, &[(ThrottleReasons, 0x40)]);
    }
    assert_eq!(found(&story).iter().map(|it| it.pid).collect::<Vec<_>>(), [Some(4242)]);
}

/// From the driver's calls to the finding.
#[test]
fn a_fault_of_the_simulated_machine_is_a_finding_of_its_job() {
    let bench = Bench::new();
    let cases = [
        (Cause::ThermalThrottling, "answer=64 nvmlDeviceGetCurrentClocksThrottleReasons"),
        (Cause::DegradedLink, "answer=4 nvmlDeviceGetCurrPcieLinkWidth"),
        (Cause::RowsPending, "answer=1 nvmlDeviceGetFieldValues:144"),
    ];
    for (cause, fault) in cases {
        let mut story = job();
        story.add(Fact::Metrics { device: device(0), changes: device_metrics(&bench, &[]) });
        go_on(&mut story, 70, &[]);
        assert!(found(&story).is_empty(), "{cause:?}: {:?}", found(&story));
        let changes = device_metrics(&bench, &[Fault::Line(fault.to_owned())]);
        story.add(Fact::Metrics { device: device(0), changes });
        go_on(&mut story, 70, &[]);
        assert_eq!(found(&story).iter().map(|it| it.cause).collect::<Vec<_>>(), [cause]);
    }
}
