//! The committed header matches the library: the same calls, numbers and sizes.

use crate::abi::{HERE, built, run};
use gpuwatch_probe::{
    abi::{
        GpuwatchSample,
        oom::{GpuwatchBlocks, GpuwatchFrame, GpuwatchRequest},
    },
    wire::Counters,
};
use std::{collections::BTreeSet, fs, path::Path, process::Command};

/// Returns the header without its comments.
fn declarations() -> String {
    let text = fs::read_to_string(Path::new(HERE).join("gpuwatch_probe.h")).unwrap();
    text.split("/*").map(|it| it.split_once("*/").map_or(it, |(_, code)| code)).collect()
}

#[test]
fn the_library_exports_what_the_header_declares_and_nothing_else() {
    let text = declarations();
    let declared: BTreeSet<&str> = text
        .split('(')
        .filter_map(|it| it.rsplit([' ', '*', '\n']).next())
        .filter(|it| it.starts_with("gpuwatch_"))
        .collect();
    let nm = Command::new("nm").args(["-D", "--defined-only"]).arg(built().join("libprobe.so")).output().unwrap();
    let symbols = String::from_utf8(nm.stdout).unwrap();
    let exported: BTreeSet<&str> = symbols.lines().filter_map(|it| it.split(' ').next_back()).collect();
    assert!(declared.len() > 8, "{declared:?}");
    assert_eq!(declared, exported);
}

/// Formats a type of the C ABI in C, up to the name.
fn in_c(rust: &str) -> String {
    let pointer = |to: &str| if to == "c_char" { "char *".to_owned() } else { format!("struct {} *", snake(to)) };
    match rust {
        "Object" | "*mut c_void" => "void *".to_owned(),
        _ => rust.strip_prefix("*const ").map_or_else(
            || format!("{}_t ", rust.replace('u', "uint").replace("i32", "int32").replace("i64", "int64")),
            |to| format!("const {}", pointer(to)),
        ),
    }
}

/// Returns `gpuwatch_sample` for `GpuwatchSample`.
fn snake(name: &str) -> String {
    name.replace("Gpuwatch", "gpuwatch_").to_lowercase()
}

/// Generates a line of C for each call from the Rust source.
fn generated() -> BTreeSet<String> {
    let folders = ["src/abi", "src/abi/python"].map(|it| fs::read_dir(Path::new(HERE).join(it)).unwrap());
    let files = folders.into_iter().flatten().map(|it| it.unwrap().path()).filter(|it| it.is_file());
    let all = files.chain([Path::new(HERE).join("src/abi.rs")]);
    let sources: Vec<String> = all.map(|it| fs::read_to_string(it).unwrap()).collect();
    let mut calls = BTreeSet::new();
    for text in sources.iter().flat_map(|it| it.split("extern \"C\" fn gpuwatch_").skip(1)) {
        let (name, rest) = text.split_once('(').unwrap();
        let (arguments, rest) = rest.split_once(')').unwrap();
        let result = rest.split('{').next().unwrap().trim().strip_prefix("-> ").unwrap();
        let arguments = arguments.split(',').filter_map(|it| it.trim().split_once(": "));
        let arguments: Vec<String> = arguments.map(|(name, kind)| in_c(kind) + name).collect();
        let arguments = if arguments.is_empty() { "void".to_owned() } else { arguments.join(", ") };
        calls.insert(format!("{}gpuwatch_{name}({arguments})", in_c(result.trim())));
    }
    calls
}

#[test]
fn the_header_declares_every_call_as_it_is() {
    let text = declarations();
    let declared = text.split([';', '}']).map(|it| it.split_whitespace().collect::<Vec<_>>().join(" "));
    let declared: BTreeSet<String> = declared.filter(|it| it.contains("gpuwatch_") && it.ends_with(')')).collect();
    assert!(declared.len() > 8, "{declared:?}");
    assert_eq!(declared, generated());
}

#[test]
fn the_places_of_values_are_the_names_on_the_wire() {
    let text = declarations();
    let places = text.split("enum {").find(|it| it.contains("GPUWATCH_REQUESTED")).unwrap();
    let places = places.split('}').next().unwrap().split(',').filter_map(|it| it.split_once('='));
    let places: Vec<(String, usize)> = places
        .map(|(name, place)| (name.trim().replace("GPUWATCH_", "").to_lowercase(), place.trim().parse().unwrap()))
        .filter(|(name, _)| name != "slots")
        .collect();
    let names: Vec<(String, usize)> = Counters::NAMES.iter().map(|it| (*it).to_owned()).zip(0..).collect();
    assert_eq!(places, names);
}

#[test]
fn structures_have_the_sizes_that_c_gives_them() {
    let sizes = [
        ("sample", size_of::<GpuwatchSample>()),
        ("blocks", size_of::<GpuwatchBlocks>()),
        ("frame", size_of::<GpuwatchFrame>()),
        ("request", size_of::<GpuwatchRequest>()),
    ];
    let checks =
        sizes.map(|(name, size)| format!("_Static_assert(sizeof(struct gpuwatch_{name}) == {size}, \"{name}\");\n"));
    let source = format!("#include \"gpuwatch_probe.h\"\n{}", checks.concat());
    let file = tempfile::Builder::new().suffix(".c").tempfile().unwrap();
    fs::write(file.path(), source).unwrap();
    run(Command::new("cc").args(["-fsyntax-only", "-I."]).arg(file.path()));
}
