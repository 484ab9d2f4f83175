//! `gpuwatch doctor`: what does not work here, and how to fix it. It creates only what a job's start creates too.

/// Directories and files: sockets, the probe's own, recordings, the config.
mod places;
/// Python and its PyTorch.
mod python;
/// The driver, and running probes.
mod watched;

use super::{ConfigUse, Invocation, Subcommand};
use crate::{
    cli::next_commands::{NextCommand, with_next},
    facts::text::Foreign,
    screen::{term, theme::ColorDepth},
    storage::output,
};
use anyhow::Result;
use rustix::{stdio::stdout, termios::tcgetwinsize};
use serde_json::{Value, json};
use std::{
    env,
    io::{self, IsTerminal},
};

/// The JSON's schema version.
const SCHEMA: u32 = 1;

/// The arguments of `gpuwatch doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  gpuwatch doctor\n\nExit code 1 if something does not work.")]
pub(super) struct DoctorArgs {
    /// As JSON (schema 1).
    #[arg(long)]
    json: bool,
}

impl Subcommand for DoctorArgs {
    /// It checks the file itself.
    fn config_use(&self) -> ConfigUse {
        // An error in the file is an answer.
        ConfigUse::Tolerant
    }

    /// Checks everything, and prints the results; exit code 1 if something fails.
    fn run(&self, invocation: &Invocation) -> Result<u8> {
        let mut checks = watched::checks(invocation.driver)?;
        checks.extend(places::checks(invocation));
        checks.extend(python::checks());
        checks.extend(terminal_checks());
        let is_sound = checks.iter().all(|it| it.state != CheckState::Fail);
        let text = if self.json {
            let all: Vec<Value> = checks.iter().map(Check::json).collect();
            let answer = format!("{:#}\n", json!({ "schema": SCHEMA, "ok": is_sound, "checks": all }));
            let run =
                || NextCommand::new(["run", "--", "python", "train.py"], "runs a job with the probe, and records it");
            with_next(&answer, &is_sound.then(run).into_iter().collect::<Vec<_>>())
        } else {
            checks.iter().map(Check::line).collect()
        };
        output::print(&text)?;
        Ok(u8::from(!is_sound))
    }
}

/// The state of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckState {
    /// It works.
    Ok,
    /// gpuwatch works, but shows or does less.
    Warn,
    /// It does not work.
    Fail,
}

impl CheckState {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Check {
    name: &'static str,
    state: CheckState,
    what: String,
    /// How to fix it; `None` if it works.
    advice: Option<String>,
}

impl Check {
    fn ok(name: &'static str, what: impl Into<String>) -> Self {
        Self { name, state: CheckState::Ok, what: what.into(), advice: None }
    }

    fn warn(name: &'static str, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, state: CheckState::Warn, what: what.into(), advice: Some(advice.into()) }
    }

    fn fail(name: &'static str, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { state: CheckState::Fail, ..Self::warn(name, what, advice) }
    }

    fn line(&self) -> String {
        let advice = self.advice.as_ref().map_or_else(String::new, |it| format!("\n{:18}{}", "", Foreign::new(&**it)));
        format!("{:<5} {:<11} {}{advice}\n", self.state.name(), self.name, Foreign::new(&*self.what))
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "state": self.state.name(),
            "what": Foreign::new(&*self.what).to_string(),
            "advice": self.advice.as_ref().map(|it| Foreign::new(&**it).to_string()),
        })
    }
}

/// The smallest useful screen.
const SMALLEST: (u16, u16) = (40, 12);

fn terminal_checks() -> Vec<Check> {
    vec![terminal(), locale()]
}

fn terminal() -> Check {
    const NAME: &str = "terminal";
    let set = |name: &str| env::var(name).ok().filter(|it| !it.is_empty());
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        let advice = "the live view needs one for standard input and output; `gpuwatch once` does not";
        return Check::warn(NAME, "standard input or output is not a terminal", advice);
    }
    if !term::is_screen() {
        let value = set("TERM").unwrap_or_default();
        return Check::warn(
            NAME,
            format!("TERM={value} can move no cursor"),
            "set TERM to what the terminal is, as in xterm-256color",
        );
    }
    let size = tcgetwinsize(stdout()).map_or((0, 0), |it| (it.ws_col, it.ws_row));
    let colours = match term::color_depth() {
        ColorDepth::None => "no colours",
        ColorDepth::Ansi16 => "16 colours",
        ColorDepth::Ansi256 => "256 colours",
        ColorDepth::TrueColor => "24-bit colours",
    };
    let what = format!("{}×{}, {colours}, pictures in one piece where it knows mode 2026", size.0, size.1);
    if size.0 < SMALLEST.0 || size.1 < SMALLEST.1 {
        return Check::warn(NAME, what, format!("make it {}×{} or larger", SMALLEST.0, SMALLEST.1));
    }
    if set("TMUX").is_some() || set("TERM").is_some_and(|it| it.starts_with("tmux")) {
        let advice = "in tmux, copying (OSC 52) wants `set -g set-clipboard on`, and of --notify only the bell passes";
        return Check { advice: Some(advice.to_owned()), ..Check::ok(NAME, what) };
    }
    if set("TERM").is_some_and(|it| it.starts_with("screen")) {
        return Check::warn(NAME, what, "GNU screen passes no clipboard (OSC 52) on; tmux does");
    }
    Check::ok(NAME, what)
}

fn locale() -> Check {
    const NAME: &str = "locale";
    let value =
        ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|it| env::var(it).ok().filter(|value| !value.is_empty()));
    let value = value.unwrap_or_else(|| "none".to_owned());
    if term::is_ascii_only() {
        return Check::warn(
            NAME,
            format!("{value}: graphs are drawn in ASCII"),
            "set LC_ALL to a UTF-8 locale, as in C.UTF-8",
        );
    }
    Check::ok(NAME, format!("{value}: UTF-8"))
}
