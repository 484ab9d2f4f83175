//! `gpuwatch record`, and what every recording needs: a new file and its header.

use crate::{
    config::{Keep, Watching},
    event::{Event, Fact},
    recording::{FORMAT, Header},
    sink::{
        follow::follow,
        record::Recorder,
        store::{Writer, open_new},
    },
    source::{self, Sources},
    text::Foreign,
};
use anyhow::{Context, Result};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use std::{
    fs::{self, File},
    io,
    path::PathBuf,
    thread,
};

pub(super) fn record(output: Option<PathBuf>, watching: &Watching, bounds: &Keep) -> Result<u8> {
    let (path, file) = match output {
        Some(path) => {
            let file = open_new(&path).with_context(|| format!("cannot make {}", path.display()))?;
            (path, file)
        }
        None => keep("record", bounds)?,
    };
    // Before anything is written: from its first line on, a recording can be ended in good order.
    let wanted = [SIGHUP, SIGINT, SIGTERM];
    let mut signals = Signals::new(wanted.iter().filter(|it| !is_ignored(**it)))?;
    let recorder = Recorder::start(file, &header()).context("cannot write the recording")?;
    super::say(format_args!("recording to {} until Ctrl-C", Foreign::new(path.to_string_lossy())));
    let (tell, told) = tokio::sync::oneshot::channel();
    thread::spawn(move || tell.send(signals.forever().next()));
    super::runtime()?.block_on(async {
        let mut sources = Sources::start(watching.sources());
        let stop = async {
            // Without a signal's thread there is no end but a harder one.
            if told.await.is_err() {
                std::future::pending::<()>().await;
            }
            Vec::new()
        };
        let mut noted = false;
        let hear = |event: &Event| {
            recorder.offer(event);
            if event.fact == Fact::Second
                && !noted
                && let Some(trouble) = recorder.outcome().trouble
            {
                super::say(format_args!("{trouble}"));
                noted = true;
            }
        };
        follow(&mut sources, stop, hear).await;
        Ok::<_, io::Error>(())
    })?;
    let outcome = recorder.finish();
    if let Some(loss) = outcome.loss() {
        super::say(format_args!("{loss}"));
    }
    Ok(u8::from(outcome.trouble.is_some()))
}

/// Whether whoever started us wants a signal ignored, as nohup does: then it stays so.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|it| it.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|it| u64::from_str_radix(it.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

/// A new file in the user's store.
pub(super) fn keep(run: &str, bounds: &Keep) -> Result<(PathBuf, File)> {
    let store = bounds.store().context("there is no home directory for recordings: use `gpuwatch record -o FILE`")?;
    let writer = Writer {
        started_unix_us: source::unix_us(),
        host: source::host(),
        pid: std::process::id(),
        run: run.to_owned(),
    };
    store.create(&writer).with_context(|| format!("cannot record in {}", store.directory.display()))
}

pub(super) fn header() -> Header {
    Header {
        format: FORMAT,
        gpuwatch: env!("CARGO_PKG_VERSION").to_owned(),
        host: Foreign::new(source::host()),
        started_unix_us: source::unix_us(),
        monotonic_us: source::now().0,
    }
}
