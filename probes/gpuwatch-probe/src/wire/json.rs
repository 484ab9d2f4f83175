//! Writes JSON without serde: objects and lists to which fields are appended.

use super::GROUPS_MAX;

/// An object with at least one field.
pub(super) struct Object<'a> {
    pub(super) out: &'a mut String,
}

/// The position of an item in a list.
pub(super) struct List<'a> {
    pub(super) out: &'a mut String,
}

impl<'a> List<'a> {
    /// Creates an object whose first field is a text.
    pub(super) fn object(self, name: &str, value: &str, limit: usize) -> Object<'a> {
        self.out.push_str("{\"");
        self.out.push_str(name);
        self.out.push_str("\":");
        quoted(value, limit, self.out);
        Object { out: self.out }
    }

    pub(super) fn number(self, value: u64) {
        digits(value, self.out);
    }
}

impl<'a> Object<'a> {
    pub(super) fn open(out: &'a mut String, kind: &str) -> Self {
        out.push_str("{\"type\":\"");
        out.push_str(kind);
        out.push('"');
        Self { out }
    }

    pub(super) fn name(&mut self, name: &str) {
        self.out.push_str(",\"");
        self.out.push_str(name);
        self.out.push_str("\":");
    }

    pub(super) fn number(mut self, name: &str, value: u64) -> Self {
        self.name(name);
        digits(value, self.out);
        self
    }

    pub(super) fn some(self, name: &str, value: Option<u64>) -> Self {
        match value {
            Some(value) => self.number(name, value),
            None => self,
        }
    }

    /// Appends pairs, up to the limit.
    pub(super) fn pairs(mut self, name: &str, pairs: &[(u64, u64)]) -> Self {
        for (index, (one, other)) in pairs.iter().take(GROUPS_MAX).enumerate() {
            if index == 0 {
                self.name(name);
            }
            self.out.push(if index == 0 { '[' } else { ',' });
            self.out.push('[');
            digits(*one, self.out);
            self.out.push(',');
            digits(*other, self.out);
            self.out.push(']');
        }
        if !pairs.is_empty() {
            self.out.push(']');
        }
        self
    }

    /// Appends items; leaves out those that write nothing.
    pub(super) fn list<T>(
        mut self,
        name: &str,
        items: impl Iterator<Item = T>,
        mut write: impl FnMut(T, List<'_>),
    ) -> Self {
        self.name(name);
        self.out.push('[');
        for item in items {
            let before = self.out.len();
            if !self.out.ends_with('[') {
                self.out.push(',');
            }
            let begun = self.out.len();
            write(item, List { out: self.out });
            if self.out.len() == begun {
                self.out.truncate(before);
            }
        }
        self.out.push(']');
        self
    }

    pub(super) fn truth(mut self, name: &str, value: bool) -> Self {
        self.name(name);
        self.out.push_str(if value { "true" } else { "false" });
        self
    }

    /// Ends an object inside a line.
    pub(super) fn end(self) {
        self.out.push('}');
    }

    pub(super) fn signed(mut self, name: &str, value: Option<i64>) -> Self {
        if let Some(value) = value {
            self.name(name);
            if value < 0 {
                self.out.push('-');
            }
            digits(value.unsigned_abs(), self.out);
        }
        self
    }

    /// Appends a word of the wire itself, which needs no escape.
    pub(super) fn word(mut self, name: &str, word: &str) -> Self {
        self.name(name);
        self.out.push('"');
        self.out.push_str(word);
        self.out.push('"');
        self
    }

    pub(super) fn text(mut self, name: &str, text: &str, limit: usize) -> Self {
        self.name(name);
        quoted(text, limit, self.out);
        self
    }

    pub(super) fn some_text(self, name: &str, text: Option<&str>, limit: usize) -> Self {
        match text {
            Some(text) => self.text(name, text, limit),
            None => self,
        }
    }

    pub(super) fn close(self) {
        self.out.push_str("}\n");
    }
}

/// Appends a JSON string; text over the limit ends in an ellipsis.
pub(crate) fn quoted(text: &str, limit: usize, out: &mut String) {
    out.push('"');
    let mut bytes = 0;
    for c in text.chars() {
        bytes += c.len_utf8();
        if bytes > limit {
            out.push('…');
            break;
        }
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if u32::from(c) < 0x20 => {
                out.push_str("\\u00");
                out.push(if u32::from(c) < 0x10 { '0' } else { '1' });
                out.push(char::from_digit(u32::from(c) % 16, 16).unwrap_or('0'));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Appends an unsigned number.
pub(super) fn digits(mut value: u64, out: &mut String) {
    let mut text = [b'0'; 20];
    let mut used = 0;
    for place in text.iter_mut().rev() {
        *place = b'0' + u8::try_from(value % 10).unwrap_or(0);
        value /= 10;
        used += 1;
        if value == 0 {
            break;
        }
    }
    out.extend(text.iter().skip(20 - used).map(|&it| char::from(it)));
}
