//! Checks what the terminal can show.

use super::Check;
use crate::screen::{term, theme::ColorDepth};
use rustix::{stdio::stdout, termios::tcgetwinsize};
use std::{
    env,
    io::{self, IsTerminal},
};

/// The smallest useful screen.
const SMALLEST: (u16, u16) = (40, 12);

pub(super) fn checks() -> Vec<Check> {
    vec![terminal(), locale()]
}

fn terminal() -> Check {
    const NAME: &str = "terminal";
    let set = |name: &str| env::var(name).ok().filter(|it| !it.is_empty());
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        let advice = "the live view needs one for standard input and output; `gpuwatch once` does not";
        return Check::warn(NAME, "standard input or output is not a terminal", advice);
    }
    if !term::is_screen() {
        let value = set("TERM").unwrap_or_default();
        return Check::warn(
            NAME,
            format!("TERM={value} can move no cursor"),
            "set TERM to what the terminal is, as in xterm-256color",
        );
    }
    let size = tcgetwinsize(stdout()).map_or((0, 0), |it| (it.ws_col, it.ws_row));
    let colours = match term::color_depth() {
        ColorDepth::None => "no colours",
        ColorDepth::Ansi16 => "16 colours",
        ColorDepth::Ansi256 => "256 colours",
        ColorDepth::TrueColor => "24-bit colours",
    };
    let what = format!("{}×{}, {colours}, pictures in one piece where it knows mode 2026", size.0, size.1);
    if size.0 < SMALLEST.0 || size.1 < SMALLEST.1 {
        return Check::warn(NAME, what, format!("make it {}×{} or larger", SMALLEST.0, SMALLEST.1));
    }
    if set("TMUX").is_some() || set("TERM").is_some_and(|it| it.starts_with("tmux")) {
        let advice = "in tmux, copying (OSC 52) wants `set -g set-clipboard on`, and of --notify only the bell passes";
        return Check { advice: Some(advice.to_owned()), ..Check::ok(NAME, what) };
    }
    if set("TERM").is_some_and(|it| it.starts_with("screen")) {
        return Check::warn(NAME, what, "GNU screen passes no clipboard (OSC 52) on; tmux does");
    }
    Check::ok(NAME, what)
}

fn locale() -> Check {
    const NAME: &str = "locale";
    let value =
        ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|it| env::var(it).ok().filter(|value| !value.is_empty()));
    let value = value.unwrap_or_else(|| "none".to_owned());
    if term::is_ascii_only() {
        return Check::warn(
            NAME,
            format!("{value}: graphs are drawn in ASCII"),
            "set LC_ALL to a UTF-8 locale, as in C.UTF-8",
        );
    }
    Check::ok(NAME, format!("{value}: UTF-8"))
}
