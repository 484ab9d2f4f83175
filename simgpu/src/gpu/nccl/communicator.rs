//! Communicators: made, split, ended; what they cost on their device.

use super::{
    super::{
        process::{current, process, set_current},
        spans::Origin,
        watch::{self, Seen},
    },
    hub::{self, Id},
    link::{Link, plain},
    wire::{Kind, Parcel, Request},
};
use std::{
    collections::{BTreeSet, HashMap},
    env, io,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicI32, Ordering},
    },
};

/// `ncclResult_t`
pub(super) const CUDA_ERROR: i32 = 1;
pub(super) const SYSTEM_ERROR: i32 = 2;
pub(super) const INVALID_ARGUMENT: i32 = 4;
const INVALID_USAGE: i32 = 5;
pub(super) const REMOTE_ERROR: i32 = 6;

pub(super) struct Communicator {
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) device: usize,
    /// Bytes of the device that its buffers take.
    pub(super) charged: u64,
    link: Link,
    failure: AtomicI32,
    /// Its ranks that do not run, as soon as it is joined.
    absent: OnceLock<BTreeSet<usize>>,
    /// Operators of the program's own: what they multiply with before they add.
    pub(super) factors: Mutex<HashMap<i32, f64>>,
}

pub(super) type Result<T> = std::result::Result<T, i32>;

/// Bytes that a communicator of several ranks takes on each device for its channels' buffers. NCCL's depend on the
/// links between the devices; several hundred MiB are common.
fn buffers() -> u64 {
    static BYTES: LazyLock<u64> =
        LazyLock::new(|| env::var("SIMGPU_NCCL_MB").ok().and_then(|it| it.parse::<u64>().ok()).unwrap_or(256) << 20);
    *BYTES
}

pub(super) fn all() -> MutexGuard<'static, HashMap<usize, Arc<Communicator>>> {
    static ALL: LazyLock<Mutex<HashMap<usize, Arc<Communicator>>>> = LazyLock::new(Mutex::default);
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn find(handle: usize) -> Result<Arc<Communicator>> {
    all().get(&handle).cloned().ok_or(INVALID_ARGUMENT)
}

/// Begins to join a communicator on the thread's device: all ranks are there when `joined` returns.
pub(super) fn begin(id: &Id, rank: usize, size: usize) -> Result<(usize, Arc<Communicator>)> {
    if rank >= size {
        return Err(INVALID_ARGUMENT);
    }
    let (device, charged) = (current(), if size > 1 { buffers() } else { 0 });
    process().charge(device, charged).or(Err(CUDA_ERROR))?;
    let joined = Link::join(id, rank, size).inspect_err(|_| process().refund(device, charged));
    let link = joined.or(Err(SYSTEM_ERROR))?;
    let (failure, absent, factors) = (AtomicI32::new(0), OnceLock::new(), Mutex::default());
    let it = Arc::new(Communicator { rank, size, device, charged, link, failure, absent, factors });
    let handle = process().queues.handle();
    all().insert(handle, it.clone());
    Ok((handle, it))
}

/// Runs with a communicator's device as the thread's.
pub(super) fn on_device<R>(device: usize, work: impl FnOnce() -> R) -> R {
    let before = current();
    set_current(device);
    let result = work();
    set_current(before);
    result
}

/// Takes a communicator off its device; `politely` once what it sent has arrived.
pub(super) fn end(handle: usize, politely: bool) -> Result<()> {
    let it = all().remove(&handle).ok_or(INVALID_ARGUMENT)?;
    if politely {
        it.link.leave();
    } else {
        it.link.cut();
    }
    process().refund(it.device, it.charged);
    Ok(())
}

impl Communicator {
    pub(super) fn joined(&self) -> Result<()> {
        let numbers = self.wait(0)?.bytes.unwrap_or_default();
        let (numbers, _) = numbers.as_chunks();
        let numbers = numbers.iter().filter_map(|it| usize::try_from(u64::from_le_bytes(*it)).ok());
        self.absent.get_or_init(|| numbers.collect());
        Ok(())
    }

    /// Sends a request; gives the ticket to wait with.
    pub(super) fn ask(&self, request: Request) -> Result<u64> {
        self.noted(self.link.ask(request))
    }

    pub(super) fn wait(&self, ticket: u64) -> Result<Parcel> {
        let answer = self.noted(self.link.wait(ticket))?;
        if answer.status == 0 { Ok(answer.parcel) } else { Err(self.fail(answer.status)) }
    }

    fn noted<T>(&self, result: io::Result<T>) -> Result<T> {
        result.or(Err(REMOTE_ERROR)).inspect_err(|it| self.failure.store(*it, Ordering::Relaxed))
    }

    fn fail(&self, status: i32) -> i32 {
        self.failure.store(status, Ordering::Relaxed);
        status
    }

    /// Whether some of its ranks are absent.
    pub(super) fn is_partial(&self) -> bool {
        self.absent.get().is_some_and(|it| !it.is_empty())
    }

    /// Whether a rank does not run.
    pub(super) fn lacks(&self, rank: usize) -> bool {
        self.absent.get().is_some_and(|it| it.contains(&rank))
    }

    /// The communicator's error, or 0.
    pub(super) fn failure(&self) -> i32 {
        self.failure.load(Ordering::Relaxed)
    }

    /// Every rank's bytes, as many from each.
    fn exchange<const N: usize>(&self, own: &[u8; N]) -> Result<Vec<[u8; N]>> {
        let parcel = Parcel { bytes: Some(own.to_vec()), origin: Origin::Computed };
        let ticket = self.ask(Request { parcel, ..plain(Kind::AllGather, 0) })?;
        let bytes = self.wait(ticket)?.bytes.unwrap_or_default();
        Ok(bytes.as_chunks().0.to_vec())
    }

    /// A communicator of the ranks of one colour, in the order of their keys; none for a rank without a colour.
    pub(super) fn split(&self, colour: i32, key: i32) -> Result<Option<usize>> {
        if self.is_partial() {
            // Nobody knows the colours of the absent ones.
            watch::report(Seen::Refused, || "ncclCommSplit between ranks of which some do not run".to_owned());
            return Err(INVALID_USAGE);
        }
        let mut own = [0; 8];
        own[..4].copy_from_slice(&colour.to_le_bytes());
        own[4..].copy_from_slice(&key.to_le_bytes());
        let mut members: Vec<(i32, usize)> = Vec::new();
        for (rank, [a, b, c, d, key @ ..]) in self.exchange(&own)?.into_iter().enumerate() {
            if i32::from_le_bytes([a, b, c, d]) == colour {
                members.push((i32::from_le_bytes(key), rank));
            }
        }
        members.sort_unstable();
        let place = members.iter().position(|it| it.1 == self.rank).ok_or(INVALID_ARGUMENT)?;
        // The first rank of each colour sends the address where the others meet it.
        let opened = if place == 0 && colour >= 0 { hub::open().or(Err(SYSTEM_ERROR))?.0 } else { [0; 128] };
        let opened = self.exchange(&opened)?;
        let Some(id) = opened.get(members[0].1).filter(|_| colour >= 0).map(|it| Id(*it)) else { return Ok(None) };
        on_device(self.device, || {
            let (handle, it) = begin(&id, place, members.len())?;
            it.joined()?;
            Ok(Some(handle))
        })
    }
}
