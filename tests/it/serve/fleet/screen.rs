//! `gpuwatch --prometheus` in a terminal, on a store whose answers the test changes.

use super::store::answer;
use crate::{
    helpers::{
        story::text,
        terminal::{PATIENCE, PROGRAM, Terminal, until},
    },
    probe::launch::Home,
};
use gpuwatch::{
    hosts::prometheus,
    model::cluster::{Answers, overview::figure::RankFigure},
    screen::{
        theme::Theme,
        ui::{Ui, cluster_ui::ClusterUi},
        view::cluster::paint_store,
    },
};
use ratatui::{buffer::Buffer, layout::Rect};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    process::Command,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

/// A title for the terminal's window.
const TITLE: &str = "\u{1b}]0;owned\u{7}";

/// A store with `ranks` ranks, four on each machine.
#[derive(Clone)]
struct Fleet {
    ranks: usize,
    /// The rank that grows.
    worst: usize,
    /// What it has allocated on another device, too.
    elsewhere: Option<f64>,
    /// The answer to every question, instead of figures.
    refusal: Option<String>,
}

struct Store {
    url: String,
    fleet: Arc<Mutex<Fleet>>,
}

impl Fleet {
    fn device(rank: usize) -> [(&'static str, String); 2] {
        [("instance", format!("10.0.0.{}:9477", rank / 4)), ("gpu_uuid", format!("GPU-{rank:04}"))]
    }

    fn series(name: &str, labels: &[(&str, String)], value: f64) -> Value {
        let name = ("__name__", format!("gpuwatch_{name}"));
        let metric: serde_json::Map<String, Value> =
            labels.iter().chain([&name]).map(|(label, it)| ((*label).to_owned(), it.clone().into())).collect();
        json!({"metric": metric, "value": [1_700_000_000.5, value.to_string()]})
    }

    fn of_devices(&self) -> Vec<Value> {
        let series = |rank| {
            let labels = Self::device(rank);
            let total = Self::series("device_memory_total_bytes", &labels, 80e9);
            let used = Self::series("device_memory_used_bytes", &labels, 60e9);
            let busy = Self::series("device_utilisation_ratio", &labels, 0.97);
            [total, used, busy, Self::series("device_temperature_celsius", &labels, 61.0)]
        };
        (0..self.ranks).flat_map(series).collect()
    }

    fn of_ranks(&self) -> Vec<Value> {
        let series = |rank: usize| {
            let own = [("rank", rank.to_string()), ("run", "a".to_owned())];
            let labels = [&Self::device(rank)[..], &own].concat();
            let host = ("host", format!("node{}{}", rank / 4, if rank < 4 { TITLE } else { "" }));
            let info = [&labels[..], &[host, ("pid", "7".to_owned())]].concat();
            let allocated = if rank == self.worst { 55e9 } else { 40e9 };
            let mut all = vec![
                Self::series("process_info", &info, 1.0),
                Self::series("process_up", &labels, 1.0),
                Self::series("allocated_bytes", &labels, allocated),
                Self::series("reserved_bytes", &labels, 58e9),
                Self::series("unused_bytes", &labels, 3e9),
                Self::series("step", &labels, 1000.0),
                Self::series("step_seconds", &labels, 0.25),
            ];
            if rank == self.worst {
                let alert = [("kind", "growth"), ("cause", "graph-retained"), ("severity", "critical")];
                let alert = alert.map(|(label, it)| (label, it.to_owned()));
                all.push(Self::series("alert", &[&labels[..], &alert].concat(), 1.0));
            }
            if let Some(bytes) = self.elsewhere.filter(|_| rank == self.worst) {
                let there = |labels: &[(&'static str, String)]| {
                    let there = labels.iter().map(|(name, it)| (*name, it.replace("GPU-", "GPU-of-")));
                    there.collect::<Vec<_>>()
                };
                all.push(Self::series("process_info", &there(&info), 1.0));
                all.push(Self::series("allocated_bytes", &there(&labels), bytes));
            }
            all
        };
        (0..self.ranks).flat_map(series).collect()
    }

    fn answer(&self, question: &str) -> String {
        if let Some(it) = &self.refusal {
            return it.clone();
        }
        let result = if question.contains("query_range") {
            // It ends a minute before now, in any unit.
            let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() as f64 - 60.0;
            let points: Vec<_> = (0..60).map(|it| (now - f64::from(it) * 15.0, "42949672960")).collect();
            vec![json!({"metric": {}, "values": points})]
        } else if question.contains("device_memory") {
            self.of_devices()
        } else {
            self.of_ranks()
        };
        answer("200 OK", &json!({"status": "success", "data": {"resultType": "any", "result": result}}).to_string())
    }
}

impl Store {
    fn start(ranks: usize, worst: usize) -> Self {
        let fleet = Arc::new(Mutex::new(Fleet { ranks, worst, elsewhere: None, refusal: None }));
        let shared = Arc::clone(&fleet);
        Self { url: serve(move |question| shared.lock().unwrap().answer(question)), fleet }
    }

    fn change(&self, change: impl FnOnce(&mut Fleet)) {
        change(&mut self.fleet.lock().unwrap());
    }

    fn watch(&self) -> Terminal {
        Terminal::start(&["--prometheus", &self.url, "--prometheus-interval", "100ms"], &[])
    }

    fn gpuwatch(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(["--prometheus", &self.url]).args(arguments).envs(Home::new().variables());
        command.env_remove("GPUWATCH_PROMETHEUS_TOKEN");
        command
    }
}

/// Answers each question, which is a request's head and body, and returns the address.
pub(super) fn serve(answer: impl Fn(&str) -> String + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut question, mut length) = (String::new(), 0);
            while reader.read_line(&mut question).is_ok_and(|it| it > 2) {
                let line = question.lines().last().unwrap_or_default().to_lowercase();
                length = line.strip_prefix("content-length: ").map_or(length, |it| it.parse().unwrap());
            }
            let _ = reader.take(length).read_to_string(&mut question);
            let _ = stream.write_all(answer(&question).as_bytes());
        }
    });
    url
}

#[test]
fn each_answer_brings_the_worst_rank_to_the_top_and_enter_shows_its_history() {
    let store = Store::start(12, 5);
    let mut terminal = store.watch();
    for phrase in [&store.url, " old", "3 machines", "1 needs attention", "critical: growth (graph-retained)"] {
        terminal.shows(phrase);
    }
    terminal.press("m");
    terminal.shows("rank 5 on node1, pid 7, run a");
    store.change(|it| it.worst = 9);
    terminal.shows("rank 9 on node2");
    terminal.press("\r");
    terminal.shows("device, the last hour: rank 9 on node2");
    terminal.press(">");
    terminal.shows("allocated, the last hour: rank 9 on node2");
    terminal.shows("─ 40.00 GiB ─");
    terminal.shows("60 min earlier");
    terminal.press("+");
    terminal.shows("allocated, the last 15 minutes");
    // The history stays on its rank while another one becomes the worst.
    store.change(|it| it.worst = 2);
    assert!(until(PATIENCE, || !terminal.text().contains("growth (graph-retained)")), "{}", terminal.text());
    terminal.shows("rank 9 on node2, pid 7, run a");
    terminal.press("K");
    terminal.shows("K: needs more than figures");
    terminal.press("<<<<");
    terminal.shows("behind, the last 15 minutes");
    terminal.press("\x1b");
    terminal.shows("ranks by behind");
    terminal.shows("rank 9 on node2");
    terminal.press("m");
    terminal.shows("node0\\u{1b}]0;owned");
    terminal.press("\r");
    terminal.shows("behind, the last 15 minutes: rank 2 on node0");
    terminal.press("q");
    assert_eq!(terminal.ends(PATIENCE), 0);
    let bytes = terminal.bytes();
    assert!(!bytes.windows(TITLE.len()).any(|it| it == TITLE.as_bytes()));
}

#[test]
fn a_rank_stays_selected_when_it_has_most_on_another_of_its_devices() {
    let store = Store::start(4, 1);
    store.change(|it| it.elsewhere = Some(1e9));
    let mut terminal = store.watch();
    terminal.press("m");
    terminal.shows("rank 1 on node0");
    terminal.press("\r");
    terminal.shows("device, the last hour: rank 1 on node0");
    terminal.shows("allocated 51.22 GiB");
    store.change(|it| it.elsewhere = Some(70e9));
    terminal.shows("allocated 65.19 GiB");
    terminal.shows("device, the last hour: rank 1 on node0");
    store.change(|it| it.elsewhere = None);
    terminal.shows("allocated 51.22 GiB");
    terminal.shows("device, the last hour: rank 1 on node0");
    terminal.press("q");
    assert_eq!(terminal.ends(PATIENCE), 0);
}

#[test]
fn a_frozen_screen_has_the_age_of_the_figures_that_it_shows() {
    let store = Store::start(4, 1);
    let mut terminal = store.watch();
    terminal.shows("0 s old");
    terminal.press("f");
    terminal.shows("FROZEN");
    // The store answers ten times a second.
    terminal.shows("3 s old");
    terminal.press("f");
    terminal.shows("0 s old");
    terminal.press("q");
    assert_eq!(terminal.ends(PATIENCE), 0);
}

#[test]
fn a_store_that_fails_keeps_its_rows_and_recovers() {
    let store = Store::start(4, 1);
    let cut = format!("{}{{\"status\":", answer("200 OK", "").replace("Length: 0", "Length: 999"));
    let failures = [
        (answer("503 Service Unavailable", "<html>"), "answers 503 Service Unavailable"),
        (answer("401 Unauthorized", ""), "it wants a token, see --prometheus-token"),
        (answer("200 OK", "<html>"), "is not one of Prometheus's API"),
        (answer("200 OK", &format!("<{TITLE}>")), "is not one of Prometheus's API"),
        (answer("200 OK", &"[".repeat(100_000)), "is not one of Prometheus's API"),
        (cut, "breaks off"),
        (String::new(), "does not answer"),
    ];
    store.change(|it| it.refusal = Some(failures[0].0.clone()));
    let mut terminal = store.watch();
    terminal.shows("no answer yet");
    terminal.shows("gpuwatch asks again");
    for (refusal, words) in failures {
        store.change(|it| it.refusal = Some(refusal));
        terminal.shows(words);
        store.change(|it| it.refusal = None);
        assert!(until(PATIENCE, || !terminal.text().contains(words)), "{}", terminal.text());
        terminal.shows("growth (graph-retained)");
    }
    // Without an answer, the past has the reason, and the rows stay.
    store.change(|it| it.refusal = Some(answer("503 Service Unavailable", "")));
    terminal.shows("answers 503");
    terminal.press("\r");
    terminal.shows("device, the last hour: rank 1 on");
    assert!(until(PATIENCE, || terminal.text().matches("answers 503").count() == 2), "{}", terminal.text());
    terminal.press("\x1b");
    terminal.shows("growth (graph-retained)");
    store.change(|it| (it.refusal, it.ranks) = (None, 0));
    terminal.shows("has no figures of `gpuwatch serve` with these labels");
    terminal.press("q");
    assert_eq!(terminal.ends(PATIENCE), 0);
    assert!(!terminal.bytes().windows(TITLE.len()).any(|it| it == TITLE.as_bytes()));
}

#[test]
fn a_store_that_does_not_answer_delays_no_key_and_not_the_end() {
    // It takes connections and reads nothing.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut terminal = Terminal::start(&["--prometheus", &url], &[]);
    terminal.shows(&format!("asking {url}"));
    terminal.press("?");
    terminal.shows("the history of a rank");
    terminal.press("?\r");
    terminal.shows("nothing is selected that could be opened");
    terminal.press("q");
    assert_eq!(terminal.ends(PATIENCE), 0);
}

#[test]
fn without_a_terminal_the_ranks_are_text_or_a_picture() {
    let store = Store::start(8, 6);
    let output = store.gpuwatch(&[]).output().unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && errors.contains("the same as `gpuwatch once`"), "{errors}");
    assert!(text.starts_with(&format!("{}: 8 ranks on 2 machines\n", store.url)), "{text}");
    let svg = store.gpuwatch(&["--screenshot", "-", "--screen", "ranks"]).output().unwrap();
    let svg = String::from_utf8_lossy(&svg.stdout).into_owned();
    assert!(svg.contains("rank 6 on node1") && svg.contains(&store.url), "{svg}");
    store.change(|it| it.refusal = Some(answer("503 Service Unavailable", "")));
    let output = store.gpuwatch(&["--screenshot", "-"]).output().unwrap();
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    for wrong in [&["--hosts", "a"][..], &["--slurm", "1"], &["--push"], &["--transport", "x {}"]] {
        assert_eq!(store.gpuwatch(wrong).output().unwrap().status.code(), Some(2), "{wrong:?}");
    }
    // Flags before a subcommand are its own: it asks the same store, which refuses.
    let once = store.gpuwatch(&["once"]).output().unwrap();
    assert!(once.status.code() == Some(1) && String::from_utf8_lossy(&once.stderr).contains("503"), "{once:?}");
    for alone in [["--match", "a=b"], ["--prometheus-interval", "1s"], ["--prometheus-token", "x"]] {
        assert_eq!(Command::new(PROGRAM).args(alone).output().unwrap().status.code(), Some(2), "{alone:?}");
    }
}

/// `GPUWATCH_BENCHMARK=full cargo test --profile dist --test it fleet::screen::benchmark -- --nocapture` takes 4096
/// ranks and holds them to their budget.
#[test]
fn benchmark_ranks_from_the_answer_to_the_picture() {
    const BUDGET: Duration = Duration::from_millis(300);
    let ranks = if test_tiers::is_benchmark() { 4096 } else { 256 };
    let worst = ranks - 7;
    let fleet = Fleet { ranks, worst, elsewhere: None, refusal: None };
    let (of_ranks, of_devices) = (fleet.answer(""), fleet.answer("device_memory"));
    let size = of_ranks.len() + of_devices.len();
    let url = serve(move |it| if it.contains("device_memory") { of_devices.clone() } else { of_ranks.clone() });
    let (store, theme) = (url.parse().unwrap(), Theme::builtin("dusk").unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut buffer = Buffer::empty(Rect::new(0, 0, 200, 60));
    let begun = Instant::now();
    let fleet = runtime.block_on(prometheus::fleet(&store, &[])).unwrap();
    let read = begun.elapsed();
    paint_store(&mut buffer, &fleet.overview, &ClusterUi::of_store(Ui::default()), &theme, &Answers::default());
    let drawn = begun.elapsed();
    eprintln!("{ranks} ranks, {size} bytes: rows after {read:?}, a picture after {drawn:?}");
    let first = fleet.overview.rank_order(RankFigure::default())[0];
    assert_eq!((fleet.overview.ranks[first].rank, fleet.overview.ranks.len()), (Some(worst as u64), ranks));
    assert!(text(&buffer).contains(&format!("rank {worst} on node{}", worst / 4)));
    assert!(!test_tiers::is_benchmark() || drawn < BUDGET, "{drawn:?}");
}
