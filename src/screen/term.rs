//! The terminal: one guard takes it and restores it, also when the program panics or aborts.

/// The terminal's background.
mod background;
/// Restores the terminal after an abort.
mod crash;
/// What the user types.
mod inputs;
/// What the terminal shows.
mod shown;
/// Writes changed cells.
mod writer;

pub use crate::screen::term::inputs::Inputs;
use crate::{
    facts::text::Foreign,
    screen::{
        term::{shown::Picture, writer::Writer},
        theme::{Background, ColorDepth},
    },
};
use crossterm::{
    Command,
    clipboard::CopyToClipboard,
    terminal::{disable_raw_mode, enable_raw_mode},
};
use ratatui::{buffer::Buffer, layout::Rect};
use rustix::{
    process::{Signal, kill_current_process_group},
    termios::{
        InputModes, LocalModes, OptionalActions, OutputModes, QueueSelector, tcflush, tcgetattr, tcgetwinsize,
        tcsetattr,
    },
};
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

static TAKEN: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// Enables clicks, the wheel, and moves with a button down, also beyond column 223. Other moves are useless to a view
/// and too much for a slow line.
const MOUSE: &str = "\x1b[?1000h\x1b[?1002h\x1b[?1006h";

/// Takes the terminal: the alternate screen, pasted text in brackets, no cursor.
const TAKE: &str = "\x1b[?1049h\x1b[?2004h\x1b[?25l";

/// Gives the terminal back, in whatever state: a frame that is not complete, the mouse, and what [`TAKE`] did.
const GIVE_BACK: &str = "\x1b[?2026l\x1b[?1006l\x1b[?1002l\x1b[?1000l\x1b[?2004l\x1b[?1049l\x1b[?25h";

/// The largest part of a terminal that is drawn on, from the top left, in columns and rows; the rest stays blank. A
/// terminal may name any size, and a frame with its copy takes about 60 bytes a cell: 30 MB for these 500,000.
const COLUMNS_MAX: u16 = 1000;
const ROWS_MAX: u16 = 500;

/// The terminal in raw mode. Dropping it restores the terminal.
pub struct Screen {
    to: Writer<File>,
    frame: Buffer,
    shown: Picture,
    mouse: bool,
}

impl Screen {
    /// Takes the terminal: raw mode, the alternate screen, and optionally the mouse.
    ///
    /// # Errors
    /// Fails if there is no terminal, or if it cannot be set up.
    pub fn take(mouse: bool) -> io::Result<Self> {
        restore_on_panic();
        let out = || -> io::Result<_> {
            enter(mouse)?;
            // Bypasses the buffer of standard output, which flushes at each line.
            let to = Writer::new(File::from(io::stdout().as_fd().try_clone_to_owned()?));
            let frame = Buffer::empty(area()?);
            Ok(Self { shown: Picture::blank(frame.area), to, frame, mouse })
        };
        match out() {
            Ok(screen) => Ok(screen),
            Err(e) => {
                leave();
                Err(e)
            }
        }
    }

    /// Asks the terminal for its background, and waits at most 100 ms for the reply; without one, the environment
    /// decides. Keys that arrive meanwhile are in `typed`. Call it before anything else reads input.
    pub fn background(&mut self, typed: &mut Inputs) -> Option<Background> {
        let get = |name: &str| env::var(name).ok().filter(|it| !it.is_empty());
        // Ignores errors: the reader of input notices a terminal that is gone.
        let is_asked = background::can_reply(get) && self.to.send(background::QUESTION).is_ok();
        let reported = is_asked.then(|| background::wait(typed)).flatten();
        reported.or_else(|| background::of_environment(get))
    }

    /// Discards what has arrived and was not read.
    pub fn discard_input(&self) {
        // Ignores errors: a terminal that is gone has no input.
        let _ = tcflush(io::stdin(), QueueSelector::IFlush);
    }

    /// Copies a text to the clipboard (OSC 52); terminals that do not allow that ignore it.
    ///
    /// # Errors
    /// Fails if the terminal is gone.
    pub fn copy(&mut self, text: &str) -> io::Result<()> {
        self.to.send(&sequence(text))
    }

    /// Draws the next frame completely, whatever the terminal shows.
    pub fn redraw(&mut self) {
        self.to.clear();
        self.shown = Picture::blank(self.frame.area);
    }

    /// Restores the terminal, stops until a user resumes the job, and takes the terminal again.
    ///
    /// # Errors
    /// Fails if the terminal is gone by then.
    pub fn suspend(&mut self) -> io::Result<()> {
        leave();
        // Stops the whole job, as the terminal would. If there is no shell to resume it, the kernel resumes it at once.
        kill_current_process_group(Signal::TSTP)?;
        enter(self.mouse)?;
        self.redraw();
        Ok(())
    }

    /// Rings the terminal's bell.
    ///
    /// # Errors
    /// Fails if the terminal is gone.
    pub fn ring(&mut self) -> io::Result<()> {
        self.to.send("\x07")
    }

    /// Sends a notification to the terminal (OSC 9); terminals without notifications ignore it. Only printable ASCII of
    /// gpuwatch's own words is sent.
    ///
    /// # Errors
    /// Fails if the terminal is gone.
    pub fn notify(&mut self, words: &str) -> io::Result<()> {
        let plain: String = words.chars().filter(|it| it.is_ascii() && !it.is_ascii_control()).collect();
        self.to.send(&format!("\x1b]9;gpuwatch: {plain}\x1b\\"))
    }

    /// Draws a frame of the terminal's size, which it shows at once, and sends only what changed.
    ///
    /// # Errors
    /// Fails if the terminal is gone.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Buffer)) -> io::Result<()> {
        let area = area()?;
        if self.frame.area != area {
            self.frame.resize(area);
            self.redraw();
        }
        self.frame.reset();
        draw(&mut self.frame);
        self.to.draw(self.shown.news(&self.frame));
        self.to.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

/// Returns the cells of the terminal that are drawn on.
fn area() -> io::Result<Rect> {
    let size = tcgetwinsize(io::stdout())?;
    Ok(Rect::new(0, 0, size.ws_col.min(COLUMNS_MAX), size.ws_row.min(ROWS_MAX)))
}

fn enter(mouse: bool) -> io::Result<()> {
    repair();
    crash::guard();
    enable_raw_mode()?;
    TAKEN.store(true, SeqCst);
    let mut out = io::stdout();
    write!(out, "{TAKE}{}", if mouse { MOUSE } else { "" })?;
    out.flush()
}

/// Makes a terminal usable that a killed program left in raw mode, as `stty sane` does. Otherwise gpuwatch would give
/// it back in raw mode as well. Ignores errors: a terminal that is gone is noticed when it is taken.
fn repair() {
    let terminal = io::stdin();
    let Ok(mut settings) = tcgetattr(&terminal) else { return };
    let raw = LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
    if settings.local_modes.intersects(raw) || settings.output_modes.contains(OutputModes::OPOST) {
        return;
    }
    settings.local_modes |= raw | LocalModes::IEXTEN | LocalModes::ECHOE | LocalModes::ECHOK;
    settings.local_modes |= LocalModes::ECHOCTL | LocalModes::ECHOKE;
    settings.input_modes |= InputModes::BRKINT | InputModes::ICRNL | InputModes::IXON;
    settings.output_modes |= OutputModes::OPOST | OutputModes::ONLCR;
    let _ = tcsetattr(&terminal, OptionalActions::Now, &settings);
}

/// Restores the terminal, if it is taken. Ignores errors, because the terminal may be gone.
pub fn leave() {
    if TAKEN.swap(false, SeqCst) {
        let mut out = io::stdout();
        let _ = out.write_all(GIVE_BACK.as_bytes()).and_then(|()| out.flush());
        let _ = disable_raw_mode();
        let _ = out.flush();
    }
}

/// After a panic, the user gets the terminal back and then the message. A panic in a helper thread ends the program
/// too, because its part of the frame would be missing.
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

/// Returns whether a live view is possible: stdin and stdout are terminals that can move a cursor.
pub fn is_screen() -> bool {
    io::stdout().is_terminal() && io::stdin().is_terminal() && !is_dumb(env::var("TERM").ok().as_deref())
}

fn is_dumb(term: Option<&str>) -> bool {
    term.is_none_or(|it| it.is_empty() || it == "dumb")
}

/// Returns how many colours the terminal has, according to the environment.
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

/// Returns whether the locale excludes UTF-8. An environment without a locale (a bare container) does not, and
/// terminals accept UTF-8.
pub fn is_ascii_only() -> bool {
    let set = |name: &str| env::var(name).ok().filter(|it| !it.is_empty());
    is_ascii_locale(set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).as_deref())
}

fn is_ascii_locale(locale: Option<&str>) -> bool {
    locale.is_some_and(|it| !it.to_ascii_lowercase().replace('-', "").contains("utf8"))
}

/// Most bytes sent; terminals drop longer sequences completely.
const BYTES_MAX: usize = 8 << 10;

/// Returns the sequence that copies a text: escaped, so that pasting it presses no key, and cut between characters.
fn sequence(text: &str) -> String {
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
    fn only_a_locale_that_excludes_utf_8_means_ascii() {
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

    #[test]
    fn copied_text_presses_no_key_and_has_an_end() {
        assert_eq!(sequence("foobar"), "\x1b]52;c;Zm9vYmFy\x1b\\");
        assert_eq!(sequence("a\r\x1b[A"), sequence("a\\u{d}\\u{1b}[A"));
        let long = sequence(&"训".repeat(BYTES_MAX));
        assert!(long.len() <= BYTES_MAX.div_ceil(3) * 4 + 12 && long.is_ascii(), "{}", long.len());
    }
}
