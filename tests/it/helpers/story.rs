//! A fixed session as events: two devices, a leaking rank, a fragmenting one, a stranger.

use gpuwatch::{
    facts::{
        event::{
            DeviceId, DeviceInfo, DeviceMemory, DriverState, Event, Fact, Line, ProbeId, ProcessInfo, ProcessUse,
            wire::{
                Bye, Counters, Device, Edge, Hello, History, Live, Lost, Mark, Oom, PROTOCOL, Parts, Sample, Sites,
            },
        },
        maker::Maker,
        metrics::Metric,
        text::Foreign,
        units::{Bytes, Stamp},
    },
    model::{
        findings::{Findings, findings},
        session::Session,
    },
    screen::{theme::Theme, ui::Ui, view},
};
use ratatui::{buffer::Buffer, layout::Rect, style::Style};
use std::fmt::Write as _;

pub(crate) const GIB: u64 = 1 << 30;
pub(crate) const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000;

/// Events being written down, with a clock of their own.
#[derive(Default)]
pub(crate) struct Story {
    pub(crate) events: Vec<Event>,
    pub(crate) now: u64,
}

impl Story {
    pub(crate) fn add(&mut self, fact: Fact) -> &mut Self {
        self.events.push(Event { at: Stamp(self.now), fact });
        self
    }

    pub(crate) fn wait(&mut self, us: u64) -> &mut Self {
        self.now += us;
        self
    }

    pub(crate) fn device(&mut self, index: u32, used: u64, processes: &[(u32, u64)]) -> &mut Self {
        let id = device(index);
        let total = 140 * GIB;
        self.add(Fact::Device(DeviceInfo {
            id: id.clone(),
            index,
            name: "NVIDIA H200".into(),
            parent: None,
            maker: Maker::Nvidia,
        }));
        self.add(Fact::Memory {
            device: id.clone(),
            reading: Ok(DeviceMemory {
                total: Bytes(total),
                used: Bytes(used),
                free: Bytes(total - used - GIB / 2),
                reserved: Some(Bytes(GIB / 2)),
                unified: None,
            }),
        });
        let metrics = [
            (Metric::GpuPercent, if used > GIB { 97 } else { 0 }),
            (Metric::SmMhz, 1755),
            (Metric::SmMaxMhz, 1980),
            (Metric::ThrottleReasons, 4),
            (Metric::PowerMw, 512_300),
            (Metric::PowerLimitMw, 700_000),
            (Metric::CelsiusNow, 61),
            (Metric::SlowdownCelsius, 87),
            (Metric::PcieGeneration, 5),
            (Metric::PcieGenerationMax, 5),
            (Metric::PcieWidth, 16),
            (Metric::PcieWidthMax, 16),
            (Metric::NvlinksActive, 18),
            (Metric::Nvlinks, 18),
            (Metric::RowsPending, 0),
            (Metric::Persistence, 1),
        ];
        self.add(Fact::Metrics { device: id.clone(), changes: metrics.into_iter().collect() });
        let list = processes.iter().map(|(pid, used)| ProcessUse { pid: *pid, used: Some(Bytes(*used)) }).collect();
        self.add(Fact::Processes { device: id, reading: Ok(list) })
    }

    pub(crate) fn who(&mut self, pid: u32, argv: &[&str]) -> &mut Self {
        self.add(Fact::Process(ProcessInfo {
            pid,
            start_ticks: 1,
            argv: argv.iter().map(|it| Foreign::from(*it)).collect(),
            user: "ada".into(),
            ..ProcessInfo::default()
        }))
    }

    pub(crate) fn probe(&mut self, number: u32, pid: u32, index: u32, conf: Option<&str>) -> &mut Self {
        self.add(Fact::ProbeFound { probe: ProbeId(number), pid: Some(pid), socket: "/tmp/x.sock".into() });
        self.line(
            number,
            Line::Hello(Hello {
                protocol: PROTOCOL,
                probe: "gpuwatch-probe/0.1.0".to_owned(),
                pid,
                argv: ["python", "train.py", "--rank"].map(str::to_owned).to_vec(),
                allocator_conf: conf.map(str::to_owned),
                rank: Some(u64::from(number)),
                world_size: Some(2),
                devices: vec![Device { ordinal: 0, uuid: Some(device(index).0), ..Device::default() }],
                ..Hello::default()
            }),
        );
        self.line(number, Line::Live(Live::default()))
    }

    pub(crate) fn line(&mut self, number: u32, line: Line) -> &mut Self {
        self.add(Fact::Probe { probe: ProbeId(number), line: Box::new(line) })
    }

    #[expect(clippy::large_types_passed_by_value, reason = "a story consists of literals")]
    pub(crate) fn sample(&mut self, number: u32, step: u64, counters: Counters) -> &mut Self {
        self.sample_of(number, step, &counters, None)
    }

    /// A sample with what the allocated bytes consist of.
    pub(crate) fn sample_of(&mut self, number: u32, step: u64, held: &Counters, parts: Option<Parts>) -> &mut Self {
        let sample =
            Sample { at_us: self.now, edge: Edge::Step, step: Some(step), counters: *held, ..Sample::default() };
        self.line(number, Line::Sample(Sample { parts, ..sample }))
    }

    pub(crate) fn session(&self) -> Session {
        let mut session = Session::default();
        for event in &self.events {
            session.apply(event);
        }
        session
    }
}

pub(crate) fn device(index: u32) -> DeviceId {
    DeviceId(format!("GPU-{index}"))
}

/// Counters in a plausible relation: some rounding, some pending, the cache half stuck.
pub(crate) fn counters(allocated: u64, cached: u64) -> Counters {
    let pending = 64 * MIB;
    Counters {
        requested: Some(allocated + pending - 150 * MIB),
        allocated: Some(allocated),
        active: Some(allocated + pending),
        inactive_split: Some(cached / 3),
        reserved: Some(allocated + pending + cached),
        private_pools: Some(0),
        device_total: Some(140 * GIB),
        ..Counters::default()
    }
}

/// The fixed session of the snapshots.
pub(crate) fn usual() -> Story {
    let mut story = Story::default();
    story.add(Fact::Driver(DriverState::Up { version: Some("570.86.15".into()) }));
    story.device(0, 2 * GIB, &[]).device(1, GIB / 4, &[]);
    story.probe(0, 4242, 0, None).probe(1, 4243, 1, Some("expandable_segments:True"));
    story.line(0, Line::Mark(Mark { name: "epoch".to_owned(), value: Some(3), ..Mark::default() }));
    for step in 1..=700 {
        story.wait(SECOND / 10);
        let warm_up = 20 * GIB + step.min(8) * 2 * GIB;
        story.sample(0, step, counters(warm_up + step * 4 * MIB, 21 * GIB));
        story.sample(1, step, counters(30 * GIB + step % 3 * 100 * MIB, 2 * GIB));
        if step == 400 {
            let at_us = story.now;
            story.line(0, Line::Mark(Mark { at_us, name: "evaluation".to_owned(), ..Mark::default() }));
        }
        if step % 100 == 0 {
            let held = warm_up + step * 4 * MIB + 64 * MIB + 21 * GIB;
            story.device(0, held + 12 * GIB, &[(4242, held + 3 * GIB), (977, 9 * GIB)]);
            story.device(1, 34 * GIB, &[(4243, 33 * GIB)]);
        }
    }
    story.who(977, &["/usr/bin/python3.12", "eval notebook.py", "--model", "large"]);
    story.line(1, Line::Lost(Lost { samples: 12, ..Lost::default() }));
    story
}

/// Returns the fixed session after a capture of the line that allocates the memory that rank 0 keeps.
pub(crate) fn blamed(sites: impl Fn(u64, u64) -> Sites) -> Story {
    let mut story = usual();
    let sites = Line::Sites(sites(story.now, 690));
    story.line(0, sites);
    story
}

/// So many ranks, each on a device of its own: rank 5 holds half as much again, rank 17 is three steps behind.
pub(crate) fn fleet(ranks: u32) -> Story {
    let mut story = Story::default();
    for rank in 0..ranks {
        let held = (if rank == 5 { 60 } else { 40 }) * GIB;
        story.device(rank, held + 3 * GIB, &[(5000 + rank, held + 3 * GIB)]).probe(rank, 5000 + rank, rank, None);
    }
    for step in 1..=60 {
        story.wait(SECOND / 10);
        for rank in 0..ranks {
            if rank != 17 || step <= 57 {
                let more = if rank == 5 { 20 * GIB } else { u64::from(rank) * 10 * MIB };
                story.sample(rank, step, counters(40 * GIB + more, GIB));
            }
        }
    }
    story
}

/// Everything that can be wrong at once, with names that want to break out.
pub(crate) fn hostile() -> Story {
    let nasty = "\x1b[2J\x1b]0;x\x07\u{202e}训练\u{300}\r\n\t\u{9b}31m";
    let mut story = usual();
    story.device(2, 139 * GIB, &[(1, u64::MAX), (2, 0)]);
    story.add(Fact::Device(DeviceInfo {
        id: device(3),
        index: 3,
        name: nasty.into(),
        parent: None,
        maker: Maker::Nvidia,
    }));
    story.who(1, &[nasty, nasty]).add(Fact::Notice(nasty.into()));
    story.add(Fact::Driver(DriverState::Up { version: Some(nasty.into()) }));
    story.add(Fact::ProbeFound { probe: ProbeId(7), pid: None, socket: nasty.into() });
    story.line(7, Line::Hello(Hello { protocol: PROTOCOL, argv: vec![nasty.to_owned()], ..Hello::default() }));
    story.line(7, Line::History(History { stride: 64, ..History::default() }));
    story.line(7, Line::Mark(Mark { name: nasty.to_owned(), ..Mark::default() }));
    for step in [u64::MAX, 0, 1] {
        let all = Counters::from_values(&[Some(u64::MAX); Counters::NAMES.len()]);
        story.sample(7, step, all).sample(7, step, Counters::default());
    }
    story.line(7, Line::Oom(Oom { message: Some(nasty.to_owned()), tried: Some(u64::MAX), ..Oom::default() }));
    story.line(0, Line::Bye(Bye { reason: nasty.to_owned(), ..Bye::default() }));
    story.add(Fact::ProbeGone { probe: ProbeId(1), why: nasty.into() });
    story.add(Fact::JobEnded { code: None, signal: Some(9) });
    story
}

/// Rank 0 keeps 512 bytes a step; rank 1 fills a cache, and runs out of memory much later.
pub(crate) fn alerted() -> Story {
    let mut story = Story::default();
    story.device(0, 60 * GIB, &[]).device(1, 60 * GIB, &[]);
    story.probe(0, 4242, 0, None).probe(1, 4243, 1, None);
    for step in 1..=700 {
        story.wait(100_000).sample(0, step, counters(20 * GIB + step * 512, 2 * GIB));
        story.sample(1, step, counters(30 * GIB + step.min(200) * 8 * MIB, 2 * GIB));
    }
    let oom = Oom { step: Some(700), tried: Some(80 << 30), device_free: Some(79 << 30), ..Oom::default() };
    story.line(1, Line::Oom(oom));
    story
}

pub(crate) fn nvml_alone() -> Story {
    let mut story = Story::default();
    story.add(Fact::Driver(DriverState::Up { version: Some("570.86.15".into()) }));
    for second in 0..300 {
        story.wait(1_000_000).device(
            0,
            (20 + second / 10) << 30,
            &[(31_337, (19 + second / 10) << 30), (977, 1 << 29)],
        );
    }
    story.who(31_337, &["/usr/bin/python3", "train.py", "--lr", "1e-3"]).who(977, &["/usr/lib/Xorg"]);
    story
}

pub(crate) fn many_devices() -> Story {
    let mut story = usual();
    for index in 2..8 {
        story.device(index, u64::from(index) << 34, &[]);
    }
    story
}

/// Steps of a tenth of a second, and a second after every ten of them.
pub(crate) fn steps(story: &mut Story, steps: std::ops::RangeInclusive<u64>, allocated: impl Fn(u64) -> u64) {
    for step in steps {
        story.wait(100_000).sample(0, step, counters(allocated(step), 2 * GIB));
        if step % 10 == 0 {
            story.add(Fact::Second);
        }
    }
}

pub(crate) fn one_rank() -> Story {
    let mut story = Story::default();
    story.device(0, 60 * GIB, &[]).probe(0, 4242, 0, None);
    story
}

/// The picture of a session.
pub(crate) fn picture(session: &Session, ui: &Ui, theme: &Theme, width: u16, height: u16) -> Buffer {
    picture_of(session, &findings(session), ui, theme, width, height)
}

/// The same with findings of its own.
pub(crate) fn picture_of(
    session: &Session,
    found: &Findings,
    ui: &Ui,
    theme: &Theme,
    width: u16,
    height: u16,
) -> Buffer {
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    view::draw(&mut buffer, session, found, ui, theme);
    buffer
}

/// Its text.
pub(crate) fn text(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width);
    let mut out = String::new();
    for row in buffer.content.chunks(width.max(1)) {
        let line: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
        out += line.trim_end();
        out.push('\n');
    }
    out
}

/// A picture's styles: how many cells have which, row by row, and what the letters mean.
pub(crate) fn styles(buffer: &Buffer) -> String {
    let mut known: Vec<Style> = Vec::new();
    let mut out = String::new();
    for row in buffer.content.chunks(usize::from(buffer.area.width)) {
        let mut runs: Vec<(char, usize)> = Vec::new();
        for cell in row {
            let place = known.iter().position(|it| *it == cell.style()).unwrap_or_else(|| {
                known.push(cell.style());
                known.len() - 1
            });
            let letter = char::from_u32(u32::from('a') + u32::try_from(place).unwrap()).unwrap();
            match runs.last_mut().filter(|it| it.0 == letter) {
                Some((_, count)) => *count += 1,
                None => runs.push((letter, 1)),
            }
        }
        let runs: Vec<String> = runs.iter().map(|(letter, count)| format!("{count}{letter}")).collect();
        writeln!(out, "{}", runs.join(" ")).unwrap();
    }
    for (letter, style) in ('a'..).zip(known) {
        writeln!(out, "{letter}: {:?} on {:?} {:?}", style.fg, style.bg, style.add_modifier).unwrap();
    }
    out
}
