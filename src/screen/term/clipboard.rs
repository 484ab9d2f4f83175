//! The clipboard of the user's terminal, also over ssh: OSC 52.

use crate::facts::text::Foreign;
use crossterm::{Command, clipboard::CopyToClipboard};

/// Most bytes sent; terminals drop longer sequences completely.
const BYTES_MAX: usize = 8 << 10;

/// Returns the sequence that copies a text: escaped, so that pasting it presses no key, and cut between characters.
pub(super) fn sequence(text: &str) -> String {
    let mut clean = Foreign::new(text).to_string();
    while clean.len() > BYTES_MAX {
        clean.pop();
    }
    let mut out = String::new();
    // Writing into a String cannot fail.
    let _ = CopyToClipboard::to_clipboard_from(clean).write_ansi(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copied_text_presses_no_key_and_has_an_end() {
        assert_eq!(sequence("foobar"), "\x1b]52;c;Zm9vYmFy\x1b\\");
        assert_eq!(sequence("a\r\x1b[A"), sequence("a\\u{d}\\u{1b}[A"));
        let long = sequence(&"训".repeat(BYTES_MAX));
        assert!(long.len() <= BYTES_MAX.div_ceil(3) * 4 + 12 && long.is_ascii(), "{}", long.len());
    }
}
