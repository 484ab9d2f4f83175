//! The table in words, and as JSON (schema 1).

use super::{super::comparison_text::wrapped, Advice, Measurement, saves};
use crate::{
    facts::{
        event::{
            Advised, ProbeId,
            advised::{AdvisedRow, EDIT_MAX, ROWS_MAX},
        },
        text::Foreign,
        units::Bytes,
    },
    jobs::fit::json::answer_value,
    model::fit::{
        Fits, Need,
        technique::{Price, costs},
    },
};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Most columns of names beside figures; a longer name has a line of its own.
const NAME: usize = 32;

// Writing into a String cannot fail.
pub(super) fn text(it: &Advice) -> String {
    let mut out = it.baseline.text();
    let Some(need) = it.need.as_ref().filter(|_| it.why.is_none()) else {
        if let Some(why) = it.why.as_ref().filter(|_| it.baseline.why.is_none()) {
            let _ = writeln!(out, "\nno advice: {}", Foreign::new(why.as_str()));
        }
        return out;
    };
    let peak = need.usual();
    let (saving, rest) = measured_rows(it, peak);
    if let Some(why) = it.interruption() {
        let _ = writeln!(out, "\n{why}");
    }
    if saving.is_empty() {
        out.push_str("\nno technique that could be tried saves memory\n");
    } else {
        let width = saving.iter().map(|it| it.name().len()).max().unwrap_or(0).clamp(9, NAME);
        let _ = writeln!(out, "\n{:width$}  {:>10} {:>11}  {}", "technique", "peak", "saving", verdict_title(it));
        let _ = writeln!(out, "{:width$}  {:>10} {:>11}", "none", Bytes(peak).to_string(), "");
        // What changes nothing comes first, the best of it at its top.
        for price in Price::ALL.map(Some).into_iter().chain([None]) {
            let rows: Vec<_> = saving.iter().filter(|it| it.price == price).collect();
            if let Some(title) = price.filter(|_| !rows.is_empty()).map(Price::name) {
                let _ = writeln!(out, "{title}:");
            }
            for row in rows {
                measured_row(&mut out, row, need, width, it);
            }
        }
    }
    if !rest.is_empty() {
        let names: Vec<_> = rest.iter().filter(|it| it.techniques.len() == 1).map(|it| it.name()).collect();
        let _ = write!(out, "\n{}", wrapped(&format!("saves nothing: {}", names.join(", ")), 0));
    }
    edits(&mut out, it, &saving);
    let refused = it.rows.iter().filter_map(|row| Some((row.name(), row.refused.as_ref()?)));
    let refused: Vec<_> = refused.collect();
    if !refused.is_empty() {
        out.push_str("\nnot tried or not counted:\n");
        for (name, why) in refused {
            out.push_str(&wrapped(&format!("{name}: {}", Foreign::new(why.as_str())), 2));
        }
    }
    out
}

/// Returns what was measured: what saves memory, the row that takes the least first, and the rest.
fn measured_rows(it: &Advice, peak: u64) -> (Vec<&Measurement>, Vec<&Measurement>) {
    let measured = it.combinations.iter().chain(&it.rows).filter(|it| it.need.is_some());
    let (mut saving, rest): (Vec<_>, Vec<_>) = measured.partition(|it| it.device().is_some_and(|now| saves(peak, now)));
    saving.sort_by_key(|it| it.device());
    (saving, rest)
}

/// Returns what a recording and viewers of the job keep of it; `None` without a measurement. They know the probe.
pub(super) fn advised(it: &Advice) -> Option<Advised> {
    let peak = it.need.as_ref().filter(|_| it.why.is_none())?.usual();
    let (saving, rest) = measured_rows(it, peak);
    // Of each class of price, those that take the least.
    let mut kept: Vec<&Measurement> = Vec::new();
    for price in Price::ALL {
        kept.extend(saving.iter().filter(|it| it.price == Some(price)).take(ROWS_MAX / Price::ALL.len()));
    }
    kept.sort_by_key(|it| it.device());
    let row = |row: &Measurement| AdvisedRow {
        techniques: Foreign::new(row.name()),
        peak: row.device().unwrap_or(0),
        price: row.price.map(|it| Foreign::new(it.name())).unwrap_or_default(),
        verdict: verdict(row, it).map(Foreign::new),
        edit: row.edit.iter().take(EDIT_MAX).map(|it| Foreign::new(it.as_str())).collect(),
    };
    let measured = (saving.len() + rest.len()) as u64;
    Some(Advised { probe: ProbeId(0), peak, measured, rows: kept.into_iter().map(row).collect() })
}

/// Returns `fits L4`, or the smallest card that is enough.
fn verdict(row: &Measurement, it: &Advice) -> Option<String> {
    let on = match it.baseline.devices.as_slice() {
        [one] => Foreign::new(one.device.name.as_str()).to_string(),
        _ => "all devices that were asked for".to_owned(),
    };
    match row.fits? {
        Fits::Yes if it.is_named => Some(format!("fits on {on}")),
        Fits::No => Some(format!("does not fit on {on}")),
        Fits::Unknown if it.is_named => Some(format!("too close on {on}")),
        _ => row.smallest.as_ref().map(|it| format!("fits on cards from {}", it.name)),
    }
}

fn verdict_title(it: &Advice) -> String {
    match it.baseline.devices.as_slice() {
        [one] if it.is_named => format!("on {}", Foreign::new(one.device.name.as_str())),
        _ if it.is_named => "on all".to_owned(),
        _ => "smallest card".to_owned(),
    }
}

fn measured_row(out: &mut String, row: &Measurement, before: &Need, width: usize, it: &Advice) {
    let Some(now) = row.device() else { return };
    let saving = before.usual().saturating_sub(now);
    let fits = match row.fits {
        Some(Fits::Yes) if it.is_named => "fits".to_owned(),
        Some(Fits::No) => "does not fit".to_owned(),
        Some(Fits::Unknown) if it.is_named => "too close".to_owned(),
        _ => row.smallest.as_ref().map_or_else(|| "–".to_owned(), |it| it.name.clone()),
    };
    let largest = row.largest.as_ref().map_or_else(String::new, |value| {
        let varied = it.baseline.varied.as_ref();
        let name = varied.map_or("value", |it| it.name.as_str());
        format!(", largest {} {}", Foreign::new(name), Foreign::new(value.as_str()))
    });
    let price = costs(row.recomputed_blocks, row.host_bytes, row.kernel_launches);
    let saving = format!("−{}", Bytes(saving));
    let mut name = row.name();
    if name.len() > width {
        let _ = writeln!(out, "{name}");
        name.clear();
    }
    let (now, price) = (Bytes(now).to_string(), price.join("; "));
    let _ = writeln!(out, "{name:width$}  {now:>10} {saving:>11}  {fits}{largest}");
    if !price.is_empty() {
        let _ = writeln!(out, "{:width$}  {price}", "");
    }
}

/// The lines to write, for each technique that saves.
fn edits(out: &mut String, it: &Advice, saving: &[&Measurement]) {
    let used: Vec<_> = saving.iter().flat_map(|it| &it.techniques).map(|it| it.name).collect();
    let rows = it.rows.iter().filter(|row| row.need.is_some() && used.contains(&row.name().as_str()));
    let rows: Vec<_> = rows.filter(|row| !row.edit.is_empty()).collect();
    if rows.is_empty() {
        return;
    }
    out.push_str("\nwhat to write:\n");
    for row in rows {
        let applied = row.applied.as_ref().map_or_else(String::new, |it| format!(" ({})", Foreign::new(it.as_str())));
        let _ = writeln!(out, "  {}{applied}", row.name());
        for line in &row.edit {
            let _ = writeln!(out, "    {}", Foreign::new(line.as_str()));
        }
    }
}

/// Returns it as JSON.
pub(super) fn json(it: &Advice) -> String {
    let rows: Vec<Value> = it.rows.iter().map(row).collect();
    let combinations: Vec<Value> = it.combinations.iter().map(combination).collect();
    let out = json!({
        "schema": 1,
        "baseline": answer_value(&it.baseline),
        "rows": rows,
        "combinations": combinations,
        "why": it.why.clone().or_else(|| it.interruption()),
    });
    format!("{out}\n")
}

fn row(it: &Measurement) -> Value {
    let mut out = measured(it);
    if let (Some(object), Some(one)) = (out.as_object_mut(), it.techniques.first()) {
        object.insert("technique".to_owned(), json!(one.name));
    }
    out
}

fn combination(it: &Measurement) -> Value {
    let mut out = measured(it);
    if let Some(object) = out.as_object_mut() {
        let names: Vec<&str> = it.techniques.iter().map(|it| it.name).collect();
        object.insert("techniques".to_owned(), json!(names));
    }
    out
}

fn measured(it: &Measurement) -> Value {
    let need = it.need.as_ref();
    let largest = it.largest.as_ref();
    let mut out = json!({
        "applied": it.applied,
        "refused": it.refused,
        "allocated": need.map(|it| it.allocated),
        "reserved": need.map(|it| it.reserved),
        "device": need.map(Need::usual),
        "fits": it.fits.map(Fits::name),
        "smallest": it.smallest.as_ref().map(|it| it.name.as_str()),
        "price": it.price.map(|class: Price| json!({
            "class": class.name(),
            "recomputed_blocks": it.recomputed_blocks,
            "host_bytes": it.host_bytes,
            "kernel_launches": it.kernel_launches,
        })),
        "edit": it.edit,
    });
    if let (Some(object), Some(largest)) = (out.as_object_mut(), largest) {
        object.insert("largest".to_owned(), json!(largest));
    }
    out
}
