//! The model that a device's name stands for, and the attributes that follow from it.

use super::state::Card;

/// The facts of a board that its name gives away.
#[derive(Clone, Copy)]
pub(crate) struct Model {
    pub(crate) major: i32,
    pub(crate) minor: i32,
    pub(crate) multiprocessors: i32,
    /// The highest power of the board.
    pub(crate) watts: u32,
}

const fn model(major: i32, minor: i32, multiprocessors: i32, watts: u32) -> Model {
    Model { major, minor, multiprocessors, watts }
}

/// Part of the name, and the figures of the public data sheet: the first row that a name contains decides, so that a
/// longer name comes before its beginning. The last row is for unknown names.
const MODELS: [(&str, Model); 46] = [
    ("GH200", model(9, 0, 132, 900)),
    ("H200", model(9, 0, 132, 700)),
    ("H100", model(9, 0, 132, 700)),
    ("H20", model(9, 0, 78, 500)),
    ("GB200", model(10, 0, 152, 1200)),
    ("B200", model(10, 0, 148, 1000)),
    ("B300", model(10, 3, 148, 1400)),
    ("A100", model(8, 0, 108, 400)),
    ("P100", model(6, 0, 56, 300)),
    ("V100", model(7, 0, 80, 300)),
    ("RTX PRO 6000", model(12, 0, 188, 600)),
    ("RTX 6000 Ada", model(8, 9, 142, 300)),
    ("A6000", model(8, 6, 84, 300)),
    ("A5000", model(8, 6, 64, 230)),
    ("A4000", model(8, 6, 48, 140)),
    ("RTX 8000", model(7, 5, 72, 260)),
    ("A40", model(8, 6, 84, 300)),
    ("A30", model(8, 0, 56, 165)),
    ("L40", model(8, 9, 142, 300)),
    ("L4", model(8, 9, 58, 72)),
    ("5090", model(12, 0, 170, 575)),
    ("5080", model(12, 0, 84, 360)),
    ("5070 Ti", model(12, 0, 70, 300)),
    ("5070", model(12, 0, 48, 250)),
    ("5060 Ti", model(12, 0, 36, 180)),
    ("5060", model(12, 0, 30, 145)),
    ("4090", model(8, 9, 128, 450)),
    ("4080 SUPER", model(8, 9, 80, 320)),
    ("4080", model(8, 9, 76, 320)),
    ("4070 Ti SUPER", model(8, 9, 66, 285)),
    ("4070 Ti", model(8, 9, 60, 285)),
    ("4070 SUPER", model(8, 9, 56, 220)),
    ("4070", model(8, 9, 46, 200)),
    ("4060 Ti", model(8, 9, 34, 160)),
    ("4060", model(8, 9, 24, 115)),
    ("3090 Ti", model(8, 6, 84, 450)),
    ("3090", model(8, 6, 82, 350)),
    ("3080 Ti", model(8, 6, 80, 350)),
    ("3080", model(8, 6, 68, 320)),
    ("3070", model(8, 6, 46, 220)),
    ("3060", model(8, 6, 28, 170)),
    ("2080", model(7, 5, 68, 215)),
    ("A10G", model(8, 6, 80, 300)),
    ("A10", model(8, 6, 72, 150)),
    ("T4", model(7, 5, 40, 70)),
    ("", model(8, 9, 128, 700)),
];

impl Model {
    pub(crate) fn of(name: &str) -> Self {
        MODELS.iter().find(|(part, _)| name.contains(part)).map_or(model(8, 9, 128, 700), |(_, it)| *it)
    }

    fn shared_memory_optin(self) -> i32 {
        match (self.major, self.minor) {
            (9.., _) => 232_448,
            (8, 0) => 166_912,
            _ => 101_376,
        }
    }
}

/// The attribute with that number of `CUdevice_attribute` (and of the runtime's equal list); unknown ones are 0.
pub(super) fn attribute(card: &Card, index: usize, number: i32) -> i32 {
    let model = Model::of(card.name());
    let hopper = i32::from(model.major >= 9);
    match number {
        1..=3 | 111 => 1024,
        4 => 64,
        5 | 11 => i32::MAX,
        6 | 7 => 65_535,
        8 => 49_152,
        9 | 12 | 82 => 65_536,
        10 | 51 | 106 => 32,
        13 => 1_980_000,
        14 => 512,
        16 => model.multiprocessors,
        33 => i32::try_from(index).unwrap_or(0) + 1,
        36 => 2_619_000,
        37 => 5120,
        38 => 50 << 20,
        39 => 1536 + 512 * hopper,
        40 => 3,
        75 => model.major,
        76 => model.minor,
        81 => model.shared_memory_optin() + 1024,
        97 => model.shared_memory_optin(),
        108 => 32 << 20,
        109 => 128 << 20,
        120 | 127 => hopper,
        15 | 19 | 31 | 41 | 78..=80 | 83 | 88..=91 | 95 | 96 | 98 | 99 | 102 | 103 | 115 | 119 => 1,
        _ => 0,
    }
}
