//! The dependencies of this repository's crates.

use crate::house::tidy::{root, texts};
use std::{fs, path::Path};
use toml::{Table, Value};

fn table(path: &Path) -> Table {
    fs::read_to_string(path).unwrap().parse().unwrap()
}

/// A dependency that the code does not name costs build time. Tests alone may name those for tests.
#[test]
fn every_dependency_is_used() {
    let mut faults = Vec::new();
    for manifest in ["", "nvml", "probes/gpuwatch-probe", "simgpu", "tests/tiers", "tests/fuzz"] {
        let directory = root().join(manifest);
        let read = table(&directory.join("Cargo.toml"));
        let name = read["package"]["name"].as_str().unwrap().replace('-', "_");
        // The fuzz targets lie beside their manifest.
        let own = if manifest == "tests/fuzz" { "." } else { "src" };
        for (section, folders) in [("dependencies", &[own][..]), ("dev-dependencies", &["src", "tests", "examples"])] {
            let code = code(&directory, folders);
            let asked = read.get(section).and_then(Value::as_table).into_iter().flat_map(Table::keys);
            for it in asked.map(|it| it.replace('-', "_")).filter(|it| *it != name) {
                let is_named = ["::", ";", " as "].iter().any(|end| names(&code, &format!("{it}{end}")));
                if !is_named {
                    faults.push(format!("{}: nothing in {folders:?} names {it}", directory.display()));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

fn code(directory: &Path, folders: &[&str]) -> String {
    let all = folders.iter().map(|it| directory.join(it)).filter(|it| it.is_dir()).flat_map(|it| texts(&it));
    all.map(|(_, text)| text).collect()
}

/// Whether a path begins with these words: `toml::` does not begin in `my_toml::`.
fn names(code: &str, path: &str) -> bool {
    let is_start =
        |it: usize| code.get(..it).is_some_and(|before| !before.ends_with(|c: char| c.is_alphanumeric() || c == '_'));
    code.match_indices(path).any(|(at, _)| is_start(at))
}
