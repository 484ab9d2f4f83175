//! `gpuwatch stream`: its flags, and what ends it.

use super::record::header;
use crate::{commands::stream, config::Watching, sources::Sources};
use anyhow::Result;
use std::{
    io::{self, Read},
    thread,
    time::Duration,
};
use tokio::sync::oneshot;

/// The end of its help.
pub(super) const AFTER: &str = "Example:\n  ssh node01 gpuwatch stream | jq -c 'select(.type == \"memory\")'\n\n\
    It ends when standard input ends or when no process reads its output, so it needs an open standard input: \
    `ssh -n` gives it none. Of fast jobs, at most four samples a second pass for each device of a process.";

/// How long a write to a reader that does not read may last after standard input has ended.
const GRACE: Duration = Duration::from_secs(1);

/// Streams this machine's events until standard input ends.
pub(super) fn stream(watching: &Watching) -> Result<u8> {
    gpuwatch_probe::socket::prepare();
    super::runtime()?.block_on(async {
        let mut sources = Sources::start(watching.sources().recorded());
        let ended = input_ended()?;
        let stop = async {
            // An error means that the thread has ended, and with it standard input.
            let _ = ended.await;
        };
        stream::stream(&mut sources, &header(None), io::stdout().lock(), stop).await
    })?;
    Ok(0)
}

/// Completes when standard input has ended.
fn input_ended() -> io::Result<oneshot::Receiver<()>> {
    let (sender, ended) = oneshot::channel();
    thread::Builder::new().name("input".into()).spawn(move || {
        let mut buffer = [0; 4096];
        let mut input = io::stdin().lock();
        while matches!(input.read(&mut buffer), Ok(1..)) {}
        if sender.send(()).is_ok() {
            thread::sleep(GRACE);
            // The program is still here: it is stuck in a write.
            std::process::exit(0);
        }
    })?;
    Ok(ended)
}
