//! The probe's library for aarch64: built beside this machine's own, loaded by a job of that kind, and watched.
//!
//! What it takes (the standard library for aarch64, a compiler for C, an emulator) is Debian's; it is unpacked and not
//! installed.

use super::{Bench, Job, STEPS, check_counted, check_off, probes};
use crate::{
    helpers::{debian::unpacked, torch::stdout},
    probe::old_glibc::newer,
};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// apt uses its own lists, so that nothing on the machine changes.
const UNPACK: &str = r#"
set -e
mkdir -p lists/partial cache/archives/partial debs
own="-q -o Dir::State::Lists=$PWD/lists -o Dir::Cache=$PWD/cache -o APT::Architectures::=amd64 -o APT::Architectures::=arm64"
apt-get $own update
first() { apt-cache $own depends "$1" | sed -n "s/^ *Depends: \($2[^ ]*\)$/\1/p" | head -n 1; }
std=$(first libstd-rust-web-dev libstd-rust-web-)
gcc=$(first gcc-aarch64-linux-gnu gcc-)
cd debs
apt-get $own download rustc-web "$std" "$(first "$std" libllvm)" libstd-rust-web-dev:arm64 \
    "$gcc" "$(first "$gcc" cpp-)" "$(first "$gcc" libgcc-)" binutils-aarch64-linux-gnu libgcc-s1-arm64-cross \
    libc6-arm64-cross libc6-dev-arm64-cross linux-libc-dev-arm64-cross qemu-user-static
cd ..
for it in debs/*.deb; do dpkg -x "$it" .; done
ln -s "aarch64-linux-gnu-${gcc%-aarch64-linux-gnu}" usr/bin/gcc-for-aarch64
LD_LIBRARY_PATH=usr/lib/x86_64-linux-gnu usr/bin/rustc --version
find usr/bin -name 'qemu-*' ! -name qemu-aarch64-static -delete
rm -r lists cache debs usr/share
"#;

/// A tool, with the libraries that lie beside it.
fn tool(tools: &Path, name: &str) -> Command {
    let mut command = Command::new(tools.join("usr/bin").join(name));
    command.env("LD_LIBRARY_PATH", tools.join("usr/lib/x86_64-linux-gnu"));
    command
}

/// As `build.rs` builds it.
fn library(tools: &Path, folder: &Path) -> PathBuf {
    let library = folder.join("libgpuwatch_probe.so");
    let mut rustc = tool(tools, "rustc");
    rustc.arg(probes("gpuwatch-probe/src/lib.rs")).arg("-o").arg(&library);
    rustc.args(["--crate-name", "gpuwatch_probe", "--crate-type", "cdylib", "--edition", "2024"]);
    rustc.args(["--cap-lints", "allow", "--target", "aarch64-unknown-linux-gnu", "--cfg", "gpuwatch_floor"]);
    rustc.args(["-Copt-level=3", "-Clto=fat", "-Ccodegen-units=1", "-Cstrip=symbols", "-Cpanic=unwind"]);
    rustc.arg("--sysroot").arg(tools.join("usr"));
    rustc.arg(format!("-Clinker={}", tools.join("usr/bin/gcc-for-aarch64").display()));
    rustc.arg(format!("-Clink-arg=--sysroot={}", tools.display()));
    rustc.arg("-Clink-args=-Wl,--push-state,--no-as-needed -l:libpthread.so.0 -l:libdl.so.2 -Wl,--pop-state");
    stdout(&rustc.output().unwrap());
    library
}

#[test]
fn a_job_on_aarch64_is_watched_through_the_library_for_it() {
    test_tiers::full!("an emulator and a compiler are downloaded");
    let (bench, tools) = (Bench::new(), test_tiers::needs!(unpacked("aarch64", UNPACK)));
    let folder = bench.home.0.path();
    let library = library(&tools, folder);
    let header = stdout(&tool(&tools, "aarch64-linux-gnu-objdump").arg("-p").arg(&library).output().unwrap());
    assert!(header.contains("aarch64") && newer(&header).is_empty(), "{:?} in {header}", newer(&header));

    let program = folder.join("train");
    let mut compile = tool(&tools, "gcc-for-aarch64");
    compile.arg(format!("--sysroot={}", tools.display())).args(["-std=c11", "-I"]).arg(probes("gpuwatch-probe"));
    compile.arg(probes("gpuwatch-probe/examples/c/train.c")).arg("-o").arg(&program);
    compile.arg("-L").arg(folder).arg("-lgpuwatch_probe");
    compile.arg(format!("-Wl,-rpath-link,{}", tools.join("usr/aarch64-linux-gnu/lib").display()));
    stdout(&compile.output().unwrap());
    let command = || {
        let mut command = bench.command(tools.join("usr/bin/qemu-aarch64-static"));
        command.arg("-L").arg(tools.join("usr/aarch64-linux-gnu"));
        command.args(["-E", &format!("LD_LIBRARY_PATH={}", folder.display())]);
        command.arg(&program).args([STEPS, &bench.uuid()]);
        command
    };
    let job = Job::start(command());
    check_counted(&bench, &job, "c");
    job.end();
    check_off(&bench, command());
}
