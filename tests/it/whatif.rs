//! Runs replayed under other allocator settings: as real runs under those settings, to the byte.

/// Runs that ended in an error.
mod died;
pub(crate) mod findings;
pub(crate) mod running_job;
pub(crate) mod traced;

use crate::{
    helpers::{
        terminal::{PATIENCE, PROGRAM, Terminal, until},
        torch::{self, Gpu},
    },
    house::schemas,
    probe::launch::Home,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// A device on which the program below is short of memory once.
const DEVICE: &str = "NVIDIA A10:4000MiB:0MiB";

const SETTINGS: [&str; 5] = [
    "",
    "expandable_segments:True",
    "max_split_size_mb:64",
    "roundup_power2_divisions:4",
    "garbage_collection_threshold:0.6",
];

/// A program with one allocation.
const SMALL: &str = "import sys, torch; torch.cuda.memory._record_memory_history(context=None); \
                     it = torch.ones(9, device='cuda'); torch.cuda.memory._dump_snapshot(sys.argv[1])";

/// A program that fragments, run for real under settings: what PyTorch counted.
fn run(gpu: &Gpu, settings: &str, environment: &[(&str, &str)]) -> Value {
    let mut script = gpu.script(include_str!("whatif/program.py"));
    script.args(["60", "2560", "at once"]).env("PYTORCH_CUDA_ALLOC_CONF", settings).envs(environment.iter().copied());
    serde_json::from_str(&torch::stdout(&script.output().unwrap())).unwrap()
}

fn whatif(source: &Path, more: &[&str]) -> Output {
    let mut program = Command::new(PROGRAM);
    program.arg("whatif").arg(source).arg("--torch").arg(torch::python()).args(more);
    program.output().unwrap()
}

fn answered(source: &Path, more: &[&str]) -> Value {
    let output = whatif(source, &[more, &["--json"]].concat());
    let answer = serde_json::from_str(&torch::stdout(&output)).unwrap();
    schemas::check("whatif", &answer);
    answer
}

/// A trace that begins with the run, and whose replay is the recorded run.
pub(crate) fn is_exact(device: &Value) {
    let it = &device["as_recorded"];
    assert_eq!((&device["complete"], &device["refused"], &it["error"]), (&json!(true), &Value::Null, &json!(0.0)));
    assert_eq!(it["segment_events"], it["segment_events_equal"], "{device:#}");
}

/// The one sentence of a question that has no answer.
fn refused(program: &mut Command) -> String {
    let output = program.output().unwrap();
    let reported = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && output.stdout.is_empty() && reported.lines().count() == 1, "{reported}");
    reported
}

/// Two streams, `record_stream`, an emptied cache in the middle, and a request that fits only after a retry.
#[test]
fn a_replay_is_the_real_run_under_each_setting_to_the_byte() {
    let gpu = Gpu::new(DEVICE);
    let file = gpu.dir().join("run.pickle");
    let sets: Vec<_> = SETTINGS.iter().flat_map(|it| ["--set", it]).collect();
    let sets = [&["--gpu", "4000MiB"], sets.as_slice()].concat();
    let answers = test_tiers::vary!(["all", ""], "a trace without stacks").map(|context| {
        let recorded = run(&gpu, "", &[("SNAPSHOT", file.to_str().unwrap()), ("CONTEXT", context)]);
        assert_eq!(recorded["retries"], 1, "{recorded}");
        let answer = answered(&file, &sets);
        let device = &answer["devices"][0];
        assert_eq!((&device["complete"], &device["refused"]), (&json!(true), &Value::Null), "{device:#}");
        let as_recorded = &device["as_recorded"];
        assert_eq!((&as_recorded["error"], &as_recorded["settings"]), (&json!(0.0), &json!("")), "{as_recorded:#}");
        assert_eq!(as_recorded["segment_events"], as_recorded["segment_events_equal"], "{as_recorded:#}");
        assert_eq!(as_recorded["recorded_peak_reserved"], recorded["peak_reserved"], "{as_recorded:#}");
        device["candidates"].clone()
    });
    let answers: Vec<_> = answers.collect();
    assert!(answers.iter().all(|it| *it == answers[0]), "with stacks and without: {answers:#?}");
    for (settings, replayed) in SETTINGS.iter().zip(answers[0].as_array().unwrap()) {
        let real = run(&gpu, settings, &[]);
        assert_eq!((&replayed["settings"], &replayed["fits"]), (&json!(settings), &json!(true)));
        for figure in ["peak_allocated", "peak_reserved", "cuda_mallocs", "retries", "synchronisations"] {
            assert_eq!(replayed[figure], real[figure], "{settings}: {figure}\n{real:#}\n{replayed:#}");
        }
    }
    // The smallest device is one on which the program runs, and a little less is not enough.
    let least = answers[0][0]["smallest_device"].as_u64().unwrap();
    let on = |bytes: u64| {
        let gpu = Gpu::new(&format!("NVIDIA A10:{bytes}"));
        let mut script = gpu.script(include_str!("whatif/program.py"));
        script.args(["60", "2560", "at once"]).env("PYTORCH_CUDA_ALLOC_CONF", "").output().unwrap()
    };
    torch::stdout(&on(least));
    let reported = on(least - least / 100);
    assert!(String::from_utf8_lossy(&reported.stderr).contains("OutOfMemoryError"), "{reported:?}");
}

/// The trace of a run on an H200, and the peaks of the same program there under other settings, in bytes. The driver
/// places segments as no simulation knows; with the defaults, the replay is the run to the byte.
#[test]
fn the_replay_of_a_run_on_an_h200_is_the_run_and_near_those_under_other_settings() {
    const MEASURED: [(&str, u64, f64); 4] = [
        ("", 4_018_143_232, 0.0),
        ("max_split_size_mb:64", 5_192_548_352, 0.0),
        ("expandable_segments:True", 3_235_905_536, 0.01),
        ("roundup_power2_divisions:4", 4_137_680_896, 0.01),
    ];
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/whatif/h200.pickle.gz");
    let sets: Vec<_> = MEASURED.iter().flat_map(|it| ["--set", it.0]).collect();
    let device = &answered(&trace, &sets)["devices"][0];
    is_exact(device);
    for ((settings, measured, off), replayed) in MEASURED.iter().zip(device["candidates"].as_array().unwrap()) {
        let peak = replayed["peak_reserved"].as_f64().unwrap();
        assert!((peak / *measured as f64 - 1.0).abs() <= *off, "{settings}: {peak}, measured {measured}");
    }
}

/// Two devices with requests of their own: each is replayed as in the real run, and each has its own smallest size.
#[test]
fn each_device_is_replayed_by_itself() {
    let run = |gpu: &Gpu, settings: &str, environment: &[(&str, &str)]| {
        let mut script = gpu.script(include_str!("whatif/devices.py"));
        script.env("PYTORCH_CUDA_ALLOC_CONF", settings).envs(environment.iter().copied()).output().unwrap()
    };
    let figures = |output: &Output| serde_json::from_str::<Value>(&torch::stdout(output)).unwrap();
    let gpu = Gpu::new("NVIDIA A10:4GiB,NVIDIA A10:4GiB");
    let file = gpu.dir().join("devices.pickle");
    let recorded = figures(&run(&gpu, "", &[("SNAPSHOT", file.to_str().unwrap())]));
    assert_ne!(recorded[0]["peak_reserved"], recorded[1]["peak_reserved"], "{recorded}");
    let settings = "expandable_segments:True";
    let answer = answered(&file, &["--set", "", "--set", settings]);
    assert_eq!(answer["devices"].as_array().unwrap().len(), 2, "{answer:#}");
    for (place, real) in [recorded, figures(&run(&gpu, settings, &[]))].iter().enumerate() {
        for (device, real) in real.as_array().unwrap().iter().enumerate() {
            let answer = &answer["devices"][device];
            assert_eq!(answer["device"], device, "{answer:#}");
            is_exact(answer);
            let replayed = &answer["candidates"][place];
            for figure in ["peak_allocated", "peak_reserved", "cuda_mallocs", "retries"] {
                assert_eq!(replayed[figure], real[figure], "device {device}, candidate {place}: {figure}");
            }
        }
    }
    // On devices of these sizes the program runs; the second one must not be smaller.
    let least = [0, 1].map(|it: usize| answer["devices"][it]["candidates"][0]["smallest_device"].as_u64().unwrap());
    assert!(least[1] < least[0], "{least:?}");
    let on = |[first, second]: [u64; 2]| run(&Gpu::new(&format!("NVIDIA A10:{first},NVIDIA A10:{second}")), "", &[]);
    torch::stdout(&on(least));
    let short = String::from_utf8_lossy(&on([least[0], least[1] - (4 << 20)]).stderr).into_owned();
    assert!(short.contains("OutOfMemoryError") && short.contains("GPU 1"), "{short}");
}

/// A job with a pool of its own, which is there at the end, or is gone by then.
#[test]
fn private_pools_are_refused_in_one_sentence() {
    let gpu = torch::machine();
    let cases = [("", "there.pickle"), ("del own, pool\ntorch.cuda.empty_cache()\n", "gone.pickle")];
    for (ends, name) in test_tiers::vary!(cases, "a pool that is gone") {
        let file = gpu.dir().join(name);
        let text = format!(
            "import sys, torch\ntorch.cuda.memory._record_memory_history(context=None)\npool = torch.cuda.MemPool()\n\
             it = torch.ones(9, device='cuda')\n\
             with torch.cuda.use_mem_pool(pool): own = torch.ones(1 << 20, device='cuda')\n\
             {ends}torch.cuda.memory._dump_snapshot(sys.argv[1])\n\
             print('pool_id' in torch.cuda.memory._snapshot()['device_traces'][0][0])"
        );
        let knows_pools = torch::stdout(&gpu.script(&text).arg(&file).output().unwrap()).trim() == "True";
        if !knows_pools && !ends.is_empty() {
            test_tiers::leave_out!("this PyTorch names no pool that is gone");
            continue;
        }
        let why = "it has private memory pools (CUDA graphs), which are not replayed";
        let device = &answered(&file, &["--set", ""])["devices"][0];
        assert_eq!((&device["refused"], &device["candidates"]), (&json!(why), &json!([])), "{name}: {device:#}");
        assert_eq!(device["as_recorded"], Value::Null, "{name}: {device:#}");
        let text = torch::stdout(&whatif(&file, &[]));
        assert!(text.contains(&format!("no advice: {why}\n")) && !text.contains("export "), "{name}: {text}");
    }
}

/// A run that ran out of memory: where, and which setting would have saved it.
#[test]
fn a_run_out_of_memory_shows_where_and_which_setting_fits() {
    let gpu = Gpu::new("NVIDIA A10:3300MiB:0MiB");
    let file = gpu.dir().join("oom.pickle");
    let mut script = gpu.script(include_str!("whatif/full.py"));
    torch::stdout(&script.arg(&file).output().unwrap());
    let device = &answered(&file, &[])["devices"][0];
    let of = |settings: &str| {
        device["candidates"].as_array().unwrap().iter().find(|it| it["settings"] == settings).unwrap().clone()
    };
    let (own, best) = (of(""), of("expandable_segments:True"));
    assert_eq!((&device["as_recorded"]["error"], &own["fits"]), (&json!(0.0), &json!(false)), "{device:#}");
    let failed = &own["fails_at"];
    assert!(failed["line"].as_str().unwrap().contains("script.py:"), "{failed}");
    assert!(failed["event"].as_u64().unwrap() + 2 >= device["events"].as_u64().unwrap() / 2, "{failed}");
    assert_eq!((&best["fits"], &best["fails_at"]), (&json!(true), &Value::Null), "{best}");
    assert!(best["smallest_device"].as_u64() < own["smallest_device"].as_u64(), "{best} {own}");
    // The whole answer in words: best first, and the line to export.
    let text = torch::stdout(&whatif(&file, &[]));
    assert!(text.contains("no: event") && text.contains("script.py:"), "{text}");
    let line = text.lines().find(|it| it.starts_with("export PYTORCH_CUDA_ALLOC_CONF=")).unwrap();
    assert!(line.contains("expandable_segments:True"), "{text}");
    assert!(text.contains("A replay repeats the recorded requests"), "{text}");
    // The driver's own pool is simulated, and its row is called an estimate.
    assert!(of("backend:cudaMallocAsync")["peak_reserved"].as_u64() >= best["peak_allocated"].as_u64(), "{device:#}");
    assert!(text.contains("backend:cudaMallocAsync (estimate)"), "{text}");
    // On a terminal, a line counts the replays.
    let python = torch::python();
    let mut terminal =
        Terminal::start(&["whatif", file.to_str().unwrap(), "--set", "", "--torch", python.to_str().unwrap()], &[]);
    assert_eq!(terminal.ends(PATIENCE), 0);
    let seen = || String::from_utf8_lossy(&terminal.bytes()).into_owned();
    assert!(until(PATIENCE, || seen().contains("replayed 3 times")), "{}", seen());
    assert!(until(PATIENCE, || !terminal.text().contains("replayed 3 times")), "{}", terminal.text());
}

/// Scripts rely on the keys, and other processes on the priority.
#[test]
fn the_json_has_every_key_of_its_schema_and_replays_run_at_low_priority() {
    let gpu = torch::machine();
    let file = gpu.dir().join("run.pickle");
    torch::stdout(&gpu.script(SMALL).arg(&file).output().unwrap());
    // Each process that replays, and the one before that, which it began as.
    let spied = "import os, resource\nfork, before = os.fork, os.nice(0)\ndef noted():\n    pid = fork()\n    \
                 if not pid: print(before, os.nice(0), resource.getrlimit(resource.RLIMIT_DATA)[0], sep=' ', \
                 file=open(os.path.dirname(__file__) + '/noted', 'a'))\n    return pid\nos.fork = noted\n";
    let python = with_site(gpu.dir(), spied);
    let mut program = Command::new(PROGRAM);
    program.arg("whatif").arg(&file).arg("--torch").arg(python).args(["--set", "", "--json"]);
    let answer: Value = serde_json::from_str(&torch::stdout(&program.output().unwrap())).unwrap();
    let keys = |it: &Value| it.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    let has = |it: &Value, all: &[&str]| assert!(all.iter().all(|key| keys(it).contains(*key)), "{it:#}");
    assert_eq!(answer["schema"], 1);
    let device = &answer["devices"][0];
    has(device, &["device", "complete", "events", "refused", "as_recorded", "candidates"]);
    let reserved = ["recorded_peak_reserved", "replayed_peak_reserved", "recorded_reserved", "replayed_reserved"];
    has(&device["as_recorded"], &reserved);
    has(&device["as_recorded"], &["settings", "segment_events", "segment_events_equal", "error"]);
    let candidate = &device["candidates"][0];
    has(candidate, &["settings", "peak_allocated", "peak_reserved", "fits", "fails_at", "smallest_device"]);
    has(candidate, &["retries", "cuda_mallocs", "synchronisations"]);
    // The replays have a lower priority than gpuwatch, and a limit on their memory.
    let noted = fs::read_to_string(gpu.dir().join("noted")).unwrap();
    for line in noted.lines() {
        let [before, priority, limit] = line.split(' ').map(|it| it.parse::<i64>().unwrap()).collect::<Vec<_>>()[..]
        else {
            panic!("{noted}")
        };
        assert!(priority == (before + 10).min(19) && (1..1 << 40).contains(&limit), "{noted}");
    }
    assert!(noted.lines().count() > 1, "{noted}");
}

/// A setting that saves less than this in the whole run is as good as the recorded one.
const SAVES: f64 = 0.03;

/// The later halves of programs, traced: each shows which setting is better, as real runs of the whole program do.
/// Returns the peaks.
fn windows_are_right(numbers: &str) -> String {
    let gpu = torch::machine();
    let settings = ["", "expandable_segments:True", "max_split_size_mb:32", "roundup_power2_divisions:4"];
    let mut script = gpu.script(include_str!("whatif/window.py"));
    let real = torch::stdout(&script.arg(gpu.dir()).arg(numbers).args(settings).output().unwrap());
    let sets = settings.map(|it| ["--set", it]).concat();
    let (mut faults, mut refused, mut shown) = (Vec::new(), Vec::new(), Vec::new());
    for line in real.lines() {
        let run: Value = serde_json::from_str(line).unwrap();
        let file = gpu.dir().join(format!("{}.pickle", run["number"]));
        let device = &answered(&file, &sets)["devices"][0];
        assert_eq!((&device["complete"], &device["window"]), (&json!(false), &json!(true)), "{run}: {device:#}");
        if device["refused"].is_string() {
            refused.push(run["name"].clone());
            continue;
        }
        let real = [0, 1, 2, 3].map(|it: usize| run["peaks"][it].as_f64().unwrap());
        let replayed = [0, 1, 2, 3].map(|it: usize| device["candidates"][it]["peak_reserved"].as_f64().unwrap());
        shown.push(format!("{}: {real:?} in real runs, {replayed:?} replayed", run["name"]));
        let least = |of: [f64; 4]| (0..4).min_by(|a, b| of[*a].total_cmp(&of[*b])).unwrap();
        let (best, chosen) = (real[least(real)], real[least(replayed)]);
        if chosen > best * (1.0 + SAVES) {
            faults.push(format!("{run}: the best of the window takes {chosen}, and {best} is possible"));
        }
        for other in 1..4 {
            let (real, replayed) = (real[other] / real[0], replayed[other] / replayed[0]);
            let is_wrong = |one: f64, another: f64| one < 1.0 - 3.0 * SAVES && another > 1.0 + SAVES;
            if is_wrong(real, replayed) || is_wrong(replayed, real) {
                faults.push(format!("{run}: {}: {real:.2} {replayed:.2}", settings[other]));
            }
        }
    }
    assert!(faults.is_empty() && refused.len() <= 1, "{}; refused: {refused:?}", faults.join("\n"));
    let text = torch::stdout(&whatif(&gpu.dir().join(format!("{}.pickle", numbers.split(',').next().unwrap())), &sets));
    assert!(text.contains("begins in the middle of the run") && text.contains("repeat the trace six times"), "{text}");
    shown.join("\n")
}

#[test]
fn a_window_shows_which_setting_is_better() {
    println!("{}", windows_are_right("8"));
}

#[test]
fn windows_of_many_programs_show_which_setting_is_better() {
    test_tiers::full!("eighteen programs");
    println!("{}", windows_are_right("0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"));
}

/// Snapshots of strangers: exact where the trace is complete, else within 1 % or refused.
#[test]
fn snapshots_of_a_folder_are_replayed_or_refused() {
    let Some(folder) = env::var_os("GPUWATCH_SNAPSHOTS") else {
        test_tiers::skip!("GPUWATCH_SNAPSHOTS names no folder of snapshots");
    };
    let files = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
    for file in files.filter(|it| it.to_string_lossy().contains(".pickle")) {
        let answer = answered(&file, &["--set", "expandable_segments:True"]);
        for device in answer["devices"].as_array().unwrap() {
            let it = &device["as_recorded"];
            if device["complete"] == true {
                assert_eq!(it["error"], 0.0, "{}: {device:#}", file.display());
                assert_eq!(it["segment_events"], it["segment_events_equal"], "{}: {device:#}", file.display());
            }
            match device["refused"].as_str() {
                Some(why) => assert!(!why.is_empty() && device["candidates"] == json!([]), "{}", file.display()),
                None => assert!(it["error"].as_f64().unwrap() <= 0.01, "{}: {device:#}", file.display()),
            }
        }
    }
}

/// Python with a module that is imported before anything else.
fn with_site(folder: &Path, text: &str) -> PathBuf {
    fs::write(folder.join("sitecustomize.py"), text).unwrap();
    let python = folder.join("python");
    let script = format!("#!/bin/sh\nPYTHONPATH={} exec {} \"$@\"\n", folder.display(), torch::python().display());
    fs::write(&python, script).unwrap();
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
    python
}

#[test]
fn an_unanswerable_question_is_refused_in_one_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.pickle");
    let gpu = torch::machine();
    torch::stdout(&gpu.script(SMALL).arg(&file).output().unwrap());
    let ask = |python: &Path, more: &[&str]| {
        let mut program = Command::new(PROGRAM);
        program.arg("whatif").arg(&file).arg("--torch").arg(python).args(more);
        refused(&mut program)
    };
    let reported = ask(&torch::python(), &["--set", "no_such_setting:1"]);
    assert!(
        reported.contains("PyTorch refuses --set no_such_setting:1: ") && reported.contains("nrecognized"),
        "{reported}"
    );
    let reported = ask(&torch::python(), &["--set", "max_split_size_mb:1"]);
    assert!(reported.contains("PyTorch refuses --set max_split_size_mb:1: "), "{reported}");
    let reported = ask(Path::new("/nonexistent/python"), &[]);
    assert!(
        reported.contains("/nonexistent/python: No such file") && reported.contains("--torch PYTHON"),
        "{reported}"
    );
    // Another module with that name is not PyTorch, and one without CUDA allocates nothing.
    let hidden = "import sys; sys.path[:] = [it for it in sys.path if 'site-packages' not in it]";
    let reported = ask(&with_site(dir.path(), hidden), &[]);
    assert!(reported.contains("has no PyTorch: name the job's Python with --torch PYTHON"), "{reported}");
    let package = dir.path().join("torch");
    fs::create_dir_all(package.join("lib")).unwrap();
    fs::write(package.join("__init__.py"), "").unwrap();
    fs::write(package.join("version.py"), "__version__ = '2.15.0+cpu'\ncuda: str | None = None\n").unwrap();
    let reported = ask(&with_site(dir.path(), ""), &[]);
    assert!(reported.contains("cannot simulate a GPU for") && reported.contains("not built for CUDA"), "{reported}");
    fs::remove_dir_all(package).unwrap();
    // Each replay is a separate process; one that is killed does not count as an answer.
    let killed = "import os\nfork = os.fork\ndef ended():\n    pid = fork()\n    if not pid: os.kill(os.getpid(), 9)\n    \
                  return pid\nos.fork = ended\n";
    let reported = ask(&with_site(dir.path(), killed), &[]);
    assert!(reported.contains("the replay was interrupted (signal 9); run it again"), "{reported}");
    // Without the recordings of whoever runs this.
    let home = Home::new();
    let whatif = |source: &str| {
        let mut program = Command::new(PROGRAM);
        refused(program.args(["whatif", source]).current_dir(dir.path()).envs(home.variables()))
    };
    fs::write(dir.path().join("night.jsonl.zst"), "").unwrap();
    assert!(whatif("night.jsonl.zst").contains("the recording holds no allocations: record the next run with"));
    assert!(whatif("none.pickle").contains("there is no file none.pickle, and no recording yet"));
}
