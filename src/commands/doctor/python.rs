//! Python and its PyTorch, found by their files, because an import would run foreign code.

use super::Check;
use crate::jobs::simulated::without_cuda;
use std::{
    env, fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

const NAME: &str = "pytorch";
const FIT: &str = "fit";

/// The oldest versions that the probe supports.
const PYTHON: (u32, u32) = (3, 9);
const TORCH: (u32, u32) = (2, 3);

/// Run by the bare interpreter: isolated, and without `site`, so that it runs no file of the user's.
const ASK: &str = "import sys, sysconfig as s; print('%d.%d.%d' % sys.version_info[:3]); \
    print(s.get_path('purelib')); print(s.get_path('platlib'))";

/// Checks the Python on `PATH`: for jobs, and for `gpuwatch fit`.
pub(super) fn checks() -> Vec<Check> {
    let (job, torch) = check();
    let fit = match &torch {
        None => Check::warn(
            FIT,
            "`gpuwatch fit` simulates a GPU for the PyTorch of a job, and there is none",
            "activate the job's environment, and ask again",
        ),
        Some(torch) => match without_cuda(torch) {
            Some(why) => Check::warn(FIT, "this PyTorch is built without CUDA", why.to_string()),
            None => Check::ok(FIT, "`gpuwatch fit` can simulate a GPU for this PyTorch"),
        },
    };
    vec![job, fit]
}

/// Returns the check, and the folder of a PyTorch that the probe supports.
fn check() -> (Check, Option<PathBuf>) {
    let Some(program) = on_path() else {
        return (
            Check::warn(NAME, "there is no python on PATH", "activate the job's environment, and ask again"),
            None,
        );
    };
    let shown = program.display();
    let Some((version, folders)) = query(&program) else {
        return (Check::warn(NAME, format!("{shown} reports no version"), "does `python --version` work?"), None);
    };
    if release(&version).is_none_or(|it| it < PYTHON) {
        let what = format!("{shown} is Python {version}: the probe needs {}.{} or newer", PYTHON.0, PYTHON.1);
        return (Check::warn(NAME, what, "use a newer Python for the job"), None);
    }
    let Some((folder, torch)) = folders.iter().find_map(|it| Some((it.join("torch"), version_in(it)?))) else {
        let what = format!("{shown} is Python {version}, without PyTorch");
        return (Check::warn(NAME, what, "activate the job's environment, and ask again"), None);
    };
    if release(&torch).is_none_or(|it| it < TORCH) {
        let what = format!(
            "{shown} is Python {version} with PyTorch {torch}: the probe needs {}.{} or newer",
            TORCH.0, TORCH.1
        );
        return (Check::warn(NAME, what, "update PyTorch; an older one is watched as any other process"), None);
    }
    (Check::ok(NAME, format!("{shown} is Python {version} with PyTorch {torch}")), Some(folder))
}

fn on_path() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let places: Vec<PathBuf> = env::split_paths(&path).collect();
    ["python", "python3"].iter().find_map(|name| places.iter().map(|it| it.join(name)).find(|it| it.is_file()))
}

/// Returns the version, and where packages are.
fn query(program: &Path) -> Option<(String, Vec<PathBuf>)> {
    let mut command = Command::new(program);
    // It is not a job, and starts no probe.
    command.args(["-I", "-S", "-c", ASK]).env("GPUWATCH", "off").stdin(Stdio::null()).stderr(Stdio::null());
    let output = String::from_utf8(command.output().ok()?.stdout).ok()?;
    let mut lines = output.lines();
    let version = lines.next()?.to_owned();
    let mut folders: Vec<PathBuf> = lines.map(PathBuf::from).collect();
    // Only `site` distinguishes an environment's own packages from those of its base Python.
    let (major, minor) = release(&version)?;
    let home = program.parent()?.parent()?;
    if home.join("pyvenv.cfg").is_file() {
        folders.insert(0, home.join(format!("lib/python{major}.{minor}/site-packages")));
    }
    let linked: Vec<PathBuf> = folders.iter().flat_map(|it| linked(it)).collect();
    folders.extend(linked);
    Some((version, folders))
}

/// The most bytes of a `.pth` file that are read; `site` limits none.
const PTH_BYTES: u64 = 64 << 10;

/// Returns the folders that the `.pth` files of a folder add to Python's path, as `site` does. Lines with code, which
/// `site` would run, are left out.
fn linked(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|it| it.path());
    let mut files: Vec<PathBuf> = entries.filter(|it| it.extension() == Some("pth".as_ref()) && it.is_file()).collect();
    files.sort();
    let text = |it: &PathBuf| {
        let mut text = String::new();
        fs::File::open(it).ok()?.take(PTH_BYTES).read_to_string(&mut text).ok()?;
        Some(text)
    };
    let texts: Vec<String> = files.iter().filter_map(text).collect();
    let lines = texts.iter().flat_map(|it| it.lines()).map(str::trim_end);
    let is_path = |it: &&str| !it.is_empty() && !["#", "import ", "import\t"].iter().any(|start| it.starts_with(start));
    lines.filter(is_path).map(|it| folder.join(it)).filter(|it| it.is_dir()).collect()
}

fn version_in(folder: &Path) -> Option<String> {
    fs::read_dir(folder).ok()?.flatten().find_map(|it| {
        let name = it.file_name().into_string().ok()?;
        Some(name.strip_prefix("torch-")?.strip_suffix(".dist-info")?.to_owned())
    })
}

fn release(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split('.').map(|it| it.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}
