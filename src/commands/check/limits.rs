//! The limits of a run: severities, and bytes and shares as users write them.

use crate::{
    facts::units::parse_bytes,
    model::{
        analysis::severity::Severity,
        findings::{Finding, Kind},
    },
};
use anyhow::{Context, Result, bail};

/// The limits of a run; by default, no finding of severity `warning` or a higher one passes.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Limits {
    /// Fail on findings of this severity or a higher one (info, warning, critical), on kinds of findings (as in
    /// growth,oom) whatever their severity, or never. Without it: on warnings, except on what --max-growth and
    /// --max-fragmentation limit.
    #[arg(long, value_name = "SEVERITY|KIND", value_delimiter = ',', value_parser = fail_on)]
    pub fail_on: Option<Vec<FailOn>>,
    /// Fail on lasting growth above this rate, as in 1MiB/step.
    #[arg(long, value_name = "BYTES/STEP", value_parser = bytes_per_step)]
    pub max_growth: Option<u64>,
    /// Fail when more of what an allocator holds is stuck in split segments in a tenth of the steps or more, as in 20%;
    /// steps in which it held less than half of what it held before do not count.
    #[arg(long, value_name = "PERCENT", value_parser = share)]
    pub max_fragmentation: Option<f64>,
    /// Fail when the probed processes reserve more on a device, as in 70GiB or 90%.
    #[arg(long, value_name = "BYTES|PERCENT", value_parser = peak)]
    pub max_peak: Option<Peak>,
    /// Pass no run whose end is not recorded (exit code 2): its recording was cut, or is still being written.
    #[arg(long)]
    pub require_end: bool,
    /// Pass no run whose command failed or whose exit code is not recorded (exit code 2).
    #[arg(long)]
    pub require_success: bool,
}

/// Findings that a run fails on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailOn {
    /// None.
    Never,
    /// Alerts of a severity or a higher one.
    Severity(Severity),
    /// Alerts of a kind.
    Kind(Kind),
}

/// The highest memory that passes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Peak {
    /// A number of bytes.
    Bytes(u64),
    /// As a share of the device's total.
    Share(f64),
}

impl FailOn {
    fn is_hit_by(self, finding: &Finding) -> bool {
        match self {
            Self::Never => false,
            Self::Severity(severity) => finding.severity >= severity,
            Self::Kind(kind) => finding.kind == kind && !finding.is_companion(),
        }
    }
}

impl Limits {
    /// Returns limits that every run keeps.
    pub fn none() -> Self {
        Self { fail_on: Some(vec![FailOn::Never]), ..Self::default() }
    }

    /// Returns the findings that a run fails on, apart from what has a limit of its own.
    pub fn fail_on(&self) -> &[FailOn] {
        self.fail_on.as_deref().unwrap_or(&[FailOn::Severity(Severity::Warning)])
    }

    /// Returns whether a run with this finding fails.
    pub fn are_hit_by(&self, finding: &Finding) -> bool {
        let has_rate = finding.is_own_growth() && finding.bytes_per_step.is_some();
        let is_limited = self.has_own_limit(finding.kind) && (finding.kind != Kind::Growth || has_rate);
        !is_limited && self.fail_on().iter().any(|on| on.is_hit_by(finding))
    }

    /// Whether a kind of findings has a limit that takes the place of the default severity.
    pub fn has_own_limit(&self, kind: Kind) -> bool {
        let is_given = match kind {
            Kind::Growth => self.max_growth.is_some(),
            Kind::Fragmentation => self.max_fragmentation.is_some(),
            _ => false,
        };
        is_given && self.fail_on.is_none()
    }
}

fn fail_on(text: &str) -> Result<FailOn> {
    if text == "never" {
        return Ok(FailOn::Never);
    }
    if let Ok(it) = text.parse() {
        return Ok(FailOn::Severity(it));
    }
    let kind = text.parse::<Kind>().ok();
    kind.map(FailOn::Kind).with_context(|| {
        let kinds: Vec<_> = Kind::ALL.iter().map(|it| it.name()).collect();
        format!("there are info, warning, critical, never, and the kinds {}", kinds.join(", "))
    })
}

fn bytes_per_step(text: &str) -> Result<u64> {
    parse_bytes(text.strip_suffix("/step").unwrap_or(text)).context("write 1MiB/step")
}

fn peak(text: &str) -> Result<Peak> {
    if text.ends_with('%') {
        return share(text).map(Peak::Share);
    }
    parse_bytes(text).map(Peak::Bytes).context("write 70GiB or 90%")
}

/// Parses `20%` or `20` as a share from 0 to 1.
///
/// # Errors
/// Fails if it is not a percentage between 0 and 100.
pub fn share(text: &str) -> Result<f64> {
    let number: f64 =
        text.strip_suffix('%').unwrap_or(text).trim_end().parse().context("write a percentage, as in 20%")?;
    if !(0.0..=100.0).contains(&number) {
        bail!("a percentage lies between 0 and 100");
    }
    Ok(number / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_or_are_bytes() {
        assert_eq!(bytes_per_step("1MiB/step").unwrap(), 1 << 20);
        assert_eq!(bytes_per_step("512").unwrap(), 512);
        assert_eq!(parse_bytes("1.5 KiB").unwrap(), 1536);
        assert_eq!(peak("70GiB").unwrap(), Peak::Bytes(70 << 30));
        assert_eq!(peak("2GB").unwrap(), Peak::Bytes(2_000_000_000));
        assert_eq!(peak("90%").unwrap(), Peak::Share(0.9));
        for bad in ["", "MiB", "-1", "1e3", "5 apples", "1MiB/s", "NaN", "∞"] {
            assert!(bytes_per_step(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn shares_are_percentages() {
        assert!((share("20%").unwrap() - 0.2).abs() < 1e-12 && (share("12.5").unwrap() - 0.125).abs() < 1e-12);
        for bad in ["", "%", "101%", "-1%", "NaN", "inf"] {
            assert!(share(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_limit_takes_the_place_of_the_default_severity_alone() {
        let limits = Limits { max_growth: Some(1), ..Limits::default() };
        assert_eq!([Kind::Growth, Kind::Fragmentation].map(|kind| limits.has_own_limit(kind)), [true, false]);
        let asked = Limits { fail_on: Some(vec![FailOn::Kind(Kind::Growth)]), ..limits };
        assert!(!asked.has_own_limit(Kind::Growth) && !Limits::default().has_own_limit(Kind::Growth));
    }

    #[test]
    fn the_failing_alerts_are_of_a_severity_a_kind_or_none() {
        assert_eq!(fail_on("never").unwrap(), FailOn::Never);
        assert_eq!(fail_on("critical").unwrap(), FailOn::Severity(Severity::Critical));
        assert_eq!(fail_on("oom").unwrap(), FailOn::Kind(Kind::Oom));
        let error = fail_on("often").unwrap_err().to_string();
        assert!(error.contains("warning") && error.contains("extra-context"), "{error}");
    }
}
