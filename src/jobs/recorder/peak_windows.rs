//! Traces one step of each process of a job with its call stacks, once a run, so that a later error can be explained
//! with what the highest moment of a step consists of.

use super::trace_windows::{can_be_asked, file, new_id};
use crate::{
    facts::{
        event::{
            PeakMoment, ProbeId, Request, WindowDetail, WindowRequest,
            anatomy::{Anatomy, PeakCost},
        },
        units::Stamp,
    },
    model::{
        alerts::is_settled,
        anatomy::{KeptAddresses, KeptBlocks, anatomy},
        findings::Findings,
        session::Session,
    },
    sources::probe::answers,
    storage::traces::{self, Traced, WindowKept, WindowState, window_state},
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::mpsc::{self, channel},
    thread,
};
use tokio::sync::mpsc::Sender;

/// µs after which no trace is expected any more.
const PATIENCE_US: u64 = 300 * 1_000_000;

/// The requests to the processes of a run.
pub struct PeakWindows {
    asks: Sender<Request>,
    /// The one request to each probe.
    requests: BTreeMap<ProbeId, PeakRequest>,
    moments: (mpsc::Sender<PeakMoment>, mpsc::Receiver<PeakMoment>),
}

struct PeakRequest {
    at: Stamp,
    /// The file, until it is complete or given up.
    file: Option<PathBuf>,
    /// The file for answers to the viewers of the job.
    answers: Option<PathBuf>,
}

impl PeakWindows {
    /// Returns windows to request by `asks`.
    pub fn new(asks: Sender<Request>) -> Self {
        Self { asks, requests: BTreeMap::new(), moments: channel() }
    }

    /// Requests windows of the processes that have settled, and returns the moments of those that are complete. Call it
    /// once a second.
    pub fn look(&mut self, session: &Session, findings: &Findings) -> Vec<PeakMoment> {
        for (probe, it) in &mut self.requests {
            it.take_up(*probe, session.now, &self.moments.0);
        }
        for process in &session.processes {
            let is_new = process.peak.is_none() && !self.requests.contains_key(&process.probe);
            if !is_new || !can_be_asked(process) || !is_settled(process, session, findings) {
                continue;
            }
            let id = new_id();
            let Some((file, hello)) = file(process, id).zip(process.hello.as_deref()) else { continue };
            let detail = WindowDetail::Stacks;
            let ask = WindowRequest { probe: process.probe, id, steps: 1, detail, alert: true };
            // A full queue has requests of users; the next second tries again.
            if self.asks.try_send(ask.into()).is_ok() {
                let answers = answers::beside(Path::new(process.socket.raw()), hello);
                self.requests.insert(process.probe, PeakRequest { at: session.now, file: Some(file), answers });
            }
        }
        self.moments.1.try_iter().collect()
    }
}

impl Drop for PeakWindows {
    fn drop(&mut self) {
        for it in self.requests.values().filter_map(|it| it.file.as_ref()) {
            // Its job removes it too, once it notices that nobody waits.
            let _ = fs::remove_file(it);
        }
    }
}

impl PeakRequest {
    /// Reads a complete trace, on a thread of its own.
    fn take_up(&mut self, probe: ProbeId, now: Stamp, moments: &mpsc::Sender<PeakMoment>) {
        let Some(file) = self.file.clone() else { return };
        let is_over = match window_state(&file) {
            Ok(Some(WindowState::Complete | WindowState::Refused(_))) | Err(_) => true,
            Ok(_) => now.since(self.at) >= PATIENCE_US,
        };
        if !is_over {
            return;
        }
        self.file = None;
        let (moments, answers) = (moments.clone(), self.answers.take());
        let read = move || {
            let moment = traces::read(&file).ok().and_then(|it| moment(&it, probe));
            let _ = fs::remove_file(&file);
            if let Some(it) = moment {
                let _ = answers.map(|path| answers::append(&path, &[&it]));
                let _ = moments.send(it);
            }
        };
        // Without the thread, the job has no moment, and that is all.
        let _ = thread::Builder::new().name("peak".into()).spawn(read);
    }
}

/// Returns the highest moment in the trace of a window, of the device with the most allocated bytes; `None` if nothing
/// was allocated.
pub fn moment(traced: &Traced, probe: ProbeId) -> Option<PeakMoment> {
    let none = WindowKept::default();
    let kept = traced.kept.as_ref().unwrap_or(&none);
    let of_device = |device: u32| -> Option<(u32, Anatomy)> {
        let of = |name: &str| kept.blocks.get(&device).and_then(|it| it.get(name)).cloned().unwrap_or_default();
        let blocks = KeptBlocks {
            addresses: KeptAddresses {
                weights: of("weights"),
                gradients: of("gradients"),
                optimizer: of("optimizer"),
                ..KeptAddresses::default()
            },
            boundaries: &kept.boundaries,
            highest: kept.highest.get(&device).copied(),
            modules: &kept.modules,
        };
        Some((device, anatomy(&traced.trace, device, &blocks)?))
    };
    let (device, anatomy) =
        traced.trace.ordinals().into_iter().filter_map(of_device).max_by_key(|it| it.1.allocated)?;
    let window = traced.window.unwrap_or_default();
    // The job's own figures, where it has them, are without the time that other processes took.
    let us = |own: u64, seen: u64| if kept.paused_us > 0 { own } else { seen };
    let cost = PeakCost {
        steps: window.steps,
        ms: window.ms,
        snapshots: window.snapshots,
        longest_pause_us: us(kept.longest_us, window.longest_us),
        paused_us: us(kept.paused_us, window.paused_us),
    };
    Some(PeakMoment { probe, device, anatomy, cost })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::event::{
        Event, Fact, Line,
        wire::{Counters, Device, Edge, Hello, Live, PROTOCOL, Parts, Sample},
    };

    const MIB: u64 = 1 << 20;

    /// A job that takes a step each second and keeps `kept` bytes of each.
    struct Job {
        session: Session,
        step: u64,
        kept: u64,
    }

    impl Job {
        fn new(sites: &str, kept: u64) -> Self {
            let mut it = Self { session: Session::default(), step: 0, kept };
            let probe = ProbeId(0);
            it.add(Fact::ProbeFound { probe, pid: Some(7), socket: "/tmp/gpuwatch-none/7.sock".into() });
            let device = Device { ordinal: 0, uuid: Some("GPU-0".to_owned()), ..Device::default() };
            let hello = Hello {
                protocol: PROTOCOL,
                pid: 7,
                sites: Some(sites.to_owned()),
                devices: vec![device],
                ..Hello::default()
            };
            it.line(Line::Hello(hello));
            it.line(Line::Live(Live::default()));
            it
        }

        fn add(&mut self, fact: Fact) {
            self.session.apply(&Event { at: Stamp(self.step * 1_000_000), fact });
        }

        fn line(&mut self, line: Line) {
            self.add(Fact::Probe { probe: ProbeId(0), line: Box::new(line) });
        }

        /// Trains up to a step; returns how many windows were requested on the way.
        fn train(&mut self, to: u64) -> usize {
            let (asks, mut requests) = tokio::sync::mpsc::channel(4);
            let mut windows = PeakWindows::new(asks);
            while self.step < to {
                self.step += 1;
                let allocated = 100 * MIB + self.step * self.kept;
                let parts = Parts { weights: 60 * MIB, retained: allocated - 60 * MIB, ..Parts::default() };
                let sample = Sample {
                    at_us: self.step * 1_000_000,
                    edge: Edge::Step,
                    step: Some(self.step),
                    parts: Some(parts),
                    counters: Counters { allocated: Some(allocated), ..Counters::default() },
                    ..Sample::default()
                };
                self.line(Line::Sample(sample));
                self.add(Fact::Second);
                let findings = crate::model::findings::findings(&self.session);
                assert_eq!(windows.look(&self.session, &findings), Vec::new());
            }
            std::iter::from_fn(|| requests.try_recv().ok()).count()
        }
    }

    #[test]
    fn one_window_is_requested_once_a_job_has_settled_and_nothing_grows() {
        assert_eq!(Job::new("ready", 0).train(55), 0, "not settled");
        assert_eq!(Job::new("ready", 0).train(200), 1);
        assert_eq!(Job::new("ready", MIB).train(200), 0, "it grows");
        assert_eq!(Job::new("GPUWATCH=nosites forbids it", 0).train(200), 0);
    }
}
