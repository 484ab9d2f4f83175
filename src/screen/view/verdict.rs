//! How a finding is shown: the role of its severity, its rate in a column, whose it is.

use super::{RenderContext, cells, device_name, messages};
use crate::{
    model::{
        analysis::{episode::Axis, severity::Severity},
        findings::Finding,
        session::process::{OnDevice, Process},
    },
    screen::theme::Role,
};

/// The role of a severity; its name is written beside it, as a colour alone says nothing to many.
pub(super) fn role(severity: Severity) -> Role {
    match severity {
        Severity::Critical => Role::Bad,
        Severity::Warning => Role::Warning,
        Severity::Info => Role::Text,
    }
}

/// Its slope for a column of figures per step: `+4.00 MiB`; a word where the job counts no steps.
pub(super) fn rate(it: &Finding) -> String {
    match (it.axis, it.bytes_per_step) {
        (Axis::Steps, Some(rate)) => format!("{}{}", if it.approximate { "≈" } else { "" }, cells::rate(rate)),
        _ => "grows".to_owned(),
    }
}

/// `growth of allocated`, `oom`.
pub(super) fn what(it: &Finding) -> String {
    it.resource
        .map_or_else(|| it.kind.name().to_owned(), |resource| format!("{} of {}", it.kind.name(), resource.name()))
}

/// `rank 1 on GPU 1`.
pub(super) fn place(process: &Process, on: &OnDevice, context: &RenderContext) -> String {
    let device = context.session.device(&on.device).map_or_else(|| format!("device {}", on.ordinal), device_name);
    format!("{} on {device}", messages::short(process))
}

/// `rank 1 on GPU 1`; the device is left out where it is about the host's memory.
pub(super) fn whose(it: &Finding, context: &RenderContext) -> String {
    let who = context.session.process(it.probe).map_or_else(|| "a probe".to_owned(), messages::short);
    let device = it.device.as_ref().and_then(|id| context.session.device(id)).map(device_name);
    device.map_or_else(|| who.clone(), |device| format!("{who} on {device}"))
}
