//! Three tiers of tests, each with those before it, and one summary of those that were skipped.
//!
//! - quick, `cargo test --workspace`: a few minutes on two cores, with one PyTorch.
//! - change, `GPUWATCH_TESTS=change`, which `.ci/run` runs for each change: whatever takes longer than 20 seconds, and
//!   further cases of what a quick test proves.
//! - full, `GPUWATCH_TESTS=full`, which `.ci/nightly` runs: other PyTorch releases, frameworks, emulators, browsers,
//!   other tools, packages, and whatever takes longer than a minute.
//!
//! No test returns early. A test that cannot or need not run reports why with one of these macros:
//!
//! | macro | use | quick | change | full |
//! |---|---|---|---|---|
//! | [`change!`] | the first line of a test of the tier `change` | skips | runs | runs |
//! | [`full!`] | the first line of a test of the full tier | skips | skips | runs |
//! | [`benchmark!`] | the first line of a test that only measures time | skips | skips | skips |
//! | [`needs!`] | what may be missing, but not in CI: a download, a program | skips | fails | fails |
//! | [`skip!`] | what no installation can change: the kernel, the user, the hardware | skips | skips | skips |
//! | [`vary!`] | cases of which the first proves the promise | the first, reports | two, reports | all |
//! | [`stride!`] | places or sizes of which a part proves the promise | every n-th, reports | all | all |
//! | [`leave_out!`] | a part of a test, which continues with the rest | reports | reports | reports |
//!
//! Each is written to standard error at once. `tests/summary.rs` of this package runs after all other tests and lists
//! them. `GPUWATCH_BENCHMARK=full` runs benchmarks. `GPUWATCH_TESTS_MAY_SKIP=browser,peers` names modules whose
//! [`needs!`] may skip in each tier.

use std::{
    collections::BTreeSet,
    env,
    fmt::Display,
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::process::parent_id,
    path::PathBuf,
};

/// Names the run of `cargo test` that a test belongs to. Tests that start this program again pass it on.
pub const RUN: &str = "GPUWATCH_TESTS_RUN";

/// Skips the test in the quick tier. Takes the reason: what the test needs its time for.
#[macro_export]
macro_rules! change {
    ($reason:expr) => {
        if $crate::tier() < $crate::Tier::Change {
            $crate::skip!("tier change: {}", $reason);
        }
    };
}

/// Skips the test, unless the full tier runs. Takes the reason: what the test needs so much time or room for.
#[macro_export]
macro_rules! full {
    ($reason:expr) => {
        if $crate::tier() < $crate::Tier::Full {
            $crate::skip!("full tier: {}", $reason);
        }
    };
}

/// Skips the test, unless benchmarks are run in full.
#[macro_export]
macro_rules! benchmark {
    () => {
        if !$crate::is_benchmark() {
            $crate::skip!("benchmark: runs with GPUWATCH_BENCHMARK=full");
        }
    };
}

/// Gives what a `Result` holds. Skips the test if it is an error; fails it in CI's tiers.
#[macro_export]
macro_rules! needs {
    ($found:expr) => {
        match $found {
            Ok(it) => it,
            Err(why) => {
                $crate::missing($crate::test!(), &why);
                return;
            }
        }
    };
}

/// Skips the test, in both tiers. Takes the reason, as `format!` does.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)*) => {{
        $crate::record($crate::test!(), &format!($($reason)*));
        return;
    }};
}

/// Reports a part of the test that is not run. Takes the reason, as `format!` does.
#[macro_export]
macro_rules! leave_out {
    ($($reason:tt)*) => {
        $crate::record($crate::test!(), &format!("in part: {}", format!($($reason)*)))
    };
}

/// Iterates over the cases of a list: only the first in the quick tier, and two for a change. Takes how the others
/// differ.
#[macro_export]
macro_rules! vary {
    ($cases:expr, $others:expr) => {{
        let (most, following) = match $crate::tier() {
            $crate::Tier::Quick => (1, "change"),
            $crate::Tier::Change => (2, "full"),
            $crate::Tier::Full => (usize::MAX, ""),
        };
        let cases: Vec<_> = $cases.into_iter().collect();
        if cases.len() > most {
            $crate::leave_out!("tier {}: {}", following, $others);
        }
        cases.into_iter().take(most)
    }};
}

/// Gives a step through places or sizes: 1 except in the quick tier. Takes the quick tier's step, and what it leaves
/// out.
#[macro_export]
macro_rules! stride {
    ($quick:expr, $others:expr) => {
        if $crate::is_quick() {
            $crate::leave_out!("tier change: {}", $others);
            $quick
        } else {
            1
        }
    };
}

/// The name of the function that uses it.
#[macro_export]
#[doc(hidden)]
macro_rules! test {
    () => {{
        fn here() {}
        $crate::name_of(&here)
    }};
}

/// A tier of tests, which has those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// `cargo test --workspace`.
    Quick,
    /// For each change.
    Change,
    /// Everything, each night.
    Full,
}

impl Tier {
    /// The value of `GPUWATCH_TESTS`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Change => "change",
            Self::Full => "full",
        }
    }
}

/// The tier that runs.
///
/// # Panics
///
/// If `GPUWATCH_TESTS` names no tier: a misspelt word must not skip half of the tests.
#[allow(clippy::panic, reason = "a test reports a failure by a panic")]
pub fn tier() -> Tier {
    match env::var("GPUWATCH_TESTS").as_deref() {
        Ok("full") => Tier::Full,
        Ok("change") => Tier::Change,
        Err(_) | Ok("" | "quick") => Tier::Quick,
        Ok(other) => panic!("GPUWATCH_TESTS is `quick`, `change` or `full`, not `{other}`"),
    }
}

/// Whether only the quick tier runs.
pub fn is_quick() -> bool {
    tier() == Tier::Quick
}

/// Whether a benchmark is to be run in full and held to its budget (`GPUWATCH_BENCHMARK=full`). Only then may a test
/// assert how long something takes; every other test waits for events, with patience for a loaded machine.
pub fn is_benchmark() -> bool {
    env::var("GPUWATCH_BENCHMARK").is_ok_and(|it| it == "full")
}

/// Returns the path of the function around `here`, without the crate and closures.
#[doc(hidden)]
pub fn name_of<T>(_here: &T) -> &'static str {
    let name = std::any::type_name::<T>();
    let name = name.strip_suffix("::here").unwrap_or(name).trim_end_matches("::{{closure}}");
    name.split_once("::").map_or(name, |(_, path)| path)
}

/// Reports that a test lacks something; panics in CI's tiers, unless the test's module may skip.
#[doc(hidden)]
#[allow(clippy::panic, reason = "a test reports a failure by a panic")]
pub fn missing(test: &str, why: &dyn Display) {
    let why = why.to_string();
    let may_skip = env::var("GPUWATCH_TESTS_MAY_SKIP").unwrap_or_default();
    let is_allowed = may_skip.split(',').any(|it| !it.is_empty() && test.split("::").any(|module| module == it));
    assert!(is_quick() || is_allowed, "the tier {} needs it: {why}", tier().name());
    // Programs print the reason last.
    record(test, why.trim().lines().next_back().unwrap_or_default());
}

/// Writes the reason to standard error, and to the record that the summary reads.
#[doc(hidden)]
#[allow(clippy::panic, clippy::expect_used, reason = "a test reports a failure by a panic")]
pub fn record(test: &str, reason: &str) {
    // Not through print macros, whose output a passing test keeps to itself.
    let _ = writeln!(io::stderr(), "skipped: {test}: {reason}");
    let line = format!("{}\t{test}\t{}\n", run(), reason.replace(['\n', '\t'], " "));
    let record = OpenOptions::new().create(true).append(true).open(path());
    record.and_then(|mut it| it.write_all(line.as_bytes())).expect("the record of skipped tests can be written");
}

/// Returns the skipped tests of this run with their reasons, and forgets those of all runs.
pub fn taken() -> Vec<(String, String)> {
    let Ok(text) = fs::read_to_string(path()) else { return Vec::new() };
    let _ = fs::remove_file(path());
    let run = run();
    let lines = text.lines().filter_map(|it| it.strip_prefix(&run)?.strip_prefix('\t')?.split_once('\t'));
    let unique: BTreeSet<_> = lines.map(|(test, reason)| (test.to_owned(), reason.to_owned())).collect();
    unique.into_iter().collect()
}

/// Returns the name of this run: the value of [`RUN`], or the process id of the cargo that started this program.
pub fn run() -> String {
    env::var(RUN).unwrap_or_else(|_| parent_id().to_string())
}

/// Test programs lie in `target/<profile>/deps`; the record lies in `target/<profile>`.
fn path() -> PathBuf {
    let program = env::current_exe().unwrap_or_default();
    program.ancestors().nth(2).map(|it| it.join("skipped-tests.tsv")).unwrap_or_default()
}
