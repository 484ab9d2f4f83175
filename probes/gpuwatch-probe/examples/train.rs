//! A training loop in Rust with its own allocator, which reports to gpuwatch after every step.
//!
//! `cargo run -p gpuwatch-probe --example train -- [STEPS [UUID]]`, and `gpuwatch` in another terminal. The UUID is the
//! device's (`nvidia-smi -L`); a job that uses CUDA can leave it out, because the probe queries the loaded driver.

use gpuwatch_probe::{
    Description, Probe, Refusal,
    wire::{Counters, Device, Edge, Sample},
};
use std::{
    env,
    error::Error,
    io::{self, Write},
};

/// The size of a segment; a real pool would call `cudaMalloc` for each.
const SEGMENT: u64 = 32 << 20;

/// The counters of a pool with one stream: freed memory is free at once, so `active` equals `allocated`.
#[derive(Default)]
struct Pool {
    counters: Counters,
}

impl Pool {
    fn take(&mut self, bytes: u64) {
        let size = bytes.next_multiple_of(512);
        let it = &mut self.counters;
        let allocated = it.allocated.unwrap_or(0) + size;
        let reserved = it.reserved.unwrap_or(0).max(allocated.next_multiple_of(SEGMENT));
        it.requested = Some(it.requested.unwrap_or(0) + bytes);
        (it.allocated, it.active, it.reserved) = (Some(allocated), Some(allocated), Some(reserved));
        it.allocated_peak = it.allocated_peak.max(it.allocated);
        it.blocks = Some(it.blocks.unwrap_or(0) + 1);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let steps: u64 = arguments.next().map_or(Ok(100), |it| it.parse())?;

    let mut description = Description::default();
    description.hello.framework = Some("rust".to_owned());
    description.device(Device { ordinal: 0, uuid: arguments.next(), ..Device::default() });
    // If no probe can run, or none should (`GPUWATCH=off`), the job runs without one.
    let probe = Probe::start(description).ok();

    let mut pool = Pool::default();
    pool.take(1_000_000_000);
    for step in 1..=steps {
        // A tensor that the job keeps: gpuwatch will find it.
        pool.take(1_000_000);
        let sample = Sample { edge: Edge::Step, step: Some(step), counters: pool.counters, ..Sample::default() };
        if let Some(probe) = &probe
            && probe.push(&(&sample).into()) == Err(Refusal::Off)
        {
            break;
        }
    }
    writeln!(io::stdout(), "{steps} steps are done; Enter ends the job.")?;
    io::stdin().read_line(&mut String::new())?;
    if let Some(probe) = probe {
        probe.stop("exit");
    }
    Ok(())
}
