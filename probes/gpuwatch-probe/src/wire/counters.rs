//! What an allocator counts, and the order of the C ABI's array.

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident = $index:literal,)*) => {
        /// What an allocator counts. Absent means that the backend does not have it.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
        #[cfg_attr(feature = "serde", serde(default))]
        pub struct Counters {
            $($(#[$doc])*
            #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
            pub $name: Option<u64>,)*
        }

        impl Counters {
            /// Names on the wire; a counter's place here is its place in the C ABI's array.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// Values in the order of [`Self::NAMES`].
            pub fn values(&self) -> [Option<u64>; Self::NAMES.len()] {
                [$(self.$name),*]
            }

            /// The counters with these values, in the order of [`Self::NAMES`].
            pub fn from_values(values: &[Option<u64>; Self::NAMES.len()]) -> Self {
                Self { $($name: values[$index],)* }
            }
        }
    };
}

counters! {
    /// Bytes the job asked for, before rounding; falls only when a block's last stream is done.
    requested = 0,
    /// Bytes of live allocations, rounded.
    allocated = 1,
    /// Allocated, and freed but still awaited by a stream.
    active = 2,
    /// Free parts of split segments: cannot be given back.
    inactive_split = 3,
    /// Bytes the allocator holds from the driver.
    reserved = 4,
    /// Highest `allocated` since the job last reset it.
    allocated_peak = 5,
    /// Highest `reserved` since the job last reset it.
    reserved_peak = 6,
    /// Live allocations, a count.
    blocks = 7,
    /// Segments from the driver, a count.
    segments = 8,
    /// Times that the cache was flushed to satisfy a request.
    retries = 9,
    /// Out-of-memory errors thrown.
    ooms = 10,
    /// Calls that took memory from the driver.
    device_allocs = 11,
    /// Calls that gave memory back to the driver.
    device_frees = 12,
    /// Bytes reserved by private pools (CUDA graphs).
    private_pools = 13,
    /// Pinned host memory in use.
    pinned_active = 14,
    /// Pinned host memory held, in use or cached.
    pinned_reserved = 15,
    /// Free bytes of the device, as CUDA says in this process.
    device_free = 16,
    /// Total bytes of the device, as CUDA says in this process.
    device_total = 17,
    /// Resident host memory of the process.
    rss = 18,
}
