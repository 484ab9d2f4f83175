//! What `--advise` measures: each technique that it injects has the peaks of the same change written by hand.
//!
//! ```text
//! GPUWATCH_TESTS=full cargo test --test it fit::advise::
//! ```

/// Who shows it.
mod shown;

use super::{Asked, bytes, packages::PACKAGES};
use crate::{helpers::torch, house::schemas, probe::frameworks::FRAMEWORKS};
use gpuwatch::model::fit::technique::TECHNIQUES;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

const JOB: &str = include_str!("../python/advise/train.py");
const WITH_FRAMEWORKS: &str = include_str!("frameworks.py");

/// Asks for advice about a training; returns the answer and the exit code.
fn advise(script: &str, python: &Path, names: &str, flags: &[&str], arguments: &[&str]) -> (Value, i32) {
    let asked = Asked::new(script);
    let names = format!("--advise={names}");
    let output = asked.fit_with(python, &[&["--json", &names], flags].concat(), arguments);
    let answer = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    schemas::check("advise", &answer);
    // Nothing was written beside the script, nor into it.
    assert_eq!(fs::read_to_string(&asked.script).unwrap(), script);
    (answer, output.status.code().unwrap())
}

/// The allocated and reserved peaks of a training with edits by hand.
fn by_hand(script: &str, python: &Path, arguments: &[&str]) -> (u64, u64) {
    let asked = Asked::new(script);
    let output = asked.fit_with(python, &["--json", "--gpu", "RTX 4090"], arguments);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    (bytes(&answer["peak"], "allocated"), bytes(&answer["peak"], "reserved"))
}

fn row<'a>(answer: &'a Value, name: &str) -> &'a Value {
    let rows = answer["rows"].as_array().unwrap_or_else(|| panic!("{answer:#}"));
    rows.iter().find(|it| it["technique"] == name).unwrap_or_else(|| panic!("{name}: {answer:#}"))
}

fn refused(answer: &Value, name: &str) -> bool {
    row(answer, name)["refused"].is_string()
}

/// Where a technique breaks the evaluation after training, the evaluation's peak is missing, and nothing is saved.
#[test]
fn a_technique_with_which_a_later_phase_fails_is_refused() {
    test_tiers::change!("some four starts of PyTorch");
    let script = "import torch\nnet = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU()).cuda()\n\
                  optimizer = torch.optim.Adam(net.parameters())\nfor step in range(60):\n    \
                  net(torch.randn(64, 512, device='cuda')).square().mean().backward()\n    optimizer.step()\n    \
                  optimizer.zero_grad()\nnet.eval()\nwith torch.no_grad():\n    \
                  kept = [net(torch.randn(65536, 512, device='cuda')) for _ in range(4)]\n    torch.cat(kept) @ \
                  torch.eye(512, device='cuda')\n";
    let (answer, _) = advise(script, &torch::python(), "weights-bf16,foreach", &["--gpu", "RTX 4090"], &[]);
    let why = row(&answer, "weights-bf16")["refused"].as_str().unwrap_or_else(|| panic!("{answer:#}"));
    assert!(why.contains("with it, ") && why.contains("failed"), "{why}");
    assert!(!refused(&answer, "foreach"), "{answer:#}");
}

#[test]
fn a_technique_has_the_peak_of_the_same_change_by_hand() {
    test_tiers::change!("some ten starts of PyTorch");
    let python = torch::python();
    let names = "checkpoint,sdpa,sgd,shard:2,set-to-none";
    let (answer, code) = advise(JOB, &python, names, &["--gpu", "RTX 4090"], &["causal"]);
    assert_eq!(code, 0, "{answer:#}");
    for name in ["checkpoint", "sdpa"] {
        let it = row(&answer, name);
        assert_eq!((bytes(it, "allocated"), bytes(it, "reserved")), by_hand(JOB, &python, &["causal", name]), "{it:#}");
        assert_eq!((&it["fits"], &it["price"]["class"]), (&"yes".into(), &"same result".into()), "{it:#}");
    }
    let checkpoint = row(&answer, "checkpoint");
    assert_eq!(
        (&checkpoint["applied"], &checkpoint["price"]["recomputed_blocks"]),
        (&"4 of 4 blocks".into(), &4.into())
    );
    // What runs twice launches its kernels twice; what is fused launches fewer.
    let launches = |name| row(&answer, name)["price"]["kernel_launches"].as_i64().unwrap();
    assert!(launches("checkpoint") > 0 && launches("sdpa") < 0, "{answer:#}");
    let edit = row(&answer, "sdpa")["edit"].to_string();
    assert!(edit.contains("F.scaled_dot_product_attention(q, k, v,") && edit.contains("is_causal=True"), "{edit}");
    assert_eq!(row(&answer, "sgd")["price"]["class"], "other training");
    assert!(refused(&answer, "set-to-none") && refused(&answer, "shard:2"), "{answer:#}");
    // Accepted rows come first, the smallest peak before others; savings of a combination were measured too.
    let peaks: Vec<_> = answer["rows"].as_array().unwrap().iter().map_while(|it| it["device"].as_u64()).collect();
    assert!(peaks.len() == 3 && peaks.is_sorted(), "{answer:#}");
    let baseline = bytes(&answer["baseline"]["peak"], "device");
    assert!(peaks.iter().all(|it| *it < baseline), "{answer:#}");
    let pairs = answer["combinations"].as_array().unwrap();
    let both = pairs.iter().find(|pair| pair["techniques"].as_array().is_some_and(|it| it.len() == 2)).unwrap();
    let names: Vec<&str> = both["techniques"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    assert!(both["refused"].is_string() || bytes(both, "device") <= baseline, "{names:?}: {answer:#}");
}

#[test]
fn the_text_names_peaks_verdicts_prices_and_lines() {
    test_tiers::change!("several starts of PyTorch");
    let output = Asked::new(JOB).fit(&["--advise=checkpoint,set-to-none", "--gpu", "RTX 4090"], &["gpt"]);
    let text = torch::stdout(&output);
    for part in [
        "technique   ",
        "checkpoint  ",
        "\nsame result:\ncheckpoint  ",
        "  4 blocks forward twice; ",
        " kernels more a step\n",
        "  checkpoint (4 of 4 blocks)",
        "train.py:",
        "checkpoint(block, …, use_reentrant=False)",
        "not tried or not counted:\n  set-to-none: the job does not fill gradients with zeros",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// What was measured until then is not lost.
#[test]
fn an_interrupted_search_shows_what_it_measured() {
    test_tiers::change!("several starts of PyTorch");
    // The second is Ctrl-C's.
    for signal in [Signal::TERM, Signal::INT] {
        let asked = Asked::new(JOB);
        let flags = ["--advise=checkpoint,bf16,foreach,fused,sgd", "--gpu", "RTX 4090"];
        let mut command = asked.command(&torch::python(), &[], &flags, &["gpt"]);
        let mut search = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(search.stderr.take().unwrap()).lines().map(Result::unwrap);
        let is_said =
            |it: &String| it.starts_with("trying ") && it.contains(" techniques, ") && it.contains(": about ");
        assert!(lines.by_ref().any(|it| is_said(&it)));
        assert!(lines.by_ref().any(|it| it.starts_with("1 of ")));
        kill_process(Pid::from_child(&search), signal).unwrap();
        drop(lines);
        let output = search.wait_with_output().unwrap();
        assert_eq!(output.status.signal(), Some(signal.as_raw()), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("\ninterrupted after ") && text.contains("\ntechnique "), "{text}");
    }
}

/// As by nohup, or in the background of a script.
#[test]
fn a_signal_that_was_ignored_before_ends_nothing() {
    let script = "import torch\nnet = torch.nn.Linear(64, 64).cuda()\no = torch.optim.SGD(net.parameters(), 0.1)\n\
                  for _ in range(9):\n    net(torch.randn(8, 64, device='cuda')).sum().backward()\n    o.step()\n";
    let asked = Asked::new(script);
    let fit = asked.command(&torch::python(), &[], &["--gpu", "T4"], &[]);
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' INT HUP; exec \"$@\"", "sh"]).arg(fit.get_program()).args(fit.get_args());
    shell.envs(fit.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir(asked.home.0.path());
    let mut job = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(job.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.by_ref().any(|it| it.starts_with("running on a simulated Tesla T4")));
    for signal in [Signal::INT, Signal::HUP] {
        kill_process(Pid::from_child(&job), signal).unwrap();
    }
    lines.for_each(drop);
    let output = job.wait_with_output().unwrap();
    assert!(output.status.success() && output.stdout.starts_with(b"T4: "), "{output:?}");
}

/// No line of a job calls a block of an `nn.Sequential`, nor one of `nn.TransformerEncoder`. With the lines that are
/// printed, written where they say, the job has the peaks of the table.
#[test]
fn what_is_to_be_written_for_blocks_that_the_job_does_not_call_can_be_written() {
    test_tiers::change!("some twelve starts of PyTorch");
    let python = torch::python();
    let own = "import torch\nfrom torch import nn\n# here\n\n\nclass Mixer(nn.Module):\n    def __init__(self):\n        \
        super().__init__()\n        self.one, self.two = nn.Linear(256, 1024), nn.Linear(1024, 256)\n\n    \
        def forward(self, x):\n        return x + self.two(torch.relu(self.one(x)))\n\n\n\
        model = nn.Sequential(nn.Linear(64, 256), *[Mixer() for _ in range(5)], nn.Linear(256, 8)).cuda()\n# there\n\
        optimizer = torch.optim.AdamW(model.parameters())\nfor _ in range(30):\n    \
        model(torch.randn(4096, 64, device='cuda')).square().mean().backward()\n    optimizer.step()\n    \
        optimizer.zero_grad()\n";
    let of_library = "import torch\nfrom torch import nn\n# here\n\n\n\
        layer = nn.TransformerEncoderLayer(64, 4, 512, batch_first=True, dropout=0.0)\n\
        model = nn.Sequential(nn.Linear(64, 64), nn.TransformerEncoder(layer, 5)).cuda()\n# there\n\
        optimizer = torch.optim.AdamW(model.parameters())\nfor _ in range(30):\n    \
        model(torch.randn(64, 64, 64, device='cuda')).square().mean().backward()\n    optimizer.step()\n    \
        optimizer.zero_grad()\n";
    for script in [own, of_library] {
        let (answer, _) = advise(script, &python, "checkpoint,checkpoint:2", &["--gpu", "RTX 4090"], &[]);
        for name in ["checkpoint", "checkpoint:2"] {
            let it = row(&answer, name);
            let lines: Vec<&str> = it["edit"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
            let (imports, edits): (Vec<&str>, Vec<&str>) = lines.iter().partition(|it| it.starts_with("from "));
            let edited = script.replace("# here", &imports.join("\n")).replace("# there", &edits.join("\n"));
            let now = (bytes(it, "allocated"), bytes(it, "reserved"));
            assert_eq!(now, by_hand(&edited, &python, &[]), "{it:#}\n{edited}");
            assert!(now.0 < bytes(&answer["baseline"]["peak"], "allocated"), "{answer:#}");
        }
    }
}

#[test]
fn unknown_names_are_refused_with_the_known_ones() {
    let output = Asked::new(JOB).fit(&["--advise=checkpoints", "--gpu", "RTX 4090"], &["gpt"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    for it in &TECHNIQUES {
        assert!(text.contains(it.name), "{}: {text}", it.name);
    }
}

/// Trainings in plain PyTorch, and what is compared with an edit by hand: each technique in three of them that differ.
const COMPARED: [(&str, &[&str]); 13] = [
    ("gpt", &["checkpoint", "fused", "optimizer-in-backward"]),
    ("causal", &["sdpa", "checkpoint:2", "accumulate"]),
    ("plain", &["sdpa", "bf16"]),
    ("einsum", &["sdpa", "foreach", "optimizer-on-host"]),
    ("watched", &["save-on-cpu", "foreach"]),
    ("module", &["sdpa", "weights-bf16"]),
    ("encoder", &["checkpoint", "checkpoint:2", "fused"]),
    ("vit", &["channels-last", "checkpoint:2", "bf16"]),
    ("cnn", &["channels-last", "accumulate", "optimizer-in-backward"]),
    ("unet", &["channels-last", "checkpoint", "save-on-cpu"]),
    ("lstm", &["weights-bf16", "optimizer-on-host", "foreach"]),
    ("graph", &["bf16", "save-on-cpu", "weights-bf16"]),
    ("ppo", &["fused", "accumulate", "optimizer-in-backward", "optimizer-on-host"]),
];

/// What does not apply to trainings.
const REFUSED: [(&str, &[&str]); 5] = [
    ("sdpa", &["gpt", "watched", "encoder", "vit", "cnn", "unet", "lstm", "graph", "ppo"]),
    ("checkpoint", &["lstm", "ppo"]),
    ("channels-last", &["gpt", "encoder", "lstm", "graph", "ppo"]),
    ("set-to-none", &["gpt", "cnn"]),
    ("eval-accumulation", &["gpt", "ppo"]),
];

/// What most people try first: with `GPUWATCH_ADVISE=all`, each is compared in each training, which takes half an hour.
const USUAL: [&str; 6] = ["checkpoint", "bf16", "foreach", "fused", "accumulate", "sdpa"];

/// Compares the techniques of one training.
fn compare(python: &Path, model: &str, names: &[&str]) {
    let refused_ones: Vec<&str> = REFUSED.iter().filter(|it| it.1.contains(&model)).map(|it| it.0).collect();
    let is_whole = std::env::var("GPUWATCH_ADVISE").is_ok_and(|it| it == "all");
    let more = USUAL.into_iter().filter(|it| is_whole && !names.contains(it) && !refused_ones.contains(it));
    let names = [names, &more.collect::<Vec<_>>()].concat();
    let all = [&names[..], &refused_ones].concat().join(",");
    let (answer, _) = advise(JOB, python, &all, &["--gpu", "RTX 4090"], &[model]);
    for name in names {
        let it = row(&answer, name);
        assert!(it["refused"].is_null(), "{model} {name}: {it:#}");
        let now = (bytes(it, "allocated"), bytes(it, "reserved"));
        assert_eq!(now, by_hand(JOB, python, &[model, name]), "{model} {name}: {it:#}");
    }
    for name in refused_ones {
        assert!(refused(&answer, name), "{model}: {:#}", row(&answer, name));
    }
}

/// Plain PyTorch: transformers, an encoder, a vision transformer, convolutions, a U-Net, an LSTM, a graph network, PPO.
#[test]
fn every_accepted_row_equals_the_edit_by_hand() {
    test_tiers::full!("some hundred starts of PyTorch");
    let python = torch::python();
    let next = AtomicUsize::new(0);
    let worker = || {
        while let Some((model, names)) = COMPARED.get(next.fetch_add(1, Ordering::Relaxed)) {
            compare(&python, model, names);
        }
    };
    // While one waits for a run that has to be alone, the other fills the second processor.
    thread::scope(|scope| {
        scope.spawn(worker);
        worker();
    });
}

/// What others measured on cards: the peak of a loss without pieces, allocated, from TRL's pull request 6858; and of
/// BERT large under transformers' Trainer, as the driver counted it before and in training, from transformers' own
/// guide (version 4.18).
#[test]
fn peaks_are_those_that_others_have_published() {
    const PUBLIC: &str = include_str!("../python/advise/public.py");
    test_tiers::full!("three starts of frameworks on PyTorch");
    let python = test_tiers::needs!(FRAMEWORKS.found());
    let asked = |arguments: &[&str]| {
        let output = Asked::new(PUBLIC).fit_with(&python, &["--json", "--gpu", "H100 80GB"], arguments);
        serde_json::from_slice::<Value>(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
    };
    for (arguments, figure, published, tolerated) in [
        (&["loss"][..], "allocated", 47.55 * 1024.0, 0.01),
        (&["bert", "plain"], "reserved", 8681.0 - 1343.0, 0.05),
        (&["bert", "checkpointed"], "reserved", 6775.0 - 1343.0, 0.05),
    ] {
        let answer = asked(arguments);
        let mib = bytes(&answer["peak"], figure) as f64 / f64::from(1 << 20);
        assert!((mib / published - 1.0).abs() < tolerated, "{arguments:?}: {mib:.0} of {published:.0}");
    }
}

/// In the table above, each technique that has an edit by hand stands three times.
#[test]
fn three_trainings_prove_each_technique() {
    let names: BTreeSet<&str> = COMPARED.iter().flat_map(|it| it.1).copied().collect();
    for name in &names {
        let count = COMPARED.iter().filter(|it| it.1.contains(name)).count();
        assert!(count >= 3 && TECHNIQUES.iter().any(|it| it.name == *name), "{name}: {count}");
    }
    assert_eq!(names.len(), 12);
    assert!(COMPARED.iter().all(|it| it.1.len() > 1));
}

/// What makes single updates impossible is named: clipping, a scaler, accumulation, several optimizers, a closure.
#[test]
fn an_optimizer_that_needs_all_gradients_is_not_run_in_backward() {
    test_tiers::full!("several starts of PyTorch");
    let python = torch::python();
    let script = "import sys, torch\nkind = sys.argv[1]\na, b = (torch.nn.Linear(64, 64).cuda() for _ in range(2))\n\
        net = torch.nn.Sequential(a, b)\nmade = [a, b] if kind == 'several' else [net]\n\
        made = [torch.optim.AdamW(it.parameters()) for it in made]\n\
        scaler = torch.amp.GradScaler('cuda', enabled=kind == 'scaler')\nfor at in range(40):\n    \
        loss = net(torch.randn(64, 64, device='cuda')).sum()\n    \
        scaler.scale(loss).backward()\n    if kind == 'accumulated' and at % 2:\n        continue\n    \
        if kind == 'clipped':\n        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)\n    for it in made:\n        \
        scaler.step(it, *((lambda: loss,) if kind == 'closure' else ()))\n    scaler.update()\n    net.zero_grad()\n";
    for (kind, why) in [
        ("plain", None),
        ("clipped", Some("clips")),
        ("scaler", Some("scales")),
        ("accumulated", Some("several backward passes")),
        ("several", Some("several optimizers")),
        ("closure", Some("closure")),
    ] {
        let (answer, _) = advise(script, &python, "optimizer-in-backward", &["--gpu", "RTX 4090"], &[kind]);
        let it = row(&answer, "optimizer-in-backward");
        match why {
            Some(why) => assert!(it["refused"].as_str().is_some_and(|it| it.contains(why)), "{kind}: {it:#}"),
            None => assert_eq!(it["applied"], "4 of 4 parameters", "{it:#}"),
        }
    }
}

/// Outputs that transformers' Trainer gathers for metrics leave the device after each batch.
#[test]
fn the_switch_for_evaluations_equals_the_edit_by_hand() {
    test_tiers::full!("several starts of a framework on PyTorch");
    let python = test_tiers::needs!(FRAMEWORKS.found());
    let name = "eval-accumulation";
    let (answer, _) = advise(WITH_FRAMEWORKS, &python, name, &["--gpu", "RTX 4090"], &["evaluated", "fp32"]);
    let it = row(&answer, name);
    let now = (bytes(it, "allocated"), bytes(it, "reserved"));
    assert_eq!(now, by_hand(WITH_FRAMEWORKS, &python, &["evaluated", "drained"]), "{it:#}");
    assert!(now.0 < bytes(&answer["baseline"]["peak"], "allocated"), "{answer:#}");
    let names = format!("{name},optimizer-on-host");
    let (answer, _) = advise(WITH_FRAMEWORKS, &python, &names, &["--gpu", "RTX 4090"], &["trainer", "fp32"]);
    for (name, why) in [(name, "losses only"), ("optimizer-on-host", "the loop is that of transformers")] {
        assert!(row(&answer, name)["refused"].as_str().is_some_and(|it| it.contains(why)), "{answer:#}");
    }
}

/// The Trainer's switch for Liger's kernels, which come with a package of their own.
#[test]
fn the_switch_for_kernels_of_a_package_equals_the_edit_by_hand() {
    test_tiers::full!("several starts of frameworks on PyTorch");
    let python = test_tiers::needs!(PACKAGES.found());
    let name = "liger";
    let asked = |python: &Path, job| advise(WITH_FRAMEWORKS, python, name, &["--gpu", "RTX 4090"], &[job, "fp32"]).0;
    for (job, saves) in [("large_vocabulary", 2), ("trl_large_vocabulary", 1)] {
        let answer = asked(&python, job);
        let it = row(&answer, name);
        let now = (bytes(it, "allocated"), bytes(it, "reserved"));
        assert_eq!(now, by_hand(WITH_FRAMEWORKS, &python, &[job, "liger"]), "{job}: {it:#}");
        assert!(saves * now.0 < bytes(&answer["baseline"]["peak"], "allocated"), "{job}: {answer:#}");
    }
    let without = test_tiers::needs!(FRAMEWORKS.found());
    for (python, job, why) in [
        (&python, "trainer", "no kernels for models of type gpt2"),
        (&python, "accelerate", "not that of transformers' Trainer"),
        (&without, "large_vocabulary", "liger_kernel is not installed"),
    ] {
        let answer = asked(python, job);
        assert!(row(&answer, name)["refused"].as_str().is_some_and(|it| it.contains(why)), "{job}: {answer:#}");
    }
}

/// Evaluations of the job's own that gather outputs, also where a method of a class does.
const GATHERING: &str = "import sys, torch
case, is_drained = sys.argv[1], sys.argv[2] == 'drained'
net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Linear(256, 20000)).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
keep = (lambda it: it.cpu()) if is_drained else (lambda it: it)
def batch():
    return torch.randn(512, 256, device='cuda')
@torch.no_grad()
def decorated():
    outputs, losses = [], []
    for _ in range(6):
        found = net(batch())
        losses.append(found.mean().item())
        outputs.append(keep(found))
    return torch.cat(outputs).argmax(-1)
def within():
    outputs = []
    with torch.inference_mode():
        for _ in range(6):
            outputs.append(keep(net(batch())))  # here
        return torch.stack(outputs).mean()
class Evaluator:
    def __init__(self):
        self.outputs = []
    def look(self):
        self.outputs.append(keep(net(batch())))
    def run(self):
        with torch.no_grad():
            for _ in range(6):
                self.look()
        return torch.cat(self.outputs)
def compared():
    outputs, labels = [], torch.zeros(3072, dtype=torch.long, device='cuda')
    with torch.no_grad():
        for _ in range(6):
            outputs.append(net(batch()))
    return (torch.cat(outputs).argmax(-1) == labels).sum()
EVALUATIONS = {'decorated': decorated, 'within': within, 'method': lambda: Evaluator().run(), 'compared': compared}
history = []
def train():
    for step in range(40):
        loss = net(batch()).square().mean()
        loss.backward()
        optimizer.step()
        history.append(loss.detach())
        optimizer.zero_grad()
train()
if case in EVALUATIONS:
    EVALUATIONS[case]()
";

/// Outputs that functions of the job append in an evaluation leave the device, with the peaks of the edit by hand;
/// where what follows needs them there, that is refused.
#[test]
fn outputs_that_the_job_itself_gathers_leave_the_device() {
    test_tiers::change!("some ten starts of PyTorch");
    let python = torch::python();
    let name = "eval-accumulation";
    let asked = |case| advise(GATHERING, &python, name, &["--gpu", "RTX 4090"], &[case, "kept"]).0;
    for (case, edit) in [
        ("decorated", "outputs.append(keep(found).cpu())"),
        ("within", "outputs.append(keep(net(batch())).cpu())"),
        ("method", "self.outputs.append(keep(net(batch())).cpu())"),
    ] {
        let answer = asked(case);
        let it = row(&answer, name);
        let now = (bytes(it, "allocated"), bytes(it, "reserved"));
        assert_eq!(now, by_hand(GATHERING, &python, &[case, "drained"]), "{case}: {it:#}");
        assert!(now.0 + (100 << 20) < bytes(&answer["baseline"]["peak"], "allocated"), "{case}: {answer:#}");
        let lines: Vec<&str> = it["edit"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
        assert!(
            matches!(&lines[..], [line] if line.ends_with(edit) && line.starts_with("train.py:")),
            "{case}: {it:#}"
        );
        assert_eq!(it["applied"], "what 1 line appends", "{case}: {it:#}");
    }
    for (case, why) in [("compared", "at least two devices"), ("nothing", "no evaluation gathered outputs")] {
        let answer = asked(case);
        assert!(row(&answer, name)["refused"].as_str().is_some_and(|it| it.contains(why)), "{case}: {answer:#}");
    }
}

/// An evaluation that keeps its outputs with their graphs, a training in the same mode, and one without an evaluation.
const EVALUATED: &str = "import contextlib, sys, torch
case, edit = sys.argv[1], sys.argv[2]
layers = [torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU()) for _ in range(6)]
net = torch.nn.Sequential(*layers).cuda()
optimizer = torch.optim.AdamW(net.parameters())
def batch():
    return torch.randn(2048, 512, device='cuda')
def evaluate():
    outputs = []
    net.eval()
    with torch.no_grad() if edit == 'plain' else contextlib.nullcontext():
        for _ in range(8):
            outputs.append(net(batch()))
    return torch.stack(outputs).mean()
if case == 'frozen':
    net.eval()
for _ in range(40):
    net(batch()).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
if case == 'evaluated':
    evaluate()
";

/// Outputs of an evaluation that keep the graphs of their batches: the peak is that of `torch.no_grad()` by hand. A
/// model that is trained in that mode needs its graphs.
#[test]
fn an_evaluation_with_gradients_is_measured_without_them() {
    test_tiers::change!("some eight starts of PyTorch");
    let python = torch::python();
    let asked = |case| advise(EVALUATED, &python, "no-grad", &["--gpu", "RTX 4090"], &[case, "graphs"]).0;
    let answer = asked("evaluated");
    let it = row(&answer, "no-grad");
    let now = (bytes(it, "allocated"), bytes(it, "reserved"));
    assert_eq!(now, by_hand(EVALUATED, &python, &["evaluated", "plain"]), "{it:#}");
    assert!(now.0 + (100 << 20) < bytes(&answer["baseline"]["peak"], "allocated"), "{answer:#}");
    assert!(it["edit"][0].as_str().is_some_and(|it| it.starts_with("train.py:")), "{it:#}");
    for case in ["frozen", "trained"] {
        assert!(refused(&asked(case), "no-grad"), "{case}");
    }
}

/// A checkpointed block enters autocast again in backward.
#[test]
fn a_pair_has_the_peaks_of_both_changes_by_hand() {
    test_tiers::full!("some five starts of PyTorch");
    let python = torch::python();
    let (answer, _) = advise(JOB, &python, "checkpoint,bf16", &["--gpu", "RTX 4090"], &["gpt"]);
    let [both] = &answer["combinations"].as_array().unwrap()[..] else { panic!("{answer:#}") };
    let now = (bytes(both, "allocated"), bytes(both, "reserved"));
    assert_eq!(now, by_hand(JOB, &python, &["gpt", "checkpoint", "bf16"]), "{both:#}");
}

/// With frameworks, a technique is the framework's own switch.
#[test]
fn switches_of_frameworks_equal_the_edit_by_hand() {
    test_tiers::full!("frameworks on PyTorch");
    let python = test_tiers::needs!(FRAMEWORKS.found());
    let all = ["trainer", "peft", "trl", "accelerate", "lightning", "timm", "diffusers", "torchvision"];
    for library in all {
        let (answer, _) =
            advise(WITH_FRAMEWORKS, &python, "checkpoint,bf16", &["--gpu", "RTX 4090"], &[library, "fp32"]);
        // The edit by hand checkpoints whole stages of that model, each of two blocks.
        let is_alike = |name: &str| name != "checkpoint" || library != "torchvision";
        for (name, mode) in [("checkpoint", "checkpointed"), ("bf16", "bf16")].into_iter().filter(|it| is_alike(it.0)) {
            let it = row(&answer, name);
            let now = (bytes(it, "allocated"), bytes(it, "reserved"));
            assert_eq!(now, by_hand(WITH_FRAMEWORKS, &python, &[library, mode]), "{library} {name}: {it:#}");
        }
    }
}

const RANKS: &str = include_str!("advise/ranks.py");

/// Advice about a training of several ranks, or its answer with edits by hand.
fn of_ranks(python: &Path, kind: &str, flags: &[&str], arguments: &[&str]) -> Value {
    let launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2"];
    let flags = [&["--json", "--gpu", "2xA100-40GB"], flags].concat();
    let output = Asked::new(RANKS).launched(python, &launcher, &flags, arguments);
    let answer = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    schemas::check(kind, &answer);
    answer
}

/// Fails unless techniques of a wrapper, and all of them together, have the peaks of the edits by hand.
fn compare_ranks(python: &Path, wrapper: &[&str], names: &[&str], refused_ones: &[(&str, &str)]) {
    let all: Vec<&str> = names.iter().copied().chain(refused_ones.iter().map(|it| it.0)).collect();
    let advise = format!("--advise={}", all.join(","));
    let answer = of_ranks(python, "advise", &[&advise], wrapper);
    let by_hand = |edits: &[&str]| {
        let answer = of_ranks(python, "fit", &[], &[wrapper, edits].concat());
        (bytes(&answer["peak"], "allocated"), bytes(&answer["peak"], "reserved"))
    };
    for name in names {
        let it = row(&answer, name);
        let now = (it["allocated"].as_u64().unwrap_or(0), it["reserved"].as_u64().unwrap_or(0));
        assert_eq!(now, by_hand(&[name]), "{wrapper:?} {name}: {answer:#}");
    }
    for (name, why) in refused_ones {
        let it = row(&answer, name)["refused"].as_str().unwrap_or_default();
        assert!(it.contains(why), "{wrapper:?} {name}: {answer:#}");
    }
}

/// Stages of `ZeRO` in the place of `DistributedDataParallel`.
#[test]
fn sharding_of_a_job_of_several_ranks_equals_the_edit_by_hand() {
    test_tiers::change!("some ten starts of two processes of PyTorch");
    let refused = [("reshard", "does not use FSDP"), ("offload", "neither FSDP nor DeepSpeed")];
    let stages: Vec<&str> = test_tiers::vary!(["zero:3", "zero:1", "zero:2"], "another stage").collect();
    compare_ranks(&torch::python(), &["ddp"], &stages, &refused);
}

#[test]
fn sharding_that_is_there_already_is_changed_as_by_hand() {
    test_tiers::full!("some twenty starts of two processes of PyTorch");
    let python = torch::python();
    for wrapper in ["fsdp1", "fsdp2"] {
        compare_ranks(&python, &[wrapper], &["reshard", "offload"], &[("zero:1", "does not use Distributed")]);
        compare_ranks(&python, &[wrapper, "offload"], &["reshard"], &[("offload", "already")]);
    }
    compare_ranks(&python, &["early"], &["zero:1"], &[("zero:3", "Adam is made before DistributedDataParallel")]);
    let python = test_tiers::needs!(PACKAGES.found());
    compare_ranks(&python, &["deepspeed"], &["zero:1", "zero:2", "zero:3"], &[("offload", "without a stage")]);
    compare_ranks(&python, &["deepspeed", "staged"], &["offload"], &[("zero:1", "stage is 1 already")]);
}

/// A job of one rank is offered no stage, and one of several ranks is not told to start several.
#[test]
fn techniques_are_for_one_rank_or_for_several() {
    for it in &TECHNIQUES {
        let is_sharding = it.name.starts_with("zero") || ["reshard", "offload"].contains(&it.name);
        assert_eq!((it.is_for(1), it.is_for(8)), (!is_sharding, !it.name.starts_with("shard:")), "{}", it.name);
    }
}

/// What a job does already is not offered, and what differs between two runs is not measured.
#[test]
fn what_the_job_does_already_is_refused() {
    test_tiers::full!("several starts of PyTorch");
    let python = torch::python();
    let names = "checkpoint,bf16,foreach,fused,accumulate";
    let arguments = ["gpt", "checkpoint", "bf16", "fused"];
    let (answer, _) = advise(JOB, &python, names, &["--gpu", "RTX 4090"], &arguments);
    for (name, why) in [
        ("checkpoint", "checkpoints already"),
        ("bf16", "autocast already"),
        ("foreach", "is fused"),
        ("fused", "fused already"),
    ] {
        let it = row(&answer, name);
        assert!(it["refused"].as_str().is_some_and(|it| it.contains(why)), "{it:#}");
    }
    assert!(!refused(&answer, "accumulate"), "{answer:#}");
    let changing = "import os, torch\nnet = torch.nn.Linear(64, 64).cuda()\no = torch.optim.SGD(net.parameters(), 0.1)\n\
                    for at in range(9):\n    x = torch.randn(64 + os.getpid() % 4096 * 8, 64, device='cuda')\n    \
                    net(x).sum().backward()\n    o.step()\n";
    let (answer, _) = advise(changing, &python, "foreach", &["--gpu", "RTX 4090"], &[]);
    assert!(answer["why"].as_str().is_some_and(|it| it.contains("differs between two runs")), "{answer:#}");
}

/// The models of the page, and how the page calls them.
const COMMON: [(&str, &str); 5] = [
    ("gpt2", "GPT-2 (124 M), 8 × 512 tokens"),
    ("bert", "BERT base (110 M), 16 × 512 tokens"),
    ("vit", "ViT-B/16 (86 M), 32 pictures of 224²"),
    ("resnet50", "ResNet-50 (26 M), 64 pictures of 224²"),
    ("unet", "U-Net of diffusers (144 M), 16 pictures of 64²"),
];

/// `docs/reference/advise-measured.md`: what techniques save in five common models. `GPUWATCH_DOCS=write` rewrites it.
#[test]
fn the_page_has_what_techniques_save_in_common_models() {
    test_tiers::full!("some eighty starts of PyTorch");
    let python = test_tiers::needs!(FRAMEWORKS.found());
    let job = include_str!("../python/advise/common.py");
    let names = [
        "expandable-segments",
        "foreach",
        "fused",
        "checkpoint",
        "checkpoint:2",
        "chunked-loss",
        "save-on-cpu",
        "accumulate",
        "bf16",
        "weights-bf16",
        "adam8bit",
        "adafactor",
    ]; // one row of the page each
    let (mut rows, mut combined) = (vec![Vec::new(); names.len() + 1], Vec::new());
    for (model, title) in COMMON {
        let (answer, _) = advise(job, &python, &names.join(","), &[], &[model]);
        let baseline = bytes(&answer["baseline"]["peak"], "device");
        rows[0].push(format!("{:.2} GiB", gib(baseline)));
        for (at, name) in names.iter().enumerate() {
            let peak = row(&answer, name)["device"].as_u64();
            rows[at + 1].push(peak.map_or_else(|| "–".to_owned(), |it| percent(it, baseline)));
        }
        let best =
            answer["combinations"].as_array().unwrap().iter().find(|it| it["price"]["class"] != "other training");
        if let Some(best) = best.filter(|it| it["device"].is_u64()) {
            let all: Vec<&str> = best["techniques"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
            let peak = bytes(best, "device");
            combined.push(format!(
                "| {title} | {} | {:.2} GiB | {} |",
                all.join(", "),
                gib(peak),
                percent(peak, baseline)
            ));
        }
    }
    let titles: Vec<&str> = COMMON.iter().map(|it| it.1).collect();
    let mut page = format!(
        "# Savings in five models\n\nWhat `gpuwatch fit --advise` measures for five models in float32 with AdamW: the peak \
         on the device, and how each technique changes it. The last table has the best combination that keeps the \
         training.\n\n| technique | {} |\n|---|{}\n",
        titles.join(" | "),
        "---|".repeat(titles.len())
    );
    for (name, cells) in ["none"].into_iter().chain(names).zip(&rows) {
        let _ = writeln!(page, "| {name} | {} |", cells.join(" | "));
    }
    let _ = writeln!(page, "\n| model | best combination | peak | |\n|---|---|---|---|\n{}", combined.join("\n"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/advise-measured.md");
    if std::env::var_os("GPUWATCH_DOCS").is_some_and(|it| it == "write") {
        return fs::write(&path, page).unwrap();
    }
    assert!(fs::read_to_string(&path).unwrap_or_default() == page, "{} differs: GPUWATCH_DOCS=write", path.display());
}

fn gib(bytes: u64) -> f64 {
    f64::from(u32::try_from(bytes >> 20).unwrap()) / 1024.0
}

/// `−40 %`, or `+2 %`.
fn percent(now: u64, before: u64) -> String {
    let change = 100.0 * (gib(now) / gib(before) - 1.0);
    if change < 0.0 { format!("−{:.0} %", -change) } else { format!("+{change:.0} %") }
}
