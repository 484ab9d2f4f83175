//! A device's metrics beside its memory: one table for the driver's reading, events, recordings, `once --json`,
//! exports, screens and documents.

mod unit;

use crate::facts::values::{self, Key, Values};
pub use unit::{Reason, Unit};

/// A device's known metrics. One that is missing is unknown.
pub type Metrics = Values<Metric>;

/// A device's metrics that changed.
pub type Changes = values::Changes<Metric>;

/// One metric of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The metric.
    pub metric: Metric,
    /// Its name in recordings, reports and exports.
    pub name: &'static str,
    /// What it is.
    pub meaning: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// The call of NVML that returns it.
    pub call: &'static str,
    /// How often gpuwatch makes that call.
    pub every: Every,
    /// Where the device screen shows it.
    pub shown: Shown,
}

/// How often gpuwatch reads a metric of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Every {
    /// Each second.
    Second,
    /// Each 2 seconds.
    TwoSeconds,
    /// Each 5 seconds.
    FiveSeconds,
    /// Each 10 seconds.
    TenSeconds,
    /// Each minute.
    Minute,
    /// Each 2 seconds, while the device screen shows it; `once` reads it too.
    Watched,
}

impl Every {
    /// Returns the seconds between two readings.
    pub fn seconds(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::TwoSeconds | Self::Watched => 2,
            Self::FiveSeconds => 5,
            Self::TenSeconds => 10,
            Self::Minute => 60,
        }
    }

    /// Returns whether it moves so fast that an export has it beside every sample.
    pub fn is_fast(self) -> bool {
        self <= Self::FiveSeconds
    }
}

/// Where the device screen shows a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Under this label.
    As(&'static str),
    /// Behind another metric: `512/700 W`.
    Behind(Metric),
    /// On a line of its own, which begins with this label.
    Line(&'static str),
    /// Nowhere.
    No,
}

macro_rules! metrics {
    ($($(#[doc = $doc:literal])+ $name:ident = $metric:ident($unit:ident, $call:literal, $every:ident, $shown:expr))+) => {
        /// A metric of a device.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Metric {
            $($(#[doc = $doc])+ $metric,)+
        }

        impl Metric {
            /// Every metric, in the order of the enum and of the device screen.
            pub const TABLE: &'static [Row] = &[$(Row {
                metric: Self::$metric,
                name: stringify!($name),
                meaning: concat!($($doc),+).trim_ascii(),
                unit: Unit::$unit,
                call: $call,
                every: Every::$every,
                shown: $shown,
            }),+];
        }
    };
}

use Metric::{
    CelsiusNow, EccErrors, EncoderPercent, MemoryMhz, NvlinksActive, PcieGeneration, PcieWidth, PowerMw, SmMhz,
};
use Shown::{As, Behind, Line, No};

metrics! {
    /// Percent of time that a kernel ran.
    gpu_percent = GpuPercent(Percent, "nvmlDeviceGetUtilizationRates", Second, As("utilisation"))
    /// Percent of time that memory was read or written.
    memory_percent = MemoryPercent(Percent, "nvmlDeviceGetUtilizationRates", Second, As("memory busy"))
    /// Percent of the video encoder's time.
    encoder_percent = EncoderPercent(Percent, "nvmlDeviceGetEncoderUtilization", Watched, As("enc./dec."))
    /// Percent of the video decoder's time.
    decoder_percent = DecoderPercent(Percent, "nvmlDeviceGetDecoderUtilization", Watched, Behind(EncoderPercent))
    /// Clock of the multiprocessors.
    sm_mhz = SmMhz(Megahertz, "nvmlDeviceGetClockInfo", FiveSeconds, As("SM MHz"))
    /// Highest clock of the multiprocessors.
    sm_max_mhz = SmMaxMhz(Megahertz, "nvmlDeviceGetMaxClockInfo", Minute, Behind(SmMhz))
    /// Clock of the memory.
    memory_mhz = MemoryMhz(Megahertz, "nvmlDeviceGetClockInfo", FiveSeconds, As("memory MHz"))
    /// Highest clock of the memory.
    memory_max_mhz = MemoryMaxMhz(Megahertz, "nvmlDeviceGetMaxClockInfo", Minute, Behind(MemoryMhz))
    /// Performance state: 0 is the fastest, 15 the slowest.
    performance_state = PerformanceState(State, "nvmlDeviceGetPerformanceState", FiveSeconds, As("state"))
    /// Why the clocks are below their highest, a bit for each reason as in `nvmlClocksThrottleReasons`.
    throttle_reasons =
        ThrottleReasons(Reasons, "nvmlDeviceGetCurrentClocksThrottleReasons", FiveSeconds, Line("clocks limited by"))
    /// Milliwatts drawn.
    power_mw = PowerMw(Milliwatts, "nvmlDeviceGetPowerUsage", Second, As("power"))
    /// Milliwatts allowed.
    power_limit_mw = PowerLimitMw(Milliwatts, "nvmlDeviceGetEnforcedPowerLimit", TenSeconds, Behind(PowerMw))
    /// Degrees Celsius.
    celsius = CelsiusNow(Celsius, "nvmlDeviceGetTemperature", TwoSeconds, As("temperature"))
    /// Degrees Celsius from which on the hardware slows down.
    slowdown_celsius = SlowdownCelsius(Celsius, "nvmlDeviceGetTemperatureThreshold", Minute, Behind(CelsiusNow))
    /// Degrees Celsius at which the hardware shuts down.
    shutdown_celsius = ShutdownCelsius(Celsius, "nvmlDeviceGetTemperatureThreshold", Minute, No)
    /// Degrees Celsius of the memory.
    memory_celsius = MemoryCelsius(Celsius, "nvmlDeviceGetFieldValues", TenSeconds, As("memory temp."))
    /// Percent of the fan's full speed.
    fan_percent = FanPercent(Percent, "nvmlDeviceGetFanSpeed_v2", TenSeconds, As("fan"))
    /// Generation of the PCIe link; an idle device may lower it to save power.
    pcie_generation = PcieGeneration(Count, "nvmlDeviceGetCurrPcieLinkGeneration", FiveSeconds, As("PCIe gen."))
    /// Highest generation that the device and its slot have in common.
    pcie_generation_max = PcieGenerationMax(Count, "nvmlDeviceGetMaxPcieLinkGeneration", Minute, Behind(PcieGeneration))
    /// Lanes of the PCIe link.
    pcie_width = PcieWidth(Count, "nvmlDeviceGetCurrPcieLinkWidth", FiveSeconds, As("PCIe lanes"))
    /// Most lanes that the device and its slot have in common.
    pcie_width_max = PcieWidthMax(Count, "nvmlDeviceGetMaxPcieLinkWidth", Minute, Behind(PcieWidth))
    /// Bytes per second that the device sends over PCIe.
    pcie_sent = PcieSent(Bytes, "nvmlDeviceGetPcieThroughput", Watched, As("PCIe out/s"))
    /// Bytes per second that the device receives over PCIe.
    pcie_received = PcieReceived(Bytes, "nvmlDeviceGetPcieThroughput", Watched, As("PCIe in/s"))
    /// Packets that PCIe sent again because of errors.
    pcie_replays = PcieReplays(Count, "nvmlDeviceGetFieldValues", TenSeconds, As("PCIe replays"))
    /// Links of NVLink that are up.
    nvlinks_active = NvlinksActive(Count, "nvmlDeviceGetNvLinkState", Minute, As("NVLinks up"))
    /// Links of NVLink.
    nvlinks = Nvlinks(Count, "nvmlDeviceGetFieldValues", Minute, Behind(NvlinksActive))
    /// Bytes per second that the device sends over all links of NVLink, without the protocol's own.
    nvlink_sent = NvlinkSent(Bytes, "nvmlDeviceGetFieldValues", Watched, As("NVLink out/s"))
    /// Bytes per second that the device receives over all links of NVLink, without the protocol's own.
    nvlink_received = NvlinkReceived(Bytes, "nvmlDeviceGetFieldValues", Watched, As("NVLink in/s"))
    /// Errors of NVLink since the driver was loaded: checksums, replays and recoveries.
    nvlink_errors = NvlinkErrors(Count, "nvmlDeviceGetFieldValues", TenSeconds, As("NVLink err."))
    /// Uncorrected ECC errors since the driver was loaded.
    ecc_errors = EccErrors(Count, "nvmlDeviceGetTotalEccErrors", TenSeconds, As("ECC err/ever"))
    /// Uncorrected ECC errors since the device was made.
    ecc_errors_ever = EccErrorsEver(Count, "nvmlDeviceGetFieldValues", TenSeconds, Behind(EccErrors))
    /// Corrected ECC errors since the driver was loaded.
    ecc_corrected = EccCorrected(Count, "nvmlDeviceGetFieldValues", TenSeconds, As("ECC corr."))
    /// Corrected ECC errors since the device was made.
    ecc_corrected_ever = EccCorrectedEver(Count, "nvmlDeviceGetFieldValues", TenSeconds, No)
    /// Rows of memory that spare ones replace after corrected errors.
    rows_corrected = RowsCorrected(Count, "nvmlDeviceGetFieldValues", TenSeconds, No)
    /// Rows of memory that spare ones replace after uncorrected errors.
    rows_uncorrected = RowsUncorrected(Count, "nvmlDeviceGetFieldValues", TenSeconds, As("rows remap."))
    /// Whether rows wait for a reset of the device to be replaced.
    rows_pending = RowsPending(YesNo, "nvmlDeviceGetFieldValues", TenSeconds, As("rows pending"))
    /// Whether a row could not be replaced.
    rows_failed = RowsFailed(YesNo, "nvmlDeviceGetFieldValues", TenSeconds, No)
    /// Used part of BAR1, the window through which other devices reach the memory.
    bar1_used = Bar1Used(Bytes, "nvmlDeviceGetBAR1MemoryInfo", Minute, As("BAR1 used"))
    /// Size of BAR1.
    bar1_total = Bar1Total(Bytes, "nvmlDeviceGetBAR1MemoryInfo", Minute, No)
    /// Whether the driver stays loaded without clients.
    persistence = Persistence(Switch, "nvmlDeviceGetPersistenceMode", Minute, As("persistence"))
    /// Which processes may use the device: 0 all, 1 one thread (old drivers), 2 none, 3 one process.
    compute_mode = ComputeMode(ComputeMode, "nvmlDeviceGetComputeMode", Minute, As("compute"))
    /// Whether it can be divided into MIG devices.
    mig = Mig(Switch, "nvmlDeviceGetMigMode", Minute, As("MIG"))
    /// Slices of the multiprocessors that a MIG device has: 2 for `2g.35gb`.
    mig_slices = MigSlices(Count, "nvmlDeviceGetAttributes_v2", Minute, No)
    /// Multiprocessors that a MIG device has.
    mig_multiprocessors = MigMultiprocessors(Count, "nvmlDeviceGetAttributes_v2", Minute, No)
}

impl Metric {
    /// Returns its row.
    pub fn row(self) -> &'static Row {
        let [first, ..] = Self::TABLE else { unreachable!("the table has rows") };
        // The table is in the order of the enum, so there always is a row; a test checks that.
        Self::TABLE.get(self as usize).unwrap_or(first)
    }

    /// Returns the metric that the device screen shows behind this one.
    pub fn behind(self) -> Option<Self> {
        Self::TABLE.iter().find(|it| it.shown == Behind(self)).map(|it| it.metric)
    }
}

impl Key for Metric {
    fn name(self) -> &'static str {
        self.row().name
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::TABLE.iter().find(|it| it.name == name).map(|it| it.metric)
    }
}

impl Metrics {
    /// Formats a value, with the one behind it; `None` if it is unknown.
    pub fn format(&self, metric: Metric) -> Option<String> {
        let (value, unit) = (self.get(metric)?, metric.row().unit);
        let behind = metric.behind().and_then(|it| self.get(it));
        Some(behind.map_or_else(|| unit.format(value), |it| unit.format_both(value, it)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_enum_with_names_of_its_own() {
        for (place, row) in Metric::TABLE.iter().enumerate() {
            assert_eq!(row.metric as usize, place, "{}", row.name);
            assert_eq!((row.metric.row().name, Metric::from_name(row.name)), (row.name, Some(row.metric)));
            assert!(row.call.starts_with("nvmlDeviceGet") && row.meaning.ends_with('.'), "{}", row.name);
        }
        assert_eq!(Metric::from_name("nothing"), None);
    }

    #[test]
    fn a_metric_behind_another_has_its_unit_and_place() {
        for row in Metric::TABLE {
            if let Behind(front) = row.shown {
                assert_eq!(front.row().unit, row.unit, "{}", row.name);
                assert!(matches!(front.row().shown, As(_)) && front < row.metric, "{}", row.name);
                assert_eq!(front.behind(), Some(row.metric));
            }
        }
    }

    #[test]
    fn changes_lead_from_one_reading_to_the_next_also_through_a_file() {
        let before: Metrics = [(Metric::SmMhz, 1980), (Metric::FanPercent, 40)].into_iter().collect();
        let after: Metrics = [(Metric::SmMhz, 1410), (Metric::PowerMw, 5)].into_iter().collect();
        let changes = after.since(&before);
        let text = serde_json::to_string(&changes).unwrap();
        assert_eq!(text, r#"{"sm_mhz":1410,"power_mw":5,"fan_percent":null}"#);
        let mut again = before.clone();
        again.apply(&serde_json::from_str(&text).unwrap());
        assert_eq!(again, after);
        assert!(after.since(&after).is_empty());
    }

    #[test]
    fn names_of_later_releases_are_skipped() {
        let read: Metrics = serde_json::from_str(r#"{"later":{"x":[1]},"celsius":61,"mig":null}"#).unwrap();
        assert_eq!(read, [(Metric::CelsiusNow, 61)].into_iter().collect());
    }
}
