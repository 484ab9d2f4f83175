//! Children on a simulated machine: the libraries in CUDA's place, and a temporary folder.

use crate::{
    facts::text::Foreign,
    jobs::launch::assets,
    storage::own_folder::{self, make},
};
use std::{
    fs, io,
    path::{Path, PathBuf},
};
use thiserror::Error;

/// Reasons why no machine can be simulated.
#[derive(Debug, Error)]
pub enum Trouble {
    /// That PyTorch is built for processors alone.
    #[error(
        "cannot simulate a GPU for {}: it is not built for CUDA; the wheel for CUDA needs no GPU here: pip install torch=={version} \
         --index-url https://download.pytorch.org/whl/cu126 (or another CUDA)",
        Foreign::new(torch.to_string_lossy())
    )]
    WithoutCuda {
        /// The folder of the package.
        torch: PathBuf,
        /// The version of that PyTorch.
        version: Foreign,
    },
    /// The simulated driver's libraries cannot be made for a PyTorch.
    #[error("cannot simulate a GPU for {}: {}", Foreign::new(torch.to_string_lossy()), Foreign::new(why.as_str()))]
    Unprepared {
        /// The folder of the package.
        torch: PathBuf,
        /// What the preparation reported.
        why: String,
    },
    /// There is no place for files.
    #[error(transparent)]
    Place(#[from] own_folder::Trouble),
    /// A file cannot be made.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Returns the folder of the simulated driver's libraries for a PyTorch, made on their first use.
///
/// # Errors
/// When that PyTorch is built without CUDA, or there is no place for files.
pub fn libraries(torch: &Path) -> Result<PathBuf, Trouble> {
    let folder = assets::executable_folder("simgpu")?;
    simgpu::prepared(torch, &folder).map_err(|e| {
        without_cuda(torch).unwrap_or_else(|| Trouble::Unprepared { torch: torch.to_owned(), why: e.to_string() })
    })
}

/// Returns the trouble with a PyTorch that is built for processors alone; `None` for any other.
pub fn without_cuda(torch: &Path) -> Option<Trouble> {
    let text = fs::read_to_string(torch.join("version.py")).ok()?;
    let value = |name: &str| {
        let line = text.lines().find(|it| it.starts_with(name))?;
        Some(line.split_once('=')?.1.trim().trim_matches(['\'', '"']).to_owned())
    };
    let version = value("__version__").unwrap_or_default();
    let version = Foreign::new(version.split('+').next().unwrap_or_default());
    (value("cuda")? == "None").then(|| Trouble::WithoutCuda { torch: torch.to_owned(), version })
}

/// A temporary folder for one question's files.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes a folder among those of that name, and removes those of ended processes.
    ///
    /// # Errors
    /// When there is no place for it.
    pub fn new(name: &str) -> Result<Self, Trouble> {
        let all = assets::executable_folder(name)?;
        for it in fs::read_dir(&all)?.flatten() {
            let pid = it.file_name().to_string_lossy().into_owned();
            if !Path::new("/proc").join(&pid).exists() {
                let _ = fs::remove_dir_all(it.path());
            }
        }
        let folder = all.join(std::process::id().to_string());
        // What a process of the same number left behind.
        let _ = fs::remove_dir_all(&folder);
        Ok(Self(make(&folder)?))
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pytorch_without_cuda_is_refused_with_the_wheel_to_install() {
        let torch = tempfile::tempdir().unwrap();
        fs::write(torch.path().join("version.py"), "__version__ = '2.9.1+cpu'\ncuda: Optional[str] = None\n").unwrap();
        let why = libraries(torch.path()).unwrap_err().to_string();
        assert!(why.contains("not built for CUDA") && why.contains("torch==2.9.1 "), "{why}");
    }
}
