//! Leaks of many kinds in real PyTorch, one after the other in one job: gpuwatch reports the right line and the right
//! holder of each, and nothing for healthy loops.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
};

use gpuwatch::model::analysis::culprit;
use gpuwatch_probe::wire::{Holder, Line, Site, Sites};
use serde_json::Value;

use crate::probe::pytorch::{Job, backlog, script};

/// Steps of each loop: what the probe needs to see what stays over eight of them.
const STEPS: u64 = 24;

/// A job that runs one loop after the other, and a viewer of its probe.
struct Asked {
    job: Job,
    probe: BufReader<UnixStream>,
}

impl Asked {
    /// Returns the probe's answer while the job runs this loop.
    fn about(&mut self, name: &str) -> Sites {
        // A later refusal shows that the request has arrived.
        self.probe.get_mut().write_all(b"sites steps=8\nsites steps=none\n").unwrap();
        self.next(name, |it| matches!(it, Line::Refused(_)).then_some(()));
        self.job.send(&format!("{name} {STEPS}"));
        assert_eq!(self.job.next()["done"], name);
        self.next(name, |it| if let Line::Sites(it) = it { Some(it) } else { None })
    }

    /// The next line of a kind.
    fn next<T>(&mut self, name: &str, wanted: impl Fn(Line) -> Option<T>) -> T {
        loop {
            let mut text = String::new();
            assert!(self.probe.read_line(&mut text).unwrap() > 0, "{name}: the job is gone");
            if let Some(found) = wanted(serde_json::from_str(&text).unwrap()) {
                return found;
            }
        }
    }
}

#[test]
fn every_leak_has_its_line_and_holder_and_healthy_loops_have_none() {
    let mut job = Job::start(&[&script("leaks.py")]);
    let right = job.next();
    let mut probe = job.connect();
    backlog(&mut probe);
    let mut asked = Asked { job, probe };
    let leaks = right["leaks"].as_object().unwrap();
    assert!(leaks.len() >= 20);
    for (name, right) in leaks {
        let reported = asked.about(name);
        println!("{name}: holders took {:?} µs", reported.holders_us);
        assert!(reported.trouble.is_none() && reported.steps == 8, "{name}: {reported:#?}");
        let found = reported.sites.iter().find(|it| is_at(&it.file, it.line, &right["made"]));
        let site = found.unwrap_or_else(|| panic!("{name}: {right}\n{reported:#?}"));
        assert_eq!(
            Value::from(site.holders.iter().map(label).collect::<Vec<_>>()),
            right["holders"],
            "{name}: {site:#?}"
        );
        let culprits = culprit::account(&reported, 0).culprits;
        let [answer] = &culprits[..] else { panic!("{name}: one answer for one leak: {culprits:#?}") };
        let library = site.library.as_ref();
        assert!(
            library.map_or(right["library"].is_null(), |it| is_at(&it.file, it.line, &right["library"])),
            "{name}: {site:#?}"
        );
        // The user's own line leads: what a library keeps was allocated by a call of it.
        let first = if right["kept"].is_null() || library.is_some() { "made" } else { "kept" };
        assert!(
            is_at(answer.leading().file.raw(), answer.leading().line, &right[first]),
            "{name}: {}",
            answer.summary()
        );
        // Everything else that grows there grows because of the same line.
        for it in &reported.sites {
            assert!(is_kept(it, right), "{name}: {right}\n{it:#?}");
        }
    }
    for name in right["healthy"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()) {
        let reported = asked.about(name);
        assert!(
            reported.sites.is_empty() && reported.trouble.is_none() && reported.steps == 8,
            "{name}: {reported:#?}"
        );
    }
    asked.job.finish();
}

/// Whether it is this line, `[file, line]`.
fn is_at(file: &str, line: u64, right: &Value) -> bool {
    file.rsplit('/').next() == right[0].as_str() && Some(line) == right[1].as_u64()
}

fn is_kept(site: &Site, right: &Value) -> bool {
    let kept = site.kept.as_ref();
    site.kept_or.is_empty() && kept.map_or(right["kept"].is_null(), |it| is_at(&it.file, it.line, &right["kept"]))
}

/// `item`, `local losses`: how it is held, and under which name; keys have none where every tensor has its own.
fn label(it: &Holder) -> String {
    it.name.as_ref().map_or_else(|| it.by.clone(), |name| format!("{} {name}", it.by))
}
