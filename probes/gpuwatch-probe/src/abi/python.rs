//! Reads rows directly from PyTorch's nested dictionary of counters, by a builtin function for the interpreter.
//!
//! Reading the same values in Python and packing them for a foreign call takes three times as long, mostly because the
//! caches are cold after a training step. It uses calls of Python that it finds in the process, all but one of its
//! stable ABI (`_PyType_Lookup`); the caller holds the GIL. [`step`] adds the end of a plain training step in one call,
//! and [`watch`] what calls it.

mod builtins;
mod containers;
mod step;
mod watch;

pub use builtins::gpuwatch_python;
pub use containers::gpuwatch_young;
pub(super) use step::reset;
use watch::Calls;

use super::{INVALID, OK, local};
use crate::{
    reading::{DEVICE_FREE, DEVICE_TOTAL, PARTS, Reading},
    sys,
    wire::{Counter, Counters, Edge, Torch},
};
use std::{
    ffi::{CStr, CString, c_char, c_int, c_longlong, c_void},
    mem::transmute,
    ptr,
};

type Object = *mut c_void;
type Get = unsafe extern "C" fn(Object, Object) -> Object;
type Next = unsafe extern "C" fn(Object, *mut isize, *mut Object, *mut Object) -> c_int;
type Integer = unsafe extern "C" fn(Object) -> u64;
type Fault = unsafe extern "C" fn() -> Object;
type Forget = unsafe extern "C" fn();
type Answer = unsafe extern "C" fn(c_longlong) -> Object;
type Attribute = unsafe extern "C" fn(Object, Object) -> Object;
type TypeOf = unsafe extern "C" fn(Object) -> Object;
type At = unsafe extern "C" fn(Object, isize) -> Object;
type Call = unsafe extern "C" fn(Object, Object) -> Object;
type Count = unsafe extern "C" fn(Object);
type Intern = unsafe extern "C" fn(*const c_char) -> Object;
type Function = unsafe extern "C" fn(Object, *const Object, isize) -> Object;
type New = unsafe extern "C" fn(*const Method, Object, Object) -> Object;

/// `PyMethodDef`.
#[repr(C)]
struct Method {
    name: *const c_char,
    function: Function,
    flags: c_int,
    doc: *const c_char,
}

/// The return value for a row if a viewer requests sites.
const REQUESTED: i32 = 1;

/// Arguments come as an array.
const METH_FASTCALL: c_int = 0x80;

/// Places of the counters that `push_row` gets in addition to the dictionary.
const BESIDE: [usize; 9] = [
    Counters::place("pinned_active"),
    Counters::place("pinned_reserved"),
    Counters::place("joined"),
    Counters::place("joined_blocks"),
    PARTS[0],
    PARTS[1],
    PARTS[2],
    DEVICE_FREE,
    DEVICE_TOTAL,
];

/// The interpreter's functions and the keys, which live as long as the process.
struct Python {
    get: Get,
    next: Next,
    integer: Integer,
    fault: Fault,
    forget: Forget,
    answer: Answer,
    attribute: Attribute,
    own_attribute: Attribute,
    in_class: Attribute,
    member: Object,
    type_of: TypeOf,
    in_list: At,
    in_tuple: At,
    call: Call,
    keep: Count,
    release: Count,
    all: Object,
    current: Object,
    pools: Vec<(Object, usize)>,
    param_groups: Object,
    params: Object,
    lookups: Vec<Lookup>,
    calls: Option<Calls>,
}

/// A key to look up in the dictionary found one level above. Small, because the caches are cold.
struct Lookup {
    key: Object,
    level: u8,
    /// Its counter; `None` for a dictionary.
    place: Option<u8>,
}

/// Levels of dictionaries: names of `torch.cuda.memory_stats` have up to three keys.
const LEVELS: usize = 3;

/// Returns the lookups for all counters, in the order that a row makes them, with each dictionary once.
fn lookups(key: impl Fn(&str) -> Option<Object>) -> Option<Vec<Lookup>> {
    let named = |it: &'static Counter| if let Torch::Stats(name) = it.torch { Some((name, it.place)) } else { None };
    let mut figures: Vec<_> = Counters::TABLE.iter().filter_map(named).collect();
    // Counters of one dictionary become neighbours.
    figures.sort_unstable();
    let mut lookups = Vec::new();
    let mut before: Vec<&str> = Vec::new();
    for (name, place) in figures {
        let keys: Vec<&str> = name.split('.').collect();
        let shared = keys.iter().zip(&before).take_while(|(one, other)| one == other).count();
        for (level, text) in (0_u8..).zip(&keys).take(LEVELS).skip(shared) {
            let place = if usize::from(level) + 1 == keys.len() { u8::try_from(place).ok() } else { None };
            lookups.push(Lookup { key: key(text)?, level, place });
        }
        before = keys;
    }
    Some(lookups)
}

fn put(reading: &mut Reading, place: usize, value: Option<u64>) {
    if let Some(value) = value {
        reading.put(place, value);
    }
}

impl Python {
    /// Returns `None` if the process has no known Python.
    fn find() -> Option<Self> {
        let find = |name: &CStr| Some(sys::symbol(name)).filter(|it| !it.is_null());
        // SAFETY: each is the function of that name in Python's stable ABI, whose signature never changes.
        unsafe {
            let intern = transmute::<Object, Intern>(find(c"PyUnicode_InternFromString")?);
            let key = |text: &str| {
                let text = CString::new(text).ok()?;
                Some(intern(text.as_ptr())).filter(|it| !it.is_null())
            };
            let pool =
                |it: &'static Counter| if let Torch::Pools(name) = it.torch { Some((name, it.place)) } else { None };
            let pools = Counters::TABLE.iter().filter_map(pool);
            let mut python = Self {
                get: transmute::<Object, Get>(find(c"PyDict_GetItemWithError")?),
                next: transmute::<Object, Next>(find(c"PyDict_Next")?),
                integer: transmute::<Object, Integer>(find(c"PyLong_AsUnsignedLongLong")?),
                fault: transmute::<Object, Fault>(find(c"PyErr_Occurred")?),
                forget: transmute::<Object, Forget>(find(c"PyErr_Clear")?),
                answer: transmute::<Object, Answer>(find(c"PyLong_FromLongLong")?),
                attribute: transmute::<Object, Attribute>(find(c"PyObject_GetAttr")?),
                own_attribute: transmute::<Object, Attribute>(find(c"PyObject_GenericGetAttr")?),
                in_class: transmute::<Object, Attribute>(find(c"_PyType_Lookup")?),
                member: find(c"PyMemberDescr_Type")?,
                type_of: transmute::<Object, TypeOf>(find(c"PyObject_Type")?),
                in_list: transmute::<Object, At>(find(c"PyList_GetItem")?),
                in_tuple: transmute::<Object, At>(find(c"PyTuple_GetItem")?),
                call: transmute::<Object, Call>(find(c"PyObject_CallObject")?),
                keep: transmute::<Object, Count>(find(c"Py_IncRef")?),
                release: transmute::<Object, Count>(find(c"Py_DecRef")?),
                all: key("all")?,
                current: key("current")?,
                pools: pools.map(|(name, place)| Some((key(name)?, place))).collect::<Option<_>>()?,
                param_groups: key("param_groups")?,
                params: key("params")?,
                lookups: lookups(key)?,
                calls: None,
            };
            python.calls = Calls::find(&python);
            Some(python)
        }
    }

    /// Returns a dictionary's value for a key; `None` also if it is not a dictionary.
    ///
    /// # Safety
    /// The object is alive. The result lives as long as the dictionary has it.
    unsafe fn item(&self, dictionary: Object, key: Object) -> Option<Object> {
        // SAFETY: as the caller promises.
        unsafe { self.found((self.get)(dictionary, key)) }
    }

    /// Returns the result of a call; clears the error if there is none.
    ///
    /// # Safety
    /// The caller holds the GIL.
    unsafe fn found(&self, object: Object) -> Option<Object> {
        if object.is_null() {
            // SAFETY: as the caller promises.
            unsafe { (self.forget)() };
            return None;
        }
        Some(object)
    }

    /// Returns an object's type, which lives as long as the object.
    ///
    /// # Safety
    /// The object is alive.
    unsafe fn kind(&self, object: Object) -> Object {
        // SAFETY: as the caller promises.
        unsafe {
            let kind = (self.type_of)(object);
            (self.release)(kind);
            kind
        }
    }

    /// Returns a new reference to an attribute that an instance itself has; `None` if code of its class would run.
    ///
    /// # Safety
    /// The object is alive.
    unsafe fn own(&self, object: Object, name: Object) -> Option<Object> {
        // SAFETY: as the caller promises; a class holds what is found in it.
        unsafe {
            let in_class = (self.in_class)(self.kind(object), name);
            let is_plain = in_class.is_null() || self.kind(in_class) == self.member;
            if is_plain { self.found((self.own_attribute)(object, name)) } else { None }
        }
    }

    /// Returns a 64-bit number; `None` for anything else, negative or larger numbers.
    ///
    /// # Safety
    /// The object is alive.
    unsafe fn number(&self, object: Object) -> Option<u64> {
        // SAFETY: as the caller promises.
        unsafe {
            let number = (self.integer)(object);
            if number == u64::MAX && !(self.fault)().is_null() {
                (self.forget)();
                return None;
            }
            Some(number)
        }
    }

    /// Fills a row with the existing counters; false without any.
    ///
    /// # Safety
    /// The object is alive, and no thread changes it meanwhile.
    unsafe fn read(&self, stats: Object, reading: &mut Reading) -> bool {
        let mut above = [Some(stats); LEVELS + 1];
        // SAFETY: every object is the caller's, or is held by one that is.
        unsafe {
            for it in &self.lookups {
                let level = usize::from(it.level);
                let found = above[level].and_then(|dictionary| self.item(dictionary, it.key));
                match it.place {
                    Some(place) => put(reading, place.into(), found.and_then(|it| self.number(it))),
                    None => above[level + 1] = found,
                }
            }
            for (key, place) in &self.pools {
                put(reading, *place, self.item(stats, *key).and_then(|it| self.sum(it)));
            }
        }
        reading.present != 0
    }

    /// Returns the total bytes held by private pools.
    ///
    /// # Safety
    /// The object is a live dictionary, and no thread changes it meanwhile.
    unsafe fn sum(&self, pools: Object) -> Option<u64> {
        let (mut at, mut pool, mut sum) = (0, ptr::null_mut(), 0_u64);
        // SAFETY: as the caller promises; the values found are borrowed from it.
        unsafe {
            while (self.next)(pools, &raw mut at, ptr::null_mut(), &raw mut pool) != 0 {
                let now = self.item(pool, self.all).and_then(|it| self.item(it, self.current))?;
                sum = sum.saturating_add(self.number(now)?);
            }
        }
        Some(sum)
    }

    /// Pushes one row: counters, device, step, edge, mask of valid counters, pinned bytes in use and held, bytes and
    /// blocks of parameters that joined an optimizer, bytes of weights, gradients and optimizer state, and free and
    /// total bytes of the device.
    ///
    /// # Safety
    /// The arguments are alive.
    unsafe fn push_row(&self, arguments: &[Object]) -> i64 {
        let [stats, numbers @ ..] = arguments else { return INVALID.into() };
        // SAFETY: as the caller promises.
        let number = |at: usize| numbers.get(at).and_then(|it| unsafe { self.number(*it) });
        let (Some(device), Some(steps), Some(edge), Some(mask)) = (number(0), number(1), number(2), number(3)) else {
            return INVALID.into();
        };
        let (Ok(device), Some(edge)) = (u32::try_from(device), super::edge(edge)) else { return INVALID.into() };
        let beside = std::array::from_fn(|it| number(4 + it));
        let row = Row { device, edge, steps, mask, beside };
        // SAFETY: as the caller promises.
        unsafe { self.push(*stats, &row) }.into()
    }

    /// Reads and pushes one row.
    ///
    /// # Safety
    /// The object is alive.
    unsafe fn push(&self, stats: Object, row: &Row) -> i32 {
        let mut reading = Reading { device: row.device, edge: row.edge, steps: row.steps, ..Reading::default() };
        // SAFETY: as the caller promises; the GIL keeps other threads away.
        if !unsafe { self.read(stats, &mut reading) } {
            return INVALID;
        }
        reading.present &= row.mask;
        for (place, value) in BESIDE.into_iter().zip(row.beside) {
            put(&mut reading, place, value);
        }
        let local = local();
        let code = local.with_probe(|probe| probe.push(&reading));
        if code == OK && local.probe().is_some_and(|it| it.sites_request() != 0) { REQUESTED } else { code }
    }
}

/// The parts of a row apart from the dictionary's counters.
struct Row {
    device: u32,
    edge: Edge,
    steps: u64,
    /// Valid counters.
    mask: u64,
    /// What is not in the dictionary.
    beside: [Option<u64>; BESIDE.len()],
}
