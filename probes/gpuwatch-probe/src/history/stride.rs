//! The whole run, thinned: one of every N samples per device; N doubles whenever it is full.

use crate::reading::Reading;

pub(super) struct Strided {
    capacity: usize,
    lanes: Vec<Lane>,
}

/// One device's samples. Always keeps the first and the last.
struct Lane {
    device: u32,
    stride: u64,
    seen: u64,
    kept: Vec<(u64, Reading)>,
    last: (u64, Reading),
}

impl Strided {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, lanes: Vec::new() }
    }

    pub(super) fn push(&mut self, seq: u64, reading: Reading) {
        let known = self.lanes.iter().any(|it| it.device == reading.device);
        if !known {
            let (device, last) = (reading.device, (seq, reading));
            self.lanes.push(Lane { device, stride: 1, seen: 0, kept: Vec::new(), last });
        }
        let share = (self.capacity / self.lanes.len()).max(2);
        for lane in &mut self.lanes {
            if lane.device == reading.device {
                lane.push(seq, reading, share);
            }
            if lane.kept.len() > share {
                while lane.kept.len() > share {
                    lane.thin();
                }
                lane.kept.shrink_to(share + 1);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.lanes.iter().map(|it| (it.kept.capacity() + 1) * size_of::<(u64, Reading)>()).sum()
    }

    /// Returns the first sample at or after `from` and before `below`, of any device.
    pub(super) fn next(&self, from: u64, below: u64) -> Option<&(u64, Reading)> {
        self.lanes.iter().filter_map(|it| it.next(from)).filter(|it| it.0 < below).min_by_key(|it| it.0)
    }

    /// Returns the coarsest device's stride.
    pub(super) fn stride(&self) -> u64 {
        self.lanes.iter().map(|it| it.stride).max().unwrap_or(1)
    }
}

impl Lane {
    fn push(&mut self, seq: u64, reading: Reading, share: usize) {
        if self.seen.is_multiple_of(self.stride) {
            if self.kept.len() == self.kept.capacity() {
                // Never more than its share; doubling would exceed it.
                self.kept.reserve_exact((share + 1).saturating_sub(self.kept.len()).clamp(1, 1024));
            }
            self.kept.push((seq, reading));
        }
        self.seen += 1;
        self.last = (seq, reading);
    }

    fn thin(&mut self) {
        let mut even = false;
        self.kept.retain(|_| {
            even = !even;
            even
        });
        self.stride *= 2;
    }

    fn next(&self, from: u64) -> Option<&(u64, Reading)> {
        let kept = self.kept.get(self.kept.partition_point(|it| it.0 < from));
        kept.or_else(|| Some(&self.last).filter(|it| it.0 >= from))
    }
}
