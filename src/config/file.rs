//! The user's own file: read strictly, and what is wrong with it told in one line with the nearest thing that is right.

use crate::{
    alerts::{Name, Policy},
    text::{Foreign, nearest},
};
use etcetera::{BaseStrategy, choose_base_strategy};
use std::{
    ffi::OsString,
    fs,
    io::{self, Read},
    ops::Range,
    path::{Path, PathBuf},
};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// What a file may hold, in bytes: far more than anybody writes.
const BYTES_MAX: u64 = 1 << 16;

/// Characters of a text from the file that are told.
const TOLD: usize = 60;

/// Which file is read.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct File {
    /// The config: which alerts are allowed or silenced; by default `$XDG_CONFIG_HOME/gpuwatch/config.toml`, if there is one.
    #[arg(long, value_name = "FILE", env = "GPUWATCH_CONFIG")]
    config: Option<OsString>,
}

/// What is wrong with a file: its name, the line, the key, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {what}", .file, .line.map(|it| format!(":{it}")).unwrap_or_default())]
pub struct Fault {
    file: Foreign,
    line: Option<usize>,
    what: String,
}

impl File {
    /// What the file asks for; the user's own file need not be there, one that was named must be.
    ///
    /// # Errors
    /// When it cannot be read, or anything in it is not known.
    pub fn read(&self) -> Result<Policy, Fault> {
        // An empty variable is the way to take one back.
        let named = self.config.as_ref().filter(|it| !it.is_empty()).map(PathBuf::from);
        let Some(path) = named.clone().or_else(user) else { return Ok(Policy::default()) };
        let file = Foreign::new(path.to_string_lossy());
        let fault = |what: String| Fault { file: file.clone(), line: None, what };
        let bytes = match read(&path) {
            Err(e) if named.is_none() && is_out_of_reach(&e) => return Ok(Policy::default()),
            it => it.map_err(|e| fault(format!("cannot be read: {e}")))?,
        };
        if bytes.len() as u64 > BYTES_MAX {
            return Err(fault(format!("is larger than {} KiB", BYTES_MAX >> 10)));
        }
        let text = String::from_utf8(bytes).map_err(|_invalid| fault("is no text in UTF-8".to_owned()))?;
        Reader { file: &file, text: &text }.read()
    }
}

fn user() -> Option<PathBuf> {
    Some(choose_base_strategy().ok()?.config_dir().join("gpuwatch").join("config.toml"))
}

/// Where there is no home of one's own, as in many containers, there is no file either.
fn is_out_of_reach(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    matches!(error.kind(), NotFound | NotADirectory | PermissionDenied)
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A text, and where it came from.
struct Reader<'a> {
    file: &'a Foreign,
    text: &'a str,
}

impl Reader<'_> {
    fn read(&self) -> Result<Policy, Fault> {
        let table = DeTable::parse(self.text).map_err(|e| {
            let words: Vec<_> = e.message().split_whitespace().collect();
            let at = e.span().unwrap_or_default();
            let text: String = self.text.get(at.clone()).unwrap_or_default().chars().take(TOLD).collect();
            let place = if text.trim().is_empty() { String::new() } else { format!(" at \"{}\"", text.trim()) };
            self.fault(at, words.join(" ") + &place)
        })?;
        let mut policy = Policy::default();
        for (key, value) in table.get_ref() {
            if key.get_ref() != "alerts" {
                return Err(self.unknown(key.span(), "key", key.get_ref(), ["alerts"]));
            }
            let Some(alerts) = value.get_ref().as_table() else {
                return Err(self.fault(value.span(), "alerts: a table is wanted, as in [alerts]".to_owned()));
            };
            self.alerts(alerts, &mut policy)?;
        }
        Ok(policy)
    }

    fn alerts(&self, alerts: &DeTable, policy: &mut Policy) -> Result<(), Fault> {
        for (key, value) in alerts {
            match key.get_ref().as_ref() {
                "allow" => policy.allow = self.names("alerts.allow", value)?,
                "silence" => policy.silence = self.names("alerts.silence", value)?,
                other => return Err(self.unknown(key.span(), "key in [alerts]", other, ["allow", "silence"])),
            }
        }
        Ok(())
    }

    fn names(&self, key: &str, value: &Spanned<DeValue>) -> Result<Vec<Name>, Fault> {
        let wanted = |it: &Spanned<DeValue>| {
            self.fault(it.span(), format!("{key}: a list of names is wanted, as in [\"sawtooth\", \"growth:host\"]"))
        };
        let list = value.get_ref().as_array().ok_or_else(|| wanted(value))?;
        let names = list.iter().map(|it| {
            let text = it.get_ref().as_str().ok_or_else(|| wanted(it))?;
            Name::read(text).ok_or_else(|| self.unknown(it.span(), &format!("alert for {key}"), text, Name::all()))
        });
        names.collect()
    }

    fn unknown<N: AsRef<str>>(
        &self,
        at: Range<usize>,
        what: &str,
        text: &str,
        names: impl IntoIterator<Item = N>,
    ) -> Fault {
        let told = Foreign::new(text.chars().take(TOLD).collect::<String>());
        let near = nearest(text, names).map_or_else(String::new, |it| format!("; the nearest is \"{}\"", it.as_ref()));
        self.fault(at, format!("there is no {what} \"{told}\"{near}"))
    }

    fn fault(&self, at: Range<usize>, what: String) -> Fault {
        let line = 1 + self.text.bytes().take(at.start).filter(|it| *it == b'\n').count();
        Fault { file: self.file.clone(), line: Some(line), what: Foreign::new(what).to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Policy, String> {
        Reader { file: &"c.toml".into(), text }.read().map_err(|it| it.to_string())
    }

    fn names(texts: &[&str]) -> Vec<Name> {
        texts.iter().map(|it| Name::read(it).unwrap()).collect()
    }

    #[test]
    fn what_is_allowed_and_silenced_is_read() {
        let text =
            "# mine\n[alerts]\nallow = [\n  \"sawtooth\", # epochs\n  'growth:host',\n]\nsilence = [\"pressure\"]\n";
        let policy = Policy { allow: names(&["sawtooth", "growth:host"]), silence: names(&["pressure"]) };
        assert_eq!(read(text), Ok(policy.clone()));
        assert_eq!(read("alerts.silence = ['pressure']\nalerts.allow = ['sawtooth', 'growth:host']"), Ok(policy));
        for nothing in ["", "\n# later\n", "[alerts]", "alerts.allow = []", "\u{feff}[alerts]\r\n"] {
            assert_eq!(read(nothing), Ok(Policy::default()), "{nothing:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_its_key_and_what_is_near() {
        let list = "a list of names is wanted, as in [\"sawtooth\", \"growth:host\"]";
        for (text, fault) in [
            ("\n\n[alert]\nallow = []", "3: there is no key \"alert\"; the nearest is \"alerts\""),
            (
                "[alerts]\nallow = []\nsilense = []",
                "3: there is no key in [alerts] \"silense\"; the nearest is \"silence\"",
            ),
            (
                "[alerts]\nallow = [\n  \"oom\",\n  \"growht\",\n]",
                "4: there is no alert for alerts.allow \"growht\"; the nearest is \"growth\"",
            ),
            (
                "alerts.silence = ['growth:hots']",
                "1: there is no alert for alerts.silence \"growth:hots\"; the nearest is \"growth:host\"",
            ),
            ("alerts = 3", "1: alerts: a table is wanted, as in [alerts]"),
            ("[[alerts]]", "1: alerts: a table is wanted, as in [alerts]"),
            ("[alerts]\nallow = 'oom'", &format!("2: alerts.allow: {list}")),
            ("[alerts]\nsilence = ['oom',\n7]", &format!("3: alerts.silence: {list}")),
        ] {
            assert_eq!(read(text), Err(format!("c.toml:{fault}")), "{text}");
        }
        assert_eq!(read("[alerts]\nallow = []\nallow = []"), Err("c.toml:3: duplicate key at \"allow\"".to_owned()));
        for (text, line) in [("[alerts", 1), ("a = 1\n\nb =", 3), ("\n\"\u{1b}", 2)] {
            let fault = read(text).unwrap_err();
            assert!(fault.starts_with(&format!("c.toml:{line}: ")) && fault.len() > 15, "{fault}");
        }
    }

    #[test]
    fn whatever_stands_in_it_is_told_in_one_line_that_moves_no_cursor() {
        let nasty = "\\u001b]0;x\\u0007\\u009b\\u202e\\nPASS".repeat(1000);
        let deep = format!("alerts = {}", "[".repeat(9000));
        for text in [
            format!("\"{nasty}\" = 1"),
            format!("[alerts]\n\"{nasty}\" = 1"),
            format!("alerts.allow = [\"{nasty}\"]"),
            format!("alerts.allow = {{\"{nasty}\" = 1}}"),
            "\u{1b}[31m\n\u{202e}".to_owned(),
            deep,
        ] {
            let fault = read(&text).unwrap_err();
            assert!(fault.chars().all(|it| !it.is_control() && it != '\u{202e}'), "{fault:?}");
            assert!(fault.len() < 1000, "{fault}");
        }
    }

    #[test]
    fn a_file_that_was_named_must_be_there() {
        let dir = tempfile::tempdir().unwrap();
        let file = |path: &Path| File { config: Some(path.into()) }.read().map_err(|it| it.to_string());
        assert!(file(&dir.path().join("\u{1b}")).unwrap_err().contains("\\u{1b}: cannot be read: No such file"));
        assert!(file(dir.path()).unwrap_err().contains("cannot be read: Is a directory"));
        let path = dir.path().join("c.toml");
        fs::write(&path, vec![b'#'; 1 << 16]).unwrap();
        assert_eq!(file(&path), Ok(Policy::default()));
        fs::write(&path, vec![b'#'; (1 << 16) + 1]).unwrap();
        assert!(file(&path).unwrap_err().ends_with("c.toml: is larger than 64 KiB"));
        fs::write(&path, b"# \xff").unwrap();
        assert!(file(&path).unwrap_err().ends_with("c.toml: is no text in UTF-8"));
        assert_eq!(file(Path::new("/dev/null")), Ok(Policy::default()));
    }
}
