//! Frameworks on PyTorch, used as their users use them: healthy jobs raise no alarm, and of each leak the line that
//! makes the tensors, the line that keeps them and their holder are named.
//!
//! ```text
//! GPUWATCH_TESTS=full cargo test --test it frameworks::
//! ```
//!
//! `GPUWATCH_FRAMEWORKS_VENV` names an environment that has them and the suite's PyTorch.

use crate::{
    helpers::{
        terminal::PROGRAM,
        torch::{self, Gpu, TORCH},
        venv::Venv,
    },
    probe::{
        launch::Home,
        pytorch::{self, script},
    },
};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    fs, io,
    io::{BufRead, BufReader},
    os::unix::net::UnixStream,
    path::Path,
    process::Stdio,
    sync::{OnceLock, mpsc},
    thread,
    time::{Duration, Instant},
};

pub(crate) static FRAMEWORKS: Venv = Venv {
    variable: "GPUWATCH_FRAMEWORKS_VENV",
    name: "venv-frameworks",
    holds: "transformers, Lightning, timm, diffusers and others (a download of about 250 MB)",
    packages: &[&[include_str!("../python/frameworks/requirements.txt")]],
    above: Some(&TORCH),
    python: OnceLock::new(),
};

fn path(file: &str) -> String {
    script(&format!("frameworks/{file}"))
}

/// A function of a script as a probed job that has ended, on a machine and in a home of its own.
struct Trained {
    gpu: Gpu,
    home: Home,
}

impl Trained {
    /// Runs `python job…`, whose script has no folder, to its end. A healthy job ends by itself. A leaking one ends
    /// once its probe has reported where it leaks, or after `PATIENCE`.
    fn run(python: &Path, devices: usize, job: &str) -> Self {
        // Small, so that leaks of tiny models matter.
        let (gpu, home) = (Gpu::new(&vec!["NVIDIA A10:6GiB:256MiB"; devices].join(";")), Home::new());
        let arguments = job.split(' ').map(|it| {
            if Path::new(it).extension().is_some_and(|extension| extension == "py") { path(it) } else { it.to_owned() }
        });
        let until = home.0.path().join("until");
        let mut run = gpu.command(PROGRAM);
        run.args(["run", "--"]).arg(python).args(arguments).envs(home.variables()).env("UNTIL", &until);
        // The time until the device is full decides whether a leak matters.
        run.env("GPUWATCH_NVML_PATH", torch::libraries().join("libnvidia-ml.so.1"));
        // Uses no network.
        run.env("HF_HUB_OFFLINE", "1").env("HF_HOME", home.0.path()).env("TOKENIZERS_PARALLELISM", "false");
        let job = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let done = thread::scope(|scope| {
            let (ended, end) = mpsc::channel();
            let sockets = home.0.path().join("sockets");
            scope.spawn(move || {
                wait_for_sites(&sockets, &end);
                fs::write(until, "").unwrap();
            });
            let done = job.wait_with_output().unwrap();
            drop(ended);
            done
        });
        torch::stdout(&done);
        let trained = Self { gpu, home };
        trained.check_parts();
        trained
    }

    /// What it consisted of was counted, and is all that was allocated.
    fn check_parts(&self) {
        let mut export = self.gpu.command(PROGRAM);
        export.args(["export", "--format", "jsonl"]).envs(self.home.variables());
        let rows = torch::stdout(&export.output().unwrap());
        let rows = rows.lines().map(|it| serde_json::from_str::<Value>(it).unwrap());
        let counted: Vec<Value> = rows.filter(|it| it["weights"].is_u64()).collect();
        assert!(!counted.is_empty(), "no parts were counted");
        for row in counted {
            let sum: u64 = PARTS.iter().map(|it| row[it].as_u64().unwrap()).sum();
            assert_eq!(Some(sum), row["allocated"].as_u64(), "{row}");
            assert!(row["weights"].as_u64() > Some(0), "{row}");
        }
    }

    /// Returns the verdict of `check` on it.
    fn checked(&self) -> Value {
        let mut check = self.gpu.command(PROGRAM);
        let output = check.args(["check", "--json"]).envs(self.home.variables()).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }
}

const PARTS: [&str; 4] = ["weights", "gradients", "optimizer", "retained"];

const PATIENCE: Duration = Duration::from_secs(300);

/// Waits until a probe has reported which lines allocate the growing memory, or until all probes have ended.
fn wait_for_sites(sockets: &Path, end: &mpsc::Receiver<()>) {
    let (found, sites) = mpsc::channel();
    let (mut known, begun) = (BTreeSet::new(), Instant::now());
    while begun.elapsed() < PATIENCE && matches!(end.try_recv(), Err(mpsc::TryRecvError::Empty)) {
        for path in pytorch::sockets(sockets) {
            // A probe that is about to end accepts no viewers.
            if let (true, Ok(stream)) = (known.insert(path.clone()), UnixStream::connect(&path)) {
                let found = found.clone();
                thread::spawn(move || {
                    let has_growth = |it: io::Result<String>| it.is_ok_and(|text| text.contains("\"why\":\"growth\""));
                    if BufReader::new(stream).lines().any(has_growth) {
                        let _ = found.send(());
                    }
                });
            }
        }
        if sites.recv_timeout(Duration::from_millis(50)).is_ok() {
            return;
        }
    }
}

fn check_healthy(reported: &Value, steps: u64) {
    assert_eq!(reported["steps"], steps, "{reported:#}");
    assert_eq!(reported["findings"].as_array().map(Vec::len), Some(0), "{reported:#}");
}

/// The growth of live memory, by this cause.
fn growth<'a>(reported: &'a Value, cause: &str) -> &'a Value {
    let findings = reported["findings"].as_array().unwrap();
    let found = findings.iter().find(|it| it["kind"] == "growth" && it["resource"] == "allocated");
    let found = found.unwrap_or_else(|| panic!("no growth: {reported:#}"));
    assert_eq!(found["cause"], cause, "{found:#}");
    found
}

/// The culprit is at the lines that the script marks, and held so; of a job `… SCRIPT NAME`.
fn check_leak(reported: &Value, job: &str, cause: &str, holder: &str) {
    let culprit = &growth(reported, cause)["culprit"];
    let [.., file, name] = &job.split(' ').collect::<Vec<_>>()[..] else { panic!("{job}") };
    let text = fs::read_to_string(path(file)).unwrap();
    let line = |mark: &str| text.lines().position(|it| is_marked(it, mark, name)).map(|it| it as u64 + 1);
    for (mark, at) in [("made", culprit), ("kept", &culprit["kept"])] {
        assert_eq!(at["line"].as_u64(), line(mark), "{mark}: {culprit:#}");
        assert!(at["file"].as_str().is_none_or(|it| it.ends_with(file)), "{mark}: {culprit:#}");
    }
    assert!(culprit["holders"].to_string().contains(holder), "{holder}: {culprit:#}");
}

/// `# made: NAME`, or `# made, kept: NAME` where it is one line.
fn is_marked(line: &str, mark: &str, name: &str) -> bool {
    let marks = line.split_once("  # ").and_then(|(_, it)| it.split_once(": "));
    marks.is_some_and(|(marks, of)| of == name && marks.split(", ").any(|it| it == mark))
}

macro_rules! healthy {
    ($($test:ident: $devices:literal, $job:literal, $steps:literal steps;)+) => {$(
        #[test]
        fn $test() {
            test_tiers::full!("frameworks on PyTorch");
            let python = test_tiers::needs!(FRAMEWORKS.found());
            check_healthy(&Trained::run(&python, $devices, $job).checked(), $steps);
        }
    )+};
}

macro_rules! leaks {
    ($($test:ident: $devices:literal, $job:literal, $cause:literal, held by $holder:literal;)+) => {$(
        #[test]
        fn $test() {
            test_tiers::full!("frameworks on PyTorch");
            let python = test_tiers::needs!(FRAMEWORKS.found());
            check_leak(&Trained::run(&python, $devices, $job).checked(), $job, $cause, $holder);
        }
    )+};
}

healthy! {
    a_trainer_that_accumulates_evaluates_and_saves_raises_no_alarm: 1, "trainer.py healthy_trainer", 120 steps;
    eight_trainers_in_one_process_make_320_steps: 1, "trainer.py eight_trainers", 320 steps;
    lightning_with_accumulation_validation_and_checkpoints_raises_no_alarm: 1, "modules.py healthy_lightning", 96 steps;
    a_lightning_gan_with_optimizers_of_its_own_raises_no_alarm: 1, "modules.py healthy_gan", 192 steps;
    timm_with_averaged_weights_and_mixed_precision_raises_no_alarm: 1, "modules.py healthy_timm", 60 steps;
    a_diffusion_model_raises_no_alarm: 1, "modules.py healthy_diffusers", 60 steps;
    a_trainer_that_generates_while_it_evaluates_raises_no_alarm: 1, "trainer.py healthy_seq2seq", 60 steps;
    an_adapter_with_checkpointed_activations_raises_no_alarm: 1, "trainer.py healthy_lora", 120 steps;
    accelerate_with_accumulation_raises_no_alarm: 1, "trainer.py healthy_accelerate", 64 steps;
    a_trainer_with_metrics_of_each_batch_raises_no_alarm: 1, "trainer.py healthy_metrics", 120 steps;
    supervised_fine_tuning_raises_no_alarm: 1, "trainer.py healthy_sft", 60 steps;
    a_trainer_on_two_ranks_raises_no_alarm:
        2, "-m torch.distributed.run --nproc-per-node 2 trainer.py healthy_ranks", 60 steps;
    a_trainer_on_two_devices_of_one_process_raises_no_alarm: 2, "trainer.py healthy_ranks", 60 steps;
    accelerate_on_two_ranks_raises_no_alarm:
        2, "-m accelerate.commands.launch --num_processes 2 --multi_gpu trainer.py healthy_accelerate", 32 steps;
    lightning_on_two_ranks_raises_no_alarm: 2, "modules.py healthy_ranks", 96 steps;
    a_notebook_raises_no_alarm: 1, "modules.py healthy_notebook", 120 steps;
}

leaks! {
    a_callback_that_keeps_tensors_is_named: 1, "trainer.py callback", "tensors-retained", held by "weights";
    a_trainer_that_keeps_logits_is_named: 1, "trainer.py subclass", "tensors-retained", held by "logits";
    a_trainer_that_keeps_losses_is_named: 1, "trainer.py losses", "scalars-retained", held by "losses";
    a_collate_function_that_caches_is_named: 1, "trainer.py collate", "tensors-retained", held by "CACHE";
    a_forward_hook_that_keeps_is_named: 1, "trainer.py hook", "tensors-retained", held by "SEEN";
    copies_of_the_weights_at_each_epoch_are_named: 1, "trainer.py average", "tensors-retained", held by "copies";
    outputs_of_training_steps_are_named: 1, "modules.py outputs", "scalars-retained", held by "training_step_outputs";
    outputs_of_each_validation_are_named: 1, "modules.py validation", "tensors-retained", held by "validation_step_outputs";
    a_metric_that_is_never_reset_is_named: 1, "modules.py metric", "tensors-retained", held by "auroc";
}

#[test]
fn a_notebook_that_keeps_losses_is_named_by_cell_and_line() {
    test_tiers::full!("frameworks on PyTorch");
    let python = test_tiers::needs!(FRAMEWORKS.found());
    let reported = Trained::run(&python, 1, "modules.py notebook").checked();
    let culprit = &growth(&reported, "scalars-retained")["culprit"];
    for (at, line) in [(culprit, 4), (&culprit["kept"], 9)] {
        assert_eq!((&at["file"], &at["line"]), (&json!("In [4]"), &json!(line)), "{culprit:#}");
    }
    assert_eq!(culprit["kept"]["text"], "losses.append(loss)");
    assert!(culprit["holders"].to_string().contains("losses"), "{culprit:#}");
}

#[test]
fn the_one_rank_that_leaks_is_named() {
    test_tiers::full!("frameworks on PyTorch");
    let python = test_tiers::needs!(FRAMEWORKS.found());
    let job = "modules.py one_rank";
    let reported = Trained::run(&python, 2, job).checked();
    check_leak(&reported, job, "tensors-retained", "kept");
    let growth = reported["findings"].as_array().unwrap().iter().filter(|it| it["resource"] == "allocated");
    assert_eq!(growth.map(|it| it["rank"].as_u64()).collect::<Vec<_>>(), [Some(1)], "{reported:#}");
}
