//! Describes a capture's results in sentences.

use super::{
    Culprit, Group, Spot,
    held::{self, is_coroutine, is_element, is_wrapped, quoted, word},
    is_ownerless,
};
use crate::facts::{
    event::wire::{Holder, Site, Sites, limits::grouped},
    text::Foreign,
    units::{self, Bytes},
};
use std::cmp::Reverse;

/// Most lines listed individually at an out-of-memory error.
const LISTED: usize = 4;

/// Most groups at an out-of-memory error whose holders are listed.
const HELD: usize = 3;

/// Most further lines that allocate blocks kept by one line.
const ALSO: usize = 3;

/// What a capture covers: that many steps, or seconds where the job has none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Over {
    pub(super) steps: u64,
    pub(super) unit: &'static str,
}

impl Over {
    pub(super) fn of(sites: &Sites) -> Self {
        Self { steps: sites.steps.max(1), unit: if sites.step.is_some() { "step" } else { "second" } }
    }
}

/// ``train.py:41 `losses.append(loss)` keeps 3 blocks a step (12.60 MiB) through list `losses` (1,204 items)``
pub(super) fn sentence(it: &Culprit, group: &Group, over: Over) -> String {
    let Over { steps, unit } = over;
    let leads = it.kept.as_ref().filter(|kept| *kept == it.leading());
    let leading = leads.map_or_else(
        || lead(&it.allocated),
        |kept| std::iter::once(kept).chain(&it.kept_or).map(lead).collect::<Vec<_>>().join(" or "),
    );
    let bytes = Bytes(units::whole(it.bytes_per_step));
    let (_, blocks) = group.own();
    let graph = group.graph();
    let all = blocks.saturating_add(graph.map_or(0, |it| it.1));
    let path = it.holders.join(", held by ");
    if all == 0 {
        let path = if path.is_empty() { path } else { format!(", in {path}") };
        return format!("{leading} replaces a tensor by one that is {bytes} larger each {unit}{path}");
    }
    let out = match (leads, &it.kept) {
        (Some(_), _) => format!("{leading} keeps {}", amount(all, over, bytes)),
        (None, Some(kept)) => {
            format!("{leading} allocates {} that stay, kept by {}", amount(all, over, bytes), lead(kept))
        }
        (None, None) => format!("{leading} allocates {} that stay", amount(all, over, bytes)),
    };
    let inside = it.library.as_ref().filter(|_| leads.is_none()).filter(|it| kept_place(group) != Some(it.place()));
    let out = out + &inside.map_or_else(String::new, |it| format!(", inside of {}", it.call()));
    let of_graph = graph.map(|(graph_bytes, graph_blocks)| {
        let graph_bytes = Bytes(units::whole(graph_bytes as f64 / steps as f64));
        let is_even = graph_blocks.is_multiple_of(steps) && all.is_multiple_of(steps);
        let pace = if is_even { String::new() } else { format!(" a {unit}") };
        let of_them = if is_even { graph_blocks / steps } else { graph_blocks };
        format!(", {} of them of its graph ({graph_bytes}{pace})", grouped(of_them))
    });
    let allocated = allocated_at(it, group);
    let out = out + &of_graph.unwrap_or_default() + &allocated;
    let apart = if allocated.is_empty() { "" } else { "," };
    match (path.is_empty(), &leads, group.first.autograd) {
        (false, Some(_), _) => out + apart + " through " + &path,
        (false, None, _) => out + ", held by " + &path,
        (true, _, true) if is_ownerless(group.first) => out + ", held by autograd's graph alone",
        (true, ..) => out + NOT_FOUND,
    }
}

/// Returns the line that keeps them.
fn kept_place(group: &Group) -> Option<String> {
    let file = |it: &str| held::file_name(if it.is_empty() { &group.first.file } else { it });
    group.first.kept.as_ref().map(|it| format!("{}:{}", file(&it.file), it.line))
}

/// Describes where they are allocated, unless that is the leading line.
fn allocated_at(it: &Culprit, group: &Group) -> String {
    let mut places: Vec<String> = Vec::new();
    for site in std::iter::once(&group.first).chain(&group.others).filter(|it| !it.file.is_empty()) {
        let place = held::place(&site.file, site.line);
        if place != it.leading().place() && !places.contains(&place) {
            places.push(place);
        }
    }
    if places.is_empty() {
        return String::new();
    }
    let more = places.len().saturating_sub(ALSO);
    places.truncate(ALSO);
    let more = if more > 0 { format!(" and {more} other lines") } else { String::new() };
    let how = if it.kept.as_ref() == Some(it.leading()) { "allocated at" } else { "together with" };
    format!(", {how} {}{more}", places.join(", "))
}

/// The end of a sentence without a holder.
pub(super) const NOT_FOUND: &str = ", held by something that was not found";

/// Whether it is an attribute of submodules, whose names are joined with dots.
fn is_in_modules(it: &Holder) -> bool {
    it.by == "attribute" && it.name.as_deref().is_some_and(|name| name.contains('.'))
}

/// Whether a container got whole networks, at least one a step.
fn are_many(holders: &[Holder], Over { steps, .. }: Over) -> bool {
    let around = holders.iter().skip_while(|it| !is_in_modules(it)).skip(1);
    around.filter(|it| is_element(it)).any(|it| it.items.is_some_and(|items| items >= steps.max(2)))
}

/// The attributes in which an optimizer keeps what it has for its parameters.
const OF_OPTIMIZERS: [&str; 2] = ["state", "param_groups"];

/// Returns the name of the optimizer whose state holds them, as an entry for each parameter, or whose groups do.
fn optimizer(holders: &[Holder]) -> Option<String> {
    let is_state = |it: &[Holder]| {
        let [inner, outer, ..] = it else { return false };
        outer.by == "attribute"
            && matches!(
                (inner.kind.as_deref(), outer.name.as_deref()),
                (Some("defaultdict"), Some("state")) | (Some("list"), Some("param_groups"))
            )
    };
    let at = (0..holders.len()).find(|at| holders.get(*at..).is_some_and(is_state))? + 1;
    let entries = holders.get(at - 1).and_then(|it| it.items);
    // A list within the state of a parameter grows by itself.
    if holders.iter().take(at - 1).any(|it| it.by == "item" && it.items > entries) {
        return None;
    }
    let name = holders.get(at + 1).and_then(|it| it.name.as_deref()).or(holders.get(at)?.kind.as_deref());
    Some(name.map_or_else(|| "the optimizer".to_owned(), quoted))
}

/// ``train.py:41 `losses.append(loss)` ``, `train.py:41 in main()`
fn lead(it: &Spot) -> String {
    // A comment in the line proves nothing about what is kept.
    let text = it.text.raw().split("  #").next().unwrap_or_default().trim();
    if text.is_empty() { it.call() } else { format!("{} {}", it.place(), quoted(text)) }
}

/// Blocks that come once in that many steps are counted by rises, not by steps.
const RARE: u64 = 16;

/// `3 blocks a step (12.60 MiB)`, `5 blocks in 8 steps (2.00 MiB a step)`, `1 block in 60 steps (40.00 MiB)`
fn amount(blocks: u64, Over { steps, unit }: Over, bytes: Bytes) -> String {
    let plural = |count: u64, of: &str| format!("{} {of}{}", grouped(count), if count == 1 { "" } else { "s" });
    if blocks.is_multiple_of(steps) {
        format!("{} a {unit} ({bytes})", plural(blocks / steps, "block"))
    } else if blocks > steps {
        format!("{:.1} blocks a {unit} ({bytes})", blocks as f64 / steps as f64)
    } else if blocks.saturating_mul(RARE) <= steps {
        let all = Bytes(bytes.0.saturating_mul(steps));
        format!("{} in {} ({all})", plural(blocks, "block"), plural(steps, unit))
    } else {
        format!("{} in {} ({bytes} a {unit})", plural(blocks, "block"), plural(steps, unit))
    }
}

/// Returns notes about the capture apart from the culprits.
pub(super) fn notes(sites: &Sites, own: &[&Site], nothing: bool) -> Vec<String> {
    let steps = sites.steps;
    let count = |blocks: u64, bytes: Option<u64>| {
        let bytes = bytes.map_or_else(String::new, |it| format!(" ({})", Bytes(it)));
        format!("{} block{}{bytes}", grouped(blocks), if blocks == 1 { "" } else { "s" })
    };
    let unit = Over::of(sites).unit;
    let over = if steps == 1 { format!("in 1 {unit}") } else { format!("in {} {unit}s", grouped(steps)) };
    let stackless: Vec<&&Site> = own.iter().filter(|it| it.file.is_empty()).collect();
    let blocks = stackless.iter().fold(0_u64, |sum, it| sum.saturating_add(it.blocks));
    let bytes = stackless.iter().fold(0_u64, |sum, it| sum.saturating_add(it.bytes));
    let mut out = Vec::new();
    if nothing && stackless.is_empty() && steps > 0 {
        out.push(format!("{over} no line allocated more than was freed again"));
    }
    if nothing && !stackless.is_empty() && steps > 0 {
        let grew = count(blocks, Some(bytes));
        out.push(format!("{over} {grew} came that no Python line allocated: backward's own threads, or a library"));
    }
    if let Some(older) = sites.older_blocks.filter(|it| *it > 0) {
        let words = "predate the capture; their origin is unknown";
        out.push(format!("{} {words}", count(older, sites.older_bytes)));
    }
    match sites.collected_bytes {
        Some(0) => out.push("a run of the collector freed nothing: it is held, and no cycle".to_owned()),
        Some(bytes) => out.push(format!("a run of the collector freed {}: reference cycles held it", Bytes(bytes))),
        None => {}
    }
    if let Some(trouble) = &sites.trouble {
        let short: String = trouble.chars().take(super::TEXT).collect();
        out.push(format!("the capture is incomplete: {}", Foreign::new(short)));
    }
    out.extend(cost(sites));
    out
}

/// Describes what it cost the job: `paused the job for 130 ms in total (longest pause 32 ms), 120 ms of it for the
/// holders; the stacks took about 68.36 KiB`; `None` if it was not measured.
pub fn cost(sites: &Sites) -> Option<String> {
    // Older probes report one pause for the holders.
    let holders_longest = sites.holders_longest_us.or(sites.holders_us);
    let total = sites.held_us.map(|it| it.saturating_add(sites.holders_us.unwrap_or_default()));
    let longest = sites.longest_us.max(holders_longest).map(|it| format!(" (longest pause {})", ms(it)));
    let holders = sites.holders_us.map(|it| format!(", {} of it for the holders", ms(it)));
    let pause = |it| {
        format!("paused the job for {} in total{}{}", ms(it), longest.unwrap_or_default(), holders.unwrap_or_default())
    };
    let stacks = sites.history_bytes.map(|it| format!("the stacks took about {}", Bytes(it)));
    let both: Vec<String> = total.map(pause).into_iter().chain(stacks).collect();
    (!both.is_empty()).then(|| both.join("; "))
}

/// `8.4 ms`, `120 ms`
fn ms(us: u64) -> String {
    let ms = us as f64 / 1e3;
    if ms < 9.95 { format!("{ms:.1} ms") } else { format!("{ms:.0} ms") }
}

/// Lists the live memory on a device at one capture by the line that allocated it: `live blocks, by line: train.py:40
/// 1.20 GiB in 96 blocks, …`; `None` if no stacks were recorded.
pub fn live(sites: &Sites, device: u32) -> Option<String> {
    let own: Vec<&Site> = sites.sites.iter().filter(|it| it.device == device && !it.file.is_empty()).collect();
    let one = |it: &&Site| format!("{} {}", place_of(it), size(it));
    let lines: Vec<String> = own.iter().take(LISTED).map(one).collect();
    let more = own.len().saturating_sub(LISTED);
    let more = if more > 0 { format!(", {more} more line{}", if more == 1 { "" } else { "s" }) } else { String::new() };
    let older = sites.older_bytes.filter(|it| *it > 0);
    let older = older.map_or_else(String::new, |it| format!(", {} that predate the capture", Bytes(it)));
    (!lines.is_empty()).then(|| format!("live blocks, by line: {}{more}{older}", lines.join(", ")))
}

/// The most blocks of a group whose holders the probe looks for (`_SAMPLES` of `_oom_blocks.py`).
const SAMPLED: u64 = 16;

/// Lists what holds the largest groups of live blocks: `1.20 GiB in 16 blocks of 76.80 MiB are held by list …`; of more
/// blocks, the holder of a sample is known: `1.20 GiB in 96 blocks of 12.80 MiB: a sample of them is held by list …`.
pub fn held(sites: &Sites, device: u32) -> Vec<String> {
    let own = sites.sites.iter().filter(|it| it.device == device && !it.holders.is_empty());
    let one = |it: &Site| {
        let of = match it.sizes.as_slice() {
            [(size, _)] => format!(" of {}", Bytes(*size)),
            _ => String::new(),
        };
        let from = if it.file.is_empty() { String::new() } else { format!(", allocated at {}", place_of(it)) };
        let is = match it.blocks {
            1 => " is",
            2..=SAMPLED => " are",
            _ => ": a sample of them is",
        };
        let kept = it.kept.as_ref().filter(|kept| !kept.file.is_empty() && !kept.library);
        let kept = kept.map_or_else(String::new, |kept| {
            let text = Foreign::new(kept.text.trim());
            format!(" (stored at {} `{text}`)", held::place(&kept.file, kept.line))
        });
        format!("{}{of}{from}{is} held by {}{kept}", size(it), held::path(&it.holders).join(", held by "))
    };
    own.take(HELD).map(one).collect()
}

/// `train.py:40`
fn place_of(it: &Site) -> String {
    let file = Some(&*it.file).filter(|file| !file.is_empty());
    file.map_or_else(|| "no Python line".to_owned(), |file| held::place(file, it.line))
}

/// `1.20 GiB in 96 blocks`
fn size(it: &Site) -> String {
    format!("{} in {} block{}", Bytes(it.bytes), grouped(it.blocks), if it.blocks == 1 { "" } else { "s" })
}

/// The remedy for a graph that outlives its step.
const GRAPH: &str = "drop retain_graph and create_graph, and detach() whatever outlives the step";

/// The remedies for holders that need no more knowledge, the first that matches.
const BY_HOLDER: [(&str, &str); 5] = [
    (
        "atexit",
        "register one function with atexit, once, and let it look at what is there when it runs: what each call \
         registers stays until the process ends, or atexit.unregister() takes it back",
    ),
    ("autocast", "enter autocast once per step, inside of the loop, or give it `cache_enabled=False`"),
    ("cycle", "break the cycle, or make one of its links a weakref, so that it is freed without the collector"),
    (
        "traceback",
        "leave the except block before going on, or `del` the error (or keep `str(error)`): its traceback keeps every \
         frame's locals",
    ),
    ("generator", "run the generator to its end, or close() it"),
];

/// The remedy for what waits for ever.
const COROUTINE: &str = "await it, or cancel its task: a coroutine keeps its locals until it ends";

/// The remedy for arguments of `weakref.finalize`, whose registry nobody clears.
const FINALIZER: &str =
    "give weakref.finalize what holds no tensor, or detach() it: it keeps its arguments as long as its object lives";

/// Returns the remedy where a network or its optimizer gets ever more.
fn of_network(holders: &[Holder], over: Over) -> Option<String> {
    if let Some(name) = numbered(holders) {
        let name = quoted(name);
        return Some(format!(
            "write into one attribute, or `delattr` what is done with: each step sets another {name}"
        ));
    }
    if let Some(name) = optimizer(holders) {
        return Some(format!(
            "give {name} each parameter once, before training: what is added to it stays in its param_groups and state"
        ));
    }
    // What grows within one of its modules is no module.
    let place = holders.iter().position(is_in_modules)?;
    let grows =
        |it: &Holder| it.by == "default" || (is_element(it) && it.name.is_none() && it.items >= Some(over.steps));
    let inner = holders.get(..place).unwrap_or_default();
    let modules = holders.get(place).filter(|_| !are_many(holders, over) && !inner.iter().any(grows))?;
    let model = modules.kind.as_deref().map_or_else(|| "the model".to_owned(), quoted);
    Some(format!(
        "take out of {model} what was added to it and is done with (`del` the submodule, or delete the adapter)"
    ))
}

/// Returns the remedy, by the first rule that matches.
pub(super) fn advice(it: &Culprit, group: &Group, over: Over) -> String {
    let site = group.first;
    let holders = &site.holders;
    let held = |by: &str| holders.iter().any(|it| it.by == by);
    let grad = site.owners.iter().any(|it| it.grad);
    let is_alone = is_ownerless(site);
    let mentions = |words: &str| it.source.iter().chain(&it.kept).any(|it| it.text.raw().contains(words));
    if group.own().1 == 0 {
        return "allocate it once at its full size and write into it, or bound it, or collect the parts on the host"
            .to_owned();
    }
    if is_alone {
        return GRAPH.to_owned();
    }
    if let Some(remedy) = by_holder(holders) {
        return remedy.to_owned();
    }
    if is_hook(it, group) {
        return "remove the hook by its handle, or let it keep numbers (`.item()`) and not the outputs".to_owned();
    }
    if is_of_metric(holders) {
        return "call reset() of the metric at the end of each epoch, or let it keep sums and not the tensors"
            .to_owned();
    }
    if held("graph") {
        let into = holders.get(1).and_then(|it| name_of(holders, it).or(it.name.as_deref()));
        let into = into.map_or_else(|| "what stays".to_owned(), quoted);
        return format!("let only `.item()` or `.detach()` go into {into}: its graph goes back over every step");
    }
    let keeps = (grad && detaching_helps(group)).then(|| detached(it, group));
    let is_link = |it: &&Holder| matches!(&*it.by, "attribute" | "slot") && it.items.is_some();
    if let Some(name) = holders.iter().find(is_link).and_then(|it| it.name.as_deref()) {
        let name = quoted(name);
        return format!("set {name} to None where the earlier ones are done with: each object keeps the one before");
    }
    let is_plain = !site.owners.is_empty() && !holders.is_empty() && !grad;
    if !is_plain && (mentions("retain_graph") || mentions("create_graph")) {
        // A loss of gradients needs create_graph: what goes is that its numbers are kept with their graph.
        return keeps.filter(|_| it.kept.is_some()).unwrap_or_else(|| GRAPH.to_owned());
    }
    if let Some(remedy) = of_network(holders, over) {
        return remedy;
    }
    let grows = growing(holders);
    let name = grows.or(holders.first()).and_then(|it| name_of(holders, it));
    let kind = grows.and_then(|it| it.kind.as_deref()).unwrap_or_default();
    if holders.iter().any(|it| it.kind.as_deref() == Some("lru_cache")) {
        return "give the lru_cache a maxsize, or keep what it returns on the host".to_owned();
    }
    if let Some(remedy) = of_place(holders, name).filter(|_| keeps.is_none() || !held("default")) {
        return remedy;
    }
    if is_mapping(kind) {
        let name = name.map_or_else(|| "the dict".to_owned(), quoted);
        let keeps = keeps.map_or_else(String::new, |it| format!(", and {it}"));
        return format!("bound {name} (remove the oldest entry){keeps}");
    }
    if let Some(keeps) = keeps {
        return keeps;
    }
    let name = name.map_or_else(|| "what holds them".to_owned(), quoted);
    let copy = if grad { "`.detach().cpu()`" } else { "`.cpu()`" };
    if held("class") || held("global") {
        return format!("clear {name} each epoch, bound it, or copy what is needed to the host ({copy})");
    }
    format!("copy what is needed to the host ({copy}), and bound or clear {name}")
}

/// Returns the remedy that a holder alone decides.
fn by_holder(holders: &[Holder]) -> Option<&'static str> {
    if holders.iter().any(is_coroutine) {
        return Some(COROUTINE);
    }
    let known = BY_HOLDER.iter().find(|(by, _)| holders.iter().any(|it| it.by == *by)).map(|(_, remedy)| *remedy);
    let is_finalizer =
        |holder: &Holder| [&holder.kind, &holder.name].iter().any(|it| it.as_deref() == Some("finalize"));
    known.or_else(|| holders.iter().any(is_finalizer).then_some(FINALIZER))
}

/// Returns the container that most likely grows.
fn growing(holders: &[Holder]) -> Option<&Holder> {
    let elements = || holders.iter().filter(|it| is_element(it));
    // All have the same key where one is named: that mapping does not grow.
    let found = elements().filter(|it| it.name.is_none()).min_by_key(|it| Reverse(it.items));
    found.or_else(|| elements().min_by_key(|it| Reverse(it.items)))
}

/// Whether detaching a tensor with a graph frees memory: its graph's blocks, or all of it for a single number.
/// Otherwise backward has already freed the graph's memory, and the detached tensor is as large.
fn detaching_helps(group: &Group) -> bool {
    !group.graph.is_empty() || is_scalar(group)
}

fn is_scalar(group: &Group) -> bool {
    group.first.owners.iter().filter(|it| it.grad).all(|it| it.shape.iter().all(|size| *size == 1))
}

/// What to keep instead of a tensor with its graph: detached, a list of them would still grow on the device, by 512 B
/// for each number.
fn detached(it: &Culprit, group: &Group) -> String {
    // What is appended may have the tensor in it, as a dict has.
    let is_itself = group.first.holders.first().is_none_or(|it| it.by == "item");
    let kept = it.kept.as_ref().and_then(|it| appended(it.text.raw().trim())).filter(|_| is_itself);
    match (is_scalar(group), kept) {
        (true, Some(name)) => format!("append `{}.item()`", word(name)),
        (true, None) => "keep its `.item()`".to_owned(),
        (false, Some(name)) => format!("append `{}.detach().cpu()`, or the numbers of it that are needed", word(name)),
        (false, None) => "keep its `.detach().cpu()`, or the numbers of it that are needed".to_owned(),
    }
}

/// Returns the appended expression if it is a plain name: `loss` in `losses.append(loss)`.
fn appended(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once(".append(")?;
    let name = rest.split_once(')')?.0.trim();
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.'));
    is_name.then_some(name)
}

fn is_hook(it: &Culprit, group: &Group) -> bool {
    let has = |text: &str| text.contains("hook");
    // A hook may be a closure. Trainers run callbacks in functions of such names, so a local variable proves nothing.
    let by_holder = |it: &Holder| {
        let closure = it.function.as_deref().filter(|_| it.by == "cell");
        it.by == "hook" || [it.name.as_deref(), closure].into_iter().flatten().any(has)
    };
    let functions = std::iter::once(&it.allocated).chain(it.frames.first());
    group.first.holders.iter().any(by_holder) || functions.into_iter().any(|it| has(it.function.raw()))
}

fn is_of_metric(holders: &[Holder]) -> bool {
    let says = |text: &Option<String>| text.as_ref().is_some_and(|it| it.to_lowercase().contains("metric"));
    // A dict may have that name, and has nothing to reset.
    let container = holders.iter().find(|it| is_element(it)).and_then(|it| name_of(holders, it));
    holders.iter().any(|it| says(&it.kind) || (says(&it.name) && it.name.as_deref() != container))
}

/// Returns the attributes of which each step sets another one, as `slot_*`.
fn numbered(holders: &[Holder]) -> Option<&str> {
    let name = holders.first().filter(|it| it.by == "attribute")?.name.as_deref()?;
    let last = name.rsplit('.').next()?;
    (last != "*" && last.contains('*')).then_some(last)
}

/// Returns the remedy where a container is in a place of its own kind: a default argument, a dictionary with weak keys.
fn of_place(holders: &[Holder], name: Option<&str>) -> Option<String> {
    if holders.iter().any(|it| it.by == "default") {
        let name = name.map_or_else(|| "it".to_owned(), quoted);
        return Some(format!(
            "a default argument is made once for all calls: default {name} to None and create it in the body, or \
             bound it"
        ));
    }
    let place = holders.iter().position(|it| is_wrapped(it) && it.kind.as_deref() == Some("WeakKeyDictionary"))?;
    let owner = holders.get(place + 1).and_then(|it| it.name.as_deref());
    let name = owner.map_or_else(|| "the WeakKeyDictionary".to_owned(), quoted);
    Some(format!(
        "let go of the keys of {name}, which drops an entry only with its key: something else keeps them, or a value \
         refers to its key"
    ))
}

fn is_mapping(kind: &str) -> bool {
    kind.ends_with("dict") || kind.ends_with("Dict")
}

/// Returns the name under which its holder has the container.
fn name_of<'a>(holders: &'a [Holder], container: &Holder) -> Option<&'a str> {
    let place = holders.iter().position(|it| std::ptr::eq(it, container))?;
    let own = holders.get(place)?;
    if !is_element(own) {
        return own.name.as_deref();
    }
    // A list within a dict has no name of its own. Where nobody else has one, as in what belongs
    // to a thread, its key is it.
    let around = holders.get(place + 1..).unwrap_or_default();
    let owner = around.iter().find(|it| !is_element(it) && it.by != "other" && !is_wrapped(it))?;
    let inner = around.iter().take_while(|it| is_element(it) || it.by == "other" || is_wrapped(it));
    let is_optimizers = owner.name.as_deref().is_some_and(|it| OF_OPTIMIZERS.contains(&it));
    let key = (is_optimizers || inner.clone().any(|it| it.by == "other"))
        .then(|| inner.clone().find_map(|it| it.name.as_deref()));
    key.flatten().or(owner.name.as_deref())
}
