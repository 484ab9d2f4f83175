//! The subcommands. Each is thin: the modules below analyse and draw.

/// How alerts reach a person.
pub mod alert_outputs;

/// `gpuwatch`: the live view's loop.
pub mod live;

/// `gpuwatch --hosts`: the screen of many machines.
pub mod cluster;

/// `gpuwatch replay`: the same screen, fed from recordings.
pub mod player;

/// `gpuwatch once`: the current state without a terminal.
pub mod once;

/// `gpuwatch stream`: the events of this machine for a gpuwatch on another one.
pub mod stream;

/// `gpuwatch serve`: the figures for Prometheus.
pub mod serve;

/// `gpuwatch check`: whether a recorded run passes.
pub mod check;

/// `gpuwatch recordings`: the recordings and their results.
pub mod recordings;

/// `gpuwatch export`: a recording as a table.
pub mod export;

/// `gpuwatch report`: a run in one file, to read later.
pub mod report;

/// `gpuwatch diff`: compares two runs.
pub mod diff;

/// `gpuwatch explain`: explains a cause.
pub mod explain;

/// `gpuwatch sites`: which lines allocate what grows.
pub mod sites;

/// `gpuwatch whatif PID`: traces some steps of a running job.
pub mod window;

/// `gpuwatch snapshot`: the contents of a PyTorch memory snapshot.
pub mod snapshot;

/// `gpuwatch doctor`: what does not work here, and how to fix it.
pub mod doctor;

/// `gpuwatch demo`: a seeded job through the real probe.
pub mod demo;
