//! A training loop that allocates through `cudarc` and reports to gpuwatch after every step.
//!
//! `cargo run -p gpuwatch-probe --features cudarc --example cudarc -- [STEPS]`, and `gpuwatch` in another terminal.

use cudarc::driver::CudaContext;
use gpuwatch_probe::{Description, Probe, pool, wire::Edge};
use std::{
    env,
    error::Error,
    io::{self, Write},
};

fn main() -> Result<(), Box<dyn Error>> {
    let steps: u64 = env::args().nth(1).map_or(Ok(100), |it| it.parse())?;
    let context = CudaContext::new(0)?;
    let stream = context.default_stream();

    let mut description = Description::default();
    description.hello.framework = Some("cudarc".to_owned());
    description.hello.backend = Some("cudaMallocAsync".to_owned());
    description.device(pool::device(&context));
    // If no probe can run, or none should (`GPUWATCH=off`), the job runs without one.
    let probe = Probe::start(description).ok();

    let weights = stream.alloc_zeros::<f32>(64 << 20)?;
    let mut kept = Vec::new();
    for step in 1..=steps {
        let activations = stream.alloc_zeros::<f32>(32 << 20)?;
        // A tensor that the job keeps: gpuwatch will find it.
        kept.push(stream.alloc_zeros::<f32>(250_000)?);
        drop(activations);
        stream.synchronize()?;
        if let Some(probe) = &probe {
            // The probe counts what the queue cannot take; a probe that is off stays off.
            let _ = probe.push(&pool::reading(&context, Edge::Step, step));
        }
    }
    writeln!(io::stdout(), "{steps} steps are done; Enter ends the job.")?;
    io::stdin().read_line(&mut String::new())?;
    if let Some(probe) = probe {
        probe.stop("exit");
    }
    drop((weights, kept));
    Ok(())
}
