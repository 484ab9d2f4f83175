//! Which jobs are to be asked for the lines that allocate what grows, without a person's asking.

use super::is_open;
use crate::{
    analysis::{episode::Resource, severity::Severity},
    event::{Ask, ProbeId},
    findings::{Finding, Findings, Kind, Standing},
    session::Session,
};
use std::collections::BTreeSet;

/// Steps over which a probe compares, unless the growth is slower than that.
const STEPS: u64 = 8;

/// Blocks that should come within a look.
const BLOCKS: f64 = 4.0;

/// Growth slower than this is not waited for, in steps.
const STEPS_MAX: u64 = 400;

/// What was asked for: each growth once. How often a job is asked at most, its own probe sees to.
#[derive(Clone, Debug, Default)]
pub struct Looks {
    asked: BTreeSet<(ProbeId, Option<u32>, u64)>,
}

impl Looks {
    /// Growth of live memory that matters at least as a warning, in a job that can be asked and that nobody has asked
    /// since it began. To be called on the grid of events, as [`News`](super::News) is.
    pub fn at(&mut self, session: &Session, findings: &Findings) -> Vec<Ask> {
        let known: BTreeSet<_> = findings.all.iter().map(identity).collect();
        self.asked.retain(|it| known.contains(it));
        let is_wanted = |it: &&Finding| {
            let of_live = it.kind == Kind::Growth && it.resource == Some(Resource::Allocated);
            of_live && it.severity >= Severity::Warning && it.standing == Standing::Usual && is_open(it, session)
        };
        let wanted = findings.all.iter().filter(is_wanted).filter(|it| can_be_asked(it, session));
        let news = wanted.filter(|it| self.asked.insert(identity(it)));
        news.map(|it| Ask { probe: it.probe, steps: steps(it.blocks_per_step), growth: true, collect: false }).collect()
    }
}

fn identity(it: &Finding) -> (ProbeId, Option<u32>, u64) {
    (it.probe, it.ordinal, it.first_alert_step)
}

fn can_be_asked(it: &Finding, session: &Session) -> bool {
    let Some(process) = session.process(it.probe) else { return false };
    let is_ready = process.hello.as_ref().is_some_and(|it| it.sites.as_deref() == Some("ready"));
    let told = process.sites.iter().any(|its| its.step.is_some_and(|step| step > it.since_step) && its.steps > 0);
    is_ready && process.life == crate::session::process::Life::Live && !told
}

/// Steps within which some blocks come, at the pace at which they do.
pub fn steps(blocks_per_step: Option<f64>) -> u64 {
    let wanted = blocks_per_step.filter(|it| *it > 0.0).map_or(0.0, |it| (BLOCKS / it).ceil());
    crate::units::whole(wanted).clamp(STEPS, STEPS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_growth_is_looked_at_for_longer() {
        assert_eq!(steps(None), 8);
        assert_eq!(steps(Some(3.0)), 8);
        assert_eq!(steps(Some(0.25)), 16);
        assert_eq!(steps(Some(1e-9)), 400);
        assert_eq!(steps(Some(-1.0)), 8);
    }
}
