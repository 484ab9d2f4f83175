//! A finding as JSON, schema 1: bytes, steps, µs of `CLOCK_MONOTONIC`; unknown is `null`, never 0.

use super::{Finding, Identity};
use crate::{
    facts::event::Replayed,
    model::analysis::episode::{Axis, Resource},
};
use serde_json::{Map, Value, json};

impl Finding {
    /// Fields: `kind`, `severity`, `standing` (`usual`, `silenced`, `allowed`: the config's rule), `state` (`active`,
    /// `resolved`), `cause`, `advice`, `resource`, `device` (the process's ordinal), `device_id`, `pid`, `rank`, `axis`
    /// (`steps`, `seconds`), `since_step`, `since` (in words), `first_alert_step`, `first_alert_us`, `resolved_step`,
    /// `resolved_us`, `bytes_per_step`, `interval` (95 %), `blocks_per_step`, `full_in_steps`, `full_in_us`, `evidence`
    /// (figures by name), `culprit` ([`Culprit::json`]; `null` if no capture found one), `sentence` (an out-of-memory
    /// error in words), `follows` (`kind`, `resource` and `step` of the finding that causes this one, and `words`),
    /// `account[]` (lines of text), `replay` (`null` without one: `comparison` and `cost` as in recordings, `why` if
    /// there is no answer, and `words[]`), `approximate`.
    ///
    /// [`Culprit::json`]: crate::model::analysis::culprit::Culprit::json
    pub fn json(&self) -> Map<String, Value> {
        let figures = self.evidence.figures.iter();
        let evidence: Map<_, _> = figures.map(|it| (it.name.to_owned(), json!(it.value))).collect();
        let interval = self.evidence.get("interval_low").zip(self.evidence.get("interval_high"));
        let axis = match self.axis {
            Axis::Steps => "steps",
            Axis::Seconds => "seconds",
        };
        let follows = self.follows.map(|Identity { kind, resource, step, .. }| {
            json!({"kind": kind.name(), "resource": resource.map(Resource::name), "step": step, "words": self.following()})
        });
        let pairs = [
            ("kind", json!(self.kind.name())),
            ("severity", json!(self.severity.name())),
            ("standing", json!(self.standing.name())),
            ("state", json!(if self.is_active() { "active" } else { "resolved" })),
            ("cause", json!(self.cause.id())),
            ("advice", json!(self.remedy())),
            ("resource", json!(self.resource.map(Resource::id))),
            ("device", json!(self.ordinal)),
            ("device_id", json!(self.device)),
            ("pid", json!(self.pid)),
            ("rank", json!(self.rank)),
            ("axis", json!(axis)),
            ("since_step", json!(self.since_step)),
            ("since", json!(self.since())),
            ("first_alert_step", json!(self.first_alert_step)),
            ("first_alert_us", json!(self.first_alert_at)),
            ("resolved_step", json!(self.resolved_step)),
            ("resolved_us", json!(self.resolved_at)),
            ("bytes_per_step", json!(self.bytes_per_step)),
            ("interval", json!(interval.map(|(low, high)| [low, high]))),
            ("blocks_per_step", json!(self.blocks_per_step)),
            ("full_in_steps", json!(self.full_in_steps)),
            ("full_in_us", json!(self.full_in_us)),
            ("evidence", json!(evidence)),
            ("culprit", json!(self.culprit.as_ref().map(|it| it.json()))),
            ("sentence", json!(self.sentence)),
            ("follows", json!(follows)),
            ("account", json!(self.account)),
            ("replay", json!(self.replayed.as_deref().map(|it| replay(it, &self.replay_words())))),
            ("approximate", json!(self.approximate)),
        ];
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

fn replay(it: &Replayed, words: &[String]) -> Value {
    let (comparison, why) = (it.result.as_ref().ok(), it.result.as_ref().err());
    json!({ "comparison": comparison, "why": why, "cost": it.cost, "words": words })
}
