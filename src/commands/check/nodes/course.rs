//! What is found over all ranks of a job while its recordings go by: judged at moments of equal distance, since a
//! comparison of ranks needs all of them as they were at one moment.

use crate::{
    facts::{text::Foreign, units::Stamp},
    model::{
        alerts::Policy,
        cluster::{
            findings::{self, JobFinding, Subject},
            jobs::{self, jobs},
        },
    },
    storage::replay::host_replay::Recorded,
};
use std::{cmp::Reverse, collections::BTreeMap};

/// Most moments, and the least time between two, in µs: what is found at two in a row lasts for that long.
const MOMENTS: u64 = 64;
const APART_US: u64 = 5_000_000;

/// A job of several hosts, as their recordings have it.
#[derive(Debug)]
pub struct Job {
    /// Its name in words.
    pub name: String,
    /// The id that its ranks share, from `gpuwatch env` or `gpuwatch run`.
    pub run: Option<String>,
    /// The batch system and its job.
    pub scheduled: Option<(String, String)>,
    /// The number of its ranks that were recorded.
    pub ranks: usize,
    /// What was found, worst first.
    pub findings: Vec<JobFinding>,
}

/// A finding over time.
struct Seen {
    worst: JobFinding,
    /// The latest moment with it.
    moment: u64,
    lasts: bool,
}

/// A job over time.
#[derive(Default)]
struct Course {
    job: Option<Job>,
    seen: BTreeMap<Subject, Seen>,
}

/// Returns the jobs of the recordings up to an instant of the recorder's clock. A finding counts if it lasts to the end
/// or for two moments in a row.
pub(super) fn jobs_until(recorded: &Recorded, policy: &Policy, to: Stamp) -> Vec<Job> {
    let from = Stamp(recorded.index.head.monotonic_us);
    let step = (to.since(from) / MOMENTS).max(APART_US);
    let moments = to.since(from) / step;
    let mut playback = recorded.play();
    let mut courses: BTreeMap<String, Course> = BTreeMap::new();
    for moment in 0..=moments {
        let is_end = moment == moments;
        // The last one is the end.
        let at = if is_end { to } else { Stamp(from.0 + (moment + 1) * step) };
        playback.advance(at);
        let cluster = &playback.cluster;
        let found = policy.found(cluster);
        for job in jobs(cluster) {
            let own = findings::findings(cluster, &job, &found);
            let course = courses.entry(job.key()).or_default();
            course.note(moment, is_end, own);
            course.job = Some(described(&job));
        }
    }
    let mut all: Vec<Job> = courses.into_values().filter_map(Course::judged).collect();
    all.sort_by_key(|it| Reverse(it.ranks));
    all
}

impl Course {
    fn note(&mut self, moment: u64, is_end: bool, found: Vec<JobFinding>) {
        for it in found {
            let seen = self.seen.entry(it.subject).or_insert_with(|| Seen { worst: it.clone(), moment, lasts: false });
            seen.lasts |= is_end || seen.moment + 1 == moment;
            seen.moment = moment;
            if it.severity >= seen.worst.severity {
                seen.worst = it;
            }
        }
    }

    fn judged(self) -> Option<Job> {
        let mut findings: Vec<JobFinding> = self.seen.into_values().filter(|it| it.lasts).map(|it| it.worst).collect();
        findings.sort_by_key(|it| (Reverse(it.severity), it.subject));
        self.job.map(|job| Job { findings, ..job })
    }
}

fn described(job: &jobs::Job) -> Job {
    Job {
        name: job.name().map_or_else(|| "a job".to_owned(), |it| Foreign::new(it).to_string()),
        run: job.run.map(str::to_owned),
        scheduled: job.scheduled.map(|it| (it.scheduler.clone(), it.id.clone())),
        ranks: job.ranks.len(),
        findings: Vec::new(),
    }
}
