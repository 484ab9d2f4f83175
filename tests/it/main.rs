//! All integration tests, one binary.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says what went wrong by panicking")]

mod alerts;
mod check;
mod config;
mod corpus;
mod cost;
mod damaged;
mod demo;
mod diff;
mod explain;
mod export;
mod formats;
mod growth_box;
mod hands;
mod harmless;
mod jobs;
mod keyboard;
mod launch;
mod mouse;
mod namespaces;
mod nvml;
mod peers;
mod pty;
mod record;
mod recording_cost;
mod recordings;
mod replay;
mod report;
mod roundtrip;
mod rows;
mod screens;
mod session;
mod shim;
mod simgpu;
mod steps;
mod story;
mod strain;
mod themes;
mod tidy;
mod tools;
mod torch;
mod truth;
mod venv;
mod viewer_cost;
mod watch;
