//! Mouse events: the clickable regions of a frame, and what a click does.

use crate::{
    facts::{event::DeviceId, units::Stamp},
    model::{analysis::ladder::Gap, findings::Identity, session::Session},
    screen::ui::{
        Chart, Command, Focus, Motion, Screen, Ui,
        order::By,
        rows::{Filter, RowId},
    },
};
use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::{Position, Rect};

/// What a region of a frame represents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A box that the arrows can move in.
    Box(Focus),
    /// A device.
    Device(DeviceId),
    /// A row of the process list.
    Row(RowId),
    /// An alert.
    Alert(Identity),
    /// The title of a column of the process list.
    Column(By),
    /// A signal in the menu, by index.
    Signal(usize),
    /// A rung of the ladder.
    Rung(Gap),
    /// The timeline, with the positions on its axis at the left and right end.
    Run(u64, u64),
    /// A row, box or cell by its index: a segment, a call in the tree, a machine, a rank.
    Line(usize),
    /// A key's command.
    Key(Command),
}

/// The regions of a frame; later ones cover earlier ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Regions(Vec<(Rect, Target)>);

/// A mouse event, in cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mouse {
    /// The left button was pressed.
    Press(Position),
    /// It was pressed twice at one position within a short time.
    Double(Position),
    /// The mouse moved with the button down.
    Drag(Position),
    /// The wheel turned: up or not.
    Wheel(Position, bool),
}

/// The run that the user drags: where the drag began, and the cursor then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grab {
    column: u16,
    cursor: u64,
}

impl Regions {
    /// Adds a region.
    pub fn claim(&mut self, area: Rect, target: Target) {
        if !area.is_empty() {
            self.0.push((area, target));
        }
    }

    /// Returns the regions at a position, the topmost first.
    pub fn at(&self, place: Position) -> impl Iterator<Item = (Rect, &Target)> {
        self.0.iter().rev().filter(move |it| it.0.contains(place)).map(|it| (it.0, &it.1))
    }
}

impl Ui {
    /// Handles a mouse event in a frame.
    pub fn mouse(&mut self, mouse: Mouse, regions: &Regions, session: &Session) {
        let (Mouse::Press(at) | Mouse::Double(at) | Mouse::Drag(at) | Mouse::Wheel(at, _)) = mouse;
        let over = || regions.at(at);
        match mouse {
            Mouse::Wheel(_, up) => self.wheel(up, over().map(|it| it.1), session),
            Mouse::Drag(_) => {
                if let Some((area, Target::Run(from, to))) = over().next() {
                    self.drag(at.x, area, (*from, *to));
                }
            }
            Mouse::Press(_) | Mouse::Double(_) => {
                self.status = None;
                let Some((area, target)) = over().next() else { return self.leave() };
                let target = target.clone();
                self.press(&target, area, at.x, session);
                let opens = match target {
                    Target::Signal(_) => self.allowing.is_none() && self.starting.is_none(),
                    Target::Device(_) | Target::Row(_) | Target::Alert(_) => !self.is_asked(),
                    Target::Box(_)
                    | Target::Column(_)
                    | Target::Rung(_)
                    | Target::Run(..)
                    | Target::Line(_)
                    | Target::Key(_) => false,
                };
                if opens && matches!(mouse, Mouse::Double(_)) {
                    self.open_clicked(&target, session);
                }
            }
        }
    }

    /// Opens a double-clicked item; for a process on its device's screen, only that process.
    fn open_clicked(&mut self, target: &Target, session: &Session) {
        if self.screen == Screen::Device && matches!(target, Target::Row(RowId::Unprobed(..))) {
            self.show_message("no probe is in this process: P starts one");
        } else {
            self.update(Command::Open, session);
        }
    }

    /// Whether a question is open.
    fn is_asked(&self) -> bool {
        self.dialog.is_some() || self.allowing.is_some() || self.starting.is_some()
    }

    /// A click outside an open box closes it.
    fn leave(&mut self) {
        (self.help, self.explained) = (false, None);
        self.filter.typing = false;
    }

    fn press(&mut self, target: &Target, area: Rect, column: u16, session: &Session) {
        match target {
            // Nothing below an open menu can be clicked.
            Target::Signal(place) => {
                if let Some(dialog) = self.dialog.as_mut().filter(|it| !it.asked) {
                    dialog.place = *place;
                }
            }
            _ if self.is_asked() => {}
            _ if self.help || self.explained.is_some() => self.leave(),
            Target::Key(command) => self.update(*command, session),
            Target::Box(focus) => self.focus = *focus,
            Target::Device(device) => {
                self.focus = Focus::Devices;
                if self.device.as_ref() != Some(device) {
                    self.device = Some(device.clone());
                    self.row_of_device(session);
                }
            }
            Target::Row(row) => {
                self.focus = Focus::Processes;
                // A device's screen also lists processes that the filter hides.
                if self.rows(session).iter().all(|it| it.id() != *row) {
                    self.filter = Filter::default();
                }
                if let Some(place) = self.rows(session).iter().position(|it| it.id() == *row) {
                    self.select_row(place, session);
                }
            }
            Target::Rung(gap) => self.select_rung(*gap),
            // Only the screens of snapshots and of many machines have them.
            Target::Line(_) => {}
            Target::Alert(alert) => {
                self.focus = Focus::Alerts;
                self.select_alert(*alert);
            }
            Target::Column(by) => {
                self.focus = Focus::Processes;
                self.order.choose(*by);
                self.show_order();
            }
            Target::Run(from, to) => {
                self.timeline.cursor = Some(place(column, area, (*from, *to)));
                self.grabbed = self.timeline.cursor.map(|cursor| Grab { column, cursor });
            }
        }
    }

    /// The wheel moves in the box under it; on the timeline it zooms.
    fn wheel<'a>(&mut self, up: bool, mut over: impl Iterator<Item = &'a Target>, session: &Session) {
        if self.allowing.is_some() || self.starting.is_some() {
            return;
        }
        let is_run = |it: &Target| matches!(it, Target::Run(..));
        let command = match (self.screen, up) {
            (Screen::Timeline, true) if over.any(is_run) => Command::Chart(Chart::Plus),
            (Screen::Timeline, false) if over.any(is_run) => Command::Chart(Chart::Minus),
            (_, true) => Command::Move(Motion::Up),
            (_, false) => Command::Move(Motion::Down),
        };
        if self.dialog.is_none() && !self.help && self.explained.is_none() && self.screen == Screen::Overview {
            let found = over.find_map(|it| if let Target::Box(focus) = it { Some(*focus) } else { None });
            let Some(focus) = found else { return };
            self.focus = focus;
        }
        self.update(command, session);
    }

    /// If the whole run is visible, the cursor follows the mouse; if a part is, the run does.
    fn drag(&mut self, column: u16, area: Rect, ends: (u64, u64)) {
        let Some(grab) = self.grabbed else { return };
        if self.timeline.zoom == 0 {
            self.timeline.cursor = Some(place(column, area, ends));
            return;
        }
        let (there, here) = (place(grab.column, area, ends), place(column, area, ends));
        self.timeline.cursor = Some(grab.cursor.saturating_add(there).saturating_sub(here));
    }
}

/// Returns the position on the axis under a column of an area.
pub(in crate::screen::ui) fn place(column: u16, area: Rect, (from, to): (u64, u64)) -> u64 {
    let (past, whole) = (u128::from(column.saturating_sub(area.x)), u128::from(area.width.saturating_sub(1)).max(1));
    let length = u128::from(to.saturating_sub(from));
    from.saturating_add(u64::try_from(length * past.min(whole) / whole).unwrap_or(0))
}

/// Two clicks within this time are a double click.
const DOUBLE_US: u64 = 400_000;

/// The last click.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clicks {
    last: Option<(Stamp, Position)>,
}

impl Clicks {
    /// Converts an event; `None` for buttons and moves without a meaning.
    pub fn take(&mut self, event: MouseEvent, at: Stamp) -> Option<Mouse> {
        let place = Position { x: event.column, y: event.row };
        match event.kind {
            MouseEventKind::ScrollUp => Some(Mouse::Wheel(place, true)),
            MouseEventKind::ScrollDown => Some(Mouse::Wheel(place, false)),
            MouseEventKind::Drag(MouseButton::Left) => Some(Mouse::Drag(place)),
            MouseEventKind::Down(MouseButton::Left) => {
                let again = self.last.is_some_and(|(then, there)| there == place && at.since(then) <= DOUBLE_US);
                // A third click starts again.
                self.last = (!again).then_some((at, place));
                Some(if again { Mouse::Double(place) } else { Mouse::Press(place) })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossterm::event::KeyModifiers;

    #[test]
    fn two_clicks_at_one_place_within_a_moment_are_one_that_opens() {
        let mut clicks = Clicks::default();
        let mut down = |column, ms: u64| {
            let kind = MouseEventKind::Down(MouseButton::Left);
            let event = MouseEvent { kind, column, row: 3, modifiers: KeyModifiers::NONE };
            matches!(clicks.take(event, Stamp(ms * 1000)), Some(Mouse::Double(_)))
        };
        let clicked = [(5, 0), (5, 300), (5, 500), (6, 600), (6, 1100), (6, 1400)].map(|(column, ms)| down(column, ms));
        assert_eq!(clicked, [false, true, false, false, false, true]);
    }
}
