//! A device's metrics beside its memory: one table for the driver's reading, events, recordings, `once --json`,
//! exports, screens and documents.

use crate::facts::{
    units::{self, Bytes},
    values::{self, Key, Values},
};
use Metric::{
    CelsiusNow, EccErrors, EncoderPercent, MemoryMhz, NvlinksActive, PcieGeneration, PcieWidth, PowerMw, SmMhz,
};
use Shown::{As, Behind, Line, No};

/// A device's known metrics. One that is missing is unknown.
pub type Metrics = Values<Metric>;

/// A device's metrics that changed.
pub type Changes = values::Changes<Metric>;

/// One metric of the table.
#[derive(Clone, Copy, Debug)]
pub struct MetricRow {
    /// The metric.
    pub metric: Metric,
    /// Its name in recordings, reports and exports.
    pub name: &'static str,
    /// What it is.
    pub meaning: &'static str,
    /// The unit of its values.
    pub unit: Unit,
    /// How often gpuwatch reads it.
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
    ($($(#[doc = $doc:literal])+ $name:ident = $metric:ident($unit:ident, $every:ident, $shown:expr))+) => {
        /// A metric of a device.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Metric {
            $($(#[doc = $doc])+ $metric,)+
        }

        impl Metric {
            /// Every metric, in the order of the enum and of the device screen.
            pub const TABLE: &'static [MetricRow] = &[$(MetricRow {
                metric: Self::$metric,
                name: stringify!($name),
                meaning: concat!($($doc),+).trim_ascii(),
                unit: Unit::$unit,
                every: Every::$every,
                shown: $shown,
            }),+];
        }
    };
}

metrics! {
    /// Percent of time that a kernel ran.
    gpu_percent = GpuPercent(Percent, Second, As("utilisation"))
    /// Percent of time that memory was read or written.
    memory_percent = MemoryPercent(Percent, Second, As("memory busy"))
    /// Percent of the video encoder's time.
    encoder_percent = EncoderPercent(Percent, Watched, As("enc./dec."))
    /// Percent of the video decoder's time.
    decoder_percent = DecoderPercent(Percent, Watched, Behind(EncoderPercent))
    /// Clock of the multiprocessors.
    sm_mhz = SmMhz(Megahertz, FiveSeconds, As("SM MHz"))
    /// Highest clock of the multiprocessors.
    sm_max_mhz = SmMaxMhz(Megahertz, Minute, Behind(SmMhz))
    /// Clock of the memory.
    memory_mhz = MemoryMhz(Megahertz, FiveSeconds, As("memory MHz"))
    /// Highest clock of the memory.
    memory_max_mhz = MemoryMaxMhz(Megahertz, Minute, Behind(MemoryMhz))
    /// Performance state: 0 is the fastest, 15 the slowest.
    performance_state = PerformanceState(State, FiveSeconds, As("state"))
    /// Why the clocks are below their highest, a bit for each reason as in `nvmlClocksThrottleReasons`.
    throttle_reasons =
        ThrottleReasons(Reasons, FiveSeconds, Line("clocks limited by"))
    /// Milliwatts drawn.
    power_mw = PowerMw(Milliwatts, Second, As("power"))
    /// Milliwatts allowed.
    power_limit_mw = PowerLimitMw(Milliwatts, TenSeconds, Behind(PowerMw))
    /// Degrees Celsius.
    celsius = CelsiusNow(Celsius, TwoSeconds, As("temperature"))
    /// Degrees Celsius from which on the hardware slows down.
    slowdown_celsius = SlowdownCelsius(Celsius, Minute, Behind(CelsiusNow))
    /// Degrees Celsius at which the hardware shuts down.
    shutdown_celsius = ShutdownCelsius(Celsius, Minute, No)
    /// Degrees Celsius of the memory.
    memory_celsius = MemoryCelsius(Celsius, TenSeconds, As("memory temp."))
    /// Percent of the fan's full speed.
    fan_percent = FanPercent(Percent, TenSeconds, As("fan"))
    /// Generation of the PCIe link; an idle device may lower it to save power.
    pcie_generation = PcieGeneration(Count, FiveSeconds, As("PCIe gen."))
    /// Highest generation that the device and its slot have in common.
    pcie_generation_max = PcieGenerationMax(Count, Minute, Behind(PcieGeneration))
    /// Lanes of the PCIe link.
    pcie_width = PcieWidth(Count, FiveSeconds, As("PCIe lanes"))
    /// Most lanes that the device and its slot have in common.
    pcie_width_max = PcieWidthMax(Count, Minute, Behind(PcieWidth))
    /// Bytes per second that the device sends over PCIe.
    pcie_sent = PcieSent(Bytes, Watched, As("PCIe out/s"))
    /// Bytes per second that the device receives over PCIe.
    pcie_received = PcieReceived(Bytes, Watched, As("PCIe in/s"))
    /// Packets that PCIe sent again because of errors.
    pcie_replays = PcieReplays(Count, TenSeconds, As("PCIe replays"))
    /// Links of NVLink that are up.
    nvlinks_active = NvlinksActive(Count, Minute, As("NVLinks up"))
    /// Links of NVLink.
    nvlinks = Nvlinks(Count, Minute, Behind(NvlinksActive))
    /// Bytes per second that the device sends over all links of NVLink, without the protocol's own.
    nvlink_sent = NvlinkSent(Bytes, Watched, As("NVLink out/s"))
    /// Bytes per second that the device receives over all links of NVLink, without the protocol's own.
    nvlink_received = NvlinkReceived(Bytes, Watched, As("NVLink in/s"))
    /// Errors of NVLink since the driver was loaded: checksums, replays and recoveries.
    nvlink_errors = NvlinkErrors(Count, TenSeconds, As("NVLink err."))
    /// Uncorrected ECC errors since the driver was loaded.
    ecc_errors = EccErrors(Count, TenSeconds, As("ECC err/ever"))
    /// Uncorrected ECC errors since the device was made.
    ecc_errors_ever = EccErrorsEver(Count, TenSeconds, Behind(EccErrors))
    /// Corrected ECC errors since the driver was loaded.
    ecc_corrected = EccCorrected(Count, TenSeconds, As("ECC corr."))
    /// Corrected ECC errors since the device was made.
    ecc_corrected_ever = EccCorrectedEver(Count, TenSeconds, No)
    /// Rows of memory that spare ones replace after corrected errors.
    rows_corrected = RowsCorrected(Count, TenSeconds, No)
    /// Rows of memory that spare ones replace after uncorrected errors.
    rows_uncorrected = RowsUncorrected(Count, TenSeconds, As("rows remap."))
    /// Whether rows wait for a reset of the device to be replaced.
    rows_pending = RowsPending(YesNo, TenSeconds, As("rows pending"))
    /// Whether a row could not be replaced.
    rows_failed = RowsFailed(YesNo, TenSeconds, No)
    /// Used part of BAR1, the window through which other devices reach the memory.
    bar1_used = Bar1Used(Bytes, Minute, As("BAR1 used"))
    /// Size of BAR1.
    bar1_total = Bar1Total(Bytes, Minute, No)
    /// Bytes of the system's memory that the device has mapped (GTT).
    gtt_used = GttUsed(Bytes, TenSeconds, As("GTT used"))
    /// Bytes of the system's memory that the device may map (GTT).
    gtt_total = GttTotal(Bytes, Minute, As("GTT total"))
    /// Whether the driver stays loaded without clients.
    persistence = Persistence(Switch, Minute, As("persistence"))
    /// Which processes may use the device: 0 all, 1 one thread (old drivers), 2 none, 3 one process.
    compute_mode = ComputeMode(ComputeMode, Minute, As("compute"))
    /// Whether it can be divided into MIG devices.
    mig = Mig(Switch, Minute, As("MIG"))
    /// Slices of the multiprocessors that a MIG device has: 2 for `2g.35gb`.
    mig_slices = MigSlices(Count, Minute, No)
    /// Multiprocessors that a MIG device has.
    mig_multiprocessors = MigMultiprocessors(Count, Minute, No)
}

impl Metric {
    /// Returns what the table says of it: name, unit, call, and how often it is read.
    pub fn row(self) -> &'static MetricRow {
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

/// The unit of a metric. Every value is a whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Percent.
    Percent,
    /// Degrees Celsius.
    Celsius,
    /// Milliwatts.
    Milliwatts,
    /// Megahertz.
    Megahertz,
    /// A size, or a size per second.
    Bytes,
    /// A number of items.
    Count,
    /// Seconds.
    Seconds,
    /// A performance state.
    State,
    /// A set of [`Reason`]s.
    Reasons,
    /// 0 or 1.
    YesNo,
    /// 0 (off) or 1 (on).
    Switch,
    /// Which processes may use a device, as a number: see [`Metric::ComputeMode`].
    ComputeMode,
}

/// Why a device's clocks are below their highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Throttle {
    /// The device is so hot that its hardware slows it down.
    HardwareThermal,
    /// The device is so hot that the driver slows it down.
    Thermal,
    /// The power supply asks for less.
    PowerBrake,
    /// The hardware slows it down, because of heat or power.
    Hardware,
    /// It is at its power limit.
    PowerCap,
    /// It keeps to the clocks of other devices.
    SyncBoost,
    /// A user has set the clocks.
    ClockSetting,
    /// A setting of the display.
    DisplayClockSetting,
    /// It has no work.
    Idle,
}

impl Throttle {
    /// Returns its bit in the metric `throttle_reasons`, in recordings and reports.
    pub const fn bit(self) -> u64 {
        match self {
            Self::Idle => 0x1,
            Self::ClockSetting => 0x2,
            Self::PowerCap => 0x4,
            Self::Hardware => 0x8,
            Self::SyncBoost => 0x10,
            Self::Thermal => 0x20,
            Self::HardwareThermal => 0x40,
            Self::PowerBrake => 0x80,
            Self::DisplayClockSetting => 0x100,
        }
    }

    /// Returns whether a set has it.
    pub const fn is_in(self, bits: u64) -> bool {
        bits & self.bit() != 0
    }
}

/// How a reason for lower clocks is shown.
#[derive(Clone, Copy, Debug)]
pub struct Reason {
    /// The reason.
    pub throttle: Throttle,
    /// What a person reads.
    pub words: &'static str,
    /// Its letter in a row of the course of a device, if it slows the device down.
    pub sign: char,
    /// Whether the device is slowed down by heat or lack of power, and not by a setting or lack of work.
    pub is_slowdown: bool,
}

impl Reason {
    /// Every reason, the gravest first.
    pub const TABLE: [Self; 9] = [
        Self { throttle: Throttle::HardwareThermal, words: "hardware thermal slowdown", sign: 'T', is_slowdown: true },
        Self { throttle: Throttle::Thermal, words: "thermal slowdown", sign: 't', is_slowdown: true },
        Self { throttle: Throttle::PowerBrake, words: "power brake", sign: 'B', is_slowdown: true },
        Self { throttle: Throttle::Hardware, words: "hardware slowdown", sign: 'H', is_slowdown: true },
        Self { throttle: Throttle::PowerCap, words: "power cap", sign: 'P', is_slowdown: true },
        Self { throttle: Throttle::SyncBoost, words: "sync boost", sign: ' ', is_slowdown: false },
        Self { throttle: Throttle::ClockSetting, words: "clock setting", sign: ' ', is_slowdown: false },
        Self { throttle: Throttle::DisplayClockSetting, words: "display clock setting", sign: ' ', is_slowdown: false },
        Self { throttle: Throttle::Idle, words: "idle", sign: ' ', is_slowdown: false },
    ];

    /// Returns the reasons in a set.
    pub fn of(bits: u64) -> impl Iterator<Item = &'static Self> {
        Self::TABLE.iter().filter(move |it| it.throttle.is_in(bits))
    }
}

impl Unit {
    /// Returns its name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Percent => "%",
            Self::Celsius => "°C",
            Self::Milliwatts => "mW",
            Self::Megahertz => "MHz",
            Self::Bytes => "bytes",
            Self::Count => "count",
            Self::Seconds => "s",
            Self::State => "state",
            Self::Reasons => "bits",
            Self::YesNo | Self::Switch => "0 or 1",
            Self::ComputeMode => "mode",
        }
    }

    /// Formats a value: `97 %`, `512 W`, `P0`, `power cap`. A frequency has no unit, because its label has it.
    pub fn format(self, value: u64) -> String {
        match self {
            Self::Bytes => Bytes(value).to_string(),
            Self::Seconds => units::duration(value.saturating_mul(1_000_000)),
            Self::State => format!("P{value}"),
            Self::Reasons => reasons(value),
            Self::YesNo => if value == 0 { "no" } else { "yes" }.to_owned(),
            Self::Switch => if value == 0 { "off" } else { "on" }.to_owned(),
            Self::ComputeMode => compute_mode(value),
            Self::Percent | Self::Celsius | Self::Milliwatts | Self::Megahertz | Self::Count => {
                format!("{}{}", self.number(value), self.suffix())
            }
        }
    }

    /// Formats a value and the one behind it: `512/700 W`.
    pub fn format_both(self, value: u64, behind: u64) -> String {
        format!("{}/{}", self.number(value), self.format(behind))
    }

    fn number(self, value: u64) -> u64 {
        if self == Self::Milliwatts { value / 1000 } else { value }
    }

    fn suffix(self) -> &'static str {
        match self {
            Self::Percent => " %",
            Self::Celsius => " °C",
            Self::Milliwatts => " W",
            _ => "",
        }
    }
}

fn reasons(bits: u64) -> String {
    let known = Reason::TABLE.iter().fold(0, |all, it| all | it.throttle.bit());
    let other = (bits & !known != 0).then_some("another reason");
    let words: Vec<_> = Reason::of(bits).map(|it| it.words).chain(other).collect();
    if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
}

fn compute_mode(value: u64) -> String {
    match value {
        0 => "default".to_owned(),
        1 => "one thread".to_owned(),
        2 => "prohibited".to_owned(),
        3 => "exclusive".to_owned(),
        other => format!("mode {other}"),
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
            assert!(row.meaning.ends_with('.'), "{}", row.name);
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

    #[test]
    fn values_are_written_in_words_and_units() {
        let cases = [
            (Unit::Percent, 97, "97 %"),
            (Unit::Milliwatts, 512_300, "512 W"),
            (Unit::State, 2, "P2"),
            (Unit::Reasons, 0, "nothing"),
            (Unit::Reasons, 0x24, "thermal slowdown, power cap"),
            (Unit::Reasons, 1 << 40 | 1, "idle, another reason"),
            (Unit::Switch, 1, "on"),
            (Unit::Seconds, 540, "9 min"),
            (Unit::ComputeMode, 9, "mode 9"),
            (Unit::Bytes, 1 << 30, "1.00 GiB"),
        ];
        for (unit, value, words) in cases {
            assert_eq!(unit.format(value), words);
        }
        assert_eq!(Unit::Milliwatts.format_both(512_300, 700_000), "512/700 W");
        assert_eq!(Unit::Megahertz.format_both(1410, 1980), "1410/1980");
    }
}
