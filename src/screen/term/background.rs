//! Asks the terminal whether its background is dark or light.
//!
//! The question is OSC 11 of xterm. Terminals reply in order, so the reply to a second question, which all of them
//! know (DA1), ends the wait at one that does not know the first.

use super::inputs::Inputs;
use crate::screen::{
    term::inputs::{Replies, Topic},
    theme::Background,
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::{Errno, read},
    stdio::stdin,
    time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime},
};
use std::{io, str};

/// The two questions.
pub(super) const QUESTION: &str = "\x1b]11;?\x07\x1b[c";

/// How long a terminal may take to reply: a user does not notice this, and most connections are faster.
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Most bytes that are read meanwhile; the rest waits in the terminal.
const BYTES_MAX: usize = 4096;

/// From this luminance on, dark text has the higher contrast.
const LIGHT: f64 = 0.2;

/// Returns whether the terminal is one that may be queried. The Linux console does not reply, and GNU screen passes the
/// question on to every terminal that shows the session.
pub(super) fn can_reply(get: impl Fn(&str) -> Option<String>) -> bool {
    let is_gnu_screen = get("STY").is_some() && get("TMUX").is_none();
    !is_gnu_screen && get("TERM").is_some_and(|it| it != "linux")
}

/// Returns the background that the environment names: COLORFGBG of rxvt, Konsole and others, as in `0;15`; the Linux
/// console is black.
pub(super) fn of_environment(get: impl Fn(&str) -> Option<String>) -> Option<Background> {
    let named = get("COLORFGBG").and_then(|it| it.rsplit(';').next()?.parse::<u8>().ok());
    match named {
        Some(0..=6 | 8) => Some(Background::Dark),
        Some(7 | 9..=15) => Some(Background::Light),
        _ => get("TERM").filter(|it| it == "linux").map(|_| Background::Dark),
    }
}

/// Waits for the replies. Keys that arrive meanwhile, and later replies, are the inputs' part.
pub(super) fn wait(inputs: &mut Inputs) -> Option<Background> {
    let mut seen = Seen::default();
    let read = seen.wait();
    let is_late = read.is_err() || !seen.topics.contains(&Topic::Background);
    // Terminals reply in order: after the reply to the second question there is none to the first.
    inputs.begin(&seen.typed, seen.replies, is_late, seen.topics.is_empty());
    seen.background
}

/// What arrives during the wait.
#[derive(Default)]
struct Seen {
    replies: Replies<u8>,
    typed: Vec<u8>,
    topics: Vec<Topic>,
    background: Option<Background>,
}

impl Seen {
    fn wait(&mut self) -> io::Result<()> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
        let once = Itimerspec { it_interval: Timespec::default(), it_value: WAIT };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &once)?;
        let (mut buffer, mut taken) = ([0; 256], 0);
        while self.topics.is_empty() && taken < BYTES_MAX {
            let terminal = stdin();
            let mut ready = [PollFd::new(&terminal, PollFlags::IN), PollFd::new(&timer, PollFlags::IN)];
            match poll(&mut ready, None) {
                Err(Errno::INTR) => continue,
                result => result?,
            };
            // A reply that is here already counts, however late this process is.
            if ready[0].revents().is_empty() {
                break;
            }
            let count = match read(terminal, &mut buffer) {
                Err(Errno::INTR) => continue,
                result => result?,
            };
            if count == 0 {
                break;
            }
            taken += count;
            buffer[..count].iter().for_each(|it| self.take(*it));
        }
        Ok(())
    }

    fn take(&mut self, byte: u8) {
        self.typed.extend(self.replies.take(byte, &[byte]));
        if let Some((topic, body)) = self.replies.complete_one() {
            self.topics.push(topic);
            let known = luminance(&body).filter(|_| topic == Topic::Background).map(of);
            self.background = self.background.or(known);
        }
    }
}

fn of(luminance: f64) -> Background {
    if luminance < LIGHT { Background::Dark } else { Background::Light }
}

/// Returns the relative luminance (WCAG 2.2) of a colour as X11 writes it: `rgb:ffff/ffff/ffff` with one to four digits
/// a part, `rgba:` with one more part, or `#` with as many digits for each part.
fn luminance(colour: &[u8]) -> Option<f64> {
    let colour = str::from_utf8(colour).ok()?;
    let parts: Vec<&str> = if let Some(digits) = colour.strip_prefix('#') {
        let size = Some(digits.len() / 3).filter(|it| it * 3 == digits.len() && *it > 0)?;
        digits.as_bytes().chunks(size).map(str::from_utf8).collect::<Result<_, _>>().ok()?
    } else {
        let (model, parts) = colour.split_once(':')?;
        let parts: Vec<&str> = parts.split('/').collect();
        match (model, parts.len()) {
            ("rgb", 3) | ("rgba", 4) => parts,
            _ => return None,
        }
    };
    let parts: Vec<f64> = parts.into_iter().map(part).collect::<Option<_>>()?;
    Some([0.2126, 0.7152, 0.0722].iter().zip(parts).map(|(weight, it)| weight * linear(it)).sum())
}

/// Returns a part of a colour, from 0 to 1.
fn part(digits: &str) -> Option<f64> {
    let most = match digits.len() {
        size @ 1..=4 if digits.bytes().all(|it| it.is_ascii_hexdigit()) => (1_u32 << (4 * size)) - 1,
        _ => return None,
    };
    Some(f64::from(u32::from_str_radix(digits, 16).ok()?) / f64::from(most))
}

/// Linear RGB from sRGB (IEC 61966-2-1).
fn linear(part: f64) -> f64 {
    if part <= 0.040_45 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Background::{Dark, Light};

    #[test]
    fn colours_are_parsed_as_terminals_write_them() {
        for (colour, expected) in [
            ("rgb:ffff/ffff/ffff", Some(Light)),
            ("rgb:0000/0000/0000", Some(Dark)),
            ("rgb:1f/23/2b", Some(Dark)),
            ("rgb:f/F/f", Some(Light)),
            ("rgb:fff/fff/fff", Some(Light)),
            ("rgb:fdfd/f6f6/e3e3", Some(Light)),
            ("rgb:0000/2b2b/3636", Some(Dark)),
            ("rgba:ffff/ffff/ffff/0000", Some(Light)),
            ("#fafafa", Some(Light)),
            ("#000", Some(Dark)),
            ("#ffffffffffff", Some(Light)),
            ("#777", Some(Dark)),
            ("#808080", Some(Light)),
            ("", None),
            ("?", None),
            ("#", None),
            ("#ffff", None),
            ("#fffffffffffffff", None),
            ("#é0", None),
            ("rgb:ff/ff", None),
            ("rgb:ff/ff/ff/ff", None),
            ("rgba:ff/ff/ff", None),
            ("rgb:fffff/ff/ff", None),
            ("rgb:+f/ff/ff", None),
            ("rgb://", None),
            ("hsl:ff/ff/ff", None),
            ("white", None),
        ] {
            assert_eq!(luminance(colour.as_bytes()).map(of), expected, "{colour}");
        }
        assert_eq!(luminance(b"\xff"), None);
    }

    #[test]
    fn the_environment_names_a_background() {
        for (colours, term, expected) in [
            (Some("15;0"), "xterm", Some(Dark)),
            (Some("0;15"), "xterm", Some(Light)),
            (Some("0;default;7"), "xterm", Some(Light)),
            (Some("15;8"), "xterm", Some(Dark)),
            (Some("0;default"), "xterm", None),
            (Some("0;16"), "xterm", None),
            (Some(""), "xterm", None),
            (None, "xterm", None),
            (None, "linux", Some(Dark)),
            (Some("0;15"), "linux", Some(Light)),
        ] {
            let get = |name: &str| if name == "COLORFGBG" { colours.map(str::to_owned) } else { Some(term.to_owned()) };
            assert_eq!(of_environment(get), expected, "{colours:?} {term}");
        }
    }

    #[test]
    fn terminals_that_do_not_reply_themselves_are_not_queried() {
        for (environment, expected) in [
            (&[("TERM", "xterm-256color")][..], true),
            (&[("TERM", "linux")], false),
            (&[("TERM", "screen"), ("STY", "1.pts-0")], false),
            (&[("TERM", "screen"), ("STY", "1.pts-0"), ("TMUX", "/tmp/tmux")], true),
            (&[("TERM", "tmux-256color"), ("TMUX", "/tmp/tmux")], true),
            (&[], false),
        ] {
            let get = |name: &str| environment.iter().find(|it| it.0 == name).map(|it| it.1.to_owned());
            assert_eq!(can_reply(get), expected, "{environment:?}");
        }
    }
}
