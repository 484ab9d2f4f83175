//! The command: prepare libraries, run a program on a simulated machine, show the machine.

use anyhow::{Context, bail};
use clap::{Parser, Subcommand};
use simgpu::Machine;
use std::{
    ffi::OsString,
    io::Write,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

/// A simulated GPU that real `PyTorch` trains on
#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Make the libraries that a `PyTorch` imports (without one: the driver's and NVML's)
    Prepare {
        /// The folder of the package `torch`
        #[arg(long)]
        torch: Option<PathBuf>,
        /// Where to put the libraries
        #[arg(long, default_value = "simgpu-lib")]
        out: PathBuf,
    },
    /// Run a program on a simulated machine
    Run {
        /// What the machine has: name, total, what the driver keeps of it
        #[arg(long, default_value = "NVIDIA H200:143771MiB:615MiB")]
        devices: String,
        /// The folder of the package `torch` [default: that of the Python that the program runs]
        #[arg(long)]
        torch: Option<PathBuf>,
        /// Where the machine's state is
        #[arg(long, env = "SIMGPU_DIR", default_value = "/dev/shm/simgpu")]
        dir: PathBuf,
        /// The program and its arguments
        #[arg(last = true, required = true)]
        program: Vec<OsString>,
    },
    /// Show the machine's devices and who uses them
    Status {
        /// Where the machine's state is
        #[arg(long, env = "SIMGPU_DIR", default_value = "/dev/shm/simgpu")]
        dir: PathBuf,
    },
}

fn main() -> anyhow::Result<()> {
    match Args::parse().action {
        Action::Prepare { torch: Some(torch), out } => simgpu::prepare(&torch, &out).context("prepare"),
        Action::Prepare { torch: None, out } => simgpu::prepare_driver(&out).map(|_| ()).context("prepare"),
        Action::Run { devices, torch, dir, program } => run(&devices, torch, &dir, &program),
        Action::Status { dir } => status(&dir),
    }
}

fn run(devices: &str, torch: Option<PathBuf>, dir: &Path, program: &[OsString]) -> anyhow::Result<()> {
    let [name, arguments @ ..] = program else { bail!("no program") };
    let torch = torch.map_or_else(|| simgpu::torch_of(program), Ok)?;
    let machine = Machine::new(devices, dir).context("the machine's state")?;
    let libraries = simgpu::prepared(&torch, dir).context("prepare")?;
    let environment = machine.environment(&libraries).into_iter().chain(machine.preload(&libraries));
    Err(Command::new(name).args(arguments).envs(environment).exec()).context("run the program")
}

fn status(dir: &Path) -> anyhow::Result<()> {
    let machine = Machine::open(dir).context("the machine's state")?;
    let mut out = std::io::stdout().lock();
    for card in machine.cards()? {
        let used: u64 = card.tenants.iter().map(|it| it.used).sum();
        let mib = |bytes: u64| bytes >> 20;
        let line = format!("{}  {}  {} of {} MiB", card.uuid, card.name, mib(used), mib(card.total));
        if writeln!(out, "{line}").is_err() {
            return Ok(());
        }
        for tenant in card.tenants {
            if writeln!(out, "  pid {}  {} MiB", tenant.pid, mib(tenant.used)).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}
