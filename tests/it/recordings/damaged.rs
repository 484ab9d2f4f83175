//! Recordings that are cut, damaged or hostile: gpuwatch reads each to its last whole line, or prints why not.

use crate::{
    analysis::corpus,
    benchmarks::recording::{events_of, record},
    commands::check::{HEALTHY, header, lines_of, write},
    helpers::terminal::PROGRAM,
    recordings::writer::read_all,
};
use gpuwatch::{
    commands::{
        check::{Limits, check},
        export::{Format, export},
    },
    model::alerts::Policy,
    storage::replay::{Command as Asked, Replay, find::find},
};
use serde_json::Value;
use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Output},
};

/// Numbers without a pattern, the same in every run of the test: splitmix64.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64).unwrap()
    }
}

/// A quarter of an hour of a loop, in three frames; and what is in it from each flush on, bytes and lines.
fn long(dir: &Path) -> (Vec<u8>, Vec<(usize, usize)>) {
    let path = dir.join("long.jsonl.zst");
    let flushed = record(&path, &events_of(&corpus::traces()[0], 0, 1, 900));
    let bytes = fs::read(&path).unwrap();
    fs::remove_file(path).unwrap();
    (bytes, flushed)
}

/// The bytes with one to four of them changed.
fn damaged(bytes: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let mut bad = bytes.to_vec();
    for _ in 0..=numbers.below(4) {
        let place = numbers.below(bad.len());
        bad[place] ^= u8::try_from(1 + numbers.below(255)).unwrap();
    }
    bad
}

#[test]
fn a_long_recording_cut_at_a_thousand_places_is_read_to_its_last_whole_line() {
    let dir = tempfile::tempdir().unwrap();
    let (bytes, flushed) = long(dir.path());
    let (whole, fault) = read_all(bytes.as_slice());
    assert!(fault.is_none() && whole.len() > 900);
    let mut numbers = Numbers(1);
    for _ in 0..1000 {
        let cut = numbers.below(bytes.len());
        let (entries, fault) = read_all(&bytes[..cut]);
        assert_eq!(entries, whole[..entries.len()], "cut at {cut}");
        let (_, least) = flushed[..flushed.partition_point(|it| it.0 <= cut)].last().unwrap_or(&(0, 0));
        assert!(entries.len() >= *least, "cut at {cut}: {} of {least} lines that were flushed", entries.len());
        assert!(fault.is_none_or(|it| !it.to_string().contains('\n')));
    }
}

#[test]
fn damage_is_reported_at_every_position() {
    let dir = tempfile::tempdir().unwrap();
    let (bytes, _) = long(dir.path());
    let (whole, _) = read_all(bytes.as_slice());
    let mut numbers = Numbers(2);
    for turn in 0..500 {
        let (entries, fault) = read_all(damaged(&bytes, &mut numbers).as_slice());
        assert!(fault.is_some() || entries == whole, "damage {turn} went unnoticed");
    }
}

#[test]
fn every_command_reports_a_damaged_recording_and_continues() {
    let dir = tempfile::tempdir().unwrap();
    let (bytes, _) = long(dir.path());
    let mut numbers = Numbers(3);
    let nothing = Limits::none();
    let files = 40;
    for turn in 0..files {
        let path = dir.path().join(format!("{turn:02}_h_1_r.jsonl.zst"));
        let bad =
            if turn % 2 == 0 { damaged(&bytes, &mut numbers) } else { bytes[..numbers.below(bytes.len())].to_vec() };
        fs::write(&path, bad).unwrap();
        let found = match find(std::slice::from_ref(&path)) {
            Ok(found) => found,
            Err(e) => {
                assert!(!format!("{e:#}").contains('\n'), "{e:#}");
                continue;
            }
        };
        let verdict = check(&found.recordings, &nothing, &Policy::default());
        let mut rows = Vec::new();
        export(std::slice::from_ref(&found.recordings), Format::Csv, &mut rows).unwrap();
        assert!(rows.ends_with(b"\n"));
        let mut replay = Replay::load(found.recordings, None, |_, _| {});
        for asked in [Asked::Start, Asked::NextStep, Asked::Hundredths(50), Asked::PreviousStep, Asked::End] {
            replay.update(asked);
        }
        assert!(!replay.troubles_of_files().is_empty() || verdict.run.closed, "{turn}: the damage is not reported");
    }
    let listed = gpuwatch(&["recordings", "--json", "--last", "100"], dir.path());
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(listed["recordings"].as_array().unwrap().len(), files);
}

#[test]
fn what_a_bad_line_says_reaches_no_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("20261120T050000Z_it_1_x.jsonl.zst");
    for place in [0, 1, 9] {
        let mut lines = lines_of(HEALTHY, |_| ());
        // A parser's error quotes the unknown word.
        lines[place] =
            "{\"type\":\"sample\",\"from\":0,\"at_us\":1,\"edge\":\"\\u001b[2J\\u009b31m\\u202e\"}\n".to_owned();
        write(&path, &lines);
        for arguments in [
            &["check"][..],
            &["check", "--json"],
            &["export"],
            &["report", "-o", "-"],
            &["diff", path.to_str().unwrap()],
            &["replay", "--screenshot", "-"],
            &["whatif"],
            &["peak"],
            &["snapshot", "--text"],
        ] {
            let output = gpuwatch(arguments, &path);
            let text = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap()).concat();
            let is_bad = |it: char| it != '\n' && (it.is_control() || it == '\u{202e}');
            assert!(!text.contains(is_bad), "{arguments:?}: {text:?}");
        }
    }
}

fn gpuwatch(arguments: &[&str], path: &Path) -> Output {
    limited(512, arguments, path)
}

/// Returns the program's output under a limit of this many MiB of memory; above it, a signal ends the program.
pub(crate) fn limited(mib: u64, arguments: &[&str], path: &Path) -> Output {
    let limited = format!("ulimit -v {}; exec \"$0\" \"$@\"", mib << 10);
    Command::new("/bin/sh").args(["-c", &limited, PROGRAM]).args(arguments).arg(path).output().unwrap()
}

/// Returns a zstd frame whose header asks for a window of 2 to the power of `window_log`, with this many blocks of
/// 128 KiB of one byte each: 4 bytes in the file per block.
fn frame(window_log: u8, byte: u8, blocks: u32) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, (window_log - 10) << 3];
    for block in 1..=blocks {
        let header = u32::from(block == blocks) | 1 << 1 | (128 << 10) << 3;
        frame.extend(&header.to_le_bytes()[..3]);
        frame.push(byte);
    }
    frame
}

fn compressed(text: &str) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_line_of_gigabytes_and_a_window_of_gigabytes_are_refused_in_little_memory() {
    let dir = tempfile::tempdir().unwrap();
    let event = "{\"type\":\"sample\",\"at_us\":1,\"device\":0,\"edge\":\"step\",\"step\":1,\"allocated\":5}\n";
    let mut after_a_step = compressed(&(header() + event));
    let step = after_a_step.len();
    after_a_step.extend(frame(17, b'x', 65_536));
    let mut wide = after_a_step[..step].to_vec();
    wide.extend(frame(31, b'x', 2));
    let cases = [
        ("a line of 8 GiB", frame(17, b'x', 65_536), "line 1 is longer than 1 MiB"),
        ("a line of 8 GiB after a step", after_a_step, "line 3 is longer than 1 MiB"),
        ("the widest window that is granted", frame(27, b'x', 65_536), "line 1 is longer than 1 MiB"),
        ("a wider window", frame(28, b'x', 65_536), "the file is damaged after line 0"),
        ("a wider window after a step", wide, "the file is damaged after line 2"),
        ("empty lines", frame(17, b'\n', 65_536), "it is not a recording"),
    ];
    for (name, bytes, why) in cases {
        let alone = dir.path().join(name.replace(' ', "_"));
        fs::create_dir(&alone).unwrap();
        let path = alone.join("a.jsonl.zst");
        assert!(bytes.len() < 512 << 10);
        fs::write(&path, bytes).unwrap();
        let printed = |arguments: &[&str], path: &Path| {
            let output = gpuwatch(arguments, path);
            assert!(output.status.code().is_some(), "{name}: {arguments:?} {output:?}");
            String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
        };
        for (arguments, path) in [(&["check"][..], &path), (&["export"], &path), (&["recordings"], &alone)] {
            let printed = printed(arguments, path);
            assert!(printed.contains(why), "{name}, {arguments:?}: {printed}");
        }
        match find(std::slice::from_ref(&path)) {
            Ok(found) => {
                let replay = Replay::load(found.recordings, None, |_, _| {});
                let troubles = replay.troubles_of_files();
                assert!(troubles.iter().any(|it| it.contains(why)), "{name}: {troubles:?}");
            }
            Err(e) => assert!(format!("{e:#}").contains(why), "{name}: {e:#}"),
        }
    }
}
