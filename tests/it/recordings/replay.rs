//! A replay has the session that live had, at every place and time, and opens whatever a file may hold.

/// What is kept of long ones.
mod kept;

use crate::{
    analysis::culprit,
    commands::check::{ACTIVATIONS, recorded},
    helpers::{
        story::usual,
        terminal::{PATIENCE, Terminal, until},
    },
};
use gpuwatch::{
    facts::{
        event::{
            Event, Fact, Line, ProbeId,
            wire::{Bye, Counters, Edge, Mark, Sample},
        },
        units::Stamp,
    },
    model::{analysis::severity::Severity, findings::findings, session::Session},
    storage::{
        recording::{Closed, FORMAT, Header, encode, encode_closed, encode_header},
        replay::{Command, Replay, find::find, run::preview},
    },
};
use std::{
    fs,
    io::Write,
    ops::Range,
    path::{Path, PathBuf},
};

const SECOND: u64 = 1_000_000;

/// A step that no rank of the story has done.
const FIRST: u64 = 1_001;

fn header() -> String {
    encode_header(&Header {
        format: FORMAT,
        gpuwatch: "0".into(),
        host: "h".into(),
        started_unix_us: 1_795_214_453_000_000,
        monotonic_us: 0,
        name: None,
        writer: None,
    })
}

pub(crate) fn lines(events: &[Event]) -> Vec<String> {
    let line = |it: &Event| {
        let mut line = String::new();
        encode(it, &mut line);
        line
    };
    std::iter::once(header()).chain(events.iter().map(line)).collect()
}

/// Frames of so many lines; the last is left open where the writer was killed.
pub(crate) fn file(dir: &Path, name: &str, lines: &[String], frame: usize, killed: bool) -> PathBuf {
    let path = dir.join(name);
    let mut out = fs::File::create(&path).unwrap();
    for (place, part) in lines.chunks(frame).enumerate() {
        let mut encoder = zstd::Encoder::new(&mut out, 1).unwrap();
        encoder.include_checksum(true).unwrap();
        for line in part {
            encoder.write_all(line.as_bytes()).unwrap();
        }
        if killed && (place + 1) * frame >= lines.len() {
            encoder.flush().unwrap();
            drop(encoder);
        } else {
            encoder.finish().unwrap();
        }
    }
    path
}

/// The usual story, then ranks that step five times a second, with a mark now and then.
fn events(seconds: u64, ranks: u32) -> Vec<Event> {
    let story = usual();
    let from = Stamp(story.now);
    let mut events = story.events;
    events.retain(|it| it.fact != Fact::Second);
    events.extend(steps(0..seconds * 5, ranks, from));
    events
}

/// Steps that continue after the story's.
fn steps(steps: Range<u64>, ranks: u32, from: Stamp) -> Vec<Event> {
    let mut events = Vec::new();
    for step in steps.map(|it| it + FIRST) {
        let at = from.0 + (step - FIRST) * SECOND / 5;
        for rank in 0..ranks {
            let at_us = at + u64::from(rank) * 1000;
            let line = |line| Event {
                at: Stamp(at_us),
                fact: Fact::Probe { probe: ProbeId(100 + rank), line: Box::new(line) },
            };
            let noise = step.wrapping_mul(6_364_136_223_846_793_005).rotate_left(rank) % 4096 * 512;
            let allocated = (40 << 30) + step * 4096 + noise;
            let values = std::array::from_fn(|it| (it < 14).then_some(allocated + it as u64 * 512));
            events.push(line(Line::Sample(Sample {
                seq: Some(step * 2),
                at_us,
                device: 0,
                edge: Edge::Step,
                step: Some(step),
                parts: None,
                counters: Counters::from_values(&values),
            })));
            if step % 100 == 0 {
                let value = i64::try_from(step / 100).ok();
                events.push(line(Line::Mark(Mark { seq: Some(step * 2 + 1), at_us, name: "epoch".into(), value })));
            }
        }
    }
    events
}

fn fold<'a>(events: impl IntoIterator<Item = &'a Event>) -> Session {
    let mut session = Session::default();
    events.into_iter().for_each(|it| session.apply(it));
    session
}

fn load(paths: &[PathBuf]) -> Replay {
    Replay::load(find(paths).unwrap().recordings, None, |_, _| {})
}

#[test]
fn every_place_has_the_session_and_the_findings_that_live_had() {
    let dir = tempfile::tempdir().unwrap();
    let events = events(300, 3);
    let path = file(dir.path(), "a.jsonl.zst", &lines(&events), 700, true);
    let mut replay = load(&[path]);
    let live = fold(&events);
    assert_eq!(*replay.session(), live);
    assert_eq!(findings(replay.session()), findings(&live));
    // Stamps that never fall, as the fold has them.
    let mut now = Stamp(0);
    let times: Vec<Stamp> = events
        .iter()
        .map(|it| {
            now = now.max(it.at);
            now
        })
        .collect();
    let span = replay.index.to.since(replay.index.from);
    for share in [93, 7, 50, 51, 0, 100, 33, 99, 1] {
        let at = Stamp(replay.index.from.0 + span * share / 100);
        replay.seek(at);
        let mut live = fold(events.iter().zip(&times).filter(|(_, time)| **time <= at).map(|(it, _)| it));
        live.apply(&Event { at, fact: Fact::Second });
        assert!(*replay.session() == live, "at {share} %");
        assert_eq!(findings(replay.session()), findings(&live));
    }
}

#[test]
fn keys_reach_steps_marks_and_the_end_and_a_cut_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "a.jsonl.zst", &lines(&events(60, 3)), 100, true);
    let mut replay = load(&[path]);
    assert!(replay.head.is_at_end());
    let word = replay.position().word.unwrap();
    assert!(word.0.contains("not closed") && word.1, "{word:?}");
    assert_eq!(replay.step(), Some(1300));
    for step in [1299, 1298, 1297] {
        replay.update(Command::PreviousStep);
        assert_eq!(replay.step(), Some(step));
    }
    replay.update(Command::NextStep);
    let steps: Vec<_> = (100..103).map(|it| replay.session().process(ProbeId(it)).unwrap().devices[0].step).collect();
    assert_eq!(steps, [Some(1298); 3], "every rank has done it");
    replay.update(Command::PreviousMark);
    assert_eq!(replay.here().unwrap().0.raw(), "epoch 12");
    replay.update(Command::NextMark);
    assert_eq!(replay.here().unwrap().0.raw(), "epoch 13");
    replay.update(Command::End);
    replay.update(Command::Play);
    assert!(replay.head.playing && replay.head.at == replay.head.from, "from the end it begins again");
    replay.update(Command::Faster);
    replay.tick(3 * SECOND);
    assert_eq!(replay.head.at.since(replay.head.from), 6 * SECOND);
    (0..200).for_each(|_| replay.tick(SECOND));
    assert!(!replay.head.playing && replay.step() == Some(1300));
}

/// The leak of a real loop: its alert is reached from either side, as live raised it.
#[test]
fn alerts_are_reached_among_the_troubles() {
    let dir = tempfile::tempdir().unwrap();
    let mut replay = load(&[recorded(dir.path(), ACTIVATIONS)]);
    let finding = findings(replay.session()).all.into_iter().find(|it| it.severity >= Severity::Warning).unwrap();
    let [alert] = replay.index.alerts.clone().try_into().unwrap();
    assert_eq!(alert.at, finding.first_alert_at);
    for (from, to) in [(Command::Start, Command::NextTrouble), (Command::End, Command::PreviousTrouble)] {
        replay.update(from);
        replay.update(to);
        let (text, is_wrong) = replay.here().unwrap();
        assert!(text.raw().contains("growth") && is_wrong, "{text}");
        assert_eq!(replay.head.at, alert.at);
        let found = findings(replay.session()).all;
        assert!(found.iter().any(|it| it.first_alert_at == alert.at), "{found:#?}");
    }
}

/// The braces seek to the capture, where the session has its result as in the live view.
#[test]
fn the_alert_keys_reach_captures_too() {
    let dir = tempfile::tempdir().unwrap();
    let mut replay = load(&[culprit::recorded(dir.path(), culprit::sites)]);
    replay.update(Command::End);
    let all = findings(replay.session()).all;
    replay.update(Command::Start);
    replay.update(Command::NextTrouble);
    assert!(findings(replay.session()).all.iter().all(|it| it.culprit.is_none()), "not looked yet");
    replay.update(Command::NextTrouble);
    assert!(replay.here().unwrap().0.raw().starts_with("train.py:41 `losses.append(loss)` keeps"));
    let here = findings(replay.session()).all;
    let culprit = |all: &[gpuwatch::model::findings::Finding]| all.iter().find_map(|it| it.culprit.clone()).unwrap();
    assert_eq!(culprit(&here), culprit(&all));
}

#[test]
fn a_closed_recording_ends_without_a_message() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = lines(&usual().events);
    all.push(encode_closed(&Closed::default()));
    let path = file(dir.path(), "a.jsonl.zst", &all, 10, false);
    assert_eq!(load(&[path]).troubles_of_files(), Vec::<String>::new());
    // Without its last line it was not closed, also where the last frame is whole.
    all.pop();
    let path = file(dir.path(), "b.jsonl.zst", &all, 10, false);
    assert!(load(&[path]).troubles_of_files()[0].contains("not closed"));
}

#[test]
fn files_that_cannot_be_replayed_are_named_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let newer = header().replace("\"format\":1", "\"format\":2");
    for (name, bytes, reason) in [
        ("empty", &b""[..], "it is empty"),
        ("notes", b"hello\n", "it is not a recording"),
        ("packed", b"\x1f\x8b\x08\0 and so on", "it is packed by gzip: unpack it"),
        ("newer", newer.as_bytes(), "use a newer one"),
        ("header", header().as_bytes(), "nothing happened"),
    ] {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        let printed = format!("{:#}", find(&[path]).err().unwrap());
        assert!(printed.contains(name) && printed.contains(reason), "{printed}");
    }
    let printed = format!("{:#}", find(&[dir.path().join("missing")]).err().unwrap());
    assert!(printed.contains("missing") && printed.contains("No such file"), "{printed}");
}

#[test]
fn a_file_cut_at_any_byte_or_with_any_byte_changed_is_replayed_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let events: Vec<Event> = usual().events.into_iter().filter(|it| it.fact != Fact::Second).take(40).collect();
    let bytes = fs::read(file(dir.path(), "a.jsonl.zst", &lines(&events), 12, false)).unwrap();
    let path = dir.path().join("b.jsonl.zst");
    let stride = test_tiers::stride!(5, "the places in between");
    for cut in (0..bytes.len()).step_by(stride) {
        fs::write(&path, &bytes[..cut]).unwrap();
        let Ok(found) = find(std::slice::from_ref(&path)) else { continue };
        let replay = Replay::load(found.recordings, None, |_, _| {});
        assert!(!replay.troubles_of_files().is_empty(), "a cut at {cut} is not reported");
        let places = usize::try_from(replay.index.events).unwrap();
        assert!(*replay.session() == fold(events.iter().take(places)), "cut at {cut}");
    }
    for place in (0..bytes.len()).step_by(stride) {
        let mut bad = bytes.clone();
        bad[place] ^= 0x55;
        fs::write(&path, &bad).unwrap();
        if let Ok(found) = find(std::slice::from_ref(&path)) {
            let mut replay = Replay::load(found.recordings, None, |_, _| {});
            replay.update(Command::Start);
            replay.update(Command::End);
        }
    }
}

/// The end of a long recording is shown at once: its ladder is right, and it shows no growth yet.
#[test]
fn a_glimpse_shows_the_end_and_claims_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let mut events = events(1500, 8);
    // One rank ends early: its bye is in the part that a preview does not read.
    let is_early =
        |fact: &Fact| matches!(fact, Fact::Probe { probe, .. } | Fact::ProbeFound { probe, .. } if probe.0 == 0);
    let is_first =
        |fact: &Fact| matches!(fact, Fact::Probe { probe, .. } | Fact::ProbeFound { probe, .. } if probe.0 == 1);
    events.retain(|it| !is_first(&it.fact));
    let last = events.iter().rposition(|it| is_early(&it.fact)).unwrap();
    let bye = Line::Bye(Bye { seq: Some(1 << 40), at_us: events[last].at.0, reason: "exit".into() });
    let fact = Fact::Probe { probe: ProbeId(0), line: Box::new(bye) };
    events.insert(last + 5000, Event { at: events[last + 5000].at, fact });
    for it in &mut events {
        if let Fact::Processes { reading: Ok(list), .. } = &mut it.fact {
            list.retain(|it| it.pid != 4242);
        }
    }
    let path = file(dir.path(), "a.jsonl.zst", &lines(&events), 1000, true);
    let found = find(std::slice::from_ref(&path)).unwrap();
    assert!(found.recordings.bytes() > 400 << 10, "{}: longer than what is looked at", found.recordings.bytes());
    assert!(preview(&found.recordings, u64::MAX).is_none(), "short files are read");
    let preview = preview(&found.recordings, 0).unwrap();
    let whole = load(&[path]);
    let whole = whole.session();
    // In no order: ranks without a hello are listed in the order of their first samples.
    let ladders = |it: &Session| {
        let mut all: Vec<_> = findings(it).devices.into_iter().map(|device| format!("{:?}", device.ladder)).collect();
        all.sort();
        all
    };
    assert_eq!(ladders(&preview), ladders(whole));
    let alive: Vec<_> = whole.processes.iter().filter(|it| it.is_alive()).collect();
    assert_eq!((preview.now, preview.processes.len(), alive.len()), (whole.now, 8, 8));
    for other in alive {
        let one = preview.process(other.probe).unwrap();
        assert_eq!((one.pid, one.devices[0].step), (other.pid, other.devices[0].step));
    }
    assert!(findings(&preview).all.iter().all(|it| it.since_step > 1000), "{:#?}", findings(&preview).all);
}

#[test]
fn a_replay_in_a_terminal_opens_at_the_end_seeks_and_quits() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "a.jsonl.zst", &lines(&events(60, 2)), 100, true);
    let mut terminal = Terminal::start(&["replay", path.to_str().unwrap()], &[]);
    terminal.shows("step 1300");
    terminal.shows("not closed");
    // A message about the position leaves room for the keys.
    terminal.shows("q quit  ? help  Space play  ←→ seek  [] step  {} trouble");
    terminal.press("z");
    terminal.shows("z: no such key · ? help");
    terminal.press("[");
    terminal.shows("step 1299");
    terminal.press("\x1b[H");
    assert!(until(PATIENCE, || !terminal.text().contains("step 1299")), "{}", terminal.text());
    terminal.press("?");
    terminal.shows("play or pause");
    terminal.press("?q");
    assert_eq!(terminal.ends(PATIENCE), 0);
}
