//! gpuwatch shows, live and per training step, where a GPU's memory goes.
//!
//! The rooms stand in layer order: a room may use only rooms above it in this list (`tests/it/tidy.rs`
//! reads the list from here). The way of the data: a source says [`facts::event::Event`]s, [`model::session::Session`]
//! folds them, [`model::findings`] derives what they mean, a view draws it and a sink keeps it.
//!
//! - **Everything that happens is an `Event`**, and time is a field of it: nothing but sources asks a clock.
//! - **`Session` is a fold**: same events, same session, bit for bit; bounded memory whatever the run's length.
//! - **Analysis is pure**: values in, values out; unknown is `None`, drawn `–`, never 0.
//! - **Views draw, they do not decide**: pure functions into a buffer, total for every size down to 0×0.
//! - **The watched process is never blocked, slowed beyond its budget, or changed.**

/// What can happen, and how it is named and written.
pub mod facts;

/// What is known of a job, and what it means. Pure: no clock, no file, no process.
pub mod model;

/// Where events come from.
pub mod sources;

/// Where facts are kept and read back.
pub mod storage;

/// Options from flags, environment, the user's file and defaults.
pub mod config;

/// What the user sees and does.
pub mod screen;

/// What gpuwatch does with a job.
pub mod jobs;

/// The subcommands. Each is thin: what it shows and judges lies below.
pub mod commands;

/// The command line.
pub mod cli;
