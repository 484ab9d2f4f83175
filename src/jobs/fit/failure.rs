//! Why a job failed, in one sentence: from its account, else from the traceback that it printed.

use super::job_report::{Failure, JobReport};
use std::path::Path;

/// Lines of a failed job's output that are shown.
const SHOWN: usize = 12;

/// The error by which a launcher reports that a process of it failed.
const LAUNCHER: &str = "ChildFailedError";

/// Folders of Python and its packages: a line in one of them is not the user's.
const PACKAGES: [&str; 3] = ["/site-packages/", "/dist-packages/", "/lib/python"];

/// Returns the sentence, and below it the end of the output where that adds something.
pub(super) fn why(how: &str, accounts: &[JobReport], output: &str) -> String {
    let mut errors: Vec<&Failure> = accounts.iter().filter_map(|it| it.error.as_ref()).collect();
    errors.sort_by_key(|it| it.kind == LAUNCHER);
    let error = errors.first().map(|it| (*it).clone()).or_else(|| printed(output)).filter(|it| it.kind != "SystemExit");
    let last = last_lines(output);
    let Some(error) = error else {
        return if last.is_empty() {
            format!("the job failed: {how}")
        } else {
            format!("the job failed: {how}\n{last}")
        };
    };
    let at = error.line.as_ref().map_or_else(String::new, |it| format!(" at {it}"));
    if let Some(package) = missing(&error) {
        return format!("the job imports {package}{at}, which its Python does not have");
    }
    let text = error.text.lines().next().unwrap_or_default();
    let colon = if text.is_empty() { "" } else { ": " };
    format!("the job failed{at}: {}{colon}{text}\n{last}", error.kind)
}

/// The package of `No module named 'flash_attn.bert'`.
fn missing(error: &Failure) -> Option<&str> {
    let name = error.text.strip_prefix("No module named '")?.split('\'').next()?;
    (error.kind == "ModuleNotFoundError").then(|| name.split('.').next().unwrap_or(name))
}

/// Reads Python's last traceback: the error and the innermost line that is the user's.
fn printed(output: &str) -> Option<Failure> {
    let begun = output.rfind("Traceback (most recent call last):")?;
    let mut lines = output.get(begun..)?.lines().skip(1);
    let mut line = None;
    let last = loop {
        let text = lines.next()?;
        if !text.starts_with(' ') {
            break text;
        }
        line = own_line(text).or(line);
    };
    let (kind, text) = last.split_once(": ").unwrap_or((last, ""));
    Some(Failure { kind: kind.to_owned(), text: text.to_owned(), line })
}

/// `train.py:3` of `  File "/home/me/train.py", line 3, in <module>`; nothing of a package's file.
fn own_line(text: &str) -> Option<String> {
    let (path, rest) = text.trim_start().strip_prefix("File \"")?.split_once("\", line ")?;
    let number: u64 = rest.split(',').next()?.trim().parse().ok()?;
    let name = Path::new(path).file_name()?.to_string_lossy();
    (!PACKAGES.iter().any(|it| path.contains(it))).then(|| format!("{name}:{number}"))
}

fn last_lines(output: &str) -> String {
    let lines: Vec<_> = output.lines().filter(|it| !it.trim().is_empty()).collect();
    lines.get(lines.len().saturating_sub(SHOWN)..).unwrap_or_default().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "Traceback (most recent call last):\n  File \"/home/me/train.py\", line 3, in <module>\n    \
                           load()\n  File \"/venv/lib/python3.11/site-packages/some/load.py\", line 9, in load\n    raise \
                           it\n";

    #[test]
    fn a_traceback_becomes_a_sentence_with_the_line_of_the_user() {
        let of = |last: &str| why("exit code 1", &[], &format!("{PRINTED}{last}\n"));
        assert_eq!(
            of("ModuleNotFoundError: No module named 'flash_attn.bert'"),
            "the job imports flash_attn at train.py:3, which its Python does not have"
        );
        assert!(of("some.Trouble: no kernel").starts_with("the job failed at train.py:3: some.Trouble: no kernel\n"));
        assert!(of("KeyboardInterrupt").starts_with("the job failed at train.py:3: KeyboardInterrupt\n"));
        assert_eq!(why("exit code 3", &[], "one\n\ntwo\n"), "the job failed: exit code 3\none\ntwo");
        assert_eq!(why("signal: 6", &[], ""), "the job failed: signal: 6");
    }

    #[test]
    fn a_rank_knows_more_than_its_launcher() {
        let failure =
            |kind: &str| Failure { kind: kind.to_owned(), line: Some("a.py:1".to_owned()), ..Failure::default() };
        let account = |kind| JobReport { error: Some(failure(kind)), ..JobReport::default() };
        let accounts = [account(LAUNCHER), account("ValueError")];
        assert!(why("exit code 1", &accounts, "").starts_with("the job failed at a.py:1: ValueError\n"));
    }
}
