//! The table of the rungs of a host's ladder: each row has everything that code, screens, metrics and documents need
//! about one rung.

use crate::model::analysis::ladder::Gap;

/// The description of a rung.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRungRow {
    /// The rung.
    pub rung: HostRung,
    /// Displayed name: at most 12 letters.
    pub name: &'static str,
    /// Name in JSON and metrics, which never changes.
    pub id: &'static str,
    /// What the memory is.
    pub cause: &'static str,
    /// How to reduce it; empty if nothing does or should.
    pub remedy: &'static str,
    /// The gap of a device's ladder whose colour and sign it has.
    pub like: Gap,
}

/// Generates the enum of rungs and the table.
macro_rules! rungs {
    ($($(#[$doc:meta])* $rung:ident { $name:literal, $id:literal, $like:ident, $cause:literal, $remedy:literal })*) => {
        /// A part of a host's memory, from the inside out.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum HostRung { $($(#[$doc])* $rung,)* }

        impl HostRung {
            /// Every rung, from the inside out.
            pub const TABLE: &'static [HostRungRow] = &[$(HostRungRow {
                rung: Self::$rung,
                name: $name,
                id: $id,
                cause: $cause,
                remedy: $remedy,
                like: Gap::$like,
            }),*];

            /// Returns its row in the table.
            pub const fn row(self) -> &'static HostRungRow {
                // The table is in the order of the enum.
                &Self::TABLE[self as usize]
            }
        }
    };
}

rungs! {
    /// Private memory of the watched processes.
    Process {
        "process", "process", Wanted,
        "what the job's processes hold for themselves: Python's objects, tensors on the CPU, libraries",
        "see `gpuwatch explain host-growth`"
    }
    /// Pinned memory in use.
    Pinned {
        "pinned", "pinned", Rounding,
        "page-locked buffers in use; PyTorch rounds each up to a power of two",
        "pin buffers whose sizes are just below a power of two, or fewer of them"
    }
    /// Pinned memory that is not in use.
    PinnedCache {
        "pinned cache", "pinned_cache", Releasable,
        "page-locked buffers that PyTorch's host allocator keeps for later",
        "torch._C._host_emptyCache() gives it back; buffers of equal sizes are used again"
    }
    /// Private memory of workers.
    Workers {
        "workers", "workers", NonTorch,
        "what DataLoader's workers and other children hold for themselves, and have copied of their parent",
        "fewer workers; keep samples in NumPy or Arrow arrays instead of lists of Python objects"
    }
    /// Shared memory and tmpfs.
    Shared {
        "shared", "shared", Pending,
        "shared memory and tmpfs: batches of DataLoader's workers in /dev/shm, files in /tmp where that is a tmpfs",
        "a smaller prefetch_factor, fewer workers; delete what earlier jobs left in /dev/shm"
    }
    /// The kernel's memory.
    Kernel {
        "kernel", "kernel", Driver,
        "the kernel's own: page tables, sockets, caches that it cannot drop",
        ""
    }
    /// Everything else.
    Others {
        "others", "others", Others,
        "other processes, and what no figure attributes",
        "end what is left over; look with `top`"
    }
    /// Page cache.
    PageCache {
        "page cache", "page_cache", Cached,
        "files that were read or written; the kernel drops them when memory is needed",
        ""
    }
    /// Free.
    Free {
        "free", "free", Free,
        "not used by anything",
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_enum_with_names_that_fit() {
        for (place, row) in HostRung::TABLE.iter().enumerate() {
            assert_eq!((row.rung as usize, row.rung.row().id), (place, row.id));
            assert!(row.name.len() <= 12 && !row.cause.is_empty(), "{}", row.id);
        }
    }
}
