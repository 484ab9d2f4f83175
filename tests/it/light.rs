//! What a viewer costs: CPU, memory and bytes to the terminal, beside other programs.
//!
//! `GPUWATCH_BENCHMARK=full cargo test --release --test it light:: -- --nocapture` compares gpuwatch with nvtop,
//! nvitop and gpustat on the same eight simulated devices and holds each screen to its targets.

use crate::{
    nvml::libraries,
    peers,
    pty::{PATIENCE, PROGRAM, spawn, until},
};
use ::simgpu::{Fault, Machine};
use portable_pty::{Child, MasterPty};
use std::{
    fs,
    io::{Read, Write},
    path::Path,
    process::{Child as Process, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use tempfile::TempDir;

const DEVICES: usize = 8;
const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// The size of all the terminals.
const SIZE: (u16, u16) = (50, 200);

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

/// A program in a terminal that only counts what comes.
struct Meter {
    child: Box<dyn Child + Send + Sync>,
    came: Arc<Mutex<Came>>,
    keys: Box<dyn Write + Send>,
    _master: Box<dyn MasterPty + Send>,
    _home: TempDir,
}

struct Came {
    bytes: Vec<u8>,
    first: Option<Instant>,
    /// When the first whole picture was there.
    frame: Option<Instant>,
}

/// The end of each frame of gpuwatch.
const PICTURE: &[u8] = b"\x1b[?2026l";

impl Meter {
    fn start(program: &str, arguments: &[String], environment: &[(&str, String)]) -> Self {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let (home, master, child) = spawn(SIZE, program, &arguments, &environment);
        let mut reader = master.try_clone_reader().unwrap();
        let keys = master.take_writer().unwrap();
        let came = Arc::new(Mutex::new(Came { bytes: Vec::new(), first: None, frame: None }));
        let shared = Arc::clone(&came);
        thread::spawn(move || {
            let mut buffer = [0; 16384];
            while let Ok(read @ 1..) = reader.read(&mut buffer) {
                let now = Instant::now();
                let mut came = shared.lock().unwrap();
                came.first.get_or_insert(now);
                came.bytes.extend_from_slice(&buffer[..read]);
                if came.frame.is_none() && came.bytes.windows(PICTURE.len()).any(|it| it == PICTURE) {
                    came.frame = Some(now);
                }
            }
        });
        Self { child, came, keys, _master: master, _home: home }
    }

    /// Presses keys, each after a picture that shows the effect of the one before.
    fn press(mut self, keys: &str) -> Self {
        for key in keys.bytes() {
            let pictures = self.pictures();
            assert!(until(PATIENCE, || self.pictures() > pictures), "no picture");
            self.keys.write_all(&[key]).unwrap();
        }
        self
    }

    fn pid(&self) -> u32 {
        self.child.process_id().unwrap()
    }

    fn bytes(&self) -> usize {
        self.came.lock().unwrap().bytes.len()
    }

    fn pictures(&self) -> usize {
        self.came.lock().unwrap().bytes.windows(PICTURE.len()).filter(|it| *it == PICTURE).count()
    }

    /// Nanoseconds on a processor, of all its threads.
    fn cpu_ns(&self) -> u64 {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        let spent = threads.flatten().filter_map(|it| fs::read_to_string(it.path().join("schedstat")).ok());
        spent.map(|it| it.split(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }

    /// A figure of the process's status, in KiB.
    fn kib(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|it| it.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    fn measure(&self, time: Duration) -> Cost {
        thread::sleep(SETTLING);
        let (cpu, bytes, begun) = (self.cpu_ns(), self.bytes(), Instant::now());
        thread::sleep(time);
        let seconds = begun.elapsed().as_secs_f64();
        Cost {
            seconds,
            cpu_s: (self.cpu_ns() - cpu) as f64 / 1e9,
            peak_mib: self.kib("VmHWM:") as f64 / 1024.0,
            bytes_per_s: (self.bytes() - bytes) as f64 / seconds,
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Cost {
    seconds: f64,
    cpu_s: f64,
    peak_mib: f64,
    bytes_per_s: f64,
}

impl Cost {
    fn percent(&self) -> f64 {
        self.cpu_s / self.seconds * 100.0
    }

    /// Returns the limits that gpuwatch exceeds: no more CPU than nvtop, at most half of its bytes.
    fn misses(&self, nvtop: &Self) -> Vec<String> {
        let cpu = (self.cpu_s > nvtop.cpu_s).then(|| format!("{:.3} s against {:.3} s", self.cpu_s, nvtop.cpu_s));
        let most = nvtop.bytes_per_s / 2.0;
        let bytes = (self.bytes_per_s > most).then(|| format!("{:.0} bytes/s, not {most:.0}", self.bytes_per_s));
        cpu.into_iter().chain(bytes).collect()
    }

    fn line(&self, name: &str) -> String {
        format!(
            "{name:<28} {:>8.3} s CPU in {:.0} s = {:>6.2} % {:>8.1} MiB {:>9.0} bytes/s",
            self.cpu_s,
            self.seconds,
            self.percent(),
            self.peak_mib,
            self.bytes_per_s
        )
    }
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
    let meter = Meter::start(PROGRAM, &["--interval".to_owned(), "100ms".to_owned()], &eight.environment());
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
            let cost = Meter::start(PROGRAM, &arguments, &environment).press(keys).measure(time);
            println!("{}", cost.line(&format!("gpuwatch, {screen}")));
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
            let cost = Meter::start(program, &arguments, &environment).measure(time);
            println!("{}", cost.line(&name));
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
            let meter = Meter::start(PROGRAM, &[], &environment);
            assert!(until(PATIENCE, || meter.came.lock().unwrap().frame.is_some()), "no picture");
            let came = meter.came.lock().unwrap();
            best = (best.0.min(came.first.unwrap() - begun), best.1.min(came.frame.unwrap() - begun));
        }
        println!("{faults:?}: the first byte after {:?}, the first picture after {:?}", best.0, best.1);
        let [byte, picture] = [30, 100].map(Duration::from_millis);
        assert!(!is_benchmark || (best.0 <= byte && best.1 <= picture), "{best:?}");
    }
}
