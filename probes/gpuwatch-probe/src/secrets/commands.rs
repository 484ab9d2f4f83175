//! Secrets in command lines: values of options, of variables, and arguments that a program takes as a secret.

use super::{
    Grade, Span, listed,
    literals::bare,
    names::{Class, class, is_fingerprint, is_folder},
    programs::{Program, Take, program},
    values::{grade, is_quantity, is_reference},
};

/// Verbs that are followed by a secret.
const LOGINS: &str = "add-authtoken authenticate authtoken login set-key set-token signin secret";

/// Verbs that are followed by a name and its value.
const SETTERS: &str = "add config configure modify put set setenv";

/// Options that read a secret from what the command before a `|` prints.
const FROM_PIPE: &str = "--password-stdin -S --with-token --stdin --token-stdin chpasswd --passphrase-fd";

/// Words with which a sentence about an option continues: `--token is required`.
const CONTINUE: &str = "\
    accepts and are argument as at because before but by can cannot does expects flag for from has if in instead is may \
    must needs not of on option or overrides parameter reads requires should so specifies takes than that then to unless \
    until using via was when which will with without";

/// Groups of users, as in `--user root:video`.
const GROUPS: &str = "\
    adm audio daemon docker group nobody nogroup render root staff sudo tty users video wheel www-data";

/// What `--secret` of Docker and Podman takes.
const MOUNTS: &str = "dst env gid id mode required source src target type uid";

/// How many names may follow each other, as in `--env=TOKEN=X`.
const NESTED_MAX: usize = 8;

/// A secret of a command line: the word, and the part of it.
pub(super) type Found = (usize, Span);

/// Returns the secrets of a command line; `is_argv` is whether each word is an argument, not a word of a text.
pub(super) fn spans(words: &[&str], is_argv: bool) -> Vec<Found> {
    let mut line = Line { words, is_argv, found: Vec::new(), command: Command::default(), printed: Vec::new() };
    for at in 0..words.len() {
        line.word(at);
    }
    line.end();
    line.found
}

/// What is known of the current command.
#[derive(Default)]
struct Command {
    program: Option<&'static Program>,
    /// The class of the value that the option before takes.
    expected: Option<(Class, bool)>,
    is_login: bool,
    has_user: bool,
    /// Whether it reads a secret from its input.
    reads_input: bool,
    /// The position of the latest verb like `set`.
    setter: Option<usize>,
    /// The class of the name before, if it is not an option.
    name: Option<(usize, Class)>,
    /// Arguments that are not options, after the program.
    positional: Vec<usize>,
    options: String,
}

struct Line<'a> {
    words: &'a [&'a str],
    is_argv: bool,
    found: Vec<Found>,
    command: Command,
    /// What the command before a `|` prints.
    printed: Vec<usize>,
}

impl Line<'_> {
    fn hide(&mut self, at: usize, from: usize) {
        if let Some(word) = self.words.get(at) {
            self.found.push((at, (from, word.len())));
        }
    }

    /// Hides a value, from a position of a word on, if it is a secret.
    fn judge(&mut self, at: usize, from: usize, class: Class, is_option: bool) -> bool {
        let value = self.words.get(at).and_then(|it| it.get(from..)).unwrap_or_default();
        if class == Class::Login {
            return self.login(at, from, value);
        }
        let is_list = value.starts_with(['[', '(', '{']) && value.ends_with([']', ')', '}']);
        // As in `-o credentials=PATH,vers=3.0`.
        let first = value.get(..bare(value, false)).unwrap_or_default();
        let is_path = first.len() < value.len() && first.starts_with('/') && grade(first) == Grade::Nothing;
        let is_secret = !is_list && !is_path && !is_mounted(value) && grade(value) >= class.least(is_option);
        if is_secret {
            self.hide(at, from);
        }
        is_secret
    }

    /// Hides the secret of `name:secret`.
    fn login(&mut self, at: usize, from: usize, value: &str) -> bool {
        let program = self.command.program;
        let separators: &[char] = if program.is_some_and(Program::takes_login) { &[':', '%', ','] } else { &[':'] };
        let Some(sign) = value.find(separators) else { return false };
        let (name, secret) = (value.get(..sign).unwrap_or_default(), value.get(sign + 1..).unwrap_or_default());
        let is_group = !program.is_some_and(Program::takes_login) && (listed(GROUPS, secret) || secret == name);
        // The key of a service may be the name.
        if grade(name) == Grade::Random {
            self.hide(at, from);
            return true;
        }
        if secret.is_empty() || is_quantity(value) || is_group || secret.starts_with("//") || is_reference(secret) {
            return false;
        }
        self.hide(at, from + sign + 1);
        true
    }

    fn word(&mut self, at: usize) {
        let Some(&word) = self.words.get(at) else { return };
        if is_separator(word) {
            return self.separate(word);
        }
        if self.command.program.is_none() || self.command.positional.is_empty() {
            self.find_program(word);
        }
        if listed(FROM_PIPE, word) || word.split(',').any(|it| it == "password_stdin") {
            self.command.reads_input = true;
            for printed in std::mem::take(&mut self.printed) {
                self.judge(printed, 0, Class::Password, true);
            }
        }
        if word == "<<<" && self.command.reads_input {
            self.command.expected = Some((Class::Password, true));
            return;
        }
        let name = self.command.name.take();
        if let Some((class, is_greedy)) = self.command.expected.take() {
            let is_option = word.starts_with("--") || (word.starts_with('-') && (!is_greedy || word.len() <= 2));
            if !is_option {
                self.judge(at, 0, class, true);
                return;
            }
        }
        if word.starts_with('-') && word.len() > 1 {
            self.option(at, word);
            return self.expect_header(word);
        }
        if self.windows(at, word) || self.assignment(at) {
            return;
        }
        self.expect_header(word);
        self.positional(at, word, name);
    }

    fn expect_header(&mut self, word: &str) {
        // A header that lacks its quotes is two arguments.
        let lower = word.to_lowercase();
        if lower.contains("authorization:") && ["bearer", "basic", "token"].iter().any(|it| lower.ends_with(it)) {
            self.command.expected = Some((Class::Password, true));
        }
    }

    fn separate(&mut self, word: &str) {
        self.end();
        let is_pipe = word == "|";
        let first = self.command.positional.first().copied().and_then(|it| self.words.get(it));
        let is_printed = first.is_some_and(|it| ["echo", "printf"].contains(it));
        self.printed =
            if is_pipe && is_printed { self.command.positional.iter().skip(1).copied().collect() } else { Vec::new() };
        self.command = Command::default();
    }

    fn find_program(&mut self, word: &str) {
        if let Some(it) = program(word.rsplit(['/', '\\']).next().unwrap_or_default()) {
            self.command.program = Some(it);
            self.command.positional.clear();
            self.command.options.clear();
        }
    }

    /// Handles an argument that begins with a dash.
    fn option(&mut self, at: usize, word: &str) {
        if let Some((from, class)) = self.of_program(word) {
            if let Some(from) = from {
                self.judge(at, from, class, true);
            } else {
                self.command.expected = Some((class, true));
            }
            return;
        }
        if !word.starts_with("--") {
            self.command.options.push_str(word.get(1..).unwrap_or_default());
        }
        let is_user = ["-u", "-U", "--user", "--username", "--login", "-l"].contains(&word);
        let next = self.words.get(at + 1).copied().unwrap_or_default();
        self.command.has_user |= is_user && !next.starts_with('-') && grade(next) >= Grade::Word;
        if self.assignment(at) {
            return;
        }
        if word == "-p" {
            if self.command.has_user && self.command.program.is_none_or(|it| !it.has_other_p()) {
                self.command.expected = Some((Class::Sure, true));
            } else if is_like_password(next) && self.command.program.is_none_or(|it| !it.has_other_p()) {
                self.command.expected = Some((Class::Likely, true));
            }
            return;
        }
        if let Some(attached) = word.strip_prefix("-p").filter(|it| is_attached_password(it))
            && self.command.program.is_none_or(|it| !it.has_other_p())
        {
            return self.hide(at, word.len() - attached.len());
        }
        if word.starts_with("-u") && word.contains(':') && !word.contains("://") {
            self.login(at, 2, word.get(2..).unwrap_or_default());
            return;
        }
        let is_sentence = !self.is_argv && listed(CONTINUE, next);
        if is_name(word) && !word.contains(':') && !is_sentence {
            let class = class(word);
            self.command.expected = (class != Class::Plain).then_some((class, class.is_likely()));
        }
    }

    /// Returns what an option of a known program takes: the position of an attached value, and its class.
    fn of_program(&self, word: &str) -> Option<(Option<usize>, Class)> {
        let program = self.command.program?;
        for (option, take) in program.options {
            let rest = word.strip_prefix(option);
            match (take, rest) {
                (Take::AfterLogin, Some(_)) if !self.command.is_login => {}
                (Take::Password | Take::Separate | Take::AfterLogin, Some("")) => return Some((None, Class::Password)),
                (Take::Login, Some("")) => return Some((None, Class::Login)),
                (Take::Cookie, Some("")) => return Some((None, Class::Likely)),
                (Take::AfterLogin, Some(rest)) if rest.starts_with('=') => {
                    return Some((Some(word.len() - rest.len() + 1), Class::Password));
                }
                (Take::Password | Take::Attached | Take::AfterLogin, Some(rest))
                    if !rest.is_empty() && (option.len() == 2 || rest.starts_with('=')) && !word.starts_with("--") =>
                {
                    return Some((Some(word.len() - rest.len()), Class::Password));
                }
                (Take::Login, Some(rest)) if option.len() == 2 && !rest.is_empty() => {
                    return Some((Some(2), Class::Login));
                }
                // As in `-Lu bob:X`.
                (Take::Login, None) if is_group_of(word, option) => return Some((None, Class::Login)),
                _ => {}
            }
        }
        None
    }

    /// Handles `/p:X` and `/password:X`.
    fn windows(&mut self, at: usize, word: &str) -> bool {
        let Some((name, value)) = word.strip_prefix('/').and_then(|it| it.split_once(':')) else { return false };
        let is_short = name == "p" && self.command.program.is_some_and(Program::has_slash_options);
        if value.is_empty() || name.contains('/') {
            return false;
        }
        if !(is_short || class(name).is_likely()) {
            return self.command.program.is_some_and(Program::has_slash_options);
        }
        self.judge(at, name.len() + 2, if is_short { Class::Password } else { class(name) }, true)
    }

    /// Handles `NAME=X`, `--name=X`, `-DNAME=X` and `--option=NAME=X`.
    fn assignment(&mut self, at: usize) -> bool {
        let Some(&word) = self.words.get(at).filter(|_| self.is_argv) else { return false };
        let mut start = 0;
        // An assignment may be the value of an option, as in `--env=TOKEN=X`.
        for _ in 0..NESTED_MAX {
            let text = word.get(start..).unwrap_or_default();
            let Some((name, value)) = text.split_once('=').filter(|it| is_name(it.0)) else { return false };
            start += name.len() + 1;
            if !is_folder(name, value) && !is_fingerprint(name, value) && self.judge(at, start, class(name), true) {
                return true;
            }
            let user = value.split_once('%').filter(|_| ["user", "username"].contains(&name));
            if let Some((user, secret)) = user.filter(|it| grade(it.1) >= Grade::Mixed) {
                let from = start + user.len() + 1;
                let is_escaped = secret.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
                if !is_escaped || secret.starts_with(char::is_alphabetic) {
                    self.hide(at, from);
                    return true;
                }
            }
        }
        false
    }

    fn positional(&mut self, at: usize, word: &str, name: Option<(usize, Class)>) {
        if let Some((_, class)) = name {
            let is_set = self.command.setter.is_some_and(|it| at - it <= 4);
            let value = grade(word);
            let least = match (is_set, self.is_argv) {
                (true, true) => class.least(false),
                (false, true) | (true, false) => class.least(false).max(Grade::Mixed),
                (false, false) => Grade::Random,
            };
            if value >= least && !word.ends_with(':') {
                self.hide(at, 0);
                return;
            }
        }
        let is_key = word.len() >= 16 && !word.contains([':', '/', '@']) && !(word.contains('.') && word.len() < 32);
        if self.command.is_login && is_key && grade(word) == Grade::Random {
            self.hide(at, 0);
        }
        self.command.is_login |= listed(LOGINS, word) && !self.command.positional.is_empty();
        if listed(SETTERS, word) {
            self.command.setter = Some(at);
        }
        let class = if is_name(word) { class(word) } else { Class::Plain };
        // `docker run -e TOKEN image` takes the variable's value from the environment.
        let before = at.checked_sub(1).and_then(|it| self.words.get(it)).copied().unwrap_or_default();
        let is_passed_on = ["-e", "--env"].contains(&before);
        self.command.name = (class.is_likely() && !is_passed_on).then_some((at, class));
        for prefix in ["pass:", "password:"] {
            if let Some(rest) = word.strip_prefix(prefix).filter(|it| !it.is_empty())
                && self.command.program.is_some_and(Program::has_pass_prefix)
            {
                self.hide(at, word.len() - rest.len());
            }
        }
        self.command.positional.push(at);
    }

    /// Hides the arguments that the program of a finished command takes as secrets.
    fn end(&mut self) {
        let Some(program) = self.command.program else { return };
        let given: Vec<usize> = self.command.positional.iter().skip(1).copied().collect();
        for (verbs, option, count, secrets) in program.positional {
            let is_verb = given
                .iter()
                .zip(*verbs)
                .all(|(at, verb)| self.words.get(*at).is_some_and(|it| verb.split('|').any(|verb| verb == *it)))
                && given.len() >= verbs.len();
            let has_option = option.is_empty() || self.command.options.contains(option);
            if is_verb && has_option && given.len() - verbs.len() >= *count {
                for at in given.iter().skip(verbs.len() + count - secrets) {
                    self.judge(*at, 0, Class::Password, true);
                }
            }
        }
        if program.has_slash_login() {
            for at in given {
                let word = self.words.get(at).copied().unwrap_or_default();
                let user = word.split('@').next().unwrap_or_default();
                if let Some((name, secret)) = user.split_once('/').filter(|it| !it.1.is_empty()) {
                    self.found.push((at, (name.len() + 1, name.len() + 1 + secret.len())));
                }
            }
        }
    }
}

/// Whether a value says where a secret comes from or goes, as in `--secret id=x,src=FILE` of Docker.
fn is_mounted(value: &str) -> bool {
    let is_known = |it: &str| it.split_once('=').is_some_and(|(name, _)| listed(MOUNTS, name));
    let mut fields = value.split(',');
    let first = fields.next().unwrap_or_default();
    let is_name = !first.contains('=') && value.len() > first.len() && grade(first) < Grade::Random;
    (is_name || is_known(first)) && fields.all(is_known)
}

/// Whether several short options are one word that ends with this one.
fn is_group_of(word: &str, option: &str) -> bool {
    let letters = word.strip_prefix('-').unwrap_or_default();
    let last = option.strip_prefix('-').unwrap_or(option);
    last.len() == 1
        && letters.len() < 6
        && letters.ends_with(last)
        && letters.bytes().all(|it| it.is_ascii_alphabetic())
}

/// Whether this can be the name of an option or of a variable.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.chars().all(|it| it.is_alphanumeric() || "_-.+~@[]/:".contains(it))
        && !text.contains("://")
}

/// Whether the text right after `-p` is a password, as for `mysql`, and not a number or the rest of a longer option.
fn is_attached_password(text: &str) -> bool {
    let has = |is: fn(&char) -> bool| text.chars().any(|it| is(&it));
    text.len() >= 6
        && has(char::is_ascii_digit)
        && has(char::is_ascii_alphabetic)
        && !text.contains(['-', '_', '.', '/', ':', ','])
        && grade(text) >= Grade::Mixed
}

/// Whether the argument after `-p` is a password, and not the name of a partition, a port or a path.
fn is_like_password(text: &str) -> bool {
    text.len() >= 7 && is_attached_password(text) || grade(text) == Grade::Random
}

/// Splits a text into words as a shell does, without the quotes around them; `;`, `|`, `&&` and ends of lines are
/// words.
pub(super) fn words(text: &str) -> Vec<Span> {
    let (mut found, mut at) = (Vec::new(), 0);
    let (mut is_open_single, mut is_open_double) = (true, true);
    while let Some(c) = text.get(at..).and_then(|it| it.chars().next()) {
        let rest = text.get(at..).unwrap_or_default();
        let is_open = if c == '"' { &mut is_open_double } else { &mut is_open_single };
        if "\"'".contains(c) && *is_open {
            if let Some(length) = rest.get(1..).and_then(|it| it.find(c)) {
                found.push((at + 1, at + 1 + length));
                at += length + 2;
                continue;
            }
            *is_open = false;
        }
        if c == '\n' || ";|&".contains(c) {
            let length = rest.find(|it| it != c).unwrap_or(rest.len());
            found.push((at, at + length));
            at += length;
        } else if c.is_whitespace() {
            at += c.len_utf8();
        } else {
            let length = rest.char_indices().find(|(it, c)| {
                c.is_whitespace()
                    || ";|".contains(*c)
                    || (*c == '&' && rest.get(*it..).is_some_and(|after| after.starts_with("&&")))
                    || ("\"'".contains(*c) && rest.get(..*it).is_some_and(|before| before.ends_with(['=', '('])))
                    // As in `-p'a b'`.
                    || ("\"'".contains(*c) && *it == 2 && rest.starts_with('-'))
            });
            let length = length.map_or(rest.len(), |it| it.0).max(c.len_utf8());
            let attached = rest.get(length..).and_then(|after| {
                let is_quote = |c: &char| length == 2 && rest.starts_with('-') && "\"'".contains(*c);
                let quote = after.chars().next().filter(is_quote)?;
                after.get(1..)?.find(quote).map(|end| end + 2)
            });
            let length = length + attached.unwrap_or(0);
            found.push((at, at + length));
            at += length;
        }
    }
    found
}

/// Whether a word separates two commands.
fn is_separator(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|it| "\n;|&".contains(it))
}
