//! Which of the replayed settings are worth using.

use super::{Device, Row, settings};
use crate::facts::event::replayed::WINDOW_SAVES_PERCENT;

/// How much settings must save in the replay of a whole run to be better, in percent.
const SAVES_PERCENT: u64 = 1;

impl Device {
    /// Returns the result under the recorded settings, if they were replayed.
    pub(super) fn own(&self) -> Option<&Row> {
        let recorded = self.settings.as_deref().unwrap_or_default();
        self.candidates.iter().find(|it| it.settings == recorded)
    }

    /// Returns the result under the best settings, if they are better than the recorded ones. The driver's own pool is
    /// simulated, so that no advice rests on it.
    pub(super) fn better(&self) -> Option<&Row> {
        let own = self.own()?;
        let is_better = |best: &Row| match (&own.fails_at, self.is_window()) {
            (Some(_), false) => true,
            // How far a window gets on a full device depends on where it begins.
            (Some(_), true) => {
                own.smallest.zip(best.smallest).is_some_and(|(own, best)| saves(own, best, WINDOW_SAVES_PERCENT))
            }
            (None, true) => saves(own.peak_reserved, best.peak_reserved, WINDOW_SAVES_PERCENT),
            (None, false) => saves(own.peak_reserved, best.peak_reserved, SAVES_PERCENT),
        };
        self.candidates
            .first()
            .filter(|best| best.fails_at.is_none() && !settings::is_estimated(&best.settings) && is_better(best))
    }
}

/// Whether at least this part of some bytes is saved.
fn saves(own: u64, best: u64, percent: u64) -> bool {
    own > 0 && u128::from(own.saturating_sub(best)) * 100 >= u128::from(own) * u128::from(percent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::whatif::Failure;

    fn device(best_mib: u64, is_late: bool) -> Device {
        let row = |settings: &str, mib: u64| Row {
            settings: settings.to_owned(),
            peak_reserved: mib << 20,
            smallest: Some(mib << 20),
            ..Row::default()
        };
        let candidates = vec![row("expandable_segments:True", best_mib), row("", 1000)];
        Device { is_late, candidates, ..Device::default() }
    }

    #[test]
    fn a_window_advises_only_settings_that_save_a_tenth() {
        for (mib, is_late, is_advised) in [
            (900, true, true),
            (901, true, false),
            (990, false, true),
            (991, false, false),
            (1000, false, false),
            (1001, true, false),
        ] {
            assert_eq!(device(mib, is_late).better().is_some(), is_advised, "{mib} {is_late}");
        }
    }

    #[test]
    fn settings_that_run_out_of_memory_in_a_window_need_a_tenth_more() {
        for (mib, is_late, is_advised) in [(900, true, true), (950, true, false), (950, false, true)] {
            let mut it = device(mib, is_late);
            it.candidates.last_mut().unwrap().fails_at = Some(Failure::default());
            assert_eq!(it.better().is_some(), is_advised, "{mib} {is_late}");
        }
    }
}
