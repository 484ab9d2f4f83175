//! A process's figures beside its device memory: one table for readings, events, recordings, `once --json`, the process
//! screen and documents.

use crate::facts::{
    metrics::Unit,
    units::Stamp,
    values::{self, Key, Values},
};

/// Known figures of a process. One that is missing is unknown.
pub type Figures = Values<Figure>;

/// Figures of a process that changed.
pub type Changes = values::Changes<Figure>;

/// One figure of the table.
#[derive(Clone, Copy, Debug)]
pub struct FigureRow {
    /// The figure.
    pub figure: Figure,
    /// Its name in recordings and reports.
    pub name: &'static str,
    /// What it is.
    pub meaning: &'static str,
    /// The unit of its values.
    pub unit: Unit,
    /// What it belongs to.
    pub of: Of,
    /// The call of NVML or the file of /proc that it comes from.
    pub source: &'static str,
    /// Its label on the process screen.
    pub label: &'static str,
}

/// What a figure belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// The process on one device.
    Device,
    /// The process on its host.
    Host,
    /// The process and its descendants on its host. Reading it is costly.
    Tree,
}

/// Seconds between two readings for a screen.
pub const WATCHED_EVERY: u64 = 2;

/// Seconds between two readings for a recording, which has no figures of process trees.
pub const RECORDED_EVERY: u64 = 10;

/// Seconds between two readings of a process tree for a screen.
pub const TREE_EVERY: u64 = 10;

macro_rules! figures {
    ($($(#[doc = $doc:literal])+ $name:ident = $figure:ident($unit:ident, $of:ident, $source:literal, $label:literal))+) => {
        /// A figure of a process.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Figure {
            $($(#[doc = $doc])+ $figure,)+
        }

        impl Figure {
            /// Every figure, in the order of the enum and of the process screen.
            pub const TABLE: &'static [FigureRow] = &[$(FigureRow {
                figure: Self::$figure,
                name: stringify!($name),
                meaning: concat!($($doc),+).trim_ascii(),
                unit: Unit::$unit,
                of: Of::$of,
                source: $source,
                label: $label,
            }),+];
        }
    };
}

figures! {
    /// Percent of time that the process's kernels ran on the device.
    sm_percent = SmPercent(Percent, Device, "nvmlDeviceGetProcessUtilization", "GPU")
    /// Percent of time that the process's kernels read or wrote the device's memory.
    memory_percent = MemoryPercent(Percent, Device, "nvmlDeviceGetProcessUtilization", "memory busy")
    /// Percent of the video encoder's time that the process used.
    encoder_percent = EncoderPercent(Percent, Device, "nvmlDeviceGetProcessUtilization", "encoder")
    /// Percent of the video decoder's time that the process used.
    decoder_percent = DecoderPercent(Percent, Device, "nvmlDeviceGetProcessUtilization", "decoder")
    /// Percent of one core's time, of all threads: 200 is two cores.
    cpu_percent = CpuPercent(Percent, Host, "/proc/PID/stat", "CPU")
    /// Percent of time that the main thread waited for disks; unknown where the kernel does not account for delays.
    io_wait_percent = IoWaitPercent(Percent, Host, "/proc/PID/stat", "I/O wait")
    /// Bytes of host memory that are resident.
    rss = Rss(Bytes, Host, "/proc/PID/stat", "resident")
    /// Bytes of host memory of the process and its descendants. Of shared pages, each process has its share.
    tree_pss = TreePss(Bytes, Tree, "/proc/PID/smaps_rollup", "PSS in all")
    /// Number of threads.
    threads = Threads(Count, Host, "/proc/PID/stat", "threads")
    /// Seconds that gpuwatch has seen the main thread in one sleep, such as `time.sleep`; whole minutes.
    asleep = Asleep(Seconds, Host, "/proc/PID/wchan", "asleep")
    /// Bytes of the system's memory that the process has mapped for the device (GTT).
    gtt = Gtt(Bytes, Device, "drm-resident-gtt in /proc/PID/fdinfo", "GTT")
    /// Bytes of the device's memory that the process has by AMD's compute driver, where it and the kernel's list of
    /// clients disagree.
    kfd_memory = KfdMemory(Bytes, Device, "/sys/class/kfd/kfd/proc/PID/vram_N", "by KFD")
}

impl Figure {
    /// Returns what the table says of it: name, unit and source.
    pub fn row(self) -> &'static FigureRow {
        let [first, ..] = Self::TABLE else { unreachable!("the table has rows") };
        // The table is in the order of the enum, so there always is a row; a test checks that.
        Self::TABLE.get(self as usize).unwrap_or(first)
    }
}

impl Key for Figure {
    fn name(self) -> &'static str {
        self.row().name
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::TABLE.iter().find(|it| it.name == name).map(|it| it.figure)
    }
}

impl Figures {
    /// Formats a figure; `None` if it is unknown.
    pub fn format(&self, figure: Figure) -> Option<String> {
        self.get(figure).map(|it| figure.row().unit.format(it))
    }
}

/// What a process has used since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spent {
    /// When it was read.
    pub at: Stamp,
    /// CPU time of all threads, in clock ticks.
    pub cpu: u64,
    /// Time that the main thread waited for disks, in clock ticks; 0 where the kernel does not count it.
    pub io_wait: u64,
}

/// The shortest time between two readings, in µs: clock ticks are too coarse for less.
pub const RATE_OVER_US: u64 = 100_000;

impl Spent {
    /// Returns the rates since an earlier reading; none if too little time passed or a counter fell.
    pub fn since(&self, before: &Self, ticks_per_second: u64) -> Figures {
        let us = self.at.since(before.at);
        let percent = |now: u64, then: u64| {
            let ticks = u128::from(now.checked_sub(then).filter(|_| us >= RATE_OVER_US)?);
            let of = u128::from(us) * u128::from(ticks_per_second.max(1));
            u64::try_from((ticks * 100_000_000 + of / 2) / of).ok()
        };
        let io_wait = percent(self.io_wait, before.io_wait).filter(|_| self.io_wait > 0);
        let rates = [(Figure::CpuPercent, percent(self.cpu, before.cpu)), (Figure::IoWaitPercent, io_wait)];
        rates.into_iter().filter_map(|(figure, value)| Some((figure, value?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_enum_with_names_of_its_own() {
        for (place, row) in Figure::TABLE.iter().enumerate() {
            assert_eq!(row.figure as usize, place, "{}", row.name);
            assert_eq!((row.figure.row().name, Figure::from_name(row.name)), (row.name, Some(row.figure)));
            assert!(row.meaning.ends_with('.') && !row.label.is_empty(), "{}", row.name);
        }
        assert_eq!(Figure::from_name("nothing"), None);
    }

    fn spent(at: u64, cpu: u64, io_wait: u64) -> Spent {
        Spent { at: Stamp(at), cpu, io_wait }
    }

    #[test]
    fn rates_come_from_two_readings_with_their_own_stamps() {
        let before = spent(1_000_000, 500, 30);
        let rates = spent(3_000_000, 920, 31).since(&before, 100);
        assert_eq!(rates, [(Figure::CpuPercent, 210), (Figure::IoWaitPercent, 1)].into_iter().collect());
        let idle = spent(3_000_000, 500, 30).since(&before, 100);
        assert_eq!(idle, [(Figure::CpuPercent, 0), (Figure::IoWaitPercent, 0)].into_iter().collect());
        let uncounted = spent(3_000_000, 502, 0).since(&spent(1_000_000, 500, 0), 100);
        assert_eq!(uncounted, [(Figure::CpuPercent, 1)].into_iter().collect(), "no wait is counted here");
        for unknown in [spent(1_050_000, 501, 30), spent(500_000, 501, 30), spent(3_000_000, 499, 29)] {
            assert_eq!(unknown.since(&before, 100), Figures::default(), "{unknown:?}");
        }
    }
}
