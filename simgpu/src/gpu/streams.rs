//! The CUDA runtime: streams and events.

use super::{
    abi::{Answer, Fault, Out, code},
    driver::in_context,
    pools,
    process::{current, process},
    queues,
    runtime::{answer, with_context},
};
use std::time::Instant;

type Callback = extern "C" fn(usize, i32, usize);
type HostFunction = extern "C" fn(usize);

const NOT_READY: i32 = Fault::NotReady as i32;

fn add(out: Out<usize>, flags: u32, priority: i32) -> i32 {
    answer(with_context(|| {
        out.put(process().queues.add_stream(current(), flags, priority));
        Ok(())
    }))
}

fn busy_until(stream: usize) -> Result<Option<Instant>, Fault> {
    Ok(process().queues.stream(stream, current())?.busy_until)
}

/// Not an error of the thread's: programs ask this in passing.
fn ready(until: Option<Instant>) -> i32 {
    if until.is_some_and(|it| it > Instant::now()) { NOT_READY } else { 0 }
}

/// What every synchronising call does: waits, and lets the pool give back what it need not keep.
fn waited(until: Option<Instant>) {
    queues::wait(until);
    pools::synchronized(&mut process(), current());
}

fn record(event: usize, stream: usize) -> Answer {
    let now = Instant::now();
    let mut process = process();
    let until = process.queues.stream(stream, current())?.busy_until;
    process.queues.event(event)?.0 = Some(until.map_or(now, |it| it.max(now)));
    Ok(())
}

fn wait_for(stream: usize, event: usize) -> Answer {
    let mut process = process();
    let until = process.queues.event(event)?.0;
    let stream = process.queues.stream(stream, current())?;
    stream.busy_until = stream.busy_until.max(until);
    Ok(())
}

fn exchange_mode(mode: Out<i32>) -> i32 {
    thread_local!(static MODE: std::cell::Cell<i32> = const { std::cell::Cell::new(0) });
    if let Some(new) = mode.held() {
        mode.put(MODE.replace(new));
    }
    0
}

entry_points! {
    fn cudaStreamCreateWithPriority(out: Out<usize>, flags: u32, priority: i32) -> i32 {
        add(out, flags, priority)
    }

    fn cudaStreamCreateWithFlags(out: Out<usize>, flags: u32) -> i32 {
        add(out, flags, 0)
    }

    fn cudaStreamCreate(out: Out<usize>) -> i32 {
        add(out, 0, 0)
    }

    fn cudaStreamDestroy(stream: usize) -> i32 {
        answer(process().queues.remove_stream(stream))
    }

    fn cudaStreamGetPriority(stream: usize, out: Out<i32>) -> i32 {
        answer(process().queues.stream(stream, current()).map(|it| out.put(it.priority)))
    }

    fn cudaStreamGetFlags(stream: usize, out: Out<u32>) -> i32 {
        answer(process().queues.stream(stream, current()).map(|it| out.put(it.flags)))
    }

    fn cudaStreamGetDevice(stream: usize, out: Out<i32>) -> i32 {
        answer(process().queues.stream(stream, current()).map(|it| out.put(i32::try_from(it.device).unwrap_or(0))))
    }

    fn cudaStreamQuery(stream: usize) -> i32 {
        match busy_until(stream) {
            Ok(until) => ready(until),
            Err(fault) => answer(Err(fault)),
        }
    }

    fn cudaStreamSynchronize(stream: usize) -> i32 {
        answer(with_context(|| busy_until(stream)).map(waited))
    }

    fn cudaStreamWaitEvent(stream: usize, event: usize, _flags: u32) -> i32 {
        answer(wait_for(stream, event))
    }

    fn cudaStreamAddCallback(stream: usize, callback: Callback, user: usize, _flags: u32) -> i32 {
        let until = busy_until(stream);
        answer(until.map(|until| {
            queues::wait(until);
            callback(stream, 0, user);
        }))
    }

    fn cudaLaunchHostFunc(stream: usize, function: HostFunction, user: usize) -> i32 {
        let until = busy_until(stream);
        answer(until.map(|until| {
            queues::wait(until);
            function(user);
        }))
    }

    fn cudaEventCreateWithFlags(out: Out<usize>, _flags: u32) -> i32 {
        answer(with_context(|| { out.put(process().queues.add_event()); Ok(()) }))
    }

    fn cudaEventCreate(out: Out<usize>) -> i32 {
        answer(with_context(|| { out.put(process().queues.add_event()); Ok(()) }))
    }

    fn cudaEventDestroy(event: usize) -> i32 {
        answer(process().queues.remove_event(event))
    }

    fn cudaEventRecord(event: usize, stream: usize) -> i32 {
        answer(record(event, stream))
    }

    fn cudaEventRecordWithFlags(event: usize, stream: usize, _flags: u32) -> i32 {
        answer(record(event, stream))
    }

    fn cudaEventQuery(event: usize) -> i32 {
        let until = process().queues.event(event).map(|it| it.0);
        match until {
            Ok(until) => ready(until),
            Err(fault) => answer(Err(fault)),
        }
    }

    fn cudaEventSynchronize(event: usize) -> i32 {
        let until = process().queues.event(event).map(|it| it.0);
        answer(until.map(waited))
    }

    fn cudaEventElapsedTime(out: Out<f32>, from: usize, to: usize) -> i32 {
        answer((|| {
            let mut process = process();
            let from = process.queues.event(from)?.0.ok_or(Fault::InvalidHandle)?;
            let to = process.queues.event(to)?.0.ok_or(Fault::InvalidHandle)?;
            let forward = to.saturating_duration_since(from).as_secs_f32();
            let back = from.saturating_duration_since(to).as_secs_f32();
            out.put((forward - back) * 1e3);
            Ok(())
        })())
    }

    fn cudaThreadExchangeStreamCaptureMode(mode: Out<i32>) -> i32 {
        exchange_mode(mode)
    }

    fn cuThreadExchangeStreamCaptureMode(mode: Out<i32>) -> i32 {
        exchange_mode(mode)
    }

    fn cuStreamCreate(out: Out<usize>, flags: u32) -> i32 {
        code(in_context(|| { out.put(process().queues.add_stream(current(), flags, 0)); Ok(()) }))
    }

    fn cuStreamCreateWithPriority(out: Out<usize>, flags: u32, priority: i32) -> i32 {
        code(in_context(|| { out.put(process().queues.add_stream(current(), flags, priority)); Ok(()) }))
    }

    fn cuStreamDestroy_v2(stream: usize) -> i32 {
        code(process().queues.remove_stream(stream))
    }

    fn cuStreamSynchronize(stream: usize) -> i32 {
        code(in_context(|| busy_until(stream)).map(waited))
    }

    fn cuStreamWaitEvent(stream: usize, event: usize, _flags: u32) -> i32 {
        code(wait_for(stream, event))
    }

    fn cuEventCreate(out: Out<usize>, _flags: u32) -> i32 {
        code(in_context(|| { out.put(process().queues.add_event()); Ok(()) }))
    }

    fn cuEventDestroy_v2(event: usize) -> i32 {
        code(process().queues.remove_event(event))
    }

    fn cuEventRecord(event: usize, stream: usize) -> i32 {
        code(record(event, stream))
    }

    fn cuEventSynchronize(event: usize) -> i32 {
        let until = process().queues.event(event).map(|it| it.0);
        code(until.map(waited))
    }
}
