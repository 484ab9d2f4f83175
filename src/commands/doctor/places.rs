//! The directories of sockets, the probe's files and recordings, and the config file.

use super::Check;
use crate::{
    commands::Invocation,
    config,
    jobs::launch::{assets::Assets, unusable},
    storage::sink::store::Store,
};
use gpuwatch_probe::socket::{Reason, check, directories};
use rustix::fs::{Access, access, statvfs};
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Free space for days of recordings.
const ROOM: u64 = 1 << 30;

pub(super) fn checks(invocation: &Invocation) -> Vec<Check> {
    let file = user_file(&invocation.config, invocation.config_error.clone());
    vec![sockets(&directories()), library(), recordings(), file]
}

fn sockets(all: &[PathBuf]) -> Check {
    const NAME: &str = "sockets";
    let mut used = Vec::new();
    for directory in all {
        let path = directory.display();
        match check(directory) {
            Ok(()) => used.push(format!("{path}: yours, mode 0700")),
            Err(Reason::Missing) => {}
            Err(why) => {
                let advice = match why {
                    Reason::Mode(_) => format!("chmod 0700 {path}"),
                    _ => format!("remove {path}, or set GPUWATCH_SOCKET_DIR to a directory of mode 0700"),
                };
                return Check::fail(NAME, format!("{path} is not used: {why}"), advice);
            }
        }
    }
    match (used.is_empty(), all.first()) {
        (true, first) => match (all.iter().find(|it| unusable(it).is_ok()), first) {
            (Some(made), _) => Check::ok(NAME, format!("the first job will make {}", made.display())),
            (None, first) => {
                let why = first.and_then(|it| unusable(it).err()).unwrap_or_else(|| "no directory is known".to_owned());
                let what = format!("no job can make a socket ({why})");
                Check::fail(NAME, what, "set GPUWATCH_SOCKET_DIR to a directory of mode 0700")
            }
        },
        _ => Check::ok(NAME, used.join(", ")),
    }
}

fn library() -> Check {
    const NAME: &str = "probe";
    let assets = match Assets::unpack_to_stay() {
        Ok(assets) => assets,
        Err(trouble) => {
            let why = trouble.to_string();
            return match Assets::unpack() {
                Ok(assets) => loaded(NAME, assets.library()).unwrap_or_else(|| {
                    let advice = "`gpuwatch run` works; for `gpuwatch env` set XDG_CACHE_HOME to a directory that allows execution";
                    Check::warn(NAME, format!("the library can lie in memory only: {why}"), advice)
                }),
                Err(_) => Check::fail(NAME, why, "set XDG_CACHE_HOME to a directory of your own that allows execution"),
            };
        }
    };
    if let Some(fault) = loaded(NAME, assets.library()) {
        return fault;
    }
    let place = assets.library().display();
    match assets.passed_over().first() {
        Some(why) => Check::warn(
            NAME,
            format!("loadable, from {place}; not from {why}"),
            "set XDG_CACHE_HOME to a directory that only you can write to and that allows execution",
        ),
        None => Check::ok(NAME, format!("loadable, from {place}")),
    }
}

/// Returns why the system's loader refuses a library.
fn loaded(name: &'static str, library: &Path) -> Option<Check> {
    let mut program = Command::new("/bin/true");
    program.env("LD_PRELOAD", library).stdin(Stdio::null()).stdout(Stdio::null());
    let output = program.output().ok()?.stderr;
    let output = String::from_utf8_lossy(&output);
    let why = output.lines().find(|it| it.contains("ld.so"))?;
    let advice = if why.contains("GLIBC") {
        "this C library is older than the probe needs (2.28, where it was built as usual): use a newer system, or build gpuwatch here"
    } else {
        "the probe fits this machine's programs not: is gpuwatch built for it, and does its cache allow execution?"
    };
    Some(Check::fail(name, why.to_owned(), advice))
}

fn recordings() -> Check {
    const NAME: &str = "recordings";
    let Some(store) = Store::user() else {
        return Check::fail(
            NAME,
            "there is no home directory for them",
            "set HOME or XDG_STATE_HOME, or use `gpuwatch record -o FILE`",
        );
    };
    let path = store.directory.display();
    let there = store.directory.ancestors().find(|it| it.exists()).unwrap_or(Path::new("/"));
    if access(there, Access::WRITE_OK | Access::EXEC_OK).is_err() || !there.is_dir() {
        let what = format!("{path} cannot be written");
        return Check::fail(
            NAME,
            what,
            format!("check the owner and mode of {}, or set XDG_STATE_HOME", there.display()),
        );
    }
    let free = statvfs(there).map_or(u64::MAX, |it| it.f_bavail.saturating_mul(it.f_frsize));
    let size = crate::facts::units::Bytes(free);
    if free < ROOM {
        return Check::warn(
            NAME,
            format!("{path}: only {size} are free"),
            "remove old recordings, or set [recordings] keep-bytes in the config",
        );
    }
    Check::ok(NAME, format!("{path}: writable, {size} free"))
}

/// Checks the config file; `fault` is what keeps gpuwatch from using it.
fn user_file(config: &config::File, fault: Option<config::Fault>) -> Check {
    const NAME: &str = "config";
    match fault.map_or_else(|| config.read(), Err) {
        Ok(settings) if settings == config::Settings::default() => Check::ok(NAME, "nothing is set: the defaults hold"),
        Ok(settings) => {
            let lists = [&settings.policy.allow, &settings.policy.silence];
            let keys = settings.flags.len() + lists.iter().filter(|it| !it.is_empty()).count();
            Check::ok(NAME, format!("valid; it sets {}", crate::facts::units::counted(keys as u64, "key")))
        }
        Err(fault) => {
            Check::fail(NAME, fault.to_string(), "`gpuwatch generate config` prints one that holds, with every key")
        }
    }
}
