//! Commands that print, and what all commands have in common.

pub(crate) mod check;
pub(crate) mod config;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod generated_files;
pub(crate) mod mcp;
pub(crate) mod names;
pub(crate) mod outputs;
pub(crate) mod report;
pub(crate) mod sigterm;
