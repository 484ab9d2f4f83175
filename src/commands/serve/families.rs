//! The figures for monitoring systems: one table for the exposition and the documents.
//!
//! Units are base units, and names end in them. No label has a step, and only `gpuwatch_process_info` has a pid: a
//! label with many values makes as many series.

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The family.
    pub family: Family,
    /// Its name; a counter's figures have `_total` behind it.
    pub name: &'static str,
    /// What it is.
    pub meaning: &'static str,
    /// Whether it only rises.
    pub kind: Kind,
    /// The unit in its name; empty for a count or a state.
    pub unit: &'static str,
    /// The names of the labels that its series have.
    pub labels: &'static [&'static str],
}

/// How a family's figures change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Up and down.
    Gauge,
    /// Up, until the process ends.
    Counter,
}

const NONE: &[&str] = &[];
const MAKER: &[&str] = &["maker"];
const DEVICE: &[&str] = &["gpu_uuid"];
const GAP: &[&str] = &["gpu_uuid", "rung"];
const RANK: &[&str] = &["gpu_uuid", "rank", "run"];
const OWN_GAP: &[&str] = &["gpu_uuid", "rank", "run", "rung"];
const ALERT: &[&str] = &["gpu_uuid", "rank", "run", "kind", "cause", "severity"];
const DEVICE_ERROR: &[&str] = &["gpu_uuid", "index", "reason"];
const DEVICE_ALERT: &[&str] = &["gpu_uuid", "kind", "cause", "severity"];
const LIMIT: &[&str] = &["limit", "path"];
const LIMIT_RUNG: &[&str] = &["limit", "path", "rung"];
const HOST_ALERT: &[&str] = &["kind", "cause", "severity"];
const INFO: &[&str] = &[
    "gpu_uuid",
    "rank",
    "run",
    "pid",
    "host",
    "script",
    "framework",
    "framework_version",
    "scheduler",
    "scheduler_job",
    "world_size",
];

macro_rules! families {
    ($($(#[doc = $doc:literal])+ $name:ident = $family:ident($kind:ident, $unit:literal, $labels:ident))+) => {
        /// A family of figures.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Family {
            $($(#[doc = $doc])+ $family,)+
        }

        impl Family {
            /// Every family, in the order of the exposition.
            pub const TABLE: &'static [Row] = &[$(Row {
                family: Self::$family,
                name: concat!("gpuwatch_", stringify!($name)),
                meaning: concat!($($doc),+).trim_ascii(),
                kind: Kind::$kind,
                unit: $unit,
                labels: $labels,
            }),+];
        }
    };
}

families! {
    /// The program; its version is a label, and the value is 1.
    build_info = Build(Gauge, "", VERSION)
    /// 1 while the driver answers, 0 while it does not; the maker is a label, except for NVIDIA.
    driver_up = DriverUp(Gauge, "", MAKER)
    /// A device; its index and name are labels, and the value is 1.
    device_info = DeviceInfo(Gauge, "", NAMED)
    /// 1 for a device whose memory the driver does not report; why is a label.
    device_error = DeviceError(Gauge, "", DEVICE_ERROR)
    /// The device's memory.
    device_memory_total_bytes = DeviceTotal(Gauge, "bytes", DEVICE)
    /// The device's memory in use, as the driver counts it.
    device_memory_used_bytes = DeviceUsed(Gauge, "bytes", DEVICE)
    /// The device's free memory, as the driver counts it.
    device_memory_free_bytes = DeviceFree(Gauge, "bytes", DEVICE)
    /// The part of time in which a kernel ran on the device, from 0 to 1.
    device_utilisation_ratio = DeviceUtilisation(Gauge, "ratio", DEVICE)
    /// The device's temperature.
    device_temperature_celsius = DeviceTemperature(Gauge, "celsius", DEVICE)
    /// The rungs of the device's ladder that belong to no process with a probe.
    device_memory_bytes = DeviceGap(Gauge, "bytes", GAP)
    /// Open findings on the device of this kind and cause that are about no process with a probe.
    device_alert = DeviceAlert(Gauge, "", DEVICE_ALERT)
    /// A limit of the host's memory; of a control group, its path is a label.
    host_memory_limit_bytes = HostLimit(Gauge, "bytes", LIMIT)
    /// What is used of it and cannot be given back, with swap.
    host_memory_used_bytes = HostUsed(Gauge, "bytes", LIMIT)
    /// The rungs of its ladder.
    host_memory_bytes = HostRung(Gauge, "bytes", LIMIT_RUNG)
    /// Time until it is reached; absent unless it is going to be.
    host_memory_full_seconds = HostFull(Gauge, "seconds", LIMIT)
    /// Processes that the kernel has killed because memory ran out, since gpuwatch watches.
    host_oom_kills = HostKills(Counter, "", NONE)
    /// Open findings of this kind and cause about the host's memory, of no process with a probe.
    host_alert = HostAlert(Gauge, "", HOST_ALERT)
    /// The rungs of a process's ladder.
    memory_bytes = Gap(Gauge, "bytes", OWN_GAP)
    /// Live allocations, rounded.
    allocated_bytes = Allocated(Gauge, "bytes", RANK)
    /// Memory that the allocator holds from the driver.
    reserved_bytes = Reserved(Gauge, "bytes", RANK)
    /// Reserved memory that is not in use.
    unused_bytes = Unused(Gauge, "bytes", RANK)
    /// The highest of allocated, since the job last reset it.
    allocated_peak_bytes = AllocatedPeak(Gauge, "bytes", RANK)
    /// The highest of reserved, since the job last reset it.
    reserved_peak_bytes = ReservedPeak(Gauge, "bytes", RANK)
    /// Steps completed.
    step = Step(Gauge, "", RANK)
    /// Time between the ends of the latest two steps on the host.
    step_seconds = StepTime(Gauge, "seconds", RANK)
    /// Growth, 0 without any; absent before enough steps were seen.
    growth_bytes_per_step = Growth(Gauge, "", RANK)
    /// Time until growth fills the device; absent without growth.
    full_seconds = Full(Gauge, "seconds", RANK)
    /// Times that the allocator flushed its cache to serve a request.
    alloc_retries = Retries(Counter, "", RANK)
    /// Out-of-memory errors.
    ooms = Ooms(Counter, "", RANK)
    /// Samples that no viewer received.
    lost_samples = Lost(Counter, "", RANK)
    /// 1 while the process runs; 0 for five minutes after its end.
    process_up = Up(Gauge, "", RANK)
    /// A process; the value is 1. Join it by its first three labels.
    process_info = Process(Gauge, "", INFO)
    /// Open findings of this kind and cause.
    alert = Alert(Gauge, "", ALERT)
    /// Pushes over OTLP that no receiver took.
    otlp_lost = OtlpLost(Counter, "", NONE)
}

const VERSION: &[&str] = &["version"];
const NAMED: &[&str] = &["gpu_uuid", "index", "name"];

impl Family {
    /// Returns what the table says of it: name, kind, unit and labels.
    pub fn row(self) -> &'static Row {
        let [first, ..] = Self::TABLE else { unreachable!("the table has rows") };
        // The table is in the order of the enum, so there always is a row; a test checks that.
        Self::TABLE.get(self as usize).unwrap_or(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_enum_with_units_in_names() {
        for (place, row) in Family::TABLE.iter().enumerate() {
            assert_eq!((row.family as usize, row.family.row().name), (place, row.name));
            assert!(row.name.ends_with(row.unit) && row.meaning.ends_with('.'), "{}", row.name);
            assert!(row.labels.len() < 12 && !row.labels.contains(&"step"), "{}", row.name);
        }
    }
}
