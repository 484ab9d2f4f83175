//! The history's guarantees: every line at most once, in order of seq, the run from its first sample.

use super::{Cursor, History};
use crate::{
    reading::{Reading, SLOTS},
    wire::{Edge, Line, Lost, Mark, Oom, OomMessage},
};

fn reading(step: u64, device: u32) -> Reading {
    let mut it = Reading { at_us: step * 1000, device, steps: step, edge: Edge::Step, ..Reading::default() };
    for place in 0..SLOTS - 5 {
        it.put(place, (step << 20) * place as u64 + step % 7);
    }
    it
}

/// Returns all lines that a viewer gets now.
fn lines_of(cursor: &mut Cursor, history: &History) -> Vec<String> {
    let mut out = String::new();
    while cursor.write_next(history, &mut out) {}
    out.lines().map(str::to_owned).collect()
}

fn field(line: &str, name: &str) -> Option<u64> {
    let rest = line.split_once(&format!("\"{name}\":"))?.1;
    rest.split([',', '}']).next()?.parse().ok()
}

fn samples(lines: &[String]) -> Vec<&String> {
    lines.iter().filter(|it| it.contains("\"type\":\"sample\"")).collect()
}

fn is_rising(lines: &[String], name: &str) -> bool {
    let values: Vec<u64> =
        lines.iter().filter(|it| it.contains("\"at_us\"")).filter_map(|it| field(it, name)).collect();
    values.is_sorted_by(|a, b| if name == "seq" { a < b } else { a <= b })
}

#[test]
fn samples_come_out_as_they_went_in() {
    let mut history = History::new(4 << 20);
    let mut expected = Vec::new();
    for step in 1..=3000 {
        let mut it = reading(step, u32::try_from(step % 3).unwrap());
        if step % 5 == 0 {
            it.present &= 0b1010_1010;
            it.edge = Edge::Tick;
        }
        if step % 11 == 0 {
            it.values[1] = u64::MAX;
            it.steps = 0;
        }
        for (place, value) in it.values.iter_mut().enumerate() {
            *value *= u64::from(it.present & (1 << place) != 0);
        }
        history.sample(it);
        let mut line = String::new();
        it.encode(step, &mut line);
        expected.push(line.trim_end().to_owned());
    }
    let lines = lines_of(&mut Cursor::new(0, &history), &history);
    assert_eq!(samples(&lines).into_iter().cloned().collect::<Vec<_>>(), expected);
}

#[test]
fn a_late_viewer_sees_the_run_from_step_1_and_its_end() {
    let mut history = History::new(256 << 10);
    for step in 1..=50_000 {
        history.sample(reading(step, 0));
        if step % 10_000 == 0 {
            history.note(Line::Mark(Mark { at_us: step * 1000, name: "epoch".into(), ..Mark::default() }));
        }
    }
    let lines = lines_of(&mut Cursor::new(0, &history), &history);
    let seen = samples(&lines);
    assert_eq!(field(seen[0], "step"), Some(1));
    assert_eq!(field(seen[seen.len() - 1], "step"), Some(50_000));
    assert!(is_rising(&lines, "seq") && is_rising(&lines, "at_us"));
    let strides: Vec<u64> = lines.iter().filter_map(|it| field(it, "stride")).collect();
    assert!(matches!(strides[..], [thinned, 1] if thinned > 1), "{strides:?}");
    assert_eq!(lines.iter().filter(|it| it.contains("epoch")).count(), 5);
    assert!(lines[lines.len() - 1].contains("\"type\":\"live\"") && seen.len() < 8000);
}

#[test]
fn a_device_that_fell_silent_keeps_its_first_and_last_sample() {
    let mut history = History::new(64 << 10);
    (1..=100).for_each(|step| history.sample(reading(step, 1)));
    (101..=20_000).for_each(|step| history.sample(reading(step, 0)));
    let lines = lines_of(&mut Cursor::new(0, &history), &history);
    let silent: Vec<u64> = samples(&lines)
        .into_iter()
        .filter(|it| it.contains("\"device\":1"))
        .filter_map(|it| field(it, "step"))
        .collect();
    assert_eq!((silent.first(), silent.last()), (Some(&1), Some(&100)));
    assert!(is_rising(&lines, "seq"));
}

#[test]
fn since_gets_what_was_missed_and_no_more() {
    let mut history = History::new(4 << 20);
    (1..=1000).for_each(|step| history.sample(reading(step, 0)));
    let lines = lines_of(&mut Cursor::new(900, &history), &history);
    assert_eq!(
        samples(&lines).iter().filter_map(|it| field(it, "seq")).collect::<Vec<_>>(),
        (901..=1000).collect::<Vec<_>>()
    );
    assert_eq!(samples(&lines_of(&mut Cursor::new(1000, &history), &history)).len(), 0);
    assert_eq!(samples(&lines_of(&mut Cursor::new(5000, &history), &history)).len(), 1000, "another run's number");
}

#[test]
fn a_viewer_that_lags_receives_the_number_of_lost_samples_and_continues() {
    let mut history = History::new(64 << 10);
    (1..=10).for_each(|step| history.sample(reading(step, 0)));
    let mut cursor = Cursor::new(0, &history);
    assert_eq!(samples(&lines_of(&mut cursor, &history)).len(), 10);
    (11..=9999).for_each(|step| history.sample(reading(step, 0)));
    let lines = lines_of(&mut cursor, &history);
    let lost: u64 = lines.iter().filter_map(|it| field(it, "samples")).sum();
    assert!(lost > 0 && lines[0].contains("\"type\":\"lost\""));
    assert_eq!(lost + samples(&lines).len() as u64, 9989);
}

#[test]
fn memory_is_bounded_whatever_comes() {
    let mut history = History::new(1 << 20);
    for step in 0..60_000_u64 {
        let mut it = reading(step, u32::try_from(step % 64).unwrap());
        it.values = it.values.map(|value| value.wrapping_mul(step.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        history.sample(it);
        let message = Some("x".repeat(4000));
        history.note(Line::Oom(Oom { at_us: step, message, ..Oom::default() }));
        history.note(Line::OomMessage(OomMessage { message: "y".repeat(900), ..OomMessage::default() }));
        history.note(Line::Lost(Lost { at_us: step, ..Lost::default() }));
    }
    assert!(history.bytes() <= (1 << 20) + (64 << 10), "{} bytes", history.bytes());
}

#[test]
fn failures_outlive_marks() {
    let mut history = History::new(1 << 20);
    history.note(Line::Oom(Oom::default()));
    history.note(Line::OomMessage(OomMessage::default()));
    (0..10_000).for_each(|_| history.note(Line::Mark(Mark::default())));
    let lines_of = lines_of(&mut Cursor::new(0, &history), &history);
    for kind in ["\"oom\"", "\"oom_message\""] {
        assert!(lines_of.iter().any(|it| it.contains(kind)), "{kind}");
    }
}

/// A job may catch its errors and retry forever.
#[test]
fn endless_failures_leave_room_for_later_notes() {
    let mut history = History::new(1 << 20);
    let mut cursor = Cursor::new(0, &history);
    for name in 0..3 {
        for at_us in 0..5000 {
            history.note(Line::Oom(Oom { at_us, ..Oom::default() }));
            history.note(Line::OomMessage(OomMessage { message: "y".repeat(900), ..OomMessage::default() }));
        }
        history.note(Line::Mark(Mark { name: format!("mark {name}"), ..Mark::default() }));
        let lines_of = lines_of(&mut cursor, &history);
        assert!(lines_of.last().is_some_and(|it| it.contains(&format!("mark {name}"))), "{:?}", lines_of.last());
    }
    let lines_of = lines_of(&mut Cursor::new(0, &history), &history);
    assert_eq!(lines_of.iter().filter(|it| it.contains("\"mark\"")).count(), 3, "a late viewer receives them too");
    assert!(lines_of.iter().filter(|it| it.contains("\"oom\"")).count() > 20);
}

/// It gets their number before anything from after them, so what it finds elsewhere can take their place.
#[test]
fn a_viewer_that_lags_receives_the_number_of_forgotten_failures() {
    let mut history = History::new(1 << 20);
    let fail = |history: &mut History, at_us| {
        history.sample(reading(at_us, 0));
        history.note(Line::Oom(Oom { at_us, ..Oom::default() }));
        history.note(Line::OomMessage(OomMessage { message: "y".repeat(900), ..OomMessage::default() }));
    };
    (0..10).for_each(|at_us| fail(&mut history, at_us));
    let mut cursor = Cursor::new(0, &history);
    let received = |cursor: &mut Cursor, history: &History| {
        let lines = lines_of(cursor, history);
        let failures = lines.iter().filter(|it| it.contains("\"type\":\"oom")).count() as u64;
        let lost: Vec<usize> = (0..lines.len()).filter(|at| lines[*at].contains("\"failures\":")).collect();
        (failures, lost.iter().filter_map(|at| field(&lines[*at], "failures")).sum::<u64>(), lost, lines)
    };
    let (failures, lost, ..) = received(&mut cursor, &history);
    assert_eq!((failures, lost, cursor.has_missed()), (20, 0, false));
    let before = history.seq();
    (10..5000).for_each(|at_us| fail(&mut history, at_us));
    let (failures, lost, places, lines) = received(&mut cursor, &history);
    assert_eq!(failures + lost, 2 * 4990);
    assert!(lost > 0 && cursor.has_missed() && places == [0], "{places:?}");
    assert!(lines[1..].iter().filter_map(|it| field(it, "seq")).all(|it| it > before));

    let (_, lost_before_it, ..) = received(&mut Cursor::new(0, &history), &history);
    assert_eq!(lost_before_it, lost + 20, "a viewer that comes late misses the first ones as well");
    let (_, lost_again, ..) = received(&mut Cursor::new(history.seq(), &history), &history);
    assert_eq!(lost_again, 0, "one that comes back has them");
}

#[test]
fn skipped_samples_leave_all_notes() {
    let mut history = History::new(1 << 20);
    for step in 1..=9000 {
        history.sample(reading(step, 0));
        if step % 1000 == 0 {
            history.note(Line::Mark(Mark { at_us: step * 1000, ..Mark::default() }));
        }
    }
    let mut cursor = Cursor::new(0, &history);
    cursor.skip_samples(history.seq() - 100);
    let lines = lines_of(&mut cursor, &history);
    assert_eq!(lines.iter().filter(|it| it.contains("\"mark\"")).count(), 9);
    assert!(samples(&lines).len() <= 101 && is_rising(&lines, "seq"), "{}", samples(&lines).len());
}
