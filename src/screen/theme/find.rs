//! Finds themes: built-in ones, the user's own by name, and files by path.

use super::{
    Fault, Theme,
    file::{Source, read},
    names,
};
use crate::{
    facts::text::{Foreign, nearest},
    storage::input,
};
use etcetera::{BaseStrategy, choose_base_strategy};
use std::{
    cell::RefCell,
    fs,
    path::{Path, PathBuf},
};

/// Most bytes of a file: far more than users write.
const BYTES_MAX: u64 = 1 << 16;

/// Most user themes listed.
const LISTED: usize = 12;

/// Finds a theme by name, the user's own first, or by path: with a `/` in it or `.toml` at its end.
///
/// # Errors
/// Fails if there is none, or if its file has an error.
pub fn find(name: &str) -> Result<Theme, Fault> {
    if let Some(builtin) = Theme::builtin(name).filter(|_| own(name).is_none_or(|it| !it.is_file())) {
        return Ok(builtin);
    }
    let source = source(name).map_err(|what| Fault { file: Foreign::new(name), line: None, what })?;
    let title = Path::new(name).file_stem().map_or_else(|| name.into(), |it| it.to_string_lossy().into_owned());
    let asking = RefCell::new(title.clone());
    let parent = |parent: &str| {
        // A user theme with a built-in one's name inherits from that one.
        let is_same = asking.replace(parent.to_owned()) == parent;
        if is_same { builtin(parent) } else { self::source(parent) }
    };
    Ok(Theme::made(&title, read(source, parent)?))
}

/// Returns the names of all themes.
pub fn all() -> Vec<String> {
    let entries = directory().and_then(|it| fs::read_dir(it).ok()).into_iter().flatten().flatten();
    let mut own: Vec<String> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
        .filter_map(|it| Some(it.file_stem()?.to_string_lossy().into_owned()))
        .filter(|it| names().all(|name| name != it))
        .take(LISTED)
        .collect();
    own.sort();
    names().map(str::to_owned).chain(own).collect()
}

fn directory() -> Option<PathBuf> {
    Some(choose_base_strategy().ok()?.config_dir().join("gpuwatch").join("themes"))
}

fn is_path(name: &str) -> bool {
    name.contains('/') || Path::new(name).extension().is_some_and(|it| it == "toml")
}

fn own(name: &str) -> Option<PathBuf> {
    if is_path(name) { Some(PathBuf::from(name)) } else { Some(directory()?.join(format!("{name}.toml"))) }
}

pub(super) fn builtin(name: &str) -> Result<Source, String> {
    let (_, text) = super::BUILTIN.iter().find(|it| it.0 == name).ok_or_else(|| unknown(name))?;
    Ok(Source { file: format!("themes/{name}.toml").as_str().into(), text: (*text).to_owned() })
}

/// Returns the text of a theme from its file or from the program.
fn source(name: &str) -> Result<Source, String> {
    let Some(path) = own(name).filter(|it| is_path(name) || it.is_file()) else { return builtin(name) };
    let text = input::small_text(&path, BYTES_MAX).map_err(|e| input::fault(&e))?;
    Ok(Source { file: Foreign::new(path.to_string_lossy()), text })
}

fn unknown(name: &str) -> String {
    let all = all();
    let near = nearest(name, &all).map_or_else(String::new, |it| format!("; the nearest is {it}"));
    format!("there is no theme of that name; there are {}{near}", Foreign::new(all.join(", ")))
}
