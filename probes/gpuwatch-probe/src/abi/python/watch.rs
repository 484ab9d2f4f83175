//! Learns of the end of every optimizer step without anything that the job, its tools or Dynamo can see.
//!
//! PyTorch wraps the `step` of each class of optimizers once, in a function that calls it as `step(*args, **kwargs)`.
//! From Python 3.9 on, such a call goes through a pointer in the function object (vectorcall, PEP 590). `watch` puts
//! [`stepped`] there, which calls what was there before. Code, frames, attributes and PyTorch's lists of hooks stay as
//! they are. `functools.wraps` makes its call in the same way, so that [`wrapped`] learns of each class that PyTorch
//! wraps later.

use super::{INVALID, Intern, OK, Object, Python, builtins::PYTHON};
use crate::sys;
use std::{
    cell::Cell,
    ffi::{CStr, c_int, c_void},
    mem::{self, transmute},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
    sync::{Mutex, MutexGuard, PoisonError, atomic::Ordering},
};

type Vectorcall = unsafe extern "C" fn(Object, *const Object, usize, Object) -> Object;
type Set = unsafe extern "C" fn(Object, Vectorcall);
type Of = unsafe extern "C" fn(Object) -> Object;
type CallWith = unsafe extern "C" fn(Object, ...) -> Object;
type Current = unsafe extern "C" fn() -> Object;
type Fetch = unsafe extern "C" fn(*mut Object, *mut Object, *mut Object);
type Restore = unsafe extern "C" fn(Object, Object, Object);
type Switch = unsafe extern "C" fn() -> c_int;
type Trace = unsafe extern "C" fn(Object);

/// The bit of a vectorcall's count of arguments that is not one of the count.
const OFFSET: usize = 1 << (usize::BITS - 1);

/// What the reading of counters raised; Python reads them again and reports it.
const RAISED: i64 = -1000;

/// What is watched; the references are owned.
struct Watched {
    is_on: bool,
    /// What calls a function of Python.
    call: Option<Vectorcall>,
    /// `functools.update_wrapper`.
    update: Object,
    /// The code of the functions in which PyTorch wraps steps.
    wrapper: Object,
    /// Called with such a function when there is a new one.
    found: Object,
    /// Called with an optimizer and the answer of `end_step` if that is not 0.
    other: Object,
    /// Dynamo's `set_eval_frame`.
    evaluate: Object,
}

// SAFETY: the objects are only used where the interpreter's lock is held.
unsafe impl Send for Watched {}

static WATCHED: Mutex<Watched> = Mutex::new(Watched {
    is_on: false,
    call: None,
    update: ptr::null_mut(),
    wrapper: ptr::null_mut(),
    found: ptr::null_mut(),
    other: ptr::null_mut(),
    evaluate: ptr::null_mut(),
});

thread_local! {
    /// Optimizer steps that this thread has begun and not ended.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// No holder of this lock calls Python, so none waits for the GIL with it.
fn watched() -> MutexGuard<'static, Watched> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The interpreter's functions for watching.
pub(super) struct Calls {
    function: Object,
    /// Where an instance of the type of functions has its vectorcall.
    slot: usize,
    /// Python 3.12 and newer has a function for setting it, because it remembers which functions have the usual one.
    set: Option<Set>,
    code: Of,
    call: CallWith,
    current: Current,
    fetch: Fetch,
    restore: Restore,
    none: Object,
    /// Python 3.10 and newer has functions that turn the collector off and on.
    collector: Option<(Switch, Switch)>,
    /// Python 3.11 and newer calls no tracer or profiler between these two.
    without_tracers: Option<(Trace, Trace)>,
}

impl Calls {
    /// Returns `None` where Python lays out its types in an unknown way.
    pub(super) fn find(python: &Python) -> Option<Self> {
        let find = |name: &CStr| Some(sys::symbol(name)).filter(|it| !it.is_null());
        let (function, object) = (find(c"PyFunction_Type")?, find(c"PyBaseObject_Type")?);
        // SAFETY: types live as long as the process; each function has the signature that Python documents.
        unsafe {
            let size_of_instances =
                transmute::<Object, Intern>(find(c"PyUnicode_InternFromString")?)(c"__basicsize__".as_ptr());
            let size = |kind: Object| {
                let found = python.found((python.attribute)(kind, size_of_instances))?;
                let size = python.number(found).and_then(|it| usize::try_from(it).ok());
                (python.release)(found);
                size
            };
            // A type begins as an object with a size, then come its name, the sizes of an instance and of an item, the
            // destructor, and the offset of the vectorcall.
            let word = size_of::<usize>();
            let fields = function.cast::<usize>().byte_add(size(object)? + word);
            let (instance, slot) = (*fields.add(1), *fields.add(4));
            if size(function)? != instance || slot == 0 || slot % word != 0 || slot + word > instance {
                return None;
            }
            let collector = find(c"PyGC_Disable").zip(find(c"PyGC_Enable"));
            let tracing = find(c"PyThreadState_EnterTracing").zip(find(c"PyThreadState_LeaveTracing"));
            Some(Self {
                function,
                slot,
                set: find(c"PyFunction_SetVectorcall").map(|it| transmute::<Object, Set>(it)),
                code: transmute::<Object, Of>(find(c"PyFunction_GetCode")?),
                call: transmute::<Object, CallWith>(find(c"PyObject_CallFunctionObjArgs")?),
                current: transmute::<Object, Current>(find(c"PyThreadState_Get")?),
                fetch: transmute::<Object, Fetch>(find(c"PyErr_Fetch")?),
                restore: transmute::<Object, Restore>(find(c"PyErr_Restore")?),
                none: find(c"_Py_NoneStruct")?,
                collector: collector
                    .map(|(off, on)| (transmute::<Object, Switch>(off), transmute::<Object, Switch>(on))),
                without_tracers: tracing
                    .map(|(enter, leave)| (transmute::<Object, Trace>(enter), transmute::<Object, Trace>(leave))),
            })
        }
    }

    /// Returns what calls a function of Python; `None` for any other object.
    ///
    /// # Safety
    /// The object is alive.
    unsafe fn vectorcall(&self, python: &Python, object: Object) -> Option<Vectorcall> {
        // SAFETY: as the caller promises; the slot is within each object of this very type.
        unsafe { (python.kind(object) == self.function).then(|| *object.byte_add(self.slot).cast::<Vectorcall>()) }
    }

    /// Changes what calls a function.
    ///
    /// # Safety
    /// It is a live function of Python.
    unsafe fn set(&self, function: Object, call: Vectorcall) {
        match self.set {
            // SAFETY: as the caller promises.
            Some(set) => unsafe { set(function, call) },
            // SAFETY: as the caller promises, and the slot is within each function.
            None => unsafe { *function.byte_add(self.slot).cast::<Vectorcall>() = call },
        }
    }
}

impl Python {
    /// `begin_watching(update_wrapper, code, found, other, set_eval_frame)`: returns 0, or an error where this Python
    /// cannot be watched.
    ///
    /// # Safety
    /// The arguments are alive.
    pub(super) unsafe fn begin_watching(&self, arguments: &[Object]) -> i64 {
        let (Some(calls), &[update, wrapper, found, other, evaluate]) = (&self.calls, arguments) else {
            return INVALID.into();
        };
        // SAFETY: as the caller promises.
        let of = |it: Object| unsafe { calls.vectorcall(self, it) };
        let (Some(call), Some(usual)) = (of(update), of(found)) else { return INVALID.into() };
        // Something else that watches functions in this way is not disturbed.
        if call as usize != usual as usize || watched().is_on {
            return INVALID.into();
        }
        let now = Watched { is_on: true, call: Some(call), update, wrapper, found, other, evaluate };
        // SAFETY: what is kept lives; what is released was kept here.
        unsafe {
            for it in arguments {
                (self.keep)(*it);
            }
            let before = mem::replace(&mut *watched(), now);
            for it in [before.wrapper, before.found, before.other, before.evaluate] {
                if !it.is_null() {
                    (self.release)(it);
                }
            }
            calls.set(update, wrapped);
        }
        0
    }

    /// `watch(function)`: returns 0, or an error for a function that cannot be watched.
    ///
    /// Nothing is kept of it, as it may belong to a class that the job drops. So it stays watched for as long as it
    /// lives, and [`stepped`] does nothing more for it once watching has ended.
    ///
    /// # Safety
    /// The arguments are alive.
    pub(super) unsafe fn watch(&self, arguments: &[Object]) -> i64 {
        let (Some(calls), &[function]) = (&self.calls, arguments) else { return INVALID.into() };
        // SAFETY: as the caller promises.
        let Some(now) = (unsafe { calls.vectorcall(self, function) }) else { return INVALID.into() };
        if now as usize == stepped as *const () as usize {
            return 0;
        }
        if watched().call.is_none_or(|it| it as usize != now as usize) {
            return INVALID.into();
        }
        // SAFETY: it is a function.
        unsafe { calls.set(function, stepped) };
        0
    }

    /// `end_watching()`: from now on nothing happens after a step.
    pub(super) fn end_watching(&self) -> i64 {
        let (update, call) = {
            let mut watched = watched();
            let is_on = mem::replace(&mut watched.is_on, false);
            (watched.update, watched.call.filter(|_| is_on))
        };
        if let (Some(calls), Some(call)) = (&self.calls, call) {
            // SAFETY: it was kept since it was watched.
            unsafe {
                calls.set(update, call);
                (self.release)(update);
            }
        }
        0
    }

    /// Calls a function of the probe's where neither tracers nor Dynamo see it; null if it has raised.
    ///
    /// # Safety
    /// The objects are alive, and no error is set.
    unsafe fn aside(&self, calls: &Calls, function: Object, one: Object, other: Object) -> Object {
        let (evaluate, end) = (watched().evaluate, ptr::null_mut::<c_void>());
        let mut raised = [end; 3];
        let [kind, value, trace] = &mut raised;
        // SAFETY: as the caller promises; what is called is kept until another probe starts, which no step does.
        unsafe {
            let thread = (calls.current)();
            if let Some((enter, _)) = calls.without_tracers {
                enter(thread);
            }
            let before = self.found((calls.call)(evaluate, calls.none, end));
            let result = (calls.call)(function, one, other, end);
            if let Some(before) = before {
                (calls.fetch)(kind, value, trace);
                if let Some(it) = self.found((calls.call)(evaluate, before, end)) {
                    (self.release)(it);
                }
                (calls.restore)(*kind, *value, *trace);
                (self.release)(before);
            }
            if let Some((_, leave)) = calls.without_tracers {
                leave(thread);
            }
            result
        }
    }

    /// Ends a step; returns false if the job's own signal handler has raised meanwhile.
    ///
    /// # Safety
    /// The optimizer is alive, and no error is set.
    unsafe fn after_step(&self, calls: &Calls, optimizer: Object) -> bool {
        // SAFETY: as the caller promises.
        let answer = unsafe { self.end_step(&[optimizer]) };
        if answer == Some(OK.into()) {
            return true;
        }
        let other = watched().other;
        // SAFETY: likewise; the number is ours.
        unsafe {
            if answer.is_none() {
                (self.forget)();
            }
            let answer = (self.answer)(answer.unwrap_or(RAISED));
            if answer.is_null() {
                (self.forget)();
                return true;
            }
            let result = self.aside(calls, other, optimizer, answer);
            (self.release)(answer);
            if result.is_null() {
                return false;
            }
            (self.release)(result);
        }
        true
    }
}

/// Calls an optimizer's step, and ends the step that it is.
unsafe extern "C" fn stepped(callable: Object, arguments: *const Object, count: usize, names: Object) -> Object {
    let Some(call) = watched().call else { return ptr::null_mut() };
    let depth = DEPTH.get();
    DEPTH.set(depth + 1);
    // SAFETY: the arguments are those that the interpreter has for this call.
    let result = unsafe { call(callable, arguments, count, names) };
    DEPTH.set(depth);
    let is_step = !result.is_null() && depth == 0 && count & !OFFSET > 0;
    // SAFETY: the caller holds its arguments until this returns.
    unsafe { then(result, is_step, |python, calls| python.after_step(calls, *arguments)) }
}

/// Calls `functools.update_wrapper`, and reports a function in which PyTorch has wrapped a step.
unsafe extern "C" fn wrapped(callable: Object, arguments: *const Object, count: usize, names: Object) -> Object {
    let (call, wrapper, found) = {
        let watched = watched();
        (watched.call, watched.wrapper, watched.found)
    };
    let Some(call) = call else { return ptr::null_mut() };
    // SAFETY: the arguments are those that the interpreter has for this call.
    let result = unsafe { call(callable, arguments, count, names) };
    let has_argument = !result.is_null() && count & !OFFSET > 0;
    // SAFETY: the caller holds its arguments until this returns.
    unsafe {
        then(result, has_argument, |python, calls| {
            let function = *arguments;
            if python.kind(function) != calls.function || (calls.code)(function) != wrapper {
                return true;
            }
            let done = python.aside(calls, found, function, calls.none);
            let is_done = !done.is_null();
            if is_done {
                (python.release)(done);
            }
            is_done
        })
    }
}

/// Does something after a call, if it is due and watching is on. Returns the result of the call, or null if the job's
/// own signal handler raised meanwhile.
///
/// # Safety
/// The caller holds the GIL, and no error is set if the result is one.
unsafe fn then(result: Object, is_due: bool, body: impl FnOnce(&Python, &Calls) -> bool) -> Object {
    if !is_due || !watched().is_on {
        return result;
    }
    // SAFETY: nothing is watched before the pointer was set, and it is never freed.
    let Some(python) = (unsafe { PYTHON.load(Ordering::Acquire).as_ref() }) else { return result };
    let Some(calls) = &python.calls else { return result };
    // What is allocated here makes no collection due, so that none of the job's finalizers runs here.
    // SAFETY: as the caller promises.
    let was_on = calls.collector.filter(|(off, _)| unsafe { off() } != 0);
    let is_done = catch_unwind(AssertUnwindSafe(|| body(python, calls))).unwrap_or(true);
    // SAFETY: likewise; the result is this function's own.
    unsafe {
        if let Some((_, on)) = was_on {
            on();
        }
        if is_done {
            return result;
        }
        (python.release)(result);
    }
    ptr::null_mut()
}
