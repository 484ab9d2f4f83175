//! Detects and hides secrets in texts: one list and one rule for the probe, which sends its command line, and for
//! viewers, which read, record and show it.
//!
//! A secret is recognised by its name (`--api-key X`, `PASSWORD=X`, `"token": "X"`, `Authorization: X`), by its place
//! (`postgres://user:X@host`, `--user name:X`) or by its shape (`hf_…`, `ghp_…`). In doubt it is hidden.

mod names;
mod scan;
mod shapes;

use names::Class;
pub use scan::{source, text};

/// Replaces a secret.
pub const HIDDEN: &str = "<redacted>";

/// Returns a command line without its secrets.
pub fn arguments<S: AsRef<str>>(argv: &[S]) -> Vec<String> {
    let mut before = Class::Plain;
    argv.iter().map(|it| argument(it.as_ref(), &mut before)).collect()
}

/// Returns one argument without its secrets; `before` is the class of value that the option before it takes, and is
/// updated to what this one takes.
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

/// Hides what is secret in the value of a name of this class.
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

/// Whether this can be the name of an option or of a variable.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|it| it.is_alphanumeric() || "_-.+~@[]".contains(it))
}

/// Whether the text right after `-p` is a password, as for `mysql`, and not a number or the rest of a longer option.
fn is_attached_password(text: &str) -> bool {
    let has = |is: fn(&char) -> bool| text.chars().any(|it| is(&it));
    text.len() > 2 && has(char::is_ascii_digit) && has(char::is_ascii_alphabetic) && !text.contains(['-', '_', '.'])
}

#[cfg(test)]
mod tests;
