//! What keys ask of the world outside the picture, done: the terminal, the theme, the pace of reading, signals.

use crate::{
    config::{Edit, File},
    facts::{event::Ask, text},
    model::{alerts::Name, session::Session},
    screen::{
        keys::{self, mouse::Clicks},
        signal::Held,
        term::Screen,
        theme::Theme,
        ui::{Command, Request, Signal, Subject, Ui, alerts::Allowing, mouse::Regions, signal::Dialog},
        view::Drawn,
    },
    sources,
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
    /// The file that alerts are allowed in, or why none are from here.
    pub config: Result<File, &'static str>,
    /// The pace at which the driver is read, where it is.
    pub pace: Option<Sender<Duration>>,
    /// The way to probes, where they may be asked.
    pub asks: Option<mpsc::Sender<Ask>>,
}

/// What one view does outside the picture.
pub struct Effects {
    /// The theme that is drawn with.
    pub theme: Theme,
    own: Theme,
    pace: Option<Sender<Duration>>,
    pub(crate) asks: Option<mpsc::Sender<Ask>>,
    held: Option<Held>,
    config: Option<File>,
    /// What is to be written into it, with the name that becomes allowed.
    edit: Option<(Edit, String)>,
    clicks: Clicks,
    regions: Regions,
}

impl Effects {
    /// Hands, and what they can do told to the picture.
    pub fn new(options: Options, ui: &mut Ui) -> Self {
        ui.no_signals = options.no_signals;
        ui.no_allow = options.config.as_ref().err().copied();
        ui.interval = options.pace.as_ref().map(|it| *it.borrow());
        Self {
            own: options.theme.clone(),
            theme: options.theme,
            pace: options.pace,
            asks: options.asks,
            held: None,
            config: options.config.ok(),
            edit: None,
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
                } else if let Some(words) = keys::unknown(*key, ui) {
                    ui.say(words);
                }
            }
            Input::Mouse(event) => {
                if let Some(mouse) = self.clicks.take(*event, sources::now()) {
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
        (ui.scroll, ui.sight) = (drawn.scrolled.scroll, drawn.scrolled.sight);
        ui.help_scroll = ui.help_scroll.min(drawn.help_most);
        self.regions = drawn.regions;
    }

    /// Does what the last command asked for.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn serve(&mut self, ui: &mut Ui, screen: &mut Screen) -> io::Result<()> {
        match ui.request.take() {
            // What plays takes its own before.
            None | Some(Request::Replay(_)) => {}
            Some(Request::Redraw) => screen.redraw()?,
            Some(Request::Suspend) => screen.suspend()?,
            Some(Request::Copy(text)) => {
                screen.copy(&text)?;
                ui.say(format!("copied (if the terminal allows OSC 52): {text}"));
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
            Some(Request::AskAllow(name)) => self.ask_allow(name, ui),
            Some(Request::Allow) => self.allow(ui),
            Some(Request::Hold(subject)) => self.hold(&subject, ui),
            Some(Request::Send(signal, name)) => self.send(signal, name, ui),
        }
        Ok(())
    }

    /// Finds out what would be written for a name to be allowed, and opens the question.
    fn ask_allow(&mut self, name: String, ui: &mut Ui) {
        let Some(config) = &self.config else { return };
        match config.allowing(&name) {
            Err(why) => ui.say(why.to_string()),
            // Written since this program read it.
            Ok(None) => expect(&name, "it is in the list already", ui),
            Ok(Some(edit)) => {
                ui.allowing = Some(Allowing {
                    name: name.clone(),
                    lines: edit.lines(),
                    file: edit.path().to_string_lossy().into_owned(),
                    is_new: edit.is_new(),
                });
                self.edit = Some((edit, name));
            }
        }
    }

    fn allow(&mut self, ui: &mut Ui) {
        let Some((edit, name)) = self.edit.take() else { return };
        match edit.write() {
            Ok(()) => expect(&name, &format!("added to {}", edit.path().display()), ui),
            Err(why) => ui.say(why.to_string()),
        }
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

/// Makes a name one of those that are allowed, and says so.
fn expect(name: &str, how: &str, ui: &mut Ui) {
    ui.policy.allow.extend(Name::read(name));
    ui.say(format!("{name} is expected from now on: {how}"));
}
