//! Devices that the driver counts and does not identify: each is shown at its place, with its error.

use super::{Bench, events, live, shows};
use crate::{
    helpers::terminal::{PATIENCE, until},
    serve::Server,
};
use ::simgpu::Fault;
use gpuwatch::facts::event::{Event, Fact};
use serde_json::Value;
use std::process::{Output, Stdio};

/// How the driver refuses device 1, the trouble of `once --json`, and its words.
fn refusals() -> [(Fault, Value, &'static str); 4] {
    let line = |it: &str| Fault::Line(it.to_owned());
    let unknown = "an internal driver error occurred";
    [
        (line("lost * 1"), "lost".into(), "the device fell off the bus"),
        (line("no-permission nvmlDeviceGetHandleByIndex_v2 1"), "no_permission".into(), "no permission"),
        (line("no-permission nvmlDeviceGetUUID 1"), "no_permission".into(), "no permission"),
        (line("unknown nvmlDeviceGetUUID 1"), serde_json::json!({ "other": unknown }), unknown),
    ]
}

fn output(bench: &Bench, arguments: &[&str]) -> Output {
    bench.command(arguments).output().unwrap()
}

#[test]
fn a_device_that_was_lost_before_is_reported_at_its_place_with_its_error() {
    let bench = Bench::new();
    for (fault, trouble, words) in refusals() {
        let reported = bench.once(std::slice::from_ref(&fault));
        let [well, lost] = &reported["devices"].as_array().unwrap()[..] else { panic!("{fault:?}: {reported:#}") };
        assert_eq!((&well["index"], &lost["index"], &lost["gone"]), (&0.into(), &1.into(), &false.into()));
        assert_eq!((&lost["memory_trouble"], &lost["processes_trouble"]), (&trouble, &trouble), "{fault:?}");
        assert_eq!((&lost["memory"], &lost["ladder"]["total"]), (&Value::Null, &Value::Null));
        assert!(well["memory"]["total"].as_u64() > Some(0), "the other one is read: {reported:#}");
        let text = String::from_utf8(output(&bench, &["once"]).stdout).unwrap();
        let own = text.split_once("\ndevice 1  ").map_or_else(|| panic!("{fault:?}: {text}"), |it| it.1);
        assert!(own.contains(&format!("memory: {words}")), "{fault:?}: {text}");

        let doctor = output(&bench, &["doctor"]);
        let text = String::from_utf8(doctor.stdout).unwrap();
        assert!(text.contains(&format!("1 of 2: GPU 1: {words}")), "{fault:?}: {text}");
        assert_eq!(doctor.status.code(), Some(1));
    }
    let text = String::from_utf8(output(&bench, &["once"]).stdout).unwrap();
    assert!(text.contains("device 1  NVIDIA A10  "), "with a handle, it has a name: {text}");
}

#[test]
fn a_lost_device_is_on_the_screen_and_is_itself_when_it_returns() {
    let bench = Bench::new();
    bench.machine.set_faults(&[Fault::Line("lost * 1".into())]).unwrap();
    let mut terminal = live(&bench);
    terminal.shows("NVIDIA H200");
    let words = "GPU 1 memory: the device fell off the bus; see dmesg";
    assert!(until(PATIENCE, || shows(&terminal, words)), "also where another is selected: {}", terminal.text());
    assert!(until(PATIENCE, || shows(&terminal, " 1 – –")), "{}", terminal.text());
    bench.machine.set_faults(&[]).unwrap();
    assert!(until(PATIENCE, || shows(&terminal, "NVIDIA A10")), "{}", terminal.text());
    assert!(until(PATIENCE, || !shows(&terminal, words) && !shows(&terminal, "lost")), "{}", terminal.text());
    terminal.press("q");
    assert_eq!(terminal.ends(PATIENCE), 0);
}

#[test]
fn an_exporter_has_an_error_for_a_lost_device() {
    let bench = Bench::new();
    for (fault, reason) in [("lost * 1", "lost"), ("no-permission nvmlDeviceGetUUID 1", "no_permission")] {
        bench.machine.set_faults(&[Fault::Line(fault.into())]).unwrap();
        let mut command = bench.command(&["serve", "--metrics", "127.0.0.1:0"]);
        command.stderr(Stdio::piped());
        let server = Server::of(command);
        let row = |text: &str| {
            let mut rows = text.lines().filter(|it| it.starts_with("gpuwatch_device_error{"));
            rows.find(|it| it.contains("index=\"1\"") && it.ends_with(" 1")).map(str::to_owned)
        };
        assert!(until(PATIENCE, || row(&server.scrape()).is_some()), "{fault}: {}", server.scrape());
        let (row, all) = (row(&server.scrape()).unwrap(), server.scrape());
        assert!(row.contains(&format!("reason=\"{reason}\"")), "{row}");
        assert_eq!(all.lines().filter(|it| it.starts_with("gpuwatch_device_error{")).count(), 1, "{all}");
        server.end();
    }
}

/// The driver is opened again after it returned no list, and then knows nothing of the devices before.
#[test]
fn a_device_that_is_lost_while_the_driver_is_away_keeps_its_name() {
    let bench = Bench::new();
    let uuid = bench.machine.cards().unwrap()[1].uuid.clone();
    let file = bench.home().join("lost.jsonl.zst");
    bench.machine.set_faults(&[]).unwrap();
    let mut recorder = bench.command(&["record", "-o", file.to_str().unwrap()]).spawn().unwrap();
    let has = |wanted: &dyn Fn(&Fact) -> bool| events(&file).iter().any(|it: &Event| wanted(&it.fact));
    let is_well = |it: &Fact| matches!(it, Fact::Memory { device, reading: Ok(_) } if device.0 == uuid);
    assert!(until(PATIENCE, || has(&is_well)));
    bench.machine.set_faults(&[Fault::Mismatch]).unwrap();
    assert!(until(PATIENCE, || has(&super::faults::reports_absence)));
    bench.machine.set_faults(&[Fault::Line("lost * 1".into())]).unwrap();
    let is_lost = |it: &Fact| matches!(it, Fact::Memory { device, reading: Err(_) } if device.0 == uuid);
    assert!(until(PATIENCE, || has(&is_lost)), "{:#?}", events(&file));
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    let gone: Vec<Fact> = events(&file).into_iter().map(|it| it.fact).collect();
    assert!(!gone.iter().any(|it| matches!(it, Fact::DeviceGone { .. })), "{gone:#?}");
    assert!(!gone.iter().any(|it| matches!(it, Fact::Device(it) if it.id.is_by_index())), "{gone:#?}");
}
