//! `gpuwatch record`: records what is already running, on this host into a file, of other hosts into a directory.

use super::{Invocation, Subcommand};
use crate::{
    cli::{flags::HostFlags, runtime},
    config::{CaptureFlags, CaptureWhen, RetentionFlags, WatchFlags},
    facts::{
        event::{Event, Fact},
        text::Foreign,
        units::counted,
    },
    hosts::{link::Links, plan::Plan},
    jobs::{
        launch::sys,
        recorder::file::{create_in_store, header, start, writer},
    },
    model::{alerts::Policy, session::Session},
    screen::event_loop,
    sources::{self, Sources},
    storage::{
        output::{self, create},
        sink::{PENDING, delivery::Delivery, follow, host_recordings::Nodes},
    },
};
use anyhow::{Context, Result, bail};
use signal_hook::iterator::Signals;
use std::{
    io::{self, IsTerminal},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};
use tokio::{pin, select, sync::Notify};

/// How long a disk may take for the end of a recording when a signal asks for it.
const END_WITHIN: Duration = Duration::from_millis(500);

/// The arguments of `gpuwatch record`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  gpuwatch record -o night.jsonl.zst\n  gpuwatch record --hosts \
                            'node[01-16]' -o night\n  zstdcat night.jsonl.zst | jq .\n\nOf other machines, gpuwatch \
                            makes a directory with a recording of each: `gpuwatch check night` judges them together.")]
pub(super) struct RecordArgs {
    /// The file to make (- is standard output); by default a new one among the recordings that `run` makes. Of
    /// other machines: the directory to make.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    hosts: HostFlags,
    #[command(flatten)]
    watching: WatchFlags,
    #[command(flatten)]
    asking: CaptureFlags,
    #[command(flatten)]
    keep: RetentionFlags,
}

impl Subcommand for RecordArgs {
    fn answers(&self) -> bool {
        self.output.as_deref().is_some_and(output::is_stdout)
    }

    fn run(&self, invocation: &Invocation) -> Result<u8> {
        match self.hosts.plan()? {
            Some(plan) => record_hosts(&plan, self.output.as_deref()),
            None => record(self.output.clone(), &self.watching, &self.keep, &invocation.policy, self.asking),
        }
    }
}

/// Records this host until a signal.
fn record(
    output: Option<PathBuf>,
    watching: &WatchFlags,
    bounds: &RetentionFlags,
    policy: &Policy,
    asking: CaptureFlags,
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
    let (mut is_stopped, mut is_unread) = (false, false);
    runtime()?.block_on(async {
        let mut sources =
            Sources::start(sources::Options { no_arguments: bounds.no_arguments, ..watching.sources().recorded() });
        let unread = Notify::new();
        let stop = async {
            select! {
                () = stopped => {}
                () = unread.notified() => {}
            }
            Vec::new()
        };
        let asks = (asking.sites == CaptureWhen::Auto).then(|| sources.asks.clone());
        let mut asker = asks.map(|it| (Session::default(), Delivery::new(None, Some(it))));
        let receive = |event: &Event| {
            recorder.offer(event);
            if let Some((session, delivery)) = &mut asker {
                delivery.fold(session, policy, event, |_, _| ());
            }
            if event.fact == Fact::Second {
                let trouble = recorder.outcome().trouble;
                is_unread = trouble.is_some() && output::is_stdout(&path) && output::is_unread();
                match &trouble {
                    _ if is_unread => unread.notify_one(),
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
    if is_unread {
        return Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
    }
    if let Some(fault) = fault.as_ref().filter(|_| !is_stopped) {
        output::message(format_args!("{fault}"));
    }
    Ok(u8::from(fault.is_some()))
}

/// Takes over the signals that end a recording. The caller may want one ignored, as nohup does: then it stays so.
fn signals() -> io::Result<Signals> {
    Signals::new(event_loop::ending_signals().filter(|it| !sys::is_ignored(*it)))
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

/// Records other hosts into a directory, until a signal.
fn record_hosts(plan: &Plan, output: Option<&Path>) -> Result<u8> {
    let Some(directory) = output.filter(|it| !output::is_stdout(it)) else {
        bail!("several machines are recorded into a directory: name it with `-o DIR`");
    };
    let signals = signals()?;
    let mut recordings = Nodes::create(directory, &plan.hosts, header(None))?;
    let (count, shown) = (counted(plan.hosts.len() as u64, "machine"), Foreign::new(directory.to_string_lossy()));
    output::message(format_args!("recording {count} to {shown} until Ctrl-C"));
    runtime()?.block_on(async {
        let mut links = Links::start(plan);
        let stop = stopped(signals);
        pin!(stop);
        loop {
            select! {
                biased;
                () = &mut stop => return,
                Some(change) = links.news.recv() => recordings.take(change),
            }
            for it in recordings.words() {
                report(&it);
            }
        }
    });
    let (is_whole, messages) = recordings.finish(sources::now());
    for message in messages {
        report(&message);
    }
    Ok(u8::from(!is_whole))
}

fn report(message: &str) {
    output::message(format_args!("{}", Foreign::new(message)));
}
