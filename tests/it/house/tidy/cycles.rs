//! Modules beside each other do not depend on each other in a circle, in any crate.
//!
//! A module and its parts are one: parts use what it declares, and it uses them. So what counts is which module uses
//! which one of the same parent, itself or in its parts. A name that a module only passes on counts as used where it
//! comes from.

use super::{code, paths, root, texts};
use std::collections::{BTreeMap, BTreeSet};

const CRATES: [&str; 5] = ["src", "nvml/src", "probes/gpuwatch-probe/src", "simgpu/src", "tests/tiers/src"];

/// The code of each module by its path; the crate itself is the empty one.
type Modules = BTreeMap<String, String>;

/// Which module uses which, and by what.
type Uses = BTreeMap<(String, String), String>;

#[test]
fn modules_beside_each_other_use_each_other_in_no_circle() {
    let mut faults = Vec::new();
    for directory in CRATES {
        let modules: Modules =
            texts(&root().join(directory)).iter().filter_map(|(name, text)| module(name, text)).collect();
        faults.extend(circular(uses(&modules)).into_iter().map(|it| format!("{directory}: {it}")));
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn a_circle_is_found_through_parts_and_through_names_that_are_passed_on() {
    let texts = [
        ("lib.rs", "mod a;\nmod b;\nmod c;\npub use c::{Made, Other};"),
        ("a.rs", "mod part;"),
        ("a/part.rs", "use crate::b::Thing;\nuse super::Own;"),
        ("b.rs", "fn it() -> crate::Made {}"),
        ("c.rs", "use super::{a, b::Thing};\n#[cfg(test)]\nmod tests;"),
        ("d.rs", "use crate::a; // and not `crate::d`"),
    ];
    let modules: Modules = texts.iter().filter_map(|(name, text)| module(name, text)).collect();
    let expected = ["a uses b (b::Thing)", "b uses c (c::Made)", "c uses a (a)", "c uses b (b::Thing)"];
    assert_eq!(circular(uses(&modules)), expected);
}

/// A file's module and its code, without its tests; `None` for tests and for the program around a library.
fn module(name: &str, text: &str) -> Option<(String, String)> {
    let path = name.trim_end_matches(".rs").replace('/', "::");
    if path == "main" || path.split("::").any(|it| it == "tests") {
        return None;
    }
    let path = if path == "lib" { String::new() } else { path.trim_end_matches("::lib").to_owned() };
    Some((path, code(text).split("#[cfg(test)]\nmod ").next().unwrap_or_default().to_owned()))
}

fn uses(modules: &Modules) -> Uses {
    let imports: BTreeMap<&String, BTreeMap<String, String>> =
        modules.iter().map(|(module, code)| (module, imports(module, code, modules))).collect();
    let mut found = Uses::new();
    for (module, code) in modules {
        for path in named(module, code) {
            let path = origin(path, modules, &imports);
            if let Some(pair) = beside(module, home(&path, modules)) {
                found.entry(pair).or_insert(path);
            }
        }
    }
    found
}

/// Returns the paths that begin with `crate`, `super` or `self`, as paths from the crate on.
pub(super) fn named(module: &str, code: &str) -> Vec<String> {
    let mut all = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            let before = code.get(..at).and_then(|it| it.chars().next_back());
            if !before.is_some_and(|it| it.is_alphanumeric() || "_:$".contains(it)) {
                all.extend(absolute(module, code.get(at..).unwrap_or_default()));
            }
        }
    }
    all
}

fn absolute(module: &str, path: &str) -> Vec<String> {
    let (mut base, mut rest) = (module, path);
    if let Some(after) = rest.strip_prefix("crate::") {
        (base, rest) = ("", after);
    }
    rest = rest.strip_prefix("self::").unwrap_or(rest);
    while let Some(after) = rest.strip_prefix("super::") {
        (base, rest) = (base.rsplit_once("::").map_or("", |it| it.0), after);
    }
    paths(base, rest).0.into_iter().map(|it| it.trim_end_matches("::self").to_owned()).collect()
}

/// The names that a module has from elsewhere in the crate.
fn imports(module: &str, code: &str, modules: &Modules) -> BTreeMap<String, String> {
    let statements = code.split("use ").skip(1).filter_map(|it| it.split(';').next());
    let paths = statements.flat_map(|it| absolute(module, it));
    let own = paths.filter(|it| it != module && !home(it, modules).is_empty());
    own.map(|it| (it.rsplit("::").next().unwrap_or_default().to_owned(), it)).collect()
}

/// The module that a path leads into.
fn home<'a>(path: &'a str, modules: &Modules) -> &'a str {
    let mut home = path;
    while !modules.contains_key(home) {
        home = home.rsplit_once("::").map_or("", |it| it.0);
    }
    home
}

/// Where a name is declared that modules pass on.
fn origin(path: String, modules: &Modules, imports: &BTreeMap<&String, BTreeMap<String, String>>) -> String {
    let mut path = path;
    for _ in 0..4 {
        let home = home(&path, modules).to_owned();
        let name = path.get(home.len()..).unwrap_or_default().trim_start_matches("::").split("::").next();
        match name.and_then(|it| imports.get(&home)?.get(it)) {
            Some(from) if *from != path => path.clone_from(from),
            _ => break,
        }
    }
    path
}

/// The two modules of one parent that two modules are or are in; `None` where one is within the other.
fn beside(one: &str, other: &str) -> Option<(String, String)> {
    let (mut one, mut other) = (one.split("::"), other.split("::"));
    let mut parent = String::new();
    loop {
        let (a, b) = (one.next().filter(|it| !it.is_empty())?, other.next().filter(|it| !it.is_empty())?);
        if a != b {
            return Some((format!("{parent}{a}"), format!("{parent}{b}")));
        }
        parent = format!("{parent}{a}::");
    }
}

/// The uses that are part of a circle, or lead from one to another.
fn circular(mut uses: Uses) -> Vec<String> {
    loop {
        let (from, to): (BTreeSet<String>, BTreeSet<String>) = uses.keys().cloned().unzip();
        let before = uses.len();
        uses.retain(|(one, other), _| from.contains(other) && to.contains(one));
        if uses.len() == before {
            break;
        }
    }
    uses.iter().map(|((one, other), by)| format!("{one} uses {other} ({by})")).collect()
}
