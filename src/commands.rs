//! The subcommands. Each is thin: what it shows and judges lies below.

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

/// `gpuwatch doctor`: what does not work here, and what to do.
pub mod doctor;

/// `gpuwatch demo`: a seeded job through the real probe.
pub mod demo;
