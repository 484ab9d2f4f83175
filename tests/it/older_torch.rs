//! An older PyTorch, for CUDA 12: tests that the suite passes with its usual one are run with that one as well.
//!
//! ```text
//! cargo test --test it older_torch:: -- --nocapture
//! ```
//!
//! Where it cannot be had, that is said and nothing is checked. `GPUWATCH_TEST_VENV29` names a Python that has it.

use crate::{
    torch::{BESIDE, stdout},
    venv::Venv,
};
use std::{
    env,
    io::{self, Write},
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// The default wheel of its time.
static OLDER: Venv = Venv {
    variable: "GPUWATCH_TEST_VENV29",
    name: "venv-torch-2.9.1",
    holds: "PyTorch 2.9.1 (a download of about 900 MB)",
    packages: &[&["torch==2.9.1"], BESIDE],
    python: OnceLock::new(),
};

/// Its environment; none where it cannot be had, which is said.
fn older() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = || match OLDER.found() {
        Ok(python) => python.parent().and_then(Path::parent).map(Path::to_owned),
        Err(why) => {
            let last = why.trim().lines().next_back().unwrap_or_default();
            // Not through print macros, whose output a passing test keeps to itself.
            let _ = writeln!(io::stderr(), "gpuwatch's tests: not run with PyTorch 2.9.1, which cannot be had: {last}");
            None
        }
    };
    FOUND.get_or_init(found).as_deref()
}

/// Runs these tests of this very program again, with the older PyTorch; what fails there fails here.
fn again(tests: &[&str]) {
    let Some(venv) = older() else { return };
    let mut program = Command::new(env::current_exe().unwrap());
    program.args(["--exact", "--test-threads", "1"]).args(tests).env("GPUWATCH_TEST_VENV", venv);
    let said = stdout(&program.output().unwrap());
    // A test that nobody has any more passes by being left out.
    assert!(said.contains(&format!("test result: ok. {} passed; 0 failed", tests.len())), "{said}");
}

#[test]
fn it_is_the_older_one() {
    let Some(venv) = older() else { return };
    let version =
        venv.join("lib").read_dir().unwrap().map(|it| it.unwrap().path().join("site-packages/torch/version.py"));
    let said: String = version.map(|it| std::fs::read_to_string(it).unwrap()).collect();
    assert!(said.contains("'2.9.1+cu128'") && said.contains("'12.8'"), "{said}");
}

#[test]
fn its_memory_is_as_on_a_device() {
    again(&[
        "simgpu::a_block_that_another_stream_uses_is_pending_until_that_stream_is_done",
        "simgpu::a_chosen_device_is_the_same_to_the_driver_to_torch_and_to_nvml",
        "simgpu::a_stream_ordered_pool_keeps_what_it_is_told_to_keep",
        "simgpu::expandable_segments_cost_what_is_mapped_to_them",
        "simgpu::forked_and_spawned_children_have_accounts_of_their_own",
        "simgpu::nvml_and_the_driver_say_reserved_plus_context_whatever_is_allocated",
        "simgpu::out_of_memory_comes_at_the_capacity_and_can_be_survived",
        "simgpu::processes_share_a_device_and_a_killed_one_leaves_nothing",
    ]);
}
