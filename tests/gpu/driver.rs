//! Compares gpuwatch's figures from NVML with the output of `nvidia-smi`.

use crate::{
    bench::{Bench, text},
    results::Row,
};
use serde_json::Value;

const MIB: u64 = 1 << 20;

/// How often a figure is compared that other programs may change in between.
const TRIES: usize = 5;

/// `nvidia-smi` with a query; one list of fields a line.
fn smi(bench: &Bench, query: &str) -> Result<Vec<Vec<String>>, String> {
    let mut command = bench.command("nvidia-smi");
    command.arg(query).arg("--format=csv,noheader,nounits");
    let done = command.output().map_err(|why| format!("nvidia-smi: {why}"))?;
    Ok(text(&done).lines().map(|it| it.split(", ").map(|field| field.trim().to_owned()).collect()).collect())
}

fn devices(bench: &Bench) -> Result<Vec<Vec<String>>, String> {
    smi(bench, "--query-gpu=uuid,memory.total,memory.reserved,memory.used,driver_version")
}

/// Bytes of a field in MiB, and one MiB more or less: it was rounded.
fn mib(field: &str) -> [u64; 2] {
    let bytes = field.parse::<u64>().unwrap() * MIB;
    [bytes.saturating_sub(MIB), bytes + MIB]
}

/// Every device's memory, and the driver's version.
pub(crate) fn memory(bench: &Bench) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for device in devices(bench)? {
        let uuid = &device[0];
        let now = bench.once();
        let ours = find(&now, uuid);
        let memory = |name: &str| ours["memory"][name].as_u64().unwrap();
        rows.push(Row::within("total", memory("total"), mib(&device[1])));
        rows.push(Row::within("reserved by the driver", memory("reserved"), mib(&device[2])));
        rows.push(Row::same("driver version", &bench.driver, &device[4]));
        rows.push(used(bench, uuid)?);
    }
    Ok(rows)
}

/// Used memory lies within what was printed before and after; where other programs moved, it is tried again.
fn used(bench: &Bench, uuid: &str) -> Result<Row, String> {
    let mut row = None;
    for _ in 0..TRIES {
        let read = || Ok::<_, String>(mib(&devices(bench)?.into_iter().find(|it| it[0] == uuid).unwrap()[3]));
        let before = read()?;
        let ours = find(&bench.once(), uuid)["memory"]["used"].as_u64().unwrap();
        let after = read()?;
        let found = Row::within("used", ours, [before[0].min(after[0]), before[1].max(after[1])]);
        let holds = found.holds;
        row = Some(found);
        if holds {
            break;
        }
    }
    Ok(row.expect("it was tried"))
}

fn find<'a>(once: &'a Value, uuid: &str) -> &'a Value {
    once["devices"].as_array().unwrap().iter().find(|it| it["id"] == uuid).expect("the device that nvidia-smi lists")
}

/// Returns the memory of a process according to `nvidia-smi`, in bytes; `None` if it is missing or does not list it.
pub(crate) fn charged(bench: &Bench, pid: u32) -> Option<[u64; 2]> {
    let list = smi(bench, "--query-compute-apps=pid,used_memory").ok()?;
    list.into_iter().find(|it| it[0] == pid.to_string()).map(|it| mib(&it[1]))
}
