//! The target of all stubs: it passes on the arguments as they lie in registers and on the stack.

/// Gets the address of a form in `r11`.
#[cfg(all(simgpu_device, target_arch = "x86_64"))]
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn simgpu_stub() {
    std::arch::naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "push r9",
        "push r8",
        "push rcx",
        "push rdx",
        "push rsi",
        "push rdi",
        "mov rdi, r11",
        "mov rsi, rsp",
        "lea rdx, [rbp + 16]",
        "call {called}",
        "leave",
        "ret",
        called = sym super::stubs::called,
    )
}

/// Gets the address of a form in `x16`.
#[cfg(all(simgpu_device, target_arch = "aarch64"))]
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn simgpu_stub() {
    std::arch::naked_asm!(
        "stp x29, x30, [sp, #-80]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "stp x2, x3, [sp, #32]",
        "stp x4, x5, [sp, #48]",
        "stp x6, x7, [sp, #64]",
        "mov x0, x16",
        "add x1, sp, #16",
        "add x2, sp, #80",
        "bl {called}",
        "ldp x29, x30, [sp], #80",
        "ret",
        called = sym super::stubs::called,
    )
}
