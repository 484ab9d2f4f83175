//! Facts in words, the same wherever they are written.

use super::Trouble;
use std::fmt;

/// With the next step.
impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPermission => f.write_str("no permission; run as root, or let the administrator allow it"),
            Self::NotSupported => f.write_str("this device or driver does not have it"),
            Self::Lost => f.write_str("the device fell off the bus; see dmesg for its Xid"),
            Self::Other(words) => words.fmt(f),
        }
    }
}

/// How a command ended: `exit code 3`, `killed by signal 9`; `None` where it is not known.
pub fn ending(code: Option<i32>, signal: Option<i32>) -> Option<String> {
    let exited = code.map(|it| format!("exit code {it}"));
    exited.or_else(|| signal.map(|it| format!("killed by signal {it}")))
}

/// How a command failed, as a sentence; `None` where it did not, or it is not known.
pub fn failure(code: Option<i32>, signal: Option<i32>) -> Option<String> {
    let how = ending(code.filter(|it| *it > 0), signal)?;
    Some(if signal.is_some() { format!("the command was {how}") } else { format!("the command ended with {how}") })
}
