//! Why memory grows, fills up or is wasted: a closed list, each cause with its remedy.

/// The texts of each cause.
mod texts;

/// A named cause. Its id never changes once released, because configurations, CI and recordings use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// Zero-dimensional tensors that the program keeps: losses, counters, norms.
    ScalarsRetained,
    /// Tensors that the program keeps: outputs, activations, batches, metric states.
    TensorsRetained,
    /// Autograd graphs that the program keeps, several blocks at a time.
    GraphRetained,
    /// One tensor that is reallocated, larger each time.
    GrowingTensor,
    /// The allocator's cache grows while live memory does not.
    Fragmentation,
    /// Freed blocks that wait for another stream.
    CrossStreamPending,
    /// Cached segments of streams that the job made again; another stream cannot use them.
    StreamCaches,
    /// Private pools of CUDA graphs.
    GraphPools,
    /// Device memory of this process outside the framework's allocator.
    DriverGrowth,
    /// Device memory that this process did not take.
    OtherProcess,
    /// Page-locked host memory.
    PinnedGrowth,
    /// Resident host memory.
    HostGrowth,
    /// Rises that end in a sudden release: reference cycles that wait for the collector, or a container that
    /// the loop empties.
    ReferenceCycle,
    /// A rise that ended by itself: a full cache or buffer, or a finished warm-up.
    CacheFilling,
    /// Steps that need more and more memory, as under a curriculum, with an output that is alive between them.
    LargerInputs,
    /// High and flat: the batch or the model fills the device.
    Pressure,
    /// The allocator flushes its cache to satisfy requests.
    Thrashing,
    /// The allocator takes segments from the driver and gives them back in every step.
    Churn,
    /// One rank uses much more than the others.
    RankImbalance,
    /// A process with a context on a device that it does not train on.
    ExtraContext,
    /// A request larger than the device can serve.
    Oom,
    /// The traceback of a handled error keeps what the failed attempt allocated.
    FailedAttempt,
    /// Memory that is gathered between two optimizer steps, as by an evaluation that keeps its outputs.
    OutputsGathered,
    /// Errors of a search for the largest size that fits.
    SizeSearch,
    /// The device is so hot that it lowers its clocks.
    ThermalThrottling,
    /// The power limit holds the clocks far below the highest.
    PowerThrottling,
    /// The hardware brakes the device, because its power supply falls short.
    PowerBrake,
    /// A PCIe link with fewer lanes or a lower generation than it can have.
    DegradedLink,
    /// Rows of memory that are to be replaced, or could not be.
    RowsPending,
    /// Steps take longer than before, and inputs are not larger.
    Slowdown,
    /// Steps have stopped while the device is busy all the time.
    StalledBusy,
    /// Steps have stopped while the device is idle.
    StalledIdle,
    /// One rank is slower than the others.
    SlowRank,
    /// A process that has ended, and whose memory the driver still lists.
    EndedProcess,
    /// A rank whose launcher has ended, and which does nothing.
    OrphanedRank,
    /// A notebook or an interactive interpreter that does nothing.
    IdleNotebook,
    /// A script that does nothing.
    IdleProcess,
    /// The figures do not show the cause.
    Unknown,
}

/// The texts of a cause.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The cause.
    pub cause: Cause,
    /// Its id: lower case, words joined by hyphens.
    pub id: &'static str,
    /// Its title, a few words.
    pub title: &'static str,
    /// The remedy, in one line.
    pub advice: &'static str,
    /// How to recognise it, what it is not, and what to do, in paragraphs.
    pub text: &'static str,
}

impl Cause {
    /// Returns its texts.
    pub fn entry(self) -> &'static Entry {
        let [first, ..] = &texts::ENTRIES;
        // The table is in the order of the enum, so there always is an entry; a test checks that.
        texts::ENTRIES.get(self as usize).unwrap_or(first)
    }

    /// Returns its id: lower case, words joined by hyphens.
    pub fn id(self) -> &'static str {
        self.entry().id
    }

    /// Returns the remedy, in one line.
    pub fn advice(self) -> &'static str {
        self.entry().advice
    }

    /// Returns the cause with this id.
    pub fn from_id(id: &str) -> Option<Self> {
        entries().iter().find(|it| it.id == id).map(|it| it.cause)
    }
}

/// Returns every cause, in the order of the enum.
pub fn entries() -> &'static [Entry] {
    &texts::ENTRIES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_its_own_text() {
        for (place, entry) in entries().iter().enumerate() {
            assert_eq!(entry.cause as usize, place, "{}", entry.id);
            assert_eq!(Cause::from_id(entry.id), Some(entry.cause));
            assert_eq!(entry.cause.entry().id, entry.id);
            assert!(entry.id.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{}", entry.id);
            assert!((20..=160).contains(&entry.advice.len()), "{}: advice is one line", entry.id);
            assert!(!entry.advice.contains('\n') && entry.text.len() > entry.advice.len(), "{}", entry.id);
            assert!(entry.text.lines().all(|it| it.chars().count() <= 110), "{}: lines are short", entry.id);
        }
        assert_eq!(entries().len(), Cause::Unknown as usize + 1);
        assert_eq!(Cause::from_id("nothing"), None);
    }
}
