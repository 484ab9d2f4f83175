//! A closure inside another one names its argument, so that `it` has one meaning at a time.

use crate::helpers::rust_source::{Token, tokens};

#[test]
fn nested_closures_name_their_argument() {
    let mut faults = Vec::new();
    for dir in ["src", "probes/gpuwatch-probe", "simgpu/src", "tests"] {
        for (name, text) in super::texts(&super::root().join(dir)) {
            let path = format!("{dir}/{name}");
            faults.extend(nested(&text).into_iter().map(|line| format!("{path}:{line}: `it` within `it`")));
        }
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// Returns the lines of closures with an argument `it` inside another such closure.
fn nested(text: &str) -> Vec<usize> {
    let code: Vec<_> = tokens(text)
        .into_iter()
        .filter_map(|(line, token)| match token {
            Token::Code(word) => (!word.trim().is_empty()).then_some((line, word)),
            Token::Text(_) => Some((line, "\"")),
            Token::Comment(_) => None,
        })
        .collect();
    let (mut lines, mut open, mut depth, mut at) = (Vec::new(), Vec::new(), 0_usize, 0);
    while let Some(&(line, word)) = code.get(at) {
        at += 1;
        match word {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth = depth.saturating_sub(1);
                open.retain(|it| *it <= depth);
            }
            "," | ";" => open.retain(|it| *it < depth),
            "|" if begins_closure(code.get(at.wrapping_sub(2)).map(|it| it.1)) => {
                let arguments = code[at..].iter().take_while(|it| it.1 != "|");
                let (count, has_it) = arguments.fold((0, false), |(count, has), it| (count + 1, has || it.1 == "it"));
                if has_it && !open.is_empty() {
                    lines.push(line);
                }
                if has_it {
                    open.push(depth);
                }
                at += count + 1;
            }
            _ => {}
        }
    }
    lines
}

/// Returns whether `|` after this token begins a closure; otherwise it is an operator or separates patterns.
fn begins_closure(before: Option<&str>) -> bool {
    before.is_none_or(|it| ["(", "[", "{", ",", ";", "=", ">", ":", "&", "move", "return"].contains(&it))
}

#[test]
fn nested_closures_are_found_and_operators_are_not() {
    let faults = "a.map(|it| it.b.any(|it| it > 1)); // |it| f(|it| it)\nc.map(|it: &u8| {\n    let d = it;\n    e.map(|(_, it)| it)\n});";
    assert_eq!(nested(faults), [1, 4]);
    let others =
        "a.filter(|it| b || it.c || it.d, |it| 1 | it | 2); g(|it| it.h(\"|it|\"));\nlet i = |it| it; let j = |it| it;";
    assert_eq!(nested(others), [0; 0]);
}
