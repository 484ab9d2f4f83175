//! Options: flags override the environment, which overrides the config file, which overrides defaults.

/// Additions to the config file.
mod edit;
/// The config file.
mod file;
/// Its sections and keys.
pub mod keys;

use crate::{
    facts::{text::Foreign, units},
    sources::{self, drm, nvml, probe},
    storage::{
        output,
        replay::short_name,
        sink::{
            delivery::{self, Hook, Program},
            store::Store,
        },
    },
};
use anyhow::{Result, bail};
pub use edit::Edit;
pub use file::{Fault, File, Setting, Settings};
use rustix::fs::{Access, access};
use std::{
    env,
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

/// Most characters of a recording's name.
const NAME_MAX: usize = 64;

/// Whether gpuwatch queries the driver.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Driver {
    /// Do not query the NVIDIA driver; show only what probes and other makers' drivers report.
    #[arg(long, env = "GPUWATCH_NO_NVML", value_parser = clap::builder::FalseyValueParser::new())]
    pub no_nvml: bool,
    /// Do not read what the kernel shows of AMD's and Intel's devices.
    #[arg(long, env = "GPUWATCH_NO_DRM", value_parser = clap::builder::FalseyValueParser::new())]
    pub no_drm: bool,
}

/// Options of every command that watches.
#[derive(Clone, Debug, clap::Args)]
pub struct WatchFlags {
    /// Whether gpuwatch queries the driver.
    #[command(flatten)]
    pub driver: Driver,
    /// Time between two readings of a device's memory, as in `250ms` or `2s`; at least 100ms.
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = duration)]
    pub interval: Duration,
}

impl WatchFlags {
    /// Returns every enabled source.
    pub fn sources(&self) -> sources::Options {
        let nvml = (!self.driver.no_nvml)
            .then(|| nvml::Options { library: env::var_os("GPUWATCH_NVML_PATH"), interval: self.interval });
        let root = || env::var_os("GPUWATCH_DRM_ROOT").map_or_else(|| PathBuf::from("/"), PathBuf::from);
        let drm = (!self.driver.no_drm).then(|| drm::Options { root: root(), interval: self.interval });
        sources::Options { nvml, drm, probes: Some(probe::Options::user()), ..sources::Options::default() }
    }
}

/// When gpuwatch asks a job for a capture.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct CaptureFlags {
    /// When to capture call stacks: the job then records the stack of every allocation for some steps. Also when `run`
    /// and the recorder of `attach` trace windows: every allocation of some steps, for a warning that other settings
    /// may help, and of one step of each process, once, for what memory consists of at its highest moment.
    #[arg(long, env = "GPUWATCH_SITES", value_name = "WHEN", value_enum, default_value_t)]
    pub sites: CaptureWhen,
}

/// When gpuwatch asks a job for a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum CaptureWhen {
    /// Once for each growth or warning that matters; at most three times in ten minutes.
    #[default]
    Auto,
    /// Only on request.
    Asked,
}

/// A program that receives alerts.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct AlertProgramFlags {
    /// Start PROGRAM for each alert from warning on: JSON on its standard input, `GPUWATCH_ALERT_…` in its environment.
    ///
    /// No shell is involved. One runs at a time, for at most ten seconds.
    #[arg(long, value_name = "PROGRAM", value_parser = program)]
    pub on_alert: Option<OsString>,
    /// An argument for PROGRAM; repeatable.
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub on_alert_arg: Vec<OsString>,
}

impl AlertProgramFlags {
    /// Starts the program's thread; `None` without a program.
    ///
    /// # Errors
    /// Fails if no thread can be started.
    pub fn hook(&self) -> io::Result<Option<Hook>> {
        let Some(path) = self.on_alert.clone() else { return Ok(None) };
        Hook::start(Program { path, arguments: self.on_alert_arg.clone() }, delivery::LIMIT).map(Some)
    }
}

/// What is kept among the recordings.
#[derive(Clone, Debug, clap::Args)]
pub struct RetentionFlags {
    /// How many recordings to keep; the oldest are removed before a new one is written.
    #[arg(long, value_name = "COUNT", default_value = "200", value_parser = clap::value_parser!(u64).range(1..))]
    pub keep: u64,
    /// How many bytes all recordings may take, as in `500MiB` or `4GiB`.
    #[arg(long, value_name = "BYTES", default_value = "4GiB", value_parser = units::parse_bytes)]
    pub keep_bytes: u64,
    /// Record the names of programs without their arguments. By default, only what looks like a secret is left out.
    #[arg(long)]
    pub no_arguments: bool,
    /// The job runs on a simulated device: its recording is kept apart, in the folder `fit` of the user's recordings.
    #[arg(long, hide = true)]
    pub simulated: bool,
}

impl RetentionFlags {
    /// Returns the user's store with these limits; `None` without a home directory.
    pub fn store(&self) -> Option<Store> {
        let files_max = usize::try_from(self.keep).unwrap_or(usize::MAX);
        let mut store = Store { files_max, bytes_max: self.keep_bytes, ..Store::user()? };
        if self.simulated {
            store.directory.push("fit");
        }
        Some(store)
    }
}

/// What a recording is called, and where it is.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct NamingFlags {
    /// The recording's name, as part of the file name and in `gpuwatch recordings`: `gpuwatch replay NAME` opens the
    /// newest recording of that name.
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub name: Option<String>,
    /// The file to record into, which must not exist yet; by default a new one among the recordings.
    #[arg(short, long, value_name = "FILE", value_parser = file)]
    pub output: Option<PathBuf>,
}

/// How to record a job, and how to summarise its end.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Recording {
    /// What the recording is called, and where it is.
    #[command(flatten)]
    pub naming: NamingFlags,
    /// Trace every allocation of the job's PyTorch from its start, beside the recording, so that `gpuwatch whatif` can
    /// replay the run.
    #[arg(long)]
    pub trace: bool,
    /// How many bytes the trace of a process may take; a trace ends there.
    #[arg(long, value_name = "BYTES", default_value = "256MiB", value_parser = units::parse_bytes)]
    pub trace_bytes: u64,
    /// When to print, after the job, one line on standard error with the first finding and the command to replay it.
    /// `never` prints nothing beside what the job prints, not even why nothing was recorded.
    #[arg(long, env = "GPUWATCH_SUMMARY", value_name = "WHEN", value_enum, default_value_t)]
    pub summary: Summary,
}

/// When to summarise a job's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Summary {
    /// After a job with at least one probed process.
    #[default]
    Auto,
    /// After every job.
    Always,
    /// Never.
    Never,
}

/// Parses a name that fits into one line and into a file's name, and that `gpuwatch replay` finds.
fn name(text: &str) -> Result<String> {
    if text.is_empty() || text.chars().count() > NAME_MAX || text.contains('/') {
        bail!("a name has 1 to {NAME_MAX} characters, and no slash");
    }
    if Foreign::new(text).to_string() != text {
        bail!("a name has no control characters and no invisible ones");
    }
    if !short_name::is_free(text) {
        bail!(
            "`gpuwatch replay` could not open a recording of this name: a number, a path, a flag and `last` mean others"
        );
    }
    Ok(text.to_owned())
}

/// Parses a file's path.
fn file(text: &str) -> Result<PathBuf> {
    if output::is_stdout(Path::new(text)) {
        bail!("standard output is the job's: name a file");
    }
    Ok(PathBuf::from(text))
}

/// Parses an executable program: an error is better reported now than at the first alert.
fn program(text: &str) -> Result<OsString> {
    let is_program = |it: &Path| access(it, Access::EXEC_OK).is_ok() && it.is_file();
    let found = if text.contains('/') {
        is_program(Path::new(text))
    } else {
        env::var_os("PATH").is_some_and(|it| env::split_paths(&it).any(|folder| is_program(&folder.join(text))))
    };
    if !found {
        bail!("there is no program of that name; arguments go into --on-alert-arg, one each");
    }
    Ok(OsString::from(text))
}

/// Returns the sources to record a job: its own probes, and the driver once a second.
pub fn job_sources(run: &str, driver: Driver, no_arguments: bool) -> sources::Options {
    let watching = WatchFlags { driver, interval: Duration::from_secs(1) };
    let probes = probe::Options { run: Some(run.to_owned()), ..probe::Options::user() };
    sources::Options { probes: Some(probes), no_arguments, ..watching.sources() }
}

/// Returns every probe of this user, without the driver.
pub fn probes_alone() -> sources::Options {
    sources::Options { probes: Some(probe::Options::user()), ..sources::Options::default() }
}

/// Parses `250ms`, `2s`, `1m`.
///
/// # Errors
/// Fails if it is not a duration between 100 ms and an hour.
pub fn duration(text: &str) -> Result<Duration> {
    let time = match humantime::parse_duration(text) {
        Ok(it) => it,
        Err(humantime::DurationError::UnknownUnit { .. }) => {
            bail!("{text:?} has no unit; write 250ms or 2s")
        }
        Err(_) => bail!("{text:?} is not a time; write 250ms or 2s"),
    };
    if !(Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&time) {
        bail!("{text:?} is not between 100ms and one hour");
    }
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recordings_name_can_be_printed_and_found() {
        for (text, why) in [
            ("", "1 to 64 characters"),
            (&*"x".repeat(65), "1 to 64 characters"),
            ("../a", "no slash"),
            ("a\u{1b}[2J", "no control characters"),
            ("a\nb", "no control characters"),
            ("a\u{202e}", "no invisible ones"),
            ("last", "and `last`"),
            ("12", "a number"),
            ("..", "a path"),
        ] {
            assert!(name(text).unwrap_err().to_string().contains(why), "{text:?}");
        }
        for text in ["night", "run 3", "träin-训练", &*"x".repeat(64)] {
            assert_eq!(name(text).unwrap(), text);
        }
    }

    #[test]
    fn times_have_units_and_bounds() {
        assert_eq!(duration("250ms").unwrap(), Duration::from_millis(250));
        assert_eq!(duration("1.5s").unwrap(), Duration::from_millis(1500));
        for bad in ["", "5", "s", "1ms", "2h", "-1s", "1e9s", "NaNs", "…"] {
            assert!(duration(bad).is_err(), "{bad:?}");
        }
    }
}
