//! What the probe, a recording and a viewer cost. `GPUWATCH_BENCHMARK=full` holds them to their budgets.

pub(crate) mod other_viewers;
pub(crate) mod recording;
pub(crate) mod training_thread;
pub(crate) mod viewer;
