//! Jobs that continue by themselves before they are led on: small ones come to their end.

use super::{Asked, bytes};
use crate::helpers::torch::{Gpu, python, stdout};
use serde_json::Value;

const JOB: &str = include_str!("../python/short_runs.py");

fn steps(answer: &Value) -> u64 {
    let ran = answer["phases"]["ran"].as_array().unwrap();
    ran.iter().find(|it| it["name"] == "training").and_then(|it| it["count"].as_u64()).unwrap()
}

/// What a short training takes is what it takes in its whole run, to the byte; also where no line announces it.
#[test]
fn a_short_training_runs_to_its_end_in_its_own_order() {
    for case in test_tiers::vary!(["stages", "thawed", "window", "lengths"], "other ways in which a peak comes late") {
        let asked = Asked::usual(JOB);
        let (answer, code) = asked.json(&["--gpu", "A100-80GB"], &[case, "1"]);
        assert_eq!((code, &answer["phases"]["is_whole"]), (0, &true.into()), "{case}: {answer:#}");
        let gpu = Gpu::new("NVIDIA A100-SXM4-80GB:512GiB:0MiB");
        let printed = stdout(&gpu.script(JOB).args([case, "1"]).output().unwrap());
        let expected: Vec<u64> = printed.split_whitespace().map(|it| it.parse().unwrap()).collect();
        assert_eq!(["allocated", "reserved"].map(|it| bytes(&answer["peak"], it)), expected[..], "{case}: {answer:#}");
        let text = stdout(&asked.fit(&["--gpu", "A100-80GB"], &[case, "1"]));
        assert!(text.contains("\n  the job came to its end by itself\n"), "{case}: {text}");
    }
}

/// What begins to grow late is a growth as well, with its line and its holder; what is full again is none.
#[test]
fn what_grows_late_grows() {
    let ask = |case: &str| Asked::usual(JOB).json(&["--gpu", "A100-80GB"], &[case, "1000"]);
    let (answer, code) = ask("late");
    assert_eq!(code, 2, "{answer:#}");
    let line = 1 + JOB.lines().position(|it| it.contains("kept.append(net(inputs)")).unwrap();
    assert!(answer["unknown"].to_string().contains("grows 256.0 KiB a step: full after "), "{answer:#}");
    let sites = answer["growth"].to_string();
    assert!(sites.contains(&format!("train.py:{line}")) && sites.contains("`kept`"), "{answer:#}");
    let (answer, code) = ask("late_bounded");
    assert_eq!((code, answer.get("growth").is_none_or(Value::is_null)), (0, true), "{answer:#}");
}

/// The ranks of a job continue together, and end together.
#[test]
fn ranks_continue_together() {
    let peak = |asked: &Asked, launcher: &[&str], gpu: &str, rounds: &str| {
        let output = asked.launched(&python(), launcher, &["--json", "--gpu", gpu], &["window", rounds]);
        let answer: Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(answer["fits"], "yes", "{answer:#}");
        (bytes(&answer["peak"], "allocated"), steps(&answer), answer["phases"]["is_whole"] == true)
    };
    let two = ["-m", "torch.distributed.run", "--nproc-per-node", "2"];
    let (usual, quick) = (Asked::usual(JOB), Asked::new(JOB));
    let (alone, together) = (peak(&usual, &[], "A100-80GB", "1"), peak(&usual, &two, "2xA100-80GB", "1"));
    assert_eq!((together, alone.1), (alone, 700), "{alone:?}");
    assert!(peak(&quick, &two, "2xA100-80GB", "1").1 < 200);
}

/// What fails behind the training leaves its answer; what fails in it does not.
#[test]
fn a_failure_that_a_job_comes_to_by_itself_is_judged_by_its_place() {
    let job = |inside: &str, behind: &str| {
        format!(
            "import torch\ndef train():\n    net = torch.nn.Linear(64, 64).cuda()\n    o = \
             torch.optim.Adam(net.parameters())\n    for step in range(200):\n        net(torch.randn(8, 64, \
             device='cuda')).sum().backward()\n        o.step()\n        {inside}\n    {behind}\ntrain()\n"
        )
    };
    let ask = |inside, behind| Asked::usual(&job(inside, behind)).json(&["--gpu", "T4"], &[]);
    let (answer, code) = ask("pass", "raise OSError('no place to write to')");
    assert!(code == 0 && answer.to_string().contains("what follows training failed here at train.py:9"), "{answer:#}");
    let (answer, code) = ask("if step == 150: raise OSError('no more data')", "pass");
    assert!(code == 2 && answer.to_string().contains("training failed at train.py:8"), "{answer:#}");
}

/// A long one is led on after a while, and at once with `--quick`; both are the same each time.
#[test]
fn a_long_training_is_led_on_after_a_while() {
    let run = |asked: &Asked| {
        let (answer, code) = asked.json(&["--gpu", "A100-80GB"], &["thawed", "100000"]);
        assert_eq!(code, 0, "{answer:#}");
        (steps(&answer), bytes(&answer["peak"], "allocated"))
    };
    let usual = run(&Asked::usual(JOB));
    let quick = run(&Asked::new(JOB));
    assert!(usual.0 > 10 * quick.0, "{usual:?} {quick:?}");
    assert_eq!(usual, run(&Asked::usual(JOB)));
    // Steps that are asked for are led on from.
    let (answer, _) = Asked::usual(JOB).json(&["--gpu", "A100-80GB", "--steps", "5"], &["thawed", "100000"]);
    assert!(steps(&answer) <= quick.0 + 5, "{quick:?} {answer:#}");
}
