//! Tests of workers that copy what they share.

use super::*;
use crate::facts::{host_memory::Pages, units::Bytes};

const MIB: u64 = 1 << 20;

/// A parent with 1 GiB, and two workers that have copied and asked for so much.
fn tree(pids: [u32; 2], copied: u64, own: u64) -> TreeMemory {
    let total = 1024;
    let worker = |pid| WorkerMemory {
        pid,
        pages: Pages {
            resident: Bytes((total + own) * MIB),
            private: Bytes((copied + own) * MIB),
            anonymous: Bytes((copied + own + (total - copied) / 3) * MIB),
            ..Pages::default()
        },
    };
    let each: Vec<_> = pids.into_iter().map(worker).collect();
    let of_workers = each.iter().fold(Pages::default(), |sum, it| sum.plus(it.pages));
    let parent = Pages {
        resident: Bytes(total * MIB),
        private: Bytes(copied * MIB),
        anonymous: Bytes((copied + (total - copied) / 3) * MIB),
        ..Pages::default()
    };
    TreeMemory { own: parent, workers: 2, of_workers, each }
}

fn judged(all: impl IntoIterator<Item = TreeMemory>) -> Workers {
    let mut workers = Workers::default();
    for (turn, it) in all.into_iter().enumerate() {
        workers.reading(&it, Stamp(turn as u64 * 10_000_000));
    }
    workers
}

#[test]
fn workers_that_copy_what_they_share_are_raised_once_and_end_with_them() {
    let mut workers = judged([70, 150, 300, 600, 600].map(|it| tree([7, 8], it, 0)));
    let [it] = workers.periods() else { panic!("{:?}", workers.periods()) };
    assert_eq!((it.workers, it.copied, it.resolved), (2, 2 * 530 * MIB, None));
    assert_eq!((it.since, it.first_alert_at), (Stamp(0), Stamp(20_000_000)));
    // Those of the next epoch begin anew.
    workers.reading(&tree([9, 10], 0, 0), Stamp(60_000_000));
    assert_eq!(workers.periods()[0].resolved, Some(Stamp(60_000_000)));
    let again = [300, 600].map(|it| tree([9, 10], it, 0));
    for it in &again {
        workers.reading(it, Stamp(70_000_000));
    }
    assert_eq!(workers.periods().len(), 2);
}

#[test]
fn healthy_workers_are_not() {
    for (name, all) in [
        ("they share arrays", [10, 20, 30, 30].map(|it| tree([7, 8], it, 0))),
        ("they fill caches of their own", [0, 200, 400, 600].map(|it| tree([7, 8], 20, it))),
        ("they are replaced", [0, 1, 2, 3].map(|it| tree([7 + 2 * it, 8 + 2 * it], u64::from(it) * 200, 0))),
    ] {
        assert!(judged(all).periods().is_empty(), "{name}");
    }
    // The parent frees what it shared: it is private to the workers, and nothing was copied.
    let freed = [0, 500, 900].map(|copied| {
        let mut tree = tree([7, 8], copied, 0);
        tree.own = Pages::default();
        tree.of_workers.anonymous = Bytes(1024 * MIB);
        tree
    });
    assert!(judged(freed).periods().is_empty());
}
