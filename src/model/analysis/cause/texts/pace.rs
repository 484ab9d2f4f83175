//! The texts of the causes that show in the time of steps.

use crate::model::analysis::cause::{Cause, Entry};

pub(super) const SLOWDOWN: Entry = Entry {
    cause: Cause::Slowdown,
    id: "slowdown",
    title: "steps take longer than before",
    advice: "compare clocks, utilisation and host load at that step on the timeline: heat, a busy node or slow input",
    text: "\
For a minute and 48 steps at least, steps have taken 1.2 times as long as before or longer, clearly beyond
their usual spread. The alert has the step at which it began. From 1.5 times on it is a warning.

Time is host time from the end of one step to the end of the next. gpuwatch does not synchronise the device,
so a single duration says little; the alert rests on means over at least 8 steps and 10 seconds.

What is not reported: warm-up and compilation, single long steps (checkpoints, evaluation), and larger inputs,
which show in the peak of allocated memory: a curriculum, or batches sorted by length.

Where to look, at that step on the timeline:
- the device's clocks and throttle reasons: heat or the power limit (thermal-throttling, power-throttling)
- its utilisation: if it fell, the job waits for input, for other ranks, or for the host
- other processes on the device or the node
- retries and churn of the allocator, which synchronise the device

Remedy: more workers or faster storage for input that arrives late; the node's cooling; no other job beside
this one. List `slowdown` as expected in config.toml if the job does more work per step on purpose.",
};
