//! A probe and its viewers over real sockets: what each viewer receives, and what viewers cannot do to the job.

use crate::client::{Client, eventually, field, samples, seqs};
use gpuwatch_probe::{
    Description, Probe, Refusal,
    reading::Reading,
    wire::{Device, Edge, Oom},
};
use std::{
    fs,
    io::Write,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process,
    time::Instant,
};
use tempfile::TempDir;

pub(crate) fn started() -> (Probe, TempDir) {
    let dir = private_dir();
    (start_in(&[dir.path().to_owned()]), dir)
}

pub(crate) fn private_dir() -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    dir
}

pub(crate) fn start_in(directories: &[PathBuf]) -> Probe {
    Probe::start(Description { directories: directories.to_vec(), ..Description::default() }).unwrap()
}

fn reading(step: u64) -> Reading {
    let mut it = Reading { steps: step, edge: Edge::Step, ..Reading::default() };
    for place in 0..15 {
        it.put(place, (step << 12) + place as u64);
    }
    it
}

/// Pushes every step; at most as many at once as the queue holds.
pub(crate) fn push_all(probe: &Probe, steps: impl Iterator<Item = u64>) {
    for step in steps {
        probe.push(&reading(step)).unwrap();
    }
}

/// Pushes every step, as fast as `viewer` sees them, and returns what it saw.
fn push_watched(probe: &Probe, viewer: &mut Client, last: u64) -> Vec<String> {
    let mut lines = Vec::new();
    for first in (1..=last).step_by(2000) {
        let end = (first + 1999).min(last);
        push_all(probe, first..=end);
        lines.extend(viewer.until(|it| field(it, "step") == Some(end)));
    }
    lines
}

#[test]
fn a_viewer_that_comes_after_5000_steps_sees_the_run_from_step_1() {
    let (probe, _dir) = started();
    push_watched(&probe, &mut Client::connect(&probe.socket()), 5000);
    let mut viewer = Client::connect(&probe.socket());
    let lines = viewer.until(|it| field(it, "step") == Some(5000));
    assert!(lines[0].starts_with("{\"type\":\"hello\"") && lines[1].starts_with("{\"type\":\"history\""));
    assert_eq!(
        samples(&lines).iter().filter_map(|it| field(it, "step")).collect::<Vec<_>>(),
        (1..=5000).collect::<Vec<_>>()
    );
    assert!(samples(&lines).iter().all(|it| field(it, "rss").is_some_and(|rss| rss > 100_000)));
    assert!(seqs(&lines).is_sorted_by(|a, b| a < b));
}

#[test]
fn two_viewers_at_once_see_the_same() {
    let (probe, _dir) = started();
    let mut viewers = [Client::connect(&probe.socket()), Client::connect(&probe.socket())];
    for viewer in &mut viewers {
        viewer.until(|it| it.contains("\"live\""));
    }
    push_all(&probe, 1..=2000);
    probe.mark("epoch", Some(3)).unwrap();
    probe.oom(Oom { tried: Some(5), message: Some("no memory".into()), ..Oom::default() }).unwrap();
    let [mut one, mut two] = viewers.each_mut().map(|it| it.until(|text| text.contains("no memory")));
    probe.stop("test");
    let [first, second] = viewers.map(|mut it| it.rest());
    one.extend(first);
    two.extend(second);
    assert_eq!(one, two);
    assert_eq!(samples(&one).len(), 2000);
    assert!(
        one[2000].contains("\"epoch\",\"value\":3") && one[2001].contains("no memory") && one[2002].contains("\"bye\"")
    );
    assert!(!probe.socket().exists());
}

#[test]
fn a_viewer_that_reconnects_gets_what_it_missed() {
    let (probe, _dir) = started();
    push_all(&probe, 1..=100);
    let mut first = Client::connect(&probe.socket());
    let seen = first.until(|it| field(it, "step") == Some(100));
    drop(first);
    push_all(&probe, 101..=300);
    let mut second = Client::connect(&probe.socket());
    second.send(&format!("since seq={}\n", seqs(&seen).last().unwrap()));
    let missed = second.until(|it| field(it, "step") == Some(300));
    assert_eq!(
        samples(&missed).iter().filter_map(|it| field(it, "step")).collect::<Vec<_>>(),
        (101..=300).collect::<Vec<_>>()
    );
}

#[test]
fn a_stopped_viewer_costs_the_job_nothing_and_the_others_nothing() {
    let (probe, _dir) = started();
    let mut stopped = Client::connect(&probe.socket());
    stopped.send("since seq=0\n");
    let mut other = Client::connect(&probe.socket());
    other.until(|it| it.contains("\"live\""));
    let lines = push_watched(&probe, &mut other, 30_000);
    assert_eq!(samples(&lines).len(), 30_000);
    // A stopped viewer does not delay the end.
    probe.stop("test");
    assert!(!probe.socket().exists());
    drop(stopped);
}

#[test]
fn a_viewer_that_lags_receives_its_losses_and_the_job_never_waits() {
    let (probe, _dir) = started();
    let mut lagging = Client::connect(&probe.socket());
    lagging.until(|it| it.contains("\"live\""));
    // No viewer reads meanwhile: a push that waited for the viewer would wait forever.
    let full = (1..=50_000).map(|step| u64::from(probe.push(&reading(step)) == Err(Refusal::Full))).sum::<u64>();
    let lines = lagging.until(|it| it.contains("\"step\":50000,") || lost_last(it));
    let lost: u64 = lines.iter().filter(|it| it.contains("\"lost\"")).filter_map(|it| field(it, "samples")).sum();
    assert!(lost >= 1 || full == 0);
    eventually("every loss is reported", || {
        let mut late = Client::connect(&probe.socket());
        let lines = late.until(|it| it.contains("\"live\""));
        let lost: u64 = lines.iter().filter(|it| it.contains("\"lost\"")).filter_map(|it| field(it, "samples")).sum();
        lost == full
    });
}

/// Whether the last steps themselves were lost.
fn lost_last(line: &str) -> bool {
    line.contains("\"lost\"") && field(line, "seq").is_some()
}

#[test]
fn ten_thousand_samples_at_once_are_kept_or_counted() {
    let (probe, _dir) = started();
    let mut viewer = Client::connect(&probe.socket());
    viewer.until(|it| it.contains("\"live\""));
    let reader = std::thread::spawn(move || viewer.until(|it| it.contains("the end")));
    let mut full = (1..=10_000).map(|step| u64::from(probe.push(&reading(step)).is_err())).sum::<u64>();
    let full_samples = full;
    eventually("there is room for a mark", || {
        probe.mark("the end", None).is_ok() || {
            full += 1;
            false
        }
    });
    let lines = reader.join().unwrap();
    let lost: u64 = lines.iter().filter(|it| it.contains("\"lost\"")).filter_map(|it| field(it, "samples")).sum();
    assert_eq!((samples(&lines).len() as u64, lost), (10_000 - full_samples, full));
}

/// A viewer in another process.
#[test]
fn a_process_of_another_user_is_refused() {
    if let Some(path) = std::env::var_os("GPUWATCH_TEST_FOREIGN") {
        return println!("{}", Client::connect(Path::new(&path)).rest().join("\n"));
    }
    let (probe, dir) = started();
    if dir.path().metadata().unwrap().uid() != 0 {
        test_tiers::skip!("only root can become another user");
    }
    let program = dir.path().join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    for path in [dir.path(), &program, &probe.socket()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let output = process::Command::new(program)
        .args(["--exact", "server::a_process_of_another_user_is_refused", "--nocapture"])
        .env("GPUWATCH_TEST_FOREIGN", probe.socket())
        .current_dir("/")
        .uid(54_321)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("\"refused\",\"reason\":\"another user's process\"") && !text.contains("hello"), "{text}");
}

#[test]
fn killed_viewers_leave_nothing() {
    let (probe, _dir) = started();
    push_all(&probe, 1..=1000);
    for _ in 0..200 {
        drop(Client::connect(&probe.socket()));
    }
    eventually("places are free again", || {
        let mut viewer = Client::connect(&probe.socket());
        viewer.line().is_some_and(|it| it.contains("\"hello\""))
    });
}

#[test]
fn a_viewer_beyond_the_limit_receives_the_reason() {
    let (probe, _dir) = started();
    let mut viewers: Vec<Client> = (0..32).map(|_| Client::connect(&probe.socket())).collect();
    for viewer in &mut viewers {
        viewer.until(|it| it.contains("\"live\""));
    }
    let refused = Client::connect(&probe.socket()).rest();
    assert!(
        matches!(&refused[..], [one] if one.contains("\"refused\"") && one.contains("as many viewers")),
        "{refused:?}"
    );
    viewers.pop();
    eventually("a place is free", || {
        Client::connect(&probe.socket()).line().is_some_and(|it| it.contains("\"hello\""))
    });
}

#[test]
fn invalid_requests_close_their_own_connection_only() {
    let (probe, _dir) = started();
    let mut witness = Client::connect(&probe.socket());
    witness.until(|it| it.contains("\"live\""));
    for (request, answer) in [
        (&b"\xff\xfe\n"[..], "not UTF-8"),
        (&b"x".repeat(100_000)[..], "longer than 4096"),
        (&[b'\n'; 4096][..], ""),
        (&b"dance\n".repeat(1000)[..], "unknown verb"),
    ] {
        let mut hostile = Client::connect(&probe.socket());
        // The probe may have closed before everything is sent.
        let _ = hostile.stream().write_all(request);
        let lines = if answer.is_empty() { hostile.until(|it| it.contains("\"live\"")) } else { hostile.rest() };
        assert!(lines.iter().any(|it| it.contains(answer)), "{answer}: {lines:?}");
    }
    push_all(&probe, 1..=10);
    witness.until(|it| field(it, "step") == Some(10));
}

#[test]
fn unknown_verbs_are_refused_and_the_stream_goes_on() {
    let (probe, _dir) = started();
    push_all(&probe, 1..=3);
    let mut viewer = Client::connect(&probe.socket());
    viewer.send("sites steps=8\nsince seq=x\nsince seq=99999999999999999999999\nhello\n\nsince seq=0\nsince seq=1\n");
    let lines = viewer.until(|it| field(it, "step") == Some(3));
    assert_eq!(lines.iter().filter(|it| it.contains("\"refused\"")).count(), 5, "{lines:?}");
    assert_eq!(samples(&lines).len(), 3);
}

#[test]
fn a_mute_viewer_is_served_like_any() {
    let (probe, _dir) = started();
    push_all(&probe, 1..=3);
    let mut viewer = Client::connect(&probe.socket());
    viewer.stream().shutdown(std::net::Shutdown::Write).unwrap();
    viewer.until(|it| field(it, "step") == Some(3));
    push_all(&probe, 4..=5);
    viewer.until(|it| field(it, "step") == Some(5));
}

#[test]
fn later_knowledge_is_sent_in_another_hello() {
    let (probe, _dir) = started();
    let mut viewer = Client::connect(&probe.socket());
    viewer.until(|it| it.contains("\"live\""));
    probe.device(Device { ordinal: 3, uuid: Some("GPU-3".into()), ..Device::default() }).unwrap();
    viewer.until(|it| it.contains("\"hello\"") && it.contains("GPU-3"));
}

#[test]
fn a_stopped_probe_takes_nothing() {
    let (probe, _dir) = started();
    probe.stop("test");
    assert_eq!(probe.push(&reading(1)), Err(Refusal::Off));
    assert_eq!(probe.mark("late", None), Err(Refusal::Off));
    probe.stop("again");
}

/// `GPUWATCH_BENCHMARK=full cargo test --release -p gpuwatch-probe pushing -- --nocapture`: cost relative to reading
/// the clock.
#[test]
fn pushing_is_cheap() {
    test_tiers::benchmark!();
    let (probe, _dir) = started();
    let mut viewer = Client::connect(&probe.socket());
    viewer.until(|it| it.contains("\"live\""));
    let mut took: Vec<[u128; 2]> = (1..=20_000_u64)
        .map(|step| {
            let sample = reading(step);
            let begin = Instant::now();
            let checked = Instant::now();
            let _ = probe.push(&sample);
            [checked - begin, checked.elapsed()].map(|it| it.as_nanos())
        })
        .collect();
    let [check, push] = [0, 1].map(|part| {
        took.sort_unstable_by_key(|it| it[part]);
        took[took.len() / 2][part].max(1)
    });
    println!("push: {push} ns, reading the clock: {check} ns");
    assert!(push < 20 * check, "{push} ns, {check} ns");
}
