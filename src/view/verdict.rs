//! How a finding is shown: the role of its severity, its rate in a column.

use super::cells;
use crate::{
    analysis::{episode::Axis, severity::Severity},
    findings::Finding,
    theme::Role,
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
