//! The rows of the process list: those that match the filter, in the chosen order.

use crate::{
    facts::{
        event::{Ancestor, DeviceId, ProbeId, ProcessUse},
        figures::Figure,
        text::{self, Foreign},
        units,
    },
    model::session::{
        Session,
        device::Device,
        process::{OnDevice, Process},
    },
    screen::ui::{
        Answer, Edit, Focus, Motion, NO_PACE, Request, Screen, Ui,
        tree::{self, Branch, Limb, Listing},
    },
};
use std::time::Duration;

/// One process on one device.
#[derive(Clone, Copy, Debug)]
pub enum ProcessRow<'a> {
    /// With a probe.
    Probed(&'a Process, &'a OnDevice),
    /// As the driver lists it.
    Unprobed(&'a Device, ProcessUse),
}

/// A row's identity, wherever it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowId {
    /// The probe's number, and its ordinal of the device.
    Probed(ProbeId, u32),
    /// The pid, and the device.
    Unprobed(u32, DeviceId),
}

impl<'a> ProcessRow<'a> {
    /// Returns its identity.
    pub fn id(&self) -> RowId {
        match self {
            Self::Probed(process, on) => RowId::Probed(process.probe, on.ordinal),
            Self::Unprobed(device, it) => RowId::Unprobed(it.pid, device.id.clone()),
        }
    }

    /// Returns the probed process, if it is one.
    pub fn probed(&self) -> Option<(&'a Process, &'a OnDevice)> {
        match self {
            Self::Probed(process, on) => Some((process, on)),
            Self::Unprobed(..) => None,
        }
    }

    /// Returns the run that its screens are about: of a process whose probe has ended, that of the latest probe.
    pub fn run(&self, session: &'a Session) -> Option<(&'a Process, &'a OnDevice)> {
        match self {
            Self::Probed(process, on) => Some((process, on)),
            Self::Unprobed(device, it) => {
                let process = session.left(it.pid)?;
                Some((process, process.devices.iter().find(|on| on.device == device.id)?))
            }
        }
    }

    /// Returns its device.
    pub fn device(&self) -> &'a DeviceId {
        match self {
            Self::Probed(_, on) => &on.device,
            Self::Unprobed(device, _) => &device.id,
        }
    }

    /// Returns the pid on this host, or the one the process reports.
    pub fn pid(&self) -> Option<u32> {
        match self {
            Self::Probed(process, _) => process.any_pid(),
            Self::Unprobed(_, it) => Some(it.pid),
        }
    }

    /// Returns the pid on this host.
    pub fn host_pid(&self) -> Option<u32> {
        match self {
            Self::Probed(process, _) => process.pid,
            Self::Unprobed(_, it) => Some(it.pid),
        }
    }

    /// Returns the user it belongs to, or belonged to.
    pub fn user(&self, session: &'a Session) -> Option<&'a Foreign> {
        let left = self.probed().and_then(|(process, _)| process.user.as_ref());
        left.or_else(|| Some(&session.process_info.get(&self.host_pid()?)?.user))
    }

    /// Returns a figure of the process, on the row's device.
    pub fn figure(&self, figure: Figure, session: &Session) -> Option<u64> {
        session.figures.get(&self.host_pid()?)?.get(figure, self.device())
    }

    /// Returns the unescaped arguments of its command line.
    pub fn argv(&self, session: &'a Session) -> Vec<&'a str> {
        match self {
            Self::Probed(process, _) => process.hello.iter().flat_map(|it| &it.argv).map(String::as_str).collect(),
            Self::Unprobed(_, it) => session
                .process_info
                .get(&it.pid)
                .map(|it| it.argv.iter().map(Foreign::raw).collect())
                .unwrap_or_default(),
        }
    }

    /// Returns the complete command line, quoted for a shell.
    pub fn command(&self, session: &Session) -> String {
        text::command(self.argv(session).into_iter(), text::COMMAND_MAX)
    }

    /// Returns the process's known ancestors, the parent first.
    fn ancestors<'s>(&self, session: &'s Session) -> &'s [Ancestor] {
        let known = self.host_pid().and_then(|it| session.process_info.get(&it));
        known.map(|it| it.ancestors.as_slice()).unwrap_or_default()
    }

    /// Returns the pids from the oldest known ancestor to the process itself; none if its pid is unknown.
    fn path(&self, session: &Session) -> Vec<u32> {
        let own = self.host_pid();
        let above = self.ancestors(session).iter().rev().map(|it| it.pid);
        above.chain(own).collect()
    }

    /// Returns the text that a filter searches: `rank 3 pid 4242 user ada slurm 7 NCCL_DEBUG=INFO
    /// python train.py`.
    pub(super) fn words(&self, session: &Session) -> String {
        let rank = match self {
            Self::Probed(process, _) => process.rank(),
            Self::Unprobed(..) => None,
        };
        let who = self.pid().and_then(|it| session.process_info.get(&it));
        let mut words: Vec<String> = rank.map(|it| format!("rank {it}")).into_iter().collect();
        words.extend(self.pid().map(|it| format!("pid {it}")));
        words.extend(self.user(session).map(|it| format!("user {it}")));
        words.extend(who.into_iter().flat_map(|it| it.place.iter().chain(&it.environment)).map(Foreign::to_string));
        words.extend(self.argv(session).into_iter().map(str::to_owned));
        words.join(" ")
    }
}

impl Ui {
    /// Returns whether a process is no longer listed: it ended long ago, or the user cleared it. A replay shows what
    /// there was; the selected process stays, and so does one that still holds memory.
    pub fn is_cleared(&self, process: &Process, session: &Session) -> bool {
        let is_held = matches!(self.held, Some(RowId::Probed(probe, _)) if probe == process.probe);
        let is_over = self.was_cleared(process) || process.ended_long_ago(session.now);
        is_over && !is_held && !self.is_replay() && !session.is_listed(process)
    }

    /// Returns whether a process had ended when the user cleared the list.
    pub(super) fn was_cleared(&self, process: &Process) -> bool {
        self.cleared.zip(process.ended_at()).is_some_and(|(cleared, end)| end <= cleared)
    }

    /// Lists the processes that have ended no longer.
    pub(super) fn clear(&mut self, session: &Session) {
        if self.is_replay() {
            return self.show_message("a replay lists what there was");
        }
        let before = self.listed_processes(session);
        // A frozen view may be older than what was cleared before.
        self.cleared = self.cleared.max(Some(session.now));
        let is_of_ended = |held: &RowId| match held {
            RowId::Probed(probe, _) => session.process(*probe).is_none_or(|it| !it.is_alive()),
            RowId::Unprobed(..) => false,
        };
        if matches!(self.screen, Screen::Overview | Screen::Device) {
            self.held = self.held.take().filter(|it| !is_of_ended(it));
        }
        match before.saturating_sub(self.listed_processes(session)) as u64 {
            0 => self.show_message("nothing that has ended is listed"),
            count => self.show_message(format!("{} cleared that had ended", units::counted(count, "process"))),
        }
        self.row = self.place(&self.rows(session));
    }

    /// Returns the number of probed processes on any device that are listed.
    fn listed_processes(&self, session: &Session) -> usize {
        let mut listed: Vec<ProbeId> =
            self.probed(None, session).into_iter().map(|(process, _)| process.probe).collect();
        listed.sort_unstable();
        listed.dedup();
        listed.len()
    }

    /// Returns the probed processes of a device, or of all, that are listed.
    pub fn probed<'a>(&self, device: Option<&DeviceId>, session: &'a Session) -> Vec<(&'a Process, &'a OnDevice)> {
        let mut probed = session.probed(device);
        probed.retain(|(process, _)| !self.is_cleared(process, session));
        probed
    }

    /// Returns the rows of the process list.
    pub fn rows<'a>(&self, session: &'a Session) -> Vec<ProcessRow<'a>> {
        self.rows_of(self.listed(session), session)
    }

    /// Returns the lines of the process list: its rows, and in the tree also their ancestors.
    pub fn lines<'a>(&self, rows: &[ProcessRow], session: &'a Session) -> Vec<Branch<'a>> {
        if self.listing == Listing::Tree {
            let rows: Vec<_> = rows.iter().map(|it| (it.path(session), it.ancestors(session))).collect();
            return tree::branches(&rows);
        }
        (0..rows.len()).map(|place| Branch { prefix: String::new(), of: Limb::Row(place) }).collect()
    }

    /// Lists the processes as a tree, or as rows again.
    pub(super) fn turn_tree(&mut self, session: &Session) {
        let (listing, words) = match self.listing {
            Listing::Rows => (Listing::Tree, "processes below their ancestors"),
            Listing::Tree => (Listing::Rows, "processes as rows"),
        };
        self.listing = listing;
        (self.screen, self.focus) = (Screen::Overview, Focus::Processes);
        self.back_stack.clear();
        self.row = self.place(&self.rows(session));
        self.show_message(words);
    }

    /// Returns the number of rows without the filter.
    pub fn unfiltered(&self, session: &Session) -> usize {
        self.unfiltered_of(self.listed(session), session)
    }

    /// Returns the number of rows of a device, or of all, without the filter.
    pub fn unfiltered_of(&self, listed: Option<&DeviceId>, session: &Session) -> usize {
        self.probed(listed, session).len() + session.unprobed(listed).len()
    }

    pub(super) fn rows_of<'a>(&self, device: Option<&DeviceId>, session: &'a Session) -> Vec<ProcessRow<'a>> {
        let probed = self.probed(device, session).into_iter().map(|(process, on)| ProcessRow::Probed(process, on));
        let unprobed = session.unprobed(device).into_iter().map(|(device, it)| ProcessRow::Unprobed(device, it));
        let mut rows: Vec<ProcessRow> =
            probed.chain(unprobed).filter(|it| self.filter.lets_through(it, session)).collect();
        self.order.sort(&mut rows, session);
        if self.listing == Listing::Tree {
            tree::sort(&mut rows, |it| it.path(session));
        }
        rows
    }

    /// Returns the index of the selected row: that of the selected process, wherever it moved, otherwise the same
    /// index. Before the user selects anything, that of the process that needs attention.
    pub fn place(&self, rows: &[ProcessRow]) -> usize {
        let meant = self.held.as_ref().or_else(|| self.attended()?.row.as_ref());
        let held = meant.and_then(|held| rows.iter().position(|it| it.id() == *held));
        held.unwrap_or(self.row.min(rows.len().saturating_sub(1)))
    }

    /// Returns the selected row.
    pub fn chosen<'a>(&self, session: &'a Session) -> Option<ProcessRow<'a>> {
        let rows = self.rows(session);
        rows.get(self.place(&rows)).copied()
    }

    /// Returns the run of the selected row. Before the user selects anything, it is that of the first probed process if
    /// the row has none.
    pub fn process<'a>(&self, session: &'a Session) -> Option<(&'a Process, &'a OnDevice)> {
        let rows = self.rows(session);
        let row = rows.get(self.place(&rows))?;
        let is_held = self.held.as_ref() == Some(&row.id());
        row.run(session).or_else(|| rows.iter().filter(|_| !is_held).find_map(ProcessRow::probed))
    }

    /// Returns the row that is visibly meant: the marked one of the overview, whichever box is focused, the process of
    /// a process screen, otherwise the only one.
    pub(super) fn meant<'a>(&self, session: &'a Session) -> Option<ProcessRow<'a>> {
        match self.screen {
            Screen::Process | Screen::Timeline => {
                let left = self.chosen(session).filter(|it| it.probed().is_none() && it.run(session).is_some());
                left.or_else(|| self.process(session).map(|(process, on)| ProcessRow::Probed(process, on)))
            }
            // Every preset lists processes.
            Screen::Overview => self.chosen(session),
            Screen::Device | Screen::Alerts => self.chosen(session).filter(|_| self.rows(session).len() == 1),
        }
    }

    /// Selects the process after or before the selected one, on any device.
    pub(super) fn neighbour(&mut self, after: bool, session: &Session) {
        let mut all = self.rows_of(None, session);
        all.retain(|it| it.run(session).is_some());
        let run = |(process, on): (&Process, &OnDevice)| (process.probe, on.ordinal);
        let Some(here) = self.process(session).map(run) else { return };
        let Some(place) = all.iter().position(|it| it.run(session).map(run) == Some(here)) else { return };
        let there = if after { place + 1 } else { place.wrapping_sub(1) };
        if let Some(row) = all.get(there) {
            self.go_to(row, session);
        }
    }

    /// Selects a process on any device, and focuses the list.
    pub fn select_process(&mut self, id: &RowId, session: &Session) {
        let rows = self.rows_of(None, session);
        if let Some(row) = rows.iter().find(|it| it.id() == *id) {
            self.focus = Focus::Processes;
            self.go_to(row, session);
        }
    }

    /// Selects a row wherever it is listed.
    fn go_to(&mut self, row: &ProcessRow, session: &Session) {
        self.device = Some(row.device().clone());
        self.held = Some(row.id());
        self.row = self.place(&self.rows(session));
    }

    /// Selects a row, and its device if rows of several devices are listed.
    pub(super) fn select_row(&mut self, place: usize, session: &Session) {
        let rows = self.rows(session);
        self.row = place.min(rows.len().saturating_sub(1));
        if let Some(row) = rows.get(self.row) {
            self.held = Some(row.id());
            self.device = Some(row.device().clone());
        }
    }

    /// Selects the first row of the selected device.
    pub(super) fn row_of_device(&mut self, session: &Session) {
        let rows = self.rows(session);
        let device = session.devices.get(self.selected(session)).map(|it| &it.id);
        self.row = rows.iter().position(|it| Some(it.device()) == device).unwrap_or(0);
        self.held = rows.get(self.row).map(ProcessRow::id);
    }

    /// Selects the next or previous row on any device that matches the filter, cyclically.
    pub(super) fn next_match(&mut self, forward: bool, session: &Session) {
        if self.filter.text.is_empty() {
            self.show_message("no filter to look for: / begins one");
            return;
        }
        let rows = self.rows_of(None, session);
        let here = self.chosen(session).map(|it| it.id());
        let place = here.and_then(|here| rows.iter().position(|it| it.id() == here));
        let step = if forward { 1 } else { rows.len().saturating_sub(1) };
        let next = place.map_or(0, |it| (it + step) % rows.len().max(1));
        let Some(row) = rows.get(next) else {
            self.show_message("nothing on any device matches");
            return;
        };
        self.focus = Focus::Processes;
        self.go_to(row, session);
    }
}

/// Most characters of a filter.
const TEXT_MAX: usize = 80;

/// A text to search in command, pid, rank, user, batch job, container and settings of the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The text; a row must contain it literally, in any case.
    pub text: String,
    /// Whether keys add characters to it.
    pub typing: bool,
}

impl Filter {
    /// Returns whether a row matches.
    pub(super) fn lets_through(&self, row: &ProcessRow, session: &Session) -> bool {
        let wanted = self.text.trim();
        wanted.is_empty() || row.words(session).to_lowercase().contains(&wanted.to_lowercase())
    }

    /// Edits the text.
    pub(super) fn edit(&mut self, edit: Edit) {
        match edit {
            Edit::Type(letter) => self.add(letter),
            Edit::Erase => self.typing &= self.text.pop().is_some(),
            Edit::EraseAll => self.text.clear(),
        }
    }

    fn add(&mut self, letter: char) {
        if !letter.is_control() && self.text.chars().count() < TEXT_MAX {
            self.text.push(letter);
        }
    }
}

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
