//! The identity of this process, from the kernel and the environment.

use crate::{
    secrets, sys,
    wire::{Hello, Job, PROTOCOL},
};
use std::{
    env, fs,
    io::Read,
    process,
    time::{SystemTime, UNIX_EPOCH},
};

/// Fills in what the process knows about itself and the description lacks.
pub(crate) fn complete(hello: &mut Hello) {
    hello.protocol = PROTOCOL;
    if hello.probe.is_empty() {
        hello.probe = format!("gpuwatch-probe/{}", option_env!("CARGO_PKG_VERSION").unwrap_or("0"));
    }
    hello.instance = hello.instance.take().or_else(|| Some(instance()));
    hello.pid = process::id();
    hello.start_us = hello.start_us.or_else(start_us);
    if hello.host.is_empty() {
        hello.host = host();
    }
    let argv = std::mem::take(&mut hello.argv);
    hello.argv = shown_arguments(if argv.is_empty() { command_line() } else { argv });
    let cwd = || Some(env::current_dir().ok()?.to_string_lossy().into_owned());
    hello.cwd = hello.cwd.take().or_else(cwd);
    hello.run = hello.run.take().or_else(|| text("GPUWATCH_RUN"));
    hello.restart = hello.restart.or_else(|| number(&["TORCHELASTIC_RESTART_COUNT"]));
    hello.rank = hello.rank.or_else(|| number(&["RANK", "OMPI_COMM_WORLD_RANK"]));
    hello.local_rank = hello.local_rank.or_else(|| number(&["LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"]));
    hello.world_size = hello.world_size.or_else(|| number(&["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"]));
    let master = || Some(format!("{}:{}", text("MASTER_ADDR")?, text("MASTER_PORT")?));
    hello.master = hello.master.take().or_else(master);
    hello.job = hello.job.take().or_else(job);
}

/// Returns a unique name: 128 bits in hexadecimal, random if the system has random numbers.
fn instance() -> String {
    let mut bytes = [0; 16];
    let random = fs::File::open("/dev/urandom").and_then(|mut it| it.read_exact(&mut bytes));
    let number = u128::from_be_bytes(bytes);
    let made_up = || u128::from(process::id()) << 64 | u128::from(sys::monotonic_us());
    format!("{:032x}", if random.is_ok() { number } else { made_up() })
}

/// Returns the wall clock, µs of Unix time.
pub(crate) fn unix_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(0)
}

/// Returns the host's name.
pub(crate) fn host() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").map(|it| it.trim_end().to_owned()).unwrap_or_default()
}

/// Returns the resident bytes of this process.
pub(crate) fn resident() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    statm.split(' ').nth(1)?.parse::<u64>().ok()?.checked_mul(sys::page_size())
}

/// Returns the command line for viewers: without secrets, or only the program if `GPUWATCH` contains `noargs`.
pub(crate) fn shown_arguments(argv: Vec<String>) -> Vec<String> {
    if asks_for("noargs") { argv.into_iter().take(1).collect() } else { secrets::arguments(&argv) }
}

/// Returns whether `GPUWATCH`, a comma-separated list, contains a word.
pub(crate) fn asks_for(word: &str) -> bool {
    text("GPUWATCH").is_some_and(|it| it.split(',').any(|option| option.trim() == word))
}

fn command_line() -> Vec<String> {
    let bytes = fs::read("/proc/self/cmdline").unwrap_or_default();
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
    bytes.split(|&it| it == 0).map(|it| String::from_utf8_lossy(it).into_owned()).collect()
}

fn start_us() -> Option<u64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The command's name is in parentheses and may contain any of them.
    let ticks: u64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let boot = fs::read_to_string("/proc/stat").ok()?;
    let boot: u64 = boot.lines().find_map(|it| it.strip_prefix("btime "))?.trim().parse().ok()?;
    let since_boot = ticks.checked_mul(1_000_000)?.checked_div(sys::ticks_per_second())?;
    boot.checked_mul(1_000_000)?.checked_add(since_boot)
}

fn job() -> Option<Job> {
    let known = [("slurm", "SLURM_JOB_ID"), ("pbs", "PBS_JOBID"), ("lsf", "LSB_JOBID")];
    let named = |scheduler: &str, id: String| Job { scheduler: scheduler.to_owned(), id };
    let found = known.iter().find_map(|(scheduler, name)| Some(named(scheduler, text(name)?)));
    found.or_else(|| text("KUBERNETES_SERVICE_HOST").and(Some(named("kubernetes", host()))))
}

fn text(name: &str) -> Option<String> {
    env::var_os(name).filter(|it| !it.is_empty()).map(|it| it.to_string_lossy().into_owned())
}

fn number(names: &[&str]) -> Option<u64> {
    names.iter().find_map(|name| text(name)?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_identifies_itself() {
        let mut hello = Hello { rank: Some(7), ..Hello::default() };
        complete(&mut hello);
        assert_eq!((hello.protocol, hello.pid, hello.rank), (PROTOCOL, process::id(), Some(7)));
        assert!(hello.probe.starts_with("gpuwatch-probe/") && !hello.argv.is_empty() && hello.cwd.is_some());
        let age_us = unix_us().abs_diff(hello.start_us.unwrap_or(0));
        assert!(age_us < 600_000_000, "started {age_us} µs ago");
        assert!(resident().is_some_and(|it| it > 100_000));
    }
}
