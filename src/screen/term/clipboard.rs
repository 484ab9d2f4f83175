//! The clipboard of whoever sits at the terminal, also at the other end of ssh: OSC 52.

use crate::facts::text::Foreign;

/// Bytes that are sent at most; more than terminals are known to take of one sequence would be lost whole.
const BYTES_MAX: usize = 8 << 10;

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The sequence that puts a text into the clipboard: escaped, so that pasting it presses no key, and cut at a letter.
pub(super) fn sequence(text: &str) -> String {
    let mut clean = Foreign::new(text).to_string();
    while clean.len() > BYTES_MAX {
        clean.pop();
    }
    format!("\x1b]52;c;{}\x1b\\", base64(clean.as_bytes()))
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let group = three.iter().fold(0_usize, |sum, it| sum << 8 | usize::from(*it)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let digit = DIGITS[group >> (18 - 6 * place) & 63];
            out.push(if place <= three.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of RFC 4648, section 10.
    #[test]
    fn base64_is_that_of_the_standard() {
        for (text, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(text.as_bytes()), coded);
        }
        assert_eq!(base64(&[0xff, 0xfe, 0xfd]), "//79");
    }

    #[test]
    fn what_is_copied_presses_no_key_and_has_an_end() {
        assert_eq!(sequence("a\r\x1b[A"), sequence("a\\u{d}\\u{1b}[A"));
        let long = sequence(&"训".repeat(BYTES_MAX));
        assert!(long.len() <= BYTES_MAX.div_ceil(3) * 4 + 12 && long.is_ascii(), "{}", long.len());
    }
}
