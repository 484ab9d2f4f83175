//! Values of metrics: all that are known, and what changed. In files, an object with a metric's name for each value.

use super::Metric;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use std::{collections::BTreeMap, fmt};

/// A device's known metrics. One that is missing is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metrics(BTreeMap<Metric, u64>);

/// Metrics that changed; `None` where a value is not known any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes(BTreeMap<Metric, Option<u64>>);

impl Metrics {
    /// Returns a value.
    pub fn get(&self, metric: Metric) -> Option<u64> {
        self.0.get(&metric).copied()
    }

    /// Sets a value, or removes it.
    pub fn set(&mut self, metric: Metric, value: Option<u64>) {
        match value {
            Some(it) => self.0.insert(metric, it),
            None => self.0.remove(&metric),
        };
    }

    /// Returns the known metrics and their values.
    pub fn iter(&self) -> impl Iterator<Item = (Metric, u64)> {
        self.0.iter().map(|(metric, value)| (*metric, *value))
    }

    /// Returns what leads from `before` to this.
    pub fn since(&self, before: &Self) -> Changes {
        let gone = before.0.keys().filter(|it| !self.0.contains_key(it)).map(|it| (*it, None));
        let new = self.iter().filter(|(metric, value)| before.get(*metric) != Some(*value));
        Changes(new.map(|(metric, value)| (metric, Some(value))).chain(gone).collect())
    }

    /// Returns everything, so that a reader that has seen nothing knows it too, and what is gone since `before`.
    pub fn whole(&self, before: &Self) -> Changes {
        let mut all = self.since(before);
        all.0.extend(self.iter().map(|(metric, value)| (metric, Some(value))));
        all
    }

    /// Applies changes.
    pub fn apply(&mut self, changes: &Changes) {
        for (metric, value) in &changes.0 {
            self.set(*metric, *value);
        }
    }

    /// Formats a value, with the one behind it; `None` if it is unknown.
    pub fn format(&self, metric: Metric) -> Option<String> {
        let (value, unit) = (self.get(metric)?, metric.row().unit);
        let behind = metric.behind().and_then(|it| self.get(it));
        Some(behind.map_or_else(|| unit.format(value), |it| unit.format_both(value, it)))
    }
}

impl FromIterator<(Metric, u64)> for Metrics {
    fn from_iter<I: IntoIterator<Item = (Metric, u64)>>(all: I) -> Self {
        Self(all.into_iter().collect())
    }
}

impl Changes {
    /// Returns whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Metrics> for Changes {
    fn from(metrics: Metrics) -> Self {
        metrics.since(&Metrics::default())
    }
}

impl FromIterator<(Metric, u64)> for Changes {
    fn from_iter<I: IntoIterator<Item = (Metric, u64)>>(all: I) -> Self {
        Metrics::from_iter(all).into()
    }
}

impl Serialize for Metrics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(metric, value)| (metric.row().name, value)))
    }
}

impl Serialize for Changes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(metric, value)| (metric.row().name, value)))
    }
}

impl<'de> Deserialize<'de> for Metrics {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Changes(all) = Changes::deserialize(from)?;
        Ok(Self(all.into_iter().filter_map(|(metric, value)| Some((metric, value?))).collect()))
    }
}

impl<'de> Deserialize<'de> for Changes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Named)
    }
}

/// Reads an object with a value for each name. Skips names that a later release added.
struct Named;

impl<'de> Visitor<'de> for Named {
    type Value = Changes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with the metrics of a device")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Changes, A::Error> {
        let mut all = BTreeMap::new();
        while let Some(name) = map.next_key::<String>()? {
            match Metric::from_name(&name) {
                Some(metric) => {
                    all.insert(metric, map.next_value()?);
                }
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Changes(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
