//! The schemas in `docs/reference/schemas`: what programs read of gpuwatch, field by field.
//!
//! Published schemas are open, because later releases may add fields. Tests check real output more strictly: each field
//! has to be in the schema. They use a validator of the keywords that the schemas use, because those that exist need 45
//! crates more; the full tier checks the schemas with an independent one.

use crate::{
    analysis::corpus,
    house::tidy::root,
    recordings::{formats, writer::read},
};
use gpuwatch::{
    facts::{event::wire::Counters, figures, metrics::Metric},
    storage::recording::{Entry, encode},
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::LazyLock,
};

static SCHEMAS: LazyLock<BTreeMap<String, Value>> = LazyLock::new(|| {
    let files = fs::read_dir(root().join("docs/reference/schemas")).unwrap().flatten();
    let read = |path: &Path| serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    files.map(|it| (it.file_name().into_string().unwrap(), read(&it.path()))).collect()
});

/// Fails unless a value has every field that its schema requires, and none that the schema lacks.
pub(crate) fn check(name: &str, value: &Value) {
    let place = Place { file: format!("{name}.json"), schema: &SCHEMAS[&format!("{name}.json")] };
    let faults = place.faults(value, "", true);
    assert!(faults.is_empty(), "{name}:\n{}", faults.join("\n"));
}

/// The same for every line of a recording that this release wrote.
pub(crate) fn check_recording(path: &Path) {
    for entry in read(path).0 {
        let Entry::Event(event) = entry else { continue };
        let mut line = String::new();
        encode(&event, &mut line);
        if !line.is_empty() {
            check("recording", &serde_json::from_str(&line).unwrap());
        }
    }
}

/// The schemas of objects that a table of the program describes.
pub(crate) fn of_tables() -> [(&'static str, String); 3] {
    let schema = |title: &str, about: &str, properties: Vec<(String, Value)>| {
        let lines: Vec<String> = properties.iter().map(|(name, it)| format!("    \"{name}\": {it}")).collect();
        format!(
            "{{\n  \"$schema\": \"https://json-schema.org/draft/2020-12/schema\",\n  \"title\": \"{title}\",\n  \
             \"description\": \"{about}\",\n  \"type\": \"object\",\n  \"properties\": {{\n{}\n  }}\n}}\n",
            lines.join(",\n")
        )
    };
    let number = |about: &str| json!({"type": ["integer", "null"], "minimum": 0, "description": about});
    let counters = Counters::TABLE.iter().map(|it| (it.name.to_owned(), number(it.meaning))).collect();
    let metrics = Metric::TABLE.iter().map(|it| (it.name.to_owned(), json!({"description": it.meaning}))).collect();
    let rows = figures::Figure::TABLE.iter();
    let figures = rows.map(|it| (it.name.to_owned(), json!({"description": it.meaning}))).collect();
    [
        (
            "docs/reference/schemas/counters.json",
            schema("Counters", "Absent if unknown. Units: counters.md.", counters),
        ),
        (
            "docs/reference/schemas/metrics.json",
            schema("Metrics of a device", "Absent if unknown. Units: metrics.md.", metrics),
        ),
        (
            "docs/reference/schemas/figures.json",
            schema("Figures of a process", "Absent if unknown. Units: figures.md.", figures),
        ),
    ]
}

/// A schema, and the file that its references are relative to.
struct Place<'a> {
    file: String,
    schema: &'a Value,
}

impl<'a> Place<'a> {
    fn at(&self, schema: &'a Value) -> Self {
        Self { file: self.file.clone(), schema }
    }

    /// Returns what a reference refers to.
    fn target(&self, reference: &str) -> Self {
        let (file, inside) = reference.split_once('#').unwrap_or((reference, ""));
        let file = if file.is_empty() { self.file.clone() } else { file.to_owned() };
        let whole = SCHEMAS.get(&file).unwrap_or_else(|| panic!("{}: no {file}", self.file));
        let schema = whole.pointer(inside).unwrap_or_else(|| panic!("{}: no {reference}", self.file));
        Self { file, schema }
    }

    fn list(&self, keyword: &str) -> impl Iterator<Item = Self> {
        self.schema[keyword].as_array().into_iter().flatten().map(|it| self.at(it))
    }

    /// The names of all properties; `None` if there may be others.
    fn names(&self) -> Option<BTreeSet<&'a str>> {
        let own = self.schema["properties"].as_object().into_iter().flatten().map(|it| it.0.as_str());
        let mut names: BTreeSet<&str> = own.collect();
        let referred = self.schema["$ref"].as_str().map(|it| self.target(it));
        let is_open = self.schema.get("additionalProperties").is_some()
            || (names.is_empty() && referred.is_none() && self.schema.get("allOf").is_none());
        if is_open {
            return None;
        }
        for it in referred.into_iter().chain(self.list("allOf")) {
            names.extend(it.names()?);
        }
        Some(names)
    }

    /// Returns what is wrong with a value; `closed` objects have no fields beside those of the schema.
    fn faults(&self, value: &Value, at: &str, closed: bool) -> Vec<String> {
        let mut faults = Vec::new();
        for (keyword, rule) in self.schema.as_object().unwrap() {
            match keyword.as_str() {
                "$ref" => faults.extend(self.target(rule.as_str().unwrap()).faults(value, at, false)),
                "allOf" => faults.extend(self.list(keyword).flat_map(|it| it.faults(value, at, false))),
                "anyOf" | "oneOf" => {
                    let branches = self.list(keyword).map(|it| it.faults(value, at, closed));
                    faults.extend(branches.min_by_key(Vec::len).unwrap());
                }
                "items" => {
                    let items = value.as_array().into_iter().flatten().enumerate();
                    faults.extend(items.flat_map(|(n, it)| self.at(rule).faults(it, &format!("{at}/{n}"), true)));
                }
                "prefixItems" => {
                    let pairs = self.list(keyword).zip(value.as_array().into_iter().flatten()).enumerate();
                    faults.extend(pairs.flat_map(|(n, (it, item))| it.faults(item, &format!("{at}/{n}"), true)));
                }
                "properties" | "additionalProperties" => faults.extend(self.fields(keyword, rule, value, at)),
                _ if !self.fits(keyword, rule, value) => {
                    faults.push(format!("{at}: {keyword} {rule}, and not {value}"));
                }
                _ => {}
            }
        }
        if closed && let (Some(names), Some(object)) = (self.names(), value.as_object()) {
            let unknown = object.keys().filter(|it| !names.contains(it.as_str()));
            faults.extend(unknown.map(|it| format!("{at}: {it} is not in the schema")));
        }
        faults
    }

    /// Whether a value keeps a rule that is not about its parts.
    fn fits(&self, keyword: &str, rule: &Value, value: &Value) -> bool {
        let items = || value.as_array().map(|it| it.len() as u64);
        match keyword {
            "$schema" | "$defs" | "title" | "description" => true,
            "type" => is_of_type(rule, value),
            "const" => rule == value,
            "enum" => rule.as_array().unwrap().contains(value),
            "minimum" => !value.is_number() || value.as_f64() >= rule.as_f64(),
            "minItems" => items() >= rule.as_u64(),
            "maxItems" => items() <= rule.as_u64(),
            "required" => {
                let mut names = rule.as_array().unwrap().iter().map(|it| it.as_str().unwrap());
                value.as_object().is_none_or(|it| names.all(|name| it.contains_key(name)))
            }
            other => panic!("{}: this validator does not know {other}", self.file),
        }
    }

    fn fields(&self, keyword: &str, rule: &'a Value, value: &Value, at: &str) -> Vec<String> {
        let rule_of = |name: &str| {
            let named = self.schema["properties"].get(name);
            if keyword == "properties" { named } else { Some(rule).filter(|it| named.is_none() && it.is_object()) }
        };
        let fields = value.as_object().into_iter().flatten();
        let fields = fields.filter_map(|(name, it)| Some((name, it, rule_of(name)?)));
        fields.flat_map(|(name, it, rule)| self.at(rule).faults(it, &format!("{at}/{name}"), true)).collect()
    }
}

fn is_of_type(rule: &Value, value: &Value) -> bool {
    if let Some(any) = rule.as_array() {
        return any.iter().any(|it| is_of_type(it, value));
    }
    match rule.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        other => panic!("no type {other}"),
    }
}

#[test]
fn a_field_that_is_missing_new_or_of_another_type_is_a_fault() {
    let place = |schema| Place { file: "check.json".to_owned(), schema };
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer", "minimum": 0}, "b": {"enum": ["x"]}}, "required": ["a"]});
    let faults = |value: Value| place(&schema).faults(&value, "", true).len();
    assert_eq!(faults(json!({"a": 1, "b": "x"})), 0);
    assert_eq!(faults(json!({"a": 1, "c": 1})), 1);
    assert_eq!(faults(json!({"b": "y"})), 2, "none of the values, and without `a`");
    assert_eq!(faults(json!({"a": -1})), 1);
    assert_eq!(faults(json!([])), 1);
    let either = json!({"anyOf": [{"$ref": "losses.json"}, {"type": "null"}]});
    assert!(place(&either).faults(&Value::Null, "", true).is_empty());
    assert!(!place(&either).faults(&json!({"processes": 1}), "", true).is_empty());
}

/// Every reference leads somewhere, every keyword is known, and each required field is described.
#[test]
fn the_schemas_are_whole() {
    fn visit(place: &Place, faults: &mut Vec<String>) {
        if let Some(reference) = place.schema["$ref"].as_str() {
            place.target(reference);
        }
        let names = place.schema["properties"].as_object();
        for it in place.schema["required"].as_array().into_iter().flatten() {
            if !names.is_some_and(|names| names.contains_key(it.as_str().unwrap())) {
                faults.push(format!("{}: {it} is required and not described", place.file));
            }
        }
        match place.schema {
            Value::Object(object) => object.values().for_each(|it| visit(&place.at(it), faults)),
            Value::Array(list) => list.iter().for_each(|it| visit(&place.at(it), faults)),
            _ => {}
        }
    }
    let mut faults = Vec::new();
    for (file, schema) in SCHEMAS.iter() {
        visit(&Place { file: file.clone(), schema }, &mut faults);
        assert!(schema["title"].is_string() && schema["description"].is_string(), "{file}");
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn every_line_of_the_wire_and_of_recordings_is_in_the_schemas() {
    let golden = include_str!("../../../probes/gpuwatch-probe/tests/it/wire/golden.jsonl");
    for line in golden.lines().filter(|it| !it.contains("\"unknown\"")) {
        check("wire", &serde_json::from_str(line).unwrap());
    }
    check_recording(&formats::fixture());
    check_recording(&corpus::traces()[0]);
}
