//! Which ranks of a job run, and what each of them takes: the memory of a rank depends on the others only through the
//! shapes of what they send, so that a few ranks stand for all
//! (`probes/python/gpuwatch_probe/_fit_ranks.py`; the simulated NCCL answers for the absent ones).

use super::{
    job_report::{JobReport, OnDevice},
    peak::Consists,
};
use crate::{
    facts::{
        event::anatomy::AnatomyPart,
        units::{Bytes, counted},
    },
    model::{fit::Fits, trace::SourceLine},
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    path::Path,
};

/// The most ranks that run where gpuwatch chooses them.
const MOST: usize = 8;

/// The most stages of a pipeline that run where they cannot do without each other.
const MOST_STAGES: usize = 16;

/// The most machines.
const MOST_NODES: u32 = 100_000;

/// How many machines: a number, or a range of which the smallest that is enough is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nodes {
    least: u32,
    most: u32,
}

impl Default for Nodes {
    fn default() -> Self {
        Self { least: 1, most: 1 }
    }
}

impl Nodes {
    /// Reads `8` or `1..16`.
    ///
    /// # Errors
    /// When it is neither, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let number = |it: &str| it.trim().parse().ok().filter(|count| (1..=MOST_NODES).contains(count));
        let (least, most) = text.split_once("..").unwrap_or((text, text));
        let found = number(least).zip(number(most)).filter(|(least, most)| least <= most);
        let (least, most) = found.ok_or("give a number of machines, as in 8, or a range, as in 1..16")?;
        Ok(Self { least, most })
    }

    /// Returns the most of them.
    pub(super) fn most(self) -> u32 {
        self.most
    }

    /// Whether the smallest number that is enough is asked for.
    pub(super) fn is_range(self) -> bool {
        self.least < self.most
    }
}

/// Which ranks of the job run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranks {
    /// How many machines there would be.
    pub nodes: Nodes,
    /// The ranks that run, negative ones counted from the end; empty lets gpuwatch choose.
    pub chosen: Vec<i64>,
}

/// The ranks that run of one number of machines.
#[derive(Clone, Debug)]
pub(super) struct Present {
    pub(super) nodes: u32,
    ranks: Vec<i64>,
    is_chosen: bool,
    /// Whether Slurm would start them.
    pub(super) is_slurm: bool,
    /// The ranks that runs showed to be needed.
    needed: BTreeSet<u64>,
    /// The stages of a long pipeline, of which some were chosen.
    stages: Vec<u64>,
    /// What was changed because of a run, in words.
    pub(super) notes: Vec<String>,
}

impl Present {
    /// Those that run at first: the first and the last, unless the user chose.
    pub(super) fn new(ranks: &Ranks, nodes: u32, is_slurm: bool) -> Self {
        let is_chosen = !ranks.chosen.is_empty();
        let ranks = if is_chosen { ranks.chosen.clone() } else { vec![0, -1] };
        Self { nodes, ranks, is_chosen, is_slurm, needed: BTreeSet::new(), stages: Vec::new(), notes: Vec::new() }
    }

    pub(super) fn count(&self) -> usize {
        self.ranks.len()
    }

    /// Returns the variables of a job on machines with so many devices (`_fit_ranks.py`).
    pub(super) fn variables(&self, devices: u32) -> Vec<(&'static str, String)> {
        let mut all = vec![
            ("GPUWATCH_FIT_RANKS", self.list()),
            ("GPUWATCH_FIT_NODES", self.nodes.to_string()),
            ("GPUWATCH_FIT_NODE_RANKS", devices.to_string()),
        ];
        all.extend(self.is_slurm.then(|| ("GPUWATCH_FIT_SLURM", "1".to_owned())));
        all
    }

    pub(super) fn list(&self) -> String {
        self.ranks.iter().map(i64::to_string).collect::<Vec<_>>().join(",")
    }

    /// Changes which ranks run where a run showed that the first one depends on others; whether the job has to run
    /// again.
    pub(super) fn learn(&mut self, accounts: &[JobReport], is_failure: bool) -> bool {
        let ran: BTreeSet<u64> = accounts.iter().flat_map(|it| it.ran.iter().copied()).collect();
        if self.is_chosen || ran.is_empty() {
            return false;
        }
        // What an absent rank broadcasts has a known size; only where its values are missing does a job fail.
        let needed = needed(accounts, &self.needed, is_failure);
        let stages = stages(accounts, &needed);
        if stages.len() > MOST && self.stages.is_empty() {
            self.stages = stages;
            return self.run_only(sample(&self.stages));
        }
        let first = first(&self.stages);
        if is_failure && !first.iter().all(|it| ran.contains(it)) {
            return self.run_only(first);
        }
        let others = needed.len().max(self.stages.len()) - 1;
        if others >= MOST && ran.len() <= others {
            let others = counted(others as u64, "other rank");
            self.note(format!(
                "rank 0 exchanges tensors with {others}, of which most do not run: what these send is taken to be what \
                 they are sent"
            ));
        } else if !needed.is_subset(&ran) {
            self.needed = needed;
            self.needed.extend(stages);
            return self.run_only(self.needed.clone());
        }
        // The last rank may need values that nobody sends.
        if is_failure && ran.len() == 1 {
            self.notes.clear();
        }
        if is_failure && self.ranks.contains(&-1) && ran.len() > 1 {
            self.ranks = vec![0];
            self.note(
                "the last rank did not run to its end without the ones that are absent; rank 0 ran alone".to_owned(),
            );
            return true;
        }
        false
    }

    /// Has only these ranks run, and the job run again.
    fn run_only(&mut self, ranks: impl IntoIterator<Item = u64>) -> bool {
        self.ranks = ranks.into_iter().filter_map(|it| i64::try_from(it).ok()).collect();
        true
    }

    /// Returns the chosen ranks that the job does not have, in words.
    pub(super) fn missed(&self, accounts: &[JobReport]) -> Vec<String> {
        let Some(world) = accounts.iter().map(|it| it.world).max().filter(|world| *world > 0) else {
            return Vec::new();
        };
        let ranks = i64::try_from(world).unwrap_or(i64::MAX);
        let missed = self.ranks.iter().filter(|it| self.is_chosen && !(-ranks..ranks).contains(*it));
        missed.map(|it| format!("rank {it} did not run: the job has {}", counted(world, "rank"))).collect()
    }

    fn note(&mut self, text: String) {
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }
}

/// Options of `srun` whose value is the next word.
const SRUN_VALUES: &str = "AabBcCdDeGiIJLmMnNopqrStTUwxZ";

/// Returns the command that `srun` would start for each rank; `None` where it starts none.
pub(super) fn without_srun(command: &[OsString]) -> Option<Vec<OsString>> {
    let (first, rest) = command.split_first()?;
    if Path::new(first).file_name()? != "srun" {
        return None;
    }
    let mut at = 0;
    while let Some(option) = rest.get(at).map(|it| it.to_string_lossy()).filter(|it| it.starts_with('-')) {
        let short = option.strip_prefix('-').filter(|it| it.chars().count() == 1);
        let long = option.strip_prefix("--");
        // A long option without its value has it in the next word, unless that is a program or an option.
        let next = rest.get(at + 1).map(|it| it.to_string_lossy());
        let is_number = next.is_some_and(|it| !it.is_empty() && it.chars().all(|c| c.is_ascii_digit() || c == ':'));
        let has_value =
            short.is_some_and(|it| SRUN_VALUES.contains(it)) || long.is_some_and(|it| !it.contains('=')) && is_number;
        at += 1 + usize::from(has_value);
    }
    let words = rest.get(at..).filter(|it| !it.is_empty())?;
    Some(words.to_vec())
}

/// Returns the first rank, those that are known to be needed, and those on which these depend, directly or not; with
/// those for whose values they wait.
fn needed(accounts: &[JobReport], known: &BTreeSet<u64>, waits: bool) -> BTreeSet<u64> {
    let mut found = known.clone();
    found.insert(0);
    loop {
        let of = |rank: u64| {
            let own = accounts.iter().filter(move |it| it.rank == Some(rank));
            own.flat_map(move |it| it.peers.iter().chain(it.sources.iter().filter(move |_| waits)).copied())
        };
        let more: BTreeSet<u64> = found.iter().flat_map(|it| of(*it)).collect();
        if more.is_subset(&found) {
            return found;
        }
        found.extend(more);
    }
}

/// Returns the ranks of a pipeline from the first one on, whose stages each exchange tensors with the next one and the
/// one before; empty where that is not so, or not yet known.
fn stages(accounts: &[JobReport], needed: &BTreeSet<u64>) -> Vec<u64> {
    let world = accounts.iter().map(|it| it.world).max().unwrap_or(0);
    let Some(step) = needed.iter().copied().nth(1) else { return Vec::new() };
    let of = |rank: u64| {
        let own = accounts.iter().filter(|it| it.rank == Some(rank));
        own.flat_map(|it| it.peers.iter().chain(&it.sources).copied()).collect::<BTreeSet<_>>()
    };
    // Where the second stage failed, the first one may have been ended before it wrote anything down.
    let is_known = of(step) == BTreeSet::from([0, 2 * step]) && of(0).is_subset(&BTreeSet::from([step]));
    let step = usize::try_from(step).unwrap_or(usize::MAX);
    if is_known { (0..world).step_by(step).collect() } else { Vec::new() }
}

/// Returns some stages of a long pipeline: its ends, where the embedding and the loss are, and one between them.
fn sample(stages: &[u64]) -> Vec<u64> {
    let end = stages.len();
    [0, 1, end / 2, end - 2, end - 1].iter().filter_map(|it| stages.get(*it).copied()).collect()
}

/// Returns all stages, or as many of the first as run, for those that cannot do without each other.
fn first(stages: &[u64]) -> Vec<u64> {
    let most = if stages.len() > MOST_STAGES { MOST } else { MOST_STAGES };
    stages.iter().copied().take(most).collect()
}

/// What one rank took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RankRow {
    pub(super) rank: u64,
    pub(super) allocated: u64,
    pub(super) reserved: u64,
    /// The most bytes of the host's memory.
    pub(super) host: u64,
    /// What the allocated bytes are.
    pub(super) consists: Consists,
}

/// How much more one rank takes than another one, and of what.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Imbalance<'a> {
    most: &'a RankRow,
    least: &'a RankRow,
    /// Allocated bytes.
    bytes: u64,
    /// Bytes more of each part, the largest first, with the line that makes most of it.
    parts: Vec<(AnatomyPart, u64, Option<&'a SourceLine>)>,
}

impl Imbalance<'_> {
    /// Whether it is more than a hundredth.
    fn is_worth_words(&self) -> bool {
        self.bytes >= self.least.allocated / 100
    }
}

/// The plan of a job of which some ranks ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClusterPlan {
    pub(super) nodes: u32,
    /// How many ranks there are in all.
    pub(super) world: u64,
    /// The ranks that ran, in order.
    pub(super) rows: Vec<RankRow>,
    /// The smallest number of machines that is enough, where that was asked for.
    pub(super) enough: Option<Enough>,
    /// Bytes of each machine's own memory, where the user gave them.
    pub(super) host_limit: Option<u64>,
}

/// The search for the smallest number of machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Enough {
    pub(super) nodes: Nodes,
    pub(super) found: Option<u32>,
}

impl ClusterPlan {
    /// Reads what the ranks that ran took; `None` where none used a device.
    pub(super) fn read(present: &Present, accounts: &[JobReport]) -> Option<Self> {
        let mut rows: Vec<RankRow> = Vec::new();
        for it in accounts.iter().filter(|it| !it.devices.is_empty()) {
            let Some(rank) = it.rank else { continue };
            let peaks = it.devices.iter().map(OnDevice::peak);
            let (allocated, reserved) = peaks.fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
            let busiest = it.devices.iter().max_by_key(|it| it.peak());
            let consists = busiest.map(|device| Consists::read(it, device)).unwrap_or_default();
            rows.push(RankRow { rank, allocated, reserved, host: it.host_bytes, consists });
        }
        rows.sort_by_key(|it| it.rank);
        rows.dedup_by_key(|it| it.rank);
        let world = accounts.iter().map(|it| it.world).max()?;
        (!rows.is_empty()).then_some(Self { nodes: present.nodes, world, rows, enough: None, host_limit: None })
    }

    /// Whether the ranks of one machine have enough of its own memory; `None` where its size is not known.
    pub(super) fn host_fits(&self) -> Option<Fits> {
        let (host, limit) = self.host().zip(self.host_limit)?;
        Some(if host <= limit { Fits::Yes } else { Fits::No })
    }

    /// Compares the rank that takes the most with the one that takes the least; `None` where they are the same.
    fn imbalance(&self) -> Option<Imbalance<'_>> {
        let most = self.rows.iter().rev().max_by_key(|it| it.allocated)?;
        let least = self.rows.iter().min_by_key(|it| it.allocated)?;
        let bytes = most.allocated.checked_sub(least.allocated).filter(|it| *it > 0)?;
        let more = |of: u64, than: Option<&u64>| of.saturating_sub(than.copied().unwrap_or(0));
        let mut parts = Vec::new();
        for (part, bytes) in &most.consists.parts {
            let bytes = more(*bytes, least.consists.parts.get(part));
            let own = most.consists.lines.iter().filter(|it| it.0.0 == *part);
            let line = own.max_by_key(|(key, bytes)| more(**bytes, least.consists.lines.get(*key)));
            let line = line.filter(|(key, bytes)| more(**bytes, least.consists.lines.get(*key)) > 0);
            if bytes > 0 {
                parts.push((*part, bytes, line.map(|it| &it.0.1)));
            }
        }
        parts.sort_by_key(|it| std::cmp::Reverse(it.1));
        Some(Imbalance { most, least, bytes, parts })
    }

    /// Returns what a rank takes: what the one below it that ran took.
    fn of(&self, rank: u64) -> Option<&RankRow> {
        self.rows.iter().rev().find(|it| it.rank <= rank).or_else(|| self.rows.first())
    }

    /// Returns the host's memory that the ranks of one machine take in all, of the machine that needs the most.
    pub(super) fn host(&self) -> Option<u64> {
        let local = self.world.checked_div(u64::from(self.nodes)).filter(|it| *it > 0)?;
        let node = |rank: u64| rank / local * local;
        let of_node = |first: u64| (first..first + local).filter_map(|it| Some(self.of(it)?.host)).sum::<u64>();
        self.rows.iter().map(|it| of_node(node(it.rank))).max()
    }
}

/// Finds the smallest number of machines that is enough by bisection. `fits` says of one whether it is, or why that is
/// not known.
pub(super) fn smallest<E>(
    nodes: Nodes,
    mut fits: impl FnMut(u32) -> Result<Result<bool, String>, E>,
) -> Result<(Option<u32>, Option<String>), E> {
    let (mut low, mut high, mut why) = (nodes.least, nodes.most + 1, None);
    while low < high {
        let middle = low + (high - low) / 2;
        match fits(middle)? {
            Ok(true) => high = middle,
            Ok(false) => low = middle + 1,
            Err(text) => {
                why = Some(format!("{}: {text}", counted(u64::from(middle), "machine")));
                low = middle + 1;
            }
        }
    }
    Ok(((high <= nodes.most).then_some(high), why))
}

/// What a search for the number of machines found, in words.
pub(super) fn enough_text(it: &Enough) -> String {
    if let Some(nodes) = it.found {
        return format!("smallest number of machines that is enough: {nodes}; what follows is of it\n");
    }
    let most = counted(u64::from(it.nodes.most), "machine");
    format!("not even {most} are certainly enough; what follows is of so many\n")
}

/// The plan as JSON: `ranks`, `nodes`, `host`, `imbalance`.
pub(super) fn json(plan: &ClusterPlan) -> [(&'static str, Value); 4] {
    let row = |it: &RankRow| {
        let peak = json!({ "allocated": it.allocated, "reserved": it.reserved });
        let parts: BTreeMap<_, _> = it.consists.parts.iter().map(|(part, bytes)| (part.name(), bytes)).collect();
        json!({ "rank": it.rank, "ran": true, "peak": peak, "parts": parts, "host": it.host })
    };
    let imbalance = |it: Imbalance<'_>| {
        let parts: BTreeMap<_, _> = it.parts.iter().map(|(part, bytes, _)| (part.name(), bytes)).collect();
        json!({ "largest": it.most.rank, "smallest": it.least.rank, "bytes": it.bytes, "parts": parts })
    };
    let enough = plan.enough.as_ref().and_then(|it| it.found);
    [
        ("ranks", plan.rows.iter().map(row).collect()),
        ("nodes", json!({ "asked": plan.nodes, "enough": enough, "ranks": plan.world })),
        ("host", json!({ "node": plan.host(), "limit": plan.host_limit, "fits": plan.host_fits().map(Fits::name) })),
        ("imbalance", plan.imbalance().map(imbalance).into()),
    ]
}

/// The plan in words, below the answer.
pub(super) fn text(plan: &ClusterPlan) -> String {
    use std::fmt::Write as _;
    let mut out = String::new();
    let of = |count: u64, what: &str| counted(count, what);
    let _ = writeln!(
        out,
        "\nranks: {} on {}, of which {} ran; the others are as these:",
        plan.world,
        of(u64::from(plan.nodes), "machine"),
        plan.rows.len()
    );
    let _ = writeln!(out, "  {:10}{:>12}{:>12}{:>12}", "rank", "allocated", "reserved", "host");
    for it in &plan.rows {
        let [allocated, reserved, host] = [it.allocated, it.reserved, it.host].map(|it| Bytes(it).to_string());
        let _ = writeln!(out, "  {:<10}{allocated:>12}{reserved:>12}{host:>12}", it.rank);
    }
    if let Some(it) = plan.imbalance().filter(Imbalance::is_worth_words) {
        let _ = writeln!(out, "  {}", imbalance_text(&it));
    }
    if let Some(host) = plan.host() {
        let _ = write!(out, "  the ranks of one machine take up to {} of its own memory", Bytes(host));
        if let (Some(limit), Some(fits)) = (plan.host_limit, plan.host_fits()) {
            let words = if fits == Fits::Yes { "fits" } else { "does not fit" };
            let _ = write!(out, ", of {}: {words}", Bytes(limit));
        }
        out.push('\n');
    }
    out
}

/// Parts that the sentence about an imbalance names.
const NAMED_PARTS: usize = 3;

/// Returns `rank 0 takes 1.20 GiB more than rank 63: 1.00 GiB of weights (train.py:41), 200 MiB of gradients`.
fn imbalance_text(it: &Imbalance<'_>) -> String {
    let part = |(part, bytes, line): &(AnatomyPart, u64, Option<&SourceLine>)| {
        let line = line.map(|it| format!(" ({})", it.short())).unwrap_or_default();
        format!("{} of {}{line}", Bytes(*bytes), part.name())
    };
    let parts: Vec<String> = it.parts.iter().take(NAMED_PARTS).map(part).collect();
    let of = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
    format!("rank {} takes {} more than rank {}{of}", it.most.rank, Bytes(it.bytes), it.least.rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(rank: u64, peers: &[u64], ran: &[u64]) -> JobReport {
        JobReport { rank: Some(rank), peers: peers.to_vec(), ran: ran.to_vec(), world: 64, ..JobReport::default() }
    }

    fn present() -> Present {
        Present::new(&Ranks { nodes: Nodes::parse("8").unwrap(), chosen: Vec::new() }, 8, false)
    }

    #[test]
    fn machines_are_a_number_or_a_range() {
        assert_eq!(Nodes::parse("8"), Ok(Nodes { least: 8, most: 8 }));
        assert_eq!(Nodes::parse("1..16"), Ok(Nodes { least: 1, most: 16 }));
        for it in ["", "0", "-1", "4..2", "1..", "x", "1000000"] {
            assert!(Nodes::parse(it).is_err(), "{it}");
        }
    }

    #[test]
    fn a_rank_that_gets_tensors_from_another_one_needs_it() {
        let mut it = present();
        assert!(it.learn(&[account(0, &[16], &[0, 63]), account(63, &[47], &[0, 63])], true));
        assert_eq!(it.list(), "0,16");
        assert!(it.learn(&[account(0, &[16], &[0, 16]), account(16, &[0, 32], &[0, 16])], true));
        assert_eq!(it.list(), "0,16,32,48", "as the stages of a pipeline");
        let ran = [0, 16, 32, 48];
        let stage = |rank: u64, peers: &[u64]| account(rank, peers, &ran);
        let last = [stage(0, &[16]), stage(16, &[0, 32]), stage(32, &[16, 48]), stage(48, &[32])];
        assert!(!it.learn(&last, false) && it.notes.is_empty());
    }

    #[test]
    fn ranks_that_are_no_pipeline_are_found_one_after_the_other() {
        let mut it = present();
        assert!(it.learn(&[account(0, &[1, 5], &[0, 63])], true));
        assert_eq!(it.list(), "0,1,5");
        let ran = [0, 1, 5];
        assert!(it.learn(&[account(0, &[1, 5], &ran), account(1, &[0, 2], &ran), account(5, &[0], &ran)], false));
        assert_eq!(it.list(), "0,1,2,5");
    }

    #[test]
    fn of_a_long_pipeline_both_ends_run() {
        let mut it = present();
        assert!(it.learn(&[account(0, &[1], &[0, 63]), account(63, &[62], &[0, 63])], false));
        assert!(it.learn(&[account(0, &[1], &[0, 1]), account(1, &[0, 2], &[0, 1])], false));
        assert_eq!(it.list(), "0,1,32,62,63");
        let ran = [0, 1, 32, 62, 63];
        let accounts = [account(0, &[1], &ran), account(1, &[0, 2], &ran), account(62, &[61, 63], &ran)];
        assert!(!it.clone().learn(&accounts, false));
        // They need what is between them.
        assert!(it.learn(&accounts, true));
        assert_eq!(it.list(), "0,1,2,3,4,5,6,7");
        let ran = [0, 1, 2, 3, 4, 5, 6, 7];
        assert!(!it.learn(&[account(0, &[1], &ran), account(1, &[0, 2], &ran)], false));
        assert!(it.notes[0].starts_with("rank 0 exchanges tensors with 63 other ranks"), "{:?}", it.notes);
    }

    #[test]
    fn a_last_rank_that_cannot_run_is_left_out() {
        let mut it = present();
        assert!(it.learn(&[account(0, &[], &[0, 63]), account(63, &[56], &[0, 63])], true));
        assert_eq!((it.list(), it.notes.len()), ("0".to_owned(), 1));
        assert!(!it.learn(&[account(0, &[], &[0])], true));
        assert!(it.notes.is_empty(), "it was not for the last rank");
    }

    #[test]
    fn a_chosen_rank_that_the_job_does_not_have_is_named() {
        let ranks = Ranks { nodes: Nodes::default(), chosen: vec![0, -64, 63, 64, -65] };
        let missed = Present::new(&ranks, 1, false).missed(&[account(0, &[], &[0, 63])]);
        assert_eq!(missed, ["rank 64 did not run: the job has 64 ranks", "rank -65 did not run: the job has 64 ranks"]);
    }

    #[test]
    fn slurm_starts_what_follows_its_options() {
        let of = |text: &str| {
            let words: Vec<OsString> = text.split(' ').map(OsString::from).collect();
            without_srun(&words).map(|it| it.join(std::ffi::OsStr::new(" ")).into_string().unwrap())
        };
        assert_eq!(
            of("srun -N 8 --ntasks-per-node 8 --gres=gpu:8 python train.py -n 3").as_deref(),
            Some("python train.py -n 3")
        );
        assert_eq!(of("/usr/bin/srun -n64 -l python train.py").as_deref(), Some("python train.py"));
        assert_eq!(of("srun -N 8"), None);
        assert_eq!(of("python srun"), None);
    }

    #[test]
    fn the_smallest_number_of_machines_is_found() {
        let search = |least: u32| {
            let nodes = Nodes::parse("1..16").unwrap();
            smallest(nodes, |it| Ok::<_, ()>(Ok(it >= least))).unwrap().0
        };
        assert_eq!([1, 5, 16, 17].map(search), [Some(1), Some(5), Some(16), None]);
    }

    #[test]
    fn a_machine_takes_what_its_ranks_take() {
        let row = |rank, host| RankRow { rank, allocated: 1, reserved: 1, host, consists: Consists::default() };
        let plan = ClusterPlan {
            nodes: 2,
            world: 8,
            rows: vec![row(0, 100), row(1, 10), row(7, 20)],
            ..ClusterPlan::default()
        };
        assert_eq!(plan.host(), Some(130), "rank 0 loads more than the others");
        let fits = |limit| ClusterPlan { host_limit: limit, ..plan.clone() }.host_fits();
        assert_eq!([None, Some(130), Some(129)].map(fits), [None, Some(Fits::Yes), Some(Fits::No)]);
    }

    #[test]
    fn the_sentence_about_an_imbalance_names_parts_and_lines() {
        let line = |line| SourceLine { file: "/home/a/train.py".into(), line, function: "f".into() };
        let row = |rank, weights: u64, activations: u64| {
            let parts = BTreeMap::from([(AnatomyPart::Weights, weights), (AnatomyPart::Activations, activations)]);
            let lines = BTreeMap::from([
                ((AnatomyPart::Weights, line(1)), 10),
                ((AnatomyPart::Weights, line(2)), weights - 10),
                ((AnatomyPart::Activations, line(3)), activations),
            ]);
            let consists = Consists { parts, lines };
            RankRow { rank, allocated: weights + activations, reserved: 1, host: 1, consists }
        };
        let plan = |rows| ClusterPlan { nodes: 1, world: 8, rows, ..ClusterPlan::default() };
        let it = plan(vec![row(0, 2048, 100), row(7, 1024, 612)]);
        let text = "rank 0 takes 512 B more than rank 7: 1.00 KiB of weights (train.py:2)";
        assert_eq!(imbalance_text(&it.imbalance().unwrap()), text);
        assert!(plan(vec![row(0, 2048, 100), row(7, 2048, 100)]).imbalance().is_none());
    }
}
