//! Real PyTorch on the simulated device: memory behaves as on a device, and NVML reports the same as PyTorch.
//!
//! The scripts are next to this file; each asserts its promises and prints what it read.

use crate::helpers::{
    terminal::{PATIENCE, until},
    torch::{self, Gpu},
};
use ::simgpu::Fault;
use rustix::process::Signal;
use std::{
    io::{BufRead, BufReader, Write},
    os::unix::process::ExitStatusExt,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

const NVML: &str = include_str!("simgpu/nvml.py");
const GIB: u64 = 1 << 30;
const CONTEXT: u64 = 512 << 20;

fn script(gpu: &Gpu, text: &str) -> Command {
    std::fs::write(gpu.dir().join("nvml.py"), NVML).unwrap();
    gpu.script(text)
}

fn run(devices: &str, text: &str, environment: &[(&str, &str)]) -> String {
    let gpu = if devices == torch::H200 { torch::machine() } else { Gpu::new(devices) };
    let out = torch::stdout(&script(&gpu, text).envs(environment.iter().copied()).output().unwrap());
    let cards = gpu.machine.cards().unwrap();
    assert!(cards.iter().all(|it| it.tenants.is_empty()), "nobody is left: {cards:?}");
    out
}

#[test]
fn a_program_that_never_asks_for_a_device_gets_none() {
    let out = torch::run("import torch; print(torch.cuda.is_available(), torch.cuda.is_initialized())");
    assert_eq!(out, "True False\n");
}

#[test]
fn nvml_and_the_driver_report_reserved_plus_context_whatever_is_allocated() {
    let allocators = ["", "expandable_segments:True", "backend:cudaMallocAsync"];
    for allocator in test_tiers::vary!(allocators, "other settings of the allocator") {
        let environment = [("PYTORCH_CUDA_ALLOC_CONF", allocator)];
        let out = run("NVIDIA A10:24GiB:512MiB", include_str!("simgpu/invariant.py"), &environment);
        assert_eq!(out, "150 True False\n", "{allocator}");
        let environment = [("PYTORCH_CUDA_ALLOC_CONF", allocator), ("GRAPHS", "0.1")];
        let out = run("NVIDIA A10:24GiB:512MiB", include_str!("simgpu/invariant.py"), &environment);
        assert_eq!(out, "150 True True\n", "{allocator}, with graphs");
    }
}

#[test]
fn graphs_have_memory_of_their_own_and_a_capture_forbids_what_cuda_documents() {
    let allocators = ["", "expandable_segments:True", "graph_capture_record_stream_reuse:True"];
    for allocator in test_tiers::vary!(allocators, "other settings of the allocator") {
        let environment = [("PYTORCH_CUDA_ALLOC_CONF", allocator)];
        assert_eq!(run(torch::H200, include_str!("simgpu/graphs.py"), &environment), "ok\n", "{allocator}");
    }
}

#[test]
fn calls_forbidden_during_a_capture_return_their_documented_error() {
    assert_eq!(run(torch::H200, include_str!("simgpu/captures.py"), &[]), "ok\n");
}

#[test]
fn a_replay_takes_the_time_of_its_kernels() {
    assert_eq!(run(torch::H200, include_str!("simgpu/late_graph.py"), &[("SIMGPU_KERNEL_US", "500000")]), "ok\n");
}

#[test]
fn several_devices_are_charged_each_for_its_own() {
    let allocators = ["", "expandable_segments:True", "backend:cudaMallocAsync"];
    for allocator in test_tiers::vary!(allocators, "other settings of the allocator") {
        let environment = [("PYTORCH_CUDA_ALLOC_CONF", allocator)];
        let devices = "NVIDIA A10:6GiB:512MiB;NVIDIA H200:143771MiB:615MiB;NVIDIA A10:4GiB:256MiB";
        assert_eq!(run(devices, include_str!("simgpu/several.py"), &environment), "3 [0, 2]\n", "{allocator}");
    }
}

#[test]
fn expandable_segments_cost_what_is_mapped_to_them() {
    let environment = [("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")];
    assert_eq!(run("NVIDIA A10:24GiB:512MiB", include_str!("simgpu/expandable.py"), &environment), "ok\n");
}

#[test]
fn a_stream_ordered_pool_keeps_its_release_threshold() {
    let environment = [("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync")];
    assert_eq!(run("NVIDIA A10:24GiB:512MiB", include_str!("simgpu/pools.py"), &environment), "ok\n");
}

#[test]
fn training_loops_take_the_same_memory_every_step() {
    test_tiers::change!("starts PyTorch several times");
    let out = run(torch::H200, include_str!("simgpu/training.py"), &[]);
    assert_eq!(out.lines().count(), 7, "{out}");
}

#[test]
fn out_of_memory_comes_at_the_capacity_and_can_be_survived() {
    assert_eq!(run("NVIDIA A10:8GiB:256MiB", include_str!("simgpu/oom.py"), &[]), "ok\n");
}

#[test]
fn forked_and_spawned_children_have_accounts_of_their_own() {
    test_tiers::change!("starts PyTorch several times");
    assert_eq!(run(torch::H200, include_str!("simgpu/forks.py"), &[]), "ok\n");
}

#[test]
fn a_block_that_another_stream_uses_is_pending_until_that_stream_is_done() {
    let environment = [("SIMGPU_KERNEL_US", "1000000")];
    assert_eq!(run(torch::H200, include_str!("simgpu/pending.py"), &environment), "ok\n");
}

#[test]
fn device_memory_is_not_resident_in_the_process() {
    assert_eq!(run("NVIDIA A10:8GiB:256MiB", include_str!("simgpu/resident.py"), &[]), "ok\n");
}

#[test]
fn processes_meet_over_nccl_and_train_on_its_collectives() {
    let devices = "NVIDIA A10:8GiB:256MiB;NVIDIA A10:8GiB:256MiB";
    assert_eq!(run(devices, include_str!("simgpu/distributed.py"), &[]), "ok\n");
}

#[test]
fn the_devices_of_a_process_share_a_batch_and_ranks_exchange_objects() {
    let devices = "NVIDIA A10:8GiB:256MiB;NVIDIA A10:8GiB:256MiB";
    assert_eq!(run(devices, include_str!("simgpu/parallel.py"), &[]), "ok\n");
}

#[test]
fn processes_share_tensors_and_the_owner_alone_is_charged() {
    assert_eq!(run("NVIDIA A10:8GiB:256MiB", include_str!("simgpu/shared.py"), &[]), "ok\n");
}

#[test]
fn programs_that_call_the_other_cuda_libraries_run() {
    assert_eq!(run("NVIDIA A10:8GiB:256MiB", include_str!("simgpu/families.py"), &[]), "ok\n");
}

#[test]
fn calls_that_are_not_simulated_return_their_documented_error() {
    assert_eq!(run(torch::H200, include_str!("simgpu/refusals.py"), &[("SIMGPU_STRICT", "0")]), "ok\n");
}

#[test]
fn a_strict_program_ends_at_an_unreviewed_call() {
    let gpu = torch::machine();
    let done = script(&gpu, include_str!("simgpu/refusals.py")).arg("strict").output().unwrap();
    let printed = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.signal(), Some(Signal::ABORT.as_raw()), "{printed}");
    let line = printed.lines().find(|it| it.starts_with("simgpu: ")).unwrap_or_default();
    assert!(line.starts_with("simgpu: cusparseSpGEMM_createDescr of libcusparse.so."), "{printed}");
    assert!(line.contains("simgpu/tables/libraries.txt") && line.contains("SIMGPU_STRICT"), "{printed}");
}

#[test]
fn a_chosen_device_is_the_same_to_the_driver_to_torch_and_to_nvml() {
    let devices = "NVIDIA H200:143771MiB:615MiB;NVIDIA A100:80GiB:400MiB";
    assert_eq!(run(devices, include_str!("simgpu/devices.py"), &[("CUDA_VISIBLE_DEVICES", "1")]), "ok\n");
}

#[test]
fn processes_share_a_device_and_a_killed_one_leaves_nothing() {
    let gpu = Gpu::new("NVIDIA A10:24GiB:1GiB");
    let holder = "
import sys, torch
held = []
print('ready', torch.cuda.mem_get_info()[0], flush=True)
for line in sys.stdin:
    try:
        held.append(torch.empty(int(line) << 30, dtype=torch.uint8, device='cuda'))
        print('held', torch.cuda.mem_get_info()[0], flush=True)
    except torch.OutOfMemoryError as error:
        print('full', torch.cuda.mem_get_info()[0], flush=True)
";
    let mut first = Talk::start(script(&gpu, holder));
    assert_eq!(first.received(), format!("ready {}", 23 * GIB - CONTEXT));
    let mut second = Talk::start(script(&gpu, holder));
    assert_eq!(second.received(), format!("ready {}", 23 * GIB - 2 * CONTEXT));
    assert_eq!(first.ask("16"), format!("held {}", 6 * GIB));
    assert_eq!(second.ask("10"), format!("full {}", 6 * GIB));
    let used = |pid| gpu.machine.used(0, pid).unwrap();
    assert_eq!((used(first.pid()), used(second.pid())), (Some(16 * GIB + CONTEXT), Some(CONTEXT)));

    // Killed, and not even waited for: its memory is free.
    first.child.kill().unwrap();
    assert!(until(PATIENCE, || used(first.pid()).is_none()), "a dead process still has memory");
    assert_eq!(second.ask("10"), format!("held {}", 12 * GIB + (GIB - CONTEXT)));
}

#[test]
fn nvml_has_the_faults_that_a_test_sets() {
    let gpu = Gpu::new("NVIDIA H200:143771MiB:615MiB;NVIDIA H200:143771MiB:615MiB");
    // NVML alone: there is no PyTorch, nor what it needs.
    let monitor = "
import sys, time, nvml
for line in sys.stdin:
    begin = time.monotonic()
    status, processes = nvml.processes()
    status2, memory = nvml.memory()
    print(status, sorted(processes.values()), status2, memory.used, time.monotonic() - begin > 2, flush=True)
";
    let library = ::simgpu::prepare_nvml(&gpu.dir().join("lib")).unwrap();
    std::fs::write(gpu.dir().join("nvml.py"), NVML).unwrap();
    let mut python = Command::new("python3");
    python.args(["-c", monitor]).current_dir(gpu.dir()).envs(gpu.machine.environment(library.parent().unwrap()));
    let mut talk = Talk::start(python);
    let mut sleeper = Command::new("sleep").arg("600").spawn().unwrap();
    gpu.machine.occupy(0, sleeper.id(), 5 * GIB).unwrap();
    let expected = [
        (vec![], "0 [5368709120] 0 5368709120 False"),
        (vec![Fault::Lost], "15 [] 15 0 False"),
        (vec![Fault::NoPermission], "4 [] 4 0 False"),
        (vec![Fault::NoMemoryV2], "0 [5368709120] 13 0 False"),
        (vec![Fault::NoProcessMemory], "0 [18446744073709551615] 0 5368709120 False"),
        (vec![Fault::Stall(Duration::from_secs(1))], "0 [5368709120] 0 5368709120 True"),
        (vec![Fault::Line("unknown nvmlDeviceGetComputeRunning*".into())], "999 [] 0 5368709120 False"),
        (vec![], "0 [5368709120] 0 5368709120 False"),
    ];
    for (faults, answer) in expected {
        gpu.machine.set_faults(&faults).unwrap();
        assert_eq!(talk.ask(""), answer, "{faults:?}");
    }
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert_eq!(talk.ask(""), "0 [] 0 0 False");
}

/// A program that answers lines with lines.
struct Talk {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Talk {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, input, output: BufReader::new(output) }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn received(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").unwrap();
        self.received()
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        // End the child with the test, whatever its result.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
