//! The builtin functions that Python gets by name.

use super::{Function, METH_FASTCALL, Method, New, Object, Python};
use crate::{
    abi::{FAULT, text},
    sys,
};
use std::{
    ffi::{CStr, c_char},
    mem::transmute,
    panic::{UnwindSafe, catch_unwind},
    ptr, slice,
    sync::atomic::{AtomicPtr, Ordering},
};

/// Created once, by the first thread that needs it, and never freed; a forked child has the same interpreter.
pub(super) static PYTHON: AtomicPtr<Python> = AtomicPtr::new(ptr::null_mut());

/// Makes a builtin function of a method of [`Python`]: its name, and the function.
macro_rules! builtin {
    ($name:literal, $body:expr) => {{
        unsafe extern "C" fn function(_module: Object, arguments: *const Object, count: isize) -> Object {
            // SAFETY: the interpreter calls this as it is called itself.
            unsafe { called(arguments, count, $body) }
        }
        ($name, function as Function)
    }};
}

/// The builtin functions, by name.
// SAFETY: the interpreter holds the GIL and the arguments during each call.
const FUNCTIONS: [(&CStr, Function); 7] = [
    builtin!(c"push_row", |python, it| Some(python.push_row(it))),
    builtin!(c"arm", |python, it| Some(python.arm(it))),
    builtin!(c"disarm", |_, _| Some(Python::disarm())),
    builtin!(c"end_step", |python, it| python.end_step(it)),
    builtin!(c"begin_watching", |python, it| Some(python.begin_watching(it))),
    builtin!(c"watch", |python, it| Some(python.watch(it))),
    builtin!(c"end_watching", |python, _| Some(python.end_watching())),
];

/// Calls a builtin function's implementation and converts its result; `None` raises the error that the interpreter has
/// set.
///
/// # Safety
/// The caller holds the GIL, and there are `count` live arguments.
unsafe fn called(
    arguments: *const Object,
    count: isize,
    body: impl FnOnce(&Python, &[Object]) -> Option<i64> + UnwindSafe,
) -> Object {
    // SAFETY: nothing can call this before the pointer was set, and it is never freed.
    let Some(python) = (unsafe { PYTHON.load(Ordering::Acquire).as_ref() }) else { return ptr::null_mut() };
    let answer = catch_unwind(|| {
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: as the caller promises; of no arguments none needs to have an address.
        let arguments = if count == 0 { &[] } else { unsafe { slice::from_raw_parts(arguments, count) } };
        body(python, arguments)
    });
    // SAFETY: the call makes an integer of any number; it returns null if it has set an error.
    answer.unwrap_or(Some(FAULT.into())).map_or(ptr::null_mut(), |it| unsafe { (python.answer)(it) })
}

/// Returns a builtin function of Python by name, as a new reference. Null if the process has no Python, or if there is
/// no such function.
///
/// # Safety
/// The caller holds the GIL; `name` is a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuwatch_python(name: *const c_char) -> Object {
    let make = || {
        // SAFETY: as the caller promises.
        let named = unsafe { text(name) }?;
        let (name, function) = FUNCTIONS.into_iter().find(|(it, _)| it.to_bytes() == named.as_bytes())?;
        let new = sys::symbol(c"PyCFunction_NewEx");
        if new.is_null() {
            return None;
        }
        if PYTHON.load(Ordering::Acquire).is_null() {
            // The GIL lets only one thread come here.
            PYTHON.store(Box::into_raw(Box::new(Python::find()?)), Ordering::Release);
        }
        let method = Method { name: name.as_ptr(), function, flags: METH_FASTCALL, doc: ptr::null() };
        // SAFETY: the signature is that of the stable ABI; the interpreter keeps the definition, which is leaked.
        unsafe {
            let new = transmute::<Object, New>(new);
            Some(new(Box::into_raw(Box::new(method)), ptr::null_mut(), ptr::null_mut()))
        }
    };
    catch_unwind(make).ok().flatten().unwrap_or(ptr::null_mut())
}
