//! Every analysis of one session, at the session's own time: one ladder per device, fragmentation and growth per
//! process, and the findings.

mod blame;
mod derive;
mod finding;
mod follow;
mod idle;
mod json;
mod replayed;
mod search;
mod steps;
/// Leaks that several ranks share.
pub mod together;
mod try_fit;
mod words;

use crate::{
    facts::{
        event::{DeviceId, ProbeId},
        units::{Bytes, Stamp},
    },
    model::{
        analysis::{
            episode::{Axis, Resource},
            fragmentation::{self, Fragmentation},
            ladder::{self, Gap, Ladder, OwnFigures},
        },
        session::{
            Session,
            attribution::Attribution,
            device::Device,
            process::{OnDevice, Process},
        },
    },
};
pub use finding::{Finding, Identity, Kind, Standing, Subject};
pub use replayed::{VARIABLE, replay_words};
pub use steps::{against_others, names};

/// All analyses of a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// Per device, in the session's order.
    pub devices: Vec<DeviceFindings>,
    /// All findings: worst first, active before resolved, then as raised.
    pub all: Vec<Finding>,
}

/// The analyses of one device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceFindings {
    /// The device.
    pub device: DeviceId,
    /// Its ladder.
    pub ladder: Ladder,
    /// Its probed processes, in the order of the ladder's owners.
    pub processes: Vec<ProcessFindings>,
    /// Number of processes that the driver lists without a probe; `None` if there is no list.
    pub unprobed: Option<usize>,
    /// Whether the driver's list has pids of another namespace, so that its figures cannot be attributed.
    pub foreign_pids: bool,
}

/// The analyses of one process on one device.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessFindings {
    /// The probe.
    pub probe: ProbeId,
    /// The process's own ordinal of the device.
    pub ordinal: u32,
    /// The bytes that the driver reports for it.
    pub driver_used: Option<Bytes>,
    /// How much of its reserved memory is unused.
    pub fragmentation: Fragmentation,
    /// Whole free segments that are certain to be in no private pool: `empty_cache()` gives them back.
    pub releasable: Option<Bytes>,
    /// Whether samples are missing in what this rests on.
    pub approximate: bool,
    /// Whether it has ended while its memory is still in use.
    pub ended: bool,
}

/// Returns all analyses of a session.
pub fn findings(session: &Session) -> Findings {
    Findings { devices: of_devices(session), all: derive::all(session) }
}

fn of_devices(session: &Session) -> Vec<DeviceFindings> {
    session.devices.iter().map(|it| of_device(session, it)).collect()
}

/// Returns whether a finding still needs attention: it and its process are active. An out-of-memory error stays open.
/// When no process is left, the final findings stay open for some minutes. If a process continues without its probe, it
/// is unknown whether they last.
pub fn is_open(it: &Finding, session: &Session) -> bool {
    let is_over = || {
        let process = it.process(session);
        let has_ended = process.is_none_or(|it| !it.is_alive());
        let is_unseen = || process.is_some_and(|it| it.next.is_some() || session.continues(it));
        let is_old = || process.is_some_and(|it| it.ended_long_ago(session.now));
        // What is judged without a probe ends by itself.
        let is_probed = it.probe.is_some() && it.kind != Kind::Oom;
        is_probed && has_ended && (is_unseen() || is_old() || session.processes.iter().any(Process::is_alive))
    };
    it.is_active() && !is_over()
}

impl Findings {
    /// Returns the same findings with the ladders and figures of a later moment.
    #[must_use]
    pub fn with_figures_of(self, session: &Session) -> Self {
        Self { devices: of_devices(session), ..self }
    }

    /// Returns the analyses of one device.
    pub fn device(&self, id: &DeviceId) -> Option<&DeviceFindings> {
        self.devices.iter().find(|it| it.device == *id)
    }

    /// Returns a process's lasting growth on a device: of its live allocations, otherwise the fastest.
    pub fn growing(&self, probe: ProbeId, ordinal: u32) -> Option<&Finding> {
        let own = self.lasting_growth().filter(|it| it.probe == Some(probe) && it.ordinal == Some(ordinal));
        let own = own.filter(|it| it.resource != Some(Resource::Device));
        own.max_by(|one, other| {
            let is_live = |it: &Finding| it.resource == Some(Resource::Allocated);
            is_live(one).cmp(&is_live(other)).then(rate(one).total_cmp(&rate(other)))
        })
    }

    /// Returns how fast a process grows on a device, in bytes per step: 0 without growth, `None` before enough steps
    /// were seen, and for growth that is measured per second.
    pub fn rate_per_step(&self, probe: ProbeId, on: &OnDevice) -> Option<f64> {
        let flat = (on.growth.watched() >= on.growth.enough()).then_some(0.0);
        let growing = self.growing(probe, on.ordinal);
        growing.map_or(flat, |it| it.bytes_per_step.filter(|_| it.axis == Axis::Steps))
    }

    /// Returns the worst lasting finding of a process's memory on a device apart from growth, with its resource.
    pub fn strained(&self, probe: ProbeId, ordinal: u32) -> Option<(Resource, &Finding)> {
        let own = self.all.iter().filter(|it| it.probe == Some(probe) && it.ordinal == Some(ordinal));
        own.filter(|it| it.is_active() && it.kind != Kind::Growth).find_map(|it| Some((it.memory()?, it)))
    }

    /// Returns the fastest lasting growth of a process's host memory.
    pub fn growing_on_host(&self, probe: ProbeId) -> Option<&Finding> {
        let own = self.lasting_growth().filter(|it| it.probe == Some(probe) && it.ordinal.is_none());
        own.max_by(|one, other| rate(one).total_cmp(&rate(other)))
    }

    /// Returns the fastest lasting growth on a device, of a running process or of no process in particular.
    pub fn growing_on(&self, device: &DeviceFindings) -> Option<&Finding> {
        let living = device.processes.iter().filter(|it| !it.ended);
        let own = living.filter_map(|it| self.growing(it.probe, it.ordinal));
        let is_nobodys =
            |it: &&Finding| it.resource == Some(Resource::Device) && it.device.as_ref() == Some(&device.device);
        own.chain(self.lasting_growth().filter(is_nobodys)).max_by(|one, other| rate(one).total_cmp(&rate(other)))
    }

    fn lasting_growth(&self) -> impl Iterator<Item = &Finding> {
        self.all.iter().filter(|it| it.kind == Kind::Growth && it.is_active())
    }
}

fn rate(growth: &Finding) -> f64 {
    growth.bytes_per_step.unwrap_or(0.0)
}

/// Analyses the memory of one device.
pub fn of_device(session: &Session, device: &Device) -> DeviceFindings {
    let Attribution { device: figures, own, unprobed, foreign_pids } = session.attribution(device);
    let own_figures: Vec<_> = own.iter().map(|it| it.figures).collect();
    DeviceFindings {
        device: device.id.clone(),
        ladder: ladder::ladder(&figures, &own_figures),
        processes: own.iter().map(|it| process_findings(it.process, it.on, it.driver_used)).collect(),
        unprobed,
        foreign_pids,
    }
}

fn process_findings(process: &Process, it: &OnDevice, driver_used: Option<Bytes>) -> ProcessFindings {
    let (counters, is_expandable) = (&it.counters, process.is_expandable());
    let figures = OwnFigures::counted(counters, is_expandable, Stamp(0));
    ProcessFindings {
        probe: process.probe,
        ordinal: it.ordinal,
        driver_used,
        fragmentation: fragmentation::fragmentation(counters, is_expandable),
        releasable: ladder::part(&figures, Gap::Releasable).map(Bytes),
        approximate: process.stride > 1 || process.lost > 0,
        ended: !process.is_alive(),
    }
}
