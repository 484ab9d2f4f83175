//! The probe's integration tests, one binary.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test reports a failure by a panic")]

mod abi;
mod client;
mod error_files;
mod header;
mod secrets;
mod server;
mod sockets;
mod wire;
