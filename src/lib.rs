//! gpuwatch shows, live and per training step, where a GPU's memory goes.
//!
//! The rooms stand in layer order: a room may use only rooms above it in this list (`tests/it/tidy.rs`
//! reads the list from here). The way of the data: a source says [`event::Event`]s, [`session::Session`]
//! folds them, [`findings`] derives what they mean, a view draws it and a sink keeps it.
//!
//! - **Everything that happens is an `Event`**, and time is a field of it: nothing but sources asks a clock.
//! - **`Session` is a fold**: same events, same session, bit for bit; bounded memory whatever the run's length.
//! - **Analysis is pure**: values in, values out; unknown is `None`, drawn `–`, never 0.
//! - **Views draw, they do not decide**: pure functions into a buffer, total for every size down to 0×0.
//! - **The watched process is never blocked, slowed beyond its budget, or changed.**

/// Units: bytes and stamps, and how they are written.
pub mod units;

/// Text from outside, escaped wherever it is written.
pub mod text;

/// Files that a user names, opened for reading.
pub mod input;

/// Standard output, and files that a command makes.
pub mod output;

/// What an allocator did and held: events, segments, call stacks.
pub mod trace;

/// PyTorch's memory snapshots, read from their pickles without running anything.
pub mod pickle;

/// Everything that can happen.
pub mod event;

/// What figures mean: the ladder, fragmentation, growth.
pub mod analysis;

/// What is known: the fold over all events.
pub mod session;

/// Every analysis of one session, at its own now.
pub mod findings;

/// Which findings are open, which are expected or silenced, and which are news.
pub mod alerts;

/// The recording's format: events as lines, lines in frames.
pub mod recording;

/// Where events come from.
pub mod source;

/// Where events go.
pub mod sink;

/// A recording being played: position, speed, seeks.
pub mod replay;

/// Colours by role.
pub mod theme;

/// What the user looks at: selection, screen, freeze.
pub mod ui;

/// The table of keys.
pub mod keys;

/// What is seen.
pub mod view;

/// A picture of the screen as SVG.
pub mod picture;

/// Options from flags, environment, the user's file and defaults.
pub mod config;

/// The terminal: taken, given back.
pub mod term;

/// A signal to exactly the process that was meant.
pub mod signal;

/// What keys ask of the world outside the picture, done.
pub mod hands;

/// `gpuwatch`: the live view's loop.
pub mod live;

/// `gpuwatch replay`: the same screen, fed from recordings.
pub mod player;

/// `gpuwatch once`: the same facts without a terminal.
pub mod once;

/// `gpuwatch check`: whether a recorded run passes.
pub mod check;

/// `gpuwatch recordings`: what was recorded, and how it went.
pub mod recordings;

/// `gpuwatch export`: a recording as a table.
pub mod export;

/// `gpuwatch report`: a run in one file, to be read later.
pub mod report;

/// `gpuwatch diff`: two runs side by side.
pub mod diff;

/// `gpuwatch explain`: what is known of a cause.
pub mod explain;

/// `gpuwatch sites`: which lines allocate what grows.
pub mod sites;

/// `gpuwatch snapshot`: what a memory snapshot of PyTorch holds.
pub mod snapshot;

/// `gpuwatch run` and `gpuwatch env`: a job with its probe.
pub mod launch;

/// `gpuwatch doctor`: what does not work here, and what to do.
pub mod doctor;

/// `gpuwatch demo`: a seeded job through the real probe.
pub mod demo;

/// The command line.
pub mod cli;
