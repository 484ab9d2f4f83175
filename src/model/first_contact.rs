//! First contact: what is on a machine without a device to show, what is missing, and the one command to run next.

use super::session::Session;
use crate::facts::{
    event::{DriverState, Surroundings},
    maker::{Maker, MakerRow},
    text::Foreign,
    units::counted,
};

/// What a user sees who starts gpuwatch on such a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirstContact {
    /// What was found.
    pub there: Vec<String>,
    /// What is missing, and why that matters.
    pub missing: String,
    /// The command.
    pub next: String,
    /// What it does.
    pub does: &'static str,
}

/// How a container gets its devices, by what runs it.
const FLAGS: [(&str, &str); 4] = [
    ("docker", "docker run --gpus all …"),
    ("podman", "podman run --device nvidia.com/gpu=all …"),
    ("apptainer", "apptainer exec --nv …"),
    ("kubernetes", "kubectl describe pod $HOSTNAME"),
];

/// How distributions install the driver.
const INSTALLERS: [(&str, &str); 4] = [
    ("debian", "sudo apt install nvidia-driver"),
    ("ubuntu", "sudo ubuntu-drivers install"),
    ("fedora", "sudo dnf install akmod-nvidia"),
    ("arch", "sudo pacman -S nvidia"),
];

/// Windows shares the driver's library with WSL there.
const OF_WINDOWS: &str = "sudo ldconfig /usr/lib/wsl/lib";

const DEMO: &str = "gpuwatch demo";

/// Returns what to show; `None` where a device is known, or the driver has not answered yet.
pub fn contact(session: &Session) -> Option<FirstContact> {
    if !session.devices.is_empty() {
        return None;
    }
    let around = session.surroundings.as_deref();
    let contact = match session.driver_shown().map(|it| it.1) {
        None | Some(DriverState::Stalled { .. }) => return None,
        Some(DriverState::Off) => FirstContact {
            missing: "the driver: GPUWATCH_NO_NVML or --no-nvml switches it off".to_owned(),
            next: "env -u GPUWATCH_NO_NVML gpuwatch".to_owned(),
            does: "asks the driver too",
            ..FirstContact::default()
        },
        Some(DriverState::Up { .. }) => without_devices(around),
        Some(DriverState::Absent { why }) => without_driver(around, why),
    };
    Some(FirstContact { there: there(session, around), ..contact })
}

/// The driver answers, and lists no device.
fn without_devices(around: Option<&Surroundings>) -> FirstContact {
    match around.and_then(|it| it.container.as_ref()) {
        Some(container) => in_container(container),
        None => FirstContact {
            missing: "a device: the driver answers, and lists none".to_owned(),
            next: "nvidia-smi -L".to_owned(),
            does: "shows which devices the driver has; `sudo dmesg | grep NVRM` shows why it left one out",
            ..FirstContact::default()
        },
    }
}

fn without_driver(around: Option<&Surroundings>, why: &Foreign) -> FirstContact {
    let of = |missing: &str, next: &str, does| FirstContact {
        missing: missing.to_owned(),
        next: next.to_owned(),
        does,
        ..FirstContact::default()
    };
    let Some(it) = around else { return of(&why.to_string(), "gpuwatch doctor", "checks everything, one line each") };
    let has_library = it.has_library.unwrap_or(true);
    match (it.wsl, &it.container, it.gpus) {
        (Some(false), ..) => of(
            "the GPU of Windows: /dev/dxg is not in this WSL",
            "wsl.exe --update",
            "updates WSL; then install NVIDIA's driver in Windows, and run `wsl.exe --shutdown`",
        ),
        (Some(true), ..) if !has_library => {
            of("the driver's library is not on the loader's path", OF_WINDOWS, "adds the one that Windows shares")
        }
        (_, Some(container), _) if !it.has_files => in_container(container),
        _ if it.is_refused => of(
            "the permission: this user may not open /dev/nvidia*",
            "ls -l /dev/nvidia*",
            "shows whose they are; join that group, or ask the batch system for a GPU",
        ),
        (_, _, Some(0)) if !it.others.is_empty() => of(
            "the right to read these sockets; and a GPU of NVIDIA's",
            &as_owner(it).unwrap_or_default(),
            "shows the jobs of their owner",
        ),
        (_, _, Some(0)) if !it.undriven.is_empty() => undriven(&it.undriven),
        (_, _, Some(0)) => of(
            "a GPU: none of NVIDIA's is on the PCI bus",
            DEMO,
            "shows what gpuwatch does, with a simulated one; `gpuwatch once --hosts NODE` looks at another machine",
        ),
        _ if it.module.is_none() && has_library => {
            of("the kernel's driver: its module is not loaded", "sudo modprobe nvidia", "loads it")
        }
        _ if it.module.is_none() => {
            let by = INSTALLERS.iter().find(|row| it.system.as_ref().is_some_and(|system| system.raw() == row.0));
            let missing = "NVIDIA's driver: neither its module nor its library is here";
            match by {
                Some((_, next)) => of(missing, next, "installs it; then reboot"),
                None => of(missing, DEMO, "shows what gpuwatch does, until this distribution's driver is installed"),
            }
        }
        _ if !has_library => of(
            "the driver's library (libnvidia-ml.so.1); its module is loaded",
            "ldconfig -p | grep nvidia-ml",
            "shows where it is; GPUWATCH_NVML_PATH names it where the loader does not look",
        ),
        _ => of(&why.to_string(), "nvidia-smi", "shows what the driver's own tool gets"),
    }
}

/// A GPU of another maker is there, and its driver is not loaded.
fn undriven(makers: &[Maker]) -> FirstContact {
    let rows: Vec<&MakerRow> = makers.iter().map(|it| it.row()).collect();
    let first = rows.first().and_then(|it| it.modules.first()).unwrap_or(&"amdgpu");
    let names: Vec<String> = rows.iter().map(|it| format!("{}'s driver", it.name)).collect();
    FirstContact {
        missing: format!("{}: no module of the kernel drives its GPU", names.join(", ")),
        next: format!("sudo modprobe {first}"),
        does: "loads it; `sudo dmesg` shows what keeps it away",
        ..FirstContact::default()
    }
}

fn in_container(container: &Foreign) -> FirstContact {
    let by = FLAGS.iter().find(|it| it.0 == container.raw()).unwrap_or(&FLAGS[0]);
    FirstContact {
        missing: "the devices: this container has no /dev/nvidia*".to_owned(),
        next: by.1.to_owned(),
        does: if by.0 == "kubernetes" {
            "shows its limits: `nvidia.com/gpu: 1` is missing there"
        } else {
            "starts it with all devices"
        },
        ..FirstContact::default()
    }
}

/// What was found, a line each.
fn there(session: &Session, around: Option<&Surroundings>) -> Vec<String> {
    let mut out = Vec::new();
    if let Some(it) = around {
        let place = match (&it.container, it.wsl) {
            (Some(container), _) => Some(format!("a container of {container}")),
            (None, Some(_)) => Some("Linux in Windows (WSL)".to_owned()),
            _ => None,
        };
        out.extend(place);
        out.extend(
            it.gpus
                .filter(|count| *count > 0)
                .map(|it| format!("{} of NVIDIA's on the PCI bus", counted(it.into(), "GPU"))),
        );
        out.extend(it.undriven.iter().map(|maker| format!("a GPU of {}'s on the PCI bus", maker.row().name)));
        out.extend(it.module.as_ref().map(|it| format!("the kernel's driver, {it}")));
        out.extend((it.has_library == Some(true)).then(|| "the driver's library".to_owned()));
        out.extend(locked(it));
    }
    let living = session.processes.iter().filter(|it| it.is_alive()).count();
    out.push(match living {
        0 => "no job of yours with a probe".to_owned(),
        _ => counted(living as u64, "job") + " of yours with a probe",
    });
    out
}

/// Returns the command that reads the first other user's probes.
fn as_owner(around: &Surroundings) -> Option<String> {
    around.others.first().map(|it| format!("sudo -u {it} gpuwatch"))
}

/// Names the users whose probes this one may not read, and how to.
pub fn locked(around: &Surroundings) -> Option<String> {
    let next = as_owner(around)?;
    let names: Vec<String> = around.others.iter().map(Foreign::to_string).collect();
    Some(format!("jobs of {}, whose probes only their owner may read: `{next}` shows them", names.join(", ")))
}
