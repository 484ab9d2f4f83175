//! `gpuwatch fit --save` and `--against`: an answer in a file, and what differs from it.

use crate::{
    cli::{
        inputs::ANSWER_MAX,
        next_commands::{NextCommand, with_next, word},
    },
    facts::text::Foreign,
    jobs::fit::{Answer, comparison_text},
    model::fit::{Baseline, Budget},
    storage::{input, output},
};
use anyhow::{Context, Result, anyhow, bail};
use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

/// The permissions of a saved answer, which belongs into a repository.
const MODE: u32 = 0o644;

/// The flags for answers in files.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct AgainstArgs {
    /// Save the answer in this file, as --json prints it, for --against; a file that has such an answer is replaced.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["calibrate", "advise"])]
    save: Option<PathBuf>,
    /// Compare with an answer that --save wrote, and print what the job needs more: by part and by line. The exit code
    /// is then 0 within the budget, 1 over it, 2 if they cannot be compared.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["calibrate", "vary", "advise"])]
    against: Option<PathBuf>,
    /// How much more passes with --against: a share of the baseline's allocated bytes as in 0.5%, or bytes as in 64MiB.
    #[arg(long, value_name = "SHARE|BYTES", default_value = "0", value_parser = Budget::parse, requires = "against")]
    budget: Budget,
    /// Print the comparison as Markdown, for a comment on a pull request.
    #[arg(long, requires = "against", conflicts_with = "json")]
    markdown: bool,
}

impl AgainstArgs {
    /// Reads the baseline, and refuses a file to save into that is something else or cannot be written: before the job
    /// runs.
    pub(super) fn baseline(&self) -> Result<Option<Baseline>> {
        if let Some(path) = self.save.as_deref().filter(|it| !output::is_stdout(it)) {
            if path.exists() {
                read(path).map_err(|e| anyhow!("{e:#}; it is not written over: name another file"))?;
            }
            ready_folder(path).map_err(|e| named(path, &format!("cannot be written: {e}; name another file")))?;
        }
        let Some(path) = &self.against else { return Ok(None) };
        if !path.exists() {
            bail!("{}", named(path, &"does not exist: `gpuwatch fit --save FILE` writes one, on the main branch"));
        }
        let baseline = read(path).and_then(|it| it.usable().map_err(|e| named(path, &e)))?;
        Ok(Some(baseline))
    }

    /// Whether the answer is saved.
    pub(super) fn saves(&self) -> bool {
        self.save.is_some()
    }

    /// Saves an answer where that was asked for.
    pub(super) fn save(&self, answer: &Answer) -> Result<()> {
        let Some(path) = &self.save else { return Ok(()) };
        let shown = Foreign::new(path.to_string_lossy());
        if !answer.has_peak() {
            bail!("{shown} is not written: the job has no peak to compare with\n{}", answer.text());
        }
        let saved = if output::is_stdout(path) {
            output::print(&answer.json())
        } else {
            output::replace(path, MODE, &answer.json())
        };
        saved.with_context(|| shown.to_string())
    }

    /// Prints what differs from the baseline, and returns the exit code.
    pub(super) fn compare(&self, answer: &Answer, baseline: &Baseline, (json, job): (bool, &[OsString])) -> Result<u8> {
        let comparison = answer.against(baseline, self.budget);
        let text = match () {
            () if json => with_next(&comparison_text::json(&comparison), &self.after(comparison.code(), job)),
            () if self.markdown => comparison_text::markdown(&comparison),
            () => comparison_text::text(&comparison),
        };
        output::print(&text)?;
        Ok(comparison.code())
    }

    /// Returns what follows from a comparison with this exit code.
    fn after(&self, code: u8, job: &[OsString]) -> Vec<NextCommand> {
        let job = job.iter().map(|it| it.to_str()).collect::<Option<Vec<_>>>();
        let Some((job, baseline)) = job.zip(self.against.as_deref().and_then(word)) else { return Vec::new() };
        let (words, why) = match code {
            0 => (vec!["fit", "--save", &baseline, "--"], "makes this the baseline"),
            1 => (vec!["fit", "--advise", "--"], "measures what would save memory"),
            _ => return Vec::new(),
        };
        vec![NextCommand::new(words.into_iter().chain(job), why)]
    }
}

/// Makes a file's folder if it is missing, and fails unless files can be made in it.
fn ready_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    Ok(rustix::fs::access(folder, rustix::fs::Access::WRITE_OK)?)
}

fn read(path: &Path) -> Result<Baseline> {
    let text = input::small_text(path, ANSWER_MAX)
        .map_err(|e| anyhow!("{} {}", Foreign::new(path.to_string_lossy()), input::fault(&e)))?;
    Baseline::parse(&text).map_err(|e| named(path, &e))
}

fn named(path: &Path, why: &dyn std::fmt::Display) -> anyhow::Error {
    anyhow!("{} {why}", Foreign::new(path.to_string_lossy()))
}
