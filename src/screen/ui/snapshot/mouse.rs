//! Mouse events in a snapshot.

use super::{Page, SnapshotUi};
use crate::{
    model::snapshot::Snapshot,
    screen::ui::{
        Chart, Command, Motion,
        mouse::{Mouse, Regions, Target, place},
    },
};
use ratatui::layout::Rect;

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
