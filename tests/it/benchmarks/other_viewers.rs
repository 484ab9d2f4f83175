//! What a viewer costs: CPU, memory and bytes to the terminal, beside other programs.
//!
//! `GPUWATCH_BENCHMARK=full cargo test --profile dist --test it other_viewers:: -- --nocapture` compares gpuwatch with
//! nvtop, nvitop and gpustat on the same eight simulated devices and holds each screen to its targets.

mod meter;

use crate::{
    driver::{nvml::libraries, peers},
    helpers::terminal::{PATIENCE, PROGRAM, spawn, until},
};
use ::simgpu::{Fault, Machine};
use meter::{Cost, Meter, SIZE};
use std::{
    path::Path,
    process::{Child as Process, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use tempfile::TempDir;

const DEVICES: usize = 8;
const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// The time before a measurement: starting a program costs more than watching.
const SETTLING: Duration = Duration::from_secs(15);

/// Screens of gpuwatch: the flags and the keys that lead to them. Each reads other figures of the driver and the host.
const SCREENS: [(&str, &[&str], &str); 6] = [
    ("memory", &[], ""),
    ("training", &["--preset", "training"], ""),
    ("hardware", &["--preset", "hardware"], ""),
    ("compact", &["--preset", "compact"], ""),
    ("a device", &[], "\r"),
    ("a process", &[], "\t\r"),
];

/// A machine with eight devices, a process on each, and memory that moves on half of them ten times a second: far more
/// than a training job's reserved memory does, so that every curve has something to show.
struct Eight {
    machine: Machine,
    home: TempDir,
    tenants: Vec<Process>,
    end: Arc<AtomicBool>,
    mover: Option<JoinHandle<()>>,
}

impl Eight {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let devices = ["NVIDIA H200:143771MiB:615MiB"; DEVICES].join(";");
        let machine = Machine::new(&devices, &home.path().join("machine")).unwrap();
        let tenant = |device: usize| {
            let mut shell = Command::new("/bin/sh");
            let tenant = shell.args(["-c", "read end"]).stdin(Stdio::piped()).spawn().unwrap();
            machine.occupy(device, tenant.id(), (10 + 10 * device as u64) * GIB).unwrap();
            tenant
        };
        let tenants: Vec<Process> = (0..DEVICES).map(tenant).collect();
        let end = Arc::new(AtomicBool::new(false));
        let (ended, moved, pids) =
            (Arc::clone(&end), machine.clone(), tenants.iter().map(Process::id).collect::<Vec<_>>());
        let wave = thread::spawn(move || {
            for moment in 0_u64.. {
                if ended.load(Relaxed) {
                    return;
                }
                for (device, pid) in pids.iter().enumerate().step_by(2) {
                    let more = moment * (device as u64 + 3) * 64 % 8192;
                    moved.occupy(device, *pid, (10 + 10 * device as u64) * GIB + more * MIB).unwrap();
                }
                thread::park_timeout(Duration::from_millis(100));
            }
        });
        Self { machine, home, tenants, end, mover: Some(wave) }
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        let mut all: Vec<(&str, String)> = self
            .machine
            .environment(libraries())
            .into_iter()
            .map(|(name, value)| (name, value.into_string().unwrap()))
            .collect();
        all.push(("GPUWATCH_NVML_PATH", libraries().join("libnvidia-ml.so.1").to_str().unwrap().to_owned()));
        all.push(("GPUWATCH_SOCKET_DIR", self.home.path().join("sockets").to_str().unwrap().to_owned()));
        all
    }
}

impl Drop for Eight {
    fn drop(&mut self) {
        self.end.store(true, Relaxed);
        if let Some(mover) = self.mover.take() {
            mover.thread().unpark();
            let _ = mover.join();
        }
        for tenant in &mut self.tenants {
            let _ = tenant.kill();
            let _ = tenant.wait();
        }
    }
}

/// A program in a terminal, on a machine.
fn start(program: &str, arguments: &[String], environment: &[(&str, String)]) -> Meter {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    Meter::of(spawn(SIZE, program, &arguments, &environment))
}

/// Its cost over that time, after a while.
fn measured(meter: &Meter, time: Duration) -> Cost {
    thread::sleep(SETTLING);
    meter.measure(|| thread::sleep(time))
}

/// Returns the programs that show eight devices at this interval, in milliseconds.
fn contenders(every_ms: u32) -> Vec<(String, Result<&'static Path, String>, Vec<String>)> {
    let arguments = |it: &[&str]| it.iter().map(|argument| (*argument).to_owned()).collect::<Vec<_>>();
    let seconds = f64::from(every_ms) / 1000.0;
    // nvitop is never faster than that.
    let slower = seconds.max(0.25);
    vec![
        ("nvtop".to_owned(), peers::nvtop(), arguments(&["-d", &(every_ms / 100).to_string()])),
        (
            if slower > seconds { format!("nvitop (each {slower} s)") } else { "nvitop".to_owned() },
            peers::python(),
            arguments(&["-m", "nvitop", "--interval", &slower.to_string()]),
        ),
        ("gpustat".to_owned(), peers::python(), arguments(&["-m", "gpustat", "-i", &seconds.to_string()])),
    ]
}

#[test]
fn a_picture_of_eight_devices_that_move_takes_few_bytes() {
    let eight = Eight::new();
    let meter = start(PROGRAM, &["--interval".to_owned(), "100ms".to_owned()], &eight.environment());
    // The first has all of the screen.
    assert!(until(PATIENCE, || meter.pictures() >= 5));
    let (bytes, pictures) = (meter.bytes(), meter.pictures());
    assert!(until(PATIENCE, || meter.pictures() >= pictures + 15));
    let each = (meter.bytes() - bytes) / (meter.pictures() - pictures);
    assert!((10..4000).contains(&each), "{each} bytes a picture");
    // Pages of a program with debug information would hide what it takes itself.
    let own_mib = meter.kib("RssAnon:") as f64 / 1024.0;
    assert!(own_mib <= 8.0, "{own_mib:.1} MiB");
}

#[test]
fn watching_the_same_devices_costs_less_than_other_tools() {
    test_tiers::benchmark!();
    let eight = Eight::new();
    let environment = eight.environment();
    let mut missed = Vec::new();
    for every_ms in [1000, 100] {
        let time = Duration::from_secs(20);
        println!("eight devices, a reading each {every_ms} ms, a terminal of 200×50:");
        let mut own = Vec::new();
        for (screen, flags, keys) in SCREENS {
            let mut arguments = vec!["--interval".to_owned(), format!("{every_ms}ms")];
            arguments.extend(flags.iter().map(|it| (*it).to_owned()));
            let mut meter = start(PROGRAM, &arguments, &environment);
            keys.bytes().for_each(|key| meter.press(key, |shown| until(PATIENCE, shown)));
            let cost = measured(&meter, time);
            println!("gpuwatch, {screen:<18} {cost}");
            if cost.peak_mib > 12.0 {
                missed.push(format!("{screen}, {every_ms} ms: {:.1} MiB", cost.peak_mib));
            }
            own.push((screen, cost));
        }
        for (name, program, arguments) in contenders(every_ms) {
            let program = match program {
                Ok(it) => it.to_str().unwrap(),
                Err(why) => {
                    test_tiers::leave_out!("{name}: {why}");
                    continue;
                }
            };
            let cost = measured(&start(program, &arguments, &environment), time);
            println!("{name:<28} {cost}");
            if name == "nvtop" {
                for (screen, own) in &own {
                    missed.extend(own.misses(&cost).iter().map(|why| format!("{screen}, {every_ms} ms: {why}")));
                }
            }
        }
    }
    // At the end, so that a miss keeps no figure from being seen.
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn the_first_picture_does_not_wait_for_the_driver() {
    let eight = Eight::new();
    let is_benchmark = test_tiers::is_benchmark();
    // Far longer than anybody has patience for.
    let stall = Fault::Line("stall=3600 nvmlInit_v2".into());
    for faults in [&[][..], &[stall]] {
        eight.machine.set_faults(faults).unwrap();
        let environment = eight.environment();
        let mut best = (Duration::MAX, Duration::MAX);
        for _ in 0..if is_benchmark { 20 } else { 1 } {
            let begun = Instant::now();
            let meter = start(PROGRAM, &[], &environment);
            assert!(until(PATIENCE, || meter.first().is_some()), "no picture");
            let (byte, picture) = meter.first().unwrap();
            best = (best.0.min(byte - begun), best.1.min(picture - begun));
        }
        println!("{faults:?}: the first byte after {:?}, the first picture after {:?}", best.0, best.1);
        let [byte, picture] = [30, 100].map(Duration::from_millis);
        assert!(!is_benchmark || (best.0 <= byte && best.1 <= picture), "{best:?}");
    }
}
