//! The drivers of the kernel that are read from files, and their devices.

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
    fs,
    path::{Path, PathBuf},
};

/// Every driver.
pub(super) const DRIVERS: [&KernelDriver; 3] = [&amd::AMDGPU, &intel::XE, &intel::I915];

/// Reads one of `/sys/class/drm`; `None` if none of the drivers has it.
fn read(root: &Path, name: &str) -> Option<Card> {
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
    Some(Card { driver, info, folder, device, sensors, is_integrated, nodes, gpu_id: None, address })
}

/// Returns the names of all cards in `/sys/class/drm`, each with its device's place on the bus. Devices have not
/// changed while this has not.
pub(super) fn listed(root: &Path) -> Vec<(String, PathBuf)> {
    let folder = root.join("sys/class/drm");
    let cards = names(&folder).into_iter().filter(|it| numbered(it, "card").is_some());
    cards.filter_map(|it| Some((it.clone(), fs::canonicalize(folder.join(it).join("device")).ok()?))).collect()
}

/// Returns the devices, by maker and number. Integrated graphics counts where there is no other GPU: beside one, it
/// draws the desktop.
pub(super) fn cards(root: &Path) -> Vec<Card> {
    let mut cards: Vec<Card> = listed(root).iter().filter_map(|(name, _)| read(root, name)).collect();
    let is_alone = cards.iter().all(|it| it.is_integrated)
        && cards.iter().any(|it| it.is_integrated)
        && surroundings::nvidia_gpus(root).unwrap_or(0) == 0;
    cards.retain(|it| is_alone || !it.is_integrated);
    let nodes = if cards.iter().any(|it| it.driver.maker == Maker::Amd) { kfd::nodes(root) } else { Vec::new() };
    let minor = |card: &Card| card.nodes.iter().find_map(|it| numbered(it, "renderD"));
    let node = |card: &Card| nodes.iter().position(|it| minor(card) == Some(it.render_minor));
    cards.sort_by_key(|it| (it.driver.maker, node(it).unwrap_or(usize::MAX), it.address.clone()));
    let (mut maker, mut index) = (None, 0);
    for card in &mut cards {
        index = if maker.replace(card.driver.maker) == Some(card.driver.maker) { index + 1 } else { 0 };
        card.info.index = index;
        card.gpu_id = node(card).and_then(|it| nodes.get(it)).map(|it| it.gpu_id);
    }
    cards
}

/// Returns a driver's version: its own, or that of the kernel that it came with.
pub(super) fn version(root: &Path, module: &str) -> Foreign {
    let own = text(&root.join("sys/module").join(module).join("version"));
    let version = own.or_else(|_| text(&root.join("proc/sys/kernel/osrelease")).map(|it| format!("of Linux {it}")));
    Foreign::new(version.map_or_else(|_| module.to_owned(), |it| format!("{module} {it}")))
}
