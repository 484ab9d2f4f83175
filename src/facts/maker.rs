//! Who makes a device: the words that differ between makers, one row each.

use serde::{Deserialize, Serialize};

/// Who makes a device. Recordings without a maker are NVIDIA's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Maker {
    /// NVIDIA, read through NVML.
    #[default]
    Nvidia,
    /// AMD, read from the kernel's files.
    Amd,
    /// Intel, read from the kernel's files.
    Intel,
}

/// What users need to know of a maker's devices.
#[derive(Clone, Copy, Debug)]
pub struct MakerRow {
    /// The maker.
    pub maker: Maker,
    /// Its name, also at the beginning of its devices' names.
    pub name: &'static str,
    /// Its number on the PCI bus.
    pub vendor: u16,
    /// The kernel's modules that drive its devices, the usual one first.
    pub modules: &'static [&'static str],
    /// What to do where this user may not read its devices.
    pub permission: &'static str,
    /// What to do about a device that fell off the bus.
    pub lost: &'static str,
    /// The command that shows which devices its driver has.
    pub list: &'static str,
    /// The command that shows what its driver answers.
    pub tool: &'static str,
    /// Whether the driver has samples of the work of every process that works, so that a process without one rests
    /// while others have some.
    pub samples_all: bool,
}

impl Maker {
    /// Every maker.
    pub const TABLE: [MakerRow; 3] = [
        MakerRow {
            maker: Self::Nvidia,
            name: "NVIDIA",
            vendor: 0x10DE,
            modules: &["nvidia"],
            permission: "run as root, or let the administrator change the modes of /dev/nvidia*",
            lost: "see dmesg for its Xid; it needs a reset or a reboot",
            list: "nvidia-smi -L",
            tool: "nvidia-smi",
            samples_all: true,
        },
        MakerRow {
            maker: Self::Amd,
            name: "AMD",
            vendor: 0x1002,
            modules: &["amdgpu"],
            permission: "run as root, or let the administrator change the modes of its files in /sys/class/drm",
            lost: "see dmesg for the messages of amdgpu; it needs a reset or a reboot",
            list: "ls -l /sys/class/drm",
            tool: "amd-smi",
            // Kernels of ROCm run on queues of which the kernel's driver sees no work.
            samples_all: false,
        },
        MakerRow {
            maker: Self::Intel,
            name: "Intel",
            vendor: 0x8086,
            modules: &["xe", "i915"],
            permission: "run as root, or let the administrator change the modes of its files in /sys/class/drm",
            lost: "see dmesg for the messages of xe or i915; it needs a reset or a reboot",
            list: "ls -l /sys/class/drm",
            tool: "xpu-smi",
            samples_all: false,
        },
    ];

    /// Returns what the table says of it.
    pub fn row(self) -> &'static MakerRow {
        let [nvidia, amd, intel] = &Self::TABLE;
        match self {
            Self::Nvidia => nvidia,
            Self::Amd => amd,
            Self::Intel => intel,
        }
    }

    /// Returns whether it is the one that recordings and reports do not name.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns a device's name without the maker's, and without a brand that all models of a kind have.
    pub fn model(name: &str) -> &str {
        let of = |row: &MakerRow| name.strip_prefix(row.name)?.strip_prefix(' ');
        let model = Self::TABLE.iter().find_map(of).unwrap_or(name);
        model.strip_prefix("GeForce ").unwrap_or(model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_maker_has_the_row_with_its_own_name() {
        for row in &Maker::TABLE {
            assert_eq!(row.maker.row().name, row.name);
            let name = serde_json::to_string(&row.maker).unwrap();
            assert_eq!(name, format!("\"{}\"", row.name.to_lowercase()));
        }
    }

    #[test]
    fn a_model_is_a_name_without_the_maker() {
        for (name, model) in [
            ("NVIDIA H200", "H200"),
            ("NVIDIA GeForce RTX 3060", "RTX 3060"),
            ("AMD Instinct MI300X OAM", "Instinct MI300X OAM"),
            ("Intel Arc B580", "Arc B580"),
            ("NVIDIA", "NVIDIA"),
            ("Radeon", "Radeon"),
        ] {
            assert_eq!(Maker::model(name), model);
        }
    }
}
