//! Mouse events on the screen of many machines.

use super::ClusterUi;
use crate::{
    model::cluster::overview::Overview,
    screen::ui::{
        Command, Motion,
        mouse::{Mouse, Regions, Target},
    },
};

impl ClusterUi {
    /// Handles a mouse event in a frame.
    pub fn mouse(&mut self, mouse: Mouse, regions: &Regions, overview: &Overview) {
        let (Mouse::Press(at) | Mouse::Double(at) | Mouse::Drag(at) | Mouse::Wheel(at, _)) = mouse;
        match (mouse, regions.at(at).next().map(|it| it.1.clone())) {
            (Mouse::Wheel(_, true), _) => self.update(Command::Move(Motion::Up), overview),
            (Mouse::Wheel(_, false), _) => self.update(Command::Move(Motion::Down), overview),
            (Mouse::Drag(_), _) => {}
            (_, None) => (self.base.help, self.base.filter.typing) = (false, false),
            _ if self.base.help => self.base.help = false,
            (_, Some(Target::Key(command))) => self.update(command, overview),
            (_, Some(Target::Line(line))) => {
                self.base.status = None;
                self.select(line, overview);
                if matches!(mouse, Mouse::Double(_)) {
                    self.update(Command::Open, overview);
                }
            }
            // The screens of one machine have the others.
            (_, Some(_)) => {}
        }
    }
}
