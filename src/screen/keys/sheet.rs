//! Every key as text, from the table, for the help, the manual and the reference.

use super::{BINDINGS, Binding, DEVICES, Group, Place};

/// A heading with its keys.
pub struct Section {
    /// Their purpose, or where they apply.
    pub title: &'static str,
    /// Keys and their help texts.
    pub keys: Vec<(&'static str, &'static str)>,
}

/// Returns every key.
pub fn sections() -> Vec<Section> {
    let section = |title, wanted: &dyn Fn(&&Binding) -> bool| {
        let own = BINDINGS.iter().filter(wanted).map(|Binding { keys, help, .. }| (*keys, *help));
        Section { title, keys: own.collect() }
    };
    let mut all: Vec<Section> = Group::HELP.iter().map(|of| section(of.name(), &|it| it.group == *of)).collect();
    if let Some(it) = all.iter_mut().find(|it| it.title == Group::Moving.name()) {
        it.keys.push(DEVICES);
    }
    for group in [Group::Replay, Group::Snapshot, Group::Cluster, Group::Recordings, Group::Past] {
        all.push(section(group.name(), &|it| it.group == group));
    }
    let asking = [
        ("while a filter is typed", Place::Filter),
        ("in the menu of signals", Place::Signal),
        ("before an alert is expected", Place::Allow),
        ("before a probe or a trace is started", Place::Start),
    ];
    all.extend(asking.map(|(title, place)| section(title, &move |it| it.place == place)));
    all
}

/// Returns the same as a Markdown table: a row for each section.
pub fn markdown() -> String {
    let row = |it: &Section| {
        let keys: Vec<String> = it.keys.iter().map(entry).collect();
        format!("| {} | {} |\n", it.title, keys.join(" · "))
    };
    format!("| | |\n|---|---|\n{}", sections().iter().map(row).collect::<String>())
}

fn entry((keys, help): &(&str, &str)) -> String {
    let keys: Vec<_> = keys.split(' ').map(|it| format!("`{it}`")).collect();
    format!("{} {help}", keys.join(" "))
}
