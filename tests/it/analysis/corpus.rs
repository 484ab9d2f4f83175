//! Growth judged on labelled traces of real training loops (`tests/corpus`), as the session is fed with them.
//!
//! `cargo test --test it corpus:: -- --nocapture` prints the score beside what others reach on the same traces.

mod allocator;
mod beside;
mod causes;
mod generated;
mod heldout;
mod job;
mod judge;
mod loops;
mod properties;
mod shapes;

use causes::Named;
use gpuwatch::{
    facts::{
        event::{DeviceId, Event, Fact, Line, ProbeId},
        units::Stamp,
    },
    model::{
        analysis::episode::Episode,
        findings::{Kind, findings},
        session::Session,
    },
};
use judge::{Label, Score};
use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
};

/// Recall over all resources / false alarms per 100,000 benign steps / median delay / median slope error /
/// bounded and sawtooth traces gone wrong, of others on these traces.
const PEERS: &str = "\
TraceML 0.5 confirmed (peaks)           0.07 / 20 / 426 / – / 0
TraceML 0.5 early (peaks)               0.77 / 179 / 29 / 0.09 / 6
TraceML 0.5 early (allocated)           0.73 / 159 / 29 / 0.04 / 6
Mann-Kendall, window 200, p < 0.01      0.73 / 130 / 0 / 0.01 / 6
least squares, window 200, R² > 0.8     0.60 / 6.7 / 57 / 0.001 / 2";

#[test]
fn every_leak_of_the_corpus_is_found_and_nothing_else() {
    let mut score = Score::default();
    for label in labels() {
        let mut session = Session::default();
        for it in events(&label) {
            session.apply(&it);
        }
        score.add(&label, &episodes(&session));
    }
    println!("{PEERS}\ngpuwatch                                {score}");
    assert_eq!(score.leaks, 30);
    assert!(score.missed.is_empty(), "missed: {:?}", score.missed);
    assert!(score.false_alarms.is_empty(), "{:?}", score.false_alarms);
    assert!(score.gone_wrong.len() <= 1, "{:?}", score.gone_wrong);
    assert!(score.delay(0.5) <= 4.0 && score.delay(0.9) <= 80.0 && score.slope_error() <= 0.01, "{score}");
}

#[test]
fn a_cut_trace_has_the_findings_of_the_whole_one_as_they_stood_then() {
    for (seed, label) in (1..).zip(labels()) {
        assert_same_when_cut(&label, &events(&label), seed);
    }
}

/// Findings depend neither on later lines nor on the lines of other probes in between.
fn assert_same_when_cut(label: &Label, events: &[Event], seed: u64) {
    let place = usize::try_from(properties::noise(seed, 0, events.len() as u64)).unwrap();
    let mut whole = Session::default();
    for it in &events[..place] {
        whole.apply(it);
    }
    let at_cut = episodes(&whole);
    let mut cut = Session::default();
    for it in &events[..place] {
        // A second that passes, and a stranger's line.
        cut.apply(&Event { at: it.at, fact: Fact::Second });
        cut.apply(&Event { at: it.at, fact: stranger(&it.fact) });
        cut.apply(it);
    }
    assert_eq!(episodes(&cut), at_cut, "{} at {place}", label.trace);
    for it in &events[place..] {
        whole.apply(it);
    }
    let until = events[..place].last().map_or(Stamp(0), |it| it.at);
    let all = episodes(&whole);
    let raised: Vec<_> = all.iter().filter(|it| it.first_alert_at <= until).collect();
    assert_eq!(raised.len(), at_cut.len(), "{} at {place}: {all:?} {at_cut:?}", label.trace);
    for (late, early) in raised.iter().zip(&at_cut) {
        assert_eq!(
            (late.resource, late.since_step, late.first_alert_step, late.first_alert_at),
            (early.resource, early.since_step, early.first_alert_step, early.first_alert_at)
        );
        match early.resolved {
            Some(_) => assert_eq!(**late, *early, "what is resolved never changes"),
            None => assert!(late.resolved.is_none_or(|it| it.at > until)),
        }
    }
}

/// The cause is that of the growth as it stands at the end of each leak's trace.
#[test]
fn nine_of_ten_leaks_have_the_right_cause() {
    let mut named = Named::default();
    for label in labels() {
        let mut session = Session::default();
        for it in events(&label) {
            session.apply(&it);
        }
        let found = findings(&session).all;
        let strain = found.iter().find(|it| !matches!(it.kind, Kind::Growth | Kind::Sawtooth));
        assert_eq!(strain, None, "{}: nothing but growth is wrong with these loops", label.trace);
        named.add(&label, &found);
    }
    println!("{named}");
    assert_eq!(named.judged, 30);
    assert!(named.share() >= 0.9, "{named}");
}

fn stranger(fact: &Fact) -> Fact {
    match fact {
        Fact::Probe { line, .. } => Fact::Probe { probe: ProbeId(7), line: elsewhere(line) },
        other => other.clone(),
    }
}

/// The same line from a process on another device.
fn elsewhere(line: &Line) -> Box<Line> {
    let mut line = line.clone();
    if let Line::Hello(hello) = &mut line {
        hello.devices.iter_mut().for_each(|it| it.uuid = Some("GPU-elsewhere".to_owned()));
    }
    Box::new(line)
}

/// The episodes of every life of the traced process.
fn episodes(session: &Session) -> Vec<Episode> {
    let on = (0..).map_while(|it| session.process(ProbeId(it))).flat_map(|it| &it.devices);
    on.filter(|it| it.device != DeviceId("GPU-elsewhere".to_owned()))
        .flat_map(|it| it.growth.episodes().copied())
        .collect()
}

fn labels() -> Vec<Label> {
    let mut paths: Vec<_> = fs::read_dir(folder().join("labels")).unwrap().map(|it| it.unwrap().path()).collect();
    paths.sort();
    assert_eq!(paths.len(), 69);
    paths.iter().map(|it| serde_json::from_slice(&fs::read(it).unwrap()).unwrap()).collect()
}

/// Every trace's file.
pub(crate) fn traces() -> Vec<PathBuf> {
    labels().iter().map(|it| folder().join(format!("{}.jsonl.zst", it.trace))).collect()
}

fn events(label: &Label) -> Vec<Event> {
    read(&folder().join(format!("{}.jsonl.zst", label.trace)))
}

/// The lines of a trace as a session receives them: a restarted process is a new one.
pub(crate) fn read(trace: &Path) -> Vec<Event> {
    let lines = BufReader::new(zstd::Decoder::new(fs::File::open(trace).unwrap()).unwrap()).lines();
    let (mut at, mut restarts, mut pid) = (Stamp(0), 0, None);
    lines
        .map(|line| {
            let line: Line = serde_json::from_str(&line.unwrap()).unwrap();
            match &line {
                Line::Sample(it) => at = Stamp(it.at_us),
                Line::Hello(it) => restarts += u32::from(pid.replace(it.pid).is_some_and(|last| last != it.pid)),
                _ => {}
            }
            Event { at, fact: Fact::Probe { probe: ProbeId(restarts), line: Box::new(line) } }
        })
        .collect()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}
