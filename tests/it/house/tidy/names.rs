//! Limits that may only fall: files of one name, modules named by a private word, and `it` over several lines.

use super::{root, texts};
use crate::helpers::rust_source::{Token, tokens};
use std::collections::BTreeMap;

/// Words that a newcomer would not search for, as names of modules.
const PRIVATE: [&str; 34] = [
    "account", "beat", "bell", "breath", "carried", "chance", "climb", "consists", "contact", "desk", "given",
    "glimpse", "ground", "guest", "hands", "hurry", "ink", "kin", "ledger", "life", "news", "outside", "over", "reach",
    "rhythm", "room", "season", "sent", "settle", "spill", "stray", "teeth", "trail", "words",
];

/// How many file names occur twice or more in one folder of `src` today.
const MOST_TWICE: usize = 8;

/// How many closures with `it` span several lines in `src` today.
const MOST_LONG: usize = 72;

/// The names of files below `src` without their folders, each with the folder of `src` that it is in.
fn files() -> Vec<(String, String)> {
    let all = texts(&root().join("src")).into_iter().map(|(path, _)| path);
    let named = all.filter_map(|path| {
        let (folder, _) = path.split_once('/').unwrap_or((path.trim_end_matches(".rs"), ""));
        let name = path.rsplit('/').next()?.to_owned();
        // A convention, and not a subject.
        (name != "tests.rs").then(|| (folder.to_owned(), name))
    });
    named.collect()
}

#[test]
fn no_more_files_share_a_name() {
    let (mut in_folder, mut in_all) = (BTreeMap::new(), BTreeMap::new());
    for (folder, name) in files() {
        *in_folder.entry((folder, name.clone())).or_insert(0) += 1;
        *in_all.entry(name).or_insert(0) += 1;
    }
    let twice: Vec<_> = in_folder.iter().filter(|entry| *entry.1 > 1).collect();
    let often: Vec<_> = in_all.iter().filter(|entry| *entry.1 > 3).collect();
    assert!(twice.len() <= MOST_TWICE, "{}, at most {MOST_TWICE}: {twice:#?}", twice.len());
    assert!(often.is_empty(), "four times or more: {often:#?}");
}

#[test]
fn no_module_has_a_private_name() {
    let names = files().into_iter().map(|(_, name)| name.trim_end_matches(".rs").to_owned());
    let private: Vec<_> = names.filter(|name| PRIVATE.contains(&name.as_str())).collect();
    assert!(private.is_empty(), "{private:#?}");
}

#[test]
fn no_more_closures_over_several_lines_call_their_argument_it() {
    let all = texts(&root().join("src"));
    let lines =
        all.iter().flat_map(|(path, text)| long(text).into_iter().map(move |line| format!("src/{path}:{line}")));
    let found: Vec<String> = lines.collect();
    assert!(found.len() <= MOST_LONG, "{}, at most {MOST_LONG}: {found:#?}", found.len());
}

/// Returns the lines on which closures with the one argument `it` begin that end on another line.
fn long(text: &str) -> Vec<usize> {
    let code: Vec<_> = tokens(text)
        .into_iter()
        .filter_map(|(line, token)| match token {
            Token::Code(word) => (!word.trim().is_empty()).then_some((line, word)),
            Token::Text(_) => Some((line, "\"")),
            Token::Comment(_) => None,
        })
        .collect();
    let (mut lines, mut open, mut depth) = (Vec::new(), Vec::<(usize, usize)>::new(), 0_usize);
    for (at, (line, word)) in code.iter().enumerate() {
        match *word {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        let ends = |inside: usize| inside > depth || (inside == depth && matches!(*word, "," | ";"));
        let last = code.get(at.wrapping_sub(1)).map_or(*line, |token| token.0);
        while let Some((_, begun)) = open.pop_if(|closure| ends(closure.0)) {
            if begun != last {
                lines.push(begun);
            }
        }
        if code.get(at..at + 3).is_some_and(|three| three.iter().map(|token| token.1).eq(["|", "it", "|"])) {
            open.push((depth, *line));
        }
    }
    lines
}

#[test]
fn a_closure_over_several_lines_is_found_and_one_within_a_line_is_not() {
    let text = "a.map(|it| {\n    it.b\n});\nc(\n    |it| it.d,\n    e,\n);\nlet f = |it| it.g +\n    1;\nh.i(|it| it.j)\n    .k();";
    assert_eq!(long(text), [1, 8]);
}
