//! The drivers of the kernel that are read from files, and finding their devices.

use super::{
    amd,
    card::{Card, KernelDriver, OnBus},
    intel, kfd,
    sysfs::{hexadecimal, names, numbered, sensors, text, value},
};
use crate::{
    facts::{
        event::{DeviceId, DeviceInfo},
        maker::Maker,
        text::Foreign,
    },
    sources::surroundings,
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// Every driver.
pub(super) const DRIVERS: [&KernelDriver; 3] = [&amd::AMDGPU, &intel::XE, &intel::I915];

/// Reads one of `/sys/class/drm`; `None` if none of the drivers has it. `begins` is called with the maker before any of
/// its driver's own files is read.
fn read(root: &Path, name: &str, begins: impl Fn(Maker)) -> Option<Card> {
    let folder = root.join("sys/class/drm").join(name);
    let device = fs::canonicalize(folder.join("device")).ok()?;
    let about = text(&device.join("uevent")).ok()?;
    let module = value(&about, "DRIVER", '=')?;
    let driver = DRIVERS.into_iter().find(|it| it.module == module)?;
    let (vendor, number) = value(&about, "PCI_ID", '=')?.split_once(':')?;
    let hex = |it: &str| u16::from_str_radix(it, 16).ok();
    if hex(vendor)? != driver.maker.row().vendor {
        return None;
    }
    begins(driver.maker);
    let address = value(&about, "PCI_SLOT_NAME", '=')?.to_owned();
    let revision = hexadecimal(&device.join("revision")).and_then(|it| it.try_into().ok()).unwrap_or(0);
    let bus = OnBus { root, device: &device, number: hex(number)?, revision };
    let sensors = sensors(&device, module);
    let (name_of, id, is_integrated) = match driver.maker {
        Maker::Amd => (amd::name(&bus), amd::id(&bus), amd::is_integrated(sensors.as_deref())),
        Maker::Intel | Maker::Nvidia => (intel::name(&bus), None, intel::is_integrated(&address)),
    };
    let id = id.unwrap_or_else(|| DeviceId(format!("PCI-{address}")));
    let info = DeviceInfo { id, index: 0, name: Foreign::new(name_of), parent: None, maker: driver.maker };
    let nodes = names(&device.join("drm")).into_iter().chain([name.to_owned()]).collect();
    Some(Card { driver, info, folder, device, sensors, is_integrated, nodes, gpu_ids: Vec::new(), address })
}

/// Returns the names of all cards in `/sys/class/drm`, each with its device's place on the bus. Devices have not
/// changed while this has not.
pub(super) fn listed(root: &Path) -> Vec<(String, PathBuf)> {
    let folder = root.join("sys/class/drm");
    let cards = names(&folder).into_iter().filter(|it| numbered(it, "card").is_some());
    cards.filter_map(|it| Some((it.clone(), fs::canonicalize(folder.join(it).join("device")).ok()?))).collect()
}

/// The devices of a machine.
#[derive(Default)]
pub(super) struct Found {
    /// Those that are shown, by maker and number.
    pub(super) shown: Vec<Card>,
    /// Integrated graphics beside another GPU, which draws the desktop.
    pub(super) left_out: Vec<Card>,
}

impl Found {
    /// Returns whether a process has begun to compute on a device that is left out.
    pub(super) fn is_outdated(&self, root: &Path) -> bool {
        self.left_out.iter().any(|it| kfd::is_used(root, &it.gpu_ids))
    }
}

/// Finds the devices. Integrated graphics counts where there is no other GPU, and where a process computes on it.
/// `begins` is called with each device's maker before its files are read.
pub(super) fn find(root: &Path, begins: impl Fn(Maker)) -> Found {
    let mut cards: Vec<Card> = listed(root).iter().filter_map(|(name, _)| read(root, name, &begins)).collect();
    let nodes = if cards.iter().any(|it| it.driver.maker == Maker::Amd) { kfd::nodes(root) } else { Vec::new() };
    let mut places = BTreeMap::new();
    for card in cards.iter_mut().filter(|it| it.driver.maker == Maker::Amd) {
        for (place, node) in nodes.iter().enumerate().filter(|it| it.1.is_of(&card.address, &card.nodes)) {
            places.entry(card.address.clone()).or_insert(place);
            card.gpu_ids.push(node.gpu_id);
        }
        // Those of partitions are not among the card's own.
        card.nodes.extend(nodes.iter().filter(|it| card.gpu_ids.contains(&it.gpu_id)).map(kfd::Node::render_node));
    }
    let place = |address: &String| places.get(address).copied().unwrap_or(usize::MAX);
    cards.sort_by_key(|it| (it.driver.maker, place(&it.address), it.address.clone()));
    let is_alone = cards.iter().all(|it| it.is_integrated) && surroundings::nvidia_gpus(root).unwrap_or(0) == 0;
    let is_shown = |it: &Card| is_alone || !it.is_integrated || kfd::is_used(root, &it.gpu_ids);
    let (mut shown, left_out): (Vec<Card>, Vec<Card>) = cards.into_iter().partition(is_shown);
    let (mut maker, mut index) = (None, 0);
    for card in &mut shown {
        index = if maker.replace(card.driver.maker) == Some(card.driver.maker) { index + 1 } else { 0 };
        card.info.index = index;
    }
    Found { shown, left_out }
}

/// Returns a driver's version: its own, or that of the kernel that it came with.
pub(super) fn version(root: &Path, module: &str) -> Foreign {
    let own = text(&root.join("sys/module").join(module).join("version"));
    let version = own.or_else(|_| text(&root.join("proc/sys/kernel/osrelease")).map(|it| format!("of Linux {it}")));
    Foreign::new(version.map_or_else(|_| module.to_owned(), |it| format!("{module} {it}")))
}
