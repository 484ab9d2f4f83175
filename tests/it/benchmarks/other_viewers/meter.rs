//! What a program in a terminal costs.

use portable_pty::{Child, MasterPty};
use std::{
    fmt::{self, Display, Formatter},
    fs,
    io::{Read, Write},
    sync::{Arc, Mutex},
    thread,
    time::Instant,
};
use tempfile::TempDir;

/// The size of all the terminals: rows and columns.
pub(crate) const SIZE: (u16, u16) = (50, 200);

/// A program in a terminal that only counts what comes.
pub(crate) struct Meter {
    child: Box<dyn Child + Send + Sync>,
    came: Arc<Mutex<Came>>,
    keys: Box<dyn Write + Send>,
    _master: Box<dyn MasterPty + Send>,
    _home: TempDir,
}

#[derive(Default)]
struct Came {
    bytes: Vec<u8>,
    first: Option<Instant>,
    /// When the first whole picture was there.
    frame: Option<Instant>,
}

/// The end of each frame of gpuwatch.
const PICTURE: &[u8] = b"\x1b[?2026l";

impl Meter {
    /// Counts what a program writes that was started in a terminal, with a home of its own.
    pub(crate) fn of(
        (home, master, child): (TempDir, Box<dyn MasterPty + Send>, Box<dyn Child + Send + Sync>),
    ) -> Self {
        let mut reader = master.try_clone_reader().unwrap();
        let keys = master.take_writer().unwrap();
        let came = Arc::new(Mutex::new(Came::default()));
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

    /// Presses a key, after a picture that shows the effect of the one before.
    pub(crate) fn press(&mut self, key: u8, until: impl FnOnce(&mut dyn FnMut() -> bool) -> bool) {
        let pictures = self.pictures();
        assert!(until(&mut || self.pictures() > pictures), "no picture");
        self.keys.write_all(&[key]).unwrap();
    }

    /// When its first byte and its first whole picture came.
    pub(crate) fn first(&self) -> Option<(Instant, Instant)> {
        let came = self.came.lock().unwrap();
        came.first.zip(came.frame)
    }

    fn pid(&self) -> u32 {
        self.child.process_id().unwrap()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.came.lock().unwrap().bytes.len()
    }

    pub(crate) fn pictures(&self) -> usize {
        self.came.lock().unwrap().bytes.windows(PICTURE.len()).filter(|it| *it == PICTURE).count()
    }

    /// Nanoseconds on a processor, of all its threads.
    fn cpu_ns(&self) -> u64 {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        let spent = threads.flatten().filter_map(|it| fs::read_to_string(it.path().join("schedstat")).ok());
        spent.map(|it| it.split(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }

    /// A figure of the process's status, in KiB.
    pub(crate) fn kib(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|it| it.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// Its cost while something takes time.
    pub(crate) fn measure(&self, during: impl FnOnce()) -> Cost {
        let (cpu, bytes, begun) = (self.cpu_ns(), self.bytes(), Instant::now());
        during();
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

/// What a program took for some seconds.
pub(crate) struct Cost {
    seconds: f64,
    cpu_s: f64,
    pub(crate) peak_mib: f64,
    bytes_per_s: f64,
}

impl Cost {
    /// CPU time, in percent of one core.
    fn percent(&self) -> f64 {
        self.cpu_s / self.seconds * 100.0
    }

    /// Returns the limits that gpuwatch exceeds: no more CPU than nvtop, at most half of its bytes.
    pub(crate) fn misses(&self, nvtop: &Self) -> Vec<String> {
        let cpu = (self.cpu_s > nvtop.cpu_s).then(|| format!("{:.3} s against {:.3} s", self.cpu_s, nvtop.cpu_s));
        let most = nvtop.bytes_per_s / 2.0;
        let bytes = (self.bytes_per_s > most).then(|| format!("{:.0} bytes/s, not {most:.0}", self.bytes_per_s));
        cpu.into_iter().chain(bytes).collect()
    }
}

impl Display for Cost {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} % CPU, {:.1} MiB, {:.0} bytes/s", self.percent(), self.peak_mib, self.bytes_per_s)
    }
}
