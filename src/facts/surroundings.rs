//! What of a machine decides whether gpuwatch sees a GPU and other users' jobs on it.

use super::text::Foreign;
use serde::{Deserialize, Serialize};

/// What is there, apart from the driver's answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surroundings {
    /// NVIDIA's graphics devices on the PCI bus; `None` where the bus cannot be read.
    pub gpus: Option<u32>,
    /// Version of the loaded kernel module.
    pub module: Option<Foreign>,
    /// Whether the driver's device files are there (`/dev/nvidia0` and on).
    pub has_files: bool,
    /// Whether the driver's library (NVML) is there; `None` before it was opened.
    pub has_library: Option<bool>,
    /// Whether the driver refused this user.
    pub is_refused: bool,
    /// What runs this container: `docker`, `podman`, …; `None` outside of one.
    pub container: Option<Foreign>,
    /// Within WSL, whether Windows shares its GPU (`/dev/dxg`); `None` elsewhere.
    pub wsl: Option<bool>,
    /// The distribution's short name (`ID` in os-release).
    pub system: Option<Foreign>,
    /// Users whose probes have sockets here that this user may not read.
    pub others: Vec<Foreign>,
}
