//! Names of options, variables and fields whose values are secrets.

use super::HIDDEN;

/// Words that mean a secret anywhere in a name, also at the end of a longer word.
const STRONG: [&str; 17] = [
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "pwd",
    "secret",
    "secrets",
    "credential",
    "credentials",
    "bearer",
    "authorization",
    "apikey",
    "apikeys",
    "accesskey",
    "secretkey",
    "privatekey",
    "cookie",
];

/// Last words of names about a secret, as in `password-file` and `key-dim`.
const ABOUT: [&str; 32] = [
    "base64", "bits", "bytes", "column", "count", "dim", "dims", "dir", "dropout", "env", "file", "format", "heads",
    "index", "len", "length", "max", "min", "name", "num", "path", "policy", "prefix", "prompt", "provider", "rate",
    "ratio", "size", "std", "timeout", "ttl", "type",
];

/// Words after `key` and `token` that do not make them something else.
const STILL: [&str; 8] = ["base", "data", "id", "material", "pem", "secret", "string", "value"];

/// Words before `token` and `tokens` that name a piece of text.
const PIECES: [&str; 26] = [
    "add", "audio", "bos", "cls", "end", "eos", "eot", "extra", "first", "image", "last", "mask", "max", "min", "new",
    "next", "num", "pad", "per", "sep", "special", "start", "stop", "total", "unk", "video",
];

/// Words before `key` and `keys` that name a field or a place.
const FIELDS: [&str; 34] = [
    "batch",
    "cache",
    "column",
    "data",
    "dict",
    "feature",
    "foreign",
    "group",
    "image",
    "index",
    "input",
    "join",
    "label",
    "map",
    "max",
    "metric",
    "min",
    "missing",
    "monitor",
    "n",
    "num",
    "output",
    "partition",
    "primary",
    "query",
    "sample",
    "sort",
    "state",
    "target",
    "text",
    "total",
    "unexpected",
    "hot",
    "value",
];

/// What a `pass` that is a password belongs to.
const PASSES: [&str; 26] = [
    "admin", "auth", "db", "email", "ftp", "http", "https", "key", "ldap", "login", "mail", "mongo", "mysql", "pg",
    "postgres", "proxy", "redis", "root", "smtp", "ssh", "store", "sudo", "user", "usr", "vnc", "wifi",
];

/// First words of switches that turn something off, and so have no value.
const OFF: [&str; 5] = ["disable", "no", "skip", "without", "ignore"];

/// The kind of value that a name has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Not a secret.
    Plain,
    /// A secret, whatever it is.
    Strong,
    /// A secret, unless it is a word like `true`.
    Secret,
    /// A secret, unless it is such a word or a number.
    Weak,
    /// `name:secret`, or a name alone.
    Login,
}

impl Class {
    /// Returns whether an argument that begins with one dash is the next option rather than a value.
    pub(super) fn yields_to_options(self) -> bool {
        matches!(self, Self::Plain | Self::Weak | Self::Login)
    }

    /// Returns whether a value of this kind is a secret.
    pub(super) fn is_secret(self, value: &str) -> bool {
        match self {
            _ if value.is_empty() => false,
            Self::Plain | Self::Login => false,
            Self::Strong => true,
            Self::Secret => !is_word(value),
            Self::Weak => !is_word(value) && !is_numbers(value),
        }
    }
}

/// Returns the kind of value that a name has.
pub(super) fn class(name: &str) -> Class {
    match name {
        "-p" => return Class::Weak,
        "-u" | "-U" => return Class::Login,
        _ => {}
    }
    let words = words(name);
    let Some((last, before)) = words.split_last() else { return Class::Plain };
    let (last, previous) = (last.as_str(), before.last().map_or("", String::as_str));
    if words.first().is_some_and(|it| OFF.contains(&it.as_str())) && name.starts_with('-') {
        return Class::Plain;
    }
    if !before.is_empty() && ABOUT.contains(&last) {
        return Class::Plain;
    }
    if words.iter().any(|word| STRONG.iter().any(|it| word.ends_with(it))) {
        return Class::Strong;
    }
    let is_of_another_kind = match last {
        "token" => PIECES.contains(&previous),
        "tokens" => PIECES.contains(&previous) || previous == "n",
        "key" | "keys" => FIELDS.contains(&previous),
        _ => false,
    };
    if is_of_another_kind {
        return Class::Plain;
    }
    let is_pass =
        last.strip_suffix("pass").is_some_and(|it| PASSES.contains(&if it.is_empty() { previous } else { it }));
    let is_still = STILL.contains(&last) && (previous == "key" || (previous == "token" && last != "id"));
    let is_secret = ["key", "auth", "oauth", "jwt", "otp"].contains(&last) || last.ends_with("token");
    match last {
        _ if is_pass || is_secret => Class::Secret,
        "user" | "login" | "username" if name.starts_with('-') => Class::Login,
        _ if is_still || matches!(last, "tokens" | "keys") || (last == "pass" && before.is_empty()) => Class::Weak,
        _ => Class::Plain,
    }
}

/// Splits a name into lower-case words: `--hub_token`, `AccessKeyId`, `APIKey` have two, three and two.
fn words(name: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let chars: Vec<char> = name.chars().collect();
    for (at, &c) in chars.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|it| chars.get(it));
        let is_hump = c.is_uppercase()
            && (before.is_some_and(|it| it.is_lowercase() || it.is_ascii_digit())
                || (before.is_some_and(|it| it.is_uppercase())
                    && chars.get(at + 1).is_some_and(|it| it.is_lowercase())));
        if !c.is_alphanumeric() || is_hump {
            words.push(std::mem::take(&mut word));
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
    }
    words.push(word);
    words.retain(|it| !it.is_empty());
    words
}

/// Whether a value is a common word, not a secret.
fn is_word(value: &str) -> bool {
    ["true", "false", "none", "null", "yes", "no", "on", "off", "auto", "default", HIDDEN]
        .iter()
        .any(|it| value.eq_ignore_ascii_case(it))
}

/// Returns whether a value is a number, or several, as in `8080:80`.
pub(super) fn is_numbers(value: &str) -> bool {
    value.starts_with(|it: char| it.is_ascii_digit() || "-+.".contains(it))
        && value.chars().all(|it| it.is_ascii_digit() || ".,:e+-/".contains(it))
}
