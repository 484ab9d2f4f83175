//! Tests of what is read of a host, from trees that they make.

use super::*;
use crate::facts::text::Foreign;
use std::{
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

const MIB: u64 = 1 << 20;

/// A machine whose files the test writes.
struct Machine(PathBuf);

impl Machine {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("gpuwatch-host-{}-{number}", std::process::id()));
        let machine = Self(root);
        machine.write(
            "proc/meminfo",
            "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 400 kB\nShmem: 50 kB\nSUnreclaim: 7 kB\nPageTables: 3 \
             kB\nSwapTotal: 64 kB\nSwapFree: 60 kB\n",
        );
        machine.write("proc/vmstat", "pgfault 5\noom_kill 3\n");
        machine
    }

    fn write(&self, path: &str, text: &str) -> &Self {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn process(&self, pid: u32, children: &str, cgroup: &str, private: u64) {
        let file = |name: &str| format!("proc/{pid}/{name}");
        self.write(&file("cgroup"), cgroup)
            .write(&file("status"), "VmSize: 900 kB\nVmData: 700 kB\nRssAnon: 300 kB\n")
            .write(&file("limits"), "Max address space         2097152              unlimited            bytes\n")
            .write(&file(&format!("task/{pid}/children")), children)
            .write(
                &file("smaps_rollup"),
                &format!(
                    "Rss: 500 kB\nPss_Anon: {private} kB\nPss_Shmem: 4 kB\nPrivate_Clean: 1 kB\nPrivate_Dirty: {private} \
                     kB\nSwapPss: 2 kB\n"
                ),
            );
    }

    fn reader(&self) -> Reader {
        Reader::new(self.0.clone())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn shown(pid: u32) -> Watched {
    Watched { pid, is_shown: true }
}

const V2: &str = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";
const V1: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n";

#[test]
fn limits_of_the_second_version_are_read_along_the_path() {
    let machine = Machine::new();
    machine.write("proc/self/mountinfo", V2);
    machine.process(7, "8 9", "0::/system.slice/slurmstepd.scope/job_42/step_0\n", 100);
    machine.process(8, "", "0::/system.slice/slurmstepd.scope/job_42/step_0\n", 30);
    machine.process(9, "", "0::/system.slice/slurmstepd.scope/job_42/step_0\n", 40);
    for (folder, max) in [("", "max"), ("/job_42", "1048576"), ("/job_42/step_0", "max")] {
        let at = format!("sys/fs/cgroup/system.slice/slurmstepd.scope{folder}");
        machine
            .write(&format!("{at}/memory.max"), &format!("{max}\n"))
            .write(&format!("{at}/memory.high"), "max\n")
            .write(&format!("{at}/memory.current"), "700000\n")
            .write(&format!("{at}/memory.swap.max"), "max\n")
            .write(&format!("{at}/memory.swap.current"), "4096\n")
            .write(&format!("{at}/memory.events"), "low 0\nhigh 0\nmax 9\noom 2\noom_kill 2\noom_group_kill 0\n")
            .write(
                &format!("{at}/memory.stat"),
                "anon 1\nfile 9\nkernel 5000\nshmem 300\ninactive_file 100\nactive_file 200\nslab_reclaimable 50\n",
            );
    }
    let read = machine.reader().read(&[shown(7)], None);
    let [leaf, job] = read.groups.as_slice() else { panic!("{:?}", read.groups) };
    assert_eq!((leaf.path.raw(), leaf.max), ("/system.slice/slurmstepd.scope/job_42/step_0", None));
    assert_eq!((job.path.raw(), job.max), ("/system.slice/slurmstepd.scope/job_42", Some(Bytes(MIB))));
    assert_eq!(
        (job.current, job.reclaimable, job.shared, job.kernel),
        (Bytes(700_000), Bytes(350), Bytes(300), Bytes(4950))
    );
    assert_eq!(job.oom_kills, Some(2));
    assert_eq!(job.swap, Some(Room { size: Bytes(64 << 10), used: Bytes(4096) }), "no more than the machine has");
    assert_eq!(job.place.as_ref().map(Foreign::raw), Some("slurm 42"));
    let [process] = read.processes.as_slice() else { panic!("{:?}", read.processes) };
    assert_eq!((process.pid, process.groups.as_slice()), (7, &[0, 1][..]));
    assert_eq!((process.anonymous, process.data), (Some(Bytes(300 << 10)), Some(Bytes(700 << 10))));
    assert_eq!(process.address_space, Some(Room { size: Bytes(2 * MIB), used: Bytes(900 << 10) }));
    let tree = process.tree.as_ref().unwrap();
    assert_eq!((tree.own.private, tree.workers, tree.of_workers.private), (Bytes(101 << 10), 2, Bytes(72 << 10)));
    assert_eq!(tree.each.iter().map(|it| (it.pid, it.pages.private.0 >> 10)).collect::<Vec<_>>(), [(8, 31), (9, 41)]);
    let it = &read.machine;
    assert_eq!((it.total, it.free, it.available), (Bytes(1000 << 10), Bytes(100 << 10), Bytes(400 << 10)));
    assert_eq!((it.kernel, it.swap.used, it.oom_kills), (Bytes(10 << 10), Bytes(4 << 10), Some(3)));
}

#[test]
fn limits_of_the_first_version_are_read_where_the_second_has_none() {
    let machine = Machine::new();
    machine
        .write("proc/self/mountinfo", &format!("{V2}{V1}").replace("/sys/fs/cgroup rw", "/sys/fs/cgroup/unified rw"));
    machine.write("sys/fs/cgroup/unified/cgroup.controllers", "");
    machine.process(7, "", "4:memory:/docker/0123456789abcdef\n0::/\n", 100);
    let at = "sys/fs/cgroup/memory/docker/0123456789abcdef";
    machine
        .write(&format!("{at}/memory.limit_in_bytes"), "4194304\n")
        .write(&format!("{at}/memory.usage_in_bytes"), "1000000\n")
        .write(&format!("{at}/memory.memsw.limit_in_bytes"), "9223372036854771712\n")
        .write(&format!("{at}/memory.kmem.usage_in_bytes"), "77\n")
        .write(&format!("{at}/memory.oom_control"), "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
        .write(
            &format!("{at}/memory.stat"),
            "cache 1\ninactive_file 5\ntotal_inactive_file 40\ntotal_active_file 2\ntotal_shmem 9\n",
        );
    let read = machine.reader().read(&[shown(7)], None);
    let [group] = read.groups.as_slice() else { panic!("{:?}", read.groups) };
    assert_eq!((group.max, group.current), (Some(Bytes(4 * MIB)), Bytes(1_000_000)));
    assert_eq!((group.reclaimable, group.shared, group.kernel), (Bytes(42), Bytes(9), Bytes(77)));
    assert_eq!((group.oom_kills, group.place.as_ref().map(Foreign::raw)), (Some(1), Some("docker 0123456789ab")));
}

#[test]
fn a_container_sees_its_own_groups() {
    let machine = Machine::new();
    // Without a namespace of its own, the paths in /proc are the host's and the mount shows only a part of them.
    machine.write("proc/self/mountinfo", "30 24 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup ro\n");
    machine.process(7, "", "0::/docker/abc/job\n", 1);
    machine.process(8, "", "0::/../other\n", 1);
    for (at, max) in [("sys/fs/cgroup", "4096"), ("sys/fs/cgroup/job", "max")] {
        machine.write(&format!("{at}/memory.current"), "5\n").write(&format!("{at}/memory.max"), max);
    }
    let read = machine.reader().read(&[shown(7), shown(8)], None);
    let paths: Vec<_> = read.groups.iter().map(|it| (it.path.raw(), it.max)).collect();
    assert_eq!(paths, [("/job", None), ("/", Some(Bytes(4096)))]);
    assert_eq!(read.processes[1].groups, [0; 0], "a process outside");
}

#[test]
fn a_group_is_read_after_its_processes_end_and_one_that_is_gone_is_left_out() {
    let machine = Machine::new();
    machine.write("proc/self/mountinfo", V2).process(7, "", "0::/job\n", 1);
    machine.write("sys/fs/cgroup/job/memory.current", "5").write("sys/fs/cgroup/job/memory.events", "oom_kill 0\n");
    let mut reader = machine.reader();
    assert_eq!(reader.read(&[shown(7)], None).groups[0].oom_kills, Some(0));
    fs::remove_dir_all(machine.0.join("proc/7")).unwrap();
    machine.write("sys/fs/cgroup/job/memory.events", "oom_kill 1\n");
    let after = reader.read(&[], None);
    assert_eq!((after.groups[0].oom_kills, after.processes.len()), (Some(1), 0));
    fs::remove_dir_all(machine.0.join("sys/fs/cgroup/job")).unwrap();
    assert_eq!(reader.read(&[], None).groups.len(), 0);
}

#[test]
fn what_cannot_be_read_is_unknown() {
    let machine = Machine::new();
    let mut reader = machine.reader();
    let read = reader.read(&[shown(7)], Some(8));
    assert_eq!((read.groups.len(), read.processes.len(), read.shm), (0, 0, None));
    machine.process(7, "", "", 1);
    fs::remove_file(machine.0.join("proc/7/smaps_rollup")).unwrap();
    assert_eq!(reader.read(&[shown(7)], None).processes[0].tree, None, "another user's process");
}

#[test]
fn a_whole_reading_is_due_when_what_is_charged_moves() {
    let machine = Machine::new();
    machine.write("proc/self/mountinfo", V2).process(7, "", "0::/job\n", 1);
    machine.write("sys/fs/cgroup/job/memory.current", "500000").write("sys/fs/cgroup/job/memory.max", "1000000");
    let mut reader = machine.reader();
    reader.read(&[shown(7)], None);
    assert!(!reader.has_moved());
    machine.write("sys/fs/cgroup/job/memory.current", "504000");
    assert!(!reader.has_moved(), "less than half a percent of the limit");
    machine.write("sys/fs/cgroup/job/memory.current", "506000");
    assert!(reader.has_moved());
}

#[test]
fn pages_are_those_of_the_kernel() {
    let mut child = Command::new("sh").args(["-c", "read end; :"]).stdin(Stdio::piped()).spawn().unwrap();
    let (root, own) = (Path::new("/"), std::process::id());
    let is_there =
        fs::metadata("/proc/self/smaps_rollup").is_ok() && !children_below(Path::new("/proc"), own).is_empty();
    if is_there {
        let tree = tree(root, shown(own), &BTreeSet::new()).unwrap();
        let worker = tree.each.iter().find(|it| it.pid == child.id()).unwrap();
        let text = text(root, child.id(), "smaps_rollup");
        let private = kib(&text, "Private_Clean").unwrap() + kib(&text, "Private_Dirty").unwrap();
        assert_eq!(worker.pages.private.0, private, "it waits, so nothing has changed");
        assert!(tree.own.anonymous.0 > 0 && tree.of_workers.private.0 >= private);
        let watched = BTreeSet::from([child.id()]);
        let without = super::tree(root, shown(own), &watched).unwrap();
        assert!(without.each.iter().all(|it| it.pid != child.id()), "a watched one is no worker");
        assert_eq!(super::tree(root, Watched { pid: child.id(), is_shown: false }, &watched), None, "it has none");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    if !is_there {
        test_tiers::skip!("this kernel sums up no pages, or lists no children");
    }
}
