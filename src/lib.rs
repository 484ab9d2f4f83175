//! gpuwatch shows, live and per training step, where a GPU's memory goes.
//!
//! The modules are listed in layer order: a module may use only those above it (`tests/it/house/tidy.rs` reads this
//! list). Data flows from sources, which produce [`facts::event::Event`]s, to [`model::session::Session`], which folds
//! them. [`model::findings`] interprets the session, views draw the findings, and a sink stores the events.
//!
//! - **Everything that happens is an `Event`**, and time is a field of it. Only sources read a clock.
//! - **`Session` is a fold**: the same events give the same session, bit for bit, in bounded memory.
//! - **Analysis is pure**: values in, values out. Unknown is `None`, drawn `–`, never 0.
//! - **Views only draw**: pure functions into a buffer, for every size down to 0×0.
//! - **gpuwatch never blocks or changes the watched process**, and slows it only within its budget.

/// Events: what can happen, its types, and how they are written.
pub mod facts;

/// The state of a job and its interpretation. Pure: no clock, no file, no process.
pub mod model;

/// Where events come from.
pub mod sources;

/// Where events are stored and read back.
pub mod storage;

/// Encrypted connections, requests over HTTP, tokens.
pub mod net;

/// Other machines and their streams.
pub mod hosts;

/// Options from flags, environment, config file and defaults.
pub mod config;

/// The screen: what the user sees and does.
pub mod screen;

/// What gpuwatch does with a job.
pub mod jobs;

/// What several subcommands share: flags, inputs, outputs.
pub mod cli;

/// The subcommands. Each is thin: the modules above analyse and draw.
pub mod commands;
