//! Why a device's clocks are lower, by what each driver shows of it.

use super::{
    card::{Amount, Card},
    sysfs::{beginning, number},
};
use crate::facts::metrics::Throttle;
use std::path::Path;

/// Most bytes read of AMD's table of metrics.
const TABLE_MAX: u64 = 4096;

/// Bits of `indep_throttle_status` (the kernel's `amdgpu_smu.h`). Power and currents are limits; voltage regulators and
/// what surrounds the chip signal heat to the hardware.
const AMD: [(u64, Throttle); 3] = [
    (0x0000_0000_FFFF_FFFF, Throttle::PowerCap),
    (0x0000_0FFF_0000_0000, Throttle::Thermal),
    (0x0000_F000_0000_0000, Throttle::HardwareThermal),
];

/// The ends of the names of Intel's files. A device has some of them.
const INTEL: [(&str, Throttle); 15] = [
    ("prochot", Throttle::HardwareThermal),
    ("vr_thermalert", Throttle::HardwareThermal),
    ("vr_thermal", Throttle::HardwareThermal),
    ("thermal", Throttle::Thermal),
    ("ratl", Throttle::Thermal),
    ("soc_thermal", Throttle::Thermal),
    ("soc_avg_thermal", Throttle::Thermal),
    ("mem_thermal", Throttle::Thermal),
    ("pl1", Throttle::PowerCap),
    ("pl2", Throttle::PowerCap),
    ("pl4", Throttle::PowerCap),
    ("vr_tdc", Throttle::PowerCap),
    ("iccmax", Throttle::PowerCap),
    ("psys_pl1", Throttle::PowerCap),
    ("psys_pl2", Throttle::PowerCap),
];

/// Returns AMD's reasons, from the releases of its table that have them in a form for every chip.
pub(super) fn amd(card: &Card) -> Option<Amount> {
    let table = beginning(&card.device.join("gpu_metrics"), TABLE_MAX).ok()?;
    let status = status(&table)?;
    Some(together(AMD.into_iter().filter(|it| status & it.0 != 0).map(|it| it.1)))
}

/// Finds `indep_throttle_status` in a table: its size, its form (of cards or processors) and its release come first.
fn status(table: &[u8]) -> Option<u64> {
    let &[low, high, form, release, ..] = table else { return None };
    let at = match (form, release) {
        (1, 3) => 112,
        (2, 2..=4) => 120,
        _ => return None,
    };
    let end = at + 8;
    let field = table.get(at..end).filter(|_| usize::from(u16::from_le_bytes([low, high])) >= end)?;
    // The kernel fills what a chip lacks with ones.
    Some(u64::from_le_bytes(field.try_into().ok()?)).filter(|it| *it != u64::MAX)
}

/// Returns the reasons of the parts of an Intel device, from files whose names begin so.
pub(super) fn intel(parts: &[impl AsRef<Path>], begin: &str, overall: &str) -> Option<Amount> {
    let known = parts.iter().map(AsRef::as_ref).filter_map(|it| Some((it, number(&it.join(overall)).ok()?)));
    let parts: Vec<(&Path, u64)> = known.collect();
    let limited = parts.iter().filter(|it| it.1 > 0);
    let is_set = |folder: &Path, name: &str| number(&folder.join(format!("{begin}{name}"))).is_ok_and(|it| it > 0);
    let reasons = limited.flat_map(|(folder, _)| INTEL.into_iter().filter(|it| is_set(folder, it.0)));
    (!parts.is_empty()).then(|| together(reasons.map(|it| it.1)))
}

fn together(reasons: impl Iterator<Item = Throttle>) -> Amount {
    Amount::Now(reasons.fold(0, |bits, it| bits | it.bit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of this form and release, of so many bytes, with the status where that release has it.
    fn table(form: u8, release: u8, size: u16, at: usize, status: u64) -> Vec<u8> {
        let mut made = vec![0; size.into()];
        made[..4].copy_from_slice(&[size.to_le_bytes()[0], size.to_le_bytes()[1], form, release]);
        if let Some(field) = made.get_mut(at..at + 8) {
            field.copy_from_slice(&status.to_le_bytes());
        }
        made
    }

    #[test]
    fn the_status_is_found_in_the_releases_that_have_it() {
        assert_eq!(status(&table(1, 3, 120, 112, 1 << 36)), Some(1 << 36));
        for release in 2..=4 {
            assert_eq!(status(&table(2, release, 160, 120, 1)), Some(1), "{release}");
        }
        for (form, release) in [(1, 2), (1, 4), (2, 1), (3, 0), (0, 0), (255, 255)] {
            assert_eq!(status(&table(form, release, 160, 120, 1)), None, "{form} {release}");
        }
        assert_eq!(status(&table(1, 3, 120, 112, u64::MAX)), None, "the chip does not tell");
        assert_eq!(status(&table(1, 3, 119, 112, 1)), None, "a table that is cut");
        let mut short = table(1, 3, 120, 112, 1);
        short[0] = 112;
        assert_eq!(status(&short), None, "a table that says that it is shorter");
        assert_eq!((status(&[]), status(&[120, 0, 1])), (None, None));
    }
}
