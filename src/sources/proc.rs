//! What the kernel shows of processes in `/proc`: the one reader of `stat`, `status`, `maps`, lists of children, and
//! owners.

use std::{
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
};

/// Where the kernel shows them.
const PROC: &str = "/proc";

/// Inode number of the first pid namespace of every Linux (`PROC_PID_INIT_INO`).
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// Returns the beginning of a process's file, at most so many bytes; empty if it is not readable.
pub fn beginning(pid: u32, name: &str, most: u64) -> Vec<u8> {
    beginning_below(Path::new(PROC), pid, name, most)
}

/// The same with another folder for `/proc`.
pub fn beginning_below(proc: &Path, pid: u32, name: &str, most: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = File::open(proc.join(format!("{pid}/{name}"))).and_then(|it| it.take(most).read_to_end(&mut bytes));
    if read.is_ok() { bytes } else { Vec::new() }
}

/// A process's line in `stat`; times are in clock ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The letter of its state.
    pub state: char,
    /// The pid of its parent; 0 for one of another namespace.
    pub parent: u32,
    /// CPU time of its threads, or of the thread whose line it is.
    pub cpu: u64,
    /// CPU time of its children that have ended.
    pub children_cpu: u64,
    /// Time in which it waited for a disk.
    pub io_wait: u64,
    /// Its threads.
    pub threads: u64,
    /// When it started, since boot. Pid and start together identify it.
    pub start_ticks: u64,
    /// Resident pages.
    pub pages: u64,
}

impl Stat {
    /// Reads that of a process, which has the sums of all its threads; `None` if it is gone.
    pub fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Opens the file of a process's first thread, which [`Self::read`] takes: reading the whole process's file holds
    /// its lock while the kernel sums up all threads.
    pub fn open(pid: u32) -> Option<File> {
        File::open(format!("/proc/{pid}/task/{pid}/stat")).ok()
    }

    /// Reads an open file; `None` if the process is gone.
    pub fn read(file: &File) -> Option<Self> {
        // One read gets all of it, because every process is read each second.
        let mut text = [0; 1024];
        let length = file.read_at(&mut text, 0).ok()?;
        Self::parse(text.get(..length)?)
    }

    /// Parses the line; `None` if it lacks fields.
    pub fn parse(line: &[u8]) -> Option<Self> {
        // The name may contain blanks, brackets and any bytes, so fields are counted from the last bracket.
        let fields = line.rsplit(|it| *it == b')').next()?;
        let mut fields = std::str::from_utf8(fields).ok()?.split_ascii_whitespace();
        // By their numbers in proc(5), where the state is the third.
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let (user, system) = (fields.nth(9)?.parse::<u64>().ok()?, fields.next()?.parse().ok()?);
        let (child_user, child_system) = (fields.next()?.parse().unwrap_or(0u64), fields.next()?.parse().unwrap_or(0));
        let threads = fields.nth(2)?.parse().ok()?;
        let start_ticks = fields.nth(1)?.parse().ok()?;
        let pages = fields.nth(1)?.parse().ok()?;
        let io_wait = fields.nth(17).and_then(|it| it.parse().ok()).unwrap_or(0);
        let (cpu, children_cpu) = (user.saturating_add(system), child_user.saturating_add(child_system));
        Some(Self { state, parent, cpu, children_cpu, io_wait, threads, start_ticks, pages })
    }

    /// Returns whether the process, or the thread whose line it is, has ended.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// Returns whether it is stopped: by a signal, or by a debugger.
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }
}

/// A process's file `status`.
#[derive(Debug)]
pub struct Status(String);

impl Status {
    /// Reads it; without any line if the process is gone.
    pub fn read(pid: u32) -> Self {
        // A thread's name may hold any bytes.
        let bytes = fs::read(format!("/proc/{pid}/status")).unwrap_or_default();
        Self(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns the text of a line, without the blanks around it.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|it| it.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    }

    /// Returns the decimal numbers of a line.
    pub fn numbers(&self, name: &str) -> Vec<u32> {
        self.text(name).unwrap_or_default().split_whitespace().filter_map(|it| it.parse().ok()).collect()
    }

    /// Returns the set of bits of a line, which has them in hexadecimal.
    pub fn mask(&self, name: &str) -> u64 {
        self.text(name).and_then(|it| u64::from_str_radix(it, 16).ok()).unwrap_or(0)
    }
}

/// What is mapped at an address: a line of `maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The first address.
    pub start: u64,
    /// The first address behind it.
    pub end: u64,
    /// Where it begins in its file.
    pub offset: u64,
    /// The file, as the process sees it; empty for memory of no file.
    pub path: String,
}

impl Mapping {
    /// Parses a line.
    pub fn parse(line: &str) -> Option<Self> {
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let _access = fields.next()?;
        let hex = |it: &str| u64::from_str_radix(it, 16).ok();
        let offset = hex(fields.next()?)?;
        let path = fields.nth(2).unwrap_or_default().trim_start().to_owned();
        Some(Self { start: hex(start)?, end: hex(end)?, offset, path })
    }
}

/// Returns the children that a process's first thread has started.
pub fn children_of_first_thread(pid: u32) -> Vec<u32> {
    children_of_thread(Path::new(PROC), pid, &pid.to_string())
}

/// Returns the children of all threads of a process.
pub fn children(pid: u32) -> Vec<u32> {
    children_below(Path::new(PROC), pid)
}

/// The same with another folder for `/proc`.
pub fn children_below(proc: &Path, pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(proc.join(format!("{pid}/task"))).into_iter().flatten().flatten();
    threads.flat_map(|it| children_of_thread(proc, pid, &it.file_name().to_string_lossy())).collect()
}

fn children_of_thread(proc: &Path, pid: u32, thread: &str) -> Vec<u32> {
    let list = fs::read_to_string(proc.join(format!("{pid}/task/{thread}/children"))).unwrap_or_default();
    list.split_ascii_whitespace().filter_map(|it| it.parse().ok()).collect()
}

/// Returns the owner of a process; `None` if it is gone.
pub fn owner(pid: u32) -> Option<u32> {
    Some(fs::metadata(format!("/proc/{pid}")).ok()?.uid())
}

/// Returns what identifies the pid namespace of a process, which may be `self`.
///
/// # Errors
/// Fails for processes of other users.
pub fn pid_namespace(pid: &str) -> io::Result<(u64, u64)> {
    let about = fs::metadata(format!("/proc/{pid}/ns/pid"))?;
    Ok((about.dev(), about.ino()))
}

/// Returns whether this process runs in another pid namespace than the host's first.
pub fn in_container() -> bool {
    pid_namespace("self").is_ok_and(|(_, inode)| inode != FIRST_PID_NAMESPACE)
}

/// Returns the identity of this boot.
pub fn boot_id() -> Option<String> {
    Some(fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned())
}

/// Returns the bytes that programs can still take without swapping (`MemAvailable`).
pub fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|it| it.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "4242 (py) thon (x) S 1 4242 4242 0 -1 4194560 100 0 0 0 700 50 6 7 20 0 54 0 9000 123456789 \
        2048 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 3 0 0 12 0 0 0 0 0 0 0 0 0 0";

    #[test]
    fn fields_are_those_of_the_manual() {
        let stat = Stat::parse(LINE.as_bytes()).unwrap();
        let (cpu, children_cpu, io_wait) = (750, 13, 12);
        let expected =
            Stat { state: 'S', parent: 1, cpu, children_cpu, io_wait, threads: 54, start_ticks: 9000, pages: 2048 };
        assert_eq!(stat, expected);
        let state = |letter: &str| Stat::parse(LINE.replace(") S 1", &format!(") {letter} 1")).as_bytes()).unwrap();
        assert!(state("Z").has_ended() && state("X").has_ended() && !state("R").has_ended());
        assert!(state("T").is_stopped() && state("t").is_stopped() && !stat.is_stopped());
    }

    #[test]
    fn other_texts_are_no_stat() {
        for text in ["", ")", "4242 (python) S 1 2", ") S ) x y"] {
            assert_eq!(Stat::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn lines_of_mappings_are_read() {
        let line = "7f00-7f20 r-xp 00001000 fd:00 1234     /usr/lib/a b.so";
        let expected = Mapping { start: 0x7F00, end: 0x7F20, offset: 0x1000, path: "/usr/lib/a b.so".to_owned() };
        assert_eq!(Mapping::parse(line), Some(expected));
        assert_eq!(Mapping::parse("7f00-7f20 rw-p 00000000 00:00 0").map(|it| it.path), Some(String::new()));
        assert_eq!(Mapping::parse("nonsense"), None);
    }

    #[test]
    fn this_very_process_is_shown() {
        let own = std::process::id();
        let status = Status::read(own);
        assert_eq!(status.numbers("PPid"), [Stat::of(own).unwrap().parent]);
        assert_eq!(owner(own), Some(rustix::process::geteuid().as_raw()));
        assert!(Stat::of(u32::MAX).is_none() && Status::read(u32::MAX).text("Name").is_none());
    }
}
