//! Any bytes from a viewer: the probe answers with its own lines, serves the next viewer, and its job continues.

#![no_main]

use gpuwatch_probe::{
    Description, Probe,
    wire::{Hello, Line},
};
use libfuzzer_sys::fuzz_target;
use std::{
    io::{BufRead, BufReader, ErrorKind, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::LazyLock,
    time::Duration,
};
use tempfile::TempDir;

static HOME: LazyLock<TempDir> = LazyLock::new(|| TempDir::new().unwrap());

static PROBE: LazyLock<Probe> = LazyLock::new(|| {
    let home = HOME.path();
    let description = Description {
        hello: Hello::default(),
        log: Some(home.join("log")),
        directories: vec![home.join("sockets")],
        ..Description::default()
    };
    let probe = Probe::start(description).unwrap();
    probe.mark("epoch", Some(1)).unwrap();
    probe
});

fuzz_target!(|bytes: &[u8]| {
    let mut stream = UnixStream::connect(PROBE.socket()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
    // The probe does not read a refused viewer's remaining bytes.
    let _ = stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write));
    let mut lines = 0;
    for line in BufReader::new(stream).lines() {
        match line {
            Ok(line) => {
                let printed: Line = serde_json::from_str(&line).unwrap();
                assert!(lines > 0 || matches!(printed, Line::Hello(_) | Line::Refused(_)), "{line}");
                lines += 1;
                if matches!(printed, Line::Live(_)) {
                    return;
                }
            }
            Err(fault) => {
                assert!(matches!(fault.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{fault}");
                return;
            }
        }
    }
});
