//! Faults on demand: the next reading reports each; the screen shows and explains it until it is over.
//!
//! `GPUWATCH_BENCHMARK=full cargo test --test it nvml::faults -- --nocapture` also holds the screen to its time.

use super::{Bench, events, live, shows};
use crate::helpers::terminal::{PATIENCE, until};
use ::simgpu::Fault;
use gpuwatch::{
    facts::{
        event::{DriverState, Event, Fact, ReadError},
        units::Stamp,
    },
    sources,
};
use std::{
    thread,
    time::{Duration, Instant},
};

/// The longest that a fault may stay off the screen on an idle machine: a reading comes once a second.
const SEEN: Duration = Duration::from_secs(2);

/// Faults that follow each other on one machine.
const GROUP: usize = 2;

/// A call has not stalled before that.
const STALLED: Duration = Duration::from_millis(750);

/// Faults and the words for them.
type Worded<'a> = (Fault, &'a str);

/// The faults in groups, each on a machine and a screen of its own at the same time: most of this is waiting.
fn suffer(faults: &[Worded]) -> Vec<Duration> {
    thread::scope(|scope| {
        let groups: Vec<_> = faults.chunks(GROUP).map(|group| scope.spawn(|| suffer_in_turn(group))).collect();
        groups.into_iter().flat_map(|it| it.join().unwrap()).collect()
    })
}

/// Each fault is on the screen in words that name the next step, and off it again when the fault is gone; how soon.
fn suffer_in_turn(faults: &[Worded]) -> Vec<Duration> {
    let mut delays = Vec::new();
    let bench = Bench::new();
    bench.machine.set_faults(&[]).unwrap();
    let mut terminal = live(&bench);
    for phrase in ["NVIDIA H200", "NVIDIA A10", "gpuwatch run -- python -c 'read end'"] {
        terminal.shows(phrase);
    }
    for (fault, phrase) in faults {
        bench.machine.set_faults(std::slice::from_ref(fault)).unwrap();
        let begun = Instant::now();
        assert!(until(PATIENCE, || shows(&terminal, phrase)), "{fault:?}: no {phrase:?} on\n{}", terminal.text());
        let (took, most) = (begun.elapsed(), if matches!(fault, Fault::Stall(_)) { SEEN + STALLED } else { SEEN });
        assert!(took < most || !test_tiers::is_benchmark(), "{fault:?} was seen after {took:?}");
        delays.push(took);
        bench.machine.set_faults(&[]).unwrap();
        assert!(until(PATIENCE, || !shows(&terminal, phrase)), "{fault:?} lasts on\n{}", terminal.text());
        assert!(until(PATIENCE, || shows(&terminal, "5.00 GiB")), "{fault:?}: no figures on\n{}", terminal.text());
    }
    terminal.press("q");
    assert_eq!(terminal.ends(PATIENCE), 0);
    delays
}

#[test]
fn faults_of_a_device_are_seen_explained_and_recovered_from() {
    let delays = suffer(&[
        (Fault::Line("lost * 0".into()), "fell off the bus; see dmesg"),
        (Fault::Line("no-permission nvmlDeviceGetMemoryInfo_v2".into()), "run as root, or let the administrator"),
        (Fault::Line("no-function nvmlDeviceGetMemoryInfo*".into()), "memory: this device or driver does not have it"),
        (Fault::NoProcessMemory, "does not say what its processes use"),
        (
            Fault::Line("no-function nvmlDeviceGetComputeRunningProcesses*".into()),
            "process list: this device or driver",
        ),
        (Fault::Gone(0), "gone from the driver's list"),
        (Fault::Mig(0, 2), "look at these, each has its own"),
    ]);
    println!("on the screen after {delays:?}");
}

#[test]
fn faults_of_the_driver_are_seen_explained_and_recovered_from() {
    let delays = suffer(&[
        (Fault::Stall(Duration::from_secs(2)), "see whether nvidia-smi hangs too"),
        (Fault::NoPermission, "see the modes of /dev/nvidia*"),
        (Fault::Mismatch, "reload it or reboot"),
        (Fault::Lost, "does not answer"),
    ]);
    println!("on the screen after {delays:?}");
}

#[test]
fn a_device_that_appears_is_listed_and_its_critical_errors_are_reported() {
    let bench = Bench::new();
    bench.machine.set_faults(&[Fault::Gone(1)]).unwrap();
    let terminal = live(&bench);
    terminal.shows("NVIDIA H200");
    assert!(!terminal.text().contains("NVIDIA A10"));
    bench.machine.set_faults(&[]).unwrap();
    terminal.shows("NVIDIA A10");
    bench.machine.set_faults(&[Fault::Xid(1, 79)]).unwrap();
    let phrase = "GPU 1 (NVIDIA A10) reports Xid 79, the device has fallen off the bus: drain";
    assert!(until(PATIENCE, || shows(&terminal, phrase)), "{}", terminal.text());
}

/// Whether a device's memory is reported completely.
fn is_well(fact: &Fact, id: &str) -> bool {
    matches!(fact, Fact::Memory { device, reading: Ok(it) } if device.0 == id && it.reserved.is_some())
}

fn refuses_memory(fact: &Fact, trouble: &ReadError) -> bool {
    matches!(fact, Fact::Memory { reading: Err(it), .. } if it == trouble)
}

fn refuses_processes(fact: &Fact, trouble: &ReadError) -> bool {
    matches!(fact, Fact::Processes { reading: Err(it), .. } if it == trouble)
}

pub(super) fn reports_absence(fact: &Fact) -> bool {
    matches!(fact, Fact::Driver(DriverState::Absent { .. }))
}

type AlertOutputs = fn(&Fact) -> bool;

/// Returns faults, each with a test for the events that report it.
fn fault_events() -> Vec<(Fault, AlertOutputs)> {
    let line = |it: &str| Fault::Line(it.into());
    vec![
        (line("lost * 0"), |it| refuses_memory(it, &ReadError::Lost)),
        (line("no-permission nvmlDeviceGetMemoryInfo_v2"), |it| refuses_memory(it, &ReadError::NoPermission)),
        (line("no-function nvmlDeviceGetMemoryInfo*"), |it| refuses_memory(it, &ReadError::NotSupported)),
        (Fault::NoMemoryV2, |it| matches!(it, Fact::Memory { reading: Ok(it), .. } if it.reserved.is_none())),
        (line("no-function nvmlDeviceGetComputeRunningProcesses*"), |it| {
            refuses_processes(it, &ReadError::NotSupported)
        }),
        (
            Fault::NoProcessMemory,
            |it| matches!(it, Fact::Processes { reading: Ok(it), .. } if it.iter().any(|process| process.used.is_none())),
        ),
        (Fault::Mig(0, 2), |it| matches!(it, Fact::Device(it) if it.parent.is_some())),
        (Fault::Gone(1), |it| matches!(it, Fact::DeviceGone { .. })),
        (Fault::Xid(0, 48), |it| matches!(it, Fact::Notice(it) if it.raw().contains("Xid 48"))),
        (Fault::Mismatch, reports_absence),
        (Fault::NoPermission, reports_absence),
        (Fault::Lost, reports_absence),
        (Fault::Stall(Duration::from_secs(2)), |it| matches!(it, Fact::Driver(DriverState::Stalled { .. }))),
    ]
}

#[test]
fn each_fault_and_its_end_are_reported_within_a_second_of_readings() {
    let all = fault_events();
    thread::scope(|scope| {
        let groups: Vec<_> = all.chunks(GROUP).map(|group| scope.spawn(|| are_reported(group))).collect();
        for it in groups {
            it.join().unwrap();
        }
    });
}

/// In readings, of which a loaded machine makes none more: a recorder reads memory twice a second, and lists once.
fn are_reported(faults: &[(Fault, AlertOutputs)]) {
    let bench = Bench::new();
    let ids: Vec<String> = bench.machine.cards().unwrap().into_iter().map(|it| it.uuid).collect();
    let file = bench.home.path().join("faults.jsonl.zst");
    bench.machine.set_faults(&[]).unwrap();
    let mut recorder = bench.command(&["record", "-o", file.to_str().unwrap()]).spawn().unwrap();
    let since = |from: Stamp| events(&file).into_iter().filter(move |it| it.at > from).collect::<Vec<_>>();
    let readings = |reported: &[Event], end: &dyn Fn(&Fact) -> bool| {
        let before = reported.iter().take_while(|it| !end(&it.fact));
        before.filter(|it| matches!(&it.fact, Fact::Memory { device, .. } if device.0 == ids[0])).count()
    };
    assert!(until(PATIENCE, || since(Stamp(0)).iter().any(|it| is_well(&it.fact, &ids[0]))));
    for (fault, reports) in faults {
        bench.machine.set_faults(std::slice::from_ref(fault)).unwrap();
        let begun = sources::now();
        assert!(until(PATIENCE, || since(begun).iter().any(|it| reports(&it.fact))), "{fault:?}: {:#?}", since(begun));
        let reported = since(begun);
        assert!(readings(&reported, reports) <= 2, "{fault:?} was reported after more: {reported:#?}");
        let stalled = reported.iter().find_map(|it| match it.fact {
            Fact::Driver(DriverState::Stalled { since }) => Some(it.at.since(since)),
            _ => None,
        });
        assert!(!matches!(fault, Fault::Stall(_)) || stalled.is_some(), "{reported:#?}");
        assert!(stalled.is_none_or(|it| it >= 750_000), "the call began {stalled:?} µs before");
        bench.machine.set_faults(&[]).unwrap();
        let over = sources::now();
        let is_over = |reported: &[Event]| {
            let well = |id: &str| reported.iter().any(|it| is_well(&it.fact, id));
            ids.iter().all(|it| well(it))
                && reported
                    .iter()
                    .rev()
                    .find(|it| matches!(it.fact, Fact::Driver(_)))
                    .is_none_or(|it| !reports_absence(&it.fact))
        };
        assert!(until(PATIENCE, || is_over(&since(over))), "{fault:?} lasts on: {:#?}", since(over));
    }
    recorder.kill().unwrap();
    recorder.wait().unwrap();
}
