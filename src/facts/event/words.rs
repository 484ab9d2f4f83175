//! Events in words, the same in every output.

use super::Trouble;
use std::fmt;

impl Trouble {
    /// Returns the name that scripts and monitoring systems know it by.
    pub fn id(&self) -> &'static str {
        match self {
            Self::NoPermission => "no_permission",
            Self::NotSupported => "not_supported",
            Self::Lost => "lost",
            Self::Other(_) => "other",
        }
    }

    /// Returns what is wrong and, where gpuwatch knows one, the next step. The driver's own words come escaped.
    pub fn parts(&self) -> (String, Option<&'static str>) {
        let (what, next) = match self {
            Self::NoPermission => {
                ("no permission", Some("run as root, or let the administrator change the modes of /dev/nvidia*"))
            }
            Self::NotSupported => ("this device or driver does not have it", None),
            Self::Lost => ("the device fell off the bus", Some("see dmesg for its Xid; it needs a reset or a reboot")),
            Self::Other(words) => return (words.to_string(), None),
        };
        (what.to_owned(), next)
    }
}

/// With the next step.
impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, next) = self.parts();
        f.write_str(&what)?;
        next.map_or(Ok(()), |next| write!(f, "; {next}"))
    }
}

/// Describes how a command ended: `exit code 3`, `killed by signal 9`; `None` if that is unknown.
pub fn ending(code: Option<i32>, signal: Option<i32>) -> Option<String> {
    let exited = code.map(|it| format!("exit code {it}"));
    exited.or_else(|| signal.map(|it| format!("killed by signal {it}")))
}

/// Describes how a command failed, as a sentence; `None` if it succeeded or its end is unknown.
pub fn failure(code: Option<i32>, signal: Option<i32>) -> Option<String> {
    let how = ending(code.filter(|it| *it > 0), signal)?;
    Some(if signal.is_some() { format!("the command was {how}") } else { format!("the command ended with {how}") })
}
