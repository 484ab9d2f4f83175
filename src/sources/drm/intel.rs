//! Intel's devices, as xe and i915 show them in `/sys`. No file has their memory's total or use: these are figures of
//! calls that a file descriptor of the device and more rights than a viewer has would need. The memory of their clients
//! is known, and no more than a part of what is used.

use super::{
    card::{Amount, Card, KernelDriver, OnBus, Read},
    sysfs::{bounded, names, number, numbered},
    throttle,
};
use crate::facts::{maker::Maker, metrics::Metric};
use std::path::{Path, PathBuf};

/// Most bytes read of the table of names.
const NAMES_MAX: u64 = 4 << 20;

/// Where distributions have the table of names.
const NAMES: [&str; 2] = ["usr/share/misc/pci.ids", "usr/share/hwdata/pci.ids"];

/// What xe gives.
pub(super) const XE: KernelDriver = KernelDriver {
    maker: Maker::Intel,
    module: "xe",
    memory: None,
    reads: XE_READS,
    has_bridge: HAS_BRIDGE,
    regions: &["vram"],
    shared_regions: &["gtt"],
    system_regions: &["gtt"],
    engines: &["rcs", "ccs"],
    encoders: &[],
    decoders: &[],
};

/// What i915 gives.
pub(super) const I915: KernelDriver = KernelDriver {
    maker: Maker::Intel,
    module: "i915",
    memory: None,
    reads: I915_READS,
    has_bridge: HAS_BRIDGE,
    regions: &["local"],
    shared_regions: &["system"],
    system_regions: &["system"],
    engines: &["render", "compute"],
    encoders: &[],
    decoders: &[],
};

const XE_READS: &[Read] = &[
    Read { metric: Metric::SmMhz, file: "tileN/gtN/freq0/act_freq", value: |it| xe_clock(it, "act_freq") },
    Read { metric: Metric::SmMaxMhz, file: "tileN/gtN/freq0/rp0_freq", value: |it| xe_clock(it, "rp0_freq") },
    Read { metric: Metric::PowerMw, file: "energy1_input, energy2_input", value: power },
    Read { metric: Metric::PowerLimitMw, file: "power1_max, power1_rated_max", value: limit },
    Read { metric: Metric::CelsiusNow, file: "temp2_input", value: |it| it.sensor("temp2_input", 1000) },
    Read { metric: Metric::MemoryCelsius, file: "temp3_input", value: |it| it.sensor("temp3_input", 1000) },
    Read {
        metric: Metric::ThrottleReasons,
        file: "tileN/gtN/freq0/throttle/reason_*",
        value: |it| throttle::intel(&xe_parts(it, "freq0/throttle"), "reason_", "status"),
    },
];

const I915_READS: &[Read] = &[
    Read { metric: Metric::SmMhz, file: "gt_act_freq_mhz", value: |it| i915_clock(it, "gt_act_freq_mhz") },
    Read { metric: Metric::SmMaxMhz, file: "gt_RP0_freq_mhz", value: |it| i915_clock(it, "gt_RP0_freq_mhz") },
    Read { metric: Metric::PowerMw, file: "energy1_input", value: power },
    Read { metric: Metric::PowerLimitMw, file: "power1_max, power1_rated_max", value: limit },
    Read { metric: Metric::CelsiusNow, file: "temp1_input", value: |it| it.sensor("temp1_input", 1000) },
    Read {
        metric: Metric::ThrottleReasons,
        file: "gt/gtN/throttle_reason_*",
        value: |it| throttle::intel(&i915_parts(it), "throttle_reason_", "throttle_reason_status"),
    },
];

/// The bridges on Arc's cards, by their numbers: Intel makes those of mainboards, too.
const HAS_BRIDGE: fn(u64, u64) -> bool =
    |vendor, device| vendor == 0x8086 && [0x4FA0, 0x4FA1, 0x4FA4, 0xE2FF, 0xE2F0, 0xE2F1].contains(&device);

/// Returns a device's name: from the table of names of the bus, or its number.
pub(super) fn name(bus: &OnBus<'_>) -> String {
    let maker = Maker::Intel.row().name;
    let listed = NAMES.iter().find_map(|it| named(&bounded(&bus.root.join(it), NAMES_MAX).ok()?, bus.number));
    listed.map_or_else(|| format!("{maker} GPU 0x{:04x}", bus.number), |it| format!("{maker} {it}"))
}

/// Finds one of Intel's devices in the table of names: the name that it is sold by, in brackets, or that of its design.
fn named(table: &str, number: u16) -> Option<String> {
    let own = table.lines().skip_while(|it| !it.starts_with("8086")).skip(1);
    let mut own = own.take_while(|it| it.is_empty() || it.starts_with(['\t', '#']));
    let begin = format!("\t{number:04x}");
    let name = own.find_map(|it| it.strip_prefix(&begin))?.trim();
    let sold_as = name.rsplit_once('[').and_then(|it| it.1.strip_suffix(']'));
    Some(sold_as.unwrap_or(name).to_owned())
}

/// Returns whether a device is part of a processor and shares its memory. These are at one place on every bus.
pub(super) fn is_integrated(address: &str) -> bool {
    address == "0000:00:02.0"
}

/// Returns the energy of the card, or that of its chip where the card's is not counted.
fn power(card: &Card) -> Option<Amount> {
    let energy = |it| number(&card.sensors.as_ref()?.join(it)).ok().map(Amount::Microjoules);
    energy("energy1_input").or_else(|| energy("energy2_input"))
}

/// Returns the limit that is set, or the card's own. A limit of 0 is none.
fn limit(card: &Card) -> Option<Amount> {
    let is_limit = |it: &Amount| *it != Amount::Now(0);
    let own = || card.sensor("power1_rated_max", 1000).filter(is_limit);
    card.sensor("power1_max", 1000).filter(is_limit).or_else(own)
}

/// Returns a folder of each part of each of xe's tiles.
fn xe_parts(card: &Card, name: &str) -> Vec<PathBuf> {
    let tiles = numbered_in(&card.device, "tile").into_iter();
    tiles.flat_map(|it| numbered_in(&it, "gt")).map(|it| it.join(name)).collect()
}

/// Returns the folders of i915's parts.
fn i915_parts(card: &Card) -> Vec<PathBuf> {
    numbered_in(&card.folder.join("gt"), "gt")
}

/// Returns the folders whose names are a prefix and a number.
fn numbered_in(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    names(folder).into_iter().filter(|it| numbered(it, prefix).is_some()).map(|it| folder.join(it)).collect()
}

/// Returns the highest of a clock of xe's tiles, in MHz.
fn xe_clock(card: &Card, name: &str) -> Option<Amount> {
    xe_parts(card, "freq0").iter().filter_map(|it| number(&it.join(name)).ok()).max().map(Amount::Now)
}

/// Returns a clock of i915, in MHz.
fn i915_clock(card: &Card, name: &str) -> Option<Amount> {
    number(&card.folder.join(name)).ok().map(Amount::Now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_one_that_it_is_sold_by() {
        let table = "1002  AMD\n\te20b  Of another maker\n8086  Intel Corporation\n\t# comment\n\t56a0  DG2 [Arc A770]\n\
                     \t\t8086 1020  Limited Edition\n\te20b  Battlemage G21 [Arc B580]\n\t7d55  Meteor Lake-P\n\
                     8087  Other\n\t9999  Of another maker\n";
        for (number, name) in
            [(0x56A0, Some("Arc A770")), (0xE20B, Some("Arc B580")), (0x7D55, Some("Meteor Lake-P")), (0x9999, None)]
        {
            assert_eq!(named(table, number).as_deref(), name, "{number:x}");
        }
        assert_eq!((named("", 1), named("8086", 1)), (None, None));
    }
}
