//! Facts that preparation reads from the wheel, stored in a file next to the device's shared object.
//!
//! One device simulates CUDA 12 and 13. A function whose layout or arguments differ between them mostly has two names
//! (`cudaGetDeviceProperties_v2` and `cudaStreamGetCaptureInfo_v2` are CUDA 12's); a function with one name calls
//! [`Wheel::is_cuda_12`].

use super::{abi::Out, sys};
use std::{fmt, fs, path::Path, sync::OnceLock};

/// The versions that the program was compiled for; a library that answers with others is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wheel {
    /// The CUDA runtime's version, as `cudaRuntimeGetVersion` gives it (13020 is 13.2).
    pub(crate) runtime: i32,
    /// cuDNN's, as `cudnnGetVersion` gives it.
    pub(crate) cudnn: usize,
    /// NCCL's, as `ncclGetVersion` gives it.
    pub(crate) nccl: i32,
    /// The architectures with compiled code, such as 90 for `sm_90`.
    pub(crate) architectures: Vec<i32>,
}

impl Default for Wheel {
    fn default() -> Self {
        Self { runtime: 13_020, cudnn: 92_600, nccl: 23_007, architectures: Vec::new() }
    }
}

impl fmt::Display for Wheel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let architectures: Vec<String> = self.architectures.iter().map(i32::to_string).collect();
        write!(
            f,
            "runtime={}\ncudnn={}\nnccl={}\narchitectures={}\n",
            self.runtime,
            self.cudnn,
            self.nccl,
            architectures.join(",")
        )
    }
}

impl Wheel {
    /// The file's name.
    pub(crate) const FILE: &'static str = "wheel";

    fn parse(text: &str) -> Self {
        let mut wheel = Self::default();
        for (key, value) in text.lines().filter_map(|it| it.split_once('=')) {
            match key {
                "runtime" => wheel.runtime = value.parse().unwrap_or(wheel.runtime),
                "cudnn" => wheel.cudnn = value.parse().unwrap_or(wheel.cudnn),
                "nccl" => wheel.nccl = value.parse().unwrap_or(wheel.nccl),
                "architectures" => wheel.architectures = value.split(',').filter_map(|it| it.parse().ok()).collect(),
                _ => {}
            }
        }
        wheel
    }

    /// The wheel that these libraries were prepared for.
    pub(super) fn here() -> &'static Self {
        static WHEEL: OnceLock<Wheel> = OnceLock::new();
        WHEEL.get_or_init(|| {
            let own = sys::code_at(Self::here as *const () as usize).map(|(file, _)| file).unwrap_or_default();
            let file = own.parent().unwrap_or(Path::new(".")).join(Self::FILE);
            Self::parse(&fs::read_to_string(file).unwrap_or_default())
        })
    }

    /// Whether the program was compiled for CUDA 12, and not for 13.
    pub(super) const fn is_cuda_12(&self) -> bool {
        self.runtime < 13_000
    }

    /// The architecture whose code a device of that capability runs: the best one that was compiled in.
    pub(super) fn code_for(&self, capability: i32) -> i32 {
        self.architectures.iter().copied().filter(|it| *it <= capability).max().unwrap_or(capability)
    }
}

entry_points! {
    fn ncclGetVersion(out: Out<i32>) -> i32 {
        out.put(Wheel::here().nccl);
        0
    }

    fn nvrtcVersion(major: Out<i32>, minor: Out<i32>) -> i32 {
        let runtime = Wheel::here().runtime;
        major.put(runtime / 1000);
        minor.put(runtime % 1000 / 10);
        0
    }
}
