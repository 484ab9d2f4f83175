//! The state of the user interface for a memory snapshot: the screen, the device, the blocks, the cursor of the trace.

/// The rows and boxes of the call tree.
mod call_tree;

pub use crate::screen::ui::{
    command::{Page, SnapshotCommand},
    snapshot_ui::call_tree::CallRow,
};
use crate::{
    facts::{text::Foreign, units::Bytes},
    model::{
        snapshot::{At, Device, Matches, Piece, Profile, Snapshot},
        trace::Moment,
    },
    screen::ui::{
        Answer, Chart, Command, Motion, Request, Source, Ui,
        mouse::{Mouse, Regions, Target, place},
        moved,
        rows::Filter,
    },
    storage::pickle::Progress,
};
use ratatui::layout::Rect;
use std::{collections::BTreeSet, ops::Range};

/// The figure to sort segments by, the largest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Their bytes.
    #[default]
    Size,
    /// Free bytes beside blocks that are not free.
    Stuck,
    /// The largest free block.
    LargestFree,
    /// Where they begin, the lowest first.
    Address,
}

impl Order {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Size, "size"),
        (Self::Stuck, "stuck memory"),
        (Self::LargestFree, "largest free block"),
        (Self::Address, "address"),
    ];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|it| it.0 == self).map_or("", |it| it.1)
    }

    fn next(self) -> Self {
        let here = Self::ALL.iter().position(|it| it.0 == self).unwrap_or(0);
        Self::ALL.get((here + 1) % Self::ALL.len()).map(|it| it.0).unwrap_or_default()
    }
}

/// The request that may fit or not, before the user changes it.
const REQUEST: u64 = 512 << 20;
/// The smallest and the largest request that keys can reach.
const REQUESTS: [u64; 2] = [1 << 20, 1 << 40];

/// The state of the user interface for a memory snapshot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SnapshotUi {
    /// Help, filter, message, and the request to the loop.
    pub base: Ui,
    /// The file's name.
    pub name: Foreign,
    /// How much of the file is read; `None` once its snapshot is here.
    pub reading: Option<Progress>,
    /// Which screen.
    pub page: Page,
    /// Which device, by its place in the list.
    pub device: usize,
    /// Which blocks the tree and the flame graph are of.
    pub at: At,
    /// Whether the tree begins with the calls that allocated.
    pub inverted: bool,
    /// The blocks of the device that match the filter; `None` without one. [`SnapshotUi::refresh`] makes it.
    pub matches: Option<Matches>,
    /// The selected blocks; [`SnapshotUi::refresh`] makes it.
    pub profile: Profile,
    /// The selected call, by its place in the tree.
    pub call: usize,
    /// The calls whose calls are listed.
    opened: BTreeSet<usize>,
    /// The call that the flame graph begins with.
    pub root: usize,
    /// The figure to sort segments by.
    pub order: Order,
    /// The selected segment, by its place among those that are listed.
    pub segment: usize,
    /// The bytes of the request; `None` before the user chooses.
    pub request: Option<u64>,
    /// The cursor of the trace, an event of the device; `None` is its peak.
    pub cursor: Option<usize>,
    /// How often the part of the trace that is shown was halved.
    pub zoom: u32,
    /// The blocks that were live at the cursor.
    pub moment: Option<Moment>,
    /// The inputs that profile and moment were made from.
    made: Made,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Made {
    matches: Option<(usize, String)>,
    profile: Option<(usize, At, String, bool, bool)>,
    moment: Option<(usize, Option<usize>)>,
}

impl SnapshotUi {
    /// A view of a file that is being read; `request` is what may fit or not.
    pub fn new(name: Foreign, reading: Option<Progress>, request: Option<u64>) -> Self {
        let base = Ui { source: Source::Snapshot, ..Ui::default() };
        Self { base, name, reading, request, ..Self::default() }
    }

    /// The selected device.
    pub fn device<'a>(&self, snapshot: &'a Snapshot) -> Option<&'a Device> {
        snapshot.devices.get(self.device)
    }

    /// The request that may fit or not.
    pub fn request(&self) -> u64 {
        self.request.unwrap_or(REQUEST)
    }

    /// The segments of the selected device that match the filter, as they are listed.
    pub fn segments<'a>(&self, snapshot: &'a Snapshot) -> Vec<&'a Piece> {
        let mut listed = self.all_segments(snapshot);
        if let Some(matches) = &self.matches {
            listed.retain(|it| matches.has_segment(it.place));
        }
        listed
    }

    /// All segments of the selected device, in the same order.
    pub fn all_segments<'a>(&self, snapshot: &'a Snapshot) -> Vec<&'a Piece> {
        let mut all: Vec<&Piece> = self.device(snapshot).iter().flat_map(|it| &it.segments).collect();
        let address = |piece: &Piece| snapshot.segment(piece).map_or(0, |it| it.address);
        let most = |by: fn(&Piece) -> u64| move |piece: &&Piece| std::cmp::Reverse(by(piece));
        match self.order {
            Order::Size => {}
            Order::Stuck => all.sort_by_key(most(|it| it.totals.stuck)),
            Order::LargestFree => all.sort_by_key(most(|it| it.totals.largest_free)),
            Order::Address => all.sort_by_key(|it| address(it)),
        }
        all
    }

    /// Handles a command.
    pub fn update(&mut self, command: Command, snapshot: &Snapshot) {
        self.base.status = None;
        match command {
            Command::Quit => self.base.quit = true,
            Command::Suspend => self.base.request = Some(Request::Suspend),
            Command::Redraw => self.base.request = Some(Request::Redraw),
            Command::Theme => self.base.request = Some(Request::Theme),
            command if self.base.filter.typing => self.type_filter(command.answer()),
            Command::Help => (self.base.help, self.base.help_scroll) = (!self.base.help, 0),
            Command::Back if self.base.help => self.base.help = false,
            Command::Move(it) if self.base.help => self.base.help_scroll = moved(it, self.base.help_scroll),
            _ if self.base.help => self.base.help_scroll = 0,
            Command::Back => self.back(),
            Command::Snapshot(it) => self.update_own(it, snapshot),
            Command::NextBox => self.turn(1),
            Command::PreviousBox => self.turn(Page::ALL.len() - 1),
            Command::Device(place) => self.select_device(usize::from(place), snapshot),
            Command::Filter => self.base.filter.typing = true,
            Command::Copy => self.copy(snapshot),
            Command::Order => {
                (self.order, self.segment, self.page) = (self.order.next(), 0, Page::Segments);
                self.base.show_message(format!("segments by {}", self.order.name()));
            }
            Command::Invert => self.inverted = !self.inverted,
            Command::Chart(it) => self.change_chart(it, snapshot),
            Command::Move(it) => self.travel(it, snapshot),
            Command::Open => self.open_selected(snapshot),
            // Only the live view and replays have these.
            Command::Host(_)
            | Command::Freeze
            | Command::Edit(_)
            | Command::Limit(_)
            | Command::Yes
            | Command::Replay(_)
            | Command::Cluster(_) => {}
        }
        self.refresh(snapshot);
    }

    fn change_chart(&mut self, chart: Chart, snapshot: &Snapshot) {
        match chart {
            Chart::Plus | Chart::Minus if self.page == Page::Trace => self.zoom(chart == Chart::Plus, snapshot),
            Chart::Plus | Chart::Minus => self.ask(chart == Chart::Plus),
            Chart::Reset => self.reset(),
            // A trace has one axis and one scale.
            Chart::Axis | Chart::Scale => {}
        }
    }

    fn travel(&mut self, motion: Motion, snapshot: &Snapshot) {
        match self.page {
            Page::Overview => self.travel_devices(motion, snapshot),
            Page::Segments => self.travel_segments(motion, snapshot),
            Page::Stacks => self.travel_stacks(motion),
            Page::Flame => self.travel_flame(motion),
            Page::Trace => self.travel_trace(motion, snapshot),
        }
    }

    fn open_selected(&mut self, snapshot: &Snapshot) {
        match self.page {
            Page::Overview => self.show(Page::Stacks),
            Page::Segments => {
                if let Some(piece) = self.segments(snapshot).get(self.segment) {
                    (self.at, self.page) = (At::Segment(piece.place), Page::Stacks);
                }
            }
            Page::Stacks | Page::Flame => self.toggle(),
            Page::Trace => {
                if let Some(event) = self.event(snapshot) {
                    (self.at, self.page) = (At::Event(event), Page::Stacks);
                }
            }
        }
    }

    fn travel_devices(&mut self, motion: Motion, snapshot: &Snapshot) {
        match motion {
            Motion::Left | Motion::Up => self.select_device(self.device.saturating_sub(1), snapshot),
            Motion::Right | Motion::Down => self.select_device(self.device + 1, snapshot),
            Motion::First => self.select_device(0, snapshot),
            Motion::Last => self.select_device(usize::MAX, snapshot),
            Motion::PageUp | Motion::PageDown => {}
        }
    }

    fn travel_segments(&mut self, motion: Motion, snapshot: &Snapshot) {
        match motion {
            Motion::Left => self.select_device(self.device.saturating_sub(1), snapshot),
            Motion::Right => self.select_device(self.device + 1, snapshot),
            Motion::Up | Motion::Down | Motion::First | Motion::Last | Motion::PageUp | Motion::PageDown => {
                let last = self.segments(snapshot).len().saturating_sub(1);
                self.segment = moved(motion, self.segment).min(last);
            }
        }
    }

    /// Handles a command that only a snapshot has.
    fn update_own(&mut self, command: SnapshotCommand, snapshot: &Snapshot) {
        match command {
            SnapshotCommand::Show(page) if page == self.page => {}
            SnapshotCommand::Show(page) => self.show(page),
            SnapshotCommand::Toggle => self.toggle(),
            SnapshotCommand::Peak => (self.cursor, self.page) = (None, Page::Trace),
            SnapshotCommand::PreviousEvent | SnapshotCommand::NextEvent => {
                self.step(command == SnapshotCommand::NextEvent, snapshot);
            }
            SnapshotCommand::PreviousFailure | SnapshotCommand::NextFailure => {
                self.failure(command == SnapshotCommand::NextFailure, snapshot);
            }
        }
    }

    /// Shows a screen. The tree and the flame graph stay with the same blocks while one leads to the other.
    fn show(&mut self, page: Page) {
        let is_calls = |it: Page| matches!(it, Page::Stacks | Page::Flame);
        if is_calls(page) && !is_calls(self.page) {
            self.at = At::End;
        }
        (self.page, self.base.scroll) = (page, 0);
    }

    fn turn(&mut self, by: usize) {
        let here = Page::ALL.iter().position(|it| it.0 == self.page).unwrap_or(0);
        if let Some((page, _)) = Page::ALL.get((here + by) % Page::ALL.len()) {
            self.show(*page);
        }
    }

    /// Leaves what was opened last: a call of the flame graph, blocks of one segment or event, the filter, the screen.
    fn back(&mut self) {
        let is_calls = matches!(self.page, Page::Stacks | Page::Flame);
        if self.page == Page::Flame && self.root > 0 {
            self.root = 0;
        } else if !self.base.filter.text.is_empty() {
            self.base.filter = Filter::default();
        } else if let (true, At::Segment(_)) = (is_calls, self.at) {
            (self.at, self.page) = (At::End, Page::Segments);
        } else if let (true, At::Event(_)) = (is_calls, self.at) {
            (self.at, self.page) = (At::End, Page::Trace);
        } else {
            self.show(Page::Overview);
        }
    }

    fn reset(&mut self) {
        if self.page == Page::Trace {
            self.zoom = 0;
        } else {
            (self.at, self.root) = (At::End, 0);
        }
    }

    fn select_device(&mut self, place: usize, snapshot: &Snapshot) {
        let place = place.min(snapshot.devices.len().saturating_sub(1));
        if place != self.device {
            (self.device, self.segment, self.cursor, self.zoom) = (place, 0, None, 0);
            self.at = At::End;
        }
    }

    /// Doubles or halves the request.
    fn ask(&mut self, more: bool) {
        let now = self.request();
        let next = if more { now.saturating_mul(2) } else { now / 2 }.clamp(REQUESTS[0], REQUESTS[1]);
        self.request = Some(next);
        self.base.show_message(format!("would a free block hold {}?", Bytes(next)));
    }

    fn type_filter(&mut self, answer: Answer) {
        let filter = &mut self.base.filter;
        match answer {
            Answer::Edit(it) => filter.edit(it),
            Answer::Accept => filter.typing = false,
            Answer::Cancel => *filter = Filter::default(),
            Answer::Up | Answer::Down | Answer::Yes | Answer::Limit(_) | Answer::Other => {}
        }
        if self.page == Page::Trace && answer == Answer::Accept {
            self.show(Page::Stacks);
        }
    }

    fn copy(&mut self, snapshot: &Snapshot) {
        let text = match self.page {
            Page::Stacks | Page::Flame => {
                let call = self.profile.tree.get(self.call);
                call.filter(|_| self.call > 0).map(|it| snapshot.trace.stacks.label(it.frame))
            }
            Page::Segments => {
                let piece = self.segments(snapshot).get(self.segment).copied().copied();
                piece.and_then(|it| snapshot.segment(&it)).map(|it| format!("{:#x}", it.address))
            }
            Page::Overview | Page::Trace => snapshot.settings().filter(|it| !it.is_empty()).map(|it| {
                let settings = Foreign::new(it);
                format!("PYTORCH_CUDA_ALLOC_CONF={settings}")
            }),
        };
        match text {
            Some(text) => self.base.request = Some(Request::Copy(text)),
            None => self.base.show_message("nothing is selected that could be copied"),
        }
    }

    /// Makes matches, profile and moment again if the snapshot or the selection has changed.
    pub fn refresh(&mut self, snapshot: &Snapshot) {
        let Some(device) = snapshot.devices.get(self.device) else { return };
        self.refresh_matches(snapshot, device);
        let has_history = device.history.is_some();
        let of = Some((self.device, self.at, self.base.filter.text.clone(), self.inverted, has_history));
        if self.made.profile != of {
            self.profile = snapshot.profile(device, self.at, self.matches.as_ref(), self.inverted);
            self.made.profile = of;
            self.begin_tree();
        }
        let event = self.event(snapshot);
        if self.made.moment != Some((self.device, event)) {
            self.moment = event.and_then(|it| snapshot.moment(device, it));
            self.made.moment = Some((self.device, event));
        }
    }

    /// Applies the filter again if it or the device has changed. The selected segment stays selected where it matches.
    fn refresh_matches(&mut self, snapshot: &Snapshot, device: &Device) {
        let of = Some((self.device, self.base.filter.text.clone()));
        if self.made.matches == of {
            return;
        }
        let selected = self.segments(snapshot).get(self.segment).map(|it| it.place);
        self.matches = snapshot.matches(device, &self.base.filter.text);
        self.made.matches = of;
        let listed = self.segments(snapshot);
        self.segment = listed.iter().position(|it| Some(it.place) == selected).unwrap_or(0);
    }
}

impl SnapshotUi {
    /// Handles a mouse event in a frame.
    pub fn mouse(&mut self, mouse: Mouse, regions: &Regions, snapshot: &Snapshot) {
        let (Mouse::Press(at) | Mouse::Double(at) | Mouse::Drag(at) | Mouse::Wheel(at, _)) = mouse;
        let over = regions.at(at).next().map(|(area, target)| (area, target.clone()));
        match (mouse, over) {
            (Mouse::Wheel(_, up), over) => {
                let is_run = matches!(over, Some((_, Target::Run(..))));
                self.update(
                    match (is_run, up) {
                        (true, true) => Command::Chart(Chart::Plus),
                        (true, false) => Command::Chart(Chart::Minus),
                        (false, true) => Command::Move(Motion::Up),
                        (false, false) => Command::Move(Motion::Down),
                    },
                    snapshot,
                );
            }
            (_, None) => (self.base.help, self.base.filter.typing) = (false, false),
            (_, Some((area, Target::Run(from, to)))) => self.point(at.x, area, (from, to), snapshot),
            (Mouse::Drag(_), _) => {}
            _ if self.base.help => self.base.help = false,
            (_, Some((_, Target::Key(command)))) => self.update(command, snapshot),
            (_, Some((_, Target::Line(line)))) => {
                self.choose(line, snapshot);
                if matches!(mouse, Mouse::Double(_)) {
                    self.update(Command::Open, snapshot);
                }
            }
            // A snapshot has none of these.
            (
                _,
                Some((
                    _,
                    Target::Box(_)
                    | Target::Device(_)
                    | Target::Row(_)
                    | Target::Alert(_)
                    | Target::Column(_)
                    | Target::Signal(_)
                    | Target::Rung(_),
                )),
            ) => {}
        }
    }

    fn choose(&mut self, line: usize, snapshot: &Snapshot) {
        self.base.status = None;
        match self.page {
            Page::Overview => self.select_device(line, snapshot),
            Page::Segments => self.segment = line,
            Page::Stacks | Page::Flame => self.select_call(line),
            Page::Trace => {}
        }
        self.refresh(snapshot);
    }

    fn point(&mut self, column: u16, area: Rect, ends: (u64, u64), snapshot: &Snapshot) {
        self.cursor = usize::try_from(place(column, area, ends)).ok();
        self.refresh(snapshot);
    }
}

/// The fewest events that are shown.
const EVENTS_MIN: usize = 16;

/// A key moves the cursor by one of so many parts of what is shown.
const PARTS: usize = 80;

impl SnapshotUi {
    /// Returns the event under the cursor: the selected one, else the peak; `None` if the device has no known history.
    pub fn event(&self, snapshot: &Snapshot) -> Option<usize> {
        let history = self.device(snapshot)?.history.as_ref()?;
        let last = history.len().checked_sub(1)?;
        Some(self.cursor.or(history.peak).unwrap_or(last).min(last))
    }

    /// The events that are shown.
    pub fn window(&self, snapshot: &Snapshot) -> Range<usize> {
        let Some((device, cursor)) = self.device(snapshot).zip(self.event(snapshot)) else { return 0..0 };
        let events = device.events;
        let shown = (events >> self.zoom.min(60)).max(EVENTS_MIN).min(events);
        let first = cursor.saturating_sub(shown / 2).min(events - shown);
        first..first + shown
    }

    fn travel_trace(&mut self, motion: Motion, snapshot: &Snapshot) {
        let Some(event) = self.event(snapshot) else { return };
        let part = (self.window(snapshot).len() / PARTS).max(1);
        let next = match motion {
            Motion::Left => event.saturating_sub(part),
            Motion::Right => event.saturating_add(part),
            Motion::PageUp => event.saturating_sub(part * 10),
            Motion::PageDown => event.saturating_add(part * 10),
            Motion::First => 0,
            Motion::Last => usize::MAX,
            Motion::Up | Motion::Down => {
                self.base.scroll = moved(motion, self.base.scroll);
                return;
            }
        };
        let events = self.device(snapshot).map_or(0, |it| it.events);
        self.cursor = Some(next.min(events.saturating_sub(1)));
    }

    fn zoom(&mut self, nearer: bool, snapshot: &Snapshot) {
        if self.event(snapshot).is_none() {
            return;
        }
        self.zoom = if nearer {
            self.zoom + u32::from(self.window(snapshot).len() > EVENTS_MIN)
        } else {
            self.zoom.saturating_sub(1)
        };
    }

    fn step(&mut self, forward: bool, snapshot: &Snapshot) {
        self.page = Page::Trace;
        let Some(event) = self.event(snapshot) else { return };
        let last = self.device(snapshot).map_or(0, |it| it.events.saturating_sub(1));
        self.cursor = Some(if forward { (event + 1).min(last) } else { event.saturating_sub(1) });
    }

    /// The failed request after the cursor, or before it.
    fn failure(&mut self, forward: bool, snapshot: &Snapshot) {
        self.page = Page::Trace;
        let Some(event) = self.event(snapshot) else { return };
        let history = self.device(snapshot).and_then(|it| it.history.as_ref());
        let failures = history.map(|it| &it.failures[..]).unwrap_or_default();
        let next = if forward {
            failures.iter().find(|it| **it > event)
        } else {
            failures.iter().rev().find(|it| **it < event)
        };
        match next {
            Some(next) => self.cursor = Some(*next),
            None if failures.is_empty() => self.base.show_message("no request failed in this trace"),
            None => self.base.show_message("no more failed requests in this direction"),
        }
    }
}
