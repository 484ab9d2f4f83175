//! Names with values: `name = X`, `"name": "X"`, `("name", "X")`, `name("X")`, lists and blocks of YAML.

use super::{
    Grade, HIDDEN, listed,
    literals::{Quoted, READ_MAX, adjoining, bare, blanks, end_of_bare, items, quoted},
    names::{Class, class, is_client, is_fingerprint, is_folder},
    scan::{Scan, is_of_name, part, window},
    values::{grade, is_random, is_reference},
};

/// The least length of a parameter of a URL that is a secret by its length.
const POLICY: usize = 80;

/// Most words between `password of` and its `is`, with that.
const OWNER_WORDS: usize = 5;

impl Scan<'_> {
    /// Hides the secret value of a name, if it has one.
    pub(super) fn value(&mut self, name: &str, from: usize, end: usize) -> bool {
        let after = self.behind(end);
        if self.is_prose(from) && name.eq_ignore_ascii_case("bearer") {
            return self.bearer(end);
        }
        let is_identified = name.eq_ignore_ascii_case("by") && ends_with_word(self.before(from), "identified");
        let is_api_key = name.eq_ignore_ascii_case("key") && ends_with_word(self.before(from), "api");
        let class = match class(name) {
            _ if is_identified => Class::Password,
            _ if is_api_key => Class::Sure,
            it => it,
        };
        if after.starts_with('(') {
            return self.call(class, name, end);
        }
        let is_partition = class == Class::Weak && self.before(from).ends_with('/');
        if class == Class::Plain && self.before(from).ends_with(['?', '&']) {
            return self.long_parameter(end);
        }
        if class == Class::Plain || is_partition || self.before(from).ends_with("${") {
            return false;
        }
        // `"name": `, `['name'] = `, and the same with quotes that are escaped.
        let closing = after.find(|it| !"\\\"'`]".contains(it)).filter(|it| *it <= 6).unwrap_or(0);
        let is_quoted = part(after, 0, closing).contains(['"', '\'']);
        let sign_at = end + closing + blanks(part(after, closing, after.len()));
        let sign = self.behind(sign_at);
        if is_quoted && sign.starts_with(',') {
            return self.pair(class, name, from, sign_at + 1);
        }
        if is_quoted && sign.starts_with(" or ") || class == Class::Login {
            return false;
        }
        if class.is_likely() && self.is_prose(from) && self.beside(class, end) {
            return true;
        }
        if sign.starts_with('>') && self.before(from).ends_with('<') && closing == 0 {
            let length = window(self.behind(sign_at + 1)).find("</").unwrap_or(0);
            return self.judge(class, sign_at + 1, sign_at + 1 + length);
        }
        let signs = sign.find(|it| !"=:>".contains(it)).unwrap_or(sign.len());
        let is_compared = part(sign, 0, signs) == "==";
        if !(["=", ":", "=>", ":="].contains(&part(sign, 0, signs)) || is_compared) {
            let is_apart = closing == 0 && sign_at > end && self.is_prose(sign_at);
            return is_apart && self.apart(class, sign_at);
        }
        let is_colon = part(sign, 0, signs) == ":";
        let from_sign = sign_at + signs;
        let from_value = if is_colon { self.past_type(from_sign) } else { from_sign };
        let from_value = from_value + blanks(self.behind(from_value));
        let value = self.behind(from_value);
        let word = value.trim_start_matches(['"', '\'']);
        let word = part(word, 0, word.find(|it: char| !it.is_ascii_alphanumeric()).unwrap_or(word.len()));
        if is_folder(name, value) || is_fingerprint(name, word) {
            return false;
        }
        self.assigned(class, name, is_colon, closing == 0 && !is_compared, from_value)
    }

    /// Hides the value of `name: TOKEN, value: X`, also if it is in the next line.
    fn beside(&mut self, class: Class, end: usize) -> bool {
        let rest = window(self.behind(end));
        let gap = rest.find(|it: char| !(it.is_whitespace() || ",\"'".contains(it))).unwrap_or(0);
        let name = part(rest, gap, rest.len());
        let after =
            name.strip_prefix("value").map(|it| it.trim_start_matches(['"', '\''])).and_then(|it| it.strip_prefix(':'));
        let Some(after) = after.filter(|_| part(rest, 0, gap).contains([',', '\n'])) else { return false };
        let from = end + rest.len() - after.len() + blanks(after);
        match quoted(self.behind(from)) {
            Some(it) => self.judge_quoted(class, from, &it),
            None => self.judge(class, from, from + bare(self.behind(from), false)),
        }
    }

    /// Hides a value of a URL's query that is as long as a signed policy, whatever its name is.
    fn long_parameter(&mut self, end: usize) -> bool {
        let Some(value) = self.behind(end).strip_prefix('=') else { return false };
        let length = bare(value, true);
        let is_secret = length >= POLICY && grade(part(value, 0, length)) == Grade::Random;
        if is_secret {
            self.hide(end + 1, end + 1 + Self::whole(value, length));
        }
        is_secret
    }

    /// Hides the value after a sign.
    fn assigned(&mut self, class: Class, name: &str, is_colon: bool, is_bare: bool, from: usize) -> bool {
        let value = self.behind(from);
        let is_closing =
            |it: char| self.before(from).chars().rev().take(256).filter(|before| *before == it).count() % 2 == 1;
        if is_bare && value.starts_with(['"', '\'']) && value.chars().next().is_some_and(is_closing) {
            // The literal of the name ends here, and another one may be added to it.
            let Some((opening, it)) = adjoining(self.behind(from + 1)) else { return false };
            return class.is_likely() && self.judge_quoted(class, from + 1 + opening, &it);
        }
        let braces = value.strip_prefix('{').filter(|_| !is_colon && class == Class::Password && is_bare);
        if let Some(end) = braces.and_then(|it| window(it).find("};").or_else(|| it.strip_suffix('}').map(str::len)))
            && grade(part(value, 1, 1 + end)) >= Grade::Mixed
            && part(value, 1, 1 + end).contains(|it: char| !(it.is_alphanumeric() || "_.:!=".contains(it)))
        {
            // As ODBC quotes.
            self.hide(from + 1, from + 1 + end);
            return true;
        }
        if is_bare && !is_colon && value.starts_with('`')
            || (value.starts_with(['{', '$', '<', '%']) && is_reference(part(value, 0, bare(value, false))))
        {
            return false;
        }
        if let Some(it) = quoted(value) {
            let is_title = part(value, it.opening, it.opening + it.inside).eq_ignore_ascii_case(name);
            return !is_title && (self.judge_quoted(class, from, &it) || self.alternative(class, from));
        }
        if value.starts_with(['[', '(', '{']) && !value.starts_with("{{") {
            return self.judge_items(class, from);
        }
        if is_colon && value.starts_with(['\n', '\r', '|', '>']) {
            return class.is_likely() && self.block(class, from);
        }
        if !self.is_prose(from) {
            return self.alternative(class, from);
        }
        let lower = name.to_lowercase();
        if is_colon && (lower.ends_with("authorization") || lower.ends_with("cookie")) {
            let length = value.find(['"', '\'', '\n', '\\']).unwrap_or(value.len());
            let whole = part(value, 0, length);
            let schemes = "apikey basic bearer digest key negotiate token";
            let secret = whole.split_once(' ').filter(|it| listed(schemes, &it.0.to_lowercase()));
            let is_word = secret.is_some() || !whole.trim().contains(char::is_whitespace);
            let least = if is_word { Grade::Word } else { Grade::Mixed };
            let secret = secret.map_or(whole, |it| it.1.trim());
            let is_secret = !is_reference(secret) && grade(secret) >= least;
            return is_secret && self.judge(Class::Password, from, from + length);
        }
        let length = bare(value, self.before(from - 1).trim_end_matches(is_of_name).ends_with(['?', '&']));
        let is_sentence = is_colon && starts_word(part(value, length, value.len()));
        let is_listed =
            is_colon && self.before(from - 1 - name.len()).ends_with(':') && self.behind(from - 1).starts_with(':');
        let is_field = !is_listed && (!is_colon || class == Class::Password || name.contains(['_', '-']) || is_bare);
        if !is_field {
            return false;
        }
        let grade = grade(part(value, 0, length));
        let least = class.least(false);
        let least = if is_sentence { least.max(Grade::Mixed) } else { least };
        if grade < least || Self::is_code(value, length) {
            return false;
        }
        let is_line = class == Class::Password && self.begins_line(from, name);
        let line = value.find(['\n', '\r', '"', '\'']).filter(|_| is_line && length < READ_MAX);
        self.hide(from, from + line.unwrap_or_else(|| Self::whole(value, length)));
        true
    }

    /// Whether a name, whose value begins here, is the first of one of several lines.
    fn begins_line(&self, from: usize, name: &str) -> bool {
        let before = self.before(from).trim_end_matches([' ', '=', ':', '\t']);
        before.strip_suffix(name).is_some_and(|it| it.trim_end_matches([' ', '-', '\t']).ends_with('\n'))
    }

    /// Returns the length of a secret of which so much is read.
    fn whole(value: &str, read: usize) -> usize {
        if read >= READ_MAX { end_of_bare(value, read) } else { read }
    }

    /// Whether an unquoted value continues as code does: `getpass()`, `batch["x"]`.
    fn is_code(value: &str, length: usize) -> bool {
        let word = part(value, 0, length);
        let is_name = word.chars().all(|it| it.is_alphabetic() || "_.".contains(it));
        is_name && !word.is_empty() && part(value, length, value.len()).starts_with(['(', '['])
    }

    /// Hides the literals of `token = f() or "…"`, `x if y else "…"` and `b64decode("…")`.
    fn alternative(&mut self, class: Class, from: usize) -> bool {
        let line = window(self.behind(from));
        let line = part(line, 0, line.find('\n').unwrap_or(line.len()));
        for (word, class) in [(" or ", class), (" else ", class), ("(", Class::Weak), ("[", Class::Weak)] {
            let at = line.find(word).map(|it| it + word.len());
            if let Some(at) = at.filter(|_| class.is_likely() || class == Class::Weak)
                && let Some(it) = quoted(part(line, at, line.len()))
                && self.judge_quoted(class, from + at, &it)
            {
                return true;
            }
        }
        false
    }

    fn bearer(&mut self, end: usize) -> bool {
        let from = end + blanks(self.behind(end));
        let length = bare(self.behind(from), false);
        let value = part(self.behind(from), 0, length);
        let is_secret = from > end && length >= 8 && grade(value) >= Grade::Mixed;
        if is_secret {
            self.hide(from, from + Self::whole(self.behind(from), length));
        }
        is_secret
    }

    /// Hides the value of `password 'X'` and `password X`.
    fn apart(&mut self, class: Class, from: usize) -> bool {
        let verb =
            ["is ", "was ", "of "].iter().find(|it| self.behind(from).starts_with(**it)).map_or(0, |it| it.len());
        let place = if verb > 0 { self.owner(from + verb) } else { 0 };
        let from = from + verb + place;
        let value = self.behind(from);
        if let Some(it) = quoted(value).filter(|it| it.opening == 1) {
            return class.is_likely() && self.judge_quoted(class, from, &it);
        }
        let length = bare(value, false);
        let word = part(value, 0, length).trim_end_matches(['.', ')', ':']);
        let grade = grade(word);
        let is_secret = match class {
            Class::Password => grade >= Grade::Mixed,
            Class::Sure | Class::Token | Class::Likely => grade == Grade::Random,
            _ => false,
        };
        if is_secret && length < 1024 {
            self.hide(from, from + word.len());
        }
        is_secret
    }

    /// Returns the bytes of `the registry is `, with which a sentence goes on before the value.
    fn owner(&self, from: usize) -> usize {
        let rest = window(self.behind(from));
        let is_word = |it: &&str| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
        let mut length = 0;
        for word in rest.split(' ').take(OWNER_WORDS).take_while(is_word) {
            length += word.len() + 1;
            if ["is", "was"].contains(&word) {
                return length;
            }
        }
        0
    }

    /// Hides the value of `("name", "X")`, `setenv("NAME", "X")` and `add_argument("--name", default="X")`.
    fn pair(&mut self, class: Class, name: &str, from: usize, comma: usize) -> bool {
        if !class.is_likely() && class != Class::Login && class != Class::Weak {
            return false;
        }
        let value_at = comma + blanks(self.behind(comma));
        let value = self.behind(value_at);
        let is_called = self.before(from).trim_end_matches(['"', '\'', '\\', '-']).ends_with('(');
        let literal = quoted(value);
        let inside = literal.as_ref().map_or("-", |it| part(value, it.opening, it.opening + it.inside));
        let Some(it) = literal.filter(|_| !inside.starts_with('-') || inside.len() >= 24 || is_random(inside)) else {
            let line = window(value);
            let line = part(line, 0, line.find('\n').unwrap_or(line.len()));
            let Some(at) = line.find("default=").map(|it| it + 8) else { return false };
            let Some(it) = quoted(part(line, at, line.len())) else { return false };
            return self.judge_quoted(class, value_at + at, &it);
        };
        if inside == "value" {
            // `{"name": "TOKEN", "value": "X"}`.
            let at = value_at + it.whole;
            let sign = self.behind(at).strip_prefix(':').map_or(0, |it| 1 + blanks(it));
            let next = quoted(self.behind(at + sign)).filter(|_| sign > 0 && class.is_likely());
            return next.is_some_and(|it| self.judge_quoted(class, at + sign, &it));
        }
        if class == Class::Login {
            let Some((user, secret)) = inside.split_once(':') else { return false };
            let from = value_at + it.opening + user.len() + 1;
            return name.starts_with('-') && self.judge(Class::Password, from, from + secret.len());
        }
        let is_option = name.starts_with('-') || is_called;
        if grade(inside) >= if is_option { class.least(false) } else { class.least(false).max(Grade::Mixed) } {
            self.hide(value_at + it.opening, value_at + it.opening + it.inside);
            return true;
        }
        false
    }

    /// Hides the literals of `login("X")`, `BasicAuth("bob", "X")`, `hmac.new("X", …)`.
    fn call(&mut self, class: Class, name: &str, opening: usize) -> bool {
        let lower = name.to_lowercase();
        let verb = lower.rsplit('.').next().unwrap_or_default();
        let is_login = ["login", "auth", "authenticate", "set_token", "login_as"].iter().any(|it| verb.ends_with(it));
        let is_keyed = lower.split('.').any(|it| ["hmac", "jwt", "fernet", "aes"].contains(&it));
        let is_connected = verb == "connect";
        // `Pinecone("X")`.
        let is_client = is_client(name);
        if !(class.is_likely() || is_login || is_keyed || is_connected || is_client) {
            return false;
        }
        let found = items(self.behind(opening));
        let positional: Vec<_> = found.iter().take_while(|it| it.name.is_none()).filter(|it| it.is_quoted).collect();
        // `connect("host", "bob", "X", "database")`.
        let it = if is_connected { positional.get(2) } else { positional.last() };
        let Some(it) = it else { return false };
        let (from, to) = (opening + it.span.0, opening + it.span.1);
        let is_asked = ["get", "load", "read", "fetch", "find"].iter().any(|it| verb.starts_with(it));
        let least = match positional.len() {
            _ if is_keyed || is_connected => Grade::Mixed,
            _ if is_client && !is_login => Grade::Random,
            _ if is_asked => Grade::Random,
            1 => Grade::Random,
            2 if is_login => Grade::Word,
            _ => Grade::Mixed,
        };
        if grade(part(self.text, from, to)) >= least {
            self.hide(from, to);
        }
        false
    }

    /// Hides the secrets of a list, a tuple or a mapping.
    fn judge_items(&mut self, class: Class, from: usize) -> bool {
        if !class.is_likely() && class != Class::Weak {
            return false;
        }
        let found = items(self.behind(from));
        let is_pair = self.behind(from).starts_with('(')
            && found.len() == 2
            && found.iter().all(|it| it.is_quoted && it.name.is_none());
        for (index, it) in found.iter().enumerate() {
            if !it.is_quoted && !self.is_prose(from + it.span.0) {
                continue;
            }
            let (from, to) = (from + it.span.0, from + it.span.1);
            let least = match class {
                Class::Weak => Grade::Random,
                Class::Sure | Class::Password if is_pair && index == 1 => Grade::Word,
                _ => Grade::Mixed,
            };
            if grade(part(self.text, from, to)) >= least {
                self.found.push((from, to));
            }
        }
        // Names within are read on their own.
        false
    }

    /// Hides the lines of a block of YAML.
    fn block(&mut self, class: Class, from: usize) -> bool {
        let indent = |line: &str| line.len() - line.trim_start_matches([' ', '-']).len();
        let line: String = self.before(from).chars().rev().take(READ_MAX).take_while(|it| *it != '\n').collect();
        let own = line.len() - line.trim_end_matches(' ').len();
        let is_text = self.behind(from).starts_with(['|', '>']);
        let Some(first) = window(self.behind(from)).find('\n') else { return false };
        let mut at = from + first + 1;
        for _ in 0..64 {
            let line = window(self.behind(at));
            let line = part(line, 0, line.find('\n').unwrap_or(line.len()));
            if line.is_empty() || indent(line) <= own {
                break;
            }
            let start = line.rfind(": ").map_or(indent(line), |it| it + 2);
            let value = part(line, start, line.len());
            let quotes = usize::from(value.starts_with(['"', '\'']));
            let least = if is_text { class.least(false) } else { Grade::Mixed };
            if grade(value.trim_matches(['"', '\''])) >= least {
                self.found.push((at + start + quotes, at + line.trim_end_matches(['"', '\'', '\r']).len()));
            }
            at += line.len() + 1;
        }
        false
    }

    /// Hides a literal if it is a secret, and those that Python joins to it.
    fn judge_quoted(&mut self, class: Class, from: usize, it: &Quoted) -> bool {
        let mut is_hidden = self.judge(class, from + it.opening, from + it.opening + it.inside);
        let mut at = from + it.whole;
        for _ in 0..16 {
            let Some((opening, next)) = adjoining(self.behind(at)) else { break };
            let from = at + opening + next.opening;
            is_hidden |= self.judge(class, from, from + next.inside);
            at += opening + next.whole;
        }
        is_hidden
    }

    /// Hides a value if it is a secret.
    fn judge(&mut self, class: Class, from: usize, to: usize) -> bool {
        let is_secret = grade(part(self.text, from, to)) >= class.least(false) && part(self.text, from, to) != HIDDEN;
        if is_secret {
            self.hide(from, to);
        }
        is_secret
    }

    /// Returns the position after `: str =`, in source code; otherwise the same position.
    fn past_type(&self, from: usize) -> usize {
        let is_of_type = |it: char| it.is_alphanumeric() || "_.[]| ".contains(it);
        let rest = self.behind(from);
        let sign = rest.find(|it| !is_of_type(it)).filter(|it| part(rest, *it, rest.len()).starts_with('='));
        if self.is_prose(from) { from } else { sign.filter(|it| *it < 64).map_or(from, |it| from + it + 1) }
    }
}

/// Whether a text ends with this word and blanks.
fn ends_with_word(text: &str, word: &str) -> bool {
    let text = text.trim_end_matches(' ');
    text.len().checked_sub(word.len()).and_then(|it| text.get(it..)).is_some_and(|it| it.eq_ignore_ascii_case(word))
}

/// Whether the text continues with a word, as a sentence does.
fn starts_word(text: &str) -> bool {
    let after = text.trim_start_matches(' ');
    after.len() < text.len() && after.starts_with(|it: char| it.is_ascii_lowercase()) && {
        let word = after.find(|it: char| !it.is_alphanumeric() && it != '_').unwrap_or(after.len());
        !part(after, word, after.len()).starts_with(['=', ':'])
    }
}
