//! Memory snapshots are read as Python reads them, nothing in them is run, and what is damaged is read as far as it
//! goes.

pub(crate) mod busy;
mod columns;
mod exports;
mod figures;
mod parts;
pub(crate) mod writer;

use crate::{
    helpers::{terminal::PROGRAM, torch},
    house::schemas,
};
use flate2::{Compression, write::GzEncoder};
use gpuwatch::storage::pickle::{self, Fault, Reading};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};
use writer::{Py, pickle, snapshot};

/// Runs `columns.py` on a snapshot.
fn by_python(file: &Path) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/snapshot/columns.py");
    torch::stdout(&Command::new(torch::python()).arg(script).arg(file).output().unwrap())
}

fn listing(bytes: &[u8]) -> String {
    let reading = pickle::read(bytes).unwrap();
    assert!(reading.ended.is_none(), "{:?}", reading.ended);
    columns::listing(&reading.trace)
}

/// Texts that differ are shown from where they differ on.
fn assert_same(ours: &str, theirs: &str, of: &str) {
    let at = ours.lines().zip(theirs.lines()).position(|it| it.0 != it.1);
    let at = at.unwrap_or_else(|| ours.lines().count().min(theirs.lines().count()));
    let show = |text: &str| text.lines().skip(at).take(3).collect::<Vec<_>>().join("\n");
    assert!(ours == theirs, "{of}, line {}:\n{}\ninstead of\n{}", at + 1, show(ours), show(theirs));
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

#[test]
fn every_protocol_and_every_packing_gives_what_python_reads() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("snapshot.pickle");
    // More events than one batch of a pickler, more memoised objects than one byte counts.
    let snapshot = snapshot(700, 12);
    let mut all = Vec::new();
    for protocol in 2..=5 {
        let bytes = pickle(protocol, &snapshot);
        fs::write(&file, &bytes).unwrap();
        let ours = listing(&bytes);
        assert_same(&ours, &by_python(&file), &format!("protocol {protocol}"));
        assert_same(&ours, &listing(&gzip(&bytes)), "gzip");
        assert_same(&ours, &listing(&zstd::encode_all(&bytes[..], 1).unwrap()), "zstd");
        all.push(ours);
    }
    assert!(all.iter().all(|it| *it == all[0]));
}

#[test]
fn opcodes_that_could_run_code_are_refused_by_name_and_offset() {
    let code = [
        (b'c', "GLOBAL"),
        (0x93, "STACK_GLOBAL"),
        (b'R', "REDUCE"),
        (b'b', "BUILD"),
        (b'i', "INST"),
        (b'o', "OBJ"),
        (0x81, "NEWOBJ"),
        (0x92, "NEWOBJ_EX"),
        (b'P', "PERSID"),
        (b'Q', "BINPERSID"),
        (0x82, "EXT1"),
        (0x83, "EXT2"),
        (0x84, "EXT4"),
    ];
    let bytes = pickle(4, &snapshot(2, 2));
    for (opcode, name) in code {
        // Before the end, when all of the snapshot is there, and right at the beginning.
        for at in [bytes.len() - 1, 2] {
            let mut bytes = bytes.clone();
            bytes.insert(at, opcode);
            let printed = pickle::read(&bytes[..]).unwrap_err().to_string();
            assert!(printed.contains(name) && printed.contains(&format!("byte {at} ")), "{printed}");
            assert!(printed.contains("_dump_snapshot"), "{printed}");
        }
    }
}

#[test]
fn a_file_that_is_not_a_snapshot_is_reported_with_its_kind() {
    let empty = pickle(4, &Py::Dict(vec![("weights", Py::List(Vec::new()))]));
    let cases: [(&[u8], &str); 6] = [
        (b"", "empty"),
        (b"{\"segments\": []}", "text"),
        (b"PK\x03\x04", "zip archive"),
        (b"\x80\x07}.", "not a pickle of protocol 2 to 5"),
        (b"(dp0\n.", "not a pickle of protocol 2 to 5"),
        (&empty, "holds no memory snapshot"),
    ];
    for (bytes, phrase) in cases {
        let printed = pickle::read(bytes).unwrap_err().to_string();
        assert!(printed.contains(phrase) && printed.contains("_dump_snapshot"), "{phrase}: {printed}");
    }
    let printed = pickle::open(Path::new("/nonexistent/it.pickle")).unwrap_err().to_string();
    assert!(printed.contains("No such file"), "{printed}");
}

#[test]
fn a_snapshot_that_is_cut_anywhere_is_read_up_to_there() {
    let bytes = pickle(4, &snapshot(3, 2));
    let whole = pickle::read(&bytes[..]).unwrap().trace;
    let mut most = 0;
    for length in 3..bytes.len() {
        let Reading { trace, ended, .. } = match pickle::read(&bytes[..length]) {
            Ok(it) => it,
            // There is no key of a snapshot yet.
            Err(Fault::Cut { at }) if most == 0 => {
                assert_eq!(at, length as u64);
                continue;
            }
            Err(e) => panic!("{length}: {e}"),
        };
        assert!(matches!(ended, Some(Fault::Cut { at }) if at == length as u64), "{ended:?}");
        let events: usize = trace.devices.iter().map(ExactSizeIterator::len).sum();
        assert!(trace.events.range(0..events).eq(whole.events.range(0..events)), "{length}");
        assert!(events >= most && trace.segments.iter().all(|it| whole.segments.contains(it)), "{length}");
        most = events;
    }
    assert_eq!((most, whole.segments.len()), (10, 1));
    // Packed files are cut likewise; gpuwatch reads a file with a wrong checksum, and reports the damage.
    let packed = gzip(&bytes);
    let cut = pickle::read(&packed[..packed.len() - 20]);
    assert!(cut.is_err() || cut.unwrap().ended.is_some());
    let mut wrong = packed.clone();
    let checksum = wrong.len() - 8;
    wrong[checksum] ^= 1;
    let Reading { trace, ended, .. } = pickle::read(&wrong[..]).unwrap();
    assert!(matches!(ended, Some(Fault::Packed { .. })), "{ended:?}");
    assert_eq!(trace.events.len(), whole.events.len());
}

#[test]
fn claimed_lengths_take_no_memory_and_no_nesting_is_too_deep() {
    let deep = |inner: &[u8], end: &[u8]| [&[0x80, 4][..], &inner.repeat(300_000), end].concat();
    let long = |claim: &[u8]| [&[0x80, 4, b'}', b'('][..], claim].concat();
    let most = u64::MAX.to_le_bytes();
    let hostile = [
        deep(b"](", b""),
        deep(b"]", &[&b"a".repeat(299_999)[..], b"."].concat()),
        deep(b"}(N", &[&b"u".repeat(300_000)[..], b"."].concat()),
        deep(b"N", &b"\x85".repeat(300_000)),
        long(&[&[0x8d][..], &most, b"short"].concat()),
        long(&[&[0x8e][..], &most, b"short"].concat()),
        long(&[&[0x8b][..], &most[..4], b"short"].concat()),
        long(&[&b"X"[..], &most[..4], b"short"].concat()),
        // Object 4294967280 of a file with one.
        [&b"\x80\x02]r"[..], &[0xf0, 0xff, 0xff, 0xff], b"."].concat(),
        [&b"\x80\x02]j"[..], &[0xf0, 0xff, 0xff, 0xff], b"."].concat(),
        // More on the stack than a file of its size has any use for.
        [&b"\x80\x02"[..], &b"N".repeat(3 << 20)].concat(),
        [&b"\x80\x02"[..], &b"(".repeat(3 << 20)].concat(),
        // 300 MB in 300 KB.
        gzip(&[&b"\x80\x02"[..], &b"NNNN)".repeat(60 << 20)].concat()),
    ];
    for (at, bytes) in hostile.iter().enumerate() {
        let printed = pickle::read(&bytes[..]).unwrap_err();
        assert!(!matches!(printed, Fault::Io(_)), "{at}: {printed}");
    }
    // A list that grows by one, again and again, is not kept for each of its lengths.
    let name = [&b"\x80\x02}U\x08filenameNsq\x00]q\x01"[..], &b"h\x00a".repeat(200_000), b"."].concat();
    assert!(pickle::read(&name[..]).is_err());
}

proptest! {
    #[test]
    fn damage_of_any_kind_ends_reading_and_nothing_else(
        times in 0_i64..5, protocol in 2_u8..=5, packed in 0_u8..3, length in any::<prop::sample::Index>(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0_u8..8), 0..6),
    ) {
        let plain = pickle(protocol, &snapshot(times, 3));
        let mut bytes = match packed {
            0 => plain,
            1 => gzip(&plain),
            _ => zstd::encode_all(&plain[..], 1).unwrap(),
        };
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        bytes.truncate(length.index(bytes.len() + 1));
        if let Ok(it) = pickle::read(&bytes[..]) {
            // The part that was read can be walked through.
            prop_assert!(it.trace.events.len() <= bytes.len().max(1) * 250);
            let _ = it.trace.segments.iter().map(|segment| it.trace.blocks_of(segment).len()).sum::<usize>();
        }
    }
}

/// Snapshots of a job with everything in it that a snapshot has: the script writes them into its directory.
#[test]
fn snapshots_of_real_jobs_are_read_as_python_reads_them() {
    let all = ["", "expandable_segments:True", "max_split_size_mb:64,garbage_collection_threshold:0.6"];
    for settings in test_tiers::vary!(all, "other settings of the allocator") {
        let gpu = torch::Gpu::new("NVIDIA A10:4GiB:256MiB;NVIDIA A10:4GiB:256MiB");
        let mut script = gpu.script(include_str!("snapshot/features.py"));
        let printed = torch::stdout(&script.env("PYTORCH_CUDA_ALLOC_CONF", settings).output().unwrap());
        let names: Vec<_> = printed.split_whitespace().collect();
        assert!(names.len() >= 5, "{printed}");
        for name in names {
            let file = gpu.dir().join(name);
            let reading = pickle::open(&file).unwrap();
            assert!(reading.ended.is_none(), "{name}: {:?}", reading.ended);
            assert_same(&columns::listing(&reading.trace), &by_python(&file), &format!("{settings}: {name}"));
        }
    }
}

#[test]
fn snapshots_of_a_folder_are_read_as_python_reads_them() {
    let Some(folder) = env::var_os("GPUWATCH_SNAPSHOTS") else {
        test_tiers::skip!("GPUWATCH_SNAPSHOTS names no folder of snapshots");
    };
    let files = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
    let is_pickle = |it: &PathBuf| it.to_string_lossy().contains(".pickle");
    for file in files.filter(is_pickle) {
        let reading = pickle::open(&file).unwrap();
        assert!(reading.ended.is_none(), "{}: {:?}", file.display(), reading.ended);
        assert_same(&columns::listing(&reading.trace), &by_python(&file), &file.display().to_string());
    }
}

/// Returns the standard output and the standard error of `gpuwatch snapshot`.
fn outputs_for(file: &Path, more: &[&str]) -> (String, String) {
    let output = Command::new(PROGRAM).arg("snapshot").arg(file).args(more).output().unwrap();
    let text = |it: Vec<u8>| String::from_utf8(it).unwrap();
    let (printed, troubles) = (text(output.stdout), text(output.stderr));
    // gpuwatch shows the incomplete snapshot, and exits with an error.
    assert_eq!(output.status.code(), Some(i32::from(!troubles.is_empty())), "{troubles}");
    (printed, troubles)
}

fn as_json(file: &Path, more: &[&str]) -> Value {
    let account = serde_json::from_str(&outputs_for(file, &[more, &["--json"]].concat()).0).unwrap();
    schemas::check("snapshot", &account);
    account
}

#[test]
fn the_account_has_the_ladder_the_blocks_and_what_fits() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("snapshot.pickle");
    fs::write(&file, pickle(4, &snapshot(4, 2))).unwrap();
    let (text, troubles) = outputs_for(&file, &["--fits", "1MiB"]);
    for phrase in [
        "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64",
        "device 0: 2.00 MiB reserved in 1 segment",
        "mem pools      2.00 MiB",
        "stream 0, private pool (0, 1): 1 segment, 2.00 MiB",
        // Its free block is in a private pool, which serves no other request.
        "1.00 MiB does not fit into free blocks",
        "asks the driver for 2.00 MiB",
        "train.py step < train.py:1 step",
        "peak of the trace: 1000 B requested and live at event 2 of 13",
    ] {
        assert!(text.contains(phrase), "{phrase}:\n{text}");
    }
    assert_eq!(troubles, "");
    let all = as_json(&file, &[]);
    let device = &all["devices"][0];
    let figures = ["reserved", "allocated", "pending", "requested", "mem_pools_free", "releasable", "largest_free"];
    let figures: Vec<_> = figures.iter().map(|it| device[*it].as_u64().unwrap()).collect();
    assert_eq!(figures, [2 << 20, 1024, 3072, 1000 + 3048, (2 << 20) - 4096, 0, (2 << 20) - 4096]);
    assert_eq!(device["live"][0]["frames"][1], json!({ "file": "train.py", "line": 1, "function": "step" }));
    assert_eq!(all["ended"], Value::Null);
    // A truncated file is analysed as far as it goes, and the reader gets a warning.
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() * 2 / 3]).unwrap();
    let (text, troubles) = outputs_for(&file, &[]);
    assert!(text.contains("device 0: 2.00 MiB reserved"), "{text}");
    assert!(troubles.contains("snapshot.pickle: the file ends at byte"), "{troubles}");
    fs::write(&file, &bytes[..20]).unwrap();
    assert!(outputs_for(&file, &[]).0.contains("no segment could be read"), "nothing is known of what there was");
    fs::write(&file, b"\x80\x04cos\nsystem\n.").unwrap();
    let output = Command::new(PROGRAM).arg("snapshot").arg(&file).output().unwrap();
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && output.stdout.is_empty(), "{printed}");
    assert!(
        printed.contains("snapshot.pickle: byte 2 holds GLOBAL") && printed.contains("_dump_snapshot"),
        "{printed}"
    );
}

/// Compares with PyTorch's own counters, and with its allocator's reaction to a request.
#[test]
fn the_account_of_a_real_job_is_what_pytorch_counts() {
    for settings in test_tiers::vary!(["max_split_size_mb:32", ""], "other settings of the allocator") {
        let gpu = torch::machine();
        let mut script = gpu.script(include_str!("snapshot/fits.py"));
        let printed = torch::stdout(&script.env("PYTORCH_CUDA_ALLOC_CONF", settings).output().unwrap());
        let counted: Value = serde_json::from_str(&printed).unwrap();
        let file = gpu.dir().join("snapshot.pickle");
        let device = &as_json(&file, &[])["devices"][0];
        for figure in ["reserved", "allocated", "stuck", "peak"] {
            let ours = if figure == "peak" { &device["peak"]["requested"] } else { &device[figure] };
            assert_eq!(*ours, counted[figure], "{settings}: {figure}");
        }
        for request in counted["requests"].as_array().unwrap() {
            let bytes = request["bytes"].to_string();
            let fits = &as_json(&file, &["--fits", &bytes])["devices"][0]["fits"];
            let grown = request["grown"].as_u64().unwrap();
            assert_eq!(
                (&fits["fits"], fits["segment"].as_u64().unwrap_or(0)),
                (&json!(grown == 0), grown),
                "{settings}: {fits}"
            );
        }
    }
}

/// `GPUWATCH_BENCHMARK=full cargo test --profile dist --test it snapshot:: -- --nocapture`: a snapshot of more than
/// 200 MB, opened three times as fast as Python reads it, in six tenths of its size.
#[test]
fn a_large_snapshot_is_opened_faster_than_python_reads_it() {
    test_tiers::benchmark!();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("snapshot.pickle");
    let bytes = pickle(4, &snapshot(350_000, 40));
    fs::write(&file, &bytes).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/snapshot/speed.py");
    let printed = torch::stdout(&Command::new(torch::python()).arg(script).arg(&file).arg(PROGRAM).output().unwrap());
    println!("{} bytes: {printed}", bytes.len());
    let figures: Value = serde_json::from_str(&printed).unwrap();
    let [ours, python] = ["gpuwatch", "python"].map(|it| figures[it]["seconds"].as_f64().unwrap());
    let peak = figures["gpuwatch"]["peak"].as_f64().unwrap();
    assert!(bytes.len() > 200_000_000 && ours * 3.0 <= python && peak <= bytes.len() as f64 * 0.6, "{printed}");
}
