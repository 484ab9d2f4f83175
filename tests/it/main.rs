//! All integration tests, one binary.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test reports a failure by a panic")]

mod analysis;
mod attach;
mod benchmarks;
mod commands;
mod driver;
mod fit;
mod helpers;
mod hosts;
mod house;
mod packaging;
mod probe;
mod recordings;
mod screens;
mod serve;
mod snapshot;
mod whatif;
