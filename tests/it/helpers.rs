//! What tests share: terminals, PyTorch on simulated machines, Python environments, sessions made of events.

pub(crate) mod browser;
pub(crate) mod control_group;
pub(crate) mod debian;
pub(crate) mod prolonged;
pub(crate) mod rust_source;
pub(crate) mod story;
pub(crate) mod terminal;
pub(crate) mod torch;
pub(crate) mod venv;
