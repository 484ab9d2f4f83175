//! The CUDA runtime: streams and events.

use super::{
    abi::{Answer, Fault, Out, code},
    calls::{answer, in_context, with_context},
    capture,
    capture_state::Work,
    pools,
    process::{current, process},
    queues,
};
use std::time::Instant;

type Callback = extern "C" fn(usize, i32, usize);
type HostFunction = extern "C" fn(usize);

const NOT_READY: i32 = Fault::NotReady as i32;
/// `cudaEventRecordExternal`, `cudaEventWaitExternal`
const EXTERNAL: u32 = 1;

fn add(out: Out<usize>, flags: u32, priority: i32) -> i32 {
    answer(with_context(|| {
        out.put(process().queues.add_stream(current(), flags, priority));
        Ok(())
    }))
}

fn busy_until(stream: usize) -> Result<Option<Instant>, Fault> {
    let mut process = process();
    process.permit_stream(stream, current())?;
    Ok(process.queues.stream(stream, current())?.busy_until)
}

fn event_until(event: usize) -> Result<Option<Instant>, Fault> {
    let mut process = process();
    process.permit_event(event)?;
    Ok(process.queues.event(event)?.until)
}

/// When an event of no capture was reached.
fn time_of(event: usize) -> Result<Instant, Fault> {
    let mut process = process();
    let event = process.queues.event(event)?;
    if event.place.is_some() { Err(Fault::CapturedEvent) } else { event.until.ok_or(Fault::InvalidHandle) }
}

/// This does not become the thread's last error: programs ask it in passing.
fn ready(until: Result<Option<Instant>, Fault>) -> i32 {
    match until {
        Ok(Some(until)) if until > Instant::now() => NOT_READY,
        until => answer(until.map(|_| ())),
    }
}

/// Synchronises: waits, and lets the pool release what it need not keep. Every synchronising call does this.
fn waited(until: Option<Instant>) {
    queues::wait(until);
    pools::synchronized(&mut process(), current());
}

/// In a capture an external event is a node, as others are not.
fn record(event: usize, stream: usize, flags: u32) -> Answer {
    if flags & EXTERNAL != 0 && process().capture_of(stream, current())?.is_some() {
        return capture::submit(stream, Work::act(move || process().queues.passed(event)));
    }
    let now = Instant::now();
    let mut process = process();
    if process.record_captured(event, stream, current())? {
        return Ok(());
    }
    let until = process.queues.stream(stream, current())?.busy_until;
    process.queues.event(event)?.until = Some(until.map_or(now, |it| it.max(now)));
    Ok(())
}

fn wait_for(stream: usize, event: usize, flags: u32) -> Answer {
    if flags & EXTERNAL != 0 && process().capture_of(stream, current())?.is_some() {
        return capture::submit(stream, Work::Nothing);
    }
    let mut process = process();
    if process.wait_captured(stream, current(), event)? {
        return Ok(());
    }
    let until = process.queues.event(event)?.until;
    let stream = process.queues.stream(stream, current())?;
    stream.busy_until = stream.busy_until.max(until);
    Ok(())
}

/// A function of the host's, after what the stream has to do.
fn call(stream: usize, function: impl Fn() + Send + Sync + 'static) -> Answer {
    if process().capture_of(stream, current())?.is_none() {
        queues::wait(busy_until(stream)?);
    }
    capture::submit(stream, Work::act(function))
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
        ready(busy_until(stream))
    }

    fn cudaStreamSynchronize(stream: usize) -> i32 {
        answer(with_context(|| busy_until(stream)).map(waited))
    }

    fn cudaStreamWaitEvent(stream: usize, event: usize, flags: u32) -> i32 {
        answer(wait_for(stream, event, flags))
    }

    fn cudaStreamAddCallback(stream: usize, callback: Callback, user: usize, _flags: u32) -> i32 {
        // Unlike `cudaLaunchHostFunc` this cannot be captured.
        answer(busy_until(stream).and_then(|_| call(stream, move || callback(stream, 0, user))))
    }

    fn cudaLaunchHostFunc(stream: usize, function: HostFunction, user: usize) -> i32 {
        answer(call(stream, move || function(user)))
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
        answer(record(event, stream, 0))
    }

    fn cudaEventRecordWithFlags(event: usize, stream: usize, flags: u32) -> i32 {
        answer(record(event, stream, flags))
    }

    fn cudaEventQuery(event: usize) -> i32 {
        ready(event_until(event))
    }

    fn cudaEventSynchronize(event: usize) -> i32 {
        answer(event_until(event).map(waited))
    }

    fn cudaEventElapsedTime(out: Out<f32>, from: usize, to: usize) -> i32 {
        answer((|| {
            let (from, to) = (time_of(from)?, time_of(to)?);
            let forward = to.saturating_duration_since(from).as_secs_f32();
            let back = from.saturating_duration_since(to).as_secs_f32();
            out.put((forward - back) * 1e3);
            Ok(())
        })())
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

    fn cuStreamWaitEvent(stream: usize, event: usize, flags: u32) -> i32 {
        code(wait_for(stream, event, flags))
    }

    fn cuEventCreate(out: Out<usize>, _flags: u32) -> i32 {
        code(in_context(|| { out.put(process().queues.add_event()); Ok(()) }))
    }

    fn cuEventDestroy_v2(event: usize) -> i32 {
        code(process().queues.remove_event(event))
    }

    fn cuEventRecord(event: usize, stream: usize) -> i32 {
        code(record(event, stream, 0))
    }

    fn cuEventSynchronize(event: usize) -> i32 {
        code(event_until(event).map(waited))
    }
}
