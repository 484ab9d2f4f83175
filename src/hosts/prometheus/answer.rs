//! What a store answers.
//!
//! <https://prometheus.io/docs/prometheus/latest/querying/api/>

use crate::{
    facts::{
        text::{self, Foreign},
        units,
    },
    model::cluster::answers::History,
};
use anyhow::{Result, anyhow, bail};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny, SeqAccess, Visitor},
};
use std::{fmt, marker::PhantomData};

/// Most series of an answer: ten times what 4,096 ranks have of the ten families that gpuwatch asks for. The shortest
/// ones that fit into an answer are two million, which would take gigabytes.
pub(super) const SERIES_MAX: usize = 10 * 4096 * 10;

/// Most points of an answer that are kept. Prometheus has the same limit.
const POINTS_MAX: usize = 11_000;

/// Most bytes of a store's words that are shown.
const WORDS_MAX: usize = 200;

/// A series with its current value.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Figure {
    #[serde(rename = "metric")]
    pub(super) labels: Labels,
    #[serde(deserialize_with = "point")]
    pub(super) value: (u64, f64),
}

/// The labels that gpuwatch's series have, and the target's.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Labels {
    #[serde(rename = "__name__")]
    pub(super) name: Foreign,
    pub(super) instance: Foreign,
    pub(super) gpu_uuid: Foreign,
    pub(super) rank: Foreign,
    pub(super) run: Foreign,
    pub(super) process: Foreign,
    pub(super) host: Foreign,
    pub(super) pid: Foreign,
    pub(super) scheduler: Foreign,
    pub(super) scheduler_job: Foreign,
    pub(super) world_size: Foreign,
    pub(super) kind: Foreign,
    pub(super) cause: Foreign,
    pub(super) severity: Foreign,
}

#[derive(Deserialize)]
struct Answer<T> {
    status: String,
    data: Option<Data<T>>,
    error: Option<Foreign>,
}

#[derive(Deserialize)]
struct Data<T> {
    result: Bounded<T>,
}

/// The series of an answer; `None` if there are more than [`SERIES_MAX`].
struct Bounded<T>(Option<Vec<T>>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Bounded<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(Series(PhantomData))
    }
}

struct Series<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Series<T> {
    type Value = Bounded<T>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("series")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Bounded<T>, A::Error> {
        let mut all = Vec::new();
        while let Some(it) = from.next_element()? {
            if all.len() == SERIES_MAX {
                while from.next_element::<IgnoredAny>()?.is_some() {}
                return Ok(Bounded(None));
            }
            all.push(it);
        }
        Ok(Bounded(Some(all)))
    }
}

#[derive(Deserialize)]
struct Course {
    #[serde(default)]
    values: Vec<Point>,
}

#[derive(Deserialize)]
struct Point(#[serde(deserialize_with = "point")] (u64, f64));

/// Reads a point: a time in seconds, and a value as text. Stores write `NaN` and `+Inf`, too.
fn point<'de, D: Deserializer<'de>>(from: D) -> Result<(u64, f64), D::Error> {
    let (seconds, value) = <(f64, String)>::deserialize(from)?;
    let value = value.parse().map_err(D::Error::custom)?;
    Ok((units::whole(seconds * 1e6), value))
}

/// Returns the series of an answer.
///
/// # Errors
/// Fails if it is not an answer of this API, or has too many series.
pub(super) fn instant(bytes: &[u8]) -> Result<Vec<Figure>> {
    parsed(bytes)
}

/// Returns the points of the first series of an answer.
///
/// # Errors
/// As [`instant`].
pub(super) fn range(bytes: &[u8]) -> Result<History> {
    let all: Vec<Course> = parsed(bytes)?;
    let first = all.into_iter().next().map(|it| it.values).unwrap_or_default();
    Ok(first.into_iter().map(|it| it.0).filter(|it| it.1.is_finite()).take(POINTS_MAX).collect())
}

fn parsed<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<Vec<T>> {
    let answer: Answer<T> = serde_json::from_slice(bytes)
        .map_err(|why| anyhow!("the answer is not one of Prometheus's API ({})", text::fault(&why)))?;
    match answer.data.filter(|_| answer.status == "success").map(|it| it.result.0) {
        Some(Some(all)) => Ok(all),
        Some(None) => bail!("the answer has more than {SERIES_MAX} series: select fewer ranks with --match"),
        None => bail!("the question fails there: {}", shown(&answer.error.unwrap_or_default())),
    }
}

/// Returns a store's words about a question that it refuses.
pub(super) fn refusal(bytes: &[u8]) -> Option<String> {
    let answer: Answer<IgnoredAny> = serde_json::from_slice(bytes).ok()?;
    answer.error.as_ref().map(shown)
}

fn shown(words: &Foreign) -> String {
    words.to_string().chars().take(WORDS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_series_points_or_a_reason() {
        let vector = br#"{"status":"success","data":{"resultType":"vector","result":[
            {"metric":{"__name__":"gpuwatch_step","rank":"3","later":"x"},"value":[1700000000.123,"7"]}]}}"#;
        let all = instant(vector).unwrap();
        assert_eq!((all[0].labels.rank.raw(), all[0].value), ("3", (1_700_000_000_123_000, 7.0)));
        let matrix = br#"{"status":"success","data":{"resultType":"matrix","result":[
            {"metric":{},"values":[[1,"2"],[2,"NaN"],[3,"+Inf"],[4,"5.5"]]}]}}"#;
        assert_eq!(range(matrix).unwrap(), [(1_000_000, 2.0), (4_000_000, 5.5)]);
        assert_eq!(range(br#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#).unwrap(), []);
        let error = br#"{"status":"error","errorType":"bad_data","error":"no \u001b[2J such"}"#;
        assert_eq!(refusal(error).unwrap(), "no \\u{1b}[2J such");
        assert!(instant(error).unwrap_err().to_string().contains("such"));
        for garbage in
            [&b"<html>"[..], b"", br#"{"status":"success","data":{"result":[{"metric":{},"value":[1,"x"]}]}}"#]
        {
            assert!(instant(garbage).unwrap_err().to_string().contains("Prometheus's API"));
        }
    }

    #[test]
    fn an_answer_with_more_series_than_any_fleet_is_refused() {
        let answer = |count: usize, rest: &str| {
            let series = vec![r#"{"metric":{},"value":[0,"0"]}"#; count].join(",");
            format!(r#"{{"status":"success","data":{{"result":[{series}{rest}]}}}}"#)
        };
        assert_eq!(instant(answer(SERIES_MAX, "").as_bytes()).unwrap().len(), SERIES_MAX);
        let why = instant(answer(SERIES_MAX + 2, "").as_bytes()).unwrap_err().to_string();
        assert_eq!(why, "the answer has more than 409600 series: select fewer ranks with --match");
        let why = instant(answer(SERIES_MAX + 1, ",").as_bytes()).unwrap_err().to_string();
        assert!(why.contains("Prometheus's API"), "{why}");
    }
}
