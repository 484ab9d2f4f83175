//! Which texts are secrets, and how they are hidden: one list and one rule for the probe, which sends its command line,
//! and for whoever reads, records and shows it.
//!
//! A secret is known by its name (`--api-key X`, `PASSWORD=X`, `"token": "X"`, `Authorization: X`), by its place
//! (`postgres://user:X@host`, `--user name:X`) or by its shape (`hf_…`, `ghp_…`). In doubt it is hidden.

mod names;
mod scan;
mod shapes;

use names::Class;
pub use scan::{source, text};

/// What stands in the place of a secret.
pub const HIDDEN: &str = "<redacted>";

/// A command line without its secrets.
pub fn arguments<S: AsRef<str>>(argv: &[S]) -> Vec<String> {
    let mut before = Class::Plain;
    argv.iter().map(|it| argument(it.as_ref(), &mut before)).collect()
}

/// One argument; `before` is what the option before it takes, and becomes what this one takes.
fn argument(argument: &str, before: &mut Class) -> String {
    let expected = std::mem::replace(before, Class::Plain);
    let is_option = argument.starts_with("--") || (argument.starts_with('-') && expected.yields_to_options());
    if expected != Class::Plain && !is_option {
        return hidden(expected, argument);
    }
    match argument.split_once('=') {
        Some((name, value)) if is_name(name) => match names::class(name) {
            Class::Plain => format!("{name}={}", text(value)),
            class => format!("{name}={}", hidden(class, value)),
        },
        None if argument.starts_with('-') && is_name(argument) => {
            if let Some(password) = argument.strip_prefix("-p").filter(|it| is_attached_password(it)) {
                return argument.replace(password, HIDDEN);
            }
            *before = names::class(argument);
            text(argument).into_owned()
        }
        _ => text(argument).into_owned(),
    }
}

/// What stands behind a name of this class, with what is secret in it hidden.
fn hidden(class: Class, value: &str) -> String {
    if class == Class::Login
        && let Some((name, secret)) = value.split_once(':')
        && !secret.is_empty()
        && !names::is_numbers(value)
        && !secret.starts_with("//")
    {
        return format!("{name}:{HIDDEN}");
    }
    if class.is_secret(value) { HIDDEN.to_owned() } else { text(value).into_owned() }
}

/// Whether this can be the name of an option or of a variable, and is no text of another kind.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|it| it.is_alphanumeric() || "_-.+~@[]".contains(it))
}

/// Whether what stands right behind `-p` is a password, as for `mysql`, and no number or the rest of a longer option.
fn is_attached_password(text: &str) -> bool {
    let has = |is: fn(&char) -> bool| text.chars().any(|it| is(&it));
    text.len() > 2 && has(char::is_ascii_digit) && has(char::is_ascii_alphabetic) && !text.contains(['-', '_', '.'])
}

#[cfg(test)]
mod tests;
