//! Any bytes as lines of a probe, or of a stream's two pipes: each is decoded or refused, and a decoded line is encoded
//! to the same text.

#![no_main]

use gpuwatch::{
    facts::remote::Request,
    storage::{
        recording::{Entry, decode, encode},
        stream,
    },
};
use gpuwatch_probe::wire::{self, Line};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for line in bytes.split(|it| *it == b'\n') {
        if let Some(request) = Request::read(line) {
            assert_eq!(Request::read(request.line().as_bytes()), Some(request));
        }
        let Ok(text) = str::from_utf8(line) else { continue };
        let _ = stream::decode(text);
        if let Ok(printed) = serde_json::from_str::<Line>(text) {
            let mut again = String::new();
            wire::encode(&printed, &mut again);
            if printed != Line::Unknown {
                assert_eq!(serde_json::from_str::<Line>(&again).unwrap(), printed, "{again}");
            }
        }
        if let Ok(Entry::Event(event)) = decode(text) {
            // A recording leaves out what its reader needs not: from then on nothing more is lost.
            let written = |event| {
                let mut line = String::new();
                encode(event, &mut line);
                line
            };
            let line = written(&event);
            if !line.is_empty() {
                match decode(line.trim_end()) {
                    Ok(Entry::Event(read)) => assert_eq!(written(&read), line),
                    other => panic!("{line}: {other:?}"),
                }
            }
        }
    }
});
