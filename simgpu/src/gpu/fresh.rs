//! The bytes that still hold what a program copied in, because no kernel can have written there since.

use super::spans::Spans;

#[derive(Default)]
pub(super) struct Copies {
    launches: u64,
    /// The spans that were copied in when the number of launches was `at`: nothing can have written there since.
    fresh: Spans,
    at: u64,
}

impl Copies {
    /// A kernel, or a library call that stands for one, may have written anything.
    pub(super) fn launched(&mut self) {
        self.launches += 1;
    }

    /// Whether bytes are what was copied there, and nothing that a kernel may have written.
    pub(super) fn is_fresh(&self, at: usize, len: usize) -> bool {
        self.at == self.launches && self.fresh.contains(at, len)
    }

    /// Bytes were written by a copy, whose source was `fresh` or not.
    pub(super) fn written(&mut self, at: usize, len: usize, fresh: bool) {
        if self.at != self.launches {
            self.fresh = Spans::default();
            self.at = self.launches;
        }
        if fresh { self.fresh.add(at, len) } else { self.fresh.remove(at, len) }
    }
}
