//! First contact: one screen for each machine on which gpuwatch has no device to show.

use super::theme;
use crate::helpers::story::{Story, nvml_alone, picture, text};
use gpuwatch::{
    facts::event::{DriverState, Fact, Surroundings},
    model::{first_contact::contact, session::Session},
    screen::ui::Ui,
    sources::surroundings,
};
use std::{fs, path::Path};

/// A machine: its files, what is in the environment, and the driver's answer.
struct Machine {
    name: &'static str,
    files: &'static [(&'static str, &'static str)],
    variable: &'static str,
    has_library: bool,
    is_refused: bool,
    driver: DriverState,
}

const GPU: [(&str, &str); 2] =
    [("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n"), ("sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n")];
const INSTINCT: [(&str, &str); 2] =
    [("sys/bus/pci/devices/0000:05:00.0/vendor", "0x1002\n"), ("sys/bus/pci/devices/0000:05:00.0/class", "0x120000\n")];
const SOUND: [(&str, &str); 2] =
    [("sys/bus/pci/devices/0000:01:00.1/vendor", "0x10de\n"), ("sys/bus/pci/devices/0000:01:00.1/class", "0x040300\n")];
const DEBIAN: (&str, &str) = ("etc/os-release", "PRETTY_NAME=\"Debian\"\nID=debian\n");
const MODULE: (&str, &str) = ("sys/module/nvidia/version", "580.95.05\n");
const WSL: (&str, &str) = ("proc/sys/kernel/osrelease", "6.6.87.2-microsoft-standard-WSL2\n");

fn absent(why: &str) -> DriverState {
    DriverState::Absent { why: why.into() }
}

fn machines() -> Vec<Machine> {
    let base = || Machine {
        name: "",
        files: &[],
        variable: "",
        has_library: false,
        is_refused: false,
        driver: absent(
            "no NVIDIA driver library here (libnvidia-ml.so.1): install the driver, or set GPUWATCH_NVML_PATH",
        ),
    };
    vec![
        Machine { name: "no-gpu", files: &[SOUND[0], SOUND[1], DEBIAN], ..base() },
        Machine { name: "amd-not-loaded", files: &[INSTINCT[0], INSTINCT[1], DEBIAN], ..base() },
        Machine { name: "no-driver", files: &[GPU[0], GPU[1], DEBIAN], ..base() },
        Machine {
            name: "not-loaded",
            files: &[GPU[0], GPU[1], DEBIAN],
            has_library: true,
            driver: absent("the NVIDIA kernel driver is not loaded: try `sudo modprobe nvidia`"),
            ..base()
        },
        Machine { name: "no-library", files: &[GPU[0], GPU[1], MODULE, ("dev/nvidia0", "")], ..base() },
        Machine { name: "docker", files: &[GPU[0], GPU[1], MODULE, (".dockerenv", "")], ..base() },
        Machine { name: "kubernetes", files: &[GPU[0], GPU[1], MODULE], variable: "KUBERNETES_SERVICE_HOST", ..base() },
        Machine { name: "wsl", files: &[WSL], ..base() },
        Machine { name: "wsl-library", files: &[WSL, ("dev/dxg", "")], ..base() },
        Machine {
            name: "refused",
            files: &[GPU[0], GPU[1], MODULE, ("dev/nvidia0", "")],
            has_library: true,
            is_refused: true,
            driver: absent("this user may not ask the NVIDIA driver: see the modes of /dev/nvidia*"),
            ..base()
        },
        Machine {
            name: "no-devices",
            files: &[GPU[0], GPU[1], MODULE, ("dev/nvidiactl", "")],
            has_library: true,
            driver: DriverState::Up { version: Some("580.95.05".into()) },
            ..base()
        },
        Machine {
            name: "other-user",
            files: &[("sys/bus/pci/devices/none", ""), ("tmp/gpuwatch-0/1.sock", "")],
            ..base()
        },
        Machine { name: "off", driver: DriverState::Off, ..base() },
    ]
}

/// Makes a machine's files, and reads them as a user who owns none of them.
fn around(machine: &Machine, root: &Path) -> Surroundings {
    fs::create_dir_all(root.join("sys/bus/pci/devices")).unwrap();
    for (name, content) in machine.files {
        fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
        fs::write(root.join(name), content).unwrap();
    }
    let found = surroundings::read(root, 31337, |it| it == machine.variable, |it| (it == 0).then(|| "root".into()));
    Surroundings { has_library: Some(machine.has_library), is_refused: machine.is_refused, ..found }
}

fn session(machine: &Machine) -> Session {
    let root = tempfile::tempdir().unwrap();
    let mut story = Story::default();
    if machine.driver != DriverState::Off {
        story.add(Fact::Surroundings(Box::new(around(machine, root.path()))));
    }
    story.add(Fact::Driver(machine.driver.clone())).session()
}

/// Reads who owns the files of these tests, because sockets of an owner lie in a directory with the owner's number.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn each_machine_without_a_device_gets_one_screen_with_one_next_command() {
    for machine in machines() {
        if machine.name == "other-user" && !is_root() {
            test_tiers::leave_out!("the files of this user stand for another's");
            continue;
        }
        let session = session(&machine);
        let found = contact(&session).unwrap();
        assert!(!found.missing.is_empty() && !found.next.contains('\n') && !found.does.is_empty(), "{found:?}");
        for (width, height) in [(40, 16), (80, 24)] {
            let shown = text(&picture(&session, &Ui::default(), &theme("dusk"), width, height));
            let [words, next] = [&shown, &found.next].map(|it| it.split_whitespace().collect::<String>());
            assert!(words.contains(&next), "{}: {next} is not in {shown}", machine.name);
        }
        let shown = text(&picture(&session, &Ui::default(), &theme("dusk"), 80, 24));
        insta::assert_snapshot!(format!("contact-{}", machine.name), shown);
    }
}

#[test]
fn other_users_with_probes_are_named_beside_devices_until_a_job_of_ones_own_runs() {
    let mut story = nvml_alone();
    let others = Surroundings { others: vec!["ada".into(), "#1002".into()], ..Surroundings::default() };
    story.add(Fact::Surroundings(Box::new(others)));
    let shown = |story: &Story| text(&picture(&story.session(), &Ui::default(), &theme("dusk"), 120, 40));
    assert!(shown(&story).contains("`sudo -u ada gpuwatch` shows them"), "{}", shown(&story));
    story.probe(0, 4242, 0, None);
    assert!(!shown(&story).contains("sudo -u ada"), "{}", shown(&story));
}
