//! The other Pythons: environments with PyTorch that `GPUWATCH_TEST_PYTHONS` names, separated by colons.

use crate::helpers::torch::stdout;
use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

/// Every minor version of Python 3 that can be attached to.
const MINORS: std::ops::RangeInclusive<u32> = 9..=14;

const TESTS: [&str; 4] = [
    "attach::a_running_job_gets_a_probe_that_counts_as_pytorch_does_and_loses_it_without_a_trace",
    "attach::growth_gets_a_culprit_after_the_attachment",
    "attach::a_main_thread_that_is_in_a_long_call_is_asked_once_and_answers_later",
    "attach::killed::a_job_continues_wherever_gpuwatch_is_killed",
];

/// The environment with this Python, if one is named.
fn environment(minor: u32) -> Option<PathBuf> {
    let named = env::var_os("GPUWATCH_TEST_PYTHONS")?;
    env::split_paths(&named).find(|it| it.join(format!("lib/python3.{minor}/site-packages/torch")).is_dir())
}

fn run_again(venv: &Path, tests: &[&str]) {
    let mut program = Command::new(env::current_exe().unwrap());
    program.args(["--exact", "--test-threads", "1"]).args(tests).env("GPUWATCH_TEST_VENV", venv);
    program.env(test_tiers::RUN, test_tiers::run()).env("GPUWATCH_TESTS", "full");
    let printed = stdout(&program.output().unwrap());
    assert!(printed.contains(&format!("test result: ok. {} passed; 0 failed", tests.len())), "{printed}");
}

#[test]
fn every_python_is_attached_to() {
    test_tiers::change!("every Python");
    for minor in MINORS {
        match environment(minor) {
            Some(venv) => run_again(&venv, &TESTS),
            None => test_tiers::leave_out!("no environment of GPUWATCH_TEST_PYTHONS has PyTorch on Python 3.{minor}"),
        }
    }
}
