//! Additions to the config file: they keep everything in it, are shown before they are written, and are written
//! completely or not at all.

use super::file::{BYTES_MAX, Fault, File, Reader, read};
use crate::facts::text::Foreign;
use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown},
    path::{Path, PathBuf},
    process,
};
use toml_edit::{Array, DocumentMut, Item, Table, TableLike};

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
        let Some(path) = self.path() else { return Err(Fault::of(Path::new("config.toml"), NO_HOME)) };
        let fault = |what: String| Fault::of(&path, &what);
        let before = text(&path).map_err(|e| fault(format!("cannot be read: {e}")))?;
        let old = before.as_deref().unwrap_or_default();
        let file = Foreign::new(path.to_string_lossy());
        let known = Reader { file: &file, text: old }.read()?.policy.allow.len();
        let mut document: DocumentMut = old.parse().map_err(|_broken| fault("is not TOML".to_owned()))?;
        let Some(list) = allowed(document.as_table_mut()) else {
            return Err(fault(format!("has no place for allow = [\"{name}\"]: add it to [alerts] by hand")));
        };
        if list.iter().any(|it| it.as_str() == Some(name)) {
            return Ok(None);
        }
        list.push(name);
        let after = document.to_string();
        // The change must have the intended effect, whatever the file looks like.
        let is_meant = Reader { file: &file, text: &after }.read()?.policy.allow.len() == known + 1;
        if !is_meant {
            return Err(fault(format!("has no place for \"{name}\": add it to allow in [alerts] by hand")));
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
    let bytes = read(path)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(io::Error::other(format!("it is larger than {} KiB", BYTES_MAX >> 10)));
    }
    String::from_utf8(bytes).map(Some).map_err(|_invalid| io::Error::other("it is not UTF-8 text"))
}

/// Returns the list of allowed alerts, and creates it if missing; `None` if the key has another type.
fn allowed(document: &mut Table) -> Option<&mut Array> {
    let is_empty = document.is_empty();
    let alerts = document.entry("alerts").or_insert_with(|| {
        let mut table = Table::new();
        // A table begins after an empty line, unless it is the first thing in its file.
        table.decor_mut().set_prefix(if is_empty { "" } else { "\n" });
        Item::Table(table)
    });
    let alerts: &mut dyn TableLike = alerts.as_table_like_mut()?;
    alerts.entry("allow").or_insert_with(|| Item::Value(Array::new().into())).as_array_mut()
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
        fs::write(&path, "[alerts]\nallow = [\n  'sawtooth', # epochs\n]\n").unwrap();
        file(&path).allowing("growth:host").unwrap().unwrap().write().unwrap();
        assert_eq!(allowed_in(&path), ["sawtooth", "growth:host"].map(|it| Name::read(it).unwrap()));
        assert!(fs::read_to_string(&path).unwrap().contains("# epochs"));
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
