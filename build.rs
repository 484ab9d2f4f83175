//! Builds the probe as a shared library and embeds it, with its Python side, into the program.
//!
//! One direct `rustc` call: the probe needs nothing but the standard library, and a nested cargo would wait for
//! the lock that this build holds. `GPUWATCH_PROBE_SO` hands in a library that is built already.
//!
//! With glibc it is bound to old versions of glibc's calls, so that it loads in jobs whose C library is older than this
//! machine's (2.28 and later). If the linker cannot do that, this script builds without it and prints a warning.

use std::{
    env,
    error::Error,
    ffi::OsString,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(variable("OUT_DIR")?);
    println!("cargo::rustc-env=GPUWATCH_VERSION={}", version(&root)?);
    let sources = PathBuf::from(variable("DEP_GPUWATCH_PROBE_SOURCES")?);
    for it in [&sources, &root.join("probes/python"), &root.join("build.rs")] {
        println!("cargo::rerun-if-changed={}", it.display());
    }
    println!("cargo::rerun-if-env-changed=GPUWATCH_PROBE_SO");
    let library = if let Some(it) = env::var_os("GPUWATCH_PROBE_SO").filter(|it| !it.is_empty()) {
        let library = PathBuf::from(it);
        // Not so for what is made here: it is always newer than the build that made it, which would never be done.
        println!("cargo::rerun-if-changed={}", library.display());
        library
    } else {
        compile(&sources, &out)?
    };
    let mut files = vec![("gpuwatch_probe/libgpuwatch_probe.so".to_owned(), library)];
    let python = root.join("probes/python");
    files.push(("sitecustomize.py".to_owned(), python.join("gpuwatch_boot/sitecustomize.py")));
    for path in sorted(&python.join("gpuwatch_probe"))? {
        if path.extension().is_some_and(|it| it == "py") {
            let name = path.file_name().map(|it| it.to_string_lossy().into_owned()).unwrap_or_default();
            files.push((format!("gpuwatch_probe/{name}"), path));
        }
    }
    fs::write(out.join("assets.rs"), embedded(&files)?)?;
    Ok(())
}

/// The version, with the commit it was built from, where that is known, and the kind of build.
fn version(root: &Path) -> Outcome<String> {
    let (number, target, profile) = (env!("CARGO_PKG_VERSION"), env::var("TARGET")?, env::var("PROFILE")?);
    let commit = commit(root, &profile);
    let commit = commit.as_deref().map_or("commit unknown", |it| it.get(..12).unwrap_or(it));
    Ok(format!("{number} ({commit}, {profile} build for {target})"))
}

/// Packages name the commit; packed crates and archives that git makes hold it. In a repository, only a release build asks
/// git, because every commit would compile the program again.
fn commit(root: &Path, profile: &str) -> Option<String> {
    println!("cargo::rerun-if-env-changed=GPUWATCH_COMMIT");
    let named = env::var("GPUWATCH_COMMIT").ok();
    let packed = || {
        let text = fs::read_to_string(root.join(".cargo_vcs_info.json")).ok()?;
        Some(text.split_once("\"sha1\": \"")?.1.split('"').next()?.to_owned())
    };
    let archived = || fs::read_to_string(root.join("packaging/commit")).ok();
    let of_repository = || {
        let is_asked = profile == "release" && root.join(".git").exists();
        let git = |arguments: &[&str]| {
            let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
            String::from_utf8(output.stdout).ok().filter(|_| is_asked)
        };
        // The log of this place: it grows with each commit and each checkout.
        println!("cargo::rerun-if-changed={}", git(&["rev-parse", "--git-path", "logs/HEAD"])?.trim());
        git(&["rev-parse", "HEAD"])
    };
    let is_commit = |it: &String| it.len() >= 12 && it.bytes().all(|byte| byte.is_ascii_hexdigit());
    let found = [named, packed(), archived()].into_iter().flatten().map(|it| it.trim().to_owned()).find(is_commit);
    found.or_else(|| of_repository().map(|it| it.trim().to_owned()).filter(is_commit))
}

fn compile(sources: &Path, out: &Path) -> Outcome<PathBuf> {
    let library = out.join("libgpuwatch_probe.so");
    let target = env::var("TARGET")?;
    let has_floor = target.ends_with("-linux-gnu") && ["x86_64-", "aarch64-"].iter().any(|it| target.starts_with(it));
    if has_floor && rustc(sources, &library, &target)?.args(FLOOR).status().is_ok_and(|it| it.success()) {
        return Ok(library);
    }
    let done = rustc(sources, &library, &target)?
        .status()
        .map_err(|error| format!("cannot start rustc for the probe: {error}"))?;
    if !done.success() {
        return Err(format!("rustc could not build the probe: {done}").into());
    }
    if has_floor {
        println!(
            "cargo::warning=this linker cannot bind the probe to old releases of glibc: jobs need this one or a newer"
        );
    }
    Ok(library)
}

/// Flags that bind the library to old versions (`sys/floor.rs`). They name the two libraries because systems before
/// glibc 2.34 have some of the calls in them; on later ones the libraries are empty.
const FLOOR: [&str; 3] = [
    "--cfg",
    "gpuwatch_floor",
    "-Clink-args=-Wl,--push-state,--no-as-needed -l:libpthread.so.0 -l:libdl.so.2 -Wl,--pop-state",
];

fn rustc(sources: &Path, library: &Path, target: &str) -> Outcome<Command> {
    let mut rustc = Command::new(variable("RUSTC")?);
    rustc.arg(sources.join("lib.rs")).arg("-o").arg(library);
    rustc.args([
        "--crate-name",
        "gpuwatch_probe",
        "--crate-type",
        "cdylib",
        "--edition",
        "2024",
        "--cap-lints",
        "allow",
    ]);
    rustc.args(["-Copt-level=3", "-Clto=fat", "-Ccodegen-units=1", "-Cstrip=symbols", "-Cpanic=unwind"]);
    // The same library from every folder.
    rustc.arg(format!("--remap-path-prefix={}=gpuwatch-probe", sources.display()));
    rustc.args(["--target", target]);
    if target.contains("musl") {
        rustc.arg("-Ctarget-feature=-crt-static");
    }
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut flag = OsString::from("-Clinker=");
        flag.push(linker);
        rustc.arg(flag);
    }
    rustc.env("CARGO_PKG_VERSION", env!("CARGO_PKG_VERSION"));
    Ok(rustc)
}

/// Rust source: the files' names and contents, and a name for this set of contents.
fn embedded(files: &[(String, PathBuf)]) -> Outcome<String> {
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    let mut text = String::from("pub(super) const FILES: &[(&str, &[u8])] = &[\n");
    for (name, path) in files {
        let content = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        hash.take(name.as_bytes());
        hash.take(&[0]);
        hash.take(&content);
        let path = path.canonicalize()?;
        let path = path.to_str().ok_or("the sources lie under a path that is no UTF-8")?;
        writeln!(text, "    ({name:?}, include_bytes!({path:?})),")?;
    }
    let architecture = env::var("CARGO_CFG_TARGET_ARCH")?;
    writeln!(text, "];\npub(super) const NAME: &str = \"{architecture}-{:016x}\";", hash.0)?;
    Ok(text)
}

fn sorted(folder: &Path) -> Outcome<Vec<PathBuf>> {
    let mut paths = fs::read_dir(folder)?.map(|it| it.map(|it| it.path())).collect::<Result<Vec<_>, _>>()?;
    paths.sort();
    Ok(paths)
}

fn variable(name: &str) -> Outcome<OsString> {
    env::var_os(name).ok_or_else(|| format!("cargo did not set {name}").into())
}

/// FNV-1a: names a directory; the contents themselves are compared at each start.
struct Fnv(u64);

impl Fnv {
    fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}
