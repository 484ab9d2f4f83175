//! Tests of the host's ladder.

use super::*;
use crate::facts::host_memory::{MachineMemory, Pages, WorkerMemory};

const GIB: u64 = 1 << 30;

fn gib(it: u64) -> Bytes {
    Bytes(it * GIB)
}

fn host() -> HostMemory {
    let machine = MachineMemory {
        total: gib(256),
        free: gib(100),
        available: gib(150),
        shared: gib(6),
        kernel: gib(2),
        swap: Room { size: gib(8), used: gib(1) },
        oom_kills: Some(0),
    };
    let group = |path: &str, max| GroupMemory {
        path: path.into(),
        place: Some("slurm 4242".into()),
        max,
        current: gib(60),
        reclaimable: gib(10),
        shared: gib(4),
        kernel: gib(1),
        swap: Some(Room::default()),
        ..GroupMemory::default()
    };
    let tree = TreeMemory {
        own: Pages { anonymous: gib(20), private: gib(18), ..Pages::default() },
        workers: 2,
        of_workers: Pages { anonymous: gib(12), ..Pages::default() },
        each: vec![WorkerMemory::default(); 2],
    };
    let job = JobMemory { pid: 7, groups: vec![0, 1], tree: Some(tree), ..JobMemory::default() };
    HostMemory {
        machine,
        shm: Some(Room { size: gib(1), used: gib(1) }),
        groups: vec![group("/job_4242/step_0", None), group("/job_4242", Some(gib(64)))],
        processes: vec![job],
    }
}

fn own(host: &HostMemory, pinned: Option<(u64, Option<u64>)>) -> BTreeMap<u32, OwnMemory<'_>> {
    let job = host.processes.first().unwrap();
    [(7, OwnMemory { job: Some(job), tree: job.tree.as_ref(), pinned })].into()
}

fn sizes(ladder: &HostLadder) -> Vec<(&'static str, Option<u64>)> {
    ladder.parts.iter().map(|part| (part.rung.row().id, part.bytes.map(|it| it.0 / GIB))).collect()
}

#[test]
fn the_rungs_sum_to_the_limit() {
    let host = host();
    let ladders = ladders(&host, &own(&host, Some((5 * GIB, Some(3 * GIB)))));
    let of: Vec<_> = ladders.iter().map(|it| it.limit.of.id()).collect();
    assert_eq!(of, ["machine", "cgroup"], "a group without a limit has no ladder");
    for it in &ladders {
        assert_eq!(it.sum(), it.limit.size);
        assert_eq!(it.pids, [7]);
    }
    // The driver's share of shared memory is 4 GiB of the group's 4, the rest of what is pinned lies in the heap.
    let expected = [
        ("process", Some(19)),
        ("pinned", Some(3)),
        ("pinned_cache", Some(2)),
        ("workers", Some(12)),
        ("shared", Some(0)),
        ("kernel", Some(1)),
        ("others", Some(13)),
        ("page_cache", Some(10)),
        ("free", Some(4)),
    ];
    assert_eq!(sizes(&ladders[1]), expected);
}

#[test]
fn what_is_unknown_is_none_and_lies_in_an_outer_rung() {
    let mut host = host();
    host.processes[0].tree = None;
    let ladder = &ladders(&host, &own(&host, None))[1];
    assert_eq!(
        (ladder.get(HostRung::Process), ladder.get(HostRung::Workers), ladder.get(HostRung::Pinned)),
        (None, None, None)
    );
    assert_eq!((ladder.get(HostRung::Others), ladder.sum()), (Some(45 * GIB), 64 * GIB));
}

#[test]
fn figures_of_several_moments_never_exceed_the_limit() {
    let mut host = host();
    host.processes[0].tree.as_mut().unwrap().own.anonymous = gib(500);
    host.groups[1].reclaimable = gib(90);
    for it in ladders(&host, &own(&host, Some((900 * GIB, None)))) {
        assert_eq!(it.sum(), it.limit.size, "{it:?}");
    }
}

#[test]
fn the_limit_with_the_least_room_counts_and_the_page_cache_is_no_use() {
    let host = host();
    let nearest = nearest(&host, 7).unwrap();
    assert_eq!((nearest.of.clone(), nearest.left() / GIB), (LimitOf::Group("/job_4242".into()), 14));
    let machine = &limits(&host)[0];
    assert_eq!((machine.room / GIB, machine.used / GIB), (264, 107), "free swap is room");
    assert_eq!(super::nearest(&host, 8).unwrap().of, LimitOf::Machine, "a process of no group");
}

#[test]
fn limits_are_named_as_users_know_them() {
    let mut host = host();
    let mut words = |place: Option<&str>| {
        host.groups[1].place = place.map(Into::into);
        super::words(&LimitOf::Group("/job_4242".into()), &host)
    };
    assert_eq!(words(Some("slurm 4242, docker 0123456789ab")), "the cgroup of Slurm job 4242");
    assert_eq!(words(Some("docker 0123456789ab")), "the cgroup of docker container 0123456789ab");
    assert_eq!(words(Some("pbs 9")), "the cgroup of PBS job 9");
    assert_eq!(words(None), "the cgroup job_4242");
    assert_eq!(super::words(&LimitOf::Shm, &host), "/dev/shm");
}
