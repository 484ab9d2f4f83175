//! What a job needs and a simulated machine does not have: one sentence names it, with the line of the script.

use super::Asked;
use crate::helpers::torch;
use std::{fs, process::Output};

/// The sentence of an answer without a verdict.
fn sentence(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let first = text.lines().next().unwrap_or_default();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    first.strip_prefix("cannot tell: ").unwrap_or_else(|| panic!("{output:?}")).to_owned()
}

#[test]
fn a_call_of_any_library_is_named() {
    test_tiers::change!("another library than the driver's");
    let script = "import torch\nrows = torch.tensor([0, 1, 2], device='cuda')\n\
                  columns, values = torch.tensor([0, 1], device='cuda'), torch.ones(2, device='cuda')\n\
                  sparse = torch.sparse_csr_tensor(rows, columns, values, (2, 2))\nproduct = sparse @ sparse\n";
    let output = Asked::new(script).fit(&["--gpu", "T4"], &[]);
    assert_eq!(sentence(&output), "the job calls cusparseSpGEMM_createDescr at train.py:5, which is not simulated");
}

/// It has to be installed on the machine that the job will run on, too.
#[test]
fn a_package_that_python_does_not_have_is_named() {
    let cases = [
        (
            "import torch\nx = torch.ones(3, device='cuda')\ndef attend():\n    from flash_attn import flash_attn_func\nattend()\n",
            "flash_attn at train.py:4",
        ),
        ("import os\nimport bitsandbytes.nn\nimport torch\n", "bitsandbytes at train.py:2"),
    ];
    for (script, expected) in test_tiers::vary!(cases, "before the job uses a GPU") {
        let output = Asked::new(script).fit(&["--gpu", "T4"], &[]);
        assert_eq!(sentence(&output), format!("the job imports {expected}, which its Python does not have"));
    }
    // More time does not help it.
    let (answer, code) = Asked::new("import bitsandbytes.nn\nimport torch\n").json(&["--gpu", "T4"], &[]);
    assert_eq!((code, answer["next"].as_array().map(Vec::len)), (2, Some(0)), "{answer:#}");
}

#[test]
fn the_error_of_a_rank_is_named_and_not_its_launchers() {
    test_tiers::change!("several processes with PyTorch");
    let script = "import torch\nx = torch.ones(3, device='cuda')\nraise ValueError('no such data')\n";
    let torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2"];
    let output = Asked::new(script).launched(&torch::python(), &torchrun, &["--gpu", "2xT4"], &[]);
    assert_eq!(sentence(&output), "the job failed at train.py:3: ValueError: no such data");
}

/// However a group was asked for, and though it may be gone when the job ends.
#[test]
fn the_buffers_of_nccl_are_part_of_every_answer_about_groups_on_devices() {
    test_tiers::change!("several processes with PyTorch");
    for (group, has_buffers) in [("()", true), ("('cpu:gloo,cuda:nccl')", true), ("('gloo')", false)] {
        let script = format!(
            "import os, torch, torch.distributed as distributed\n\
             distributed.init_process_group{group}\n\
             torch.cuda.set_device(int(os.environ['LOCAL_RANK']))\n\
             x = torch.ones(3, device='cuda', requires_grad=True)\n\
             o = torch.optim.SGD([x], 0.1)\n\
             for _ in range(2):\n    (x * 2).sum().backward()\n    o.step()\n\
             distributed.destroy_process_group()\n"
        );
        let torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2"];
        let output = Asked::new(&script).launched(&torch::python(), &torchrun, &["--gpu", "2xT4"], &[]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("T4: ") && text.contains("NCCL buffers") == has_buffers, "{group}: {output:?}");
    }
}

/// What such a kernel allocates goes through the allocator; what it computes is not known.
#[test]
fn a_kernel_of_the_jobs_own_is_named_and_the_job_goes_on() {
    let script = "import ctypes, torch\nx = torch.ones(3, device='cuda')\ndriver = ctypes.CDLL('libcuda.so.1')\n\
                  module = ctypes.c_void_p()\nassert driver.cuModuleLoadData(ctypes.byref(module), b'code') == 0\n\
                  o = torch.optim.SGD([x.requires_grad_()], 0.1)\nfor _ in range(3):\n    (x * 2).sum().backward()\n    o.step()\n";
    let (answer, code) = Asked::new(script).json(&["--gpu", "T4"], &[]);
    assert_eq!((answer["fits"].as_str(), code), (Some("yes"), 0), "{answer:#}");
    let unknown = answer["unknown"].to_string();
    assert!(unknown.contains("train.py:5: loads kernels of its own, which compute nothing here"), "{unknown}");
}

#[test]
fn a_pytorch_without_cuda_is_refused_with_the_wheel_to_install() {
    let asked = Asked::new("import torch\n");
    let package = asked.home.0.path().join("torch");
    fs::create_dir_all(package.join("lib")).unwrap();
    fs::write(package.join("__init__.py"), "").unwrap();
    fs::write(package.join("version.py"), "__version__ = '2.15.0+cpu'\ncuda = None\n").unwrap();
    let mut program = std::process::Command::new(crate::helpers::terminal::PROGRAM);
    program.args(["fit", "--gpu", "T4", "--"]).arg(torch::python()).arg(&asked.script);
    let output = program.env("PYTHONPATH", asked.home.0.path()).envs(asked.home.variables()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    let wheel = "it is not built for CUDA; the wheel for CUDA needs no GPU here: pip install torch==2.15.0 ";
    assert!(output.status.code() == Some(2) && printed.contains(wheel), "{output:?}");
}
