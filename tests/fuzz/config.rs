//! Reads any bytes as the user's file: gpuwatch accepts all of it, or one line names the error.

#![no_main]

use clap::Parser;
use gpuwatch::config::File;
use libfuzzer_sys::fuzz_target;
use std::{fs, sync::LazyLock};
use tempfile::NamedTempFile;

#[derive(Parser)]
struct Options {
    #[command(flatten)]
    file: File,
}

static PLACE: LazyLock<NamedTempFile> = LazyLock::new(|| NamedTempFile::new().unwrap());

fuzz_target!(|bytes: &[u8]| {
    fs::write(PLACE.path(), bytes).unwrap();
    let options = Options::parse_from(["fuzz".as_ref(), "--config".as_ref(), PLACE.path().as_os_str()]);
    if let Err(fault) = options.file.read() {
        let message = fault.to_string();
        assert!(!message.contains(|it: char| it.is_control()), "{message:?}");
        assert!(message.len() < 2000, "{message:?}");
    }
});
