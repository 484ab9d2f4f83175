//! Passes the place of these sources on to the crates that depend on them.

fn main() -> Result<(), std::env::VarError> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::metadata=sources={}/src", std::env::var("CARGO_MANIFEST_DIR")?);
    println!("cargo::rustc-check-cfg=cfg(gpuwatch_floor)");
    Ok(())
}
