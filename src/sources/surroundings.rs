//! Reads what of this machine decides whether gpuwatch sees a GPU: files in `/sys`, `/proc`, `/dev`, `/etc`, `/tmp`.

use super::users;
use crate::facts::{
    event::{Fact, Surroundings},
    maker::Maker,
    text::Foreign,
};
use nvml_wrapper::error::NvmlError;
use std::{
    env, fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Display controllers and accelerators, in the first of three bytes.
const DISPLAY: &str = "0x03";
const ACCELERATOR: &str = "0x12";

/// Most users that are named.
const OTHERS: usize = 4;

/// Files of containers' tools, and the tools.
const CONTAINER_FILES: [(&str, &str); 3] =
    [("run/.containerenv", "podman"), (".dockerenv", "docker"), ("singularity.d", "apptainer")];

/// Variables of containers' tools, and the tools.
const CONTAINER_VARIABLES: [(&str, &str); 3] = [
    ("KUBERNETES_SERVICE_HOST", "kubernetes"),
    ("APPTAINER_CONTAINER", "apptainer"),
    ("SINGULARITY_CONTAINER", "apptainer"),
];

/// Reads this machine's, where the driver cannot be asked.
pub(super) fn without_driver(error: &NvmlError) -> Fact {
    let has_library = !matches!(error, NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound);
    let is_refused = matches!(error, NvmlError::NoPermission);
    Fact::Surroundings(Box::new(Surroundings { has_library: Some(has_library), is_refused, ..here() }))
}

/// Reads this machine's, where the driver lists so many devices; `None` if nothing there matters.
pub(super) fn with_driver(count: u32) -> Option<Fact> {
    let around = Surroundings { has_library: Some(true), ..here() };
    (count == 0 || !around.others.is_empty()).then(|| Fact::Surroundings(Box::new(around)))
}

fn here() -> Surroundings {
    let user = rustix::process::geteuid().as_raw();
    read(Path::new("/"), user, |name| env::var_os(name).is_some_and(|it| !it.is_empty()), users::within_patience)
}

/// Reads those of a machine whose files lie below a folder, for a user; `named` names the other ones.
pub fn read(
    root: &Path,
    user: u32,
    is_set: impl Fn(&str) -> bool,
    named: impl Fn(u32) -> Option<Foreign>,
) -> Surroundings {
    let text = |name: &str| fs::read_to_string(root.join(name)).ok();
    let kernel = text("proc/sys/kernel/osrelease").unwrap_or_default().to_lowercase();
    let by_variable = CONTAINER_VARIABLES.iter().find(|it| is_set(it.0));
    let by_file = || CONTAINER_FILES.iter().find(|it| root.join(it.0).exists());
    let has_file = |name: &str| names(&root.join("dev")).iter().any(|it| it.strip_prefix(name).is_some_and(is_number));
    Surroundings {
        gpus: nvidia_gpus(root),
        undriven: undriven(root),
        module: text("sys/module/nvidia/version").map(|it| Foreign::new(it.trim())),
        has_files: has_file("nvidia"),
        has_library: None,
        is_refused: false,
        container: by_variable.or_else(by_file).map(|it| it.1.into()),
        wsl: kernel.contains("microsoft").then(|| root.join("dev/dxg").exists()),
        system: text("etc/os-release").and_then(|it| {
            let id = it.lines().find_map(|line| line.strip_prefix("ID="))?.trim_matches('"').to_owned();
            Some(Foreign::new(id))
        }),
        others: others(root, user, named),
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|it| it.file_name().into_string().ok()).collect()
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit())
}

/// Counts the devices of NVIDIA's that draw or compute; `None` where the bus cannot be read.
pub(super) fn nvidia_gpus(root: &Path) -> Option<u32> {
    let devices = gpus(root, Maker::Nvidia, &[DISPLAY])?;
    u32::try_from(devices.len()).ok()
}

/// Returns the other makers with a GPU that no driver drives.
fn undriven(root: &Path) -> Vec<Maker> {
    let others = Maker::TABLE.iter().map(|it| it.maker).filter(|it| *it != Maker::Nvidia);
    let is_undriven = |maker: &Maker| {
        let devices = gpus(root, *maker, &[DISPLAY, ACCELERATOR]).unwrap_or_default();
        devices.iter().any(|device| fs::symlink_metadata(device.join("driver")).is_err())
    };
    others.filter(is_undriven).collect()
}

/// Returns the folders of a maker's devices of some classes; `None` where the bus cannot be read.
fn gpus(root: &Path, maker: Maker, classes: &[&str]) -> Option<Vec<PathBuf>> {
    let vendor = format!("0x{:04x}", maker.row().vendor);
    let devices = fs::read_dir(root.join("sys/bus/pci/devices")).ok()?.flatten().map(|it| it.path());
    let is_gpu = |device: &PathBuf| {
        let read = |name: &str| fs::read_to_string(device.join(name)).unwrap_or_default();
        read("vendor").trim() == vendor && classes.iter().any(|it| read("class").starts_with(it))
    };
    Some(devices.filter(is_gpu).collect())
}

/// Names the users whose directories for sockets are another's, the largest number last.
fn others(root: &Path, user: u32, named: impl Fn(u32) -> Option<Foreign>) -> Vec<Foreign> {
    let numbers =
        names(&root.join("tmp")).into_iter().filter_map(|it| it.strip_prefix("gpuwatch-")?.parse::<u32>().ok());
    let is_another = |it: &u32| {
        let about = fs::symlink_metadata(root.join(format!("tmp/gpuwatch-{it}")));
        *it != user && about.is_ok_and(|about| about.is_dir() && about.uid() == *it)
    };
    let mut numbers: Vec<u32> = numbers.filter(is_another).collect();
    numbers.sort_unstable();
    numbers.truncate(OTHERS);
    // As sudo takes a number.
    numbers.into_iter().map(|it| named(it).unwrap_or_else(|| Foreign::new(format!("#{it}")))).collect()
}
