//! `gpuwatch serve`: its flags.

use crate::{
    commands::serve::{self, Address, Endpoint, Places},
    config::{self, Watching},
    facts::text::Foreign,
    model::alerts::Policy,
    net::tls::Files,
    sources::Sources,
    storage::output,
};
use anyhow::Result;
use std::{path::PathBuf, time::Duration};

/// The end of its help.
pub(super) const AFTER: &str = "Examples:
  gpuwatch serve --metrics 127.0.0.1:9477
  gpuwatch serve --metrics unix:$XDG_RUNTIME_DIR/gpuwatch.sock
  gpuwatch serve --textfile /var/lib/prometheus/node-exporter/gpuwatch.prom
  gpuwatch serve --metrics 0.0.0.0:9477 --tls-cert node.pem --tls-key node.key --token FILE
  gpuwatch serve --otlp http://127.0.0.1:4318

Every user of this machine can read a port, but only its owner a socket. The figures have no command lines. A port that other \
machines can reach needs a certificate and a token. A new certificate is read when its file changes.";

/// What it takes.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Asked {
    /// Answer HTTP requests for /metrics: an address with a port, or unix: and the path of a socket.
    #[arg(long, value_name = "ADDRESS", required_unless_present_any = ["textfile", "otlp"])]
    metrics: Option<Address>,
    /// Answer only requests with the bearer token in this file's first line. Where other machines can reach the
    /// address, other users must not be able to read the file.
    #[arg(long, value_name = "FILE", requires = "metrics")]
    token: Option<PathBuf>,
    /// Answer only over TLS, with this certificate in PEM, followed by those of its issuers.
    #[arg(long, value_name = "FILE", requires_all = ["metrics", "tls_key"])]
    tls_cert: Option<PathBuf>,
    /// The private key of that certificate, in PEM; other users must not be able to read the file.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Answer also requests that name this host, as a proxy or a name in /etc/hosts makes them. On 127.0.0.1 and `::1`
    /// other names are refused, because pages of other sites could read the figures under a name of their own; may be
    /// given several times.
    #[arg(long, value_name = "NAME", requires = "metrics")]
    allow_host: Vec<String>,
    /// Keep a file up to date for a collector that reads files; it is removed at the end.
    #[arg(long, value_name = "FILE")]
    textfile: Option<PathBuf>,
    /// Push the figures to an OpenTelemetry receiver over HTTP or HTTPS (OTLP as JSON).
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
    let Asked { metrics, token, tls_cert, tls_key, allow_host, textfile, otlp, every, watching } = asked;
    let tls = tls_cert.zip(tls_key).map(|(certificate, key)| Files { certificate, key });
    let places = Places { metrics, tls, token, hosts: allow_host, textfile, otlp, every };
    gpuwatch_probe::socket::prepare();
    super::runtime()?.block_on(async {
        let mut sources = Sources::start(watching.sources());
        serve::serve(&mut sources, policy, &places, |it| output::message(format_args!("{}", Foreign::new(it)))).await
    })?;
    Ok(0)
}
