//! Binds the library to the old versions of what glibc has given new ones, so that it loads with 2.28 and later ones
//! whatever the machine has that builds it.
//!
//! glibc 2.34 took libpthread and libdl into libc and gave their calls a new version there; the old one stays beside
//! it. A linker takes the newest unless the reference names another one, which `.symver` makes it do. That holds within
//! one object file: `build.rs` asks for this where it makes one of all code, std's too, and has the library ask for
//! libpthread and libdl by name, which is where older systems have these calls.
//!
//! # How the library loads where glibc is old
//!
//! Jobs run in images that are older than the machine gpuwatch was built on. Linked as usual the probe would need glibc
//! 2.34 (calls for threads and libraries have a new version since they moved into libc; `stat` has been a symbol since
//! 2.33, `gettid` since 2.30). `probes/gpuwatch-probe/src/sys/floor.rs` binds these references to their old versions,
//! which every later glibc keeps, and defines what old ones lack. `.symver` reaches what is in the same object file,
//! and with fat LTO all code is in one, std's too; so `build.rs` alone turns it on (`--cfg gpuwatch_floor`), and links
//! libpthread and libdl by name, where older systems have the calls. It takes no other compiler, linker or sysroot.
//! When that link fails, `build.rs` links as usual and warns. `tests/it/floor.rs` reads what the library asks for and
//! names what a newer std has added. A library that cargo builds of the probe's own package, without that, is linked as
//! usual; the one that `gpuwatch env` names is the one that is bound.

use std::arch::global_asm;

/// The version of some calls on x86_64, and that on aarch64, where glibc begins with 2.17.
macro_rules! bind {
    ($x86_64:literal, $aarch64:literal: $($name:literal)*) => {
        #[cfg(target_arch = "x86_64")]
        global_asm!($(concat!(".symver ", $name, ", ", $name, "@", $x86_64)),*);
        #[cfg(target_arch = "aarch64")]
        global_asm!($(concat!(".symver ", $name, ", ", $name, "@", $aarch64)),*);
    };
}

bind!("GLIBC_2.2.5", "GLIBC_2.17": "dlopen" "dlsym" "pthread_attr_getguardsize" "pthread_attr_getstack"
    "pthread_attr_setstacksize" "pthread_create" "pthread_detach" "pthread_getattr_np" "pthread_key_create"
    "pthread_key_delete" "pthread_setspecific" "pthread_sigmask");
bind!("GLIBC_2.12", "GLIBC_2.17": "pthread_setname_np");

/// Defines a private function of this library in place of one that old releases lack, with its code for x86_64 and for
/// aarch64. It is weak because std refers to some of them weakly, and an assembler refuses two bindings of a name.
macro_rules! own {
    ($name:literal: [$($x86_64:literal)*] [$($aarch64:literal)*]) => {
        #[cfg(target_arch = "x86_64")]
        own!($name: $($x86_64)*);
        #[cfg(target_arch = "aarch64")]
        own!($name: $($aarch64)*);
    };
    ($name:literal: $($line:literal)*) => {
        global_asm!(
            concat!(".weak ", $name),
            concat!(".hidden ", $name),
            concat!(".type ", $name, ", %function"),
            concat!($name, ":"),
            $($line),*
        );
    };
}

// Before 2.33 these were in no libc: every program had a copy that went to the calls below, which all releases have,
// with the number of the structure's layout (glibc's `_STAT_VER`: 1 on x86_64, 0 on aarch64) in front of the arguments.
// SAFETY: the arguments move up by one register, as both calling conventions pass them; the return address stays.
own!("stat64":
    ["mov rdx, rsi" "mov rsi, rdi" "mov edi, 1" "jmp __xstat64@PLT"]
    ["mov x2, x1" "mov x1, x0" "mov w0, 0" "b __xstat64"]);
own!("lstat64":
    ["mov rdx, rsi" "mov rsi, rdi" "mov edi, 1" "jmp __lxstat64@PLT"]
    ["mov x2, x1" "mov x1, x0" "mov w0, 0" "b __lxstat64"]);
own!("fstat64":
    ["mov rdx, rsi" "mov esi, edi" "mov edi, 1" "jmp __fxstat64@PLT"]
    ["mov x2, x1" "mov w1, w0" "mov w0, 0" "b __fxstat64"]);
own!("fstatat64":
    ["mov r8d, ecx" "mov rcx, rdx" "mov rdx, rsi" "mov esi, edi" "mov edi, 1" "jmp __fxstatat64@PLT"]
    ["mov w4, w3" "mov x3, x2" "mov x2, x1" "mov w1, w0" "mov w0, 0" "b __fxstatat64"]);

// New in 2.30. std asks for it weakly, and does without where it is not, but a linker notes its version as needed.
// SAFETY: the system call takes no arguments and does not fail; what it overwrites is the caller's to save.
own!("gettid": ["mov eax, 186" "syscall" "ret"] ["mov x8, 178" "svc 0" "ret"]);
