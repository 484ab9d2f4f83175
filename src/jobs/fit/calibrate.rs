//! Measures on a real GPU what lies outside the allocator, with a Python that has the job's PyTorch.

use super::{Trouble, stop};
use crate::{jobs::simulated::Scratch, model::fit::Table};
use std::{
    ffi::{OsStr, OsString},
    fs,
    process::{Child, Command, Stdio},
};

const PROGRAM: &str = include_str!("calibrate.py");

/// The Python where none is named.
const PYTHON: &str = "python3";

/// Returns a table as JSON. `command` begins with the job's Python, or is empty.
///
/// # Errors
/// When there is no such Python, PyTorch, GPU or NVML, each in a sentence.
pub fn calibrate(command: &[OsString]) -> Result<String, Trouble> {
    let python = command.first().map_or(OsStr::new(PYTHON), OsString::as_os_str);
    let scratch = Scratch::new("calibrate")?;
    let script = scratch.path().join("calibrate.py");
    fs::write(&script, PROGRAM)?;
    let mut program = Command::new(python);
    program.arg(script).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let done = program.spawn().and_then(|it| stop::wait(it, Child::wait_with_output));
    let done = done.map_err(|e| Trouble::Unmeasured(format!("{}: {e}", python.to_string_lossy())))?;
    let last = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        text.lines().rfind(|it| !it.trim().is_empty()).map(str::to_owned)
    };
    if let Some(signal) = stop::asked() {
        return Err(Trouble::Interrupted(signal));
    }
    if !done.status.success() {
        return Err(Trouble::Unmeasured(last(&done.stderr).unwrap_or_else(|| done.status.to_string())));
    }
    let table = last(&done.stdout).unwrap_or_default();
    Table::parse(&table).map_err(Trouble::Unmeasured)?;
    Ok(table + "\n")
}
