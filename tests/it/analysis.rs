//! What gpuwatch concludes from a session: growth, errors, stalls, and whom to blame.

pub(crate) mod alerts;
pub(crate) mod corpus;
pub(crate) mod culprit;
pub(crate) mod hardware;
pub(crate) mod host_memory;
pub(crate) mod idle;
pub(crate) mod memory_pressure;
pub(crate) mod out_of_memory;
pub(crate) mod public_reports;
pub(crate) mod session;
pub(crate) mod stalls;
pub(crate) mod step_time;
pub(crate) mod verdicts;
