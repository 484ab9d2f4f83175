//! `gpuwatch record --hosts`: a directory with a recording of each machine.

use super::{signals, stopped};
use crate::{
    facts::{text::Foreign, units::counted},
    hosts::{link::Links, plan::Plan},
    jobs::recorder::file::header,
    sources,
    storage::{output, sink::nodes::Nodes},
};
use anyhow::{Result, bail};
use std::path::Path;
use tokio::{pin, select};

/// Records until a signal.
pub(in crate::cli) fn record(plan: &Plan, output: Option<&Path>) -> Result<u8> {
    let Some(directory) = output.filter(|it| !output::is_stdout(it)) else {
        bail!("several machines are recorded into a directory: name it with `-o DIR`");
    };
    let signals = signals()?;
    let mut nodes = Nodes::create(directory, &plan.hosts, header(None))?;
    let (count, shown) = (counted(plan.hosts.len() as u64, "machine"), Foreign::new(directory.to_string_lossy()));
    output::message(format_args!("recording {count} to {shown} until Ctrl-C"));
    crate::cli::runtime()?.block_on(async {
        let mut links = Links::start(plan);
        let stop = stopped(signals);
        pin!(stop);
        loop {
            select! {
                biased;
                () = &mut stop => return,
                Some(news) = links.news.recv() => nodes.take(news),
            }
            for it in nodes.words() {
                report(&it);
            }
        }
    });
    let (is_whole, words) = nodes.finish(sources::now());
    for it in words {
        report(&it);
    }
    Ok(u8::from(!is_whole))
}

fn report(words: &str) {
    output::message(format_args!("{}", Foreign::new(words)));
}
