//! `gpuwatch diff`: compares what two names stand for, and writes the answer as text, as JSON or as a page.

use super::{report, snapshot};
use crate::{commands::diff, facts::text::Foreign, storage::output};
use anyhow::Result;
use std::path::{Path, PathBuf};

/// The form of the answer, and its file.
pub(super) struct Form {
    pub(super) json: bool,
    pub(super) output: Option<PathBuf>,
}

impl Form {
    /// Writes the answer: text or JSON to standard output, a page or JSON into a file.
    fn write(
        &self,
        text: impl FnOnce() -> String,
        json: impl FnOnce() -> String,
        page: impl FnOnce() -> String,
    ) -> Result<()> {
        let output = self.output.as_deref();
        let answer = match output {
            Some(file) if !self.json && !report::is_json(file) => page(),
            None if !self.json => text(),
            _ => json(),
        };
        super::write_text(output, &answer)
    }
}

pub(super) fn compare(first: &Path, second: &Path, tolerance: f64, form: &Form) -> Result<u8> {
    let names = [first, second].map(|it| Foreign::new(it.to_string_lossy()));
    if let Some(both) = snapshot::both(first, second)? {
        let (diff, code) = snapshot::diff(both, tolerance)?;
        form.write(|| diff.text(), || diff.json(), || diff.html(&names))?;
        return Ok(code);
    }
    let open = |it: &Path| super::named(&[it.to_owned()]);
    let both = open(first).and_then(|first| Ok((first, open(second)?)));
    let diff = both.map(|(first, second)| {
        first.notes.iter().chain(&second.notes).for_each(|it| output::message(format_args!("{it}")));
        diff::diff(&first.recordings, &second.recordings, tolerance)
    });
    let diff = diff.unwrap_or_else(|e| diff::unreadable(format!("{e:#}")));
    form.write(|| diff.text(), || diff.json(), || diff.html(&names))?;
    Ok(diff.code())
}
