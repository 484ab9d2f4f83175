//! The gaps between the rungs: one table of names, causes and remedies.

/// One stretch of a device's memory between two rungs, from the inside out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gap {
    /// What the job asked for: `allocated - rounding`.
    Wanted,
    /// Live allocations whose rounding is unknown.
    Allocated,
    /// Rounding up of requests.
    Rounding,
    /// Freed, but another stream still uses it.
    Pending,
    /// Free parts of split segments.
    Stuck,
    /// Free in pools of CUDA graphs, as far as known.
    Pools,
    /// Whole free segments.
    Releasable,
    /// Cached, its split unknown.
    Cached,
    /// Held from the driver, what of it is in use unknown.
    Reserved,
    /// This process outside the allocator.
    NonTorch,
    /// Other processes.
    Others,
    /// The driver's own reserve.
    Driver,
    /// In use, by whom is not known.
    Unattributed,
    /// Free.
    Free,
}

/// What a gap is called, where it comes from, what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// The gap.
    pub gap: Gap,
    /// Its name, at most 12 letters.
    pub name: &'static str,
    /// What it is.
    pub cause: &'static str,
    /// What makes it smaller; empty where nothing does or should.
    pub remedy: &'static str,
}

/// Every gap's meaning, from the inside out.
pub const MEANINGS: [Meaning; 14] = [
    meaning(Gap::Wanted, "wanted", "what the job asked for", ""),
    meaning(Gap::Allocated, "allocated", "live allocations; the allocator does not say how much is rounding", ""),
    meaning(Gap::Rounding, "rounding", "requests rounded up to 512 B or to a power of two", ""),
    meaning(
        Gap::Pending,
        "pending",
        "freed, but another stream still uses it",
        "avoid record_stream, or synchronise the streams",
    ),
    meaning(
        Gap::Stuck,
        "stuck",
        "free parts of split segments: cannot be given back",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or fewer different sizes",
    ),
    meaning(
        Gap::Pools,
        "graph pools",
        "free at most in private pools of CUDA graphs",
        "drop graphs that are not replayed",
    ),
    meaning(Gap::Releasable, "releasable", "whole free segments, cached", "torch.cuda.empty_cache() gives it back"),
    meaning(Gap::Cached, "cached", "held and not in use; what could be given back is not measurable", ""),
    meaning(Gap::Reserved, "reserved", "held from the driver; how much is in use is not known", ""),
    meaning(
        Gap::NonTorch,
        "non-torch",
        "CUDA context, NCCL, cuBLAS and cuDNN outside the allocator",
        "destroy unused process groups; CUDA_MODULE_LOADING=LAZY",
    ),
    meaning(
        Gap::Others,
        "others",
        "other processes: tenants, leftovers, extra contexts of our own ranks",
        "end them; torch.cuda.set_device() before the first CUDA call",
    ),
    meaning(Gap::Driver, "reserve", "the driver keeps it for itself", ""),
    meaning(Gap::Unattributed, "unattributed", "in use, but no figure at hand says by whom", ""),
    meaning(Gap::Free, "free", "free on the device", ""),
];

const fn meaning(gap: Gap, name: &'static str, cause: &'static str, remedy: &'static str) -> Meaning {
    Meaning { gap, name, cause, remedy }
}

impl Gap {
    /// Its row in [`MEANINGS`].
    pub fn meaning(self) -> &'static Meaning {
        &MEANINGS[self as usize]
    }

    /// What programs read: its name in JSON, which never changes.
    pub fn id(self) -> String {
        match self {
            Self::Driver => "driver".to_owned(),
            it => it.meaning().name.replace([' ', '-'], "_"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The gap after one, so that a new one does not compile until it is listed here.
    fn next(gap: Gap) -> Option<Gap> {
        Some(match gap {
            Gap::Wanted => Gap::Allocated,
            Gap::Allocated => Gap::Rounding,
            Gap::Rounding => Gap::Pending,
            Gap::Pending => Gap::Stuck,
            Gap::Stuck => Gap::Pools,
            Gap::Pools => Gap::Releasable,
            Gap::Releasable => Gap::Cached,
            Gap::Cached => Gap::Reserved,
            Gap::Reserved => Gap::NonTorch,
            Gap::NonTorch => Gap::Others,
            Gap::Others => Gap::Driver,
            Gap::Driver => Gap::Unattributed,
            Gap::Unattributed => Gap::Free,
            Gap::Free => return None,
        })
    }

    #[test]
    fn every_gap_has_a_row_of_its_own() {
        let gaps: Vec<Gap> = std::iter::successors(Some(Gap::Wanted), |it| next(*it)).collect();
        assert_eq!(gaps, MEANINGS.map(|it| it.gap));
        let names: BTreeSet<&str> = gaps.iter().map(|it| it.meaning().name).collect();
        assert_eq!(names.len(), gaps.len(), "no two have one name: {names:?}");
        for gap in gaps {
            let meaning = gap.meaning();
            assert_eq!(meaning.gap, gap, "its own row");
            assert!(!meaning.name.is_empty() && meaning.name.len() <= 12 && !meaning.cause.is_empty());
        }
    }
}
