//! Carries out what keys request outside the frame: the terminal, the theme, the refresh rate, signals.

use crate::{
    config::{Edit, File},
    facts::{event, text},
    model::{alerts::Name, cluster::overview::Overview, session::Session, snapshot::Snapshot},
    screen::{
        keys::{self, mouse::Clicks},
        signal::Held,
        starter::Starter,
        term::Screen,
        theme::Theme,
        ui::{
            self, Command, Request, Signal, Start, Subject, Ui,
            alerts::Allowing,
            cluster::ClusterUi,
            mouse::{Mouse, Regions},
            preset::Preset,
            signal::Dialog,
            snapshot::SnapshotUi,
            start::Starting,
        },
        view::Drawn,
    },
    sources::{self, focus::Focus},
};
use crossterm::event::Event as Input;
use std::{io, time::Duration};
use tokio::sync::{mpsc, watch::Sender};

/// What a view may do, and its initial state.
#[derive(Debug)]
pub struct Options {
    /// The initial theme.
    pub theme: Theme,
    /// The preset of the overview.
    pub preset: Preset,
    /// Whether to enable the mouse.
    pub mouse: bool,
    /// Why this view sends no signals; `None` if it does.
    pub no_signals: Option<&'static str>,
    /// The file for allowed alerts, or why this view allows none.
    pub config: Result<File, &'static str>,
    /// Changes the driver's refresh rate, if the driver is read.
    pub pace: Option<Sender<Duration>>,
    /// Sets the device whose costly metrics are read, if the driver is read.
    pub focus: Option<Sender<Focus>>,
    /// Sends requests to probes, if that is possible.
    pub asks: Option<mpsc::Sender<event::Request>>,
}

/// The meaning of an input.
enum Meant {
    Command(Command),
    Mouse(Mouse),
}

/// The effects of one view.
pub struct Effects {
    /// The current theme.
    pub theme: Theme,
    own: Theme,
    pace: Option<Sender<Duration>>,
    focus: Option<Sender<Focus>>,
    pub(crate) asks: Option<mpsc::Sender<event::Request>>,
    held: Option<Held>,
    starter: Starter,
    config: Option<File>,
    /// The pending change of the config file, with the name to allow.
    edit: Option<(Edit, String)>,
    clicks: Clicks,
    regions: Regions,
}

impl Effects {
    /// Creates the effects, and sets in `ui` what they can do.
    pub fn new(options: Options, ui: &mut Ui) -> Self {
        ui.show_preset(options.preset);
        ui.no_signals = options.no_signals;
        ui.no_allow = options.config.as_ref().err().copied();
        ui.interval = options.pace.as_ref().map(|it| *it.borrow());
        Self {
            own: options.theme.clone(),
            theme: options.theme,
            pace: options.pace,
            focus: options.focus,
            asks: options.asks,
            held: None,
            starter: Starter::default(),
            config: options.config.ok(),
            edit: None,
            clicks: Clicks::default(),
            regions: Regions::default(),
        }
    }

    /// Handles a key, or a mouse event in the latest frame.
    pub fn obey(&mut self, input: &Input, ui: &mut Ui, session: &Session) {
        for meant in self.meant(input, ui) {
            match meant {
                Meant::Command(it) => ui.update(it, session),
                Meant::Mouse(it) => ui.mouse(it, &self.regions, session),
            }
        }
    }

    /// Handles the same in the view of a snapshot.
    pub fn obey_in(&mut self, input: &Input, ui: &mut SnapshotUi, snapshot: &Snapshot) {
        for meant in self.meant(input, &mut ui.base) {
            match meant {
                Meant::Command(it) => ui.update(it, snapshot),
                Meant::Mouse(it) => ui.mouse(it, &self.regions, snapshot),
            }
        }
    }

    /// Handles the same on the screen of many machines.
    pub fn obey_many(&mut self, input: &Input, ui: &mut ClusterUi, overview: &Overview) {
        for meant in self.meant(input, &mut ui.base) {
            match meant {
                Meant::Command(it) => ui.update(it, overview),
                Meant::Mouse(it) => ui.mouse(it, &self.regions, overview),
            }
        }
    }

    /// Returns what an input means; reports a key without a meaning.
    fn meant(&mut self, input: &Input, ui: &mut Ui) -> Vec<Meant> {
        match input {
            Input::Key(key) => {
                let command = keys::command(*key, ui);
                if let Some(words) = keys::unknown(*key, ui).filter(|_| command.is_none()) {
                    ui.show_message(words);
                }
                command.map(Meant::Command).into_iter().collect()
            }
            Input::Mouse(event) => self.clicks.take(*event, sources::now()).map(Meant::Mouse).into_iter().collect(),
            // Pasted text belongs to a filter; it must not press keys.
            Input::Paste(text) if ui.filter.typing => {
                text.chars().map(|letter| Meant::Command(Command::Edit(ui::Edit::Type(letter)))).collect()
            }
            // A resized terminal may show other cells than were drawn, also if its size is the same as before.
            Input::Resize(..) => {
                ui.request = Some(Request::Redraw);
                Vec::new()
            }
            Input::Paste(_) | Input::FocusGained | Input::FocusLost => Vec::new(),
        }
    }

    /// Takes the results of a frame.
    pub fn drawn(&mut self, drawn: Drawn, ui: &mut Ui) {
        (ui.scroll, ui.sight) = (drawn.scrolled.scroll, drawn.scrolled.sight);
        ui.help_scroll = ui.help_scroll.min(drawn.help_most);
        self.regions = drawn.regions;
        if let Some(it) = &self.focus {
            it.send_if_modified(|sent| std::mem::replace(sent, drawn.focus.clone()) != drawn.focus);
        }
    }

    /// Carries out the last command's request.
    ///
    /// # Errors
    /// Fails if the terminal is gone.
    pub fn serve(&mut self, ui: &mut Ui, screen: &mut Screen) -> io::Result<()> {
        match ui.request.take() {
            // The player and the view of many machines have taken these before.
            None | Some(Request::Replay(_) | Request::Leave) => {}
            Some(Request::Redraw) => screen.redraw()?,
            Some(Request::Suspend) => screen.suspend()?,
            Some(Request::Copy(text)) => {
                screen.copy(&text)?;
                ui.show_message(format!("copied (if the terminal allows OSC 52): {text}"));
            }
            Some(Request::Theme) => {
                self.theme = self.theme.next(&self.own);
                ui.show_message(format!("theme {}", self.theme.name()));
            }
            Some(Request::Interval(pace)) => {
                if let Some(it) = &self.pace {
                    // The driver's thread may have ended.
                    let _ = it.send(pace);
                }
            }
            Some(Request::Ask(ask)) => {
                if let Some(it) = &self.asks {
                    // A full queue has the same request already.
                    let _ = it.try_send(ask.into());
                }
            }
            Some(Request::AskAllow(name)) => self.ask_allow(name, ui),
            Some(Request::Allow) => self.allow(ui),
            Some(Request::AskStart(what, subject)) => self.ask_start(what, &subject, ui),
            Some(Request::Start(what)) => self.start(what, ui),
            Some(Request::Hold(subject)) => self.hold(&subject, ui),
            Some(Request::Send(signal, name)) => self.send(signal, name, ui),
        }
        Ok(())
    }

    /// Determines the change that allows a name, and opens the question.
    fn ask_allow(&mut self, name: String, ui: &mut Ui) {
        let Some(config) = &self.config else { return };
        match config.allowing(&name) {
            Err(why) => ui.show_message(why.to_string()),
            // Another program has written it since.
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
            Err(why) => ui.show_message(why.to_string()),
        }
    }

    /// Waits for the answer of what was started at a process.
    pub async fn answer(&mut self) -> String {
        self.starter.answer().await
    }

    fn ask_start(&mut self, what: Start, subject: &Subject, ui: &mut Ui) {
        match Held::hold(subject) {
            Err(why) => ui.show_message(why),
            Ok(held) => {
                let words = held.info.argv.iter().map(text::Foreign::raw);
                let command = text::command(words, text::COMMAND_MAX);
                ui.starting = Some(Starting { what, pid: held.info.pid, command, user: held.info.user.clone() });
                self.held = Some(held);
            }
        }
    }

    fn start(&mut self, what: Start, ui: &mut Ui) {
        let Some(held) = self.held.take() else { return };
        let pid = held.info.pid;
        let start = || self.starter.start(what, pid, self.config.as_ref()).map_err(|it| it.to_string());
        let started = held.check().and_then(|()| start());
        match started {
            Ok(()) => ui.show_message(what.begun(pid)),
            Err(why) => ui.show_message(format!("{}: {why}", what.not_started())),
        }
    }

    fn hold(&mut self, subject: &Subject, ui: &mut Ui) {
        match Held::hold(subject) {
            Err(why) => ui.show_message(why),
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
            Ok(()) => ui.show_message(format!("sent {name} to pid {}", held.info.pid)),
            Err(why) => ui.show_message(format!("{name} was not sent: {why}")),
        }
    }
}

/// Allows a name, and reports that.
fn expect(name: &str, how: &str, ui: &mut Ui) {
    ui.policy.allow.extend(Name::read(name));
    ui.show_message(format!("{name} is expected from now on: {how}"));
}
