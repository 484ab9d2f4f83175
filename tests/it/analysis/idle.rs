//! Memory that processes hold without using it: on simulated devices with real processes, on screens, in `check` and
//! as alerts. A process needs no probe.

use crate::{
    analysis::step_time::recorded,
    commands::check,
    driver::nvml::{Bench, events},
    helpers::{
        prolonged::goes_on,
        story::{GIB, Story, counters, device, picture, text},
        terminal::{PATIENCE, until},
    },
    serve::exposed,
};
use ::simgpu::Fault;
use gpuwatch::{
    commands::serve::families::Family,
    facts::{
        event::{Event, Fact, ProcessInfo, ProcessUse},
        figures::Figure,
        metrics::Metric,
        units::Bytes,
    },
    model::{
        alerts::{NewAlerts, Policy},
        analysis::{cause::Cause, severity::Severity},
        findings::{Finding, Kind, findings},
        session::Session,
    },
    screen::{
        theme::Theme,
        ui::{Screen, Ui},
    },
};
use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

const NOTEBOOK: &[&str] = &["/opt/bin/python3", "-m", "ipykernel_launcher", "-f", "/tmp/kernel.json"];
const HOUR: u64 = 3600;

fn found(session: &Session) -> Vec<Finding> {
    findings(session).all.into_iter().filter(|it| it.kind == Kind::IdleMemory).collect()
}

/// One device with these processes on it, of 9 GiB each.
struct Machine {
    story: Story,
    pids: Vec<u32>,
    step: u64,
}

impl Machine {
    fn new(processes: &[(u32, &[&str])]) -> Self {
        let mut story = Story::default();
        story.wait(1_000_000_000).device(0, 40 * GIB, &[]);
        for (pid, argv) in processes {
            story.who(*pid, argv);
        }
        Self { story, pids: processes.iter().map(|it| it.0).collect(), step: 0 }
    }

    /// So many seconds in which the device is busy for so many percent.
    fn goes_on(&mut self, seconds: u64, percent: u64) -> &mut Self {
        self.trains(seconds, percent, false)
    }

    /// The same beside a job with a probe on another device.
    fn trains(&mut self, seconds: u64, percent: u64, has_job: bool) -> &mut Self {
        let list: Vec<ProcessUse> =
            self.pids.iter().map(|pid| ProcessUse { pid: *pid, used: Some(Bytes(9 * GIB)) }).collect();
        for second in 0..seconds {
            if second % 5 == 0 {
                let changes = [(Metric::GpuPercent, percent)].into_iter().collect();
                self.story.add(Fact::Metrics { device: device(0), changes });
                self.story.add(Fact::Processes { device: device(0), reading: Ok(list.clone()) });
            }
            self.story.wait(1_000_000);
            if has_job {
                self.step += 1;
                self.story.sample(0, self.step, counters(20 * GIB, GIB));
            }
        }
        self.story.add(Fact::Second);
        self
    }

    fn uses(&mut self, pid: u32, percent: u64) -> &mut Self {
        let changes = [(Figure::SmPercent, percent)].into_iter().collect();
        self.story.add(Fact::Figures { pid, device: Some(device(0)), changes });
        self
    }

    fn found(&self) -> Vec<Finding> {
        found(&self.story.session())
    }
}

#[test]
fn a_forgotten_notebook_is_information_without_a_probe() {
    let mut machine = Machine::new(&[(977, NOTEBOOK)]);
    machine.goes_on(100, 60).goes_on(HOUR - 60, 0);
    assert!(machine.found().is_empty(), "it is slow to raise");
    machine.goes_on(120, 0);
    let all = machine.found();
    let [it] = &all[..] else { panic!("{all:#?}") };
    assert_eq!((it.cause, it.severity, it.pid, it.probe), (Cause::IdleNotebook, Severity::Info, Some(977), None));
    assert_eq!(it.brief(), "a notebook holds device memory and does nothing: 9.00 GiB, for 60 min");
    let session = machine.story.session();
    let ui = Ui { screen: Screen::Alerts, ..Ui::default() };
    let shown = text(&picture(&session, &ui, &Theme::builtin("dusk").unwrap(), 140, 30));
    for words in ["pid 977 on GPU 0: idle-memory, idle-notebook", "ipykernel_launcher", "user ada", "holds 9.00 GiB"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let news = NewAlerts::default().at(&session, &Policy::default().findings(&session));
    assert!(news.is_empty(), "information never rings: {news:?}");
    machine.goes_on(20, 40);
    let all = machine.found();
    assert_eq!((all.len(), all[0].is_active()), (1, false), "a cell runs");
}

/// The driver has samples of the processes whose kernels run, and of no other.
#[test]
fn a_busy_neighbour_hides_no_forgotten_notebook_and_a_driver_without_samples_shows_none() {
    let mut machine = Machine::new(&[(977, NOTEBOOK), (978, &["python", "train.py"])]);
    machine.goes_on(2 * HOUR, 97);
    assert!(machine.found().is_empty(), "whose work it is is unknown");
    machine.uses(978, 96).goes_on(HOUR + 10, 97);
    let all = machine.found();
    let [it] = &all[..] else { panic!("{all:#?}") };
    assert_eq!((it.cause, it.pid), (Cause::IdleNotebook, Some(977)));
    assert!(it.account.iter().any(|it| it.contains("has not seen it use a device")), "{:?}", it.account);
    machine.uses(977, 3).goes_on(10, 97);
    assert!(!machine.found()[0].is_active());
    let mut served = Machine::new(&[(977, NOTEBOOK), (979, &["nvidia-cuda-mps-server"])]);
    served.uses(979, 50).goes_on(2 * HOUR, 60);
    assert!(served.found().is_empty(), "the service's work may be the notebook's");
}

#[test]
fn servers_busy_processes_and_unknown_ones_are_left_alone() {
    let server: &[&str] = &["python", "-m", "vllm.entrypoints.openai.api_server"];
    for (argv, percent) in [(server, 0), (&["tritonserver"], 0), (&["python", "train.py"], 80), (NOTEBOOK, 5)] {
        let mut machine = Machine::new(&[(977, argv)]);
        machine.goes_on(9 * HOUR, percent);
        assert!(machine.found().is_empty(), "{argv:?}: {:?}", machine.found());
    }
    let mut unknown = Machine::new(&[]);
    unknown.pids = vec![977];
    unknown.goes_on(9 * HOUR, 0);
    assert!(unknown.found().is_empty(), "a process of another container");
}

#[test]
fn a_probe_that_sends_steps_shows_that_its_process_works() {
    let mut machine = Machine::new(&[(4242, NOTEBOOK)]);
    machine.story.probe(0, 4242, 0, None);
    for step in 1..200 {
        machine.story.sample(0, step, counters(8 * GIB, GIB));
        machine.goes_on(60, 0);
    }
    assert!(machine.found().is_empty(), "{:#?}", machine.found());
}

#[test]
fn a_recording_of_an_orphan_fails_its_check_and_rings_once() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("orphan.jsonl.zst");
    let mut machine = Machine::new(&[(977, &["python", "train.py"])]);
    let info = ProcessInfo { pid: 977, start_ticks: 1, orphaned: true, ..ProcessInfo::default() };
    let argv = vec!["python".into(), "train.py".into()];
    machine.story.add(Fact::Process(ProcessInfo { argv, user: "ada".into(), ..info }));
    machine.story.device(1, 30 * GIB, &[(4242, 22 * GIB)]).probe(0, 4242, 1, None);
    machine.trains(200, 0, true);
    recorded(&machine.story, &file);
    assert_eq!(check::judged(&file, &["--fail-on", "idle-memory"]).0, 0);
    machine.trains(200, 0, true);
    recorded(&machine.story, &file);
    for (fail_on, code) in [("warning", 1), ("idle-memory", 1), ("critical", 0), ("stall", 0)] {
        assert_eq!(check::judged(&file, &["--fail-on", fail_on]).0, code, "{fail_on}");
    }
    let found = check::judged(&file, &[]).1["findings"][0].clone();
    assert_eq!((&found["kind"], &found["cause"]), (&"idle-memory".into(), &"orphaned-rank".into()), "{found:#}");
    assert_eq!((&found["pid"], &found["device_id"]), (&977.into(), &device(0).0.into()));
    let session = machine.story.session();
    let mut news = NewAlerts::default();
    let findings = Policy::default().findings(&session);
    let lines: Vec<String> = news.at(&session, &findings).into_iter().map(|it| it.line).collect();
    assert_eq!(lines, ["warning: pid 977 on GPU 0: idle-memory, orphaned-rank"]);
    assert!(news.at(&session, &findings).is_empty(), "once");
    // No probed process has it, so it is the device's for Prometheus.
    let served = exposed(&machine.story);
    let alerts: Vec<_> = served.iter().filter(|it| matches!(it.family, Family::DeviceAlert | Family::Alert)).collect();
    let [alert] = &alerts[..] else { panic!("{alerts:#?}") };
    let labels: Vec<&str> = alert.labels.iter().map(|(_, value)| value.raw()).collect();
    assert_eq!((alert.family, alert.value), (Family::DeviceAlert, 1.0));
    assert_eq!(labels, [device(0).0.as_str(), "idle-memory", "orphaned-rank", "warning"]);
}

/// Records a bench until the events show something, and returns them.
fn record(bench: &Bench, faults: &[Fault], shows: impl Fn(&[Event]) -> bool) -> Vec<Event> {
    // The driver has no sample of a process whose kernels do not run.
    let rests = ["answer=0 nvmlDeviceGetUtilizationRates", "idle nvmlDeviceGetProcessUtilization"];
    let faults: Vec<Fault> = faults.iter().cloned().chain(rests.map(|it| Fault::Line(it.into()))).collect();
    bench.machine.set_faults(&faults).unwrap();
    let file = bench.home().join(format!("{}.jsonl.zst", faults.len()));
    let mut recorder = bench.command(&["record", "-o", file.to_str().unwrap()]).spawn().unwrap();
    // The driver's thread reads metrics last.
    let is_whole = |all: &[Event]| {
        let read: BTreeSet<_> = all
            .iter()
            .filter_map(|it| if let Fact::Metrics { device, .. } = &it.fact { Some(device) } else { None })
            .collect();
        read.len() == bench.machine.cards().unwrap().len()
    };
    let is_there = until(PATIENCE, || {
        let all = events(&file);
        shows(&all) && is_whole(&all)
    });
    let all = events(&file);
    let _ = (recorder.kill(), recorder.wait());
    assert!(is_there, "{} events", all.len());
    all
}

/// Returns the session so many seconds after the events, in which what the driver reports stays as it was.
fn later(events: &[Event], seconds: u64) -> Session {
    let mut session = Session::default();
    for it in &goes_on(events, seconds) {
        session.apply(it);
    }
    session
}

fn described(events: &[Event], is_it: impl Fn(&ProcessInfo) -> bool) -> bool {
    events.iter().any(|it| matches!(&it.fact, Fact::Process(info) if is_it(info)))
}

fn lists(events: &[Event], wanted: u32) -> bool {
    let has = |it: &Event| matches!(&it.fact, Fact::Processes { reading: Ok(list), .. } if list.iter().any(|used| used.pid == wanted));
    events.iter().rev().take(40).any(has)
}

#[test]
fn a_zombie_whose_memory_the_driver_keeps_is_a_warning() {
    let mut bench = Bench::new();
    let pid = bench.tenant.id();
    let kept = Fault::Kept(0, pid, 5 << 30);
    let before = record(&bench, &[], |all| described(all, |it| it.pid == pid) && lists(all, pid));
    assert!(found(&later(&before, 30 * 60)).is_empty(), "it lives");
    // No parent reaps it, so that it stays a zombie.
    bench.tenant.kill().unwrap();
    let after = record(&bench, &[kept], |all| described(all, |it| it.pid == pid && it.ended) && lists(all, pid));
    let all = found(&later(&[before, after].concat(), 90));
    let [it] = &all[..] else { panic!("{all:#?}") };
    assert_eq!((it.cause, it.severity, it.pid), (Cause::EndedProcess, Severity::Warning, Some(pid)));
    let account = it.account.join("; ");
    assert!(account.contains("read end"), "its command line stays known: {account}");
}

/// A process that adopts others starts a launcher, which starts a rank and ends.
const ADOPTER: &str = r#"
import ctypes, os, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
if os.fork() == 0:
    rank = os.fork()
    if rank == 0:
        os.execve("/bin/sh", ["python", "-c", "read end"], {"TORCHELASTIC_RUN_ID": "none", "RANK": "1"})
    os.write(1, b"%d\n" % rank)
    os._exit(0)
os.wait()
os.write(1, b"adopted\n")
sys.stdin.read()
"#;

/// Starts a rank without a launcher; returns the process that adopted it, and its pid.
fn orphan(folder: &Path) -> (Child, u32) {
    let program: PathBuf = folder.join("tini");
    std::os::unix::fs::symlink("/usr/bin/python3", &program).unwrap();
    let mut command = Command::new(program);
    let mut adopter = command.args(["-c", ADOPTER]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(adopter.stdout.take().unwrap()).lines();
    let mut line = || lines.next().unwrap().unwrap();
    let pid = line().parse().unwrap();
    assert_eq!(line(), "adopted");
    (adopter, pid)
}

#[test]
fn a_rank_that_outlives_its_launcher_is_a_warning_when_it_rests() {
    let bench = Bench::new();
    let (mut adopter, pid) = orphan(bench.home());
    bench.machine.occupy(1, pid, 7 << 30).unwrap();
    let all = record(&bench, &[], |all| described(all, |it| it.pid == pid && it.orphaned) && lists(all, pid));
    let _ = (adopter.kill(), adopter.wait());
    assert!(found(&later(&all, 200)).is_empty(), "it is slow to raise");
    let all = found(&later(&all, 400));
    let [it] = &all[..] else { panic!("{all:#?}") };
    assert_eq!((it.cause, it.severity, it.pid), (Cause::OrphanedRank, Severity::Warning, Some(pid)));
    assert_eq!(it.evidence.get("held"), Some((7_u64 << 30) as f64));
}
