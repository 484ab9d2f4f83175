//! Selects among the answers of replays.

use super::process::Process;
use crate::facts::event::{Replayed, replayed::About};

impl Process {
    /// Returns what the latest replay for a finding on a device shows, or the latest reason why there is none. Without
    /// a finding, it is the latest answer to a user.
    pub fn replayed(&self, device: u32, finding: Option<&About>) -> Option<&Replayed> {
        let is_of_it = |it: &&Replayed| it.device == device && it.finding.as_ref() == finding;
        let of_it = || self.replays.iter().rev().map(|it| &**it).filter(is_of_it);
        of_it().find(|it| it.result.is_ok()).or_else(|| of_it().next())
    }
}
