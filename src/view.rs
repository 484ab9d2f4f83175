//! What is seen: the frame, its boxes arranged. Pure, and total for every size down to 0×0.

use crate::{findings::Findings, session::Session, theme::Theme, ui::Ui};
use ratatui::{Frame, text::Line};

/// Draws the whole screen.
pub fn draw(frame: &mut Frame, session: &Session, findings: &Findings, ui: &Ui, theme: &Theme) {
    let _ = (ui, theme);
    let lines: Vec<_> = session
        .devices
        .iter()
        .zip(&findings.devices)
        .map(|(device, found)| Line::raw(format!("{} {}", device.name, found.ladder.sum())))
        .collect();
    frame.render_widget(ratatui::text::Text::from(lines), frame.area());
}
