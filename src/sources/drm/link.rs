//! A device's link to its slot. A card with bridges of its own has its slot at the outermost of them; behind these, the
//! link of the chip shows nothing of the slot.

use super::{
    card::{Amount, Card, Read},
    sysfs::{hexadecimal, number, text},
};
use crate::facts::metrics::Metric;
use std::path::Path;

/// The metrics of a link, which the bus has for every driver.
pub(super) const READS: &[Read] = &[
    Read { metric: Metric::PcieGeneration, file: "current_link_speed", value: |it| generation(it, "current") },
    Read { metric: Metric::PcieGenerationMax, file: "max_link_speed", value: |it| generation(it, "max") },
    Read { metric: Metric::PcieWidth, file: "current_link_width", value: |it| width(it, "current") },
    Read { metric: Metric::PcieWidthMax, file: "max_link_width", value: |it| width(it, "max") },
];

/// The class of bridges, in the first two of three bytes.
const BRIDGE: u64 = 0x0604;

/// Most bridges of a card.
const BRIDGES_MAX: usize = 4;

/// Speeds in tenths of GT/s, by generation from the first.
const SPEEDS: [u64; 6] = [25, 50, 80, 160, 320, 640];

/// Returns the folder of the outermost bridge that is the card's own; without one, the device's.
fn slot(card: &Card) -> &Path {
    let is_bridge = |folder: &&Path| {
        let read = |name: &str| hexadecimal(&folder.join(name));
        let class = read("class").is_some_and(|it| it >> 8 == BRIDGE);
        class && read("vendor").zip(read("device")).is_some_and(|it| (card.driver.has_bridge)(it.0, it.1))
    };
    card.device.ancestors().skip(1).take(BRIDGES_MAX).take_while(is_bridge).last().unwrap_or(&card.device)
}

/// Returns the generation of a link, `current` or `max`.
fn generation(card: &Card, which: &str) -> Option<Amount> {
    let speed = text(&slot(card).join(format!("{which}_link_speed"))).ok()?;
    of_speed(&speed).map(Amount::Now)
}

/// Returns the lanes of a link, `current` or `max`.
fn width(card: &Card, which: &str) -> Option<Amount> {
    let lanes = number(&slot(card).join(format!("{which}_link_width"))).ok()?;
    // The kernel has 0 or 255 for a link of which it knows nothing.
    Some(Amount::Now(lanes)).filter(|_| (1..=32).contains(&lanes))
}

/// Parses a speed: `16.0 GT/s PCIe`.
fn of_speed(text: &str) -> Option<u64> {
    let (whole, tenths) = text.split_whitespace().next()?.split_once('.').unwrap_or((text, "0"));
    let speed = whole.parse::<u64>().ok()?.checked_mul(10)?.checked_add(tenths.parse::<u64>().ok()?)?;
    SPEEDS.iter().position(|it| *it == speed).map(|it| it as u64 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_has_a_generation() {
        for (text, generation) in [
            ("2.5 GT/s PCIe", Some(1)),
            ("8.0 GT/s", Some(3)),
            ("16.0 GT/s PCIe", Some(4)),
            ("32.0 GT/s PCIe", Some(5)),
            ("Unknown", None),
            ("", None),
            ("99999999999999999999.0 GT/s", None),
        ] {
            assert_eq!(of_speed(text), generation, "{text}");
        }
    }
}
