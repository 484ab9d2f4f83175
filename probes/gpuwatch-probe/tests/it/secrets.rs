//! Secrets are hidden wholly, and harmless text stays as it is: lists of both, one case in a line.
//!
//! A line begins with its kind: `$` a command line whose arguments blanks separate, `¦` one whose arguments `¦`
//! separates, `E` a variable, `S` a line of Python, `T` a message. `«…»` marks what must not survive, and `¶` is the
//! end
//! of a line. `{a24}` stands for 24 random characters of the alphabet `a` (see `alphabet`), and `·` for nothing: it
//! keeps scanners from taking these lists for leaked secrets.

use gpuwatch_probe::secrets::{HIDDEN, arguments, source, text, variable};

const SECRETS: [&str; 6] = [
    include_str!("../secrets/secrets.txt"),
    include_str!("../secrets/secrets2.txt"),
    include_str!("../secrets/secrets3.txt"),
    include_str!("../secrets/secrets4.txt"),
    include_str!("../secrets/secrets5.txt"),
    include_str!("../secrets/secrets7.txt"),
];

const HARMLESS: [&str; 6] = [
    include_str!("../secrets/harmless.txt"),
    include_str!("../secrets/harmless2.txt"),
    include_str!("../secrets/harmless3.txt"),
    include_str!("../secrets/harmless4.txt"),
    include_str!("../secrets/harmless5.txt"),
    include_str!("../secrets/harmless7.txt"),
];

/// Lists that were written without a look at the rules: secrets, and harmless lines.
const UNSEEN: [[&str; 2]; 2] = [
    [include_str!("../secrets/secrets6.txt"), include_str!("../secrets/secrets8.txt")],
    [include_str!("../secrets/harmless6.txt"), include_str!("../secrets/harmless8.txt")],
];

/// Most secrets of unseen lists that may be shown, and harmless lines that may be changed, per thousand.
const UNSEEN_MOST: usize = 30;

/// How often each line is tried, with other random characters each time.
const TRIES: u64 = 6;

#[test]
fn secrets_are_hidden_wholly() {
    let mut faults = Vec::new();
    for line in lines(&SECRETS) {
        for seed in 0..TRIES {
            let case = Case::new(line, seed);
            let shown = case.shown();
            if let Some(left) = case.survives(&shown) {
                faults.push(format!("{line}\n    {left:?} survives in {shown:?}"));
                break;
            }
        }
    }
    assert!(faults.is_empty(), "{} secrets are shown:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn harmless_text_stays_as_it_is() {
    let mut faults = Vec::new();
    for line in lines(&HARMLESS) {
        let case = Case::new(line, 0);
        let shown = case.shown();
        if shown != case.parts {
            faults.push(format!("{line}\n    became {shown:?}"));
        }
    }
    assert!(faults.is_empty(), "{} harmless lines are changed:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn of_lists_that_the_rules_have_not_seen_nearly_all_is_right() {
    let [secrets, harmless] = UNSEEN.map(|it| lines(&it).map(ToOwned::to_owned).collect::<Vec<String>>());
    let is_shown = |line: &&String| {
        let mut cases = (0..TRIES).map(|seed| Case::new(line, seed));
        cases.any(|it| it.survives(&it.shown()).is_some())
    };
    let is_changed = |line: &&String| {
        let case = Case::new(line, 0);
        case.shown() != case.parts
    };
    let shown: Vec<&String> = secrets.iter().filter(is_shown).collect();
    let changed: Vec<&String> = harmless.iter().filter(is_changed).collect();
    println!("{} of {} secrets are shown: {shown:#?}", shown.len(), secrets.len());
    println!("{} of {} harmless lines are changed: {changed:#?}", changed.len(), harmless.len());
    assert!(secrets.len() >= 200 && harmless.len() >= 250);
    let is_few = |some: usize, all: usize| some * 1000 <= all * UNSEEN_MOST;
    assert!(is_few(shown.len(), secrets.len()) && is_few(changed.len(), harmless.len()));
}

#[test]
fn hiding_twice_changes_nothing() {
    for line in lines(&SECRETS).chain(lines(&HARMLESS)).chain(lines(&UNSEEN[0])).chain(lines(&UNSEEN[1])) {
        let once = Case::new(line, 7).shown();
        assert_eq!(arguments(&once), arguments(&arguments(&once)), "{line}");
        for part in once {
            for hide in [text, source, variable] {
                assert_eq!(hide(&hide(&part)), hide(&part), "{line}");
            }
        }
    }
}

#[test]
fn every_text_is_hidden_or_settles_whatever_it_repeats() {
    for piece in PIECES {
        let long = piece.repeat(LONG / piece.len());
        for hide in [text, source, variable] {
            let once = hide(&long).into_owned();
            assert_eq!(hide(&once), once, "{piece}");
        }
    }
}

/// What a text may repeat to make a reader look far ahead, again and again.
const PIECES: [&str; 34] = [
    "token=",
    "token=\"",
    "token='",
    "token=(",
    "token=[",
    "token={",
    "token: |",
    "token:\n  ",
    "password ",
    "://a:",
    "://",
    "-----BEGIN",
    "-----BEGIN PRIVATE KEY-----",
    "sk-",
    "hf_",
    "eyJa.",
    "LS0tLS1CRUdJTi",
    "<password>",
    "a=",
    "\\\"",
    "key\\\\\"",
    "--password ",
    "-p",
    "(",
    "{",
    "${",
    "{}",
    "%(",
    "login ",
    "a,",
    "\"a\",",
    "a:1:b:c:d",
    "https://hook/",
    "ü",
];

const LONG: usize = 2_000;

fn lines<'a>(lists: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    lists.iter().flat_map(|it| it.lines()).filter(|it| !it.is_empty() && !it.starts_with('#'))
}

struct Case {
    kind: char,
    /// The arguments of a command line, or one text.
    parts: Vec<String>,
    secrets: Vec<String>,
    /// The text without the secrets.
    rest: String,
}

impl Case {
    fn new(line: &str, seed: u64) -> Self {
        let line = expanded(line, seed);
        let mut chars = line.chars();
        let kind = chars.next().unwrap();
        let body = if kind == '¦' { chars.as_str() } else { chars.as_str().trim_start() };
        let (mut parts, mut secrets, mut rest) = (vec![String::new()], Vec::new(), String::new());
        let mut is_secret = false;
        for c in body.chars() {
            match c {
                '«' => secrets.push(String::new()),
                '»' => {}
                ' ' if kind == '$' && !is_secret => parts.push(String::new()),
                '¦' if kind == '¦' => parts.push(String::new()),
                _ => parts.last_mut().unwrap().push(c),
            }
            is_secret = c == '«' || (is_secret && c != '»');
            match secrets.last_mut() {
                Some(secret) if is_secret && c != '«' => secret.push(c),
                _ => rest.push(c),
            }
        }
        Self { kind, parts, secrets, rest }
    }

    fn shown(&self) -> Vec<String> {
        let hide = match self.kind {
            '$' | '¦' => return arguments(&self.parts),
            'E' => variable,
            'S' => source,
            'T' => text,
            other => panic!("no kind of line: {other}"),
        };
        self.parts.iter().map(|it| hide(it).into_owned()).collect()
    }

    /// Returns four characters of a secret that are still shown, if any are.
    fn survives(&self, shown: &[String]) -> Option<String> {
        let shown = shown.join(" ").replace(HIDDEN, "\0");
        let pieces = self.secrets.iter().flat_map(|secret| {
            let chars: Vec<char> = secret.chars().collect();
            chars.windows(chars.len().min(4)).map(|piece| piece.iter().collect()).collect::<Vec<String>>()
        });
        pieces.into_iter().find(|it| shown.contains(it.as_str()) && !self.rest.contains(it.as_str()))
    }
}

/// Returns a line with random characters for `{a24}`.
fn expanded(line: &str, seed: u64) -> String {
    let line = line.replace('·', "").replace('¶', "\n");
    let mut state = line.bytes().fold(seed.wrapping_add(0x9E37_79B9), |it, byte| next(it ^ u64::from(byte)));
    let (mut out, mut rest) = (String::new(), line.as_str());
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let inside = after.split('}').next().unwrap();
        let letters = inside.chars().next().and_then(alphabet);
        let count = inside.get(1..).and_then(|it| it.parse::<usize>().ok());
        if let (Some(letters), Some(count)) = (letters, count) {
            for _ in 0..count {
                state = next(state);
                out.push(char::from(letters[usize::try_from(state >> 33).unwrap() % letters.len()]));
            }
            rest = after.split_once('}').unwrap().1;
        } else {
            out.push('{');
            rest = after;
        }
    }
    out + rest
}

fn next(state: u64) -> u64 {
    state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

fn alphabet(name: char) -> Option<&'static [u8]> {
    Some(match name {
        'a' => b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
        'b' => b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
        'w' => b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_",
        'h' => b"0123456789abcdef",
        'H' => b"0123456789ABCDEF",
        'u' | 'U' => b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789",
        'x' => b"abcdefghijklmnopqrstuvwxyz0123456789",
        'l' => b"abcdefghijklmnopqrstuvwxyz",
        'L' => b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
        'd' => b"0123456789",
        _ => return None,
    })
}
