//! Training loops made up from a seed: what they hold goes through an allocator's figures, step by step, as PyTorch's
//! does.
//!
//! Each family has any number of variations; a seed always makes the same one. At the end of a step gradients, the loss
//! and mostly the outputs are alive, whose size goes with the lengths of the batch.

#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes are positive and small")]

use super::{
    allocator::Handle,
    job::{Job, Law, Random},
    judge::{Class, Label},
};
use gpuwatch::facts::event::wire::Counters;
use std::collections::{BTreeMap, VecDeque, btree_map::Entry};

/// Every family, by what it is.
pub(super) const FAMILIES: [(&str, Class); 34] = [
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
    ("cat_in_curriculum", Class::Leak),
    ("once_an_epoch", Class::Leak),
    ("outputs_joined", Class::Leak),
    ("lengths_grow_mixed", Class::Healthy),
    ("lengths_drift", Class::Healthy),
    ("batches_grow", Class::Healthy),
    ("accumulation", Class::Healthy),
    ("evaluation_kept", Class::Healthy),
    ("cache_of_longest", Class::Bounded),
];

/// One variation: its label, and the counters at the end of each step.
pub(super) struct Loop {
    pub(super) label: Label,
    pub(super) rows: Vec<Counters>,
}

/// The activity of a family besides training.
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
        "lengths_wander" => Law::Wander(0.97),
        "lengths_drift" => Law::Wander(random.pick(&[0.99, 0.995])),
        "lengths_grow_mixed" => Law::Mixed { over: random.within(250, 900) as f64 },
        "cat_in_curriculum" => Law::Ramp {
            over: random.within(250, 900) as f64,
            power: random.pick(&[0.5, 1.0, 1.0]),
            stage: random.pick(&[1, 1, 4, 8]),
        },
        "cat_in_lengths" | "cat_of_tokens" | "cat_now_and_then" | "small_in_lengths" | "outputs_in_lengths"
        | "outputs_joined" | "batches_grow" | "cache_of_longest" | "lengths" => random.pick(&lengths),
        _ => random.pick(&[Law::Fixed, Law::Fixed, Law::Uniform, Law::Lognormal, Law::Bucket(16)]),
    };
    let mut job = Job::new(random, law);
    if family.starts_with("lengths") || family.starts_with("cat") || family == "batches_grow" {
        job.hold = true;
    }
    let steps = job.random.within(600, 1500);
    let start = job.random.within(1, steps / 3);
    let epoch = job.random.within(25, 160);
    let period = match family {
        "cat_of_tokens" | "small_under_epochs" | "outputs_in_lengths" | "lengths" => job.random.pick(&[1, 1, 2]),
        "every_few" | "requests_grow" => job.random.within(8, 30),
        "once_an_epoch" => job.random.within(15, 60),
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
    let each =
        if family == "cat_in_curriculum" { job.random.pick(&[2048, 6144, 20_480, 65_536]) * period } else { each };
    let mut beside = Beside::default();
    let mut rows = Vec::new();
    for step in 1..=steps {
        job.step(step);
        let is_due = step >= start && step.is_multiple_of(period);
        let mut grew = false;
        match family {
            "cat_in_lengths" | "cat_in_curriculum" if is_due => grew = cat(&mut job, &mut beside, each, u64::MAX),
            "cat_of_tokens" if step >= start => {
                let bytes = job.length * (each / 64).max(16) / 4 * 4;
                grew = cat(&mut job, &mut beside, bytes, u64::MAX);
            }
            "cat_now_and_then" if step >= start && job.random.chance(chance) => {
                let rows = job.random.within(1, 4);
                grew = cat(&mut job, &mut beside, each * rows, u64::MAX);
            }
            "outputs_joined" if is_due => {
                let outputs = job.length * job.word / 8;
                grew = cat(&mut job, &mut beside, outputs, u64::MAX);
            }
            "cache_of_longest" => {
                let longest = beside.whole.map_or(0, |it| it.1);
                let size = job.length * (each / 64).max(512);
                if size > longest {
                    cat(&mut job, &mut beside, size - longest, u64::MAX);
                    beside.benign_until = Some(step);
                }
            }
            // More and more samples a batch, a few steps each.
            "batches_grow" => job.samples = (1 + step / (most / 4)).min(12),
            // Gradients are given back with every few steps, and are there in between.
            "accumulation" => {
                let old = std::mem::take(&mut beside.filled);
                job.give(old);
                if !step.is_multiple_of(period + 1) {
                    beside.filled = (0..12).map(|_| job.take(piece)).collect();
                }
            }
            "evaluation_kept" if step.is_multiple_of(epoch) => {
                let old = std::mem::take(&mut beside.filled);
                job.give(old);
                let kept = job.random.within(3, 30);
                beside.filled = (0..kept).map(|_| job.outputs(step)).collect();
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
            "small_under_epochs" | "small_under_cycles" | "small_in_lengths" | "every_few" | "once_an_epoch" => {
                is_due.then_some(small)
            }
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

/// Returns the label of a loop: the leak's size is the memory that emptying it releases.
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
        _ if family.starts_with("cat") || family == "outputs_joined" => &["growing-tensor"],
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
        // The momentary need of a step is not judged here: longer sentences take more.
        tolerate: (!leaks || family == "cat_in_curriculum")
            .then(|| ["reserved", "driver", "device"].map(str::to_owned).to_vec()),
        pre_class: family.starts_with("small_under").then(|| "sawtooth".to_owned()),
        hopeless: None,
    }
}
