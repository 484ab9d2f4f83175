//! The packages of `packaging/package`: their contents are right, and they install, work and uninstall.
//!
//! `GPUWATCH_PACKAGES` names a folder with packages, as `packaging/release` does; without it, the tests pack the
//! program of this build.

/// Roots that hold next to nothing.
mod roots;
/// The steps of a release.
mod steps;

use crate::{
    fit::pytest::{PYTEST, fresh},
    helpers::{
        terminal::PROGRAM,
        torch::{self, Gpu, target},
        venv::Venv,
    },
    house::tidy::root,
    probe::launch::Home,
    recordings::{other_tools::has, writer::read},
};
use gpuwatch::{
    facts::event::{Event, Fact, Line},
    storage::recording::Entry,
};
use std::{
    collections::BTreeSet,
    env,
    ffi::OsStr,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// The kinds of packages with one file, and how its name ends.
const KINDS: [(&str, &str); 4] = [("wheel", ".whl"), ("tarball", ".tar.gz"), ("deb", ".deb"), ("rpm", ".rpm")];

/// Runs a command that must succeed, and returns its standard output.
fn done(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let printed = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it).into_owned());
    assert!(output.status.success(), "{command:?}: {printed:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the folder of packages that are built already.
fn built() -> Option<PathBuf> {
    env::var_os("GPUWATCH_PACKAGES").filter(|it| !it.is_empty()).map(PathBuf::from)
}

/// The program of these tests without what is only for debuggers, which is most of its size.
fn program() -> &'static Path {
    static STRIPPED: OnceLock<PathBuf> = OnceLock::new();
    STRIPPED.get_or_init(|| {
        let path = target().join(format!("stripped-{}", std::process::id()));
        done(Command::new("strip").arg("-o").arg(&path).arg(PROGRAM));
        path
    })
}

/// A script that runs the program of these tests: packed at once, and with the same name of a glibc as a program has.
fn thin(dir: &Path) -> PathBuf {
    let path = dir.join("gpuwatch");
    fs::write(&path, format!("#!/bin/sh\n# GLIBC_2.28\nexec '{PROGRAM}' \"$@\"\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Packs a program into a folder.
fn pack(kind: &str, program: &Path, into: &Path) {
    done(Command::new(root().join("packaging/package")).arg(kind).arg(into).env("PROGRAM", program));
}

/// Returns a package: one that is built already, or one of these tests' program, packed into a folder.
fn package(kind: &str, into: &Path) -> PathBuf {
    let (_, end) = KINDS.iter().find(|it| it.0 == kind).unwrap();
    let folder = built().unwrap_or_else(|| {
        pack(kind, program(), into);
        into.to_owned()
    });
    let own = |name: &str| {
        let of_this_machine = [env::consts::ARCH, "amd64", "arm64"].iter().any(|it| name.contains(it));
        name.ends_with(end) && of_this_machine
    };
    let files = fs::read_dir(&folder).unwrap().map(|it| it.unwrap().path());
    let mut found = files.filter(|it| it.file_name().and_then(OsStr::to_str).is_some_and(own));
    found.next().unwrap_or_else(|| panic!("no {kind} in {}", folder.display()))
}

fn architecture() -> &'static str {
    if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" }
}

fn files_of(folder: &Path) -> BTreeSet<PathBuf> {
    let list = done(Command::new("find").arg(folder).args(["-not", "-name", "__pycache__", "-not", "-name", "*.pyc"]));
    list.lines().map(PathBuf::from).collect()
}

/// The job of these tests: three steps.
const JOB: &str = "import torch
weight = torch.nn.Parameter(torch.ones(99, device='cuda'))
optimizer = torch.optim.SGD([weight], lr=.1)
for _ in range(3):
    weight.sum().backward()
    optimizer.step()
";

/// Fails unless an installed program draws its demo and watches a PyTorch job. `start` makes a command of its name, on
/// a machine that it is given.
fn assert_works(gpu: &Gpu, program: &Path, start: impl Fn(&Path) -> Command) {
    let picture = gpu.dir().join("demo.svg");
    done(start(program).args(["demo", "--screenshot"]).arg(&picture));
    assert!(fs::read_to_string(&picture).unwrap().contains("rank 1"), "{}", picture.display());
    let (script, recording) = (gpu.dir().join("job.py"), gpu.dir().join("job.jsonl.zst"));
    fs::write(&script, JOB).unwrap();
    let mut run = start(program);
    done(run.args(["run", "-o"]).arg(&recording).arg("--").arg(torch::python()).arg(&script));
    let is_sample = |it: &Entry| matches!(it, Entry::Event(Event { fact: Fact::Probe { line, .. }, .. }) if matches!(**line, Line::Sample(_)));
    let samples = read(&recording).0.iter().filter(|it| is_sample(it)).count();
    assert!(samples >= 3, "{samples} samples of three steps");
}

/// A home that holds nothing but what the program puts there.
fn at_home(gpu: &Gpu) -> impl Fn(&Path) -> Command {
    |program| {
        let mut command = gpu.command(program);
        command.env("HOME", gpu.dir()).env_remove("XDG_CACHE_HOME").env_remove("XDG_STATE_HOME");
        command.env("GPUWATCH_SOCKET_DIR", gpu.dir().join("sockets")).env_remove("XDG_CONFIG_HOME");
        command
    }
}

#[test]
fn a_tarball_holds_program_manual_and_completions_and_works_where_it_is_unpacked() {
    test_tiers::full!("a program for tests is large to pack");
    let gpu = torch::machine();
    let file = package("tarball", &gpu.dir().join("out"));
    let list = done(Command::new("tar").arg("-tzf").arg(&file));
    for part in
        ["bin/gpuwatch", "man1/gpuwatch-run.1", "completions/gpuwatch", "_gpuwatch", "gpuwatch.fish", "LICENSE-MIT"]
    {
        assert!(list.lines().any(|it| it.ends_with(part)), "{part}: {list}");
    }
    done(Command::new("tar").arg("-xzf").arg(&file).arg("-C").arg(gpu.dir()));
    let folder = list.lines().next().unwrap().trim_end_matches('/');
    assert_works(&gpu, &gpu.dir().join(folder).join("bin/gpuwatch"), at_home(&gpu));
}

/// The steps that pack; `packaging/release again` compares builds too.
#[test]
fn two_packages_of_one_program_are_the_same_to_the_byte() {
    test_tiers::full!("a program for tests is large to pack");
    let dir = tempfile::tempdir().unwrap();
    let thin = thin(dir.path());
    for kind in KINDS.map(|it| it.0).into_iter().chain(["crate"]) {
        let folders = ["one", "two"].map(|it| dir.path().join(kind).join(it));
        let [one, two] = folders.each_ref().map(|it| {
            pack(kind, &thin, it);
            let files = fs::read_dir(it).unwrap().map(|file| file.unwrap().path());
            files.map(|file| (file.file_name().unwrap().to_owned(), fs::read(&file).unwrap())).collect::<Vec<_>>()
        });
        assert!(!one.is_empty() && BTreeSet::from_iter(one) == BTreeSet::from_iter(two), "{kind} differs");
    }
}

#[test]
fn packages_name_their_architecture_and_what_they_need() {
    test_tiers::full!("a program for tests is large to pack");
    test_tiers::needs!(has("dpkg-deb"));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("out").join(format!("gpuwatch_{}-1_{}.deb", env!("CARGO_PKG_VERSION"), architecture()));
    pack("deb", &thin(dir.path()), file.parent().unwrap());
    let fields = done(Command::new("dpkg-deb").arg("--info").arg(&file));
    let architecture = architecture();
    for field in ["Package: gpuwatch", &format!("Architecture: {architecture}"), "Depends: libc6 (>= 2.28)"] {
        assert!(fields.contains(field), "{field}: {fields}");
    }
    let root = dir.path().join("root");
    done(Command::new("dpkg-deb").arg("-x").arg(&file).arg(&root));
    assert!(root.join("usr/share/man/man1/gpuwatch-run.1.gz").exists());
    assert!(root.join("usr/share/doc/gpuwatch/copyright").exists());
}

/// Wheels of a release run with glibc 2.28, and so does every library within the program: they are embedded as they
/// are, so that the names of their symbols' versions are among its bytes.
#[test]
fn nothing_in_a_released_wheel_asks_for_more_than_glibc_2_28() {
    let Some(folder) = built() else { test_tiers::skip!("GPUWATCH_PACKAGES names no packages of a release") };
    let wheels = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
    let wheels: Vec<_> = wheels.filter(|it| it.extension().is_some_and(|end| end == "whl")).collect();
    assert!(!wheels.is_empty());
    for wheel in wheels {
        assert!(fs::metadata(&wheel).unwrap().len() <= 8 << 20, "{} is larger than 8 MiB", wheel.display());
        let dir = tempfile::tempdir().unwrap();
        done(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&wheel).arg(dir.path()));
        let mut seen = 0;
        for file in files_of(dir.path()).into_iter().filter(|it| it.is_file()) {
            let bytes = fs::read(&file).unwrap();
            let text = String::from_utf8_lossy(&bytes);
            for version in text.split("GLIBC_2.").skip(1) {
                let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
                // The program looks for these names, too.
                if digits.is_empty() {
                    continue;
                }
                seen += 1;
                assert!(digits.parse::<u32>().is_ok_and(|it| it <= 28), "{}: GLIBC_2.{digits}", file.display());
            }
        }
        assert!(seen > 5, "{seen}");
    }
}

/// Without a network, once the tool that packs it is there.
#[test]
fn a_wheel_installs_the_program_and_the_probe_and_leaves_nothing() {
    test_tiers::full!("the tool that packs wheels is downloaded");
    let gpu = torch::machine();
    let wheel = package("wheel", &gpu.dir().join("out"));
    let venv = gpu.dir().join("venv");
    done(Command::new("python3").args(["-m", "venv"]).arg(&venv));
    let before = files_of(&venv);
    let pip = |arguments: &[&OsStr]| done(Command::new(venv.join("bin/pip")).args(arguments));
    pip(&["install", "--quiet", "--no-index"]
        .map(OsStr::new)
        .into_iter()
        .chain([wheel.as_os_str()])
        .collect::<Vec<_>>());
    assert!(done(Command::new(venv.join("bin/gpuwatch")).arg("--version")).starts_with("gpuwatch "));
    assert_works(&gpu, &venv.join("bin/gpuwatch"), at_home(&gpu));
    let loaded = "import gpuwatch_probe._native as it; print(it.path())";
    let library = done(Command::new(venv.join("bin/python")).args(["-c", loaded]));
    assert!(Path::new(library.trim()).starts_with(&venv) && Path::new(library.trim()).exists(), "{library}");
    let plugin = "from importlib.metadata import entry_points as of; print([it.value for it in of(group='pytest11')])";
    let plugin = done(Command::new(venv.join("bin/python")).args(["-c", plugin]));
    assert_eq!(plugin.trim(), "['gpuwatch_probe.pytest_plugin']");
    // The probe of the wheel serves a job that imports it, without `gpuwatch run`.
    let folder = Path::new(library.trim()).ancestors().nth(2).unwrap().to_owned();
    let job = "import gpuwatch_probe, torch; gpuwatch_probe.start(); torch.ones(9, device='cuda'); \
               from gpuwatch_probe import _probe; print(_probe is not None)";
    let printed = torch::stdout(&gpu.script(job).env("PYTHONPATH", folder).output().unwrap());
    assert_eq!(printed.trim(), "True");
    pip(&["uninstall", "--quiet", "--yes", "gpuwatch-tui"].map(OsStr::new));
    assert_eq!(files_of(&venv), before, "uninstalling leaves files");
}

/// In an environment that has PyTorch and pytest, as another step has installed them.
#[test]
fn the_plugin_of_a_wheel_tests_a_suite_with_tests_of_its_own_by_several_workers() {
    test_tiers::full!("the tools that pack wheels and that test are downloaded");
    test_tiers::needs!(PYTEST.found());
    let home = Home::new();
    let folder = home.0.path();
    let wheel = package("wheel", &folder.join("out"));
    let python = fresh(&folder.join("venv"));
    done(Command::new(python.with_file_name("pip")).args(["install", "--quiet", "--no-index"]).arg(&wheel));
    fs::write(folder.join("test_gpu.py"), include_str!("fit/pytest/test_gpu.py")).unwrap();
    let mut tests = Command::new(python);
    tests.args(["-m", "pytest", "-n", "2", "--gpuwatch", "RTX 4090", "--tb=short", "-rs", "-p", "no:cacheprovider"]);
    tests.current_dir(folder).env("COLUMNS", "80").env("OMP_NUM_THREADS", "1").env_remove("PYTHONPATH");
    let output = tests.envs(home.variables()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for part in [
        "3 failed, 3 passed, 1 skipped",
        "over the limit of 64.00 MiB, at test_gpu.py:",
        "grows +512.0 KiB/step, and no growth is allowed; test_gpu.py:15 allocates what\n  stays\n",
        "GPU memory, RTX 4090",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let wide: Vec<&str> = text.lines().filter(|it| it.chars().count() > 80 && !it.starts_with("SKIPPED")).collect();
    assert!(wide.is_empty(), "{wide:#?}");
}

/// What else installs wheels.
static INSTALLERS: Venv = Venv {
    variable: "GPUWATCH_INSTALLERS_VENV",
    name: "venv-installers-1",
    holds: "uv and pipx (a download of about 25 MB)",
    packages: &[&[
        "uv==0.13.9",
        "pipx==1.18.4",
        "argcomplete==3.7.2",
        "click==8.5.1",
        "filelock==4.2.12",
        "packaging==26.3",
        "platformdirs==4.14.8",
        "userpath==1.9.2",
    ]],
    above: None,
    python: OnceLock::new(),
};

/// Without a network, and in a home of their own.
#[test]
fn uvx_and_pipx_start_the_program_of_a_wheel() {
    test_tiers::full!("uv and pipx are downloaded");
    let python = test_tiers::needs!(INSTALLERS.found());
    let (gpu, home) = (torch::machine(), tempfile::tempdir().unwrap());
    let wheel = package("wheel", &gpu.dir().join("out"));
    let tool = |name: &str| {
        let mut command = Command::new(python.with_file_name(name));
        command.env("HOME", home.path()).env("XDG_DATA_HOME", home.path().join("data")).env("UV_OFFLINE", "1");
        command.env("UV_PYTHON_DOWNLOADS", "never").env("PIP_NO_INDEX", "1").env_remove("XDG_CACHE_HOME");
        command.env("PIPX_HOME", home.path().join("pipx")).env("PIPX_BIN_DIR", home.path().join("bin"));
        command.env("PIPX_DEFAULT_BACKEND", "uv").env("UV_PYTHON", &python).env("PATH", python.parent().unwrap());
        command
    };
    let version = done(tool("uvx").arg("--from").arg(&wheel).args(["gpuwatch", "--version"]));
    assert!(version.starts_with("gpuwatch "), "{version}");
    done(tool("pipx").args(["install", "--quiet"]).arg(&wheel));
    let program = home.path().join("bin/gpuwatch");
    assert_eq!(done(Command::new(&program).arg("--version")), version);
    assert_works(&gpu, &program, at_home(&gpu));
    done(tool("pipx").args(["uninstall", "--quiet", "gpuwatch-tui"]));
    assert!(!program.exists());
}

/// As `cargo install` builds it: from the packed crates alone, in a folder outside of the repository.
#[test]
fn the_packed_crates_build_outside_of_the_repository() {
    test_tiers::full!("the program is built once more");
    let (gpu, dir) = (torch::machine(), tempfile::tempdir().unwrap());
    let out = built().unwrap_or_else(|| {
        pack("crate", program(), &dir.path().join("out"));
        dir.path().join("out")
    });
    let mut patches = Vec::new();
    let files = fs::read_dir(&out).unwrap().map(|it| it.unwrap().path());
    for file in files.filter(|it| it.extension().is_some_and(|end| end == "crate")) {
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
    // The crate names its commit, without a repository around it.
    let version = done(Command::new(&program).arg("--version"));
    let packed: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(source.join(".cargo_vcs_info.json")).unwrap()).unwrap();
    let commit = packed["git"]["sha1"].as_str().and_then(|it| it.get(..12)).unwrap();
    assert!(version.contains(&format!("({commit}, debug build for ")), "{version}");
    assert_works(&gpu, &program, at_home(&gpu));
}
