//! `gpuwatch peak PID`: traces some steps of a job with their call stacks, and prints what its memory consists of at
//! the highest moment.

use super::{
    ConfigUse, Invocation, Subcommand,
    whatif::{TraceQuestion, trace},
};
use crate::{
    cli::{ProgressLine, runtime},
    config,
    facts::{
        event::WindowDetail,
        text::{Foreign, escape_json},
        units::{Bytes, counted},
    },
    model::anatomy::{Anatomy, AnatomyPart, KeptBlocks, anatomy},
    sources::Sources,
    storage::{
        output,
        traces::{self, Traced, WindowKept},
    },
};
use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use std::{fmt::Write as _, fs, time::Duration};

/// The version of the JSON object.
const SCHEMA: u32 = 1;

/// Lines of the text.
const LINES: usize = 12;

/// The arguments of `gpuwatch peak`.
#[derive(Clone, Copy, Debug, clap::Args)]
#[command(after_help = "Example:\n  gpuwatch peak 4242 --json | jq '.lines[] | [.line, .bytes, .module]'\n\n\
                        The job records the stacks of its allocations for these steps only, and is paused for at most 50 ms \
                        in all unless --long-pauses allows more. With GPUWATCH=noparts or nosites in its environment it records none.")]
pub(super) struct PeakArgs {
    /// The process.
    #[arg(value_name = "PID")]
    pid: u32,
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
        let detail = if self.long_pauses { WindowDetail::StacksAtAnyCost } else { WindowDetail::Stacks };
        let mut line = ProgressLine::new();
        let file = runtime()?.block_on(async {
            let mut sources = Sources::start(config::probes_alone());
            let of = TraceQuestion { pid: self.pid, steps: self.steps, detail, command: "peak" };
            trace(&mut sources, of, self.timeout, |it| line.show(it)).await
        })?;
        drop(line);
        let traced = traces::read(&file.file);
        // A window that is left behind takes space and nothing else.
        let _ = fs::remove_file(&file.file);
        let traced = traced.with_context(|| format!("the trace of process {}", self.pid))?;
        let Some(answer) = answer(&traced) else { bail!("process {} allocated nothing in these steps", self.pid) };
        if answer.anatomy.step.is_none() {
            output::message(format_args!(
                "no whole step was traced: this is its highest moment so far; --long-pauses traces a whole step"
            ));
        }
        output::print(&if self.json { answer.json() } else { answer.text(self.pid) })?;
        Ok(0)
    }
}

/// The highest moment of one device.
struct PeakAnswer<'a> {
    device: u32,
    anatomy: Anatomy,
    traced: &'a Traced,
}

/// Returns the answer for the device with the most allocated bytes; `None` if nothing was allocated.
fn answer(traced: &Traced) -> Option<PeakAnswer<'_>> {
    let none = WindowKept::default();
    let kept = traced.kept.as_ref().unwrap_or(&none);
    let all = traced.trace.ordinals().into_iter().filter_map(|device| {
        let of = |name: &str| kept.blocks.get(&device).and_then(|it| it.get(name)).cloned().unwrap_or_default();
        let blocks = KeptBlocks {
            weights: of("weights"),
            gradients: of("gradients"),
            optimizer: of("optimizer"),
            boundaries: &kept.boundaries,
            modules: &kept.modules,
        };
        Some(PeakAnswer { device, anatomy: anatomy(&traced.trace, device, &blocks)?, traced })
    });
    all.max_by_key(|it| it.anatomy.allocated)
}

impl PeakAnswer<'_> {
    fn json(&self) -> String {
        let it = &self.anatomy;
        let bytes = |part: AnatomyPart| it.parts.get(&part).copied().unwrap_or(0);
        let parts = AnatomyPart::WORDS.map(|(part, _)| (part.name().to_owned(), bytes(part).into()));
        let line = |it: &crate::model::anatomy::LineShare| {
            json!({
                "line": it.line, "bytes": it.bytes, "blocks": it.blocks, "part": it.part.name(), "module": it.module,
            })
        };
        let window = self.traced.window.unwrap_or_default();
        escape_json(&format!(
            "{:#}\n",
            json!({
                "schema": SCHEMA,
                "pid": self.traced.pid,
                "device": self.device,
                "step": it.step,
                "allocated": it.allocated,
                "parts": parts.into_iter().collect::<Map<String, Value>>(),
                "lines": it.lines.iter().map(line).collect::<Vec<_>>(),
                "cost": {
                    "steps": window.steps,
                    "ms": window.ms,
                    "snapshots": window.snapshots,
                    "longest_pause_us": window.longest_us,
                    "paused_us": window.paused_us,
                },
            })
        ))
    }

    fn text(&self, pid: u32) -> String {
        let it = &self.anatomy;
        let step = it.step.map_or_else(|| "the traced part of a step".to_owned(), |step| format!("step {step}"));
        // Writing into a String cannot fail.
        let mut out = String::new();
        let _ = writeln!(
            out,
            "process {pid}, device {}: {} allocated at the highest moment of {step}",
            self.device,
            Bytes(it.allocated)
        );
        for (part, words) in AnatomyPart::WORDS {
            if let Some(bytes) = it.parts.get(&part) {
                let _ =
                    writeln!(out, "  {:>10}  {:>4}  {words}", Bytes(*bytes).to_string(), share(*bytes, it.allocated));
            }
        }
        if !it.lines.is_empty() {
            out.push_str("\nby the line that allocated it\n");
        }
        for line in it.lines.iter().take(LINES) {
            let blocks = counted(line.blocks, "block");
            let module =
                line.module.as_ref().map_or_else(String::new, |it| format!(" · {}", Foreign::new(it.as_str())));
            let _ = writeln!(
                out,
                "  {:>10}  {:>4}  {} · {}{module} · {blocks}",
                Bytes(line.bytes).to_string(),
                share(line.bytes, it.allocated),
                Foreign::new(line.line.as_str()),
                line.part.name()
            );
        }
        if let Some(more) = it.lines.len().checked_sub(LINES).filter(|it| *it > 0) {
            let _ = writeln!(out, "  and {}", counted(more as u64, "more line"));
        }
        if let Some(window) = self.traced.window {
            let ms = |us: u64| us as f64 / 1e3;
            let (all, longest) = (ms(window.paused_us), ms(window.longest_us));
            let _ = writeln!(out, "\npaused the job for {all:.1} ms in total (longest pause {longest:.1} ms)");
        }
        out
    }
}

fn share(bytes: u64, of: u64) -> String {
    format!("{:.0} %", 100.0 * bytes as f64 / of.max(1) as f64)
}
