//! Whether jobs fit on GPUs that are not there: the user's script, unchanged, on a simulated machine.

/// What techniques save.
mod advise;
/// Against a saved answer.
mod against;

mod alone;
/// Measured tables.
mod calibrate;
/// With frameworks on PyTorch.
mod frameworks;
/// In CI.
mod gate;
/// What grows in each step.
mod growth;
/// Kinds of leaks.
mod leaks;
/// Against measurements.
mod measured;
/// What jobs need and do not get.
mod missing;
/// Packages that people train with.
mod packages;
/// What comes after training.
mod phases;
/// With pytest.
pub(crate) mod pytest;
/// A few ranks of many.
mod ranks;
/// Small trainings of many kinds.
mod scripts;
mod sizes;
/// What depends on values.
mod values;

use crate::{
    helpers::{
        terminal::PROGRAM,
        torch::{self, Gpu},
    },
    house::schemas,
    probe::launch::Home,
};
use gpuwatch::{facts::units::Bytes, model::fit::Device};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
};

const JOB: &str = include_str!("fit/job.py");

/// A job in a home of its own.
struct Asked {
    home: Home,
    script: PathBuf,
    /// Whether the job is led out of its loops at once: so that a small one shows that it is.
    is_quick: bool,
}

impl Asked {
    fn new(script: &str) -> Self {
        let home = Home::new();
        let path = home.0.path().join("train.py");
        fs::write(&path, script).unwrap();
        Self { home, script: path, is_quick: true }
    }

    /// One that continues by itself first, as without any flag.
    fn usual(script: &str) -> Self {
        Self { is_quick: false, ..Self::new(script) }
    }

    /// `gpuwatch fit FLAGS -- python train.py ARGUMENTS`.
    fn fit(&self, flags: &[&str], arguments: &[&str]) -> Output {
        self.fit_with(&torch::python(), flags, arguments)
    }

    /// The same with another Python.
    fn fit_with(&self, python: &Path, flags: &[&str], arguments: &[&str]) -> Output {
        self.launched(python, &[], flags, arguments)
    }

    /// The same with a launcher, such as torchrun, between Python and the script.
    fn launched(&self, python: &Path, launcher: &[&str], flags: &[&str], arguments: &[&str]) -> Output {
        self.command(python, launcher, flags, arguments).output().unwrap()
    }

    fn command(&self, python: &Path, launcher: &[&str], flags: &[&str], arguments: &[&str]) -> std::process::Command {
        let mut program = std::process::Command::new(PROGRAM);
        let is_quick = self.is_quick && !flags.contains(&"--whole");
        program
            .arg("fit")
            .args(is_quick.then_some("--quick"))
            .args(flags)
            .arg("--")
            .arg(python)
            .args(launcher)
            .arg(&self.script)
            .args(arguments);
        // Uses no network, and leaves its files here.
        program.env("HF_HUB_OFFLINE", "1").env("HF_HOME", self.home.0.path()).current_dir(self.home.0.path());
        program.env("OMP_NUM_THREADS", "1").env("TOKENIZERS_PARALLELISM", "false");
        program.envs(self.home.variables());
        program
    }

    /// The same as JSON, and the exit code.
    fn json(&self, flags: &[&str], arguments: &[&str]) -> (Value, i32) {
        let output = self.fit(&[&["--json"], flags].concat(), arguments);
        let answer = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
        schemas::check("fit", &answer);
        (answer, output.status.code().unwrap())
    }
}

fn bytes(it: &Value, name: &str) -> u64 {
    it[name].as_u64().unwrap_or_else(|| panic!("{name}: {it:#}"))
}

/// The line of the job that has this mark.
fn marked(mark: &str) -> String {
    let at = JOB.lines().position(|it| it.ends_with(&format!("# {mark}"))).unwrap();
    format!("train.py:{}", at + 1)
}

#[test]
fn the_answer_is_an_interval_with_step_line_and_what_is_not_known() {
    let asked = Asked::new(JOB);
    let (answer, code) = asked.json(&["--gpu", "RTX 3060"], &["64"]);
    assert_eq!((answer["schema"].as_u64(), answer["fits"].as_str(), code), (Some(1), Some("yes"), 0), "{answer:#}");
    let device = &answer["devices"][0];
    assert_eq!(
        (&device["name"], &device["fits"], bytes(device, "total")),
        (&"RTX 3060".into(), &"yes".into(), 12_288 << 20)
    );
    let peak = &answer["peak"];
    let [allocated, reserved, low, usual, high] =
        ["allocated", "reserved", "device_low", "device", "device_high"].map(|it| bytes(peak, it));
    assert!(allocated <= reserved && reserved < low && low <= usual && usual < high, "{peak:#}");
    assert_eq!((peak["step"].as_u64(), peak["line"].as_str()), (Some(2), Some(&*marked("backward"))), "{peak:#}");
    let unknown = answer["unknown"].to_string();
    for part in ["CUDA context: ", "cuDNN workspaces: ", &format!("{}: `if loss > 3:", marked("branch"))] {
        assert!(unknown.contains(part), "{part}: {unknown}");
    }
    // The probed process itself, without anything of ours in between, counts the same.
    let gpu = Gpu::new("NVIDIA GeForce RTX 3060:512GiB:0MiB");
    let printed = torch::stdout(&gpu.script(JOB).args(["64", "4"]).output().unwrap());
    let counted: Vec<u64> = printed.lines().last().unwrap().split(' ').map(|it| it.parse().unwrap()).collect();
    assert_eq!([allocated, reserved], counted[..], "{printed}");
}

#[test]
fn the_text_shows_what_the_peak_consists_of_and_the_job_is_recorded() {
    let asked = Asked::new(JOB);
    let file = asked.home.0.path().join("fit.jsonl.zst");
    let output = asked.fit(&["--gpu", "4090", "--gpu", "24", "--output", file.to_str().unwrap()], &["64"]);
    let text = torch::stdout(&output);
    for part in [
        "RTX 4090: ",
        "24 GB: ",
        "of A10, A10G, L4 they get",
        "outside the allocator as on RTX 4090",
        "fits with ",
        "smallest known card that is enough: ",
        "in step 2 of 4 that ran",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // Its size is what jobs get of it, as of the others.
    let (name, size) = text.split_once("that is enough: ").unwrap().1.split_once(" (").unwrap();
    let known = Device::all().into_iter().find(|it| it.name == name).unwrap();
    assert!(known.reserved > 0 && size.starts_with(&format!("{})\n", Bytes(known.capacity()))), "{text}");
    for part in ["  weights  ", "gradients", "optimizer state", "activations", "CUDA context", "not known:"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let mut check = std::process::Command::new(PROGRAM);
    let checked = check.args(["check", "--json"]).arg(&file).envs(asked.home.variables()).output().unwrap();
    let checked: Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(checked["steps"], 4, "{checked:#}");
}

/// The reported value runs on a device of that size, with all that lies outside the allocator; the next one does not.
fn check_largest(values: &str, step: u64) {
    let asked = Asked::new(JOB);
    let size = 700_u64 << 20;
    let vary = format!("batch={values}");
    let (answer, code) = asked.json(&["--gpu", &size.to_string(), "--vary", &vary], &["{batch}"]);
    assert_eq!((answer["vary"]["name"].as_str(), code), (Some("batch"), 0), "{answer:#}");
    let largest: u64 = answer["vary"]["largest"].as_str().unwrap().parse().unwrap();
    // What ran is listed: larger values want more, and those up to the largest run.
    let tried = answer["vary"]["tried"].as_array().unwrap();
    let mut tried: Vec<(u64, bool, u64)> = tried
        .iter()
        .map(|it| (it["value"].as_str().unwrap().parse().unwrap(), it["runs"] == true, bytes(it, "wanted")))
        .collect();
    tried.sort_unstable();
    assert!(tried.iter().all(|it| it.1 == (it.0 <= largest)) && tried.is_sorted_by_key(|it| it.2), "{tried:?}");
    assert!((128..512).contains(&largest), "{answer:#}");
    let peak = &answer["peak"];
    // cuDNN's workspaces are in the interval, but the job runs without them.
    let outside = bytes(peak, "device_high") - bytes(peak, "reserved") - bytes(peak, "reserved") / 100 * 21;
    let run = |batch: u64| {
        let gpu = Gpu::new(&format!("NVIDIA GeForce RTX 3070:{size}"));
        let mut script = gpu.script(JOB);
        script.env("SIMGPU_CONTEXT_MB", outside.div_ceil(1 << 20).to_string());
        script.args([&batch.to_string(), "4"]).output().unwrap()
    };
    torch::stdout(&run(largest));
    let next = run(largest + step);
    assert!(String::from_utf8_lossy(&next.stderr).contains("OutOfMemoryError"), "{next:?}");
}

/// A value that is written nowhere does nothing, and every one would be the largest.
#[test]
fn a_value_that_changes_nothing_is_refused() {
    let asked = Asked::new(JOB);
    // The largest of two fits, and the other one shows that both are the same.
    let output = asked.fit(&["--gpu", "24", "--vary", "bacth=8,16"], &["64"]);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(printed.contains("bacth changes nothing") && printed.contains("{bacth}"), "{printed}");
    assert!(printed.contains("; now bacth=8, run 2 of at most 2"), "{printed}");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{output:?}");
}

/// A place of another name is a slip of the pen, and no run shows it better than the names themselves.
#[test]
fn a_place_for_another_name_is_refused_before_the_job_runs() {
    let output = Asked::new(JOB).fit(&["--gpu", "24", "--vary", "bs=8,16"], &["{batch}"]);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(printed.contains("the command has {batch}, and --vary names bs"), "{printed}");
    assert!(!printed.contains("now bs="), "{printed}");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{output:?}");
}

#[test]
fn the_largest_value_that_fits_runs_and_the_next_one_does_not() {
    check_largest("384,512", 128);
}

#[test]
fn the_largest_value_of_a_fine_range_runs_and_one_more_does_not() {
    test_tiers::full!("a search over 385 values");
    check_largest("128..512", 1);
}

/// It is not clear whether a value fits that cannot be judged.
#[test]
fn a_search_without_a_judged_value_stays_unknown() {
    let asked = Asked::new("raise SystemExit('no data')\n");
    let (answer, code) = asked.json(&["--gpu", "T4", "--vary", "batch=1"], &[]);
    assert_eq!((answer["fits"].as_str(), code), (Some("unknown"), 2), "{answer:#}");
}

#[test]
fn a_job_that_does_not_fit_ends_with_its_line_and_exit_code_1() {
    let asked = Asked::new(JOB);
    let output = asked.fit(&["--gpu", "420MiB"], &["512"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("420MiB: ") && text.contains("does not fit"), "{text}");
}

/// Just below what the allocator reserves with all the room it wants, it gives its cache back.
#[test]
fn a_device_of_the_size_decides_where_the_cache_can_be_given_back() {
    test_tiers::change!("starts PyTorch six times");
    let asked = Asked::new(JOB);
    let (answer, _) = asked.json(&["--gpu", "2GiB"], &["256"]);
    let peak = &answer["peak"];
    let size = bytes(peak, "device_high") - bytes(peak, "reserved") / 100 * 21 - (4 << 20);
    let output = asked.fit(&["--gpu", &size.to_string()], &["256"]);
    let text = torch::stdout(&output);
    assert!(text.contains("fits, tightly") && text.contains("wanted by the allocator"), "{text}");
    // The peak is the one of a device of that size, where the process itself counts the same.
    let (wanted, outside) = (bytes(peak, "reserved"), bytes(peak, "device_high") - bytes(peak, "reserved") / 100 * 121);
    let (answer, _) = asked.json(&["--gpu", &size.to_string()], &["256"]);
    let peak = &answer["peak"];
    assert!(bytes(peak, "reserved") < wanted && bytes(peak, "wanted") == wanted, "{answer:#}");
    assert!(bytes(peak, "device_high") <= size, "{answer:#}");
    assert_eq!(answer["devices"][0]["peak"]["reserved"], peak["reserved"], "{answer:#}");
    let gpu = Gpu::new(&format!("NVIDIA GeForce RTX 3070:{size}"));
    let mut script = gpu.script(JOB);
    script.env("SIMGPU_CONTEXT_MB", outside.div_ceil(1 << 20).to_string()).args(["256", "4"]);
    let printed = torch::stdout(&script.output().unwrap());
    let counted = printed.lines().last().and_then(|it| it.split(' ').nth(1)?.parse().ok());
    assert_eq!(counted, Some(bytes(peak, "reserved")), "{printed} {answer:#}");
}

/// The gradient of a pointwise convolution's weights is summed by image where there is room, and otherwise without it.
#[test]
fn a_workspace_of_cudnn_counts_and_is_not_necessary() {
    // PyTorch's thread for backward may still run while the interpreter ends, and then aborts the process.
    let job = "import torch\nx = torch.empty(256, 320, 3, 3, device='cuda')\n\
               net = torch.nn.Conv2d(320, 1280, 1, bias=False).cuda()\n\
               for _ in range(2):\n    net(x).sum().backward()\n\
               print(torch.cuda.max_memory_reserved(), flush=True)\n\
               import os\nos._exit(0)\n";
    let reserved = |size: &str| -> u64 {
        let gpu = Gpu::new(&format!("NVIDIA GeForce RTX 3060:{size}:0MiB"));
        let output = gpu.script(job).env("SIMGPU_CONTEXT_MB", "100").output().unwrap();
        torch::stdout(&output).trim().parse().unwrap()
    };
    let (workspace, small) = (256 * 320 * 1280 * 4, 400 << 20);
    assert!(reserved("8GiB") > workspace && reserved("400MiB") < small, "{workspace}");
}

/// Several devices have a peak each; the answer's own is what the job wants.
#[test]
fn each_of_several_devices_has_a_peak_of_its_own() {
    let asked = Asked::new(JOB);
    let (answer, _) = asked.json(&["--gpu", "2GiB"], &["256"]);
    let peak = &answer["peak"];
    let size = (bytes(peak, "device_high") - bytes(peak, "reserved") / 100 * 21 - (4 << 20)).to_string();
    let (answer, code) = asked.json(&["--gpu", "2GiB", "--gpu", &size], &["256"]);
    let [large, small] = [0, 1].map(|at| bytes(&answer["devices"][at]["peak"], "reserved"));
    assert_eq!((code, large), (0, bytes(&answer["peak"], "wanted")), "{answer:#}");
    assert_eq!(answer["peak"]["reserved"], large, "{answer:#}");
    assert!(small < large, "{answer:#}");
    let parts: Vec<&String> = answer["peak"]["parts"].as_object().unwrap().keys().collect();
    assert!(["weights", "optimizer", "activations"].iter().all(|it| parts.iter().any(|part| part == it)), "{answer:#}");
}

#[test]
fn unknown_facts_are_named_with_their_line_and_exit_code_2() {
    let refused = "import ctypes, torch\nx = torch.ones(3, device='cuda')\n\
                   if ctypes.CDLL('libcuda.so.1').cuTexObjectCreate(0, 0, 0, 0):\n    raise RuntimeError('no textures')\n";
    let shape = "import torch\nx = torch.ones(3, device='cuda', requires_grad=True)\no = torch.optim.SGD([x], 0.1)\n\
                 for i in range(4):\n    y = torch.bincount(x.long())\n    (x * 2).sum().backward()\n    o.step()\n";
    let cases = [
        (refused, "cannot tell: the job calls cuTexObjectCreate at train.py:3, which is not simulated\n"),
        (shape, "train.py:5: `y = torch.bincount(x.long())` makes a tensor whose size depends on values"),
        ("import torch\ntorch.ones(3)\n", "no process of the job used a GPU"),
        ("raise SystemExit('oh no')\n", "the job failed: exit code 1\n  oh no"),
    ];
    for (script, phrase) in test_tiers::vary!(cases, "other jobs of which something is unknown") {
        let output = Asked::new(script).fit(&["--gpu", "T4"], &[]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.code() == Some(2) && text.contains(phrase), "{phrase}: {output:?}");
    }
}

/// What runs on no device of this machine is in no live view of it.
#[test]
fn the_job_serves_no_live_view() {
    let script = "import os, sys, torch\nnet = torch.nn.Linear(8, 8).cuda()\no = torch.optim.SGD(net.parameters(), 0.1)\n\
        own = os.environ['GPUWATCH_SOCKET_DIR']\nfor _ in range(9):\n    net(torch.ones(8, 8, device='cuda')).sum().backward()\n    \
        o.step()\n    while not os.path.isdir(own) or not os.listdir(own):\n        pass\n    \
        assert not os.path.isdir(sys.argv[1]) or not os.listdir(sys.argv[1])\n";
    let asked = Asked::new(script);
    let sockets = asked.home.0.path().join("sockets");
    assert!(asked.home.variables().iter().any(|it| it.0 == "GPUWATCH_SOCKET_DIR" && it.1 == sockets.as_os_str()));
    let output = asked.fit(&["--gpu", "T4"], &[sockets.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn a_question_that_makes_no_sense_is_refused_with_what_there_is() {
    let asked = Asked::new("");
    for (flags, phrase) in [
        (&["--gpu", "A100"][..], "A100 40GB, A100 80GB"),
        (&["--gpu", "Voodoo"], "neither a size such as 24GB nor a known GPU; for a card that is not known, "),
        (&["--gpu", "gtx 1080"], "RTX 3080, RTX 5080, RTX 4080; for a card that is not known, name its size"),
        (&["--gpu", "24576"], "24576MiB"),
        (&["--gpu", "RTX 4090 Laptop GPU"], "--gpu 16GB"),
        (&["--gpu", "T4", "--vary", "batch"], "batch=8..64:8"),
        (&["--vary", "batch=8"], "--gpu"),
    ] {
        let output = asked.fit(flags, &[]);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && printed.contains(phrase), "{phrase}: {printed}");
    }
}
