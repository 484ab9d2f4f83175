//! How a command ended, in words.

/// Linux's names of the signals that end commands, by number.
const SIGNALS: [&str; 16] = [
    "", "SIGHUP", "SIGINT", "SIGQUIT", "SIGILL", "SIGTRAP", "SIGABRT", "SIGBUS", "SIGFPE", "SIGKILL", "SIGUSR1",
    "SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM",
];

/// Describes how a command ended: `exit code 3`, `killed by SIGKILL`; `None` if that is unknown.
pub fn ending(code: Option<i32>, signal: Option<i32>) -> Option<String> {
    code.map(|it| format!("exit code {it}")).or_else(|| signal.map(|it| format!("killed by {}", name(it))))
}

/// Describes how a command failed, as a sentence; `None` if it succeeded or its end is unknown.
pub fn failure(code: Option<i32>, signal: Option<i32>) -> Option<String> {
    let how = ending(code.filter(|it| *it > 0), signal)?;
    Some(if signal.is_some() { format!("the command was {how}") } else { format!("the command ended with {how}") })
}

/// Describes the signal that ended a command, or a command of the shell that it is: `killed by SIGKILL`. `None` if none
/// did, and for SIGINT, with which a user ends a command.
pub fn killed_by(code: Option<i32>, signal: Option<i32>) -> Option<String> {
    // A shell ends with 128 and the signal.
    let of_shell = code.and_then(|it| it.checked_sub(128)).filter(|it| *it > 0);
    let is_known = |signal: &i32| usize::try_from(*signal).is_ok_and(|place| place < SIGNALS.len());
    let signal = signal.or(of_shell).filter(|it| *it != libc::SIGINT && is_known(it))?;
    Some(format!("killed by {}", name(signal)))
}

/// Describes an end that is no success: `killed by SIGKILL`, `exit code 1`; `None` if it is unknown, and where the user
/// ended the command.
pub fn unsuccessful(code: Option<i32>, signal: Option<i32>) -> Option<String> {
    const BY_USER: i32 = 128 + libc::SIGINT;
    killed_by(code, signal).or_else(|| ending(code.filter(|it| ![0, BY_USER].contains(it)), None))
}

/// Returns a signal's name, or its number where it has none of its own.
fn name(signal: i32) -> String {
    let known = usize::try_from(signal).ok().and_then(|it| SIGNALS.get(it)).filter(|it| !it.is_empty());
    known.map_or_else(|| format!("signal {signal}"), |it| (*it).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_the_names_that_shells_print() {
        let killed = |signal| ending(None, Some(signal)).unwrap();
        assert_eq!(
            [2, 9, 11, 15].map(killed),
            ["SIGINT", "SIGKILL", "SIGSEGV", "SIGTERM"].map(|it| format!("killed by {it}"))
        );
        assert_eq!([0, -1, 37].map(killed), [0, -1, 37].map(|it| format!("killed by signal {it}")));
        assert_eq!(
            [(Some(137), None), (None, Some(15))].map(|(code, it)| killed_by(code, it).unwrap()),
            [killed(9), killed(15)]
        );
        for (code, signal) in [
            (Some(0), None),
            (Some(1), None),
            (Some(128), None),
            (Some(255), None),
            (Some(130), None),
            (None, Some(2)),
            (None, None),
        ] {
            assert_eq!(killed_by(code, signal), None, "{code:?} {signal:?}");
            let failed = code.filter(|it| [1, 128, 255].contains(it)).map(|it| format!("exit code {it}"));
            assert_eq!(unsuccessful(code, signal), failed, "{code:?} {signal:?}");
        }
        assert_eq!(unsuccessful(Some(137), None), Some(killed(9)));
        assert_eq!(failure(None, Some(libc::SIGBUS)).unwrap(), "the command was killed by SIGBUS");
    }
}
