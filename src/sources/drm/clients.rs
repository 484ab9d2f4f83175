//! Which processes have descriptors of the devices, and what the kernel tells of their clients.
//!
//! Looking through all descriptors of all processes takes milliseconds. So a process that has none of a device is
//! looked at again after 1, 2, 4, … seconds, not all in the same second, and one that has some every few seconds; in
//! between, only the descriptors that are known are read, one for each client.

use super::{
    fdinfo::Client,
    sysfs::{bounded, names, numbered},
};
use crate::sources::proc::{Stat, beginning_below};
use rustix::{
    fs::{AtFlags, CWD, Dir, Mode, OFlags, major, minor, openat, readlinkat, statat},
    io::Errno,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::CStr,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

/// Turns after which a process without a descriptor is looked at again: twice as many each time, up to this.
const REST_MAX: u64 = 32;

/// Turns after which a process with descriptors is looked through again, and one whose descriptors this user may not
/// see.
const AGAIN: u64 = 5;
const REFUSED_AGAIN: u64 = 60;

/// Most descriptors of a process that are looked at.
const DESCRIPTORS_MAX: usize = 1 << 14;

/// Most bytes read about a client, and of the line with a process's start.
const CLIENT_MAX: u64 = 16 << 10;
const STAT_MAX: u64 = 1 << 10;

/// The kernel's number for devices of graphics, and the first of their numbers that is a render node's.
const DRM: u32 = 226;
const FIRST_RENDER_NODE: u32 = 128;

/// The compute driver's device.
const KFD: &str = "kfd";

/// The processes, as they were last looked at.
pub(super) struct Scanner {
    proc: PathBuf,
    known: BTreeMap<u32, Known>,
    turn: u64,
}

/// A process.
#[derive(Default)]
struct Known {
    /// The turn in which all its descriptors are looked through.
    look_at: u64,
    /// Turns until the next look while it has no descriptor of a device.
    rest: u64,
    /// The descriptors of devices: the place of the device, and the descriptor's number.
    descriptors: Vec<(usize, u32)>,
    /// Whether it uses the compute driver.
    computes: bool,
}

/// What one turn found.
#[derive(Default)]
pub(super) struct Clients {
    /// The clients: the place of the device, the pid of its process, and the client.
    pub(super) clients: Vec<(usize, u32, Client)>,
    /// The processes that have the compute driver open.
    pub(super) computing: BTreeSet<u32>,
}

impl Scanner {
    /// Begins with no process known.
    pub(super) fn new(root: &Path) -> Self {
        Self { proc: root.join("proc"), known: BTreeMap::new(), turn: 0 }
    }

    /// Forgets the places of devices, which have changed.
    pub(super) fn forget(&mut self) {
        self.known.clear();
    }

    /// Looks for clients of devices by their names in `/dev/dri`. Of one that sleeps nothing is read, because that
    /// might wake it.
    pub(super) fn turn(&mut self, nodes: &BTreeMap<&str, usize>, is_awake: impl Fn(usize) -> bool) -> Clients {
        self.turn += 1;
        let pids: BTreeSet<u32> = names(&self.proc).iter().filter_map(|it| numbered(it, "")).collect();
        self.known.retain(|pid, _| pids.contains(pid));
        let mut found = Clients::default();
        for pid in pids {
            let known = self.known.entry(pid).or_default();
            let folder = self.proc.join(pid.to_string());
            if self.turn >= known.look_at {
                known.look(&folder, nodes, self.turn, u64::from(pid));
            }
            if known.computes {
                found.computing.insert(pid);
            }
            known.read(&folder, self.turn, &is_awake, |place, client| found.clients.push((place, pid, client)));
        }
        self.attribute(&mut found.clients);
        found
    }

    /// Leaves a client that several processes hold to the one that began first: the others have inherited it or were
    /// handed it, and the kernel shows the same memory for each.
    fn attribute(&self, clients: &mut Vec<(usize, u32, Client)>) {
        let mut holders: BTreeMap<(usize, u64), BTreeSet<u32>> = BTreeMap::new();
        for (place, pid, client) in &*clients {
            if let Some(id) = client.id {
                holders.entry((*place, id)).or_default().insert(*pid);
            }
        }
        holders.retain(|_, pids| pids.len() > 1);
        let begun = |pid: &u32| {
            let stat = Stat::parse(&beginning_below(&self.proc, *pid, "stat", STAT_MAX));
            (stat.map_or(u64::MAX, |it| it.start_ticks), *pid)
        };
        let owners: BTreeMap<(usize, u64), u32> =
            holders.into_iter().filter_map(|(key, pids)| Some((key, pids.into_iter().min_by_key(begun)?))).collect();
        clients.retain(|(place, pid, client)| {
            let owner = client.id.and_then(|id| owners.get(&(*place, id)));
            owner.is_none_or(|owner| owner == pid)
        });
    }
}

impl Known {
    /// Looks through all descriptors. `place` spreads the looks at processes that began together.
    fn look(&mut self, folder: &Path, nodes: &BTreeMap<&str, usize>, turn: u64, place: u64) {
        self.descriptors.clear();
        self.computes = false;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(CWD, folder.join("fd"), flags, Mode::empty());
        let (folder, entries) = match opened.and_then(|it| Dir::read_from(&it).map(|entries| (it, entries))) {
            Ok(it) => it,
            Err(why) => {
                self.look_at = turn + if why == Errno::ACCESS { REFUSED_AGAIN } else { 1 };
                return;
            }
        };
        let mut target = Vec::new();
        for entry in entries.take(DESCRIPTORS_MAX).flatten() {
            let Ok(link) = readlinkat(&folder, entry.file_name(), target) else {
                target = Vec::new();
                continue;
            };
            target = link.into_bytes();
            let Some(name) = std::str::from_utf8(&target).ok().and_then(|it| it.strip_prefix("/dev/")) else {
                continue;
            };
            self.computes |= name == KFD;
            let place = match name.strip_prefix("dri/") {
                Some(it) => nodes.get(it),
                None if is_common(name) => None,
                // A container may have the device by another name.
                None => node(&folder, entry.file_name()).and_then(|it| nodes.get(it.as_str())),
            };
            let number = entry.file_name().to_str().ok().and_then(|it| numbered(it, ""));
            self.descriptors.extend(place.copied().zip(number));
        }
        if self.descriptors.is_empty() && !self.computes {
            self.rest = (self.rest * 2).clamp(1, REST_MAX);
            self.look_at = turn + self.rest / 2 + 1 + place % self.rest;
        } else {
            self.rest = 0;
            self.look_at = turn + AGAIN - place % 2;
        }
    }

    /// Reads the known descriptors, and keeps one of each client.
    fn read(
        &mut self,
        folder: &Path,
        turn: u64,
        is_awake: impl Fn(usize) -> bool,
        mut found: impl FnMut(usize, Client),
    ) {
        let mut seen = BTreeSet::new();
        let look_at = &mut self.look_at;
        self.descriptors.retain(|(place, descriptor)| {
            if !is_awake(*place) {
                return true;
            }
            let text = bounded(&folder.join(format!("fdinfo/{descriptor}")), CLIENT_MAX);
            let Some(client) = text.ok().and_then(|it| Client::parse(&it)) else {
                // It was closed, and another one may be open by now.
                *look_at = turn + 1;
                return false;
            };
            let is_new = client.id.is_none_or(|id| seen.insert((*place, id)));
            if is_new {
                found(*place, client);
            }
            is_new
        });
    }
}

/// Returns whether a name in `/dev` is that of a common device, which need not be asked for its number.
fn is_common(name: &str) -> bool {
    const WHOLE: [&str; 8] = ["null", "zero", "full", "random", "urandom", "tty", "ptmx", KFD];
    const BEGIN: [&str; 4] = ["pts/", "shm/", "nvidia", "input/"];
    WHOLE.contains(&name) || BEGIN.iter().any(|it| name.starts_with(it))
}

/// Returns the usual name in `/dev/dri` of the device behind a descriptor, by its number; `None` for other devices.
fn node(folder: &OwnedFd, descriptor: &CStr) -> Option<String> {
    let device = statat(folder, descriptor, AtFlags::empty()).ok()?.st_rdev;
    let number = minor(device);
    let name = if number < FIRST_RENDER_NODE { "card" } else { "renderD" };
    (major(device) == DRM).then(|| format!("{name}{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn descriptor(&self, pid: u32, number: u32, target: &str, client: u64) {
            let folder = self.0.path().join(format!("proc/{pid}"));
            for it in ["fd", "fdinfo"] {
                fs::create_dir_all(folder.join(it)).unwrap();
            }
            symlink(target, folder.join(format!("fd/{number}"))).unwrap();
            let text = format!("drm-driver: amdgpu\ndrm-client-id: {client}\ndrm-memory-vram: {client} KiB\n");
            fs::write(folder.join(format!("fdinfo/{number}")), text).unwrap();
        }

        fn begun(&self, pid: u32, ticks: u64) {
            let line = format!("{pid} (python) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {ticks} 0 0 0\n");
            fs::write(self.0.path().join(format!("proc/{pid}/stat")), line).unwrap();
        }
    }

    fn clients(found: &Clients) -> Vec<(usize, u32, u64)> {
        found.clients.iter().map(|(place, pid, it)| (*place, *pid, it.id.unwrap())).collect()
    }

    #[test]
    fn a_client_counts_once_however_many_descriptors_and_processes_have_it() {
        let tree = Tree(tempfile::tempdir().unwrap());
        let nodes = BTreeMap::from([("renderD128", 0), ("card0", 0), ("renderD129", 1)]);
        tree.descriptor(20, 3, "/dev/dri/renderD128", 7);
        tree.descriptor(20, 4, "/dev/dri/renderD128", 7);
        tree.descriptor(20, 5, "/dev/dri/card0", 8);
        tree.descriptor(20, 6, "/dev/dri/renderD129", 7);
        tree.descriptor(20, 7, "/dev/kfd", 0);
        tree.descriptor(20, 8, "/dev/nvidia0", 0);
        // A worker that has inherited a descriptor and has a lower number.
        tree.descriptor(10, 3, "/dev/dri/renderD128", 7);
        tree.descriptor(10, 9, "/dev/dri/renderD128", 9);
        tree.begun(20, 1000);
        tree.begun(10, 2000);
        let mut scanner = Scanner::new(tree.0.path());
        let found = scanner.turn(&nodes, |_| true);
        assert_eq!(clients(&found), [(0, 10, 9), (0, 20, 7), (0, 20, 8), (1, 20, 7)]);
        assert_eq!(found.computing, BTreeSet::from([20]));
        let found = scanner.turn(&nodes, |it| it == 1);
        assert_eq!(clients(&found), [(1, 20, 7)], "nothing is read of a device that sleeps");
    }

    #[test]
    fn descriptors_that_come_and_go_are_found_and_left() {
        let tree = Tree(tempfile::tempdir().unwrap());
        let nodes = BTreeMap::from([("renderD128", 0)]);
        tree.descriptor(20, 3, "/dev/null", 7);
        let mut scanner = Scanner::new(tree.0.path());
        assert!(clients(&scanner.turn(&nodes, |_| true)).is_empty());
        tree.descriptor(20, 4, "/dev/dri/renderD128", 8);
        assert_eq!(clients(&scanner.turn(&nodes, |_| true)), [(0, 20, 8)]);
        let folder = tree.0.path().join("proc/20");
        for it in ["fd/4", "fdinfo/4"] {
            fs::remove_file(folder.join(it)).unwrap();
        }
        assert!(clients(&scanner.turn(&nodes, |_| true)).is_empty());
        fs::remove_dir_all(folder).unwrap();
        assert!(clients(&scanner.turn(&nodes, |_| true)).is_empty() && scanner.known.is_empty());
    }
}
