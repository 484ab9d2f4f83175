//! Collects the facts about a process that `plan` needs, and the addresses in it. Only reads.

use super::{
    elf::{ADD_PENDING, Image, MAP, RESTORER, RUN_STRING, RUNTIME, VERSION},
    files::{Files, Subject},
    images::Loaded,
    maps::{self, Maps, by_name},
    plan::{Facts, Python},
    runtime::Runtime,
    script,
};
use crate::sources::{
    proc::{Status, children_of_first_thread},
    system, users,
};
use rustix::process::{getegid, geteuid};
use std::{
    collections::{BTreeSet, HashSet},
    fs::{self, File},
    os::unix::fs::MetadataExt,
};

/// `CAP_SYS_PTRACE`, a bit of `CapEff`.
const SYS_PTRACE: u32 = 19;

/// Addresses in the process, where they were found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    pub(super) add_pending: Option<u64>,
    pub(super) run_string: Option<u64>,
    pub(super) runtime: Option<Runtime>,
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
    pub(super) at: Found,
    /// Its memory, where the kernel lets us.
    pub(super) memory: Option<File>,
    /// The files that it sees, where they are reached.
    pub(super) files: Option<Files>,
}

/// Inspects a process.
pub(super) fn inspect(pid: u32) -> Target {
    let status = Status::read(pid);
    let numbers = |name: &str| status.numbers(name);
    let user = numbers("Uid").get(1).copied().unwrap_or(u32::MAX);
    let group = numbers("Gid").get(1).copied().unwrap_or(u32::MAX);
    let owner = users::within_patience(user).map_or_else(|| user.to_string(), |it| it.raw().to_owned());
    let mut facts = Facts {
        pid,
        parent: numbers("PPid").first().copied().unwrap_or(0),
        state: status.text("State").and_then(|it| it.chars().next()),
        name: status.text("Name").unwrap_or_default().to_owned(),
        user: (user, owner),
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
    let (mut at, mut files) = (Found::default(), None);
    let start_ticks = system::start_ticks(pid).unwrap_or(0);
    if let Some(memory) = &memory {
        let maps = Maps::read(pid);
        facts.has_torch = maps.has(|it| it.starts_with("libtorch_python.so"));
        facts.has_device = maps.has(is_of_device);
        facts.is_probed = is_probed(pid, own_pid);
        facts.is_apart = user != facts.own_user || group != getegid().as_raw() || !sees_our_files(pid);
        if !facts.has_device {
            facts.children = children(pid);
        }
        let subject = Subject { pid, start_ticks, user, group };
        match Files::reach(subject, facts.is_apart).and_then(|mut it| Ok((it.images()?, it))) {
            Ok((images, reached)) => {
                facts.is_native = images.is_native;
                if let Some(libc) = &images.libc {
                    inspect_libc(libc, memory, &mut facts, &mut at);
                }
                facts.python = images.python.and_then(|it| inspect_python(&it, &maps, memory, &mut at));
                files = Some(reached);
            }
            Err(why) => facts.trouble = Some(why.to_string()),
        }
    }
    match life(pid, start_ticks, &status) {
        Life::Lasts => {}
        Life::Ends => facts.state = Some('X'),
        Life::Ended => facts.state = None,
    }
    Target { facts, start_ticks, own_pid, at, memory, files }
}

/// Whether a process still lives. What was found of one that does not means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Lasts,
    /// It exits, or waits for its parent.
    Ends,
    Ended,
}

/// Returns whether a process lives, since its status was read.
fn life(pid: u32, start_ticks: u64, before: &Status) -> Life {
    if system::start_ticks(pid) != Some(start_ticks) {
        return Life::Ended;
    }
    // A process that exits gives its memory back before it is a zombie.
    let has_memory = |it: &Status| it.text("VmSize").is_some();
    if has_memory(before) && !has_memory(&Status::read(pid)) { Life::Ends } else { Life::Lasts }
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
    maps.has(|it| it.starts_with("libtorch_python.so")) && maps.has(is_of_device)
}

/// Returns whether a library is one that a process loads as it initialises a device: NVIDIA's, AMD's or Intel's.
fn is_of_device(library: &str) -> bool {
    ["libcuda.so", "libamdhip64.so", "libze_intel_gpu.so"].iter().any(|it| library.starts_with(it))
}

/// Children of any depth that could be attached to.
fn children(pid: u32) -> Vec<u32> {
    children_of_first_thread(pid)
        .into_iter()
        .flat_map(|child| if uses_both(child) { vec![child] } else { children(child) })
        .collect()
}

fn inspect_libc(libc: &Loaded, memory: &File, facts: &mut Facts, at: &mut Found) {
    let Some(image) = &libc.image else { return };
    facts.glibc = image.glibc;
    let bias = image.bias(libc.start);
    let known = |address: u64, code: &[u8]| {
        let address = bias.wrapping_add(address);
        (!code.is_empty() && maps::read(memory, address, code.len()).as_deref() == Some(code)).then_some(address)
    };
    at.map = image.symbols.get(MAP).and_then(|it| known(it.address, &it.code));
    at.restorer = image.restorer.and_then(|it| known(it, &RESTORER));
}

fn inspect_python(loaded: &Loaded, maps: &Maps, memory: &File, at: &mut Found) -> Option<Python> {
    let mut python = Python { file: loaded.path.clone(), ..Python::default() };
    let none = Image::default();
    let image = loaded.image.as_ref().unwrap_or(&none);
    let is_named = |it: &str| it.starts_with("python3") || it.starts_with("libpython3");
    let has = |name: &str| image.symbols.contains_key(name);
    if ![ADD_PENDING, RUN_STRING, VERSION, RUNTIME].into_iter().any(has) && !is_named(by_name(&loaded.path)) {
        return None;
    }
    (python.version, python.is_free_threaded) = maps.python_version(by_name(&loaded.path));
    let bias = image.bias(loaded.start);
    let here = |name: &str| image.symbols.get(name).map(|it| bias.wrapping_add(it.address));
    if let Some(hex) = here(VERSION).and_then(|it| maps::read(memory, it, 8)) {
        // 0x030B07F0 is 3.11.7.
        python.version = Some((u32::from(hex[3]), u32::from(hex[2])));
    }
    let functions = [ADD_PENDING, RUN_STRING];
    python.has_symbols = functions.into_iter().all(has) && at.map.is_some() && at.restorer.is_some();
    let is_same = |name: &str| {
        let Some(symbol) = image.symbols.get(name) else { return true };
        let address = bias.wrapping_add(symbol.address);
        maps::read(memory, address, symbol.code.len()).is_some_and(|it| !it.is_empty() && it == symbol.code)
    };
    python.is_current = loaded.image.is_some() && functions.into_iter().all(is_same);
    (at.add_pending, at.run_string) = (here(ADD_PENDING), here(RUN_STRING));
    at.runtime = here(RUNTIME).zip(python.version).map(|(address, (_, minor))| Runtime { address, minor });
    python.runs = at.runtime.and_then(|it| it.runs(memory));
    python.takes_scripts = at.runtime.and_then(|it| script::takes_scripts(memory, it.address));
    Some(python)
}

/// Whether it listens as a probe does: on a socket that was bound under a probe's temporary name.
pub(super) fn is_probed(pid: u32, own_pid: u32) -> bool {
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

/// Whether its root directory is ours, by what the kernel shows alone: its file system is not asked.
fn sees_our_files(pid: u32) -> bool {
    let link = |path: String| fs::read_link(path).ok();
    ["ns/mnt", "root"].into_iter().all(|name| {
        let theirs = link(format!("/proc/{pid}/{name}"));
        theirs.is_some() && theirs == link(format!("/proc/self/{name}"))
    })
}

/// Returns `kernel.yama.ptrace_scope`; `None` where the kernel has none.
pub(super) fn scope() -> Option<u32> {
    fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok()?.trim().parse().ok()
}

/// Returns whether gpuwatch has `CAP_SYS_PTRACE`.
pub(super) fn is_capable() -> bool {
    Status::read(std::process::id()).mask("CapEff") >> SYS_PTRACE & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_that_ends_while_it_is_inspected_is_not_misjudged() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id();
        let (before, ticks) = (Status::read(pid), system::start_ticks(pid).unwrap());
        assert_eq!(life(pid, ticks, &before), Life::Lasts);
        child.kill().unwrap();
        while life(pid, ticks, &before) == Life::Lasts {
            std::thread::yield_now();
        }
        assert_eq!(life(pid, ticks, &before), Life::Ends);
        child.wait().unwrap();
        assert_eq!(life(pid, ticks, &before), Life::Ended);
    }
}
