//! The processes that drivers list, for the sources that describe them.

use std::sync::{Mutex, PoisonError};
use tokio::sync::watch::{Receiver, Sender, channel};

/// Who lists processes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lister {
    /// NVML.
    Nvml,
    /// The kernel's drivers.
    Kernel,
}

/// The pids in the lists of all drivers.
#[derive(Debug)]
pub(super) struct Listed {
    each: Mutex<[Vec<u32>; 2]>,
    all: Sender<Vec<u32>>,
}

impl Listed {
    /// Begins with no process.
    pub(super) fn new() -> (Self, Receiver<Vec<u32>>) {
        let (all, receiver) = channel(Vec::new());
        (Self { each: Mutex::default(), all }, receiver)
    }

    /// Replaces the pids of one lister; receivers are notified of changes alone.
    pub(super) fn set(&self, by: Lister, pids: Vec<u32>) {
        let mut each = self.each.lock().unwrap_or_else(PoisonError::into_inner);
        let [nvml, kernel] = &mut *each;
        match by {
            Lister::Nvml => *nvml = pids,
            Lister::Kernel => *kernel = pids,
        }
        let all = [nvml.as_slice(), kernel.as_slice()].concat();
        self.all.send_if_modified(|known| {
            let changed = *known != all;
            *known = all;
            changed
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_joined_and_only_changes_are_sent() {
        let (listed, mut pids) = Listed::new();
        listed.set(Lister::Nvml, vec![7, 8]);
        listed.set(Lister::Kernel, vec![9]);
        assert_eq!(*pids.borrow_and_update(), [7, 8, 9]);
        listed.set(Lister::Nvml, vec![7, 8]);
        assert!(!pids.has_changed().unwrap());
        listed.set(Lister::Nvml, Vec::new());
        assert_eq!(*pids.borrow_and_update(), [9]);
    }
}
