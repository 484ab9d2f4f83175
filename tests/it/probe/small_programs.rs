//! Small programs see and do the same without a probe and with one.
//!
//! The programs are functions in `python/invisible`, each of which returns what it sees. What may differ is listed here
//! and in `docs/never.md`; every other difference fails.

use crate::{
    helpers::torch::{self, Gpu},
    probe::{launch::Home, pytorch::script},
};
use serde_json::Value;
use std::{collections::BTreeMap, fmt::Write, process::Command};

/// What programs see of the probe, by program. Paths of the probe's folder are `BOOT`.
const ALLOWED: &[(&str, &[&str])] = &[
    ("process.modules", &["sitecustomize"]),
    ("process.import_system", &["BOOT", "_OnTorch"]),
    ("process.environment", &["GPUWATCH_PROBE_SO", "GPUWATCH_RUN", "PYTHONPATH"]),
    ("process.environment_of_a_child", &["GPUWATCH_PROBE_SO", "GPUWATCH_RUN", "PYTHONPATH"]),
    ("process.calls_of_an_import", &["sitecustomize.py"]),
    ("process.children", &["_OnTorch", "sitecustomize"]),
    ("process.other_interpreters", &["BOOT", "_OnTorch"]),
    ("launched.without_site", &["BOOT"]),
    ("launched.without_folder_of_the_user", &["BOOT", "_OnTorch", "sitecustomize"]),
    ("launched.times_of_imports", &["import time:     sitecustomize"]),
    (
        "launched.imports_reported",
        &["import 'sitecustomize' # <_frozen_importlib_external.SourceFileLoader object at 0x>"],
    ),
    ("steps.weak_references", &["ReferenceType"]),
    ("ended.an_import_leaves", &["BOOT", "Probe._on_devices", "gpuwatch_probe", "sitecustomize"]),
];

/// What each program of a file saw.
fn seen(gpu: &Gpu, home: &Home, file: &str, is_probed: bool) -> BTreeMap<String, Value> {
    let mut command: Command =
        gpu.command(if is_probed { env!("CARGO_BIN_EXE_gpuwatch").into() } else { torch::python() });
    if is_probed {
        command.args(["run", "--summary", "never", "--"]).arg(torch::python());
    }
    command.arg(script(&format!("invisible/{file}.py"))).envs(home.variables()).env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("PWD", gpu.dir()).env_remove("PYTHONPATH");
    let printed = torch::stdout(&command.output().unwrap());
    let lines = printed.lines().filter_map(|it| serde_json::from_str::<Value>(it).ok());
    lines.filter_map(|it| Some((it["program"].as_str()?.to_owned(), it["seen"].clone()))).collect()
}

/// Takes what names the probe out of lists, and gives it.
fn without_ours(seen: &mut Value, folder: &str, ours: &mut Vec<String>) {
    match seen {
        Value::Array(all) => {
            all.retain(|entry| {
                let name = entry.as_str().and_then(|text| name_of_ours(text, folder));
                ours.extend(name.clone());
                name.is_none()
            });
            for it in all {
                without_ours(it, folder, ours);
            }
        }
        Value::Object(all) => {
            for it in all.values_mut() {
                without_ours(it, folder, ours);
            }
        }
        _ => {}
    }
}

fn name_of_ours(text: &str, folder: &str) -> Option<String> {
    let is_variable = text.starts_with("GPUWATCH_") || text.starts_with("PYTHONPATH=");
    if let Some((name, _)) = text.split_once('=').filter(|_| is_variable) {
        return Some(name.to_owned());
    }
    if text.contains(folder) {
        return Some("BOOT".to_owned());
    }
    let names = ["sitecustomize", "gpuwatch_probe", "_OnTorch", "Probe.", "ReferenceType"];
    names.iter().any(|it| text.contains(it)).then(|| text.trim().to_owned())
}

/// Runs a file's programs both ways, and compares them.
fn compare(file: &str, least: usize) {
    let (gpu, home) = (torch::machine(), Home::new());
    let folder = home.0.path().to_str().unwrap().to_owned();
    let [mut without, mut with] = [false, true].map(|it| seen(&gpu, &home, file, it));
    assert!(without.len() >= least, "{file}: {:?}", without.keys());
    assert_eq!(without.keys().collect::<Vec<_>>(), with.keys().collect::<Vec<_>>(), "{file}");
    let mut faults = String::new();
    for (program, plain) in &mut without {
        let failed = plain.as_str().filter(|it| it.starts_with("Traceback") && it.contains("in run\n"));
        assert!(failed.is_none(), "{file}.{program} fails by itself: {plain}");
        let probed = with.get_mut(program).unwrap();
        let (mut before, mut ours) = (Vec::new(), Vec::new());
        without_ours(plain, &folder, &mut before);
        without_ours(probed, &folder, &mut ours);
        for it in before {
            if let Some(place) = ours.iter().position(|mine| *mine == it) {
                ours.remove(place);
            }
        }
        ours.sort();
        ours.dedup();
        // Modules of the probe's package are one thing.
        ours.retain(|it| !it.starts_with("gpuwatch_probe."));
        let name = format!("{file}.{program}");
        let allowed = ALLOWED.iter().find(|it| it.0 == name).map_or(&[][..], |it| it.1);
        if ours != allowed {
            writeln!(faults, "(\"{name}\", &{ours:?}), and not {allowed:?}").unwrap();
        }
        if plain != probed {
            writeln!(faults, "{name}:\n  without {plain}\n  with    {probed}").unwrap();
        }
    }
    assert!(faults.is_empty(), "\n{faults}");
}

#[test]
fn steps_look_the_same() {
    compare("steps", 37);
}

#[test]
fn dynamo_counts_the_same() {
    compare("compiled", 9);
}

#[test]
fn processes_look_the_same() {
    compare("process", 24);
    compare("launched", 23);
}

#[test]
fn processes_with_pytorch_look_the_same() {
    test_tiers::full!("starts PyTorch twenty times");
    compare("ended", 5);
}
