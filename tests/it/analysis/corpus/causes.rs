//! The cause that is named on labelled traces, against what was written into their loops.

use super::judge::Label;
use gpuwatch::model::{
    analysis::cause::Cause,
    findings::{Finding, Kind},
};
use std::fmt;

/// The causes named at the end of many traces.
#[derive(Debug, Default)]
pub(super) struct Named {
    right: usize,
    pub(super) judged: usize,
    lines: Vec<String>,
}

impl Named {
    /// Judges the growth that lasts at the end of a leak's trace, or else the last that was found.
    pub(super) fn add(&mut self, label: &Label, findings: &[Finding]) {
        let Some(resource) = label.resource.as_deref().filter(|_| label.start_step.is_some()) else { return };
        let of_resource =
            |it: &&Finding| it.kind == Kind::Growth && it.resource.is_some_and(|own| own.id() == resource);
        let found = findings.iter().filter(of_resource).max_by_key(|it| (it.is_active(), it.first_alert_at));
        let expected = expected(label);
        let is_right = found.is_some_and(|it| expected.contains(&it.cause));
        self.judged += 1;
        self.right += usize::from(is_right);
        let figures: Vec<_> = found.iter().flat_map(|it| it.evidence.words()).collect();
        self.lines.push(format!(
            "{} {:24} {:18} of {:40} {}",
            if is_right { ' ' } else { '✗' },
            label.trace,
            found.map_or("not found", |it| it.cause.id()),
            expected.iter().map(|it| it.id()).collect::<Vec<_>>().join(" "),
            figures.join(", ")
        ));
    }

    /// The share of leaks whose cause is right.
    pub(super) fn share(&self) -> f64 {
        self.right as f64 / self.judged.max(1) as f64
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nright cause: {} of {} ({:.2})", self.lines.join("\n"), self.right, self.judged, self.share())
    }
}

/// The causes that are right for a trace.
///
/// Where the label has no cause: what a container keeps is tensors; calling it scalars is also correct if each has the
/// smallest block's size. No trace has a capture, and counters alone cannot distinguish a graph from tensors that are
/// kept together: for a graph the right cause is that tensors are retained.
fn expected(label: &Label) -> Vec<Cause> {
    if !label.causes.is_empty() {
        let without_capture = |it| if it == Cause::GraphRetained { Cause::TensorsRetained } else { it };
        return label.causes.iter().map(|it| without_capture(Cause::from_id(it).unwrap())).collect();
    }
    let family = label.trace.rsplit_once('-').map_or(label.trace.as_str(), |it| it.0);
    match family {
        "l_losses" => return vec![Cause::ScalarsRetained],
        "l_total_graph" | "l_retain_graph" => return vec![Cause::TensorsRetained],
        "l_cat" => return vec![Cause::GrowingTensor],
        "o_driver" => return vec![Cause::DriverGrowth, Cause::OtherProcess],
        "o_fragment" => return vec![Cause::Fragmentation],
        "o_pinned" => return vec![Cause::PinnedGrowth],
        "o_host" => return vec![Cause::HostGrowth],
        _ => {}
    }
    let (bytes, blocks) = (label.bytes_per_step.unwrap_or(0.0), label.blocks_per_step.unwrap_or(0.0));
    let mut all = vec![Cause::TensorsRetained];
    if bytes <= 600.0 * blocks {
        all.push(Cause::ScalarsRetained);
    }
    all
}
