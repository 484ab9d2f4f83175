//! The remedy for blocks that are kept: from what is kept and how, to one line.

use super::{
    Culprit, Group,
    held::{is_element, quoted, word},
    is_ownerless,
};
use crate::facts::event::wire::Holder;
use std::cmp::Reverse;

/// The remedy for a graph that outlives its step.
const GRAPH: &str = "drop retain_graph and create_graph, and detach() whatever outlives the step";

/// Returns the remedy, by the first rule that matches.
pub(super) fn advice(it: &Culprit, group: &Group) -> String {
    let site = group.first;
    let holders = &site.holders;
    let held = |by: &str| holders.iter().any(|it| it.by == by);
    let grad = site.owners.iter().any(|it| it.grad);
    let is_alone = is_ownerless(site);
    let mentions = |words: &str| it.source.iter().chain(&it.kept).any(|it| it.text.raw().contains(words));
    if group.own().1 == 0 {
        return "allocate it once at its full size and write into it, or collect the parts on the host".to_owned();
    }
    if is_alone {
        return GRAPH.to_owned();
    }
    if held("autocast") {
        return "enter autocast once per step, inside of the loop, or give it `cache_enabled=False`".to_owned();
    }
    if held("cycle") {
        return "break the cycle, or make one of its links a weakref, so that it is freed without the collector"
            .to_owned();
    }
    if held("traceback") {
        return "leave the except block before going on, or `del` the error (or keep `str(error)`): its traceback keeps \
                every frame's locals"
            .to_owned();
    }
    if held("generator") {
        return "run the generator to its end, or close() it".to_owned();
    }
    if is_hook(it, group) {
        return "remove the hook by its handle, or let it keep numbers (`.item()`) and not the outputs".to_owned();
    }
    if holders.iter().any(is_metric) {
        return "call reset() of the metric at the end of each epoch, or let it keep sums and not the tensors"
            .to_owned();
    }
    if held("graph") {
        let into = holders.get(1).and_then(|it| it.name.as_deref()).map_or_else(|| "what stays".to_owned(), quoted);
        return format!("let only `.item()` or `.detach()` go into {into}: its graph goes back over every step");
    }
    if mentions("retain_graph") || mentions("create_graph") {
        return GRAPH.to_owned();
    }
    let keeps = (grad && detaching_helps(group)).then(|| detached(it, group));
    let grows = holders.iter().filter(|it| is_element(it)).min_by_key(|it| Reverse(it.items));
    let name = grows.or(holders.first()).and_then(|it| name_of(holders, it));
    let kind = grows.and_then(|it| it.kind.as_deref()).unwrap_or_default();
    if kind == "lru_cache" {
        return "give the lru_cache a maxsize, or keep what it returns on the host".to_owned();
    }
    if is_mapping(kind) {
        let name = name.map_or_else(|| "the dict".to_owned(), quoted);
        let keeps = keeps.map_or_else(String::new, |it| format!(", and {it}"));
        return format!("bound {name} (remove the oldest entry, or use weak keys){keeps}");
    }
    if let Some(keeps) = keeps {
        return keeps;
    }
    let name = name.map_or_else(|| "what holds them".to_owned(), quoted);
    if held("default") {
        return format!(
            "a default argument is made once for all calls: default {name} to None and create it in the body"
        );
    }
    let copy = if grad { "`.detach().cpu()`" } else { "`.cpu()`" };
    if held("class") || held("global") {
        return format!("clear {name} each epoch, bound it, or copy what is needed to the host ({copy})");
    }
    format!("copy what is needed to the host ({copy}), and bound or clear {name}")
}

/// Whether detaching a tensor with a graph frees memory: its graph's blocks, or all of it for a single number.
/// Otherwise backward has already freed the graph's memory, and the detached tensor is as large.
fn detaching_helps(group: &Group) -> bool {
    !group.graph.is_empty() || is_scalar(group)
}

fn is_scalar(group: &Group) -> bool {
    group.first.owners.iter().filter(|it| it.grad).all(|it| it.shape.iter().all(|size| *size == 1))
}

/// What to keep instead of a tensor with its graph.
fn detached(it: &Culprit, group: &Group) -> String {
    let kept = it.kept.as_ref().and_then(|it| appended(it.text.raw().trim()));
    match (is_scalar(group), kept) {
        (true, Some(name)) => format!("append `{name}.item()` or `{name}.detach()`", name = word(name)),
        (true, None) => "keep its `.item()` or `.detach()`".to_owned(),
        (false, Some(name)) => format!("append `{}.detach()`, or the numbers of it that are needed", word(name)),
        (false, None) => "keep its `.detach()`, or the numbers of it that are needed".to_owned(),
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

fn is_metric(it: &Holder) -> bool {
    it.kind.iter().chain(&it.name).any(|it| it.to_lowercase().contains("metric"))
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
    // A list within a dict has no name of its own.
    let around = holders.get(place + 1..).unwrap_or_default();
    let owner = around.iter().position(|it| !is_element(it))?;
    around.get(owner).and_then(|it| it.name.as_deref())
}
