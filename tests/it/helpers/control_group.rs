//! A control group with a memory limit, of version 2 where it accounts for memory, else of version 1.

use crate::helpers::terminal::{PATIENCE, until};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

/// The files of a version: the limit, that with swap (and whether it is of swap alone), and the counter of kills.
struct Version {
    limit: &'static str,
    swap: &'static str,
    is_swap_alone: bool,
    used: &'static str,
    events: &'static str,
}

const VERSIONS: [Version; 2] = [
    Version {
        limit: "memory.max",
        swap: "memory.swap.max",
        is_swap_alone: true,
        used: "memory.current",
        events: "memory.events",
    },
    Version {
        limit: "memory.limit_in_bytes",
        swap: "memory.memsw.limit_in_bytes",
        is_swap_alone: false,
        used: "memory.usage_in_bytes",
        events: "memory.oom_control",
    },
];

/// A control group of a test's own; what runs in it is killed and it is removed when the test ends, however it ends.
pub(crate) struct Group {
    pub(crate) folder: PathBuf,
    version: &'static Version,
}

impl Group {
    /// Makes one below this process's; or says why that is not possible here.
    pub(crate) fn new() -> Result<Self, String> {
        let cgroup = fs::read_to_string("/proc/self/cgroup").map_err(|it| it.to_string())?;
        let mounts = fs::read_to_string("/proc/self/mounts").map_err(|it| it.to_string())?;
        let mut why = "no hierarchy of control groups is mounted".to_owned();
        for line in mounts.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let [_, mount, kind, options, ..] = fields[..] else { continue };
            let controllers = match kind {
                "cgroup2" => "",
                "cgroup" if options.split(',').any(|it| it == "memory") => "memory",
                _ => continue,
            };
            let is_own =
                |line: &&str| line.split(':').nth(1).is_some_and(|it| it.split(',').any(|name| name == controllers));
            let Some(path) = cgroup.lines().find(is_own).and_then(|it| it.splitn(3, ':').nth(2)) else { continue };
            match Self::below(&Path::new(mount).join(path.trim_start_matches('/'))) {
                Ok(it) => return Ok(it),
                Err(it) => why = it,
            }
        }
        Err(why)
    }

    fn below(parent: &Path) -> Result<Self, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = parent.join(format!("gpuwatch-test-{}-{number}", std::process::id()));
        fs::create_dir(&folder).map_err(|it| format!("{}: {it}", folder.display()))?;
        let version = VERSIONS.iter().find(|it| folder.join(it.limit).exists());
        let has_members = folder.join("cgroup.procs").exists();
        if let Some(version) = version.filter(|_| has_members) {
            return Ok(Self { folder, version });
        }
        let _ = fs::remove_dir(&folder);
        Err(format!("{} gives its groups no limit of memory", parent.display()))
    }

    /// Returns its name.
    pub(crate) fn name(&self) -> &str {
        self.folder.file_name().unwrap().to_str().unwrap()
    }

    /// Limits its memory to so many bytes, and gives it no swap.
    pub(crate) fn limit(&self, bytes: u64) {
        fs::write(self.folder.join(self.version.limit), bytes.to_string()).unwrap();
        // Without a limit for swap, there is none.
        let _ = fs::write(
            self.folder.join(self.version.swap),
            if self.version.is_swap_alone { 0 } else { bytes }.to_string(),
        );
    }

    /// Returns the bytes that are charged to it.
    pub(crate) fn used(&self) -> u64 {
        fs::read_to_string(self.folder.join(self.version.used)).unwrap().trim().parse().unwrap()
    }

    /// Returns how many processes in it the kernel has killed for memory.
    pub(crate) fn kills(&self) -> u64 {
        let text = fs::read_to_string(self.folder.join(self.version.events)).unwrap();
        text.lines().find_map(|it| it.strip_prefix("oom_kill ")).unwrap().trim().parse().unwrap()
    }

    /// A command line that puts a program into it, as the first to be killed there if it `is_first`.
    pub(crate) fn launcher(&self, is_first: bool) -> [String; 4] {
        let score = if is_first { "echo 1000 > /proc/self/oom_score_adj; " } else { "" };
        let enter = format!("{score}echo $$ > \"$0/cgroup.procs\" && exec \"$@\"");
        ["/bin/sh".to_owned(), "-c".to_owned(), enter, self.folder.to_string_lossy().into_owned()]
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that was just killed leaves it a moment later.
        until(PATIENCE, || {
            let members = fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
            for pid in members.lines().filter_map(|it| Pid::from_raw(it.parse().ok()?)) {
                let _ = kill_process(pid, Signal::KILL);
            }
            fs::remove_dir(&self.folder).is_ok()
        });
    }
}
