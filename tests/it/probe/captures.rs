//! Real PyTorch jobs asked which lines allocate what grows: the answer, and that nothing else of the job changes.

use crate::{
    helpers::torch::{self, Gpu},
    house::schemas,
    probe::pytorch::{Job, script, to_the_end},
    recordings::writer::read,
};
use gpuwatch::{
    facts::event::{
        Event, Fact, Line,
        wire::{Site, Sites},
    },
    storage::recording::Entry,
};
use serde_json::Value;
use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::Path,
};

/// The line of the script that has this text in it.
fn line_of(text: &str) -> u64 {
    line_in("asked.py", text)
}

fn line_in(name: &str, text: &str) -> u64 {
    let source = fs::read_to_string(script(name)).unwrap();
    source.lines().position(|it| it.contains(text)).unwrap() as u64 + 1
}

/// A job that waits for input, and a viewer that has received all its lines.
fn asked(how: &str) -> (Job, BufReader<UnixStream>) {
    let mut job = Job::start(&[&script("asked.py"), how]);
    assert_eq!(job.next()["ready"], true);
    let mut viewer = job.connect();
    crate::probe::pytorch::backlog(&mut viewer);
    (job, viewer)
}

/// Sends a request and waits until it has arrived: a later refusal comes in order.
pub(crate) fn ask(viewer: &mut BufReader<UnixStream>, request: &str) {
    viewer.get_mut().write_all(format!("sites {request}\nsites steps=none\n").as_bytes()).unwrap();
    assert!(refused(viewer).contains("steps is a number"));
}

/// Lines of seconds without a step, after which nothing more is to be expected.
const PATIENCE: usize = 40;

/// The next line of a kind; `None` at the end.
fn next<T>(viewer: &mut BufReader<UnixStream>, mut wanted: impl FnMut(Line) -> Option<T>) -> Option<T> {
    let mut text = String::new();
    let mut seconds = 0;
    loop {
        text.clear();
        if viewer.read_line(&mut text).unwrap() == 0 {
            return None;
        }
        seconds += usize::from(text.contains("\"edge\":\"tick\""));
        assert!(seconds < PATIENCE, "the job still prints");
        if let Some(found) = wanted(serde_json::from_str(&text).unwrap()) {
            return Some(found);
        }
    }
}

pub(crate) fn reported(viewer: &mut BufReader<UnixStream>) -> Sites {
    next(viewer, |it| if let Line::Sites(it) = it { Some(it) } else { None }).expect("an account of sites")
}

fn refused(viewer: &mut BufReader<UnixStream>) -> String {
    next(viewer, |it| if let Line::Refused(it) = it { Some(it.reason) } else { None }).expect("a refusal")
}

/// Trains this many steps, and returns the job's status.
fn train(job: &mut Job, steps: u32) -> Value {
    job.send(&steps.to_string());
    job.next()
}

#[test]
fn a_leak_is_reported_with_line_and_holder_and_the_job_is_unchanged() {
    let (mut job, mut viewer) = asked("leak");
    let before = train(&mut job, 5);
    ask(&mut viewer, "steps=8");
    let after = train(&mut job, 20);
    let sites = reported(&mut viewer);
    let [site] = &sites.sites[..] else { panic!("{sites:#?}") };
    assert!(site.file.ends_with("asked.py"), "{site:#?}");
    assert_eq!((site.line, site.function.as_str()), (line_of("output = net("), "step"));
    assert_eq!((sites.steps, site.blocks, site.bytes), (8, 8, 8 * 512 * 8 * 4));
    assert_eq!(sites.why, "asked");
    let kept = site.kept.as_ref().expect("the line that keeps it");
    assert_eq!((kept.line, kept.text.as_str()), (line_of("kept.append(output"), "kept.append(output.detach())"));
    assert!(site.source.iter().any(|it| it.line == kept.line), "its lines are there too: {site:#?}");
    let by: Vec<_> = site.holders.iter().map(|it| (it.by.as_str(), it.name.as_deref())).collect();
    assert_eq!(by, [("item", None), ("global", Some("kept"))]);
    assert_eq!(site.owners[0].shape, [512, 8]);
    assert!(!site.owners[0].grad && !site.autograd);
    assert!(site.source.iter().any(|it| it.line == site.line && it.text.contains("output = net(")));
    assert!(site.frames.iter().all(|it| it.line > 0) && site.frames.len() >= 3, "the whole stack");
    // Earlier live memory is counted and its origin stays unknown: weights; gradients are allocated again in each step.
    assert!(sites.older_blocks.is_some_and(|it| it >= 4 + 6), "{sites:#?}");
    assert_eq!(sites.trouble, None);
    // The recording is off, and PyTorch's own function is where it was.
    assert_eq!((&after["enabled"], &after["switch"]), (&Value::Bool(false), &before["switch"]));
    // Allocations and peak are those of 20 more steps: 16 KiB stay of each.
    assert_eq!(after["peak"].as_u64().unwrap() - before["peak"].as_u64().unwrap(), 20 * 512 * 8 * 4);
    let each = |from: &Value, to: &Value| to["allocations"].as_u64().unwrap() - from["allocations"].as_u64().unwrap();
    let again = train(&mut job, 20);
    assert_eq!(each(&before, &after), each(&after, &again));
    job.finish();
}

#[test]
fn a_job_that_ends_during_a_capture_sends_the_known_lines() {
    for (steps, has_lines) in test_tiers::vary!([(7, true), (3, false)], "too few steps for lines") {
        let (mut job, mut viewer) = asked("leak");
        ask(&mut viewer, "steps=8");
        train(&mut job, steps);
        job.finish();
        let reported = next(&mut viewer, |it| if let Line::Sites(it) = it { Some(it) } else { None });
        assert_eq!(reported.is_some(), has_lines, "{reported:#?}");
        let Some(sites) = reported else { continue };
        let [site] = &sites.sites[..] else { panic!("{sites:#?}") };
        assert_eq!((site.line, site.function.as_str()), (line_of("output = net("), "step"));
        assert_eq!((sites.steps, site.blocks), (4, 4));
        assert_eq!(sites.trouble.as_deref(), Some("the job ended before the holder of some was found"));
    }
}

#[test]
fn in_a_healthy_job_no_site_is_named() {
    let (mut job, mut viewer) = asked("healthy");
    for steps in [1, 8, 30] {
        ask(&mut viewer, &format!("steps={steps}"));
        train(&mut job, 40);
        let sites = reported(&mut viewer);
        assert!(sites.sites.is_empty() && sites.trouble.is_none(), "{sites:#?}");
        assert_eq!(sites.steps, steps);
    }
    job.finish();
}

#[test]
fn the_shell_asks_the_same() {
    let (mut job, _viewer) = asked("leak");
    let pid = job.gpuwatch(&["once", "--json", "--no-nvml"])["probes"][0]["pid"].to_string();
    job.send("slowly");
    let answer = job.gpuwatch(&["sites", &pid, "--steps", "4", "--json", "--collect"]);
    schemas::check("sites", &answer);
    assert_eq!((&answer["schema"], &answer["steps"]), (&1.into(), &4.into()));
    let sites = answer["sites"].as_array().unwrap();
    assert_eq!(sites.len(), 1, "{answer:#}");
    assert_eq!(sites[0]["line"], line_of("output = net("));
    assert_eq!((&sites[0]["blocks_per_step"], &sites[0]["bytes_per_step"]), (&1.0.into(), &16384.0.into()));
    assert_eq!(sites[0]["holders"][1]["name"], "kept");
    let functions: Vec<_> = sites[0]["frames"].as_array().unwrap().iter().map(|it| &it["function"]).collect();
    assert!(functions.contains(&&"step".into()) && functions.contains(&&"<module>".into()), "{functions:?}");
    assert!(answer["cost"]["held_us"].as_u64().is_some() && answer["collected_bytes"].is_u64(), "{answer:#}");
    let printed = job.output_of(&["sites", &pid]);
    assert!(printed.contains("asked.py") && printed.contains("kept"), "{printed}");
    drop(job);
}

#[test]
fn several_viewers_share_one_answer_and_requests_are_rate_limited() {
    let (mut job, mut one) = asked("leak");
    let mut other = job.connect();
    crate::probe::pytorch::backlog(&mut other);
    ask(&mut one, "why=growth");
    ask(&mut other, "steps=4");
    train(&mut job, 20);
    let first = reported(&mut one);
    assert_eq!((first.why.as_str(), first.steps), ("growth", 8));
    assert_eq!(reported(&mut other), first);
    for _ in 0..2 {
        ask(&mut one, "why=growth");
        train(&mut job, 20);
        assert_eq!(reported(&mut one), reported(&mut other), "another growth has lines of its own");
    }
    other.get_mut().write_all(b"sites why=growth\n").unwrap();
    assert!(refused(&mut other).contains("3 times within ten minutes"));
    ask(&mut other, "steps=2");
    train(&mut job, 20);
    assert_eq!(reported(&mut one).steps, 2, "a person may ask again");
    job.finish();
}

#[test]
fn a_job_that_forbids_captures_gets_no_request() {
    let forbid = |it: &mut std::process::Command| {
        it.env("GPUWATCH", "nosites");
    };
    let mut job = Job::start_with(torch::machine(), &[&script("asked.py"), "leak"], forbid);
    assert_eq!(job.next()["ready"], true);
    let mut viewer = job.connect();
    let hello = crate::probe::pytorch::backlog(&mut viewer);
    let Some(Line::Hello(hello)) = hello.first() else { panic!("{hello:?}") };
    assert_eq!(hello.sites.as_deref(), Some("GPUWATCH=nosites forbids it in this job"));
    viewer.get_mut().write_all(b"sites\n").unwrap();
    assert!(refused(&mut viewer).contains("GPUWATCH=nosites"));
    assert_eq!(train(&mut job, 10)["enabled"], false);
    job.finish();
}

#[test]
fn the_jobs_own_history_is_read_and_left_alone() {
    let (mut job, mut viewer) = asked("leak");
    job.send("record");
    assert_eq!(job.next()["enabled"], true);
    ask(&mut viewer, "");
    let after = train(&mut job, 20);
    assert_eq!(after["enabled"], true);
    let sites = reported(&mut viewer);
    if after["apart"] == true {
        assert_eq!(sites.sites.len(), 1, "{sites:#?}");
    } else {
        assert!(sites.trouble.is_some_and(|it| it.contains("which this PyTorch cannot look into")));
    }
    job.send("recorded");
    let recorded = job.next();
    assert!(recorded["entries"].as_u64().unwrap() > 100 && recorded["enabled"] == true, "{recorded}");
    job.finish();
}

#[test]
fn a_history_that_the_job_begins_meanwhile_is_its_own() {
    // PyTorch has two ways to begin one.
    for record in test_tiers::vary!(["record", "record as ever"], "the older way to begin one") {
        let (mut job, mut viewer) = asked("leak");
        let before = train(&mut job, 1);
        ask(&mut viewer, "");
        assert_eq!(train(&mut job, 4)["enabled"], true, "stacks are being recorded");
        job.send(record);
        job.next();
        let after = train(&mut job, 20);
        let sites = reported(&mut viewer);
        assert!(sites.sites.is_empty(), "{sites:#?}");
        assert!(sites.trouble.unwrap().contains("began to record its memory history itself"));
        assert_eq!((&after["enabled"], &after["switch"]), (&Value::Bool(true), &before["switch"]), "{record}");
        job.send("recorded");
        assert!(job.next()["entries"].as_u64().unwrap() > 100);
        job.finish();
    }
}

#[test]
fn a_name_that_is_not_utf8_is_reported_as_far_as_possible() {
    let (mut job, mut viewer) = asked("files");
    ask(&mut viewer, "");
    train(&mut job, 20);
    // Any line that is not of the wire would fail here.
    let sites = reported(&mut viewer);
    let [site] = &sites.sites[..] else { panic!("{sites:#?}") };
    let names: Vec<_> = site.holders.iter().map(|it| it.name.as_deref()).collect();
    assert_eq!(names, [None, Some("caf?.bin"), Some("by_file")]);
    job.finish();
}

#[test]
fn a_job_without_steps_is_compared_by_the_second() {
    test_tiers::change!("a further way of a job to allocate");
    let (job, mut viewer) = asked("inference");
    ask(&mut viewer, "steps=2");
    let sites = reported(&mut viewer);
    assert!(sites.sites.iter().any(|it| it.function == "<module>" && it.blocks > 2), "{sites:#?}");
    drop(job);
}

#[test]
fn compiled_code_pools_backward_and_threads_are_reported_too() {
    test_tiers::change!("further ways of a job to allocate");
    let mut job = Job::start(&[&script("modes.py")]);
    assert_eq!(job.next()["ready"], true);
    let mut viewer = job.connect();
    crate::probe::pytorch::backlog(&mut viewer);
    let mut about = |name: &str| {
        ask(&mut viewer, "");
        job.send(&format!("{name} 14"));
        assert_eq!(job.next()["done"], name);
        let sites = reported(&mut viewer);
        assert!(sites.trouble.is_none() && sites.steps == 8, "{name}: {sites:#?}");
        sites.sites
    };
    let line = |text| line_in("modes.py", text);
    let named = |it: &Site| it.holders.iter().find_map(|holder| holder.name.clone());

    let compiled = about("in_compiled_code");
    let [site] = &compiled[..] else { panic!("{compiled:#?}") };
    assert_eq!((site.line, site.blocks), (line("output = compiled("), 8), "{site:#?}");
    assert_eq!(site.kept.as_ref().map(|it| it.line), Some(line("outputs.append(")));

    let pooled = about("in_a_pool");
    let [site] = &pooled[..] else { panic!("{pooled:#?}") };
    assert_eq!((site.line, named(site).as_deref()), (line("pooled.append("), Some("pooled")), "{site:#?}");
    assert!(site.pool.is_some(), "{site:#?}");

    // Backward's own thread runs no Python: the holder shows what the stack does not.
    let backward = about("in_backward");
    let [site] = &backward[..] else { panic!("{backward:#?}") };
    assert_eq!((site.file.as_str(), site.frames.len(), site.blocks), ("", 0, 8), "{site:#?}");
    assert_eq!(named(site).as_deref(), Some("gradients"));
    assert_eq!(site.kept.as_ref().map(|it| it.line), Some(line("x.register_hook(lambda")));

    let threads = about("in_two_threads");
    let blocks: u64 = threads.iter().map(|it| it.blocks).sum();
    assert_eq!(blocks, 16, "{threads:#?}");
    for site in &threads {
        assert_eq!((site.line, named(site).is_some()), (line("return torch.randn(256"), true), "{site:#?}");
        assert_eq!(site.holders.last().and_then(|it| it.name.as_deref()), Some("both"), "{site:#?}");
        assert_eq!(site.pool, None);
    }
    // PyTorch warns on standard error that there is no Triton here.
    job.ended();
}

/// Every account of sites in a recording.
fn recorded(home: &Path) -> Vec<Sites> {
    let store = home.join("state/gpuwatch/recordings");
    let file = fs::read_dir(store).unwrap().map(|it| it.unwrap().path()).next().expect("a recording");
    let sites = |it: Entry| match it {
        Entry::Event(Event { fact: Fact::Probe { line, .. }, .. }) => match *line {
            Line::Sites(it) => Some(it),
            _ => None,
        },
        _ => None,
    };
    read(&file).0.into_iter().filter_map(sites).collect()
}

#[test]
fn growth_that_matters_is_captured_once_and_recorded() {
    // 16 KiB a step fill 1 GiB within 65,000 steps.
    let gpu = Gpu::new("NVIDIA A10:2GiB:256MiB");
    let mut job = Job::start_on(gpu, &[&script("asked.py"), "leak"]);
    assert_eq!(job.next()["ready"], true);
    let viewer = job.connect();
    job.send("slowly");
    job.next();
    let home = job.ended();
    let sites = recorded(home.0.path());
    let [one] = &sites[..] else { panic!("one account was expected: {sites:#?}") };
    assert_eq!((one.why.as_str(), one.sites[0].line), ("growth", line_of("output = net(")));
    let live = to_the_end(viewer);
    assert_eq!(live.iter().filter(|it| matches!(it, Line::Sites(_))).count(), 1);
}

#[test]
fn an_out_of_memory_error_has_lines_if_stacks_are_recorded() {
    let (mut job, mut viewer) = asked("leak");
    job.send("record");
    job.next();
    train(&mut job, 10);
    job.send("exhaust");
    if job.next()["apart"] == false {
        job.finish();
        assert!(to_the_end(viewer).iter().all(|it| !matches!(it, Line::Sites(_))), "it is not looked into");
    } else {
        let sites = reported(&mut viewer);
        assert_eq!((sites.why.as_str(), sites.steps), ("oom", 0));
        let found = sites.sites.iter().find(|it| it.line == line_of("output = net("));
        let of_net = found.unwrap_or_else(|| panic!("{sites:#?}"));
        // The last one's output is live as well, until its variable goes.
        assert!(of_net.bytes >= 10 * 512 * 8 * 4, "{of_net:#?}");
        assert!(sites.older_blocks.is_some_and(|it| it > 0));
        job.finish();
    }
}

/// Limits for the pauses of a job with 20,000 live blocks and a million Python objects: for one comparison, for one
/// slice of the search for holders, and in total.
const CAPTURE_US: u64 = 50_000;
const HOLDERS_LONGEST_US: u64 = 50_000;
const HOLDERS_US: u64 = 200_000;

/// The limits hold in full, on a machine that does nothing else:
///
/// ```text
/// GPUWATCH_BENCHMARK=full cargo test --profile dist --test it captures::the_cost_for_a_job -- --nocapture
/// ```
fn is_benchmark() -> bool {
    env::var("GPUWATCH_BENCHMARK").is_ok_and(|it| it == "full")
}

/// Returns the time per step on an idle processor: the best of some rounds, each of which lasts 25 ms.
fn undisturbed(job: &mut Job) -> Value {
    let rounds = (0..6).map(|_| train(job, 400));
    let median = |it: &Value| it["median_us"].as_f64().unwrap();
    rounds.min_by(|one, other| median(one).total_cmp(&median(other))).unwrap()
}

/// Live blocks and Python objects of a small job, a large one, and one that is larger than most.
const JOBS: [[&str; 2]; 3] = [["100", "1000"], ["20000", "1300000"], ["20000", "5000000"]];

#[test]
fn the_cost_for_a_job_of_any_size_is_bounded_and_over_afterwards() {
    for size in if is_benchmark() { &JOBS[..] } else { &JOBS[1..2] } {
        costs(size);
    }
}

#[expect(clippy::print_stdout, reason = "figures of a benchmark")]
fn costs(load: &[&str; 2]) {
    let mut job = Job::start(&[&script("budget.py"), load[0], load[1]]);
    job.next();
    let mut viewer = job.connect();
    crate::probe::pytorch::backlog(&mut viewer);
    let before = undisturbed(&mut job);
    ask(&mut viewer, "steps=8");
    let during = train(&mut job, 30);
    let sites = reported(&mut viewer);
    let after = undisturbed(&mut job);
    let [longest, in_all, holders_longest, holders] =
        [sites.longest_us, sites.held_us, sites.holders_longest_us, sites.holders_us].map(Option::unwrap);
    println!(
        "{} blocks, {} objects: a look {longest} us at most, {in_all} us all of them; holders {holders_longest} us at most, \
         {holders} us all of it; stacks {} B; the longest step {} us; a step {} us before, {} us after; \
         resident {} MiB before, {} after",
        load[0],
        load[1],
        sites.history_bytes.unwrap(),
        during["longest_us"],
        before["median_us"],
        after["median_us"],
        before["rss"].as_u64().unwrap() >> 20,
        after["rss"].as_u64().unwrap() >> 20,
    );
    let [site] = &sites.sites[..] else { panic!("{sites:#?}") };
    let blocks: u64 = load[0].parse().unwrap();
    assert!(sites.older_blocks.is_some_and(|it| it >= blocks));
    assert_eq!(site.holders.last().and_then(|it| it.name.as_deref()), Some("outputs"), "{sites:#?}");
    assert!(after["rss"].as_u64().unwrap() < before["rss"].as_u64().unwrap() + (48 << 20), "{before} {after}");
    assert_eq!(after["enabled"], false);
    if is_benchmark() {
        assert!(longest < CAPTURE_US && holders_longest < HOLDERS_LONGEST_US && holders < HOLDERS_US, "{sites:#?}");
        // The reported cost is what a step of the job felt.
        let (felt, reported) = (during["longest_us"].as_f64().unwrap(), longest.max(holders_longest) as f64);
        assert!(felt < reported * 1.3 + 5_000.0, "felt {felt} us, reported {reported} us");
        let (bare, again) = (before["median_us"].as_f64().unwrap(), after["median_us"].as_f64().unwrap());
        assert!(again < bare * 1.5, "a step takes {again} us afterwards, {bare} us before");
    }
    job.finish();
}
