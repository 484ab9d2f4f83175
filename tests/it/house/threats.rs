//! The threat model in SECURITY.md names tests that exist.

use crate::house::tidy::{root, texts};
use std::{collections::BTreeSet, fs};

#[test]
fn every_line_of_the_threat_model_names_tests_that_exist() {
    let page = fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let sources: Vec<String> = ["tests/it", "src", "probes/gpuwatch-probe"]
        .into_iter()
        .flat_map(|folder| texts(&root().join(folder)))
        .map(|(_, text)| text)
        .collect();
    let tests: BTreeSet<&str> = sources
        .iter()
        .flat_map(|text| text.split("#[test]\n").skip(1))
        .filter_map(|test| test.split("fn ").nth(1)?.split("()").next())
        .collect();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| ") && !line.ends_with("| test |")).collect();
    assert!(rows.len() > 15, "{rows:?}");
    for row in rows {
        let last = row.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
        let named: Vec<&str> = last.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "{row} names no test");
        for name in named {
            assert!(tests.contains(name), "{name} is no test");
        }
    }
}
