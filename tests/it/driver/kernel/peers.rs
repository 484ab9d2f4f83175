//! What nvtop and `amdgpu_top` show of the same files. Neither can be given another folder than `/sys` and `/proc`, and
//! both ask a device's driver, which a tree has not. So their rules for processes are written down here, as their
//! sources have them (`amdgpu_top`'s `fdinfo/amdgpu_fdinfo.rs` and nvtop's `extract_gpuinfo_intel_xe.c`, 2025), and
//! compared with gpuwatch's results: they are equal, except where a rule of theirs is known to be wrong.

use super::Machine;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// The lines about clients of a device, by pid and descriptor, both in order.
fn clients(machine: &Machine, address: &str) -> Vec<(u64, String)> {
    let numbers = |folder: &Path| -> BTreeSet<u64> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter_map(|it| it.file_name().to_str()?.parse().ok()).collect()
    };
    let proc = machine.root().join("proc");
    let mut found = Vec::new();
    for pid in numbers(&proc) {
        let folder = proc.join(pid.to_string());
        for descriptor in numbers(&folder.join("fdinfo")) {
            let text = fs::read_to_string(folder.join(format!("fdinfo/{descriptor}"))).unwrap();
            if value(&text, "drm-pdev") == Some(address) {
                found.push((pid, text));
            }
        }
    }
    found
}

fn value<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    text.lines().find_map(|it| it.strip_prefix(key)?.strip_prefix(':')).map(str::trim)
}

/// `amdgpu_top`'s memory of each process: `drm-memory-*` of each client, which counts for the first process that has
/// it.
fn by_amdgpu_top(machine: &Machine, address: &str, regions: &[&str]) -> BTreeMap<u64, u64> {
    let (mut seen, mut used) = (BTreeSet::new(), BTreeMap::new());
    for (pid, text) in clients(machine, address) {
        if seen.insert(value(&text, "drm-client-id").unwrap().to_owned()) {
            let region =
                |it: &&str| value(&text, &format!("drm-memory-{it}"))?.strip_suffix(" KiB")?.parse::<u64>().ok();
            *used.entry(pid).or_default() += regions.iter().filter_map(region).sum::<u64>() << 10;
        }
    }
    used.retain(|_, it| *it > 0);
    used
}

/// nvtop's memory of each process on an Intel device: what its clients have asked for, in KiB alone.
fn by_nvtop(machine: &Machine, address: &str) -> BTreeMap<u64, u64> {
    let total = |text: &str| value(text, "drm-total-vram0")?.strip_suffix(" KiB")?.parse::<u64>().ok();
    clients(machine, address).into_iter().filter_map(|(pid, text)| Some((pid, total(&text)? << 10))).collect()
}

/// gpuwatch's memory of each process.
fn by_gpuwatch(machine: &Machine, device: usize) -> BTreeMap<u64, u64> {
    let once = machine.once();
    let list = once["devices"][device]["processes"].as_array().unwrap();
    let number = |it: &Value| it.as_u64().unwrap();
    list.iter().map(|it| (number(&it["pid"]), number(&it["used"]))).collect()
}

#[test]
fn processes_of_amds_devices_have_what_amdgpu_top_shows() {
    let sum = |it: &BTreeMap<u64, u64>| it.values().sum::<u64>();
    for (name, device, address, regions) in
        [("rx7900", 0, "0000:03:00.0", &["vram"][..]), ("strix-halo", 0, "0000:c5:00.0", &["vram", "gtt"])]
    {
        let machine = Machine::new(name);
        let theirs = by_amdgpu_top(&machine, address, regions);
        assert!(sum(&theirs) > 1 << 30, "{name}: {theirs:?}");
        assert_eq!(by_gpuwatch(&machine, device), theirs, "{name}");
    }
    // A client that was inherited is the worker's there, if that has the lower number; here it is its parent's.
    let machine = Machine::new("mi300x");
    let (theirs, ours) = (by_amdgpu_top(&machine, "0000:83:00.0", &["vram"]), by_gpuwatch(&machine, 1));
    assert_eq!(theirs.keys().collect::<Vec<_>>(), [&4_000_050]);
    assert_eq!((ours.keys().collect::<Vec<_>>(), sum(&ours)), (vec![&4_000_100], sum(&theirs)));
    // A process that another user runs in a partition is known to KFD alone.
    let machine = Machine::new("mi300x-cpx");
    let (theirs, ours) = (by_amdgpu_top(&machine, "0000:05:00.0", &["vram"]), by_gpuwatch(&machine, 0));
    assert_eq!((theirs.get(&4_000_700), theirs.len()), (ours.get(&4_000_700), 1));
    assert_eq!(ours.len(), 2);
}

/// Its rule counts what is not on the card, and of sizes it reads those in KiB alone: here it has none.
#[test]
fn a_process_on_an_intel_device_has_what_is_resident_and_not_what_nvtop_shows() {
    let machine = Machine::new("xe");
    assert!(by_nvtop(&machine, "0000:03:00.0").is_empty());
    let file = machine.root().join("proc/4000601/fdinfo/12");
    let text =
        fs::read_to_string(&file).unwrap().replace("drm-total-vram0:\t8192 MiB", "drm-total-vram0:\t8388608 KiB");
    fs::write(file, text).unwrap();
    let (theirs, ours) = (by_nvtop(&machine, "0000:03:00.0"), by_gpuwatch(&machine, 0));
    assert_eq!((theirs[&4_000_601], ours[&4_000_601]), (8 << 30, 6 << 30));
}
