//! The filter of the process list: what is typed, and what it lets through.

use super::rows::Row;
use crate::model::session::Session;

/// Characters that a filter can have.
const TEXT_MAX: usize = 80;

/// What is looked for in command, pid, rank and user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The text; all of it has to be found as it stands, great or small letters.
    pub text: String,
    /// Whether keys are its letters.
    pub typing: bool,
}

impl Filter {
    /// Whether it lets a row through.
    pub(super) fn lets_through(&self, row: &Row, session: &Session) -> bool {
        let wanted = self.text.trim();
        wanted.is_empty() || row.words(session).to_lowercase().contains(&wanted.to_lowercase())
    }

    pub(super) fn add(&mut self, letter: char) {
        if !letter.is_control() && self.text.chars().count() < TEXT_MAX {
            self.text.push(letter);
        }
    }
}
