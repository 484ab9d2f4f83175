//! Memory that graphs allocate themselves: captured stream-ordered allocations. Their addresses are fixed by the
//! capture; a launch takes the memory from the device's reserve for all graphs.

use super::{
    abi::{Answer, Fault, In, Out},
    calls::{answer, ordinal},
    charges::{Figures, Piece, STEP},
    process::{Process, process},
    ranges::{Kind, Range, addresses},
};
const USED: i32 = 0;
const USED_HIGH: i32 = 1;
const RESERVED: i32 = 2;
const RESERVED_HIGH: i32 = 3;

impl Process {
    /// The address of an allocation that is being captured.
    pub(super) fn name_captured(&mut self, device: usize, bytes: usize) -> Result<usize, Fault> {
        let size = bytes.checked_next_multiple_of(512).ok_or(Fault::OutOfMemory)?;
        let base = addresses(size, 512)?;
        self.ranges.add(Range { base, size, device, kind: Kind::Device });
        self.graph_memory.pieces.insert(base, Piece { device, size: size as u64, taken: false });
        Ok(base)
    }

    /// A launch comes to the allocation. What an earlier launch left allocated is used again, as graphs do that free on
    /// launch.
    pub(super) fn take_captured(&mut self, base: usize) -> Answer {
        let piece = *self.graph_memory.pieces.get(&base).ok_or(Fault::InvalidValue)?;
        if piece.taken {
            return Ok(());
        }
        let it = self.graph_memory.devices.entry(piece.device).or_default();
        let missing = (it.used + piece.size).saturating_sub(it.reserved).next_multiple_of(STEP);
        self.charge(piece.device, missing)?;
        let it = self.graph_memory.devices.entry(piece.device).or_default();
        (it.used, it.reserved) = (it.used + piece.size, it.reserved + missing);
        (it.used_high, it.reserved_high) = (it.used_high.max(it.used), it.reserved_high.max(it.reserved));
        self.graph_memory.pieces.insert(base, Piece { taken: true, ..piece });
        Ok(())
    }

    /// Whether memory is a graph's own.
    pub(super) fn is_captured(&self, base: usize) -> bool {
        self.graph_memory.pieces.contains_key(&base)
    }

    /// A captured allocation is freed: by a launch, or by the program. False for other memory.
    pub(super) fn free_captured(&mut self, base: usize) -> bool {
        let Some(piece) = self.graph_memory.pieces.get_mut(&base) else { return false };
        if std::mem::take(&mut piece.taken) {
            let it = self.graph_memory.devices.entry(piece.device).or_default();
            it.used = it.used.saturating_sub(piece.size);
        }
        true
    }
}

fn figures<R>(device: i32, work: impl FnOnce(&mut Figures) -> Result<R, Fault>) -> Result<R, Fault> {
    let device = ordinal(device)?;
    let mut process = process();
    process.index(device)?;
    work(process.graph_memory.devices.entry(device).or_default())
}

entry_points! {
    fn cudaDeviceGetGraphMemAttribute(device: i32, attribute: i32, out: Out<u64>) -> i32 {
        answer(figures(device, |it| {
            out.put(match attribute {
                USED => it.used,
                USED_HIGH => it.used_high,
                RESERVED => it.reserved,
                RESERVED_HIGH => it.reserved_high,
                _ => return Err(Fault::InvalidValue),
            });
            Ok(())
        }))
    }

    // The high-water marks can be reset to the current values.
    fn cudaDeviceSetGraphMemAttribute(device: i32, attribute: i32, value: In<u64>) -> i32 {
        answer(figures(device, |it| match (attribute, value.get()) {
            (USED_HIGH, Some(0)) => { it.used_high = it.used; Ok(()) }
            (RESERVED_HIGH, Some(0)) => { it.reserved_high = it.reserved; Ok(()) }
            _ => Err(Fault::InvalidValue),
        }))
    }

    fn cudaDeviceGraphMemTrim(device: i32) -> i32 {
        let back = figures(device, |it| {
            let left = it.used.next_multiple_of(STEP).min(it.reserved);
            Ok(std::mem::replace(&mut it.reserved, left) - left)
        });
        answer(back.and_then(|it| { process().refund(ordinal(device)?, it); Ok(()) }))
    }
}
