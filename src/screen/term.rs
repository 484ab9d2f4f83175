//! The terminal: taken, given back by one guard, also when the program panics.

/// What is copied.
mod clipboard;
/// What the terminal writes with.
mod pen;
/// What is sent to it.
mod writer;

use crate::screen::theme::ColorDepth;
use crossterm::{
    cursor,
    event::{DisableBracketedPaste, EnableBracketedPaste},
    execute,
    style::Print,
    terminal::{EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
};
use ratatui::{Frame, Terminal, backend::Backend};
use rustix::process::{Signal, kill_current_process_group};
use std::{
    env,
    fs::File,
    io::{self, IsTerminal, Write},
    os::fd::AsFd,
    panic,
    sync::{
        Once,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
};
use writer::Writer;

static TAKEN: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// Clicks, the wheel, and moves with a button down, with places beyond column 223; of moves without one a view has no use,
/// and a slow line no room.
const MOUSE: &str = "\x1b[?1000h\x1b[?1002h\x1b[?1006h";
const NO_MOUSE: &str = "\x1b[?1006l\x1b[?1002l\x1b[?1000l";

/// The terminal while it is ours. Dropping it gives it back.
pub struct Screen {
    terminal: Terminal<Writer<File>>,
    mouse: bool,
}

impl Screen {
    /// Takes it: raw mode, the alternate screen, and the mouse if it is wanted.
    ///
    /// # Errors
    /// When there is no terminal, or it does not take orders.
    pub fn take(mouse: bool) -> io::Result<Self> {
        restore_on_panic();
        let out = || -> io::Result<_> {
            enter(mouse)?;
            // Not through the buffer of standard output, which ends at each line.
            Terminal::new(Writer::new(File::from(io::stdout().as_fd().try_clone_to_owned()?)))
        };
        match out() {
            Ok(terminal) => Ok(Self { terminal, mouse }),
            Err(e) => {
                leave();
                Err(e)
            }
        }
    }

    /// Puts a text into the clipboard (OSC 52); terminals that do not let programs do that leave it out.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn copy(&mut self, text: &str) -> io::Result<()> {
        self.terminal.backend_mut().send(&clipboard::sequence(text))
    }

    /// Forgets what the terminal shows, so that the next frame is drawn whole.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn redraw(&mut self) -> io::Result<()> {
        // Not `Terminal::clear`: it asks where the cursor is, and a terminal that does not answer costs two seconds.
        self.terminal.backend_mut().clear()?;
        self.terminal.swap_buffers();
        Ok(())
    }

    /// Gives the terminal back, stops until somebody lets the job go on, and takes the terminal again.
    ///
    /// # Errors
    /// When the terminal is gone by then.
    pub fn suspend(&mut self) -> io::Result<()> {
        leave();
        // The whole job, as the terminal would do it. Where there is no shell that could let it go on, the kernel lets
        // it go on at once.
        kill_current_process_group(Signal::TSTP)?;
        enter(self.mouse)?;
        self.redraw()
    }

    /// Rings the terminal's bell.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn ring(&mut self) -> io::Result<()> {
        self.terminal.backend_mut().send("\x07")
    }

    /// Asks the terminal for a notification (OSC 9), which those that have none leave out. The words are our own:
    /// what is not printable ASCII is left out.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn notify(&mut self, words: &str) -> io::Result<()> {
        let plain: String = words.chars().filter(|it| it.is_ascii() && !it.is_ascii_control()).collect();
        self.terminal.backend_mut().send(&format!("\x1b]9;gpuwatch: {plain}\x1b\\"))
    }

    /// Draws a frame; the terminal shows it at once or not at all, and what has not changed is not sent.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame)) -> io::Result<()> {
        self.terminal.draw(draw).map(|_| ())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

fn enter(mouse: bool) -> io::Result<()> {
    enable_raw_mode()?;
    TAKEN.store(true, SeqCst);
    let mouse = if mouse { MOUSE } else { "" };
    execute!(io::stdout(), EnterAlternateScreen, EnableBracketedPaste, Print(mouse), cursor::Hide)
}

/// Gives the terminal back, if it is taken. Nothing can be done when it is gone.
pub fn leave() {
    if TAKEN.swap(false, SeqCst) {
        let mut out = io::stdout();
        let _ = execute!(
            out,
            EndSynchronizedUpdate,
            Print(NO_MOUSE),
            DisableBracketedPaste,
            LeaveAlternateScreen,
            cursor::Show
        );
        let _ = disable_raw_mode();
        let _ = out.flush();
    }
}

/// A panic is a fault of ours: the user gets the terminal back and then the message. One in a helper's
/// thread ends the program too, as half a picture would be taken for a whole one.
fn restore_on_panic() {
    HOOK.call_once(|| {
        let main = thread::current().id();
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |what| {
            let was_taken = TAKEN.load(SeqCst);
            leave();
            print(what);
            if was_taken && thread::current().id() != main {
                std::process::exit(101);
            }
        }));
    });
}

/// Whether a live view is possible: stdin and stdout are terminals that can move a cursor.
pub fn is_screen() -> bool {
    io::stdout().is_terminal() && io::stdin().is_terminal() && !is_dumb(env::var("TERM").ok().as_deref())
}

fn is_dumb(term: Option<&str>) -> bool {
    term.is_none_or(|it| it.is_empty() || it == "dumb")
}

/// How many colours the environment says that the terminal has.
pub fn color_depth() -> ColorDepth {
    let get = |name: &str| env::var(name).ok().filter(|it| !it.is_empty());
    depth(get("NO_COLOR").as_deref(), get("COLORTERM").as_deref(), get("TERM").as_deref())
}

fn depth(no_color: Option<&str>, colorterm: Option<&str>, term: Option<&str>) -> ColorDepth {
    let term = term.unwrap_or_default();
    let has = |words: &[&str]| words.iter().any(|it| term.contains(it));
    if no_color.is_some() || is_dumb(Some(term)) || has(&["mono", "vt100", "vt220"]) {
        ColorDepth::None
    } else if matches!(colorterm, Some("truecolor" | "24bit")) || has(&["-direct", "truecolor"]) {
        ColorDepth::TrueColor
    } else if has(&["256color", "kitty", "alacritty", "ghostty", "wezterm", "foot"]) {
        ColorDepth::Ansi256
    } else {
        ColorDepth::Ansi16
    }
}

/// Whether the locale says that the terminal does not take UTF-8. An environment without any locale (a bare
/// container) says nothing, and terminals take UTF-8.
pub fn is_ascii_only() -> bool {
    let set = |name: &str| env::var(name).ok().filter(|it| !it.is_empty());
    is_ascii_locale(set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).as_deref())
}

fn is_ascii_locale(locale: Option<&str>) -> bool {
    locale.is_some_and(|it| !it.to_ascii_lowercase().replace('-', "").contains("utf8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_follow_the_environment() {
        let cases = [
            (Some("1"), Some("truecolor"), Some("xterm-256color"), ColorDepth::None),
            (None, Some("truecolor"), Some("xterm"), ColorDepth::TrueColor),
            (None, Some("24bit"), Some("screen"), ColorDepth::TrueColor),
            (None, None, Some("xterm-256color"), ColorDepth::Ansi256),
            (None, None, Some("xterm-kitty"), ColorDepth::Ansi256),
            (None, Some("yes"), Some("linux"), ColorDepth::Ansi16),
            (None, Some("truecolor"), Some("dumb"), ColorDepth::None),
            (None, None, None, ColorDepth::None),
        ];
        for (no_color, colorterm, term, expected) in cases {
            assert_eq!(depth(no_color, colorterm, term), expected, "{no_color:?} {colorterm:?} {term:?}");
        }
    }

    #[test]
    fn only_a_locale_that_says_otherwise_is_not_utf_8() {
        for (locale, ascii) in [
            (None, false),
            (Some("C"), true),
            (Some("C.UTF-8"), false),
            (Some("de_DE.utf8"), false),
            (Some("de_DE"), true),
        ] {
            assert_eq!(is_ascii_locale(locale), ascii, "{locale:?}");
        }
    }
}
