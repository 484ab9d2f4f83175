//! Collectives, sends and receives as operations on streams, alone or in groups.
//!
//! An operation is over when its call returns: the ranks wait for each other there, and not on their devices.

use super::{
    super::{capture, capture_state::Work, copies, process::process, spans::Origin},
    communicator::{CUDA_ERROR, Communicator, Result, on_device},
    wire::{Kind, Parcel, Request},
};
use std::{cell::RefCell, collections::BTreeSet, sync::Arc};

pub(super) struct Operation {
    pub(super) communicator: Arc<Communicator>,
    /// The request to the others, without the bytes.
    pub(super) request: Request,
    /// This rank's input and output buffers: address and length.
    pub(super) from: Option<(usize, usize)>,
    pub(super) to: Option<(usize, usize)>,
    pub(super) stream: usize,
}

impl Operation {
    /// Returns the place of what this rank brings. A group of broadcasts, one from each rank, gathers: what an absent
    /// root would send is as what this rank sends, rather than as what it has where that arrives.
    fn brings(&self, group: &[Self]) -> Option<(usize, usize)> {
        let Self { communicator, request, .. } = self;
        if request.kind != Kind::Broadcast || request.root == communicator.rank || !communicator.is_partial() {
            return self.from;
        }
        let is_own = |it: &&Self| {
            it.request.kind == Kind::Broadcast
                && it.request.root == communicator.rank
                && Arc::ptr_eq(&it.communicator, communicator)
        };
        let own = group.iter().find(is_own).and_then(|it| it.from);
        own.filter(|own| self.to.is_some_and(|to| to.1 == own.1)).or(self.from)
    }
}

/// A thread's requests since `ncclGroupStart`.
#[derive(Default)]
struct Group {
    depth: usize,
    joining: Vec<Arc<Communicator>>,
    operations: Vec<Operation>,
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

pub(super) fn group_start() {
    GROUP.with_borrow_mut(|it| it.depth += 1);
}

/// Runs the requests since the group's start.
pub(super) fn group_end() -> Result<()> {
    let ready = GROUP.with_borrow_mut(|it| {
        it.depth = it.depth.checked_sub(1)?;
        (it.depth == 0).then(|| std::mem::take(it))
    });
    let Some(Group { joining, operations, .. }) = ready else { return Ok(()) };
    joining.iter().try_for_each(|it| it.joined())?;
    submit(operations)
}

/// Waits until all ranks of a new communicator are there, at the end of the group if there is one.
pub(super) fn join(communicator: &Arc<Communicator>) -> Result<()> {
    let alone = GROUP.with_borrow_mut(|it| {
        if it.depth > 0 {
            it.joining.push(communicator.clone());
        }
        it.depth == 0
    });
    if alone { communicator.joined() } else { Ok(()) }
}

/// Has an operation done, at the end of the group if there is one.
pub(super) fn enqueue(operation: Operation) -> Result<()> {
    let alone = GROUP.with_borrow_mut(|it| {
        if it.depth > 0 {
            it.operations.push(operation);
            return None;
        }
        Some(operation)
    });
    alone.map_or(Ok(()), |it| submit(vec![it]))
}

/// Has operations done that are one to their streams: now, or whenever the graph is launched that captures them.
fn submit(operations: Vec<Operation>) -> Result<()> {
    let communicators: Vec<Arc<Communicator>> = operations.iter().map(|it| it.communicator.clone()).collect();
    let mut streams: BTreeSet<(usize, usize)> =
        operations.iter().map(|it| (it.communicator.device, it.stream)).collect();
    let Some((device, stream)) = streams.pop_first() else { return Ok(()) };
    let on = |device: usize, stream: usize, work: Work| {
        on_device(device, || capture::submit(stream, work)).or(Err(CUDA_ERROR))
    };
    on(device, stream, Work::act(move || perform(&operations)))?;
    streams.into_iter().try_for_each(|(device, stream)| on(device, stream, Work::Nothing))?;
    communicators.iter().map(|it| it.failure()).find(|it| *it != 0).map_or(Ok(()), Err)
}

/// Asks for everything before it waits for anything: several operations of one thread may need each other. What fails
/// is noted by the communicator.
fn perform(operations: &[Operation]) {
    let requests: Vec<Result<u64>> = operations.iter().map(|it| ask(it, operations)).collect();
    let mut arrived = Vec::new();
    for (operation, ticket) in operations.iter().zip(requests) {
        let Ok(ticket) = ticket else { continue };
        if operation.request.kind != Kind::Send
            && let (Ok(parcel), Some(to)) = (operation.communicator.wait(ticket), operation.to)
        {
            arrived.push(Arrived { operation, to, parcel });
        }
        // A stream that is gone by now has nothing to do.
        let _ = process().queues.work(operation.stream, operation.communicator.device);
    }
    let mut of_own: Vec<&Arrived> = Vec::new();
    for it in &arrived {
        let alike = alike(it, &arrived, operations);
        if alike.as_ref().is_some_and(|it| it.is_of_own) {
            of_own.push(it);
        }
        let parcel = alike.and_then(|it| it.parcel);
        let parcel = parcel.as_ref().unwrap_or(&it.parcel);
        copies::deliver(it.to.0, it.to.1, parcel.bytes.as_deref(), parcel.origin);
    }
    // The rank that gathers copies its own part afterwards.
    let len = of_own.first().map_or(0, |it| it.to.1);
    copies::repeat_next(of_own.iter().filter(|it| it.to.1 == len).map(|it| it.to.0).collect(), len);
}

/// What an operation brought to this rank, and where it belongs: address and length.
struct Arrived<'a> {
    operation: &'a Operation,
    to: (usize, usize),
    parcel: Parcel,
}

/// What an absent rank is taken to send.
struct Alike {
    /// What the nearest rank below it sends, or the first one.
    parcel: Option<Parcel>,
    /// Whether this rank is nearer.
    is_of_own: bool,
}

/// Returns what an absent rank is taken to send to a rank that gathers, with a group of receives from all others.
fn alike(it: &Arrived, all: &[Arrived], group: &[Operation]) -> Option<Alike> {
    let Operation { communicator, request, .. } = it.operation;
    let is_receive = |it: &Operation| it.request.kind == Kind::Receive;
    if !is_receive(it.operation) || !communicator.lacks(request.root) {
        return None;
    }
    let of_group: Vec<_> = group.iter().filter(|it| Arc::ptr_eq(&it.communicator, communicator)).collect();
    // Between two ranks, one receive may be any.
    if communicator.size == 2 || of_group.len() + 1 != communicator.size || !of_group.into_iter().all(is_receive) {
        return None;
    }
    let is_other = |other: &&Arrived| {
        is_receive(other.operation)
            && Arc::ptr_eq(&other.operation.communicator, communicator)
            && !communicator.lacks(other.operation.request.root)
            && other.to.1 == it.to.1
    };
    let mut others: Vec<_> = all.iter().filter(is_other).map(|it| (it.operation.request.root, &it.parcel)).collect();
    others.sort_by_key(|it| it.0);
    let below = others.partition_point(|it| it.0 < request.root);
    let nearest = others.get(below.saturating_sub(1));
    let (own, lower) = (communicator.rank, below.checked_sub(1).and_then(|at| others.get(at)));
    let is_of_own = own < request.root && lower.is_none_or(|it| it.0 < own) || others.is_empty();
    Some(Alike { parcel: nearest.map(|it| it.1.clone().assumed()), is_of_own })
}

fn ask(operation: &Operation, group: &[Operation]) -> Result<u64> {
    let (bytes, origin) = operation.brings(group).map_or((None, Origin::Copied), |(at, len)| copies::collect(at, len));
    let parcel = Parcel { bytes, origin };
    operation.communicator.ask(Request { parcel, ..operation.request.clone() })
}
