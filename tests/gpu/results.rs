//! The table of what was confirmed.

use crate::bench::Bench;
use std::{env, fmt::Write as _, fs, path::PathBuf, process::Command};

/// A claim, and the two figures that it compares.
pub(crate) struct Row {
    pub(crate) claim: String,
    pub(crate) gpuwatch: String,
    pub(crate) other: String,
    pub(crate) holds: bool,
}

impl Row {
    /// Two figures that must be the same.
    pub(crate) fn same<T: PartialEq + ToString>(claim: impl Into<String>, gpuwatch: &T, other: &T) -> Self {
        Self { claim: claim.into(), gpuwatch: gpuwatch.to_string(), other: other.to_string(), holds: gpuwatch == other }
    }

    /// A figure that must lie within two others.
    pub(crate) fn within(claim: impl Into<String>, gpuwatch: u64, [low, high]: [u64; 2]) -> Self {
        Self {
            claim: claim.into(),
            gpuwatch: gpuwatch.to_string(),
            other: if low == high { low.to_string() } else { format!("{low} to {high}") },
            holds: (low..=high).contains(&gpuwatch),
        }
    }
}

/// Prints the table, and writes it to a file named after the day and the GPU.
pub(crate) fn report(bench: &Bench, rows: &[(&str, Row)]) {
    let day = Command::new("date").arg("+%Y-%m-%d").output().unwrap().stdout;
    let day = String::from_utf8(day).unwrap().trim().to_owned();
    let mut table = format!(
        "# {}, {day}\n\nDriver {}, {}, gpuwatch {}. Sizes are bytes unless they name another unit.\n\n",
        bench.gpu,
        bench.driver,
        bench.torch.as_deref().unwrap_or("no PyTorch"),
        env!("CARGO_PKG_VERSION"),
    );
    table.push_str("| layer | claim | gpuwatch | the other | holds |\n|---|---|---|---|---|\n");
    for (layer, row) in rows {
        let holds = if row.holds { "yes" } else { "**no**" };
        writeln!(table, "| {layer} | {} | {} | {} | {holds} |", row.claim, row.gpuwatch, row.other).unwrap();
    }
    print!("{table}");
    let folder = env::var_os("GPUWATCH_GPU_RESULTS").map_or_else(|| PathBuf::from("tests/gpu/results"), PathBuf::from);
    let name: String = bench.gpu.chars().map(|it| if it.is_ascii_alphanumeric() { it } else { '-' }).collect();
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(format!("{day}-{}.md", name.to_lowercase())), table).unwrap();
}
