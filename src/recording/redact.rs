//! Secrets in command lines: a recording is sent to colleagues, so arguments that look like secrets stay home.

use crate::event::{Event, Fact, Line};
use crate::text::Foreign;
use std::borrow::Cow;

const HIDDEN: &str = "<redacted>";
const WORDS: [&str; 6] = ["token", "key", "password", "passwd", "secret", "credential"];

/// The event with secrets in its command line hidden; borrowed where there is none.
pub fn redact(event: &Event) -> Cow<'_, Event> {
    let argv: Vec<&str> = match &event.fact {
        Fact::Process(it) => it.argv.iter().map(Foreign::raw).collect(),
        Fact::Probe { line, .. } => match &**line {
            Line::Hello(it) => it.argv.iter().map(String::as_str).collect(),
            _ => return Cow::Borrowed(event),
        },
        _ => return Cow::Borrowed(event),
    };
    let clean = arguments(&argv);
    if clean == argv {
        return Cow::Borrowed(event);
    }
    let mut event = event.clone();
    match &mut event.fact {
        Fact::Process(it) => it.argv = clean.into_iter().map(Foreign::new).collect(),
        Fact::Probe { line, .. } => {
            if let Line::Hello(it) = &mut **line {
                it.argv = clean;
            }
        }
        _ => {}
    }
    Cow::Owned(event)
}

/// The arguments with the values of `--*token X`, `--*token=X`, `PASSWORD=X` and their like hidden.
pub fn arguments(argv: &[&str]) -> Vec<String> {
    let mut hide_next = false;
    argv.iter()
        .map(|arg| {
            let hide = std::mem::take(&mut hide_next) && !arg.starts_with('-');
            if hide {
                return HIDDEN.to_owned();
            }
            match arg.split_once('=') {
                Some((name, _)) if is_secret(name) => format!("{name}={HIDDEN}"),
                None if arg.starts_with('-') && is_secret(arg) => {
                    hide_next = true;
                    (*arg).to_owned()
                }
                _ => (*arg).to_owned(),
            }
        })
        .collect()
}

/// Whether the last word of the name is one of [`WORDS`]: `--hf-token` is, `--keyframes` is not.
fn is_secret(name: &str) -> bool {
    let last = name.rsplit(['-', '_', '.']).next().unwrap_or_default().to_ascii_lowercase();
    WORDS.iter().any(|it| last == *it || last.strip_suffix('s') == Some(it) || last.ends_with(it) && *it != "key")
        || last.ends_with("apikey")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_and_nothing_else() {
        let argv = ["train.py", "--hf-token", "abc", "--lr", "3", "--api_key=k", "--keyframes", "9", "DB_PASSWORD=x"];
        let clean = arguments(&argv);
        assert_eq!(
            clean,
            [
                "train.py",
                "--hf-token",
                HIDDEN,
                "--lr",
                "3",
                "--api_key=<redacted>",
                "--keyframes",
                "9",
                "DB_PASSWORD=<redacted>"
            ]
        );
        assert_eq!(arguments(&["--token", "--next"]), ["--token", "--next"]);
    }
}
