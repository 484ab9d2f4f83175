//! `docs/reference/fit-measured.md`: each measured training, and what fit and other estimators answer for it.

use super::Row;
use serde_json::Value;
use std::fmt::Write as _;

const INTRODUCTION: &str = "# Peaks of measured trainings

What `gpuwatch fit` answers for trainings that were measured on real GPUs by the authors of xMem ([How exact the answers are](../accuracy.md#fit) has the
sums and explains the differences). Measured and fit: the peak of what PyTorch's allocator reserved, in MiB. The errors of xMem and
DNNMem are those that were published; both count some memory of the framework that the measurement leaves out. Written by `GPUWATCH_DOCS=write GPUWATCH_MEASURED=all
cargo test --test it fit::measured`, with PyTorch 2.6.0.
";

const HEADING: &str = "
| GPU | model | optimizer | batch | measured, MiB | fit, MiB | fit, % | xMem, % | DNNMem, % |
|---|---|---|---|---|---|---|---|---|
";

/// Returns the page of trainings in the order of the measurements' file.
pub(super) fn page(rows: &[Row]) -> String {
    let mut page = INTRODUCTION.to_owned();
    for (title, family) in [("Transformers", "transformer"), ("Convolutional networks", "cnn")] {
        let _ = write!(page, "\n## {title}\n{HEADING}");
        rows.iter().filter(|it| it.measured["family"] == family).for_each(|it| line(&mut page, it));
    }
    page
}

fn line(page: &mut String, row: &Row) {
    let text = |name: &str| row.measured[name].as_str().unwrap_or("–");
    let mib = |value: &Value| value.as_f64().map(|it| format!("{:.0}", it / f64::from(1 << 20)));
    let out_of_memory = || "out of memory".to_owned();
    let gpu = text("gpu").trim_start_matches("NVIDIA ").trim_start_matches("GeForce ");
    let measured = mib(&row.measured["measured_peak_bytes"]).unwrap_or_else(out_of_memory);
    let answer = match row.answer["fits"].as_str() {
        Some("no") => out_of_memory(),
        Some("yes") => mib(&row.answer["peak"]["reserved"]).unwrap_or_default(),
        _ => "cannot tell".to_owned(),
    };
    let error = row.error().map_or_else(|| "–".to_owned(), |it| format!("{:+.2}", it * 100.0));
    let _ = writeln!(
        page,
        "| {gpu} | {} | {} | {} | {measured} | {answer} | {error} | {} | {} |",
        text("model"),
        text("optimizer"),
        row.measured["batch"],
        published(row, "xmem"),
        published(row, "dnnmem"),
    );
}

/// The published error of another estimator, in percent of the measured peak. It means nothing where one of both ran
/// out of memory.
fn published(row: &Row, name: &str) -> String {
    let (peak, estimate) = (row.measured["measured_peak_bytes"].as_f64(), &row.measured["estimates"][name]);
    if estimate["oom"] == true {
        return "out of memory".to_owned();
    }
    match (peak, estimate["bytes"].as_f64(), estimate["error"].as_f64()) {
        (Some(peak), Some(bytes), Some(error)) => {
            format!("{:+.2}", error.copysign(bytes - peak) * 100.0)
        }
        (None, Some(_), _) => "fits".to_owned(),
        _ => "–".to_owned(),
    }
}
