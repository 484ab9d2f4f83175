//! All integration tests, one binary.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says what went wrong by panicking")]

mod demo;
mod launch;
mod nvml;
mod pty;
mod record;
mod screens;
mod session;
mod simgpu;
mod story;
mod tidy;
mod torch;
mod viewer_cost;
mod watch;
