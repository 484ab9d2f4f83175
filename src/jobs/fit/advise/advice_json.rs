//! The table as JSON, schema 1.

use super::{Advice, Measurement};
use crate::{
    jobs::fit::json::answer_value,
    model::fit::{Fits, Need, technique::Price},
};
use serde_json::{Value, json};

pub(super) fn advice(it: &Advice) -> String {
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
