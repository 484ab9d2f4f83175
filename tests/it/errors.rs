//! What gpuwatch reports of out-of-memory errors without growth: each kind has its figures, its lines and its advice.

use crate::{launch::Home, oom::machine, pty::PROGRAM, shim::script, torch};
use serde_json::Value;
use std::{collections::BTreeMap, fs, process::Stdio};

/// The errors of each job, as `check` reports them, and the exit code of `check`.
fn reported(strangers: u64, all: &[&str]) -> (BTreeMap<String, Vec<Value>>, i32) {
    let (gpu, home) = (machine(strangers), Home::new());
    let mut command = gpu.command(PROGRAM);
    command.args(["run", "--summary", "never", "--"]).arg(torch::python()).arg(script("errors.py"));
    command.args(["--batch-size", "48", "--how"]).args(all).envs(home.variables()).env_remove("GPUWATCH_NVML_PATH");
    let done = command.stderr(Stdio::piped()).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    if std::env::var_os("OOM_SHOW").is_some() {
        eprintln!("{out}\n{err}");
    }
    let store = home.0.path().join("state/gpuwatch/recordings");
    let files = fs::read_dir(store).unwrap().flatten().map(|it| it.path());
    let file = files.into_iter().find(|it| it.to_string_lossy().ends_with(".zst")).unwrap_or_else(|| panic!("{err}"));
    let judged = gpu.command(PROGRAM).args(["check", "--json"]).arg(&file).envs(home.variables()).output().unwrap();
    let json: Value = serde_json::from_slice(&judged.stdout).unwrap();
    let findings = json["findings"].as_array().unwrap();
    let jobs = out.lines().filter_map(|it| serde_json::from_str::<Value>(it).ok()).filter(Value::is_object);
    let errors = jobs.map(|job| {
        let own = findings.iter().filter(|it| it["kind"] == "oom" && it["pid"] == job["pid"]);
        (job["how"].as_str().unwrap().to_owned(), own.cloned().collect())
    });
    (errors.collect(), judged.status.code().unwrap())
}

#[test]
fn dev() {
    let hows = std::env::var("OOM_HOWS").unwrap();
    let hows: Vec<&str> = hows.split(' ').collect();
    let (errors, code) = reported(std::env::var("OOM_STRANGERS").map_or(0, |it| it.parse().unwrap()), &hows);
    for how in hows {
        eprintln!("=== {how}");
        for it in &errors[how] {
            eprintln!(
                "{} {} since {} follows {}\n  {}\n  -> {}",
                it["severity"],
                it["cause"],
                it["since_step"],
                it["follows"]["words"],
                it["sentence"].as_str().unwrap_or("-"),
                it["advice"]
            );
            for line in it["account"].as_array().unwrap() {
                eprintln!("     {}", line.as_str().unwrap());
            }
        }
    }
    eprintln!("code {code}");
}
