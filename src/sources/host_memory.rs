//! The memory of this host: the machine's, the limits of control groups, `/dev/shm`, and what the watched processes
//! and their workers hold.
//!
//! Every two seconds it reads what is charged to each group, which is a number. It reads the rest every ten seconds, or
//! sooner when that number moves. The pages of a process take the kernel milliseconds for each GiB, so they are read
//! at most every ten seconds, in at most a hundredth of the time, and only for processes that are shown or have
//! workers.

mod groups;

use super::{
    EventSender, environment,
    focus::Focus,
    proc::{beginning_below, children_below},
};
use crate::facts::{
    event::Fact,
    host_memory::{
        GROUPS_MAX, HostMemory, JobMemory, MachineMemory, PROCESSES_MAX, Pages, Room, TreeMemory, WORKERS_MAX,
        WorkerMemory,
    },
    units::Bytes,
};
use groups::{GroupFolder, Hierarchies};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::spawn_blocking,
    time::{Instant as ClockInstant, MissedTickBehavior, interval_at},
};

/// Time between two looks at what is charged.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Looks from one whole reading to the next while nothing moves.
const WHOLE_EVERY: u32 = 5;

/// The shortest time between two readings of pages.
const PAGES_EVERY: Duration = Duration::from_secs(10);

/// How many times longer than a reading of pages takes the next one waits.
const PAGES_SHARE: u32 = 100;

/// A charge that moves by this share of its limit is worth a whole reading, in thousandths.
const MOVED: u64 = 5;

/// Whole readings after the end of a group's last watched process in which it is still read: the kernel counts the
/// processes that it killed there.
const KEPT: u32 = 8;

/// Most descendants of a process that are read.
const TREE_MAX: usize = 512;

/// Most bytes read of an environment.
const ENVIRON_MAX: u64 = 256 << 10;

/// What decides which processes are read.
pub(super) struct Needs {
    /// The folder below which the machine's files lie.
    pub(super) root: PathBuf,
    /// The processes that the driver lists, and those with a probe.
    pub(super) pids: watch::Receiver<Vec<u32>>,
    pub(super) probed: watch::Receiver<Vec<u32>>,
    pub(super) focus: watch::Receiver<Focus>,
    /// Whether a job is recorded, which runs in this process's control group.
    pub(super) recorded: bool,
    /// Asks for a last reading.
    pub(super) last: mpsc::Receiver<oneshot::Sender<()>>,
}

/// A process to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Its pid.
    pub pid: u32,
    /// Whether its pages are read even if it has no workers.
    pub is_shown: bool,
}

/// Reads and sends until the task is dropped.
pub(super) async fn run(begun: ClockInstant, mut needs: Needs, sender: EventSender) {
    let mut clock = interval_at(begun, LOOK_EVERY);
    clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut reader = Reader::new(needs.root.clone());
    let (mut known, mut looks) = (Vec::new(), 0_u32);
    loop {
        let mut asked = None;
        tokio::select! {
            _ = clock.tick() => looks += 1,
            Ok(()) = needs.pids.changed() => {}
            Ok(()) = needs.probed.changed() => {}
            Ok(()) = needs.focus.changed() => {}
            Some(it) = needs.last.recv() => asked = Some(it),
        }
        let focus = needs.focus.borrow().clone();
        let pids: BTreeSet<u32> = needs.pids.borrow().iter().chain(&*needs.probed.borrow()).copied().collect();
        let watched: Vec<Watched> =
            pids.into_iter().map(|pid| Watched { pid, is_shown: focus.tree_every(pid).is_some() }).collect();
        let is_needed = !watched.is_empty() || needs.recorded || focus == Focus::All;
        let is_new = watched != known;
        known.clone_from(&watched);
        let is_due = is_new || asked.is_some() || looks >= WHOLE_EVERY;
        if is_needed {
            let own = needs.recorded.then(std::process::id);
            let reading = spawn_blocking(move || {
                let reading = (is_due || reader.has_moved()).then(|| reader.read(&watched, own));
                (reader, reading)
            });
            let Ok((kept, reading)) = reading.await else { return };
            reader = kept;
            if let Some(reading) = reading {
                looks = 0;
                if !sender.send(Fact::HostMemory(Box::new(reading))).await {
                    return;
                }
            }
        }
        if let Some(asked) = asked {
            // The asker may be gone.
            let _ = asked.send(());
        }
    }
}

/// A group that is read, and for how many more readings.
struct Kept {
    folder: GroupFolder,
    place: Option<String>,
    readings: u32,
}

/// Reads a machine's memory; its files may lie below any folder.
pub struct Reader {
    root: PathBuf,
    hierarchies: Hierarchies,
    kept: Vec<Kept>,
    places: BTreeMap<u32, Option<String>>,
    before: HostMemory,
    pages_due: Option<Instant>,
    /// Whether something is mounted at `/dev/shm`.
    has_shm: bool,
}

impl Reader {
    /// Returns a reader of the machine whose `proc`, `sys` and `dev` lie below a folder.
    pub fn new(root: PathBuf) -> Self {
        let hierarchies = Hierarchies::of(&root);
        let before = HostMemory::default();
        let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
        let has_shm = mounts.lines().any(|it| it.split(' ').nth(4) == Some("/dev/shm"));
        Self { root, hierarchies, kept: Vec::new(), places: BTreeMap::new(), before, pages_due: None, has_shm }
    }

    /// Returns whether what is charged has moved since the last reading.
    fn has_moved(&self) -> bool {
        let moved = |now: u64, before: u64, limit: u64| now.abs_diff(before) > limit / 1000 * MOVED;
        let machine = machine(&self.root);
        let total = self.before.machine.total.0;
        let groups = self.kept.iter().filter_map(|it| Some((it, it.folder.current()?)));
        let mut groups = groups.filter_map(|(it, now)| {
            let before = self.before.groups.iter().find(|known| known.path.raw() == it.folder.path)?;
            Some((now, before.current, before.max.unwrap_or(self.before.machine.total)))
        });
        let shm = self.shm().zip(self.before.shm);
        moved(machine.available.0, self.before.machine.available.0, total)
            || machine.oom_kills != self.before.machine.oom_kills
            || shm.is_some_and(|(now, before)| moved(now.used.0, before.used.0, now.size.0))
            || groups.any(|(now, before, limit)| moved(now.0, before.0, limit.0))
    }

    /// Reads everything, and pages where they are due. Of `own`, a process that is not watched, reads the groups.
    pub fn read(&mut self, watched: &[Watched], own: Option<u32>) -> HostMemory {
        let machine = machine(&self.root);
        for it in &mut self.kept {
            it.readings = it.readings.saturating_sub(1);
        }
        self.places.retain(|pid, _| watched.iter().any(|it| it.pid == *pid));
        if let Some(own) = own {
            self.keep_groups(own);
        }
        let watched = &watched[..watched.len().min(PROCESSES_MAX)];
        let in_groups: Vec<Vec<String>> = watched.iter().map(|it| self.keep_groups(it.pid)).collect();
        self.kept.retain(|it| it.readings > 0);
        let groups: Vec<_> =
            self.kept.iter().filter_map(|it| it.folder.read(it.place.as_deref(), machine.swap)).collect();
        let is_due = self.pages_due.is_none_or(|it| Instant::now() >= it);
        let begun = Instant::now();
        let others: BTreeSet<u32> = watched.iter().map(|it| it.pid).collect();
        let processes = watched.iter().zip(in_groups).filter_map(|(it, paths)| {
            let places = paths.iter().filter_map(|path| groups.iter().position(|group| group.path.raw() == path));
            let places = places.filter_map(|place| u32::try_from(place).ok()).collect();
            let job = job(&self.root, it.pid, places)?;
            Some(JobMemory { tree: is_due.then(|| tree(&self.root, *it, &others)).flatten(), ..job })
        });
        let processes: Vec<JobMemory> = processes.collect();
        if is_due && processes.iter().any(|it| it.tree.is_some()) {
            self.pages_due = Some(Instant::now() + PAGES_EVERY.max(begun.elapsed() * PAGES_SHARE));
        }
        self.before = HostMemory { machine, shm: self.shm(), groups, processes };
        self.before.clone()
    }

    fn shm(&self) -> Option<Room> {
        if self.has_shm { shm(&self.root) } else { None }
    }

    /// Keeps the groups of a process that limit it, and the one that it is in; returns their paths.
    fn keep_groups(&mut self, pid: u32) -> Vec<String> {
        let cgroup = text(&self.root, pid, "cgroup");
        let place = self.places.entry(pid).or_insert_with(|| {
            let environ = beginning_below(&self.root.join("proc"), pid, "environ", ENVIRON_MAX);
            environment::place(&String::from_utf8_lossy(&environ), &cgroup)
        });
        let mut paths = Vec::new();
        for (depth, folder) in self.hierarchies.groups(&cgroup).into_iter().enumerate() {
            if let Some(known) = self.kept.iter_mut().find(|it| it.folder == folder) {
                known.readings = KEPT;
            } else {
                let limits = folder.read(None, Room::default());
                let is_limit = limits.is_some_and(|it| it.max.is_some() || it.high.is_some());
                if self.kept.len() >= GROUPS_MAX || !(is_limit || depth == 0) {
                    continue;
                }
                let own = environment::place("", &format!("0::{}", folder.path));
                let place = own.or_else(|| place.clone().filter(|_| depth == 0));
                self.kept.push(Kept { folder: folder.clone(), place, readings: KEPT });
            }
            paths.push(folder.path);
        }
        paths
    }
}

fn text(root: &Path, pid: u32, name: &str) -> String {
    fs::read(root.join(format!("proc/{pid}/{name}")))
        .map(|it| String::from_utf8_lossy(&it).into_owned())
        .unwrap_or_default()
}

/// Returns the bytes of a line such as `Pss:   12 kB`.
fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|it| it.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Reads the machine's memory; unknown sizes are 0.
pub(super) fn machine(root: &Path) -> MachineMemory {
    let info = fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
    let size = |name: &str| Bytes(kib(&info, name).unwrap_or(0));
    let kernel =
        ["SUnreclaim", "KernelStack", "PageTables", "Percpu"].iter().fold(Bytes(0), |sum, it| sum.plus(size(it)));
    // Kernels before 3.14 have no MemAvailable.
    let available = kib(&info, "MemAvailable").map_or_else(|| size("MemFree").plus(size("Cached")), Bytes);
    let (swap, swap_free) = (size("SwapTotal"), size("SwapFree"));
    let counts = fs::read_to_string(root.join("proc/vmstat")).unwrap_or_default();
    MachineMemory {
        total: size("MemTotal"),
        free: size("MemFree"),
        available,
        shared: size("Shmem"),
        kernel,
        swap: Room { size: swap, used: Bytes(swap.0.saturating_sub(swap_free.0)) },
        oom_kills: counts.lines().find_map(|it| it.strip_prefix("oom_kill ")?.parse().ok()),
    }
}

/// Returns the size of `/dev/shm`; `None` where it has none.
fn shm(root: &Path) -> Option<Room> {
    let about = rustix::fs::statvfs(root.join("dev/shm")).ok()?;
    let bytes = |blocks: u64| Bytes(blocks.saturating_mul(about.f_frsize));
    let size = bytes(about.f_blocks);
    // A tmpfs without a limit reports no blocks.
    (size.0 > 0).then(|| Room { size, used: Bytes(size.0.saturating_sub(bytes(about.f_bavail).0)) })
}

/// Reads what costs little of a process; `None` if it is gone.
fn job(root: &Path, pid: u32, groups: Vec<u32>) -> Option<JobMemory> {
    let status = text(root, pid, "status");
    if status.is_empty() {
        return None;
    }
    let size = |name: &str| kib(&status, name).map(Bytes);
    let limits = text(root, pid, "limits");
    let limit = limits.lines().find_map(|it| it.strip_prefix("Max address space")?.split_whitespace().next());
    let limit = limit.and_then(|it| it.parse().ok()).map(Bytes);
    Some(JobMemory {
        pid,
        groups,
        anonymous: size("RssAnon"),
        data: size("VmData"),
        address_space: limit.zip(size("VmSize")).map(|(size, used)| Room { size, used }),
        tree: None,
    })
}

/// Reads the pages of a process and its descendants without other watched ones; `None` if that is not necessary or not
/// allowed.
fn tree(root: &Path, it: Watched, others: &BTreeSet<u32>) -> Option<TreeMemory> {
    let descendants = descendants(root, it.pid, others);
    if descendants.is_empty() && !it.is_shown {
        return None;
    }
    let mut found = TreeMemory { own: pages(root, it.pid)?, ..TreeMemory::default() };
    for pid in descendants {
        // A worker that ended meanwhile has none.
        let Some(pages) = pages(root, pid) else { continue };
        found.workers += 1;
        found.of_workers = found.of_workers.plus(pages);
        found.each.push(WorkerMemory { pid, pages });
    }
    found.each.sort_by_key(|it| (std::cmp::Reverse(it.pages.private), it.pid));
    found.each.truncate(WORKERS_MAX);
    found.each.sort_by_key(|it| it.pid);
    Some(found)
}

fn descendants(root: &Path, pid: u32, others: &BTreeSet<u32>) -> BTreeSet<u32> {
    let (mut seen, mut left) = (BTreeSet::new(), vec![pid]);
    while let Some(one) = left.pop() {
        let children = children_below(&root.join("proc"), one);
        left.extend(children.into_iter().filter(|it| !others.contains(it) && seen.insert(*it)));
        if seen.len() > TREE_MAX {
            break;
        }
    }
    seen
}

/// Reads the sums of a process's pages; `None` without the permission.
fn pages(root: &Path, pid: u32) -> Option<Pages> {
    let text = text(root, pid, "smaps_rollup");
    let size = |name: &str| kib(&text, name).map(Bytes);
    let private = size("Private_Clean")?.plus(size("Private_Dirty")?);
    Some(Pages {
        resident: size("Rss")?,
        private,
        // Kernels before 5.3 do not split the share.
        anonymous: size("Pss_Anon").or_else(|| size("Private_Dirty"))?,
        shared: size("Pss_Shmem").unwrap_or_default(),
        swap: size("SwapPss").unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
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
        assert_eq!(
            tree.each.iter().map(|it| (it.pid, it.pages.private.0 >> 10)).collect::<Vec<_>>(),
            [(8, 31), (9, 41)]
        );
        let it = &read.machine;
        assert_eq!((it.total, it.free, it.available), (Bytes(1000 << 10), Bytes(100 << 10), Bytes(400 << 10)));
        assert_eq!((it.kernel, it.swap.used, it.oom_kills), (Bytes(10 << 10), Bytes(4 << 10), Some(3)));
    }

    #[test]
    fn limits_of_the_first_version_are_read_where_the_second_has_none() {
        let machine = Machine::new();
        machine.write(
            "proc/self/mountinfo",
            &format!("{V2}{V1}").replace("/sys/fs/cgroup rw", "/sys/fs/cgroup/unified rw"),
        );
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
}
