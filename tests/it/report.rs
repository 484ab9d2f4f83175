//! `gpuwatch report` makes one file that says what the recording says, and in which nothing of it becomes markup.

use crate::{
    check::{HEALTHY, SCALARS, lines_of, write},
    pty::PROGRAM,
};
use gpuwatch::event::{
    Line,
    wire::{Mark, Sample},
};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

const NASTY: &str = "</script><img src=x onerror=alert(1)><!-- data --> \u{202e}\u{1b}[31m";

fn report(recording: &Path, output: &Path) -> Output {
    Command::new(PROGRAM)
        .arg("report")
        .arg(recording)
        .arg("-o")
        .arg(output)
        .env("GPUWATCH_CONFIG", "/dev/null")
        .output()
        .unwrap()
}

/// A leak, told by a job that would rather be something else.
fn hostile(dir: &Path) -> PathBuf {
    let path = dir.join("a.jsonl.zst");
    let mut lines = lines_of(SCALARS, |line| {
        if let Line::Hello(it) = line {
            it.argv = vec!["train.py".to_owned(), NASTY.to_owned()];
            it.host = NASTY.into();
            it.framework = Some(NASTY.to_owned());
            it.allocator_conf = Some(NASTY.to_owned());
        }
    });
    let mark = Line::Mark(Mark { seq: None, at_us: 1, name: NASTY.to_owned(), value: Some(1) });
    let mut mark = serde_json::to_value(mark).unwrap();
    mark["from"] = 0.into();
    lines.insert(lines.len() - 1, format!("{mark}\n"));
    write(&path, &lines);
    path
}

/// What stands in the page for its script to read.
fn data(page: &str) -> Value {
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn a_page_says_what_was_found_and_nothing_of_a_job_is_markup() {
    let home = tempfile::tempdir().unwrap();
    let recording = hostile(home.path());
    let (page, json) = (home.path().join("a.html"), home.path().join("a.json"));
    for output in [&page, &json] {
        assert!(report(&recording, output).status.success());
    }
    let page = fs::read_to_string(page).unwrap();
    let whole: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(data(&page), whole, "the page has all of it");
    assert_eq!(page.matches("<script").count(), 2);
    assert!(!page.contains("<img") && page.contains("\\u003cimg"), "what is text stays text");
    assert!(!page.chars().any(|it| it.is_control() && it != '\n') && !page.contains('\u{202e}'));
    assert!(
        !page.contains("http://")
            || page.matches("http://").count() == page.matches("http://www.w3.org/2000/svg").count()
    );
    assert!(!page.contains("https://"), "nothing is fetched");

    assert_eq!((&whole["schema"], &whole["run"]["schema"]), (&Value::from(1), &Value::from(1)));
    assert_eq!(whole["run"]["findings"][0]["cause"], "scalars-retained");
    assert_eq!(whole["moments"][0]["kind"], "mark");
    let environment = whole["environment"][0].as_object().unwrap();
    assert!(environment.keys().all(|it| !["argv", "cwd", "host"].contains(&it.as_str())), "an allow-list");
}

#[test]
fn the_timeline_has_the_run_in_few_points_and_its_peak() {
    let home = tempfile::tempdir().unwrap();
    let (recording, json) = (home.path().join("a.jsonl.zst"), home.path().join("a.json"));
    let lines = lines_of(HEALTHY, |_| ());
    let said = lines.iter().filter_map(|it| serde_json::from_str(it).ok());
    let samples: Vec<Sample> = said.filter_map(|it| if let Line::Sample(it) = it { Some(it) } else { None }).collect();
    write(&recording, &lines);
    assert!(report(&recording, &json).status.success());
    let whole: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let [device] = whole["timeline"].as_array().unwrap().as_slice() else { panic!("one device: {whole}") };
    assert_eq!(device["columns"], serde_json::json!(["at_us", "step", "allocated", "reserved", "stuck", "used"]));
    let points = device["points"].as_array().unwrap();
    assert!((10..=2000).contains(&points.len()), "{}", points.len());
    let most = |place: usize| points.iter().filter_map(|it| it[place].as_u64()).max();
    assert_eq!(most(1), samples.iter().filter_map(|it| it.step).max());
    assert_eq!(most(2), samples.iter().filter_map(|it| it.counters.allocated).max());
    assert_eq!(most(5), None, "no driver, and not 0");

    let again = report(&recording, &json);
    assert_eq!(again.status.code(), Some(1), "a file that is there stays as it is");
    assert!(String::from_utf8_lossy(&again.stderr).contains("cannot make"), "{again:?}");
}

/// Only where there is one: a browser is too much to fetch for one test.
#[test]
fn a_browser_draws_the_page_and_runs_nothing_of_the_job() {
    let Ok(version) = Command::new("chromium").arg("--version").output() else {
        println!("there is no chromium here: the page was not drawn");
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let page = home.path().join("a.html");
    assert!(report(&hostile(home.path()), &page).status.success());
    let mut browser = Command::new("chromium");
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000", "--dump-dom"]);
    browser.arg(format!("--user-data-dir={}", home.path().join("browser").display()));
    let output = browser.arg(format!("file://{}", page.display())).output().unwrap();
    let dom = String::from_utf8_lossy(&output.stdout);
    assert!(dom.matches("<polygon").count() == 3 && dom.contains("scalars-retained"), "{version:?} {output:?}");
    let body = dom.split_once("<main>").unwrap().1.split_once("</main>").unwrap().0;
    assert!(body.contains("&lt;/script&gt;&lt;img") && !body.contains("<img") && !body.contains("<script"), "{body}");
}
