//! Whether a job fits on a device: the devices that are known by name, what a job needs beside its allocator, what its
//! peak consists of, and the verdict.
//!
//! The allocator's part is measured: the job runs on a simulated GPU, through PyTorch's own allocator. The rest is a
//! table of what each thing takes at least and at most, with its source ([`outside`]). So a need is an interval, and
//! the verdict has three values.

/// Devices by name.
pub mod card;
/// What a peak consists of.
pub mod consists;
/// What is known of a job.
pub mod facts;
/// Whether a peak rises in each step.
pub mod growth;
/// What NCCL's buffers take.
pub mod link;
/// What lies outside the allocator's figures.
pub mod outside;
/// What was measured on a real GPU.
pub mod table;

pub use card::Device;
pub use consists::Kind;
pub use facts::Facts;
pub use link::Link;
pub use outside::Outside;
pub use table::Table;

/// Whether a job fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fits {
    /// It does, even if all that is uncertain takes the most.
    Yes,
    /// It does not, even if all that is uncertain takes the least.
    No,
    /// It depends on what is uncertain.
    Unknown,
}

impl Fits {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Unknown => "unknown",
        }
    }

    /// Returns the exit code.
    pub fn code(self) -> u8 {
        match self {
            Self::Yes => 0,
            Self::No => 1,
            Self::Unknown => 2,
        }
    }

    /// Returns the verdict over several devices: one that does not fit decides.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::No, _) | (_, Self::No) => Self::No,
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            _ => Self::Yes,
        }
    }
}

/// What one device of a job needs, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// The highest sum of live allocations.
    pub allocated: u64,
    /// The most that the allocator reserved.
    pub reserved: u64,
    /// What lies outside these figures.
    pub outside: Vec<Outside>,
    /// The capacity of the device on which it was found; `None` of one with all the room that the job wants.
    pub capacity: Option<u64>,
}

impl Need {
    /// Returns the need if all that is uncertain takes the least.
    pub fn low(&self) -> u64 {
        self.with(|it| it.low)
    }

    /// Returns the likeliest need.
    pub fn usual(&self) -> u64 {
        self.with(|it| it.usual)
    }

    /// Returns the need if all that is uncertain takes the most.
    pub fn high(&self) -> u64 {
        self.with(|it| it.high)
    }

    fn with(&self, bytes: fn(&Outside) -> u64) -> u64 {
        let all = self.reserved.saturating_add(self.outside.iter().map(bytes).sum());
        all.min(self.capacity.unwrap_or(u64::MAX))
    }

    /// Returns the need if all that is uncertain takes the most, without what the job can run without.
    pub fn must(&self) -> u64 {
        let must = self.outside.iter().filter(|it| !it.is_optional);
        self.reserved.saturating_add(must.map(|it| it.high).sum())
    }

    /// Returns the verdict for a device of that capacity, as far as figures alone decide; `Unknown` asks for a run on a
    /// device of that size, where the allocator gives cached memory back before it fails.
    pub fn fits(&self, capacity: u64) -> Fits {
        let least = self.low().saturating_sub(self.reserved).saturating_add(self.allocated);
        if self.must() <= capacity {
            Fits::Yes
        } else if least > capacity {
            Fits::No
        } else {
            Fits::Unknown
        }
    }
}

/// Returns the reference of the tables, as Markdown.
pub fn markdown() -> String {
    format!("# Devices and what lies outside the allocator\n\n{}\n{}", card::markdown(), outside::markdown())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uncertain_memory_makes_the_verdict_unknown() {
        let part = Outside {
            name: "context",
            low: 10,
            usual: 15,
            high: 30,
            is_optional: false,
            source: String::new(),
            is_measured: false,
        };
        let optional = Outside {
            name: "workspace",
            low: 0,
            usual: 0,
            high: 50,
            is_optional: true,
            source: String::new(),
            is_measured: false,
        };
        let need = Need { allocated: 80, reserved: 100, outside: vec![part, optional], capacity: None };
        assert_eq!((need.low(), need.usual(), need.must(), need.high()), (110, 115, 130, 180));
        let fits = |capacity| need.fits(capacity);
        assert_eq!((fits(130), fits(129), fits(90), fits(89)), (Fits::Yes, Fits::Unknown, Fits::Unknown, Fits::No));
        let there = Need { capacity: Some(120), ..need };
        assert_eq!((there.low(), there.usual(), there.high()), (110, 115, 120));
    }

    #[test]
    fn one_device_that_is_too_small_decides() {
        let all = [Fits::Yes, Fits::Unknown, Fits::No];
        assert_eq!(all.into_iter().reduce(Fits::and), Some(Fits::No));
        assert_eq!(Fits::Yes.and(Fits::Unknown), Fits::Unknown);
        assert_eq!(all.map(Fits::code), [0, 2, 1]);
    }
}
