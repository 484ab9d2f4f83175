//! What AMD's compute driver (KFD) tells: the numbers by which ROCm knows devices, and the memory of its processes.

use super::sysfs::{names, number, numbered, text, value};
use std::path::{Path, PathBuf};

/// A device of the compute driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// The number by which its files of processes are named.
    pub(super) gpu_id: u64,
    /// The number of its render node in `/dev/dri`.
    pub(super) render_minor: u32,
}

/// Returns the devices in the order of ROCm's numbers.
pub(super) fn nodes(root: &Path) -> Vec<Node> {
    let folder = root.join("sys/class/kfd/kfd/topology/nodes");
    let mut numbers: Vec<u32> = names(&folder).iter().filter_map(|it| numbered(it, "")).collect();
    numbers.sort_unstable();
    let node = |place: u32| {
        let folder = folder.join(place.to_string());
        // A processor has the number 0.
        let gpu_id = number(&folder.join("gpu_id")).ok().filter(|it| *it > 0)?;
        let properties = text(&folder.join("properties")).ok()?;
        let render_minor = value(&properties, "drm_render_minor", ' ')?.parse().ok()?;
        Some(Node { gpu_id, render_minor })
    };
    numbers.into_iter().filter_map(node).collect()
}

/// Returns the folders of the compute driver's processes, by pid.
pub(super) fn processes(root: &Path) -> Vec<(u32, PathBuf)> {
    let folder = root.join("sys/class/kfd/kfd/proc");
    names(&folder).into_iter().filter_map(|it| Some((numbered(&it, "")?, folder.join(it)))).collect()
}

/// Returns the bytes that a process has on a device; `None` if that is not known.
pub(super) fn memory(process: &Path, gpu_id: u64) -> Option<u64> {
    number(&process.join(format!("vram_{gpu_id}"))).ok()
}
