//! The format round-trips every fact and survives any file content.

use super::*;
use crate::facts::event::{
    Advised, Ancestor, DeviceId, DeviceInfo, DeviceMemory, DriverState, PeakMoment, ProcessInfo, ProcessUse, ReadError,
    Replayed, Unread,
    advised::AdvisedRow,
    anatomy::{Anatomy, AnatomyPart, LineShare, PeakCost, StepPhase},
    replayed::{About, Comparison, Cost, Failure, Outcome, Window},
    wire::{Bye, Counters, Device, Edge, Hello, History, Live, Lost, Mark, Oom, OomMessage, Parts, Refused, Sample},
};
use crate::facts::figures::{Figure, Figures};
use crate::facts::host_memory::{
    GroupMemory, HostMemory, JobMemory, MachineMemory, Pages, Room, TreeMemory, WorkerMemory,
};
use crate::facts::maker::Maker;
use crate::facts::metrics::{Metric, Metrics};
use crate::facts::units::Bytes;
use std::io::Write;

/// A process with everything known.
fn described() -> ProcessInfo {
    ProcessInfo {
        pid: 7,
        start_ticks: 99,
        argv: vec!["a b".into(), "\u{202e}".into()],
        user: "me".into(),
        contained: true,
        suspended: true,
        ended: true,
        rank: true,
        orphaned: true,
        parent: Some(1),
        started_us: Some(1_700_000_000_000_000),
        ancestors: vec![Ancestor { pid: 3, name: "torch\u{1b}run".into() }],
        place: Some("slurm 7".into()),
        environment: vec!["CUDA_VISIBLE_DEVICES=0".into()],
    }
}

fn every_fact() -> Vec<Fact> {
    let device = || DeviceId("GPU-1".into());
    let memory =
        DeviceMemory { total: Bytes(9), used: Bytes(5), free: Bytes(3), reserved: Some(Bytes(1)), unified: None };
    let before: Metrics = [(Metric::FanPercent, 40)].into_iter().collect();
    let metrics: Metrics = [(Metric::CelsiusNow, 60), (Metric::EccErrors, 0)].into_iter().collect();
    let amd = DeviceInfo { id: device(), index: 2, name: "MI300X".into(), parent: None, maker: Maker::Amd };
    let line = |line| Fact::Probe { probe: ProbeId(3), line: Box::new(line) };
    vec![
        Fact::Driver(DriverState::Up { version: Some("580.1".into()) }),
        Fact::Driver(DriverState::Stalled { since: Stamp(5) }),
        Fact::Driver(DriverState::Absent { why: "no \u{1b}[31mdriver".into() }),
        Fact::Driver(DriverState::Off),
        Fact::KernelDriver { maker: Maker::Amd, state: DriverState::Up { version: Some("6.10.5".into()) } },
        Fact::KernelDriver { maker: Maker::Intel, state: DriverState::Stalled { since: Stamp(5) } },
        Fact::Device(DeviceInfo { parent: Some(DeviceId("P".into())), maker: Maker::Nvidia, ..amd.clone() }),
        Fact::Device(amd),
        Fact::DeviceGone { device: device() },
        Fact::Memory { device: device(), reading: Ok(memory) },
        Fact::Memory { device: device(), reading: Err(ReadError::Lost) },
        Fact::Memory { device: device(), reading: Err(ReadError::Suspended) },
        Fact::Memory { device: device(), reading: Err(ReadError::Other("odd".into())) },
        Fact::Metrics { device: device(), changes: metrics.since(&before) },
        Fact::Processes { device: device(), reading: Ok(vec![ProcessUse { pid: 7, used: None }]) },
        Fact::Processes { device: device(), reading: Err(ReadError::NoPermission) },
        Fact::HostMemory(Box::new(host_memory())),
        Fact::HostMemory(Box::default()),
        Fact::Process(described()),
        Fact::Process(ProcessInfo { pid: 8, ..ProcessInfo::default() }),
        Fact::Figures { pid: 7, device: Some(device()), changes: [(Figure::SmPercent, 34)].into_iter().collect() },
        Fact::Figures {
            pid: 7,
            device: None,
            changes: Figures::default().since(&[(Figure::Rss, 9)].into_iter().collect()),
        },
        Fact::ProcessGone { pid: 7 },
        Fact::ProbeFound { probe: ProbeId(3), pid: None, socket: "/tmp/x.sock".into() },
        line(Line::Hello(Hello {
            seq: 4,
            probe: "gpuwatch-probe/0.1.0".into(),
            devices: vec![Device { ordinal: 1, uuid: Some("GPU-1".into()), ..Device::default() }],
            monotonic_us: 12,
            ..Hello::default()
        })),
        line(Line::Sample(Sample {
            seq: None,
            at_us: 13,
            device: 1,
            edge: Edge::Step,
            step: Some(17),
            parts: Some(Parts { weights: 1, gradients: 2, optimizer: 3, retained: u64::MAX }),
            counters: Counters { allocated: Some(u64::MAX), rss: Some(0), ..Counters::default() },
        })),
        line(Line::Mark(Mark { seq: Some(6), at_us: 14, name: "epoch".into(), value: Some(-3) })),
        line(Line::Oom(Oom { at_us: 15, tried: Some(1 << 40), message: Some("no".into()), ..Oom::default() })),
        line(Line::OomMessage(OomMessage { at_us: 15, message: "no".into(), ..OomMessage::default() })),
        line(Line::Lost(Lost { seq: None, at_us: 16, samples: 12, failures: None })),
        line(Line::History(History { from_us: 1, to_us: 2, stride: 64 })),
        line(Line::Live(Live { seq: 9 })),
        line(Line::Bye(Bye { seq: Some(10), at_us: 17, reason: "exit".into() })),
        line(Line::Refused(Refused { reason: "unknown verb".into() })),
        Fact::ProbeGone { probe: ProbeId(3), why: "its connection ended".into() },
        Fact::Notice("a directory is squatted".into()),
        Fact::Unread { what: Unread::Sockets, count: 3 },
        Fact::Replayed(Box::new(replayed(Ok(Box::new(comparison()))))),
        Fact::Replayed(Box::new(replayed(Err("no \u{1b}[31mtrace".into())))),
        Fact::PeakMoment(Box::new(peak_moment())),
        Fact::Advised(Box::new(advised())),
        Fact::JobEnded { code: None, signal: Some(9) },
    ]
}

fn host_memory() -> HostMemory {
    let pages = Pages { resident: Bytes(9), private: Bytes(4), anonymous: Bytes(5), ..Pages::default() };
    let room = Room { size: Bytes(64), used: Bytes(3) };
    let tree = TreeMemory { own: pages, workers: 1, of_workers: pages, each: vec![WorkerMemory { pid: 8, pages }] };
    let group = GroupMemory {
        path: "/job_42".into(),
        place: Some("slurm 42".into()),
        max: Some(Bytes(64)),
        swap: Some(room),
        oom_kills: Some(0),
        ..GroupMemory::default()
    };
    let job =
        JobMemory { pid: 7, groups: vec![0], address_space: Some(room), tree: Some(tree), ..JobMemory::default() };
    let machine = MachineMemory { total: Bytes(99), oom_kills: Some(1), ..MachineMemory::default() };
    HostMemory { machine, shm: Some(room), groups: vec![group], processes: vec![job] }
}

fn peak_moment() -> PeakMoment {
    let (line, module) = ("train.py:\u{1b}88".into(), Some("layers.*".into()));
    let line = LineShare { line, bytes: 7, blocks: 2, part: AnatomyPart::Activations, module };
    let lines = vec![LineShare { module: None, ..line.clone() }, line];
    let parts = [(AnatomyPart::Weights, 1 << 40), (AnatomyPart::Activations, u64::MAX >> 1)].into();
    let phases = [(StepPhase::Before, 1), (StepPhase::Loss, 2)].into();
    let phase = Some(StepPhase::Backward);
    let anatomy = Anatomy { step: Some(40), allocated: u64::MAX, parts, phase, phases, lines };
    PeakMoment { probe: ProbeId(3), device: 1, anatomy, cost: PeakCost { steps: 1, ..PeakCost::default() } }
}

fn advised() -> Advised {
    let row = AdvisedRow {
        techniques: "checkpoint + bf16".into(),
        peak: 1 << 30,
        price: "other numerics".into(),
        verdict: None,
        edit: vec!["train.py:3: \u{1b}[2J".into()],
    };
    let bare = AdvisedRow { verdict: Some("fits on L4".into()), edit: Vec::new(), ..row.clone() };
    Advised { probe: ProbeId(3), peak: 2 << 30, measured: 9, rows: vec![row, bare] }
}

fn replayed(result: Result<Box<Comparison>, Foreign>) -> Replayed {
    let finding = Some(About { kind: "growth".into(), resource: Some("reserved".into()), step: 4 });
    let cost = Cost { cpu_us: Some(5), trace_bytes: Some(6), ..Cost::default() };
    Replayed { probe: ProbeId(3), device: 1, finding, result, cost }
}

fn comparison() -> Comparison {
    let fails_at = Some(Failure { event: 7, step: Some("step 2".into()), line: None });
    let best = Outcome { settings: "expandable_segments:True".into(), peak_reserved: 3, ..Outcome::default() };
    Comparison {
        window: Some(Window { steps: Some(40) }),
        until_step: Some(9),
        error_ppm: 1,
        current: Outcome { fails_at, smallest_device: Some(8), ..Outcome::default() },
        best: Some(best),
        tried: 9,
        ..Comparison::default()
    }
}

fn header() -> Header {
    Header {
        format: FORMAT,
        gpuwatch: "0.1.0".into(),
        host: "node7".into(),
        started_unix_us: 1,
        monotonic_us: 2,
        name: None,
        writer: None,
    }
}

fn events() -> Vec<Event> {
    every_fact().into_iter().zip(100..).map(|(fact, at)| Event { at: Stamp(at), fact }).collect()
}

fn lines() -> String {
    let mut text = encode_header(&header());
    for event in events() {
        encode(&event, &mut text);
    }
    text
}

/// Three frames with checksums, each flushed in the middle.
fn compressed(text: &str) -> Vec<u8> {
    let mut file = Vec::new();
    let third = text.len() / 3;
    for part in text.as_bytes().chunks(third + 1) {
        let mut frame = zstd::Encoder::new(&mut file, 1).unwrap();
        frame.include_checksum(true).unwrap();
        for half in part.chunks(part.len() / 2 + 1) {
            frame.write_all(half).unwrap();
            frame.flush().unwrap();
        }
        frame.finish().unwrap();
    }
    file
}

fn read(bytes: &[u8]) -> (Vec<Entry>, Option<Fault>) {
    let mut entries = Vec::new();
    for entry in Reader::new(bytes).unwrap() {
        match entry {
            Ok(it) => entries.push(it),
            Err(fault) => return (entries, Some(fault)),
        }
    }
    (entries, None)
}

#[test]
fn a_file_that_unpacks_to_far_more_than_a_recording_is_read_no_further() {
    let text = encode_header(&header());
    let mut bomb = zstd::Encoder::new(Vec::new(), 1).unwrap();
    bomb.write_all(text.as_bytes()).unwrap();
    // Lines that a later release may write: each is a valid one.
    let lines = "{\"type\":\"later\",\"at_us\":1}\n".repeat(1 << 15);
    for _ in 0..128 {
        bomb.write_all(lines.as_bytes()).unwrap();
    }
    let bomb = bomb.finish().unwrap();
    assert!(bomb.len() * 1000 < lines.len() * 128);
    let (read_lines, fault) = (Reader::new(bomb.as_slice()).unwrap().flatten().count(), read(&bomb).1);
    assert!(matches!(fault, Some(Fault::Bomb { .. })), "{fault:?}");
    assert!(read_lines > 1 << 15 && read_lines < 1 << 20, "{read_lines}");
    // The same lines without a frame have their own size.
    let plain = text + &lines.repeat(16);
    assert!(read(plain.as_bytes()).1.is_none());
}

/// As in a file of which only the first bytes take room on a disk: an open frame, and one to be skipped.
#[test]
fn blocks_and_frames_without_text_are_read_no_further() {
    let first = zstd::encode_all(encode_header(&header()).as_bytes(), 1).unwrap();
    for empty in [&[0x28_u8, 0xb5, 0x2f, 0xfd, 0, 0][..], &[0x50, 0x2a, 0x4d, 0x18, 0xff, 0xff, 0xff, 0xff]] {
        let file = first.chain(empty).chain(io::repeat(0));
        let mut entries = Reader::new(file).unwrap();
        assert!(matches!(entries.next(), Some(Ok(Entry::Header(_)))));
        assert!(matches!(entries.next(), Some(Err(Fault::Damaged { lines: 1 }))));
        assert!(entries.next().is_none());
    }
}

#[test]
fn every_fact_comes_back_as_it_was() {
    let text = lines();
    let expected: Vec<Entry> =
        std::iter::once(Entry::Header(header())).chain(events().into_iter().map(Entry::Event)).collect();
    for bytes in [text.clone().into_bytes(), compressed(&text)] {
        let (entries, fault) = read(&bytes);
        assert_eq!(entries, expected);
        assert!(fault.is_none(), "{fault:?}");
    }
    assert!(text.lines().all(|it| it.starts_with("{\"") && it.contains("\"type\":")), "{text}");
}

#[test]
fn a_probes_line_keeps_its_own_time_unless_it_was_seen_later() {
    let sample = Line::Sample(Sample { at_us: 13, ..Sample::default() });
    let fact = Fact::Probe { probe: ProbeId(1), line: Box::new(sample) };
    let mut text = String::new();
    encode(&Event { at: Stamp(13), fact: fact.clone() }, &mut text);
    assert_eq!(text, "{\"type\":\"sample\",\"at_us\":13,\"device\":0,\"edge\":\"tick\",\"from\":1}\n");
    let raw = decode("{\"type\":\"sample\",\"at_us\":13,\"new_field\":[1]}").unwrap();
    assert!(matches!(raw, Entry::Event(Event { at: Stamp(13), .. })), "a captured stream is a recording: {raw:?}");
    text.clear();
    encode(&Event { at: Stamp(20), fact: fact.clone() }, &mut text);
    assert_eq!(decode(text.trim_end()).unwrap(), Entry::Event(Event { at: Stamp(20), fact }));
}

#[test]
fn unknown_lines_are_ignored_and_seconds_are_not_written() {
    let mut text = String::new();
    encode(&Event { at: Stamp(1), fact: Fact::Second }, &mut text);
    let unknown = Fact::Probe { probe: ProbeId(0), line: Box::new(Line::Unknown) };
    encode(&Event { at: Stamp(1), fact: unknown }, &mut text);
    assert_eq!(text, "");
    assert_eq!(decode("{\"type\":\"from_the_future\",\"x\":1}").unwrap(), Entry::Unknown);
    let (_, fault) = read(b"{\"type\":\"recording\",\"format\":2,\"gpuwatch\":\"9\",\"host\":\"h\",\"started_unix_us\":1,\"monotonic_us\":2}\n");
    assert!(matches!(fault, Some(Fault::Newer { found: 2 })), "{fault:?}");
}

#[test]
fn a_file_cut_anywhere_reads_to_its_last_whole_line() {
    let text = lines();
    let file = compressed(&text);
    let (whole, _) = read(&file);
    let mut most = 0;
    for cut in 0..file.len() {
        let (entries, fault) = read(&file[..cut]);
        assert_eq!(entries, whole[..entries.len()], "cut at {cut}");
        assert!(entries.len() >= most, "cut at {cut} lost what a shorter file had");
        // A cut in the first four bytes leaves no zstd; one between frames and between lines is not a cut.
        assert!(fault.is_some() || entries.len() < whole.len(), "cut at {cut} goes unnoticed");
        most = entries.len();
    }
    for cut in 0..text.len() {
        let (entries, fault) = read(&text.as_bytes()[..cut]);
        assert_eq!(entries, whole[..entries.len()]);
        let between_lines = cut == 0 || text.as_bytes()[cut - 1] == b'\n';
        assert_eq!(matches!(fault, Some(Fault::Cut { .. })), !between_lines, "cut at {cut}: {fault:?}");
    }
}

#[test]
fn a_flipped_bit_is_noticed_and_never_a_panic() {
    let text = lines();
    let file = compressed(&text);
    let (whole, _) = read(&file);
    for bit in 0..file.len() * 8 {
        let mut bad = file.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let (entries, fault) = read(&bad);
        assert!(fault.is_some() || entries == whole || entries.len() < whole.len(), "bit {bit} went unnoticed");
    }
}

#[test]
fn garbage_has_a_clear_error() {
    let long = vec![b'x'; gpuwatch_probe::wire::LINE_MAX + 10];
    let cases: [(&[u8], &str); 5] = [
        (b"garbage\n", "line 1 is not a line of a recording"),
        (b"\xff\xfe\n", "line 1 is not a line of a recording"),
        (b"{\"type\":\"memory\"}\n", "line 1 is not a line of a recording"),
        (&[0x28, 0xb5, 0x2f, 0xfd, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], "the file ends in the middle"),
        (&long, "line 1 is longer than 1 MiB"),
    ];
    for (bytes, message) in cases {
        let (entries, fault) = read(bytes);
        assert!(entries.is_empty());
        let fault_text = fault.map(|it| it.to_string()).unwrap_or_default();
        assert!(fault_text.starts_with(message), "{fault_text:?} for {message:?}");
    }
}

#[test]
fn a_reading_of_an_earlier_release_is_a_change_of_its_metrics() {
    let line = r#"{"type":"load","at_us":7,"device":"GPU-1","load":{"gpu_percent":97,"celsius":61,"later":1}}"#;
    let metrics = [(Metric::GpuPercent, 97), (Metric::CelsiusNow, 61)];
    let fact = Fact::Metrics { device: DeviceId("GPU-1".into()), changes: metrics.into_iter().collect() };
    assert_eq!(decode(line).unwrap(), Entry::Event(Event { at: Stamp(7), fact }));
}

/// Written by this release and read by later ones: who changes it breaks the format.
#[test]
fn figures_of_processes_have_a_line_of_their_own() {
    let figures = [(Figure::SmPercent, 34), (Figure::MemoryPercent, 12)];
    let fact = Fact::Figures { pid: 7, device: Some(DeviceId("GPU-1".into())), changes: figures.into_iter().collect() };
    let mut text = String::new();
    encode(&Event { at: Stamp(9), fact }, &mut text);
    let line =
        r#"{"at_us":9,"type":"figures","pid":7,"device":"GPU-1","figures":{"sm_percent":34,"memory_percent":12}}"#;
    assert_eq!(text.trim_end(), line);
    let host = r#"{"at_us":9,"type":"figures","pid":7,"figures":{"rss":9,"later":1,"threads":null}}"#;
    let Entry::Event(Event { fact: Fact::Figures { device, changes, .. }, .. }) = decode(host).unwrap() else {
        panic!()
    };
    assert_eq!((device, serde_json::to_string(&changes).unwrap().as_str()), (None, r#"{"rss":9,"threads":null}"#));
}

#[test]
fn a_process_of_an_earlier_release_has_no_environment() {
    let line = r#"{"at_us":9,"type":"process","pid":7,"start_ticks":5,"argv":["a"],"user":"ada","contained":false}"#;
    let info =
        ProcessInfo { pid: 7, start_ticks: 5, argv: vec!["a".into()], user: "ada".into(), ..ProcessInfo::default() };
    assert_eq!(decode(line).unwrap(), Entry::Event(Event { at: Stamp(9), fact: Fact::Process(info) }));
}
