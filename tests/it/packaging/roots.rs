//! Roots of Debian that hold next to nothing, in which packages are installed, used and removed.

use super::{assert_works, built, done, files_of, package};
use crate::{
    helpers::{
        debian::{APT, unpacked},
        torch::{self, Gpu, target},
    },
    probe::containers,
    recordings::other_tools::has,
};
use std::{
    collections::BTreeSet,
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

/// What the job's Python, which is mounted, needs of a system; a shell and `env` for the rest.
const SYSTEM: &str = "libc6 libgcc-s1 libstdc++6 gcc-12-base libcrypt1 zlib1g libbz2-1.0 liblzma5 libffi8 libssl3 libexpat1 \
                      libuuid1 libsqlite3-0 libtinfo6 libncursesw6 libreadline8 libdb5.3 dash";

/// Debian 11, the oldest that its mirrors have.
const OLD: &str =
    "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bullseye main";

/// Unpacks packages as they are, whatever this machine has of them, and nothing that they depend on.
fn script(sources: &str, packages: &str) -> String {
    format!(
        "{APT}\n{sources}\napt update\nmkdir root\napt -o Dir::State::status=/dev/null download {packages}\n{UNPACK}"
    )
}

const UNPACK: &str = "for it in *.deb; do dpkg -x $it root; done\nrm -r lists cache *.deb\n";

/// Runs a command as a user, a number without a home, in a root, with folders of this machine.
const ENTER: &str = r#"
set -e
user=$1 root=$2 folders=$3
shift 3
for it in $folders; do
    mkdir -p "$root$it"
    mount --rbind "$it" "$root$it"
done
mount -t proc proc "$root/proc"
exec chroot --userspec="$user" "$root" "$@"
"#;

/// A user whose name and home no system knows.
const USER: &str = "31337:31337";

/// A root that is thrown away.
struct Root {
    dir: TempDir,
    /// Folders of this machine that are in it: devices, the job's Python, the simulated machine and its driver.
    folders: Vec<PathBuf>,
}

impl Root {
    fn new(from: &Path, gpu: &Gpu) -> Self {
        let dir = tempfile::tempdir().unwrap();
        done(Command::new("cp").arg("-a").arg(from.join("root/.")).arg(dir.path()));
        for (it, mode) in [("", 0o755), ("proc", 0o755), ("dev", 0o755), ("tmp", 0o1777), ("root", 0o755)] {
            fs::create_dir_all(dir.path().join(it)).unwrap();
            fs::set_permissions(dir.path().join(it), fs::Permissions::from_mode(mode)).unwrap();
        }
        let python = torch::python();
        let prefix = done(Command::new(&python).args(["-c", "import sys; print(sys.base_prefix)"]));
        let venv = python.parent().and_then(Path::parent).unwrap();
        let folders = [Path::new("/dev"), Path::new(prefix.trim()), venv, torch::libraries(), gpu.dir()];
        Self { folders: folders.map(Path::to_owned).to_vec(), dir }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn enter(&self, gpu: &Gpu, program: &Path) -> Command {
        // Another user than the one whose test this is writes there.
        done(Command::new("chmod").args(["-R", "a+rwX"]).arg(gpu.dir()));
        let folders: Vec<String> = self.folders.iter().map(|it| it.display().to_string()).collect();
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", ENTER, "sh", USER]).arg(self.path()).arg(folders.join(" ")).arg(program);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("OMP_NUM_THREADS", "1");
        command.envs(gpu.environment());
        command
    }
}

/// A tool of a distribution that works on a root: this machine's, or the one that `packaging/package` has unpacked.
fn manager(name: &str, root: &Root) -> Command {
    let unpacked = target().join("tools").join(name);
    let mut command = Command::new(name);
    if has(name).is_err() {
        command = Command::new(unpacked.join("usr/bin").join(name));
        command.env("LD_LIBRARY_PATH", unpacked.join(format!("usr/lib/{}-linux-gnu", env::consts::ARCH)));
        command.env("RPM_CONFIGDIR", unpacked.join("usr/lib/rpm"));
    }
    command.arg(format!("--root={}", root.path().display()));
    command
}

/// What is below `/usr`: the rest belongs to the tools.
fn installed(root: &Root) -> BTreeSet<PathBuf> {
    files_of(&root.path().join("usr")).into_iter().filter(|it| !it.is_dir()).collect()
}

/// As a user without a home, because a container or a cluster may have no more.
#[test]
fn packages_install_in_a_clean_root_work_for_a_user_without_a_home_and_leave_nothing() {
    containers::needs_unshare!(["--mount"]);
    let from = test_tiers::needs!(unpacked("root", &script("", SYSTEM)));
    for kind in ["deb", "rpm"] {
        let gpu = torch::machine();
        let root = Root::new(&from, &gpu);
        let before = installed(&root);
        let file = package(kind, &gpu.dir().join("out"));
        // The root has the libraries, and no record of their packages.
        let (name, install, remove): (_, &[&str], &[&str]) = if kind == "deb" {
            ("dpkg", &["--force-depends", "--install"], &["--purge", "gpuwatch"])
        } else {
            ("rpm", &["--nodeps", "--install"], &["--erase", "gpuwatch"])
        };
        if kind == "deb" {
            let state = root.path().join("var/lib/dpkg");
            for it in ["updates", "info"] {
                fs::create_dir_all(state.join(it)).unwrap();
            }
            fs::write(state.join("status"), "").unwrap();
        }
        done(manager(name, &root).args(install).arg(&file));
        assert!(installed(&root).contains(&root.path().join("usr/share/man/man1/gpuwatch.1.gz")), "{kind}");
        assert_works(&gpu, Path::new("/usr/bin/gpuwatch"), |program| root.enter(&gpu, program));
        done(manager(name, &root).args(remove));
        assert_eq!(installed(&root), before, "{kind}: removing it leaves files");
    }
}

/// The tests' own program may need a newer glibc; one of a release does not.
#[test]
fn a_released_program_runs_on_an_old_system() {
    if built().is_none() {
        test_tiers::skip!("GPUWATCH_PACKAGES names no packages of a release");
    }
    containers::needs_unshare!(["--mount"]);
    let sources = format!("echo '{OLD}' >sources.list");
    let from = test_tiers::needs!(unpacked("old-root", &script(&sources, "libc6 libgcc-s1 dash")));
    let gpu = torch::machine();
    let root = Root::new(&from, &gpu);
    let file = package("tarball", &gpu.dir().join("out"));
    done(Command::new("tar").arg("-xzf").arg(&file).args(["--strip-components=1", "-C"]).arg(root.path().join("usr")));
    let picture = gpu.dir().join("demo.svg");
    done(root.enter(&gpu, Path::new("/usr/bin/gpuwatch")).args(["demo", "--screenshot"]).arg(&picture));
    assert!(fs::read_to_string(&picture).unwrap().contains("rank 1"));
}
