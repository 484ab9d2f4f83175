//! Jobs on devices of AMD's, of Intel's, and of a maker that only `torch.accelerator` knows: a stand-in for PyTorch has
//! their allocators (`python/accelerators`), and trees of files have what the kernel shows.

use super::Machine;
use crate::{
    helpers::{
        terminal::{PATIENCE, until},
        torch::stdout,
    },
    house::schemas,
    probe::pytorch::script,
};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::fs::symlink,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

const MIB: u64 = 1 << 20;

/// What is allocated after a step: parameters of 100 MiB, their gradients, and two moments of each.
const HELD: u64 = 400 * MIB;

/// A job on a stand-in, and the machine on which it runs.
struct Job {
    machine: Machine,
    child: Child,
    input: Option<ChildStdin>,
    out: BufReader<ChildStdout>,
    pid: u32,
}

impl Job {
    /// Starts it on one of the devices, under `gpuwatch run`.
    fn start(machine: Machine, kind: &str, ordinal: u32, variables: &[(&str, &str)]) -> Self {
        let mut command = machine.command(&["run", "--summary", "never", "--", "python3"]);
        command.arg(script("accelerators/job.py")).arg(ordinal.to_string());
        command
            .env("STANDIN", kind)
            .env("STANDIN_DEVICES", [(12_u64 << 30).to_string(), (8_u64 << 30).to_string()].join(","));
        command.env("PYTHONPATH", script("accelerators")).envs(variables.iter().copied());
        for name in ["XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"] {
            command.env(name, machine.home.path().join(name));
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let (input, out) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut job = Self { machine, child, input, out, pid: 0 };
        let begun = job.next();
        job.pid = u32::try_from(begun["pid"].as_u64().unwrap()).unwrap();
        assert_eq!(begun["touched"], json!([]), "nothing touches a device before the job does");
        job
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }

    /// Lets it do something; returns what its allocator counts then.
    fn does(&mut self, what: &str) -> Value {
        writeln!(self.input.as_mut().unwrap(), "{what}").unwrap();
        let said = self.next();
        assert_eq!(said["touched"], json!([]), "{what}");
        said
    }

    /// Adds the job to the processes of the tree, with a descriptor of a device.
    fn opens(&self, node: &str, fdinfo: &str) {
        let folder = self.machine.root().join(format!("proc/{}", self.pid));
        for name in ["fd", "fdinfo"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        symlink(format!("/dev/dri/{node}"), folder.join("fd/7")).unwrap();
        fs::write(folder.join("fdinfo/7"), fdinfo).unwrap();
    }

    /// Returns the report of this machine once it has what is expected of the job's probe.
    fn once(&self, is_there: impl Fn(&Value) -> bool) -> Value {
        let mut seen = Value::Null;
        until(PATIENCE, || {
            seen = self.machine.once();
            is_there(&seen["probes"][0])
        });
        assert!(is_there(&seen["probes"][0]), "{seen:#}");
        seen
    }

    /// Ends it; its recording has these kinds of findings.
    fn ends(mut self) -> Vec<(String, Value)> {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
        let store = self.machine.home.path().join("XDG_STATE_HOME/gpuwatch/recordings");
        let file =
            fs::read_dir(store).unwrap().map(|it| it.unwrap().path()).find(|it| it.extension().is_some()).unwrap();
        let check = self.machine.printed(&["check", "--json", file.to_str().unwrap()]);
        let check: Value = serde_json::from_str(&check).unwrap();
        let findings = check["findings"].as_array().or_else(|| check["recordings"][0]["findings"].as_array());
        findings.unwrap().iter().map(|it| (it["kind"].as_str().unwrap().to_owned(), it.clone())).collect()
    }
}

/// Whether the counters of a step have arrived.
fn has_step(step: u64) -> impl Fn(&Value) -> bool {
    move |probe| {
        let devices = probe["devices"].as_array();
        devices.is_some_and(|all| all.iter().any(|it| it["step"].as_u64() >= Some(step)))
    }
}

/// The only device that the probe has used.
fn used(seen: &Value) -> &Value {
    let mut all = seen["probes"][0]["devices"].as_array().unwrap().iter().filter(|it| !it["step"].is_null());
    let first = all.next().unwrap();
    assert!(all.next().is_none(), "{seen:#}");
    first
}

/// Checks what every kind of job has: counters as in the allocator, steps and parts.
fn check_counters(seen: &Value, said: &Value, ordinal: u32) {
    let on = used(seen);
    let counters = &on["counters"];
    assert_eq!(on["ordinal"], ordinal);
    for (name, theirs) in [("allocated", "allocated"), ("reserved", "reserved"), ("active", "allocated")] {
        assert_eq!(counters[name], said["figures"][theirs], "{name}: {on:#}");
    }
    for (name, theirs) in [("allocated_peak", "allocated"), ("reserved_peak", "reserved")] {
        assert_eq!(counters[name], said["peaks"][theirs], "{name}: {on:#}");
    }
    assert_eq!(counters["allocated"], HELD);
    for (part, bytes) in [("weights", 100), ("gradients", 100), ("optimizer", 200), ("retained", 0)] {
        assert_eq!(on["parts"][part], bytes * MIB, "{part}: {on:#}");
    }
}

/// The library of ROCm's that a job has loaded: it names the first device by the second serial number of the tree.
fn rocm(machine: &Machine) -> String {
    let (source, library) = (machine.home.path().join("hip.c"), machine.home.path().join("libamdhip64.so.6"));
    let code = r#"
        #include <string.h>
        #include <stdlib.h>
        int hipDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
        int hipDeviceGetUuid(char *uuid, int device) { memcpy(uuid, getenv("STANDIN_SERIALS") + 17 * device, 16); return 0; }
        int hipDeviceGetName(char *name, int size, int device) { strncpy(name, "AMD Instinct MI300X", size); return 0; }
        int hipDeviceTotalMem(size_t *total, int device) { *total = 206141652992; return 0; }
        int hipDeviceGetPCIBusId(char *place, int size, int device) { strncpy(place, "0000:C5:00.0", size); return 0; }
    "#;
    fs::write(&source, code).unwrap();
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-Wl,-soname,libamdhip64.so.6", "-o"]).arg(&library).arg(&source);
    assert!(compile.status().unwrap().success());
    library.to_str().unwrap().to_owned()
}

#[test]
fn a_job_of_rocm_has_its_counters_on_the_device_that_the_kernel_shows() {
    let machine = Machine::new("mi300x");
    let library = rocm(&machine);
    let serials = ("STANDIN_SERIALS", "7c0de0a1b2c3d4e6 2a71c1f1b2d3e4f5");
    let mut job = Job::start(machine, "cuda", 0, &[("STANDIN_LIBRARY", &library), serials]);
    job.does("build");
    let fdinfo = "drm-driver:\tamdgpu\ndrm-pdev:\t0000:83:00.0\ndrm-client-id:\t99\ndrm-memory-vram:\t1048576 KiB\n";
    job.opens("renderD128", fdinfo);
    let said = job.does("steps 5");
    let seen = job.once(has_step(5));
    check_counters(&seen, &said, 0);
    assert_eq!(used(&seen)["device"], "GPU-7c0de0a1b2c3d4e6");
    assert_eq!(used(&seen)["driver_used"], 1_073_741_824_u64, "the kernel's figure joins: {seen:#}");
    assert_eq!(used(&seen)["counters"]["blocks"], said["figures"]["blocks"]);
    let devices: Vec<&str> = seen["devices"].as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(devices, ["GPU-2a71c1f1b2d3e4f5", "GPU-7c0de0a1b2c3d4e6"], "no device twice");
    let said = job.does("oom");
    let seen = job.once(|it| !it["ooms"][0].is_null());
    assert_eq!(seen["probes"][0]["ooms"][0]["message"], said["answer"], "{seen:#}");
    assert_eq!(job.ends().iter().filter(|it| it.0 == "oom").count(), 1);
}

/// The graphics of a processor have no serial number: their place on the bus names them for both.
#[test]
fn a_job_of_rocm_on_a_device_without_a_serial_number_is_found_by_its_place() {
    let machine = Machine::new("strix-halo");
    let library = rocm(&machine);
    let serials = ("STANDIN_SERIALS", "XX-------------- XX--------------");
    let mut job = Job::start(machine, "cuda", 0, &[("STANDIN_LIBRARY", &library), serials]);
    job.does("build");
    let said = job.does("steps 5");
    let seen = job.once(has_step(5));
    check_counters(&seen, &said, 0);
    assert_eq!(used(&seen)["device"], "PCI-0000:c5:00.0");
}

/// UUIDs of the compute runtime: Intel, the kind, the revision, the domain, bus 4 and then bus 3.
const UUIDS: (&str, &str) =
    ("STANDIN_UUIDS", "86800be2-0000-0000-0400-000000000000,86800be2-0000-0000-0300-000000000000");

#[test]
fn a_job_on_intels_devices_has_counters_steps_and_the_memory_that_no_file_has() {
    let mut job = Job::start(Machine::new("xe"), "xpu", 1, &[UUIDS]);
    job.does("build");
    let fdinfo = "drm-driver:\txe\ndrm-client-id:\t9\ndrm-pdev:\t0000:03:00.0\ndrm-resident-vram0:\t600 MiB\n";
    job.opens("renderD128", fdinfo);
    let said = job.does("steps 5");
    let seen = job.once(has_step(5));
    check_counters(&seen, &said, 1);
    let on = used(&seen);
    assert_eq!((&on["device"], &on["driver_used"]), (&json!("PCI-0000:03:00.0"), &json!(600 * MIB)), "{seen:#}");
    assert_eq!(on["counters"]["requested"], said["figures"]["requested"]);
    let total = 8_u64 << 30;
    let free = total - said["figures"]["reserved"].as_u64().unwrap() - 512 * MIB;
    assert_eq!((&on["counters"]["device_total"], &on["counters"]["device_free"]), (&json!(total), &json!(free)));
    for name in ["blocks", "segments", "retries", "ooms"] {
        assert_eq!(on["counters"][name], Value::Null, "{name}: the allocator does not count it");
    }
    let described = &seen["probes"][0]["hello"];
    assert_eq!((&described["backend"], &described["devices"][1]["total"]), (&json!("xpu"), &json!(total)));
    assert!(described["sites"].as_str().unwrap().contains("the allocator xpu records no stacks"), "{described:#}");
}

/// Without UUIDs (PyTorch 2.6 to 2.8) the one device is known by the process's descriptors; without rights or Intel's
/// runtime for it, what is free stays unknown.
#[test]
fn what_an_intel_device_does_not_tell_is_unknown() {
    let odd = ("STANDIN_UUIDS", "10de0be2-0000-0000-0400-000000000000,no-uuid");
    let mut job = Job::start(Machine::new("xe"), "xpu", 1, &[odd, ("STANDIN_NO_FREE", "1")]);
    job.does("build");
    let said = job.does("steps 5");
    let seen = job.once(has_step(5));
    check_counters(&seen, &said, 1);
    assert!(used(&seen)["device"].as_str().unwrap().starts_with("probe-"), "{seen:#}");
    assert_eq!(used(&seen)["counters"]["device_free"], Value::Null);
}

/// A card with two tiles, as the runtime shows them by default: two devices of the process with one place on the bus.
#[test]
fn the_tiles_of_a_card_are_one_device_whose_memory_counts_once() {
    let tiles = "86800be2-0000-0000-0300-000000000001,86800be2-0000-0000-0300-000000000002";
    let mut job = Job::start(Machine::new("xe"), "xpu", 1, &[("STANDIN_UUIDS", tiles)]);
    job.does("build");
    let fdinfo = "drm-driver:\txe\ndrm-client-id:\t9\ndrm-pdev:\t0000:03:00.0\ndrm-resident-vram0:\t1200 MiB\n";
    job.opens("renderD128", fdinfo);
    job.does("hold 0 256");
    let said = job.does("steps 5");
    let reserved = said["figures"]["reserved"].as_u64().unwrap();
    let both = |probe: &Value| {
        let held: Option<Vec<u64>> =
            (0..2).map(|ordinal| probe["devices"][ordinal]["counters"]["reserved"].as_u64()).collect();
        held == Some(vec![256 * MIB, reserved])
    };
    let seen = job.once(both);
    assert_eq!((&seen["devices"][0]["id"], &seen["devices"][1]), (&json!("PCI-0000:03:00.0"), &Value::Null));
    let rungs = seen["devices"][0]["ladder"]["rungs"].as_array().unwrap();
    let beyond: u64 = rungs.iter().filter(|it| it["gap"] == "non_torch").filter_map(|it| it["bytes"].as_u64()).sum();
    assert_eq!(beyond, 1200 * MIB - 256 * MIB - reserved, "{rungs:#?}");
}

#[test]
fn a_place_on_the_bus_is_read_from_uuids_of_intels_and_from_descriptors() {
    let folder = tempfile::tempdir().unwrap();
    let open = |number: u32, target: &str, address: &str| {
        for name in ["fd", "fdinfo"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        symlink(target, folder.path().join(format!("fd/{number}"))).unwrap();
        fs::write(folder.path().join(format!("fdinfo/{number}")), format!("pos:\t0\ndrm-pdev:\t{address}\n")).unwrap();
    };
    let ask = |code: &str| {
        let mut python = Command::new("python3");
        python.args(["-c", &format!("from gpuwatch_probe import _accelerators as it; print({code})")]);
        python.env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/probes/python"));
        stdout(&python.output().unwrap()).trim().to_owned()
    };
    for (uuid, address) in [
        ("'86800be2-0000-0100-0300-000000000001'", "0001:03:00.0"),
        ("'868005560800000003000000000000'", "None"),
        ("'86805656080000003a1f070000000000'", "0000:3a:1f.7"),
        ("'10de0be2-0000-0000-0300-000000000000'", "None"),
        ("'no uuid'", "None"),
        ("None", "None"),
    ] {
        assert_eq!(ask(&format!("it._address({uuid})")), address, "{uuid}");
    }
    let only = || ask(&format!("it._only_address({:?})", folder.path()));
    open(0, "/dev/null", "0000:00:00.0");
    assert_eq!(only(), "None");
    for number in [7, 8] {
        open(number, "/dev/dri/renderD128", "0000:03:00.0");
    }
    assert_eq!(only(), "0000:03:00.0");
    open(9, "/dev/dri/renderD129", "0000:04:00.0");
    assert_eq!(only(), "None", "which of two the one device is, is unknown");
}

#[test]
fn an_error_for_lack_of_intels_memory_is_reported_once_with_its_line() {
    let mut job = Job::start(Machine::new("xe"), "xpu", 1, &[UUIDS]);
    job.does("build");
    job.does("steps 5");
    let said = job.does("oom");
    let seen = job.once(|it| !it["ooms"][0].is_null());
    let errors = seen["probes"][0]["ooms"].as_array().unwrap();
    assert_eq!(errors.len(), 1, "{errors:#?}");
    assert_eq!((&errors[0]["message"], &errors[0]["device"]), (&said["answer"], &json!(1)));
    let text = job.machine.printed(&["once"]);
    let source = fs::read_to_string(script("accelerators/job.py")).unwrap();
    let line = 1 + source.lines().position(|it| it.contains(".capacity - 100 * MIB")).unwrap();
    assert!(text.contains(&format!("Out of memory at job.py:{line} in too_much()")), "{text}");
    let findings = job.ends();
    let found: Vec<&Value> = findings.iter().filter(|it| it.0 == "oom").map(|it| &it.1).collect();
    let [found] = found[..] else { panic!("one error, one finding: {findings:#?}") };
    assert!(found.to_string().contains("job.py"), "it names the line that asked: {found:#}");
}

/// Without the count of blocks, growth is judged by bytes.
#[test]
fn growth_is_found_on_every_kind_of_device() {
    for (kind, tree) in [("xpu", "xe"), ("npu", "xe"), ("cuda", "mi300x")] {
        let mut job = Job::start(Machine::new(tree), kind, 1, &[UUIDS]);
        job.does("build");
        job.once(|it| !it["hello"].is_null());
        job.does("steps 400 4194304");
        let findings = job.ends();
        assert!(findings.iter().any(|it| it.0 == "growth"), "{kind}: {findings:#?}");
    }
}

/// A backend of its own without a hook: the probe asks each second whether the job has initialised it.
#[test]
fn a_job_of_another_accelerator_has_what_every_allocator_counts() {
    let mut job = Job::start(Machine::new("xe"), "npu", 1, &[]);
    job.does("build");
    let mut steps = 7;
    job.does("steps 7");
    let counted = until(PATIENCE, || {
        job.does("steps 1");
        steps += 1;
        let seen = job.machine.once();
        has_step(1)(&seen["probes"][0]) && !used(&seen)["parts"]["weights"].is_null()
    });
    assert!(counted, "the probe notices the first use of a device, and counts its parts");
    let said = job.does("steps 3");
    let seen = job.once(has_step(steps + 3));
    check_counters(&seen, &said, 1);
    let on = used(&seen);
    assert_eq!(on["step"], steps + 3, "steps count from the job's beginning");
    assert_eq!(on["counters"]["requested"], Value::Null, "zeros of a counter that nothing fills are unknown");
    assert_eq!(on["counters"]["device_total"], 8_u64 << 30);
    let hello = &seen["probes"][0]["hello"];
    assert_eq!((&hello["backend"], &hello["devices"][1]["name"]), (&json!("npu"), &json!("Accelerator 1")));
    let said = job.does("oom");
    let seen = job.once(|it| !it["ooms"][0].is_null());
    assert_eq!(seen["probes"][0]["ooms"][0]["message"], said["answer"]);
}

/// The report of a job on Intel's device passes its schema, and everything that reads reports.
#[test]
fn viewers_show_a_job_on_intels_device() {
    let mut job = Job::start(Machine::new("xe"), "xpu", 1, &[UUIDS]);
    job.does("build");
    job.does("steps 5");
    schemas::check("once", &job.once(has_step(5)));
    let terminal = job.machine.live();
    terminal.shows("driver xe");
    terminal.shows("of 8.00 GiB");
    assert!(until(PATIENCE, || terminal.text().contains("400.0 MiB")), "{}", terminal.text());
}
