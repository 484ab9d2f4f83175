//! Flags of screens: their appearance, and what they may do.

use super::shot::{Shot, Which};
use crate::screen::{
    term,
    theme::{AUTO, Background, Choice, ColorDepth, Fault, Graph, Theme},
    ui::preset::Preset,
};
use clap::{ValueEnum, builder::FalseyValueParser};
use std::ops::Deref;

/// The background where no terminal has one.
const DARK: Option<Background> = Some(Background::Dark);

/// Options of every screen.
#[derive(Debug, clap::Args)]
pub(super) struct ScreenOptions<W: ValueEnum + Default + Send + Sync + 'static = Which> {
    /// Colours: auto (dusk or paper, as the terminal's background is), dusk (for dark terminals), paper (for light
    /// ones), contrast, colorblind, colorblind-light, neutral (for any background), plain (the terminal's sixteen),
    /// mono; one of your own in `$XDG_CONFIG_HOME/gpuwatch/themes/NAME.toml`; or a file's path.
    #[arg(long, env = "GPUWATCH_THEME", value_name = "NAME", default_value = AUTO)]
    pub(super) theme: String,
    /// How many colours to use; by default, COLORTERM, TERM and `NO_COLOR` decide.
    #[arg(long, env = "GPUWATCH_COLOR", value_name = "WHEN", value_enum, default_value_t)]
    pub(super) color: Colors,
    /// The characters of graphs; by default block, or ascii where the locale is not UTF-8.
    #[arg(long, env = "GPUWATCH_GRAPH", value_name = "KIND", value_enum)]
    pub(super) graph: Option<Graph>,
    /// Send no signals and no requests to jobs; for shared machines and demonstrations.
    #[arg(long, env = "GPUWATCH_READONLY", value_parser = FalseyValueParser::new())]
    pub(super) readonly: bool,
    /// Leave the mouse to the terminal, for example to select text.
    #[arg(long, env = "GPUWATCH_NO_MOUSE", value_parser = FalseyValueParser::new())]
    pub(super) no_mouse: bool,
    #[command(flatten)]
    pub(super) shot: Shot<W>,
}

/// Options of the screens of jobs.
#[derive(Debug, clap::Args)]
pub(super) struct OverviewOptions {
    #[command(flatten)]
    pub(super) screen: ScreenOptions,
    /// What the overview shows at first; the key v changes it.
    #[arg(long, env = "GPUWATCH_PRESET", value_name = "NAME", value_enum, default_value_t)]
    pub(super) preset: Preset,
}

/// How many colours are drawn with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Colors {
    /// As many as the terminal reports.
    #[default]
    Auto,
    /// None.
    Never,
    /// The terminal's own sixteen.
    #[value(name = "16")]
    Ansi16,
    /// The 256 of xterm.
    #[value(name = "256")]
    Ansi256,
    /// 24 bits.
    Truecolor,
}

impl Deref for OverviewOptions {
    type Target = ScreenOptions;

    fn deref(&self) -> &ScreenOptions {
        &self.screen
    }
}

impl<W: ValueEnum + Default + Send + Sync + 'static> ScreenOptions<W> {
    /// Returns the theme, with the colours and characters that the terminal has.
    pub(super) fn theme(&self) -> Result<Choice, Fault> {
        let depth = match self.color {
            Colors::Auto => term::color_depth(),
            Colors::Never => ColorDepth::None,
            Colors::Ansi16 => ColorDepth::Ansi16,
            Colors::Ansi256 => ColorDepth::Ansi256,
            Colors::Truecolor => ColorDepth::TrueColor,
        };
        let choice = self.themed(depth)?;
        // Without colours, the terminal's background makes no difference.
        Ok(if depth == ColorDepth::None { choice.on(DARK).clone().into() } else { choice })
    }

    /// Returns the theme for a picture, which has all colours by default, and a background of its own.
    pub(super) fn theme_of_pictures(&self) -> Result<Theme, Fault> {
        let choice = if self.color == Colors::Auto { self.themed(ColorDepth::TrueColor)? } else { self.theme()? };
        Ok(choice.on(DARK).clone())
    }

    fn themed(&self, depth: ColorDepth) -> Result<Choice, Fault> {
        let graph = if term::is_ascii_only() { Graph::Ascii } else { Graph::default() };
        let graph = self.graph.unwrap_or(graph);
        Ok(Choice::find(&self.theme)?.map(|it| it.at(depth).drawn_in(graph)))
    }
}
