//! Alerts as rows: which ones a screen lists, which one is selected, and what keys do with it.

use crate::{
    facts::event::DeviceId,
    model::{
        alerts::{self, is_open},
        findings::{Finding, Findings, Identity, follow},
        session::{
            Session,
            process::{OnDevice, Process},
        },
    },
    screen::ui::{
        Answer, Focus, Motion, Request, Screen, Ui,
        command::{AlertAction, Expecting},
        moved,
        rows::{Filter, RowId},
        timeline_range::XAxis,
    },
};
use std::cmp::Reverse;

/// How much of the selected alert is visible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// Whether the next frame has to show it.
    pub reveal: bool,
    /// Whether the latest frame cut off lines above.
    pub above: bool,
    /// Whether it cut off lines below.
    pub below: bool,
}

/// The question whether to expect an alert from now on, or no longer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowing {
    /// What to expect.
    pub what: Expecting,
    /// The new or changed lines of the file.
    pub lines: Vec<String>,
    /// The file.
    pub file: String,
    /// Whether the file is new.
    pub is_new: bool,
}

impl Ui {
    /// Returns whether an alert is open, and the user has not cleared its process.
    pub fn is_open(&self, it: &Finding, session: &Session) -> bool {
        let was_cleared = || it.process(session).is_some_and(|process| self.was_cleared(process));
        is_open(it, session) && (self.cleared.is_none() || !was_cleared())
    }

    /// Returns the alerts of the screen in order: open ones first, worst first, with one for a leak that several ranks
    /// share; on the alerts screen the resolved ones after them, latest first.
    pub fn alerts<'a>(&self, findings: &'a Findings, session: &Session) -> Vec<&'a Finding> {
        let mut listed = follow::once(&self.each_alert(findings, session), self.alert, session);
        if self.screen == Screen::Alerts {
            let mut ended: Vec<_> = findings.all.iter().filter(|it| !self.is_open(it, session)).collect();
            ended.sort_by_key(|it| Reverse(it.resolved_at.unwrap_or(it.first_alert_at)));
            listed.append(&mut ended);
        }
        listed
    }

    /// Returns all open alerts, with one for a leak that several ranks share.
    pub fn open_alerts<'a>(&self, findings: &'a Findings, session: &Session) -> Vec<&'a Finding> {
        let open: Vec<_> = findings.all.iter().filter(|it| self.is_open(it, session)).collect();
        follow::once(&open, self.alert, session)
    }

    /// Returns the findings that an alert of the screen stands for, by rank.
    pub fn sharing<'a>(&self, it: &'a Finding, findings: &'a Findings, session: &Session) -> Vec<&'a Finding> {
        follow::sharing(it, &self.each_alert(findings, session), session)
    }

    /// Returns the open alerts of the screen, one for each rank.
    fn each_alert<'a>(&self, findings: &'a Findings, session: &Session) -> Vec<&'a Finding> {
        let mut listed: Vec<_> = findings.all.iter().filter(|it| self.is_open(it, session)).collect();
        match self.screen {
            Screen::Overview | Screen::Alerts => {}
            Screen::Device => {
                let device = session.devices.get(self.selected(session)).map(|it| &it.id);
                listed.retain(|it| it.device.as_ref() == device);
            }
            Screen::Process => {
                let shown = self.process(session);
                listed.retain(|it| {
                    shown.is_some_and(|(process, on)| {
                        it.is_of(process) && it.ordinal.is_none_or(|own| own == on.ordinal)
                    })
                });
            }
            Screen::Timeline => listed.clear(),
        }
        listed
    }

    /// Returns whether the arrows move among the alerts.
    pub fn is_among_alerts(&self) -> bool {
        match self.screen {
            Screen::Overview | Screen::Device | Screen::Process => self.focus == Focus::Alerts,
            Screen::Timeline => false,
            Screen::Alerts => true,
        }
    }

    /// Returns the index of the selected alert in the list.
    pub fn alert_place(&self, listed: &[&Finding]) -> usize {
        let held = self.alert.and_then(|held| listed.iter().position(|it| it.identity() == held));
        held.unwrap_or(0)
    }

    /// Moves among the alerts; an alert that exceeds the screen is scrolled to its end before the next is selected.
    pub(super) fn travel_alerts(&mut self, motion: Motion, session: &Session) {
        if motion == Motion::Up && self.sight.above {
            self.scroll = self.scroll.saturating_sub(1);
            return;
        }
        if motion == Motion::Down && self.sight.below {
            self.scroll = self.scroll.saturating_add(1);
            return;
        }
        let found = self.policy.findings(session);
        let listed = self.alerts(&found, session);
        let there = moved(motion, self.alert_place(&listed)).min(listed.len().saturating_sub(1));
        if let Some(it) = listed.get(there) {
            self.select_alert(it.identity());
        }
    }

    /// Selects an alert, and makes the next frame show it.
    pub(super) fn select_alert(&mut self, alert: Identity) {
        (self.alert, self.sight.reveal) = (Some(alert), true);
    }

    /// Explains the cause of the selected alert, or closes the explanation.
    pub(super) fn explain(&mut self, session: &Session) {
        if self.explained.take().is_none() {
            self.with_alert(AlertAction::Explain, session);
        }
    }

    /// Does something with the selected alert.
    pub(super) fn with_alert(&mut self, action: AlertAction, session: &Session) {
        let found = self.policy.findings(session);
        let listed = self.alerts(&found, session);
        // If the focus is elsewhere, only a single alert can be meant.
        let is_seen = self.is_among_alerts() || listed.len() == 1;
        let Some(it) = listed.get(self.alert_place(&listed)).copied().filter(|_| is_seen) else {
            if listed.is_empty() {
                self.show_message("there is no alert here");
            } else {
                self.focus_alerts();
                self.show_message("select the alert first");
            }
            return;
        };
        self.alert = Some(it.identity());
        match action {
            AlertAction::Explain => (self.explained, self.help, self.help_scroll) = (Some(it.cause), false, 0),
            AlertAction::Allow => self.ask_allow(it, session),
            AlertAction::Copy => self.request = Some(Request::Copy(alerts::line(it, session))),
            AlertAction::ShowProcess => self.go_to_alert(it, false, session),
            AlertAction::ShowRun => self.go_to_alert(it, true, session),
        }
    }

    fn focus_alerts(&mut self) {
        if self.screen != Screen::Timeline {
            self.focus = Focus::Alerts;
        }
    }

    fn ask_allow(&mut self, it: &Finding, session: &Session) {
        if let Some(why) = self.no_allow {
            return self.show_message(why);
        }
        self.request = Some(Request::AskAllow(Expecting {
            name: alerts::name(it),
            script: alerts::script(it, session).map(str::to_owned),
            line: alerts::line_to_blame(it),
            only: None,
            removed: self.policy.allowing(it, session).into_iter().map(|it| it.text().to_owned()).collect(),
        }));
    }

    /// Opens the process of an alert, or its run at the step at which the alert was raised.
    fn go_to_alert(&mut self, it: &Finding, run: bool, session: &Session) {
        let Some((process, on)) = place(it, session) else {
            return self.go_to_listed(it, session);
        };
        self.held = Some(RowId::Probed(process.probe, on.ordinal));
        if self
            .rows_of(None, session)
            .iter()
            .all(|row| row.probed().is_none_or(|(listed, _)| listed.probe != process.probe))
        {
            self.filter = Filter::default();
        }
        // On the process screen, the run is the next level.
        let run = run || self.screen == Screen::Process;
        let row = RowId::Probed(process.probe, on.ordinal);
        (self.device, self.held) = (Some(on.device.clone()), Some(row));
        if run {
            let by_step = self.timeline.axis == XAxis::Steps && on.step.is_some();
            self.timeline.cursor = Some(if by_step { it.first_alert_step } else { it.first_alert_at.0 });
        }
        self.open(if run { Screen::Timeline } else { Screen::Process });
    }

    /// Selects a process that only the driver lists.
    fn go_to_listed(&mut self, it: &Finding, session: &Session) {
        let listed =
            |device: &DeviceId| session.unprobed(Some(device)).iter().any(|(_, used)| Some(used.pid) == it.pid);
        let Some((device, pid)) = it.device.clone().filter(listed).zip(it.pid) else {
            self.show_message("its process is no longer known");
            return;
        };
        self.filter = Filter::default();
        (self.held, self.device) = (Some(RowId::Unprobed(pid, device.clone())), Some(device));
        self.open(Screen::Device);
    }

    /// Handles a command while the question is open; anything but yes and a limit means no.
    pub(super) fn confirm_allow(&mut self, answer: Answer) {
        let Some(asked) = self.allowing.take() else { return };
        match answer {
            Answer::Yes => self.request = Some(Request::Allow),
            Answer::Limit(extent) => match asked.what.limited(extent) {
                Some(it) => self.request = Some(Request::AskAllow(it)),
                None => self.show_message("nothing was written"),
            },
            _ => self.show_message("nothing was written"),
        }
    }
}

/// Returns the process of an alert on its device, with its latest probe; if it never worked there, on the first of its
/// own.
fn place<'a>(it: &Finding, session: &'a Session) -> Option<(&'a Process, &'a OnDevice)> {
    let mut latest = it.process(session)?;
    // Each probe has a later one, or none.
    while let Some(next) = latest.next.filter(|it| *it > latest.probe).and_then(|it| session.process(it)) {
        latest = next;
    }
    let own = || session.probed(None).into_iter().filter(|(process, _)| process.probe == latest.probe);
    own().find(|(_, on)| Some(on.ordinal) == it.ordinal).or_else(|| own().next())
}
