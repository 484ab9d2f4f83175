//! Growth on several ranks of one run that is one alert: they run the same program, so they have the same leak.

use super::{Finding, Identity, Kind};
use crate::model::{analysis::episode::Resource, session::Session};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

/// What ranks with the same leak have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Leak {
    run: String,
    nature: (Kind, &'static str),
    resource: Option<Resource>,
    /// The line to blame.
    line: Option<String>,
    follows: bool,
    expected: bool,
}

impl Finding {
    /// Returns its kind and the name of its cause. Findings of several ranks that share them are one alert of their
    /// job; on one machine only growth, and of the same line.
    pub fn nature(&self) -> (Kind, &'static str) {
        (self.kind, self.cause.id())
    }

    fn leak(&self, session: &Session) -> Option<Leak> {
        let run = self.process(session).filter(|_| self.kind == Kind::Growth && self.probe.is_some())?.group()?;
        Some(Leak {
            run,
            nature: self.nature(),
            resource: self.resource,
            line: self.culprit.as_ref().map(|it| it.leading().place()),
            follows: self.follows.is_some(),
            expected: self.is_allowed(),
        })
    }
}

/// Returns the findings with one of each leak that several ranks share, at the place of the first: the gravest, then
/// `held`, then that of the lowest rank.
pub fn once<'a>(all: &[&'a Finding], held: Option<Identity>, session: &Session) -> Vec<&'a Finding> {
    let leaks: Vec<Option<Leak>> = all.iter().map(|it| it.leak(session)).collect();
    let mut groups: BTreeMap<&Leak, Vec<&'a Finding>> = BTreeMap::new();
    for (it, leak) in all.iter().zip(&leaks) {
        if let Some(leak) = leak {
            groups.entry(leak).or_default().push(*it);
        }
    }
    groups.retain(|_, group| probes(group) > 1);
    let first = |group: &Vec<&'a Finding>| {
        group
            .iter()
            .copied()
            .min_by_key(|it| (Reverse(it.severity), Some(it.identity()) != held, it.rank, it.subject(), it.ordinal))
    };
    let mut shown = BTreeSet::new();
    let one = |(it, leak): (&&'a Finding, &Option<Leak>)| {
        let Some((leak, group)) = leak.as_ref().and_then(|leak| groups.get_key_value(leak)) else { return Some(*it) };
        if shown.insert(*leak) { first(group) } else { None }
    };
    all.iter().zip(&leaks).filter_map(one).collect()
}

/// Returns those of the findings that are the same leak as this one, by rank: only itself unless ranks share it.
pub fn sharing<'a>(it: &'a Finding, all: &[&'a Finding], session: &Session) -> Vec<&'a Finding> {
    let Some(leak) = it.leak(session).filter(|_| all.iter().any(|other| other.identity() == it.identity())) else {
        return vec![it];
    };
    let mut group: Vec<&Finding> =
        all.iter().copied().filter(|other| other.leak(session).as_ref() == Some(&leak)).collect();
    if probes(&group) < 2 {
        return vec![it];
    }
    group.sort_by_key(|it| (it.rank, it.subject(), it.ordinal));
    group
}

fn probes(group: &[&Finding]) -> usize {
    group.iter().map(|it| it.subject()).collect::<BTreeSet<_>>().len()
}
