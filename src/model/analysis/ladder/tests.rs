//! Every byte has its place, whatever the figures are.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

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
    ladder.rungs.iter().map(|rung| (rung.gap, rung.bytes.map(|bytes| bytes.0))).collect()
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
            // 60 bytes of split blocks exceed the 50 cached ones: a contradiction.
            (Gap::Stuck, _) => (Gap::Stuck, None),
            other => other,
        })
    );
    assert_eq!(ladder.sum(), Bytes(1000));
}

#[test]
fn cached_memory_is_split_and_pools_are_separate() {
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

#[test]
fn allocated_memory_is_split_into_what_it_consists_of() {
    let parts = Parts { weights: 40, gradients: 20, optimizer: 25, retained: 15 };
    let figures = OwnFigures { parts: Some(parts), ..own(90, 100, 100, 0, 200, 200) };
    let split = |figures| sizes(&ladder(&device(1000, 800, 0, 0), &[figures]))[..5].to_vec();
    let expected = |gradients, retained, transient| {
        [
            (Gap::Weights, Some(40)),
            (Gap::Gradients, gradients),
            (Gap::Optimizer, Some(25)),
            (Gap::Retained, Some(retained)),
            (Gap::Transient, Some(transient)),
        ]
    };
    assert_eq!(split(figures), expected(Some(20), 15, 0));
    // What is retained grows until it is counted again.
    assert_eq!(split(OwnFigures { allocated: Some(130), active: Some(130), ..figures }), expected(Some(20), 45, 0));
    // Within a step, gradients come and go.
    let within = OwnFigures { allocated: Some(95), active: Some(95), is_between_steps: true, ..figures };
    assert_eq!(split(within), expected(None, 15, 15));
    assert_eq!(split(OwnFigures { is_between_steps: true, ..figures }), expected(Some(20), 15, 0), "nothing changed");
    // Less than what was counted: it is not so any more.
    let less = OwnFigures { allocated: Some(60), active: Some(60), requested: Some(50), ..figures };
    assert_eq!(split(less)[..2], [(Gap::Wanted, Some(50)), (Gap::Rounding, Some(10))]);
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
    fn any_own()(
        v in prop::array::uniform7(figure()),
        parts in prop::option::of(prop::array::uniform4(0..900_u64)),
        (expandable, is_between_steps) in any::<(bool, bool)>(),
    ) -> OwnFigures {
        let counters = Counters {
            requested: v[0],
            allocated: v[1],
            active: v[2],
            inactive_split: v[3],
            reserved: v[4],
            private_pools: v[5],
            ..Counters::default()
        };
        OwnFigures {
            driver_used: v[6].map(Bytes),
            driver_at: Stamp(v[6].unwrap_or(2)),
            parts: parts.map(|[weights, gradients, optimizer, retained]| Parts { weights, gradients, optimizer, retained }),
            is_between_steps,
            ..OwnFigures::counted(&counters, expandable, Stamp(v[0].unwrap_or(1)))
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
        let ladder = ladder(&DeviceFigures { at: Stamp(3), total, free, driver, others, cache: None }, &own);
        if let Some(total) = total {
            let exact: u128 = ladder.rungs.iter().filter_map(|it| it.bytes).map(|it| u128::from(it.0)).sum();
            prop_assert_eq!(exact, u128::from(total.0));
        }
        let by_gap = ladder.by_gap();
        prop_assert!(by_gap.windows(2).all(|it| it[0].gap < it[1].gap));
        prop_assert_eq!(by_gap.iter().filter_map(|it| it.bytes).fold(Bytes(0), Bytes::plus), ladder.sum());
    }
}

#[test]
fn no_two_gaps_have_one_name() {
    for name in [|it: &GapRow| it.name, |it: &GapRow| it.id, |it: &GapRow| it.role] {
        let names: BTreeSet<&str> = Gap::ALL.iter().map(|it| name(it.row())).collect();
        assert_eq!(names.len(), Gap::ALL.len(), "{names:?}");
    }
}

#[test]
fn signs_distinguish_gaps_without_colours() {
    for (place, one) in Gap::ALL.iter().enumerate() {
        for other in &Gap::ALL[..place] {
            // A gap that replaces another one, and never appears with it, may have the same sign.
            let stands_for = one.whole() == *other || other.whole() == *one;
            let is_either = stands_for || [*one, *other].contains(&Gap::Reserved);
            let (one, other) = (one.row(), other.row());
            assert!(is_either || one.colourless != other.colourless, "{} and {}", one.name, other.name);
            assert!(is_either || one.ascii != other.ascii, "{} and {}", one.name, other.name);
        }
    }
}
