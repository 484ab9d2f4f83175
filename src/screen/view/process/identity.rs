//! A process's description: its command, its environment, its allocator's settings.

use super::{messages, named};
use crate::{
    facts::units,
    model::{
        analysis::fragmentation,
        session::process::{OnDevice, Process},
    },
    screen::view::{RenderContext, cells},
};
use ratatui::text::Line;

/// Most lines of the command; the recording has all of it.
const COMMAND: usize = 3;

/// Returns the description, with a name before each line.
pub(super) fn lines(process: &Process, on: &OnDevice, width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    let hello = process.hello.as_deref();
    let argv = hello.map(|it| it.argv.as_slice()).unwrap_or_default();
    let command = cells::command(argv.iter().map(String::as_str));
    let command = if command.is_empty() { cells::UNKNOWN.to_owned() } else { command };
    let mut lines = named("command", &command, width, context);
    lines.truncate(COMMAND);
    lines.extend(named("process", &about(process, context), width, context));
    lines.extend(named("runs", &runs(process, on), width, context));
    let conf = hello.and_then(|it| it.allocator_conf.as_deref());
    if let Some(conf) = conf.filter(|it| !it.is_empty()) {
        let expandable = fragmentation::is_expandable(Some(conf));
        let note = if expandable { "; what is stuck is not measurable with it" } else { "" };
        lines.extend(named("set to", &format!("{}{note}", cells::raw(conf)), width, context));
    }
    lines
}

/// Returns `pid 4242 on node7, up 3 min, in /home/ada, slurm 12`.
fn about(process: &Process, context: &RenderContext) -> String {
    let mut words = vec![messages::who(process)];
    let Some(hello) = process.hello.as_deref() else { return words.concat() };
    if let Some(world) = hello.world_size {
        words.push(format!("of {world}"));
    }
    if !hello.host.is_empty() {
        words.push(format!("host {}", cells::raw(&hello.host)));
    }
    if let Some(start) = hello.start_us {
        let there = hello.unix_us.saturating_sub(start);
        let since = context.session.now.0.saturating_sub(hello.monotonic_us);
        if process.is_alive() {
            words.push(format!("up {}", units::duration(there.saturating_add(since))));
        }
    }
    if let Some(attached) = hello.attached_us.filter(|_| process.is_alive()) {
        let there = hello.unix_us.saturating_sub(attached);
        let since = context.session.now.0.saturating_sub(hello.monotonic_us);
        words.push(format!("attached {} ago", units::duration(there.saturating_add(since))));
    }
    if let Some(job) = &hello.job {
        words.push(format!("{} {}", cells::raw(&job.scheduler), cells::raw(&job.id)));
    }
    if hello.restart.is_some_and(|it| it > 0) {
        let times = hello.restart.unwrap_or(0);
        words.push(if times == 1 { "restarted once".to_owned() } else { format!("restarted {times} times") });
    }
    if let Some(cwd) = &hello.cwd {
        words.push(format!("in {}", cells::raw(cwd)));
    }
    words.join(", ").replacen(", of", " of", 1)
}

/// Returns `torch 2.15.0, native allocator, step 1181 at 98 ms a step, 12 samples lost`.
fn runs(process: &Process, on: &OnDevice) -> String {
    let hello = process.hello.as_deref();
    let framework = hello.and_then(|it| it.framework.as_deref()).map_or_else(|| cells::UNKNOWN.to_owned(), cells::raw);
    let version = hello.and_then(|it| it.framework_version.as_deref()).map_or_else(String::new, cells::raw);
    let mut words = vec![format!("{framework} {version}").trim_end().to_owned()];
    words.extend(hello.and_then(|it| it.backend.as_deref()).map(|it| format!("{} allocator", cells::raw(it))));
    words.push(match (on.step, on.pace.latest_us()) {
        (Some(step), Some(us)) => format!("step {step}, {} a step", units::brief(us)),
        (Some(step), None) => format!("step {step}"),
        (None, _) => "no step yet".to_owned(),
    });
    words.extend(process.attached_step().map(|it| match it {
        0..=1 => "counted since attachment".to_owned(),
        first => format!("attached at step {first}"),
    }));
    if process.stride > 1 {
        words.push(format!("one sample in {} of its past", process.stride));
    }
    if process.lost > 0 {
        words.push(format!("{} lost", units::counted(process.lost, "sample")));
    }
    if process.lost_error_lines > 0 {
        words.push(format!("{} lost", units::counted(process.lost_error_lines, "error line")));
    }
    words.join(", ")
}
