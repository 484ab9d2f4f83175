//! The commands that follow from an answer: the field `next` of the JSON that programs and assistants read.

use crate::facts::text::{COMMAND_MAX, Foreign, command, escape_json};
use serde_json::json;
use std::{env, ffi::OsStr, path::Path};

/// A command that could follow, and what it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NextCommand {
    /// A variable that its environment needs, and its value.
    variable: Option<(&'static str, String)>,
    /// What starts gpuwatch: its name, or the words that start it on another machine.
    program: Vec<String>,
    words: Vec<String>,
    why: &'static str,
}

impl NextCommand {
    /// A command of gpuwatch with these words.
    pub(crate) fn new<W: AsRef<str>>(words: impl IntoIterator<Item = W>, why: &'static str) -> Self {
        let words = words.into_iter().map(|it| it.as_ref().to_owned()).collect();
        Self { variable: None, program: vec!["gpuwatch".to_owned()], words, why }
    }

    /// The same on another machine, where these words start gpuwatch.
    pub(crate) fn started_by(self, program: Vec<String>) -> Self {
        Self { program, ..self }
    }

    /// Whether it is this subcommand.
    pub(crate) fn is(&self, subcommand: &str) -> bool {
        self.words.first().is_some_and(|it| it == subcommand)
    }

    /// Returns it as a shell reads it.
    fn command(&self) -> Foreign {
        let variable = self.variable.iter().flat_map(|(name, value)| ["env".to_owned(), format!("{name}={value}")]);
        let words: Vec<String> = variable.chain(self.program.iter().chain(&self.words).cloned()).collect();
        Foreign::new(command(words.iter().map(String::as_str), COMMAND_MAX))
    }

    /// The same with a variable in its environment.
    pub(crate) fn with(self, name: &'static str, value: String) -> Self {
        Self { variable: Some((name, value)), ..self }
    }

    /// This process's own command, whose last words are a job's, with another flag in the place of one.
    pub(crate) fn again(flag: &str, without: &str, job: usize, why: &'static str) -> Option<Self> {
        let all: Vec<String> = env::args_os().skip(1).map(|it| it.into_string().ok()).collect::<Option<_>>()?;
        Self::of_words(&all, flag, without, job, why)
    }

    fn of_words(all: &[String], flag: &str, without: &str, job: usize, why: &'static str) -> Option<Self> {
        let (first, rest) = all.split_first()?;
        let (own, job) = rest.split_at_checked(rest.len().checked_sub(job)?)?;
        let is_left_out =
            |it: &str| it.strip_prefix(without).is_some_and(|value| value.is_empty() || value.starts_with('='));
        let kept = own.iter().filter(|it| !is_left_out(it));
        let words = [first.as_str(), flag].into_iter();
        Some(Self::new(words.chain(kept.chain(job).map(String::as_str)), why))
    }
}

/// Returns a path as a word of a command; `None` where it is not text.
pub(crate) fn word(path: &Path) -> Option<String> {
    let text = AsRef::<OsStr>::as_ref(path).to_str()?;
    // As an option, it would be read as something else.
    Some(if text.starts_with('-') { format!("./{text}") } else { text.to_owned() })
}

/// Returns the commands that follow as lines that a shell takes, each with what it is for as a comment.
pub(crate) fn next_text(next: &[NextCommand]) -> String {
    let lines: Vec<String> = next.iter().map(|it| format!("  {}  # {}\n", it.command(), it.why)).collect();
    if lines.is_empty() { String::new() } else { format!("\nnext:\n{}", lines.concat()) }
}

/// Returns an answer, which is one JSON object, with the commands that follow from it.
pub(crate) fn with_next(answer: &str, next: &[NextCommand]) -> String {
    let line = |it: &NextCommand| json!({ "command": it.command(), "why": it.why });
    let lines: Vec<_> = next.iter().map(line).collect();
    let Some(body) = answer.trim_end().strip_suffix('}') else { return answer.to_owned() };
    // As the answer is written, over several lines or in one.
    let (begin, end) = if body.ends_with('\n') { ("\n  ", "\n") } else { ("", "") };
    let comma = if body.trim_end().ends_with('{') { "" } else { "," };
    let lines = escape_json(&serde_json::Value::from(lines).to_string());
    format!("{}{comma}{begin}\"next\":{lines}{end}}}\n", body.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn commands_are_added_to_an_object_however_it_is_written() {
        let next = [NextCommand::new(["check", "a b.zst"], "judges it")];
        let empty = json!({}).to_string();
        for answer in ["{\"a\":1}\n", "{\n  \"a\": {\n    \"b\": 1\n  }\n}\n", &empty, "{\n}"] {
            let before: Value = serde_json::from_str(answer).unwrap();
            let after: Value = serde_json::from_str(&with_next(answer, &next)).unwrap();
            assert_eq!(after["next"][0]["command"], "gpuwatch check 'a b.zst'", "{answer}");
            assert_eq!(after.as_object().unwrap().len(), before.as_object().unwrap().len() + 1, "{answer}");
            assert!(with_next(answer, &[]).contains("\"next\":[]"), "{answer}");
        }
        let set = NextCommand::new(["run"], "tries it").with("CONF", "a:1,b:[x y]".to_owned());
        assert!(with_next("{}", &[set]).contains(r#""command":"env 'CONF=a:1,b:[x y]' gpuwatch run""#));
    }

    #[test]
    fn a_command_is_run_again_with_a_flag_and_without_others() {
        let of = |text: &str, job| {
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            NextCommand::of_words(&words, "--advise", "--whole", job, "why").unwrap().words.join(" ")
        };
        assert_eq!(
            of("fit --json --whole --gpu L4 -- python t.py --whole", 3),
            "fit --advise --json --gpu L4 -- python t.py --whole"
        );
        assert_eq!(of("fit --whole=1 python t.py --whole", 3), "fit --advise python t.py --whole");
        assert_eq!(word(Path::new("-a")).as_deref(), Some("./-a"));
    }
}
