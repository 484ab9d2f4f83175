//! Control groups with memory accounting, of both versions: where a process is, and what limits it there.

use crate::facts::{
    host_memory::{GroupMemory, Room},
    text::Foreign,
    units::Bytes,
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Most groups on the way from a process to the root.
const DEPTH_MAX: usize = 16;

/// Larger limits of the first version stand for none.
const NO_LIMIT: u64 = 1 << 60;

/// The version of a hierarchy of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A mounted hierarchy.
#[derive(Clone, Debug)]
struct Hierarchy {
    version: Version,
    /// The group that is mounted, which is not the root in some containers.
    top: String,
    folder: PathBuf,
}

/// The mounted hierarchies that may account for memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Hierarchies(Vec<Hierarchy>);

/// A control group's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupFolder {
    version: Version,
    /// Its path in the hierarchy, as far as it is visible here.
    pub(super) path: String,
    folder: PathBuf,
}

impl Hierarchies {
    /// Finds them in the list of mounts of a machine whose files lie below a folder.
    pub(super) fn of(root: &Path) -> Self {
        let list = fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
        let mut all: Vec<Hierarchy> = list.lines().filter_map(|line| Hierarchy::parse(line, root)).collect();
        // Where both exist, only one of them accounts for memory: the second version if it can.
        all.sort_by_key(|it| it.version == Version::One);
        Self(all)
    }

    /// Returns the groups of a process that account for memory, from `/proc/PID/cgroup`, the innermost first.
    pub(super) fn groups(&self, cgroup: &str) -> Vec<GroupFolder> {
        self.0.iter().map(|it| it.groups(cgroup)).find(|it| !it.is_empty()).unwrap_or_default()
    }
}

impl Hierarchy {
    /// Parses a line of mountinfo (`proc_pid_mountinfo(5)`).
    fn parse(line: &str, root: &Path) -> Option<Self> {
        let (mount, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let version = match (kind.next()?, kind.nth(1)) {
            ("cgroup2", _) => Version::Two,
            ("cgroup", Some(options)) if options.split(',').any(|it| it == "memory") => Version::One,
            _ => return None,
        };
        let mut fields = mount.split(' ').skip(3);
        let (top, at) = (unescaped(fields.next()?), unescaped(fields.next()?));
        Some(Self { version, top, folder: root.join(at.trim_start_matches('/')) })
    }

    fn groups(&self, cgroup: &str) -> Vec<GroupFolder> {
        let is_own = |controllers: &str, number: &str| match self.version {
            Version::Two => number == "0" && controllers.is_empty(),
            Version::One => controllers.split(',').any(|it| it == "memory"),
        };
        let path = cgroup.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (number, controllers) = (fields.next()?, fields.next()?);
            is_own(controllers, number).then(|| fields.next()).flatten()
        });
        let Some(path) = path else { return Vec::new() };
        // A process outside of this container's groups.
        if path.split('/').any(|it| it == "..") {
            return Vec::new();
        }
        let below = if self.top == "/" { Some(path) } else { path.strip_prefix(self.top.as_str()) };
        // A container that has its own groups mounted, and the host's paths in /proc.
        let mut names: Vec<&str> = below.unwrap_or_default().split('/').filter(|it| !it.is_empty()).collect();
        let mut out = Vec::new();
        loop {
            let folder = names.iter().fold(self.folder.clone(), |at, name| at.join(name));
            let it = GroupFolder { version: self.version, path: format!("/{}", names.join("/")), folder };
            if it.current().is_some() {
                out.push(it);
            }
            if names.pop().is_none() || out.len() >= DEPTH_MAX {
                return out;
            }
        }
    }
}

/// Decodes a field of mountinfo, which has blanks as `\040`.
fn unescaped(field: &str) -> String {
    field.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
}

impl GroupFolder {
    /// Returns what is charged to it: one small file, which costs nothing.
    pub(super) fn current(&self) -> Option<Bytes> {
        self.number(match self.version {
            Version::One => "memory.usage_in_bytes",
            Version::Two => "memory.current",
        })
        .map(Bytes)
    }

    /// Reads everything; `None` if the group is gone.
    pub(super) fn read(&self, place: Option<&str>, swap: Room) -> Option<GroupMemory> {
        let current = self.current()?;
        let stat = Stat(self.text("memory.stat"));
        let known = GroupMemory {
            path: Foreign::new(self.path.as_str()),
            place: place.map(Foreign::new),
            current,
            ..GroupMemory::default()
        };
        Some(match self.version {
            Version::Two => self.second(&stat, swap, known),
            Version::One => self.first(&stat, swap, known),
        })
    }

    fn second(&self, stat: &Stat, swap: Room, known: GroupMemory) -> GroupMemory {
        let slabs = stat.get("slab_reclaimable").unwrap_or(0);
        let files = stat.get("inactive_file").unwrap_or(0) + stat.get("active_file").unwrap_or(0);
        // Kernels before 5.18 have only its parts.
        let parts = ["kernel_stack", "pagetables", "percpu", "sock", "slab_unreclaimable"];
        let parts = || parts.iter().filter_map(|it| stat.get(it)).sum::<u64>();
        let kernel = stat.get("kernel").map_or_else(parts, |it| it.saturating_sub(slabs));
        let used = self.number("memory.swap.current").map(Bytes);
        let size = self.number("memory.swap.max").map_or(swap.size, |it| Bytes(it.min(swap.size.0)));
        GroupMemory {
            max: self.number("memory.max").map(Bytes),
            high: self.number("memory.high").map(Bytes),
            reclaimable: Bytes(files + slabs),
            shared: Bytes(stat.get("shmem").unwrap_or(0)),
            kernel: Bytes(kernel),
            swap: used.map(|used| Room { size, used }),
            oom_kills: Stat(self.text("memory.events")).get("oom_kill"),
            ..known
        }
    }

    fn first(&self, stat: &Stat, swap: Room, known: GroupMemory) -> GroupMemory {
        let limit = |name: &str| self.number(name).filter(|it| *it < NO_LIMIT);
        // With sub-groups; without a hierarchy there are none.
        let stat = |name: &str| stat.get(&format!("total_{name}")).or_else(|| stat.get(name));
        let max = limit("memory.limit_in_bytes");
        let both = limit("memory.memsw.limit_in_bytes").zip(max).map(|(both, max)| both.saturating_sub(max));
        let size = Bytes(both.map_or(swap.size.0, |it| it.min(swap.size.0)));
        GroupMemory {
            max: max.map(Bytes),
            reclaimable: Bytes(stat("inactive_file").unwrap_or(0) + stat("active_file").unwrap_or(0)),
            shared: Bytes(stat("shmem").unwrap_or(0)),
            kernel: Bytes(self.number("memory.kmem.usage_in_bytes").unwrap_or(0)),
            swap: stat("swap").map(|used| Room { size, used: Bytes(used) }),
            oom_kills: Stat(self.text("memory.oom_control")).get("oom_kill"),
            ..known
        }
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).unwrap_or_default()
    }

    /// Reads a number; `None` for `max`, which stands for no limit, and where there is no such file.
    fn number(&self, name: &str) -> Option<u64> {
        self.text(name).trim().parse().ok()
    }
}

/// A file of names and numbers.
struct Stat(String);

impl Stat {
    fn get(&self, name: &str) -> Option<u64> {
        self.0.lines().find_map(|it| it.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
    }
}
