//! Any bytes as lines of a probe: each is decoded or refused, and what was understood is said again in the same words.

#![no_main]

use gpuwatch::recording::{Entry, decode, encode};
use gpuwatch_probe::wire::{self, Line};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for line in bytes.split(|it| *it == b'\n') {
        let Ok(text) = str::from_utf8(line) else { continue };
        if let Ok(said) = serde_json::from_str::<Line>(text) {
            let mut again = String::new();
            wire::encode(&said, &mut again);
            if said != Line::Unknown {
                assert_eq!(serde_json::from_str::<Line>(&again).unwrap(), said, "{again}");
            }
        }
        if let Ok(Entry::Event(event)) = decode(text) {
            let mut again = String::new();
            encode(&event, &mut again);
            if !again.is_empty() {
                assert_eq!(decode(again.trim_end()).unwrap(), Entry::Event(event), "{again}");
            }
        }
    }
});
