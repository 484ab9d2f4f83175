//! The machine code of stubs, for each processor that is supported.

use object::elf;
use std::io::{self, Error};

/// The machine code of one processor.
pub(super) struct Code {
    pub(super) machine: elf::Machine,
    pub(super) relocation: elf::RelocationType,
    /// Bytes from one function to the next.
    pub(super) step: u64,
    /// Returns a function at an address that passes on the second address and jumps to where the third one points.
    pub(super) jump: fn(u64, u64, u64) -> Vec<u8>,
}

/// Returns the code for this system's processor.
///
/// # Errors
/// Fails if the processor is not supported.
pub(super) fn code() -> io::Result<Code> {
    match std::env::consts::ARCH {
        "x86_64" => Ok(Code { machine: elf::EM_X86_64, relocation: elf::R_X86_64_GLOB_DAT, step: 16, jump: x86_64 }),
        "aarch64" => {
            Ok(Code { machine: elf::EM_AARCH64, relocation: elf::R_AARCH64_GLOB_DAT, step: 32, jump: aarch64 })
        }
        other => Err(Error::other(format!("no GPU can be simulated on {other}"))),
    }
}

/// `lea r11, [rip + what]; jmp [rip + pointer]`
fn x86_64(at: u64, what: u64, pointer: u64) -> Vec<u8> {
    let mut code = vec![0x4c, 0x8d, 0x1d];
    let relative = |to: u64, end: u64| to.wrapping_sub(end).to_le_bytes();
    code.extend(relative(what, at + 7).iter().take(4));
    code.extend([0xff, 0x25]);
    code.extend(relative(pointer, at + 13).iter().take(4));
    code
}

/// `adrp x16, what; add x16, x16, :lo12:what; adrp x17, pointer; ldr x17, [x17, :lo12:pointer]; br x17`
fn aarch64(at: u64, what: u64, pointer: u64) -> Vec<u8> {
    let pages = |to: u64, at: u64| {
        let pages = ((to >> 12).wrapping_sub(at >> 12) & 0x1f_ffff) as u32;
        (pages & 3) << 29 | (pages >> 2) << 5
    };
    let low = |to: u64| (to & 0xfff) as u32;
    let words = [
        0x9000_0010 | pages(what, at),
        0x9100_0210 | low(what) << 10,
        0x9000_0011 | pages(pointer, at + 8),
        0xf940_0231 | (low(pointer) / 8) << 10,
        0xd61f_0220,
    ];
    words.iter().flat_map(|it: &u32| it.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_processors_find_addresses_before_and_after() {
        assert_eq!(
            x86_64(0x1000, 0x200, 0x2008),
            [0x4c, 0x8d, 0x1d, 0xf9, 0xf1, 0xff, 0xff, 0xff, 0x25, 0xfb, 0x0f, 0, 0]
        );
        let words = |at, what, pointer| -> Vec<u32> {
            aarch64(at, what, pointer).chunks(4).map(|it| u32::from_le_bytes(it.try_into().unwrap())).collect()
        };
        // As `llvm-mc` encodes them: the same page, the next page, three pages back.
        assert_eq!(words(0x1000, 0x1010, 0x2008), [0x9000_0010, 0x9100_4210, 0xb000_0011, 0xf940_0631, 0xd61f_0220]);
        assert_eq!(words(0x4000, 0x1000, 0x4000)[..2], [0xb0ff_fff0, 0x9100_0210]);
    }
}
