//! Devices by name, as their driver reports them, and devices by size.

use super::Link;
use crate::facts::{
    text::similar_names,
    units::{Bytes, parse_bytes, whole},
};
use std::fmt::Write as _;

const MIB: u64 = 1 << 20;

/// How far a size may be from a card's for the card to be taken as its like.
const ALIKE: f64 = 0.05;

/// The least part of its GB that a card has if error correction takes nothing of them.
const FULL: f64 = 0.98;

/// The part of the GB that jobs get on a card of an unknown kind: drivers keep up to 3 %.
const USABLE: f64 = 0.97;

/// A number without a unit is bytes from here on.
const LEAST_BYTES: f64 = 1e6;

/// The most devices of one machine.
const MOST: u32 = 16;

/// A card: its short name, the driver's name for it, the GB that it is sold with, MiB in all as `nvidia-smi` has them,
/// MiB that the driver keeps for itself, multiprocessors, compute capability, how several of them are linked at best.
///
/// Totals are `nvidia-smi`'s. What the driver keeps is the difference to the capacity that PyTorch reports ("GPU 0 has
/// a total capacity of 23.65 GiB" on an RTX 4090), which varies by some 100 MiB between drivers.
#[derive(Debug)]
struct Card(&'static str, &'static str, u64, u64, Kept, u64, &'static str, Link);

impl Card {
    /// The GB that it is sold with.
    fn gb(&self) -> u64 {
        self.2
    }

    /// MiB in all.
    fn total(&self) -> u64 {
        self.3
    }

    /// MiB that jobs get.
    fn usable(&self) -> u64 {
        self.3 - self.4.mib()
    }

    /// Whether error correction takes nothing of what it is sold with.
    fn is_full(&self) -> bool {
        self.total() as f64 >= FULL * (self.gb() << 10) as f64
    }
}

/// MiB that the driver keeps for itself.
#[derive(Clone, Copy, Debug)]
enum Kept {
    /// As published for this card.
    Of(u64),
    /// That of the nearest card for which it is published.
    Like(u64),
}

impl Kept {
    fn mib(self) -> u64 {
        match self {
            Self::Of(mib) | Self::Like(mib) => mib,
        }
    }
}

const CARDS: [Card; 50] = [
    Card("RTX 5060", "NVIDIA GeForce RTX 5060", 8, 8151, Kept::Like(400), 30, "12.0", Link::Pcie),
    Card("RTX 4060", "NVIDIA GeForce RTX 4060", 8, 8188, Kept::Of(255), 24, "8.9", Link::Pcie),
    Card("RTX 4060 Ti 8GB", "NVIDIA GeForce RTX 4060 Ti", 8, 8188, Kept::Like(255), 34, "8.9", Link::Pcie),
    Card("RTX 3070", "NVIDIA GeForce RTX 3070", 8, 8192, Kept::Of(300), 46, "8.6", Link::Pcie),
    Card("RTX 3080", "NVIDIA GeForce RTX 3080", 10, 10_240, Kept::Of(320), 68, "8.6", Link::Pcie),
    Card("RTX 2080 Ti", "NVIDIA GeForce RTX 2080 Ti", 11, 11_264, Kept::Of(250), 68, "7.5", Link::Nvlink),
    Card("RTX 5070", "NVIDIA GeForce RTX 5070", 12, 12_227, Kept::Like(400), 48, "12.0", Link::Pcie),
    Card("RTX 4070", "NVIDIA GeForce RTX 4070", 12, 12_282, Kept::Of(340), 46, "8.9", Link::Pcie),
    Card("RTX 4070 SUPER", "NVIDIA GeForce RTX 4070 SUPER", 12, 12_282, Kept::Like(340), 56, "8.9", Link::Pcie),
    Card("RTX 4070 Ti", "NVIDIA GeForce RTX 4070 Ti", 12, 12_282, Kept::Like(340), 60, "8.9", Link::Pcie),
    Card("RTX 3060", "NVIDIA GeForce RTX 3060", 12, 12_288, Kept::Of(251), 28, "8.6", Link::Pcie),
    Card("RTX 3080 Ti", "NVIDIA GeForce RTX 3080 Ti", 12, 12_288, Kept::Like(320), 80, "8.6", Link::Pcie),
    Card("T4", "Tesla T4", 16, 15_360, Kept::Of(256), 40, "7.5", Link::Pcie),
    Card("RTX 5070 Ti", "NVIDIA GeForce RTX 5070 Ti", 16, 16_303, Kept::Like(470), 70, "12.0", Link::Pcie),
    Card("RTX 5080", "NVIDIA GeForce RTX 5080", 16, 16_303, Kept::Of(400), 84, "12.0", Link::Pcie),
    Card("RTX 5060 Ti 16GB", "NVIDIA GeForce RTX 5060 Ti", 16, 16_311, Kept::Of(470), 36, "12.0", Link::Pcie),
    Card("RTX 4070 Ti SUPER", "NVIDIA GeForce RTX 4070 Ti SUPER", 16, 16_376, Kept::Of(442), 66, "8.9", Link::Pcie),
    Card("RTX 4080", "NVIDIA GeForce RTX 4080", 16, 16_376, Kept::Of(350), 76, "8.9", Link::Pcie),
    Card("RTX 4080 SUPER", "NVIDIA GeForce RTX 4080 SUPER", 16, 16_376, Kept::Like(442), 80, "8.9", Link::Pcie),
    Card("RTX A4000", "NVIDIA RTX A4000", 16, 16_376, Kept::Like(450), 48, "8.6", Link::Pcie),
    Card("RTX 4060 Ti 16GB", "NVIDIA GeForce RTX 4060 Ti", 16, 16_380, Kept::Like(442), 34, "8.9", Link::Pcie),
    Card("P100", "Tesla P100-PCIE-16GB", 16, 16_384, Kept::Of(108), 56, "6.0", Link::Pcie),
    Card("V100 16GB", "Tesla V100-SXM2-16GB", 16, 16_384, Kept::Of(224), 80, "7.0", Link::Nvlink),
    Card("A10", "NVIDIA A10", 24, 23_028, Kept::Of(439), 72, "8.6", Link::Pcie),
    Card("A10G", "NVIDIA A10G", 24, 23_028, Kept::Of(441), 80, "8.6", Link::Pcie),
    Card("L4", "NVIDIA L4", 24, 23_034, Kept::Of(475), 58, "8.9", Link::Pcie),
    Card("RTX 3090 Ti", "NVIDIA GeForce RTX 3090 Ti", 24, 24_564, Kept::Like(347), 84, "8.6", Link::Nvlink),
    Card("RTX 4090", "NVIDIA GeForce RTX 4090", 24, 24_564, Kept::Of(347), 128, "8.9", Link::Pcie),
    Card("RTX A5000", "NVIDIA RTX A5000", 24, 24_564, Kept::Of(450), 64, "8.6", Link::Nvlink),
    Card("A30", "NVIDIA A30", 24, 24_576, Kept::Of(500), 56, "8.0", Link::Nvlink),
    Card("RTX 3090", "NVIDIA GeForce RTX 3090", 24, 24_576, Kept::Of(317), 82, "8.6", Link::Nvlink),
    Card("RTX 5090", "NVIDIA GeForce RTX 5090", 32, 32_607, Kept::Of(494), 170, "12.0", Link::Pcie),
    Card("V100 32GB", "Tesla V100-SXM2-32GB", 32, 32_768, Kept::Of(268), 80, "7.0", Link::Nvlink),
    Card("A100 40GB", "NVIDIA A100-SXM4-40GB", 40, 40_960, Kept::Of(453), 108, "8.0", Link::Nvlink),
    Card("L40", "NVIDIA L40", 48, 46_068, Kept::Of(602), 142, "8.9", Link::Pcie),
    Card("L40S", "NVIDIA L40S", 48, 46_068, Kept::Of(602), 142, "8.9", Link::Pcie),
    Card("A40", "NVIDIA A40", 48, 46_068, Kept::Of(652), 84, "8.6", Link::Nvlink),
    Card("RTX 6000 Ada", "NVIDIA RTX 6000 Ada Generation", 48, 49_140, Kept::Of(631), 142, "8.9", Link::Pcie),
    Card("RTX A6000", "NVIDIA RTX A6000", 48, 49_140, Kept::Of(469), 84, "8.6", Link::Nvlink),
    Card("RTX 8000", "Quadro RTX 8000", 48, 49_152, Kept::Like(469), 72, "7.5", Link::Nvlink),
    Card("H100 80GB", "NVIDIA H100 80GB HBM3", 80, 81_559, Kept::Of(551), 132, "9.0", Link::Sharp),
    Card("A100 80GB", "NVIDIA A100-SXM4-80GB", 80, 81_920, Kept::Of(768), 108, "8.0", Link::Nvlink),
    Card("H100 NVL", "NVIDIA H100 NVL", 94, 95_830, Kept::Of(600), 132, "9.0", Link::Nvlink),
    Card("H20", "NVIDIA H20", 96, 97_871, Kept::Of(586), 78, "9.0", Link::Sharp),
    Card("GH200 96GB", "NVIDIA GH200 480GB", 96, 97_871, Kept::Like(600), 132, "9.0", Link::Nvlink),
    Card("RTX PRO 6000", "NVIDIA RTX PRO 6000 Blackwell", 96, 97_887, Kept::Of(650), 188, "12.0", Link::Pcie),
    Card("H200", "NVIDIA H200", 141, 143_771, Kept::Of(615), 132, "9.0", Link::Sharp),
    Card("B200", "NVIDIA B200", 180, 183_359, Kept::Of(729), 148, "10.0", Link::Sharp),
    Card("GB200", "NVIDIA GB200", 186, 189_471, Kept::Like(729), 152, "10.0", Link::Sharp),
    Card("B300", "NVIDIA B300 SXM6 AC", 288, 275_040, Kept::Like(1100), 148, "10.3", Link::Sharp),
];

/// What the names of devices contain that are refused, and why. A word that ends in `#` begins a number.
const REFUSED: [(&[&str], &str); 4] = [
    (
        &["laptop", "mobile", "max-q"],
        "a laptop's card has another size and speed than the desktop card of that name; give its size, as in --gpu 16GB",
    ),
    (
        &["gb10", "spark", "jetson", "orin", "xavier", "thor", "agx", "igx"],
        "it shares its memory with the CPU, and what the rest of the machine needs is not known; give the size that the job \
         may have, as in --gpu 100GiB",
    ),
    (
        &["mig", "1g", "2g", "3g", "4g", "7g"],
        "a part of a card has a size of its own; give it as nvidia-smi shows it, as in --gpu 9856MiB",
    ),
    (
        &[
            "mi#", "radeon", "instinct", "rx", "arc", "gaudi#", "tpu", "trainium", "apple", "m1", "m2", "m3", "m4",
            "m5", "ascend",
        ],
        "it does not run CUDA, which is what is simulated",
    ),
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
    /// What the user's words were taken for, in a sentence, where cards differ that they may mean.
    pub taken: Option<String>,
    /// How many.
    pub count: u32,
}

impl Device {
    /// Returns the bytes that processes can have.
    pub fn capacity(&self) -> u64 {
        self.total.saturating_sub(self.reserved)
    }

    /// Reads `RTX 4090`, `24GB` or `24` (a card that is sold with so much), `24GiB`, bytes, or several as
    /// `2xA100-80GB`.
    ///
    /// # Errors
    /// When there is no such card, or several, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (count, one) = counted(text.trim())?;
        let found = match exact(one) {
            Some(card) => Self::of(card),
            None => match gigabytes(one)? {
                Some(gb) => Self::sold(gb),
                None => Self::begun(one)?.map_or_else(|| Self::sized(one), Ok)?,
            },
        };
        Ok(Self { count, ..found })
    }

    /// Returns every known card, the smallest first.
    pub fn all() -> Vec<Self> {
        let mut all: Vec<_> = CARDS.iter().map(Self::of).collect();
        all.sort_by_key(Self::capacity);
        all
    }

    fn of(&Card(name, driver_name, _, total, kept, multiprocessors, capability, link): &Card) -> Self {
        Self {
            name: name.to_owned(),
            driver_name,
            total: total * MIB,
            reserved: kept.mib() * MIB,
            multiprocessors: (multiprocessors, multiprocessors),
            capability,
            links: (link, link),
            taken: None,
            count: 1,
        }
    }

    /// The only card whose name begins so.
    fn begun(text: &str) -> Result<Option<Self>, String> {
        let asked = key(text);
        if asked.is_empty() {
            return Err("a GPU has a name, as in --gpu \"RTX 4090\", or a size, as in --gpu 24GB".to_owned());
        }
        if let Some(why) = refused(text) {
            return Err(format!("{}: {why}", text.trim()));
        }
        let alike: Vec<_> = CARDS.iter().filter(|it| key(it.0).starts_with(&asked)).collect();
        match alike.as_slice() {
            [] => Ok(None),
            [card] => Ok(Some(Self::of(card))),
            several => Err(format!("there are several: {}", listed(several))),
        }
    }

    /// A card that is sold with so many GB: the smallest of those that nearly have them, as 24 GB on an L4 are 22 GiB.
    fn sold(gb: f64) -> Self {
        let cards: Vec<_> = CARDS.iter().filter(|it| (it.gb() as f64 - gb).abs() < 0.01).collect();
        let full = cards.iter().filter(|it| it.is_full()).min_by_key(|it| it.usable());
        let Some(card) = full.or_else(|| cards.iter().min_by_key(|it| it.usable())) else {
            let device = Self::like(format!("{gb} GB"), whole(gb * 1024.0 * USABLE) * MIB);
            let size = Bytes(device.total);
            let taken =
                format!("{gb} GB: taken for a card of which jobs get {size}, {:.0} % less", (1.0 - USABLE) * 100.0);
            return Self { taken: Some(taken), ..device };
        };
        let device = Self::of(card);
        let less: Vec<_> = cards.iter().filter(|it| it.usable() < card.usable()).copied().collect();
        let others = match less.iter().map(|it| it.usable()).min() {
            Some(least) => format!("; of {} they get from {}: name yours", listed(&less), Bytes(least * MIB)),
            None => String::new(),
        };
        let size = Bytes(device.capacity());
        let taken = format!("{gb} GB: taken for a card of which jobs get {size}, as of {}{others}", card.0);
        // What the card may be of that name: its figures are ranges.
        let (multiprocessors, links) = cards.iter().map(|it| Self::of(it)).fold(
            (device.multiprocessors, device.links),
            |((least, most), (slow, fast)), it| {
                let (count, link) = (it.multiprocessors.0, it.links.0);
                ((least.min(count), most.max(count)), (slow.min(link), fast.max(link)))
            },
        );
        Self { name: format!("{gb} GB"), multiprocessors, links, taken: Some(taken), ..device }
    }

    /// A device of a size.
    fn sized(text: &str) -> Result<Self, String> {
        let bytes = parse_bytes(text).ok();
        let unknown = || {
            let alike = similar_names(text, CARDS.iter().map(|it| it.0));
            format!(
                "neither a size such as 24GB nor a known GPU; {alike}for a card that is not known, name its size, as in \
                 --gpu 8GB"
            )
        };
        let total = bytes.ok_or_else(unknown)?;
        Ok(Self::like(text.trim().to_owned(), total))
    }

    /// A device of so many bytes. Its architecture is that of a card of about that size, of those whose figures are all
    /// published.
    fn like(name: String, total: u64) -> Self {
        let off = |bytes: u64| bytes.abs_diff(total) as f64 / total.max(1) as f64;
        let all: Vec<_> = CARDS.iter().filter(|it| matches!(it.4, Kept::Of(_))).map(Self::of).collect();
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
        Self { name, driver_name, total, reserved: 0, multiprocessors, capability, links, taken: None, count: 1 }
    }
}

/// The card of that name: its own, or the driver's where only one has it.
fn exact(text: &str) -> Option<&'static Card> {
    let asked = key(text);
    let mut by_driver = CARDS.iter().filter(|it| key(it.1) == asked);
    CARDS.iter().find(|it| key(it.0) == asked).or_else(|| by_driver.next().filter(|_| by_driver.next().is_none()))
}

/// The GB of `24`, `24G` or `24 GB`, which are a card's; `None` of what is something else.
fn gigabytes(text: &str) -> Result<Option<f64>, String> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let Ok(number) = number.parse::<f64>() else { return Ok(None) };
    match unit.trim().to_ascii_lowercase().as_str() {
        "g" | "gb" if number >= 1.0 => Ok(Some(number)),
        "" if number >= LEAST_BYTES => Ok(None),
        "" if (1.0..1000.0).contains(&number) => Ok(Some(number)),
        "" => {
            Err(format!("{text} is neither a card's GB nor a number of bytes; write {text}MiB, or a size such as 24GB"))
        }
        _ => Ok(None),
    }
}

/// Why a device of that name is refused.
fn refused(text: &str) -> Option<&'static str> {
    let text = text.to_lowercase();
    let words: Vec<_> = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').collect();
    let has = |part: &str| match part.strip_suffix('#') {
        Some(start) => words
            .iter()
            .any(|it| it.strip_prefix(start).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))),
        None => words.contains(&part),
    };
    REFUSED.iter().find(|(parts, _)| parts.iter().any(|it| has(it))).map(|it| it.1)
}

/// The cards' names.
fn listed(cards: &[&Card]) -> String {
    cards.iter().map(|it| it.0).collect::<Vec<_>>().join(", ")
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
    let mut text = "## Devices\n\nTotals are those of `nvidia-smi`. What the driver keeps is the difference to the capacity that \
                    PyTorch reports; it varies by about 100 MiB between drivers. Where it is not published, ≈ is that of a card \
                    of about the same size and age.\n\n\
                    | name | sold with | total | kept by the driver | multiprocessors | compute capability | link |\n\
                    |---|---|---|---|---|---|---|\n"
        .to_owned();
    for Card(name, _, gb, total, kept, multiprocessors, capability, link) in &CARDS {
        let (total, link) = (Bytes(total * MIB), link.name());
        let about = if matches!(kept, Kept::Like(_)) { "≈ " } else { "" };
        let kept = kept.mib();
        // Writing into a String cannot fail.
        let _ = writeln!(
            text,
            "| {name} | {gb} GB | {total} | {about}{kept} MiB | {multiprocessors} | {capability} | {link} |"
        );
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
            ("NVIDIA A10G", "1xA10G"),
            ("GH200", "1xGH200"),
            ("nvidia gh200 480gb", "1xGH200"),
            ("GB200", "1xGB200"),
            ("4x B300", "4xB300"),
            ("rtx 4070 ti super", "1xRTX 4070 Ti SUPER"),
            ("P100", "1xP100"),
        ] {
            assert!(name(text).starts_with(card) || name(text).contains("several: H100"), "{text}: {}", name(text));
        }
        assert!(name("A100").contains("A100 40GB, A100 80GB"), "{}", name("A100"));
        assert!(name("Voodoo 2").contains("neither a size") && name("").contains("a name"));
        assert!(name("RTX 4060 Ti").contains("4060 Ti 8GB, RTX 4060 Ti 16GB"), "{}", name("RTX 4060 Ti"));
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
    fn gigabytes_are_those_of_a_card_that_is_sold_with_them() {
        let least = |gb: &str| Device::parse(gb).unwrap();
        for text in ["24", "24GB", "24 gb", "24G", "24.0"] {
            let it = least(text);
            assert_eq!((it.name.as_str(), it.capacity()), ("24 GB", (24_576 - 500) << 20), "{text}");
            let taken = it.taken.unwrap();
            assert!(taken.contains("of A10, A10G, L4 they get from 22.0"), "{taken}");
        }
        // All of 16 GB that a T4 has less of; none of these is larger than what it stands for.
        for gb in 4..300_u64 {
            let it = least(&gb.to_string());
            assert!(it.capacity() < gb << 30 && it.capacity() >= (gb << 30) / 10 * 9, "{gb}: {}", it.capacity());
            let least = CARDS.iter().filter(|it| it.gb() == gb && it.is_full()).map(|it| it.usable() << 20).min();
            assert!(least.is_none_or(|least| least == it.capacity()), "{gb}: {}", it.capacity());
        }
        assert_eq!((least("2x80GB").count, least("48").multiprocessors), (2, (72, 142)));
        // A number is a card's name, a card's GB or bytes, and never a card of a few bytes.
        assert!(
            name("24576").contains("24576MiB") && name("0").contains("neither") && name("999999").contains("neither")
        );
        assert_eq!((least("1000000").total, least("24GiB").taken), (1_000_000, None));
        assert_eq!(least("4090").name, "RTX 4090");
    }

    #[test]
    fn a_device_without_a_memory_of_its_own_or_without_cuda_is_refused_by_name() {
        for (text, part) in [
            ("RTX 4090 Laptop GPU", "laptop"),
            ("RTX 2080 Max-Q", "laptop"),
            ("GB10", "with the CPU"),
            ("DGX Spark", "with the CPU"),
            ("Jetson AGX Orin 64GB", "with the CPU"),
            ("MI300X", "not run CUDA"),
            ("8xMI325X", "not run CUDA"),
            ("Radeon RX 7900 XTX", "not run CUDA"),
            ("Gaudi3", "not run CUDA"),
            ("A100 MIG 1g.10gb", "part of a card"),
        ] {
            assert!(name(text).contains(part), "{text}: {}", name(text));
        }
        // Names of NVIDIA's that are not listed are unknown, and no more is claimed of them.
        for text in ["Quadro M5000", "Tesla M40", "GTX 1080 Ti"] {
            assert!(name(text).starts_with("neither a size"), "{text}: {}", name(text));
        }
    }

    #[test]
    fn every_card_is_simulated_with_its_architecture() {
        for Card(short, driver_name, .., multiprocessors, capability, _) in &CARDS {
            let (major, minor, count) = simgpu::architecture(driver_name);
            assert_eq!((format!("{major}.{minor}"), count), ((*capability).to_owned(), *multiprocessors), "{short}");
        }
    }

    #[test]
    fn every_card_can_be_asked_for_and_has_a_size_of_its_own_kind() {
        for Card(short, _, gb, total, kept, ..) in &CARDS {
            let it = Device::parse(short).unwrap();
            assert!(it.name == *short && it.total == total * MIB && kept.mib() * 20 < *total, "{short}");
            assert!(*total <= gb << 10 && *total * 10 >= (gb << 10) * 9, "{short}");
        }
    }
}
