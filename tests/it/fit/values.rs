//! Jobs whose control flow depends on values that are not computed: a healthy one continues, and each value that an
//! answer rests on is named.

use super::{Asked, bytes};
use serde_json::Value;
use std::process::Output;

const JOB: &str = include_str!("../python/values.py");

/// The line of the job that has this mark.
fn marked(mark: &str) -> String {
    let at = JOB.lines().position(|it| it.ends_with(&format!("# {mark}"))).unwrap();
    format!("train.py:{}", at + 1)
}

fn fit(flags: &[&str], case: &str) -> (String, Option<i32>, Output) {
    let output = Asked::new(JOB).fit(flags, &[case]);
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code(), output)
}

fn json(flags: &[&str], case: &str) -> (Value, i32) {
    Asked::new(JOB).json(flags, &[case])
}

/// NaN checks, arguments of distributions, gradient norms, a scaler.
#[test]
fn a_healthy_program_passes_its_own_checks() {
    let (text, code, output) = fit(&["--gpu", "T4"], "healthy");
    assert_eq!(code, Some(0), "{output:?}");
    assert!(text.contains("in step ") && text.contains(" that ran"), "{text}");
    assert!(
        text.contains("`assert torch.isfinite(loss)` decides by a value; true here, as in a healthy run"),
        "{text}"
    );
    // Piped, progress is lines.
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(printed.starts_with("running on a simulated Tesla T4 …\n") && !printed.contains('\r'), "{printed}");
}

/// Something was counted, so that it can be divided by.
#[test]
fn counts_are_not_zero_where_something_is_divided_by_them() {
    let (text, code, output) = fit(&["--gpu", "T4"], "divides");
    assert_eq!(code, Some(0), "{output:?}");
    assert!(!text.contains("ZeroDivisionError") && !text.contains("failed"), "{text}");
    let read =
        "`rate, kept = x.mean() / hits.item(), int(hits)` reads a value, and values are not computed: it is 1 here";
    assert!(text.contains(read), "{text}");
}

/// A mask selects all rows at most, so the peak with it is about that without it, and a yes is one.
#[test]
fn sizes_that_depend_on_values_are_the_largest_ones() {
    let allocated = |case: &str| {
        let (answer, code) = json(&["--gpu", "24GiB"], case);
        assert_eq!(code, 0, "{answer:#}");
        let named = answer["unknown"].to_string().contains("makes a tensor whose size depends on values: the largest");
        assert_eq!(named, case != "whole", "{answer:#}");
        bytes(&answer["peak"], "allocated")
    };
    let cases = ["masked", "found"];
    let whole = allocated("whole");
    for case in test_tiers::vary!(cases, "another way to select rows") {
        let selected = allocated(case);
        assert!(selected >= whole && selected < whole / 10 * 12, "{case}: {selected} of {whole}");
    }
}

/// What is assigned to a mask has as many elements as the mask selects, however few.
#[test]
fn a_mask_that_is_assigned_to_selects_what_is_assigned() {
    for flags in [&["--gpu", "24GiB"][..], &["--gpu", "24GiB", "--steps", "4"]] {
        let (answer, code) = json(flags, "assigned");
        assert_eq!(code, 0, "{answer:#}");
        let unknown = answer["unknown"].to_string();
        assert!(unknown.contains("`some[few] = x[:300, 0]` reads a value; 300 here"), "{answer:#}");
        assert!(unknown.contains("torch.ones(7, 3, device=") && !unknown.contains("failed"), "{answer:#}");
    }
}

/// The largest sizes do not fit, the smallest ones do; on a smaller device, neither do.
#[test]
fn a_no_holds_for_the_smallest_sizes() {
    let (answer, code) = json(&["--gpu", "700MiB"], "masked");
    let peak = &answer["peak"];
    assert_eq!((answer["fits"].as_str(), code), (Some("unknown"), 2), "{answer:#}");
    assert!(bytes(peak, "device_low") < 700 << 20 && bytes(peak, "device") > 700 << 20, "{answer:#}");
    let (answer, code) = json(&["--gpu", "300MiB"], "masked");
    assert_eq!((answer["fits"].as_str(), code), (Some("no"), 1), "{answer:#}");
}

#[test]
fn a_job_that_makes_fewer_steps_gets_no_plain_yes() {
    let cases = [
        ("stops", "fits as far as it ran, but only 1 optimizer step of 3 ran; "),
        ("never", "fits as far as it ran, but no optimizer step ran; "),
    ];
    for (case, phrase) in test_tiers::vary!(cases, "a job without any step") {
        let (text, code, output) = fit(&["--gpu", "T4"], case);
        let expected = format!("{phrase}{} reads a value that may decide about it", marked(case));
        assert!(code == Some(2) && text.contains(&expected), "{expected}: {output:?}");
    }
}

/// Each loop continues for a while, then ends, and is named.
#[test]
fn a_loop_on_a_value_ends() {
    let (text, code, output) = fit(&["--gpu", "T4"], "loops");
    assert_eq!(code, Some(0), "{output:?}");
    for mark in ["test", "number", "rejection"] {
        let line = text.lines().find(|it| it.contains(&format!("{}: ", marked(mark))));
        assert!(line.is_some_and(|it| it.contains("reads a value many times")), "{mark}: {text}");
    }
}

#[test]
fn a_job_that_does_not_end_is_ended_where_it_is() {
    let (text, code, output) = fit(&["--gpu", "T4", "--time-limit", "20"], "endless");
    let phrase = format!("cannot tell: the job made 0 optimizer steps in 20 seconds, and was at {}", marked("endless"));
    // It may also have been at the next line.
    let phrase = phrase.rsplit_once(':').unwrap().0;
    assert!(code == Some(2) && text.starts_with(phrase), "{phrase}: {output:?}");
}

#[test]
fn a_job_that_trains_on_the_cpu_is_no_question_of_a_gpu() {
    let (text, code, output) = fit(&["--gpu", "T4"], "processor");
    let phrase = format!("cannot tell: the job trains at {} without a CUDA call: on the CPU\n", marked("processor"));
    assert!(code == Some(2) && text == phrase, "{phrase}: {output:?}");
}

#[test]
fn a_failure_names_the_values_that_were_read_before() {
    let (text, code, output) = fit(&["--gpu", "T4"], "fails");
    let phrase = format!(
        "the simulation may have caused this: the job had read values, which are not computed:\n  {}: ",
        marked("fails")
    );
    assert!(code == Some(2) && text.contains(&phrase), "{phrase}: {output:?}");
}

/// A copy of many values decides as a copy of one does.
#[test]
fn a_copy_of_many_values_is_named() {
    let script = "import torch\nnet = torch.nn.Linear(64, 64).cuda()\no = torch.optim.SGD(net.parameters(), 0.1)\n\
                  for i in range(4):\n    out = net(torch.randn(8, 64, device='cuda'))\n    out.sum().backward()\n    \
                  o.step()\n    rows = out.detach().cpu()\n    if (out.mean(0) > 3).tolist()[0]:\n        print(rows)\n";
    let output = Asked::new(script).fit(&["--gpu", "T4"], &[]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text.contains("train.py:8: `rows = out.detach().cpu()` reads values, which are not computed"), "{text}");
    let branch = "train.py:9: `if (out.mean(0) > 3).tolist()[0]:` decides by values, which are not computed";
    assert!(text.contains(branch), "{text}");
}

/// A number that becomes a size has a bound only if it counts elements.
#[test]
fn a_size_that_was_read_as_a_number_is_no_plain_yes() {
    let script = |number: &str| {
        format!(
            "import torch\nnet = torch.nn.Linear(64, 64).cuda()\no = torch.optim.SGD(net.parameters(), 0.1)\n\
             for i in range(4):\n    x = torch.randn(8, 64, device='cuda')\n    rows = {number}\n    \
             net(x[:rows]).sum().backward()\n    o.step()\n"
        )
    };
    let cases = [
        ("int(x.abs().max())", 2, "makes a tensor whose size depends on values, and values are not computed"),
        ("(x[:, 0] > 0).sum().item()", 0, "makes a tensor whose size depends on values: the largest one is assumed"),
    ];
    for (number, code, phrase) in test_tiers::vary!(cases, "a number with a bound") {
        let output = Asked::new(&script(number)).fit(&["--gpu", "T4"], &[]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let phrase = format!("train.py:6: `rows = {number}` {phrase}");
        assert!(output.status.code() == Some(code) && text.contains(&phrase), "{phrase}: {output:?}");
    }
}
