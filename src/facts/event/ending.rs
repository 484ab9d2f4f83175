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
        assert_eq!(failure(None, Some(libc::SIGBUS)).unwrap(), "the command was killed by SIGBUS");
    }
}
