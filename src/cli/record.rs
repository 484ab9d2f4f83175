//! `gpuwatch record`, and the new file and header that every recording needs.

/// Recordings of other machines.
pub(super) mod nodes;

use crate::{
    config::{Asking, Keep, Watching, When},
    facts::{
        event::{Event, Fact},
        text::Foreign,
    },
    jobs::{
        launch::sys,
        recorder::file::{create_in_store, start, writer},
    },
    model::{alerts::Policy, session::Session},
    screen::signal,
    sources::{self, Sources},
    storage::{
        output::{self, create},
        sink::{
            delivery::Delivery,
            follow::{PENDING, follow},
        },
    },
};
use anyhow::{Context, Result, bail};
use signal_hook::iterator::Signals;
use std::{
    io::{self, IsTerminal},
    path::PathBuf,
    thread,
    time::Duration,
};

/// How long a disk may take for the end of a recording when a signal asks for it.
const END_WITHIN: Duration = Duration::from_millis(500);

pub(super) fn record(
    output: Option<PathBuf>,
    watching: &Watching,
    bounds: &Keep,
    policy: &Policy,
    asking: Asking,
) -> Result<u8> {
    let (path, file) = match output {
        Some(path) => {
            if output::is_stdout(&path) && io::stdout().is_terminal() {
                bail!("a recording is compressed: redirect standard output, or name a file");
            }
            let file = create(&path).with_context(|| format!("cannot make {}", path.display()))?;
            (path, file)
        }
        None => create_in_store(&writer("record"), bounds)?,
    };
    // From its first line on, a recording can be closed properly. A pipe whose reader takes nothing holds up the first
    // line, and until then a signal ends this as any other program.
    let early = if output::is_stdout(&path) { None } else { Some(signals()?) };
    let recorder = start(&path, file, None).context("cannot write the recording")?;
    let signals = early.map_or_else(signals, Ok)?;
    let name = if output::is_stdout(&path) { "standard output".into() } else { path.to_string_lossy() };
    output::message(format_args!("recording to {} until Ctrl-C", Foreign::new(name)));
    let stopped = stopped(signals);
    gpuwatch_probe::socket::prepare();
    let mut is_stopped = false;
    super::runtime()?.block_on(async {
        let mut sources =
            Sources::start(sources::Options { no_arguments: bounds.no_arguments, ..watching.sources().recorded() });
        let stop = async {
            stopped.await;
            Vec::new()
        };
        let asks = (asking.sites == When::Auto).then(|| sources.asks.clone());
        let mut asker = asks.map(|it| (Session::default(), Delivery::new(None, Some(it))));
        let receive = |event: &Event| {
            recorder.offer(event);
            if let Some((session, delivery)) = &mut asker {
                delivery.fold(session, policy, event, |_, _| ());
            }
            if event.fact == Fact::Second {
                let trouble = recorder.outcome().trouble;
                match &trouble {
                    Some(trouble) if !is_stopped => output::message(format_args!("{trouble}")),
                    None if is_stopped => output::message(format_args!("the recording continues")),
                    _ => {}
                }
                is_stopped = trouble.is_some();
            }
        };
        follow(&mut sources, stop, PENDING, receive).await;
        Ok::<_, io::Error>(())
    })?;
    let fault = recorder.finish_within(END_WITHIN).fault();
    if let Some(fault) = fault.as_ref().filter(|_| !is_stopped) {
        output::message(format_args!("{fault}"));
    }
    Ok(u8::from(fault.is_some()))
}

/// Takes over the signals that end a recording. The caller may want one ignored, as nohup does: then it stays so.
fn signals() -> io::Result<Signals> {
    Signals::new(signal::ending().filter(|it| !sys::is_ignored(*it)))
}

/// Completes at the first of these signals.
async fn stopped(mut signals: Signals) {
    let (sender, stopped) = tokio::sync::oneshot::channel();
    thread::spawn(move || sender.send(signals.forever().next()));
    // If the signal thread is gone, only a forced end is left.
    if stopped.await.is_err() {
        std::future::pending::<()>().await;
    }
}
