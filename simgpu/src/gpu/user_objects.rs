//! Objects of the host's that graphs keep alive: what a program gives to a captured graph lives until the last of its
//! references, those of the program, of graphs and of graphs that can be launched, is gone.

use super::{
    abi::{Answer, Fault, Out},
    calls::answer,
    capture_state::{Destructor, UserObject},
    process::process,
};
use std::sync::Arc;

/// `cudaGraphUserObjectMove`: the program gives its references away.
const MOVE: u32 = 1;

fn create(value: usize, destructor: Destructor, count: u32) -> Result<usize, Fault> {
    let mut process = process();
    let handle = process.queues.handle();
    if count == 0 {
        return Err(Fault::InvalidValue);
    }
    process.captures.objects.add(handle, Arc::new(UserObject::new(value, destructor)), count);
    Ok(handle)
}

fn retain(handle: usize, count: u32) -> Answer {
    let mut process = process();
    let object = process.captures.objects.object(handle)?;
    process.captures.objects.add(handle, object, count);
    Ok(())
}

fn release(handle: usize, count: u32) -> Answer {
    let last = process().captures.objects.remove(handle, count)?;
    drop(last);
    Ok(())
}

fn retain_by_graph(graph: usize, handle: usize, count: u32, flags: u32) -> Answer {
    let mut process = process();
    let object = process.captures.objects.object(handle)?;
    process.captures.graphs.get_mut(&graph).ok_or(Fault::InvalidValue)?.objects.add(handle, object, count);
    if flags & MOVE != 0 {
        // The graph has it.
        process.captures.objects.remove(handle, count)?;
    }
    Ok(())
}

fn release_by_graph(graph: usize, handle: usize, count: u32) -> Answer {
    let mut process = process();
    let last = process.captures.graphs.get_mut(&graph).ok_or(Fault::InvalidValue)?.objects.remove(handle, count)?;
    drop(process);
    drop(last);
    Ok(())
}

entry_points! {
    fn cudaUserObjectCreate(
        out: Out<usize>, value: usize, destructor: Destructor, count: u32, _flags: u32,
    ) -> i32 {
        answer(create(value, destructor, count).map(|it| out.put(it)))
    }

    fn cudaUserObjectRetain(object: usize, count: u32) -> i32 {
        answer(retain(object, count))
    }

    fn cudaUserObjectRelease(object: usize, count: u32) -> i32 {
        answer(release(object, count))
    }

    fn cudaGraphRetainUserObject(graph: usize, object: usize, count: u32, flags: u32) -> i32 {
        answer(retain_by_graph(graph, object, count, flags))
    }

    fn cudaGraphReleaseUserObject(graph: usize, object: usize, count: u32) -> i32 {
        answer(release_by_graph(graph, object, count))
    }
}
