//! CUDA IPC: memory and events of one process in another one of the machine. The owner alone is charged.

use super::{
    abi::{Answer, Fault, Out},
    calls::{answer, with_context},
    process::{Process, current, process},
    ranges::{GRANULE, Kind, Range, addresses},
    sys,
};
use std::fs::OpenOptions;

const MAGIC: u64 = 0x6370_6975_7067_6d73;

/// The contents of `cudaIpcMemHandle_t` and `cudaIpcEventHandle_t`: 64 bytes that only this device reads.
#[repr(C)]
#[derive(Clone, Copy)]
struct Handle {
    magic: u64,
    /// The owner, and its descriptor of the file that holds what is stored.
    process: u32,
    file: i32,
    base: usize,
    size: usize,
    /// The machine's index of the device.
    device: usize,
    spare: [u64; 3],
}

fn give_memory(address: usize) -> Result<Handle, Fault> {
    let mut process = process();
    let range = process.ranges.find(address).filter(|it| it.kind == Kind::Device).ok_or(Fault::InvalidValue)?;
    let device = process.index(range.device)?;
    let file = process.contents.descriptor().ok_or(Fault::NotSupported)?;
    let (base, size) = (range.base, range.size);
    Ok(Handle { magic: MAGIC, process: std::process::id(), file, base, size, device, spare: [0; 3] })
}

fn take_memory(handle: Handle) -> Result<usize, Fault> {
    if handle.magic != MAGIC || handle.size == 0 {
        return Err(Fault::InvalidValue);
    }
    let path = format!("/proc/{}/fd/{}", handle.process, handle.file);
    // The owner may be gone: then there is nothing to open.
    let file = OpenOptions::new().read(true).write(true).open(path).or(Err(Fault::InvalidHandle))?;
    let mut process = process();
    let device = process.ordinal_of(handle.device)?;
    process.context(device)?;
    let base = addresses(handle.size, GRANULE)?;
    process.contents.import(base, handle.size, file, handle.base);
    process.ranges.add(Range { base, size: handle.size, device, kind: Kind::Imported });
    Ok(base)
}

fn leave_memory(process: &mut Process, base: usize) -> Answer {
    let range = process.ranges.take(base, Kind::Imported).ok_or(Fault::InvalidValue)?;
    process.contents.forget_import(base);
    sys::unmap(range.base, range.size);
    Ok(())
}

entry_points! {
    fn cudaIpcGetMemHandle(out: Out<Handle>, address: usize) -> i32 {
        answer(with_context(|| give_memory(address)).map(|it| out.put(it)))
    }

    fn cudaIpcOpenMemHandle(out: Out<usize>, handle: Handle, _flags: u32) -> i32 {
        answer(with_context(|| take_memory(handle)).map(|it| out.put(it)))
    }

    fn cudaIpcCloseMemHandle(base: usize) -> i32 {
        answer(leave_memory(&mut process(), base))
    }

    fn cudaIpcGetEventHandle(out: Out<Handle>, event: usize) -> i32 {
        answer(process().queues.event(event).map(|_| {
            let (process, device) = (std::process::id(), current());
            out.put(Handle { magic: MAGIC, process, file: -1, base: event, size: 0, device, spare: [0; 3] });
        }))
    }

    // Work recorded before the handle was given is done by now.
    fn cudaIpcOpenEventHandle(out: Out<usize>, handle: Handle) -> i32 {
        answer(with_context(|| if handle.magic == MAGIC { Ok(()) } else { Err(Fault::InvalidValue) }).map(|()| {
            let mut process = process();
            let event = process.queues.add_event();
            process.queues.passed(event);
            out.put(event);
        }))
    }
}
