//! How verdicts on labelled traces are scored: recall, delay, false alarms, slope, and what came to rest.
//!
//! - A finding before the leak begins, in a healthy trace, or of a resource that the leak cannot explain is a
//!   false alarm; their rate is over healthy traces and the stretches before a leak.
//! - A leak is recalled when its right findings are active for at least half of the time since the first of
//!   them. The ideal step is its start and the longer of 20 steps and 8 periods; leaks whose ideal lies less
//!   than 30 steps before the end are left out.
//! - A bounded trace or a sawtooth has gone wrong when a finding is unresolved at the end although nothing grew
//!   for 150 steps or more, or when findings flap: more than one per resource if bounded, two if a sawtooth.

use gpuwatch::model::analysis::episode::{Episode, Resource};
use serde::Deserialize;
use std::fmt;

/// The label of a trace.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Label {
    pub(super) trace: String,
    pub(super) class: Class,
    pub(super) resource: Option<String>,
    pub(super) start_step: Option<u64>,
    pub(super) period: Option<f64>,
    pub(super) bytes_per_step: Option<f64>,
    pub(super) blocks_per_step: Option<f64>,
    pub(super) benign_until_step: Option<u64>,
    pub(super) steps: u64,
    /// Ids of the right causes, where the label names them.
    #[serde(default)]
    pub(super) causes: Vec<String>,
    #[serde(default)]
    pub(super) tolerate: Option<Vec<String>>,
    #[serde(default)]
    pub(super) pre_class: Option<String>,
    #[serde(default)]
    pub(super) hopeless: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Class {
    Healthy,
    Bounded,
    Sawtooth,
    Leak,
    Other,
}

/// The score of many traces.
#[derive(Debug, Default)]
pub(super) struct Score {
    pub(super) recalled: usize,
    pub(super) leaks: usize,
    pub(super) missed: Vec<String>,
    pub(super) false_alarms: Vec<String>,
    pub(super) benign_steps: u64,
    pub(super) gone_wrong: Vec<String>,
    delays: Vec<f64>,
    slope_errors: Vec<f64>,
}

impl Score {
    pub(super) fn add(&mut self, label: &Label, episodes: &[Episode]) {
        let tolerated = label.tolerate.clone().unwrap_or_default();
        let found: Vec<_> =
            episodes.iter().filter(|it| tolerated.iter().all(|name| name != it.resource.id())).collect();
        match (label.class, label.start_step) {
            (Class::Healthy, _) => {
                self.benign_steps += label.steps;
                for it in found {
                    self.alarm(label, it);
                }
            }
            (Class::Bounded | Class::Sawtooth, _) => self.at_rest(label, &found),
            (_, Some(start)) => self.leak(label, start, &found),
            (_, None) => {}
        }
    }

    fn alarm(&mut self, label: &Label, it: &Episode) {
        self.false_alarms.push(format!("{}: {} at {}", label.trace, it.resource.id(), it.first_alert_step));
    }

    fn at_rest(&mut self, label: &Label, found: &[&Episode]) {
        let most = if label.class == Class::Bounded { 1 } else { 2 };
        let rests = label.steps - label.benign_until_step.unwrap_or(label.steps) >= 150;
        let stuck = rests && found.iter().any(|it| it.resolved.is_none());
        let flaps = Resource::ALL.iter().any(|of| found.iter().filter(|it| it.resource == *of).count() > most);
        if stuck || flaps {
            self.gone_wrong.push(format!("{} ({})", label.trace, if stuck { "stuck" } else { "flaps" }));
        }
    }

    fn leak(&mut self, label: &Label, start: u64, found: &[&Episode]) {
        self.benign_steps += start - 1;
        let resource = label.resource.as_deref().unwrap_or_default();
        let under_sawtooth = label.pre_class.as_deref() == Some("sawtooth");
        for it in found {
            let early = it.first_alert_step < start && !(under_sawtooth && it.resolved.is_some());
            if early || !(it.resource.id() == resource || follows(resource, it.resource)) {
                self.alarm(label, it);
            }
        }
        let ideal = start as f64 + (8.0 * label.period.unwrap_or(1.0)).max(20.0);
        if ideal > label.steps as f64 - 30.0 || label.hopeless == Some(true) {
            return;
        }
        self.leaks += 1;
        let is_right = |it: &&&Episode| {
            let named = it.resource.id() == resource || (resource, it.resource) == ("device", Resource::Driver);
            named && it.first_alert_step >= start
        };
        let right: Vec<_> = found.iter().filter(is_right).collect();
        let Some(first) = right.iter().map(|it| it.first_alert_step).min() else {
            self.missed.push(label.trace.clone());
            return;
        };
        let active = |step: u64| {
            right
                .iter()
                .any(|it| it.first_alert_step <= step && it.resolved.is_none_or(|resolved| step < resolved.step))
        };
        let covered = (first..label.steps).filter(|it| active(*it)).count() as u64;
        if 2 * covered < label.steps - first {
            self.missed.push(label.trace.clone());
            return;
        }
        self.recalled += 1;
        self.delays.push((first as f64 - ideal).max(0.0));
        if let (Some(last), Some(truth)) = (right.last(), label.bytes_per_step.filter(|it| *it != 0.0)) {
            self.slope_errors.push((last.bytes_per_step / truth - 1.0).abs());
        }
    }

    pub(super) fn recall(&self) -> f64 {
        self.recalled as f64 / self.leaks.max(1) as f64
    }

    pub(super) fn false_alarms_per_100k(&self) -> f64 {
        self.false_alarms.len() as f64 / self.benign_steps.max(1) as f64 * 1e5
    }

    pub(super) fn delay(&self, share: f64) -> f64 {
        quantile(&self.delays, share)
    }

    pub(super) fn slope_error(&self) -> f64 {
        quantile(&self.slope_errors, 0.5)
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.2} / {:.1} / {:.0} / {:.3} / {}   (delay p90 {:.0}; {} leaks; {} benign steps)",
            self.recall(),
            self.false_alarms_per_100k(),
            self.delay(0.5),
            self.slope_error(),
            self.gone_wrong.len(),
            self.delay(0.9),
            self.leaks,
            self.benign_steps
        )
    }
}

/// Returns the resources that rise with a leak of a resource: findings there are neither right nor wrong.
fn follows(leak: &str, found: Resource) -> bool {
    match leak {
        "allocated" => matches!(found, Resource::Reserved | Resource::Driver | Resource::Device | Resource::Host),
        "reserved" => matches!(found, Resource::Driver | Resource::Device),
        "device" => found == Resource::Driver,
        "pinned" => found == Resource::Host,
        _ => false,
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in a short list")]
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = (share * sorted.len() as f64) as usize;
    sorted.get(place.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}
