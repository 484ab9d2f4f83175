//! The past of a rank: what a real Prometheus makes of it, and what is too long for one.

use super::{answer, scraping, serve};
use crate::{
    helpers::terminal::{PATIENCE, until},
    serve::{fleet::free_port, prometheus, promtool},
};
use gpuwatch::{
    hosts::prometheus::{Key, Question, Store, history},
    model::cluster::{History, Past, overview::figure::RankFigure},
};
use std::{fmt::Write, fs, path::Path};

/// The end of the past, in seconds of Unix time.
const END: u64 = 1_700_006_400;

/// Seconds between two samples, and between two points of a day.
const SCRAPE: u64 = 60;
const STEP: u64 = 360;

/// Asks for a past until [`END`].
fn past(store: &Store, figure: RankFigure, seconds: u64) -> anyhow::Result<History> {
    let rank =
        Key { instance: "a:1".into(), device: "GPU-0".into(), rank: "0".into(), run: "r".into(), ..Key::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(history(store, &Question { rank, figure, seconds, points: Past::POINTS }, END))
}

/// Writes the samples of an hour. Between two points, rank 0 and its device are at their worst for one sample, and the
/// rank is behind the others for four.
fn write(file: &Path) {
    let is_bad = |second: u64, samples: u64| (END - 600..END - 600 + samples * SCRAPE).contains(&second);
    let device = "instance=\"a:1\",gpu_uuid=\"GPU-0\"";
    let rank = |number: u64| format!("instance=\"a:1\",gpu_uuid=\"GPU-{number}\",rank=\"{number}\",run=\"r\"");
    let mut text = String::new();
    let mut add = |name: &str, labels: &str, value: &dyn Fn(u64) -> f64| {
        for second in (0..=60).map(|sample| END - 3600 + sample * SCRAPE) {
            writeln!(text, "gpuwatch_{name}{{{labels}}} {} {second}", value(second)).unwrap();
        }
    };
    add("device_memory_total_bytes", device, &|_| 80e9);
    add("device_memory_used_bytes", device, &|it| if is_bad(it, 1) { 76e9 } else { 40e9 });
    add("device_utilisation_ratio", device, &|it| if is_bad(it, 1) { 0.0 } else { 0.97 });
    add("allocated_bytes", &rank(0), &|it| if is_bad(it, 1) { 70e9 } else { 30e9 });
    add("reserved_bytes", &rank(0), &|_| 80e9);
    add("unused_bytes", &rank(0), &|it| if is_bad(it, 1) { 60e9 } else { 20e9 });
    for number in 0..3 {
        let behind = |it| if number == 0 && is_bad(it, 4) { 50 } else { 0 };
        add("step", &rank(number), &|it| (it + 3600 - END - behind(it)) as f64);
        add("process_up", &rank(number), &|_| 1.0);
    }
    fs::write(file, text + "# EOF\n").unwrap();
}

#[test]
fn the_worst_value_between_two_points_is_in_a_past() {
    test_tiers::full!("a Prometheus");
    let programs = test_tiers::needs!(prometheus());
    let folder = tempfile::tempdir().unwrap();
    let (file, data) = (folder.path().join("samples"), folder.path().join("data"));
    write(&file);
    let blocks = ["tsdb", "create-blocks-from", "openmetrics", file.to_str().unwrap(), data.to_str().unwrap()];
    promtool(&programs, &blocks, "");
    let nothing = format!("127.0.0.1:{}", free_port()).parse().unwrap();
    let (_store, url) = scraping(&programs, folder.path(), nothing);
    let store: Store = url.parse().unwrap();
    let day = |figure| past(&store, figure, 86_400);
    assert!(
        until(PATIENCE, || day(RankFigure::Allocated).is_ok_and(|it| !it.is_empty())),
        "{:?}",
        day(RankFigure::Full)
    );
    for (figure, usual, worst) in [
        (RankFigure::Device, 0.5, 0.95),
        (RankFigure::Allocated, 30e9, 70e9),
        (RankFigure::Unused, 0.25, 0.75),
        (RankFigure::Utilisation, 0.97, 0.0),
        (RankFigure::Behind, 0.0, 50.0),
    ] {
        let points = [END - 2 * STEP, END - STEP, END].map(|it| it * 1_000_000).into_iter().zip([usual, worst, usual]);
        let last = day(figure).unwrap();
        assert_eq!(last[last.len() - 3..], points.collect::<History>(), "{figure:?}: {last:?}");
        // A point for each three seconds, also where a sample is each minute.
        assert_eq!(past(&store, figure, 900).unwrap().len(), 300, "{figure:?}");
    }
}

#[test]
fn a_past_is_bounded() {
    let answer = answer("200 OK", &" ".repeat(5 << 20));
    let url = serve(move |_| answer.clone());
    let why = past(&url.parse().unwrap(), RankFigure::Allocated, 3600).unwrap_err().to_string();
    assert_eq!(why, format!("{url} answers more than 4 MiB"));
}
