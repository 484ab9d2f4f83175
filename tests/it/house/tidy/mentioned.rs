//! What ARCHITECTURE.md and CONTRIBUTING.md name exists: files, modules, types and functions.

use super::{root, texts};
use std::{collections::BTreeSet, fs};

/// Folders with modules: the first segment of a module path is the name of a file or folder somewhere below them.
const CRATES: [&str; 5] = ["src", "probes/gpuwatch-probe/src", "simgpu/src", "nvml/src", "tests"];

#[test]
fn everything_named_in_the_documents_for_developers_exists() {
    let sources: Vec<(String, String)> = CRATES.iter().flat_map(|folder| texts(&root().join(folder))).collect();
    let python = shim();
    let words: BTreeSet<&str> =
        sources.iter().chain(&python).flat_map(|(_, text)| text.split(|c: char| !is_part_of_a_name(c))).collect();
    let mut faults = Vec::new();
    let mut checked = 0;
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = fs::read_to_string(root().join(page)).unwrap();
        for name in names(&text) {
            let exists = if is_file_name(name) {
                root().join(name).exists() || is_end_of_a_path(name, &sources, &python)
            } else if name.contains("::") {
                is_module_or_item(name, &sources, &words)
            } else if name.chars().all(is_part_of_a_name) && is_name_of_code(name) {
                words.iter().any(|word| word.contains(name))
            } else {
                continue;
            };
            checked += 1;
            if !exists {
                faults.push(format!("{page}: {name} does not exist"));
            }
        }
    }
    assert!(checked > 100, "only {checked} names were checked");
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// The modules of the probe for PyTorch: their names and texts.
fn shim() -> Vec<(String, String)> {
    let folder = root().join("probes/python/gpuwatch_probe");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let modules = files.filter(|path| path.extension().is_some_and(|ending| ending == "py"));
    modules.map(|path| (path.display().to_string(), fs::read_to_string(&path).unwrap())).collect()
}

/// The names in backticks, without those in blocks of code and without placeholders such as `NAME.rs`.
fn names(page: &str) -> impl Iterator<Item = &str> {
    let prose = page.split("```").step_by(2);
    prose.flat_map(|part| part.split('`').skip(1).step_by(2)).filter(|name| {
        let placeholder = |part: &str| part.len() > 1 && part.chars().all(|c| c.is_ascii_uppercase());
        let is_of_another_crate = name.starts_with("clap::") || name.starts_with("std::");
        !name.contains([' ', '(', '"', '$', '…', '*'])
            && !name.split(['/', '.']).any(placeholder)
            && !is_of_another_crate
    })
}

fn is_file_name(name: &str) -> bool {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending);
    !name.starts_with('/')
        && !name.starts_with("target/")
        && (name.contains('/') || matches!(ending, Some("rs" | "py" | "md" | "toml" | "h")))
}

/// Whether a file of the sources has this path, or ends with it: `wire/limits.rs`, `_trace.py`.
fn is_end_of_a_path(name: &str, sources: &[(String, String)], python: &[(String, String)]) -> bool {
    sources.iter().chain(python).any(|(path, _)| path == name || path.ends_with(&format!("/{name}")))
        || root().join("probes/gpuwatch-probe").join(name).exists()
}

/// Whether the path leads to a module (`model::analysis::growth`, `frameworks::`), to something in it
/// (`text::Foreign`), or from a type to a member (`Session::apply`).
fn is_module_or_item(name: &str, sources: &[(String, String)], words: &BTreeSet<&str>) -> bool {
    let segments: Vec<&str> = name.trim_end_matches("::").split("::").collect();
    if segments[0].starts_with(char::is_uppercase) {
        return segments.iter().all(|segment| words.contains(segment));
    }
    (1..=segments.len()).rev().any(|count| {
        let file = format!("{}.rs", segments[..count].join("/"));
        let items = &segments[count..];
        sources.iter().any(|(path, text)| {
            let has = |item: &&str| text.split(|c: char| !is_part_of_a_name(c)).any(|word| word == *item);
            (*path == file || path.ends_with(&format!("/{file}"))) && items.iter().all(has)
        })
    })
}

/// Whether only code has such names: `uses_config`, `SnapshotUi`, not words of the text or of a command line.
fn is_name_of_code(name: &str) -> bool {
    name.contains('_')
        || name.starts_with(char::is_uppercase) && name.chars().skip(1).any(|letter| letter.is_ascii_lowercase())
}

fn is_part_of_a_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}
