//! `--for`: the recording, or the running job, that shows a measured answer as well.

use super::super::{sites::find, whatif::missing};
use crate::{
    cli::{inputs, runtime},
    config,
    facts::{
        event::{Advised, ProbeId, wire::Line},
        text::Foreign,
        units::Stamp,
    },
    model::session::Session,
    sources::{Sources, probe::answers},
    storage::{
        own_folder::is_own_file,
        recording::{Entry, Reader},
        sink::writing::append_to,
    },
};
use anyhow::{Context, Result, bail};
use rustix::fs::fstat;
use std::{
    collections::BTreeSet,
    fs::File,
    path::{Path, PathBuf},
    time::Duration,
};

/// How long the probe of a running job is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Who shows the answer.
#[derive(Debug)]
pub(super) enum ShownFor {
    /// A closed recording of this user, open: nobody exchanges it while the job is measured.
    Recording {
        file: File,
        /// The time of its last event.
        ends: Stamp,
        /// Its processes.
        probes: BTreeSet<ProbeId>,
    },
    /// The viewers of a running process, by the file that they read.
    Viewers(PathBuf),
}

impl ShownFor {
    /// Finds what a user names. This comes before the measurement, which takes minutes.
    ///
    /// # Errors
    /// Fails if it is neither a process with a probe nor a recording that is complete.
    pub(super) fn find(named: &Path) -> Result<Self> {
        if let Some(pid) = inputs::process(named) {
            return runtime()?.block_on(async {
                let mut sources = Sources::start(config::probes_alone());
                let mut session = Session::default();
                let found = find(&mut sources, &mut session, pid, PATIENCE).await;
                let process = found.and_then(|it| session.process(it));
                let file = process.and_then(|it| answers::beside(Path::new(it.socket.raw()), it.hello.as_deref()?));
                Ok(Self::Viewers(file.with_context(|| missing(&session, pid))?))
            });
        }
        Self::recording(&inputs::recording(named)?)
    }

    /// Adds the answer.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub(super) fn show(&self, answer: &Advised) -> Result<()> {
        match self {
            Self::Viewers(file) => Ok(answers::append(file, &[answer])?),
            Self::Recording { file, ends, probes } => {
                let of = |probe: &ProbeId| Advised { probe: *probe, ..answer.clone() }.event(*ends);
                let events: Vec<_> = probes.iter().map(of).collect();
                append_to(file.try_clone()?, &events).context("the recording")
            }
        }
    }

    fn recording(path: &Path) -> Result<Self> {
        let name = Foreign::new(path.to_string_lossy());
        let mut probes = BTreeSet::new();
        let mut ends = None;
        let file = File::options().read(true).append(true).open(path).with_context(|| name.to_string())?;
        if !is_own_file(&fstat(&file)?) {
            bail!("{name} is not a file of this user's alone: copy it to show the answer there")
        }
        let reader = Reader::new(&file).with_context(|| format!("cannot read {name}"))?;
        let is_packed = reader.is_packed();
        for entry in reader {
            match entry.with_context(|| format!("cannot read {name}"))? {
                Entry::Event(event) => {
                    if let Some((probe, Line::Hello(_))) = event.line() {
                        probes.insert(probe);
                    }
                }
                Entry::Closed(it) => ends = Some(it.at_us),
                Entry::Header(_) | Entry::Unknown => {}
            }
        }
        if !is_packed {
            bail!("{name} is unpacked, and nothing can be added to it: name the recording as it was written")
        }
        let Some(ends) = ends else {
            bail!("{name} is still written, or its writer was killed: name the running process by its PID")
        };
        if probes.is_empty() {
            bail!("{name} has no job with a probe that could show the answer")
        }
        Ok(Self::Recording { file, ends, probes })
    }
}
