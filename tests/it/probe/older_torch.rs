//! An older PyTorch, for CUDA 12: tests that the suite passes with its usual one are run with that one as well.
//!
//! ```text
//! GPUWATCH_TESTS=full cargo test --test it older_torch::
//! ```
//!
//! `GPUWATCH_TEST_VENV29` names a Python that has it.

use crate::helpers::{
    torch::{BESIDE, stdout},
    venv::Venv,
};
use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// The default wheel of its time.
static OLDER: Venv = Venv {
    variable: "GPUWATCH_TEST_VENV29",
    name: "venv-torch-2.9.1",
    holds: "PyTorch 2.9.1 (a download of about 900 MB)",
    packages: &[&["torch==2.9.1", "nvidia-cuda-runtime-cu12==12.8.90"], BESIDE],
    above: None,
    python: OnceLock::new(),
};

/// Its environment, or why there is none.
fn older() -> Result<PathBuf, String> {
    OLDER.found().map(|python| python.ancestors().nth(2).unwrap().to_owned())
}

/// Runs these tests of this very program again, with the older PyTorch; what fails there fails here.
macro_rules! again {
    ($($test:literal,)+) => {
        test_tiers::full!("another PyTorch");
        run_again(&test_tiers::needs!(older()), &[$($test),+]);
    };
}

fn run_again(venv: &Path, tests: &[&str]) {
    let mut program = Command::new(env::current_exe().unwrap());
    program.args(["--exact", "--test-threads", "1"]).args(tests).env("GPUWATCH_TEST_VENV", venv);
    let printed = stdout(&program.env(test_tiers::RUN, test_tiers::run()).output().unwrap());
    // A test that no longer exists passes by being left out.
    assert!(printed.contains(&format!("test result: ok. {} passed; 0 failed", tests.len())), "{printed}");
}

#[test]
fn it_is_the_older_one() {
    test_tiers::full!("another PyTorch");
    let venv = test_tiers::needs!(older());
    let version =
        venv.join("lib").read_dir().unwrap().map(|it| it.unwrap().path().join("site-packages/torch/version.py"));
    let printed: String = version.map(|it| std::fs::read_to_string(it).unwrap()).collect();
    assert!(printed.contains("'2.9.1+cu128'") && printed.contains("'12.8'"), "{printed}");
}

#[test]
fn its_memory_is_as_on_a_device() {
    again! {
        "driver::simgpu::a_block_that_another_stream_uses_is_pending_until_that_stream_is_done",
        "driver::simgpu::a_chosen_device_is_the_same_to_the_driver_to_torch_and_to_nvml",
        "driver::simgpu::a_program_that_never_asks_for_a_device_gets_none",
        "driver::simgpu::a_replay_takes_the_time_of_its_kernels",
        "driver::simgpu::a_stream_ordered_pool_keeps_its_release_threshold",
        "driver::simgpu::expandable_segments_cost_what_is_mapped_to_them",
        "driver::simgpu::forked_and_spawned_children_have_accounts_of_their_own",
        "driver::simgpu::graphs_have_memory_of_their_own_and_a_capture_forbids_what_cuda_documents",
        "driver::simgpu::nvml_and_the_driver_report_reserved_plus_context_whatever_is_allocated",
        "driver::simgpu::out_of_memory_comes_at_the_capacity_and_can_be_survived",
        "driver::simgpu::processes_share_a_device_and_a_killed_one_leaves_nothing",
        "driver::simgpu::several_devices_are_charged_each_for_its_own",
        "driver::simgpu::training_loops_take_the_same_memory_every_step",
        "driver::simgpu::calls_forbidden_during_a_capture_return_their_documented_error",
        "driver::simgpu::calls_that_are_not_simulated_return_their_documented_error",
    }
}

#[test]
fn every_figure_is_its_own() {
    again! {
        "probe::cuda_graphs::steps_with_graph_captures_have_the_figures_of_torch",
        "probe::counters::every_step_matches_torch_to_the_byte",
        "probe::allocators::a_job_that_makes_no_steps_is_watched_by_the_second",
        "probe::allocators::each_device_of_one_process_has_its_own_ladder",
        "probe::allocators::optimizers_that_take_turns_make_one_step",
        "probe::allocators::private_pools_do_not_count_as_releasable",
        "probe::allocators::stream_ordered_pools_have_no_blocks_and_no_rounding",
        "probe::allocators::the_native_allocator_reports_every_rung",
        "probe::allocators::stuck_memory_is_unknown_with_expandable_segments",
        "probe::steps::golden_cases_hold_for_real_optimizers",
    }
}

#[test]
fn its_snapshots_are_read() {
    again! {
        "snapshot::snapshots_of_real_jobs_are_read_as_python_reads_them",
        "snapshot::the_account_of_a_real_job_is_what_pytorch_counts",
        "whatif::traced::a_killed_job_leaves_what_was_written",
        "whatif::traced::a_traced_job_on_two_devices_is_replayed_on_each",
        "whatif::traced::a_trace_ends_where_the_job_wants_its_history_or_the_bytes_are_used_up",
        "whatif::traced::a_traced_run_is_replayed_as_the_real_run_under_another_setting",
        "whatif::traced::pieces_of_a_trace_are_the_whole_run",
        "whatif::a_window_shows_which_setting_is_better",
        "whatif::a_replay_is_the_real_run_under_each_setting_to_the_byte",
        "whatif::a_run_out_of_memory_shows_where_and_which_setting_fits",
        "whatif::each_device_is_replayed_by_itself",
        "whatif::private_pools_are_refused_in_one_sentence",
    }
}

#[test]
fn its_job_does_not_notice_the_probe() {
    again! {
        "probe::pytorch::a_backend_that_counts_less_leaves_the_rest_unknown",
        "probe::pytorch::code_may_start_and_stop_the_probe_and_faults_turn_it_off",
        "probe::pytorch::only_processes_that_use_cuda_have_a_probe",
        "probe::pytorch::two_ranks_of_torchrun_are_two_ranks_of_one_run",
        "probe::harmless::a_training_job_ends_and_is_interrupted_as_without_us",
    }
}

#[test]
fn its_errors_and_growth_are_reported() {
    again! {
        "probe::cuda_graphs::graphs_that_are_captured_and_kept_are_found_as_growth_of_their_pools",
        "probe::oom::an_error_of_the_stream_ordered_backend_is_read_from_its_message",
        "probe::oom::an_uncaught_error_is_recorded_with_its_message",
        "probe::oom::the_error_message_is_recorded_without_effect_on_the_job",
        "probe::oom::the_jobs_limit_is_reported",
        "probe::oom::the_fragmented_memory_is_reported",
        "probe::oom::every_output_reports_the_other_processes_on_the_device",
        "commands::check::a_smoke_test_fails_the_build_when_it_leaks",
    }
}

#[test]
fn its_leaks_are_reported_with_their_lines() {
    again! {
        "probe::cuda_graphs::a_stack_capture_during_graph_captures_breaks_none_of_them",
        "probe::parts::many_looks_leave_the_job_running",
        "probe::parts::the_highest_moments_of_other_trainings_are_those_of_histories_too",
        "probe::leaks::every_leak_has_its_line_and_holder_and_healthy_loops_have_none",
        "probe::captures::the_jobs_own_history_is_read_and_left_alone",
        "probe::captures::a_history_that_the_job_begins_meanwhile_is_its_own",
        "probe::captures::a_leak_is_reported_with_line_and_holder_and_the_job_is_unchanged",
        "probe::captures::an_out_of_memory_error_has_lines_if_stacks_are_recorded",
        "probe::captures::compiled_code_pools_backward_and_threads_are_reported_too",
        "probe::captures::growth_that_matters_is_captured_once_and_recorded",
        "probe::captures::in_a_healthy_job_no_site_is_named",
    }
}
