//! Judges growth on traces that no threshold was fitted to; `tests/traces/README.md` describes how they were made.
//!
//! `cargo test --test it heldout:: -- --nocapture` prints the score, and the cause named for each leak.

use super::{
    assert_same_when_cut,
    causes::Named,
    episodes,
    judge::{Class, Label, Score},
    labels, read,
};
use gpuwatch::{
    facts::event::{Event, Fact, Line},
    model::{findings::findings, session::Session},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

#[test]
fn leaks_that_nothing_was_fitted_to_are_found_and_hardly_anything_else() {
    let (score, named) = judged(&folder());
    assert!(score.recall() >= 0.97, "missed: {:?}", score.missed);
    assert!(score.false_alarms_per_100k() <= 3.0, "{:?}", score.false_alarms);
    assert!(score.gone_wrong.len() <= 1, "{:?}", score.gone_wrong);
    assert!(score.slope_error() <= 0.01 && named.share() >= 0.9, "{score}");
}

/// Curricula whose outputs are alive, one tensor that grows under lengths, small leaks under sawteeth, requests that
/// grow.
#[test]
fn variations_of_what_is_hardest_are_judged_as_well() {
    let (score, named) = judged(&folder().join("varied"));
    assert!(score.recall() >= 0.97, "missed: {:?}", score.missed);
    assert!(score.false_alarms.is_empty(), "{:?}", score.false_alarms);
    assert!(score.gone_wrong.is_empty(), "{:?}", score.gone_wrong);
    assert!(score.delay(0.5) <= 24.0 && score.slope_error() <= 0.005 && named.share() >= 0.9, "{score}\n{named}");
}

#[expect(clippy::print_stdout, reason = "the score is for whoever asks for it")]
fn judged(folder: &Path) -> (Score, Named) {
    let (mut score, mut named) = (Score::default(), Named::default());
    for label in traces(folder).values() {
        let mut session = Session::default();
        for it in read(&path(folder, label)) {
            session.apply(&it);
        }
        score.add(label, &episodes(&session));
        named.add(label, &findings(&session).all);
    }
    println!("{named}\nrecall / false alarms per 100,000 / median delay / slope error / gone wrong\n{score}");
    println!("missed: {:?}, false alarms: {:?}, gone wrong: {:?}", score.missed, score.false_alarms, score.gone_wrong);
    (score, named)
}

#[test]
fn a_trace_kept_apart_has_the_same_findings_when_cut() {
    for (seed, label) in (1..).zip(traces(&folder()).values()) {
        assert_same_when_cut(label, &read(&path(&folder(), label)), seed);
    }
}

/// The traces have other loops than the corpus, and circumstances that the corpus lacks.
#[test]
fn the_traces_kept_apart_are_of_their_own_kind() {
    let traces = traces(&folder());
    assert!(traces.len() >= 40, "{}", traces.len());
    let family = |it: &Label| it.trace.rsplit_once('-').unwrap().0.to_owned();
    let known: BTreeSet<_> = labels().iter().map(family).collect();
    let mut kinds = BTreeSet::new();
    for (name, label) in &traces {
        assert_eq!(*name, label.trace);
        assert!(!known.contains(&family(label)), "{name}");
        kinds.extend((label.resource.as_deref() == Some("device")).then_some("another tenant"));
        kinds.extend((label.class == Class::Healthy && label.steps >= 100_000).then_some("long and healthy"));
        kinds.extend(read(&path(&folder(), label)).iter().filter_map(circumstance));
    }
    let all = ["another tenant", "cudaMallocAsync", "expandable", "long and healthy", "lost", "restarted", "strided"];
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), all);
    let files = fs::read_dir(folder()).unwrap().map(|it| it.unwrap().path());
    let stored: Vec<_> = files.filter(|it| it.extension().is_some_and(|extension| extension == "zst")).collect();
    assert_eq!(stored.len(), traces.len(), "every trace has a label");
    assert!(stored.iter().map(|it| fs::metadata(it).unwrap().len()).sum::<u64>() <= 1_500_000);
}

/// Returns the name of a line that describes the circumstances.
fn circumstance(event: &Event) -> Option<&'static str> {
    let Fact::Probe { line, .. } = &event.fact else { return None };
    match line.as_ref() {
        Line::Hello(it) if it.backend.as_deref() == Some("cudaMallocAsync") => Some("cudaMallocAsync"),
        Line::Hello(it) if it.allocator_conf.as_deref() == Some("expandable_segments:True") => Some("expandable"),
        Line::Hello(it) if it.restart > Some(0) => Some("restarted"),
        Line::Lost(_) => Some("lost"),
        Line::History(it) if it.stride > 1 => Some("strided"),
        _ => None,
    }
}

/// The labels, by the name of the trace.
fn traces(folder: &Path) -> BTreeMap<String, Label> {
    serde_json::from_slice(&fs::read(folder.join("labels.json")).unwrap()).unwrap()
}

fn path(folder: &Path, label: &Label) -> PathBuf {
    folder.join(format!("{}.jsonl.zst", label.trace))
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces")
}
