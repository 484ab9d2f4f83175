//! Programs of the distribution that tests use: downloaded and unpacked into the build directory, never installed.

use crate::helpers::torch::target;
use rustix::fs::{FlockOperation, flock};
use std::{
    env,
    fs::{self, File},
    path::PathBuf,
    process::Command,
};

/// Gives a script `unpack`, which downloads packages with what they depend on and the machine lacks.
pub(crate) const APT: &str = include_str!("../../../packaging/debian.sh");

/// Runs a script once in a folder of the build directory, and gives the folder; or why that failed, with its last line
/// last.
pub(crate) fn unpacked(name: &str, script: &str) -> Result<PathBuf, String> {
    let folder = target().join(format!("package-{name}"));
    let complete = folder.join("complete");
    let lock = File::create(folder.with_extension("lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    if fs::read_to_string(&complete).is_ok_and(|it| it == script) {
        return Ok(folder);
    }
    // Starts again if an earlier attempt was left unfinished.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let output = Command::new("/bin/sh").args(["-c", script]).current_dir(&folder).output().unwrap();
    if !output.status.success() {
        let _ = fs::remove_dir_all(&folder);
        return Err(format!("{name} cannot be unpacked here: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    fs::write(complete, script).unwrap();
    Ok(folder)
}

/// Returns a program of the machine, or of the distribution's package of the same name, where it lies at `place`. It
/// has to know `--version`.
pub(crate) fn program(name: &str, place: &str) -> Result<PathBuf, String> {
    let folders = env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect::<Vec<_>>();
    let own = folders.iter().map(|it| it.join(name)).find(|it| it.is_file());
    let path = own.map_or_else(|| unpacked(name, &with_wrapper(name, place)).map(|it| it.join("run")), Ok)?;
    let output = Command::new(&path).arg("--version").output().map_err(|it| format!("{}: {it}", path.display()))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(path) } else { Err(format!("{}: {errors}", path.display())) }
}

/// Unpacks a package whose programs need no libraries of their own, and gives the folder with its programs.
pub(crate) fn programs(name: &str) -> Result<PathBuf, String> {
    unpacked(name, &format!("{APT}\nunpack {name}\n")).map(|it| it.join("usr/bin"))
}

/// Makes `run`, which starts the program with the libraries that came with it; some packages have a folder of their own
/// for them.
fn with_wrapper(name: &str, place: &str) -> String {
    format!(
        r#"{APT}
unpack {name}
folders=$(find "$PWD"/usr/lib/*-linux-gnu -maxdepth 1 -type d | tr '\n' ':')
cat >run <<END
#!/bin/sh
LD_LIBRARY_PATH="\$LD_LIBRARY_PATH:$folders" exec "$PWD/{place}" "\$@"
END
chmod +x run
"#
    )
}
