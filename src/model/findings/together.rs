//! Growth on several ranks of one run that is one alert: they run the same program, so they have the same leak.

use super::{Finding, Identity, Kind, names};
use crate::model::{analysis::episode::Resource, session::Session};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

/// How far the rates of one leak may be apart on ranks of which one has no known line yet, as a share of the larger.
const RATES_DIFFER: f64 = 0.2;

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
        let may_be_shared = self.kind == Kind::Growth && self.probe.is_some() && self.is_active();
        let run = self.process(session).filter(|_| may_be_shared)?.group()?;
        Some(Leak {
            run,
            nature: self.nature(),
            resource: self.resource,
            line: self.culprit.as_ref().map(|it| it.leading().place()),
            follows: self.follows.is_some(),
            expected: self.is_allowed(),
        })
    }

    /// Returns whether both may be one leak, although the line of this one is not known yet: the other's capture may
    /// have changed its cause as well.
    fn may_share(&self, own: &Leak, other: &Self, known: &Leak) -> bool {
        let alike = |it: &Leak| Leak { line: None, nature: (self.kind, ""), ..it.clone() };
        let rates = self.bytes_per_step.zip(other.bytes_per_step);
        let are_close = |(one, other): (f64, f64)| (one - other).abs() <= RATES_DIFFER * one.max(other);
        alike(own) == alike(known)
            && self.subject() != other.subject()
            && self.axis == other.axis
            && rates.is_some_and(are_close)
    }
}

/// Returns the leak of each finding. One whose line is not known yet is the only leak of a known line that it may be.
fn leaks(all: &[&Finding], session: &Session) -> Vec<Option<Leak>> {
    let own: Vec<Option<Leak>> = all.iter().map(|it| it.leak(session)).collect();
    let known: Vec<(&Finding, &Leak)> = all
        .iter()
        .zip(&own)
        .filter_map(|(it, leak)| Some((*it, leak.as_ref().filter(|leak| leak.line.is_some())?)))
        .collect();
    let completed = |(it, leak): (&&Finding, &Option<Leak>)| {
        let leak = leak.as_ref()?;
        if leak.line.is_some() {
            return Some(leak.clone());
        }
        let alike = known.iter().filter(|(other, known)| it.may_share(leak, other, known)).map(|(_, known)| *known);
        let alike: BTreeSet<&Leak> = alike.collect();
        Some(alike.first().copied().filter(|_| alike.len() == 1).unwrap_or(leak).clone())
    };
    all.iter().zip(&own).map(completed).collect()
}

/// Returns the findings with one of each leak that several ranks share, at the place of the first: the gravest, then
/// `held`, then one whose line is known, then that of the lowest rank.
pub fn once<'a>(all: &[&'a Finding], held: Option<Identity>, session: &Session) -> Vec<&'a Finding> {
    grouped(all, held, session).into_iter().filter_map(|group| group.first().copied()).collect()
}

/// Returns the same ones, each before the others with the same leak, which are ordered by rank.
pub fn grouped<'a>(all: &[&'a Finding], held: Option<Identity>, session: &Session) -> Vec<Vec<&'a Finding>> {
    let leaks = leaks(all, session);
    let mut groups: BTreeMap<&Leak, Vec<&'a Finding>> = BTreeMap::new();
    for (it, leak) in all.iter().zip(&leaks) {
        if let Some(leak) = leak {
            groups.entry(leak).or_default().push(*it);
        }
    }
    groups.retain(|_, group| probes(group) > 1);
    let mut shown = BTreeSet::new();
    let group = |(it, leak): (&&'a Finding, &Option<Leak>)| {
        let Some((leak, group)) = leak.as_ref().and_then(|leak| groups.get_key_value(leak)) else {
            return Some(vec![*it]);
        };
        shown.insert(*leak).then(|| first_before_others(group, held))
    };
    all.iter().zip(&leaks).filter_map(group).collect()
}

fn first_before_others<'a>(group: &[&'a Finding], held: Option<Identity>) -> Vec<&'a Finding> {
    let mut group = by_rank(group);
    let first = (0..group.len()).min_by_key(|place| {
        group.get(*place).map(|it| (Reverse(it.severity), Some(it.identity()) != held, it.culprit.is_none()))
    });
    if let Some(prefix) = first.and_then(|place| group.get_mut(..=place)) {
        prefix.rotate_right(1);
    }
    group
}

fn by_rank<'a>(group: &[&'a Finding]) -> Vec<&'a Finding> {
    let mut group = group.to_vec();
    group.sort_by_key(|it| (it.rank, it.subject(), it.ordinal));
    group
}

/// Returns those of the findings that are the same leak as this one, by rank: only itself unless ranks share it.
pub fn sharing<'a>(it: &'a Finding, all: &[&'a Finding], session: &Session) -> Vec<&'a Finding> {
    let mut groups = grouped(all, None, session).into_iter();
    let group = groups.find(|group| group.iter().any(|other| other.identity() == it.identity()));
    group.map_or_else(|| vec![it], |group| by_rank(&group))
}

/// Returns `ranks 0, 1` of several findings; `None` of one alone, and without known ranks.
pub fn ranks(group: &[&Finding]) -> Option<String> {
    let ranks: BTreeSet<u64> = group.iter().filter_map(|it| it.rank).collect();
    let named = names(ranks.iter().map(u64::to_string)).filter(|_| ranks.len() > 1)?;
    Some(format!("ranks {named}"))
}

fn probes(group: &[&Finding]) -> usize {
    group.iter().map(|it| it.subject()).collect::<BTreeSet<_>>().len()
}
