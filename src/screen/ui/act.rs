//! Commands other than moving: filter, order, refresh rate, copying.

use super::{Answer, Focus, Motion, NO_PACE, Request, Screen, Ui, filter::Filter};
use crate::{
    facts::{text::Foreign, units},
    model::session::Session,
};
use std::time::Duration;

/// Available refresh rates, in ms.
const PACES_MS: [u64; 10] = [100, 200, 250, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000];

impl Ui {
    pub(super) fn begin_filter(&mut self) {
        self.back_stack.clear();
        (self.screen, self.focus, self.help) = (Screen::Overview, Focus::Processes, false);
        self.explained = None;
        self.filter.typing = true;
    }

    pub(super) fn order_by_next(&mut self) {
        self.order.next();
        self.show_order();
    }

    pub(super) fn invert_order(&mut self) {
        self.order.inverted = !self.order.inverted;
        self.show_order();
    }

    /// Shows the order of the processes.
    pub(super) fn show_order(&mut self) {
        let end = if self.order.rises() { "lowest" } else { "highest" };
        self.show_message(format!("processes by {}, {end} first", self.order.by.name()));
    }

    /// Handles a command while the user types a filter.
    pub(super) fn type_filter(&mut self, answer: Answer, session: &Session) {
        match answer {
            Answer::Edit(it) => self.filter.edit(it),
            Answer::Accept => self.filter.typing = false,
            Answer::Cancel => self.filter = Filter::default(),
            Answer::Up => return self.travel(Motion::Up, session),
            Answer::Down => return self.travel(Motion::Down, session),
            Answer::Yes | Answer::Limit(_) | Answer::Other => {}
        }
        self.row = self.place(&self.rows(session));
    }

    pub(super) fn pace(&mut self, slower: bool) {
        let Some(now) = self.interval else {
            self.show_message(NO_PACE);
            return;
        };
        let mut paces = PACES_MS.into_iter().map(Duration::from_millis);
        let next = if slower { paces.find(|it| *it > now) } else { paces.rev().find(|it| *it < now) };
        let Some(next) = next else {
            let end = if slower { "slowest" } else { "fastest" };
            self.show_message(format!(
                "devices are read every {}: already at the {end} refresh rate",
                units::pause(now)
            ));
            return;
        };
        self.interval = Some(next);
        self.request = Some(Request::Interval(next));
        self.show_message(format!("devices are read every {}", units::pause(next)));
    }

    pub(super) fn copy(&mut self, session: &Session) {
        let command = || self.meant(session).map(|it| it.command(session)).filter(|it| !it.is_empty());
        let device = || Some(Foreign::new(&session.devices.get(self.selected(session))?.id.0).to_string());
        let of_process = match self.screen {
            Screen::Overview => self.focus == Focus::Processes,
            Screen::Process | Screen::Timeline => true,
            Screen::Device | Screen::Alerts => false,
        };
        let of_rung = self.screen == Screen::Overview && self.focus == Focus::Ladder;
        match if of_process {
            command()
        } else if of_rung {
            self.remedy(session)
        } else {
            device()
        } {
            Some(text) => self.request = Some(Request::Copy(text)),
            None => self.show_message("nothing is selected that could be copied"),
        }
    }
}
