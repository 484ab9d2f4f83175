//! The severity of growth: from bytes, steps and the time until the device is full.
//!
//! - **info** up to 1 KiB per step: gpuwatch finds and shows a list of losses but raises no alert.
//! - **critical** if the device is full within 200 steps, or within ten minutes of steps.
//! - **warning** if it is full within a million steps, or within a week of steps if their duration is known. Hardly any
//!   run is longer.
//! - **info** otherwise, and for everything resolved.
//!
//! If no limit is known (host memory, a device of unknown size), 64 GiB are assumed and nothing is critical.

/// The severity of a finding. The bell, `--on-alert` and the default `--fail-on` start at `Warning`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr, strum::EnumString)]
#[strum(serialize_all = "kebab-case")]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// It will end the run, or slows it down.
    Warning,
    /// It ends the run soon, or has ended it.
    Critical,
}

impl Severity {
    /// Returns its name in reports and files.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Growth up to this many bytes per step never raises an alert.
const QUIET: f64 = 1024.0;

/// Runs are rarely longer, in steps.
const LONG_STEPS: u64 = 1_000_000;
const LONG_US: u64 = 7 * 24 * 3600 * 1_000_000;

/// A device that is full this soon is critical.
const SOON_STEPS: u64 = 200;
const SOON_US: u64 = 600 * 1_000_000;

/// Bytes assumed to be free if no limit is known.
const ASSUMED_ROOM: f64 = 64.0 * (1_u64 << 30) as f64;

/// When growth reaches the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Full {
    /// In steps; `None` where the limit is unknown.
    pub in_steps: Option<u64>,
    /// In µs; `None` where the limit or the duration of a step is unknown.
    pub in_us: Option<u64>,
}

/// Returns when `room` bytes are used up at this rate, with steps of `step_us`.
pub fn full(bytes_per_step: f64, room: Option<u64>, step_us: Option<u64>) -> Full {
    let in_steps =
        room.filter(|_| bytes_per_step > 0.0).map(|it| crate::facts::units::whole(it as f64 / bytes_per_step));
    Full { in_steps, in_us: in_steps.zip(step_us).map(|(steps, us)| steps.saturating_mul(us)) }
}

/// Returns the µs until growth exhausts its resource, with 64 GiB if no limit is known and one second per step if no
/// step was timed.
pub fn assumed(bytes_per_step: f64, full: Full, step_us: Option<u64>) -> u64 {
    let steps = full
        .in_steps
        .or_else(|| self::full(bytes_per_step, Some(crate::facts::units::whole(ASSUMED_ROOM)), None).in_steps);
    steps.map_or(u64::MAX, |it| it.saturating_mul(step_us.unwrap_or(1_000_000)))
}

/// Returns the severity of lasting growth.
pub fn of_growth(bytes_per_step: f64, full: Full, step_us: Option<u64>) -> Severity {
    if bytes_per_step <= QUIET {
        return Severity::Info;
    }
    let Some(steps) = full.in_steps else {
        let assumed = self::full(bytes_per_step, Some(crate::facts::units::whole(ASSUMED_ROOM)), step_us);
        return if is_within_a_run(assumed) { Severity::Warning } else { Severity::Info };
    };
    if steps <= SOON_STEPS || full.in_us.is_some_and(|it| it <= SOON_US) {
        Severity::Critical
    } else if is_within_a_run(full) {
        Severity::Warning
    } else {
        Severity::Info
    }
}

fn is_within_a_run(full: Full) -> bool {
    full.in_steps.is_some_and(|it| it <= LONG_STEPS) && full.in_us.is_none_or(|it| it <= LONG_US)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    const MS: u64 = 1000;

    fn severity(rate: f64, room: Option<u64>, step_us: Option<u64>) -> Severity {
        of_growth(rate, full(rate, room, step_us), step_us)
    }

    #[test]
    fn a_list_of_losses_never_rings() {
        for (room, step_us) in [(140 * GIB, 100 * MS), (GIB, MS), (1000, MS)] {
            assert_eq!(severity(512.0, Some(room), Some(step_us)), Severity::Info);
        }
    }

    #[test]
    fn growth_that_fills_the_device_within_the_run_raises_an_alert() {
        let mib4 = 4_194_304.0;
        assert_eq!(
            full(mib4, Some(140 * GIB), Some(100 * MS)),
            Full { in_steps: Some(35_840), in_us: Some(3_584_000_000) }
        );
        assert_eq!(severity(mib4, Some(140 * GIB), Some(100 * MS)), Severity::Warning);
        assert_eq!(severity(mib4, Some(140 * GIB), None), Severity::Warning);
        assert_eq!(severity(mib4, Some(GIB), Some(10_000 * MS)), Severity::Warning, "256 steps, 43 minutes");
        assert_eq!(severity(mib4, Some(GIB), Some(1000 * MS)), Severity::Critical, "256 steps, four minutes");
        assert_eq!(severity(mib4, Some(GIB / 2), Some(10_000 * MS)), Severity::Critical, "128 steps");
        assert_eq!(severity(20_000.0, Some(140 * GIB), Some(MS)), Severity::Info, "7.5 million steps");
        assert_eq!(severity(1e6, Some(140 * GIB), Some(10_000 * MS)), Severity::Info, "17 days");
    }

    #[test]
    fn without_a_limit_bytes_alone_decide_and_nothing_is_critical() {
        assert_eq!(full(5.0, None, Some(MS)), Full::default());
        assert_eq!(severity(1e9, None, Some(MS)), Severity::Warning);
        assert_eq!(severity(24_000.0, None, Some(MS)), Severity::Info);
    }
}
