//! The cache of a long recording's index: it gives the same result the next time, and is never needed.

use super::{SECOND, events, file, lines, load};
use gpuwatch::{
    facts::{event::Event, units::Stamp},
    model::session::Session,
    storage::{
        recording::{Entry, Reader},
        replay::{Command, Replay, find::find, recording_set::RecordingSet},
    },
};
use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

fn recordings(path: &Path) -> RecordingSet {
    find(&[path.to_owned()]).unwrap().recordings
}

/// A recording that is long enough to be kept.
fn long(dir: &Path) -> PathBuf {
    let path = file(dir, "a.jsonl.zst", &lines(&events(600, 8)), 12_000, true);
    assert!(fs::metadata(&path).unwrap().len() > 1 << 20, "{:?}", fs::metadata(&path));
    path
}

fn kept(cache: &Path) -> Vec<PathBuf> {
    fs::read_dir(cache).map_or_else(|_| Vec::new(), |it| it.map(|entry| entry.unwrap().path()).collect())
}

#[test]
fn a_recording_opened_again_is_there_at_once_and_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let (path, cache) = (long(dir.path()), dir.path().join("cache/replay"));
    assert!(Replay::kept(&recordings(&path), &cache).is_none());
    let mut read = Replay::load(recordings(&path), Some(&cache), |_, _| {});
    let mut again = Replay::kept(&recordings(&path), &cache).unwrap();
    assert_eq!((again.head, again.step(), again.position()), (read.head, read.step(), read.position()));
    assert!(again.session() == read.session());
    let span = read.index.to.since(read.index.from);
    for share in [93, 7, 51, 0, 100, 33] {
        let at = Stamp(read.index.from.0 + span * share / 100);
        read.seek(at);
        again.seek(at);
        assert!(again.session() == read.session(), "at {share} %");
    }
    for command in [Command::NextStep, Command::PreviousMark, Command::PreviousStep, Command::End, Command::Start] {
        read.update(command);
        again.update(command);
        assert!(again.session() == read.session(), "{command:?}");
    }
}

#[test]
fn a_changed_file_and_a_damaged_cache_are_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let (path, cache) = (long(dir.path()), dir.path().join("replay"));
    let end = load(std::slice::from_ref(&path)).session().clone();
    Replay::load(recordings(&path), Some(&cache), |_, _| {});
    let [one] = kept(&cache).try_into().unwrap();
    let bytes = fs::read(&one).unwrap();
    // A damaged cache gives no result or the same one.
    let places = (0..bytes.len()).step_by(bytes.len() / 9).chain((bytes.len() - 20..bytes.len()).step_by(3));
    for place in places {
        let mut bad = bytes.clone();
        bad[place] ^= 0x55;
        for content in [&bad, &bytes[..place]] {
            fs::write(&one, content).unwrap();
            let Some(mut replay) = Replay::kept(&recordings(&path), &cache) else { continue };
            replay.seek(replay.head.from);
            replay.seek(replay.head.to);
            assert!(*replay.session() == end, "byte {place}");
        }
    }
    fs::write(&one, &bytes).unwrap();
    assert!(Replay::kept(&recordings(&path), &cache).is_some());
    // The writer went on.
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b"\x50\x2a\x4d\x18\0\0\0\0").unwrap();
    assert!(Replay::kept(&recordings(&path), &cache).is_none());
}

#[test]
fn nothing_is_kept_of_short_ones_or_where_nothing_can_be() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("replay");
    let short = file(dir.path(), "b.jsonl.zst", &lines(&events(60, 2)), 100, true);
    Replay::load(recordings(&short), Some(&cache), |_, _| {});
    assert_eq!(kept(&cache), Vec::<PathBuf>::new());
    let long = long(dir.path());
    let mut replay = Replay::load(recordings(&long), Some(Path::new("/proc/none")), |_, _| {});
    let end = replay.session().clone();
    replay.update(Command::Start);
    replay.update(Command::End);
    assert!(*replay.session() == end);
}

/// A session is set down and taken up bit for bit, at any time of any real run.
#[test]
fn a_session_is_the_same_after_a_checkpoint() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut seen = 0;
    for path in
        fs::read_dir(corpus).unwrap().map(|it| it.unwrap().path()).filter(|it| it.to_string_lossy().contains(".jsonl"))
    {
        let mut session = Session::default();
        let entries = Reader::new(File::open(&path).unwrap()).unwrap();
        for (place, entry) in entries.filter_map(Result::ok).enumerate() {
            let Entry::Event(event) = entry else { continue };
            session.apply(&event);
            if place % 397 == 0 {
                let down = rmp_serde::to_vec_named(&session).unwrap();
                assert!(rmp_serde::from_slice::<Session>(&down).unwrap() == session, "{} at {place}", path.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 50, "{seen}");
}

/// The benchmark: a day (else ten minutes) of eight ranks at five steps a second, its writer killed.
#[test]
fn a_day_of_eight_ranks_is_opened_and_sought_in() {
    let dir = tempfile::tempdir().unwrap();
    let full = test_tiers::is_benchmark();
    let path = day(dir.path(), if full { 24 * 3600 } else { 600 });
    let cache = dir.path().join("replay");
    let begun = Instant::now();
    let replay = Replay::load(recordings(&path), Some(&cache), |_, _| {});
    let (read, events) = (begun.elapsed(), replay.index.events);
    drop(replay);
    let begun = Instant::now();
    let mut replay = Replay::kept(&recordings(&path), &cache).unwrap();
    let opened = begun.elapsed();
    let seeks = if full { 1000 } else { 50 };
    let mut times: Vec<Duration> = (0..seeks)
        .map(|it| {
            let at = replay.index.from.0 + replay.index.to.since(replay.index.from) / seeks * (it * 377 % seeks);
            let begun = Instant::now();
            replay.seek(Stamp(at));
            begun.elapsed()
        })
        .collect();
    times.sort();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find(|it| it.starts_with("VmHWM")).unwrap();
    let [bytes, down] = [fs::metadata(&path).unwrap().len(), fs::metadata(&kept(&cache)[0]).unwrap().len()];
    println!(
        "{} events, {bytes} bytes, {down} kept: read in {read:?}, opened again in {opened:?}, seeks: median {:?}, \
         slowest {:?}, {peak}",
        replay.index.events,
        times[times.len() / 2],
        times[times.len() - 1],
    );
    let (median, slowest) = (times[times.len() / 2], times[times.len() - 1]);
    assert_eq!(replay.index.events, events, "what was kept is the whole");
    assert!(!full || (opened < read / 50 && median < read / 500 && slowest < read / 200), "{read:?}");
}

/// So many seconds, made piece by piece: a day of events does not fit into memory.
fn day(dir: &Path, seconds: u64) -> PathBuf {
    const PIECE: u64 = 300;
    let path = dir.join("day.jsonl.zst");
    let mut out = File::create(&path).unwrap();
    let mut write = |lines: &[String]| {
        for part in lines.chunks(12_000) {
            let mut encoder = zstd::Encoder::new(&mut out, 3).unwrap();
            encoder.include_checksum(true).unwrap();
            for line in part {
                encoder.write_all(line.as_bytes()).unwrap();
            }
            encoder.finish().unwrap();
        }
    };
    write(&lines(&events(0, 8)));
    for from in (0..seconds).step_by(usize::try_from(PIECE).unwrap()) {
        let events: Vec<Event> = super::steps(from * 5..(from + PIECE) * 5, 8, Stamp(60 * SECOND));
        write(&lines(&events)[1..]);
    }
    path
}
