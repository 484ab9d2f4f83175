//! Which alerts a user expects from now on, or no longer: the names to add or to remove, and what they are limited to.

use crate::model::alerts;

/// What an expected alert is limited to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extent {
    /// Jobs of its script.
    Script,
    /// Its line.
    Line,
}

/// Which alerts to expect from now on, or no longer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expecting {
    /// Their name.
    pub name: String,
    /// The script of the selected one, if known.
    pub script: Option<String>,
    /// Its line, if known.
    pub line: Option<String>,
    /// What it is limited to.
    pub only: Option<Extent>,
    /// The names that are expected no longer; then none is added.
    pub removed: Vec<String>,
}

impl Expecting {
    /// Returns the name to add to the list.
    pub fn added(&self) -> String {
        self.only.and_then(|it| self.limit(it)).map_or_else(|| self.name.clone(), |it| alerts::limited(&self.name, it))
    }

    /// Returns the script or the line.
    pub fn limit(&self, extent: Extent) -> Option<&str> {
        match extent {
            Extent::Script => self.script.as_deref(),
            Extent::Line => self.line.as_deref(),
        }
    }

    /// Limits it, or no longer; `None` where it cannot be limited so.
    pub(super) fn limited(self, extent: Extent) -> Option<Self> {
        self.limit(extent).filter(|_| self.removed.is_empty())?;
        let only = Some(extent).filter(|it| self.only != Some(*it));
        Some(Self { only, ..self })
    }
}
