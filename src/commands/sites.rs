//! `gpuwatch sites`: asks a job which lines allocate what grows, waits for the answer, and prints it; or prints the
//! answers that a recording has.

use super::{Invocation, Subcommand};
use crate::{
    cli::{
        inputs::{self, listens, sockets_of},
        next_commands::{NextCommand, with_next, word},
        runtime,
    },
    config,
    facts::{
        event::{
            CaptureRequest, Fact, Line, ProbeId,
            wire::{Holder, Site, Sites},
        },
        text::{Foreign, escape_json},
    },
    model::{
        alerts::{longer, question_of, words},
        analysis::culprit::{self, Breakdown, Culprit, Spot},
        session::{
            Session,
            process::{ProbeState, Process},
        },
    },
    sources::{Sources, system},
    storage::{output, replay::run::Run},
};
use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use std::{collections::BTreeSet, fmt::Write as _, path::PathBuf, slice, time::Duration};
use tokio::time::timeout;

/// How long to search for a probe of which nothing is seen.
const SEARCH: Duration = Duration::from_secs(3);

/// The arguments of `gpuwatch sites`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  gpuwatch sites 4242 --json | jq '.sites[] | [.file, .line, .bytes_per_step]'\n  gpuwatch sites last\n\n\
                            The job records the stacks of its allocations for that many steps only. With \
                            GPUWATCH=nosites in its environment it records none."
)]
pub(super) struct SitesArgs {
    /// The process; or a recording, by its path or short name, to show what was captured in it.
    #[arg(value_name = "PID|RECORDING")]
    source: PathBuf,
    /// How many steps to compare live blocks over; seconds if the process counts no steps [default: 8, or as many as
    /// the growth found so far needs].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    steps: Option<u64>,
    /// Run Python's garbage collector once, to find what only it can free.
    #[arg(long)]
    collect: bool,
    /// How long to wait for the answer.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = config::duration)]
    timeout: Duration,
    /// As JSON (schema 1).
    #[arg(long)]
    json: bool,
}

impl Subcommand for SitesArgs {
    fn run(&self, _: &Invocation) -> Result<u8> {
        let Some(pid) = inputs::process(&self.source) else { return self.recorded() };
        runtime()?.block_on(async {
            let mut sources = Sources::start(config::probes_alone());
            ask(&mut sources, pid, self).await
        })?;
        Ok(0)
    }
}

impl SitesArgs {
    /// Prints the latest capture of each process of a recording.
    fn recorded(&self) -> Result<u8> {
        let found = inputs::recordings(slice::from_ref(&self.source))?;
        found.notes.iter().for_each(|it| output::message(format_args!("{it}")));
        let run = Run::read(&found.recordings, |_, _, _| {});
        let captured: Vec<_> =
            run.session.processes.iter().filter_map(|it| Some((it.any_pid()?, it.captured()?))).collect();
        if captured.is_empty() {
            bail!(
                "{} has no capture of call stacks: gpuwatch asks for one when memory grows, and when `w` or \
                 `gpuwatch sites PID` does while the job runs",
                Foreign::new(self.source.to_string_lossy())
            );
        }
        let next = || {
            let report = |it: String| NextCommand::new(["report", &it, "-o", "report.html"], "shows the run on a page");
            word(&self.source).map(report)
        };
        for (pid, sites) in captured {
            if self.json {
                output::print(&with_next(&answer_json(sites, pid)?, next().as_slice()))?;
            } else {
                let place = sites.step.map_or_else(String::new, |it| format!(" at step {it}"));
                output::print(&format!("process {pid}{place}:\n{}", answer_text(sites)))?;
            }
        }
        Ok(0)
    }
}

/// Sends the request, waits and prints.
///
/// # Errors
/// Fails if the process has no probe, if its probe refuses, if no answer comes in time, or if standard output is gone.
async fn ask(sources: &mut Sources, pid: u32, args: &SitesArgs) -> Result<()> {
    let mut session = Session::default();
    let found = find(sources, &mut session, pid, args.timeout).await;
    let Some(probe) = found else { bail!("{}", missing(&session, pid)) };
    let Some(process) = session.process(probe) else { bail!("{}", missing(&session, pid)) };
    let (asks, grows) = question_of(process);
    let chosen = args.steps.map(|steps| CaptureRequest { steps, rises: None, ..asks });
    let mut ask = CaptureRequest { collect: args.collect, ..chosen.unwrap_or(asks) };
    let sites = async {
        loop {
            if sources.asks.send(ask.into()).await.is_err() {
                bail!("the thread that reads probes has ended");
            }
            output::message(format_args!("asked process {pid}: {}", words(&ask)));
            let sites = answer(sources, probe, pid).await?;
            // The growth needs more steps than that.
            let more = longer(&ask).filter(|_| grows && chosen.is_none() && sites.sites.is_empty());
            match more.filter(|_| sites.steps > 0) {
                Some(more) => ask = more,
                None => return Ok(sites),
            }
        }
    };
    let Ok(sites) = timeout(args.timeout, sites).await else {
        bail!("process {pid} did not finish these steps in time: is it still training? --timeout waits longer");
    };
    let sites = sites?;
    let next = || [NextCommand::new(["peak", &pid.to_string()], "tells what the highest moment of a step consists of")];
    let text = if args.json { with_next(&answer_json(&sites, pid)?, &next()) } else { answer_text(&sites) };
    output::print(&text)?;
    Ok(())
}

/// Returns the probe of a process, once its backlog has arrived. Where no probe is seen in a few seconds, there is
/// none; one that is seen may take up to `limit`, because its machine may be busy.
pub(super) async fn find(sources: &mut Sources, session: &mut Session, pid: u32, limit: Duration) -> Option<ProbeId> {
    let soon = SEARCH.min(limit);
    if let Ok(found) = timeout(soon, live(sources, session, pid)).await {
        return found;
    }
    let is_there = probe_of(session, pid).is_some() || listens(pid);
    let rest = limit.saturating_sub(soon);
    if is_there { timeout(rest, live(sources, session, pid)).await.ok().flatten() } else { None }
}

/// Waits for the probe of a process; `None` once it lets no viewer in.
async fn live(sources: &mut Sources, session: &mut Session, pid: u32) -> Option<ProbeId> {
    loop {
        session.apply(&sources.events.recv().await?);
        if let Some(process) = probe_of(session, pid).filter(|it| it.life == ProbeState::Live) {
            return Some(process.probe);
        }
        if refusal(session, pid).is_some() {
            return None;
        }
    }
}

/// Returns the process with a probe that this pid means.
fn probe_of(session: &Session, pid: u32) -> Option<&Process> {
    session.processes.iter().find(|it| it.any_pid() == Some(pid))
}

/// Returns why the probe of this process did not let this viewer in.
fn refusal(session: &Session, pid: u32) -> Option<&Foreign> {
    let mut notices = session.notices.iter().map(|it| &it.value);
    let names = |it: &Foreign| sockets_of(pid).any(|path| it.raw().starts_with(&*path.to_string_lossy()));
    notices.find(|it| names(it))
}

/// Returns why a probe that is there cannot be asked; `None` if no probe is there.
pub(super) fn unasked(session: &Session, pid: u32) -> Option<String> {
    if let Some(why) = refusal(session, pid) {
        return Some(format!("process {pid} was not asked: {why}"));
    }
    let busy = "is this machine overloaded? --timeout waits longer";
    match probe_of(session, pid).map(|it| &it.life) {
        Some(ProbeState::CatchingUp) => {
            Some(format!("the probe of process {pid} did not send all it knows in time: {busy}"))
        }
        Some(_) => None,
        None => listens(pid).then(|| format!("the probe of process {pid} did not answer in time: {busy}")),
    }
}

/// Describes that there is no probe, and which processes have one.
fn missing(session: &Session, pid: u32) -> String {
    if let Some(why) = unasked(session, pid) {
        return why;
    }
    if system::start_ticks(pid).is_none() && session.processes.iter().all(|it| it.any_pid() != Some(pid)) {
        return format!("there is no process {pid} here");
    }
    let others = session.processes.iter().filter(|it| it.any_pid() != Some(pid));
    let probed: Vec<String> = others.filter_map(|it| Some(it.any_pid()?.to_string())).collect();
    if probed.is_empty() {
        return format!("no probe was found in process {pid}, nor in any other: `gpuwatch attach {pid}` starts one");
    }
    format!("no probe was found in process {pid}; there is one in {}", probed.join(", "))
}

/// Waits for the next answer that does not belong to an error.
async fn answer(sources: &mut Sources, probe: ProbeId, pid: u32) -> Result<Sites> {
    loop {
        let Some(event) = sources.events.recv().await else { bail!("the thread that reads probes has ended") };
        if let Fact::ProbeGone { probe: gone, why } = &event.fact
            && *gone == probe
        {
            bail!("the connection to process {pid} was lost: {why}");
        }
        let Some((_, line)) = event.line().filter(|it| it.0 == probe) else { continue };
        match line {
            Line::Sites(sites) if sites.why != "oom" => return Ok(sites.clone()),
            Line::Refused(it) => bail!("process {pid} was not asked: {}", Foreign::new(it.reason.as_str())),
            Line::Bye(_) => bail!("process {pid} ended before it could answer"),
            _ => {}
        }
    }
}

/// Returns the answer: for each culprit what happens, the remedy and the lines around it; then the notes.
fn answer_text(it: &Sites) -> String {
    let mut devices: BTreeSet<u32> = it.sites.iter().map(|it| it.device).collect();
    if devices.is_empty() {
        // Without growth, any device will do.
        devices.insert(0);
    }
    let mut out = String::new();
    let several = devices.len() > 1;
    for device in devices {
        let Breakdown { culprits, notes } = culprit::account(it, device);
        if several {
            // Writing into a String cannot fail.
            let _ = writeln!(out, "device {device}");
        }
        for it in &culprits {
            write_culprit(&mut out, it);
        }
        for note in notes {
            let _ = writeln!(out, "{note}");
        }
    }
    out
}

fn write_culprit(out: &mut String, it: &Culprit) {
    let _ = writeln!(out, "{}\n  {}", it.sentence, it.advice);
    let leading = it.leading();
    let line = |line: &Spot| {
        let mark = match (line.is_at(leading), line.is_at(&it.allocated)) {
            (true, _) => '>',
            (false, true) => '-',
            (false, false) => ' ',
        };
        let text = Foreign::new(line.text.raw()).to_string();
        format!("  {mark} {:>4}  {text}", line.line)
    };
    for (label, lines) in it.excerpts() {
        let shown = label.map(|it| format!("    {it}")).into_iter().chain(lines.iter().map(line));
        for it in shown {
            let _ = writeln!(out, "{}", it.trim_end());
        }
    }
}

/// The version of the object.
const SCHEMA: u32 = 1;

/// Returns the answer of a process, with its newline.
fn answer_json(it: &Sites, pid: u32) -> Result<String> {
    let object = json!({
        "schema": SCHEMA,
        "pid": pid,
        "step": it.step,
        "steps": it.steps,
        "culprits": culprits(it),
        "sites": it.sites.iter().map(|own| site(own, it.steps)).collect::<Vec<_>>(),
        "older": { "blocks": it.older_blocks, "bytes": it.older_bytes },
        "cost": {
            "held_us": it.held_us,
            "longest_us": it.longest_us,
            "holders_us": it.holders_us,
            "holders_longest_us": it.holders_longest_us,
            "history_bytes": it.history_bytes,
        },
        "collected_bytes": it.collected_bytes,
        "trouble": it.trouble,
    });
    let mut text = escape_json(&serde_json::to_string_pretty(&object).context("cannot write JSON")?);
    text.push('\n');
    Ok(text)
}

/// Returns the culprits of each device, as in a finding.
fn culprits(it: &Sites) -> Vec<Value> {
    let devices: BTreeSet<u32> = it.sites.iter().map(|it| it.device).collect();
    let of = |device: u32| culprit::account(it, device).culprits.into_iter().map(move |it| (device, it));
    let culprits = devices.into_iter().flat_map(of);
    culprits
        .map(|(device, it)| {
            let mut it = it.json();
            if let Some(object) = it.as_object_mut() {
                object.insert("device".to_owned(), json!(device));
            }
            it
        })
        .collect()
}

fn site(it: &Site, steps: u64) -> Value {
    let per_step = |figure: u64| (steps > 0).then(|| figure as f64 / steps as f64);
    let known = Some(&it.file).filter(|it| !it.is_empty());
    json!({
        "device": it.device,
        "file": known,
        "line": known.map(|_| it.line),
        "function": known.map(|_| &it.function),
        "frames": it.frames,
        "bytes_per_step": per_step(it.bytes),
        "blocks_per_step": per_step(it.blocks),
        "sizes": it.sizes,
        "stream": it.stream,
        "pool": it.pool,
        "autograd": it.autograd,
        "owners": it.owners,
        "holders": it.holders.iter().map(holder).collect::<Vec<_>>(),
        "kept": it.kept,
        "source": it.source.iter().map(|it| json!({ "line": it.line, "text": it.text })).collect::<Vec<_>>(),
    })
}

/// Returns one step of the path, without unknown fields.
fn holder(it: &Holder) -> Value {
    serde_json::to_value(it).unwrap_or_else(|_| Value::Object(Map::new()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::event::wire::{Place, Site};

    #[test]
    fn each_device_has_its_culprits_and_nothing_of_a_job_moves_a_cursor() {
        let source = vec![Place { line: 40, text: "  x = y\u{1b}[2J".into(), ..Place::default() }];
        let site = Site { file: "/a/train.py".into(), line: 40, bytes: 4096, blocks: 8, source, ..Site::default() };
        let sites = |all: &[u32]| {
            let sites = all.iter().map(|device| Site { device: *device, ..site.clone() }).collect();
            Sites { step: Some(9), steps: 8, sites, older_blocks: Some(2), ..Sites::default() }
        };
        let text = answer_text(&sites(&[0]));
        let lines: Vec<_> = text.lines().collect();
        let [sentence, advice, line, older] = lines[..] else { panic!("{text}") };
        assert!(sentence.starts_with("train.py:40 `x = y\\u{1b}[2J` allocates 1 block a step (512 B)"), "{text}");
        assert!(advice.starts_with("  ") && line == "  >   40    x = y\\u{1b}[2J", "{text}");
        assert!(older.starts_with("2 blocks predate the capture"), "{text}");
        assert!(!text.contains('\u{1b}'));
        let both = answer_text(&sites(&[1, 0]));
        assert!(both.starts_with("device 0\n") && both.contains("\ndevice 1\n"), "{both}");
        assert!(answer_text(&sites(&[])).starts_with("in 8 steps no line allocated more than was freed again"));
    }

    #[test]
    fn nothing_of_a_job_moves_a_cursor_and_nothing_is_lost() {
        let name = "a\u{9b}2J\u{202e}\u{1b}[2J.py";
        let site = Site { file: name.to_owned(), line: 4, bytes: 512, blocks: 8, ..Site::default() };
        let culprits = answer_json(&Sites { steps: 8, sites: vec![site], ..Sites::default() }, 7).unwrap();
        assert!(culprits.is_ascii() && !culprits.contains('\u{1b}'), "{culprits}");
        let read: Value = serde_json::from_str(&culprits).unwrap();
        assert_eq!((&read["sites"][0]["file"], &read["pid"]), (&name.into(), &7.into()));
    }
}
