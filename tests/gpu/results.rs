//! The table of what was confirmed.

use crate::bench::Bench;
use std::{
    any::Any,
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// A claim, and the two figures that it compares.
pub(crate) struct Row {
    pub(crate) claim: String,
    pub(crate) gpuwatch: String,
    pub(crate) other: String,
    pub(crate) holds: bool,
}

impl Row {
    /// Two figures that must be there and the same.
    pub(crate) fn same<T: PartialEq + ToString>(claim: impl Into<String>, gpuwatch: &T, other: &T) -> Self {
        let (own, its) = (gpuwatch.to_string(), other.to_string());
        Self { claim: claim.into(), holds: gpuwatch == other && own != "null", gpuwatch: own, other: its }
    }

    /// A claim that could not be tried, for what its thread panicked with.
    pub(crate) fn failed(claim: &str, why: &(dyn Any + Send)) -> Self {
        let why = why.downcast_ref::<String>().map_or("see above", |it| it.lines().next().unwrap_or_default());
        Self { claim: format!("{claim}: it can be tried"), gpuwatch: why.into(), other: String::new(), holds: false }
    }

    /// A figure that is not more than a limit.
    pub(crate) fn at_most(claim: impl Into<String>, figure: f64, limit: f64) -> Self {
        Self {
            claim: claim.into(),
            gpuwatch: format!("{figure:.3}"),
            other: format!("at most {limit}"),
            holds: figure <= limit,
        }
    }

    /// A figure to know, which decides nothing.
    pub(crate) fn known(claim: impl Into<String>, gpuwatch: impl Into<String>, other: impl Into<String>) -> Self {
        Self { claim: claim.into(), gpuwatch: gpuwatch.into(), other: other.into(), holds: true }
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

/// The folder of results.
pub(crate) fn folder() -> PathBuf {
    env::var_os("GPUWATCH_GPU_RESULTS").map_or_else(|| PathBuf::from("tests/gpu/results"), PathBuf::from)
}

/// Returns a file named after the day and the GPU that does not exist yet.
pub(crate) fn file(bench: &Bench) -> PathBuf {
    let numbered = (1..).map(|number| if number == 1 { String::new() } else { format!("-{number}") });
    let mut files = numbered.map(|it| folder().join(format!("{}{it}.md", named(bench))));
    files.find(|it| !it.exists()).expect("numbers have no end")
}

/// Returns the table, and writes it to a file.
pub(crate) fn write(bench: &Bench, rows: &[(&str, Row)], file: &Path) -> String {
    let mut table = format!(
        "# {}, {}\n\nDriver {}, {}, gpuwatch {}. Sizes are bytes unless they name another unit.\n\n",
        bench.gpu,
        today(),
        bench.driver,
        bench.torch.as_deref().unwrap_or("no PyTorch"),
        env!("CARGO_PKG_VERSION"),
    );
    table.push_str("| layer | claim | gpuwatch | the other | holds |\n|---|---|---|---|---|\n");
    for (layer, row) in rows {
        let holds = if row.holds { "yes" } else { "**no**" };
        writeln!(table, "| {layer} | {} | {} | {} | {holds} |", row.claim, row.gpuwatch, row.other).unwrap();
    }
    fs::create_dir_all(folder()).unwrap();
    fs::write(file, &table).unwrap();
    table
}

/// The day and the GPU, as the name of a file.
pub(crate) fn named(bench: &Bench) -> String {
    let gpu: String = bench.gpu.chars().map(|it| if it.is_ascii_alphanumeric() { it } else { '-' }).collect();
    format!("{}-{}", today(), gpu.to_lowercase())
}

fn today() -> String {
    let day = Command::new("date").arg("+%Y-%m-%d").output().unwrap().stdout;
    String::from_utf8(day).unwrap().trim().to_owned()
}
