//! `gpuwatch serve`: the current figures for Prometheus, on this machine, until it is stopped.

mod exposition;
pub mod families;
mod listener;
mod series;
mod textfile;

use crate::{
    facts::event::Fact,
    model::{alerts::Policy, session::Session},
    sources::Sources,
};
use anyhow::{Context, Result, bail};
pub use exposition::Format;
pub use listener::Address;
use listener::{Listener, Scrape};
pub use series::{Series, series};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};
pub use textfile::Textfile;
use tokio::{
    select,
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

/// Longest token, in bytes.
const TOKEN_MAX: u64 = 4096;

/// Where the figures go.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// The address to listen on.
    pub metrics: Option<Address>,
    /// The file with the token that requests must have.
    pub token: Option<PathBuf>,
    /// The file to keep up to date.
    pub textfile: Option<PathBuf>,
    /// The time between two writes of that file; at least a second.
    pub every: Duration,
}

/// Serves the figures until a signal ends it. `report` gets where they are.
///
/// # Errors
/// Fails if it cannot listen or write, or if the token cannot be read.
pub async fn serve(sources: &mut Sources, policy: &Policy, places: &Places, report: impl Fn(String)) -> Result<()> {
    let token = places.token.as_deref().map(token).transpose()?;
    let textfile = places.textfile.as_deref().map(Textfile::new).transpose()?;
    let (scrapes, mut asked) = mpsc::channel::<Scrape>(1);
    let mut ends = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
    let listener = match &places.metrics {
        Some(it) => Some(Listener::open(it).await?),
        None => None,
    };
    if let Some(it) = &listener {
        report(format!("the figures are at {it}"));
    }
    if let Some(it) = &textfile {
        report(format!("the figures are in {it}"));
    }
    let answers = async {
        match &listener {
            Some(it) => it.answer(scrapes, token).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(answers);
    let mut session = Session::default();
    let every_us = u64::try_from(places.every.as_micros()).unwrap_or(u64::MAX);
    let mut written = None;
    loop {
        select! {
            event = sources.events.recv() => match event {
                Some(event) => {
                    session.apply(&event);
                    let is_due = written.is_none_or(|it| session.now.since(it) >= every_us);
                    if let Some(it) = textfile.as_ref().filter(|_| is_due && event.fact == Fact::Second) {
                        it.write(&text(&session, policy, Format::Prometheus))?;
                        written = Some(session.now);
                    }
                }
                None => bail!("the threads that read the driver and the probes have ended"),
            },
            Some(it) = asked.recv() => {
                // A scraper that does not wait needs no answer.
                let _ = it.reply.send(text(&session, policy, it.format));
            }
            () = &mut answers => {}
            _ = ends.0.recv() => return Ok(()),
            _ = ends.1.recv() => return Ok(()),
            _ = ends.2.recv() => return Ok(()),
        }
    }
}

fn text(session: &Session, policy: &Policy, format: Format) -> String {
    format.text(&series(session, &policy.findings(session)))
}

/// Reads a token: the first line of a file.
fn token(path: &Path) -> Result<String> {
    let size = fs::metadata(path).with_context(|| format!("cannot read the token in {}", path.display()))?.len();
    if size > TOKEN_MAX {
        bail!("{} is too long for a token: it has more than {TOKEN_MAX} bytes", path.display());
    }
    let text = fs::read_to_string(path).with_context(|| format!("cannot read the token in {}", path.display()))?;
    let token = text.lines().next().unwrap_or_default().trim();
    if token.is_empty() {
        bail!("{} has no token in its first line", path.display());
    }
    Ok(token.to_owned())
}
