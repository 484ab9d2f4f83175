//! `gpuwatch report`: a run in one file to read later or to share: a page, or JSON.

/// An answer of `gpuwatch fit`.
mod answer_page;
/// What the page shows.
mod contents;
/// Figures of devices over time.
mod device_series;
/// What memory consists of.
mod peak_picture;
/// A memory snapshot.
pub mod snapshot_page;

use super::{
    Invocation, Subcommand,
    check::{Limits, Verdict, judged},
    snapshot::{self, read_with_progress},
};
use crate::{
    cli::{inputs, is_json, write_text},
    facts::text::{Foreign, escape_json, hidden_class},
    model::alerts::Policy,
    storage::{
        output, pickle,
        replay::{index::Index, recording_set::RecordingSet, run::Run},
    },
};
use anyhow::{Result, bail};
use device_series::DeviceSeries;
use std::path::{Path, PathBuf};

/// The page, complete except for its placeholders: it uses no other file and no network.
const PAGE: &str = include_str!("report/page.html");

/// A page without scripts.
const PLAIN_PAGE: &str = include_str!("report/plain.html");

/// The parts inserted into the page, and their placeholders.
const STYLE: (&str, &str) = ("/* style */", include_str!("report/page.css"));
const SCRIPT: (&str, &str) = (
    "/* script */",
    concat!(
        include_str!("report/words.js"),
        include_str!("report/plot.js"),
        include_str!("report/culprit.js"),
        include_str!("report/page.js")
    ),
);
/// The class of characters that the script escapes.
const HIDDEN: &str = "/* hidden */";
const TITLE: &str = "<!-- title -->";
const VERDICT: &str = "<!-- verdict -->";
const PEAKS: &str = "<!-- peaks -->";
const DATA: &str = "<!-- data -->";
const BODY: &str = "<!-- account -->";

/// The arguments of `gpuwatch report`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  gpuwatch report night.jsonl.zst -o night.html\n  gpuwatch report fit.json -o fit.html"
)]
pub(super) struct ReportArgs {
    /// Recordings of one run, by path or short name, or one directory of recordings; without any, the newest run's.
    /// Or a memory snapshot of PyTorch, or an answer of `gpuwatch fit --save` or `fit --advise --json`.
    #[arg(value_name = "FILE|DIR")]
    files: Vec<PathBuf>,
    /// The file to make: JSON where it ends in .json, else a page; it must not be there yet (- is standard output, as
    /// without it for --json).
    #[arg(short, long, value_name = "FILE", required_unless_present = "json")]
    output: Option<PathBuf>,
    /// As JSON (schema 1), whatever the file's name.
    #[arg(long)]
    json: bool,
}

impl ReportArgs {
    fn output(&self) -> &Path {
        self.output.as_deref().unwrap_or(Path::new("-"))
    }
}

impl Subcommand for ReportArgs {
    fn answers(&self) -> bool {
        output::is_stdout(self.output())
    }

    fn run(&self, invocation: &Invocation) -> Result<u8> {
        let is_json = self.json || is_json(self.output());
        if let [file] = &self.files[..]
            && pickle::is_one(file)
        {
            return write_snapshot(file, self.output(), is_json);
        }
        if let [file] = &self.files[..]
            && let Some(answer) = inputs::fit_answer(file)
        {
            if is_json {
                bail!("{} is JSON already: name a page, as in fit.html", Foreign::new(file.to_string_lossy()));
            }
            let title = Foreign::new(file.file_name().unwrap_or(file.as_os_str()).to_string_lossy());
            write_text(Some(self.output()), &answer_page::html(&answer, &title))?;
            return Ok(0);
        }
        let found = inputs::recordings(&self.files)?;
        found.notes.iter().for_each(|it| output::message(format_args!("{it}")));
        let report = Report::read(&found.recordings, &invocation.policy);
        write_text(Some(self.output()), &if is_json { report.json() } else { report.html() })?;
        Ok(0)
    }
}

/// Writes a memory snapshot; exit code 1 where it is cut or damaged.
fn write_snapshot(file: &Path, to: &Path, is_json: bool) -> Result<u8> {
    let shown = read_with_progress(file)?;
    let ended = snapshot::ended(&shown);
    if let Some(why) = &ended {
        output::message(format_args!("{}: {why}", Foreign::new(file.to_string_lossy())));
    }
    let title = Foreign::new(file.file_name().unwrap_or(file.as_os_str()).to_string_lossy());
    let text = if is_json { snapshot::json(&shown, None) } else { snapshot_page::html(&shown, &title) };
    write_text(Some(to), &text)?;
    Ok(u8::from(ended.is_some()))
}

/// The contents of a report.
pub struct Report {
    verdict: Verdict,
    series: DeviceSeries,
    index: Index,
    /// Wall clock at stamp 0, µs of Unix time.
    unix_us: Option<u64>,
}

impl Report {
    /// Reads recordings to the end; findings that the policy allows are marked, and fail nothing.
    pub fn read(recordings: &RecordingSet, policy: &Policy) -> Self {
        let (mut series, mut index) = (DeviceSeries::default(), Index::default());
        let run = Run::read(recordings, |at, event, session| {
            series.apply(event, session);
            index.note(at, event);
        });
        let verdict = judged(run, &Limits::default(), policy);
        let unix_us = recordings.unix_us(index.from);
        Self { verdict, series, index, unix_us }
    }

    /// Returns the report as JSON (schema 1, documented in `src/commands/report/json.rs`), with its last newline.
    pub fn json(&self) -> String {
        escape_json(&format!("{:#}\n", contents::value(self)))
    }

    /// Returns the report as a self-contained page.
    pub fn html(&self) -> String {
        // The run's data cannot close the script element.
        let data = escape_json(&contents::value(self).to_string()).replace('<', "\\u003c");
        let (style, script) = (STYLE, SCRIPT);
        let parts = [
            (TITLE, escape_html(&format!("gpuwatch: {}", self.verdict.title()))),
            (style.0, contents::gap_style() + style.1),
            (PEAKS, contents::peaks_html(&self.verdict.run.session)),
            (VERDICT, escape_html(&self.verdict.text())),
            (DATA, data),
            (script.0, contents::gap_script() + &script.1.replacen(HIDDEN, &hidden_class(), 1)),
        ];
        filled(PAGE, parts)
    }
}

/// Returns a self-contained page without scripts; `body` is HTML.
pub(super) fn plain_page(title: &str, body: String) -> String {
    let title = escape_html(title);
    filled(
        PLAIN_PAGE,
        [(TITLE, title.clone()), (STYLE.0, contents::gap_style() + STYLE.1), (TITLE, title), (BODY, body)],
    )
}

/// Fills the placeholders of a page, in the page's order, so that inserted text is not searched for placeholders.
fn filled(page: &str, parts: impl IntoIterator<Item = (&'static str, String)>) -> String {
    let (mut out, mut rest) = (String::new(), page);
    for (place, part) in parts {
        let (before, after) = rest.split_once(place).unwrap_or((rest, ""));
        out.push_str(before);
        out.push_str(&part);
        rest = after;
    }
    out + rest
}

/// Escapes a text for HTML.
pub(super) fn escape_html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_place_for_each_part_and_text_is_escaped() {
        let places = [TITLE, STYLE.0, PEAKS, VERDICT, DATA, SCRIPT.0].map(|it| PAGE.find(it).unwrap());
        assert!(places.is_sorted(), "{places:?}");
        assert!(!SCRIPT.1.contains("</") && !STYLE.1.contains("</"), "nothing ends its element early");
        assert_eq!(escape_html("<a href='x'>&\"</a>"), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;&lt;/a&gt;");
    }
}
