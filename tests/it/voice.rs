//! User-facing text and comments are plain English: one table of phrases to avoid, each with a better one.

use crate::{
    docs,
    source::{Token, comments, names, tokens},
    tidy,
};
use std::{fs, path::Path};

/// A phrase to avoid: whole words in any case, within one sentence.
struct Phrase {
    words: &'static str,
    instead: &'static str,
    /// Plain phrases that contain the words.
    except: &'static [&'static str],
}

const DIRS: [&str; 5] = ["src", "nvml", "probes", "simgpu", "tests"];

const fn phrase(words: &'static str, instead: &'static str) -> Phrase {
    Phrase { words, instead, except: &[] }
}

const PHRASES: &[Phrase] = &[
    phrase("told", "reported, shown, sent"),
    phrase("tells", "reports, shows, distinguishes"),
    phrase("is said", "is reported"),
    phrase("was said", "was reported"),
    phrase("are said", "are reported"),
    phrase("has not said", "has not reported"),
    phrase("it said", "it reported"),
    phrase("says who", "reports which processes"),
    phrase("says what they", "reports what they"),
    phrase("said twice", "occurs twice"),
    phrase("say it again", "repeatable"),
    phrase("hear", "receive"),
    phrase("hears", "receives"),
    phrase("heard", "received"),
    phrase("seldom", "less often, at the slowest rate"),
    phrase("what is no", "what is not a"),
    phrase("what was no", "what was not a"),
    phrase("what is said", "the report"),
    phrase("what is lost", "losses"),
    phrase("what you expect", "expected …"),
    Phrase { words: "is no", instead: "is not a", except: &["there is no", "is no longer", "of which is no"] },
    Phrase { words: "are no", instead: "are not", except: &["there are no", "are no longer"] },
    Phrase { words: "is none", instead: "is not a …", except: &["unknown is none", "there is none"] },
    phrase("are none", "are not …"),
    phrase("none of it", "cancel, back"),
    phrase("is wanted", "expected …"),
    phrase("are wanted", "expected …"),
    phrase("is asked", "is queried, receives a request"),
    phrase("are asked", "are queried, receive a request"),
    phrase("asked nothing", "gets no request"),
    phrase("anew", "again"),
    phrase("amid", "in the middle of"),
    phrase("mended", "fixed"),
    phrase("nobody", "no process, no user, nothing"),
    phrase("somebody", "another user, another process"),
    phrase("so many steps", "that many steps, a number of steps"),
    phrase("at most at once", "longest"),
    phrase("go on", "continue, resume"),
    phrase("goes on", "continues"),
    phrase("the look", "the capture"),
    phrase("a look", "a capture"),
    phrase("a letter less", "delete a character"),
    phrase("other end first", "reverse order"),
    phrase("a hundredth", "1 %"),
    phrase("but for", "except for"),
    phrase("lets programs", "allows OSC 52"),
    phrase("something was found", "1 warning: …"),
    phrase("held in all", "paused for … in total"),
    phrase("what stands", "name the actor"),
    phrase("stands behind", "is listed under"),
    phrase("stands in", "is in"),
];

/// Phrases to avoid in comments only: programs do not talk, and a sentence names its actor.
const OF_COMMENTS: &[Phrase] = &[
    phrase("say", "report, show, print"),
    phrase("says", "reports, shows, names"),
    phrase("said", "reported, printed"),
    phrase("tell", "report, notice, distinguish"),
    phrase("telling", "reporting"),
    phrase("speak", "send"),
    phrase("speaks", "sends, implements"),
    phrase("goodbye", "bye"),
    phrase("look at", "read, inspect, compare"),
    phrase("looks at", "reads, inspects, compares"),
    phrase("looked at", "read, inspected, compared"),
    phrase("look into", "read, search"),
    phrase("looks into", "reads, searches"),
    phrase("looked into", "read, searched"),
    phrase("looked for", "searched"),
    phrase("whoever", "name the actor"),
];

/// Parts of names to avoid: programs report, print, show, send and receive.
const OF_NAMES: [&str; 15] = [
    "told", "tell", "tells", "telling", "said", "say", "says", "hear", "hears", "heard", "looked", "spoke", "anew",
    "whoever", "somebody",
];

/// Beginnings of names to avoid: a test is named after its subject.
const STARTS_OF_NAMES: [&str; 3] = ["what_", "who_", "whose_"];

/// Names that keep such a part, as file and name. None needs to at present.
const NAMES_KEPT: [(&str, &str); 0] = [];

/// Returns the words of a text in lower case, with one blank around each and a full stop between sentences.
fn plain(text: &str) -> String {
    let mut words = String::from(" ");
    let mut depth = 0_u32;
    for c in text.to_lowercase().chars() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ if depth > 0 => {}
            '.' | ',' | ':' | ';' | '!' | '?' | '(' | ')' | '|' => words.push_str(" . "),
            c if c.is_alphanumeric() || c == '\'' || c == '_' => words.push(c),
            _ => words.push(' '),
        }
    }
    words.push(' ');
    words.split_whitespace().fold(String::from(" "), |all, word| all + word + " ")
}

/// Returns the phrases to avoid that the text has.
fn faults(text: &str) -> Vec<&'static Phrase> {
    faults_of(PHRASES, text)
}

/// Returns those of some phrases that the text has.
fn faults_of(phrases: &'static [Phrase], text: &str) -> Vec<&'static Phrase> {
    let text = plain(text);
    let has = |phrase: &&Phrase| {
        let excepted = phrase.except.iter().fold(text.clone(), |text, it| text.replace(&format!(" {it} "), " . "));
        excepted.contains(&format!(" {} ", phrase.words))
    };
    phrases.iter().filter(has).collect()
}

fn complaint(place: &str, phrase: &Phrase) -> String {
    format!("{place}: \"{}\": write {}", phrase.words, phrase.instead)
}

/// Help, configuration, keys and causes are in the reference, which the program writes.
#[test]
fn documents_and_help_are_plain_english() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut texts = docs::documents();
    let others = ["docs/reference", "themes"].map(|it| fs::read_dir(root.join(it)).unwrap());
    let paths = others.into_iter().flatten().map(|it| it.unwrap().path()).filter(|it| it.is_file());
    texts.extend(paths.map(|it| (it.clone(), fs::read_to_string(it).unwrap())));
    for name in ["src/commands/report/page.html", "probes/gpuwatch-probe/gpuwatch_probe.h"] {
        texts.push((root.join(name), fs::read_to_string(root.join(name)).unwrap()));
    }
    let mut found = Vec::new();
    for (path, text) in texts {
        // A sentence may wrap, so check each line together with the next one.
        let lines: Vec<_> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let both = format!("{line}\n{}", lines.get(at + 1).unwrap_or(&""));
            let next = lines.get(at + 1).map(|next| faults(next)).unwrap_or_default();
            let own = faults(&both).into_iter().filter(|it| !next.iter().any(|next| next.words == it.words));
            found.extend(own.map(|it| complaint(&format!("{}:{}", path.display(), at + 1), it)));
        }
    }
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

/// Every string literal of the program may reach a user: messages, fixed texts of screens, words of the report.
#[test]
fn strings_of_the_program_are_plain_english() {
    let (mut found, mut seen) = (Vec::new(), 0);
    for (name, text) in tidy::texts(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        let program = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        if name.ends_with("tests.rs") || name.contains("/tests/") {
            continue;
        }
        for (line, token) in tokens(program) {
            // A single word is a name.
            if let Token::Text(it) = token
                && it.contains(' ')
            {
                let text = it.replace("\\n", "\n").replace("\\\n", " ");
                found.extend(faults(&text).into_iter().map(|it| complaint(&format!("src/{name}:{line}"), it)));
                seen += 1;
            }
        }
    }
    assert!(seen > 1000, "{seen}");
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

/// Comments and doc comments of all sources, tests included.
#[test]
fn comments_are_plain_english() {
    let (root, mut found, mut seen) = (Path::new(env!("CARGO_MANIFEST_DIR")), Vec::new(), 0);
    for dir in DIRS {
        for (name, text) in tidy::texts_of(&root.join(dir), &["rs", "py", "h", "c"]) {
            for (line, comment) in comments(&name, &text) {
                let own = faults(&comment).into_iter().chain(faults_of(OF_COMMENTS, &comment));
                found.extend(own.map(|it| complaint(&format!("{dir}/{name}:{line}"), it)));
                seen += 1;
            }
        }
    }
    assert!(seen > 5000, "{seen}");
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

/// The parts of a name in snake case or camel case, in lower case.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut after_small = false;
    for c in name.chars() {
        if c == '_' || (c.is_uppercase() && after_small) {
            parts.push(String::new());
        }
        after_small = c.is_lowercase();
        parts.last_mut().unwrap().extend(c.to_lowercase().filter(|it| *it != '_'));
    }
    parts
}

/// Names of functions, types, fields and variables in all sources, tests included.
#[test]
fn names_are_plain_english() {
    let (root, mut found, mut seen) = (Path::new(env!("CARGO_MANIFEST_DIR")), Vec::new(), 0);
    for dir in DIRS {
        for (file, text) in tidy::texts_of(&root.join(dir), &["rs", "py"]) {
            let path = format!("{dir}/{file}");
            for (line, name) in names(&file, &text) {
                seen += 1;
                let is_kept = || NAMES_KEPT.contains(&(&path, name));
                let starts = || STARTS_OF_NAMES.iter().any(|it| name.starts_with(it));
                let is_bad = parts(name).iter().any(|it| OF_NAMES.contains(&it.as_str())) || starts();
                if is_bad && !is_kept() {
                    found.push(format!("{path}:{line}: `{name}`"));
                }
            }
        }
    }
    assert!(seen > 100_000, "{seen}");
    assert!(
        found.is_empty(),
        "\nprograms report, print, show, send and receive; a test is named after its subject:\n{}\n",
        found.join("\n")
    );
}

#[test]
fn a_name_consists_of_its_words() {
    assert_eq!(parts("SaidOnce"), ["said", "once"]);
    assert_eq!(parts("_said_LAST"), ["", "said", "last"]);
    assert_eq!(parts("essays"), ["essays"]);
}

#[test]
fn a_phrase_is_found_as_whole_words_of_one_sentence() {
    let words = |text: &str| faults(text).iter().map(|it| it.words).collect::<Vec<_>>();
    assert_eq!(words("The user is\ntold, and it is NO list."), ["told", "is no"]);
    assert_eq!(words("There is no list; it is no longer {told} here. Is. No"), [""; 0]);
}
