//! How a screen looks, and what it may do, as flags.

use clap::builder::FalseyValueParser;

/// What every screen can be told.
#[derive(Debug, clap::Args)]
pub(super) struct Look {
    /// Colours: dusk, paper (for light terminals) or plain.
    #[arg(long, env = "GPUWATCH_THEME", value_name = "NAME", default_value = "dusk")]
    pub(super) theme: String,
    /// Send no signals: for shared machines, and for showing to others.
    #[arg(long, env = "GPUWATCH_READONLY", value_parser = FalseyValueParser::new())]
    pub(super) readonly: bool,
    /// Leave the mouse to the terminal, as for selecting text.
    #[arg(long, env = "GPUWATCH_NO_MOUSE", value_parser = FalseyValueParser::new())]
    pub(super) no_mouse: bool,
}
