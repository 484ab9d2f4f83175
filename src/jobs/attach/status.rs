//! What the kernel shows of a process in `/proc/PID/status`.

use std::{fs, path::Path};

/// `/proc/PID/status`.
pub(super) struct Status(String);

impl Status {
    pub(super) fn read(pid: u32) -> Self {
        // A thread's name may hold any bytes.
        let bytes = fs::read(Path::new("/proc").join(pid.to_string()).join("status")).unwrap_or_default();
        Self(String::from_utf8_lossy(&bytes).into_owned())
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|it| it.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    }

    pub(super) fn numbers(&self, name: &str) -> Vec<u32> {
        self.text(name).unwrap_or_default().split_whitespace().filter_map(|it| it.parse().ok()).collect()
    }
}
