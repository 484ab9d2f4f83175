//! The book: it builds, its links lead somewhere, and the program has what it names.

use crate::{
    helpers::terminal::PROGRAM,
    house::{docs::documents, tidy::root},
};
use gpuwatch::screen::keys;
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Flags of other programs, which the pages name too.
const OF_OTHERS: [&str; 31] = [
    "--batch",
    "--collector",
    "--device",
    "--from",
    "--gpus",
    "--gpus-per-node",
    "--gpuwatch",
    "--gpuwatch-update",
    "--jobid",
    "--lib",
    "--locked",
    "--network",
    "--no-index",
    "--nocapture",
    "--nodes",
    "--now",
    "--nproc-per-node",
    "--nv",
    "--overlap",
    "--path",
    "--pid",
    "--profile",
    "--pty",
    "--purge",
    "--release",
    "--rm",
    "--test",
    "--test-threads",
    "--update",
    "--user",
    "--workspace",
];

/// Single characters that stand for other things, as for causes in the box of hardware.
const NO_KEYS: [&str; 4] = ["_", "!", "B", "H"];

/// The pages that a person writes for users.
fn pages() -> impl Iterator<Item = (PathBuf, String)> {
    let of_builders = ["CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md", "SECURITY.md"];
    documents().into_iter().filter(move |(path, _)| !of_builders.iter().any(|it| path.ends_with(it)))
}

fn help(of: &[&str]) -> String {
    let output = Command::new(PROGRAM).args(of).arg("--help").env_clear().output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn commands(help: &str) -> Vec<&str> {
    let (_, list) = help.split_once("Commands:\n").unwrap();
    let rows = list.lines().take_while(|it| !it.is_empty()).filter(|it| !it.starts_with("   "));
    rows.filter_map(|it| it.split_whitespace().next()).filter(|it| *it != "help").collect()
}

/// Words that begin with two dashes.
fn flags(text: &str) -> BTreeSet<String> {
    let is_part = |it: char| it.is_ascii_lowercase() || it == '-';
    let words = text.split(|it: char| it.is_whitespace() || "`(\"'[".contains(it));
    let flag =
        |word: &str| word.starts_with("--").then(|| word.chars().take_while(|it| is_part(*it)).collect::<String>());
    words.filter_map(flag).filter(|it| it.len() > 4).collect()
}

#[test]
fn every_flag_of_the_pages_exists_and_every_command_has_a_page() {
    let all = help(&[]);
    let mut known = flags(&all);
    for it in commands(&all) {
        known.extend(flags(&help(&[it])));
    }
    let mut written = String::new();
    for (path, text) in pages() {
        for flag in flags(&text) {
            let is_known = known.contains(&flag) || OF_OTHERS.contains(&flag.as_str()) || flag == "--version";
            assert!(is_known, "{}: no program has {flag}", path.display());
        }
        written += &text;
    }
    for it in commands(&all) {
        assert!(written.contains(&format!("gpuwatch {it}")), "no page shows `gpuwatch {it}`");
    }
}

#[test]
fn every_key_of_the_pages_exists() {
    let sheet = keys::markdown();
    let mut seen = 0;
    for (path, text) in pages() {
        for code in text.split("```").step_by(2).flat_map(|it| it.split('`').skip(1).step_by(2)) {
            let is_key = code.len() == 1 && !NO_KEYS.contains(&code);
            assert!(
                !is_key || sheet.contains(&format!("`{code}`")),
                "{}: no screen has the key {code}",
                path.display()
            );
            seen += usize::from(is_key);
        }
    }
    assert!(seen > 20, "{seen}");
}

#[test]
fn every_variable_of_the_pages_is_read_somewhere() {
    let mut code = String::new();
    for folder in ["src", "probes", "tests", "packaging", "build.rs"] {
        let list =
            Command::new("grep").args(["-rhoE", "GPUWATCH_[A-Z0-9_]+"]).arg(root().join(folder)).output().unwrap();
        code += &String::from_utf8(list.stdout).unwrap();
    }
    let read: BTreeSet<&str> = code.lines().collect();
    for (path, text) in pages() {
        for name in text.split("GPUWATCH_").skip(1) {
            let end = name.find(|it: char| !(it.is_ascii_uppercase() || it.is_ascii_digit() || it == '_'));
            let name = format!("GPUWATCH_{}", name.get(..end.unwrap_or(name.len())).unwrap());
            assert!(read.contains(name.as_str()), "{}: nothing reads {name}", path.display());
        }
    }
}

/// Blocks that are neither a theme nor of another program.
#[test]
fn every_configuration_of_the_pages_is_valid() {
    let dir = tempfile::tempdir().unwrap();
    let mut seen = 0;
    for (path, text) in pages() {
        for block in text.split("```toml\n").skip(1).map(|it| it.split("```").next().unwrap()) {
            if block.contains("[palette]") || block.contains("[dependencies]") {
                continue;
            }
            let file = dir.path().join("config.toml");
            fs::write(&file, block).unwrap();
            let mut doctor = Command::new(PROGRAM);
            doctor.args(["doctor", "--json"]).env("GPUWATCH_CONFIG", &file).env("GPUWATCH_NO_NVML", "1");
            let answer: Value = serde_json::from_slice(&doctor.output().unwrap().stdout).unwrap();
            let check = answer["checks"].as_array().unwrap().iter().find(|it| it["name"] == "config").unwrap();
            assert_eq!(check["state"], "ok", "{}: {check}", path.display());
            seen += 1;
        }
    }
    assert!(seen > 0);
}

/// What a reader of the book follows: files and anchors, as they are in the pages that were made.
#[test]
fn the_book_builds_and_each_of_its_links_leads_somewhere() {
    test_tiers::full!("mdBook is downloaded");
    let dir = tempfile::tempdir().unwrap();
    let made = Command::new(root().join("packaging/book")).arg(dir.path()).output().unwrap();
    let printed = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success() && !printed.contains("WARN") && !printed.contains("ERROR"), "{printed}");
    let list = Command::new("find").arg(dir.path()).args(["-name", "*.html"]).output().unwrap();
    let pages: Vec<PathBuf> = String::from_utf8(list.stdout).unwrap().lines().map(PathBuf::from).collect();
    assert!(pages.len() > 30, "{}", pages.len());
    // `print.html` has all of them once more; the page for what is missing may be anywhere.
    for page in
        pages.iter().filter(|it| !it.ends_with("print.html") && !it.ends_with("404.html") && !it.ends_with("toc.html"))
    {
        check_links(page, &fs::read_to_string(page).unwrap());
    }
}

fn check_links(page: &Path, text: &str) {
    let links = ["href=\"", "src=\""].map(|it| text.split(it).skip(1).filter_map(|rest| rest.split('"').next()));
    for link in links.into_iter().flatten().filter(|it| !it.contains(':') && !it.is_empty()) {
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let target = if file.is_empty() { page.to_owned() } else { page.parent().unwrap().join(file) };
        assert!(target.exists(), "{}: {link}", page.display());
        let is_there = |text: &str| text.contains(&format!("id=\"{anchor}\""));
        assert!(anchor.is_empty() || is_there(&fs::read_to_string(&target).unwrap()), "{}: {link}", page.display());
    }
}
