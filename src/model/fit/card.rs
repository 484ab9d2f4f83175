//! Devices by name, as their driver reports them, and devices by size.

use super::Link;
use crate::facts::units::{Bytes, parse_bytes};
use std::fmt::Write as _;

const MIB: u64 = 1 << 20;

/// How far a size may be from a card's for the card to be taken as its like.
const ALIKE: f64 = 0.05;

/// The most devices of one machine.
const MOST: u32 = 16;

/// A card: its short name, the driver's name for it, MiB in all as `nvidia-smi` has them, MiB that the driver keeps for
/// itself, multiprocessors, compute capability, how several of them are linked at best.
///
/// Totals are `nvidia-smi`'s. What the driver keeps is the difference to the capacity in PyTorch's out-of-memory
/// messages ("GPU 0 has a total capacity of 23.65 GiB" on an RTX 4090), which varies by some 100 MiB between drivers.
#[derive(Debug)]
struct Card(&'static str, &'static str, u64, u64, u64, &'static str, Link);

const CARDS: [Card; 29] = [
    Card("RTX 4060", "NVIDIA GeForce RTX 4060", 8188, 255, 24, "8.9", Link::Pcie),
    Card("RTX 3070", "NVIDIA GeForce RTX 3070", 8192, 300, 46, "8.6", Link::Pcie),
    Card("RTX 3080", "NVIDIA GeForce RTX 3080", 10_240, 320, 68, "8.6", Link::Pcie),
    Card("RTX 2080 Ti", "NVIDIA GeForce RTX 2080 Ti", 11_264, 250, 68, "7.5", Link::Nvlink),
    Card("RTX 4070", "NVIDIA GeForce RTX 4070", 12_282, 340, 46, "8.9", Link::Pcie),
    Card("RTX 3060", "NVIDIA GeForce RTX 3060", 12_288, 251, 28, "8.6", Link::Pcie),
    Card("T4", "Tesla T4", 15_360, 256, 40, "7.5", Link::Pcie),
    Card("RTX 5080", "NVIDIA GeForce RTX 5080", 16_303, 400, 84, "12.0", Link::Pcie),
    Card("RTX 4080", "NVIDIA GeForce RTX 4080", 16_376, 350, 76, "8.9", Link::Pcie),
    Card("V100 16GB", "Tesla V100-SXM2-16GB", 16_384, 224, 80, "7.0", Link::Nvlink),
    Card("A10", "NVIDIA A10", 23_028, 439, 72, "8.6", Link::Pcie),
    Card("L4", "NVIDIA L4", 23_034, 475, 58, "8.9", Link::Pcie),
    Card("RTX 4090", "NVIDIA GeForce RTX 4090", 24_564, 347, 128, "8.9", Link::Pcie),
    Card("A30", "NVIDIA A30", 24_576, 500, 56, "8.0", Link::Nvlink),
    Card("RTX 3090", "NVIDIA GeForce RTX 3090", 24_576, 317, 82, "8.6", Link::Nvlink),
    Card("RTX 5090", "NVIDIA GeForce RTX 5090", 32_607, 494, 170, "12.0", Link::Pcie),
    Card("V100 32GB", "Tesla V100-SXM2-32GB", 32_768, 268, 80, "7.0", Link::Nvlink),
    Card("A100 40GB", "NVIDIA A100-SXM4-40GB", 40_960, 453, 108, "8.0", Link::Nvlink),
    Card("L40", "NVIDIA L40", 46_068, 602, 142, "8.9", Link::Pcie),
    Card("L40S", "NVIDIA L40S", 46_068, 602, 142, "8.9", Link::Pcie),
    Card("A40", "NVIDIA A40", 46_068, 652, 84, "8.6", Link::Nvlink),
    Card("RTX 6000 Ada", "NVIDIA RTX 6000 Ada Generation", 49_140, 631, 142, "8.9", Link::Pcie),
    Card("RTX A6000", "NVIDIA RTX A6000", 49_140, 469, 84, "8.6", Link::Nvlink),
    Card("H100 80GB", "NVIDIA H100 80GB HBM3", 81_559, 551, 132, "9.0", Link::Sharp),
    Card("A100 80GB", "NVIDIA A100-SXM4-80GB", 81_920, 768, 108, "8.0", Link::Nvlink),
    Card("H100 NVL", "NVIDIA H100 NVL", 95_830, 600, 132, "9.0", Link::Nvlink),
    Card("RTX PRO 6000", "NVIDIA RTX PRO 6000 Blackwell", 97_887, 650, 188, "12.0", Link::Pcie),
    Card("H200", "NVIDIA H200", 143_771, 615, 132, "9.0", Link::Sharp),
    Card("B200", "NVIDIA B200", 183_359, 729, 148, "10.0", Link::Sharp),
];

/// A device, or several alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The card's short name, or the size as it was given.
    pub name: String,
    /// The name that a driver gives it: by it, PyTorch sees the architecture.
    pub driver_name: &'static str,
    /// Bytes in all.
    pub total: u64,
    /// Bytes of them that the driver keeps for itself.
    pub reserved: u64,
    /// Multiprocessors, at least and at most.
    pub multiprocessors: (u64, u64),
    /// The compute capability, such as 8.9; of a size, that of the card which is nearest to it.
    pub capability: &'static str,
    /// How several are linked, at least and at best; a size stands for cards with other links.
    pub links: (Link, Link),
    /// How many.
    pub count: u32,
}

impl Device {
    /// Returns the bytes that processes can have.
    pub fn capacity(&self) -> u64 {
        self.total.saturating_sub(self.reserved)
    }

    /// Reads `RTX 4090`, `24GiB`, bytes, or several as `2xA100-80GB`.
    ///
    /// # Errors
    /// When there is no such card, or several, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (count, one) = counted(text.trim())?;
        Self::named(one)?.map_or_else(|| Self::sized(one), Ok).map(|it| Self { count, ..it })
    }

    /// Returns every known card, the smallest first.
    pub fn all() -> Vec<Self> {
        let mut all: Vec<_> = CARDS.iter().map(Self::of).collect();
        all.sort_by_key(Self::capacity);
        all
    }

    fn of(&Card(name, driver_name, total, reserved, multiprocessors, capability, link): &Card) -> Self {
        Self {
            name: name.to_owned(),
            driver_name,
            total: total * MIB,
            reserved: reserved * MIB,
            multiprocessors: (multiprocessors, multiprocessors),
            capability,
            links: (link, link),
            count: 1,
        }
    }

    /// The card of that name, or the only one whose name begins so.
    fn named(text: &str) -> Result<Option<Self>, String> {
        let asked = key(text);
        if asked.is_empty() {
            return Err("a GPU has a name, as in --gpu \"RTX 4090\", or a size, as in --gpu 24GiB".to_owned());
        }
        if let Some(card) = CARDS.iter().find(|it| key(it.0) == asked) {
            return Ok(Some(Self::of(card)));
        }
        let alike: Vec<_> = CARDS.iter().filter(|it| key(it.0).starts_with(&asked)).collect();
        match alike.as_slice() {
            [] => Ok(None),
            [card] => Ok(Some(Self::of(card))),
            several => {
                let names: Vec<_> = several.iter().map(|it| it.0).collect();
                Err(format!("there are several: {}", names.join(", ")))
            }
        }
    }

    /// A device of a size. Its architecture is that of a card of about that size.
    fn sized(text: &str) -> Result<Self, String> {
        let known = || CARDS.iter().map(|it| it.0).collect::<Vec<_>>().join(", ");
        let total = parse_bytes(text)
            .ok()
            .ok_or_else(|| format!("neither a size such as 24GiB nor a known GPU; known are {}", known()))?;
        let off = |bytes: u64| bytes.abs_diff(total) as f64 / total.max(1) as f64;
        let all = Self::all();
        let distance = |it: &Self| off(it.total).min(off(it.capacity()));
        let nearest = all.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)));
        let (driver_name, capability) =
            nearest.map_or(("NVIDIA GeForce RTX 4090", "8.9"), |it| (it.driver_name, it.capability));
        let near = nearest.map_or(0.0, distance).max(ALIKE);
        let alike = || all.iter().filter(|it| distance(it) <= near);
        let counts = || alike().map(|it| it.multiprocessors.0);
        let multiprocessors = (counts().min().unwrap_or(24), counts().max().unwrap_or(188));
        let links = alike().map(|it| it.links.0);
        let links = (links.clone().min().unwrap_or_default(), links.max().unwrap_or_default());
        Ok(Self {
            name: text.trim().to_owned(),
            driver_name,
            total,
            reserved: 0,
            multiprocessors,
            capability,
            links,
            count: 1,
        })
    }
}

/// How many, and of what.
fn counted(text: &str) -> Result<(u32, &str), String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(0);
    let (number, rest) = text.split_at(digits);
    let Some(one) = rest.trim_start().strip_prefix(['x', '×', '*']).filter(|_| digits > 0) else {
        return Ok((1, text));
    };
    match number.parse() {
        Ok(count @ 1..=MOST) => Ok((count, one.trim())),
        _ => Err(format!("a simulated machine has 1 to {MOST} devices")),
    }
}

/// What of a name matters: `NVIDIA A100-SXM4-80GB` is `a10080`.
fn key(name: &str) -> String {
    let words = name.to_lowercase();
    let words = words.split(|c: char| !c.is_ascii_alphanumeric()).filter(|it| {
        !["nvidia", "geforce", "tesla", "rtx", "quadro", "sxm", "sxm2", "sxm3", "sxm4", "sxm5", "pcie", "hbm3", "hbm2e"]
            .contains(it)
    });
    let joined: String = words.collect();
    let bare = joined.strip_prefix("rtx").unwrap_or(&joined);
    bare.strip_suffix("gb").unwrap_or(bare).to_owned()
}

/// Returns the table as Markdown.
pub(super) fn markdown() -> String {
    let mut text = "## Devices\n\nTotals are those of `nvidia-smi`. What the driver keeps is the difference to the capacity in \
                    PyTorch's out-of-memory messages; it varies by about 100 MiB between drivers.\n\n\
                    | name | total | kept by the driver | multiprocessors | compute capability | link |\n|---|---|---|---|---|---|\n"
        .to_owned();
    for Card(name, _, total, reserved, multiprocessors, capability, link) in &CARDS {
        let total = Bytes(total * MIB);
        // Writing into a String cannot fail.
        let link = link.name();
        let _ = writeln!(text, "| {name} | {total} | {reserved} MiB | {multiprocessors} | {capability} | {link} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> String {
        Device::parse(text).map_or_else(|why| why, |it| format!("{}x{}", it.count, it.name))
    }

    #[test]
    fn a_card_goes_by_any_of_its_names() {
        for (text, card) in [
            ("RTX 4090", "1xRTX 4090"),
            ("nvidia geforce rtx-4090", "1xRTX 4090"),
            ("4090", "1xRTX 4090"),
            ("RTX4060", "1xRTX 4060"),
            ("H100", "1xH100"),
            ("A100-80GB", "1xA100 80GB"),
            ("2xA100-80GB", "2xA100 80GB"),
            ("8 × H200", "8xH200"),
            ("NVIDIA A100-SXM4-40GB", "1xA100 40GB"),
            ("L4", "1xL4"),
            ("L40", "1xL40"),
            ("A10", "1xA10"),
        ] {
            assert!(name(text).starts_with(card) || name(text).contains("several: H100"), "{text}: {}", name(text));
        }
        assert!(name("A100").contains("A100 40GB, A100 80GB"), "{}", name("A100"));
        assert!(name("Voodoo 2").contains("neither a size") && name("").contains("a name"));
        assert!(name("99xT4").contains("1 to 16"));
    }

    #[test]
    fn a_size_is_a_device_without_a_reserve_like_cards_of_that_size() {
        let it = Device::parse("12622168064").unwrap();
        assert_eq!((it.total, it.capacity(), it.driver_name), (12_622_168_064, it.total, "NVIDIA GeForce RTX 3060"));
        assert_eq!(it.multiprocessors, (28, 46));
        assert_eq!(Device::parse("24GiB").unwrap().total, 24 << 30);
        assert_eq!(Device::parse("3TiB").unwrap().multiprocessors, (148, 148));
    }

    #[test]
    fn every_card_can_be_asked_for_and_has_a_size_of_its_own_kind() {
        for Card(short, _, total, reserved, ..) in &CARDS {
            let it = Device::parse(short).unwrap();
            assert!(it.name == *short && it.total == total * MIB && reserved * 20 < *total, "{short}");
        }
    }
}
