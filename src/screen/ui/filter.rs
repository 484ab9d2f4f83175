//! The filter of the process list: its text, and the rows that match.

use super::{Edit, rows::Row};
use crate::model::session::Session;

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
    pub(super) fn lets_through(&self, row: &Row, session: &Session) -> bool {
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
