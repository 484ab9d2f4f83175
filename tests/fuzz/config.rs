//! Any bytes as the user's file: it is understood whole, or one line says what is wrong with it.

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
        let words = fault.to_string();
        assert!(!words.contains(|it: char| it.is_control()), "{words:?}");
        assert!(words.len() < 2000, "{words:?}");
    }
});
