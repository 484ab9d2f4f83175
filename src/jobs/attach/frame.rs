//! A signal frame that gives a thread back what it was doing: the return address of a function that the thread is
//! made to call. Pure.
//!
//! The thread returns into the C library's `rt_sigreturn`, and the kernel restores every register from the frame, as
//! after a signal's handler. So the thread is restored also if its tracer is gone.

use std::mem::{offset_of, size_of};

/// Bytes below the stack pointer that belong to the running function.
const RED_ZONE: u64 = 128;

/// The kernel's errors by which it asks for a system call to be made again; user programs never see them.
const RESTARTS: [u64; 4] = [512, 513, 514, 516];

/// Bytes of the instruction `syscall`.
const SYSCALL_BYTES: u64 = 2;

/// `UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS`.
const FLAGS: u64 = 7;

/// No valid mode of an alternative stack: the kernel leaves the thread's as it is.
const STACK_AS_IT_IS: u32 = 0x10;

/// In the save area of the floating point registers: where the kernel describes it, and what that begins with.
const DESCRIPTION: usize = 464;
const MAGIC: u32 = 0x4650_5853;
const END_MAGIC: u32 = 0x4650_5845;

/// Where the save area's header has the features in use; the area without them.
const FEATURES: usize = 512;
const LEGACY: usize = 576;

/// The registers of a stopped thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Registers {
    pub(super) r15: u64,
    pub(super) r14: u64,
    pub(super) r13: u64,
    pub(super) r12: u64,
    pub(super) rbp: u64,
    pub(super) rbx: u64,
    pub(super) r11: u64,
    pub(super) r10: u64,
    pub(super) r9: u64,
    pub(super) r8: u64,
    pub(super) rax: u64,
    pub(super) rcx: u64,
    pub(super) rdx: u64,
    pub(super) rsi: u64,
    pub(super) rdi: u64,
    pub(super) orig_rax: u64,
    pub(super) rip: u64,
    pub(super) cs: u64,
    pub(super) eflags: u64,
    pub(super) rsp: u64,
    pub(super) ss: u64,
    pub(super) fs_base: u64,
    pub(super) gs_base: u64,
    pub(super) ds: u64,
    pub(super) es: u64,
    pub(super) fs: u64,
    pub(super) gs: u64,
}

/// `struct rt_sigframe` without the signal's description, which is not read.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct SignalFrame {
    return_address: u64,
    flags: u64,
    link: u64,
    stack_pointer: u64,
    stack_flags: u32,
    stack_padding: u32,
    stack_size: u64,
    r8: u64,
    r9: u64,
    r10: u64,
    r11: u64,
    r12: u64,
    r13: u64,
    r14: u64,
    r15: u64,
    rdi: u64,
    rsi: u64,
    rbp: u64,
    rbx: u64,
    rdx: u64,
    rax: u64,
    rcx: u64,
    rsp: u64,
    rip: u64,
    eflags: u64,
    cs: u16,
    gs: u16,
    fs: u16,
    ss: u16,
    error: u64,
    trap: u64,
    old_mask: u64,
    fault_address: u64,
    floating: u64,
    reserved: [u64; 8],
    mask: u64,
}

/// What a thread was doing.
#[derive(Clone, Debug)]
pub(super) struct Context {
    pub(super) registers: Registers,
    /// The save area of the floating point registers, as `PTRACE_GETREGSET` has it.
    pub(super) floating: Vec<u8>,
    /// Blocked signals.
    pub(super) mask: u64,
}

/// What the thread's stack has to hold before it calls, and the stack pointer at the function's first instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) stack: u64,
    pub(super) bytes: Vec<u8>,
}

/// Lays out the frame below what the thread uses; `restorer` calls `rt_sigreturn`, and `features` are the offsets and
/// the sizes of the save area's parts. `None` for an unknown save area.
pub(super) fn lay_out(context: &Context, restorer: u64, features: &[(usize, usize)]) -> Option<Layout> {
    let floating = save_area(&context.floating, features)?;
    let below = context.registers.rsp.checked_sub(RED_ZONE)?;
    let area = below.checked_sub(floating.len() as u64)? & !63;
    // At a function's first instruction the stack is 8 bytes off a multiple of 16.
    let frame = (area.checked_sub(size_of::<SignalFrame>() as u64)? & !15).checked_sub(8)?;
    let again = resumed(&context.registers);
    let narrow = |it: u64| (it & 0xFFFF).try_into().unwrap_or_default();
    let signal = SignalFrame {
        return_address: restorer,
        flags: FLAGS,
        stack_flags: STACK_AS_IT_IS,
        r8: again.r8,
        r9: again.r9,
        r10: again.r10,
        r11: again.r11,
        r12: again.r12,
        r13: again.r13,
        r14: again.r14,
        r15: again.r15,
        rdi: again.rdi,
        rsi: again.rsi,
        rbp: again.rbp,
        rbx: again.rbx,
        rdx: again.rdx,
        rax: again.rax,
        rcx: again.rcx,
        rsp: again.rsp,
        rip: again.rip,
        eflags: again.eflags,
        cs: narrow(again.cs),
        gs: narrow(again.gs),
        fs: narrow(again.fs),
        ss: narrow(again.ss),
        floating: area,
        mask: context.mask,
        ..SignalFrame::default()
    };
    let mut bytes = vec![0; usize::try_from(area - frame).ok()?];
    write(&mut bytes, &signal);
    bytes.extend(floating);
    Some(Layout { stack: frame, bytes })
}

/// The registers with which the thread continues: an interrupted system call is made again, from its beginning.
fn resumed(registers: &Registers) -> Registers {
    let is_call = registers.orig_rax.cast_signed() >= 0;
    let reason = registers.rax.wrapping_neg();
    let (rax, rip) = if is_call && RESTARTS.contains(&reason) {
        (registers.orig_rax, registers.rip.wrapping_sub(SYSCALL_BYTES))
    } else {
        (registers.rax, registers.rip)
    };
    Registers { rax, rip, orig_rax: u64::MAX, ..*registers }
}

/// The registers with which the thread calls a function.
pub(super) fn calling(registers: &Registers, stack: u64, function: u64, arguments: [u64; 6]) -> Registers {
    let [rdi, rsi, rdx, rcx, r8, r9] = arguments;
    // The direction flag is clear at every function's beginning.
    let eflags = registers.eflags & !0x400;
    // No system call is left to be made again.
    let orig_rax = u64::MAX;
    Registers { rdi, rsi, rdx, rcx, r8, r9, rax: 0, orig_rax, rip: function, rsp: stack, eflags, ..*registers }
}

/// The save area as the kernel writes it for a signal's handler: no longer than the features in use need, and
/// described.
fn save_area(saved: &[u8], features: &[(usize, usize)]) -> Option<Vec<u8>> {
    let word = |at: usize| Some(u64::from_le_bytes(saved.get(at..at + 8)?.try_into().ok()?));
    // The first two features lie in the area's legacy part.
    let ends = |of: u64| {
        let sized = features.iter().enumerate().skip(2).map(|(number, (offset, size))| (number, offset + size));
        sized.filter(move |(number, end)| of >> number & 1 == 1 && *end > 0)
    };
    let (enabled, used) = (word(DESCRIPTION)?, word(FEATURES)?);
    let length = ends(used).map(|it| it.1).max().unwrap_or(0).max(LEGACY);
    let mut area = saved.get(..length)?.to_vec();
    // The kernel gives features that lie behind the area their initial values, which they have.
    let within = ends(enabled).filter(|it| it.1 <= length).fold(3, |all, it| all | 1_u64 << it.0);
    let size = u32::try_from(length).ok()?;
    let mut description = [0; 48];
    description[..4].copy_from_slice(&MAGIC.to_le_bytes());
    description[4..8].copy_from_slice(&(size + 4).to_le_bytes());
    description[8..16].copy_from_slice(&within.to_le_bytes());
    description[16..20].copy_from_slice(&size.to_le_bytes());
    area.get_mut(DESCRIPTION..FEATURES)?.copy_from_slice(&description);
    area.extend(END_MAGIC.to_le_bytes());
    Some(area)
}

fn write(bytes: &mut [u8], it: &SignalFrame) {
    let mut put = |at: usize, value: &[u8]| {
        if let Some(place) = bytes.get_mut(at..at + value.len()) {
            place.copy_from_slice(value);
        }
    };
    macro_rules! put {
        ($($field:ident)*) => { $(put(offset_of!(SignalFrame, $field), &it.$field.to_le_bytes());)* };
    }
    put!(return_address flags link stack_pointer stack_flags stack_size);
    put!(r8 r9 r10 r11 r12 r13 r14 r15 rdi rsi rbp rbx rdx rax rcx rsp rip eflags cs gs fs ss);
    put!(error trap old_mask fault_address floating mask);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> Context {
        let mut floating = vec![7; 2696];
        floating[DESCRIPTION..DESCRIPTION + 8].copy_from_slice(&0x207_u64.to_le_bytes());
        floating[FEATURES..FEATURES + 8].copy_from_slice(&7_u64.to_le_bytes());
        let registers = Registers { rsp: 0x7FFF_0000_1234, rip: 0x40_0010, orig_rax: u64::MAX, ..Registers::default() };
        Context { registers, floating, mask: 0x55 }
    }

    fn features() -> Vec<(usize, usize)> {
        let size = |feature| match feature {
            2 => (576, 256),
            9 => (2688, 8),
            _ => (0, 0),
        };
        (0..64).map(size).collect()
    }

    #[test]
    fn a_frame_lies_below_what_the_thread_uses_and_is_aligned() {
        let context = context();
        let layout = lay_out(&context, 0xABCD, &features()).unwrap();
        let end = layout.stack + layout.bytes.len() as u64;
        assert_eq!(layout.stack % 16, 8);
        assert!(end <= context.registers.rsp - RED_ZONE);
        let word = |at: usize| u64::from_le_bytes(layout.bytes[at..at + 8].try_into().unwrap());
        assert_eq!(word(0), 0xABCD);
        let area = word(offset_of!(SignalFrame, floating));
        assert_eq!(area % 64, 0);
        assert_eq!(word(offset_of!(SignalFrame, rsp)), context.registers.rsp);
        assert_eq!(word(offset_of!(SignalFrame, mask)), 0x55);
        // The kernel's own offsets: of the context in the frame, and of the mask in that.
        assert_eq!((offset_of!(SignalFrame, r8), offset_of!(SignalFrame, mask)), (8 + 40, 8 + 296));
        // The area ends behind the features in use, and holds its own length.
        let at = usize::try_from(area - layout.stack).unwrap();
        assert_eq!(layout.bytes.len() - at, 576 + 256 + 4);
        assert_eq!(word(at + DESCRIPTION + 8), 7, "the last feature lies behind it");
        assert_eq!(layout.bytes[at + 832..], END_MAGIC.to_le_bytes());
    }

    #[test]
    fn an_interrupted_system_call_is_made_again() {
        let call = Registers { rip: 100, rax: 512_u64.wrapping_neg(), orig_rax: 7, ..Registers::default() };
        let timed = Registers { rax: 516_u64.wrapping_neg(), ..call };
        for it in [call, timed] {
            assert_eq!((resumed(&it).rip, resumed(&it).rax, resumed(&it).orig_rax), (98, 7, u64::MAX));
        }
        let running = Registers { orig_rax: u64::MAX, ..call };
        assert_eq!(resumed(&running), running);
        let failed = Registers { rax: 4_u64.wrapping_neg(), ..call };
        assert_eq!(resumed(&failed), Registers { orig_rax: u64::MAX, ..failed });
    }
}
