//! What a job keeps after each step, as fit's answer names it: with the line, the holder and the remedy.

use super::Asked;
use serde_json::Value;

const SOURCE: &str = include_str!("leaks.py");

/// A leak, by the function that makes it; what its sentence says, and how its remedy begins.
struct Leak {
    name: &'static str,
    held: &'static str,
    remedy: &'static str,
}

const fn leak(name: &'static str, held: &'static str, remedy: &'static str) -> Leak {
    Leak { name, held, remedy }
}

const LEAKS: [Leak; 31] = [
    leak("history", "through list `losses` (", "clear `losses` each epoch"),
    leak(
        "carried",
        "of a tensor, held by attribute `state` of Monitor",
        "let only `.item()` or `.detach()` go into `state`",
    ),
    leak("errors", "that the traceback of ValueError keeps, held by list `failures` (", "leave the except block"),
    leak("bank", "replaces a tensor by one that is", "allocate it once at its full size"),
    leak("heads", "of Adam, held by global `optimizer`", "give `optimizer` each parameter once"),
    leak("copies", "of Net, held by list `averages` (", "clear `averages` each epoch, bound it"),
    leak(
        "slots",
        "attribute `slot_*` of Net",
        "write into one attribute, or `delattr` what is done with: each step sets another `slot_*`",
    ),
    leak("penalty", "of its graph", "keep its `.item()`"),
    leak("summed", "of a tensor, held by global `total`", "let only `.item()` or `.detach()` go into `total`"),
    leak("chain", "attribute `before` of Node (", "set `before` to None where the earlier ones are done with"),
    leak("stack", "held by global `of_thread`", "clear `stack` each epoch, bound it"),
    leak(
        "shadow",
        "dict `shadows` (2 items), global of train.py",
        "let only `.item()` or `.detach()` go into `shadows`",
    ),
    leak("registry", "class attribute of finalize", "give weakref.finalize what holds no tensor, or detach() it"),
    leak("later", "attribute of partial, held by list `delayed` (", "clear `delayed` each epoch, bound it"),
    leak("views", "through list `samples` (", "clear `samples` each epoch, bound it, or copy"),
    leak("masks", "through dict `by_step` (", "bound `by_step` (remove the oldest entry"),
    leak("evaluation", "of its graph", "keep its `.detach().cpu()`, or the numbers of it that are needed"),
    leak("objects", "through ndarray `boxes` (", "clear `boxes` each epoch, bound it"),
    leak("joined", "ndarray `parts` (", "clear `parts` each epoch, bound it"),
    leak("trail", "something inside of ContextVar, held by global `trace`", "clear `trace` each epoch, bound it"),
    leak("in_state", "key `history` of dict (", "clear `history` each epoch, bound it"),
    leak("in_groups", "key `seen` of dict (", "clear `seen` each epoch, bound it"),
    leak("wrapped", "attribute `metrics` of SimpleNamespace", "clear `metrics` each epoch, bound it"),
    leak("seen_list", "list `seen` (", "a default argument is made once for all calls: default `seen` to None"),
    leak("seen_dict", "dict `cache` (", "a default argument is made once for all calls: default `cache` to None"),
    leak("at_exit", "of report(), held by what atexit has registered", "register one function with atexit, once"),
    leak("weak_keys", "attribute of WeakKeyDictionary, held by global `by_key`", "let go of the keys of `by_key`"),
    leak("by_method", "through list `moved` (", "clear `moved` each epoch"),
    leak("by_name", "list `seen` (", "clear `seen` each epoch"),
    leak("uploads", "coroutine upload() suspended at line ", "await it, or cancel its task"),
    leak("views_of_crops", "generator crops() suspended at line ", "run the generator to its end, or close() it"),
];

/// Words with single spaces, as terminals of any width would have them.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn assert_named(it: &Leak) {
    let asked = Asked::new(SOURCE);
    let output = asked.fit(&["--gpu", "RTX 4090"], &[it.name]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(2), "{}: {output:?}", it.name);
    let (_, grows) = text.split_once("\nwhat grows, +").unwrap_or_else(|| panic!("{}: {text}", it.name));
    let (grows, _) = grows.split_once("\n\n").unwrap();
    assert!(grows.lines().all(|line| line.chars().count() <= 80), "{grows}");
    let words = flat(grows);
    assert!(words.contains(it.held) && words.contains(&format!("remedy: {}", it.remedy)), "{}: {text}", it.name);
    let mark = |of: &str| SOURCE.lines().position(|line| line.ends_with(&format!("# {of}: {}", it.name)));
    if let Some(at) = mark("kept").or_else(|| mark("made")) {
        assert!(words.contains(&format!("B/step: train.py:{} `", at + 1)), "{}: {text}", it.name);
    }
}

#[test]
fn a_leak_is_named_with_its_line_its_holder_and_its_remedy() {
    for it in test_tiers::vary!(LEAKS, "kinds of leak") {
        assert_named(&it);
    }
    // Nothing grows without one.
    let output = Asked::new(SOURCE).fit(&["--gpu", "RTX 4090"], &["none"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!text.contains("grows"), "{text}");
}

/// All remedies at once: nothing grows, although the program does what it did.
#[test]
fn a_remedy_that_is_applied_ends_the_growth() {
    let (answer, code) = Asked::new(include_str!("repaired.py")).json(&["--gpu", "RTX 4090"], &[]);
    assert_eq!((code, &answer["fits"], &answer["growth"]), (0, &"yes".into(), &Value::Null), "{answer:#}");
}

#[test]
fn the_json_of_a_leak_has_its_culprits_and_what_lives_between_steps_its_holder() {
    test_tiers::change!("another start of PyTorch");
    let (answer, _) = Asked::new(SOURCE).json(&["--gpu", "RTX 4090"], &["history"]);
    let culprit = &answer["growth"]["culprits"][0];
    let at = SOURCE.lines().position(|line| line.contains("# kept: history")).unwrap() + 1;
    assert_eq!(culprit["line"], format!("train.py:{at}"), "{answer:#}");
    assert!(culprit["sentence"].as_str().unwrap().contains("`losses`") && culprit["advice"].is_string(), "{answer:#}");
    let lines = answer["peak"]["lines"].as_array().unwrap();
    let of = |text: &str| lines.iter().find(|it| it["text"].as_str().unwrap().contains(text)).unwrap();
    assert_eq!(of("self.up = nn.Linear")["module"], "up", "{answer:#}");
    let output = of("return self.down(");
    assert!(output["holder"].as_str().unwrap().starts_with("list `losses` ("), "{answer:#}");
}
