//! The probes of one machine over several connections. Each connection has numbers of its own and repeats what the
//! probes still know; a recording has one number for each, and each line once.

use crate::facts::{
    event::{Event, Fact, Line, ProbeId, stamp_of},
    text::Foreign,
    units::Stamp,
};
use std::collections::{BTreeMap, BTreeSet};

/// A probe that the latest connection does not mention after so many beats ended before it.
const BEATS: u32 = 2;

/// A process's pid and socket.
type Identity = (Option<u32>, Foreign);

/// The probes so far.
#[derive(Debug, Default)]
pub(super) struct Rejoin {
    /// Those that have not ended.
    living: BTreeMap<ProbeId, Living>,
    /// The numbers of the current connection.
    names: BTreeMap<ProbeId, ProbeId>,
    next: u32,
    /// Those that the current connection has not mentioned yet.
    unseen: BTreeSet<ProbeId>,
    beats: u32,
}

#[derive(Debug)]
struct Living {
    identity: Identity,
    /// The process's own id.
    instance: Option<String>,
    /// Its latest line.
    latest: Stamp,
    /// Its latest line of earlier connections.
    known: Option<Stamp>,
}

impl Rejoin {
    /// Begins another connection.
    pub(super) fn connected(&mut self) {
        self.names.clear();
        self.unseen = self.living.keys().copied().collect();
        self.beats = 0;
        for it in self.living.values_mut() {
            it.known = Some(it.latest);
        }
    }

    /// Passes on an event with its probe's number, unless an earlier connection had it.
    pub(super) fn take(&mut self, mut event: Event, send: &mut impl FnMut(Event)) {
        let is_end = event.ends_probe();
        match &mut event.fact {
            Fact::ProbeFound { probe, pid, socket } => {
                let (name, is_new) = self.found(*probe, (*pid, socket.clone()));
                *probe = name;
                if !is_new {
                    return;
                }
            }
            Fact::Probe { probe, line } => {
                let Some(name) = self.name(*probe, line, event.at, send) else { return };
                *probe = name;
                let stamp = stamp_of(line);
                let Some(living) = self.living.get_mut(&name) else { return send(event) };
                if stamp.is_some_and(|it| living.known.is_some_and(|known| it <= known)) {
                    return;
                }
                living.latest = living.latest.max(stamp.unwrap_or_default());
            }
            Fact::ProbeGone { probe, .. } => *probe = self.names.get(probe).copied().unwrap_or(*probe),
            Fact::Replayed(it) => it.probe = self.names.get(&it.probe).copied().unwrap_or(it.probe),
            Fact::Advised(it) => it.probe = self.names.get(&it.probe).copied().unwrap_or(it.probe),
            Fact::PeakMoment(it) => it.probe = self.names.get(&it.probe).copied().unwrap_or(it.probe),
            _ => {}
        }
        if is_end && let Fact::Probe { probe, .. } | Fact::ProbeGone { probe, .. } = &event.fact {
            self.living.remove(probe);
            self.unseen.remove(probe);
        }
        send(event);
    }

    /// Takes a beat. Returns the ends of the probes that ended while there was no connection.
    pub(super) fn beat(&mut self, there: Stamp) -> Vec<Event> {
        self.beats = self.beats.saturating_add(1);
        if self.beats != BEATS {
            return Vec::new();
        }
        let ended = std::mem::take(&mut self.unseen);
        let gone = |probe| {
            self.living.remove(&probe);
            Event { at: there, fact: Fact::ProbeGone { probe, why: "it ended while the link was down".into() } }
        };
        ended.into_iter().map(gone).collect()
    }

    /// Returns the number of a probe, and whether it is new.
    fn found(&mut self, local: ProbeId, identity: Identity) -> (ProbeId, bool) {
        let known = self.unseen.iter().find(|it| self.living.get(it).is_some_and(|living| living.identity == identity));
        if let Some(name) = known.copied() {
            self.unseen.remove(&name);
            self.names.insert(local, name);
            return (name, false);
        }
        (self.new_name(local, identity), true)
    }

    fn new_name(&mut self, local: ProbeId, identity: Identity) -> ProbeId {
        let name = ProbeId(self.next);
        self.next += 1;
        self.names.insert(local, name);
        let living = Living { identity, instance: None, latest: Stamp(0), known: None };
        self.living.insert(name, living);
        name
    }

    /// Returns the number of a line's probe. A hello may show that another process has the pid and the socket now.
    fn name(&mut self, local: ProbeId, line: &Line, at: Stamp, send: &mut impl FnMut(Event)) -> Option<ProbeId> {
        let name = self.names.get(&local).copied()?;
        let Line::Hello(hello) = line else { return Some(name) };
        let Some(living) = self.living.get_mut(&name) else { return Some(name) };
        let is_other = living.instance.is_some() && living.instance != hello.instance;
        if !is_other {
            living.instance.clone_from(&hello.instance);
            return Some(name);
        }
        let identity = living.identity.clone();
        self.living.remove(&name);
        send(Event { at, fact: Fact::ProbeGone { probe: name, why: "it ended while the link was down".into() } });
        let (pid, socket) = identity.clone();
        let name = self.new_name(local, identity);
        self.living.get_mut(&name)?.instance.clone_from(&hello.instance);
        send(Event { at, fact: Fact::ProbeFound { probe: name, pid, socket } });
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::event::wire::{Hello, Sample};

    fn found(probe: u32, pid: u32) -> Event {
        let socket = format!("/run/{pid}.sock").as_str().into();
        Event { at: Stamp(1), fact: Fact::ProbeFound { probe: ProbeId(probe), pid: Some(pid), socket } }
    }

    fn line(probe: u32, line: Line) -> Event {
        Event { at: Stamp(1), fact: Fact::Probe { probe: ProbeId(probe), line: Box::new(line) } }
    }

    fn hello(probe: u32, instance: &str) -> Event {
        line(probe, Line::Hello(Hello { instance: Some(instance.to_owned()), ..Hello::default() }))
    }

    fn step(probe: u32, step: u64) -> Event {
        line(probe, Line::Sample(Sample { at_us: step, step: Some(step), ..Sample::default() }))
    }

    fn taken(rejoin: &mut Rejoin, events: Vec<Event>) -> Vec<Event> {
        let mut out = Vec::new();
        for it in events {
            rejoin.take(it, &mut |event| out.push(event));
        }
        out
    }

    #[test]
    fn the_first_connection_passes_as_it_is() {
        let all = vec![found(0, 7), hello(0, "x"), step(0, 1), step(0, 1), found(1, 8), step(1, 1)];
        assert_eq!(taken(&mut Rejoin::default(), all.clone()), all);
    }

    #[test]
    fn a_process_keeps_its_number_and_its_lines_are_recorded_once() {
        let mut rejoin = Rejoin::default();
        taken(&mut rejoin, vec![found(0, 7), found(1, 8), hello(0, "x"), hello(1, "y"), step(0, 5), step(1, 4)]);
        rejoin.connected();
        // The other order, and what both still know.
        let again = vec![found(0, 8), found(1, 7), hello(0, "y"), hello(1, "x")];
        assert_eq!(taken(&mut rejoin, again), []);
        let steps = (3..7).flat_map(|it| [step(0, it), step(1, it)]).collect();
        assert_eq!(taken(&mut rejoin, steps), [step(1, 5), step(1, 6), step(0, 6)]);
        assert_eq!(rejoin.beat(Stamp(9)), []);
        assert_eq!(rejoin.beat(Stamp(9)), []);
    }

    #[test]
    fn a_process_that_ended_meanwhile_is_gone_and_another_with_its_pid_is_new() {
        let mut rejoin = Rejoin::default();
        taken(&mut rejoin, vec![found(0, 7), hello(0, "x"), step(0, 5), found(1, 8), hello(1, "y")]);
        rejoin.connected();
        let out = taken(&mut rejoin, vec![found(0, 7), hello(0, "z"), step(0, 2)]);
        let is_gone = |it: &Event, number: u32| matches!(it.fact, Fact::ProbeGone { probe, .. } if probe.0 == number);
        assert!(is_gone(&out[0], 0), "{out:?}");
        assert_eq!(out[1..], [found(2, 7), hello(2, "z"), step(2, 2)]);
        assert_eq!(rejoin.beat(Stamp(9)), []);
        let gone = rejoin.beat(Stamp(9));
        assert!(gone.len() == 1 && is_gone(&gone[0], 1), "{gone:?}");
    }
}
