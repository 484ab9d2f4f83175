//! What each process uses of a device, in the driver's latest period.

use crate::{
    facts::figures::{Changes, Figure, Figures},
    sources::figures::Sent,
};
use gpuwatch_nvml::{Direct, Utilization};
use std::collections::BTreeMap;

/// Periods that ended earlier do not count, in µs. Drivers end one every sixth of a second to every second.
const LATEST_US: u64 = 3_000_000;

/// Seconds after which a call that failed is tried again, and between two facts with all figures.
const RETRY_EVERY: u64 = 60;

/// What processes use of a device, as last sent.
#[derive(Default)]
pub(super) struct Uses {
    sent: Sent,
    is_needed: bool,
    has_failed: bool,
}

impl Uses {
    /// Reads in the device's so many-eth second, if that is due, and returns what to send. Without need, forgets what
    /// is known. A call that the driver lacks is made once a minute.
    pub(super) fn turn(
        &mut self,
        second: u64,
        every: Option<u64>,
        read: impl FnOnce() -> Result<Vec<Utilization>, i32>,
    ) -> Vec<(u32, Changes)> {
        let Some(every) = every else {
            self.is_needed = false;
            return self.sent.changes(BTreeMap::new(), false);
        };
        let is_whole = second.is_multiple_of(RETRY_EVERY);
        self.has_failed &= !is_whole;
        let is_new = !std::mem::replace(&mut self.is_needed, true);
        if self.has_failed || !(is_new || second.is_multiple_of(every)) {
            return Vec::new();
        }
        let answer = read();
        self.has_failed = answer.is_err();
        self.sent.changes(latest(&answer.unwrap_or_default()), is_whole)
    }
}

/// Makes the call.
pub(super) fn read(direct: Option<&Direct>, uuid: &str, now_us: u64) -> Result<Vec<Utilization>, i32> {
    direct.map_or(Ok(Vec::new()), |it| it.utilization(uuid, now_us.saturating_sub(LATEST_US)))
}

/// Returns the latest sample of each process. The driver's list may have several, in any order.
fn latest(samples: &[Utilization]) -> BTreeMap<u32, Figures> {
    let mut by_pid: BTreeMap<u32, &Utilization> = BTreeMap::new();
    for it in samples {
        let known = by_pid.entry(it.pid).or_insert(it);
        if it.at_us > known.at_us {
            *known = it;
        }
    }
    by_pid.into_iter().map(|(pid, it)| (pid, figures(it))).collect()
}

fn figures(it: &Utilization) -> Figures {
    let values = [
        (Figure::SmPercent, it.sm),
        (Figure::MemoryPercent, it.memory),
        (Figure::EncoderPercent, it.encoder),
        (Figure::DecoderPercent, it.decoder),
    ];
    // Some drivers write numbers above 100.
    values.into_iter().filter(|(_, it)| *it <= 100).map(|(figure, it)| (figure, it.into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_sample_of_each_process_counts_and_no_impossible_number() {
        let sample = |pid, at_us, sm| Utilization { pid, at_us, sm, memory: 1, encoder: 0, decoder: u32::MAX };
        let latest = latest(&[sample(7, 20, 34), sample(8, 20, 5), sample(7, 10, 90), sample(8, 30, 6)]);
        let of = |pid: u32, figure| latest[&pid].get(figure);
        assert_eq!((of(7, Figure::SmPercent), of(8, Figure::SmPercent)), (Some(34), Some(6)));
        assert_eq!((of(7, Figure::EncoderPercent), of(7, Figure::DecoderPercent)), (Some(0), None));
    }

    #[test]
    fn a_call_is_made_when_it_is_needed_and_once_a_minute_where_it_fails() {
        let mut uses = Uses::default();
        let mut asked = Vec::new();
        for (second, every, answer) in [
            (1, None, Ok(())),
            (3, Some(2), Ok(())),
            (4, Some(2), Ok(())),
            (5, Some(2), Ok(())),
            (6, Some(2), Err(3)),
            (8, Some(2), Ok(())),
            (60, Some(2), Err(3)),
            (62, None, Ok(())),
            (120, Some(10), Ok(())),
            (122, Some(10), Ok(())),
        ] {
            uses.turn(second, every, || {
                asked.push(second);
                answer.map(|()| Vec::new())
            });
        }
        assert_eq!(asked, [3, 4, 6, 60, 120]);
    }
}
