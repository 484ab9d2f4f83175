//! Training loops made up from a seed: what they hold goes through an allocator's figures, step by step, as PyTorch's
//! does.
//!
//! Each family has any number of variations; a seed always makes the same one. At the end of a step gradients, the loss
//! and mostly the outputs are alive, whose size goes with the lengths of the batch.

#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes are positive and small")]

use super::{
    allocator::{Allocator, Handle},
    judge::{Class, Label},
};
use gpuwatch::facts::event::wire::Counters;
use std::collections::{BTreeMap, VecDeque, btree_map::Entry};

/// Every family, by what it is.
pub(super) const FAMILIES: [(&str, Class); 25] = [
    ("cat_in_lengths", Class::Leak),
    ("cat_of_tokens", Class::Leak),
    ("cat_now_and_then", Class::Leak),
    ("small_under_epochs", Class::Leak),
    ("small_under_cycles", Class::Leak),
    ("small_in_lengths", Class::Leak),
    ("outputs_in_lengths", Class::Leak),
    ("every_few", Class::Leak),
    ("at_random", Class::Leak),
    ("requests_grow", Class::Other),
    ("lengths", Class::Healthy),
    ("lengths_grow", Class::Healthy),
    ("lengths_grow_by_stages", Class::Healthy),
    ("sorted_lengths", Class::Healthy),
    ("lengths_wander", Class::Healthy),
    ("evaluation", Class::Healthy),
    ("checkpoints", Class::Healthy),
    ("average_begins", Class::Healthy),
    ("detections", Class::Healthy),
    ("alternating", Class::Healthy),
    ("cache_by_length", Class::Bounded),
    ("buffer_fills", Class::Bounded),
    ("window_of_rows", Class::Bounded),
    ("epochs", Class::Sawtooth),
    ("cycles", Class::Sawtooth),
];

/// One variation: its label, and the counters at the end of each step.
pub(super) struct Loop {
    pub(super) label: Label,
    pub(super) rows: Vec<Counters>,
}

/// Repeatable random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let it = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        it ^ (it >> 31)
    }

    /// From `low` to `high`, both included.
    fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn chance(&mut self, of: f64) -> bool {
        self.unit() < of
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.within(0, of.len() as u64 - 1) as usize]
    }

    /// Between `low` and `high`, every order of magnitude alike.
    fn scale(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.unit())
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.unit()).ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// How long the sentences of a batch are.
#[derive(Clone, Copy)]
enum Law {
    Fixed,
    Uniform,
    Lognormal,
    /// The longest of a batch, rounded up.
    Bucket(u64),
    /// Grows over this many steps with a power of their share, up to a stage's length at a time.
    Ramp {
        over: f64,
        power: f64,
        stage: u64,
    },
    Sorted {
        epoch: u64,
    },
    Wander,
}

/// The job that a family's loop is built around.
struct Job {
    random: Random,
    memory: Allocator,
    law: Law,
    longest: u64,
    mean: f64,
    /// Bytes of a word's outputs, over the batch.
    word: u64,
    batch: u64,
    layers: u64,
    hold: bool,
    evaluation: Option<u64>,
    last: Vec<Handle>,
    gradients: Vec<Handle>,
    evaluated: Vec<Handle>,
    wandered: f64,
    length: u64,
}

impl Job {
    fn new(random: Random, law: Law) -> Self {
        let mut random = random;
        let (longest, batch) = (random.within(48, 256), random.pick(&[2, 4, 8, 16]));
        let words = match law {
            // What a language model says of each word; a curriculum of smaller outputs drowns in the rounding of
            // blocks.
            Law::Ramp { .. } | Law::Sorted { .. } => random.pick(&[8000, 32_000, 50_000]),
            _ => random.pick(&[256, 1000, 4000, 32_000]),
        };
        let word = batch * words * random.pick(&[2, 4]);
        let layers = random.within(3, 10);
        let mean = longest as f64 * (0.2 + 0.3 * random.unit());
        let (hold, evaluates) = (random.chance(0.85), random.chance(0.4));
        let evaluation = evaluates.then(|| random.within(40, 250));
        Self {
            random,
            memory: Allocator::default(),
            law,
            longest,
            mean,
            word,
            batch,
            layers,
            hold,
            evaluation,
            last: Vec::new(),
            gradients: Vec::new(),
            evaluated: Vec::new(),
            wandered: 0.0,
            length: 0,
        }
    }

    /// The outputs of one batch lie around their mean like this, in bytes.
    fn breath(&self) -> f64 {
        let spread = match self.law {
            Law::Uniform => 0.28 * self.longest as f64,
            Law::Lognormal | Law::Bucket(_) => 0.5 * self.mean,
            _ => 0.0,
        };
        if self.hold { spread * self.word as f64 } else { 0.0 }
    }

    fn draw(&mut self, step: u64) -> u64 {
        let lognormal = |random: &mut Random, mean: f64| (mean * (0.5 * random.normal()).exp()) as u64;
        let length = match self.law {
            Law::Fixed => self.longest / 2,
            Law::Uniform => self.random.within(self.longest / 16, self.longest),
            Law::Lognormal => lognormal(&mut self.random, self.mean),
            Law::Bucket(to) => {
                let longest = (0..self.batch).map(|_| lognormal(&mut self.random, self.mean / 2.0)).max();
                longest.unwrap_or(1).max(1).next_multiple_of(to)
            }
            Law::Ramp { over, power, stage } => {
                let share = (step as f64 / over).min(1.0).powf(power);
                let grown = share * self.longest as f64 * 0.9;
                self.longest / 10 + grown as u64 / stage * stage
            }
            Law::Sorted { epoch } => {
                let place = ((step % epoch) as f64 + 0.5) / epoch as f64;
                (self.mean * (0.5 * (place / (1.0 - place)).ln() / 1.7).exp()) as u64
            }
            Law::Wander => {
                self.wandered = 0.97 * self.wandered + 0.24 * self.random.normal();
                (self.mean * (0.3 * self.wandered).exp()) as u64
            }
        };
        length.clamp(4, self.longest)
    }

    fn take(&mut self, bytes: u64) -> Handle {
        self.memory.take(bytes)
    }

    fn give(&mut self, handles: impl IntoIterator<Item = Handle>) {
        for it in handles {
            self.memory.give(it);
        }
    }

    /// Forward and backward, up to the end of the optimizer's step.
    fn step(&mut self, step: u64) {
        if step == 1 {
            for at in 0..12 {
                let size = self.word * (at % 4 + 1) / 2;
                // Weights, two moments each; and gradients, which the first step makes.
                for _ in 0..3 {
                    self.take(size);
                }
                let gradient = self.take(size);
                self.gradients.push(gradient);
            }
        }
        let outputs = self.draw(step);
        self.length = outputs;
        let activations: Vec<_> =
            (0..self.layers).map(|it| self.take((outputs * self.word / (it % 3 + 1)).max(1))).collect();
        let new = self.take(outputs * self.word);
        let loss = self.take(4);
        let old = std::mem::replace(&mut self.last, vec![loss]);
        self.give(old);
        self.give(activations);
        if self.hold {
            self.last.push(new);
        } else {
            self.give([new]);
        }
        if self.evaluation.is_some_and(|it| step.is_multiple_of(it)) {
            let old = std::mem::take(&mut self.evaluated);
            self.give(old);
            // What is evaluated does not follow the order in which one learns.
            let length = match self.law {
                Law::Ramp { .. } | Law::Sorted { .. } => self.longest / 4,
                _ => self.draw(step),
            };
            self.evaluated = (0..3).map(|it| self.memory.take(length * self.word / 2 + it)).collect();
        }
    }
}

/// What a family does beside training.
#[derive(Default)]
struct Beside {
    kept: Vec<Handle>,
    whole: Option<(Handle, u64)>,
    filled: Vec<Handle>,
    queue: VecDeque<Handle>,
    by_length: BTreeMap<u64, Handle>,
    first: Option<u64>,
    last: u64,
    grew: u64,
    benign_until: Option<u64>,
}

/// A tensor that is reallocated with some bytes more; always true.
fn cat(job: &mut Job, beside: &mut Beside, bytes: u64, most: u64) -> bool {
    let size = (beside.whole.map_or(0, |it| it.1) + bytes).min(most);
    let new = job.take(size);
    let old = beside.whole.replace((new, size));
    job.give(old.map(|it| it.0));
    true
}

/// Makes a variation of a family.
#[expect(clippy::too_many_lines, reason = "what each family does in a step stands side by side")]
pub(super) fn made(family: &str, class: Class, seed: u64) -> Loop {
    let number = FAMILIES.iter().position(|it| it.0 == family).expect("a family") as u64;
    let mut random = Random(number << 40 | seed << 8);
    let lengths = [Law::Uniform, Law::Lognormal, Law::Bucket(8), Law::Bucket(32)];
    let law = match family {
        "lengths_grow" | "lengths_grow_by_stages" => Law::Ramp {
            over: random.within(250, 900) as f64,
            power: random.pick(&[0.5, 1.0, 1.0]),
            stage: if family == "lengths_grow" { 1 } else { random.pick(&[4, 8, 16]) },
        },
        "sorted_lengths" => Law::Sorted { epoch: random.within(30, 250) },
        "lengths_wander" => Law::Wander,
        "cat_in_lengths" | "cat_of_tokens" | "cat_now_and_then" | "small_in_lengths" | "outputs_in_lengths"
        | "lengths" => random.pick(&lengths),
        _ => random.pick(&[Law::Fixed, Law::Fixed, Law::Uniform, Law::Lognormal, Law::Bucket(16)]),
    };
    let mut job = Job::new(random, law);
    if family.starts_with("lengths") || family.starts_with("cat") {
        job.hold = true;
    }
    let steps = job.random.within(600, 1500);
    let start = job.random.within(1, steps / 3);
    let epoch = job.random.within(25, 160);
    let period = match family {
        "cat_of_tokens" | "small_under_epochs" | "outputs_in_lengths" | "lengths" => job.random.pick(&[1, 1, 2]),
        "every_few" | "requests_grow" => job.random.within(8, 30),
        _ => job.random.pick(&[1, 1, 2, 3, 5]),
    };
    let chance = job.random.scale(0.05, 0.5);
    // Against the noise of the lengths, 200 steps of growth: as much as that, up to many times as much.
    let over_noise = job.random.scale(1.0, 200.0);
    let growth = job.breath() * over_noise / 200.0;
    let each = match family {
        "cat_now_and_then" => (growth / (2.5 * chance)) as u64,
        _ => growth as u64 * period,
    };
    let each = each.max(512).next_multiple_of(256);
    let small = job.random.pick(&[4, 2048, 4096, 20_000]);
    let per_step = job.random.within(1, 3);
    let piece = job.random.pick(&[4096, 65_536, 300_000]);
    let most = job.random.within(60, 400);
    let (mut left, mut request) = (epoch, 24 << 20);
    let more = job.random.pick(&[2, 4, 6]) << 20;
    let mut beside = Beside::default();
    let mut rows = Vec::new();
    for step in 1..=steps {
        job.step(step);
        let is_due = step >= start && step.is_multiple_of(period);
        let mut grew = false;
        match family {
            "cat_in_lengths" if is_due => grew = cat(&mut job, &mut beside, each, u64::MAX),
            "cat_of_tokens" if step >= start => {
                let bytes = job.length * (each / 64).max(16) / 4 * 4;
                grew = cat(&mut job, &mut beside, bytes, u64::MAX);
            }
            "cat_now_and_then" if step >= start && job.random.chance(chance) => {
                let rows = job.random.within(1, 4);
                grew = cat(&mut job, &mut beside, each * rows, u64::MAX);
            }
            "window_of_rows" => {
                cat(&mut job, &mut beside, each, each * most);
                beside.benign_until = Some(step.min(most));
            }
            "small_under_epochs" | "small_under_cycles" | "epochs" | "cycles" => {
                for _ in 0..per_step {
                    let it = job.take(piece);
                    beside.filled.push(it);
                }
                left -= 1;
                if left == 0 {
                    let filled = std::mem::take(&mut beside.filled);
                    job.give(filled);
                    beside.benign_until.get_or_insert(step);
                    let jitter = if family.ends_with("epochs") { 0 } else { epoch / 3 };
                    left = job.random.within(epoch - jitter, epoch + jitter);
                }
            }
            "buffer_fills" => {
                let it = job.take(piece);
                beside.queue.push_back(it);
                if beside.queue.len() as u64 > most {
                    let old = beside.queue.pop_front();
                    job.give(old);
                } else {
                    beside.benign_until = Some(step);
                }
            }
            "cache_by_length" => {
                let key = job.random.within(0, most / 2).min(job.random.within(0, most / 2));
                if let Entry::Vacant(place) = beside.by_length.entry(key) {
                    place.insert(job.take(piece + key * 64));
                    beside.benign_until = Some(step);
                }
            }
            "checkpoints" if step.is_multiple_of(epoch) => {
                let copies: Vec<_> = (0..12).map(|_| job.take(piece)).collect();
                job.give(copies);
            }
            "average_begins" if step == start => {
                beside.filled = (0..12).map(|_| job.take(piece)).collect();
            }
            "detections" => {
                let old = std::mem::take(&mut beside.filled);
                job.give(old);
                let found = job.random.scale(1.0, 60.0) as u64;
                beside.filled = (0..found).map(|_| job.memory.take(piece)).collect();
            }
            "alternating" => {
                let old = std::mem::take(&mut beside.filled);
                job.give(old);
                beside.filled = (0..step % 3 * 4).map(|_| job.memory.take(piece)).collect();
            }
            "requests_grow" if is_due => {
                let before = job.memory.counters().reserved;
                request += more;
                let it = job.take(request);
                job.give([it]);
                grew = job.memory.counters().reserved > before;
            }
            _ => {}
        }
        let keeps = match family {
            "small_under_epochs" | "small_under_cycles" | "small_in_lengths" | "every_few" => is_due.then_some(small),
            "outputs_in_lengths" => is_due.then_some(job.length * job.word / 8),
            "at_random" => (step >= start && job.random.chance(chance)).then_some(small),
            _ => None,
        };
        if let Some(bytes) = keeps {
            let it = job.take(bytes);
            beside.kept.push(it);
            grew = true;
        }
        if grew {
            beside.first.get_or_insert(step);
            beside.last = step;
            beside.grew += 1;
        }
        rows.push(job.memory.counters());
    }
    let label = label(family, class, seed, steps, &mut job, beside, &rows);
    Loop { label, rows }
}

/// What is true of a loop: the leak's size is what its emptying gives back.
fn label(family: &str, class: Class, seed: u64, steps: u64, job: &mut Job, beside: Beside, rows: &[Counters]) -> Label {
    let leaks = matches!(class, Class::Leak | Class::Other);
    let first = beside.first.filter(|_| leaks);
    // Up to the next growth after the latest, if it comes as the others do.
    let over = first.map_or(1.0, |it| (beside.last - it) as f64 * (1.0 + 1.0 / (beside.grew.max(2) - 1) as f64));
    let before = job.memory.counters();
    job.give(beside.kept);
    job.give(beside.whole.map(|it| it.0));
    let after = job.memory.counters();
    let fall = |of: fn(&Counters) -> Option<u64>| (of(&before).unwrap_or(0) - of(&after).unwrap_or(0)) as f64 / over;
    let bytes = if class == Class::Other {
        let begin = first.and_then(|it| rows.get(it as usize - 1)).and_then(|it| it.reserved);
        let gained = rows.last().and_then(|it| it.reserved).unwrap_or(0) - begin.unwrap_or(0);
        gained as f64 / (beside.last - first.unwrap_or(0)).max(1) as f64
    } else {
        fall(|it| it.allocated)
    };
    let causes: &[&str] = match family {
        _ if family.starts_with("cat") => &["growing-tensor"],
        "requests_grow" => &["fragmentation"],
        _ => &["tensors-retained", "scalars-retained"],
    };
    Label {
        trace: format!("{family}-{seed}"),
        class,
        resource: leaks.then(|| if class == Class::Other { "reserved" } else { "allocated" }.to_owned()),
        start_step: first,
        period: leaks.then(|| over / beside.grew.max(1) as f64),
        bytes_per_step: leaks.then_some(bytes),
        blocks_per_step: leaks.then(|| fall(|it| it.blocks)),
        benign_until_step: beside.benign_until,
        steps,
        causes: causes.iter().filter(|_| leaks).map(|it| (*it).to_owned()).collect(),
        // What a step needs at a time is not judged here: longer sentences take more.
        tolerate: (!leaks).then(|| ["reserved", "driver", "device"].map(str::to_owned).to_vec()),
        pre_class: family.starts_with("small_under").then(|| "sawtooth".to_owned()),
        hopeless: None,
    }
}
