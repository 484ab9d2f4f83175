//! Frameworks on PyTorch, unchanged: each training gets a verdict, and its peak a line of the user's script.
//!
//! ```text
//! GPUWATCH_TESTS=full GPUWATCH_FIT=all cargo test --test it fit::frameworks::
//! ```
//!
//! Without `GPUWATCH_FIT`, bfloat16 and the trainings on three devices are left out: 6 minutes.

use super::{Asked, bytes};
use crate::{helpers::torch, probe::frameworks::FRAMEWORKS};
use serde_json::Value;
use std::{env, path::Path, process::Output};

const JOB: &str = include_str!("frameworks.py");

/// Whether everything shall be trained.
fn is_all() -> bool {
    env::var_os("GPUWATCH_FIT").is_some_and(|it| it == "all")
}

/// What starts a process for each device.
const TORCHRUN: &[&str] = &["-m", "torch.distributed.run", "--nproc-per-node", "gpu"];

/// What is uncertain in every verdict. Anything beside it would mean that a call is not simulated.
const RANGES: [&str; 4] = ["CUDA context: ", "lazily loaded kernels: ", "cuDNN workspaces: ", "NCCL buffers: "];

/// The answer for a training that fits; its parts are checked.
fn answer(python: &Path, launcher: &[&str], gpu: &str, library: &str, mode: &str) -> Value {
    let asked = Asked::new(JOB);
    let output = asked.launched(python, launcher, &["--json", "--gpu", gpu], &[library, mode]);
    let answer: Value = serde_json::from_str(&torch::stdout(&output)).unwrap();
    let peak = &answer["peak"];
    assert_eq!(answer["fits"], "yes", "{library} {mode}: {answer:#}");
    assert!(bytes(peak, "allocated") <= bytes(peak, "reserved"), "{library} {mode}: {peak:#}");
    let line = peak["line"].as_str().and_then(|it| it.strip_prefix("train.py:")?.parse::<usize>().ok());
    let text = line.and_then(|it| JOB.lines().nth(it - 1));
    assert!(text.is_some_and(|it| it.contains('(')), "{library} {mode}: {peak:#}");
    for it in answer["unknown"].as_array().unwrap() {
        let text = it.as_str().unwrap();
        assert!(RANGES.iter().any(|range| text.starts_with(range)), "{library} {mode}: {text}");
    }
    answer
}

fn allocated(answer: &Value) -> u64 {
    bytes(&answer["peak"], "allocated")
}

/// One device: all precisions fit, and activations that are computed again do not wait for backward.
fn check_precisions(library: &str) {
    test_tiers::full!("frameworks on PyTorch");
    let python = test_tiers::needs!(FRAMEWORKS.found());
    let peak = |mode: &str| allocated(&answer(&python, &[], "RTX 4090", library, mode));
    let (kept, again) = (peak("fp32"), peak("checkpointed"));
    assert!(again < kept, "{library}: {again} of {kept}");
    assert!(peak("amp") > 0);
    if is_all() {
        assert!(peak("bf16") > 0);
    } else {
        test_tiers::leave_out!("bfloat16: GPUWATCH_FIT=all trains with it");
    }
}

/// Two devices: each rank has its communicators, and sharded weights need less than copies.
fn check_ranks(library: &str, launcher: &[&str]) {
    test_tiers::full!("frameworks on PyTorch");
    let python = test_tiers::needs!(FRAMEWORKS.found());
    let of = |mode: &str| answer(&python, launcher, "2xRTX 4090", library, mode);
    let (copied, sharded) = (of("ddp"), of("fsdp"));
    for it in [&copied, &sharded] {
        assert!(it["unknown"].to_string().contains("NCCL buffers: "), "{library}: {it:#}");
    }
    assert!(allocated(&sharded) < allocated(&copied), "{library}: {sharded:#} {copied:#}");
}

/// Three and four devices, in mixed precision: a rank of four keeps less than one of three where weights are sharded.
fn check_more_ranks(library: &str, launcher: &[&str], precision: &str) {
    test_tiers::full!("frameworks on PyTorch");
    let python = test_tiers::needs!(FRAMEWORKS.found());
    let of = |count: u8, mode: &str| {
        answer(&python, launcher, &format!("{count}xRTX 4090"), library, &format!("{mode}-{precision}"))
    };
    let (copied, three, four) = (of(3, "ddp"), of(3, "fsdp"), of(4, "fsdp"));
    assert!(allocated(&three) < allocated(&copied), "{library} {precision}: {three:#} {copied:#}");
    assert!(allocated(&four) < allocated(&three), "{library} {precision}: {four:#} {three:#}");
}

#[test]
fn a_loop_in_mixed_precision_fits_on_three_and_four_devices() {
    if !is_all() {
        test_tiers::skip!("takes 70 s: GPUWATCH_FIT=all runs it");
    }
    check_more_ranks("timm", TORCHRUN, "amp");
}

#[test]
fn a_trainer_in_mixed_precision_fits_on_three_and_four_devices() {
    if !is_all() {
        test_tiers::skip!("takes 80 s: GPUWATCH_FIT=all runs it");
    }
    check_more_ranks("trainer", TORCHRUN, "bf16");
}

/// Lightning refuses to shard weights in float16.
#[test]
fn lightning_in_mixed_precision_fits_on_three_and_four_devices() {
    if !is_all() {
        test_tiers::skip!("takes 100 s: GPUWATCH_FIT=all runs it");
    }
    check_more_ranks("lightning", &[], "bf16");
}

#[test]
fn a_loop_fits_on_eight_devices() {
    test_tiers::full!("frameworks on PyTorch");
    let python = test_tiers::needs!(FRAMEWORKS.found());
    let of = |count: u8| answer(&python, TORCHRUN, &format!("{count}xRTX 4090"), "timm", "fsdp");
    let (four, eight) = (of(4), of(8));
    assert!(allocated(&eight) < allocated(&four), "{eight:#} {four:#}");
}

macro_rules! trainings {
    ($($library:ident: $precisions:ident, $ranks:ident $launcher:expr;)+) => {$(
        #[test]
        fn $precisions() {
            check_precisions(stringify!($library));
        }

        #[test]
        fn $ranks() {
            check_ranks(stringify!($library), $launcher);
        }
    )+};
}

trainings! {
    trainer: a_trainer_fits_in_each_precision, a_trainer_fits_on_two_devices TORCHRUN;
    accelerate: accelerate_fits_in_each_precision, accelerate_fits_on_two_devices TORCHRUN;
    peft: an_adapter_fits_in_each_precision, an_adapter_fits_on_two_devices TORCHRUN;
    trl: supervised_fine_tuning_fits_in_each_precision, supervised_fine_tuning_fits_on_two_devices TORCHRUN;
    lightning: lightning_fits_in_each_precision, lightning_fits_on_two_devices &[];
    timm: timm_fits_in_each_precision, timm_fits_on_two_devices TORCHRUN;
    diffusers: a_diffusion_model_fits_in_each_precision, a_diffusion_model_fits_on_two_devices TORCHRUN;
    torchvision: torchvision_fits_in_each_precision, torchvision_fits_on_two_devices TORCHRUN;
}

/// No end token is drawn, so that only the length ends it. What beams return has a length that is read from the device.
#[test]
fn generation_ends_at_its_length() {
    test_tiers::full!("frameworks on PyTorch");
    let python = test_tiers::needs!(FRAMEWORKS.found());
    let script = "import torch\nfrom transformers import LlamaConfig, LlamaForCausalLM\n\
                  config = LlamaConfig(vocab_size=500, hidden_size=32, intermediate_size=64, num_hidden_layers=1,\n    \
                  num_attention_heads=2, num_key_value_heads=2)\nmodel = LlamaForCausalLM(config).cuda()\n\
                  optimizer = torch.optim.AdamW(model.parameters())\n\
                  tokens = torch.randint(5, 500, (3, 10), device='cuda')\nfor step in range(4):\n    \
                  model(tokens, labels=tokens).loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()\n    \
                  for more in ({}, {'do_sample': True}):\n        \
                  made = model.generate(tokens, max_new_tokens=12, **more)\n        \
                  assert made.shape == (3, 22), made.shape\n    \
                  model.generate(tokens, max_new_tokens=12, num_beams=2)\n";
    let output = Asked::new(script).launched(&python, &[], &["--gpu", "RTX 4090"], &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// What a trainer counts is learnt from what rises: the job's callbacks and steps test numbers of a library's.
#[test]
fn evaluations_after_steps_that_a_trainer_counts_are_predicted() {
    const TRAINERS: &str = include_str!("../python/trainers.py");
    test_tiers::full!("frameworks on PyTorch");
    let python = test_tiers::needs!(FRAMEWORKS.found());
    let line = TRAINERS.lines().position(|it| it.ends_with("# evaluate")).unwrap() + 1;
    for (library, place) in [
        ("lightning", "batch"),
        ("lightning", "step"),
        ("lightning", "epoch"),
        ("lightning", "callback"),
        ("transformers", "step"),
        ("transformers", "callback"),
    ] {
        for (twin, fits) in [("bad", "no"), ("good", "yes")] {
            let output =
                Asked::new(TRAINERS).fit_with(&python, &["--json", "--gpu", "600MiB"], &[library, place, twin]);
            let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(answer["fits"], fits, "{library} {place} {twin}: {answer:#}");
            assert_eq!(answer["peak"]["line"], format!("train.py:{line}"), "{library} {place} {twin}: {answer:#}");
        }
    }
}

/// Returns the number on a job's last line: trainers print, too.
fn printed(output: &Output) -> u64 {
    torch::stdout(output).lines().last().unwrap().parse().unwrap()
}

/// Sizes that grow by what a trainer counts, or by what the job counts in a trainer's loop.
#[test]
fn the_largest_size_in_the_loop_of_a_trainer_is_seen() {
    const SCHEDULES: &str = include_str!("../python/frameworks/schedules.py");
    test_tiers::full!("frameworks on PyTorch");
    let python = test_tiers::needs!(FRAMEWORKS.found());
    for (library, kind) in [
        ("lightning", "epoch"),
        ("lightning", "table"),
        ("lightning", "ramp"),
        ("lightning", "hook"),
        ("lightning", "data"),
        ("transformers", "calls"),
        ("transformers", "epoch"),
        ("transformers", "steps"),
        ("transformers", "fixed"),
    ] {
        let asked = Asked::new(SCHEDULES);
        let output = asked.fit_with(&python, &["--json", "--gpu", "24GiB"], &[library, kind, "whole"]);
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(answer["fits"], "yes", "{library} {kind}: {answer:#}");
        let end =
            torch::Gpu::new("NVIDIA X:24GiB").script_with(&python, SCHEDULES).args([library, kind, "end"]).output();
        let end = printed(&end.unwrap());
        let found = allocated(&answer);
        assert!((97..=102).contains(&(found * 100 / end)), "{library} {kind}: {found} of {end}");
    }
}

/// What branches and epochs keep in the loop of a trainer adds up; what was not made of that is named.
#[test]
fn what_a_job_keeps_in_the_loop_of_a_trainer_adds_up() {
    const KEEPING: &str = include_str!("../python/frameworks/keeping.py");
    test_tiers::full!("frameworks on PyTorch");
    let python = test_tiers::needs!(FRAMEWORKS.found());
    let fit = |kind: [&str; 2]| -> Value {
        let output = Asked::new(KEEPING).fit_with(&python, &["--json", "--gpu", "24GiB"], &kind);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    for kind in [
        ["lightning", "steps"],
        ["lightning", "epochs"],
        ["lightning", "batches"],
        ["lightning", "newest"],
        ["transformers", "steps"],
        ["transformers", "epochs"],
        ["transformers", "halves"],
    ] {
        let answer = fit(kind);
        assert_eq!(answer["fits"], "yes", "{kind:?}: {answer:#}");
        let whole = torch::Gpu::new("NVIDIA X:24GiB").script_with(&python, KEEPING).args(kind).output();
        let whole = printed(&whole.unwrap());
        let found = allocated(&answer);
        // A trainer that goes on enters a branch by itself, too: of five times, that is much.
        let most = if kind[1] == "halves" { 135 } else { 115 };
        assert!((97..=most).contains(&(found * 100 / whole)), "{kind:?}: {found} of {whole}");
    }
    let line = KEEPING.lines().position(|it| it.ends_with("# often")).unwrap();
    let answer = fit(["lightning", "often"]);
    let doubt = format!("at train.py:{line} memory still rose by 4.00 MiB in each pass, after 40 of them");
    assert!(answer["fits"] == "unknown" && answer["unknown"].to_string().contains(&doubt), "{answer:#}");
}
