//! AMD's devices, as amdgpu shows them in `/sys`.

use super::{
    card::{Amount, Card, KernelDriver, OnBus, Read},
    sysfs::{bounded, hexadecimal, number, text, value},
    throttle,
};
use crate::facts::{
    event::{DeviceId, DeviceMemory, ReadError},
    maker::Maker,
    metrics::Metric,
    units::Bytes,
};
use std::path::Path;

/// Most bytes read of the table of names.
const NAMES_MAX: u64 = 1 << 20;

/// The table of names that comes with libdrm.
const NAMES: &str = "usr/share/libdrm/amdgpu.ids";

/// What amdgpu gives.
pub(super) const AMDGPU: KernelDriver = KernelDriver {
    maker: Maker::Amd,
    module: "amdgpu",
    memory: Some(memory),
    reads: READS,
    has_bridge: HAS_BRIDGE,
    regions: &["vram"],
    shared_regions: &["vram", "gtt"],
    system_regions: &["gtt"],
    engines: &["gfx", "compute"],
    encoders: &["enc", "enc_1"],
    decoders: &["dec", "dec_1"],
};

/// Returns a device's name: from the table of names, or as its board has it, or its number.
pub(super) fn name(bus: &OnBus<'_>) -> String {
    let listed = bounded(&bus.root.join(NAMES), NAMES_MAX).ok().and_then(|it| named(&it, bus.number, bus.revision));
    let own = || text(&bus.device.join("product_name")).ok().filter(|it| !it.is_empty());
    let name = listed.or_else(own).unwrap_or_else(|| format!("GPU 0x{:04x}", bus.number));
    let maker = Maker::Amd.row().name;
    if name.starts_with(maker) { name } else { format!("{maker} {name}") }
}

/// Finds a device in the table of names: device, revision and name, between commas and tabs.
fn named(table: &str, number: u16, revision: u8) -> Option<String> {
    table.lines().find_map(|line| {
        let mut fields = line.splitn(3, ',').map(str::trim);
        let is = |field: Option<&str>, number: u16| u16::from_str_radix(field?, 16).ok().filter(|it| *it == number);
        is(fields.next(), number)?;
        is(fields.next(), u16::from(revision))?;
        fields.next().filter(|it| !it.is_empty()).map(str::to_owned)
    })
}

/// Returns a device's name for ROCm, which its serial number makes; `None` for one without a serial number.
pub(super) fn id(bus: &OnBus<'_>) -> Option<DeviceId> {
    let serial = hexadecimal(&bus.device.join("unique_id")).filter(|it| *it > 0)?;
    Some(DeviceId(format!("GPU-{serial:016x}")))
}

/// Returns whether a device is part of a processor and shares its memory. The kernel shows the voltage of the
/// northbridge for these alone.
pub(super) fn is_integrated(sensors: Option<&Path>) -> bool {
    sensors.is_some_and(|it| it.join("in1_label").exists())
}

/// Reads a device's memory. That of integrated graphics is what the firmware has set aside for it, and what the kernel
/// lets it take of the rest of the system's.
fn memory(card: &Card) -> Result<DeviceMemory, ReadError> {
    let read = |name: &str| number(&card.device.join(name));
    let (mut total, mut used) = (read("mem_info_vram_total")?, read("mem_info_vram_used")?);
    if card.is_integrated {
        total = total.saturating_add(read("mem_info_gtt_total")?);
        used = used.saturating_add(read("mem_info_gtt_used")?);
    }
    let used = used.min(total);
    let free = Bytes(total - used);
    Ok(DeviceMemory { total: Bytes(total), used: Bytes(used), free, reserved: None, unified: None })
}

const READS: &[Read] = &[
    Read { metric: Metric::GpuPercent, file: "gpu_busy_percent", value: |it| percent(it, "gpu_busy_percent") },
    Read { metric: Metric::MemoryPercent, file: "mem_busy_percent", value: |it| percent(it, "mem_busy_percent") },
    Read { metric: Metric::SmMhz, file: "freq1_input, pp_dpm_sclk", value: |it| clock(it, "freq1", "pp_dpm_sclk") },
    Read { metric: Metric::SmMaxMhz, file: "pp_dpm_sclk", value: |it| highest(it, "pp_dpm_sclk") },
    Read { metric: Metric::MemoryMhz, file: "freq2_input, pp_dpm_mclk", value: |it| clock(it, "freq2", "pp_dpm_mclk") },
    Read { metric: Metric::MemoryMaxMhz, file: "pp_dpm_mclk", value: |it| highest(it, "pp_dpm_mclk") },
    Read { metric: Metric::PowerMw, file: "power1_average, power1_input", value: power },
    Read { metric: Metric::PowerLimitMw, file: "power1_cap", value: |it| it.sensor("power1_cap", 1000) },
    Read { metric: Metric::CelsiusNow, file: "tempN_input (edge, junction)", value: |it| celsius(it, &CHIP, "input") },
    Read { metric: Metric::SlowdownCelsius, file: "tempN_crit", value: |it| celsius(it, &CHIP, "crit") },
    Read { metric: Metric::ShutdownCelsius, file: "tempN_emergency", value: |it| celsius(it, &CHIP, "emergency") },
    Read { metric: Metric::MemoryCelsius, file: "tempN_input (mem)", value: |it| celsius(it, &["mem"], "input") },
    Read { metric: Metric::FanPercent, file: "pwm1", value: fan },
    Read { metric: Metric::PcieReplays, file: "pcie_replay_count", value: |it| own(it, "pcie_replay_count") },
    Read { metric: Metric::EccErrors, file: "ras/umc_err_count (ue)", value: |it| errors(it, "ue") },
    Read { metric: Metric::EccCorrected, file: "ras/umc_err_count (ce)", value: |it| errors(it, "ce") },
    Read { metric: Metric::ThrottleReasons, file: "gpu_metrics", value: throttle::amd },
    Read { metric: Metric::GttUsed, file: "mem_info_gtt_used", value: |it| own(it, "mem_info_gtt_used") },
    Read { metric: Metric::GttTotal, file: "mem_info_gtt_total", value: |it| own(it, "mem_info_gtt_total") },
];

/// The labels of the chip's temperature, the usual one first. Instinct has no edge.
const CHIP: [&str; 2] = ["edge", "junction"];

/// The bridges of a card, between the slot and the chip: AMD's processors have another number as maker.
const HAS_BRIDGE: fn(u64, u64) -> bool = |vendor, _| vendor == 0x1002;

fn own(card: &Card, name: &str) -> Option<Amount> {
    number(&card.device.join(name)).ok().map(Amount::Now)
}

fn percent(card: &Card, name: &str) -> Option<Amount> {
    own(card, name).filter(|it| matches!(it, Amount::Now(0..=100)))
}

fn power(card: &Card) -> Option<Amount> {
    card.sensor("power1_average", 1000).or_else(|| card.sensor("power1_input", 1000))
}

/// Returns a clock, in MHz: that of a sensor, or the marked one of a table of clocks.
fn clock(card: &Card, sensor_name: &str, table: &str) -> Option<Amount> {
    let marked = || clocks(card, table)?.into_iter().find(|it| it.1).map(|it| Amount::Now(it.0));
    card.sensor(&format!("{sensor_name}_input"), 1_000_000).or_else(marked)
}

fn highest(card: &Card, table: &str) -> Option<Amount> {
    clocks(card, table)?.into_iter().map(|it| it.0).max().map(Amount::Now)
}

/// Reads a table of clocks (`1: 1700Mhz *`): MHz, and whether it is the current one.
fn clocks(card: &Card, name: &str) -> Option<Vec<(u64, bool)>> {
    let text = text(&card.device.join(name)).ok()?;
    let clock = |line: &str| {
        let value = line.split_once(':')?.1.trim();
        let digits = value.split(|it: char| !it.is_ascii_digit()).next()?;
        Some((digits.parse().ok()?, value.ends_with('*')))
    };
    Some(text.lines().filter_map(clock).collect())
}

/// Returns a figure of the first of these temperatures that the device has, in °C.
fn celsius(card: &Card, labels: &[&str], figure: &str) -> Option<Amount> {
    let sensors = card.sensors.as_ref()?;
    let number = labels.iter().find_map(|label| {
        (1..=8).find(|it| text(&sensors.join(format!("temp{it}_label"))).is_ok_and(|name| name == *label))
    })?;
    card.sensor(&format!("temp{number}_{figure}"), 1000)
}

fn fan(card: &Card) -> Option<Amount> {
    let sensors = card.sensors.as_ref()?;
    let speed = number(&sensors.join("pwm1")).ok()?;
    let most = number(&sensors.join("pwm1_max")).unwrap_or(255).max(1);
    Some(Amount::Now(speed.saturating_mul(100) / most)).filter(|it| matches!(it, Amount::Now(0..=100)))
}

/// Returns a count of the memory's errors.
fn errors(card: &Card, key: &str) -> Option<Amount> {
    let text = text(&card.device.join("ras/umc_err_count")).ok()?;
    value(&text, key, ':')?.parse().ok().map(Amount::Now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_by_number_and_revision() {
        let table = "# comment\n1.0.0\n744C,\tC8,\tAMD Radeon RX 7900 XTX\n744C,\tCC,\tAMD Radeon RX 7900 XT\n\
                     74A1,\t00,\tAMD Instinct MI300X OAM\nzz,,\n15D8,\t00,\t\n";
        assert_eq!(named(table, 0x744C, 0xCC).as_deref(), Some("AMD Radeon RX 7900 XT"));
        assert_eq!(named(table, 0x74A1, 0).as_deref(), Some("AMD Instinct MI300X OAM"));
        assert_eq!((named(table, 0x744C, 0), named(table, 0x15D8, 0)), (None, None));
    }
}
