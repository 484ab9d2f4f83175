//! The end of a plain training step in one call from Python: recognises the optimizer, counts, reads and pushes.
//!
//! `_steps.py` decides what a step is. While one optimizer is all there is, it arms this file with that optimizer's key
//! and the number of its latest step. [`Python::end_step`] then ends further steps of the same key by itself, and
//! leaves everything else to Python. `disarm` takes that back, from any thread.

use super::{INVALID, Object, Python, Row};
use crate::wire::Edge;
use std::{
    ptr,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The result for an optimizer that Python has to handle.
const NOT_ARMED: i64 = 2;

/// Most devices that are read without Python.
const DEVICES: usize = 64;

struct Armed {
    is_on: bool,
    /// Addresses of the optimizer and of its first parameter.
    key: [usize; 2],
    /// The number of the latest step.
    step: u64,
    mask: u64,
    /// `torch._C._cuda_memoryStats` and its arguments for each device, as owned references.
    stats: Object,
    devices: Vec<(u32, Object)>,
}

// SAFETY: the objects are only used where the interpreter's lock is held.
unsafe impl Send for Armed {}

static ARMED: Mutex<Armed> =
    Mutex::new(Armed { is_on: false, key: [0; 2], step: 0, mask: 0, stats: ptr::null_mut(), devices: Vec::new() });

/// No holder of this lock calls Python, so none waits for the GIL with it.
fn armed() -> MutexGuard<'static, Armed> {
    ARMED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts from 0 again. References are kept until the next [`Python::arm`]: to let go of them takes the interpreter's
/// lock.
pub(in crate::abi) fn reset() {
    let mut armed = armed();
    (armed.is_on, armed.step) = (false, 0);
}

impl Python {
    /// `arm(optimizer_id, parameter_id, step, mask, stats, (device,), …)`: returns 0, or an error for invalid
    /// arguments.
    ///
    /// # Safety
    /// The arguments are alive.
    pub(super) unsafe fn arm(&self, arguments: &[Object]) -> i64 {
        let [optimizer, parameter, step, mask, stats, devices @ ..] = arguments else { return INVALID.into() };
        // SAFETY: as the caller promises.
        let number = |it: &Object| unsafe { self.number(*it) };
        let device = |it: &Object| {
            // SAFETY: as the caller promises; anything but a tuple has no item, and `found` clears the error.
            let number = unsafe { self.found((self.in_tuple)(*it, 0)).and_then(|item| self.number(item)) };
            Some((u32::try_from(number?).ok()?, *it))
        };
        let key = [number(optimizer), number(parameter)].map(|it| it.and_then(|value| usize::try_from(value).ok()));
        let devices = devices.iter().map(device).collect::<Option<Vec<_>>>().filter(|it| it.len() <= DEVICES);
        let ([Some(optimizer), Some(parameter)], Some(step), Some(mask), Some(devices)) =
            (key, number(step), number(mask), devices)
        else {
            return INVALID.into();
        };
        let now = Armed { is_on: true, key: [optimizer, parameter], step, mask, stats: *stats, devices };
        // SAFETY: what is kept lives; what is released was kept here.
        unsafe {
            now.devices.iter().map(|it| it.1).chain([now.stats]).for_each(|it| (self.keep)(it));
            let before = std::mem::replace(&mut *armed(), now);
            before.devices.iter().map(|it| it.1).chain([before.stats]).for_each(|it| (self.release)(it));
        }
        0
    }

    /// `disarm()`: returns the number of the latest step that ended here.
    pub(super) fn disarm() -> i64 {
        let mut armed = armed();
        armed.is_on = false;
        i64::try_from(armed.step).unwrap_or(i64::MAX)
    }

    /// `end_step(optimizer)`: returns the result of `push_row`, or [`NOT_ARMED`] if it did nothing. Passes on
    /// exceptions of PyTorch's counters.
    ///
    /// # Safety
    /// The argument is alive.
    pub(super) unsafe fn end_step(&self, arguments: &[Object]) -> Option<i64> {
        let [optimizer] = arguments else { return Some(NOT_ARMED) };
        // SAFETY: as the caller promises.
        let parameter = unsafe { self.first_parameter(*optimizer) };
        let step = {
            let mut armed = armed();
            if !armed.is_on || armed.key != [optimizer.addr(), parameter] {
                return Some(NOT_ARMED);
            }
            armed.step += 1;
            armed.step
        };
        let mut answer = 0;
        for place in 0..DEVICES {
            let (stats, device, argument, mask) = {
                let armed = armed();
                let Some((device, argument)) = armed.devices.get(place) else { break };
                // SAFETY: it is kept as long as it is armed.
                unsafe { (self.keep)(*argument) };
                (armed.stats, *device, *argument, armed.mask)
            };
            let row = Row { device, edge: Edge::Step, steps: step, mask, beside: Default::default() };
            // SAFETY: the function is a builtin of a module that lives as long as the process; the tuple is ours by the
            // reference above, and so is the result.
            unsafe {
                let counters = (self.call)(stats, argument);
                (self.release)(argument);
                if counters.is_null() {
                    return None;
                }
                answer = self.push(counters, &row);
                (self.release)(counters);
            }
            if answer == INVALID {
                break;
            }
        }
        Some(answer.into())
    }

    /// Returns the address of an optimizer's first parameter; 0 if its first group has none, or if the optimizer's own
    /// code would have to run.
    ///
    /// # Safety
    /// The object is alive.
    unsafe fn first_parameter(&self, optimizer: Object) -> usize {
        // SAFETY: as the caller promises; each container is alive while it is used.
        unsafe {
            let Some(groups) = self.own(optimizer, self.param_groups) else { return 0 };
            let parameters = self.found((self.in_list)(groups, 0)).and_then(|it| self.item(it, self.params));
            let first = parameters.and_then(|it| self.found((self.in_list)(it, 0)));
            (self.release)(groups);
            first.map_or(0, <*mut _>::addr)
        }
    }
}
