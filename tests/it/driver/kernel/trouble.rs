//! Drivers that hang, files that are closed to a user, and a device that is unplugged: what gpuwatch says of it, and
//! that everything else goes on.

use super::{Machine, recorded};
use crate::{
    driver::nvml::events,
    helpers::terminal::{PATIENCE, PROGRAM, until},
    house::schemas,
};
use gpuwatch::facts::event::{DriverState, Event, Fact};
use serde_json::Value;
use std::{
    fs::{self, File, Permissions},
    io::Write,
    os::unix::{
        fs::{PermissionsExt, symlink},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
};

/// A FIFO in the place of a file: whoever reads it waits, as for a driver that resets its device.
struct Stuck(PathBuf);

impl Stuck {
    fn at(path: PathBuf) -> Self {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // Whoever has the file open reads on.
        let fifo = path.with_extension("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        fs::rename(fifo, &path).unwrap();
        Self(path)
    }

    /// Answers those who wait and those who read it later.
    fn answers(self, content: &str) {
        // An open for reading and writing waits for nobody, and lets readers go on.
        let mut pipe = File::options().read(true).write(true).open(&self.0).unwrap();
        let file = self.0.with_extension("file");
        fs::write(&file, content).unwrap();
        fs::rename(file, &self.0).unwrap();
        pipe.write_all(content.as_bytes()).unwrap();
    }
}

/// The states of the kernel's driver, in order.
fn states(all: &[Event]) -> Vec<DriverState> {
    let state = |it: &Event| if let Fact::KernelDriver { state, .. } = &it.fact { Some(state.clone()) } else { None };
    all.iter().filter_map(state).collect()
}

fn is_stalled(all: &[Event]) -> bool {
    matches!(states(all)[..], [.., DriverState::Stalled { .. }])
}

fn is_up_again(all: &[Event]) -> bool {
    let states = states(all);
    let stalled = states.iter().position(|it| matches!(it, DriverState::Stalled { .. }));
    stalled.is_some_and(|at| matches!(states[at..], [.., DriverState::Up { .. }]))
}

/// Watches a machine with a recorder while a file hangs from the beginning, and then answers.
fn through_a_stall(machine: &Machine, stuck: Stuck, content: &str, is_done: impl Fn(&[Event]) -> bool) -> Vec<Event> {
    let file = machine.home.path().join("stall.jsonl.zst");
    let mut recorder = machine.command(&["record", "-o", file.to_str().unwrap()]).spawn().unwrap();
    let goes_on = |all: &[Event]| all.iter().any(|it| matches!(it.fact, Fact::HostMemory(_)));
    let stalled = until(PATIENCE, || is_stalled(&events(&file)) && goes_on(&events(&file)));
    stuck.answers(content);
    let done = until(PATIENCE, || is_up_again(&events(&file)) && is_done(&events(&file)));
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    let all = events(&file);
    assert!(stalled && done, "{:?}", states(&all));
    schemas::check_recording(&file);
    all
}

fn has_memory(all: &[Event]) -> bool {
    all.iter().any(|it| matches!(&it.fact, Fact::Memory { reading: Ok(_), .. }))
}

#[test]
fn a_driver_that_hangs_at_the_first_look_stops_nothing() {
    let machine = Machine::new("rx7900");
    let stuck = Stuck::at(machine.device("card0").join("unique_id"));
    let once = machine.once();
    assert_eq!(once["kernel_drivers"]["amd"]["state"], "stalled", "{once:#}");
    assert!(once["host_memory"].is_object() && once["devices"] == serde_json::json!([]), "{once:#}");
    let mut terminal = machine.live();
    terminal.shows("the driver has not answered for");
    terminal.press("?");
    terminal.shows("this help");
    terminal.press("?");
    terminal.hides("this help");
    terminal.press("q");
    assert_eq!(terminal.ends(PATIENCE), 0);
    let all = through_a_stall(&machine, stuck, "b85e402c0fb3757f\n", has_memory);
    assert!(all.iter().any(|it| matches!(&it.fact, Fact::Device(it) if it.id.0 == "GPU-b85e402c0fb3757f")));
}

#[test]
fn a_driver_that_hangs_in_any_of_its_files_says_so_and_recovers() {
    let device = "sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0/0000:02:00.0/0000:03:00.0";
    for (file, content) in [
        ("power/runtime_status", "active\n"),
        ("mem_info_vram_used", "6812925952\n"),
        ("gpu_metrics", "\n"),
        ("hwmon/hwmon2/temp1_label", "edge\n"),
        ("/proc/4000302/fdinfo/20", "drm-driver:\tamdgpu\n"),
    ] {
        let machine = Machine::new("rx7900");
        let path = file.strip_prefix('/').map_or_else(|| format!("{device}/{file}"), str::to_owned);
        let stuck = Stuck::at(machine.root().join(path));
        let all = through_a_stall(&machine, stuck, content, has_memory);
        assert!(all.iter().any(|it| matches!(it.fact, Fact::Device(_))), "{file}");
    }
}

#[test]
fn a_driver_that_hangs_when_a_device_is_plugged_in_says_so_and_recovers() {
    let machine = Machine::new("mi300x");
    let link = machine.root().join("sys/class/drm/card1");
    let target = fs::read_link(&link).unwrap();
    let serial = machine.device("card1").join("unique_id");
    fs::remove_file(&link).unwrap();
    let file = machine.home.path().join("plugged.jsonl.zst");
    let mut recorder = machine.command(&["record", "-o", file.to_str().unwrap()]).spawn().unwrap();
    let began = until(PATIENCE, || has_memory(&events(&file)));
    let stuck = Stuck::at(serial);
    symlink(target, &link).unwrap();
    let stalled = until(PATIENCE, || is_stalled(&events(&file)));
    stuck.answers("7c0de0a1b2c3d4e6\n");
    let second = |it: &Event| matches!(&it.fact, Fact::Memory { device, .. } if device.0 == "GPU-7c0de0a1b2c3d4e6");
    let found = until(PATIENCE, || events(&file).iter().any(second) && is_up_again(&events(&file)));
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    assert!(began && stalled && found, "{:?}", states(&events(&file)));
}

/// Closes a file or a folder to everybody but root.
fn close(path: &Path) {
    fs::set_permissions(path, Permissions::from_mode(0o000)).unwrap();
}

/// Lets other users reach a folder and what is in it.
fn open(folder: &Path) {
    fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
    for entry in fs::read_dir(folder).unwrap().map(|it| it.unwrap()) {
        if entry.file_type().unwrap().is_dir() {
            open(&entry.path());
        }
    }
}

/// What another user sees: files are closed to it, and processes are not its own.
#[test]
fn what_a_user_may_not_read_is_unknown_and_everything_else_is_shown() {
    const NOBODY: u32 = 65534;
    let machine = Machine::new("mi300x");
    let (home, device) = (machine.home.path().to_owned(), machine.device("card2"));
    let program = home.join("gpuwatch");
    fs::copy(PROGRAM, &program).unwrap();
    fs::create_dir(home.join("sockets")).unwrap();
    open(&home);
    let once = || {
        let mut command = Command::new(&program);
        command.args(["once", "--json"]).envs(machine.environment()).env("GPUWATCH_SOCKET_DIR", home.join("none"));
        if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY).current_dir("/");
        }
        let output = command.output().unwrap();
        let once: Value = serde_json::from_slice(&output.stdout).unwrap();
        schemas::check("once", &once);
        once
    };
    // Descriptors of another user's process: KFD shows what it computes with all the same.
    let process = machine.root().join("proc/4000100");
    close(&process.join("fd"));
    let seen = once();
    let second = &seen["devices"][1];
    assert_eq!(second["processes"][0]["used"], 103_079_215_104_u64, "{seen:#}");
    // KFD closed as well: nothing is known of processes, and nothing is made up.
    close(&machine.root().join("sys/class/kfd/kfd/proc"));
    let seen = once();
    // The worker has inherited the descriptors, and its own are open.
    let processes = &seen["devices"][1]["processes"];
    assert_eq!((&processes[0]["pid"], &processes[1]), (&4_000_050.into(), &Value::Null));
    close(&machine.root().join("proc/4000050/fdinfo"));
    let seen = once();
    let second = &seen["devices"][1];
    assert_eq!(second["processes"], serde_json::json!([]), "{seen:#}");
    assert_eq!(second["memory"]["used"], 103_582_531_584_u64);
    let unattributed = second["ladder"]["rungs"].as_array().unwrap().iter().find(|it| it["gap"] == "unattributed");
    assert_eq!(unattributed.map(|it| &it["bytes"]), Some(&103_582_531_584_u64.into()), "{second:#}");
    // Files of one device: the other one has all its figures.
    for name in ["mem_info_vram_used", "gpu_busy_percent", "hwmon"] {
        close(&device.join(name));
    }
    let seen = once();
    let (first, second) = (&seen["devices"][0], &seen["devices"][1]);
    assert_eq!(first["memory_trouble"], "no_permission", "{first:#}");
    for name in ["gpu_percent", "celsius", "power_mw"] {
        assert_eq!(first["metrics"][name], Value::Null, "{name}");
    }
    assert!(first["metrics"]["pcie_width"].is_u64() && first["metrics"]["memory_percent"].is_u64(), "{first:#}");
    assert!(second["memory"].is_object() && second["metrics"]["gpu_percent"] == 97, "{second:#}");
    // The topology too: the devices stay, in the order of the bus.
    close(&machine.root().join("sys/class/kfd"));
    assert_eq!(once()["devices"].as_array().unwrap().len(), 2);
}

/// A card that falls off the bus while it is read: its files vanish one after the other.
#[test]
fn a_device_that_loses_its_files_is_lost_and_the_others_go_on() {
    let machine = Machine::new("mi300x");
    let (device, link) = (machine.device("card1"), machine.root().join("sys/class/drm/card1"));
    let of = |all: &[Event], name: &str| {
        all.iter()
            .filter_map(|it| match &it.fact {
                Fact::Memory { device, reading } if device.0 == name => Some(reading.is_ok()),
                _ => None,
            })
            .collect::<Vec<_>>()
    };
    let vanish = || {
        for name in ["mem_info_vram_total", "hwmon", "gpu_busy_percent", "unique_id", "uevent"] {
            let path = device.join(name);
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
        fs::remove_file(&link).unwrap();
    };
    let gone = |all: &[Event]| {
        let at = all.iter().position(|it| matches!(&it.fact, Fact::DeviceGone { device } if super::is_second(device)));
        at.is_some_and(|at| of(&all[at..], "GPU-2a71c1f1b2d3e4f5").ends_with(&[true, true]))
    };
    let all = recorded(&machine, vanish, gone);
    assert!(of(&all, "GPU-2a71c1f1b2d3e4f5").iter().all(|it| *it), "the other one is read on");
}
