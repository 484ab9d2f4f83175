//! The answer as JSON, schema 1.

use crate::{
    facts::{
        event::wire::{Holder, Site, Sites},
        text::escape_json,
    },
    model::analysis::culprit,
};
use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The version of the object.
const SCHEMA: u32 = 1;

/// Returns the answer of a process, with its newline.
pub(super) fn answer(it: &Sites, pid: u32) -> Result<String> {
    let object = json!({
        "schema": SCHEMA,
        "pid": pid,
        "step": it.step,
        "steps": it.steps,
        "culprits": culprits(it),
        "sites": it.sites.iter().map(|site| of(site, it.steps)).collect::<Vec<_>>(),
        "older": { "blocks": it.older_blocks, "bytes": it.older_bytes },
        "cost": {
            "held_us": it.held_us,
            "longest_us": it.longest_us,
            "holders_us": it.holders_us,
            "holders_longest_us": it.holders_longest_us,
            "history_bytes": it.history_bytes,
        },
        "collected_bytes": it.collected_bytes,
        "trouble": it.trouble,
    });
    let mut text = escape_json(&serde_json::to_string_pretty(&object).context("cannot write JSON")?);
    text.push('\n');
    Ok(text)
}

/// Returns the culprits of each device, as in a finding.
fn culprits(it: &Sites) -> Vec<Value> {
    let devices: BTreeSet<u32> = it.sites.iter().map(|it| it.device).collect();
    let of = |device: u32| culprit::account(it, device).culprits.into_iter().map(move |it| (device, it));
    let culprits = devices.into_iter().flat_map(of);
    culprits
        .map(|(device, it)| {
            let mut it = it.json();
            if let Some(object) = it.as_object_mut() {
                object.insert("device".to_owned(), json!(device));
            }
            it
        })
        .collect()
}

fn of(it: &Site, steps: u64) -> Value {
    let per_step = |figure: u64| (steps > 0).then(|| figure as f64 / steps as f64);
    let known = Some(&it.file).filter(|it| !it.is_empty());
    json!({
        "device": it.device,
        "file": known,
        "line": known.map(|_| it.line),
        "function": known.map(|_| &it.function),
        "frames": it.frames,
        "bytes_per_step": per_step(it.bytes),
        "blocks_per_step": per_step(it.blocks),
        "sizes": it.sizes,
        "stream": it.stream,
        "pool": it.pool,
        "autograd": it.autograd,
        "owners": it.owners,
        "holders": it.holders.iter().map(holder).collect::<Vec<_>>(),
        "kept": it.kept,
        "source": it.source.iter().map(|it| json!({ "line": it.line, "text": it.text })).collect::<Vec<_>>(),
    })
}

/// Returns one step of the path, without unknown fields.
fn holder(it: &Holder) -> Value {
    serde_json::to_value(it).unwrap_or_else(|_| Value::Object(Map::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_job_moves_a_cursor_and_nothing_is_lost() {
        let name = "a\u{9b}2J\u{202e}\u{1b}[2J.py";
        let site = Site { file: name.to_owned(), line: 4, bytes: 512, blocks: 8, ..Site::default() };
        let culprits = answer(&Sites { steps: 8, sites: vec![site], ..Sites::default() }, 7).unwrap();
        assert!(culprits.is_ascii() && !culprits.contains('\u{1b}'), "{culprits}");
        let read: Value = serde_json::from_str(&culprits).unwrap();
        assert_eq!((&read["sites"][0]["file"], &read["pid"]), (&name.into(), &7.into()));
    }
}
