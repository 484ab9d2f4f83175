//! Which of the replayed settings are worth using.

use super::{Device, Row, settings};

/// Settings must save at least this part to be better.
const WORTH: f64 = 0.01;

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
        self.candidates.first().filter(|best| {
            let saves = (own.peak_reserved as f64 - best.peak_reserved as f64) / own.peak_reserved.max(1) as f64;
            let is_better = own.fails_at.is_some() || saves >= WORTH;
            best.fails_at.is_none() && !settings::is_estimated(&best.settings) && is_better
        })
    }
}
