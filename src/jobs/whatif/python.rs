//! The job's Python, and the simulated driver's libraries for its PyTorch.

use super::Trouble;
use crate::jobs::simulated;
use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Prints the folder of the package `torch`, without importing it.
const FIND: &str = "import importlib.util as u; it = u.find_spec('torch'); \
                    print(it.submodule_search_locations[0] if it and it.submodule_search_locations else '')";

/// A Python with a usable PyTorch.
#[derive(Clone, Debug)]
pub(super) struct Python {
    pub(super) program: PathBuf,
    /// The folder of the simulated driver's libraries.
    pub(super) libraries: PathBuf,
}

impl Python {
    /// Finds PyTorch in a Python, or in the first one on the path, and prepares the libraries on first use.
    ///
    /// # Errors
    /// Fails if there is no PyTorch, or if it is built without CUDA.
    pub(super) fn find(named: Option<&Path>) -> Result<Self, Trouble> {
        let program = match named {
            // The replay has another working directory.
            Some(it) if it.components().count() > 1 => std::path::absolute(it)?,
            Some(it) => it.to_owned(),
            None => on_path().ok_or(Trouble::NoPython)?,
        };
        let torch = torch_of(&program)?;
        let libraries = simulated::libraries(&torch)?;
        Ok(Self { program, libraries })
    }
}

fn on_path() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let is_there = |name: &str| env::split_paths(&path).any(|it| it.join(name).is_file());
    ["python", "python3"].into_iter().find(|it| is_there(it)).map(PathBuf::from)
}

fn torch_of(program: &Path) -> Result<PathBuf, Trouble> {
    let mut command = clean(program);
    command.args(["-c", FIND]).stdin(Stdio::null());
    let done = command.output().map_err(|e| Trouble::Unstarted { program: program.to_owned(), why: e })?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let folder = text.lines().last().unwrap_or_default().trim();
    if !done.status.success() || folder.is_empty() {
        return Err(Trouble::NoTorch { program: program.to_owned() });
    }
    Ok(PathBuf::from(folder))
}

/// Returns a Python command without a probe and without the user's settings of allocators and devices.
pub(super) fn clean(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("GPUWATCH", "off");
    let names = env::vars_os().map(|it| it.0);
    let is_foreign = |name: &std::ffi::OsString| {
        let name = name.to_string_lossy();
        name.starts_with("PYTORCH_") || name.starts_with("SIMGPU_") || name.starts_with("CUDA_")
    };
    for it in names.filter(is_foreign) {
        command.env_remove(it);
    }
    command
}
