//! A process's line in /proc/PID/stat.

use crate::facts::{figures::Spent, units::Stamp};

/// What gpuwatch reads of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) spent: Spent,
    /// Whether the main thread waits, and not for a disk.
    pub(super) waits: bool,
    pub(super) threads: u64,
    pub(super) start_ticks: u64,
    /// Resident pages.
    pub(super) pages: u64,
}

impl Stat {
    /// Parses the line as it was at a time; `None` if it has not all fields, as that of an ended process.
    pub(super) fn parse(text: &[u8], at: Stamp) -> Option<Self> {
        // The name may contain blanks, brackets and any bytes, so fields are counted from the last bracket.
        let fields = text.rsplit(|it| *it == b')').next()?;
        let fields: Vec<&str> = std::str::from_utf8(fields).ok()?.split_ascii_whitespace().collect();
        // By their numbers in proc(5), where the state is the third.
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        let state = *fields.first()?;
        if matches!(state, "Z" | "X") {
            return None;
        }
        let cpu = number(14)?.saturating_add(number(15)?);
        let spent = Spent { at, cpu, io_wait: number(42).unwrap_or(0) };
        Some(Self { spent, waits: state == "S", threads: number(20)?, start_ticks: number(22)?, pages: number(24)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "4242 (py) thon (x) S 1 4242 4242 0 -1 4194560 100 0 0 0 700 50 0 0 20 0 54 0 9000 123456789 \
        2048 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 3 0 0 12 0 0 0 0 0 0 0 0 0 0";

    #[test]
    fn fields_are_those_of_the_manual() {
        let stat = Stat::parse(LINE.as_bytes(), Stamp(5)).unwrap();
        let spent = Spent { at: Stamp(5), cpu: 750, io_wait: 12 };
        assert_eq!(stat, Stat { spent, waits: true, threads: 54, start_ticks: 9000, pages: 2048 });
        let running = Stat::parse(LINE.replace(") S 1", ") R 1").as_bytes(), Stamp(5)).unwrap();
        assert_eq!(running, Stat { waits: false, ..stat });
    }

    #[test]
    fn ended_processes_and_other_texts_have_no_figures() {
        let zombie = LINE.replace(") S 1", ") Z 1");
        for text in [zombie.as_str(), "", ")", "4242 (python) S 1 2", ") S ) x y"] {
            assert_eq!(Stat::parse(text.as_bytes(), Stamp(5)), None, "{text}");
        }
    }
}
