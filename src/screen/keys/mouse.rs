//! Converts a terminal's mouse events for the views.

use crate::{facts::units::Stamp, screen::ui::mouse::Mouse};
use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Position;

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
