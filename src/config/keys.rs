//! The config file's sections and keys. A key for a flag has the flag's name.

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A text; a number is accepted too.
    Text,
    /// `true` or `false`.
    Switch,
    /// A list of texts.
    List,
}

/// A key for a flag.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its table.
    pub section: &'static str,
    /// Its name, which is also the flag's.
    pub name: &'static str,
    /// The type of its value.
    pub kind: Kind,
}

const fn key(section: &'static str, name: &'static str, kind: Kind) -> Key {
    Key { section, name, kind }
}

/// Every key for a flag.
pub const KEYS: [Key; 18] = [
    key("view", "preset", Kind::Text),
    key("view", "theme", Kind::Text),
    key("view", "color", Kind::Text),
    key("view", "graph", Kind::Text),
    key("view", "readonly", Kind::Switch),
    key("view", "no-mouse", Kind::Switch),
    key("driver", "interval", Kind::Text),
    key("driver", "no-nvml", Kind::Switch),
    key("driver", "no-drm", Kind::Switch),
    key("alerts", "bell", Kind::Switch),
    key("alerts", "notify", Kind::Switch),
    key("alerts", "on-alert", Kind::Text),
    key("alerts", "on-alert-arg", Kind::List),
    key("alerts", "sites", Kind::Text),
    key("recordings", "keep", Kind::Text),
    key("recordings", "keep-bytes", Kind::Text),
    key("recordings", "no-arguments", Kind::Switch),
    key("recordings", "summary", Kind::Text),
];

/// The tables, in the file's order.
pub const SECTIONS: [&str; 4] = ["view", "driver", "alerts", "recordings"];

/// Keys of `[alerts]` without a flag, and what they are for.
pub const LISTS: [(&str, &str); 2] = [
    (
        "allow",
        "Expected alerts: shown as such; they count in no badge, ring no bell and fail no check. NAME@train.py is only of \
         that script, NAME@train.py:87 only of that line.",
    ),
    ("silence", "Shown, counted and judged by check; they ring no bell and start no program."),
];

/// Returns the valid keys of a section.
pub(super) fn names(section: &str) -> Vec<&'static str> {
    let lists = LISTS.iter().map(|it| it.0).filter(|_| section == "alerts");
    lists.chain(KEYS.iter().filter(|it| it.section == section).map(|it| it.name)).collect()
}
