//! Rows read out of a Python dictionary, and blocks out of a snapshot: to the number, and whatever they hold.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::{
    helpers::{terminal::PROGRAM, torch},
    probe::{launch::Home, pytorch::script},
};

#[test]
fn a_row_has_what_the_dictionary_has_and_an_armed_step_has_a_row_for_each_device() {
    let home = Home::new();
    let mut command = Command::new(PROGRAM);
    command.args(["run", "--", "python3", &script("rows.py")]).envs(home.variables()).stdin(Stdio::null());
    let reported: Value = serde_json::from_str(&torch::stdout(&command.output().unwrap())).unwrap();
    assert_eq!(reported["good"], Value::from(vec![0; 6]));
    assert_eq!(reported["bad"], Value::from(vec![-2; 12]), "invalid, and nothing raised");
    let row = |at: usize| {
        let mut row = reported["lines"][at].as_object().unwrap().clone();
        // Counters that the probe adds itself.
        for own in ["type", "seq", "at_us", "device", "edge", "rss", "device_free", "device_total"] {
            row.remove(own);
        }
        Value::from(row)
    };
    let whole = json!({
        "step": 1, "requested": 100, "allocated": 101, "active": 102, "inactive_split": 103, "reserved": 104,
        "allocated_peak": 201, "reserved_peak": 204, "blocks": 7, "segments": 8, "retries": 1, "ooms": 2,
        "device_allocs": 3, "device_frees": 4, "private_pools": 0,
    });
    let with = |step: u64, changes: Value| {
        let mut row = whole.as_object().unwrap().clone();
        row.insert("step".into(), step.into());
        for (name, value) in changes.as_object().unwrap() {
            if value.is_null() {
                row.remove(name);
            } else {
                row.insert(name.clone(), value.clone());
            }
        }
        Value::from(row)
    };
    assert_eq!(row(0), whole);
    assert_eq!(row(1), with(2, json!({"private_pools": 42, "pinned_active": 5, "pinned_reserved": 6})));
    let second = &reported["lines"][1];
    assert_eq!((&second["device_free"], &second["device_total"]), (&json!(70), &json!(80)));
    assert_eq!(row(2), json!({"step": 3, "allocated": 101, "allocated_peak": 201}));
    let unknown = ["requested", "allocated", "allocated_peak", "active", "segments", "ooms", "private_pools"];
    assert_eq!(row(3), with(4, unknown.map(|it| (it.to_owned(), Value::Null)).into_iter().collect()));
    assert_eq!(row(4), with(5, json!({"ooms": u64::MAX, "private_pools": null})));
    assert_eq!(row(5), with(6, json!({})));
    let ended = json!({
        "unarmed": 2, "step": 0, "armed": 0, "two steps": [0, 0, 102], "after that": [2, 102], "others": vec![2; 12],
        "with other parameters": 2, "still": [0, 103], "raises": [0], "no counters": -2, "bad": vec![-2; 5],
    });
    assert_eq!(reported["ended"], ended);
    for (at, step, device) in [(6, 101, 0), (7, 101, 1), (8, 102, 0), (9, 102, 1), (10, 103, 0), (11, 103, 1)] {
        assert_eq!(row(at), with(step, json!({"ooms": device})));
        assert_eq!(reported["lines"][at]["device"], device);
    }
    assert_eq!(reported["lines"].as_array().unwrap().len(), 12);
}

#[test]
fn live_blocks_are_grouped_by_size() {
    let mut python = Command::new("python3");
    python.arg(script("blocks.py")).env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/probes/python"));
    assert_eq!(torch::stdout(&python.output().unwrap()), "blocks are right\n");
}

#[test]
fn an_error_message_is_read_as_the_error_is_created() {
    let mut python = Command::new("python3");
    python.arg(script("words.py")).env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/probes/python"));
    assert_eq!(torch::stdout(&python.output().unwrap()), "words are right\n");
}

#[test]
fn growth_is_distinguished_from_replacement() {
    let mut python = Command::new("python3");
    python.arg(script("sites.py")).env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/probes/python"));
    assert_eq!(torch::stdout(&python.output().unwrap()), "sites are right\n");
}

#[test]
fn memory_of_parameters_that_join_an_optimizer_late_is_counted() {
    let gpu = torch::machine();
    let mut python = gpu.command(torch::python());
    python.arg(script("joined.py")).env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/probes/python"));
    assert_eq!(torch::stdout(&python.output().unwrap()), "joined is right\n");
}
