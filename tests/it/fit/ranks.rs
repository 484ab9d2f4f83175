//! Plans: a few ranks of a job run, and the others are absent.
//!
//! ```text
//! GPUWATCH_TESTS=full cargo test --test it fit::ranks::
//! ```

use super::{Asked, bytes, packages::PACKAGES};
use crate::{helpers::torch, house::schemas, probe::frameworks::FRAMEWORKS};
use serde_json::{Value, json};
use std::{collections::BTreeMap, path::Path};

const JOB: &str = include_str!("ranks/job.py");
const TRAINERS: &str = include_str!("ranks/trainers.py");
const MEGATRON: &str = include_str!("ranks/megatron.py");
const SHARDED: &str = include_str!("advise/ranks.py");
const PEOPLE: &str = include_str!("../python/packages/train.py");
const HOST: &str = include_str!("ranks/host.py");
const LLAMA: &str = include_str!("ranks/llama.py");

/// A program that trains without a launcher; the lines in which it finds its rank go before.
const PLAIN: &str = "torch.cuda.set_device(int(os.environ.get('LOCAL_RANK', 0)) if local is None else local)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1024, 1024).cuda())
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(5):
    model(torch.randn(8, 1024, device='cuda')).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
";

const TORCHRUN: [&str; 3] = ["-m", "torch.distributed.run", "--nproc-per-node"];

/// A job's answer, which may be that it did not run.
fn ask(python: &Path, script: &str, launcher: &[&str], flags: &[&str], arguments: &[&str]) -> Value {
    let output = Asked::new(script).launched(python, launcher, &[&["--json"], flags].concat(), arguments);
    let answer = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    schemas::check("fit", &answer);
    answer
}

fn torchrun(local: &str, flags: &[&str], script: &str, arguments: &[&str]) -> Value {
    ask(&torch::python(), script, &[&TORCHRUN[..], &[local]].concat(), flags, arguments)
}

/// Allocated and reserved bytes by rank.
fn peaks(answer: &Value) -> BTreeMap<u64, (u64, u64)> {
    let ranks = answer["ranks"].as_array().unwrap_or_else(|| panic!("{answer:#}"));
    let row = |it: &Value| (bytes(it, "rank"), (bytes(&it["peak"], "allocated"), bytes(&it["peak"], "reserved")));
    ranks.iter().map(row).collect()
}

/// Fails unless each rank that runs in a plan takes what it takes among all of so many.
fn check_plan(what: &str, count: u64, of: impl Fn(&[&str]) -> Value) {
    let gpu = format!("{count}xA100-40GB");
    let every = (0..count).map(|it| it.to_string()).collect::<Vec<_>>().join(",");
    let all = peaks(&of(&["--gpu", &gpu, "--ranks", &every]));
    let answer = of(&["--gpu", &gpu, "--nodes", "1"]);
    let planned = peaks(&answer);
    assert_eq!(all.len() as u64, count, "{what}");
    assert!(planned.contains_key(&0), "{what}: {answer:#}");
    for (rank, peak) in &planned {
        assert_eq!(all.get(rank), Some(peak), "{what}: rank {rank} of {count}");
    }
    assert_eq!(answer["nodes"]["ranks"].as_u64(), Some(count), "{what}");
}

#[test]
fn a_few_ranks_take_what_they_take_among_all() {
    test_tiers::change!("processes of PyTorch");
    check_plan("hsdp", 4, |flags| torchrun("4", flags, JOB, &["hsdp"]));
    check_plan("pipeline", 4, |flags| torchrun("4", flags, JOB, &["pp"]));
}

#[test]
fn every_strategy_takes_what_it_takes_among_all_ranks() {
    test_tiers::full!("66 trainings of up to eight ranks");
    for strategy in ["ddp", "zero", "fsdp1", "fsdp2", "offload", "hsdp", "tp", "cp", "titan", "pp", "ep", "gathers"] {
        for count in [2, 4, 8] {
            check_plan(strategy, count, |flags| torchrun(&count.to_string(), flags, JOB, &[strategy]));
        }
    }
}

/// Stages that tell each other the shapes of what they send cannot do without each other.
#[test]
fn all_stages_of_a_pipeline_run_that_need_each_other() {
    test_tiers::full!("16 processes of PyTorch");
    let answer = torchrun("8", &["--gpu", "8xA100-40GB", "--nodes", "2"], JOB, &["pp"]);
    assert_eq!(answer["fits"], "yes", "{answer:#}");
    assert_eq!(peaks(&answer).len(), 16, "{answer:#}");
}

#[test]
fn sharded_trainings_of_frameworks_take_what_they_take_among_all_ranks() {
    test_tiers::full!("frameworks on PyTorch");
    let python = test_tiers::needs!(FRAMEWORKS.found());
    let launch = "-m accelerate.commands.launch --use_fsdp --fsdp_version 2 --num_processes 4 --mixed_precision bf16 \
                  --fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP --fsdp_transformer_layer_cls_to_wrap Layer";
    let launch: Vec<&str> = launch.split_whitespace().collect();
    check_plan("Accelerate", 4, |flags| ask(&python, TRAINERS, &launch, flags, &["accelerate"]));
    check_plan("Lightning", 4, |flags| ask(&python, TRAINERS, &[], flags, &["lightning"]));
}

#[test]
fn trainings_of_packages_take_what_they_take_among_all_ranks() {
    test_tiers::full!("packages on PyTorch");
    let python = test_tiers::needs!(PACKAGES.found());
    let launch = [&TORCHRUN[..], &["4"]].concat();
    for edits in [&["zero:1"][..], &["zero:2"], &["zero:3"], &["staged", "offload"]] {
        let arguments = [&["deepspeed"], edits].concat();
        check_plan("DeepSpeed", 4, |flags| ask(&python, SHARDED, &launch, flags, &arguments));
    }
    check_plan("Megatron-Core", 4, |flags| ask(&python, MEGATRON, &launch, flags, &[]));
    // The ranks of these have batches of different lengths.
    let launch = "-m accelerate.commands.launch --use_fsdp --fsdp_version 2 --num_processes 4 --mixed_precision bf16 \
                  --fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP";
    let launch: Vec<&str> = launch.split_whitespace().collect();
    for case in ["sft", "dpo"] {
        check_plan(case, 4, |flags| ask(&python, PEOPLE, &launch, flags, &[case]));
    }
}

/// The job itself compares what it holds with the formula.
#[test]
fn of_hundreds_of_ranks_each_holds_what_the_formula_says() {
    test_tiers::change!("processes of PyTorch");
    let cases =
        [("fsdp2_by_formula", "8"), ("fsdp2_by_formula", "64"), ("hsdp_by_formula", "8"), ("ddp_by_formula", "64")];
    for (strategy, nodes) in cases {
        let answer = torchrun("8", &["--gpu", "8xA100-40GB", "--nodes", nodes, "--ranks", "0,-1"], JOB, &[strategy]);
        let world = 8 * nodes.parse::<u64>().unwrap();
        assert_eq!(answer["fits"], "yes", "{strategy}: {answer:#}");
        assert_eq!(peaks(&answer).into_keys().collect::<Vec<_>>(), [0, world - 1], "{strategy}: {answer:#}");
    }
}

/// torchtitan's figures for H100s, of `max_memory_reserved`: 82.4 GiB on 8, 67.0 GiB on 128
/// (`benchmarks/llama3_h100_202412_torchtitan.md` of pytorch/torchtitan, with PyTorch of December 2024).
#[test]
fn a_published_training_takes_what_was_measured() {
    test_tiers::change!("a Llama of 8 billion parameters");
    for (nodes, published) in test_tiers::vary!([("16", 67.0), ("1", 82.4)], "eight ranks") {
        let answer = torchrun("8", &["--gpu", "8xH200", "--nodes", nodes, "--ranks", "0"], LLAMA, &[]);
        let reserved = bytes(&answer["peak"], "reserved") as f64 / f64::from(1 << 30);
        let deviation = reserved / published - 1.0;
        assert!(deviation.abs() < 0.01, "{nodes} nodes: {reserved:.2} GiB, {published} published: {answer:#}");
    }
}

#[test]
fn what_rests_on_values_of_absent_ranks_is_named() {
    test_tiers::change!("processes of PyTorch");
    let marked = |mark: &str| {
        let at = JOB.lines().position(|it| it.ends_with(&format!("# {mark}"))).unwrap();
        format!("train.py:{}: ", at + 1)
    };
    let answer = torchrun("4", &["--gpu", "4xT4", "--ranks", "0"], JOB, &["votes"]);
    let unknown: Vec<&str> = answer["unknown"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for mark in ["vote", "counts"] {
        let named = unknown.iter().find(|it| it.starts_with(&marked(mark)));
        assert!(named.is_some_and(|it| it.contains("absent ranks send")), "{mark}: {answer:#}");
    }
    assert_eq!(answer["fits"], "unknown", "a size depends on it: {answer:#}");
    let told = torchrun("2", &["--gpu", "2xT4", "--ranks", "0"], JOB, &["tells"])["unknown"].to_string();
    assert!(told.contains(&marked("number")) && told.contains("absent ranks send"), "{told}");
}

/// What absent ranks would send to it is what its neighbour sends, or what it has itself.
#[test]
fn a_rank_that_gathers_gets_what_decodes() {
    test_tiers::change!("processes of PyTorch");
    for (ranks, ran) in test_tiers::vary!([("0", &[0][..]), ("0,3", &[0, 3])], "ranks that run") {
        let answer = torchrun("4", &["--gpu", "4xT4", "--ranks", ranks], JOB, &["gathers"]);
        assert_eq!(answer["fits"], "yes", "{answer:#}");
        assert_eq!(peaks(&answer).into_keys().collect::<Vec<_>>(), ran, "{answer:#}");
    }
}

/// Rank 0 cannot continue without what rank 2 of four says, so that one runs as well.
#[test]
fn a_rank_whose_values_are_needed_runs_too() {
    test_tiers::change!("processes of PyTorch");
    let answer = torchrun("4", &["--gpu", "4xT4", "--nodes", "1"], JOB, &["waits"]);
    assert_eq!(peaks(&answer).into_keys().collect::<Vec<_>>(), [0, 2], "{answer:#}");
}

/// The machine that the job is shown has 1 GiB, of which nothing is free.
#[test]
fn a_job_that_would_take_all_of_the_host_is_ended_with_its_line() {
    let script = "import os, torch, gpuwatch_probe._fit_host as host\nopen('meminfo', 'w').write('MemTotal: 1048576 kB\\nMemAvailable: 0 \
                  kB\\n')\nhost._MEMINFO = os.path.abspath('meminfo')\nmodel = []\nwhile True:\n    \
                  model.append(torch.ones(1 << 20) if len(model) < 200 else None)\n";
    let output = Asked::new(script).launched(&torch::python(), &[], &["--gpu", "T4", "--nodes", "1"], &[]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("cannot tell: the job takes ") && text.contains(" at train.py:"), "{output:?}");
    assert!(text.contains("make the model on the meta device"), "{text}");
}

/// Pinned memory counts whether or not the job writes to it, once, and workers' memory that they do not share.
#[test]
fn memory_of_the_host_is_what_the_process_its_pinned_memory_and_its_workers_take() {
    test_tiers::change!("processes of PyTorch");
    let host = |kind: &str| {
        let answer = ask(&torch::python(), HOST, &[], &["--gpu", "T4", "--nodes", "2", "--ranks", "0"], &[kind]);
        bytes(&answer["host"], "node") as f64 / f64::from(1 << 20)
    };
    let none = host("none");
    let kinds =
        [("pinned", 256.0, 256.0), ("written", 256.0, 384.0), ("copied", 256.0, 256.0), ("freed", 128.0, 128.0)];
    for (kind, least, most) in test_tiers::vary!(kinds, "other kinds of memory") {
        let more = host(kind) - none;
        assert!((least - 40.0..most + 40.0).contains(&more), "{kind}: {more:.0} MiB more than {none:.0}");
    }
    // Two workers write to what the process has made, of about 100 MiB.
    let more = host("workers") - none;
    assert!((250.0..550.0).contains(&more), "{more:.0} MiB of a process and two workers");
}

#[test]
fn ranks_run_without_a_launcher() {
    test_tiers::change!("processes of PyTorch");
    let begin = "import os, torch, torch.distributed as dist\n";
    let by_variables = "local = None\ndist.init_process_group('nccl')\n";
    let by_slurm = "local = int(os.environ['SLURM_LOCALID'])\ndist.init_process_group('nccl', \
                    init_method='tcp://node001:29400', rank=int(os.environ['SLURM_PROCID']), \
                    world_size=int(os.environ['SLURM_NTASKS']))\n";
    let of = |head: &str, flags: &[&str]| ask(&torch::python(), &format!("{begin}{head}{PLAIN}"), &[], flags, &[]);
    // A launcher that starts one process starts fewer than run.
    let script = format!("{begin}{by_variables}{PLAIN}");
    let one = ask(&torch::python(), &script, &[&TORCHRUN[..], &["1"]].concat(), &["--gpu", "T4", "--nodes", "3"], &[]);
    assert_eq!(peaks(&one).into_keys().collect::<Vec<_>>(), [0, 2], "{one:#}");
    let plain = of(by_variables, &["--gpu", "2xT4", "--nodes", "3"]);
    assert_eq!(peaks(&plain).into_keys().collect::<Vec<_>>(), [0, 5], "{plain:#}");
    // Slurm's program is not needed.
    let asked = Asked::new(&format!("{begin}{by_slurm}{PLAIN}"));
    let flags = ["--json", "--gpu", "2xT4", "--nodes", "3"];
    let slurm = asked.launched(Path::new("srun"), &["-N", "3", torch::python().to_str().unwrap()], &flags, &[]);
    let slurm: Value = serde_json::from_slice(&slurm.stdout).unwrap_or_else(|e| panic!("{e}: {slurm:?}"));
    assert_eq!(peaks(&slurm), peaks(&plain), "{slurm:#}");
}

/// A program that starts its ranks itself: the absent ones end as soon as they know which they are.
#[test]
fn ranks_that_a_program_starts_are_absent_too() {
    test_tiers::change!("processes of PyTorch");
    let indented = PLAIN.replace('\n', "\n    ");
    let script = format!(
        "import os, torch, torch.distributed as dist\ndef main(local, world):\n    os.environ['MASTER_ADDR'] = \
         'localhost'\n    dist.init_process_group('nccl', init_method='tcp://localhost:' + os.environ['MASTER_PORT'], \
         rank=local, world_size=world)\n    {indented}\nif __name__ == '__main__':\n    \
         torch.multiprocessing.spawn(main, (4,), 4)\n"
    );
    let answer = ask(&torch::python(), &script, &[], &["--gpu", "4xT4", "--ranks", "0,3"], &[]);
    assert_eq!(peaks(&answer).into_keys().collect::<Vec<_>>(), [0, 3], "{answer:#}");
}

#[test]
fn the_smallest_number_of_machines_that_is_enough_is_found() {
    test_tiers::change!("a plan for each number of machines");
    // Two ranks need more than 8 GiB each, four need less.
    let flags = ["--gpu", "2x8GiB", "--nodes", "1..3", "--host", "1MiB"];
    let answer = torchrun("2", &flags, JOB, &["large"]);
    assert_eq!(answer["nodes"]["enough"].as_u64(), Some(2), "{answer:#}");
    assert_eq!(answer["nodes"]["asked"], answer["nodes"]["enough"], "{answer:#}");
    assert_eq!((&answer["host"]["fits"], &answer["fits"]), (&"no".into(), &"no".into()), "{answer:#}");
}

/// A job whose ranks keep more after each step.
const GROWS: &str = include_str!("ranks/grows.py");

/// The answer for a job of two ranks: each culprit as (line, ranks, sentence), the ranks that grow, and the text.
type Grown = (Vec<(String, Value, String)>, Value, String);

fn grown(case: &str, gpu: &[&str]) -> Grown {
    let asked = Asked::new(GROWS);
    let launch = [&TORCHRUN[..], &["2"]].concat();
    let output = asked.launched(&torch::python(), &launch, &[&["--json"], gpu].concat(), &[case]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    schemas::check("fit", &answer);
    let growth = &answer["growth"];
    let words = |it: &Value| it.as_str().unwrap().to_owned();
    let row = |it: &Value| (words(&it["line"]), it["ranks"].clone(), words(&it["sentence"]));
    let culprits = growth["culprits"].as_array().map(|it| it.iter().map(row).collect()).unwrap_or_default();
    let output = asked.launched(&torch::python(), &launch, gpu, &[case]);
    (culprits, growth["ranks"].clone(), String::from_utf8_lossy(&output.stdout).into_owned())
}

fn grows_at(mark: &str) -> String {
    let at = GROWS.lines().position(|it| it.ends_with(&format!("# {mark}"))).unwrap();
    format!("train.py:{}", at + 1)
}

/// The other ranks run as many steps as one needs to show that it grows.
#[test]
fn what_grows_is_named_with_its_line_its_holder_and_its_ranks() {
    test_tiers::change!("processes of PyTorch");
    let all = ["--gpu", "2xRTX 4090"];
    let (culprits, ranks, text) = grown("one", &all);
    let [(line, on, sentence)] = &culprits[..] else { panic!("{culprits:?}: {text}") };
    assert_eq!((line, on, &ranks), (&grows_at("outputs"), &json!([1]), &json!([1])), "{text}");
    assert!(sentence.contains("list `outputs`"), "{sentence}");
    assert!(text.contains("\nwhat grows, +512.0 KiB/step on rank 1:\n"), "{text}");
    assert!(text.contains("allocates what it keeps on rank 1"), "{text}");
    for (case, gpu) in test_tiers::vary!(
        [("all", &all[..]), ("all", &["--gpu", "2xRTX 4090", "--nodes", "2"])],
        "all ranks, and two of four"
    ) {
        let (culprits, ranks, text) = grown(case, gpu);
        let both = if gpu.len() == 2 { json!([0, 1]) } else { json!([0, 3]) };
        assert_eq!((&culprits[0].0, &culprits[0].1, &ranks), (&grows_at("outputs"), &both, &both), "{text}");
        assert_eq!(culprits.len(), 1, "{culprits:?}");
        let words = if gpu.len() == 2 { "on ranks 0, 1:\n" } else { "on ranks 0, 3:\n" };
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn ranks_that_keep_different_things_are_told_apart_and_healthy_ones_do_not_grow() {
    test_tiers::change!("processes of PyTorch");
    let all = ["--gpu", "2xRTX 4090"];
    let (culprits, ranks, text) = grown("apart", &all);
    let found: Vec<_> = culprits.iter().map(|it| (it.0.clone(), it.1.clone())).collect();
    assert_eq!(found, [(grows_at("samples"), json!([0])), (grows_at("outputs"), json!([1]))], "{text}");
    assert_eq!(ranks, json!([0, 1]));
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("what grows, +1.00 MiB/step on ranks 0, 1: "), "{text}");
    assert!(words.contains("on rank 0 remedy: clear `samples`"), "{text}");
    let (culprits, ranks, text) = grown("none", &all);
    assert!(culprits.is_empty() && ranks.is_null() && !text.contains("grows"), "{text}");
}

const EPOCHS: &str = include_str!("ranks/epochs.py");

/// Other ranks go on as long as one needs to show what it keeps.
#[test]
fn what_one_rank_keeps_in_each_epoch_adds_up() {
    test_tiers::change!("processes of PyTorch");
    let peak = |epochs| {
        let answer = torchrun("2", &["--gpu", "2xRTX 4090"], EPOCHS, &[epochs]);
        assert_eq!(answer["fits"], "yes", "{answer:#}");
        bytes(&answer["peak"], "allocated")
    };
    assert_eq!(peak("12") - peak("2"), 10 * (4 << 20));
}

#[test]
fn what_a_rank_keeps_in_more_epochs_than_are_made_is_named() {
    test_tiers::full!("fifty epochs of two processes");
    let answer = torchrun("2", &["--gpu", "2xRTX 4090"], EPOCHS, &["300"]);
    let line = 1 + EPOCHS.lines().position(|it| it.ends_with("# epochs")).unwrap();
    let words = format!("train.py:{line} memory still rose by 4.00 MiB in each pass");
    assert!(answer["fits"] == "unknown" && answer["unknown"].to_string().contains(&words), "{answer:#}");
}
