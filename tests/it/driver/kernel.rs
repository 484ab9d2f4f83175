//! AMD's and Intel's devices, as the kernel's drivers show them: seven machines as trees of files, each with the
//! figures that are expected of it, and what happens to such a machine.
//!
//! A tree is a text: `[folder]`, then `name: content` and `name -> target` below it; `= pointer: value` is a figure of
//! `gpuwatch once --json`.

mod jobs;
mod peers;
mod trouble;

use crate::{
    driver::nvml::{Bench, events},
    helpers::terminal::{PATIENCE, PROGRAM, Terminal, until},
    house::{schemas, tidy::root},
};
use gpuwatch::facts::{
    event::{DeviceId, Event, Fact, ReadError},
    metrics::Reason,
};
use serde_json::Value;
use std::{
    ffi::OsString,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use tempfile::TempDir;

const MACHINES: [&str; 7] = ["mi300x", "mi300x-cpx", "mi210", "rx7900", "strix-halo", "arc", "xe"];

/// A machine whose files lie in a folder.
struct Machine {
    home: TempDir,
    expected: Vec<(String, Value)>,
}

impl Machine {
    fn new(name: &str) -> Self {
        let text = fs::read_to_string(root().join(format!("tests/it/driver/kernel/{name}.txt"))).unwrap();
        let mut machine = Self { home: tempfile::tempdir().unwrap(), expected: Vec::new() };
        let mut folder = machine.root();
        fs::create_dir_all(folder.join("proc")).unwrap();
        for line in text.lines().filter(|it| !it.starts_with('#')) {
            if let Some(it) = line.strip_prefix("= ") {
                let (pointer, value) = it.split_once(": ").unwrap();
                machine.expected.push((pointer.to_owned(), serde_json::from_str(value).unwrap()));
            } else if let Some(it) = line.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
                folder = machine.root().join(it);
            } else if let Some((name, target)) = line.split_once(" -> ") {
                symlink(target, made(&folder.join(name))).unwrap();
            } else if let Some((name, content)) = line.split_once(": ") {
                let content = content.replace("\\n", "\n").replace("\\t", "\t") + "\n";
                fs::write(made(&folder.join(name)), content).unwrap();
            } else {
                assert_eq!(line, "", "{name}");
            }
        }
        machine
    }

    fn root(&self) -> PathBuf {
        self.home.path().join("root")
    }

    /// Returns the folder of a card's device.
    fn device(&self, card: &str) -> PathBuf {
        fs::canonicalize(self.root().join("sys/class/drm").join(card).join("device")).unwrap()
    }

    fn environment(&self) -> Vec<(&'static str, OsString)> {
        vec![
            ("GPUWATCH_DRM_ROOT", self.root().into()),
            ("GPUWATCH_NVML_PATH", "/nonexistent/libnvidia-ml.so.1".into()),
            ("GPUWATCH_SOCKET_DIR", self.home.path().join("sockets").into()),
        ]
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).envs(self.environment()).stdin(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn printed(&self, arguments: &[&str]) -> String {
        String::from_utf8(self.command(arguments).output().unwrap().stdout).unwrap()
    }

    fn once(&self) -> Value {
        let once = serde_json::from_str(&self.printed(&["once", "--json"])).unwrap();
        schemas::check("once", &once);
        once
    }

    fn live(&self) -> Terminal {
        let environment: Vec<(&str, String)> =
            self.environment().into_iter().map(|(name, value)| (name, value.into_string().unwrap())).collect();
        let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Terminal::start(&[], &environment)
    }
}

/// Makes the folder of a file.
fn made(path: &Path) -> &Path {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    path
}

#[test]
fn each_machine_has_the_figures_that_are_expected_of_it() {
    for name in MACHINES {
        let machine = Machine::new(name);
        let once = machine.once();
        assert!(machine.expected.len() > 10, "{name}");
        for (pointer, value) in &machine.expected {
            assert_eq!(once.pointer(pointer).unwrap_or(&Value::Null), value, "{name}: {pointer} of {once:#}");
        }
        let sums = once["devices"].as_array().unwrap().iter().filter(|it| it["memory"].is_object());
        for device in sums {
            assert_eq!(device["ladder"]["sum"], device["memory"]["total"], "{name}: the rungs sum to the total");
        }
    }
}

#[test]
fn a_machine_without_nvidia_has_no_complaint_about_it() {
    let machine = Machine::new("mi300x");
    let text = machine.printed(&["once"]);
    assert!(text.starts_with("driver amdgpu 6.10.5\n"), "{text}");
    assert!(text.contains("AMD Instinct MI300X OAM") && !text.to_lowercase().contains("nvidia"), "{text}");
    let doctor = machine.command(&["doctor", "--json"]).env("LC_ALL", "C.UTF-8").output().unwrap();
    let doctor: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    schemas::check("doctor", &doctor);
    let check = |name: &str| doctor["checks"].as_array().unwrap().iter().find(|it| it["name"] == name).unwrap().clone();
    assert_eq!(check("driver")["what"], "AMD driver amdgpu 6.10.5 answers through /sys/class/drm");
    assert_eq!((&check("driver")["state"], &check("devices")["state"]), (&"ok".into(), &"ok".into()), "{doctor}");
    let terminal = machine.live();
    terminal.shows("Instinct MI300X");
    assert!(until(PATIENCE, || terminal.text().contains("amdgpu 6.10.5")), "{}", terminal.text());
    assert!(!terminal.text().to_lowercase().contains("nvidia"), "{}", terminal.text());
}

#[test]
fn the_doctor_knows_what_a_driver_never_reports() {
    let machine = Machine::new("arc");
    let doctor: Value = serde_json::from_str(&machine.printed(&["doctor", "--json"])).unwrap();
    let devices = doctor["checks"].as_array().unwrap().iter().find(|it| it["name"] == "devices").unwrap();
    assert_eq!(devices["state"], "warn", "{doctor}");
    assert!(devices["advice"].as_str().unwrap().contains("has no file with it"), "{doctor}");
}

#[test]
fn without_the_kernels_files_the_machine_is_as_it_was() {
    let machine = Machine::new("mi300x");
    let once: Value = serde_json::from_str(&machine.printed(&["once", "--json", "--no-drm"])).unwrap();
    assert_eq!((&once["devices"], &once["kernel_drivers"]), (&serde_json::json!([]), &Value::Null));
    assert!(once["driver"]["why"].as_str().unwrap().contains("GPUWATCH_NVML_PATH"));
}

#[test]
fn a_folder_for_the_kernels_files_that_is_not_there_is_named() {
    let machine = Machine::new("mi300x");
    let nowhere = machine.root().join("nowhere");
    let output = machine.command(&["once"]).env("GPUWATCH_DRM_ROOT", &nowhere).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(&format!("note: {} is no folder", nowhere.display())), "{text}");
}

#[test]
fn monitoring_systems_get_the_maker_of_each_driver() {
    let machine = Machine::new("mi300x");
    let file = machine.home.path().join("gpuwatch.prom");
    let mut server = machine.command(&["serve", "--textfile", file.to_str().unwrap()]).spawn().unwrap();
    let line = "gpuwatch_driver_up{maker=\"AMD\"} 1";
    let text = || fs::read_to_string(&file).unwrap_or_default();
    let is_there = until(PATIENCE, || text().contains(line));
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(is_there && !text().contains("gpuwatch_driver_up 0"), "{}", text());
}

/// Watches a machine with a recorder while something happens to it, until its facts are as expected.
fn recorded(machine: &Machine, happens: impl FnOnce(), is_done: impl Fn(&[Event]) -> bool) -> Vec<Event> {
    let file = machine.home.path().join("events.jsonl.zst");
    let mut recorder = machine.command(&["record", "-o", file.to_str().unwrap()]).spawn().unwrap();
    let memory = |it: &Event| matches!(it.fact, Fact::Memory { .. });
    let began = until(PATIENCE, || events(&file).iter().any(memory));
    happens();
    let done = until(PATIENCE, || is_done(&events(&file)));
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    let all = events(&file);
    assert!(began && done, "{all:#?}");
    schemas::check_recording(&file);
    all
}

#[test]
fn a_device_that_is_unplugged_is_gone_and_one_that_is_plugged_in_is_found() {
    let machine = Machine::new("mi300x");
    let link = machine.root().join("sys/class/drm/card1");
    let (device, aside) = (machine.device("card1"), machine.home.path().join("aside"));
    let gone =
        |all: &[Event]| all.iter().any(|it| matches!(&it.fact, Fact::DeviceGone { device } if is_second(device)));
    let target = fs::read_link(&link).unwrap();
    let unplug = || {
        fs::rename(&device, &aside).unwrap();
        fs::remove_file(&link).unwrap();
    };
    let all = recorded(&machine, unplug, gone);
    let lost = |it: &Event| matches!(&it.fact, Fact::Memory { reading: Err(why), .. } if *why != ReadError::Lost);
    assert!(!all.iter().any(lost), "what vanishes is lost, and nothing else");
    let found = |all: &[Event]| all.iter().any(|it| matches!(&it.fact, Fact::Device(it) if is_second(&it.id)));
    let plug = || {
        fs::rename(&aside, &device).unwrap();
        symlink(&target, &link).unwrap();
    };
    recorded(&machine, plug, found);
}

fn is_second(device: &DeviceId) -> bool {
    device.0 == "GPU-7c0de0a1b2c3d4e6"
}

#[test]
fn a_device_that_sleeps_is_not_read_and_says_so() {
    let machine = Machine::new("rx7900");
    fs::write(machine.device("card0").join("power/runtime_status"), "suspended\n").unwrap();
    let once = machine.once();
    let device = &once["devices"][0];
    assert_eq!(device["memory_trouble"], "suspended", "{once:#}");
    let text = machine.printed(&["once"]);
    assert!(text.contains("memory: suspended to save power; its figures return when something uses it"), "{text}");
    let doctor: Value = serde_json::from_str(&machine.printed(&["doctor", "--json"])).unwrap();
    let check = |name: &str| doctor["checks"].as_array().unwrap().iter().find(|it| it["name"] == name).unwrap().clone();
    assert_eq!((&check("devices")["state"], &check("processes")["state"]), (&"ok".into(), &"ok".into()), "{doctor}");
    assert_eq!((&device["metrics"], &device["processes"]), (&serde_json::json!({}), &Value::Null));
    let wake = || fs::write(machine.device("card0").join("power/runtime_status"), "active\n").unwrap();
    let read = |all: &[Event]| {
        let has_memory = all.iter().any(|it| matches!(&it.fact, Fact::Memory { reading: Ok(_), .. }));
        has_memory
            && all.iter().any(|it| matches!(&it.fact, Fact::Processes { reading: Ok(list), .. } if list.len() == 2))
    };
    recorded(&machine, wake, read);
}

#[test]
fn files_that_are_odd_or_closed_to_this_user_leave_figures_unknown() {
    let machine = Machine::new("mi210");
    let device = machine.device("card1");
    fs::write(device.join("mem_info_vram_used"), "N/A\n").unwrap();
    for (name, content) in [("mem_busy_percent", "101"), ("pp_dpm_sclk", "\u{1b}[31m*:"), ("ras", "no folder")] {
        fs::write(device.join(name), content).unwrap();
    }
    fs::write(device.join("hwmon/hwmon3/power1_average"), [0xFF, 0xFE, 0]).unwrap();
    fs::write(machine.root().join("proc/4000202/fdinfo/9"), vec![b'a'; 1 << 20]).unwrap();
    let once = machine.once();
    let device = &once["devices"][0];
    assert_eq!(device["memory_trouble"]["other"], "mem_info_vram_used has no number");
    for name in ["memory_percent", "power_mw", "sm_max_mhz", "ecc_errors"] {
        assert_eq!(device["metrics"][name], Value::Null, "{name}");
    }
    assert_eq!(device["metrics"]["celsius"], 35);
    let used: Vec<&Value> = device["processes"].as_array().unwrap().iter().map(|it| &it["used"]).collect();
    assert_eq!(used, [8_589_934_592_u64, 15_032_385_536], "KFD still knows its processes: {once:#}");
}

/// NVIDIA's devices come first, and the graphics of the processor are left out beside them.
#[test]
fn a_machine_with_two_makers_has_the_devices_of_both() {
    let (bench, machine) = (Bench::new(), Machine::new("mi300x"));
    let mut command = bench.command(&["once", "--json"]);
    command.env("GPUWATCH_NO_DRM", "0").env("GPUWATCH_DRM_ROOT", machine.root());
    let output = command.output().unwrap();
    let once: Value = serde_json::from_slice(&output.stdout).unwrap();
    schemas::check("once", &once);
    let devices: Vec<(&str, u64)> = once["devices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it["maker"].as_str().unwrap(), it["index"].as_u64().unwrap()))
        .collect();
    assert_eq!(devices, [("nvidia", 0), ("nvidia", 1), ("amd", 0), ("amd", 1)]);
    assert_eq!((&once["driver"]["state"], &once["kernel_drivers"]["amd"]["state"]), (&"up".into(), &"up".into()));

    let integrated = Machine::new("strix-halo");
    let bus = integrated.root().join("sys/bus/pci/devices/0000:01:00.0");
    fs::create_dir_all(&bus).unwrap();
    for (name, content) in [("vendor", "0x10de\n"), ("class", "0x030200\n")] {
        fs::write(bus.join(name), content).unwrap();
    }
    assert_eq!(integrated.once()["devices"], serde_json::json!([]));
    // The compute driver knows it, and a process that has nothing there.
    for (name, content) in [
        ("topology/nodes/1/gpu_id", "7777\n"),
        ("topology/nodes/1/properties", "location_id 50432\ndomain 0\ndrm_render_minor 128\n"),
        ("proc/4000401/vram_7777", "0\n"),
    ] {
        fs::write(made(&integrated.root().join("sys/class/kfd/kfd").join(name)), content).unwrap();
    }
    assert_eq!(integrated.once()["devices"], serde_json::json!([]));
    fs::write(integrated.root().join("sys/class/kfd/kfd/proc/4000401/vram_7777"), "25333596160\n").unwrap();
    let devices = &integrated.once()["devices"];
    assert_eq!(devices[0]["memory"]["total"], 133_680_857_088_u64, "a process computes there: {devices:#}");
    assert_eq!((&devices[0]["processes"][0]["used"], &devices[1]), (&25_338_839_040_u64.into(), &Value::Null));
}

/// Beside a card, the graphics of the processor are shown from the moment on at which a process computes there.
#[test]
fn integrated_graphics_beside_a_card_is_shown_once_a_process_computes_there() {
    let machine = Machine::new("rx7900");
    let kfd = machine.root().join("sys/class/kfd/kfd");
    for (place, gpu_id, minor) in [(1, 11, 128), (2, 12, 129)] {
        let node = kfd.join(format!("topology/nodes/{place}"));
        fs::write(made(&node.join("gpu_id")), format!("{gpu_id}\n")).unwrap();
        fs::write(node.join("properties"), format!("drm_render_minor {minor}\n")).unwrap();
    }
    let is_integrated = |it: &Event| matches!(&it.fact, Fact::Device(it) if it.id.0 == "PCI-0000:0c:00.0");
    let computes = || fs::write(made(&kfd.join("proc/4000302/vram_12")), "1073741824\n").unwrap();
    let all = recorded(&machine, computes, |all| all.iter().any(is_integrated));
    let first = all.iter().position(is_integrated).unwrap();
    let before = all[..first].iter().filter(|it| matches!(it.fact, Fact::Device(_))).count();
    assert_eq!(before, 1, "until then, the card alone is there: {all:#?}");
    assert!(!all.iter().any(|it| matches!(it.fact, Fact::DeviceGone { .. })));
    assert_eq!(machine.once()["devices"].as_array().unwrap().len(), 2);
}

/// Reasons for lower clocks have the names that those of NVIDIA's driver have, whatever a maker calls them.
#[test]
fn the_reasons_for_lower_clocks_of_every_driver_have_the_same_names() {
    let reasons = |machine: &Machine| {
        let bits = machine.once()["devices"][0]["metrics"]["throttle_reasons"].as_u64();
        bits.map(|it| Reason::of(it).map(|reason| reason.words).collect::<Vec<_>>())
    };
    let amd = Machine::new("rx7900");
    assert_eq!(reasons(&amd), None, "without a table, nothing is known");
    let mut table = [0_u8; 120];
    table[..4].copy_from_slice(&[120, 0, 1, 3]);
    for (status, words) in [
        (0_u64, vec![]),
        (1 << 2, vec!["power cap"]),
        (1 << 36 | 1 << 22, vec!["thermal slowdown", "power cap"]),
        (1 << 47, vec!["hardware thermal slowdown"]),
        (1 << 57, vec![]),
    ] {
        table[112..].copy_from_slice(&status.to_le_bytes());
        fs::write(amd.device("card0").join("gpu_metrics"), table).unwrap();
        assert_eq!(reasons(&amd), Some(words), "{status:#x}");
    }
    for (name, folder, begin, overall) in [
        ("xe", "tile0/gt0/freq0/throttle", "reason_", "status"),
        ("arc", "drm/card1/gt/gt0", "throttle_reason_", "throttle_reason_status"),
    ] {
        let machine = Machine::new(name);
        assert_eq!(reasons(&machine), None, "{name}");
        let card = if name == "xe" { "card0" } else { "card1" };
        let set = |file: &str, value: u8| {
            let path = machine.device(card).join(folder).join(file);
            fs::write(made(&path), format!("{value}\n")).unwrap();
        };
        let reason = |file: &str, value| set(&format!("{begin}{file}"), value);
        set(overall, 0);
        reason("pl1", 1);
        assert_eq!(reasons(&machine), Some(vec![]), "{name}: the status says that nothing limits it");
        set(overall, 1);
        assert_eq!(reasons(&machine), Some(vec!["power cap"]), "{name}");
        reason("thermal", 1);
        reason("pl1", 0);
        reason("prochot", 0);
        assert_eq!(reasons(&machine), Some(vec!["thermal slowdown"]), "{name}");
        reason("prochot", 1);
        assert_eq!(reasons(&machine), Some(vec!["hardware thermal slowdown", "thermal slowdown"]), "{name}");
    }
}

#[test]
fn recordings_of_nvidia_alone_have_no_word_of_makers() {
    let bench = Bench::new();
    let file = bench.home().join("nvidia.jsonl.zst");
    let mut recorder = bench.command(&["record", "-o", file.to_str().unwrap()]).spawn().unwrap();
    let is_there = until(PATIENCE, || events(&file).iter().any(|it| matches!(it.fact, Fact::Device(_))));
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    assert!(is_there);
    let lines = events(&file).into_iter().map(|it| {
        let mut line = String::new();
        gpuwatch::storage::recording::encode(&it, &mut line);
        line
    });
    assert!(!lines.collect::<String>().contains("maker"));
}
