//! Reads a device's metrics: which call fills which of them, and which calls are due.
//!
//! The table of metrics sets how often each call is made. A call that a device or driver lacks is made once a minute,
//! and its metrics are absent meanwhile.

use super::reading::refusal;
use crate::facts::{
    metrics::{Changes, Every, Metric, Metrics, Throttle},
    units::whole,
};
use gpuwatch_nvml::{Counted, Direct};
use nvml_wrapper::{
    Device,
    bitmasks::device::ThrottleReasons,
    enum_wrappers::device::{Clock, EccCounter, MemoryError, PcieUtilCounter, TemperatureSensor, TemperatureThreshold},
    enums::device::SampleValue,
    error::NvmlError,
    structs::device::FieldId,
    sys_exports::field_id,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

type Values = Vec<(Metric, Value)>;

/// What a call returns for a metric.
#[derive(Clone, Copy)]
pub(super) enum Value {
    Now(u64),
    /// A total since the driver was loaded, and when it was that, since 1970. The metric is its rate.
    Total(u64, Duration),
}

impl<T: Into<u64>> From<T> for Value {
    fn from(number: T) -> Self {
        Self::Now(number.into())
    }
}

/// A device, as the wrapper and direct calls reach it.
pub(super) struct Asked<'a, 'n> {
    pub(super) device: &'a Device<'n>,
    pub(super) direct: Option<&'a Direct>,
    pub(super) uuid: &'a str,
}

/// A call, or several that belong together, and the metrics that they fill.
pub(super) struct Read {
    pub(super) fills: &'static [Metric],
    read: fn(&Asked<'_, '_>) -> Result<Values, NvmlError>,
}

impl Read {
    /// Makes the call.
    pub(super) fn values(&self, asked: &Asked<'_, '_>) -> Result<Values, NvmlError> {
        (self.read)(asked)
    }

    /// All metrics of a call are read equally often; a test checks that.
    fn every(&self) -> Every {
        self.fills.first().map_or(Every::Minute, |it| it.row().every)
    }
}

/// A read of one metric.
macro_rules! one {
    ($metric:ident, |$device:ident| $call:expr) => {
        Read {
            fills: &[Metric::$metric],
            read: |asked| {
                let $device = asked.device;
                Ok(vec![(Metric::$metric, $call?.into())])
            },
        }
    };
}

/// Every read.
pub(super) const READS: &[Read] = &[
    Read {
        fills: &[Metric::GpuPercent, Metric::MemoryPercent],
        read: |asked| {
            let it = asked.device.utilization_rates()?;
            Ok(vec![(Metric::GpuPercent, it.gpu.into()), (Metric::MemoryPercent, it.memory.into())])
        },
    },
    one!(EncoderPercent, |device| device.encoder_utilization().map(|it| it.utilization)),
    one!(DecoderPercent, |device| device.decoder_utilization().map(|it| it.utilization)),
    one!(SmMhz, |device| device.clock_info(Clock::SM)),
    one!(SmMaxMhz, |device| device.max_clock_info(Clock::SM)),
    one!(MemoryMhz, |device| device.clock_info(Clock::Memory)),
    one!(MemoryMaxMhz, |device| device.max_clock_info(Clock::Memory)),
    Read {
        fills: &[Metric::PerformanceState],
        read: |asked| {
            let state = asked.device.performance_state()?.as_c();
            // NVML's value for an unknown state is 32.
            Ok((state <= 15).then_some((Metric::PerformanceState, state.into())).into_iter().collect())
        },
    },
    one!(ThrottleReasons, |device| device.current_throttle_reasons().map(throttles)),
    one!(PowerMw, |device| device.power_usage()),
    one!(PowerLimitMw, |device| device.enforced_power_limit()),
    one!(CelsiusNow, |device| device.temperature(TemperatureSensor::Gpu)),
    one!(SlowdownCelsius, |device| device.temperature_threshold(TemperatureThreshold::Slowdown)),
    one!(ShutdownCelsius, |device| device.temperature_threshold(TemperatureThreshold::Shutdown)),
    one!(FanPercent, |device| device.fan_speed(0)),
    one!(PcieGeneration, |device| device.current_pcie_link_gen()),
    one!(PcieGenerationMax, |device| device.max_pcie_link_gen()),
    one!(PcieWidth, |device| device.current_pcie_link_width()),
    one!(PcieWidthMax, |device| device.max_pcie_link_width()),
    one!(PcieSent, |device| device.pcie_throughput(PcieUtilCounter::Send).map(|kib| u64::from(kib) * 1024)),
    one!(PcieReceived, |device| device.pcie_throughput(PcieUtilCounter::Receive).map(|kib| u64::from(kib) * 1024)),
    one!(EccErrors, |device| device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile)),
    Read {
        fills: &[Metric::Bar1Used, Metric::Bar1Total],
        read: |asked| {
            let it = asked.device.bar1_memory_info()?;
            Ok(vec![(Metric::Bar1Used, it.used.into()), (Metric::Bar1Total, it.total.into())])
        },
    },
    one!(Persistence, |device| device.is_in_persistent_mode()),
    one!(ComputeMode, |device| device.compute_mode().map(|it| it.as_c())),
    one!(Mig, |device| device.mig_mode().map(|it| it.current)),
    Read {
        fills: &[Metric::MigSlices, Metric::MigMultiprocessors],
        read: |asked| {
            let it = asked.device.attributes()?;
            let slices = (Metric::MigSlices, it.gpu_instance_slice_count.into());
            Ok(vec![slices, (Metric::MigMultiprocessors, it.multiprocessor_count.into())])
        },
    },
    Read { fills: &[Metric::Nvlinks, Metric::NvlinksActive], read: |asked| links(asked.device) },
    Read {
        fills: &[Metric::NvlinkSent, Metric::NvlinkReceived],
        read: |asked| {
            let direct = asked.direct.ok_or(NvmlError::NotSupported)?;
            let [sent, received] = direct.nvlink(asked.uuid).map_err(refusal)?.map(|it| total(it, SystemTime::now()));
            Ok(vec![(Metric::NvlinkSent, sent), (Metric::NvlinkReceived, received)])
        },
    },
    Read {
        fills: &[
            Metric::MemoryCelsius,
            Metric::PcieReplays,
            Metric::NvlinkErrors,
            Metric::EccErrorsEver,
            Metric::EccCorrected,
            Metric::EccCorrectedEver,
            Metric::RowsCorrected,
            Metric::RowsUncorrected,
            Metric::RowsPending,
            Metric::RowsFailed,
        ],
        read: |asked| fields(asked.device, FIELDS).map(|it| values(&it)),
    },
];

/// Returns the call of NVML that returns a metric, for the documents and the tests; `None` if none does.
pub fn call(metric: Metric) -> Option<&'static str> {
    let call = match metric {
        Metric::GttUsed | Metric::GttTotal => return None,
        Metric::GpuPercent | Metric::MemoryPercent => "nvmlDeviceGetUtilizationRates",
        Metric::EncoderPercent => "nvmlDeviceGetEncoderUtilization",
        Metric::DecoderPercent => "nvmlDeviceGetDecoderUtilization",
        Metric::SmMhz | Metric::MemoryMhz => "nvmlDeviceGetClockInfo",
        Metric::SmMaxMhz | Metric::MemoryMaxMhz => "nvmlDeviceGetMaxClockInfo",
        Metric::PerformanceState => "nvmlDeviceGetPerformanceState",
        Metric::ThrottleReasons => "nvmlDeviceGetCurrentClocksThrottleReasons",
        Metric::PowerMw => "nvmlDeviceGetPowerUsage",
        Metric::PowerLimitMw => "nvmlDeviceGetEnforcedPowerLimit",
        Metric::CelsiusNow => "nvmlDeviceGetTemperature",
        Metric::SlowdownCelsius | Metric::ShutdownCelsius => "nvmlDeviceGetTemperatureThreshold",
        Metric::MemoryCelsius
        | Metric::PcieReplays
        | Metric::Nvlinks
        | Metric::NvlinkSent
        | Metric::NvlinkReceived
        | Metric::NvlinkErrors
        | Metric::EccErrorsEver
        | Metric::EccCorrected
        | Metric::EccCorrectedEver
        | Metric::RowsCorrected
        | Metric::RowsUncorrected
        | Metric::RowsPending
        | Metric::RowsFailed => "nvmlDeviceGetFieldValues",
        Metric::FanPercent => "nvmlDeviceGetFanSpeed_v2",
        Metric::PcieGeneration => "nvmlDeviceGetCurrPcieLinkGeneration",
        Metric::PcieGenerationMax => "nvmlDeviceGetMaxPcieLinkGeneration",
        Metric::PcieWidth => "nvmlDeviceGetCurrPcieLinkWidth",
        Metric::PcieWidthMax => "nvmlDeviceGetMaxPcieLinkWidth",
        Metric::PcieSent | Metric::PcieReceived => "nvmlDeviceGetPcieThroughput",
        Metric::NvlinksActive => "nvmlDeviceGetNvLinkState",
        Metric::EccErrors => "nvmlDeviceGetTotalEccErrors",
        Metric::Bar1Used | Metric::Bar1Total => "nvmlDeviceGetBAR1MemoryInfo",
        Metric::Persistence => "nvmlDeviceGetPersistenceMode",
        Metric::ComputeMode => "nvmlDeviceGetComputeMode",
        Metric::Mig => "nvmlDeviceGetMigMode",
        Metric::MigSlices | Metric::MigMultiprocessors => "nvmlDeviceGetAttributes_v2",
    };
    Some(call)
}

/// NVML's reasons for lower clocks.
const THROTTLES: [(ThrottleReasons, Throttle); 9] = [
    (ThrottleReasons::HW_THERMAL_SLOWDOWN, Throttle::HardwareThermal),
    (ThrottleReasons::SW_THERMAL_SLOWDOWN, Throttle::Thermal),
    (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, Throttle::PowerBrake),
    (ThrottleReasons::HW_SLOWDOWN, Throttle::Hardware),
    (ThrottleReasons::SW_POWER_CAP, Throttle::PowerCap),
    (ThrottleReasons::SYNC_BOOST, Throttle::SyncBoost),
    (ThrottleReasons::APPLICATIONS_CLOCKS_SETTING, Throttle::ClockSetting),
    (ThrottleReasons::DISPLAY_CLOCK_SETTING, Throttle::DisplayClockSetting),
    (ThrottleReasons::GPU_IDLE, Throttle::Idle),
];

/// Returns NVML's reasons as the bits of gpuwatch's.
fn throttles(reasons: ThrottleReasons) -> u64 {
    let bits = THROTTLES.iter().filter(|(theirs, _)| reasons.contains(*theirs)).map(|(_, own)| own.bit());
    bits.fold(0, |all, bit| all | bit)
}

/// The longest time between two readings that make a rate.
const RATE_OVER: Duration = Duration::from_secs(10);

/// The fields that one call returns, and their metrics. Those of one metric are added up.
const FIELDS: &[(Metric, u32)] = &[
    (Metric::MemoryCelsius, field_id::NVML_FI_DEV_MEMORY_TEMP),
    (Metric::PcieReplays, field_id::NVML_FI_DEV_PCIE_REPLAY_COUNTER),
    (Metric::NvlinkErrors, field_id::NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL),
    (Metric::NvlinkErrors, field_id::NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL),
    (Metric::NvlinkErrors, field_id::NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL),
    (Metric::NvlinkErrors, field_id::NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL),
    (Metric::EccErrorsEver, field_id::NVML_FI_DEV_ECC_DBE_AGG_TOTAL),
    (Metric::EccCorrected, field_id::NVML_FI_DEV_ECC_SBE_VOL_TOTAL),
    (Metric::EccCorrectedEver, field_id::NVML_FI_DEV_ECC_SBE_AGG_TOTAL),
    (Metric::RowsCorrected, field_id::NVML_FI_DEV_REMAPPED_COR),
    (Metric::RowsUncorrected, field_id::NVML_FI_DEV_REMAPPED_UNC),
    (Metric::RowsPending, field_id::NVML_FI_DEV_REMAPPED_PENDING),
    (Metric::RowsFailed, field_id::NVML_FI_DEV_REMAPPED_FAILURE),
];

/// More links than any device has.
const LINKS_MAX: u64 = 64;

fn links(device: &Device<'_>) -> Result<Values, NvmlError> {
    let mut links = fields(device, &[(Metric::Nvlinks, field_id::NVML_FI_DEV_NVLINK_LINK_COUNT)])?;
    let count = links.get(Metric::Nvlinks).unwrap_or(0).min(LINKS_MAX);
    let numbers = 0..u32::try_from(count).unwrap_or(0);
    let states: Vec<bool> = numbers.filter_map(|it| device.link_wrapper_for(it).is_active().ok()).collect();
    let active = (!states.is_empty()).then(|| states.iter().map(|it| u64::from(*it)).sum());
    links.set(Metric::NvlinksActive, active);
    Ok(values(&links))
}

/// A total of bytes at the driver's time of it, or, where the driver gives none, at the time of its answer.
fn total(counted: Counted, answered: SystemTime) -> Value {
    let at = counted.at.unwrap_or_else(|| answered.duration_since(UNIX_EPOCH).unwrap_or_default());
    Value::Total(counted.kib.saturating_mul(1024), at)
}

/// Reads fields in one call. One that the device lacks is left out.
fn fields(device: &Device<'_>, wanted: &[(Metric, u32)]) -> Result<Metrics, NvmlError> {
    let ids: Vec<_> = wanted.iter().map(|(_, id)| FieldId(*id)).collect();
    let samples = device.field_values_for(&ids)?;
    let mut sums = Metrics::default();
    for ((metric, _), sample) in wanted.iter().zip(samples) {
        if let Some(value) = sample.and_then(|it| it.value).ok().and_then(|it| number(&it)) {
            let sum = sums.get(*metric).unwrap_or(0).saturating_add(value);
            sums.set(*metric, Some(sum));
        }
    }
    Ok(sums)
}

fn values(metrics: &Metrics) -> Values {
    metrics.iter().map(|(metric, it)| (metric, it.into())).collect()
}

fn number(value: &SampleValue) -> Option<u64> {
    match value {
        SampleValue::U32(it) => Some(u64::from(*it)),
        SampleValue::U64(it) => Some(*it),
        SampleValue::I64(it) => u64::try_from(*it).ok(),
        SampleValue::F64(_) => None,
    }
}

/// A device's metrics, as last read and as last sent.
#[derive(Default)]
pub(super) struct Meter {
    now: Metrics,
    sent: Option<Metrics>,
    /// Places of reads that the device or driver lacks.
    refused: BTreeSet<usize>,
    /// The latest totals of the metrics that are rates, and when they were that.
    totals: BTreeMap<Metric, (u64, Duration)>,
}

impl Meter {
    /// Returns the places of the reads that are due, in the device's so many-eth second.
    pub(super) fn due(&mut self, second: u64, is_focused: bool) -> Vec<usize> {
        let is_first = self.sent.is_none();
        let is_due = |every: Every| is_first || second.is_multiple_of(every.seconds());
        if is_due(Every::Minute) {
            self.refused.clear();
        }
        let wanted = |read: &Read| is_due(read.every()) && (is_focused || read.every() != Every::Watched);
        let due = READS.iter().enumerate().filter(|(place, read)| wanted(read) && !self.refused.contains(place));
        due.map(|(place, _)| place).collect()
    }

    /// Takes the answer of the read at a place.
    pub(super) fn take(&mut self, place: usize, answer: Result<Values, NvmlError>) {
        let Some(read) = READS.get(place) else { return };
        if matches!(&answer, Err(error) if super::reading::is_missing(error) || is_refusal(error)) {
            self.refused.insert(place);
        }
        let values: BTreeMap<Metric, Value> = answer.unwrap_or_default().into_iter().collect();
        for metric in read.fills {
            let value = match values.get(metric) {
                Some(Value::Now(number)) => Some(*number),
                Some(Value::Total(total, at)) => self.rate(*metric, *total, *at),
                None => None,
            };
            self.now.set(*metric, value);
        }
    }

    /// Returns the rate since the total before; `None` for the first, after a long time, and if total or time fell.
    fn rate(&mut self, metric: Metric, total: u64, at: Duration) -> Option<u64> {
        let (before, then) = self.totals.insert(metric, (total, at))?;
        let time = at.checked_sub(then)?;
        let more = total.checked_sub(before).filter(|_| !time.is_zero() && time <= RATE_OVER)?;
        Some(whole(more as f64 / time.as_secs_f64()))
    }

    /// Returns what to send: the changes, and once a minute everything. `None` if there is nothing to send.
    pub(super) fn news(&mut self, second: u64, is_focused: bool) -> Option<Changes> {
        if !is_focused {
            let watched = Metric::TABLE.iter().filter(|it| it.every == Every::Watched);
            watched.for_each(|it| self.now.set(it.metric, None));
        }
        let is_whole = second.is_multiple_of(Every::Minute.seconds());
        let before = self.sent.replace(self.now.clone());
        let Some(before) = before else { return Some(self.now.clone().into()) };
        let changes = if is_whole { self.now.whole(&before) } else { self.now.since(&before) };
        Some(changes).filter(|it| !it.is_empty())
    }
}

fn is_refusal(error: &NvmlError) -> bool {
    matches!(error, NvmlError::NotSupported | NvmlError::NoPermission)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_metric_is_filled_by_one_read_at_its_pace() {
        for row in Metric::TABLE.iter().filter(|it| call(it.metric).is_some()) {
            let reads: Vec<_> = READS.iter().filter(|it| it.fills.contains(&row.metric)).collect();
            let [read] = reads[..] else { panic!("{}: {} reads", row.name, reads.len()) };
            assert_eq!(read.every(), row.every, "{}", row.name);
        }
        assert!(FIELDS.iter().all(|(metric, _)| call(*metric) == Some("nvmlDeviceGetFieldValues")));
    }

    #[test]
    fn calls_that_a_device_lacks_are_made_once_a_minute() {
        let mut meter = Meter::default();
        assert_eq!(meter.due(7, true).len(), READS.len(), "the first time, all");
        for place in 0..READS.len() {
            meter.take(place, Err(NvmlError::NotSupported));
        }
        assert_eq!(meter.news(7, true), Some(Changes::default()), "the first reading is sent also if it has nothing");
        assert!((8..60).all(|it| meter.due(it, true).is_empty() && meter.news(it, true).is_none()));
        assert_eq!(meter.due(60, true).len(), READS.len());
    }

    #[test]
    fn an_hour_takes_as_many_calls_as_the_table_allows() {
        let mut meter = Meter::default();
        let mut calls = |seconds: std::ops::Range<u64>, is_focused| -> u64 {
            seconds.map(|it| (meter.due(it, is_focused).len() as u64, meter.news(it, is_focused)).0).sum()
        };
        calls(0..1, false);
        let expected = |is_wanted: fn(Every) -> bool| -> u64 {
            READS.iter().filter(|it| is_wanted(it.every())).map(|it| 3600 / it.every().seconds()).sum()
        };
        let hour = calls(1..3601, false);
        assert_eq!(hour, expected(|it| it != Every::Watched));
        assert!(hour < 5 * 3600, "{hour} reads an hour of a device");
        assert_eq!(calls(3601..7201, true), expected(|_| true), "of the device on the screen");
    }

    #[test]
    fn a_rate_takes_two_totals_that_do_not_fall() {
        let mut meter = Meter::default();
        let mut rate = |seconds, total| meter.rate(Metric::NvlinkSent, total, Duration::from_secs(seconds));
        let rates = [rate(0, 500), rate(2, 2500), rate(2, 2600), rate(3, 100), rate(4, 100), rate(60, 900)];
        assert_eq!(rates, [None, Some(1000), None, None, Some(0), None]);
        assert_eq!([rate(59, 1000), rate(60, 1500)], [None, Some(500)], "after a clock that was set back");
    }

    #[test]
    fn a_total_has_the_drivers_time_or_that_of_the_answer() {
        let answered = UNIX_EPOCH + Duration::from_secs(7);
        let timed = |at| match total(Counted { kib: 3, at }, answered) {
            Value::Total(bytes, at) => (bytes, at.as_secs()),
            Value::Now(_) => unreachable!("a total"),
        };
        assert_eq!(timed(Some(Duration::from_secs(5))), (3072, 5));
        assert_eq!(timed(None), (3072, 7));
    }

    #[test]
    fn metrics_of_the_device_in_focus_end_with_it() {
        let mut meter = Meter::default();
        let place = READS.iter().position(|it| it.fills == [Metric::PcieSent]).unwrap();
        assert!(!meter.due(1, false).contains(&place), "also the first time");
        meter.news(1, false);
        assert!(meter.due(2, true).contains(&place));
        meter.take(place, Ok(vec![(Metric::PcieSent, 5_u64.into())]));
        assert_eq!(meter.news(2, true), Some([(Metric::PcieSent, 5)].into_iter().collect()));
        assert!(meter.news(3, false).is_some_and(|it| serde_json::to_string(&it).unwrap() == r#"{"pcie_sent":null}"#));
    }
}
