//! How much of what an allocator holds is not in use, and how much of that is stuck in split segments.

use crate::facts::{event::wire::Counters, units::Bytes};

/// The fragmentation of one allocator on one device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fragmentation {
    /// Bytes reserved from the driver.
    pub reserved: Option<Bytes>,
    /// Reserved and unused: `reserved - active`; `None` where unknown or where it would be negative.
    pub cached: Option<Bytes>,
    /// The part of it in split segments, which the allocator cannot release.
    pub stuck: Stuck,
}

/// The unused part that the allocator cannot release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stuck {
    /// The allocator does not report it.
    #[default]
    Unknown,
    /// Not measurable: with expandable segments the counter reads 0 by design.
    NotMeasurable,
    /// Its bytes.
    Known(Bytes),
}

impl Fragmentation {
    /// Returns `(reserved - active) / reserved`, from 0 to 1; `None` where unknown or where nothing is reserved.
    pub fn share(&self) -> Option<f64> {
        let reserved = self.reserved?.0;
        (reserved > 0).then(|| self.cached.map(|it| it.0 as f64 / reserved as f64))?
    }

    /// The stuck share of what is reserved, from 0 to 1.
    pub fn stuck_share(&self) -> Option<f64> {
        let reserved = self.reserved?.0;
        let Stuck::Known(stuck) = self.stuck else { return None };
        (reserved > 0).then(|| stuck.0 as f64 / reserved as f64)
    }
}

/// Returns the gauge from an allocator's counters. `expandable` means that expandable segments are on.
pub fn fragmentation(it: &Counters, expandable: bool) -> Fragmentation {
    let cached = it.reserved.zip(it.active).and_then(|(reserved, active)| reserved.checked_sub(active));
    let stuck = match it.inactive_split {
        _ if expandable => Stuck::NotMeasurable,
        Some(split) if cached.is_none_or(|it| split <= it) => Stuck::Known(Bytes(split)),
        _ => Stuck::Unknown,
    };
    Fragmentation { reserved: it.reserved.map(Bytes), cached: cached.map(Bytes), stuck }
}

/// Returns whether an allocator configuration (`PYTORCH_CUDA_ALLOC_CONF`) enables expandable segments.
pub fn is_expandable(conf: Option<&str>) -> bool {
    let mut on = false;
    for item in conf.unwrap_or_default().split(',') {
        if let Some((key, value)) = item.split_once(':')
            && key.trim() == "expandable_segments"
        {
            on = value.trim().eq_ignore_ascii_case("true");
        }
    }
    on
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gauge(
        reserved: Option<u64>,
        active: Option<u64>,
        inactive_split: Option<u64>,
        expandable: bool,
    ) -> Fragmentation {
        fragmentation(&Counters { reserved, active, inactive_split, ..Counters::default() }, expandable)
    }

    #[test]
    fn the_gauge_knows_how_much_of_the_cache_is_stuck() {
        let it = gauge(Some(1000), Some(600), Some(100), false);
        assert_eq!((it.cached, it.stuck), (Some(Bytes(400)), Stuck::Known(Bytes(100))));
        assert_eq!((it.share(), it.stuck_share()), (Some(0.4), Some(0.1)));
    }

    #[test]
    fn expandable_segments_are_not_measurable_rather_than_zero() {
        let it = gauge(Some(1000), Some(600), Some(0), true);
        assert_eq!((it.stuck, it.share()), (Stuck::NotMeasurable, Some(0.4)));
    }

    #[test]
    fn contradictory_figures_are_unknown() {
        assert_eq!(gauge(Some(5), Some(9), Some(1), false).cached, None);
        assert_eq!(gauge(Some(9), Some(5), Some(6), false).stuck, Stuck::Unknown);
        assert_eq!(gauge(Some(0), Some(0), Some(0), false).share(), None);
        assert_eq!(gauge(None, None, None, false), Fragmentation::default());
    }

    #[test]
    fn the_last_setting_of_the_allocator_configuration_counts() {
        assert!(is_expandable(Some("max_split_size_mb:128, expandable_segments:True")));
        assert!(!is_expandable(Some("expandable_segments:True,expandable_segments:False")));
        assert!(!is_expandable(None));
    }
}
