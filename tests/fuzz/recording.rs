//! Any bytes as a recording: they are read as far as they go, folded, judged and reported, in bounded memory and time.

#![no_main]

use gpuwatch::{model::alerts::Policy, commands::{check::{Limits, check}, report::Report}, storage::replay::recording_set::{RecordingSet, Track}, facts::text::Foreign};
use libfuzzer_sys::fuzz_target;
use rustix::fs::{MemfdFlags, memfd_create};
use std::{
    fs::File,
    io::{self, Write},
};

fuzz_target!(|bytes: &[u8]| {
    let Some((form, rest)) = bytes.split_first() else { return };
    // Changed compressed bytes rarely pass the checksum, so the harness compresses other files itself.
    let file = if form % 2 == 0 { in_memory(rest) } else { zstd::encode_all(rest, 1).and_then(|it| in_memory(&it)) };
    let track = file.and_then(|it| Track::new(it, Foreign::new("fuzz"), None)).unwrap();
    let recordings = RecordingSet::new(vec![track]);
    let verdict = check(&recordings, &Limits::default(), &Policy::default());
    assert!(verdict.text().lines().all(|it| !it.contains(|c: char| c.is_control())));
    let report = Report::read(&recordings, &Policy::default());
    let page = report.html();
    assert_eq!(page.matches("<script").count(), 2, "nothing of a recording is markup");
});

fn in_memory(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("recording", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file)
}
