//! One training job, step by step: what it holds at the end of each, with sentences of lengths that follow a law.

#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes are positive and small")]

use super::allocator::{Allocator, Handle};

/// Repeatable random numbers (splitmix64).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let it = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        it ^ (it >> 31)
    }

    /// From `low` to `high`, both included.
    pub(super) fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(super) fn chance(&mut self, of: f64) -> bool {
        self.unit() < of
    }

    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.within(0, of.len() as u64 - 1) as usize]
    }

    /// Between `low` and `high`, every order of magnitude alike.
    pub(super) fn scale(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.unit())
    }

    pub(super) fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.unit()).ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// How long the sentences of a batch are.
#[derive(Clone, Copy)]
pub(super) enum Law {
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
    /// Lognormal, of a mean that grows over this many steps.
    Mixed {
        over: f64,
    },
    /// Correlates with the step before by this much.
    Wander(f64),
}

/// The job that a family's loop is built around.
pub(super) struct Job {
    pub(super) random: Random,
    pub(super) memory: Allocator,
    pub(super) law: Law,
    pub(super) longest: u64,
    mean: f64,
    /// Bytes of a word's outputs, over the batch.
    pub(super) word: u64,
    pub(super) batch: u64,
    pub(super) layers: u64,
    pub(super) hold: bool,
    pub(super) evaluation: Option<u64>,
    last: Vec<Handle>,
    gradients: Vec<Handle>,
    evaluated: Vec<Handle>,
    wandered: f64,
    pub(super) length: u64,
    /// Samples a batch, in those of the first.
    pub(super) samples: u64,
}

impl Job {
    pub(super) fn new(random: Random, law: Law) -> Self {
        let mut random = random;
        let (longest, batch) = (random.within(48, 256), random.pick(&[2, 4, 8, 16]));
        let words = match law {
            // A language model's output for each word; a curriculum of smaller outputs drowns in the rounding of
            // blocks.
            Law::Ramp { .. } | Law::Sorted { .. } | Law::Mixed { .. } => random.pick(&[8000, 32_000, 50_000]),
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
            samples: 1,
        }
    }

    /// The outputs of one batch lie around their mean like this, in bytes.
    pub(super) fn breath(&self) -> f64 {
        let spread = match self.law {
            Law::Uniform => 0.28 * self.longest as f64,
            Law::Lognormal | Law::Bucket(_) => 0.5 * self.mean,
            _ => 0.0,
        };
        if self.hold { spread * self.word as f64 } else { 0.0 }
    }

    pub(super) fn draw(&mut self, step: u64) -> u64 {
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
            Law::Mixed { over } => {
                let share = 0.3 + 0.7 * (step as f64 / over).min(1.0);
                lognormal(&mut self.random, share * self.mean)
            }
            Law::Wander(like) => {
                // 0.24 of it is new where 0.97 is like the step before.
                let new = 0.987 * (1.0 - like * like).sqrt();
                self.wandered = like * self.wandered + new * self.random.normal();
                (self.mean * (0.3 * self.wandered).exp()) as u64
            }
        };
        length.clamp(4, self.longest)
    }

    pub(super) fn take(&mut self, bytes: u64) -> Handle {
        self.memory.take(bytes)
    }

    pub(super) fn give(&mut self, handles: impl IntoIterator<Item = Handle>) {
        for it in handles {
            self.memory.give(it);
        }
    }

    /// Outputs of one more batch.
    pub(super) fn outputs(&mut self, step: u64) -> Handle {
        let words = self.draw(step);
        self.take(words * self.word)
    }

    /// Forward and backward, up to the end of the optimizer's step.
    pub(super) fn step(&mut self, step: u64) {
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
        let outputs = self.draw(step) * self.samples;
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
            // The lengths in an evaluation do not follow those of the training.
            let length = match self.law {
                Law::Ramp { .. } | Law::Sorted { .. } | Law::Mixed { .. } => self.longest / 4,
                _ => self.draw(step),
            };
            self.evaluated = (0..3).map(|it| self.memory.take(length * self.word / 2 + it)).collect();
        }
    }
}
