//! Replays the allocations of a job in the background, for its findings: of a traced job all, of another one those of
//! some steps. Whatever fails, the job continues.

use super::trace_windows::TraceWindows;
use crate::{
    facts::{
        event::{self, Replayed},
        units::Stamp,
    },
    jobs::{
        launch::sys,
        whatif::background::{Request, Wanted, respond},
    },
    model::{
        alerts::{Due, Replays, has_error, replays_at_end},
        findings::{Findings, Kind},
        session::Session,
    },
    sources::{self, probe::answers},
    storage::{output, sink::writing::append, traces},
};
use anyhow::Result;
use rustix::{
    fs::{MemfdFlags, memfd_create},
    process::{Resource, Rlimit, getrlimit, nice, setrlimit},
};
use std::{
    collections::BTreeMap,
    env, fs, io,
    io::{Read, Seek, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel},
    thread,
    time::{Duration, UNIX_EPOCH},
};
use tokio::sync::mpsc::Sender;

/// The hidden command that replays.
pub const COMMAND: &str = "replay-job";

/// How long all replays of a request may take.
const LIMIT: Duration = Duration::from_secs(600);

/// The memory that the process may use to read the traces.
const MEMORY: u64 = 8 << 30;

/// Most bytes of the answers.
const ANSWERS_MAX: u64 = 1 << 20;

/// How often the wait after the job looks for a signal, and how often at most: a minute.
const LOOK: Duration = Duration::from_millis(100);
const LOOKS: usize = 600;

/// Starts replays for a job, one at a time.
pub struct FindingReplays {
    recording: PathBuf,
    is_traced: bool,
    /// Requests to a job that is not traced.
    windows: Option<TraceWindows>,
    replays: Replays,
    running: Option<Running>,
}

struct Running {
    child: Child,
    wanted: Vec<Wanted>,
    /// What the process wrote; it disconnects at the end.
    answers: Receiver<Vec<u8>>,
}

impl FindingReplays {
    /// Returns replays for the job of a recording; `is_traced` if the whole run is.
    pub fn new(recording: PathBuf, is_traced: bool) -> Self {
        Self { recording, is_traced, windows: None, replays: Replays::default(), running: None }
    }

    /// Requests windows of the job from now on, if it is not traced.
    pub fn request_windows(&mut self, asks: Sender<event::Request>) {
        self.windows = (!self.is_traced).then(|| TraceWindows::new(asks, self.recording.clone()));
    }

    /// Returns the answers that have come, and starts the next replay. Call it once a second.
    pub fn look(&mut self, session: &Session, findings: &Findings) -> Vec<Replayed> {
        if let Some(it) = &mut self.windows {
            it.look(session, &self.replays.due(session, findings));
        }
        if let Some(running) = self.running.take() {
            return match running.answers.try_recv() {
                Err(TryRecvError::Empty) => {
                    self.running = Some(running);
                    Vec::new()
                }
                answers => running.end(&answers.unwrap_or_default()),
            };
        }
        let due = self.traced(self.replays.due(session, findings), true);
        if due.is_empty() {
            return Vec::new();
        }
        self.replays.begin(&due);
        match self.start(session, &due, None) {
            Ok(running) => self.running = Some(running),
            Err(why) => return wanted(session, &due).iter().map(|it| it.refused(unstarted(&why))).collect(),
        }
        Vec::new()
    }

    /// Replays what is still open when the job is over and its recording is closed. The process appends its answers to
    /// the recording, whether anybody waits or not. Only where `is_watched`, and memory ran out, does this wait, for a
    /// minute at most; a signal ends the wait.
    pub fn finish(mut self, session: &Session, findings: &Findings, is_watched: bool) -> Vec<Replayed> {
        if let Some(mut running) = self.running.take() {
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
        let mut due = replays_at_end(session, findings);
        if let Some(it) = &mut self.windows {
            it.finish(session.now);
            // A window shows no more than it has shown, and nothing of an error after it.
            due.retain(|it| it.about.kind.raw() != Kind::Oom.name() && !is_answered(session, it));
        }
        let due = self.traced(due, false);
        if due.is_empty() {
            return Vec::new();
        }
        let Ok(running) = self.start(session, &due, Some(session.now)) else { return Vec::new() };
        if !is_watched || !has_error(&due) {
            return Vec::new();
        }
        output::message(format_args!(
            "replaying the job's allocations under other settings; Ctrl-C continues without the answer"
        ));
        for _ in 0..LOOKS {
            match running.answers.recv_timeout(LOOK) {
                Err(RecvTimeoutError::Timeout) if !sys::is_ending() => {}
                Err(RecvTimeoutError::Timeout) => break,
                answers => return running.end(&answers.unwrap_or_default()),
            }
        }
        Vec::new()
    }

    /// Keeps the findings of processes with a trace; with `is_reached`, whose trace was written since they were raised.
    fn traced(&self, mut due: Vec<Due>, is_reached: bool) -> Vec<Due> {
        due.retain(|it| {
            let Some(file) = traces::newest(&self.recording, it.pid) else { return false };
            let written = fs::metadata(file).and_then(|about| about.modified()).ok();
            let written = written.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            !is_reached || written.is_some_and(|at| at.as_micros() >= u128::from(unix_us(it.raised_at)))
        });
        due
    }

    fn start(&self, session: &Session, due: &[Due], append_at: Option<Stamp>) -> io::Result<Running> {
        let wanted = wanted(session, due);
        let request = Request { recording: self.recording.clone(), findings: wanted.clone(), append_at };
        let mut command = Command::new(env::current_exe()?);
        // A group of its own: a terminal's interrupt is for the job.
        command.arg(COMMAND).process_group(0).stdin(readable(&serde_json::to_vec(&request)?)?);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let output = child.stdout.take();
        let (sender, answers) = channel();
        thread::Builder::new().name("replay".into()).spawn(move || {
            let mut bytes = Vec::new();
            let _ = output.map(|it| it.take(ANSWERS_MAX).read_to_end(&mut bytes));
            let _ = sender.send(bytes);
        })?;
        Ok(Running { child, wanted, answers })
    }
}

impl Running {
    /// Returns the answers of the ended process; without any, how it ended.
    fn end(mut self, answers: &[u8]) -> Vec<Replayed> {
        let _ = self.child.kill();
        let status = self.child.wait();
        serde_json::from_slice(answers).unwrap_or_else(|_| {
            let how = status.map_or_else(|e| e.to_string(), |it| it.to_string());
            let why =
                format!("the process that replays ended early ({how}); `gpuwatch whatif` on the recording tries again");
            self.wanted.iter().map(|it| it.refused(why.as_str())).collect()
        })
    }
}

/// Returns a file of these bytes in memory. It is complete before the process starts, which may outlive this one, and
/// no pipe makes anybody wait.
fn readable(bytes: &[u8]) -> io::Result<fs::File> {
    let mut file = fs::File::from(memfd_create("request", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

fn wanted(session: &Session, due: &[Due]) -> Vec<Wanted> {
    let answers = |it: &Due| {
        let process = session.process(it.probe)?;
        answers::beside(Path::new(process.socket.raw()), process.hello.as_deref()?)
    };
    let wanted = |it: &Due| Wanted {
        probe: it.probe,
        pid: it.pid,
        device: it.device,
        about: it.about.clone(),
        raised_unix_us: unix_us(it.raised_at),
        answers: answers(it),
    };
    due.iter().map(wanted).collect()
}

/// Whether a replay has shown something for a finding.
fn is_answered(session: &Session, it: &Due) -> bool {
    session.process(it.probe).is_some_and(|process| process.replayed(it.device, Some(&it.about)).is_some())
}

/// Returns a stamp as µs of Unix time.
fn unix_us(at: Stamp) -> u64 {
    sources::unix_us().saturating_sub(sources::now().since(at))
}

fn unstarted(why: &io::Error) -> String {
    format!("the replay cannot be started: {why}")
}

/// The process that replays: reads a request on standard input, writes the answers on standard output.
pub fn replay() -> Result<u8> {
    let _ = nice(19);
    let before = getrlimit(Resource::Data);
    // Its children set limits of their own, which may be higher.
    let _ = setrlimit(Resource::Data, Rlimit { current: Some(MEMORY), ..before });
    let request: Request = serde_json::from_reader(io::stdin().lock())?;
    let (sender, done) = channel();
    let own = request.clone();
    thread::spawn(move || sender.send(respond(&own)));
    let late = |it: &Wanted| it.refused(format!("the replays took longer than {} min", LIMIT.as_secs() / 60));
    let answers = done.recv_timeout(LIMIT).unwrap_or_else(|_| request.findings.iter().map(late).collect());
    if let Some(at) = request.append_at {
        let events: Vec<_> = answers.iter().map(|it| it.clone().event(at)).collect();
        append(&request.recording, &events)?;
    }
    show_viewers(&request.findings, &answers);
    output::print(&serde_json::to_string(&answers)?)?;
    Ok(0)
}

/// Writes the answers for the other viewers of their processes.
fn show_viewers(wanted: &[Wanted], answers: &[Replayed]) {
    let files: BTreeMap<_, _> = wanted.iter().filter_map(|it| Some((it.probe, it.answers.as_ref()?))).collect();
    for (probe, file) in files {
        let own: Vec<_> = answers.iter().filter(|it| it.probe == probe).cloned().collect();
        // Without it, the answer is in the recording alone.
        let _ = answers::append(file, &own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::event::{
        Event, Fact, Line, ProbeId,
        wire::{Counters, Device, Edge, Hello, Live, PROTOCOL, Sample},
    };

    const GIB: u64 = 1 << 30;

    /// A job that fragments for so long that there is a warning.
    fn fragmenting(sites: &str) -> Session {
        let mut session = Session::default();
        let mut add = |at: u64, fact| session.apply(&Event { at: Stamp(at), fact });
        let probe = ProbeId(0);
        let line = |it| Fact::Probe { probe, line: Box::new(it) };
        add(0, Fact::ProbeFound { probe, pid: Some(7), socket: "/tmp/gpuwatch-none/7.sock".into() });
        let device = Device { ordinal: 0, uuid: Some("GPU-0".to_owned()), ..Device::default() };
        add(
            0,
            line(Line::Hello(Hello {
                protocol: PROTOCOL,
                pid: 7,
                sites: Some(sites.to_owned()),
                devices: vec![device],
                ..Hello::default()
            })),
        );
        add(0, line(Line::Live(Live::default())));
        let counters = Counters {
            allocated: Some(30 * GIB),
            active: Some(30 * GIB),
            inactive_split: Some(50 * GIB),
            reserved: Some(90 * GIB),
            device_total: Some(96 * GIB),
            ..Counters::default()
        };
        for step in 1..100 {
            let at_us = step * 1_000_000;
            let sample = Sample { at_us, edge: Edge::Step, step: Some(step), counters, ..Sample::default() };
            add(at_us, line(Line::Sample(sample)));
            add(at_us, Fact::Second);
        }
        session
    }

    /// Number of windows that are requested for a job's findings.
    fn requested(sites: &str, is_asking: bool, is_traced: bool) -> usize {
        let session = fragmenting(sites);
        let findings = crate::model::findings::findings(&session);
        let (asks, mut requests) = tokio::sync::mpsc::channel(4);
        let mut replays = FindingReplays::new("/tmp/gpuwatch-none/run.jsonl.zst".into(), is_traced);
        if is_asking {
            replays.request_windows(asks);
        }
        for _ in 0..2 {
            assert_eq!(replays.look(&session, &findings), Vec::new());
        }
        std::iter::from_fn(|| requests.try_recv().ok()).count()
    }

    #[test]
    fn windows_are_requested_once_and_only_where_captures_are() {
        assert_eq!(requested("ready", true, false), 1);
        assert_eq!(requested("ready", false, false), 0, "--sites asked");
        assert_eq!(requested("GPUWATCH=nosites forbids it", true, false), 0);
        assert_eq!(requested("ready", true, true), 0, "the whole run is traced");
    }
}
