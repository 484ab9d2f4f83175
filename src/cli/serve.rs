//! `gpuwatch serve`: its flags.

use crate::{
    commands::serve::{self, Address, Endpoint, Places},
    config::{self, Watching},
    facts::text::Foreign,
    model::alerts::Policy,
    sources::Sources,
};
use anyhow::Result;
use std::{path::PathBuf, time::Duration};

/// The end of its help.
pub(super) const AFTER: &str = "Examples:
  gpuwatch serve --metrics 127.0.0.1:9477
  gpuwatch serve --metrics unix:$XDG_RUNTIME_DIR/gpuwatch.sock
  gpuwatch serve --textfile /var/lib/prometheus/node-exporter/gpuwatch.prom
  gpuwatch serve --otlp http://127.0.0.1:4318

Every user of this machine can read a port, but only its owner a socket. The figures have no command lines.";

/// What it takes.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Asked {
    /// Answer HTTP requests for /metrics: a loopback address with a port, or unix: and the path of a socket.
    #[arg(long, value_name = "ADDRESS", required_unless_present_any = ["textfile", "otlp"])]
    metrics: Option<Address>,
    /// Answer only requests with the bearer token in this file's first line.
    #[arg(long, value_name = "FILE", requires = "metrics")]
    token: Option<PathBuf>,
    /// Keep a file up to date for a collector that reads files; it is removed at the end.
    #[arg(long, value_name = "FILE")]
    textfile: Option<PathBuf>,
    /// Push the figures to an OpenTelemetry receiver over HTTP (OTLP as JSON).
    #[arg(long, value_name = "URL")]
    otlp: Option<Endpoint>,
    /// Time between two writes of that file, and between two pushes; at least a second.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = config::duration)]
    every: Duration,
    #[command(flatten)]
    watching: Watching,
}

/// Serves the figures until a signal ends it.
pub(super) fn serve(asked: Asked, policy: &Policy) -> Result<u8> {
    let Asked { metrics, token, textfile, otlp, every, watching } = asked;
    let places = Places { metrics, token, textfile, otlp, every };
    gpuwatch_probe::socket::prepare();
    super::runtime()?.block_on(async {
        let mut sources = Sources::start(watching.sources());
        serve::serve(&mut sources, policy, &places, |it| super::print_message(format_args!("{}", Foreign::new(it))))
            .await
    })?;
    Ok(0)
}
