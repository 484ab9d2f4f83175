//! Changes of the config file: they keep everything else in it, are shown before they are written, and are written
//! completely or not at all.

use super::file::{BYTES_MAX, Fault, File, Reader};
use crate::{facts::text::Foreign, storage::input};
use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown},
    path::{Path, PathBuf},
    process,
};
use toml_edit::{Array, DocumentMut, Item, RawString, Table, TableLike, Value};

/// A file with its changes.
#[derive(Clone, Debug)]
pub struct Edit {
    path: PathBuf,
    before: Option<String>,
    after: String,
}

impl File {
    /// Returns the change that allows alerts of this name; `None` if the file has it already.
    ///
    /// # Errors
    /// Fails if there is no file to write to, or if its contents cannot be read or parsed.
    pub fn allowing(&self, name: &str) -> Result<Option<Edit>, Fault> {
        self.changing(&format!("\"{name}\": add it to allow in [alerts] by hand"), |list| {
            if list.iter().any(|it| it.as_str() == Some(name)) {
                return 0;
            }
            push(list, name);
            1
        })
    }

    /// Returns the change that allows alerts of these names no longer; `None` if the file has none of them.
    ///
    /// # Errors
    /// Fails if there is no file to write to, or if its contents cannot be read or parsed.
    pub fn disallowing(&self, names: &[String]) -> Result<Option<Edit>, Fault> {
        self.changing("this change: remove it from allow in [alerts] by hand", |list| {
            let is_meant = |it: &Value| it.as_str().is_some_and(|text| names.iter().any(|name| name == text));
            let places: Vec<usize> =
                list.iter().enumerate().filter(|(_, it)| is_meant(it)).map(|(place, _)| place).collect();
            places.iter().rev().for_each(|place| remove(list, *place));
            -isize::try_from(places.len()).unwrap_or(isize::MAX)
        })
    }

    /// Returns a change of the list of allowed alerts, which returns how many it has added; `None` if it has changed
    /// nothing.
    fn changing(&self, what: &str, change: impl Fn(&mut Array) -> isize) -> Result<Option<Edit>, Fault> {
        let Some(path) = self.path() else { return Err(Fault::of(Path::new("config.toml"), NO_HOME)) };
        let fault = |what: String| Fault::of(&path, &what);
        let before = text(&path).map_err(|e| fault(format!("cannot be read: {e}")))?;
        let old = before.as_deref().unwrap_or_default();
        let file = Foreign::new(path.to_string_lossy());
        let known = Reader { file: &file, text: old }.read()?.policy.allow.len();
        let mut document: DocumentMut = old.parse().map_err(|_broken| fault("is not TOML".to_owned()))?;
        make_room(&mut document);
        let Some(list) = allowed(document.as_table_mut()) else {
            return Err(fault(format!("has no place for {what}")));
        };
        let added = change(list);
        if added == 0 {
            return Ok(None);
        }
        let after = document.to_string();
        let after = if has_crlf(old) { after.replace("\r\n", "\n").replace('\n', "\r\n") } else { after };
        // The change must have the intended effect, whatever the file looks like.
        let left = Reader { file: &file, text: &after }.read()?.policy.allow.len();
        if known.checked_add_signed(added) != Some(left) {
            return Err(fault(format!("has no place for {what}")));
        }
        Ok(Some(Edit { path, before, after }))
    }
}

const NO_HOME: &str = "there is no home directory for it: name a file with --config";

impl Edit {
    /// Returns the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the file is new.
    pub fn is_new(&self) -> bool {
        self.before.is_none()
    }

    /// Returns the new or changed lines.
    pub fn lines(&self) -> Vec<String> {
        let old: Vec<&str> = self.before.as_deref().unwrap_or_default().lines().collect();
        let new: Vec<&str> = self.after.lines().collect();
        let same = |(one, other): &(&&str, &&str)| one == other;
        let above = old.iter().zip(&new).take_while(same).count();
        let most = old.len().min(new.len()) - above;
        let below = old.iter().rev().zip(new.iter().rev()).take_while(same).count().min(most);
        new.get(above..new.len() - below).unwrap_or_default().iter().map(ToString::to_string).collect()
    }

    /// Writes a new file and renames it over the old one. A link stays a link; owner and mode are kept.
    ///
    /// # Errors
    /// Fails if the file has changed meanwhile or cannot be written; the old one is kept then.
    pub fn write(&self) -> Result<(), Fault> {
        let fault = |what: &str| Fault::of(&self.path, what);
        match text(&self.path) {
            Ok(now) if now == self.before => {}
            Ok(_) => return Err(fault("has changed meanwhile: nothing was written")),
            Err(e) => return Err(fault(&format!("cannot be read: {e}"))),
        }
        self.replace().map_err(|e| fault(&format!("cannot be written: {e}")))
    }

    fn replace(&self) -> io::Result<()> {
        let owner = if self.is_new() { None } else { Some(fs::metadata(&self.path)?) };
        let target = if owner.is_some() { fs::canonicalize(&self.path)? } else { self.path.clone() };
        let folder = target.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let beside = folder.join(format!(".gpuwatch-config-{}", process::id()));
        let written = self.write_to(&beside, owner.as_ref()).and_then(|()| fs::rename(&beside, &target));
        written.inspect_err(|_| drop(fs::remove_file(&beside)))
    }

    fn write_to(&self, beside: &Path, owner: Option<&fs::Metadata>) -> io::Result<()> {
        let mode = owner.map_or(0o644, |it| it.permissions().mode() & 0o777);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(beside)?;
        if let Some(owner) = owner {
            let own = file.metadata()?;
            if (own.uid(), own.gid()) != (owner.uid(), owner.gid()) {
                fchown(&file, Some(owner.uid()), Some(owner.gid()))?;
            }
        }
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.write_all(self.after.as_bytes())?;
        file.sync_all()
    }
}

/// Reads a file; `None` if there is none.
fn text(path: &Path) -> io::Result<Option<String>> {
    let about = match fs::symlink_metadata(path) {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound) => return Ok(None),
        it => it?,
    };
    if about.is_symlink() && !path.exists() {
        return Err(io::Error::other("it is a link to a file that is not there"));
    }
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    input::small_text(path, BYTES_MAX).map(Some)
}

/// Adds a table `alerts` where there is none: after everything else, comments included.
fn make_room(document: &mut DocumentMut) {
    if document.contains_key("alerts") {
        return;
    }
    let end = document.trailing().as_str().unwrap_or_default().to_owned();
    let is_first = document.is_empty() && end.is_empty();
    let line = if end.is_empty() || end.ends_with('\n') { "" } else { "\n" };
    let mut table = Table::new();
    // A table begins after an empty line, unless it is the first thing in its file.
    table.decor_mut().set_prefix(format!("{end}{line}{}", if is_first { "" } else { "\n" }));
    document.insert("alerts", Item::Table(table));
    document.set_trailing("");
}

/// Returns the list of allowed alerts, and creates it if missing; `None` if the key has another type.
fn allowed(document: &mut Table) -> Option<&mut Array> {
    let alerts: &mut dyn TableLike = document.get_mut("alerts")?.as_table_like_mut()?;
    alerts.entry("allow").or_insert_with(|| Item::Value(Array::new().into())).as_array_mut()
}

/// Adds a name to a list. Comments stay beside the names that they are about: one after the last name stays in its
/// line.
fn push(list: &mut Array, name: &str) {
    // The text between the last name and the closing bracket, apart from a comma.
    let mut end = String::new();
    let mut indent = None;
    if let Some(last) = list.iter_mut().last() {
        let decor = last.decor_mut();
        end.push_str(decor.suffix().and_then(RawString::as_str).unwrap_or_default());
        let before = decor.prefix().and_then(RawString::as_str).unwrap_or_default();
        indent = before.rsplit_once('\n').map(|it| it.1.to_owned());
        decor.set_suffix("");
    }
    end.push_str(list.trailing().as_str().unwrap_or_default());
    let value = Value::from(name);
    if let Some((above, bracket)) = end.rsplit_once('\n') {
        let indent = indent.unwrap_or_else(|| format!("{bracket}  "));
        list.push_formatted(value.decorated(format!("{above}\n{indent}"), ""));
        list.set_trailing(format!("\n{bracket}"));
        list.set_trailing_comma(true);
    } else {
        let before = if list.is_empty() { "" } else { " " };
        list.push_formatted(value.decorated(before, ""));
        list.set_trailing(end);
    }
}

/// Removes a name from a list. Comments stay, except one before the comma of the removed name.
fn remove(list: &mut Array, place: usize) {
    let text = |it: Option<&RawString>| it.and_then(RawString::as_str).unwrap_or_default().to_owned();
    let removed = list.remove(place);
    let (before, after) = (text(removed.decor().prefix()), text(removed.decor().suffix()));
    // A comment there is about the name before, or about nothing in particular.
    let kept = before.rsplit_once('\n').map(|it| it.0).filter(|it| it.contains('#')).unwrap_or_default();
    if let Some(next) = list.get_mut(place) {
        let own = text(next.decor().prefix());
        let is_first = place == 0 && kept.is_empty() && !own.contains('#');
        next.decor_mut().set_prefix(if is_first { before.clone() } else { format!("{kept}{own}") });
    } else {
        let end = text(Some(list.trailing()));
        list.set_trailing(format!("{kept}{after}{end}"));
    }
}

/// Returns whether every line ends as on Windows; the editor of TOML would end new ones otherwise.
fn has_crlf(text: &str) -> bool {
    text.contains('\n') && text.matches('\n').count() == text.matches("\r\n").count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::alerts::{Name, Policy};
    use std::os::unix::fs::symlink;

    fn file(path: &Path) -> File {
        File::named_so(path)
    }

    fn allowed_in(path: &Path) -> Vec<Name> {
        file(path).read().unwrap().policy.allow
    }

    #[test]
    fn a_name_is_removed_and_comments_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        for (before, after) in [
            ("[alerts]\nallow = [\"oom\"] # mine\n", "[alerts]\nallow = [] # mine\n"),
            ("[alerts]\nallow = ['oom', 'sawtooth']\n", "[alerts]\nallow = ['sawtooth']\n"),
            ("[alerts]\nallow = [ 'sawtooth', 'oom' ]\n", "[alerts]\nallow = [ 'sawtooth' ]\n"),
            (
                "[alerts]\nallow = [\n  'sawtooth', # epochs\n  'oom',\n  # later:\n  'stall',\n]\n",
                "[alerts]\nallow = [\n  'sawtooth', # epochs\n  # later:\n  'stall',\n]\n",
            ),
            (
                "[alerts]\nallow = [\n  'sawtooth', # epochs\n  'oom',\n]\n",
                "[alerts]\nallow = [\n  'sawtooth', # epochs\n]\n",
            ),
            ("[alerts]\nallow = [ 'oom' ]\n", "[alerts]\nallow = [ ]\n"),
            ("[alerts]\nallow = [\n  'stall',\n  'oom'\n]\n", "[alerts]\nallow = [\n  'stall'\n]\n"),
            ("[alerts]\nallow = [\n  'oom',\n  'stall',\n]\n", "[alerts]\nallow = [\n  'stall',\n]\n"),
            (
                "[alerts]\nallow = [\n  # never:\n  'oom', # here\n  'stall',\n]\n",
                "[alerts]\nallow = [\n  # never: # here\n  'stall',\n]\n",
            ),
            ("alerts.allow = [\"oom\"]\r\n# end\r\n", "alerts.allow = []\r\n# end\r\n"),
        ] {
            fs::write(&path, before).unwrap();
            file(&path).disallowing(&["oom".to_owned()]).unwrap().unwrap().write().unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), after);
            assert!(file(&path).disallowing(&["oom".to_owned()]).unwrap().is_none(), "it is gone");
        }
    }

    #[test]
    fn a_name_is_added_beside_everything_that_stands_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        for (before, after, lines) in [
            ("", "[alerts]\nallow = [\"oom\"]\n", &["[alerts]", "allow = [\"oom\"]"][..]),
            (
                "# mine\n[view]\ntheme = 'paper' # bright\n",
                "# mine\n[view]\ntheme = 'paper' # bright\n\n[alerts]\nallow = [\"oom\"]\n",
                &["", "[alerts]", "allow = [\"oom\"]"],
            ),
            (
                "[alerts]\n# Expected:\n#allow = []\n\n[recordings]\nkeep = 7\n",
                "[alerts]\nallow = [\"oom\"]\n# Expected:\n#allow = []\n\n[recordings]\nkeep = 7\n",
                &["allow = [\"oom\"]"],
            ),
            (
                "[alerts]\nallow = ['sawtooth'] # epochs\n",
                "[alerts]\nallow = ['sawtooth', \"oom\"] # epochs\n",
                &["allow = ['sawtooth', \"oom\"] # epochs"],
            ),
            (
                "alerts.silence = ['pressure']\n",
                "alerts.silence = ['pressure']\nalerts.allow = [\"oom\"]\n",
                &["alerts.allow = [\"oom\"]"],
            ),
        ] {
            fs::write(&path, before).unwrap();
            let edit = file(&path).allowing("oom").unwrap().unwrap();
            assert_eq!((edit.lines(), edit.is_new()), (lines.iter().map(ToString::to_string).collect(), false));
            edit.write().unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), after);
            assert!(file(&path).allowing("oom").unwrap().is_none(), "it is there by now");
        }
    }

    #[test]
    fn comments_stay_where_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        for (before, after) in [
            ("allow = [\n  'sawtooth', # epochs\n]\n", "allow = [\n  'sawtooth', # epochs\n  \"oom\",\n]\n"),
            ("allow = [\n\t'sawtooth' # epochs\n]\n", "allow = [\n\t'sawtooth', # epochs\n\t\"oom\",\n]\n"),
            (
                "allow = [ # mine\n    # First:\n    'sawtooth',\n    # Later: 'pressure'\n  ] # end\n",
                "allow = [ # mine\n    # First:\n    'sawtooth',\n    # Later: 'pressure'\n    \"oom\",\n  ] # end\n",
            ),
            ("allow = [ # none yet\n]\n# end\n", "allow = [ # none yet\n  \"oom\",\n]\n# end\n"),
            ("allow = [] # none yet\n", "allow = [\"oom\"] # none yet\n"),
            ("allow = [ 'sawtooth' ] # one\n", "allow = [ 'sawtooth', \"oom\" ] # one\n"),
            ("allow = ['sawtooth',]\n", "allow = ['sawtooth', \"oom\",]\n"),
            ("silence = ['pressure'] # it\n# end\n", "silence = ['pressure'] # it\nallow = [\"oom\"]\n# end\n"),
        ] {
            let [before, after] = [before, after].map(|it| format!("# top\n\n[alerts] # the table\n{it}"));
            for [before, after] in [[before.clone(), after.clone()], [before, after].map(|it| it.replace('\n', "\r\n"))]
            {
                fs::write(&path, &before).unwrap();
                file(&path).allowing("oom").unwrap().unwrap().write().unwrap();
                assert_eq!(fs::read_to_string(&path).unwrap(), after);
            }
        }
        // A new table comes after all comments, as in the file that `gpuwatch generate config` prints.
        for before in
            ["# [alerts]\n# allow = []\n", "[view]\ntheme = 'paper'\n# end\n", "# no newline", "[view] # no newline"]
        {
            fs::write(&path, before).unwrap();
            file(&path).allowing("oom").unwrap().unwrap().write().unwrap();
            let line = if before.ends_with('\n') { "" } else { "\n" };
            let after = format!("{before}{line}\n[alerts]\nallow = [\"oom\"]\n");
            assert_eq!(fs::read_to_string(&path).unwrap(), after);
        }
    }

    #[test]
    fn a_file_is_made_where_there_is_none_and_a_link_stays_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new").join("config.toml");
        let edit = file(&path).allowing("oom").unwrap().unwrap();
        assert!(edit.is_new() && !path.exists(), "nothing is written before somebody agrees");
        edit.write().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "[alerts]\nallow = [\"oom\"]\n");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let link = dir.path().join("link.toml");
        symlink(&path, &link).unwrap();
        file(&link).allowing("growth").unwrap().unwrap().write().unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(allowed_in(&path).len(), 2);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing else is left there");
    }

    #[test]
    fn an_unwritable_file_is_reported_and_left_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        let fault = |path: &Path| file(path).allowing("oom").unwrap_err().to_string();
        fs::write(&path, "[alerts]\nallow = 7").unwrap();
        assert!(fault(&path).contains("config.toml:2: alerts.allow: expected a list of names"), "{}", fault(&path));
        fs::write(&path, "[alerts").unwrap();
        assert!(fault(&path).contains("config.toml:1: "), "{}", fault(&path));
        assert!(fault(Path::new("/dev/null")).contains("not a regular file"));
        symlink(dir.path().join("nowhere"), dir.path().join("link")).unwrap();
        assert!(fault(&dir.path().join("link")).contains("a link to a file that is not there"));
        fs::write(&path, "").unwrap();
        let edit = file(&path).allowing("oom").unwrap().unwrap();
        fs::write(&path, "# somebody was here\n").unwrap();
        assert!(edit.write().unwrap_err().to_string().contains("has changed meanwhile"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "# somebody was here\n");
        let under_a_file = path.join("config.toml");
        let written = file(&under_a_file).allowing("oom").and_then(|it| it.unwrap().write());
        assert!(written.unwrap_err().to_string().contains("Not a directory"));
        assert_eq!(file(&path).read().unwrap().policy, Policy::default());
    }
}
