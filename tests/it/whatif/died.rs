//! A run that ran out of memory and ended: what it would have needed is not in its trace.

use super::{answered, whatif};
use crate::helpers::torch::{self, Gpu};
use gpuwatch::facts::units::Bytes;

#[test]
fn a_run_that_died_needs_more_than_its_trace_has_and_fit_is_named() {
    let gpu = Gpu::new("NVIDIA A10:1GiB:0MiB");
    let file = gpu.dir().join("died.pickle");
    torch::stdout(&gpu.script(include_str!("died.py")).arg(&file).output().unwrap());
    let device = answered(&file, &["--set", ""])["devices"][0].clone();
    assert!(device["died_at"].as_u64() < device["events"].as_u64() && device["died_at"].is_u64(), "{device:#}");
    let text = torch::stdout(&whatif(&file, &["--set", ""]));
    let least = Bytes(device["candidates"][0]["smallest_device"].as_u64().unwrap());
    let least = format!("more than {least}");
    for phrase in [&*least, "ended: what follows is true up to there", "`gpuwatch fit -- COMMAND`"] {
        assert!(text.contains(phrase), "{phrase}: {text}");
    }
}
