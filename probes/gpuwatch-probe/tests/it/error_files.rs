//! The error file of a probe, for readers that may come too late.

use crate::{
    client::{Client, field},
    server::{private_dir, push_all, start_in, started},
};
use gpuwatch_probe::{
    Description, Probe, error_file,
    wire::{Hello, Oom},
};
use std::{
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::{Path, PathBuf},
    time::SystemTime,
};

fn error_files(dir: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(dir).unwrap().map(|it| it.unwrap());
    all.filter(|it| error_file::is_name(it.file_name().to_str().unwrap())).map(|it| it.path()).collect()
}

fn oom(message: &str) -> Oom {
    Oom { tried: Some(5), message: Some(message.into()), ..Oom::default() }
}

#[test]
fn an_error_is_on_disk_when_the_call_returns() {
    let (probe, dir) = started();
    push_all(&probe, 1..=5);
    assert!(error_files(dir.path()).is_empty(), "a probe that is well writes nothing");
    probe.oom(oom("first")).unwrap();
    let [path] = &error_files(dir.path())[..] else { panic!("one error file was expected") };
    assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o600);
    let text = || fs::read_to_string(path).unwrap();
    let lines: Vec<String> = text().lines().map(str::to_owned).collect();
    assert!(lines[0].starts_with("{\"type\":\"hello\""), "{}", lines[0]);
    let steps: Vec<u64> = lines.iter().filter_map(|it| field(it, "step")).collect();
    assert_eq!(steps, [1, 2, 3, 4, 5], "with what came before it");
    assert_eq!(lines.iter().filter(|it| it.contains("first")).count(), 1, "{lines:?}");
    probe.oom_message(0, "in its own words").unwrap();
    assert!(text().ends_with("\"in its own words\"}\n"));
    probe.stop("test");
    assert!(text().contains("\"bye\""), "its end is written too");
}

#[test]
fn a_job_that_fails_for_ever_fills_no_disk() {
    let (probe, dir) = started();
    for _ in 0..2000 {
        // The queue may be full; the probe counts its losses.
        let _ = probe.oom(oom(&"x".repeat(1000)));
    }
    let [path] = &error_files(dir.path())[..] else { panic!("one error file was expected") };
    let text = fs::read_to_string(path).unwrap();
    assert!(text.len() <= error_file::BYTES_MAX && text.len() > error_file::BYTES_MAX / 2, "{}", text.len());
    assert!(text.ends_with("}\n"), "of whole lines");
}

/// A viewer that has received all of it need not be the recorder of the run.
#[test]
fn a_short_life_is_kept_for_its_run() {
    for (run, has_viewer, kept) in [(None, false, 0), (Some("aa"), false, 1), (Some("aa"), true, 1)] {
        let dir = private_dir();
        let hello = Hello { run: run.map(str::to_owned), ..Hello::default() };
        let directories = vec![dir.path().to_owned()];
        let probe = Probe::start(Description { hello, directories, ..Description::default() }).unwrap();
        push_all(&probe, 1..=3);
        let mut viewer = has_viewer.then(|| Client::connect(&probe.socket()));
        if let Some(viewer) = &mut viewer {
            viewer.until(|it| field(it, "step") == Some(3));
        }
        probe.stop("test");
        let found = error_files(dir.path());
        assert_eq!(found.len(), kept, "{run:?} {has_viewer}");
        let is_whole = |it: &PathBuf| fs::read_to_string(it).is_ok_and(|text| text.contains("\"step\":3"));
        assert!(found.iter().all(is_whole));
    }
}

#[test]
fn old_spills_go_and_nothing_else() {
    let dir = private_dir();
    let at = |name: &str| dir.path().join(name);
    let (old, fresh) = (error_file::name(7, &"a".repeat(32)), error_file::name(7, &"b".repeat(32)));
    let others = ["notes.spill", "7.short.spill", &format!("x.{}.spill", "a".repeat(32))];
    for name in others.iter().copied().chain([&*old, &*fresh]) {
        fs::write(at(name), "").unwrap();
    }
    for name in others.iter().copied().chain([&*old]) {
        let file = fs::File::options().write(true).open(at(name)).unwrap();
        file.set_modified(SystemTime::now() - 2 * error_file::KEPT).unwrap();
    }
    let link = error_file::name(8, &"c".repeat(32));
    symlink(at("notes.spill"), at(&link)).unwrap();
    error_file::sweep(dir.path());
    assert!(!at(&old).exists() && at(&fresh).exists());
    assert!(others.iter().all(|it| at(it).exists()) && at(&link).exists());
    assert!(error_file::open(&at(&link)).is_err(), "a link leads where somebody else chose");
    let _ = start_in(&[dir.path().to_owned()]);
}
