//! NCCL between the processes of one machine, and between the devices of one process: communicators that take memory of
//! their device, collectives that move what is stored.

mod communicator;
mod hub;
mod link;
mod matching;
mod numbers;
mod operations;
mod wire;

use super::{
    abi::{In, Out},
    copies,
    process::{current, process},
};
use communicator::{CUDA_ERROR, INVALID_ARGUMENT, Result, SYSTEM_ERROR, begin, end, find, on_device};
use hub::Id;
use operations::{Operation, enqueue, group_end, group_start, join};
use std::{
    collections::BTreeSet,
    ffi::{CStr, c_char},
    sync::PoisonError,
};
use wire::{Kind, Parcel, Request};

/// The first number that stands for an operator of the program's own.
const OWN_OPERATOR: i32 = 5;
/// `ncclScalarDevice`
const ON_DEVICE: i32 = 0;

fn code(result: Result<()>) -> i32 {
    result.err().unwrap_or(0)
}

fn words(status: i32) -> &'static CStr {
    match status {
        0 => c"no error",
        1 => c"unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        2 => c"unhandled system error (run with NCCL_DEBUG=INFO for details)",
        3 => c"internal error - please report this issue to the NCCL developers",
        4 => c"invalid argument (run with NCCL_DEBUG=WARN for details)",
        5 => c"invalid usage (run with NCCL_DEBUG=WARN for details)",
        6 => c"remote process exited or there was a network error",
        7 => c"NCCL operation in progress",
        _ => c"unknown result code",
    }
}

fn number(value: i32) -> Result<usize> {
    usize::try_from(value).or(Err(INVALID_ARGUMENT))
}

fn ranks_of(ranks: In<i32>, count: i32) -> Result<BTreeSet<usize>> {
    (0..number(count)?).map(|at| number(ranks.at(at).ok_or(INVALID_ARGUMENT)?)).collect()
}

fn int(value: usize) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

fn init(out: Out<usize>, count: i32, id: &Id, rank: i32) -> Result<()> {
    let (handle, communicator) = begin(id, number(rank)?, number(count)?)?;
    out.put(handle);
    join(&communicator)
}

/// All ranks in this process, one on each device.
fn init_all(out: Out<usize>, count: i32, devices: In<i32>) -> Result<()> {
    let (count, id) = (number(count)?, hub::open().or(Err(SYSTEM_ERROR))?);
    let mut communicators = Vec::new();
    for rank in 0..count {
        let device = devices.at(rank).map_or(Ok(rank), number)?;
        let (handle, communicator) = on_device(device, || begin(&id, rank, count))?;
        out.put_at(rank, handle);
        communicators.push(communicator);
    }
    communicators.iter().try_for_each(join)
}

/// The arguments of a call besides its buffers.
struct Call {
    kind: Kind,
    count: usize,
    data: i32,
    reduction: i32,
    root: i32,
    communicator: usize,
    stream: usize,
}

impl Call {
    /// Submits it: the kind determines how many blocks of `count` values the rank brings and gets, and which rank is
    /// the root.
    fn enqueue(self, from: usize, to: usize) -> Result<()> {
        let communicator = find(self.communicator)?;
        let bytes = numbers::width(self.data).and_then(|it| it.checked_mul(self.count)).ok_or(INVALID_ARGUMENT)?;
        let (root, ranks) = (number(self.root)?, communicator.size);
        let at_root = communicator.rank == root;
        let (brings, gets) = match self.kind {
            Kind::AllReduce => (1, 1),
            Kind::Reduce => (1, usize::from(at_root)),
            // Another rank's input only matters where the root is absent, and may be no address at all.
            Kind::Broadcast => {
                let brings = at_root || communicator.is_partial() && process().ranges.on_device(from);
                (usize::from(brings), 1)
            }
            Kind::AllGather => (1, ranks),
            Kind::ReduceScatter => (ranks, 1),
            Kind::AllToAll => (ranks, ranks),
            Kind::Gather => (1, if at_root { ranks } else { 0 }),
            Kind::Scatter => (if at_root { ranks } else { 0 }, 1),
            Kind::Send => (1, 0),
            Kind::Receive => (0, 1),
            Kind::Join | Kind::Leave => (0, 0),
        };
        let factors = communicator.factors.lock().unwrap_or_else(PoisonError::into_inner);
        let factor = factors.get(&self.reduction).copied().unwrap_or(1.0);
        drop(factors);
        let (kind, data, reduction) = (self.kind, self.data, self.reduction);
        let (len, parcel) = (bytes as u64, Parcel::default());
        let request = Request { kind, ticket: 0, data, reduction, factor, root, len, parcel };
        let place = |at: usize, blocks: usize| (blocks > 0).then_some((at, blocks * bytes));
        enqueue(Operation {
            communicator,
            request,
            from: place(from, brings),
            to: place(to, gets),
            stream: self.stream,
        })
    }
}

/// An operator that multiplies each rank's values with a number of its own, and adds.
fn operator(out: Out<i32>, scalar: usize, data: i32, residence: i32, communicator: usize) -> Result<()> {
    let communicator = find(communicator)?;
    let len = numbers::width(data).ok_or(INVALID_ARGUMENT)?;
    let bytes = if residence == ON_DEVICE {
        copies::collect(scalar, len).0.unwrap_or_default()
    } else {
        (0..len).filter_map(|at| In::<u8>::from_address(scalar).at(at)).collect()
    };
    let mut factors = communicator.factors.lock().unwrap_or_else(PoisonError::into_inner);
    let free = (OWN_OPERATOR..i32::MAX).find(|it| !factors.contains_key(it)).ok_or(INVALID_ARGUMENT)?;
    factors.insert(free, numbers::first(data, &bytes).ok_or(INVALID_ARGUMENT)?);
    out.put(free);
    Ok(())
}

entry_points! {
    // Only these ranks of the communicator run. The process that opened it says so before any of them joins.
    fn simgpu_nccl_present(id: In<Id>, ranks: In<i32>, count: i32) -> i32 {
        let present = ranks_of(ranks, count).and_then(|ranks| Ok((id.get().ok_or(INVALID_ARGUMENT)?, ranks)));
        code(present.map(|(id, ranks)| hub::note_present(&id, ranks)))
    }

    fn ncclGetErrorString(status: i32) -> *const c_char {
        words(status).as_ptr()
    }

    fn ncclGetLastError(communicator: usize) -> *const c_char {
        find(communicator).map_or(c"", |it| if it.failure() == 0 { c"" } else { words(it.failure()) }).as_ptr()
    }

    fn ncclGetUniqueId(out: Out<Id>) -> i32 {
        code(hub::open().or(Err(SYSTEM_ERROR)).map(|it| out.put(it)))
    }

    fn ncclCommInitRank(out: Out<usize>, count: i32, id: Id, rank: i32) -> i32 {
        code(init(out, count, &id, rank))
    }

    // How its work is spread over a device is of no consequence here.
    fn ncclCommInitRankConfig(out: Out<usize>, count: i32, id: Id, rank: i32, _configuration: usize) -> i32 {
        code(init(out, count, &id, rank))
    }

    // One place to meet is enough for any number of ranks.
    fn ncclCommInitRankScalable(
        out: Out<usize>, count: i32, rank: i32, _ids: i32, ids: In<Id>, _configuration: usize,
    ) -> i32 {
        code(ids.get().ok_or(INVALID_ARGUMENT).and_then(|id| init(out, count, &id, rank)))
    }

    fn ncclCommInitAll(out: Out<usize>, count: i32, devices: In<i32>) -> i32 {
        code(init_all(out, count, devices))
    }

    fn ncclCommSplit(communicator: usize, colour: i32, key: i32, out: Out<usize>, _configuration: usize) -> i32 {
        code(find(communicator).and_then(|it| it.split(colour, key)).map(|it| out.put(it.unwrap_or(0))))
    }

    // All requested work is done already.
    fn ncclCommFinalize(communicator: usize) -> i32 {
        code(find(communicator).map(|_| ()))
    }

    fn ncclCommDestroy(communicator: usize) -> i32 {
        code(end(communicator, true))
    }

    fn ncclCommAbort(communicator: usize) -> i32 {
        code(end(communicator, false))
    }

    fn ncclCommGetAsyncError(communicator: usize, out: Out<i32>) -> i32 {
        code(find(communicator).map(|it| out.put(it.failure())))
    }

    fn ncclCommCount(communicator: usize, out: Out<i32>) -> i32 {
        code(find(communicator).map(|it| out.put(int(it.size))))
    }

    fn ncclCommUserRank(communicator: usize, out: Out<i32>) -> i32 {
        code(find(communicator).map(|it| out.put(int(it.rank))))
    }

    fn ncclCommCuDevice(communicator: usize, out: Out<i32>) -> i32 {
        code(find(communicator).map(|it| out.put(int(it.device))))
    }

    // Nothing of it can be suspended: the first two figures are 0.
    fn ncclCommMemStats(communicator: usize, statistic: i32, out: Out<u64>) -> i32 {
        code(find(communicator).and_then(|it| {
            out.put(match statistic {
                0 | 1 => 0,
                2 | 3 => it.charged,
                _ => return Err(INVALID_ARGUMENT),
            });
            Ok(())
        }))
    }

    fn ncclMemAlloc(out: Out<usize>, bytes: usize) -> i32 {
        let allocated = process().context(current()).and_then(|()| process().allocate(current(), bytes));
        code(allocated.or(Err(CUDA_ERROR)).map(|it| out.put(it)))
    }

    fn ncclMemFree(at: usize) -> i32 {
        code(process().free(at).or(Err(CUDA_ERROR)))
    }

    // Memory that is registered is used as it is; the handle is its address.
    fn ncclCommRegister(communicator: usize, at: usize, _bytes: usize, out: Out<usize>) -> i32 {
        code(find(communicator).map(|_| out.put(at)))
    }

    fn ncclCommDeregister(communicator: usize, _handle: usize) -> i32 {
        code(find(communicator).map(|_| ()))
    }

    fn ncclCommWindowRegister(communicator: usize, at: usize, _bytes: usize, out: Out<usize>, _flags: i32) -> i32 {
        code(find(communicator).map(|_| out.put(at)))
    }

    fn ncclCommWindowDeregister(communicator: usize, _window: usize) -> i32 {
        code(find(communicator).map(|_| ()))
    }

    fn ncclWinGetUserPtr(communicator: usize, window: usize, out: Out<usize>) -> i32 {
        code(find(communicator).map(|_| out.put(window)))
    }

    fn ncclRedOpCreatePreMulSum(
        out: Out<i32>, scalar: usize, data: i32, residence: i32, communicator: usize,
    ) -> i32 {
        code(operator(out, scalar, data, residence, communicator))
    }

    fn ncclRedOpDestroy(operator: i32, communicator: usize) -> i32 {
        code(find(communicator).and_then(|it| {
            let mut factors = it.factors.lock().unwrap_or_else(PoisonError::into_inner);
            factors.remove(&operator).map(|_| ()).ok_or(INVALID_ARGUMENT)
        }))
    }

    fn ncclGroupStart() -> i32 {
        group_start();
        0
    }

    fn ncclGroupEnd() -> i32 {
        code(group_end())
    }

    fn ncclAllReduce(
        from: usize, to: usize, count: usize, data: i32, reduction: i32, communicator: usize, stream: usize,
    ) -> i32 {
        let kind = Kind::AllReduce;
        code(Call { kind, count, data, reduction, root: 0, communicator, stream }.enqueue(from, to))
    }

    fn ncclReduce(
        from: usize, to: usize, count: usize, data: i32, reduction: i32, root: i32, communicator: usize, stream: usize,
    ) -> i32 {
        let kind = Kind::Reduce;
        code(Call { kind, count, data, reduction, root, communicator, stream }.enqueue(from, to))
    }

    fn ncclReduceScatter(
        from: usize, to: usize, count: usize, data: i32, reduction: i32, communicator: usize, stream: usize,
    ) -> i32 {
        let kind = Kind::ReduceScatter;
        code(Call { kind, count, data, reduction, root: 0, communicator, stream }.enqueue(from, to))
    }

    fn ncclBroadcast(
        from: usize, to: usize, count: usize, data: i32, root: i32, communicator: usize, stream: usize,
    ) -> i32 {
        let kind = Kind::Broadcast;
        code(Call { kind, count, data, reduction: 0, root, communicator, stream }.enqueue(from, to))
    }

    fn ncclBcast(at: usize, count: usize, data: i32, root: i32, communicator: usize, stream: usize) -> i32 {
        let kind = Kind::Broadcast;
        code(Call { kind, count, data, reduction: 0, root, communicator, stream }.enqueue(at, at))
    }

    fn ncclAllGather(from: usize, to: usize, count: usize, data: i32, communicator: usize, stream: usize) -> i32 {
        let kind = Kind::AllGather;
        code(Call { kind, count, data, reduction: 0, root: 0, communicator, stream }.enqueue(from, to))
    }

    fn ncclAlltoAll(from: usize, to: usize, count: usize, data: i32, communicator: usize, stream: usize) -> i32 {
        let kind = Kind::AllToAll;
        code(Call { kind, count, data, reduction: 0, root: 0, communicator, stream }.enqueue(from, to))
    }

    fn ncclGather(
        from: usize, to: usize, count: usize, data: i32, root: i32, communicator: usize, stream: usize,
    ) -> i32 {
        let kind = Kind::Gather;
        code(Call { kind, count, data, reduction: 0, root, communicator, stream }.enqueue(from, to))
    }

    fn ncclScatter(
        from: usize, to: usize, count: usize, data: i32, root: i32, communicator: usize, stream: usize,
    ) -> i32 {
        let kind = Kind::Scatter;
        code(Call { kind, count, data, reduction: 0, root, communicator, stream }.enqueue(from, to))
    }

    fn ncclSend(from: usize, count: usize, data: i32, peer: i32, communicator: usize, stream: usize) -> i32 {
        let kind = Kind::Send;
        code(Call { kind, count, data, reduction: 0, root: peer, communicator, stream }.enqueue(from, 0))
    }

    fn ncclRecv(to: usize, count: usize, data: i32, peer: i32, communicator: usize, stream: usize) -> i32 {
        let kind = Kind::Receive;
        code(Call { kind, count, data, reduction: 0, root: peer, communicator, stream }.enqueue(0, to))
    }
}
