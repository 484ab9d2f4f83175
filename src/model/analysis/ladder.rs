//! Where a device's memory is, rung by rung: every gap named, the sum always the device's total.

/// The gaps: names, causes, remedies.
mod gaps;

use crate::facts::units::{Bytes, Stamp};
pub use gaps::{Gap, MEANINGS, Meaning};

/// A device's own figures, as far as known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceFigures {
    /// When they were read.
    pub at: Stamp,
    /// All of it.
    pub total: Option<Bytes>,
    /// Free.
    pub free: Option<Bytes>,
    /// The driver's own reserve.
    pub driver: Option<Bytes>,
    /// What all processes but the own ones use together; `None` where that cannot be told.
    pub others: Option<Bytes>,
}

/// An own (probed) process's figures on the device, as far as known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnFigures {
    /// When the allocator's counters were read.
    pub at: Stamp,
    /// Asked for, before rounding.
    pub requested: Option<u64>,
    /// Live allocations.
    pub allocated: Option<u64>,
    /// Allocated, and freed but still awaited.
    pub active: Option<u64>,
    /// Free parts of split segments.
    pub inactive_split: Option<u64>,
    /// Held from the driver.
    pub reserved: Option<u64>,
    /// Reserved by private pools.
    pub private_pools: Option<u64>,
    /// Whether expandable segments are on, so that `inactive_split` says nothing.
    pub expandable: bool,
    /// The driver's figure for the process.
    pub driver_used: Option<Bytes>,
    /// When the driver's figure was read.
    pub driver_at: Stamp,
}

/// A gap and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rung {
    /// Which gap.
    pub gap: Gap,
    /// The own process it belongs to, by its place in the input; `None` for the device's own gaps.
    pub owner: Option<usize>,
    /// Its size; `None` where unknown or where the figures contradict each other.
    pub bytes: Option<Bytes>,
    /// The stamps of the two readings that contradict each other.
    pub inconsistent: Option<(Stamp, Stamp)>,
}

/// A device's ladder, from the inside out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ladder {
    /// The device's total; `None` where nobody says, and then the rungs sum to what is known.
    pub total: Option<Bytes>,
    /// The rungs.
    pub rungs: Vec<Rung>,
}

impl Ladder {
    /// The sum of all rungs that are known.
    pub fn sum(&self) -> Bytes {
        self.rungs.iter().filter_map(|it| it.bytes).fold(Bytes(0), Bytes::plus)
    }

    /// One rung per gap, all owners together, from the inside out.
    pub fn by_gap(&self) -> Vec<Rung> {
        let mut out: Vec<Rung> = Vec::new();
        for rung in &self.rungs {
            match out.iter_mut().find(|it| it.gap == rung.gap) {
                Some(sum) => {
                    sum.owner = None;
                    sum.bytes = match (sum.bytes, rung.bytes) {
                        (Some(a), Some(b)) => Some(a.plus(b)),
                        (a, b) => a.or(b),
                    };
                    sum.inconsistent = sum.inconsistent.or(rung.inconsistent);
                }
                None => out.push(*rung),
            }
        }
        out.sort_by_key(|it| it.gap);
        out
    }
}

/// The ladder of one device with its own processes.
pub fn ladder(device: &DeviceFigures, own: &[OwnFigures]) -> Ladder {
    let mut stack = Stack::new(device);
    for (owner, figures) in own.iter().enumerate() {
        stack.own_process(owner, figures);
    }
    stack.close(device)
}

/// Rungs piled up under a roof: what would stick out is cut off and marked, so that the sum can never
/// pass the total.
struct Stack {
    rungs: Vec<Rung>,
    room: Option<u64>,
    free: Rung,
    driver: Rung,
}

impl Stack {
    fn new(device: &DeviceFigures) -> Self {
        let mut room = device.total.map(|it| it.0);
        let mut outer = |gap, bytes: Option<Bytes>| {
            let rung = Rung { gap, owner: None, bytes, inconsistent: None };
            let Some(bytes) = bytes else { return rung };
            match room.map(|left| left.checked_sub(bytes.0)) {
                None => rung,
                Some(Some(left)) => {
                    room = Some(left);
                    rung
                }
                Some(None) => Rung { bytes: None, inconsistent: Some((device.at, device.at)), ..rung },
            }
        };
        let free = outer(Gap::Free, device.free);
        let driver = outer(Gap::Driver, device.driver);
        Self { rungs: Vec::new(), room, free, driver }
    }

    fn push(&mut self, gap: Gap, owner: Option<usize>, bytes: Option<u64>, stamps: (Stamp, Stamp), clash: bool) {
        let mut rung = Rung { gap, owner, bytes: bytes.map(Bytes), inconsistent: clash.then_some(stamps) };
        if let (Some(bytes), Some(room)) = (bytes, self.room) {
            if bytes > room {
                rung.inconsistent = Some(stamps);
            }
            let taken = bytes.min(room);
            rung.bytes = Some(Bytes(taken));
            self.room = Some(room - taken);
        }
        self.rungs.push(rung);
    }

    fn own_process(&mut self, owner: usize, it: &OwnFigures) {
        let same = (it.at, it.at);
        let mut push = |gap, bytes, clash| self.push(gap, Some(owner), bytes, same, clash);
        let Some(allocated) = it.allocated else {
            push(Gap::Reserved, it.reserved.or(it.active), false);
            self.non_torch(owner, it, it.reserved);
            return;
        };
        match it.active.zip(it.requested).map(|(active, requested)| active.checked_sub(requested)) {
            Some(Some(rounding)) if rounding <= allocated => {
                push(Gap::Wanted, Some(allocated - rounding), false);
                push(Gap::Rounding, Some(rounding), false);
            }
            rounding => {
                push(Gap::Allocated, Some(allocated), false);
                push(Gap::Rounding, None, rounding.is_some());
            }
        }
        let pending = it.active.map(|active| active.checked_sub(allocated));
        push(Gap::Pending, pending.flatten(), pending == Some(None));
        let used = allocated.max(it.active.unwrap_or(0));
        match it.reserved.map(|reserved| reserved.checked_sub(used)) {
            Some(Some(cached)) => self.cached(owner, it, cached),
            clash => push(Gap::Cached, None, clash.is_some()),
        }
        self.non_torch(owner, it, it.reserved.map(|reserved| reserved.max(used)));
    }

    /// Splits what is cached in what cannot be given back, what CUDA graphs may keep, and the rest.
    fn cached(&mut self, owner: usize, it: &OwnFigures, cached: u64) {
        let same = (it.at, it.at);
        let mut push = |gap, bytes, clash| self.push(gap, Some(owner), bytes, same, clash);
        // Without `active` the difference holds pending blocks too, and splitting it would be a guess.
        let split = it.inactive_split.filter(|_| !it.expandable && it.active.is_some());
        let Some(rest) = split.and_then(|split| cached.checked_sub(split)) else {
            push(Gap::Stuck, None, split.is_some());
            push(Gap::Cached, Some(cached), false);
            return;
        };
        push(Gap::Stuck, split, false);
        // How much of the pools is in use is not counted: what is certain to be releasable is the rest.
        let pools = it.private_pools.map(|it| it.min(rest));
        if pools != Some(0) {
            push(Gap::Pools, pools, false);
        }
        push(Gap::Releasable, Some(rest - pools.unwrap_or(0)), false);
    }

    fn non_torch(&mut self, owner: usize, it: &OwnFigures, inside: Option<u64>) {
        let outside = it.driver_used.zip(inside).map(|(used, inside)| used.0.checked_sub(inside));
        self.push(Gap::NonTorch, Some(owner), outside.flatten(), (it.at, it.driver_at), outside == Some(None));
    }

    fn close(mut self, device: &DeviceFigures) -> Ladder {
        let at = (device.at, device.at);
        self.push(Gap::Others, None, device.others.map(|it| it.0), at, false);
        if let Some(room) = self.room {
            self.push(Gap::Unattributed, None, Some(room), at, false);
        }
        self.rungs.push(self.driver);
        self.rungs.push(self.free);
        Ladder { total: device.total, rungs: self.rungs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn device(total: u64, free: u64, driver: u64, others: u64) -> DeviceFigures {
        DeviceFigures {
            at: Stamp(2),
            total: Some(Bytes(total)),
            free: Some(Bytes(free)),
            driver: Some(Bytes(driver)),
            others: Some(Bytes(others)),
        }
    }

    fn own(requested: u64, allocated: u64, active: u64, split: u64, reserved: u64, used: u64) -> OwnFigures {
        OwnFigures {
            at: Stamp(1),
            requested: Some(requested),
            allocated: Some(allocated),
            active: Some(active),
            inactive_split: Some(split),
            reserved: Some(reserved),
            driver_used: Some(Bytes(used)),
            driver_at: Stamp(2),
            ..OwnFigures::default()
        }
    }

    fn sizes(ladder: &Ladder) -> Vec<(Gap, Option<u64>)> {
        ladder.rungs.iter().map(|it| (it.gap, it.bytes.map(|it| it.0))).collect()
    }

    fn size(ladder: &Ladder, gap: Gap) -> Option<u64> {
        ladder.by_gap().iter().find(|it| it.gap == gap)?.bytes.map(|it| it.0)
    }

    #[test]
    fn every_byte_has_its_place() {
        // Blocks pending on another stream: requested exceeds allocated.
        let ladder = ladder(&device(1000, 300, 20, 100), &[own(420, 400, 450, 60, 500, 560)]);
        assert_eq!(
            sizes(&ladder),
            [
                (Gap::Wanted, Some(370)),
                (Gap::Rounding, Some(30)),
                (Gap::Pending, Some(50)),
                (Gap::Stuck, Some(0)),
                (Gap::Cached, Some(50)),
                (Gap::NonTorch, Some(60)),
                (Gap::Others, Some(100)),
                (Gap::Unattributed, Some(20)),
                (Gap::Driver, Some(20)),
                (Gap::Free, Some(300)),
            ]
            .map(|it| match it {
                // 60 bytes of split blocks are more than the 50 that are cached: a contradiction.
                (Gap::Stuck, _) => (Gap::Stuck, None),
                other => other,
            })
        );
        assert_eq!(ladder.sum(), Bytes(1000));
    }

    #[test]
    fn what_is_cached_is_split_and_pools_are_kept_apart() {
        let mut figures = own(90, 100, 100, 30, 200, 200);
        let whole = ladder(&device(1000, 800, 0, 0), &[figures]);
        assert_eq!((size(&whole, Gap::Stuck), size(&whole, Gap::Releasable)), (Some(30), Some(70)));
        assert!(sizes(&whole).contains(&(Gap::Pools, None)), "not every PyTorch counts them");
        figures.private_pools = Some(0);
        let none = ladder(&device(1000, 800, 0, 0), &[figures]);
        assert!(sizes(&none).iter().all(|(gap, _)| *gap != Gap::Pools), "where there are none, none are shown");
        figures.private_pools = Some(50);
        let pools = ladder(&device(1000, 800, 0, 0), &[figures]);
        assert_eq!((size(&pools, Gap::Pools), size(&pools, Gap::Releasable)), (Some(50), Some(20)));
        figures.expandable = true;
        let expandable = ladder(&device(1000, 800, 0, 0), &[figures]);
        assert_eq!((size(&expandable, Gap::Stuck), size(&expandable, Gap::Cached)), (None, Some(100)));
    }

    #[test]
    fn contradicting_instants_are_marked_with_both_stamps() {
        let ladder = ladder(&device(1000, 400, 0, 0), &[own(100, 100, 100, 0, 500, 450)]);
        let gap = ladder.rungs.iter().find(|it| it.gap == Gap::NonTorch).unwrap();
        assert_eq!((gap.bytes, gap.inconsistent), (None, Some((Stamp(1), Stamp(2)))));
        assert_eq!((size(&ladder, Gap::Unattributed), ladder.sum()), (Some(100), Bytes(1000)));
    }

    #[test]
    fn without_the_driver_it_starts_at_what_is_known() {
        let alone = OwnFigures { driver_used: None, ..own(90, 100, 100, 0, 200, 0) };
        let nothing = ladder(&DeviceFigures::default(), &[alone]);
        assert_eq!((nothing.total, nothing.sum()), (None, Bytes(200)));
        assert_eq!((size(&nothing, Gap::NonTorch), size(&nothing, Gap::Free)), (None, None));
        let by_cuda = DeviceFigures { total: Some(Bytes(1000)), free: Some(Bytes(700)), ..DeviceFigures::default() };
        let known = ladder(&by_cuda, &[alone]);
        assert_eq!((size(&known, Gap::Unattributed), size(&known, Gap::Others)), (Some(100), None));
    }

    #[test]
    fn an_allocator_that_counts_less_leaves_unknowns_not_zeros() {
        // cudaMallocAsync: no requested, no blocks, no split.
        let figures = OwnFigures { requested: None, inactive_split: None, ..own(0, 100, 100, 0, 160, 200) };
        let ladder = ladder(&device(1000, 800, 0, 0), &[figures]);
        assert_eq!(
            sizes(&ladder)[..6],
            [
                (Gap::Allocated, Some(100)),
                (Gap::Rounding, None),
                (Gap::Pending, Some(0)),
                (Gap::Stuck, None),
                (Gap::Cached, Some(60)),
                (Gap::NonTorch, Some(40)),
            ]
        );
        assert!(ladder.rungs.iter().all(|it| it.inconsistent.is_none()));
    }

    #[test]
    fn several_processes_share_one_device() {
        let two = [own(90, 100, 100, 0, 200, 250), own(40, 50, 50, 0, 60, 100)];
        let ladder = ladder(&device(1000, 600, 10, 40), &two);
        assert_eq!((size(&ladder, Gap::Wanted), size(&ladder, Gap::NonTorch)), (Some(130), Some(90)));
        assert_eq!((size(&ladder, Gap::Unattributed), ladder.sum()), (Some(0), Bytes(1000)));
    }

    fn figure() -> impl Strategy<Value = Option<u64>> {
        prop_oneof![
            Just(None),
            Just(Some(0)),
            Just(Some(u64::MAX)),
            (0..2000_u64).prop_map(Some),
            any::<u64>().prop_map(Some)
        ]
    }

    prop_compose! {
        fn any_own()(v in prop::array::uniform7(figure()), expandable in any::<bool>()) -> OwnFigures {
            OwnFigures {
                at: Stamp(v[0].unwrap_or(1)),
                requested: v[0],
                allocated: v[1],
                active: v[2],
                inactive_split: v[3],
                reserved: v[4],
                private_pools: v[5],
                expandable,
                driver_used: v[6].map(Bytes),
                driver_at: Stamp(v[6].unwrap_or(2)),
            }
        }
    }

    proptest! {
        #[test]
        fn the_rungs_always_sum_to_the_total(
            v in prop::array::uniform4(figure()),
            own in prop::collection::vec(any_own(), 0..5),
        ) {
            let [total, free, driver, others] = v.map(|it| it.map(Bytes));
            let ladder = ladder(&DeviceFigures { at: Stamp(3), total, free, driver, others }, &own);
            if let Some(total) = total {
                let exact: u128 = ladder.rungs.iter().filter_map(|it| it.bytes).map(|it| u128::from(it.0)).sum();
                prop_assert_eq!(exact, u128::from(total.0));
            }
            let by_gap = ladder.by_gap();
            prop_assert!(by_gap.windows(2).all(|it| it[0].gap < it[1].gap));
            prop_assert_eq!(by_gap.iter().filter_map(|it| it.bytes).fold(Bytes(0), Bytes::plus), ladder.sum());
        }
    }
}
