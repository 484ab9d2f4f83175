//! `gpuwatch peak`: traces some steps of a job with their call stacks, or reads a recording, and prints what memory
//! consists of at the highest moment.

use super::{
    ConfigUse, Invocation, Subcommand,
    whatif::{TraceQuestion, trace},
};
use crate::{
    cli::{
        ProgressLine, inputs,
        next_commands::{NextCommand, with_next, word},
        runtime,
    },
    config,
    facts::{
        event::{PeakMoment, ProbeId, WindowDetail, anatomy::LINES_MAX},
        text::{Foreign, escape_json},
        units::{Bytes, counted},
    },
    jobs::recorder::peak_windows::moment,
    model::{anatomy, trace::BlockState},
    sources::{Sources, probe::answers},
    storage::{output, replay::run::Run, traces},
};
use anyhow::{Context, Result, bail};
use std::{cmp::Reverse, fmt::Write as _, fs, path::PathBuf, time::Duration};

/// Lines of the text.
const LINES: usize = 12;

/// The arguments of `gpuwatch peak`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  gpuwatch peak 4242 --json | jq '.lines[] | [.line, .bytes, .module]'\n  gpuwatch peak last\n\n\
                        The job records the stacks of its allocations for these steps only, and is paused for at most 50 ms \
                        in all unless --long-pauses allows more. With GPUWATCH=noparts or nosites in its environment it records none.\n\n\
                        `gpuwatch run` and `gpuwatch attach` look at one step of each process by themselves, after a minute of \
                        training without an alert; the recording keeps what they find."
)]
pub(super) struct PeakArgs {
    /// The process; or a recording, by its path or short name, to show what it has.
    #[arg(value_name = "PID|RECORDING")]
    source: PathBuf,
    /// Whole steps to trace.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    steps: u64,
    /// Trace whole steps however long that pauses the job: about a second for 50,000 allocations and frees.
    #[arg(long)]
    long_pauses: bool,
    /// How long to wait for the trace.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = config::duration)]
    timeout: Duration,
    /// As JSON (schema 1).
    #[arg(long)]
    json: bool,
}

impl Subcommand for PeakArgs {
    fn config_use(&self) -> ConfigUse {
        ConfigUse::Unused
    }

    fn run(&self, _: &Invocation) -> Result<u8> {
        let Some(pid) = self.pid() else { return self.recorded() };
        let detail = if self.long_pauses { WindowDetail::StacksAtAnyCost } else { WindowDetail::Stacks };
        let mut line = ProgressLine::new();
        let file = runtime()?.block_on(async {
            let mut sources = Sources::start(config::probes_alone());
            let of = TraceQuestion { pid, steps: self.steps, detail, command: "peak" };
            trace(&mut sources, of, self.timeout, |it| line.show(it)).await
        })?;
        drop(line);
        let traced = traces::read(&file.file);
        // A window that is left behind takes space and nothing else.
        let _ = fs::remove_file(&file.file);
        let traced = traced.with_context(|| format!("the trace of process {pid}"))?;
        // Its viewers know the probe by other numbers, and so use their own.
        let Some(moment) = moment(&traced, ProbeId(0)) else {
            let why = if traced.gaps > 0 {
                "allocated faster than that could be written down: ask again".to_owned()
            } else if traced.kept.as_ref().is_some_and(|it| it.cut) {
                let blocks = traced.trace.blocks.iter().filter(|it| it.state == BlockState::Live).count();
                format!(
                    "was paused for as long as it may be while its {} were written down, before a step was traced: \
                     --long-pauses traces one however long that takes",
                    counted(blocks as u64, "live block")
                )
            } else {
                "allocated nothing in these steps".to_owned()
            };
            bail!("process {pid} {why}")
        };
        if let Some(viewers) = file.answers {
            // Viewers and recordings lack the answer then, which this process prints.
            let _ = answers::append(&viewers, &[&moment]);
        }
        if moment.anatomy.step.is_none() {
            output::message(format_args!(
                "no whole step was traced: this is its highest moment so far; --long-pauses traces a whole step"
            ));
        }
        output::print(&self.answer(traced.pid, &moment))?;
        Ok(0)
    }
}

impl PeakArgs {
    /// Returns the process that is meant, unless it is a recording.
    fn pid(&self) -> Option<u32> {
        inputs::process(&self.source)
    }

    /// Prints the moments that a recording has, the one with the most allocated bytes first.
    fn recorded(&self) -> Result<u8> {
        let found = inputs::recordings(std::slice::from_ref(&self.source))?;
        found.notes.iter().for_each(|it| output::message(format_args!("{it}")));
        let run = Run::read(&found.recordings, |_, _, _| {});
        let processes = &run.session.processes;
        let mut moments: Vec<_> =
            processes.iter().filter_map(|it| Some((it.any_pid()?, it.peak.as_deref()?))).collect();
        moments.sort_by_key(|it| Reverse(it.1.anatomy.allocated));
        if moments.is_empty() {
            bail!(
                "{} has no highest moment of a step: gpuwatch looks at one after a minute of training without an alert, \
                 and when `gpuwatch peak PID` asks",
                Foreign::new(self.source.to_string_lossy())
            );
        }
        let answers: Vec<String> = moments.into_iter().map(|(pid, it)| self.answer(pid, it)).collect();
        output::print(&answers.join(if self.json { "" } else { "\n" }))?;
        Ok(0)
    }

    fn answer(&self, pid: u32, moment: &PeakMoment) -> String {
        if !self.json {
            let it = &moment.anatomy;
            let of_lines: u64 = it.lines.iter().map(|it| it.bytes).sum();
            let is_older = self.pid().is_some() && of_lines < it.allocated / 2;
            let next = format!("`gpuwatch sites {pid}` names the lines of what stays, if memory grows\n");
            return text(pid, moment) + if is_older { &next } else { "" };
        }
        let next = if self.pid().is_some() {
            Some(NextCommand::new(
                ["sites", &pid.to_string()],
                "tells which lines allocate in the next steps, and what stays",
            ))
        } else {
            let report = |it: String| NextCommand::new(["report", &it, "-o", "report.html"], "shows it as a picture");
            word(&self.source).map(report)
        };
        with_next(&escape_json(&format!("{:#}\n", anatomy::json(Some(pid), moment))), next.as_slice())
    }
}

/// Returns a moment as text, with its last newline.
fn text(pid: u32, PeakMoment { device, anatomy: it, cost, .. }: &PeakMoment) -> String {
    let step = it.step.map_or_else(|| "the traced part of a step".to_owned(), |step| format!("step {step}"));
    // Writing into a String cannot fail.
    let mut out = String::new();
    let _ = writeln!(
        out,
        "process {pid}, device {device}: {} allocated at the highest moment of {step}{}",
        Bytes(it.allocated),
        it.phase.map_or_else(String::new, |phase| format!(", {}", phase.words()))
    );
    out.push_str(&anatomy::part_rows(it));
    if !it.phases.is_empty() {
        out.push_str("\nby when it was allocated\n");
        out.push_str(&anatomy::phase_rows(it));
    }
    if !it.lines.is_empty() {
        out.push_str("\nby the line that allocated it\n");
    }
    for line in it.lines.iter().take(LINES) {
        let blocks = counted(line.blocks, "block");
        let module = line.module.as_ref().map_or_else(String::new, |it| format!(" · {it}"));
        let words = format!("{} · {}{module} · {blocks}", line.line, line.part.name());
        out.push_str(&anatomy::row(line.bytes, it.allocated, &words));
    }
    let unlisted = it.lines.get(LINES..).unwrap_or_default();
    if !unlisted.is_empty() {
        let bytes = unlisted.iter().map(|it| it.bytes).sum();
        out.push_str(&anatomy::row(bytes, it.allocated, &counted(unlisted.len() as u64, "more line")));
    }
    let of_lines = it.lines.iter().map(|it| it.bytes).sum();
    if let Some(rest) = it.allocated.checked_sub(of_lines).filter(|rest| *rest > 0 && !it.lines.is_empty()) {
        let words = if it.lines.len() < LINES_MAX {
            "of no known line: from before the trace, or of a thread without Python, such as that of backward"
        } else {
            "of other lines, or of none that is known"
        };
        out.push_str(&anatomy::row(rest, it.allocated, words));
    }
    let ms = |us: u64| us as f64 / 1e3;
    let (all, longest) = (ms(cost.paused_us), ms(cost.longest_pause_us));
    let _ = writeln!(out, "\npaused the job for {all:.1} ms in total (longest pause {longest:.1} ms)");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::event::anatomy::{Anatomy, AnatomyPart, LineShare, PeakCost};

    #[test]
    fn the_lines_sum_to_what_is_allocated() {
        let line = |at: u64| LineShare {
            line: Foreign::new(format!("train.py:{at}")),
            bytes: 1 << 20,
            blocks: 1,
            part: AnatomyPart::Other,
            module: None,
        };
        for (count, expected) in [(1, vec!["99.00 MiB"]), (12, vec!["88.00 MiB"]), (15, vec!["3.00 MiB", "85.00 MiB"])]
        {
            let anatomy = Anatomy { allocated: 100 << 20, lines: (0..count).map(line).collect(), ..Anatomy::default() };
            let (cost, probe) = (PeakCost::default(), ProbeId(0));
            let said = text(7, &PeakMoment { probe, device: 0, anatomy, cost });
            let rows = said.lines().filter(|it| it.contains("more lines") || it.contains("no known line"));
            for (row, bytes) in rows.clone().zip(&expected) {
                assert!(row.contains(bytes), "{said}");
            }
            assert_eq!(rows.count(), expected.len(), "{said}");
        }
    }
}
