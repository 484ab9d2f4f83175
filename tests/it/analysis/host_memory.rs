//! The host's memory: limits, forecasts, workers, kills; from made-up readings, on simulated devices, and on a real
//! control group where the machine lets root make one.

use crate::{
    analysis::step_time::recorded,
    commands::check,
    driver::nvml::Bench,
    helpers::{
        control_group::Group,
        story::{GIB, MIB, Story, counters, picture, text},
        terminal::PROGRAM,
    },
    house::schemas,
    recordings::writer::own_directory,
    serve::exposed,
};
use ::simgpu::Fault;
use gpuwatch::{
    commands::serve::families::Family,
    facts::{
        event::{Fact, ProbeId},
        host_memory::{GroupMemory, HostMemory, JobMemory, MachineMemory, Pages, Room, TreeMemory, WorkerMemory},
        units::{Bytes, Stamp, whole},
    },
    model::{
        alerts::{NewAlerts, Policy},
        analysis::{cause::Cause, host::workers::Workers, severity::Severity},
        findings::{Finding, Kind, findings},
    },
    screen::{
        theme::Theme,
        ui::{Screen, Ui},
    },
    sources::host_memory::{Reader, Watched},
};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
};

const PID: u32 = 4242;

/// A job of Slurm's on one device, whose group may have 64 GiB.
struct Job {
    story: Story,
    step: u64,
    kills: u64,
    shm: u64,
    workers: Vec<WorkerMemory>,
}

impl Job {
    fn new() -> Self {
        let mut story = Story::default();
        story.wait(1_000_000_000).device(0, 40 * GIB, &[(PID, 30 * GIB)]).probe(0, PID, 0, None);
        Self { story, step: 0, kills: 0, shm: 0, workers: Vec::new() }
    }

    fn reading(&self, used: u64) -> HostMemory {
        let group = |path: &str, max| GroupMemory {
            path: path.into(),
            place: Some("slurm 4242".into()),
            max,
            current: Bytes(used + 6 * GIB),
            reclaimable: Bytes(6 * GIB),
            shared: Bytes(GIB),
            kernel: Bytes(GIB / 4),
            swap: Some(Room::default()),
            oom_kills: Some(self.kills),
            ..GroupMemory::default()
        };
        let of_workers = self.workers.iter().fold(Pages::default(), |sum, it| sum.plus(it.pages));
        let own = Pages {
            anonymous: Bytes(used - used / 4),
            private: Bytes(used / 2),
            resident: Bytes(used),
            ..Pages::default()
        };
        let tree = TreeMemory { own, workers: self.workers.len() as u64, of_workers, each: self.workers.clone() };
        HostMemory {
            machine: MachineMemory {
                total: Bytes(512 * GIB),
                free: Bytes(300 * GIB),
                available: Bytes(400 * GIB),
                oom_kills: Some(self.kills),
                ..MachineMemory::default()
            },
            shm: Some(Room { size: Bytes(64 * MIB), used: Bytes(self.shm) }),
            groups: vec![group("/job_4242/step_0", None), group("/job_4242", Some(Bytes(64 * GIB)))],
            processes: vec![JobMemory { pid: PID, groups: vec![0, 1], tree: Some(tree), ..JobMemory::default() }],
        }
    }

    /// So many readings, one every ten seconds, between which the job makes steps.
    fn goes_on(&mut self, readings: u64, used: impl Fn(u64) -> u64) -> &mut Self {
        for turn in 0..readings {
            let reading = self.reading(used(turn));
            self.story.add(Fact::HostMemory(Box::new(reading)));
            for _ in 0..10 {
                self.step += 1;
                self.story.wait(1_000_000).sample(0, self.step, counters(20 * GIB, GIB));
                self.story.add(Fact::Second);
            }
        }
        self
    }

    fn found(&self, kind: Kind) -> Vec<Finding> {
        findings(&self.story.session()).all.into_iter().filter(|it| it.kind == kind).collect()
    }
}

/// 20 GiB and a GiB more each minute.
fn leak(turn: u64) -> u64 {
    20 * GIB + turn * GIB / 6
}

#[test]
fn a_job_that_fills_its_group_is_warned_of_with_the_time_that_is_left() {
    let mut job = Job::new();
    job.goes_on(190, leak);
    let all = job.found(Kind::HostFull);
    let [it] = &all[..] else { panic!("{all:#?}") };
    assert_eq!((it.cause, it.severity, it.pid, it.probe), (Cause::HostFull, Severity::Warning, Some(PID), None));
    // 64 GiB less 51.5, at a GiB a minute: within ten percent.
    let minutes = it.full_in_us.unwrap() as f64 / 60e6;
    assert!((11.2..13.8).contains(&minutes), "{minutes}");
    assert!(it.brief().starts_with("the cgroup of Slurm job 4242 is full in 1"), "{}", it.brief());
    let session = job.story.session();
    let findings = Policy::default().findings(&session);
    let lines: Vec<String> = NewAlerts::default().at(&session, &findings).into_iter().map(|it| it.line).collect();
    assert!(
        lines[0].starts_with("warning: pid 4242: host-full of the cgroup of Slurm job 4242, full in 1"),
        "{lines:?}"
    );
    let theme = Theme::builtin("dusk").unwrap();
    for (screen, width, height, words) in [
        (Screen::Overview, 80, 24, ["host  ", "51.50 GiB of 64.00 GiB, full in 1"]),
        (Screen::Overview, 160, 50, ["host  ", "the cgroup of Slurm job 4242"]),
        (Screen::Process, 100, 80, ["page cache", "51.50 GiB of 64.00 GiB cannot be given back"]),
        (Screen::Alerts, 140, 40, ["GiB a minute come; then the kernel", "most of it: process 38.6"]),
    ] {
        let ui = Ui { screen, ..Ui::default() };
        let shown = text(&picture(&session, &ui, &theme, width, height));
        for words in words {
            assert!(shown.contains(words), "{words}:\n{shown}");
        }
    }
    let served = exposed(&job.story);
    let of = |family| served.iter().filter(|it| it.family == family).collect::<Vec<_>>();
    let limits: Vec<_> = of(Family::HostLimit).iter().map(|it| whole(it.value)).collect();
    assert_eq!(limits, [512 * GIB, 64 * GIB, 64 * MIB]);
    assert_eq!(of(Family::HostFull).len(), 1);
    let sum: f64 = of(Family::HostRung).iter().filter(|it| it.labels[0].1.raw() == "cgroup").map(|it| it.value).sum();
    assert_eq!(whole(sum), 64 * GIB, "the rungs sum to the limit");
    // It levels off.
    let mut readings = 0;
    while job.found(Kind::HostFull)[0].is_active() {
        job.goes_on(1, |_| leak(189));
        readings += 1;
        assert!(readings <= 150, "it lasts for {readings} readings after the rise has ended");
    }
    let over = &job.found(Kind::HostFull)[0];
    assert_eq!((over.is_active(), over.severity), (false, Severity::Info));
}

#[test]
fn a_kill_is_reported_with_its_limit_and_fails_the_check() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("killed.jsonl.zst");
    let mut job = Job::new();
    job.goes_on(250, leak);
    job.kills = 1;
    job.story.wait(2_000_000).add(Fact::ProbeGone { probe: ProbeId(0), why: "it ended without a word".into() });
    let last = job.reading(2 * GIB);
    job.story.wait(1_000_000).add(Fact::HostMemory(Box::new(last)));
    job.story.add(Fact::JobEnded { code: None, signal: Some(9) });
    let all = job.found(Kind::OomKilled);
    let [it] = &all[..] else { panic!("{all:#?}") };
    let sentence = it.sentence.clone().unwrap();
    assert_eq!(sentence, "The kernel killed pid 4242 (train.py): the cgroup of Slurm job 4242 was full (64.00 GiB)");
    let found = findings(&job.story.session()).all;
    assert_eq!(found[0].kind, Kind::OomKilled, "the worst comes first");
    assert!(found.iter().filter(|it| it.kind == Kind::HostFull).all(|it| it.follows.is_some()));
    recorded(&job.story, &file);
    let (code, answer) = check::judged(&file, &[]);
    assert_eq!((code, &answer["findings"][0]["kind"]), (1, &Value::from("oom-killed")));
    schemas::check_recording(&file);
}

/// The machine's counter has the kills of every group on it.
#[test]
fn another_groups_kill_is_not_the_jobs() {
    let mut job = Job::new();
    job.goes_on(10, |_| 20 * GIB);
    let mut reading = job.reading(20 * GIB);
    reading.machine.oom_kills = Some(5);
    job.story.add(Fact::HostMemory(Box::new(reading.clone())));
    job.story.wait(1_000_000).add(Fact::JobEnded { code: Some(0), signal: None });
    assert!(job.found(Kind::OomKilled).is_empty());
    // But if the job's group is gone with the job, and the job was killed:
    reading.groups.clear();
    reading.processes.clear();
    reading.machine.oom_kills = Some(6);
    job.story.wait(60_000_000).add(Fact::HostMemory(Box::new(reading)));
    job.story.add(Fact::JobEnded { code: None, signal: Some(9) });
    let all = job.found(Kind::OomKilled);
    assert_eq!(all.len(), 1, "{all:#?}");
}

#[test]
fn workers_that_copy_are_named_and_a_full_dev_shm_explains_a_bus_error() {
    let mut job = Job::new();
    for copied in [70, 150, 400, 600] {
        let pages = Pages {
            resident: Bytes(2 * GIB),
            private: Bytes(copied * MIB),
            anonymous: Bytes(copied * MIB + 500 * MIB),
            ..Pages::default()
        };
        job.workers = (70..72).map(|pid| WorkerMemory { pid, pages }).collect();
        job.goes_on(1, |_| 20 * GIB);
    }
    let all = job.found(Kind::WorkerGrowth);
    let [it] = &all[..] else { panic!("{all:#?}") };
    assert_eq!((it.cause, it.severity, it.pid), (Cause::WorkersCopy, Severity::Warning, Some(PID)));
    assert!(it.sentence.as_ref().is_some_and(|it| it.starts_with("2 workers have copied 1.04 GiB")), "{it:?}");
    assert!(job.found(Kind::ShmFull).is_empty());
    job.shm = 63 * MIB;
    job.goes_on(3, |_| 20 * GIB);
    job.story.add(Fact::JobEnded { code: None, signal: Some(7) });
    let all = job.found(Kind::ShmFull);
    let [it] = &all[..] else { panic!("{all:#?}") };
    assert_eq!(it.severity, Severity::Critical);
    assert!(
        it.sentence.as_ref().is_some_and(|it| it.contains("98 % full (64.00 MiB)") && it.contains("bus error")),
        "{it:?}"
    );
}

#[test]
fn a_device_that_shares_the_systems_memory_has_the_systems_figures() {
    let bench = Bench::new();
    let info = fs::read_to_string("/proc/meminfo").unwrap();
    let kib = |name: &str| -> u64 {
        let line = info.lines().find_map(|it| it.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    let fault = Fault::Line("not-supported nvmlDeviceGetMemoryInfo*".to_owned());
    let reported = bench.once(&[fault]);
    let device = &reported["devices"][0];
    assert_eq!(device["memory"]["total"], kib("MemTotal:") << 10, "{device:#}");
    let rung = |name: &str| {
        let rungs = device["ladder"]["rungs"].as_array().unwrap();
        rungs.iter().find(|it| it["gap"] == name).and_then(|it| it["bytes"].as_u64()).unwrap()
    };
    let free = device["memory"]["free"].as_u64().unwrap();
    assert_eq!(rung("free") + rung("page_cache"), free);
    assert_eq!(device["ladder"]["sum"], device["ladder"]["total"]);
}

#[test]
fn a_job_that_the_kernel_kills_in_a_real_group_is_named_wherever_it_is_shown() {
    let group = match Group::new() {
        Ok(it) => it,
        Err(why) => test_tiers::skip!("{why}"),
    };
    group.limit(160 * MIB);
    let dir = own_directory();
    let job = "import time\nkept = []\nwhile True:\n    kept.append(b'x' * (4 << 20))\n    time.sleep(0.02)\n";
    let run = [PROGRAM, "run", "--summary", "always", "--", "python3", "-c", job].map(String::from);
    let line: Vec<String> = group.launcher(false).into_iter().chain(run).collect();
    let done = Command::new(&line[0])
        .args(&line[1..])
        .env("GPUWATCH_SOCKET_DIR", dir.path())
        .env("XDG_STATE_HOME", dir.path().join("state"))
        .env("GPUWATCH_NO_NVML", "1")
        .output()
        .unwrap();
    assert!(group.kills() > 0);
    let recordings = dir.path().join("state/gpuwatch/recordings");
    let file = fs::read_dir(recordings).unwrap().flatten().next().unwrap().path();
    let file = file.to_str().unwrap();
    let shown = |arguments: &[&str]| {
        let output = Command::new(PROGRAM).args(arguments).env("GPUWATCH_CONFIG", "/dev/null").output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let checked = shown(&["check", file]);
    let replayed = shown(&["replay", file, "--screenshot", "-", "--screen", "alerts", "--size", "160x50"]);
    assert_eq!((checked.0, replayed.0), (Some(1), Some(0)), "{}", checked.1);
    let words = [String::from_utf8_lossy(&done.stderr).into_owned(), checked.1, replayed.1];
    for words in words {
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        let place = format!("The kernel killed the job: the cgroup {}", group.name());
        assert!(words.contains(&place) && words.contains("was full (160.0 MiB)"), "{words}");
    }
    schemas::check_recording(Path::new(file));
}

#[test]
fn a_report_has_the_hosts_memory_and_the_json_is_as_its_schema_says() {
    let bench = Bench::new();
    let reported = bench.once(&[]);
    let host = &reported["host_memory"];
    let limits = host["limits"].as_array().unwrap_or_else(|| panic!("{reported:#}"));
    let machine = limits.iter().find(|it| it["of"] == "machine").unwrap();
    let rungs = machine["rungs"].as_array().unwrap();
    let sum: u64 = rungs.iter().filter_map(|it| it["bytes"].as_u64()).sum();
    assert_eq!(Value::from(sum), machine["size"]);
}

/// Two forked workers, which look at their parent's objects, or at its array, when they are asked to.
const WORKERS: &str = "
import os, sys
kind = sys.argv[1]
rows = [{'id': n, 'name': f'image-{n:012d}'} for n in range(1_200_000)] if kind == 'objects' else b'x' * (300 << 20)
pipes = []
for _ in range(2):
    (asked, ask), (answered, answer) = os.pipe(), os.pipe()
    if os.fork() == 0:
        os.read(asked, 1)
        total = sum(len(str(it)) for row in rows for it in row.values()) if kind == 'objects' else sum(rows[::4096])
        os.write(answer, b'.')
        os.read(asked, 1)
        os._exit(0)
    pipes.append((ask, answered))
print('begun', flush=True)
sys.stdin.readline()
for ask, answered in pipes:
    os.write(ask, b'.')
    os.read(answered, 1)
print('done', flush=True)
sys.stdin.readline()
for ask, _ in pipes:
    os.write(ask, b'.')
    os.wait()
";

#[test]
fn the_kernels_figures_show_what_forked_workers_copy_and_nothing_of_arrays() {
    for (kind, is_raised) in [("objects", true), ("array", false)] {
        let mut child = Command::new("python3")
            .args(["-c", WORKERS, kind])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut workers = Workers::default();
        let pid = child.id();
        let mut read = |at: u64| {
            let watched = Watched { pid, is_shown: true };
            let reading = Reader::new("/".into()).read(&[watched], None);
            let tree = reading.processes.into_iter().next().and_then(|it| it.tree);
            tree.inspect(|it| workers.reading(it, Stamp(at)))
        };
        assert_eq!(output.next().unwrap().unwrap(), "begun");
        let Some(first) = read(0) else {
            let _ = (child.kill(), child.wait());
            test_tiers::skip!("this kernel sums up no pages");
        };
        writeln!(child.stdin.as_mut().unwrap()).unwrap();
        assert_eq!(output.next().unwrap().unwrap(), "done");
        let last = read(10_000_000).unwrap();
        writeln!(child.stdin.as_mut().unwrap()).unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!((first.workers, last.workers), (2, 2));
        let copied = last.of_workers.private.0.saturating_sub(first.of_workers.private.0) / MIB;
        assert_eq!(workers.periods().len(), usize::from(is_raised), "{kind}: {copied} MiB copied");
        assert!(if is_raised { copied > 200 } else { copied < 20 }, "{kind}: {copied} MiB copied");
    }
}
