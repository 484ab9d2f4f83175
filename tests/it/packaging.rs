//! The packages of `packaging/package`: their contents are right, and they install, work and uninstall.

use crate::{
    pty::PROGRAM,
    tools::has,
    torch::{self, target},
};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Runs a command that must succeed, and returns its standard output.
fn done(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Builds a kind of package from the program of these tests, and returns its file.
fn package(kind: &str, into: &Path) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/package");
    done(Command::new(script).arg(kind).arg(into).env("PROGRAM", PROGRAM));
    fs::read_dir(into).unwrap().next().unwrap().unwrap().path()
}

fn files_of(folder: &Path) -> BTreeSet<PathBuf> {
    let list = done(Command::new("find").arg(folder).args(["-not", "-name", "__pycache__", "-not", "-name", "*.pyc"]));
    list.lines().map(PathBuf::from).collect()
}

#[test]
fn a_tarball_holds_program_manual_and_completions_and_is_the_same_each_time() {
    test_tiers::full!("a program for tests is large to pack");
    let dir = tempfile::tempdir().unwrap();
    let files = ["one", "two"].map(|it| package("tarball", &dir.path().join(it)));
    assert!(fs::read(&files[0]).unwrap() == fs::read(&files[1]).unwrap(), "two tarballs of one program differ");
    let list = done(Command::new("tar").arg("-tzf").arg(&files[0]));
    for part in
        ["bin/gpuwatch", "man1/gpuwatch-run.1", "completions/gpuwatch", "_gpuwatch", "gpuwatch.fish", "LICENSE-MIT"]
    {
        assert!(list.lines().any(|it| it.ends_with(part)), "{part}: {list}");
    }
}

#[test]
fn a_debian_package_names_its_architecture_and_what_it_needs() {
    test_tiers::full!("a program for tests is large to pack");
    test_tiers::needs!(has("dpkg-deb"));
    let dir = tempfile::tempdir().unwrap();
    let file = package("deb", &dir.path().join("out"));
    let fields = done(Command::new("dpkg-deb").arg("--info").arg(&file));
    let architecture = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
    for field in ["Package: gpuwatch", &format!("Architecture: {architecture}"), "Depends: libc6 (>= 2.28)"] {
        assert!(fields.contains(field), "{field}: {fields}");
    }
    let root = dir.path().join("root");
    done(Command::new("dpkg-deb").arg("-x").arg(&file).arg(&root));
    let version = done(Command::new(root.join("usr/bin/gpuwatch")).arg("--version"));
    assert!(version.starts_with("gpuwatch "), "{version}");
    assert!(root.join("usr/share/man/man1/gpuwatch-run.1.gz").exists());
}

/// Without a network, once the tool that packs it is there.
#[test]
fn a_wheel_installs_the_program_and_the_probe_and_leaves_nothing() {
    test_tiers::full!("the tool that packs wheels is downloaded");
    let dir = tempfile::tempdir().unwrap();
    let wheel = package("wheel", &dir.path().join("out"));
    let venv = dir.path().join("venv");
    done(Command::new("python3").args(["-m", "venv"]).arg(&venv));
    let before = files_of(&venv);
    let pip = |arguments: &[&str]| done(Command::new(venv.join("bin/pip")).args(arguments));
    pip(&[
        "install",
        "--quiet",
        "--no-index",
        "--find-links",
        wheel.parent().unwrap().to_str().unwrap(),
        "gpuwatch-tui",
    ]);
    assert!(done(Command::new(venv.join("bin/gpuwatch")).arg("--version")).starts_with("gpuwatch "));
    let loaded = "import gpuwatch_probe._native as it; print(it.path())";
    let library = done(Command::new(venv.join("bin/python")).args(["-c", loaded]));
    assert!(Path::new(library.trim()).starts_with(&venv) && Path::new(library.trim()).exists(), "{library}");
    // The probe of the wheel serves a job that imports it, without `gpuwatch run`.
    let folder = Path::new(library.trim()).ancestors().nth(2).unwrap().to_owned();
    let job = "import gpuwatch_probe, torch; gpuwatch_probe.start(); torch.ones(9, device='cuda'); \
               from gpuwatch_probe import _probe; print(_probe is not None)";
    let gpu = torch::machine();
    let printed = torch::stdout(&gpu.script(job).env("PYTHONPATH", folder).output().unwrap());
    assert_eq!(printed.trim(), "True");
    pip(&["uninstall", "--quiet", "--yes", "gpuwatch-tui"]);
    assert_eq!(files_of(&venv), before, "uninstalling leaves files");
}

/// As `cargo install` builds it: from the packed crates alone, in a folder outside of the repository.
#[test]
fn the_packed_crates_build_outside_of_the_repository() {
    test_tiers::full!("the program is built once more");
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    package("crate", &out);
    let mut patches = Vec::new();
    for file in fs::read_dir(&out).unwrap().map(|it| it.unwrap().path()) {
        done(Command::new("tar").arg("-xzf").arg(&file).arg("-C").arg(dir.path()));
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        let (crate_name, _) = name.rsplit_once('-').unwrap();
        if crate_name != "gpuwatch" {
            let place = dir.path().join(&name);
            patches.push(format!("patch.crates-io.{crate_name}.path={:?}", place.to_str().unwrap()));
        }
    }
    assert_eq!(patches.len(), 3, "{patches:?}");
    let source = dir.path().join(format!("gpuwatch-{}", env!("CARGO_PKG_VERSION")));
    let build = target().join("packed");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet"]).current_dir(&source).env("CARGO_TARGET_DIR", &build);
    cargo.args(patches.iter().flat_map(|it| ["--config", it]));
    done(&mut cargo);
    let program = build.join("debug/gpuwatch");
    assert!(done(Command::new(&program).arg("--version")).starts_with("gpuwatch "));
    // It embeds the probe.
    let home = tempfile::tempdir().unwrap();
    let environment =
        done(Command::new(&program).arg("env").env("HOME", home.path()).env("XDG_CACHE_HOME", home.path()));
    assert!(environment.contains("libgpuwatch_probe.so"), "{environment}");
}
