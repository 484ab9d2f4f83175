//! Parses a sample's line in one pass: nearly every line is a sample, and the general parser makes three passes.

use crate::facts::{
    event::{
        Event, Fact, Line, ProbeId,
        wire::{Counters, Sample},
    },
    units::Stamp,
};
use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, MapAccess, Visitor},
};
use std::fmt;

/// How the wire and [`super::encode`] begin it.
const BEGINNING: &str = "{\"type\":\"sample\",";

/// Its fields, except the counters.
const OWN: [&str; 8] = ["type", "seq", "at_us", "device", "edge", "step", "from", "seen_us"];

/// Parses a line that is a plain sample; the general parser reads all others.
pub(super) fn decode(line: &str) -> Option<Event> {
    if !line.starts_with(BEGINNING) {
        return None;
    }
    let Row { sample, from, seen_us } = serde_json::from_str(line).ok()?;
    let at = seen_us.unwrap_or(Stamp(sample.at_us));
    Some(Event { at, fact: Fact::Probe { probe: from.unwrap_or(ProbeId(0)), line: Box::new(Line::Sample(sample)) } })
}

/// A sample with the viewer's additions.
#[derive(Default)]
struct Row {
    sample: Sample,
    from: Option<ProbeId>,
    seen_us: Option<Stamp>,
}

impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Fields)
    }
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Row;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a sample")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Row, A::Error> {
        let mut row = Row::default();
        let mut values = Counters::default().values();
        // The general parser reads a repeated field, or a name with an escape.
        let mut seen = 0_u64;
        while let Some(name) = map.next_key::<&str>()? {
            let counter = Counters::NAMES.iter().position(|it| *it == name);
            let place = counter.or_else(|| OWN.iter().position(|it| *it == name).map(|it| it + Counters::NAMES.len()));
            let bit = place.map_or(0, |it| 1 << it);
            if seen & bit != 0 {
                return Err(A::Error::custom("a field that occurs twice"));
            }
            seen |= bit;
            if let Some(value) = counter.and_then(|it| values.get_mut(it)) {
                *value = map.next_value()?;
                continue;
            }
            match name {
                "seq" => row.sample.seq = map.next_value()?,
                "at_us" => row.sample.at_us = map.next_value()?,
                "device" => row.sample.device = map.next_value()?,
                "edge" => row.sample.edge = map.next_value()?,
                "step" => row.sample.step = map.next_value()?,
                "from" => row.from = map.next_value()?,
                "seen_us" => row.seen_us = map.next_value()?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        row.sample.counters = Counters::from_values(&values);
        Ok(row)
    }
}
