//! Packages that people train with, as their documents show them: each training runs to a plain yes.
//!
//! ```text
//! GPUWATCH_TESTS=full cargo test --test it fit::packages::
//! ```
//!
//! `GPUWATCH_PACKAGES_VENV` names an environment that has them, the frameworks and the suite's PyTorch.

use super::{Asked, bytes};
use crate::{
    helpers::{torch, venv::Venv},
    probe::frameworks::FRAMEWORKS,
};
use serde_json::Value;
use std::{fs, path::Path, sync::OnceLock};

pub(crate) static PACKAGES: Venv = Venv {
    variable: "GPUWATCH_PACKAGES_VENV",
    name: "venv-packages",
    holds: "bitsandbytes, DeepSpeed, Triton and others (a download of about 350 MB)",
    packages: &[&[include_str!("../python/packages/requirements.txt")]],
    above: Some(&FRAMEWORKS),
    python: OnceLock::new(),
};

const JOB: &str = include_str!("../python/packages/train.py");

/// A function of the script, its package and what it does as the documents list them, and a phase that follows.
type Training = (&'static str, &'static str, &'static str, Option<&'static str>);

const TRAININGS: [Training; 19] = [
    ("qlora", "bitsandbytes", "QLoRA: 4-bit base, 8-bit AdamW", None),
    ("qlora_paged", "bitsandbytes", "QLoRA with a paged optimizer", None),
    ("eight_bit", "bitsandbytes", "8-bit Adam", None),
    ("torchao", "torchao", "8-bit AdamW", None),
    ("torchao_float8", "torchao", "float8 linear layers", None),
    ("liger", "liger_kernel", "Llama with Triton kernels", None),
    ("compiled", "triton", "`torch.compile`", None),
    ("deepspeed", "deepspeed", "ZeRO 1", None),
    ("deepspeed_2", "deepspeed", "ZeRO 2", None),
    ("deepspeed_3", "deepspeed", "ZeRO 3", None),
    ("sft", "trl", "SFT", None),
    ("dpo", "trl", "DPO", None),
    ("grpo", "trl", "GRPO", None),
    ("ppo", "stable_baselines3", "PPO", None),
    ("graphs", "torch-geometric", "a GCN with a mask of its nodes", Some("evaluation")),
    ("denoising", "denoising-diffusion-pytorch", "diffusion and sampling", Some("evaluation")),
    ("x_transformers", "x-transformers", "a decoder, and generation", Some("generation")),
    ("detection", "torchvision", "Faster R-CNN", None),
    ("causal", "transformers", "fine-tuning with evaluation, checkpoints and generation", Some("generation")),
];

/// The version of a package in the environments of the tests.
fn version(package: &str) -> &'static str {
    let lists =
        [include_str!("../python/packages/requirements.txt"), include_str!("../python/frameworks/requirements.txt")];
    let mut lines = lists.into_iter().flat_map(str::lines);
    let found = lines.find_map(|it| it.strip_prefix(package)?.strip_prefix("=="));
    found.unwrap_or_else(|| panic!("{package} is in no list"))
}

/// The documents list what runs here, with the versions.
#[test]
fn the_documents_list_the_trainings() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/fit.md");
    let text = fs::read_to_string(path).unwrap();
    for (_, package, what, _) in TRAININGS {
        let row = format!("| {package} {} | {what} |", version(package));
        assert!(text.contains(&row), "{row}");
    }
}

fn check(case: &str) {
    test_tiers::full!("packages that people train with");
    let python = test_tiers::needs!(PACKAGES.found());
    let asked = Asked::new(JOB);
    let output = asked.fit_with(&python, &["--json", "--gpu", "RTX 4090"], &[case]);
    let answer: Value = serde_json::from_str(&torch::stdout(&output)).unwrap();
    let peak = &answer["peak"];
    assert_eq!(answer["fits"], "yes", "{case}: {answer:#}");
    assert!(bytes(peak, "allocated") > 1 << 20, "{case}: {peak:#}");
    let line = peak["line"].as_str().and_then(|it| it.strip_prefix("train.py:")?.parse::<usize>().ok());
    assert!(line.is_some_and(|it| it > 0 && it <= JOB.lines().count()), "{case}: {peak:#}");
    let refused = answer["unknown"].to_string();
    assert!(!refused.contains("is not simulated"), "{case}: {refused}");
    let phase = TRAININGS.iter().find(|it| it.0 == case).unwrap().3;
    let ran = answer["phases"]["ran"].as_array().unwrap();
    let has = |name: &str| ran.iter().any(|it| it["name"] == name);
    assert!(has("training") && phase.is_none_or(has), "{case}: {answer:#}");
}

macro_rules! trainings {
    ($($name:ident)+) => {$(
        #[test]
        fn $name() {
            check(stringify!($name));
        }
    )+};
}

trainings! {
    qlora qlora_paged eight_bit torchao torchao_float8 liger compiled deepspeed deepspeed_2 deepspeed_3 sft dpo grpo ppo
    graphs denoising x_transformers detection causal
}
