//! Small trainings of the kinds that people run, from their first step to their end: each gets a plain yes.
//!
//! ```text
//! GPUWATCH_TESTS=full GPUWATCH_DOCS=write cargo test --test it fit::scripts::
//! ```
//!
//! rewrites their table in `docs/fit.md`, with the seconds that each took.

use super::Asked;
use crate::{helpers::torch, probe::frameworks::FRAMEWORKS};
use serde_json::Value;
use std::{
    env, fs,
    path::{Path, PathBuf},
    time::Instant,
};

const PICTURES: &str = include_str!("../python/scripts/pictures.py");
const SEQUENCES: &str = include_str!("../python/scripts/sequences.py");

/// A function of a script, the script, what it does as the documents list it, and a phase that follows its training.
type Training = (&'static str, &'static str, &'static str, Option<&'static str>);

const TRAININGS: [Training; 22] = [
    ("gpt", SEQUENCES, "GPT of characters, with estimates, checkpoints and generation", Some("generation")),
    ("masked", SEQUENCES, "BERT that fills in masked words (transformers)", Some("evaluation")),
    ("translation", SEQUENCES, "T5 with beams (transformers)", Some("generation")),
    ("recurrent", SEQUENCES, "LSTM language model, rate by plateau, best checkpoint", Some("loading")),
    ("speech", SEQUENCES, "speech: 1-D convolutions and CTC", None),
    ("tags", SEQUENCES, "tagging: packed LSTM and CRF, with Viterbi", None),
    ("word_vectors", SEQUENCES, "word2vec with sparse gradients", None),
    ("ratings", SEQUENCES, "matrix factorisation with early stopping", Some("evaluation")),
    ("experts", SEQUENCES, "mixture of experts", None),
    ("low_rank", SEQUENCES, "LoRA by hand, merged and saved", Some("saving")),
    ("queue", SEQUENCES, "deep Q-learning", None),
    ("vae", PICTURES, "variational autoencoder with `torch.distributions`", Some("evaluation")),
    ("gan", PICTURES, "DCGAN", Some("evaluation")),
    ("cycles", PICTURES, "CycleGAN with a pool of pictures", None),
    ("segmentation", PICTURES, "U-Net in mixed precision, with overlaps by class", Some("evaluation")),
    ("boxes", PICTURES, "SSDlite and its evaluation (torchvision)", Some("evaluation")),
    ("distillation", PICTURES, "ViT that learns from a larger one (torchvision)", Some("saving")),
    ("pairs", PICTURES, "pictures and texts, as CLIP", None),
    ("field", PICTURES, "radiance field, drawn in parts", Some("evaluation")),
    ("super_resolution", PICTURES, "super-resolution, `channels_last`", Some("saving")),
    ("contrast", PICTURES, "SimCLR and a linear probe (torchvision)", None),
    ("style", PICTURES, "style transfer with L-BFGS (torchvision)", None),
];

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/fit.md")
}

/// The documents list what runs here, with the verdict and a time.
#[test]
fn the_documents_list_the_scripts() {
    let text = fs::read_to_string(page()).unwrap();
    for (_, _, what, _) in TRAININGS {
        let row = text.lines().find_map(|it| it.strip_prefix(&format!("| {what} | yes | ")));
        let seconds = row.and_then(|it| it.strip_suffix(" s |")?.parse::<u64>().ok());
        assert!(seconds.is_some(), "{what}: {row:?}");
    }
}

/// Returns the whole seconds in which a training got its plain yes.
fn seconds(python: &Path, (case, job, _, phase): Training) -> u64 {
    let begun = Instant::now();
    let output = Asked::usual(job).fit_with(python, &["--json", "--gpu", "RTX 4090"], &[case]);
    let seconds = begun.elapsed().as_secs();
    let answer: Value = serde_json::from_str(&torch::stdout(&output)).unwrap();
    assert_eq!(answer["fits"], "yes", "{case}: {answer:#}");
    let unknown = answer["unknown"].to_string();
    assert!(!unknown.contains("is not simulated") && !unknown.contains(" failed here"), "{case}: {unknown}");
    let ran = answer["phases"]["ran"].as_array().unwrap();
    let has = |name: &str| ran.iter().any(|it| it["name"] == name);
    assert!(has("training") && phase.is_none_or(has), "{case}: {answer:#}");
    seconds
}

#[test]
fn small_trainings_run_to_a_plain_yes() {
    test_tiers::full!("small trainings of many kinds");
    let python = test_tiers::needs!(FRAMEWORKS.found());
    let took = TRAININGS.map(|it| (it.2, seconds(&python, it)));
    if env::var_os("GPUWATCH_DOCS").is_some_and(|it| it == "write") {
        write(&took);
    }
}

/// Writes the seconds of each training into the documents' table.
fn write(took: &[(&str, u64)]) {
    let text = fs::read_to_string(page()).unwrap();
    let line = |line: &str| {
        let own = took.iter().find(|it| line.starts_with(&format!("| {} | ", it.0)));
        own.map_or_else(|| line.to_owned(), |(what, seconds)| format!("| {what} | yes | {seconds} s |"))
    };
    fs::write(page(), text.lines().map(|it| line(it) + "\n").collect::<String>()).unwrap();
}
