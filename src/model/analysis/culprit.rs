//! Turns a capture into an answer: which line allocates what grows, and what keeps it.
//!
//! A site is where blocks are allocated. Often another line keeps them alive; if it is known, it comes first. Blocks
//! that no Python object owns, and that grow at the pace of a held tensor with a graph, belong to that graph.
//!
//! # How an answer is made
//!
//! `analysis::culprit` reads what a probe found in one capture (`wire::Sites`). Sites whose blocks one line keeps are
//! one culprit. Blocks without an owner belong to a held tensor's graph if their number is a multiple of that tensor's.
//! The largest culprit comes first. `held` describes the path of holders (each container by the name under which its
//! holder has it), `advice` the remedy (the first rule that matches). `findings::derive` adds the answer to growth of
//! live memory during which the capture ran. It uses the latest capture that found a line, so that a later one without
//! a result removes nothing. Checks, reports, alerts, screens and replays read it from there.
//!
//! The job itself searches for the holders of a tensor (`probes/python/gpuwatch_probe/_holders.py`), in slices between
//! steps.
//!
//! If memory rises once in many steps, `analysis::signature::cadence` predicts the next rises from the last ones. The
//! probe then records stacks only for some steps around two of them (`_capture_plan`). `tests/it/probe/leaks.rs` tests
//! all of this on twenty kinds of leak and three healthy loops of real PyTorch.

mod held;
mod sentences;

use crate::{
    facts::{
        event::wire::{Frame, Place, Site, Sites},
        text::Foreign,
    },
    model::analysis::cause::Cause,
};
use sentences::Over;
pub use sentences::{cost, held, live};
use serde_json::{Value, json};

/// Most characters kept of a text from outside.
const TEXT: usize = 240;

/// How far the number of a graph's blocks per held block may be from a whole number.
const UNEVEN: f64 = 0.2;

/// What one capture found on one device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Breakdown {
    /// What grows, largest first.
    pub culprits: Vec<Culprit>,
    /// Notes, a line each: that nothing grows, what the capture missed, what it cost.
    pub notes: Vec<String>,
}

/// Growing blocks: which line allocates them, what keeps them, and the remedy.
#[derive(Clone, Debug, PartialEq)]
pub struct Culprit {
    /// The line that allocates them.
    pub allocated: Spot,
    /// The innermost library frame that this line called, if any.
    pub library: Option<Spot>,
    /// The line that keeps them, if it was found.
    pub kept: Option<Spot>,
    /// Other lines that may keep them instead; which of them ran is unknown.
    pub kept_or: Vec<Spot>,
    /// Whether the line that keeps them is in a library.
    pub is_kept_by_library: bool,
    /// Bytes per step, including the graph's.
    pub bytes_per_step: f64,
    /// Blocks per step, including the graph's; 0 for a block that is reallocated larger.
    pub blocks_per_step: f64,
    /// Its share of all growth found on the device, from 0 to 1.
    pub share: f64,
    /// The part of both that autograd holds: bytes and blocks per step.
    pub graph: Option<(f64, f64)>,
    /// The path of holders, from the tensor outwards, in words.
    pub holders: Vec<String>,
    /// Why it grows.
    pub cause: Cause,
    /// Whether the kept tensors have a graph, whose nodes are in host memory.
    pub grad: bool,
    /// What happens, in a sentence.
    pub sentence: String,
    /// The remedy, in a sentence.
    pub advice: String,
    /// The lines around the allocating one, and around the keeping one, as the probe read them then.
    pub source: Vec<Spot>,
    /// The whole stack, innermost first.
    pub frames: Vec<Spot>,
}

/// A line of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spot {
    /// The file, as the program names it.
    pub file: Foreign,
    /// The line number, from 1.
    pub line: u64,
    /// The function; empty if unknown.
    pub function: Foreign,
    /// The text of the line; empty if unknown.
    pub text: Foreign,
}

/// Returns what a capture found on a device. A capture at an error, and one without results, shows no growth.
pub fn account(sites: &Sites, device: u32) -> Breakdown {
    let own: Vec<&Site> = sites.sites.iter().filter(|it| it.device == device).collect();
    let mut culprits = if sites.steps > 0 { culprits(&own, Over::of(sites)) } else { Vec::new() };
    culprits.sort_by(|one, other| other.bytes_per_step.total_cmp(&one.bytes_per_step));
    let all: f64 = culprits.iter().map(|it| it.bytes_per_step).sum();
    for it in &mut culprits {
        it.share = if all > 0.0 { it.bytes_per_step / all } else { 1.0 };
    }
    let notes = sentences::notes(sites, &own, culprits.is_empty());
    Breakdown { culprits, notes }
}

/// Returns what holds the blocks of a site, from the tensor outwards, in words; nothing where autograd alone does.
pub fn holders(site: &Site) -> Vec<String> {
    if is_ownerless(site) { Vec::new() } else { held::path(&site.holders) }
}

/// A graph with fewer bytes than one part in so many of the blocks that are kept with it is not why they are kept.
const A_GRAPH: u64 = 4;

/// Stands for a line where blocks have none: backward's own threads and libraries allocate without Python.
const NOWHERE: &str = "code outside of Python";

/// Sites that are reported together: their blocks are kept by one line, with their graph.
struct Group<'a> {
    first: &'a Site,
    others: Vec<&'a Site>,
    graph: Vec<&'a Site>,
}

impl Group<'_> {
    /// Bytes and blocks gained during the capture, without the graph's.
    fn own(&self) -> (u64, u64) {
        sum(std::iter::once(&self.first).chain(&self.others))
    }

    /// The sites whose blocks it holds, without the graph's.
    fn held(&self) -> impl Iterator<Item = &Site> {
        std::iter::once(self.first).chain(self.others.iter().copied())
    }

    fn graph(&self) -> Option<(u64, u64)> {
        (!self.graph.is_empty()).then(|| sum(self.graph.iter()))
    }
}

fn sum<'a, 'b: 'a>(sites: impl Iterator<Item = &'a &'b Site>) -> (u64, u64) {
    sites.fold((0, 0), |(bytes, blocks), it| (it.bytes.saturating_add(bytes), it.blocks.saturating_add(blocks)))
}

fn culprits(own: &[&Site], over: Over) -> Vec<Culprit> {
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
    let with_graph = groups.iter().filter(|group| group.held().any(has_graph)).count();
    for it in graphs {
        // A line that keeps some tensors with their graph and others has as many rises, not as many blocks.
        let is_of = |held: &Site| is_graph_of(it, held) || (with_graph == 1 && rises_with(it, held));
        match (groups.iter_mut().find(|group| group.held().any(is_of)), &mut apart) {
            (Some(group), _) => group.graph.push(it),
            // Without a stack there is no line to name.
            (None, _) if it.file.is_empty() => {}
            // The graph's tensor is unknown; rarely does more than one grow.
            (None, Some(group)) => group.others.push(it),
            (None, None) => apart = Some(Group { first: it, others: Vec::new(), graph: Vec::new() }),
        }
    }
    // Without a line and without a holder there is nothing to name.
    groups.retain(|it| !it.first.file.is_empty() || !it.first.holders.is_empty());
    groups = with_their_cycle(groups);
    groups.into_iter().chain(apart).map(|it| culprit(&it, over)).collect()
}

/// Joins blocks without a known holder to a cycle of as many: they come and go with it, as what its graph saved.
fn with_their_cycle(groups: Vec<Group>) -> Vec<Group> {
    let is_cycle = |group: &Group| group.first.holders.iter().any(|it| it.by == "cycle");
    let (mut joined, others): (Vec<Group>, Vec<Group>) = groups.into_iter().partition(is_cycle);
    let (mut unknown, known): (Vec<Group>, Vec<Group>) = others.into_iter().partition(|it| it.first.holders.is_empty());
    if let Some(cycle) = joined.first_mut() {
        let blocks = cycle.first.blocks;
        unknown.retain(|it| {
            let is_of_it = it.first.blocks == blocks;
            cycle.others.extend(is_of_it.then_some(it.first));
            !is_of_it
        });
    }
    joined.into_iter().chain(known).chain(unknown).collect()
}

/// Whether only autograd seems to hold what grows. The latest of such blocks often have an owner, which the next step
/// replaces; it does not hold the others.
fn is_ownerless(site: &Site) -> bool {
    let owned = site.owners.iter().fold(0_u64, |sum, it| sum.saturating_add(it.count));
    let few = site.autograd && owned.saturating_mul(2) < site.blocks;
    let none = site.owners.is_empty() && site.holders.is_empty() && (site.autograd || site.file.is_empty());
    none || (few && !is_held_by_graph(site))
}

/// Whether the tensor whose graph holds them was found.
fn is_held_by_graph(site: &Site) -> bool {
    site.holders.first().is_some_and(|it| it.by == "graph")
}

/// Whether the site's blocks without an owner are a whole multiple of the held blocks that have a graph. A frame that a
/// traceback keeps has inputs without a graph beside the outputs that have it.
fn is_graph_of(site: &Site, held: &Site) -> bool {
    if is_held_by_graph(held) {
        return true;
    }
    if site.blocks == 0 || held.blocks == 0 || !has_graph(held) {
        return false;
    }
    let times = site.blocks as f64 / held.blocks as f64;
    times.round() >= 1.0 && (times - times.round()).abs() <= UNEVEN
}

fn has_graph(held: &Site) -> bool {
    held.owners.iter().any(|it| it.grad) || held.holders.iter().any(|it| it.by == "traceback")
}

/// Whether both sites may have risen as often, more than once, by whole numbers of blocks.
fn rises_with(site: &Site, held: &Site) -> bool {
    let (mut one, mut other) = (site.blocks, held.blocks);
    while other > 0 {
        (one, other) = (other, one % other);
    }
    has_graph(held) && site.blocks > 0 && one > 1
}

/// Whether one line, or one tensor's graph, keeps the blocks of both.
fn is_kept_alike(one: &Site, other: &Site) -> bool {
    let same_line = one.kept.is_some() && kept(one) == kept(other);
    let by_autocast = |it: &Site| it.holders.first().is_some_and(|first| first.by == "autocast");
    let is_held = |it: &Site| by_autocast(it) || is_held_by_graph(it);
    same_line || (is_held(one) && one.kept == other.kept && one.holders == other.holders)
}

/// Returns the line that keeps its blocks.
fn kept(site: &Site) -> Option<(&str, u64)> {
    site.kept.as_ref().map(|it| (if it.file.is_empty() { &*site.file } else { &*it.file }, it.line))
}

fn culprit(group: &Group, over: Over) -> Culprit {
    let site = group.first;
    // The holder of the one block with an owner does not hold the others.
    let is_found = !is_ownerless(site);
    let (bytes, blocks) = group.own();
    let graph = group.graph();
    let (more_bytes, more_blocks) = graph.unwrap_or_default();
    let per_step = |it: u64| it as f64 / over.steps as f64;
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
        holders: holders(site),
        cause: cause(group),
        grad: graph.is_some() || site.owners.iter().any(|it| it.grad),
        sentence: String::new(),
        advice: String::new(),
        source,
        frames: site.frames.iter().map(frame).collect(),
    };
    // An earlier probe sends only the lines around the allocating one.
    if let Some(kept) = it.kept.clone().filter(|kept| !kept.text.raw().is_empty())
        && !it.source.iter().any(|line| line.is_at(&kept))
    {
        it.source.push(kept);
        it.source.sort_by_key(|line| (line.file != it.allocated.file, line.line));
    }
    it.sentence = sentences::sentence(&it, group, over);
    it.advice = sentences::advice(&it, group, over);
    it
}

fn frame(it: &Frame) -> Spot {
    Spot { file: short(&it.file), line: it.line, function: short(&it.function), text: Foreign::default() }
}

/// Cuts a text from outside to its limit; of a path, keeps the end.
fn short(text: &str) -> Foreign {
    let count = text.chars().count();
    if count > TEXT && text.starts_with('/') {
        let end = text.chars().skip(count + 1 - TEXT);
        return Foreign::new(std::iter::once('…').chain(end).collect::<String>());
    }
    Foreign::new(text.chars().take(TEXT).collect::<String>())
}

impl Culprit {
    /// Returns the line to show first: the one that keeps, otherwise the one that allocates; user code before
    /// libraries.
    pub fn leading(&self) -> &Spot {
        let is_own = !self.allocated.file.raw().is_empty() && !self.allocated.is_library();
        self.kept.as_ref().filter(|_| !(self.is_kept_by_library && is_own)).unwrap_or(&self.allocated)
    }

    /// Returns its lines of source in runs of consecutive lines. Of several, each has a label: `kept at train.py:87`,
    /// `allocated at model.py:12`.
    pub fn excerpts(&self) -> Vec<(Option<String>, &[Spot])> {
        let follows = |one: &Spot, next: &Spot| one.file == next.file && one.line.checked_add(1) == Some(next.line);
        let runs: Vec<&[Spot]> = self.source.chunk_by(follows).collect();
        let label = |lines: &[Spot]| {
            let has = |spot: &Spot| lines.iter().any(|line| line.is_at(spot));
            let kept = self.kept.as_ref().filter(|it| has(it)).map(|it| format!("kept at {}", it.place()));
            let allocated = has(&self.allocated).then(|| format!("allocated at {}", self.allocated.place()));
            Some([allocated, kept].into_iter().flatten().collect::<Vec<_>>().join(", ")).filter(|it| !it.is_empty())
        };
        let is_one = runs.len() < 2;
        runs.into_iter().map(|lines| (label(lines).filter(|_| !is_one), lines)).collect()
    }

    /// Describes what happens and the remedy, in one line.
    pub fn summary(&self) -> String {
        format!("{}: {}", self.sentence, self.advice)
    }

    /// Fields: `file`, `line`, `function`, `text` (of the line that allocates), `leading` (`file`, `line` of the one to
    /// blame), `kept` (the same for the line that
    /// keeps, without the function; `null` if it was not found), `kept_or[]` (other lines that may keep it instead),
    /// `library` (the innermost library frame that the line calls), `bytes_per_step`, `blocks_per_step`, `graph` (the
    /// part of both that autograd holds; `null` without), `holders[]` (in words, from the tensor outwards), `sentence`,
    /// `advice`, `source[]` (`file`, `line`, `text`), `frames[]` (`file`, `line`, `function`, innermost first).
    pub fn json(&self) -> Value {
        let kept = |it: &Spot| json!({"file": it.file, "line": it.line, "text": text(it)});
        let frame = |it: &Spot| json!({"file": it.file, "line": it.line, "function": it.function});
        let graph = self.graph.map(|(bytes, blocks)| json!({"bytes_per_step": bytes, "blocks_per_step": blocks}));
        json!({
            "file": self.allocated.file,
            "line": self.allocated.line,
            "function": self.allocated.function,
            "text": text(&self.allocated),
            "leading": {"file": self.leading().file, "line": self.leading().line},
            "library": self.library.as_ref().map(frame),
            "kept": self.kept.as_ref().map(kept),
            "kept_or": self.kept_or.iter().map(kept).collect::<Vec<_>>(),
            "bytes_per_step": self.bytes_per_step,
            "blocks_per_step": self.blocks_per_step,
            "graph": graph,
            "holders": self.holders,
            "sentence": self.sentence,
            "advice": self.advice,
            "source": self.source.iter().map(kept).collect::<Vec<_>>(),
            "frames": self.frames.iter().map(frame).collect::<Vec<_>>(),
        })
    }
}

impl Spot {
    /// The line of a frame.
    pub fn of(it: &Frame) -> Self {
        frame(it)
    }

    /// Returns whether both are the same line.
    pub fn is_at(&self, other: &Self) -> bool {
        self.line == other.line && self.file == other.file
    }

    /// Formats as `train.py:41`, the file by its name alone.
    pub fn place(&self) -> String {
        if self.file.raw().is_empty() { NOWHERE.to_owned() } else { held::place(self.file.raw(), self.line) }
    }

    /// Formats as `train.py:41 in main()`, or the known part of it.
    pub fn call(&self) -> String {
        let function = self.function.raw();
        if function.is_empty() { self.place() } else { format!("{} in {}", self.place(), held::call(function)) }
    }

    /// Returns whether it is outside user code: in an installed package, in the interpreter, or without a file.
    pub fn is_library(&self) -> bool {
        let file = self.file.raw();
        let is_python =
            |name: &str| name.strip_prefix("python").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        let parts: Vec<&str> = file.split('/').collect();
        let is_standard = parts.windows(2).any(|it| matches!(it, ["lib" | "lib64", name] if is_python(name)));
        is_standard
            || parts.iter().any(|it| matches!(*it, "site-packages" | "dist-packages"))
            || file.starts_with("<frozen")
    }
}

/// Returns why a group's memory grows. A tensor with a `grad_fn` is not by itself a retained graph: backward has freed
/// the graph's memory, unless its blocks grow as well.
fn cause(group: &Group) -> Cause {
    let site = group.first;
    let is_alone = is_ownerless(site);
    if group.own().1 == 0 {
        Cause::GrowingTensor
    } else if !is_alone && site.holders.iter().any(|it| it.by == "cycle") {
        Cause::ReferenceCycle
    } else if is_alone || is_held_by_graph(site) || group.graph().is_some_and(|it| it.0 >= group.own().0 / A_GRAPH) {
        Cause::GraphRetained
    } else if std::iter::once(&site).chain(&group.others).all(|it| is_of_scalars(it)) {
        Cause::ScalarsRetained
    } else {
        Cause::TensorsRetained
    }
}

/// Whether every tensor in its blocks has one element.
fn is_of_scalars(site: &Site) -> bool {
    !site.owners.is_empty() && site.owners.iter().all(|it| it.shape.iter().all(|size| *size == 1))
}

impl Culprit {
    /// Adds a holder that was found later, if none is known.
    pub fn held_by(&mut self, later: &LiveHolder) {
        if let Some(start) = self.sentence.strip_suffix(sentences::NOT_FOUND) {
            self.sentence = format!("{start}, held by {}", later.path);
            self.holders = vec![later.path.clone()];
            later.advice.clone_into(&mut self.advice);
        }
    }
}

/// What holds the largest group of live blocks that anything was found for.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveHolder {
    /// The group's bytes.
    pub bytes: u64,
    /// The path of holders, in words.
    pub path: String,
    /// The items of the longest container on it; `None` without one.
    pub items: Option<u64>,
    /// Whether a variable of a function holds it directly.
    pub is_local: bool,
    /// Whether it is held by the graph of what backward would need.
    pub is_graph: bool,
    /// The remedy.
    pub advice: String,
}

/// Returns the holder of the largest group on a device whose holder was found.
pub fn live_holder(sites: &Sites, device: u32) -> Option<LiveHolder> {
    let mut own = sites.sites.iter().filter(|it| it.device == device);
    let site = own.find(|it| !it.holders.is_empty())?;
    let (group, over) = (Group { first: site, others: Vec::new(), graph: Vec::new() }, Over::of(sites));
    let items = site.holders.iter().filter(|it| held::is_element(it)).filter_map(|it| it.items).max();
    let path = held::path(&site.holders).join(", held by ");
    let is_local = site.holders.first().is_some_and(|it| it.by == "local");
    let culprit = culprit(&group, over);
    Some(LiveHolder {
        bytes: site.bytes,
        path,
        items,
        is_local,
        is_graph: culprit.cause == Cause::GraphRetained,
        advice: sentences::advice(&culprit, &group, over),
    })
}

/// Returns the bytes of the groups on a device that the traceback of some error holds.
pub fn of_tracebacks(sites: &Sites, device: u32) -> u64 {
    let is_held = |site: &Site| site.holders.iter().any(|it| it.by == "traceback");
    let own = sites.sites.iter().filter(|it| it.device == device);
    own.filter(|it| is_held(it)).fold(0, |sum, it| it.bytes.saturating_add(sum))
}

fn text(it: &Spot) -> Option<&str> {
    Some(it.text.raw()).filter(|it| !it.is_empty())
}

#[cfg(test)]
mod tests;
