//! Graphs as the CUDA runtime shows them: captured from streams, instantiated, launched. A launch takes its kernels'
//! time on the stream, and computes as little as they do.

use super::{
    abi::{Answer, Fault, In, Out},
    calls::{answer, with_context},
    capture::{self, Info, exchange_mode},
    capture_state::{Graph, Node, Ready, Work},
    process::{current, process},
    wheel::Wheel,
};
use std::sync::Arc;

/// `cudaStreamSetCaptureDependencies`
const SET: u32 = 1;

/// `cudaStreamCaptureStatus`: none, active, invalidated.
fn status(info: Option<&Info>) -> i32 {
    info.map_or(0, |it| if it.broken { 2 } else { 1 })
}

/// `cudaGraphNodeType`; copies, fills and functions of the host's are all called copies.
fn kind(work: &Work) -> i32 {
    match work {
        Work::Kernel => 0,
        Work::Act(_) => 1,
        Work::Nothing => 5,
        Work::Allocate(_) => 10,
        Work::Free(_) => 11,
    }
}

/// The addresses for a caller's questions about a stream's capture.
struct Wanted {
    status: Out<i32>,
    id: Out<u64>,
    graph: Out<usize>,
    after: Out<usize>,
    count: Out<usize>,
}

fn capture_info(stream: usize, wanted: &Wanted) -> Answer {
    let info = process().capture_of(stream, current())?;
    wanted.status.put(status(info.as_ref()));
    if let Some(info) = info {
        wanted.id.put(info.id);
        wanted.graph.put(info.graph);
        wanted.after.put(info.after.0);
        wanted.count.put(info.after.1);
    }
    Ok(())
}

/// Writes handles to where there is room for `count` of them, or, where there is none, how many there are.
fn list(handles: &[usize], out: Out<usize>, count: Out<usize>) -> Answer {
    if out.is_null() {
        count.put(handles.len());
        return Ok(());
    }
    let capacity = count.held().ok_or(Fault::InvalidValue)?;
    for at in 0..capacity {
        // Spare elements are null, as documented.
        out.put_at(at, handles.get(at).copied().unwrap_or(0));
    }
    count.put(capacity.min(handles.len()));
    Ok(())
}

fn instantiate(graph: usize) -> Result<usize, Fault> {
    let mut process = process();
    let graph = process.captures.graphs.get(&graph).ok_or(Fault::InvalidValue)?;
    let work: Arc<[Work]> = graph.nodes.values().map(|it| it.work.clone()).collect();
    let objects = graph.objects.clone();
    let ready = process.queues.handle();
    process.captures.ready.insert(ready, Ready { work, _objects: objects });
    Ok(ready)
}

fn launch(ready: usize, stream: usize) -> Answer {
    let ready = process().captures.ready.get(&ready).cloned().ok_or(Fault::InvalidValue)?;
    ready.work.iter().try_for_each(|it| capture::submit(stream, it.clone()))
}

fn nodes_before(node: usize) -> Result<Vec<usize>, Fault> {
    let process = process();
    let found = process.captures.graphs.values().find_map(|it| it.nodes.get(&node));
    Ok(found.ok_or(Fault::InvalidValue)?.after.clone())
}

fn add_empty(graph: usize, after: &[usize]) -> Result<usize, Fault> {
    let mut process = process();
    let node = process.queues.handle();
    let graph = process.captures.graphs.get_mut(&graph).ok_or(Fault::InvalidValue)?;
    if !after.iter().all(|it| graph.nodes.contains_key(it)) {
        return Err(Fault::InvalidValue);
    }
    graph.nodes.insert(node, Node { after: after.into(), work: Work::Nothing });
    Ok(node)
}

/// Returns the handles of an array whose length the caller gave.
fn handles(from: In<usize>, count: usize) -> Result<Vec<usize>, Fault> {
    (0..count).map(|it| from.at(it).ok_or(Fault::InvalidValue)).collect()
}

fn follow(stream: usize, nodes: In<usize>, count: usize, flags: u32) -> Answer {
    let nodes = handles(nodes, count)?;
    process().follow(stream, current(), &nodes, flags & SET != 0)
}

fn exchange(mode: Out<i32>) -> Answer {
    let new = mode.held().ok_or(Fault::InvalidValue)?;
    exchange_mode(new).map(|old| mode.put(old))
}

entry_points! {
    fn cudaStreamIsCapturing(stream: usize, out: Out<i32>) -> i32 {
        let info = process().capture_of(stream, current());
        answer(info.map(|it| out.put(status(it.as_ref()))))
    }

    fn cudaStreamGetCaptureInfo(
        stream: usize, status: Out<i32>, id: Out<u64>, graph: Out<usize>, after: Out<usize>, edges: Out<usize>,
        count: Out<usize>,
    ) -> i32 {
        edges.put(0);
        answer(capture_info(stream, &Wanted { status, id, graph, after, count }))
    }

    // CUDA 12's, of graphs whose edges carry no data.
    fn cudaStreamGetCaptureInfo_v2(
        stream: usize, status: Out<i32>, id: Out<u64>, graph: Out<usize>, after: Out<usize>, count: Out<usize>,
    ) -> i32 {
        answer(capture_info(stream, &Wanted { status, id, graph, after, count }))
    }

    fn cudaThreadExchangeStreamCaptureMode(mode: Out<i32>) -> i32 {
        answer(exchange(mode))
    }

    fn cuThreadExchangeStreamCaptureMode(mode: Out<i32>) -> i32 {
        super::abi::code(exchange(mode))
    }

    fn cudaStreamBeginCapture(stream: usize, mode: i32) -> i32 {
        answer(with_context(|| process().begin_capture(stream, current(), mode)))
    }

    fn cudaStreamEndCapture(stream: usize, out: Out<usize>) -> i32 {
        out.put(0);
        let graph = process().end_capture(stream, current());
        answer(graph.map(|it| out.put(it)))
    }

    fn cudaGraphCreate(out: Out<usize>, _flags: u32) -> i32 {
        let mut process = process();
        let handle = process.queues.handle();
        process.captures.graphs.insert(handle, Graph::default());
        out.put(handle);
        0
    }

    fn cudaGraphGetNodes(graph: usize, out: Out<usize>, count: Out<usize>) -> i32 {
        let nodes = process().captures.graphs.get(&graph).map(|it| it.nodes.keys().copied().collect::<Vec<_>>());
        answer(nodes.ok_or(Fault::InvalidValue).and_then(|it| list(&it, out, count)))
    }

    // CUDA 13 put the edges' data before the count.
    fn cudaGraphNodeGetDependencies(node: usize, out: Out<usize>, third: Out<usize>, fourth: Out<usize>) -> i32 {
        let count = if Wheel::here().is_cuda_12() { third } else { fourth };
        answer(nodes_before(node).and_then(|it| list(&it, out, count)))
    }

    fn cudaGraphNodeGetType(node: usize, out: Out<i32>) -> i32 {
        let process = process();
        let found = process.captures.graphs.values().find_map(|it| it.nodes.get(&node));
        answer(found.ok_or(Fault::InvalidValue).map(|it| out.put(kind(&it.work))))
    }

    fn cudaGraphAddEmptyNode(out: Out<usize>, graph: usize, after: In<usize>, count: usize) -> i32 {
        answer(handles(after, count).and_then(|it| add_empty(graph, &it)).map(|it| out.put(it)))
    }

    // CUDA 13 put the edges' data before the count.
    fn cudaStreamUpdateCaptureDependencies(
        stream: usize, nodes: In<usize>, third: usize, fourth: usize, fifth: u32,
    ) -> i32 {
        answer(if Wheel::here().is_cuda_12() {
            follow(stream, nodes, third, u32::try_from(fourth & 0xffff_ffff).unwrap_or(0))
        } else {
            follow(stream, nodes, fourth, fifth)
        })
    }

    fn cudaGraphInstantiate(out: Out<usize>, graph: usize, _flags: u64) -> i32 {
        answer(instantiate(graph).map(|it| out.put(it)))
    }

    fn cudaGraphInstantiateWithFlags(out: Out<usize>, graph: usize, _flags: u64) -> i32 {
        answer(instantiate(graph).map(|it| out.put(it)))
    }

    fn cudaGraphUpload(ready: usize, _stream: usize) -> i32 {
        answer(process().captures.ready.get(&ready).map(|_| ()).ok_or(Fault::InvalidValue))
    }

    fn cudaGraphLaunch(ready: usize, stream: usize) -> i32 {
        answer(with_context(|| launch(ready, stream)))
    }

    fn cudaGraphExecDestroy(ready: usize) -> i32 {
        // What only the graph kept ends here, without the process's lock.
        let removed = process().captures.ready.remove(&ready);
        answer(removed.map(drop).ok_or(Fault::InvalidValue))
    }

    fn cudaGraphDestroy(graph: usize) -> i32 {
        let removed = process().captures.graphs.remove(&graph);
        answer(removed.map(drop).ok_or(Fault::InvalidValue))
    }
}
