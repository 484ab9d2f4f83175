//! Lists the containers that Python's collector got latest, without those before them: `gc.get_objects` lists a whole
//! generation, which takes a tenth of a second where the job has turned the collector off.
//!
//! `CPython` up to 3.13 keeps the containers of a generation in a circular list through two words before each, in the
//! order in which they came; the list's head is in the interpreter's state (`Include/internal/pycore_gc.h`). A walk
//! backwards from a new container meets the latest first. It ends at the head, and wherever two neighbours do not name
//! each other. The caller has made sure that Python is one of these, with its lock.

use super::Object;
use crate::sys;
use std::{mem::transmute, ptr};

type NewList = unsafe extern "C" fn(isize) -> Object;
type Append = unsafe extern "C" fn(Object, Object) -> i32;
type Interpreter = unsafe extern "C" fn() -> Object;

/// `PyGC_Head`: addresses of the next and of the previous one, with flags in the lowest bits.
#[repr(C)]
struct Head {
    next: usize,
    previous: usize,
}

const FLAGS: usize = 3;

/// The bytes from an interpreter's state on, among which the heads of its generations are. Up to 3.10 it is smaller and
/// allocated, so that a container may be there too: the walk ends at it.
const STATE: usize = 1 << 16;

/// Up to so many containers are younger than the given one: those of the call itself.
const YOUNGER: usize = 64;

/// Returns a new list of at most `most` containers, the latest first, from `newest` on, which was just made; null
/// without Python. Empty if the collector's list is not as described.
///
/// # Safety
/// The caller holds the GIL. Python is `CPython` 3.9 to 3.13 with 64 bits, and `newest` is a container that it tracks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpuwatch_young(newest: Object, most: u32) -> Object {
    let names = [c"PyList_New", c"PyList_Append", c"PyInterpreterState_Get"];
    let [list, append, interpreter] = names.map(sys::symbol);
    if list.is_null() || append.is_null() || interpreter.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: the signatures are those of the stable ABI; the caller promises the rest. Each address that is read is
    // that of a container's header: the neighbour of one, which named it in turn.
    unsafe {
        let (list, append) = (transmute::<Object, NewList>(list), transmute::<Object, Append>(append));
        let state = transmute::<Object, Interpreter>(interpreter)().addr();
        let is_head = |it: usize| (state..state.saturating_add(STATE)).contains(&it);
        let at = |address: usize| newest.with_addr(address).cast::<Head>();
        let size = size_of::<Head>();
        let found = list(0);
        let first = newest.addr() - size;
        // The list has to lead to the interpreter's state within a few containers.
        let mut end = first;
        let is_list = (0..YOUNGER).any(|_| {
            let next = (*at(end)).next & !FLAGS;
            let is_mutual = next != 0 && (*at(next)).previous & !FLAGS == end;
            end = if is_mutual { next } else { end };
            is_mutual && is_head(next)
        });
        let mut here = first;
        for _ in 0..if is_list { most } else { 0 } {
            let before = (*at(here)).previous & !FLAGS;
            if before == 0 || is_head(before) || (*at(before)).next & !FLAGS != here {
                break;
            }
            // A list that cannot grow is as long as it is.
            if append(found, newest.with_addr(before + size)) != 0 {
                break;
            }
            here = before;
        }
        found
    }
}
