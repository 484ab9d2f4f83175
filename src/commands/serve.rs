//! `gpuwatch serve`: the current figures for Prometheus, on this machine, until it is stopped.

mod admission;
mod exposition;
pub mod families;
mod listener;
mod otlp;
mod series;

use super::{Invocation, Subcommand};
use crate::{
    cli::runtime,
    config::{self, WatchFlags},
    facts::{event::Fact, text::Foreign, units::Stamp},
    model::{alerts::Policy, session::Session},
    net::{
        tls::{Files, Identity},
        token,
    },
    sources::{self, Sources},
    storage::output,
};
use admission::AllowedHosts;
use anyhow::{Result, bail};
pub use exposition::{Format, Textfile};
use families::Family;
pub use listener::Address;
use listener::{Listener, RequestHandler, ScrapeRequest};
use otlp::Pushes;
pub use otlp::{Endpoint, text as otlp};
pub use series::{Series, series};
use std::{path::PathBuf, sync::Arc, time::Duration};
use tokio::{
    select,
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

/// The end of its help.
const AFTER: &str = "Examples:
  gpuwatch serve --metrics 127.0.0.1:9477
  gpuwatch serve --metrics unix:$XDG_RUNTIME_DIR/gpuwatch.sock
  gpuwatch serve --textfile /var/lib/prometheus/node-exporter/gpuwatch.prom
  gpuwatch serve --metrics 0.0.0.0:9477 --tls-cert node.pem --tls-key node.key --token FILE
  gpuwatch serve --otlp http://127.0.0.1:4318

Every user of this machine can read a port, but only its owner a socket. The figures have no command lines. A port that other \
machines can reach needs a certificate and a token. A new certificate is read when its file changes.";

/// The arguments of `gpuwatch serve`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER, group(clap::ArgGroup::new("to").args(["metrics", "textfile", "otlp"]).required(true).multiple(true)))]
pub(super) struct ServeArgs {
    /// Answer HTTP requests for /metrics: an address with a port, or unix: and the path of a socket.
    #[arg(long, value_name = "ADDRESS")]
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
    watching: WatchFlags,
}

impl Subcommand for ServeArgs {
    fn answers(&self) -> bool {
        false
    }

    fn run(&self, invocation: &Invocation) -> Result<u8> {
        let Self { metrics, token, tls_cert, tls_key, allow_host, textfile, otlp, every, watching } = self.clone();
        let tls = tls_cert.zip(tls_key).map(|(certificate, key)| Files { certificate, key });
        let destinations = Destinations { metrics, tls, token, hosts: allow_host, textfile, otlp, every };
        gpuwatch_probe::socket::prepare();
        runtime()?.block_on(async {
            let mut sources = Sources::start(watching.sources());
            let report = |it| output::message(format_args!("{}", Foreign::new(it)));
            serve(&mut sources, &invocation.policy, &destinations, report).await
        })?;
        Ok(0)
    }
}

/// Where the figures go.
#[derive(Clone, Debug, Default)]
pub struct Destinations {
    /// The address to listen on.
    pub metrics: Option<Address>,
    /// The certificate and the key of that address.
    pub tls: Option<Files>,
    /// The file with the token that requests must have.
    pub token: Option<PathBuf>,
    /// Names of this machine that requests to a port on it may use, beside its addresses.
    pub hosts: Vec<String>,
    /// The file to keep up to date.
    pub textfile: Option<PathBuf>,
    /// The OTLP receiver to push to.
    pub otlp: Option<Endpoint>,
    /// The time between two writes of that file, and between two pushes; at least a second.
    pub every: Duration,
}

/// Serves the figures until a signal ends it. `report` gets where they are.
///
/// # Errors
/// Fails if it cannot listen or write, if the token or the certificate cannot be read, or if other machines could read
/// the figures without them or with a token that other users can read.
pub async fn serve(
    sources: &mut Sources,
    policy: &Policy,
    destinations: &Destinations,
    report: impl Fn(String),
) -> Result<()> {
    if let Some(it) = &destinations.metrics {
        it.check(destinations.tls.is_some(), destinations.token.is_some())?;
    }
    let is_public = destinations.metrics.as_ref().is_some_and(Address::is_public);
    let token = destinations.token.as_deref().map(|it| token::secret(it, is_public)).transpose()?.map(Arc::from);
    // A page of another site reaches a port of this machine only; other machines need a token.
    let is_local_port = matches!(destinations.metrics, Some(Address::Port(_))) && !is_public;
    let hosts = is_local_port.then(|| Arc::new(AllowedHosts::new(destinations.hosts.clone())));
    let identity = destinations.tls.clone().map(Identity::read).transpose()?;
    let mut outputs = Outputs::start(destinations, policy)?;
    let (scrapes, mut requests) = mpsc::channel::<ScrapeRequest>(1);
    let (sender, mut notices) = mpsc::channel(1);
    let mut ends = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
    let mut listener = match &destinations.metrics {
        Some(it) => Some(Listener::open(it, identity).await?),
        None => None,
    };
    if let Some(it) = &listener {
        report(format!("the figures are at {it}"));
    }
    if let Some(it) = &outputs.textfile {
        report(format!("the figures are in {it}"));
    }
    if let Some(it) = &outputs.pushes {
        report(format!("the figures are pushed to {}", it.endpoint));
    }
    let answers = async {
        match &mut listener {
            Some(it) => it.answer(RequestHandler { scrapes, token, hosts }, sender).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(answers);
    let mut session = Session::default();
    loop {
        select! {
            event = sources.events.recv() => match event {
                Some(event) => {
                    session.apply(&event);
                    if event.fact == Fact::Second {
                        outputs.second(&session)?;
                    }
                }
                None => bail!("the threads that read the driver and the probes have ended"),
            },
            Some(it) = requests.recv() => {
                // A scraper that does not wait needs no answer.
                let _ = it.reply.send(outputs.text(&session, it.format));
            }
            text = otlp::message(&mut outputs.pushes) => report(text),
            Some(text) = notices.recv() => report(text),
            () = &mut answers => {}
            _ = ends.0.recv() => return Ok(()),
            _ = ends.1.recv() => return Ok(()),
            _ = ends.2.recv() => return Ok(()),
        }
    }
}

/// What the figures are written to without a request.
struct Outputs<'a> {
    policy: &'a Policy,
    textfile: Option<Textfile>,
    pushes: Option<Pushes>,
    every_us: u64,
    written: Option<Stamp>,
}

impl<'a> Outputs<'a> {
    fn start(destinations: &Destinations, policy: &'a Policy) -> Result<Self> {
        Ok(Self {
            policy,
            textfile: destinations.textfile.as_deref().map(Textfile::new).transpose()?,
            pushes: destinations.otlp.clone().map(Pushes::start),
            every_us: u64::try_from(destinations.every.as_micros()).unwrap_or(u64::MAX),
            written: None,
        })
    }

    /// Writes the file and pushes, if their time has come.
    fn second(&mut self, session: &Session) -> Result<()> {
        if self.written.is_some_and(|it| session.now.since(it) < self.every_us) {
            return Ok(());
        }
        self.written = Some(session.now);
        if let Some(it) = &self.textfile {
            it.write(&self.text(session, Format::Prometheus))?;
        }
        let series = self.series(session);
        if let Some(it) = &mut self.pushes {
            let unix_us = sources::unix_us().saturating_sub(sources::now().since(session.now));
            it.offer(otlp(&series, &sources::host(), unix_us));
        }
        Ok(())
    }

    fn text(&self, session: &Session, format: Format) -> String {
        format.text(&self.series(session))
    }

    fn series(&self, session: &Session) -> Vec<Series> {
        let mut all = series(session, &self.policy.findings(session));
        let lost = self.pushes.as_ref().map(|it| it.lost as f64);
        all.extend(lost.map(|value| Series { family: Family::OtlpLost, labels: Vec::new(), value }));
        all
    }
}
