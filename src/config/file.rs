//! Reads the config file strictly, and describes each error in one line with the nearest valid name.

use super::keys::{KEYS, Key, Kind, SECTIONS, names};
use crate::{
    facts::text::{Foreign, nearest},
    model::alerts::{Name, Policy},
    storage::input,
};
use etcetera::{BaseStrategy, choose_base_strategy};
use std::{
    borrow::Cow,
    ffi::{OsStr, OsString},
    io,
    ops::Range,
    path::{Path, PathBuf},
};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// Most bytes of a file: far more than users write.
pub(super) const BYTES_MAX: u64 = 1 << 16;

/// Most characters quoted from the file.
const QUOTED: usize = 60;

/// Which file is read.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct File {
    /// The config, as `gpuwatch generate config` shows it; by default `$XDG_CONFIG_HOME/gpuwatch/config.toml`, if it
    /// exists.
    #[arg(long, value_name = "FILE", env = "GPUWATCH_CONFIG", global = true)]
    config: Option<OsString>,
}

/// The settings in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Expected and silenced alerts.
    pub policy: Policy,
    /// Values for flags.
    pub flags: Vec<Setting>,
}

/// A flag's value from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The key, and the flag of the same name.
    pub key: &'static str,
    /// Its value; several for a list.
    pub values: Vec<String>,
    file: Foreign,
    line: usize,
    section: &'static str,
}

impl Setting {
    /// Describes an error in a value with its place and the nearest valid value.
    pub fn fault<N: AsRef<str>>(&self, value: &str, why: &str, names: impl IntoIterator<Item = N>) -> Fault {
        let near = nearest(value, names).map_or_else(String::new, |it| format!("; the nearest is \"{}\"", it.as_ref()));
        let quoted = value.chars().take(QUOTED).collect::<String>();
        let what = format!("{}.{} = \"{quoted}\": {why}{near}", self.section, self.key);
        Fault { file: self.file.clone(), line: Some(self.line), what: Foreign::new(what).to_string() }
    }
}

/// An error in a file: its name, the line, the key, and what would be valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {what}", .file, .line.map(|it| format!(":{it}")).unwrap_or_default())]
pub struct Fault {
    file: Foreign,
    line: Option<usize>,
    what: String,
}

impl Fault {
    /// An error of a file as a whole.
    pub(super) fn of(path: &Path, what: &str) -> Self {
        Self { file: Foreign::new(path.to_string_lossy()), line: None, what: Foreign::new(what).to_string() }
    }
}

impl File {
    #[cfg(test)]
    pub(crate) fn named_so(path: &Path) -> Self {
        Self { config: Some(path.into()) }
    }

    /// Returns the name that the user gave, if any.
    pub fn name(&self) -> Option<&OsStr> {
        // An empty variable undoes an earlier one.
        self.config.as_deref().filter(|it| !it.is_empty())
    }

    fn named(&self) -> Option<PathBuf> {
        self.name().map(PathBuf::from)
    }

    /// Returns the file's path, whether it exists or not; `None` without a home directory.
    pub(super) fn path(&self) -> Option<PathBuf> {
        self.named().or_else(user)
    }

    /// Reads the file. The default file may be missing; one that the user named must exist.
    ///
    /// # Errors
    /// Fails if it cannot be read or has anything unknown.
    pub fn read(&self) -> Result<Settings, Fault> {
        let named = self.named();
        let Some(path) = self.path() else { return Ok(Settings::default()) };
        let file = Foreign::new(path.to_string_lossy());
        let fault = |what: String| Fault { file: file.clone(), line: None, what };
        let text = match input::small_text(&path, BYTES_MAX) {
            Err(e) if named.is_none() && is_out_of_reach(&e) => return Ok(Settings::default()),
            it => it.map_err(|e| fault(input::fault(&e)))?,
        };
        Reader { file: &file, text: &text }.read()
    }
}

fn user() -> Option<PathBuf> {
    Some(choose_base_strategy().ok()?.config_dir().join("gpuwatch").join("config.toml"))
}

/// If there is no home directory, as in many containers, there is no file either.
fn is_out_of_reach(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    matches!(error.kind(), NotFound | NotADirectory | PermissionDenied)
}

/// A text and its source.
pub(super) struct Reader<'a> {
    pub(super) file: &'a Foreign,
    pub(super) text: &'a str,
}

impl Reader<'_> {
    pub(super) fn read(&self) -> Result<Settings, Fault> {
        let table = DeTable::parse(self.text).map_err(|e| {
            let words: Vec<_> = e.message().split_whitespace().collect();
            let at = e.span().unwrap_or_default();
            let text: String = self.text.get(at.clone()).unwrap_or_default().chars().take(QUOTED).collect();
            let place = if text.trim().is_empty() { String::new() } else { format!(" at \"{}\"", text.trim()) };
            self.fault(at, words.join(" ") + &place)
        })?;
        let mut settings = Settings::default();
        for (name, value) in table.get_ref() {
            let Some(section) = SECTIONS.into_iter().find(|it| name.get_ref() == it) else {
                if let Some(section) = SECTIONS.into_iter().find(|it| names(it).iter().any(|key| name.get_ref() == key))
                {
                    return Err(self.fault(name.span(), format!("{}: write it below [{section}]", name.get_ref())));
                }
                return Err(self.unknown(name.span(), "key", name.get_ref(), SECTIONS));
            };
            let Some(keys) = value.get_ref().as_table() else {
                return Err(self.fault(value.span(), format!("{section}: expected a table, as in [{section}]")));
            };
            for (name, value) in keys {
                self.key(section, name, value, &mut settings)?;
            }
        }
        Ok(settings)
    }

    fn key(
        &self,
        section: &'static str,
        name: &Spanned<Cow<str>>,
        value: &Spanned<DeValue>,
        settings: &mut Settings,
    ) -> Result<(), Fault> {
        match (section, name.get_ref().as_ref()) {
            ("alerts", "allow") => settings.policy.allow = self.names("alerts.allow", value)?,
            ("alerts", "silence") => settings.policy.silence = self.names("alerts.silence", value)?,
            (_, other) => {
                let Some(key) = KEYS.iter().find(|it| it.section == section && it.name == other) else {
                    return Err(self.unknown(name.span(), &format!("key in [{section}]"), other, names(section)));
                };
                let values = self.values(key, value)?;
                // An empty text stands for no value.
                if values != [""] {
                    let line = self.line(value.span().start);
                    settings.flags.push(Setting { key: key.name, values, file: self.file.clone(), line, section });
                }
            }
        }
        Ok(())
    }

    fn values(&self, key: &Key, value: &Spanned<DeValue>) -> Result<Vec<String>, Fault> {
        let wanted = |what: &str| self.fault(value.span(), format!("{}.{}: {what}", key.section, key.name));
        let text = |it: &DeValue| match it {
            DeValue::String(text) => Some(text.to_string()),
            DeValue::Integer(number) => Some(number.to_string()),
            _ => None,
        };
        match (key.kind, value.get_ref()) {
            (Kind::Switch, it) => {
                let is_on = it.as_bool().ok_or_else(|| wanted("expected true or false"))?;
                Ok(vec![is_on.to_string()])
            }
            (Kind::Text, it) => Ok(vec![text(it).ok_or_else(|| wanted("expected a string, as in \"…\""))?]),
            (Kind::List, DeValue::Array(all)) if all.iter().all(|it| text(it.get_ref()).is_some()) => {
                Ok(all.iter().filter_map(|it| text(it.get_ref())).collect())
            }
            (Kind::List, _) => Err(wanted("expected a list of strings, as in [\"…\", \"…\"]")),
        }
    }

    fn names(&self, key: &str, value: &Spanned<DeValue>) -> Result<Vec<Name>, Fault> {
        let wanted = |it: &Spanned<DeValue>| {
            self.fault(it.span(), format!("{key}: expected a list of names, as in [\"sawtooth\", \"growth:host\"]"))
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
        let quoted = Foreign::new(text.chars().take(QUOTED).collect::<String>());
        let near = nearest(text, names).map_or_else(String::new, |it| format!("; the nearest is \"{}\"", it.as_ref()));
        self.fault(at, format!("there is no {what} \"{quoted}\"{near}"))
    }

    fn fault(&self, at: Range<usize>, what: String) -> Fault {
        let line = Some(self.line(at.start));
        Fault { file: self.file.clone(), line, what: Foreign::new(what).to_string() }
    }

    fn line(&self, at: usize) -> usize {
        1 + self.text.bytes().take(at).filter(|it| *it == b'\n').count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn read(text: &str) -> Result<Policy, String> {
        settings(text).map(|it| it.policy)
    }

    fn settings(text: &str) -> Result<Settings, String> {
        Reader { file: &"c.toml".into(), text }.read().map_err(|it| it.to_string())
    }

    fn names(texts: &[&str]) -> Vec<Name> {
        texts.iter().map(|it| Name::read(it).unwrap()).collect()
    }

    #[test]
    fn allowed_and_silenced_alerts_are_read() {
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
    fn an_error_names_its_line_its_key_and_the_nearest_valid_name() {
        let list = "expected a list of names, as in [\"sawtooth\", \"growth:host\"]";
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
            ("theme = 'dusk'", "1: theme: write it below [view]"),
            ("allow = ['oom']", "1: allow: write it below [alerts]"),
            ("[driver]\nintervall = '2s'", "2: there is no key in [driver] \"intervall\"; the nearest is \"interval\""),
            ("[view]\n\nreadonly = 'yes'", "3: view.readonly: expected true or false"),
            ("view.theme = ['dusk']", "1: view.theme: expected a string, as in \"…\""),
            ("alerts.on-alert-arg = 'x'", "1: alerts.on-alert-arg: expected a list of strings, as in [\"…\", \"…\"]"),
            ("alerts = 3", "1: alerts: expected a table, as in [alerts]"),
            ("[[alerts]]", "1: alerts: expected a table, as in [alerts]"),
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
    fn flags_are_set_by_keys_of_their_names() {
        let text = "[view]\ncolor = 256\nreadonly = true\n[alerts]\non-alert = ''\non-alert-arg = ['-s', 'x y']\n";
        let flags: Vec<_> = settings(text).unwrap().flags.into_iter().map(|it| (it.key, it.values, it.line)).collect();
        let words = |it: &[&str]| it.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let mut expected = vec![
            ("color", words(&["256"]), 2),
            ("readonly", words(&["true"]), 3),
            ("on-alert-arg", words(&["-s", "x y"]), 6),
        ];
        expected.sort();
        let mut flags = flags;
        flags.sort();
        assert_eq!(flags, expected);
    }

    #[test]
    fn an_error_is_one_line_without_control_characters() {
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
        assert_eq!(file(&path), Ok(Settings::default()));
        fs::write(&path, vec![b'#'; (1 << 16) + 1]).unwrap();
        assert!(file(&path).unwrap_err().ends_with("c.toml: is larger than 64 KiB"));
        fs::write(&path, b"# \xff").unwrap();
        assert!(file(&path).unwrap_err().ends_with("c.toml: is not UTF-8 text"));
        assert_eq!(file(Path::new("/dev/null")), Ok(Settings::default()));
    }
}
