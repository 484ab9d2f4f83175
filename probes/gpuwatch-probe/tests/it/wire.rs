//! The wire's text: golden lines that never change, and serde decodes what the encoder writes.

use gpuwatch_probe::wire::{
    Bye, Counters, Device, Edge, Frame, Hello, History, Holder, Job, LINE_MAX, Line, Live, Lost, Mark, Oom, OomMessage,
    Owner, Parts, Place, Refused, Sample, Site, Sites, encode,
};

/// One of each, every field set, in the order of the golden file; then the minimum of each.
fn oom() -> Oom {
    Oom {
        seq: Some(10),
        at_us: 5_000_300,
        device: 1,
        step: Some(18),
        tried: Some(1 << 30),
        device_free: Some(1 << 20),
        limit: Some(1 << 33),
        largest_free: Some(20 << 20),
        blocks: vec![(2 << 20, 96), (512, 2)],
        other_blocks: Some(3),
        other_bytes: Some(1536),
        message: Some("CUDA out of memory.\n\tTried \"1 GiB\"\u{1}\u{7f}\u{2028}🦀".into()),
        ..Oom::default()
    }
}

/// What later releases add to it.
fn oom_of_lines() -> Oom {
    let frame = |file: &str, line| Frame { file: file.into(), line, function: "Trainer.fit".into() };
    Oom {
        at_us: 5_000_800,
        frames: vec![frame("/home/ada/train.py", 40), frame("/home/ada/main.py", 7)],
        library: Some(frame("/usr/lib/python3/dist-packages/library.py", 9)),
        phase: Some("inference".into()),
        again_bytes: Some(20 << 30),
        ..Oom::default()
    }
}

fn sites() -> Sites {
    let text = |it: &str| Some(it.to_owned());
    let frame = |line, function: &str| Frame { file: "/home/ada/train.py".into(), line, function: function.into() };
    let place = |line, text: &str| Place { line, text: text.into(), ..Place::default() };
    let list = Holder { by: "item".into(), kind: text("list"), items: Some(1204), ..Holder::default() };
    let local = Holder {
        by: "local".into(),
        name: text("losses"),
        kind: text("frame"),
        items: None,
        function: text("main"),
        file: text("/home/ada/train.py"),
        line: Some(42),
    };
    let site = Site {
        device: 1,
        file: "/home/ada/train.py".into(),
        line: 40,
        function: "main".into(),
        frames: vec![frame(40, "main"), frame(50, "<module>")],
        bytes: 4096,
        blocks: 8,
        sizes: vec![(512, 8)],
        stream: Some(0),
        pool: text("1.0"),
        autograd: true,
        owners: vec![Owner { shape: vec![2, 3], dtype: "float32".into(), grad: true, count: 8 }],
        holders: vec![list, local],
        library: Some(Frame {
            file: "/env/site-packages/torchmetrics/auroc.py".into(),
            line: 7,
            function: "update".into(),
        }),
        kept: Some(Place { file: "/home/ada/train.py".into(), library: true, ..place(41, "losses.append(loss)") }),
        kept_or: vec![place(43, "losses.append(loss.clone())")],
        source: vec![place(40, "loss = net(x).sum()"), place(41, "losses.append(loss)")],
    };
    Sites {
        seq: Some(11),
        at_us: 5_000_350,
        why: "asked".into(),
        step: Some(26),
        steps: 8,
        sites: vec![site, Site::default()],
        older_blocks: Some(96),
        older_bytes: Some(192 << 20),
        held_us: Some(9000),
        longest_us: Some(3000),
        holders_us: Some(120_000),
        holders_longest_us: Some(31_000),
        history_bytes: Some(70_000),
        collected_bytes: Some(0),
        trouble: text("the search ended early"),
    }
}

/// A hello with every field of the first release: no instance, no master.
fn hello() -> Hello {
    let text = |it: &str| Some(it.to_owned());
    Hello {
        seq: 7,
        protocol: 1,
        probe: "gpuwatch-probe/0.1.0".into(),
        instance: None,
        pid: 4242,
        start_us: Some(1_700_000_000_000_000),
        attached_us: None,
        attached_step: None,
        host: "node7".into(),
        argv: ["python", "train.py", "--api-key=…"].map(str::to_owned).to_vec(),
        cwd: text("/home/ada"),
        framework: text("torch"),
        framework_version: text("2.15.0"),
        backend: text("native"),
        allocator_conf: text("expandable_segments:True"),
        run: text("0123456789abcdef0123456789abcdef"),
        restart: Some(0),
        rank: Some(3),
        local_rank: Some(1),
        world_size: Some(8),
        master: None,
        job: Some(Job { scheduler: "slurm".into(), id: "123".into() }),
        sites: text("ready"),
        fitted: None,
        devices: vec![
            Device { ordinal: 0, uuid: text("GPU-1"), name: text("NVIDIA H200"), total: Some(150_754_820_096) },
            Device { ordinal: 1, ..Device::default() },
        ],
        monotonic_us: 5_000_000,
        unix_us: 1_700_000_005_000_000,
    }
}

fn lines() -> Vec<Line> {
    let text = |it: &str| Some(it.to_owned());
    let mut counters = [None; Counters::NAMES.len()];
    // The counters of the wire's first version: lines of earlier probes stay readable.
    for (place, value) in counters.iter_mut().enumerate().take(19) {
        *value = Some(1 << (place * 3));
    }
    vec![
        Line::Hello(hello()),
        Line::Sample(Sample {
            seq: Some(8),
            at_us: 5_000_100,
            device: 0,
            edge: Edge::Step,
            step: Some(17),
            parts: None,
            counters: Counters::from_values(&counters),
        }),
        Line::Mark(Mark { seq: Some(9), at_us: 5_000_200, name: "epoch".into(), value: Some(-3) }),
        Line::Oom(oom()),
        Line::Sites(sites()),
        Line::Lost(Lost { seq: Some(11), at_us: 5_000_400, samples: 12, failures: None }),
        Line::History(History { from_us: 1, to_us: 2, stride: 64 }),
        Line::Live(Live { seq: 11 }),
        Line::Bye(Bye { seq: Some(12), at_us: 5_000_500, reason: "exit".into() }),
        Line::Refused(Refused { reason: "unknown verb".into() }),
        Line::Unknown,
        Line::Hello(Hello::default()),
        Line::Sample(Sample { edge: Edge::Call, ..Sample::default() }),
        Line::Sample(Sample {
            edge: Edge::Tick,
            counters: Counters { rss: Some(u64::MAX), ..Counters::default() },
            ..Sample::default()
        }),
        Line::Mark(Mark { value: Some(i64::MIN), ..Mark::default() }),
        Line::Oom(Oom::default()),
        Line::Sites(Sites::default()),
        Line::Sites(Sites { sites: vec![Site::default(); 2], ..Sites::default() }),
        Line::Lost(Lost::default()),
        Line::OomMessage(OomMessage {
            seq: Some(13),
            at_us: 5_000_600,
            device: 1,
            message: "Tried to allocate 1.00 GiB.".into(),
        }),
        Line::OomMessage(OomMessage::default()),
        Line::Hello(Hello { instance: text("fedcba9876543210fedcba9876543210"), ..Hello::default() }),
        Line::Hello(Hello { attached_us: Some(1_700_000_000_000_000), attached_step: Some(1204), ..Hello::default() }),
        Line::Lost(Lost { at_us: 5_000_700, failures: Some(40), ..Lost::default() }),
        Line::Hello(Hello { master: text("node01:29500"), ..Hello::default() }),
        Line::Oom(oom_of_lines()),
        Line::Sample(Sample {
            step: Some(3),
            parts: Some(Parts { weights: 1, gradients: 2, optimizer: 3, retained: 4 }),
            counters: Counters { allocated: Some(10), ..Counters::default() },
            ..Sample::default()
        }),
        Line::Hello(Hello { fitted: text("batch = 1282"), ..Hello::default() }),
    ]
}

fn encoded(line: &Line) -> String {
    let mut text = String::new();
    encode(line, &mut text);
    text
}

fn decoded(text: &str) -> Line {
    serde_json::from_str(text).unwrap()
}

#[test]
fn golden_lines_never_change() {
    let text: String = lines().iter().map(encoded).collect();
    // Shows the first difference before all lines.
    for (ours, golden) in text.lines().zip(include_str!("wire/golden.jsonl").lines()) {
        assert_eq!(ours, golden);
    }
    assert_eq!(text, include_str!("wire/golden.jsonl"));
}

#[test]
fn serde_decodes_the_lines_that_are_encoded_by_hand() {
    for line in lines() {
        assert_eq!(decoded(&encoded(&line)), line);
    }
}

#[test]
fn any_text_survives() {
    let every: String = (0..0x3000).chain([0xfffd, 0xffff, 0x1_0000, 0x10_ffff]).filter_map(char::from_u32).collect();
    let characters: Vec<char> = every.chars().collect();
    for part in characters.chunks(500) {
        let line = Line::Mark(Mark { name: part.iter().collect(), ..Mark::default() });
        let text = encoded(&line);
        assert_eq!(text.matches('\n').count(), 1, "one line");
        assert_eq!(decoded(&text), line);
    }
}

#[test]
fn no_line_is_longer_than_a_line_may_be() {
    for long in ["\u{1}".repeat(200_000), "\"".repeat(200_000), "🦀".repeat(100_000)] {
        let some = || Some(long.clone());
        let device = Device { ordinal: u32::MAX, uuid: some(), name: some(), total: Some(u64::MAX) };
        let hello = Hello {
            probe: long.clone(),
            host: long.clone(),
            argv: [vec![String::new(); 100_000], vec![long.clone(); 10]].concat(),
            cwd: some(),
            framework: some(),
            framework_version: some(),
            backend: some(),
            allocator_conf: some(),
            run: some(),
            job: Some(Job { scheduler: long.clone(), id: long.clone() }),
            devices: vec![device; 200],
            ..Hello::default()
        };
        let full = Hello { argv: vec![long.clone(); 100], ..hello.clone() };
        let mark = Mark { name: long.clone(), ..Mark::default() };
        let frame = Frame { file: long.clone(), line: u64::MAX, function: long.clone() };
        let oom = Oom { message: some(), blocks: vec![(u64::MAX, u64::MAX); 99], phase: some(), ..Oom::default() };
        let oom = Oom { frames: vec![frame.clone(); 99], library: Some(frame), ..oom };
        let bye = Bye { reason: long.clone(), ..Bye::default() };
        let text: String = long.chars().take(1000).collect();
        let part = || Place { file: text.clone(), line: u64::MAX, text: text.clone(), library: true };
        let holder = Holder {
            by: text.clone(),
            name: Some(text.clone()),
            kind: Some(text.clone()),
            items: Some(u64::MAX),
            function: Some(text.clone()),
            file: Some(text.clone()),
            line: Some(u64::MAX),
        };
        let owner = Owner { shape: vec![u64::MAX; 30], dtype: text.clone(), grad: false, count: u64::MAX };
        let site = Site {
            file: text.clone(),
            function: text.clone(),
            frames: vec![Frame { file: text.clone(), line: u64::MAX, function: text.clone() }; 30],
            sizes: vec![(u64::MAX, u64::MAX); 30],
            pool: Some(text.clone()),
            owners: vec![owner; 30],
            holders: vec![holder; 30],
            kept: Some(part()),
            source: vec![part(); 30],
            ..Site::default()
        };
        let sites = Line::Sites(Sites { why: text.clone(), sites: vec![site; 30], ..Sites::default() });
        let others = [Line::Mark(mark), Line::Oom(oom), Line::Bye(bye), sites];
        for line in [Line::Hello(hello), Line::Hello(full)].into_iter().chain(others) {
            let text = encoded(&line);
            assert!(text.len() <= LINE_MAX, "{} bytes", text.len());
            assert!(text.contains('…'), "the text marks the cut");
            decoded(&text);
        }
    }
}

#[test]
fn unknown_types_and_fields_are_ignored() {
    assert_eq!(decoded(r#"{"type":"weather","at_us":1,"sunny":true}"#), Line::Unknown);
    let sample =
        decoded(r#"{"type":"sample","at_us":1,"colour":"red","rss":[1],"allocated":5}"#.replace("[1]", "2").as_str());
    assert_eq!(
        sample,
        Line::Sample(Sample {
            at_us: 1,
            counters: Counters { rss: Some(2), allocated: Some(5), ..Counters::default() },
            ..Sample::default()
        })
    );
}
