//! How NVIDIA's own binding for Python reads what gpuwatch reads.

use gpuwatch::facts::metrics::Metric;
use serde_json::{Map, Value};

/// How NVIDIA's binding reads each metric of device `d`; `field` is the value of a field. Those that take two readings,
/// or are of MIG devices, are unknown in a single report of a whole device and have tests of their own.
pub(crate) const METRICS: &[(Metric, &str)] = &[
    (Metric::GpuPercent, "n.nvmlDeviceGetUtilizationRates(d).gpu"),
    (Metric::MemoryPercent, "n.nvmlDeviceGetUtilizationRates(d).memory"),
    (Metric::EncoderPercent, "n.nvmlDeviceGetEncoderUtilization(d)[0]"),
    (Metric::DecoderPercent, "n.nvmlDeviceGetDecoderUtilization(d)[0]"),
    (Metric::SmMhz, "n.nvmlDeviceGetClockInfo(d, n.NVML_CLOCK_SM)"),
    (Metric::SmMaxMhz, "n.nvmlDeviceGetMaxClockInfo(d, n.NVML_CLOCK_SM)"),
    (Metric::MemoryMhz, "n.nvmlDeviceGetClockInfo(d, n.NVML_CLOCK_MEM)"),
    (Metric::MemoryMaxMhz, "n.nvmlDeviceGetMaxClockInfo(d, n.NVML_CLOCK_MEM)"),
    (Metric::PerformanceState, "n.nvmlDeviceGetPerformanceState(d)"),
    (Metric::ThrottleReasons, "n.nvmlDeviceGetCurrentClocksThrottleReasons(d)"),
    (Metric::PowerMw, "n.nvmlDeviceGetPowerUsage(d)"),
    (Metric::PowerLimitMw, "n.nvmlDeviceGetEnforcedPowerLimit(d)"),
    (Metric::CelsiusNow, "n.nvmlDeviceGetTemperature(d, n.NVML_TEMPERATURE_GPU)"),
    (Metric::SlowdownCelsius, "n.nvmlDeviceGetTemperatureThreshold(d, n.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)"),
    (Metric::ShutdownCelsius, "n.nvmlDeviceGetTemperatureThreshold(d, n.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN)"),
    (Metric::MemoryCelsius, "field(n.NVML_FI_DEV_MEMORY_TEMP)"),
    (Metric::FanPercent, "n.nvmlDeviceGetFanSpeed_v2(d, 0)"),
    (Metric::PcieGeneration, "n.nvmlDeviceGetCurrPcieLinkGeneration(d)"),
    (Metric::PcieGenerationMax, "n.nvmlDeviceGetMaxPcieLinkGeneration(d)"),
    (Metric::PcieWidth, "n.nvmlDeviceGetCurrPcieLinkWidth(d)"),
    (Metric::PcieWidthMax, "n.nvmlDeviceGetMaxPcieLinkWidth(d)"),
    (Metric::PcieSent, "n.nvmlDeviceGetPcieThroughput(d, n.NVML_PCIE_UTIL_TX_BYTES) * 1024"),
    (Metric::PcieReceived, "n.nvmlDeviceGetPcieThroughput(d, n.NVML_PCIE_UTIL_RX_BYTES) * 1024"),
    (Metric::PcieReplays, "field(n.NVML_FI_DEV_PCIE_REPLAY_COUNTER)"),
    (
        Metric::NvlinksActive,
        "sum(n.nvmlDeviceGetNvLinkState(d, it) for it in range(field(n.NVML_FI_DEV_NVLINK_LINK_COUNT)))",
    ),
    (Metric::Nvlinks, "field(n.NVML_FI_DEV_NVLINK_LINK_COUNT)"),
    (Metric::NvlinkSent, "None"),
    (Metric::NvlinkReceived, "None"),
    (
        Metric::NvlinkErrors,
        "sum(map(field, (n.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL, \
         n.NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL, n.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL, \
         n.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL)))",
    ),
    (Metric::EccErrors, "n.nvmlDeviceGetTotalEccErrors(d, n.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, n.NVML_VOLATILE_ECC)"),
    (Metric::EccErrorsEver, "field(n.NVML_FI_DEV_ECC_DBE_AGG_TOTAL)"),
    (Metric::EccCorrected, "field(n.NVML_FI_DEV_ECC_SBE_VOL_TOTAL)"),
    (Metric::EccCorrectedEver, "field(n.NVML_FI_DEV_ECC_SBE_AGG_TOTAL)"),
    (Metric::RowsCorrected, "field(n.NVML_FI_DEV_REMAPPED_COR)"),
    (Metric::RowsUncorrected, "field(n.NVML_FI_DEV_REMAPPED_UNC)"),
    (Metric::RowsPending, "field(n.NVML_FI_DEV_REMAPPED_PENDING)"),
    (Metric::RowsFailed, "field(n.NVML_FI_DEV_REMAPPED_FAILURE)"),
    (Metric::Bar1Used, "n.nvmlDeviceGetBAR1MemoryInfo(d).bar1Used"),
    (Metric::Bar1Total, "n.nvmlDeviceGetBAR1MemoryInfo(d).bar1Total"),
    (Metric::Persistence, "n.nvmlDeviceGetPersistenceMode(d)"),
    (Metric::ComputeMode, "n.nvmlDeviceGetComputeMode(d)"),
    (Metric::Mig, "n.nvmlDeviceGetMigMode(d)[0]"),
    (Metric::MigSlices, "None"),
    (Metric::MigMultiprocessors, "None"),
];

/// The same for figures of process `p`, the newest sample.
pub(crate) const FIGURES: [(&str, &str); 4] = [
    ("sm_percent", "p.smUtil"),
    ("memory_percent", "p.memUtil"),
    ("encoder_percent", "p.encUtil"),
    ("decoder_percent", "p.decUtil"),
];

/// The arguments of `tests/it/python/binding.py`: expressions by name, of metrics and of figures.
pub(crate) fn arguments() -> [String; 2] {
    let metrics = METRICS.iter().map(|(metric, read)| (metric.row().name, *read)).collect::<Vec<_>>();
    [metrics.as_slice(), FIGURES.as_slice()].map(|all| {
        let entries = all.iter().map(|(name, read)| ((*name).to_owned(), Value::from(*read)));
        Value::Object(entries.collect::<Map<_, _>>()).to_string()
    })
}
