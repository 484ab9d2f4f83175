//! Tables that are measured on a GPU, and answers by them.

use super::{Asked, JOB, bytes};
use crate::helpers::{
    terminal::PROGRAM,
    torch::{self, Gpu},
};
use serde_json::{Value, json};
use std::{fs, path::Path, process::Command};

const MIB: u64 = 1 << 20;

/// The version of the tests' PyTorch, as it has it.
fn version() -> String {
    let script = "import importlib.util as u, runpy\n\
                  folder, = u.find_spec('torch').submodule_search_locations\n\
                  print(runpy.run_path(folder + '/version.py')['__version__'])";
    torch::stdout(&Command::new(torch::python()).args(["-c", script]).output().unwrap()).trim().to_owned()
}

/// A table as `--calibrate` writes it, of a GPU with 28 multiprocessors.
fn table(capability: &str, torch: &str) -> String {
    let it = json!({
        "schema": 1, "kind": "gpuwatch-fit-table", "date": "2026-01-02", "gpu": "NVIDIA GeForce RTX 3060",
        "capability": capability, "multiprocessors": 28, "total": 1, "driver": "580.1", "torch": torch, "cuda": "13.2",
        "cudnn": 92_600, "context": [700 * MIB],
        "kernels": [
            { "name": "a", "group": "plain", "bytes": 20 * MIB },
            { "name": "b", "group": "cudnn", "bytes": 6 * MIB },
        ],
        "convolutions": [{ "name": "c", "tensors": 100, "workspace": 50, "trial": 60 }],
    });
    it.to_string()
}

fn saved(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_table_takes_the_place_of_the_built_in_ranges_for_its_architecture() {
    let asked = Asked::new(JOB);
    let folder = asked.home.0.path();
    let own = saved(folder, "own.json", &table("8.6", &version()));
    let other = saved(folder, "other.json", &table("9.0", &version()));
    let flags = ["--gpu", "RTX 3060", "--table", &other, "--table", &own];
    let (answer, code) = asked.json(&flags, &["64"]);
    assert_eq!((answer["fits"].as_str(), code), (Some("yes"), 0), "{answer:#}");
    let peak = &answer["peak"];
    let reserved = bytes(peak, "reserved");
    assert_eq!(bytes(peak, "device_low"), reserved + 698 * MIB, "{answer:#}");
    // The convolution's input, filters and output, of which its workspace is half.
    let convolution = 4 * (64 * 3 * 32 * 32 + 64 * 3 * 3 * 3 + 64 * 64 * 30 * 30);
    assert_eq!(bytes(peak, "device_high"), reserved + (702 + 26) * MIB + convolution / 2, "{answer:#}");
    let unknown = answer["unknown"].to_string();
    assert!(unknown.contains("CUDA context: 698.0 MiB to 702.0 MiB, measured on NVIDIA GeForce RTX 3060"), "{unknown}");
    assert!(unknown.contains("a table that is not used") && unknown.contains("(compute capability 9.0)"), "{unknown}");
}

/// The simulated GPU's context has a set size, and only gradients of a pointwise convolution's weights have workspaces,
/// which are small.
#[test]
fn a_gpu_is_measured_and_its_table_is_used() {
    test_tiers::change!("several processes with PyTorch");
    let asked = Asked::new(JOB);
    let path = asked.home.0.path().join("table.json");
    let gpu = Gpu::new("NVIDIA GeForce RTX 3060:12288MiB:251MiB");
    let calibrate = || {
        let mut program = gpu.command(PROGRAM);
        program.args(["fit", "--calibrate"]).arg(&path).arg("--").arg(torch::python()).envs(asked.home.variables());
        program.env("GPUWATCH_NVML_PATH", torch::libraries().join("libnvidia-ml.so.1"));
        program.env("SIMGPU_CONTEXT_MB", "300").output().unwrap()
    };
    torch::stdout(&calibrate());
    let table: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(table["context"], json!([300 * MIB, 300 * MIB, 300 * MIB]), "{table:#}");
    assert_eq!((&table["gpu"], &table["capability"]), (&json!("NVIDIA GeForce RTX 3060"), &json!("8.6")));
    assert_eq!(table["torch"], version());
    for part in ["date", "driver", "cuda"] {
        assert!(table[part].as_str().is_some_and(|it| !it.is_empty()), "{part}: {table:#}");
    }
    assert!(table["kernels"].as_array().unwrap().len() > 30, "{table:#}");
    let workspaces = table["convolutions"].as_array().unwrap();
    let needs_one = |it: &Value| it["workspace"] != 0;
    let may_need_one = |it: &Value| {
        let name = it["name"].as_str().unwrap();
        name.starts_with("weight float32 ") && name.contains(", 1 wide,")
    };
    assert!(workspaces.len() > 100 && workspaces.iter().all(|it| it["tensors"] != 0));
    let (may, others) = workspaces.iter().filter(|it| needs_one(it)).partition::<Vec<_>, _>(|it| may_need_one(it));
    assert!(!may.is_empty() && others.is_empty(), "{may:?} {others:?}");
    let again = calibrate();
    let printed = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(again.status.code() == Some(2) && printed.contains("it exists already"), "{printed}");
    let (answer, _) = asked.json(&["--gpu", "RTX 3060", "--table", path.to_str().unwrap()], &["64"]);
    let context = answer["unknown"][0].as_str().unwrap();
    assert!(context.starts_with("CUDA context: 298.0 MiB to 302.0 MiB, measured on NVIDIA GeForce"), "{answer:#}");
    let (low, high) = (bytes(&answer["peak"], "device_low"), bytes(&answer["peak"], "device_high"));
    assert!(high - low < 5 * MIB, "the context's range is 4 MiB: {answer:#}");
}

#[test]
fn a_gpu_that_is_not_there_is_refused_in_one_sentence() {
    let asked = Asked::new("");
    let folder = asked.home.0.path();
    let out = folder.join("table.json");
    let package = folder.join("torch.py");
    let refused = |python: &Path| {
        let mut program = Command::new(PROGRAM);
        program.args(["fit", "--calibrate"]).arg(&out).arg("--").arg(python).envs(asked.home.variables());
        let output = program.env("PYTHONPATH", folder).output().unwrap();
        assert_eq!((output.status.code(), out.exists()), (Some(2), false), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for (module, phrase) in [
        ("raise ImportError('no wheel')", "cannot import PyTorch (no wheel): name the job's Python after --\n"),
        ("class version: cuda = None\n__version__ = '2.15.0+cpu'", "PyTorch 2.15.0+cpu is built without CUDA\n"),
        (
            "class version: cuda = '13.2'\nclass cuda: device_count = staticmethod(int)",
            "PyTorch finds no GPU on this machine\n",
        ),
        (
            "class version: cuda = '13.2'\nclass cuda: device_count = staticmethod(lambda: 1)",
            "NVML cannot be used, which counts the device's memory: ",
        ),
    ] {
        fs::write(&package, module).unwrap();
        let printed = refused(Path::new("python3"));
        assert!(printed.starts_with("gpuwatch: ") && printed.lines().count() == 1, "{printed}");
        assert!(printed.contains(phrase), "{phrase}: {printed}");
    }
    let printed = refused(Path::new("no-such-python"));
    assert!(printed.contains("no-such-python: No such file or directory"), "{printed}");
}

#[test]
fn a_file_of_another_kind_is_refused() {
    let asked = Asked::new("");
    for (text, phrase) in [
        ("{}", "it is not a table of gpuwatch fit"),
        (
            &table("8.6", "2.15.0").replace("\"schema\":1", "\"schema\":2"),
            "it has schema 2, and this gpuwatch reads schema 1",
        ),
    ] {
        let path = saved(asked.home.0.path(), "table.json", text);
        let output = asked.fit(&["--gpu", "T4", "--table", &path], &[]);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && printed.contains(phrase), "{phrase}: {printed}");
    }
}
