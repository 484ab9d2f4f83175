//! The page's style and script for gaps, generated from their table.

use crate::model::analysis::ladder::{Gap, Place, Row};
use std::fmt::Write as _;

/// Returns the colours of gaps as properties: `--gap-graph-pools`.
pub(super) fn style() -> String {
    let colours = |colour: fn(&Row) -> &'static str| {
        Gap::ALL.iter().fold(String::new(), |mut out, it| {
            let row = it.row();
            let _ = write!(out, " --gap-{}: {};", row.name.replace(' ', "-"), colour(row));
            out
        })
    };
    let (light, dark) = (colours(|it| it.report.0), colours(|it| it.report.1));
    format!(":root {{{light} }}\n@media screen and (prefers-color-scheme: dark) {{ :root {{{dark} }} }}\n")
}

/// Returns the names of gaps inside the allocator, and of the unused ones.
pub(super) fn script() -> String {
    let names = |places: &[Place]| {
        let rows = Gap::ALL.iter().map(|it| it.row()).filter(|it| places.contains(&it.place));
        serde_json::json!(rows.map(|it| it.name).collect::<Vec<_>>())
    };
    let (inside, unused) = (names(&[Place::InUse, Place::Unused]), names(&[Place::Unused]));
    format!("const INSIDE = {inside}, UNUSED = {unused};\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_gap_has_two_colours_and_its_place() {
        let (style, script) = (style(), script());
        for row in Gap::ALL.map(Gap::row) {
            assert_eq!(style.matches(&format!("--gap-{}: ", row.name.replace(' ', "-"))).count(), 2, "{style}");
        }
        let unused = script.rsplit("UNUSED = ").next().unwrap();
        for row in Gap::ALL.map(Gap::row) {
            let is_listed = unused.contains(&format!("\"{}\"", row.name));
            assert_eq!(is_listed, row.place == Place::Unused, "{script}");
        }
        assert!(unused.starts_with("[\"stuck\""), "{script}");
        assert!(!style.contains("</") && !script.contains("</"), "nothing ends its element early");
    }
}
