//! The counters of an allocator: one table for the wire, the C ABI, PyTorch's reader, exports, screens and documents.

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

/// One counter.
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    /// Its name on the wire, in exports and in reports.
    pub name: &'static str,
    /// Its place in the C ABI's array; it never changes.
    pub place: usize,
    /// What it counts.
    pub meaning: &'static str,
    /// Where screens list it.
    pub group: Group,
    /// Its unit.
    pub unit: Unit,
    /// Its label on screens.
    pub label: Label,
    /// Its name in PyTorch.
    pub torch: Torch,
    /// Whether PyTorch's backend `cudaMallocAsync` and every other accelerator's allocator count it; these fill others
    /// with zeros.
    pub is_async: bool,
}

/// Counters that screens list together, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Memory of live allocations.
    Live,
    /// Memory that the allocator reserved.
    Held,
    /// Peaks.
    Peak,
    /// Host memory.
    Host,
    /// Counts of items and calls.
    Number,
}

impl Group {
    /// All of them, in order.
    pub const ALL: [Self; 5] = [Self::Live, Self::Held, Self::Peak, Self::Host, Self::Number];
}

/// The unit of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A size.
    Bytes,
    /// A number of items or calls.
    Count,
}

/// The label of a counter on screens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// Always listed; `–` if it is unknown.
    Always(&'static str),
    /// Listed if it is known. Older probes do not send it, and their recordings look as before.
    IfKnown(&'static str),
    /// Not listed; other figures include it.
    None,
}

/// Where PyTorch has a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Torch {
    /// In `torch.cuda.memory_stats()`, under this name.
    Stats(&'static str),
    /// The sum of this raw counter over all private pools.
    Pools(&'static str),
    /// In `torch.cuda.host_memory_stats()`, whose names differ between releases (`_native.py`).
    Host,
    /// Nowhere: the probe adds it itself.
    None,
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident = $place:literal { $($field:ident: $value:expr),+ $(,)? })+) => {
        /// The counters of an allocator. `None` means that the backend lacks it.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
        #[cfg_attr(feature = "serde", serde(default))]
        pub struct Counters {
            $($(#[doc = $doc])+
            #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
            pub $name: Option<u64>,)+
        }

        impl Counters {
            /// Every counter, in the order of places.
            pub const TABLE: &'static [Counter] = &[$(Counter {
                name: stringify!($name),
                place: $place,
                meaning: concat!($($doc),+).trim_ascii(),
                $($field: $value,)+
            }),+];

            /// Names on the wire; a counter's place here is its place in the C ABI's array.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),+];

            /// Returns the values in the order of [`Self::NAMES`].
            pub fn values(&self) -> [Option<u64>; Self::NAMES.len()] {
                [$(self.$name),+]
            }

            /// Returns the counters with these values, in the order of [`Self::NAMES`].
            pub fn from_values(values: &[Option<u64>; Self::NAMES.len()]) -> Self {
                Self { $($name: values[$place],)+ }
            }

            /// Returns the counter at a place in the order of [`Self::NAMES`], to be set.
            pub fn at_mut(&mut self, place: usize) -> Option<&mut Option<u64>> {
                match place {
                    $($place => Some(&mut self.$name),)+
                    _ => None,
                }
            }

            /// Takes from others what is unknown here.
            pub fn complete(&mut self, others: &Self) {
                $(self.$name = self.$name.or(others.$name);)+
            }
        }
    };
}

counters! {
    /// Requested bytes, before rounding; falls only when the block's last stream is done.
    requested = 0 {
        group: Group::Live,
        unit: Unit::Bytes,
        label: Label::Always("requested"),
        torch: Torch::Stats("requested_bytes.all.current"),
        is_async: false,
    }
    /// Bytes of live allocations, rounded.
    allocated = 1 {
        group: Group::Live,
        unit: Unit::Bytes,
        label: Label::Always("allocated"),
        torch: Torch::Stats("allocated_bytes.all.current"),
        is_async: true,
    }
    /// Allocated, and freed while a stream still uses it.
    active = 2 {
        group: Group::Live,
        unit: Unit::Bytes,
        label: Label::Always("active"),
        torch: Torch::Stats("active_bytes.all.current"),
        is_async: true,
    }
    /// Free parts of split segments, which cannot be released.
    inactive_split = 3 {
        group: Group::Live,
        unit: Unit::Bytes,
        label: Label::None,
        torch: Torch::Stats("inactive_split_bytes.all.current"),
        is_async: false,
    }
    /// Bytes reserved from the driver.
    reserved = 4 {
        group: Group::Held,
        unit: Unit::Bytes,
        label: Label::Always("reserved"),
        torch: Torch::Stats("reserved_bytes.all.current"),
        is_async: true,
    }
    /// Highest `allocated` since the job last reset it.
    allocated_peak = 5 {
        group: Group::Peak,
        unit: Unit::Bytes,
        label: Label::Always("peak alloc."),
        torch: Torch::Stats("allocated_bytes.all.peak"),
        is_async: true,
    }
    /// Highest `reserved` since the job last reset it.
    reserved_peak = 6 {
        group: Group::Peak,
        unit: Unit::Bytes,
        label: Label::Always("peak reserved"),
        torch: Torch::Stats("reserved_bytes.all.peak"),
        is_async: true,
    }
    /// Live allocations, a count.
    blocks = 7 {
        group: Group::Number,
        unit: Unit::Count,
        label: Label::Always("blocks"),
        torch: Torch::Stats("allocation.all.current"),
        is_async: false,
    }
    /// Segments from the driver, a count.
    segments = 8 {
        group: Group::Number,
        unit: Unit::Count,
        label: Label::Always("segments"),
        torch: Torch::Stats("segment.all.current"),
        is_async: false,
    }
    /// Times that the cache was flushed to satisfy a request.
    retries = 9 {
        group: Group::Number,
        unit: Unit::Count,
        label: Label::Always("retries"),
        torch: Torch::Stats("num_alloc_retries"),
        is_async: false,
    }
    /// Out-of-memory errors raised.
    ooms = 10 {
        group: Group::Number,
        unit: Unit::Count,
        label: Label::Always("ooms"),
        torch: Torch::Stats("num_ooms"),
        is_async: false,
    }
    /// Calls that allocated memory from the driver.
    device_allocs = 11 {
        group: Group::Number,
        unit: Unit::Count,
        label: Label::Always("cudaMallocs"),
        torch: Torch::Stats("num_device_alloc"),
        is_async: false,
    }
    /// Calls that released memory to the driver.
    device_frees = 12 {
        group: Group::Number,
        unit: Unit::Count,
        label: Label::Always("cudaFrees"),
        torch: Torch::Stats("num_device_free"),
        is_async: false,
    }
    /// Bytes reserved by private pools (CUDA graphs).
    private_pools = 13 {
        group: Group::Held,
        unit: Unit::Bytes,
        label: Label::Always("graph pools"),
        torch: Torch::Pools("reserved_bytes_by_private_pools"),
        is_async: false,
    }
    /// Pinned host memory in use.
    pinned_active = 14 {
        group: Group::Host,
        unit: Unit::Bytes,
        label: Label::Always("pinned in use"),
        torch: Torch::Host,
        is_async: false,
    }
    /// Pinned host memory reserved, in use or cached.
    pinned_reserved = 15 {
        group: Group::Host,
        unit: Unit::Bytes,
        label: Label::Always("pinned held"),
        torch: Torch::Host,
        is_async: false,
    }
    /// Free bytes of the device, as CUDA reports them in this process; the probe adds it once a second.
    device_free = 16 {
        group: Group::Held,
        unit: Unit::Bytes,
        label: Label::None,
        torch: Torch::None,
        is_async: false,
    }
    /// Total bytes of the device, as CUDA reports them in this process; the probe adds it once a second.
    device_total = 17 {
        group: Group::Held,
        unit: Unit::Bytes,
        label: Label::None,
        torch: Torch::None,
        is_async: false,
    }
    /// Resident host memory of the process; the probe adds it.
    rss = 18 {
        group: Group::Host,
        unit: Unit::Bytes,
        label: Label::Always("host memory"),
        torch: Torch::None,
        is_async: false,
    }
    /// Gradients and optimizer's state of parameters that joined an optimizer after its first step, in bytes; the probe
    /// adds it once a second.
    joined = 19 {
        group: Group::Live,
        unit: Unit::Bytes,
        label: Label::IfKnown("of unfrozen"),
        torch: Torch::None,
        is_async: false,
    }
    /// The live blocks of them.
    joined_blocks = 20 {
        group: Group::Number,
        unit: Unit::Count,
        label: Label::None,
        torch: Torch::None,
        is_async: false,
    }
}

impl Counters {
    /// Returns a counter's place in the C ABI's array, or the number of counters for an unknown name.
    pub const fn place(name: &str) -> usize {
        let mut place = 0;
        while place < Self::NAMES.len() && !is_same(Self::NAMES[place].as_bytes(), name.as_bytes()) {
            place += 1;
        }
        if place < Self::NAMES.len() { place } else { usize::MAX }
    }

    /// Returns the counters that a backend of PyTorch fills, a bit for each place. Intel's (`xpu`) fills what it has.
    pub fn of_torch(backend: &str) -> u64 {
        let has_no_zeros = matches!(backend, "native" | "xpu");
        let is_filled = |it: &&Counter| it.torch != Torch::None && (it.is_async || has_no_zeros);
        Self::TABLE.iter().filter(is_filled).fold(0, |bits, it| bits | 1 << it.place)
    }
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

const _: () = {
    let mut place = 0;
    while place < Counters::TABLE.len() {
        assert!(Counters::TABLE[place].place == place, "the table is in the order of places");
        place += 1;
    }
};
