//! A job against an earlier version of itself: regressions are found with their lines, and edits that change no memory
//! are not reported.

/// In the manner of well-known repositories.
mod repositories;

use super::Asked;
use crate::{helpers::torch, house::schemas};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const SCRIPTS: [(&str, &str); 8] = [
    ("gpt", include_str!("against/gpt.py")),
    ("classify", include_str!("against/classify.py")),
    ("diffusion", include_str!("against/diffusion.py")),
    ("detect", include_str!("against/detect.py")),
    ("ppo", include_str!("against/ppo.py")),
    ("lm", include_str!("against/lm.py")),
    ("vision", include_str!("against/vision.py")),
    ("tune", include_str!("against/tune.py")),
];

/// What changes in a script, by texts and their replacements, and a text in the line that holds more then.
struct Regression {
    script: &'static str,
    edits: &'static [(&'static str, &'static str)],
    line: &'static str,
}

const fn planted(
    script: &'static str,
    edits: &'static [(&'static str, &'static str)],
    line: &'static str,
) -> Regression {
    Regression { script, edits, line }
}

const PLANTED: [Regression; 20] = [
    planted("lm", &[("@torch.no_grad()", "")], "total = total + loss_of"),
    planted("lm", &[("4 * width)  # up", "5 * width)"), ("Linear(4 *", "Linear(5 *")], "self.up = nn.Linear"),
    planted("lm", &[("128, 4096, 64, 8", "128, 4096, 96, 8")], "F.cross_entropy"),
    planted("lm", &[("128, 4096, 64, 8", "128, 4096, 64, 9")], "F.cross_entropy"),
    planted("lm", &[("128, 4096, 64, 8", "128, 4160, 64, 8")], "self.head = nn.Linear"),
    planted("lm", &[("range(2))", "range(3))")], "self.up = nn.Linear"),
    planted("lm", &[("Model().cuda()", "Model().cuda(); import copy; average = copy.deepcopy(model)")], "deepcopy"),
    planted("lm", &[("lr=1e-3)", "lr=1e-3, amsgrad=True)")], "amsgrad"),
    planted("lm", &[("loss.detach().cpu()", "model(tokens).detach()")], "losses.append"),
    planted("lm", &[("bias=False)", "bias=False).double()"), ("head(x)", "head(x.double()).float()")], ".double()"),
    planted("vision", &[("with torch.no_grad():", "if True:")], "return teacher(images)"),
    planted("vision", &[("torch.randn(16,", "torch.randn(17,")], "images = torch.randn"),
    planted("vision", &[("64, 64, device", "72, 72, device")], "self.stages(images)"),
    planted("vision", &[("Net(32, 100)", "Net(36, 100)")], "nn.Conv2d(inner"),
    planted("vision", &[("lr=0.1)", "lr=0.1, momentum=0.9)")], "momentum"),
    planted("tune", &[("Adapter(width, 8)", "Adapter(width, 32)")], "self.down = nn.Parameter"),
    planted("tune", &[("requires_grad_(\"adapters\" in name)", "requires_grad_(True)")], "torch.optim.AdamW(own)"),
    planted("tune", &[("rows.argmax(1)", "rows")], "rows = model("),
    planted("tune", &[("torch.bfloat16)", "torch.bfloat16, enabled=False)")], "outputs = model(inputs)"),
    planted("tune", &[("Trunk(512, 6)", "Trunk(512, 7)")], "self.layers = "),
];

/// A folder with a script and what it needed before.
struct Gate {
    asked: Asked,
    baseline: PathBuf,
}

impl Gate {
    fn new(script: &str) -> Self {
        let (_, source) = SCRIPTS.iter().find(|it| it.0 == script).unwrap();
        let asked = Asked::new(source);
        // As the page names it: no folder of that name is there.
        let baseline = asked.home.0.path().join(".gpuwatch/main.json");
        let gate = Self { asked, baseline };
        torch::stdout(&gate.asked.fit(&["--gpu", "24GiB", "--save", gate.path()], &[]));
        gate
    }

    fn path(&self) -> &str {
        self.baseline.to_str().unwrap()
    }

    fn source(&self) -> String {
        fs::read_to_string(&self.asked.script).unwrap()
    }

    /// Compares another version of the script.
    fn against(&self, source: &str, flags: &[&str]) -> (Value, i32) {
        fs::write(&self.asked.script, source).unwrap();
        let flags = [&["--json", "--gpu", "24GiB", "--against", self.path()], flags].concat();
        let output = self.asked.fit(&flags, &[]);
        let answer = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
        schemas::check("fit-against", &answer);
        (answer, output.status.code().unwrap())
    }
}

/// Fails unless the regression is found at its line.
fn assert_found(gate: &Gate, source: &str, it: &Regression) {
    let mut edited = source.to_owned();
    for (from, to) in it.edits {
        assert!(edited.contains(from), "{from}");
        edited = edited.replace(from, to);
    }
    let at = edited.lines().position(|line| line.contains(it.line)).unwrap() + 1;
    let line = format!("train.py:{at}");
    let (answer, code) = gate.against(&edited, &["--budget", "0.5%"]);
    assert_eq!((code, answer["within"].as_bool()), (1, Some(false)), "{:?}: {answer:#}", it.edits);
    let more = answer["lines"].as_array().unwrap().iter().filter(|it| it["bytes"].as_i64().unwrap() > 0);
    let is_there = |it: &Value| it["line"] == *line || it["calls"].as_array().unwrap().contains(&line.clone().into());
    assert!(more.clone().any(is_there), "{line}, {:?}: {answer:#}", it.edits);
}

/// Fails unless nothing is reported of so many versions of a script; returns how many edits they have.
fn assert_silent(gate: &Gate, source: &str, versions: u32) -> u32 {
    let python = torch::python();
    let editor = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/python/neutral.py");
    let original = gate.asked.home.0.path().join("original.py");
    fs::write(&original, source).unwrap();
    let mut edits = 0;
    for seed in 1..=versions {
        let edited = Command::new(&python).arg(&editor).arg(&original).arg(seed.to_string()).output().unwrap();
        let source = torch::stdout(&edited);
        edits += String::from_utf8_lossy(&edited.stderr).trim().parse::<u32>().unwrap();
        let (answer, code) = gate.against(&source, &[]);
        assert_eq!((code, answer["within"].as_bool()), (0, Some(true)), "{source}\n{answer:#}");
        assert_eq!(answer["lines"].as_array().map(Vec::len), Some(0), "{source}\n{answer:#}");
    }
    edits
}

#[test]
fn two_runs_are_equal_a_regression_is_found_and_renaming_is_none() {
    let gate = Gate::new("lm");
    let source = gate.source();
    let first = fs::read(&gate.baseline).unwrap();
    // A file that has an answer is replaced.
    torch::stdout(&gate.asked.fit(&["--gpu", "24GiB", "--save", gate.path()], &[]));
    assert_eq!(String::from_utf8(first).unwrap(), fs::read_to_string(&gate.baseline).unwrap());
    assert_found(&gate, &source, &PLANTED[0]);
    assert!(assert_silent(&gate, &source, 1) > 20);
    let (answer, code) = gate.against("raise SystemError('broken')\n", &[]);
    let why = answer["why"].as_str().unwrap();
    assert!(code == 2 && why.starts_with("the job failed at train.py:1: SystemError: broken"), "{answer:#}");
}

#[test]
fn planted_regressions_are_found_with_their_lines() {
    test_tiers::full!("23 runs of fit");
    for (script, source) in &SCRIPTS[5..] {
        let gate = Gate::new(script);
        for it in PLANTED.iter().filter(|it| it.script == *script) {
            assert_found(&gate, source, it);
        }
    }
}

#[test]
fn edits_that_change_no_memory_are_not_reported() {
    test_tiers::full!("12 runs of fit");
    let edits: Vec<u32> =
        SCRIPTS[5..].iter().map(|(script, source)| assert_silent(&Gate::new(script), source, 3)).collect();
    assert!(edits.iter().sum::<u32>() >= 200, "{edits:?}");
}

/// Refused before the job runs.
#[test]
fn a_file_that_is_no_baseline_is_refused_and_not_written_over() {
    let asked = Asked::new("raise SystemExit('ran')\n");
    let file = asked.home.0.path().join("notes.txt");
    let path = file.to_str().unwrap();
    fs::write(&file, "my notes").unwrap();
    let case = |flags: &[&str], parts: &[&str]| {
        let output = asked.fit(flags, &[]);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{output:?}");
        assert!(parts.iter().all(|it| printed.contains(it)) && !printed.contains("running"), "{printed}");
    };
    case(&["--gpu", "L4", "--save", path], &["notes.txt is no answer of gpuwatch fit", "name another file"]);
    case(&["--gpu", "L4", "--against", path], &["notes.txt is no answer of gpuwatch fit", "--save FILE"]);
    case(&["--gpu", "L4", "--against", "/dev/zero"], &["/dev/zero is larger than"]);
    case(&["--gpu", "L4", "--against", "none.json"], &["none.json does not exist", "--save FILE"]);
    let below = format!("{path}/main.json");
    case(&["--gpu", "L4", "--save", &below], &["notes.txt/main.json cannot be written", "name another file"]);
    case(&["--gpu", "L4", "--save", "/proc/gpuwatch/main.json"], &["main.json cannot be written"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "my notes");
    fs::write(&file, r#"{"schema":1,"fits":"unknown","peak":null,"unknown":["no GPU"]}"#).unwrap();
    case(&["--gpu", "L4", "--against", path], &["has no peak to compare with: no GPU"]);
}
