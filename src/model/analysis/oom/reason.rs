//! Why a request did not fit, as far as the course of the job's own memory shows it.
//!
//! Each reason has the bytes that it explains, and the one that explains most is reported (`findings::blame`), if the
//! request would have fitted without them, or if they are a large part of the device:
//!
//! - `FailedAttempt`: the job handles or keeps an error whose traceback keeps tensors, and blocks that were live at the
//!   error before are live still; or a traceback was found among the holders of the largest blocks.
//! - `SinceStep`: live memory rose since the last optimizer step while no gradients were recorded, or for several times
//!   as long as a step takes, into a long container, or into one tensor that another was to be joined to: the request
//!   is as large as both.
//! - `RareRises`: live memory rose rarely and for good.
//! - `Equal`: a job that counts no steps keeps many blocks of the same size.
//!
//! Without any of them, a step needed more than any before it (`Larger`), or no step has fitted yet (`First`).

use super::{MIB, OomFigures, rare_rises::RareRises};
use crate::{
    facts::{
        event::wire::limits::grouped,
        units::{self, Bytes},
    },
    model::analysis::cause::Cause,
};
use serde::{Deserialize, Serialize};

/// Fewer bytes than this part of the device explain nothing, unless the request would have fitted without them.
const MATTERS: f64 = 0.1;

/// Between two steps this many times as long as a step takes, the job does something other than a step.
const LONG: u64 = 8;

/// Then it gathers what it computes if the largest blocks are held by a container with so many items.
const GATHERED: u64 = 8;

/// A tensor that others are joined to is this many times as large as the one that comes next, and the request differs
/// from both by less than this part of the latter: sizes of blocks are rounded.
const JOINED: u64 = 4;
const ROUNDED: u64 = 4;

/// Blocks of one size are many from this count on, and most of what is live from this share on.
const MANY: u64 = 16;
const MOST: f64 = 0.5;

/// A step that needs this many times as much as any before it is larger.
const LARGER: f64 = 1.05;

/// The course of live memory up to the error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    /// Live bytes after the latest step.
    pub live: Option<u64>,
    /// The highest peak of all steps.
    pub peak: Option<u64>,
    /// The latest step; `None` before the first.
    pub step: Option<u64>,
    /// How long ago it ended, in µs.
    pub since_us: u64,
    /// How long a step takes, in µs.
    pub step_us: Option<u64>,
    /// The rises of live memory, if they are rare.
    pub rises: Option<RareRises>,
}

/// What is known about an error, apart from its figures.
#[derive(Clone, Copy, Debug, Default)]
pub struct OomEvidence<'a> {
    /// What the job was doing, as the probe names it.
    pub phase: Option<&'a str>,
    /// The bytes of blocks that were live at the error before as well.
    pub again: Option<u64>,
    /// The bytes of blocks that the traceback of some error holds.
    pub of_tracebacks: u64,
    /// The items of the container that holds the largest group of blocks; `None` without one.
    pub items: Option<u64>,
    /// Live blocks by size: size in bytes and count, largest total first.
    pub blocks: &'a [(u64, u64)],
    /// The course up to the error.
    pub before: Before,
}

/// Why a request did not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// So many bytes of an attempt that failed before are live.
    FailedAttempt(u64),
    /// Live memory rose by so many bytes since a step; `true` if gradients are not recorded.
    SinceStep(u64, u64, bool),
    /// Live memory rose rarely and for good.
    RareRises(RareRises),
    /// Blocks of a size, and how many.
    Equal(u64, u64),
    /// A step needed more than the bytes that any step before it needed.
    Larger(u64),
    /// No step has fitted yet.
    First,
    /// The parameters themselves do not fit.
    Model,
}

impl Reason {
    /// Returns the reason that explains most bytes; `None` if none of the job's own explains the error.
    pub fn of(figures: &OomFigures, seen: &OomEvidence) -> Option<Self> {
        let before = &seen.before;
        let live = figures.allocated?;
        let base = before.live.unwrap_or(0);
        let again = seen.again.map_or(0, |it| it.saturating_sub(base)).max(seen.of_tracebacks);
        let rose = live.saturating_sub(base);
        let is_inference = seen.phase == Some("inference");
        let is_long = before.step_us.is_some_and(|it| before.since_us >= it.saturating_mul(LONG));
        let usual = before.peak.unwrap_or(u64::MAX).saturating_sub(base);
        let is_listed = seen.items.is_some_and(|it| it >= GATHERED) && is_long;
        let is_gathered = (is_listed || joins(figures.tried, seen.blocks)) && rose > usual;
        let is_apart = is_inference || (matches!(seen.phase, Some("forward" | "outside")) && is_gathered);
        // The rise since the step contains the failed attempt.
        let is_attempt = again > rose / 2;
        let of_step = before.step.filter(|_| before.live.is_some() && is_apart && !is_attempt);
        let equal = seen.blocks.first().filter(|_| before.step.is_none());
        let equal = equal.filter(|(size, count)| {
            // Blocks of a network are not held by a long container.
            let is_kept = seen.items.is_some_and(|it| it.saturating_mul(2) >= *count);
            *count >= MANY && is_kept && size.saturating_mul(*count) as f64 >= MOST * live as f64
        });
        let reasons = [
            of_step.is_none().then_some(Self::FailedAttempt(again)),
            of_step.map(|step| Self::SinceStep(rose, step, is_inference)),
            before.rises.map(Self::RareRises),
            equal.map(|(size, count)| Self::Equal(*size, *count)),
        ];
        let matters = |it: &Self| {
            let bytes = it.bytes();
            let most = figures.own_limit().or(figures.total).unwrap_or(live);
            bytes > 0 && (figures.would_fit_without(bytes) || bytes as f64 >= MATTERS * most as f64)
        };
        // The first of equal ones is the more specific one.
        reasons.into_iter().flatten().filter(matters).rev().max_by_key(Self::bytes)
    }

    /// Returns what is left if nothing else explains the error: a larger step, or the first one.
    pub fn left(figures: &OomFigures, seen: &OomEvidence) -> Option<Self> {
        let wanted = figures.allocated?.saturating_add(figures.tried?);
        match (seen.before.step, seen.before.peak) {
            (Some(_), Some(peak)) => (wanted as f64 > LARGER * peak as f64).then_some(Self::Larger(peak)),
            (None, _) => seen.phase.map(|it| if it == "placement" { Self::Model } else { Self::First }),
            _ => None,
        }
    }

    /// Returns the bytes that it explains.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::FailedAttempt(bytes) | Self::SinceStep(bytes, ..) => *bytes,
            Self::RareRises(it) => it.gained,
            Self::Equal(size, count) => size.saturating_mul(*count),
            Self::Larger(_) | Self::First | Self::Model => 0,
        }
    }

    /// Returns the cause to report.
    pub fn cause(&self) -> Cause {
        match self {
            Self::FailedAttempt(_) => Cause::FailedAttempt,
            Self::SinceStep(..) => Cause::OutputsGathered,
            Self::RareRises(_) | Self::Equal(..) => Cause::TensorsRetained,
            Self::Larger(_) => Cause::LargerInputs,
            Self::First | Self::Model => Cause::Oom,
        }
    }

    /// Returns the remedy, if there is a better one than the cause's.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::RareRises(_) => Some(
                "free what the epoch, fold or evaluation before has left (del the model, the optimizer, the outputs; clear \
                 what the framework keeps of them)",
            ),
            Self::Larger(_) => Some(
                "bound the size: truncate or bucket long inputs, or split the batch; run the largest one first to see \
                 whether it fits",
            ),
            Self::Model => {
                Some("load it in a smaller type (bfloat16, 8 or 4 bits), shard it over devices, or offload parts of it")
            }
            _ => None,
        }
    }

    /// Describes it in a sentence; `place` formats a step.
    pub fn sentence(&self, figures: &OomFigures, before: &Before, place: impl Fn(u64) -> String) -> String {
        let tried = figures.tried.map_or_else(|| "the request".to_owned(), |it| Bytes(it).to_string());
        let live = Bytes(figures.allocated.unwrap_or(0));
        match self {
            Self::FailedAttempt(bytes) => {
                format!(
                    "{} of the attempt that failed before are live: the traceback of its error keeps them",
                    Bytes(*bytes)
                )
            }
            Self::SinceStep(bytes, step, is_inference) => {
                let what =
                    if *is_inference { "without gradients and without another step" } else { "without another step" };
                format!("live memory rose by {} since {}, {what}", Bytes(*bytes), place(*step))
            }
            Self::RareRises(it) => format!(
                "live memory rose by {} {}, once in about {} steps, and never fell",
                Bytes(it.rise),
                units::counted(it.count, "time"),
                grouped(it.every)
            ),
            Self::Equal(size, count) => {
                format!("{} blocks of {} are live, {} in all", grouped(*count), Bytes(*size), Bytes(self.bytes()))
            }
            Self::Larger(peak) => {
                let steps = before.step.unwrap_or(0);
                format!(
                    "{} needed more than any before it: {live} were live when it asked for {tried} more, and the {} \
                     before needed {} at most",
                    place(steps + 1),
                    units::counted(steps, "step"),
                    Bytes(*peak)
                )
            }
            Self::First => {
                let free = figures.free.map_or_else(String::new, |it| format!("; {} was free", Bytes(it)));
                format!("{tried} did not fit beside the {live} that the job uses{free}. No step has fitted yet")
            }
            Self::Model => {
                format!("the parameters of the module do not fit: {tried} more than the {live} that are live")
            }
        }
    }
}

/// Whether a request is for the largest live block together with another one, as `torch.cat` makes it.
fn joins(tried: Option<u64>, blocks: &[(u64, u64)]) -> bool {
    let Some((largest, _)) = blocks.iter().max() else { return false };
    let more = tried.and_then(|it| it.checked_sub(*largest)).unwrap_or(0);
    let is_it = |size: u64| size.saturating_mul(JOINED) <= *largest && size.abs_diff(more) <= size / ROUNDED;
    more >= MIB && blocks.iter().any(|(size, _)| is_it(*size))
}

/// Libraries with a switch for outputs that are gathered: a part of their files' paths, and the switch.
const SWITCHES: [(&str, &str); 4] = [
    (
        "/transformers/",
        "set `eval_accumulation_steps`, so that outputs go to the host after so many batches, or reduce them in \
         `preprocess_logits_for_metrics`; `prediction_loss_only` keeps none",
    ),
    ("/torchmetrics/", "create the metric with `compute_on_cpu=True`, and call its reset() after each evaluation"),
    ("/ultralytics/", "pass `stream=True`, which yields one result at a time, or keep `result.cpu()`"),
    ("/sentence_transformers/", "pass `convert_to_tensor=False`, so that embeddings go to the host batch by batch"),
];

/// Returns the switch of the first of these files that belongs to a known library.
pub fn switch<'a>(files: impl Iterator<Item = &'a str>) -> Option<&'static str> {
    let mut files = files;
    files.find_map(|file| SWITCHES.iter().find(|(part, _)| file.contains(part)).map(|it| it.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn figures() -> OomFigures {
        let gib = |it: u64| Some(it * GIB);
        OomFigures {
            tried: gib(2),
            free: gib(1),
            total: gib(24),
            allocated: gib(22),
            reserved: gib(22),
            ..OomFigures::default()
        }
    }

    /// A hundred steps of 100 ms, with 2 GiB after each and 5 GiB at most.
    fn before() -> Before {
        let (live, peak) = (Some(2 * GIB), Some(5 * GIB));
        Before { live, peak, step: Some(100), since_us: 90_000, step_us: Some(100_000), rises: None }
    }

    fn reason(seen: &OomEvidence) -> Option<Reason> {
        Reason::of(&figures(), seen)
    }

    #[test]
    fn a_handled_error_that_keeps_blocks_of_the_attempt_before_explains_a_retry() {
        let seen =
            OomEvidence { phase: Some("forward"), again: Some(20 * GIB), before: before(), ..OomEvidence::default() };
        assert_eq!(reason(&seen), Some(Reason::FailedAttempt(18 * GIB)), "without what is live between steps");
        assert_eq!(reason(&OomEvidence { phase: Some("inference"), ..seen }), Some(Reason::FailedAttempt(18 * GIB)));
        assert_eq!(reason(&OomEvidence { again: None, ..seen }), None);
        assert_eq!(reason(&OomEvidence { again: Some(2 * GIB), ..seen }), None, "the model is no attempt");
        let kept = OomEvidence { again: None, of_tracebacks: 9 * GIB, ..seen };
        assert_eq!(reason(&kept), Some(Reason::FailedAttempt(9 * GIB)), "an error that is kept in a list");
    }

    #[test]
    fn memory_since_a_step_explains_an_evaluation_and_not_a_long_batch() {
        let seen = OomEvidence { phase: Some("inference"), before: before(), ..OomEvidence::default() };
        assert_eq!(reason(&seen), Some(Reason::SinceStep(20 * GIB, 100, true)));
        let forward = OomEvidence { phase: Some("forward"), ..seen };
        assert_eq!(reason(&forward), None);
        assert_eq!(Reason::left(&figures(), &forward), Some(Reason::Larger(5 * GIB)));
        let long = OomEvidence { before: Before { since_us: 900_000, ..before() }, ..forward };
        assert_eq!(reason(&long), None, "a long pause before a long batch");
        // A quarter of a GiB was to be joined to 1.75 GiB, after each of some batches.
        let joined = [(1792 << 20, 1), (256 << 20, 1), (8 << 20, 3)];
        assert_eq!(reason(&OomEvidence { blocks: &joined, ..forward }), Some(Reason::SinceStep(20 * GIB, 100, false)));
        let others = [(1792 << 20, 1), (96 << 20, 2), (8 << 20, 3)];
        assert_eq!(reason(&OomEvidence { blocks: &others, ..forward }), None, "the request is no sum of two");
        let gathered = OomEvidence { items: Some(30), ..long };
        assert_eq!(reason(&gathered), Some(Reason::SinceStep(20 * GIB, 100, false)));
        let first = OomEvidence { before: Before::default(), ..seen };
        assert_eq!((reason(&first), Reason::left(&figures(), &first)), (None, Some(Reason::First)));
    }

    #[test]
    fn the_reason_with_most_bytes_is_reported() {
        let rises = RareRises { count: 6, rise: 3 * GIB, every: 60, since: 60, latest: 360, gained: 18 * GIB };
        let with = Before { rises: Some(rises), live: Some(20 * GIB), ..before() };
        let seen = OomEvidence { phase: Some("forward"), before: with, ..OomEvidence::default() };
        assert_eq!(reason(&seen), Some(Reason::RareRises(rises)));
        let sentence = Reason::RareRises(rises).sentence(&figures(), &with, |it| format!("step {it}"));
        assert_eq!(sentence, "live memory rose by 3.00 GiB 6 times, once in about 60 steps, and never fell");
        let evaluates = OomEvidence { phase: Some("inference"), ..seen };
        assert_eq!(reason(&evaluates), Some(Reason::RareRises(rises)), "the evaluation has taken 2 GiB only");
    }

    #[test]
    fn many_equal_blocks_in_a_long_container_explain_a_job_without_steps() {
        let blocks = [(10 << 20, 1600), (512, 1)];
        let seen =
            OomEvidence { phase: Some("inference"), items: Some(1600), blocks: &blocks, ..OomEvidence::default() };
        assert_eq!(reason(&seen), Some(Reason::Equal(10 << 20, 1600)));
        assert_eq!(reason(&OomEvidence { items: None, ..seen }), None, "the layers of a network");
        assert_eq!(reason(&OomEvidence { items: Some(3), ..seen }), None);
        assert_eq!(reason(&OomEvidence { before: before(), phase: Some("forward"), ..seen }), None);
    }

    #[test]
    fn the_switch_of_a_known_library_is_named() {
        let files = ["/home/ada/train.py", "/env/site-packages/transformers/trainer.py"];
        assert!(switch(files.into_iter()).unwrap().contains("eval_accumulation_steps"));
        assert_eq!(switch(files.into_iter().take(1)), None);
    }
}
