//! The doctor on machines that lack something: what is wrong is named, with what to do about it.

use crate::{driver::nvml::Bench, helpers::terminal::PROGRAM, house::schemas};
use ::simgpu::Fault;
use serde_json::Value;
use std::{
    fs,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::Path,
    process::{Command, Stdio},
};
use tempfile::TempDir;

/// A home where all is well but the driver.
fn home() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    fs::DirBuilder::new().mode(0o700).create(home.path().join("sockets")).unwrap();
    home
}

fn doctor(home: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["doctor", "--json"]).stdin(Stdio::null());
    command
        .env("GPUWATCH_SOCKET_DIR", home.join("sockets"))
        .env("GPUWATCH_NVML_PATH", "/nonexistent/libnvidia-ml.so.1")
        .env("XDG_CACHE_HOME", home.join("cache"))
        .env("XDG_STATE_HOME", home.join("state"))
        .env("XDG_CONFIG_HOME", home.join("config"))
        .env_remove("XDG_RUNTIME_DIR")
        .env_remove("GPUWATCH_CONFIG")
        .env("LC_ALL", "C.UTF-8");
    command
}

/// The state, the report and the advice of a check.
struct Report(Value);

impl Report {
    fn by(command: &mut Command) -> Self {
        let output = command.output().unwrap();
        let reported: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
        assert_eq!(output.status.code(), Some(i32::from(reported["ok"] == false)), "{reported}");
        schemas::check("doctor", &reported);
        Self(reported)
    }

    fn check(&self, name: &str) -> (String, String, String) {
        let all = self.0["checks"].as_array().unwrap();
        let it = all.iter().find(|it| it["name"] == name).unwrap_or_else(|| panic!("no {name}: {}", self.0));
        let text = |key: &str| it[key].as_str().unwrap_or_default().to_owned();
        assert_eq!(text("state") == "ok", it["advice"].is_null() || text("state") == "ok", "{it}");
        (text("state"), text("what"), text("advice"))
    }

    fn assert(&self, name: &str, state: &str, what: &str, advice: &str) {
        let (is, reported, advised) = self.check(name);
        assert!(
            is == state && reported.contains(what) && advised.contains(advice),
            "{name} is {is}: {reported}; {advised}"
        );
    }
}

#[test]
fn a_healthy_machine_gets_no_advice() {
    let (home, bench) = (home(), Bench::new());
    bench.machine.set_faults(&[]).unwrap();
    let mut command = doctor(home.path());
    command.envs(bench.environment()).env("GPUWATCH_SOCKET_DIR", home.path().join("sockets"));
    let reported = Report::by(&mut command);
    reported.assert("driver", "ok", "answers through", "");
    reported.assert("devices", "ok", "2 listed", "");
    reported.assert("processes", "ok", "1 on devices", "");
    reported.assert("probes", "ok", "protocol 1", "");
    reported.assert("attach", if reported.check("attach").0 == "ok" { "ok" } else { "warn" }, "", "");
    reported.assert("sockets", "ok", "mode 0700", "");
    reported.assert("probe", "ok", "loadable", "");
    reported.assert("recordings", "ok", "writable", "");
    reported.assert("config", "ok", "defaults", "");
    reported.assert("locale", "ok", "UTF-8", "");
    reported.assert("terminal", "warn", "not a terminal", "gpuwatch once");
    assert_eq!(reported.0["ok"], true);

    bench.machine.set_faults(&[Fault::NoProcessMemory]).unwrap();
    Report::by(&mut command_of(&home, &bench)).assert("processes", "warn", "does not report", "probe");
    bench.machine.set_faults(&[Fault::Line("no-permission nvmlInit_v2".into())]).unwrap();
    Report::by(&mut command_of(&home, &bench)).assert("driver", "fail", "may not ask", "/dev/nvidia");
    bench.machine.set_faults(&[]).unwrap();
}

fn command_of(home: &TempDir, bench: &Bench) -> Command {
    let mut command = doctor(home.path());
    command.envs(bench.environment()).env("GPUWATCH_SOCKET_DIR", home.path().join("sockets"));
    command
}

#[test]
fn a_machine_without_a_driver_gets_advice_on_how_to_install_it() {
    let home = home();
    let reported = Report::by(&mut doctor(home.path()));
    reported.assert("driver", "fail", "libnvidia-ml", "GPUWATCH_NVML_PATH");
    reported.assert("processes", "warn", "no driver", "probe");
    assert_eq!(reported.0["ok"], false);
    let text = doctor(home.path()).env_remove("LC_ALL").env("LC_ALL", "C").output().unwrap().stdout;
    assert!(String::from_utf8(text).unwrap().contains("C.UTF-8"), "the locale is reported");
}

#[test]
fn wrong_directory_modes_and_a_broken_config_fail_with_advice() {
    let home = home();
    fs::set_permissions(home.path().join("sockets"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir_all(home.path().join("config/gpuwatch")).unwrap();
    fs::write(home.path().join("config/gpuwatch/config.toml"), "[view]\ntheem = 'dusk'\n").unwrap();
    fs::write(home.path().join("state"), "a file").unwrap();
    let reported = Report::by(&mut doctor(home.path()));
    reported.assert("sockets", "fail", "its mode is 0755", "chmod 0700");
    reported.assert("config", "fail", "config.toml:2: ", "gpuwatch generate config");
    assert!(reported.check("config").1.contains("the nearest is \"theme\""));
    // What every other command refuses is no valid value.
    for (text, words) in [
        ("[view]\ntheme = 'dsk'\n", "there is no theme of that name"),
        ("[driver]\ninterval = 'fast'\n", "\"fast\" is not a time"),
        ("[view]\npreset = 'trainings'\n", "the nearest is \"training\""),
    ] {
        fs::write(home.path().join("config/gpuwatch/config.toml"), text).unwrap();
        Report::by(&mut doctor(home.path())).assert("config", "fail", words, "gpuwatch generate config");
    }
    reported.assert("recordings", "fail", "cannot be written", "XDG_STATE_HOME");
}

#[test]
fn doctor_finds_python_without_running_foreign_code() {
    let home = home();
    let reported = Report::by(doctor(home.path()).env("PATH", home.path()));
    reported.assert("pytorch", "warn", "no python on PATH", "environment");

    // An environment whose `site` would leave a trace, and whose torch must not be imported.
    let (bin, packages) = (home.path().join("venv/bin"), home.path().join("venv/lib"));
    fs::create_dir_all(&bin).unwrap();
    let python =
        Command::new("python3").args(["-c", "import sys; print(sys.executable, *sys.version_info[:2])"]).output();
    let python = String::from_utf8(python.unwrap().stdout).unwrap();
    let [program, major, minor] = python.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{python}") };
    let packages = packages.join(format!("python{major}.{minor}/site-packages"));
    fs::create_dir_all(&packages).unwrap();
    std::os::unix::fs::symlink(program, bin.join("python")).unwrap();
    fs::write(
        home.path().join("venv/pyvenv.cfg"),
        format!("home = {}\n", Path::new(program).parent().unwrap().display()),
    )
    .unwrap();
    let trace = home.path().join("trace");
    for (name, text) in [("sitecustomize.py", "open"), ("torch.py", "open")] {
        fs::write(packages.join(name), format!("{text}({trace:?}, 'w')\n")).unwrap();
    }
    Report::by(doctor(home.path()).env("PATH", &bin)).assert("pytorch", "warn", "without PyTorch", "environment");
    fs::create_dir(packages.join("torch-1.13.1.dist-info")).unwrap();
    Report::by(doctor(home.path()).env("PATH", &bin)).assert(
        "pytorch",
        "warn",
        "PyTorch 1.13.1: the probe needs 2.3",
        "update",
    );
    fs::remove_dir(packages.join("torch-1.13.1.dist-info")).unwrap();
    fs::create_dir(packages.join("torch-2.15.0+cu130.dist-info")).unwrap();
    Report::by(doctor(home.path()).env("PATH", &bin)).assert("pytorch", "ok", "with PyTorch 2.15.0+cu130", "");
    // An environment that takes it from another folder; `site` would run the line with code.
    let other = home.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::rename(packages.join("torch-2.15.0+cu130.dist-info"), other.join("torch-2.15.0+cu130.dist-info")).unwrap();
    Report::by(doctor(home.path()).env("PATH", &bin)).assert("pytorch", "warn", "without PyTorch", "environment");
    let code = format!("# {}\nimport os; open({trace:?}, 'w')", home.path().display());
    fs::write(packages.join("other.pth"), format!("{code}\nnothing-here\n{}\n", other.display())).unwrap();
    Report::by(doctor(home.path()).env("PATH", &bin)).assert("pytorch", "ok", "with PyTorch 2.15.0+cu130", "");
    assert!(!trace.exists(), "something of the environment was run");
}

/// Where this process may mount, a cache that forbids execution; where it may not, one that cannot be written.
#[test]
fn a_cache_that_forbids_execution_is_reported_with_advice() {
    let home = home();
    let mount = "mount -t tmpfs -o noexec cache \"$XDG_CACHE_HOME\" && exec \"$@\"";
    fs::create_dir(home.path().join("cache")).unwrap();
    let own = doctor(home.path());
    let mut inside = Command::new("unshare");
    inside.args(["--mount", "sh", "-c", mount, "sh", PROGRAM, "doctor", "--json"]).stdin(Stdio::null());
    let environment: Vec<_> =
        own.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))).collect();
    inside.envs(environment);
    let can_mount = Command::new("unshare").args(["--mount", "true"]).status().is_ok_and(|it| it.success());
    let reported = if can_mount {
        Report::by(&mut inside)
    } else {
        fs::remove_dir(home.path().join("cache")).unwrap();
        fs::write(home.path().join("cache"), "a file").unwrap();
        Report::by(&mut doctor(home.path()))
    };
    reported.assert("probe", "warn", "forbids execution", "XDG_CACHE_HOME");
}
