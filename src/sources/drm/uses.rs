//! What processes use of the devices, by the kernel's list of clients and by AMD's compute driver.

use super::{
    card::{Card, KernelDriver},
    clients::Clients,
    fdinfo::{Client, Work},
    kfd,
};
use crate::facts::{
    event::{PROCESSES_MAX, ProcessUse},
    figures::{Figure, Figures},
    units::{Bytes, whole},
};
use std::{collections::BTreeMap, path::PathBuf, time::Duration};

/// A larger difference between the two sources, in bytes, is shown. A smaller one is normal: they are not read at the
/// same instant, and they round differently.
const AGREES: u64 = 16 << 20;

/// What one process uses of one device, in bytes.
#[derive(Clone, Debug, Default)]
struct Use {
    clients: Option<u64>,
    system: Option<u64>,
    compute: Option<u64>,
    is_of_compute: bool,
    /// Percents of the time of the engines that compute, encode and decode.
    percents: [Option<f64>; 3],
}

/// The readings of clients that make rates.
#[derive(Default)]
pub(super) struct Rates {
    /// By device, client and class of engines.
    before: BTreeMap<(usize, u64, String), Work>,
    at: Option<Duration>,
}

/// The processes of the devices.
pub(super) struct Uses {
    by_card: Vec<BTreeMap<u32, Use>>,
}

impl Uses {
    /// Joins what the kernel tells of clients with what the compute driver tells of its processes. `now` is the time
    /// since any fixed moment.
    pub(super) fn new(
        cards: &[Card],
        found: &Clients,
        computing: &[(u32, PathBuf)],
        rates: &mut Rates,
        now: Duration,
    ) -> Self {
        let mut by_card: Vec<BTreeMap<u32, Use>> = vec![BTreeMap::new(); cards.len()];
        let ns = rates.at.replace(now).and_then(|then| now.checked_sub(then)).map(|it| it.as_nanos());
        let ns = ns.and_then(|it| u64::try_from(it).ok());
        let before = std::mem::take(&mut rates.before);
        for (place, pid, client) in &found.clients {
            let Some((card, all)) = cards.get(*place).zip(by_card.get_mut(*place)) else { continue };
            let entry = all.entry(*pid).or_default();
            add(&mut entry.clients, client.resident(card.regions()));
            if !card.is_integrated {
                add(&mut entry.system, client.resident(card.driver.system_regions));
            }
            let since = |class: &str, work: &Work| {
                let then = before.get(&(*place, client.id?, class.to_owned()))?;
                work.percent_since(then, ns?)
            };
            for (percent, classes) in entry.percents.iter_mut().zip(classes(card.driver)) {
                for (class, work) in client.work(classes) {
                    if let Some(it) = since(class, &work) {
                        *percent = Some((percent.unwrap_or(0.0) + it).min(100.0));
                    }
                    note(&mut rates.before, *place, client, class, work);
                }
            }
        }
        for (pid, folder) in computing {
            for (card, all) in cards.iter().zip(&mut by_card) {
                let bytes = kfd::memory(folder, &card.gpu_ids);
                // The compute driver lists each of its processes under each device.
                if bytes.is_some_and(|it| it > 0) || all.contains_key(pid) {
                    all.entry(*pid).or_default().compute = bytes;
                }
            }
        }
        let computes = |pid: &u32| found.computing.contains(pid) || computing.iter().any(|it| it.0 == *pid);
        for (pid, it) in by_card.iter_mut().flatten() {
            it.is_of_compute = computes(pid);
        }
        for all in &mut by_card {
            all.retain(|_, it| it.used() != Some(0));
        }
        Self { by_card }
    }

    /// Returns the list of a device's processes.
    pub(super) fn list(&self, place: usize) -> Vec<ProcessUse> {
        let all = self.by_card.get(place).into_iter().flatten();
        all.take(PROCESSES_MAX).map(|(pid, it)| ProcessUse { pid: *pid, used: it.used().map(Bytes) }).collect()
    }

    /// Returns the figures of a device's processes.
    pub(super) fn figures(&self, place: usize) -> BTreeMap<u32, Figures> {
        let all = self.by_card.get(place).into_iter().flatten();
        all.map(|(pid, it)| (*pid, it.figures())).collect()
    }
}

fn classes(driver: &KernelDriver) -> [&'static [&'static str]; 3] {
    [driver.engines, driver.encoders, driver.decoders]
}

fn note(before: &mut BTreeMap<(usize, u64, String), Work>, place: usize, client: &Client, class: &str, work: Work) {
    if let Some(id) = client.id {
        before.insert((place, id, class.to_owned()), work);
    }
}

fn add(sum: &mut Option<u64>, more: Option<u64>) {
    if let Some(more) = more {
        *sum = Some(sum.unwrap_or(0).saturating_add(more));
    }
}

impl Use {
    /// Returns what counts: the larger figure where both sources have one.
    fn used(&self) -> Option<u64> {
        self.clients.max(self.compute)
    }

    fn figures(&self) -> Figures {
        let [work, encoder, decoder] = self.percents.map(|it| it.map(whole));
        let disagrees = self.clients.zip(self.compute).is_some_and(|(one, other)| one.abs_diff(other) > AGREES);
        let figures = [
            // The kernels of a process of the compute driver run on queues that the kernel's list does not count.
            (Figure::SmPercent, work.filter(|_| !self.is_of_compute)),
            (Figure::EncoderPercent, encoder),
            (Figure::DecoderPercent, decoder),
            (Figure::Gtt, self.system),
            (Figure::KfdMemory, self.compute.filter(|_| disagrees)),
        ];
        figures.into_iter().filter_map(|(figure, value)| Some((figure, value?))).collect()
    }
}
