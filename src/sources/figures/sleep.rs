//! Whether the main thread of a process sleeps for a time that its program chose, as `time.sleep` does.

use crate::facts::units::Stamp;
use std::fs;

/// Where such a thread waits in the kernel, in /proc/PID/wchan; after a signal, the name has an ending.
const PLACE: &str = "hrtimer_nanosleep";

/// The line of /proc/PID/status that counts how often the thread has gone to sleep.
const SWITCHES: &str = "voluntary_ctxt_switches:";

/// What the kernel shows of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is not in a sleep of its own choice.
    Awake,
    /// It is in the sleep before which it had gone to sleep so often.
    Asleep(u64),
}

/// The sleep that a thread is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sleep {
    switches: u64,
    since: Stamp,
}

impl Sleep {
    /// Reads where the main thread of a process waits, and returns the sleep that it is in, with its length in seconds
    /// of whole minutes: 0 if it is awake or begins to sleep; `None` if the kernel does not show where it waits.
    pub(super) fn follow(before: Option<Self>, pid: u32, at: Stamp) -> (Option<Self>, Option<u64>) {
        let text = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let state = state(&text("wchan"), || text("status"));
        let sleep = state.and_then(|it| Self::of(before, it, at));
        (sleep, state.map(|_| sleep.map_or(0, |it| at.since(it.since) / 60_000_000 * 60)))
    }

    fn of(before: Option<Self>, state: State, at: Stamp) -> Option<Self> {
        let State::Asleep(switches) = state else { return None };
        Some(before.filter(|it| it.switches == switches).unwrap_or(Self { switches, since: at }))
    }
}

fn state(place: &str, status: impl FnOnce() -> String) -> Option<State> {
    match place {
        _ if place.starts_with(PLACE) => {
            let status = status();
            let count = status.lines().find_map(|it| it.strip_prefix(SWITCHES));
            count?.trim().parse().ok().map(State::Asleep)
        }
        // Of a thread that runs, and of one that the user may not inspect.
        "" | "0" => None,
        _ => Some(State::Awake),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn shown(place: &str, status: &str) -> Option<State> {
        state(place, || status.to_owned())
    }

    #[test]
    fn only_a_sleep_of_the_programs_choice_is_one() {
        let status = "Name:\tpython\nvoluntary_ctxt_switches:\t41\nnonvoluntary_ctxt_switches:\t7\n";
        for place in ["hrtimer_nanosleep", "hrtimer_nanosleep_restart"] {
            assert_eq!(shown(place, status), Some(State::Asleep(41)));
        }
        assert_eq!(shown("hrtimer_nanosleep", ""), None);
        for place in ["futex_wait_queue", "do_sys_poll", "poll_schedule_timeout.constprop.0", "wait_woken"] {
            assert_eq!(shown(place, status), Some(State::Awake), "{place}");
        }
        for place in ["", "0"] {
            assert_eq!(shown(place, status), None, "{place}");
        }
    }

    #[test]
    fn many_short_sleeps_are_not_a_long_one() {
        let minute = |it: u64| Stamp(it * 60_000_000);
        let first = Sleep::of(None, State::Asleep(5), minute(0));
        let same = Sleep::of(first, State::Asleep(5), minute(30));
        assert_eq!(same, first);
        assert_eq!(Sleep::of(same, State::Asleep(6), minute(31)).map(|it| it.since), Some(minute(31)));
        assert_eq!(Sleep::of(same, State::Awake, minute(31)), None);
    }

    #[test]
    fn the_sleep_of_a_program_is_timed() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let wchan = || fs::read_to_string(format!("/proc/{}/wchan", child.id())).unwrap_or_default();
        // It has to load first.
        let is_there = (0..100_000).any(|_| wchan() == PLACE);
        let place = wchan();
        let (begun, _) = Sleep::follow(None, child.id(), Stamp(0));
        let (still, asleep) = Sleep::follow(begun, child.id(), Stamp(95_000_000));
        let _ = (child.kill(), child.wait());
        if !is_there && ["", "0"].contains(&place.as_str()) {
            test_tiers::skip!("this kernel does not show where a thread waits");
        }
        assert!(is_there, "it waits in {place}");
        assert_eq!((begun.is_some(), still), (true, begun));
        assert_eq!(asleep, Some(60));
    }

    #[test]
    fn a_process_that_is_gone_shows_nothing() {
        assert_eq!(Sleep::follow(None, u32::MAX, Stamp(0)), (None, None));
    }
}
