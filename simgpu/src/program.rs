//! Which Python a program will run, and where that one has `PyTorch`.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Error, Read},
    path::{Path, PathBuf},
    process::Command,
};

/// How much of a script is read for its interpreter.
const HEAD: u64 = 1024;
const FIND: &str = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])";

/// The folder of the package `torch` that a program will import: a Python, a script of one such as `torchrun` or
/// `accelerate`, or a program that starts one, such as `uv run`, `nice` or `gpuwatch run`.
///
/// # Errors
///
/// When none of the Pythons that it may run has one; the message names those that were asked.
pub fn torch_of(program: &[OsString]) -> io::Result<PathBuf> {
    let pythons = pythons(program);
    if let Some(torch) = pythons.iter().find_map(|it| ask(it)) {
        return Ok(torch);
    }
    let asked: Vec<String> = pythons.iter().map(|it| it.join(OsStr::new(" ")).display().to_string()).collect();
    Err(Error::other(format!("no PyTorch for the program (asked {}); use --torch DIR", asked.join(", "))))
}

/// Asks a Python where its `torch` is.
fn ask(python: &[OsString]) -> Option<PathBuf> {
    let (program, arguments) = python.split_first()?;
    let done =
        Command::new(program).args(arguments).args(["-c", FIND]).output().ok().filter(|it| it.status.success())?;
    let text = String::from_utf8(done.stdout).ok()?;
    Some(PathBuf::from(text.lines().last()?.trim()))
}

/// The Pythons that a program may run, each as a command, the likeliest first.
fn pythons(program: &[OsString]) -> Vec<Vec<OsString>> {
    let mut pythons = Vec::new();
    for (at, word) in program.iter().enumerate() {
        pythons.extend(located(word).as_deref().and_then(interpreter));
        // `uv run`, `poetry run`, `conda run`: they choose the Python.
        if at == 0 && pythons.is_empty() && program.get(1).is_some_and(|it| it == "run") {
            pythons.push(vec![word.clone(), "run".into(), "python".into()]);
        }
    }
    pythons.extend(["python3", "python"].map(|it| vec![it.into()]));
    let mut known = Vec::new();
    pythons.retain(|it| {
        !known.contains(it) && {
            known.push(it.clone());
            true
        }
    });
    pythons
}

/// The file that a word of a command line names, on the path if it names no folder.
fn located(word: &OsStr) -> Option<PathBuf> {
    if word.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(word)).filter(|it| it.is_file());
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|it| it.join(word)).find(|it| it.is_file())
}

fn is_python(program: &OsStr) -> bool {
    let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.strip_prefix("python").is_some_and(|it| it.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

/// The Python that runs a file: the file itself, or the one that its first line names.
fn interpreter(file: &Path) -> Option<Vec<OsString>> {
    if is_python(file.as_os_str()) {
        return Some(vec![file.into()]);
    }
    let mut head = Vec::new();
    File::open(file).ok()?.take(HEAD).read_to_end(&mut head).ok()?;
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut lines = head.strip_prefix("#!")?.lines();
    let mut words: Vec<&str> = lines.next()?.split_whitespace().collect();
    let name = Path::new(words.first()?).file_name()?.to_str()?;
    if name == "env" {
        let begin = words.iter().skip(1).position(|it| !it.starts_with('-') && !it.contains('='))?;
        words.drain(..=begin);
    } else if name == "sh" {
        // If the path is too long for a first line, installers write a second line that the shell runs.
        let exec = lines.next()?.strip_prefix("'''exec' ")?;
        words = vec![exec.split(" \"$0\"").next()?.trim_matches('"')];
    }
    is_python(OsStr::new(words.first()?)).then(|| words.into_iter().map(OsString::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn a_script_names_its_python_in_its_first_lines() {
        let dir = tempfile::tempdir().unwrap();
        let of = |text: &str| {
            let file = dir.path().join("script");
            fs::write(&file, text).unwrap();
            interpreter(&file)
        };
        assert_eq!(of("#!/venv/bin/python3.11\nimport re\n"), Some(words(&["/venv/bin/python3.11"])));
        assert_eq!(of("#!/venv/bin/python -sE\n"), Some(words(&["/venv/bin/python", "-sE"])));
        assert_eq!(of("#!/usr/bin/env python3\n"), Some(words(&["python3"])));
        assert_eq!(of("#!/usr/bin/env -S A=1 python3 -u\n"), Some(words(&["python3", "-u"])));
        let long = "#!/bin/sh\n'''exec' \"/a very long/venv/bin/python\" \"$0\" \"$@\"\n' '''\n";
        assert_eq!(of(long), Some(words(&["/a very long/venv/bin/python"])));
        assert_eq!(of("#!/bin/sh\necho python\n"), None);
        assert_eq!(of("\x7fELF"), None);
        assert_eq!(interpreter(Path::new("/venv/bin/python3")), Some(words(&["/venv/bin/python3"])));
        assert!(!is_python(OsStr::new("python-config")) && is_python(OsStr::new("python")));
    }

    #[test]
    fn the_python_of_a_program_is_searched_behind_its_launcher() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("torchrun");
        fs::write(&script, "#!/venv/bin/python\n").unwrap();
        let script = script.to_str().unwrap();
        let first = |program: &[&str]| pythons(&words(program)).swap_remove(0);
        assert_eq!(first(&[script, "train.py"]), words(&["/venv/bin/python"]));
        assert_eq!(first(&["nice", "-n", "5", script]), words(&["/venv/bin/python"]));
        assert_eq!(first(&["some-launcher", "run", "train.py"]), words(&["some-launcher", "run", "python"]));
        assert_eq!(pythons(&words(&["true"])), [words(&["python3"]), words(&["python"])]);
    }
}
