//! NVML: what is wrong with the machine right now, from one call to the next.
//!
//! The file `faults` in the machine's directory has a line for each fault, `WORD[=VALUE] [CALL [DEVICE]]`, where CALL
//! is a name or the beginning of one with `*`, and DEVICE an index; without them every call about every device is
//! meant. A call that has a clock, a link or a field among its arguments also has the name `CALL:ARGUMENT`.
//!
//! `answer` sets the number that a call returns; `log` appends each call, as `CALL [DEVICE]`, to the file `calls`.

use super::process::DEFAULT_DIR;
use std::{env, fs, io::Write, path::PathBuf, thread, time::Duration};

/// Most MIG devices of one device.
pub(super) const PARTS_MAX: usize = 7;

pub(super) struct Faults(Vec<Fault>);

struct Fault {
    word: String,
    value: String,
    call: String,
    device: Option<usize>,
}

impl Fault {
    fn read(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (word, value) = words.next().map(|it| it.split_once('=').unwrap_or((it, "")))?;
        let call = words.next().unwrap_or("*");
        let device = words.next().and_then(|it| it.parse().ok());
        Some(Self { word: word.to_owned(), value: value.to_owned(), call: call.to_owned(), device })
    }

    fn means(&self, call: &str, device: Option<usize>) -> bool {
        let base = call.split(':').next().unwrap_or(call);
        let is_call =
            self.call.strip_suffix('*').map_or(self.call == call || self.call == base, |it| call.starts_with(it));
        is_call && self.device.is_none_or(|it| device == Some(it))
    }
}

impl Faults {
    /// Returns the current faults.
    pub(super) fn now() -> Self {
        let text = fs::read_to_string(dir().join("faults")).unwrap_or_default();
        Self(text.lines().filter_map(Fault::read).collect())
    }

    /// Suffers what is meant for a call: waits, or gives the status that the call answers with.
    pub(super) fn suffer(&self, call: &str, device: Option<usize>) -> Result<(), i32> {
        for fault in self.0.iter().filter(|it| it.means(call, device)) {
            match fault.word.as_str() {
                "stall" => thread::sleep(Duration::from_secs_f64(fault.value.parse().unwrap_or(0.0))),
                "lost" => return Err(status::GPU_IS_LOST),
                "no-permission" => return Err(status::NO_PERMISSION),
                "no-function" => return Err(status::FUNCTION_NOT_FOUND),
                "not-supported" => return Err(status::NOT_SUPPORTED),
                "mismatch" => return Err(status::LIBRARY_MISMATCH),
                "unknown" => return Err(status::UNKNOWN),
                "log" => log(call, device),
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns whether a fault applies to a call about a device.
    pub(super) fn has(&self, word: &str, call: &str, device: usize) -> bool {
        self.0.iter().any(|it| it.word == word && it.means(call, Some(device)))
    }

    /// The number that a call about a device is set to return.
    pub(super) fn answer(&self, call: &str, device: usize) -> Option<u64> {
        let set = self.0.iter().find(|it| it.word == "answer" && it.means(call, Some(device)));
        set.and_then(|it| it.value.parse().ok())
    }

    /// Whether a device is not there: neither counted nor listed, and lost to those that have its handle.
    pub(super) fn is_gone(&self, device: usize) -> bool {
        self.has("gone", "", device)
    }

    /// How many MIG devices a device is divided into; 0 where it is not.
    pub(super) fn parts(&self, device: usize) -> usize {
        let mig = self.0.iter().find(|it| it.word == "mig" && it.means("", Some(device)));
        mig.and_then(|it| it.value.parse().ok()).map_or(0, |it: usize| it.min(PARTS_MAX))
    }

    /// The processes that have ended, and the bytes that a device still has of each.
    pub(super) fn kept(&self, device: usize) -> Vec<(u32, u64)> {
        let kept = self.0.iter().filter(|it| it.word == "kept" && it.means("", Some(device)));
        let parts = |it: &Fault| it.value.split_once(':').map(|(pid, bytes)| (pid.parse().ok(), bytes.parse().ok()));
        kept.filter_map(|it| parts(it).and_then(|(pid, bytes)| pid.zip(bytes))).collect()
    }

    /// The critical errors that devices have reported.
    pub(super) fn errors(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let errors = self.0.iter().filter(|it| it.word == "xid");
        errors.filter_map(|it| Some((it.device?, it.value.parse().ok()?)))
    }
}

/// The machine's directory.
fn dir() -> PathBuf {
    env::var_os("SIMGPU_DIR").map_or_else(|| PathBuf::from(DEFAULT_DIR), PathBuf::from)
}

/// Appends a call to the machine's log.
fn log(call: &str, device: Option<usize>) {
    let line = device.map_or_else(|| format!("{call}\n"), |it| format!("{call} {it}\n"));
    let file = fs::OpenOptions::new().create(true).append(true).open(dir().join("calls"));
    // The log must not fail the call it notes.
    let _ = file.and_then(|mut it| it.write_all(line.as_bytes()));
}

/// The documented results.
pub(super) mod status {
    pub(in super::super) const UNINITIALIZED: i32 = 1;
    pub(in super::super) const INVALID_ARGUMENT: i32 = 2;
    pub(in super::super) const NOT_SUPPORTED: i32 = 3;
    pub(in super::super) const NO_PERMISSION: i32 = 4;
    pub(in super::super) const NOT_FOUND: i32 = 6;
    pub(in super::super) const INSUFFICIENT_SIZE: i32 = 7;
    pub(in super::super) const DRIVER_NOT_LOADED: i32 = 9;
    pub(in super::super) const TIMEOUT: i32 = 10;
    pub(in super::super) const FUNCTION_NOT_FOUND: i32 = 13;
    pub(in super::super) const GPU_IS_LOST: i32 = 15;
    pub(in super::super) const LIBRARY_MISMATCH: i32 = 18;
    pub(in super::super) const VERSION_MISMATCH: i32 = 25;
    pub(in super::super) const UNKNOWN: i32 = 999;
}
