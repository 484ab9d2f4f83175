//! Options from flags over environment over defaults, as each room wants them.

use crate::{
    source::{self, nvml, probe},
    theme::{self, ColorDepth, Theme},
};
use anyhow::{Context, Result, bail};
use std::{env, time::Duration};

/// What every command that watches can be told.
#[derive(Clone, Debug, clap::Args)]
pub struct Watching {
    /// Do not ask the NVIDIA driver: show what probes say, and nothing else.
    #[arg(long, env = "GPUWATCH_NO_NVML", value_parser = clap::builder::FalseyValueParser::new())]
    pub no_nvml: bool,
    /// Time between two readings of a device's memory, as in `250ms` or `2s`; at least 100ms.
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = duration)]
    pub interval: Duration,
}

impl Watching {
    /// Every source that was not switched off.
    pub fn sources(&self) -> source::Options {
        let nvml = (!self.no_nvml)
            .then(|| nvml::Options { library: env::var_os("GPUWATCH_NVML_PATH"), interval: self.interval });
        source::Options { nvml, probes: Some(probe::Options::user()) }
    }
}

/// What is recorded beside a job: its own probes, and the driver once a second.
pub fn job_sources(run: &str) -> source::Options {
    let is_off = env::var("GPUWATCH_NO_NVML").is_ok_and(|it| !matches!(it.as_str(), "" | "0" | "false" | "no" | "off"));
    let watching = Watching { no_nvml: is_off, interval: Duration::from_secs(1) };
    let probes = probe::Options { run: Some(run.to_owned()), ..probe::Options::user() };
    source::Options { probes: Some(probes), ..watching.sources() }
}

/// The theme by its name, with the colours and characters that the terminal has.
///
/// # Errors
/// When there is none of that name.
pub fn theme(name: &str, depth: ColorDepth, is_ascii_only: bool) -> Result<Theme> {
    let Some(theme) = Theme::builtin(name) else {
        let names: Vec<_> = theme::names().collect();
        bail!("there is no theme {name:?}; there are {}", names.join(", "));
    };
    let theme = theme.at(depth);
    Ok(if is_ascii_only { theme.in_ascii() } else { theme })
}

/// `250ms`, `2s`, `1m`.
fn duration(text: &str) -> Result<Duration> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let number: f64 = number.parse().with_context(|| format!("{text:?} is no time; write 250ms or 2s"))?;
    let seconds = match unit {
        "ms" => number / 1000.0,
        "s" => number,
        "m" | "min" => number * 60.0,
        _ => bail!("{text:?} has no unit; write 250ms or 2s"),
    };
    if !(0.1..=3600.0).contains(&seconds) {
        bail!("{text:?} is not between 100ms and one hour");
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_bounds() {
        assert_eq!(duration("250ms").unwrap(), Duration::from_millis(250));
        assert_eq!(duration("1.5s").unwrap(), Duration::from_millis(1500));
        for bad in ["", "5", "s", "1ms", "2h", "-1s", "1e9s", "NaNs", "…"] {
            assert!(duration(bad).is_err(), "{bad:?}");
        }
    }
}
