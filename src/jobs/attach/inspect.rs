//! Collects the facts about a process that `plan` needs, and the addresses in it. Only reads.

use super::{
    elf::Image,
    maps::{Maps, by_name},
    plan::{Facts, Python},
    remote,
};
use crate::sources::system;
use rustix::process::{getegid, geteuid};
use std::{
    collections::{BTreeSet, HashSet},
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// `CAP_SYS_PTRACE`, a bit of `CapEff`.
const SYS_PTRACE: u32 = 19;

/// `mov $15, %rax; syscall`: how the C library calls `rt_sigreturn`.
const RESTORER: [u8; 9] = [0x48, 0xC7, 0xC0, 0x0F, 0, 0, 0, 0x0F, 0x05];

/// Bytes of each function that are compared with its file.
const COMPARED: u64 = 32;

const ADD_PENDING: &str = "Py_AddPendingCall";
const RUN_STRING: &str = "PyRun_SimpleString";
const VERSION: &str = "Py_Version";
const RUNTIME: &str = "_PyRuntime";
const MAP: &str = "mmap";

/// Addresses in the process, where they were found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    pub(super) add_pending: Option<u64>,
    pub(super) run_string: Option<u64>,
    pub(super) runtime: Option<u64>,
    pub(super) map: Option<u64>,
    /// The instructions that call `rt_sigreturn`.
    pub(super) restorer: Option<u64>,
}

/// An inspected process.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) facts: Facts,
    /// When it was started, in ticks: with its number, its identity.
    pub(super) start_ticks: u64,
    /// Its number in its own namespace.
    pub(super) own_pid: u32,
    /// Its user and group.
    pub(super) owner: (u32, u32),
    pub(super) at: Found,
    /// Its memory, where the kernel lets us.
    pub(super) memory: Option<File>,
}

/// Inspects a process.
pub(super) fn inspect(pid: u32) -> Target {
    let status = Status::read(pid);
    let numbers = |name: &str| status.numbers(name);
    let user = numbers("Uid").get(1).copied().unwrap_or(u32::MAX);
    let group = numbers("Gid").get(1).copied().unwrap_or(u32::MAX);
    let info = system::process(pid);
    let mut facts = Facts {
        pid,
        parent: numbers("PPid").first().copied().unwrap_or(0),
        state: status.text("State").and_then(|it| it.chars().next()),
        name: status.text("Name").unwrap_or_default().to_owned(),
        user: (user, info.as_ref().map(|it| it.user.raw().to_owned()).unwrap_or_default()),
        own_user: geteuid().as_raw(),
        tracer: numbers("TracerPid").first().copied().unwrap_or(0),
        seccomp: numbers("Seccomp").first().copied().unwrap_or(0),
        has_shadow_stack: status.text("x86_Thread_features").is_some_and(|it| it.contains("shstk")),
        scope: scope(),
        is_capable: is_capable(),
        ..Facts::default()
    };
    // The kernel asks the same of this as of attaching.
    let memory = File::options().read(true).write(true).open(format!("/proc/{pid}/mem")).ok();
    facts.is_allowed = memory.is_some();
    let own_pid = numbers("NSpid").last().copied().unwrap_or(pid);
    let mut at = Found::default();
    if let Some(memory) = &memory {
        let maps = Maps::read(pid);
        facts.is_native = fs::read(format!("/proc/{pid}/exe")).is_ok_and(|it| is_native(&it));
        facts.has_torch = maps.has(|it| it.starts_with("libtorch_python.so"));
        facts.has_cuda = maps.has(|it| it.starts_with("libcuda.so"));
        facts.is_probed = is_probed(pid, own_pid);
        facts.is_apart = user != facts.own_user || group != getegid().as_raw() || !sees_our_files(pid);
        if !facts.has_cuda {
            facts.children = children(pid);
        }
        inspect_libc(&maps, memory, &mut facts, &mut at);
        facts.python = inspect_python(&maps, memory, &mut at);
    }
    let start_ticks = info.map_or(0, |it| it.start_ticks);
    Target { facts, start_ticks, own_pid, owner: (user, group), at, memory }
}

/// Processes of this user, or of everybody for root, that have PyTorch and the driver's library. A process that was
/// forked from one of them, as a data worker is, has its parent's command line, and cannot use CUDA.
pub(super) fn candidates() -> Vec<u32> {
    let own = geteuid().as_raw();
    let numbers =
        fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|it| it.file_name().to_str()?.parse().ok());
    let is_ours = |pid: &u32| own == 0 || fs::metadata(format!("/proc/{pid}")).is_ok_and(|it| it.uid() == own);
    let found: BTreeSet<u32> = numbers.filter(is_ours).filter(|pid| uses_both(*pid)).collect();
    let command = |pid: u32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let is_forked = |pid: u32| {
        let parent = Status::read(pid).numbers("PPid").first().copied().unwrap_or(0);
        found.contains(&parent) && command(parent) == command(pid)
    };
    found.iter().copied().filter(|pid| !is_forked(*pid)).collect()
}

fn uses_both(pid: u32) -> bool {
    let maps = Maps::read(pid);
    maps.has(|it| it.starts_with("libtorch_python.so")) && maps.has(|it| it.starts_with("libcuda.so"))
}

/// Children of any depth that could be attached to.
fn children(pid: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let own = list.split_whitespace().filter_map(|it| it.parse().ok());
    own.flat_map(|child| if uses_both(child) { vec![child] } else { children(child) }).collect()
}

fn is_native(executable: &[u8]) -> bool {
    Image::parse(executable).is_some_and(|it| it.is_native())
}

fn inspect_libc(maps: &Maps, memory: &File, facts: &mut Facts, at: &mut Found) {
    let Some(libc) = maps.find(|it| it == "libc.so.6" || it.starts_with("libc-2.")) else { return };
    let Some(bytes) = maps.content(libc) else { return };
    let Some(image) = Image::parse(&bytes) else { return };
    facts.glibc = image.glibc();
    let bias = image.bias(libc.start);
    let known = |address: u64, length: u64| {
        let here = image.at(address, length)?;
        (super::maps::read(memory, bias.wrapping_add(address), here.len()).as_deref() == Some(here))
            .then_some(bias.wrapping_add(address))
    };
    at.map = image.symbols(&[MAP]).get(MAP).and_then(|it| known(*it, COMPARED));
    at.restorer = image.code(&RESTORER).and_then(|it| known(it, RESTORER.len() as u64));
}

fn inspect_python(maps: &Maps, memory: &File, at: &mut Found) -> Option<Python> {
    let library = maps.find(|it| it.starts_with("libpython3.") && it != "libpython3.so");
    let mapping = library.or_else(|| maps.executable())?;
    let mut python = Python { file: mapping.path.clone(), ..Python::default() };
    let bytes = maps.content(mapping);
    let image = bytes.as_deref().and_then(Image::parse);
    let wanted = [ADD_PENDING, RUN_STRING, VERSION, RUNTIME];
    let symbols = image.as_ref().map(|it| it.symbols(&wanted)).unwrap_or_default();
    let is_named = |it: &str| it.starts_with("python3") || it.starts_with("libpython3");
    if symbols.is_empty() && !is_named(by_name(&mapping.path)) {
        return None;
    }
    (python.version, python.is_free_threaded) = maps.python_version(by_name(&mapping.path));
    let bias = image.as_ref().map_or(0, |it| it.bias(mapping.start));
    let here = |name: &str| symbols.get(name).map(|it| bias.wrapping_add(*it));
    if let Some(hex) = here(VERSION).and_then(|it| super::maps::read(memory, it, 8)) {
        // 0x030B07F0 is 3.11.7.
        python.version = Some((u32::from(hex[3]), u32::from(hex[2])));
    }
    let functions = [ADD_PENDING, RUN_STRING];
    python.has_symbols =
        functions.iter().all(|it| symbols.contains_key(it)) && at.map.is_some() && at.restorer.is_some();
    let is_same = |name: &&str| {
        let Some(image) = &image else { return false };
        let Some(address) = symbols.get(*name) else { return true };
        let file = image.at(*address, COMPARED);
        file.is_some_and(|it| super::maps::read(memory, bias.wrapping_add(*address), it.len()).as_deref() == Some(it))
    };
    python.is_current = functions.iter().all(is_same);
    (at.add_pending, at.run_string, at.runtime) = (here(ADD_PENDING), here(RUN_STRING), here(RUNTIME));
    python.takes_scripts = at.runtime.and_then(|it| remote::takes_scripts(memory, it));
    Some(python)
}

/// Whether it listens as a probe does: on a socket that was bound under a probe's temporary name.
fn is_probed(pid: u32, own_pid: u32) -> bool {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let sockets: HashSet<String> = links
        .filter_map(|it| {
            fs::read_link(it.path()).ok()?.to_str()?.strip_prefix("socket:[")?.strip_suffix(']').map(str::to_owned)
        })
        .collect();
    let listed = fs::read_to_string(format!("/proc/{pid}/net/unix")).unwrap_or_default();
    let own = format!(".{own_pid}.");
    listed.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, _, _, flags, _, _, inode, path, ..] = &fields[..] else { return false };
        let name = by_name(path);
        *flags == "00010000"
            && sockets.contains(*inode)
            && name.starts_with(&own)
            && name.strip_suffix(".tmp").is_some()
    })
}

fn sees_our_files(pid: u32) -> bool {
    let id = |path: String| fs::metadata(path).ok().map(|it| (it.dev(), it.ino()));
    let same = |name: &str| {
        let theirs = id(format!("/proc/{pid}/{name}"));
        theirs.is_some() && theirs == id(format!("/proc/self/{name}"))
    };
    same("ns/mnt") && same("root/.")
}

/// Returns `kernel.yama.ptrace_scope`; `None` where the kernel has none.
pub(super) fn scope() -> Option<u32> {
    fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok()?.trim().parse().ok()
}

/// Returns whether gpuwatch has `CAP_SYS_PTRACE`.
pub(super) fn is_capable() -> bool {
    let status = Status::read(std::process::id());
    let mask = status.text("CapEff").and_then(|it| u64::from_str_radix(it, 16).ok()).unwrap_or(0);
    mask >> SYS_PTRACE & 1 == 1
}

/// `/proc/PID/status`.
pub(super) struct Status(String);

impl Status {
    pub(super) fn read(pid: u32) -> Self {
        // A thread's name may hold any bytes.
        let bytes = fs::read(Path::new("/proc").join(pid.to_string()).join("status")).unwrap_or_default();
        Self(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|it| it.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    }

    pub(super) fn numbers(&self, name: &str) -> Vec<u32> {
        self.text(name).unwrap_or_default().split_whitespace().filter_map(|it| it.parse().ok()).collect()
    }
}

/// The root directory of a process, as it is seen from here.
pub(super) fn root(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/root"))
}
