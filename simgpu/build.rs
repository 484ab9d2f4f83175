//! Compiles the simulated device (`src/gpu/lib.rs`, std only) to one shared object, which the library embeds.

use std::{
    env,
    error::Error,
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=src/gpu");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(simgpu_device)");
    let out = PathBuf::from(env::var("OUT_DIR")?).join("libsimgpu.so");
    let mut rustc = Command::new(env::var("RUSTC")?);
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut flag = OsString::from("-Clinker=");
        flag.push(linker);
        rustc.arg(flag);
    }
    let status = rustc
        .args(["--edition", "2024", "--crate-type", "cdylib", "--crate-name", "simgpu_device"])
        .args(["--cfg", "simgpu_device", "--cap-lints", "allow"])
        .args(["-C", "opt-level=2", "-C", "codegen-units=4", "-C", "strip=debuginfo"])
        .args(["-C", "link-arg=-Wl,-soname,libsimgpu.so", "--target", &env::var("TARGET")?])
        .arg("-o")
        .arg(&out)
        .arg(Path::new("src/gpu/lib.rs"))
        .status()?;
    if !status.success() {
        return Err("the simulated device does not compile".into());
    }
    Ok(())
}
