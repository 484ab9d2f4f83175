//! Flags of a screenshot: which screen, its size, its file.

use crate::screen::ui::snapshot_ui::Page;
use clap::ValueEnum;
use std::{path::PathBuf, str::FromStr};

/// The largest picture in columns and rows; larger ones are unreadable.
const MOST: u16 = 500;

/// A separate heading in the help.
const HEADING: &str = "Pictures";

/// A picture instead of a view.
#[derive(Debug, clap::Args)]
pub(super) struct Shot<W: ValueEnum + Default + Send + Sync + 'static> {
    /// Write the screen into FILE as SVG, and end; it must not be there yet (- is standard output).
    #[arg(long, value_name = "FILE.svg", help_heading = HEADING)]
    pub(super) screenshot: Option<PathBuf>,
    /// How many columns and rows it has.
    #[arg(long, value_name = "COLUMNSxROWS", default_value = "120x40", requires = "screenshot", help_heading = HEADING)]
    pub(super) size: Size,
    /// Which screen it shows, of what needs attention most.
    #[arg(long, value_enum, default_value_t, requires = "screenshot", help_heading = HEADING)]
    pub(super) screen: W,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) width: u16,
    pub(super) height: u16,
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers =
            text.split_once('x').and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
        let fits = |it: u16| (1..=MOST).contains(&it);
        match numbers {
            Some((width, height)) if fits(width) && fits(height) => Ok(Self { width, height }),
            Some(_) => Err(format!("a picture has 1 to {MOST} columns and rows")),
            None => Err("write columns and rows, as in 120x40".to_owned()),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(super) enum Which {
    #[default]
    Overview,
    Ranks,
    Device,
    Process,
    Timeline,
    Alerts,
    Help,
}

/// The screens of a snapshot.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(super) enum OfSnapshot {
    #[default]
    Overview,
    /// The segments of the device.
    Map,
    /// Live blocks by call stack.
    Blocks,
    /// The same as a flame graph.
    Flame,
    /// Memory over the events of the trace.
    Trace,
    Help,
}

impl OfSnapshot {
    pub(super) fn page(self) -> Page {
        match self {
            Self::Overview | Self::Help => Page::Overview,
            Self::Map => Page::Segments,
            Self::Blocks => Page::Stacks,
            Self::Flame => Page::Flame,
            Self::Trace => Page::Trace,
        }
    }
}
