//! `gpuwatch explain`: explains a cause, a kind of alert, or a resource that may grow.

mod topics;

use super::{ConfigUse, Invocation, Subcommand};
use crate::{
    facts::text::{Foreign, similar_names},
    model::{
        alerts::Name,
        analysis::cause::{Cause, Entry, entries},
    },
    storage::output,
};
use anyhow::Result;
use clap::{
    Arg, Command, Error,
    builder::{PossibleValue, TypedValueParser},
    error::ErrorKind,
};
use std::{collections::BTreeSet, ffi::OsStr, fmt::Write as _};
use topics::{TOPICS, Topic};

/// The arguments of `gpuwatch explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  gpuwatch explain graph-retained\n  gpuwatch explain growth\n  gpuwatch explain \
                            host\n\nWithout a name: a line for each.")]
pub(super) struct ExplainArgs {
    /// The name, as an alert has it.
    #[arg(hide_possible_values = true, value_parser = TopicName, value_name = "NAME")]
    topic: Option<String>,
}

impl Subcommand for ExplainArgs {
    fn config_use(&self) -> ConfigUse {
        ConfigUse::Unused
    }

    fn run(&self, _: &Invocation) -> Result<u8> {
        output::print(&self.topic.as_deref().map_or_else(list, page))?;
        Ok(0)
    }
}

/// Parses the name of a topic. The error for an unknown one lists similar names instead of all.
#[derive(Clone)]
struct TopicName;

impl TypedValueParser for TopicName {
    type Value = String;

    fn parse_ref(&self, command: &Command, _: Option<&Arg>, value: &OsStr) -> Result<String, Error> {
        let text = value.to_string_lossy();
        names().take(&*text).ok_or_else(|| {
            let similar = similar_names(&text, names());
            let text = Foreign::new(text);
            let why = format!("nothing is called '{text}'; {similar}`gpuwatch explain` lists all");
            command.clone().error(ErrorKind::InvalidValue, why)
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(names().into_iter().map(PossibleValue::new)))
    }
}

/// Returns every name of an alert or a part of one.
fn names() -> BTreeSet<String> {
    Name::all().chain(TOPICS.iter().flat_map(|it| it.names).map(ToString::to_string)).collect()
}

/// Returns the page of a cause, or of a kind or resource; for `growth:host`, that of the resource.
fn page(name: &str) -> String {
    let last = name.rsplit(':').next().unwrap_or(name);
    let topic = TOPICS.iter().find(|it| it.names.contains(&last));
    match (Cause::from_id(name), topic) {
        (Some(cause), _) => of_cause(cause.entry()),
        (None, Some(topic)) => of_topic(name, topic),
        (None, None) => list(),
    }
}

fn of_cause(it: &Entry) -> String {
    format!("{}: {}\n\n{}\n\nIn short: {}\n", it.id, it.title, it.text.trim_end(), it.advice)
}

fn of_topic(name: &str, it: &Topic) -> String {
    let mut out = format!("{name}: {}\n\n{}\n", it.title, it.text);
    if !it.causes.is_empty() {
        out.push_str("\nCauses:\n");
        lines(it.causes.iter().map(|it| it.entry()), &mut out);
    }
    if Name::read(name).is_some() {
        // Writing into a String cannot fail.
        let _ = writeln!(out, "\nWhere it is expected: allow = [\"{name}\"] in config.toml.");
    }
    if !it.causes.is_empty() {
        out.push_str("\n`gpuwatch explain CAUSE` explains a cause.\n");
    }
    out
}

fn list() -> String {
    let mut out = String::new();
    lines(entries().iter(), &mut out);
    out.push_str("\nKinds of alerts, and what may grow:\n\n");
    let width = TOPICS.iter().map(|it| it.names[0].len()).max().unwrap_or(0);
    for it in &TOPICS {
        let _ = writeln!(out, "{:width$}  {}", it.names[0], it.title);
    }
    out.push_str("\n`gpuwatch explain NAME` says how gpuwatch recognises it, what it is not, and what to do.\n");
    out
}

fn lines(entries: impl Iterator<Item = &'static Entry> + Clone, out: &mut String) {
    let width = entries.clone().map(|it| it.id.len()).max().unwrap_or(0);
    for it in entries {
        let _ = writeln!(out, "{:width$}  {}", it.id, it.title);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{analysis::episode::Resource, findings::Kind};

    #[test]
    fn every_cause_has_a_page_and_a_line() {
        let list = list();
        for it in entries() {
            let line = list.lines().find(|line| line.starts_with(&format!("{} ", it.id))).unwrap();
            assert!(line.ends_with(it.title) && line.chars().count() <= 80, "{line}");
            let page = page(it.id);
            assert!(page.contains(it.text.trim_end()) && page.contains(it.advice) && page.ends_with('\n'));
        }
    }

    #[test]
    fn every_name_has_a_page_of_its_own() {
        for name in names() {
            let page = page(&name);
            assert!(page.starts_with(&format!("{name}: ")), "{name}: {page}");
        }
        for it in &TOPICS {
            assert!(it.text.lines().all(|it| it.chars().count() <= 110), "{}", it.text);
        }
        for &resource in Resource::ALL {
            assert!(names().contains(resource.name()) && names().contains(resource.id()), "{resource:?}");
        }
        for &kind in Kind::ALL {
            assert!(names().contains(kind.name()), "{kind:?}");
        }
    }
}
