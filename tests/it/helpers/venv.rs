//! Python environments that the tests make for themselves, once, in the build directory.

use crate::helpers::torch::target;
use rustix::fs::{FlockOperation, flock};
use std::{
    env,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// A Python with packages.
pub(crate) struct Venv {
    /// The environment variable that names one which stands already.
    pub(crate) variable: &'static str,
    /// Its directory's name in the build directory.
    pub(crate) name: &'static str,
    /// Printed while it is created: its contents, and the size of the download.
    pub(crate) holds: &'static str,
    /// Every package of it with its version, in lists that others may share: nothing else is installed. An entry may
    /// have several lines.
    pub(crate) packages: &'static [&'static [&'static str]],
    /// Another one whose packages it has too, so that nothing is downloaded twice.
    pub(crate) above: Option<&'static Self>,
    /// Its path, once requested.
    pub(crate) python: OnceLock<PathBuf>,
}

impl Venv {
    /// Its program: the one that the variable names, else one that is made once in the build directory.
    pub(crate) fn python(&self) -> &Path {
        self.python.get_or_init(|| self.found().unwrap_or_else(|why| panic!("{}: {why}", self.holds)))
    }

    /// The same, or why it cannot be had, as where there is no network.
    pub(crate) fn found(&self) -> Result<PathBuf, String> {
        match env::var_os(self.variable).filter(|it| !it.is_empty()) {
            Some(venv) => Ok(Path::new(&venv).join("bin/python")),
            None => self.made_once(&target().join(self.name)),
        }
    }

    /// Creates the environment, unless it exists already; starts again if an earlier attempt was left unfinished.
    /// Concurrent test processes wait for each other.
    fn made_once(&self, venv: &Path) -> Result<PathBuf, String> {
        let python = venv.join("bin/python");
        let complete = venv.join("complete");
        let packages: Vec<&str> = self.packages.concat().into_iter().flat_map(str::lines).collect();
        // Names hold dots, so the ending is added and not replaced.
        let lock = File::create(venv.with_file_name(format!("{}.lock", self.name))).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        if fs::read_to_string(&complete).is_ok_and(|it| it == packages.join("\n")) {
            return Ok(python);
        }
        // Not through print macros, whose output a passing test keeps to itself: this takes minutes.
        let print = |text: &str| {
            let _ = writeln!(io::stderr(), "{text}");
        };
        print(&format!("gpuwatch's tests: making {} with {}, once …", venv.display(), self.holds));
        if venv.exists() {
            fs::remove_dir_all(venv).unwrap();
        }
        let above = self.above.map(Self::found).transpose()?;
        done(Command::new(above.as_deref().unwrap_or(Path::new("python3"))).args(["-m", "venv"]).arg(venv))?;
        if let Some(above) = above {
            let folder = "import sysconfig; print(sysconfig.get_path('purelib'))";
            let of = |python: &Path| done(Command::new(python).args(["-c", folder])).map(|it| it.trim().to_owned());
            let folder = of(&above)?;
            // What is above that one is not found through it.
            let further = fs::read_to_string(Path::new(&folder).join("above.pth")).unwrap_or_default();
            fs::write(Path::new(&of(&python)?).join("above.pth"), format!("{folder}\n{further}")).unwrap();
        }
        let mut pip = Command::new(&python);
        // It is installed once: a copy in pip's cache would only take room.
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir", "--no-deps"]);
        done(pip.args(&packages))?;
        fs::write(complete, packages.join("\n")).unwrap();
        print(&format!("gpuwatch's tests: {} is ready.", venv.display()));
        Ok(python)
    }
}

/// Returns its standard output; fails with its standard error.
fn done(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|it| format!("{command:?}: {it}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{command:?}: {errors}"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
