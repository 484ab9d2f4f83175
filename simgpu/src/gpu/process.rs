//! This process's side of the machine: which devices it sees, where it has a context, what it has allocated.

use super::{
    abi::{Answer, Fault},
    capture_state::Captures,
    charges::{GraphMemory, Mappings, Pools},
    chunks::Chunks,
    contents::Contents,
    queues::Queues,
    ranges::Ranges,
    spans::Copies,
    state::{Book, Card, MAX_CARDS},
    sys,
};
use std::{
    cell::Cell,
    collections::BTreeMap,
    env,
    path::Path,
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
};

/// The default directory of the state.
pub(super) const DEFAULT_DIR: &str = "/dev/shm/simgpu";

pub(super) struct Process {
    book: Option<Book>,
    /// The machine's index of each device that this process sees.
    visible: Option<Vec<usize>>,
    contexts: [bool; MAX_CARDS],
    /// Forked from a process that had a context: CUDA does not work here, as it does not on a device.
    severed: bool,
    pub(super) ranges: Ranges,
    pub(super) chunks: BTreeMap<usize, Chunks>,
    pub(super) mappings: Mappings,
    pub(super) queues: Queues,
    pub(super) captures: Captures,
    pub(super) contents: Contents,
    pub(super) copies: Copies,
    pub(super) graph_memory: GraphMemory,
    pub(super) pools: Pools,
}

static PROCESS: LazyLock<Mutex<Process>> = LazyLock::new(|| {
    sys::at_fork(before_fork, after_fork_in_parent, after_fork_in_child);
    Mutex::new(Process {
        book: None,
        visible: None,
        contexts: [false; MAX_CARDS],
        severed: false,
        ranges: Ranges::default(),
        chunks: BTreeMap::new(),
        mappings: Mappings::default(),
        queues: Queues::default(),
        captures: Captures::default(),
        contents: Contents::default(),
        copies: Copies::default(),
        graph_memory: GraphMemory::default(),
        pools: Pools::default(),
    })
});

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
    /// The process, held by a forking thread during the fork, so that no thread is in the middle of a change.
    static HELD: Cell<Option<MutexGuard<'static, Process>>> = const { Cell::new(None) };
}

/// The process's state, for as long as the guard lives.
pub(super) fn process() -> MutexGuard<'static, Process> {
    PROCESS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The calling thread's device.
pub(super) fn current() -> usize {
    CURRENT.get()
}

pub(super) fn set_current(device: usize) {
    CURRENT.set(device);
}

extern "C" fn before_fork() {
    HELD.set(Some(process()));
}

extern "C" fn after_fork_in_parent() {
    HELD.take();
}

/// The parent's contexts, and the memory that it is charged for, are not the child's; nor may the child share the
/// parent's open file, because a lock on it would then be both's.
extern "C" fn after_fork_in_child() {
    if let Some(mut process) = HELD.take() {
        process.severed |= process.contexts.contains(&true);
        process.contexts = [false; MAX_CARDS];
        process.book = None;
        process.contents = Contents::default();
    }
}

impl Process {
    /// The machine's state; none where it cannot be opened.
    pub(super) fn book(&mut self) -> Result<&mut Book, Fault> {
        if self.book.is_none() {
            let dir = env::var_os("SIMGPU_DIR").filter(|it| !it.is_empty());
            let dir = dir.as_deref().map_or(Path::new(DEFAULT_DIR), Path::new);
            let devices = env::var("SIMGPU_DEVICES").ok().filter(|it| !it.is_empty());
            let book = Book::open(dir, devices.as_deref()).map_err(|error| {
                super::abi::trace(|| format!("no machine in {}: {error}", dir.display()));
                Fault::NoDevice
            })?;
            self.book = Some(book);
        }
        self.book.as_mut().ok_or(Fault::NoDevice)
    }

    /// How many devices this process sees.
    pub(super) fn device_count(&mut self) -> Result<usize, Fault> {
        if self.severed {
            return Err(Fault::NotInitialized);
        }
        Ok(self.visible()?.len())
    }

    fn visible(&mut self) -> Result<&[usize], Fault> {
        if self.visible.is_none() {
            let wanted = env::var("CUDA_VISIBLE_DEVICES").ok();
            let uuids: Vec<String> =
                self.book()?.locked(|it| it.cards().iter().map(|card| card.uuid().to_owned()).collect());
            self.visible = Some(chosen(&uuids, wanted.as_deref()));
        }
        self.visible.as_deref().ok_or(Fault::NoDevice)
    }

    /// The machine's index of a device of this process.
    pub(super) fn index(&mut self, device: usize) -> Result<usize, Fault> {
        self.visible()?.get(device).copied().ok_or(Fault::InvalidDevice)
    }

    /// The device of this process that the machine has at an index.
    pub(super) fn ordinal_of(&mut self, index: usize) -> Result<usize, Fault> {
        self.visible()?.iter().position(|it| *it == index).ok_or(Fault::InvalidDevice)
    }

    /// Works on a device's card.
    pub(super) fn card<R>(&mut self, device: usize, work: impl FnOnce(&mut Card) -> R) -> Result<R, Fault> {
        let index = self.index(device)?;
        self.book()?.locked(|it| it.card(index).map(work)).ok_or(Fault::InvalidDevice)
    }

    pub(super) fn has_context(&mut self, device: usize) -> bool {
        self.index(device).is_ok_and(|it| self.contexts.get(it) == Some(&true))
    }

    /// Makes this process's context on a device, where it has none yet: that costs memory of its own.
    pub(super) fn context(&mut self, device: usize) -> Answer {
        self.charge(device, 0)
    }

    /// Charges this process for memory of a device, and for its context there if it has none yet.
    pub(super) fn charge(&mut self, device: usize, bytes: u64) -> Answer {
        if self.severed {
            return Err(Fault::NotInitialized);
        }
        let index = self.index(device)?;
        let known = self.contexts[index];
        if known && bytes == 0 {
            return Ok(());
        }
        let bytes = bytes.saturating_add(if known { 0 } else { context_bytes() });
        if !self.card(device, |it| it.charge(std::process::id(), bytes))? {
            // Another process may have died just now.
            self.book()?.recheck();
            if !self.card(device, |it| it.charge(std::process::id(), bytes))? {
                return Err(Fault::OutOfMemory);
            }
        }
        self.contexts[index] = true;
        Ok(())
    }

    pub(super) fn refund(&mut self, device: usize, bytes: u64) {
        // Without a machine there is nothing to release.
        let _ = self.card(device, |it| it.refund(std::process::id(), bytes));
    }

    /// Gives addresses back, and forgets what was stored there.
    pub(super) fn forget(&mut self, base: usize, size: usize) {
        self.contents.zero(base, size);
        sys::unmap(base, size);
    }

    /// Returns free and total bytes as the driver reports them: neither includes its own reserve.
    pub(super) fn memory(&mut self, device: usize) -> Result<(u64, u64), Fault> {
        self.card(device, |it| (it.capacity().saturating_sub(it.used()), it.capacity()))
    }
}

fn context_bytes() -> u64 {
    static BYTES: LazyLock<u64> =
        LazyLock::new(|| env::var("SIMGPU_CONTEXT_MB").ok().and_then(|it| it.parse::<u64>().ok()).unwrap_or(512) << 20);
    *BYTES
}

/// Returns the devices that `CUDA_VISIBLE_DEVICES` makes visible; its list ends at the first entry without a device.
fn chosen(uuids: &[String], wanted: Option<&str>) -> Vec<usize> {
    let Some(wanted) = wanted else { return (0..uuids.len()).collect() };
    wanted
        .split(',')
        .map_while(|it| {
            let it = it.trim();
            if it.starts_with("GPU-") {
                uuids.iter().position(|uuid| uuid.starts_with(it))
            } else {
                it.parse::<usize>().ok().filter(|index| *index < uuids.len())
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_devices_are_chosen_by_index_or_identity_up_to_the_first_unknown_one() {
        let uuids: Vec<String> = ["GPU-aa-0", "GPU-ab-1", "GPU-bb-2"].map(str::to_owned).into();
        assert_eq!(chosen(&uuids, None), [0, 1, 2]);
        assert_eq!(chosen(&uuids, Some("2,0")), [2, 0]);
        assert_eq!(chosen(&uuids, Some("GPU-bb, 1")), [2, 1]);
        assert_eq!(chosen(&uuids, Some("1,9,0")), [1]);
        assert_eq!(chosen(&uuids, Some("")), Vec::<usize>::new());
        assert_eq!(chosen(&uuids, Some("-1")), Vec::<usize>::new());
    }
}
