//! Which line allocates what grows, and who keeps it: from what a probe saw to an answer in words.
//!
//! A site is where blocks are allocated; what keeps them alive is often another line, and that one leads where it is
//! known. Blocks that no Python object owns and that come at the pace of a held tensor with a graph are that graph's.
//!
//! # How an answer is made
//!
//! `analysis::culprit` makes an answer of what a probe saw at one look (`wire::Sites`): sites that one line keeps are
//! one culprit; blocks without an owner whose number is a multiple of a held tensor's with a graph are that graph's;
//! the largest leads. The path of holders becomes words in `held` (a container goes by the name that the next one has
//! it under), what to do in `advice` (the first rule that holds, from what is held and how). `findings::derive` gives
//! it to growth of live memory whose span has the capture in it: the latest capture that found a line, so that one that
//! found nothing takes nothing back. Everything else (check, report, alerts, screens, a replay) reads it from there.
//!
//! Who holds a tensor is found in the job (`probes/python/gpuwatch_probe/_holders.py`), in slices between steps.
//!
//! Where memory rises once in many steps, `analysis::signature::cadence` predicts the next rises from the last ones.
//! The probe then records stacks only for some steps around two of them (`_plan`). `tests/it/leaks.rs` holds all of it
//! to twenty leaks of different kinds and three healthy loops of real PyTorch.

mod advice;
mod cause;
mod held;
mod json;
mod words;

use super::cause::Cause;
use crate::facts::{
    event::wire::{Frame, Place, Site, Sites},
    text::Foreign,
};
pub use words::{cost, live};

/// Characters of a text from outside that are kept.
const TEXT: usize = 240;

/// How far from a whole number of blocks for each held one the blocks of its graph may be.
const UNEVEN: f64 = 0.2;

/// What one look found on one device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Account {
    /// What grows, what takes most first.
    pub culprits: Vec<Culprit>,
    /// What else is to be said, in words, a line each: that nothing grows, what was not seen, what it cost.
    pub notes: Vec<String>,
}

/// Blocks that grow: where they come from, who keeps them, what to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Culprit {
    /// The line that allocates them.
    pub allocated: Spot,
    /// The innermost frame of a library that this line called, where there is one.
    pub library: Option<Spot>,
    /// The line that keeps them, where it could be found.
    pub kept: Option<Spot>,
    /// Other lines of which one may keep them instead: which of them ran is not known.
    pub kept_or: Vec<Spot>,
    /// Whether a library's line keeps them, and not the user's own.
    pub is_kept_by_library: bool,
    /// Bytes a step, those of its graph among them.
    pub bytes_per_step: f64,
    /// Blocks a step, likewise; 0 for one that is made anew and larger.
    pub blocks_per_step: f64,
    /// Its share of all that was found to grow on the device, from 0 to 1.
    pub share: f64,
    /// The part of both that autograd holds for them: bytes and blocks a step.
    pub graph: Option<(f64, f64)>,
    /// The path by which they are held, from the tensor outwards, in words.
    pub holders: Vec<String>,
    /// Why it grows.
    pub cause: Cause,
    /// Whether a graph hangs on what is kept: its nodes are in host memory.
    pub grad: bool,
    /// What happens, in words.
    pub sentence: String,
    /// What to do, in words.
    pub advice: String,
    /// The lines around the one that allocates, read by the probe at that moment.
    pub source: Vec<Spot>,
    /// The whole stack, innermost first.
    pub frames: Vec<Spot>,
}

/// A line of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spot {
    /// Its file, as the program was started.
    pub file: Foreign,
    /// Its number, from 1.
    pub line: u64,
    /// Its function; empty where nobody said.
    pub function: Foreign,
    /// What it says; empty where nobody read it.
    pub text: Foreign,
}

/// What was found on a device; of two looks at an error, and of none, nothing grows.
pub fn account(sites: &Sites, device: u32) -> Account {
    let own: Vec<&Site> = sites.sites.iter().filter(|it| it.device == device).collect();
    let mut culprits = if sites.steps > 0 { culprits(&own, sites.steps) } else { Vec::new() };
    culprits.sort_by(|one, other| other.bytes_per_step.total_cmp(&one.bytes_per_step));
    let all: f64 = culprits.iter().map(|it| it.bytes_per_step).sum();
    for it in &mut culprits {
        it.share = if all > 0.0 { it.bytes_per_step / all } else { 1.0 };
    }
    let notes = words::notes(sites, &own, culprits.is_empty());
    Account { culprits, notes }
}

/// What is told together: sites that one line keeps, and the graph of what they hold.
struct Group<'a> {
    first: &'a Site,
    others: Vec<&'a Site>,
    graph: Vec<&'a Site>,
}

impl Group<'_> {
    /// Bytes and blocks between the looks, without the graph's.
    fn own(&self) -> (u64, u64) {
        sum(std::iter::once(&self.first).chain(&self.others))
    }

    fn graph(&self) -> Option<(u64, u64)> {
        (!self.graph.is_empty()).then(|| sum(self.graph.iter()))
    }
}

fn sum<'a, 'b: 'a>(sites: impl Iterator<Item = &'a &'b Site>) -> (u64, u64) {
    sites.fold((0, 0), |(bytes, blocks), it| (it.bytes.saturating_add(bytes), it.blocks.saturating_add(blocks)))
}

fn culprits(own: &[&Site], steps: u64) -> Vec<Culprit> {
    let (graphs, held): (Vec<&Site>, Vec<&Site>) = own.iter().partition(|it| is_ownerless(it));
    let mut groups: Vec<Group> = Vec::new();
    for it in held {
        let same = |group: &&mut Group| is_kept_alike(group.first, it);
        match groups.iter_mut().find(same) {
            Some(group) => group.others.push(it),
            None => groups.push(Group { first: it, others: Vec::new(), graph: Vec::new() }),
        }
    }
    let mut apart: Option<Group> = None;
    for it in graphs {
        match (groups.iter_mut().find(|group| is_graph_of(it, group.first)), &mut apart) {
            (Some(group), _) => group.graph.push(it),
            // Without a stack there is no line to name.
            (None, _) if it.file.is_empty() => {}
            // Nobody knows whose graph it is, and more than one grows rarely.
            (None, Some(group)) => group.others.push(it),
            (None, None) => apart = Some(Group { first: it, others: Vec::new(), graph: Vec::new() }),
        }
    }
    groups.retain(|it| !it.first.file.is_empty());
    groups.into_iter().chain(apart).map(|it| culprit(&it, steps)).collect()
}

/// Whether autograd alone holds what grows, as far as one knows. The latest of such blocks often have an owner all the
/// same, which the next step takes another for: that one does not hold the others.
fn is_ownerless(site: &Site) -> bool {
    let owned = site.owners.iter().fold(0_u64, |sum, it| sum.saturating_add(it.count));
    let few = site.autograd && owned.saturating_mul(2) < site.blocks;
    let none = site.owners.is_empty() && site.holders.is_empty() && (site.autograd || site.file.is_empty());
    none || (few && !is_held_by_graph(site))
}

/// Whether the tensor was found whose graph holds them.
fn is_held_by_graph(site: &Site) -> bool {
    site.holders.first().is_some_and(|it| it.by == "graph")
}

/// Whether blocks without an owner come with each held block that has a graph: as many, or some times as many.
fn is_graph_of(site: &Site, held: &Site) -> bool {
    if is_held_by_graph(held) {
        return true;
    }
    if site.blocks == 0 || held.blocks == 0 || !held.owners.iter().any(|it| it.grad) {
        return false;
    }
    let times = site.blocks as f64 / held.blocks as f64;
    times.round() >= 1.0 && (times - times.round()).abs() <= UNEVEN
}

/// Whether one line keeps the blocks of both, or one tensor by its graph.
fn is_kept_alike(one: &Site, other: &Site) -> bool {
    let same_line = one.kept.is_some() && kept(one) == kept(other);
    same_line || (is_held_by_graph(one) && one.kept == other.kept && one.holders == other.holders)
}

/// Where the line is that keeps its blocks.
fn kept(site: &Site) -> Option<(&str, u64)> {
    site.kept.as_ref().map(|it| (if it.file.is_empty() { &*site.file } else { &*it.file }, it.line))
}

fn culprit(group: &Group, steps: u64) -> Culprit {
    let site = group.first;
    // The path of the one block that has an owner is not that of the others.
    let is_found = !is_ownerless(site);
    let (bytes, blocks) = group.own();
    let graph = group.graph();
    let (more_bytes, more_blocks) = graph.unwrap_or_default();
    let per_step = |it: u64| it as f64 / steps as f64;
    let spot_of = |it: &Place| {
        let file = if it.file.is_empty() { &site.file } else { &it.file };
        Spot {
            file: short(file),
            line: it.line,
            function: Foreign::default(),
            text: short(&it.text.replace('\t', "    ")),
        }
    };
    let source: Vec<Spot> = site.source.iter().map(spot_of).collect();
    let kept = site.kept.as_ref().filter(|_| is_found);
    let text = source.iter().find(|it| it.line == site.line && it.file.raw() == short(&site.file).raw());
    let mut it = Culprit {
        allocated: Spot {
            file: short(&site.file),
            line: site.line,
            function: short(&site.function),
            text: text.map(|it| it.text.clone()).unwrap_or_default(),
        },
        library: site.library.as_ref().map(frame),
        kept: kept.map(spot_of),
        kept_or: site.kept_or.iter().filter(|_| is_found).map(spot_of).collect(),
        is_kept_by_library: kept.is_some_and(|it| it.library || spot_of(it).is_library()),
        share: 1.0,
        bytes_per_step: per_step(bytes.saturating_add(more_bytes)),
        blocks_per_step: per_step(blocks.saturating_add(more_blocks)),
        graph: graph.map(|(bytes, blocks)| (per_step(bytes), per_step(blocks))),
        holders: if is_found { held::path(&site.holders) } else { Vec::new() },
        cause: cause::cause(group),
        grad: graph.is_some() || site.owners.iter().any(|it| it.grad),
        sentence: String::new(),
        advice: String::new(),
        source,
        frames: site.frames.iter().map(frame).collect(),
    };
    it.sentence = words::sentence(&it, group, steps);
    it.advice = advice::advice(&it, group);
    it
}

fn frame(it: &Frame) -> Spot {
    Spot { file: short(&it.file), line: it.line, function: short(&it.function), text: Foreign::default() }
}

/// A text from outside, no longer than texts are; of a path the end says more.
fn short(text: &str) -> Foreign {
    let count = text.chars().count();
    if count > TEXT && text.starts_with('/') {
        let end = text.chars().skip(count + 1 - TEXT);
        return Foreign::new(std::iter::once('…').chain(end).collect::<String>());
    }
    Foreign::new(text.chars().take(TEXT).collect::<String>())
}

impl Culprit {
    /// The line that leads: the one that keeps, else the one that allocates; the user's own before a library's.
    pub fn leading(&self) -> &Spot {
        let is_own = !self.allocated.file.raw().is_empty() && !self.allocated.is_library();
        self.kept.as_ref().filter(|_| !(self.is_kept_by_library && is_own)).unwrap_or(&self.allocated)
    }

    /// What happens and what to do, in one line.
    pub fn told(&self) -> String {
        format!("{}: {}", self.sentence, self.advice)
    }
}

impl Spot {
    /// `train.py:41`, the file by its name alone.
    pub fn place(&self) -> String {
        held::place(self.file.raw(), self.line)
    }

    /// `train.py:41 in main()`, or as much of it as is known.
    pub fn call(&self) -> String {
        let function = self.function.raw();
        if function.is_empty() { self.place() } else { format!("{} in {}", self.place(), held::call(function)) }
    }

    /// Whether it is no line of the user's own: an installed package's, the interpreter's, or of no file.
    pub fn is_library(&self) -> bool {
        let file = self.file.raw();
        let is_python =
            |it: &str| it.strip_prefix("python").is_some_and(|it| it.starts_with(|c: char| c.is_ascii_digit()));
        let parts: Vec<&str> = file.split('/').collect();
        let is_standard = parts.windows(2).any(|it| matches!(it, ["lib" | "lib64", name] if is_python(name)));
        is_standard
            || parts.iter().any(|it| matches!(*it, "site-packages" | "dist-packages"))
            || file.starts_with("<frozen")
    }
}

#[cfg(test)]
mod tests;
