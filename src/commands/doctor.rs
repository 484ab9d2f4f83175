//! `gpuwatch doctor`: what does not work here, and how to fix it. It creates only what a job's start creates too.

/// Directories and files: sockets, the probe's own, recordings, the config.
mod places;
/// Python and its PyTorch.
mod python;
/// Terminal and locale.
mod screen;
/// The driver, and running probes.
mod watched;

use super::{ConfigUse, Invocation, Subcommand};
use crate::{facts::text::Foreign, storage::output};
use anyhow::Result;
use serde_json::{Value, json};

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
        ConfigUse::Unused
    }

    /// Checks everything, and prints the results; exit code 1 if something fails.
    fn run(&self, invocation: &Invocation) -> Result<u8> {
        let mut checks = watched::checks(invocation.driver)?;
        checks.extend(places::checks(&invocation.config));
        checks.extend(python::checks());
        checks.extend(screen::checks());
        let is_sound = checks.iter().all(|it| it.state != State::Fail);
        let text = if self.json {
            let all: Vec<Value> = checks.iter().map(Check::json).collect();
            format!("{:#}\n", json!({ "schema": SCHEMA, "ok": is_sound, "checks": all }))
        } else {
            checks.iter().map(Check::line).collect()
        };
        output::print(&text)?;
        Ok(u8::from(!is_sound))
    }
}

/// The state of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It works.
    Ok,
    /// gpuwatch works, but shows or does less.
    Warn,
    /// It does not work.
    Fail,
}

impl State {
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
    state: State,
    what: String,
    /// How to fix it; `None` if it works.
    advice: Option<String>,
}

impl Check {
    fn ok(name: &'static str, what: impl Into<String>) -> Self {
        Self { name, state: State::Ok, what: what.into(), advice: None }
    }

    fn warn(name: &'static str, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, state: State::Warn, what: what.into(), advice: Some(advice.into()) }
    }

    fn fail(name: &'static str, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { state: State::Fail, ..Self::warn(name, what, advice) }
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
