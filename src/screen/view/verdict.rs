//! How a finding is drawn: the role of its severity, its rate in a column, its process.

use super::{RenderContext, cells, device_name, messages};
use crate::{
    model::{
        analysis::{
            curve::Curve,
            episode::{Axis, Resource},
            severity::Severity,
        },
        findings::Finding,
        session::process::{OnDevice, Process},
    },
    screen::theme::Role,
};

/// A process rests that takes no step for this long, in µs and in steps of the usual duration.
const PAUSE_US: u64 = 10_000_000;
const PAUSE_STEPS: u64 = 8;

/// Returns the role of a severity; its name is always next to it, because some users cannot see the colour.
pub(super) fn role(severity: Severity) -> Role {
    match severity {
        Severity::Critical => Role::Bad,
        Severity::Warning => Role::Warning,
        Severity::Info => Role::Text,
    }
}

/// Returns its slope for a column per step: `+4.00 MiB`; a word if the job counts no steps.
pub(super) fn rate(it: &Finding) -> String {
    match (it.axis, it.bytes_per_step) {
        (Axis::Steps, Some(rate)) => format!("{}{}", if it.approximate { "≈" } else { "" }, cells::rate(rate)),
        _ => "grows".to_owned(),
    }
}

/// Returns the word for a process without growth, once enough was seen: `flat`, or `rises` while its allocator takes
/// more from the device without any growth found.
pub(super) fn level(on: &OnDevice) -> &'static str {
    if rises(on) { "rises" } else { "flat" }
}

/// Whether the allocator takes more and more from the device, as after it released its cache.
pub(super) fn rises(on: &OnDevice) -> bool {
    on.growth.curve(Resource::Reserved).is_some_and(Curve::rises)
}

/// Returns whether a process continues: it takes steps, or counts none. Otherwise it does not fill the device.
pub(super) fn continues(process: &Process, context: &RenderContext) -> bool {
    let typical = process.devices.iter().filter_map(|it| it.pace.typical()).map(|it| it.us).max().unwrap_or(0);
    let pause = typical.saturating_mul(PAUSE_STEPS).max(PAUSE_US);
    let rests = process.stall.latest().is_some_and(|(_, at)| context.session.now.since(at) > pause);
    process.is_alive() && !rests
}

/// Returns how long until the device is full; `None` if that is unknown, and while the finding's process rests.
pub(super) fn left(it: &Finding, context: &RenderContext) -> Option<String> {
    it.left().filter(|_| it.process(context.session).is_none_or(|process| continues(process, context)))
}

/// Returns `growth of allocated`, `oom`, `imbalance: wants 89.17 GiB, the others 67.20 GiB`.
pub(super) fn what(it: &Finding) -> String {
    match (it.resource, it.comparison()) {
        (Some(resource), _) => format!("{} of {}", it.kind.name(), resource.name()),
        (None, Some(figures)) => format!("{}: {figures}", it.kind.name()),
        (None, None) => it.kind.name().to_owned(),
    }
}

/// Returns `rank 1 on GPU 1`.
pub(super) fn place(process: &Process, on: &OnDevice, context: &RenderContext) -> String {
    let device = context.session.device(&on.device).map_or_else(|| format!("device {}", on.ordinal), device_name);
    format!("{} on {device}", messages::short(process))
}

/// Returns `rank 1 on GPU 1`, without the device for host memory.
pub(super) fn whose(it: &Finding, context: &RenderContext) -> String {
    let by_pid = || it.pid.map_or_else(|| "a probe".to_owned(), |pid| format!("pid {pid}"));
    let who = it.process(context.session).map_or_else(by_pid, messages::short);
    let device = it.device.as_ref().and_then(|id| context.session.device(id)).map(device_name);
    device.map_or_else(|| who.clone(), |device| format!("{who} on {device}"))
}
