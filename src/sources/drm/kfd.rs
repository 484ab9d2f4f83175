//! What AMD's compute driver (KFD) tells: the numbers by which ROCm knows devices, and the memory of its processes.

use super::sysfs::{names, number, numbered, text, value};
use std::path::{Path, PathBuf};

/// A device of the compute driver.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    /// The number by which its files of processes are named.
    pub(super) gpu_id: u64,
    /// The number of its render node in `/dev/dri`.
    render_minor: u32,
    /// Domain, bus, device and function; `None` where the kernel does not tell.
    place: Option<[u64; 4]>,
}

impl Node {
    /// Returns whether it is of the card with this address and these render nodes. A card that is divided into
    /// partitions has a node for each, at one place on the bus.
    pub(super) fn is_of(&self, address: &str, nodes: &[String]) -> bool {
        let has = |it: [u64; 4]| address == format!("{:04x}:{:02x}:{:02x}.{:x}", it[0], it[1], it[2], it[3]);
        self.place.is_some_and(has) || nodes.iter().any(|it| *it == self.render_node())
    }

    /// Returns the name of its render node.
    pub(super) fn render_node(&self) -> String {
        format!("renderD{}", self.render_minor)
    }
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
        let of = |name| value(&properties, name, ' ')?.parse::<u64>().ok();
        let render_minor = of("drm_render_minor").and_then(|it| u32::try_from(it).ok())?;
        // The highest bits of it are the number of the partition.
        let on_bus = of("location_id").filter(|it| *it > 0);
        let place = on_bus.map(|it| [of("domain").unwrap_or(0), it >> 8 & 0xFF, it >> 3 & 0x1F, it & 7]);
        Some(Node { gpu_id, render_minor, place })
    };
    numbers.into_iter().filter_map(node).collect()
}

/// Returns the folders of the compute driver's processes, by pid.
pub(super) fn processes(root: &Path) -> Vec<(u32, PathBuf)> {
    let folder = root.join("sys/class/kfd/kfd/proc");
    names(&folder).into_iter().filter_map(|it| Some((numbered(&it, "")?, folder.join(it)))).collect()
}

/// Returns the bytes that a process has on a card with these numbers; `None` if that is not known.
pub(super) fn memory(process: &Path, gpu_ids: &[u64]) -> Option<u64> {
    let known = gpu_ids.iter().filter_map(|it| number(&process.join(format!("vram_{it}"))).ok());
    known.reduce(u64::saturating_add)
}

/// Returns whether some process has memory on a card.
pub(super) fn is_used(root: &Path, gpu_ids: &[u64]) -> bool {
    !gpu_ids.is_empty() && processes(root).iter().any(|it| memory(&it.1, gpu_ids).is_some_and(|bytes| bytes > 0))
}
