//! What keys ask of the world outside the picture, done: the terminal, the theme, the pace of reading, signals.

use crate::{
    event::Ask,
    keys::{self, mouse::Clicks},
    session::Session,
    signal::Held,
    source,
    term::Screen,
    text,
    theme::Theme,
    ui::{
        Command, Request, Ui,
        mouse::Regions,
        signal::{Dialog, Signal, Subject},
    },
    view::Drawn,
};
use crossterm::event::Event as Input;
use std::{io, time::Duration};
use tokio::sync::{mpsc, watch::Sender};

/// What a view may do, and how it looks at first.
#[derive(Debug)]
pub struct Options {
    /// The theme at first.
    pub theme: Theme,
    /// Whether clicks are asked for.
    pub mouse: bool,
    /// Why no signals are sent from here; `None` where they are.
    pub no_signals: Option<&'static str>,
    /// The pace at which the driver is read, where it is.
    pub pace: Option<Sender<Duration>>,
    /// The way to probes, where they may be asked.
    pub asks: Option<mpsc::Sender<Ask>>,
}

/// The hands of one view.
pub struct Hands {
    /// The theme that is drawn with.
    pub theme: Theme,
    own: Theme,
    pace: Option<Sender<Duration>>,
    pub(crate) asks: Option<mpsc::Sender<Ask>>,
    held: Option<Held>,
    clicks: Clicks,
    regions: Regions,
}

impl Hands {
    /// Hands, and what they can do told to the picture.
    pub fn new(options: Options, ui: &mut Ui) -> Self {
        ui.no_signals = options.no_signals;
        ui.interval = options.pace.as_ref().map(|it| *it.borrow());
        Self {
            own: options.theme.clone(),
            theme: options.theme,
            pace: options.pace,
            asks: options.asks,
            held: None,
            clicks: Clicks::default(),
            regions: Regions::default(),
        }
    }

    /// Takes a key, or what the mouse did in the latest picture.
    pub fn obey(&mut self, input: &Input, ui: &mut Ui, session: &Session) {
        match input {
            Input::Key(key) => {
                if let Some(command) = keys::command(*key, ui) {
                    ui.update(command, session);
                }
            }
            Input::Mouse(event) => {
                if let Some(mouse) = self.clicks.take(*event, source::now()) {
                    ui.mouse(mouse, &self.regions, session);
                }
            }
            // What is pasted is meant for a filter or for nobody: it presses no key.
            Input::Paste(text) if ui.filter.typing => {
                text.chars().for_each(|it| ui.update(Command::Type(it), session));
            }
            // What the terminal cut off and shows again is not what was drawn there, also where it is as large as before.
            Input::Resize(..) => ui.request = Some(Request::Redraw),
            _ => {}
        }
    }

    /// Takes what a picture came to.
    pub fn drawn(&mut self, drawn: Drawn, ui: &mut Ui) {
        ui.scroll = ui.scroll.min(drawn.scroll_most);
        ui.help_scroll = ui.help_scroll.min(drawn.help_most);
        self.regions = drawn.regions;
    }

    /// Does what the last command asked for.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn serve(&mut self, ui: &mut Ui, screen: &mut Screen) -> io::Result<()> {
        match ui.request.take() {
            None => {}
            Some(Request::Redraw) => screen.redraw()?,
            Some(Request::Suspend) => screen.suspend()?,
            Some(Request::Copy(text)) => {
                screen.copy(&text)?;
                ui.say(format!("copied, if the terminal lets programs: {text}"));
            }
            Some(Request::Theme) => {
                self.theme = self.theme.next(&self.own);
                ui.say(format!("theme {}", self.theme.name()));
            }
            Some(Request::Interval(pace)) => {
                if let Some(it) = &self.pace {
                    // With the driver's thread gone there is nothing to read any more.
                    let _ = it.send(pace);
                }
            }
            Some(Request::Ask(ask)) => {
                if let Some(it) = &self.asks {
                    // A queue that is full holds the same question.
                    let _ = it.try_send(ask);
                }
            }
            Some(Request::Hold(subject)) => self.hold(&subject, ui),
            Some(Request::Send(signal, name)) => self.send(signal, name, ui),
        }
        Ok(())
    }

    fn hold(&mut self, subject: &Subject, ui: &mut Ui) {
        match Held::hold(subject) {
            Err(why) => ui.say(why),
            Ok(held) => {
                let words = held.info.argv.iter().map(text::Foreign::raw);
                ui.dialog = Some(Dialog {
                    pid: held.info.pid,
                    command: text::command(words, text::COMMAND_MAX),
                    user: held.info.user.clone(),
                    place: 0,
                    asked: false,
                });
                self.held = Some(held);
            }
        }
    }

    fn send(&mut self, signal: Signal, name: &str, ui: &mut Ui) {
        let Some(held) = self.held.take() else { return };
        match held.send(signal) {
            Ok(()) => ui.say(format!("sent {name} to pid {}", held.info.pid)),
            Err(why) => ui.say(format!("{name} was not sent: {why}")),
        }
    }
}
