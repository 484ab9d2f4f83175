//! One simulated rank: an allocator's counters, step by step, pushed into the real probe.

use super::{
    HEAD_START,
    driver::{self, TOTAL},
};
use crate::{
    facts::event::{
        PeakMoment, ProbeId,
        anatomy::{Anatomy, AnatomyPart, LineShare, PeakCost, StepPhase},
    },
    sources::probe::answers,
};
use gpuwatch_probe::{
    Description, Probe, error_file,
    reading::Reading,
    wire::{Counters, Device, Edge, Frame, Hello, Holder, Oom, Owner, Parts, Place, Sample, Site, Sites},
};
use std::{
    env, fs,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const SEGMENT: u64 = 20 * MIB;

/// Resident host memory of a rank: an interpreter, its libraries, buffers of a data loader.
const HOST: u64 = 5 * GIB;

/// Default steps per second.
pub(super) const RATE: u32 = 8;

/// A rank's use of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// The same every step.
    Steady,
    /// Keeps 4 MiB more after each step.
    Leaking,
    /// Splits its segments, by about 2 MiB a step, until the device is full and the allocator releases its cache.
    Fragmenting,
    /// Frees blocks that other streams still use.
    Pending,
}

impl Kind {
    /// Returns its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Leaking => "leaking",
            Self::Fragmenting => "fragmenting",
            Self::Pending => "pending",
        }
    }
}

/// Which rank to be.
#[derive(Clone, Debug, clap::Args)]
pub struct Job {
    /// Same seed, same counters.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// This rank.
    #[arg(long, default_value_t = 0)]
    pub rank: u64,
    /// All ranks.
    #[arg(long, default_value_t = 1)]
    pub ranks: u64,
    /// What it does.
    #[arg(long, value_enum, default_value = "steady")]
    pub kind: Kind,
    /// The devices it uses.
    #[arg(long, value_delimiter = ',', default_value = "0")]
    pub devices: Vec<u32>,
    /// Steps a second.
    #[arg(long, default_value_t = RATE)]
    pub rate: u32,
    /// Where its socket goes.
    #[arg(long)]
    pub directory: PathBuf,
}

/// Trains until standard input ends, so that it does not outlive a parent that is killed.
///
/// # Errors
/// Fails if the probe cannot start.
pub fn run(job: &Job) -> io::Result<()> {
    let probe = Probe::start(describe(job))?;
    let (running, ended) = channel::<()>();
    thread::spawn(move || {
        // Only the end of input matters.
        let _ = io::stdin().lock().read_to_end(&mut Vec::new());
        drop(running);
    });
    let pause = Duration::from_secs(1) / job.rate.max(1);
    let mut allocators: Vec<Allocator> = (0..).zip(&job.devices).map(|(place, _)| Allocator::new(job, place)).collect();
    let mut next = Instant::now();
    for step in 1.. {
        for (ordinal, allocator) in (0..).zip(&mut allocators) {
            let counters = allocator.step();
            let parts = allocator.parts(&counters);
            let sample =
                Sample { device: ordinal, edge: Edge::Step, step: Some(step), parts, counters, ..Sample::default() };
            // A full queue counts its losses, as in any job.
            let _ = probe.push(&Reading::from(&sample));
            if std::mem::take(&mut allocator.failed) {
                let oom = Oom { device: ordinal, step: Some(step), tried: Some(2 * GIB), ..Oom::default() };
                let _ = probe.oom(oom);
            }
        }
        if step == CAPTURED && job.kind == Kind::Leaking {
            let _ = probe.sites(sites(step));
            let (mut answers, moment) = (None, moment(ProbeId(job.rank.try_into().unwrap_or(0)), step, &allocators));
            let _ = probe.describe(|hello| {
                answers = answers::beside(&probe.socket(), hello);
                Ok(())
            });
            // Without it, the screen shows less.
            let _ = answers.zip(moment).map(|(file, it)| answers::append(&file, &[it]));
        }
        if step % 500 == 1 {
            let _ = probe.mark("epoch", i64::try_from(step / 500).ok());
        }
        if step <= HEAD_START {
            continue;
        }
        // Do not catch up faster than the machine allows.
        next = (next + pause).max(Instant::now());
        if ended.recv_timeout(next.saturating_duration_since(Instant::now())) == Err(RecvTimeoutError::Disconnected) {
            break;
        }
    }
    probe.stop("exit");
    remove_spills(&job.directory);
    // The last rank removes it; it stays while there are others, or logs.
    let _ = fs::remove_dir(&job.directory);
    Ok(())
}

/// Removes the spills and the answers of this job's probe: the directory ends with the demo, and no reader will come.
fn remove_spills(directory: &Path) {
    let own = format!("{}.", std::process::id());
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_of_probe = |it: &str| error_file::is_name(it) || answers::has_name(it);
        if name.to_str().is_some_and(|it| it.starts_with(&own) && is_of_probe(it)) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

pub(super) fn describe(job: &Job) -> Description {
    let hello = Hello {
        argv: vec!["train.py".into(), format!("--{}", job.kind.name()), "(demo)".into()],
        framework: Some("demo".into()),
        backend: Some("native".into()),
        rank: Some(job.rank),
        local_rank: Some(job.rank),
        world_size: Some(job.ranks),
        // Under `gpuwatch run` it belongs to that run, like any job.
        run: env::var_os("GPUWATCH_RUN").is_none().then(|| format!("{:032x}", u128::from(job.seed) | 0xDE30 << 64)),
        ..Hello::default()
    };
    let mut description = Description { hello, directories: vec![job.directory.clone()], ..Description::default() };
    for (ordinal, index) in (0..).zip(&job.devices) {
        description.device(Device {
            ordinal,
            uuid: Some(format!("GPU-demo-{index}")),
            name: Some("demo H200".into()),
            total: Some(TOTAL),
        });
    }
    description
}

/// A caching allocator's counters, without the allocator.
pub(super) struct Allocator {
    kind: Kind,
    random: u64,
    base: u64,
    /// The most that it can reserve on its device.
    room: u64,
    leaked: u64,
    split: u64,
    reserved: u64,
    peak: u64,
    steps: u64,
    retries: u64,
    ooms: u64,
    device_allocs: u64,
    failed: bool,
}

impl Allocator {
    pub(super) fn new(job: &Job, place: u64) -> Self {
        let base = if place > 0 { 3 * GIB } else { (38 + 9 * (job.rank % 4)) * GIB };
        let random = (job.seed << 16 ^ job.rank << 8 ^ place).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        Self {
            kind: job.kind,
            random,
            base,
            room: usize::try_from(place).ok().and_then(|it| job.devices.get(it)).map_or(TOTAL, |it| driver::room(*it)),
            leaked: 0,
            // What its first steps left behind.
            split: if job.kind == Kind::Fragmenting { 12 * GIB } else { 0 },
            reserved: 0,
            peak: 0,
            steps: 0,
            retries: 0,
            ooms: 0,
            device_allocs: 0,
            failed: false,
        }
    }

    /// Returns the counters after one more step.
    pub(super) fn step(&mut self) -> Counters {
        self.steps += 1;
        let jitter = self.below(24) * MIB / 8;
        let pending = if self.kind == Kind::Pending { GIB + self.below(1536) * MIB } else { 0 };
        match self.kind {
            Kind::Leaking => self.leaked += 4 * MIB,
            Kind::Fragmenting => self.split += self.below(5) * MIB,
            Kind::Steady | Kind::Pending => {}
        }
        let allocated = self.base + self.leaked + jitter;
        let active = allocated + pending;
        // Activations exist only within the step: they are in the peak and in reserved memory.
        let peak = active + self.base / 3;
        let segments = |bytes: u64| bytes.next_multiple_of(SEGMENT);
        if segments(peak + self.split) > self.room {
            // The device is full: the allocator releases its cache and tries again.
            self.split = self.split.min(self.base / 16);
            self.reserved = 0;
            self.retries += 1;
        }
        if segments(peak + self.split) > self.room {
            self.leaked = 0;
            self.ooms += 1;
            self.failed = true;
            self.reserved = segments(self.base + self.base / 3).max(active);
        } else if peak + self.split > self.reserved {
            self.reserved = segments(peak + self.split);
            self.device_allocs += 1;
        }
        self.peak = self.peak.max(peak).min(self.reserved);
        Counters {
            requested: Some(active - active / 900),
            allocated: Some(allocated),
            active: Some(active),
            inactive_split: Some((self.split + GIB / 4).min(self.reserved - active)),
            reserved: Some(self.reserved),
            allocated_peak: Some(self.peak.max(allocated)),
            reserved_peak: Some(self.reserved),
            blocks: Some(2_100 + self.leaked / MIB / 4),
            segments: Some(self.reserved / (256 * MIB)),
            retries: Some(self.retries),
            ooms: Some(self.ooms),
            device_allocs: Some(self.device_allocs),
            device_frees: Some(self.retries * 12),
            private_pools: Some(0),
            rss: Some(HOST + self.steps.wrapping_mul(2_654_435_761) % 64 * MIB),
            ..Counters::default()
        }
    }

    /// Returns what the allocated bytes of these counters consist of at the end of a step: an optimizer with two states
    /// a parameter, and what is kept beside it.
    pub(super) fn parts(&self, counters: &Counters) -> Option<Parts> {
        let (weights, gradients, optimizer) = (self.base / 5, self.base / 5, self.base * 11 / 20);
        let retained = counters.allocated?.checked_sub(weights + gradients + optimizer)?;
        Some(Parts { weights, gradients, optimizer, retained })
    }

    /// Returns what is live at the highest moment of a step.
    fn anatomy(&self, step: u64) -> Anatomy {
        let (base, transient) = (self.base, self.base / 3);
        let parts = [
            (AnatomyPart::Weights, base / 5),
            (AnatomyPart::Gradients, base / 5),
            (AnatomyPart::Optimizer, base * 11 / 20),
            (AnatomyPart::Activations, transient * 7 / 8),
            (AnatomyPart::Temporaries, transient / 8),
            (AnatomyPart::Other, base / 20),
        ];
        let line = |line: &str, bytes: u64, blocks, part, module: Option<&str>| LineShare {
            line: line.into(),
            bytes,
            blocks,
            part,
            module: module.map(Into::into),
        };
        let activations = AnatomyPart::Activations;
        let lines = vec![
            line("model.py:48", transient * 3 / 8, 160, activations, Some("layers.*.mlp")),
            line("model.py:31", transient / 4, 96, activations, Some("layers.*.attention")),
            line("train.py:85", transient / 8, 2, AnatomyPart::Temporaries, None),
            line("train.py:84", transient / 8, 1, activations, Some("head")),
        ];
        let allocated: u64 = parts.iter().map(|it| it.1).sum();
        let phases = [
            (StepPhase::Before, base),
            (StepPhase::Forward, transient * 3 / 4),
            (StepPhase::Loss, transient / 8),
            (StepPhase::Backward, allocated - base - transient * 7 / 8),
        ];
        let phase = Some(StepPhase::Backward);
        Anatomy { step: Some(step), allocated, parts: parts.into(), phase, phases: phases.into(), lines }
    }

    /// Returns the next number of Marsaglia's xorshift, below `limit`.
    fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % limit
    }
}

/// The step of the capture: some steps after the first visible one.
pub(super) const CAPTURED: u64 = HEAD_START + 16;

/// Steps that it compares.
const STEPS: u64 = 8;

const FILE: &str = "/home/ada/llm/train.py";
const LIBRARY: &str = "/home/ada/venv/lib/python3.12/site-packages/torch/nn/functional.py";

/// Returns the highest moment of a step on a rank's first device.
pub(super) fn moment(probe: ProbeId, step: u64, allocators: &[Allocator]) -> Option<PeakMoment> {
    let cost = PeakCost { steps: 1, ms: 240, snapshots: 3, longest_pause_us: 8_600, paused_us: 21_900 };
    let anatomy = allocators.first()?.anatomy(step.saturating_sub(1));
    Some(PeakMoment { probe, device: 0, anatomy, cost })
}

/// Returns the answer at a step: one tensor of 4 MiB more after each step.
pub(super) fn sites(step: u64) -> Sites {
    let frame = |file: &str, line, function: &str| Frame { file: file.into(), line, function: function.into() };
    let place = |line, text: &str| Place { line, text: text.into(), ..Place::default() };
    let list = Holder { by: "item".into(), kind: Some("list".into()), items: Some(step), ..Holder::default() };
    let local = Holder {
        by: "local".into(),
        name: Some("outputs".into()),
        kind: Some("frame".into()),
        function: Some("train_epoch".into()),
        file: Some(FILE.into()),
        line: Some(88),
        ..Holder::default()
    };
    let site = Site {
        file: FILE.into(),
        line: 86,
        function: "train_epoch".into(),
        frames: vec![
            frame(LIBRARY, 2142, "softmax"),
            frame(FILE, 86, "train_epoch"),
            frame(FILE, 104, "main"),
            frame(FILE, 112, "<module>"),
        ],
        bytes: STEPS * (4 << 20),
        blocks: STEPS,
        sizes: vec![(4 << 20, STEPS)],
        owners: vec![Owner { shape: vec![1024, 1024], dtype: "float32".into(), grad: false, count: STEPS }],
        holders: vec![list, local],
        kept: Some(place(87, "        outputs.append(probabilities.detach())")),
        source: vec![
            place(84, "        logits = model(batch.tokens)"),
            place(85, "        loss = F.cross_entropy(logits, batch.targets)"),
            place(86, "        probabilities = F.softmax(logits, dim=-1)"),
            place(87, "        outputs.append(probabilities.detach())"),
            place(88, "        loss.backward()"),
            place(89, "        optimizer.step()"),
        ],
        ..Site::default()
    };
    Sites {
        why: "growth".into(),
        step: Some(step),
        steps: STEPS,
        sites: vec![site],
        older_blocks: Some(2_100 + step - STEPS),
        held_us: Some(9_400),
        longest_us: Some(2_700),
        holders_us: Some(84_000),
        history_bytes: Some(340 << 10),
        ..Sites::default()
    }
}
