//! Secrets inside longer texts: messages, URLs, JSON, YAML, headers, source code.

use super::{
    Grade, Span,
    literals::{READ_MAX, quoted},
    shapes, urls,
    values::grade,
};

/// What kind of text is scanned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Values may be unquoted.
    Prose,
    /// Only literals are values, so `key = batch["x"]` hides nothing.
    Source,
}

/// Returns where the secrets of a text are.
pub(super) fn spans(text: &str, kind: Kind) -> Vec<Span> {
    let mut scan = Scan { text, kind, at: 0, literal: (0, 0), closed: 0, found: Vec::new() };
    while scan.at < text.len() {
        scan.step();
    }
    scan.found
}

/// Returns the insides of the literals of a text, each list of them on its own: `["mysql", "-pX"]`.
pub(super) fn literals(text: &str) -> Vec<Vec<Span>> {
    let (mut lists, mut list, mut at) = (Vec::new(), Vec::new(), 0);
    while let Some(length) = part(text, at, text.len()).find(['"', '\'']) {
        if !part(text, at, at + length).chars().all(|it| it == ',' || it.is_whitespace()) {
            lists.push(std::mem::take(&mut list));
        }
        at += length;
        let Some(it) = quoted(part(text, at, text.len())) else { break };
        list.push((at + it.opening, at + it.opening + it.inside));
        at += it.whole.max(1);
    }
    lists.push(list);
    lists.retain(|it| !it.is_empty());
    lists
}

/// A text during a scan; all positions are character boundaries.
pub(super) struct Scan<'a> {
    pub(super) text: &'a str,
    kind: Kind,
    at: usize,
    /// The inside of the latest literal of source code.
    literal: Span,
    /// Where that literal ends, after its quotes.
    closed: usize,
    pub(super) found: Vec<Span>,
}

/// Returns a part of a text; empty if the positions are invalid.
pub(super) fn part(text: &str, from: usize, to: usize) -> &str {
    text.get(from..to).unwrap_or_default()
}

impl<'a> Scan<'a> {
    pub(super) fn behind(&self, place: usize) -> &'a str {
        part(self.text, place, self.text.len())
    }

    pub(super) fn before(&self, place: usize) -> &'a str {
        part(self.text, 0, place)
    }

    /// Notes a secret, and continues after it.
    pub(super) fn hide(&mut self, from: usize, to: usize) {
        self.found.push((from, to));
        self.at = self.at.max(to);
    }

    /// Whether values may be unquoted here: in prose, and within a literal.
    pub(super) fn is_prose(&self, at: usize) -> bool {
        self.kind == Kind::Prose || (self.literal.0 <= at && at < self.literal.1)
    }

    /// Handles one word, or one other character.
    fn step(&mut self) {
        let rest = self.behind(self.at);
        if rest.starts_with("://") {
            let (found, next) = urls::spans(self.text, self.at + 3);
            self.found.extend(found);
            self.at = next;
            return;
        }
        if rest.starts_with("-----BEGIN") && self.private_key() {
            return;
        }
        let Some(first) = rest.chars().next() else { return };
        if self.at >= self.literal.1 && self.at < self.closed {
            self.at = self.closed;
            return;
        }
        if self.kind == Kind::Source && self.at >= self.literal.1 && "\"'".contains(first) {
            if let Some(it) = quoted(rest) {
                self.literal = (self.at + it.opening, self.at + it.opening + it.inside);
                self.closed = self.at + it.whole;
            }
            self.at += 1;
            return;
        }
        if self.kind == Kind::Source && first == '#' && self.at >= self.literal.1 {
            (self.literal, self.closed) = ((self.at, self.text.len()), self.text.len());
        }
        if !is_of_name(first) {
            self.at += first.len_utf8();
            return;
        }
        let length = rest.find(|it| !is_of_name(it)).unwrap_or(rest.len());
        let (from, end) = (self.at, self.at + length);
        if let Some((from, to)) = shape(self.text, from, end) {
            return self.hide(from, to);
        }
        if let Some((from, to)) = self.user(from, end).or_else(|| self.pgpass(end)) {
            return self.hide(from, to);
        }
        let name = part(self.text, from, end).trim_matches('.');
        if !self.value(name, from, end) {
            self.at = self.at.max(end);
        }
    }

    /// Hides a private key, up to its end if that is here.
    fn private_key(&mut self) -> bool {
        let rest = self.behind(self.at);
        let title = rest.chars().take(48).collect::<String>();
        if !title.contains("PRIVATE KEY") {
            return false;
        }
        let end = rest.find("-----END").and_then(|it| {
            let after = part(rest, it + 8, rest.len());
            Some(it + 8 + after.find("-----")? + 5)
        });
        self.hide(self.at, self.at + end.unwrap_or(rest.len()));
        true
    }

    /// Returns the secret of `user:secret@host`, without a scheme.
    fn user(&self, from: usize, end: usize) -> Option<Span> {
        let after = self.behind(end).strip_prefix(':')?;
        if self.before(from).ends_with(['/', ':', '@']) {
            return None;
        }
        let stop = after.find(|it: char| it.is_whitespace() || "@/\"'`<>:,".contains(it))?;
        let host = part(after, stop, after.len()).strip_prefix('@')?;
        let length = host.find(|it: char| !(it.is_alphanumeric() || ".-".contains(it))).unwrap_or(host.len());
        let is_host =
            part(host, 0, length).contains('.') || part(host, length, host.len()).starts_with([':', '/', '(']);
        let is_secret = grade(part(after, 0, stop)) >= Grade::Mixed && !host.starts_with("sha256");
        (stop > 2 && stop < 128 && is_host && is_secret).then_some((end + 1, end + 1 + stop))
    }

    /// Returns the secret of `host:port:database:user:secret`.
    fn pgpass(&self, end: usize) -> Option<Span> {
        let line = window(self.behind(end).strip_prefix(':')?);
        let line =
            part(line, 0, line.find(|it: char| it.is_whitespace() || "\"'`/".contains(it)).unwrap_or(line.len()));
        let mut fields = line.splitn(4, ':');
        let (port, database, user, secret) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let is_name =
            |name: &str| name == "*" || (name.len() > 1 && name.starts_with(|c: char| c.is_ascii_alphabetic()));
        let is_port = port == "*" || (port.len() >= 4 && port.bytes().all(|it| it.is_ascii_digit()));
        let is_secret = is_port && is_name(database) && is_name(user) && grade(secret) >= Grade::Word;
        let from = end + 1 + line.len() - secret.len();
        is_secret.then_some((from, end + 1 + line.len()))
    }
}

/// Returns the start of a text, as much as is read to decide.
pub(super) fn window(text: &str) -> &str {
    part(text, 0, text.char_indices().nth(READ_MAX).map_or(text.len(), |it| it.0))
}

/// Whether a character can be part of a name.
pub(super) fn is_of_name(it: char) -> bool {
    it.is_alphanumeric() || "_-.".contains(it)
}

/// Returns a secret that begins within a name.
fn shape(text: &str, from: usize, end: usize) -> Option<Span> {
    // What a backslash or a percent sign escapes is not a part of the name.
    let escape = match text.get(..from).and_then(|it| it.chars().next_back()) {
        Some('\\') => 1,
        Some('%') => 2,
        _ => 0,
    };
    let mut is_start = true;
    for (at, c) in part(text, from, end).char_indices() {
        if (is_start || at == escape)
            && let Some(length) = shapes::length(part(text, from + at, text.len()))
        {
            return Some((from + at, from + at + length));
        }
        is_start = "-._".contains(c);
    }
    None
}
