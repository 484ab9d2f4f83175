//! What a store of figures has answered: its address and the age of the figures, why no newer ones arrive, and what
//! takes the place of rows that it does not have.

use super::{Scene, cells, past, put, take};
use crate::{
    facts::units,
    model::cluster::answers::{Answers, NOTHING},
    screen::theme::Role,
};
use ratatui::{buffer::Buffer, layout::Rect, text::Line};

/// Figures that are older than this are late, in µs.
const LATE_US: u64 = 30_000_000;

/// The most columns of an address.
const ADDRESS: usize = 40;

/// Returns what the first line has of a store: `http://127.0.0.1:9090  3 s old`.
pub(super) fn pieces(answers: &Answers) -> [(String, Role); 2] {
    let age = match answers.age_us {
        Some(us) => (format!("{} old", units::duration(us)), if us >= LATE_US { Role::Warning } else { Role::Dim }),
        None => ("no answer yet".to_owned(), Role::Dim),
    };
    [(cells::elide(&cells::foreign(&answers.store), ADDRESS), Role::Key), age]
}

/// Draws the trouble, and what takes the place of rows; returns whether something does.
pub(super) fn draw(buffer: &mut Buffer, rest: &mut Rect, answers: &Answers, scene: &Scene) -> bool {
    if let Some(why) = &answers.trouble {
        let style = scene.context.style(Role::Warning);
        put(buffer, take(rest, 1), 0, &Line::styled(format!(" {}", cells::foreign(why)), style));
    }
    if scene.ui.is_past() {
        past::draw(buffer, *rest, answers, scene);
        return true;
    }
    let is_empty = scene.overview.nodes.is_empty();
    let store = cells::foreign(&answers.store);
    let words = match answers {
        _ if !is_empty => return false,
        Answers { age_us: Some(_), .. } => format!("{store} {NOTHING}"),
        Answers { trouble: Some(_), .. } => "gpuwatch asks again".to_owned(),
        _ => format!("asking {store}"),
    };
    let style = scene.context.style(Role::Dim);
    for (row, words) in cells::wrapped(&words, usize::from(rest.width).saturating_sub(2)).iter().enumerate() {
        put(buffer, *rest, row + 1, &Line::styled(format!(" {words}"), style));
    }
    true
}
