//! Every key as text, made from the table: the README holds it, and so can a manual.

use super::{BINDINGS, Binding, DEVICES, Place, replay};

/// A heading, and its keys with what they do.
pub struct Section {
    /// Where the keys mean this.
    pub title: &'static str,
    /// Keys, and what they do.
    pub keys: Vec<(&'static str, &'static str)>,
}

/// Every key.
pub fn sections() -> Vec<Section> {
    let of = |place: Place| {
        let own = BINDINGS.iter().filter(move |it| it.place == place);
        own.map(|Binding { keys, help, .. }| (*keys, *help))
    };
    vec![
        Section { title: "on every screen", keys: of(Place::Anywhere).chain([DEVICES]).collect() },
        Section { title: "on the timeline", keys: of(Place::Timeline).collect() },
        Section { title: "while a filter is typed", keys: of(Place::Filter).collect() },
        Section { title: "in the menu of signals", keys: of(Place::Signal).collect() },
        Section { title: "in a replay", keys: replay::HELP.to_vec() },
    ]
}

/// The same as a table in Markdown.
pub fn markdown() -> String {
    let table = |it: &Section| {
        let heading: String =
            it.title.chars().take(1).flat_map(char::to_uppercase).chain(it.title.chars().skip(1)).collect();
        let rows: Vec<String> = it.keys.iter().map(row).collect();
        format!("{heading}:\n\n| key | |\n|---|---|\n{}", rows.concat())
    };
    sections().iter().map(table).collect::<Vec<_>>().join("\n")
}

fn row((keys, help): &(&str, &str)) -> String {
    let keys: Vec<_> = keys.split(' ').map(|it| format!("`{it}`")).collect();
    format!("| {} | {help} |\n", keys.join(" "))
}
