//! `gpuwatch report` writes one file with the contents of the recording, in which none of its text becomes markup.

use crate::{
    commands::check::{HEALTHY, SCALARS, lines_of, write},
    helpers::{
        browser::{self, Browser},
        terminal::PROGRAM,
    },
    house::schemas,
};
use gpuwatch::facts::event::{
    Line,
    wire::{Mark, Sample},
};
use serde_json::{Value, json};
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

/// A leak in a job whose texts try to break the page.
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

/// The data in the page for its script.
fn data(page: &str) -> Value {
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn a_page_shows_the_findings_and_escapes_text_of_the_job() {
    let home = tempfile::tempdir().unwrap();
    let recording = hostile(home.path());
    let (page, json) = (home.path().join("a.html"), home.path().join("a.json"));
    for output in [&page, &json] {
        assert!(report(&recording, output).status.success());
    }
    let page = fs::read_to_string(page).unwrap();
    let whole: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    schemas::check("report", &whole);
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
    assert!(environment.contains_key("framework"), "{environment:?}");
    assert!(environment.keys().all(|it| !["argv", "cwd", "host"].contains(&it.as_str())), "an allow-list");
}

#[test]
fn a_page_shows_the_peak_of_a_step_and_a_saved_answer_of_fit() {
    let dir = tempfile::tempdir().unwrap();
    let (answer, page) = (dir.path().join("fit.json"), dir.path().join("fit.html"));
    let peak = json!({
        "allocated": 900, "reserved": 1000, "wanted": 1000, "device": 2000, "line": "train.py:9",
        "parts": {"weights": 300, "activations": 600},
        "lines": [{"line": NASTY, "function": NASTY, "parts": {"activations": 600}}],
    });
    let device = json!({"name": "L4", "total": 4000, "fits": "yes", "peak": {"device": 2000}});
    let saved = json!({"schema": 1, "fits": "yes", "devices": [device], "peak": peak, "torch": "2.15.0"});
    fs::write(&answer, saved.to_string()).unwrap();
    assert!(report(&answer, &page).status.success());
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.contains("66.7 %") && text.contains("class=\"bar icicle\""), "{text}");
    assert!(!text.contains("<img") && !text.contains('\u{202e}') && !text.contains('\u{1b}'), "{text}");
    // What is JSON already is not made into JSON, and what is no answer is no page.
    assert_eq!(report(&answer, &dir.path().join("fit2.json")).status.code(), Some(1));
    fs::write(&answer, "{\"schema\": 1}").unwrap();
    assert!(!report(&answer, &dir.path().join("other.html")).status.success());
}

#[test]
fn the_timeline_has_the_run_in_few_points_and_its_peak() {
    let home = tempfile::tempdir().unwrap();
    let (recording, json) = (home.path().join("a.jsonl.zst"), home.path().join("a.json"));
    let lines = lines_of(HEALTHY, |_| ());
    let printed = lines.iter().filter_map(|it| serde_json::from_str(it).ok());
    let samples: Vec<Sample> =
        printed.filter_map(|it| if let Line::Sample(it) = it { Some(it) } else { None }).collect();
    write(&recording, &lines);
    assert!(report(&recording, &json).status.success());
    let whole: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let [device] = whole["timeline"].as_array().unwrap().as_slice() else { panic!("one device: {whole}") };
    let columns: Vec<_> = device["columns"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    assert_eq!(columns[..6], ["at_us", "step", "allocated", "reserved", "stuck", "used"]);
    assert!(columns[8..].starts_with(&["gap wanted", "gap rounding"]), "{columns:?}");
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

/// A page of a recording, in a browser.
fn open(recording: &Path, home: &Path, width: u32, dark: bool) -> Result<Browser, String> {
    let page = home.join("a.html");
    assert!(report(recording, &page).status.success());
    browser::found().map(|it| Browser::open(it, &page, width, dark))
}

/// One with a driver, marks, three out-of-memory errors and growth.
fn eventful() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/format-1.jsonl.zst")
}

#[test]
fn a_browser_draws_the_page_and_runs_nothing_of_the_job() {
    test_tiers::full!("a browser draws the page");
    let home = tempfile::tempdir().unwrap();
    let mut page = test_tiers::needs!(open(&hostile(home.path()), home.path(), 1400, false));
    assert_eq!(page.troubles(), [""; 0], "the page fetches, logs, asks and throws nothing");
    assert_eq!(
        page.value("document.querySelectorAll('img, iframe, object, embed, link, a, form, audio, video').length"),
        0
    );
    assert_eq!(page.value("document.querySelectorAll('script').length"), 2);
    let handlers = "[...document.querySelectorAll('*')].filter(it => [...it.attributes].some(it => it.name.startsWith('on'))).length";
    assert_eq!(page.value(handlers), 0);
    let page_text = page.text("document.querySelector('main').innerText");
    assert!(
        page_text.contains("</script><img src=x onerror=alert(1)>") && page_text.contains("scalars"),
        "{page_text}"
    );
    assert!(
        !page_text.contains('\u{202e}') && !page_text.contains('\u{1b}') && page_text.contains("\\u{202e}"),
        "{page_text}"
    );
    // Should anything ever try: no text becomes markup, and nothing is fetched.
    let markup = "(() => { try { document.body.innerHTML = '<img src=x onerror=alert(1)>'; return 'done'; } catch (e) { return e.name; } })()";
    assert_eq!(page.text(markup), "TypeError");
    let fetched = page.ask(
        "Runtime.evaluate",
        &json!({"expression": "fetch('https://example.org').then(() => 'fetched', () => 'refused')", "awaitPromise": true}),
    );
    assert_eq!(fetched["result"]["value"], "refused");
}

#[test]
fn a_page_covers_the_whole_run() {
    test_tiers::full!("a browser draws the page");
    let home = tempfile::tempdir().unwrap();
    let mut page = test_tiers::needs!(open(&eventful(), home.path(), 1400, true));
    page.picture("eventful-dark-wide");
    let gaps = page.text("[...document.querySelectorAll('#chart [data-gap]')].map(it => it.dataset.gap).join()");
    assert_eq!(gaps, "wanted,rounding,stuck,non-torch,reserve,unattributed");
    // The bands lie on each other: each begins where the one below it ends.
    let stacked = "(() => { const bands = [...document.querySelectorAll('#chart [data-gap]')].map(it => it.getAttribute('points').split(' ')); \
                   return bands.slice(1).every((band, n) => band.slice(band.length / 2).reverse().join() === bands[n].slice(0, band.length / 2).join()); })()";
    assert_eq!(page.value(stacked), true);
    for (what, selector, count) in [
        ("what is stuck and what is not in use", "#fragmentation [data-gap]", 2),
        ("alerts on the timeline", "#chart [data-alert]", 4),
        ("growth with its line", "#growth svg polyline[data-fit]", 1),
        ("the line on the timeline", "#chart line[data-fit]", 1),
        ("findings in words", ".finding p", 11),
        ("the account of each error", "#ooms li", 10),
    ] {
        let found = page.value(&format!("document.querySelectorAll({selector:?}).length"));
        assert_eq!(found, count, "{what}: {selector}");
    }
    let page_text = page.text("document.querySelector('main').innerText");
    for reported in [
        "2 critical, 2 warnings: out of memory at step 180",
        "16.00 TiB is more than the device has",
        "+1.00 MiB/step",
        "tensors are kept alive",
        "16.00 TiB was asked for",
        "driver 595.00.sim",
        "epoch 1",
        "torch 2.15.0",
    ] {
        assert!(page_text.contains(reported), "{reported}: {page_text}");
    }
    page.click("#ooms summary");
    page.until("document.querySelector('#ooms details').open");
    assert!(page.text("document.querySelector('#ooms table').innerText").contains("1.00 MiB\t60\t60.00 MiB"));
    page.click("#rows summary");
    page.until("document.querySelector('#rows tbody tr')");
    let rows = page.value("document.querySelectorAll('#rows tbody tr').length");
    assert!(rows.as_u64().is_some_and(|it| (90..=200).contains(&it)), "{rows}");
    assert_eq!(page.troubles(), [""; 0]);
}

/// Whether the timeline shows the whole run, or a part of it.
const WHOLE: &str = "at('chart').dataset.view === '1 180'";
const PART: &str = "at('chart').dataset.view !== '1 180'";

fn cursor_at(step: &str) -> String {
    format!("at('cursor').textContent.startsWith('{step}')")
}

#[test]
fn the_timeline_is_zoomed_by_pointer_wheel_and_keys() {
    test_tiers::full!("a browser draws the page");
    let home = tempfile::tempdir().unwrap();
    let mut page = test_tiers::needs!(open(&eventful(), home.path(), 1000, false));
    let view = |page: &mut Browser| {
        let text = page.text("document.getElementById('chart').dataset.view");
        let (from, to) = text.split_once(' ').unwrap();
        (from.parse::<f64>().unwrap(), to.parse::<f64>().unwrap())
    };
    assert_eq!(view(&mut page), (1.0, 180.0));
    let [x, y, half, _] = page.place("#chart");
    page.pointer("mouseMoved", [x, y], false, 0.0);
    page.until(&cursor_at("step "));
    let reported = page.text("document.getElementById('cursor').textContent");
    let figures: Vec<_> = reported.split("   ").collect();
    let step: u64 = figures[0].strip_prefix("step ").unwrap().parse().unwrap();
    assert!((80..95).contains(&step), "{reported}");
    // The job of this recording keeps one more MiB each step.
    assert!(figures[2].starts_with(&format!("allocated {}.", step + 1)), "{reported}");
    assert_eq!(figures.len(), 6, "{reported}");
    assert_eq!(page.text("document.getElementById('chart').getAttribute('aria-valuetext')"), reported);
    let ladder = page.text("document.querySelector('#ladder tbody').innerText");
    assert!(ladder.contains(&format!("wanted\t{}.", step + 1)), "{ladder}");

    page.pointer("mousePressed", [x - half / 2.0, y], true, 0.0);
    page.pointer("mouseMoved", [x, y], true, 0.0);
    page.pointer("mouseReleased", [x, y], false, 0.0);
    page.until(PART);
    let dragged = view(&mut page);
    assert!(dragged.0 > 30.0 && dragged.1 < 100.0, "{dragged:?}");
    page.click("#reset");
    page.until(WHOLE);

    // Without a click before, the wheel is the page's.
    page.value("document.activeElement.blur()");
    let [x, y, ..] = page.place("#chart");
    page.pointer("mouseWheel", [x, y], false, -240.0);
    page.until(WHOLE);
    page.click("#chart");
    let [x, y, ..] = page.place("#chart");
    page.pointer("mouseWheel", [x, y], false, -240.0);
    page.until(PART);
    let turned = view(&mut page);
    assert!(turned.0 > 1.0 && turned.1 < 180.0, "{turned:?}");
    page.key("Escape");
    page.until(WHOLE);

    page.key("ArrowLeft");
    page.until(&cursor_at("step 180 "));
    page.key("Home");
    page.until(&cursor_at("step 1 "));
    page.key("+");
    page.until(PART);
    let near = view(&mut page);
    assert!(near.1 - near.0 < 100.0 && near.0 < 2.0, "{near:?}");
    page.key("PageDown");
    page.until(&format!("Number(at('chart').dataset.view.split(' ')[0]) > {}", near.0));
    page.key("0");
    page.until(WHOLE);

    page.click(".finding:nth-of-type(1) button");
    page.until(PART);
    let shown = view(&mut page);
    assert!(shown.1 - shown.0 < 20.0 && shown.1 >= 180.0, "the error at the end: {shown:?}");
    page.value("document.getElementById('axis').value = 'time'; document.getElementById('axis').dispatchEvent(new Event('change'))");
    assert!(view(&mut page).1 < 13.0, "seconds");
    assert_eq!(page.troubles(), [""; 0]);
}

/// Every element with text of its own, its colour against what lies behind it (WCAG 2.2, 1.4.3): those below 4.5.
const FAINT: &str = r"(() => {
    const channel = it => (it /= 255) <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4;
    const parts = colour => colour.match(/[\d.]+/g).map(Number);
    const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
    const behind = it => { for (; it; it = it.parentElement) { const back = parts(getComputedStyle(it).backgroundColor); if (back.length < 4 || back[3] > 0) return back; } return parts(getComputedStyle(document.body).backgroundColor); };
    return [...document.querySelectorAll('main *')].filter(it => it.checkVisibility() && [...it.childNodes].some(it => it.nodeType === 3 && it.data.trim()) && it.tagName !== 'title' && it.tagName !== 'OPTION').map(it => {
        const style = getComputedStyle(it), front = parts(it instanceof SVGElement ? style.fill : style.color);
        const [a, b] = [light(front), light(behind(it))].sort((a, b) => b - a);
        return [it.tagName + '.' + it.className + ': ' + it.textContent.slice(0, 30), (a + 0.05) / (b + 0.05)];
    }).filter(([, ratio]) => ratio < 4.5).map(([what, ratio]) => what + ' ' + ratio.toFixed(2)).join('; ');
})()";

#[test]
fn the_page_can_be_read_on_any_window_in_any_light_and_by_any_means() {
    test_tiers::full!("a browser draws the page");
    let home = tempfile::tempdir().unwrap();
    let mut page = test_tiers::needs!(open(&eventful(), home.path(), 1400, false));
    let mut papers = Vec::new();
    for (width, dark) in [(1400, false), (1400, true), (380, false), (380, true)] {
        page.resize(width, dark);
        let overflow = page.value("document.documentElement.scrollWidth - innerWidth");
        assert_eq!(overflow, 0, "at {width} pixels");
        assert_eq!(page.text(FAINT), "", "at {width} pixels, dark: {dark}");
        papers.push(page.text("getComputedStyle(document.body).backgroundColor"));
        page.picture(&format!("eventful-{}-{width}", if dark { "dark" } else { "light" }));
    }
    assert_ne!(papers[0], papers[1], "light and dark");
    page.media(&json!({"media": "print", "features": [{"name": "prefers-color-scheme", "value": "dark"}]}));
    assert_eq!(page.text("getComputedStyle(document.querySelector('.controls')).display"), "none");
    assert_eq!(
        page.text("getComputedStyle(document.documentElement).getPropertyValue('--paper')"),
        "#fbfbf9",
        "ink on paper"
    );
    page.resize(1400, false);
    let moves = "[...document.querySelectorAll('*')].filter(it => { const style = getComputedStyle(it); return style.animationName !== 'none' || parseFloat(style.transitionDuration) > 0; }).length";
    assert_eq!(page.value(moves), 0, "nothing moves by itself");

    let unnamed = "[...document.querySelectorAll('svg:not([aria-hidden]), button, select, [tabindex]')].filter(it => !(it.getAttribute('aria-label') || it.getAttribute('aria-labelledby') || it.closest('label') || it.textContent.trim())).length";
    assert_eq!(page.value(unnamed), 0, "everything has a name");
    let broken = "[...document.querySelectorAll('[aria-labelledby], [aria-describedby]')].flatMap(it => ((it.getAttribute('aria-labelledby') || '') + ' ' + (it.getAttribute('aria-describedby') || '')).trim().split(/\\s+/)).filter(it => !document.getElementById(it)).join()";
    assert_eq!(page.text(broken), "");
    // Every control is reached with Tab, in the order of the page.
    let mut reached = Vec::new();
    page.value("document.activeElement.blur()");
    for _ in 0..40 {
        page.key("Tab");
        reached.push(page.text("document.activeElement.id || document.activeElement.tagName"));
    }
    let places: Vec<_> =
        ["axis", "scale", "in", "out", "chart"].iter().map(|id| reached.iter().position(|it| it == id)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{reached:?}");
    assert_eq!(page.troubles(), [""; 0]);
}
