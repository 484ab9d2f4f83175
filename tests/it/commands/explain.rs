//! `gpuwatch explain` prints what is known of a cause, and names those that were meant.

use crate::helpers::terminal::PROGRAM;
use std::process::{Command, Output};

fn explain(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).arg("explain").args(arguments).output().unwrap()
}

#[test]
fn a_cause_is_explained_and_all_are_listed() {
    let page = explain(&["tensors-retained"]);
    let text = String::from_utf8(page.stdout).unwrap();
    assert!(page.status.success() && text.starts_with("tensors-retained: "), "{text}");
    assert!(text.contains("a missing zero_grad()"), "{text}");
    let list = explain(&[]);
    let text = String::from_utf8(list.stdout).unwrap();
    assert!(list.status.success());
    for id in ["scalars-retained", "fragmentation", "extra-context", "oom", "unknown"] {
        assert!(text.lines().any(|it| it.starts_with(id)), "{id} in {text}");
    }
}

#[test]
fn an_unknown_cause_is_answered_with_the_nearest_name() {
    let wrong = explain(&["graph-retaned"]);
    let text = String::from_utf8(wrong.stderr).unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text.contains("'graph-retaned'") && text.contains("similar names are graph-retained, "), "{text}");
    assert!(wrong.stdout.is_empty());
}

#[test]
fn kinds_and_what_grows_are_explained_with_their_causes() {
    for (name, phrase) in [
        ("growth", &["six resources", "tensors-retained", "allow = [\"growth\"]"][..]),
        ("host", &["resident", "host-growth"]),
        ("growth:host", &["resident", "allow = [\"growth:host\"]"]),
        ("non-torch", &["NCCL", "driver-growth"]),
        ("driver", &["NCCL", "driver-growth"]),
        ("imbalance", &["median", "rank-imbalance"]),
        ("oom", &["In short: "]),
    ] {
        let page = explain(&[name]);
        let text = String::from_utf8(page.stdout).unwrap();
        assert!(page.status.success() && text.starts_with(&format!("{name}: ")), "{text}");
        assert!(phrase.iter().all(|it| text.contains(it)), "{phrase:?} in {text}");
    }
    for (wrong, near) in [("growht", "growth"), ("hots", "host"), ("growth:hots", "growth:host")] {
        let text = String::from_utf8(explain(&[wrong]).stderr).unwrap();
        let is_first = [", ", "; "].iter().any(|after| text.contains(&format!("similar names are {near}{after}")));
        assert!(is_first, "{text}");
    }
    for unlike in ["nonsense", "last"] {
        let text = String::from_utf8(explain(&[unlike]).stderr).unwrap();
        assert!(text.contains(&format!("nothing is called '{unlike}'; `gpuwatch explain` lists all")), "{text}");
    }
    let list = String::from_utf8(explain(&[]).stdout).unwrap();
    assert!(["growth", "sawtooth", "host", "others"].iter().all(|it| list.lines().any(|line| line.starts_with(it))));
}
