//! Hides secrets in events from a probe, /proc or a file, so that they reach no screen, recording or report.
//!
//! `gpuwatch_probe::secrets` defines what a secret is, for probes and viewers alike.

use crate::facts::{
    event::{
        DriverState, Fact, Gap, Line, ReadError, Replayed,
        wire::{Hello, Sites},
    },
    text::Foreign,
};
use gpuwatch_probe::secrets;
use std::borrow::Cow;

/// Hides the secrets in an event.
pub fn redact(fact: &mut Fact) {
    match fact {
        Fact::Probe { line, .. } => hide_in_line(line),
        Fact::Process(it) => {
            let argv: Vec<&str> = it.argv.iter().map(Foreign::raw).collect();
            it.argv = secrets::arguments(&argv).into_iter().map(Foreign::new).collect();
            it.environment.iter_mut().for_each(hide_in_variable);
            it.place.iter_mut().for_each(hide_in);
        }
        Fact::ProbeGone { why: text, .. }
        | Fact::Notice(text)
        | Fact::Gap(Gap { why: text, .. })
        | Fact::Driver(DriverState::Absent { why: text })
        | Fact::KernelDriver { state: DriverState::Absent { why: text }, .. }
        | Fact::Memory { reading: Err(ReadError::Other(text)), .. }
        | Fact::Processes { reading: Err(ReadError::Other(text)), .. } => hide_in(text),
        Fact::Replayed(it) => replayed(it),
        Fact::PeakMoment(it) => {
            let lines = it.anatomy.lines.iter_mut();
            lines.flat_map(|it| [Some(&mut it.line), it.module.as_mut()]).flatten().for_each(hide_in);
        }
        Fact::Advised(it) => it.rows.iter_mut().flat_map(|it| &mut it.edit).for_each(hide_in_source),
        _ => {}
    }
}

/// Removes all arguments from an event and keeps the programs' names.
pub fn leave_arguments_out(fact: &mut Fact) {
    match fact {
        Fact::Process(it) => {
            it.argv.truncate(1);
            it.environment.clear();
        }
        Fact::Probe { line, .. } => {
            if let Line::Hello(it) = &mut **line {
                it.argv.truncate(1);
            }
        }
        _ => {}
    }
}

fn hide_in_line(line: &mut Line) {
    match line {
        Line::Hello(it) => hello(it),
        Line::Mark(it) => hide(&mut it.name),
        Line::Oom(it) => it.message.iter_mut().for_each(hide),
        Line::OomMessage(it) => hide(&mut it.message),
        Line::Sites(it) => sites(it),
        Line::Bye(it) => hide(&mut it.reason),
        Line::Refused(it) => hide(&mut it.reason),
        Line::Sample(_) | Line::Lost(_) | Line::History(_) | Line::Live(_) | Line::Unknown => {}
    }
}

fn hello(it: &mut Hello) {
    it.argv = secrets::arguments(&it.argv);
    [&mut it.cwd, &mut it.allocator_conf, &mut it.sites].into_iter().flatten().for_each(hide);
}

fn sites(it: &mut Sites) {
    it.trouble.iter_mut().for_each(hide);
    for site in &mut it.sites {
        site.holders.iter_mut().filter_map(|it| it.name.as_mut()).for_each(hide);
        for place in site.source.iter_mut().chain(&mut site.kept).chain(&mut site.kept_or) {
            if let Cow::Owned(clean) = secrets::source(&place.text) {
                place.text = clean;
            }
        }
    }
}

fn replayed(it: &mut Replayed) {
    match &mut it.result {
        Err(why) => hide_in(why),
        Ok(it) => {
            for outcome in [Some(&mut it.current), it.best.as_mut()].into_iter().flatten() {
                let at = outcome.fails_at.iter_mut();
                at.flat_map(|it| [&mut it.step, &mut it.line]).flatten().for_each(hide_in);
                hide_in(&mut outcome.settings);
            }
        }
    }
}

fn hide_in(text: &mut Foreign) {
    if let Cow::Owned(clean) = secrets::text(text.raw()) {
        *text = Foreign::new(clean);
    }
}

fn hide_in_source(text: &mut Foreign) {
    if let Cow::Owned(clean) = secrets::source(text.raw()) {
        *text = Foreign::new(clean);
    }
}

fn hide_in_variable(variable: &mut Foreign) {
    if let Cow::Owned(clean) = secrets::variable(variable.raw()) {
        *variable = Foreign::new(clean);
    }
}

fn hide(text: &mut String) {
    if let Cow::Owned(clean) = secrets::text(text) {
        *text = clean;
    }
}
