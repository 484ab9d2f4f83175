//! What a store answers.
//!
//! <https://prometheus.io/docs/prometheus/latest/querying/api/>

use crate::{
    facts::{
        text::{self, Foreign},
        units,
    },
    model::cluster::History,
};
use anyhow::{Result, anyhow, bail};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, IgnoredAny, SeqAccess, Visitor},
};
use std::{fmt, marker::PhantomData};

/// Most bytes of memory for the series of an answer: twice what 4,096 ranks have of the ten families that gpuwatch asks
/// for. Rows take some times as much, and the shortest series that fit into an answer would take gigabytes.
const HELD_MAX: usize = 64 << 20;

/// What a text takes beside its bytes: its allocation's header and the rest of its last unit.
const ALLOCATION: usize = 32;

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

impl Labels {
    fn all(&self) -> [&Foreign; 14] {
        [
            &self.name,
            &self.instance,
            &self.gpu_uuid,
            &self.rank,
            &self.run,
            &self.process,
            &self.host,
            &self.pid,
            &self.scheduler,
            &self.scheduler_job,
            &self.world_size,
            &self.kind,
            &self.cause,
            &self.severity,
        ]
    }
}

#[derive(Deserialize)]
#[serde(bound = "T: Deserialize<'de> + Held")]
struct Answer<T> {
    status: String,
    data: Option<Data<T>>,
    error: Option<Foreign>,
}

#[derive(Deserialize)]
#[serde(bound = "T: Deserialize<'de> + Held")]
struct Data<T> {
    result: Bounded<T>,
}

/// What is read of an answer for each of its series.
trait Held {
    /// Returns the bytes of memory that it takes.
    fn bytes(&self) -> usize;
}

impl Held for Figure {
    fn bytes(&self) -> usize {
        let texts = self.labels.all().into_iter().filter(|it| !it.is_empty()).map(|it| it.raw().len() + ALLOCATION);
        size_of::<Self>() + texts.sum::<usize>()
    }
}

impl Held for Course {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.values.capacity() * size_of::<Point>()
    }
}

/// The series of an answer: those that fit into [`HELD_MAX`], and how many do not.
struct Bounded<T> {
    all: Vec<T>,
    left_out: usize,
}

impl<'de, T: Deserialize<'de> + Held> Deserialize<'de> for Bounded<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(Series(PhantomData))
    }
}

struct Series<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Held> Visitor<'de> for Series<T> {
    type Value = Bounded<T>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("series")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Bounded<T>, A::Error> {
        let (mut all, mut held, mut left_out) = (Vec::new(), 0, 0);
        while let Some(it) = from.next_element::<T>()? {
            held += it.bytes();
            if held > HELD_MAX {
                left_out = 1;
                break;
            }
            all.push(it);
        }
        while left_out > 0 && from.next_element::<IgnoredAny>()?.is_some() {
            left_out += 1;
        }
        Ok(Bounded { all, left_out })
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

fn parsed<'a, T: Deserialize<'a> + Held>(bytes: &'a [u8]) -> Result<Vec<T>> {
    let answer: Answer<T> = serde_json::from_slice(bytes)
        .map_err(|why| anyhow!("the answer is not one of Prometheus's API ({})", text::fault(&why)))?;
    match answer.data.filter(|_| answer.status == "success").map(|it| it.result) {
        Some(Bounded { all, left_out: 0 }) => Ok(all),
        Some(Bounded { all, left_out }) => bail!(
            "the answer has {} series, of which {} fit into the {} MiB that gpuwatch takes for them: select fewer ranks \
             with --match",
            all.len() + left_out,
            all.len(),
            HELD_MAX >> 20
        ),
        None => bail!("the question fails there: {}", shown(&answer.error.unwrap_or_default())),
    }
}

/// Returns a store's words about a question that it refuses.
pub(super) fn refusal(bytes: &[u8]) -> Option<String> {
    let answer: Answer<Course> = serde_json::from_slice(bytes).ok()?;
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
    fn an_answer_that_takes_more_memory_than_any_fleet_is_refused() {
        let answer = |count: usize, series: &str, rest: &str| {
            let series = vec![series; count].join(",");
            format!(r#"{{"status":"success","data":{{"result":[{series}{rest}]}}}}"#)
        };
        // Ten families of the largest fleet, with the labels of a rank.
        let long = format!(
            r#"{{"metric":{{"__name__":"gpuwatch_growth_bytes_per_step","instance":"node-0123.example.org:9477",
            "gpu_uuid":"GPU-{0}","rank":"4095","run":"{0}","process":"2"}},"value":[1700000000.123,"123456789"]}}"#,
            "0123456789abcdef".repeat(2)
        );
        assert_eq!(instant(answer(10 * 4096, &long, "").as_bytes()).unwrap().len(), 10 * 4096);
        let short = r#"{"metric":{},"value":[0,"0"]}"#;
        let most = HELD_MAX / size_of::<Figure>();
        assert_eq!(instant(answer(most, short, "").as_bytes()).unwrap().len(), most);
        let why = instant(answer(most + 2, short, "").as_bytes()).unwrap_err().to_string();
        let words = format!("the answer has {} series, of which {most} fit into the 64 MiB", most + 2);
        assert!(why.starts_with(&words) && why.ends_with("with --match"), "{why}");
        assert!(instant(answer(3 * most / 4, &long, "").as_bytes()).is_err(), "texts count as well");
        let why = instant(answer(most + 1, short, ",").as_bytes()).unwrap_err().to_string();
        assert!(why.contains("Prometheus's API"), "{why}");
    }
}
