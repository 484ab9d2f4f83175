//! Trainings in the manner of five well-known kinds of repositories: a trainer of GPTs, a classifier of pictures, a
//! diffusion model, a detector, and reinforcement learning. Each has four planted regressions and forty neutral edits.

use super::{Gate, Regression, SCRIPTS, assert_found, assert_silent, planted};
use crate::helpers::torch;
use std::{collections::BTreeMap, fs, path::Path, process::Command};

const PLANTED: [Regression; 20] = [
    planted("gpt", &[("self.tokens.weight = self.head.weight", "pass")], "self.tokens = nn.Embedding"),
    planted("gpt", &[("with torch.autocast(\"cuda\", torch.bfloat16):", "if True:")], "hidden = F.gelu(self.up"),
    planted("gpt", &[("layers: int = 3", "layers: int = 4")], "self.up = nn.Linear"),
    planted("gpt", &[("betas=(0.9, 0.95))", "betas=(0.9, 0.95), amsgrad=True)")], "amsgrad"),
    planted(
        "classify",
        &[(
            "loader = DataLoader(Pictures(320, 32), batch_size=32)",
            "loader = DataLoader(Pictures(320, 32), batch_size=36)",
        )],
        "self.first_norm(self.first(x))",
    ),
    planted("classify", &[("weight_decay=5e-4)", "weight_decay=5e-4, momentum=0.9)")], "momentum"),
    planted(
        "classify",
        &[("torch.relu(y + self.short(x))", "torch.relu(y + self.short(x)) * torch.ones_like(y)")],
        "return torch.relu(y",
    ),
    planted("classify", &[("loss.backward()", "loss.backward(retain_graph=True)")], "y = torch.relu(self.first_norm"),
    planted(
        "diffusion",
        &[("= model(noisy, times)", "= (model(noisy, times) + model(noisy, times)) / 2")],
        "predicted = (model(noisy",
    ),
    planted("diffusion", &[("width=32)", "width=40)")], "hidden = self.conv(F.silu"),
    planted(
        "diffusion",
        &[("[:, :, None, None]", "[:, :, None, None]\n        hidden = hidden * torch.ones_like(hidden)")],
        "hidden * torch.ones_like",
    ),
    planted(
        "diffusion",
        &[("torch.randn(16,", "torch.randn(18,"), ("TIMES, (16,)", "TIMES, (18,)")],
        "images = torch.randn(",
    ),
    planted("detect", &[("torch.randn(8, 3", "torch.randn(9, 3")], "images = torch.randn(9, 3"),
    planted("detect", &[("width=16)", "width=20)")], "third = self.third(self.stem(images))"),
    planted("detect", &[("(112, 112)]", "(136, 128)]")], "images = torch.randn(8, 3"),
    planted("detect", &[("= self.tower(it)", "= self.tower(it) + self.tower(it)")], "features = self.tower(it)"),
    planted("ppo", &[("width=256)", "width=288)")], "self.body = nn.Sequential("),
    planted("ppo", &[(".chunk(4)", ".chunk(3)")], "_, now, entropy, value = agent.act("),
    planted("ppo", &[("= 32, 64, 6, 128", "= 32, 72, 6, 128")], "self.seen = torch.zeros("),
    planted(
        "ppo",
        &[
            ("SEEN, device=\"cuda\")\n\n    def step", "SEEN, device=\"cuda\")\n        self.all = []\n\n    def step"),
            ("return self.state, reward", "self.all.append(self.state)\n        return self.state, reward"),
        ],
        "self.state = 0.9 * self.state",
    ),
];

/// The scripts of this file.
fn scripts() -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    SCRIPTS.iter().filter(|it| PLANTED.iter().any(|planted| planted.script == it.0))
}

fn assert_all_found(script: &str, source: &str, most: usize) {
    let gate = Gate::new(script);
    PLANTED.iter().filter(|it| it.script == script).take(most).for_each(|it| assert_found(&gate, source, it));
}

#[test]
fn a_regression_is_found_and_neutral_edits_are_not_reported() {
    test_tiers::change!("six runs of fit");
    for (script, source) in scripts().take(2) {
        assert_all_found(script, source, 1);
        assert!(assert_silent(&Gate::new(script), source, 1) >= 20);
    }
}

#[test]
fn twenty_regressions_of_five_kinds_of_repositories_are_found_at_their_lines() {
    test_tiers::full!("25 runs of fit");
    scripts().for_each(|(script, source)| assert_all_found(script, source, PLANTED.len()));
}

#[test]
fn neutral_edits_of_five_kinds_of_repositories_are_not_reported() {
    test_tiers::full!("20 runs of fit");
    for (script, source) in scripts() {
        let edits = assert_silent(&Gate::new(script), source, 3);
        assert!(edits >= 40, "{script}: {edits}");
    }
}

/// Versions of a script, each with the names of its edits and with its files.
fn versions(script: &str) -> Vec<(Vec<String>, BTreeMap<String, String>)> {
    let editor = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fit/against/edits.py");
    let output = Command::new(torch::python()).arg(editor).arg(script).output().unwrap();
    serde_json::from_str(&torch::stdout(&output)).unwrap()
}

/// Returns how many edits the versions of a script have, none of which is reported.
fn assert_none_reported(script: &str) -> usize {
    let gate = Gate::new(script);
    let home = gate.asked.home.0.path();
    let mut edits = 0;
    for (names, files) in versions(script) {
        for (name, text) in &files {
            fs::create_dir_all(home.join(name).parent().unwrap()).unwrap();
            fs::write(home.join(name), text).unwrap();
        }
        let (answer, code) = gate.against(&files["train.py"], &[]);
        assert_eq!((code, answer["within"].as_bool()), (0, Some(true)), "{script}: {names:?}: {answer:#}");
        assert_eq!(answer["lines"].as_array().map(Vec::len), Some(0), "{script}: {names:?}: {answer:#}");
        edits += names.len();
    }
    edits
}

#[test]
fn edits_that_people_make_are_not_reported() {
    test_tiers::full!("65 runs of fit");
    let edits = scripts().map(|(script, _)| assert_none_reported(script)).sum::<usize>();
    assert!(edits >= 500, "{edits}");
}

/// A regression in code that has moved, and in what has become a loop, is still one of that line.
#[test]
fn code_that_moves_to_another_file_or_changes_its_form_is_no_difference() {
    test_tiers::full!("three runs of fit");
    let gate = Gate::new("gpt");
    let source = gate.source();
    let (before, rest) = source.split_once("class Attention").unwrap();
    let (classes, after) = rest.split_once("class GPT").unwrap();
    let imports = "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n\n\n";
    let model = format!("{imports}class Attention{classes}").replace(
        "        hidden = F.gelu(self.up(self.second(x)))\n        return x + self.down(hidden)",
        "        return x + self.feed(self.second(x))\n\n    def feed(self, x: torch.Tensor) -> torch.Tensor:\n        \
         return self.down(F.gelu(self.up(x)))",
    );
    let list = "nn.ModuleList([Block(config) for _ in range(config.layers)])";
    let looped =
        "nn.ModuleList()\n        for _ in range(config.layers):\n            self.blocks.append(Block(config))";
    assert!(model.contains("def feed") && after.contains(list));
    let train = format!("from model import Block\n{before}class GPT{}", after.replace(list, looped));
    let file = gate.asked.home.0.path().join("model.py");
    fs::write(&file, &model).unwrap();
    let (answer, code) = gate.against(&train, &[]);
    assert_eq!((code, answer["lines"].as_array().map(Vec::len)), (0, Some(0)), "{answer:#}");
    fs::write(&file, model.replace("4 * config.width", "5 * config.width")).unwrap();
    let (answer, code) = gate.against(&train, &[]);
    let at = model.lines().position(|it| it.contains("self.up = nn.Linear")).unwrap() + 1;
    let more = answer["lines"].as_array().unwrap().iter().filter(|it| it["bytes"].as_i64().unwrap() > 0);
    assert!(code == 1 && more.clone().any(|it| it["line"] == format!("model.py:{at}")), "{answer:#}");
}
