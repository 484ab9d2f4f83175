//! The shape of the house, checked: layers, room size, a doc line per file, clocks where they belong.

use std::{
    fs,
    path::{Path, PathBuf},
};

const MAX_LINES: usize = 400;

/// Rooms that may ask a clock: sources stamp events, the shell waits.
const CLOCK_ROOMS: [&str; 7] = ["source", "sink", "live", "player", "launch", "demo", "once"];

#[test]
fn layers_point_downwards_only() {
    let src = root().join("src");
    let layers = layers(&src);
    let mut faults = Vec::new();
    for (name, text) in texts(&src) {
        let room = name.split(['/', '.']).next().unwrap_or_default().to_owned();
        let Some(own) = layers.iter().position(|it| *it == room) else { continue };
        for used in used_rooms(&text) {
            if layers.iter().position(|it| *it == used).is_some_and(|it| it > own) {
                faults.push(format!("src/{name}: `{room}` reaches up to `{used}`"));
            }
        }
        let clock = ["Instant::now", "SystemTime::now", "clock_gettime"];
        if clock.iter().any(|it| code(&text).contains(it)) && !CLOCK_ROOMS.contains(&room.as_str()) {
            faults.push(format!("src/{name}: asks a clock; time is a field of events"));
        }
    }
    assert!(layers.len() > 10, "lib.rs lists the layers");
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn every_file_says_what_it_is_for_and_stays_small() {
    let mut faults = Vec::new();
    for dir in ["src", "probes/gpuwatch-probe/src", "simgpu/src", "tests"] {
        for (name, text) in texts(&root().join(dir)) {
            if dir != "tests" && text.lines().count() > MAX_LINES {
                faults.push(format!("{dir}/{name}: more than {MAX_LINES} lines"));
            }
            if !text.starts_with("//!") {
                faults.push(format!("{dir}/{name}: the first line does not say what the file is for"));
            }
            if text.lines().any(|it| it != it.trim_end()) {
                faults.push(format!("{dir}/{name}: trailing blanks"));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// A test that cannot run says why, with the macros of `tests/tiers`.
#[test]
fn no_test_returns_early() {
    let mut faults = Vec::new();
    for dir in ["tests/it", "probes/gpuwatch-probe/tests", "simgpu/tests"] {
        for (name, text) in texts(&root().join(dir)) {
            for test in text.split("\n#[test]\n").skip(1) {
                let body = test.split("\n}\n").next().unwrap_or_default();
                let is_early = |line: &str| ["return;", "{ return };"].iter().any(|it| line.trim_end().ends_with(it));
                if code(body).lines().any(is_early) {
                    let title = body.lines().find(|it| it.starts_with("fn ")).unwrap_or_default();
                    faults.push(format!("{dir}/{name}: {title}"));
                }
            }
        }
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn unsafe_code_stays_where_it_is_allowed() {
    let allowed =
        ["src/launch/sys.rs", "probes/gpuwatch-probe/src/sys", "probes/gpuwatch-probe/src/abi", "simgpu/src/"];
    let mut faults = Vec::new();
    for dir in ["src", "probes/gpuwatch-probe/src", "simgpu/src"] {
        for (name, text) in texts(&root().join(dir)) {
            let path = format!("{dir}/{name}");
            let uses = code(&text).split(|c: char| !c.is_alphanumeric() && c != '_').any(|it| it == "unsafe");
            if uses && !allowed.iter().any(|it| path.starts_with(it)) {
                faults.push(format!("{path}: unsafe code"));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The layer order is the order of `mod` lines in `lib.rs`, so there is one list, not two.
fn layers(src: &Path) -> Vec<String> {
    let text = fs::read_to_string(src.join("lib.rs")).unwrap();
    text.lines().filter_map(|it| it.strip_prefix("pub mod ")?.strip_suffix(';')).map(str::to_owned).collect()
}

fn code(text: &str) -> String {
    text.lines().map(|it| it.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// Every `crate::x`, and every `x` of `crate::{x, y::z}`.
fn used_rooms(text: &str) -> Vec<String> {
    let first_word =
        |it: &str| it.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let code = code(text);
    let mut rooms = Vec::new();
    for rest in code.split("crate::").skip(1) {
        let Some(group) = rest.strip_prefix('{') else {
            rooms.push(first_word(rest));
            continue;
        };
        let mut depth = 1;
        let mut item = String::new();
        for c in group.chars() {
            depth += i32::from(c == '{') - i32::from(c == '}');
            if depth == 0 || (depth == 1 && c == ',') {
                rooms.push(first_word(&item));
                item.clear();
                if depth == 0 {
                    break;
                }
            } else {
                item.push(c);
            }
        }
    }
    rooms
}

fn texts(dir: &Path) -> Vec<(String, String)> {
    let mut files = Vec::new();
    collect(dir, &mut files);
    files.sort();
    files
        .into_iter()
        .map(|it| (it.strip_prefix(dir).unwrap().display().to_string(), fs::read_to_string(&it).unwrap()))
        .collect()
}

fn collect(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().map(|it| it.unwrap().path()) {
        if entry.is_dir() {
            collect(&entry, out);
        } else if entry.extension().is_some_and(|it| it == "rs") {
            out.push(entry);
        }
    }
}
