//! Describes the path of holders of a tensor: each container by the name under which its holder has it.

use crate::facts::{
    event::wire::{Holder, limits::grouped},
    text::Foreign,
};
use std::fmt::Display;

/// Most holders that are shown of a path.
const STEPS: usize = 8;

/// Most characters of a name.
const NAME: usize = 60;

/// Describes the holders from the tensor outwards: `list `losses` (1,204 items), global of train.py`, `local `metric`
/// of main()`.
pub(super) fn path(holders: &[Holder]) -> Vec<String> {
    let mut out = Vec::new();
    let mut left = holders;
    while let Some((first, rest)) = left.split_first() {
        let owner = rest.first().filter(|_| is_element(first)).filter(|it| names(it));
        out.push(match owner {
            Some(owner) => format!("{}, {}", container(first, owner.name.as_deref()), role(owner, false)),
            None if is_element(first) => container(first, None),
            None => role(first, true),
        });
        left = if owner.is_some() { rest.get(1..).unwrap_or_default() } else { rest };
        // A function keeps its closure's variables in a tuple, which is not a container of the program.
        if first.by == "cell"
            && first.name.is_none()
            && left.first().is_some_and(|it| it.kind.as_deref() == Some("tuple"))
        {
            left = left.get(1..).unwrap_or_default();
        }
        if out.len() == STEPS && !left.is_empty() {
            out.push(format!("{} more", left.len()));
            break;
        }
    }
    if holders.last().is_some_and(|it| !is_root(it)) && out.len() <= STEPS {
        out.push("something that was not found".to_owned());
    }
    out
}

/// Returns whether a container holds it as one of many elements.
pub(super) fn is_element(it: &Holder) -> bool {
    matches!(&*it.by, "item" | "key" | "value" | "element")
}

/// Whether it is a function that waits for others.
pub(super) fn is_coroutine(it: &Holder) -> bool {
    it.by == "generator" && it.kind.as_deref() == Some("coroutine")
}

/// Whether it only wraps a container under its own name, as `queue` of `Queue` and `data` of `UserList`.
pub(super) fn is_wrapped(it: &Holder) -> bool {
    const WRAPPERS: [(&str, &[&str]); 2] = [
        ("queue", &["Queue", "LifoQueue", "PriorityQueue"]),
        ("data", &["UserList", "UserDict", "WeakKeyDictionary", "WeakValueDictionary", "WeakSet"]),
    ];
    let is = |name, kind: &str| WRAPPERS.iter().any(|(own, kinds)| *own == name && kinds.contains(&kind));
    it.by == "attribute" && it.name.as_deref().zip(it.kind.as_deref()).is_some_and(|(name, kind)| is(name, kind))
}

/// Whether a container's holder has a useful name for it.
fn names(it: &Holder) -> bool {
    let by = ["attribute", "slot", "global", "local", "cell", "class", "generator", "default"];
    it.name.is_some() && by.contains(&&*it.by)
}

/// Whether the path ends here, because this object lives by itself.
fn is_root(it: &Holder) -> bool {
    ["global", "local", "cell", "class", "generator", "default", "traceback", "cycle", "autocast", "atexit"]
        .contains(&&*it.by)
}

/// ``list `losses` (1,204 items)``, ``key `out` of dict (3 items)``
fn container(it: &Holder, name: Option<&str>) -> String {
    let kind = it.kind.as_deref().map_or_else(|| "container".to_owned(), word);
    let under = it.name.as_deref().map_or_else(String::new, |it| format!("key {} of ", quoted(it)));
    let name = name.map_or_else(String::new, |it| format!(" {}", quoted(it)));
    let items = match it.items {
        None => String::new(),
        Some(1) => " (1 item)".to_owned(),
        Some(many) => format!(" ({} items)", grouped(many)),
    };
    format!("{under}{kind}{name}{items}")
}

/// Describes how something is held that is not an element; leaves its name out where the text has it already.
fn role(it: &Holder, named: bool) -> String {
    let name = it.name.as_deref().filter(|_| named).map_or_else(String::new, |it| format!(" {}", quoted(it)));
    let function = it.function.as_deref().map(call);
    let file = it.file.as_deref().map(file_name);
    let kind = it.kind.as_deref().map(word);
    let of = |what: Option<String>| what.map_or_else(String::new, |it| format!(" of {it}"));
    match &*it.by {
        // A method keeps its object.
        "attribute" if it.name.as_deref() == Some("__self__") => {
            format!("bound method {}", function.unwrap_or_default()).trim_end().to_owned()
        }
        "attribute" | "slot" => {
            let links = it.items.map_or_else(String::new, |it| format!(" ({} links)", grouped(it)));
            format!("attribute{name}{}{links}", of(kind))
        }
        "hook" => format!("hook{name}{}", of(kind)),
        "other" => format!("something inside{}", of(kind)),
        "global" => format!("global{name}{}", of(file)),
        "local" => format!("local{name}{}", of(function.or(file))),
        "cell" if it.name.is_none() && function.is_none() => "a closure".to_owned(),
        "cell" => format!("closure variable{name}{}", of(function)),
        "default" => format!("default argument{name}{}", of(function)),
        "graph" => {
            let nodes = it.items.map_or_else(String::new, |it| format!(" ({} nodes)", grouped(it)));
            format!("the graph{nodes} of a tensor")
        }
        "class" => match (kind, it.name.as_deref().filter(|_| named)) {
            (Some(kind), Some(name)) => format!("class attribute `{kind}.{}`", word(name)),
            (kind, _) => format!("class attribute{name}{}", of(kind)),
        },
        "generator" => {
            let name = if name.is_empty() { name } else { format!(" (its local{name})") };
            let stands = it.line.map_or_else(|| " suspended".to_owned(), |it| format!(" suspended at line {it}"));
            let what = if is_coroutine(it) { "coroutine" } else { "generator" };
            format!("{what} {}{stands}{name}", function.unwrap_or_else(|| "of unknown name".to_owned()))
        }
        "traceback" => {
            let frame = function.map_or_else(|| "a frame".to_owned(), |it| format!("the frame of {it}"));
            let name = if name.is_empty() { name } else { format!("local{name} in ") };
            let error = kind.map_or_else(|| "a traceback".to_owned(), |it| format!("the traceback of {it}"));
            format!("{name}{frame} that {error} keeps")
        }
        "cycle" => {
            let through = if name.is_empty() { name } else { format!(" through{name}") };
            format!("a reference cycle{}{through} that only the collector frees", of(kind))
        }
        "autocast" => "autocast, which keeps what it casts until it is left".to_owned(),
        "atexit" => "what atexit has registered".to_owned(),
        by => format!("{}{name}{}", word(by), of(kind)),
    }
}

/// Quotes a name in a sentence.
pub(super) fn quoted(name: &str) -> String {
    format!("`{}`", word(name))
}

/// Cuts a name to its limit.
pub(super) fn word(name: &str) -> String {
    let mut short: String = name.chars().take(NAME).collect();
    if short.len() < name.len() {
        short.push('…');
    }
    Foreign::new(short).to_string()
}

/// Formats a function as `main()`; module code and lambdas keep names such as `<module>`.
pub(super) fn call(function: &str) -> String {
    format!("{}{}", word(function), if function.starts_with('<') { "" } else { "()" })
}

/// Formats a line as `train.py:41`, the file by its name alone; a notebook's cell by its number: `In [2], line 9`.
pub(super) fn place(file: &str, line: impl Display) -> String {
    let separator = if file.starts_with("In [") && file.ends_with(']') { ", line " } else { ":" };
    format!("{}{separator}{line}", file_name(file))
}

/// Returns the last part of a path.
pub(super) fn file_name(path: &str) -> String {
    word(path.rsplit('/').next().filter(|it| !it.is_empty()).unwrap_or(path))
}
