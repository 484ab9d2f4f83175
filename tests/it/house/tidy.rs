//! The shape of the house, checked: layers, room size, a doc line per file, clocks where they belong.

/// No circles among modules.
mod cycles;
/// What the documents for developers name.
mod mentioned;
/// Names of files, modules and arguments.
mod names;
/// Nested closures.
mod nested;

use crate::helpers::rust_source::{Token, tokens};
use std::{
    fs,
    path::{Path, PathBuf},
};

const MAX_LINES: usize = 600;

const MAX_WIDTH: usize = 120;

/// Folders whose files list their rooms in layer order.
const GROUPS: [&str; 8] = ["facts", "model", "storage", "net", "hosts", "screen", "jobs", "commands"];

/// Rooms that may ask a clock: sources stamp events, the shell waits.
const CLOCK_ROOMS: [&str; 11] = [
    "sources",
    "storage::sink",
    "jobs::launch",
    "jobs::attach",
    "screen::event_loop",
    "commands::live",
    "commands::cluster",
    "commands::replay",
    "commands::snapshot",
    "commands::demo",
    "commands::once",
];

#[test]
fn layers_point_downwards_only() {
    let src = root().join("src");
    let layers = layers(&src);
    let mut faults = Vec::new();
    for (name, text) in texts(&src) {
        let path = name.trim_end_matches(".rs").replace('/', "::");
        let Some(own) = layers.iter().position(|it| is_within(&path, it)) else { continue };
        let room = &layers[own];
        for used in cycles::named(&path, &code(&text)) {
            if layers.iter().position(|it| is_within(&used, it)).is_some_and(|it| it > own) {
                faults.push(format!("src/{name}: `{room}` reaches up to `{used}`"));
            }
        }
        let clock = ["Instant::now", "SystemTime::now", "clock_gettime"];
        if clock.iter().any(|it| code(&text).contains(it)) && !CLOCK_ROOMS.contains(&room.as_str()) {
            faults.push(format!("src/{name}: asks a clock; time is a field of events"));
        }
    }
    assert!(layers.len() > 30, "the files list the layers");
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn every_file_begins_with_its_purpose_and_stays_small() {
    let mut faults = Vec::new();
    for dir in ["src", "nvml/src", "probes/gpuwatch-probe/src", "simgpu/src", "tests"] {
        for (name, text) in texts(&root().join(dir)) {
            if dir != "tests" && text.lines().count() > MAX_LINES {
                faults.push(format!("{dir}/{name}: more than {MAX_LINES} lines"));
            }
            if !text.starts_with("//!") {
                faults.push(format!("{dir}/{name}: the first line does not describe the purpose of the file"));
            }
            if text.lines().any(|it| it != it.trim_end()) {
                faults.push(format!("{dir}/{name}: trailing blanks"));
            }
        }
    }
    let shim = root().join("probes/python/gpuwatch_probe");
    let modules = fs::read_dir(shim).unwrap().map(|it| it.unwrap().path());
    let modules: Vec<_> = modules.filter(|it| it.extension().is_some_and(|ending| ending == "py")).collect();
    assert!(modules.len() > 20, "{modules:?}");
    for it in modules {
        let text = fs::read_to_string(&it).unwrap();
        if text.lines().count() > MAX_LINES || !text.starts_with("\"\"\"") {
            faults.push(format!("{}: more than {MAX_LINES} lines, or no purpose in its first one", it.display()));
        }
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// `cargo fmt` leaves comments as they are.
#[test]
fn comments_fit_120_columns() {
    let mut faults = Vec::new();
    for dir in ["src", "nvml", "probes", "simgpu", "tests"] {
        for (name, text) in texts(&root().join(dir)) {
            let lines: Vec<_> = text.lines().collect();
            let comments = tokens(&text).into_iter().filter(|it| matches!(it.1, Token::Comment(_))).map(|it| it.0);
            let wide = comments.filter(|line| lines[line - 1].chars().count() > MAX_WIDTH);
            faults.extend(wide.map(|line| format!("{dir}/{name}:{line}: a comment wider than {MAX_WIDTH} columns")));
        }
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// A test that cannot run reports why, with the macros of `tests/tiers`.
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
    let allowed = [
        "src/jobs/launch/sys.rs",
        "src/sources/child.rs",
        "src/jobs/attach/trace.rs",
        "src/screen/term/crash.rs",
        "nvml/src/",
        "probes/gpuwatch-probe/src/sys",
        "probes/gpuwatch-probe/src/abi",
        "simgpu/src/",
    ];
    let mut faults = Vec::new();
    for dir in ["src", "nvml/src", "probes/gpuwatch-probe/src", "simgpu/src"] {
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

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The layer order is the order of `mod` lines in `lib.rs` and in the folders' own files (`GROUPS`), so there is one
/// list, not two.
fn layers(src: &Path) -> Vec<String> {
    let modules = |file: PathBuf| -> Vec<String> {
        let text = fs::read_to_string(file).unwrap();
        text.lines().filter_map(|it| it.strip_prefix("pub mod ")?.strip_suffix(';')).map(str::to_owned).collect()
    };
    let mut layers = Vec::new();
    for top in modules(src.join("lib.rs")) {
        if GROUPS.contains(&top.as_str()) {
            layers.extend(modules(src.join(format!("{top}.rs"))).iter().map(|it| format!("{top}::{it}")));
        } else {
            layers.push(top);
        }
    }
    layers
}

/// Whether the path is the module's, or of something in it.
fn is_within(path: &str, module: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn code(text: &str) -> String {
    text.lines().map(|it| it.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The paths that a use tree at the start of `text` stands for, and what follows the tree.
fn paths<'a>(prefix: &str, text: &'a str) -> (Vec<String>, &'a str) {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        let mut all = Vec::new();
        loop {
            // A list over several lines ends with a comma.
            if let Some(after) = rest.trim_start().strip_prefix('}') {
                return (all, after);
            }
            let (some, after) = paths(prefix, rest);
            all.extend(some);
            let after = after.trim_start();
            // The tree has ended, or it is invalid.
            let Some(next) = after.strip_prefix(',') else { return (all, after.strip_prefix('}').unwrap_or(after)) };
            rest = next;
        }
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let path = if prefix.is_empty() { word.to_owned() } else { format!("{prefix}::{word}") };
    match rest.strip_prefix("::") {
        Some(rest) if !word.is_empty() => paths(&path, rest),
        _ => {
            (vec![path], rest.trim_start_matches(" as ").trim_start_matches(|c: char| c.is_alphanumeric() || c == '_'))
        }
    }
}

#[test]
fn a_use_tree_is_read_as_the_compiler_reads_it() {
    let text = "use crate::{\n    model::{session::Session, alerts as known},\n    facts::{\n        units,\n    },\n};\n\
        let it = crate::cli::main();\nuse super::{part, super_part::Thing,};\nuse super::super::model;\n\
        use self::own::It;";
    let expected = [
        "model::session::Session",
        "model::alerts",
        "facts::units",
        "cli::main",
        "commands::part",
        "commands::super_part::Thing",
        "model",
        "commands::live::own::It",
    ];
    assert_eq!(cycles::named("commands::live", text), expected);
}

/// Returns the Rust files below a directory: their names from there, and their texts.
pub(crate) fn texts(dir: &Path) -> Vec<(String, String)> {
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
        } else if entry.extension().is_some_and(|ending| ending == "rs") {
            out.push(entry);
        }
    }
}
