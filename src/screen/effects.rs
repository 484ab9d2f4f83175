//! Carries out what keys request outside the frame: the terminal, the theme, the refresh rate, signals.

use crate::{
    config::{Edit, File},
    facts::event,
    hosts::requests::Requests,
    model::{alerts::Name, cluster::overview::Overview, session::Session, snapshot::Snapshot},
    screen::{
        actions::LocalActions,
        keys,
        remote_actions::{ActionReply, Actions, HoldPurpose, RemoteActions},
        term::Screen,
        theme::{Background, Choice, Theme},
        ui::{
            self, Command, Expecting, Request, Ui,
            alert_list::Allowing,
            cluster_ui::ClusterUi,
            mouse::{Clicks, Mouse, Regions},
            preset::Preset,
            snapshot_ui::SnapshotUi,
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
    pub theme: Choice,
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
    /// Sends requests to other machines, if the view is of those.
    pub machines: Option<Requests>,
}

/// The meaning of an input.
enum InputMeaning {
    Command(Command),
    Mouse(Mouse),
}

/// The effects of one view.
pub struct Effects {
    /// The current theme.
    pub theme: Theme,
    own: Theme,
    choice: Choice,
    pace: Option<Sender<Duration>>,
    focus: Option<Sender<Focus>>,
    actions: Actions,
    config: Option<File>,
    /// The pending change of the config file, with what it expects.
    edit: Option<(Edit, Expecting)>,
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
        let actions = match options.machines {
            Some(requests) => Actions::Remote(RemoteActions::new(requests)),
            None => Actions::Local(LocalActions::new(options.asks, options.config.as_ref().ok().cloned())),
        };
        Self {
            own: options.theme.on(None).clone(),
            theme: options.theme.on(None).clone(),
            choice: options.theme,
            pace: options.pace,
            focus: options.focus,
            actions,
            config: options.config.ok(),
            edit: None,
            clicks: Clicks::default(),
            regions: Regions::default(),
        }
    }

    /// Returns whether the terminal's background chooses the theme.
    pub fn needs_background(&self) -> bool {
        matches!(self.choice, Choice::ByBackground { .. })
    }

    /// Takes the theme for a background; `None` for an unknown one.
    pub fn set_background(&mut self, background: Option<Background>) {
        self.own = self.choice.on(background).clone();
        self.theme = self.own.clone();
    }

    /// Handles a key, or a mouse event in the latest frame.
    pub fn apply_input(&mut self, input: &Input, ui: &mut Ui, session: &Session) {
        for meaning in self.meaning(input, ui) {
            match meaning {
                InputMeaning::Command(it) => ui.update(it, session),
                InputMeaning::Mouse(it) => ui.mouse(it, &self.regions, session),
            }
        }
    }

    /// Handles the same in the view of a snapshot.
    pub fn apply_snapshot_input(&mut self, input: &Input, ui: &mut SnapshotUi, snapshot: &Snapshot) {
        for meaning in self.meaning(input, &mut ui.base) {
            match meaning {
                InputMeaning::Command(it) => ui.update(it, snapshot),
                InputMeaning::Mouse(it) => ui.mouse(it, &self.regions, snapshot),
            }
        }
    }

    /// Handles the same on the screen of many machines.
    pub fn apply_cluster_input(&mut self, input: &Input, ui: &mut ClusterUi, overview: &Overview) {
        for meaning in self.meaning(input, &mut ui.base) {
            match meaning {
                InputMeaning::Command(it) => ui.update(it, overview),
                InputMeaning::Mouse(it) => ui.mouse(it, &self.regions, overview),
            }
        }
    }

    /// Returns what an input means; reports a key without a meaning.
    fn meaning(&mut self, input: &Input, ui: &mut Ui) -> Vec<InputMeaning> {
        match input {
            Input::Key(key) => {
                self.actions.cancel_pending();
                let command = keys::command(*key, ui);
                if let Some(words) = keys::unknown(*key, ui).filter(|_| command.is_none()) {
                    ui.show_message(words);
                }
                command.map(InputMeaning::Command).into_iter().collect()
            }
            Input::Mouse(event) => {
                self.clicks.take(*event, sources::now()).map(InputMeaning::Mouse).into_iter().collect()
            }
            // Pasted text belongs to a filter; it must not press keys.
            Input::Paste(text) if ui.filter.typing => {
                text.chars().map(|letter| InputMeaning::Command(Command::Edit(ui::Edit::Type(letter)))).collect()
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
            Some(Request::Redraw) => screen.redraw(),
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
            Some(Request::Ask(capture)) => self.actions.capture(capture, ui),
            Some(Request::AskAllow(what)) => self.ask_allow(what, ui),
            Some(Request::Allow) => self.allow(ui),
            Some(Request::AskStart(what, subject)) => self.actions.hold(HoldPurpose::Start(what), &subject, ui),
            Some(Request::Start(what)) => self.actions.start(what, ui),
            Some(Request::Hold(subject)) => self.actions.hold(HoldPurpose::Signal, &subject, ui),
            Some(Request::Send(signal)) => self.actions.send(signal, ui),
        }
        Ok(())
    }

    /// Determines the change of what is expected, and opens the question.
    fn ask_allow(&mut self, what: Expecting, ui: &mut Ui) {
        let Some(config) = &self.config else { return };
        let removes = !what.removed.is_empty();
        let edit = if removes { config.disallowing(&what.removed) } else { config.allowing(&what.added()) };
        match edit {
            Err(why) => ui.show_message(why.to_string()),
            // Another program has written it since.
            Ok(None) => expect(&what, "the config file says so already", ui),
            Ok(Some(edit)) => {
                ui.allowing = Some(Allowing {
                    what: what.clone(),
                    lines: edit.lines(),
                    file: edit.path().to_string_lossy().into_owned(),
                    is_new: edit.is_new(),
                });
                self.edit = Some((edit, what));
            }
        }
    }

    fn allow(&mut self, ui: &mut Ui) {
        let Some((edit, what)) = self.edit.take() else { return };
        let done = if what.removed.is_empty() { "added to" } else { "removed from" };
        match edit.write() {
            Ok(()) => expect(&what, &format!("{done} {}", edit.path().display()), ui),
            Err(why) => ui.show_message(why.to_string()),
        }
    }

    /// Waits for the answer of a process.
    pub async fn reply(&mut self) -> ActionReply {
        self.actions.reply().await
    }

    /// Waits until other hosts have answered what the user requested.
    pub async fn wait_for_answers(&mut self) {
        self.actions.wait_for_answers().await;
    }

    /// Shows an answer.
    pub fn show(&mut self, reply: ActionReply, ui: &mut Ui) {
        self.actions.show(reply, ui);
    }
}

/// Expects alerts, or no longer, and reports that.
fn expect(what: &Expecting, how: &str, ui: &mut Ui) {
    let allow = &mut ui.policy.allow;
    if what.removed.is_empty() {
        let name = what.added();
        allow.extend(Name::read(&name));
        return ui.show_message(format!("{name} is expected from now on: {how}"));
    }
    allow.retain(|it| !what.removed.iter().any(|name| name == it.text()));
    ui.show_message(format!("{} is expected no longer: {how}", what.removed.join(", ")));
}
