//! Chooses a theme by the terminal's background.

use super::{Fault, Theme, find};

/// The name that lets the terminal's background choose.
pub const AUTO: &str = "auto";

/// The background of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Background {
    /// Light text is readable on it.
    Dark,
    /// Dark text is readable on it.
    Light,
}

/// The theme that a screen starts with.
#[derive(Clone, Debug)]
pub enum Choice {
    /// This one, whatever the background.
    Fixed(Theme),
    /// One for each background.
    ByBackground {
        /// For a dark one.
        dark: Theme,
        /// For a light one.
        light: Theme,
        /// For one that the terminal does not report.
        unknown: Theme,
    },
}

impl From<Theme> for Choice {
    fn from(theme: Theme) -> Self {
        Self::Fixed(theme)
    }
}

impl Choice {
    /// Finds the theme of a name or path, or those among which the background chooses.
    ///
    /// # Errors
    /// Fails if there is no such theme, or if its file has an error.
    pub fn find(name: &str) -> Result<Self, Fault> {
        if name != AUTO {
            return Ok(Self::Fixed(find(name)?));
        }
        let unknown = find("neutral")?.for_any_background();
        Ok(Self::ByBackground { dark: find("dusk")?, light: find("paper")?, unknown })
    }

    /// Returns the theme for a background; `None` for an unknown one.
    pub fn on(&self, background: Option<Background>) -> &Theme {
        match (self, background) {
            (Self::Fixed(theme), _) => theme,
            (Self::ByBackground { dark, .. }, Some(Background::Dark)) => dark,
            (Self::ByBackground { light, .. }, Some(Background::Light)) => light,
            (Self::ByBackground { unknown, .. }, None) => unknown,
        }
    }

    /// Returns the choice among the same themes, each changed.
    #[must_use]
    pub fn map(self, change: impl Fn(Theme) -> Theme) -> Self {
        match self {
            Self::Fixed(theme) => Self::Fixed(change(theme)),
            Self::ByBackground { dark, light, unknown } => {
                Self::ByBackground { dark: change(dark), light: change(light), unknown: change(unknown) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::theme::{ColorDepth, Role};
    use ratatui::style::{Color, Modifier};

    #[test]
    fn the_background_chooses_only_if_the_name_leaves_it_open() {
        let open = Choice::find(AUTO).unwrap();
        let fixed = Choice::find("contrast").unwrap();
        for (background, name) in
            [(Some(Background::Dark), "dusk"), (Some(Background::Light), "paper"), (None, "neutral")]
        {
            assert_eq!(open.on(background).name(), name);
            assert_eq!(fixed.on(background).name(), "contrast");
        }
    }

    #[test]
    fn on_an_unknown_background_plain_text_is_the_terminals_own_in_every_theme() {
        let own = Choice::find(AUTO).unwrap().map(|it| it.at(ColorDepth::Ansi256)).on(None).clone();
        let mut theme = own.clone();
        for _ in super::super::names() {
            assert_eq!(theme.style(Role::Text).fg, Some(Color::Reset), "{}", theme.name());
            let selected = theme.style(Role::Selected);
            assert!(selected.bg.is_none() && selected.add_modifier.contains(Modifier::REVERSED), "{}", theme.name());
            theme = theme.next(&own);
        }
        assert_eq!(theme, own);
    }
}
