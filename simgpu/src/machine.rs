//! A machine with simulated devices, in a directory of its own.

use crate::{gpu::state::Book, prepare::ALL_FILE};
use std::{
    env,
    ffi::OsString,
    fs,
    io::{self, Error},
    path::{Path, PathBuf},
    time::Duration,
};

/// The variable with the file that has to be loaded before PyTorch.
const FIRST: &str = "SIMGPU_FIRST";

/// Returns the file that needs all libraries of a folder, if it has such a file.
fn all(libraries: &Path) -> Option<PathBuf> {
    Some(libraries.join(ALL_FILE)).filter(|it| it.is_file())
}

/// Returns a list that begins with one more than the variable's.
fn before(mut first: OsString, variable: &str) -> OsString {
    if let Some(others) = env::var_os(variable).filter(|it| !it.is_empty()) {
        first.push(":");
        first.push(others);
    }
    first
}

/// A machine: its devices and their processes are in `state` in its directory.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The machine's devices, if its creator sets them.
    devices: Option<String>,
    dir: PathBuf,
}

/// One device, with its current use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// The device's name.
    pub name: String,
    /// Its identity, as NVML writes it.
    pub uuid: String,
    /// Total bytes.
    pub total: u64,
    /// Bytes that the driver reserves.
    pub reserved: u64,
    /// The processes with memory on it.
    pub tenants: Vec<Tenant>,
}

/// One process's memory on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// The process.
    pub pid: u32,
    /// Bytes, the context's own included.
    pub used: u64,
}

/// A fault of NVML, in effect from one call to the next.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// Every call takes that long.
    Stall(Duration),
    /// `NVML_ERROR_GPU_IS_LOST`
    Lost,
    /// `NVML_ERROR_NO_PERMISSION`
    NoPermission,
    /// `NVML_ERROR_FUNCTION_NOT_FOUND` for the second version of the memory call.
    NoMemoryV2,
    /// Processes are listed, their memory is not available (as on WSL).
    NoProcessMemory,
    /// `NVML_ERROR_FUNCTION_NOT_FOUND` for the third version of the process list.
    NoProcessesV3,
    /// `NVML_ERROR_LIB_RM_VERSION_MISMATCH`: the driver was updated under the running kernel module.
    Mismatch,
    /// The device of that index is not there.
    Gone(usize),
    /// The device of that index is divided into so many equal MIG devices, 7 at most.
    Mig(usize, usize),
    /// The device of that index has reported that critical error, once.
    Xid(usize, u64),
    /// The device of that index still has so many bytes of a process (its pid) that has ended.
    Kept(usize, u32, u64),
    /// A line as the library reads it, `WORD[=VALUE] [CALL [DEVICE]]`: words `stall`, `lost`, `no-permission`,
    /// `no-function`, `not-supported`, `unknown`, `no-process-memory`, `mismatch`, `gone`, `mig`, `xid`, `kept`,
    /// `answer` (the number that a call returns), `log` (see [`Machine::calls`]); CALL a name, or the beginning of one
    /// with `*`, or `CALL:ARGUMENT` for one clock, link, field or process; DEVICE an index. For
    /// `nvmlDeviceGetProcessUtilization`, `idle CALL:PID` leaves a process out, and `answer=N CALL:sm:PID` sets its
    /// part (`sm`, `memory`, `encoder`, `decoder`; without `:PID` that of all). For a field that counts what flows,
    /// `answer=N CALL:ARGUMENT:flow` is the flow in a second.
    Line(String),
}

impl Fault {
    fn line(&self) -> String {
        match self {
            Self::Stall(time) => format!("stall={}", time.as_secs_f64()),
            Self::Lost => "lost".into(),
            Self::NoPermission => "no-permission".into(),
            Self::NoMemoryV2 => "no-function nvmlDeviceGetMemoryInfo_v2".into(),
            Self::NoProcessMemory => "no-process-memory".into(),
            Self::NoProcessesV3 => "no-function nvmlDeviceGetComputeRunningProcesses_v3".into(),
            Self::Mismatch => "mismatch".into(),
            Self::Gone(device) => format!("gone * {device}"),
            Self::Mig(device, parts) => format!("mig={parts} * {device}"),
            Self::Kept(device, pid, bytes) => format!("kept={pid}:{bytes} * {device}"),
            Self::Xid(device, number) => format!("xid={number} * {device}"),
            Self::Line(line) => line.clone(),
        }
    }
}

impl Machine {
    /// A machine with devices such as `NVIDIA H200:143771MiB:615MiB;…` (name, total, what the driver keeps of it), its
    /// state in `dir`. A machine that is in use there stays as it is.
    ///
    /// # Errors
    ///
    /// When the directory or the state cannot be made.
    pub fn new(devices: &str, dir: &Path) -> io::Result<Self> {
        Book::open(dir, Some(devices))?;
        Ok(Self { devices: Some(devices.to_owned()), dir: dir.to_owned() })
    }

    /// The machine in `dir`, whatever it has.
    ///
    /// # Errors
    ///
    /// When the directory or the state cannot be opened, or made where there is none.
    pub fn open(dir: &Path) -> io::Result<Self> {
        Book::open(dir, None)?;
        Ok(Self { devices: None, dir: dir.to_owned() })
    }

    /// The environment in which a program finds the machine, with the libraries that were prepared in `libraries`.
    pub fn environment(&self, libraries: &Path) -> Vec<(&'static str, OsString)> {
        let mut environment = vec![
            ("LD_LIBRARY_PATH", before(libraries.as_os_str().to_owned(), "LD_LIBRARY_PATH")),
            ("SIMGPU_DIR", self.dir.clone().into()),
        ];
        environment.extend(all(libraries).map(|it| (FIRST, it.into())));
        environment.extend(self.devices.iter().map(|it| ("SIMGPU_DEVICES", it.into())));
        environment
    }

    /// The variable by which every program that is started loads the libraries before all others, for programs that
    /// cannot load the file of `SIMGPU_FIRST` themselves before PyTorch. A program with another libc cannot start with
    /// it. `None` for libraries of NVML alone.
    pub fn preload(&self, libraries: &Path) -> Option<(&'static str, OsString)> {
        const NAME: &str = "LD_PRELOAD";
        all(libraries).map(|it| (NAME, before(it.into(), NAME)))
    }

    /// The devices as they stand.
    ///
    /// # Errors
    ///
    /// When the state cannot be read.
    pub fn cards(&self) -> io::Result<Vec<Card>> {
        Ok(Book::open(&self.dir, None)?.locked(|shared| shared.cards().iter().map(Card::from).collect()))
    }

    /// Bytes that a process has on a device, its context included; none when it has no context there.
    ///
    /// # Errors
    ///
    /// When the state cannot be read.
    pub fn used(&self, device: usize, pid: u32) -> io::Result<Option<u64>> {
        let cards = self.cards()?;
        let tenants = cards.get(device).map(|it| it.tenants.as_slice()).unwrap_or_default();
        Ok(tenants.iter().find(|it| it.pid == pid).map(|it| it.used))
    }

    /// Sets the bytes of a living process on a device, as if it had allocated them; 0 removes it from the device.
    ///
    /// # Errors
    ///
    /// When there is no such device or process, or no room in the device's list.
    pub fn occupy(&self, device: usize, pid: u32, bytes: u64) -> io::Result<()> {
        let done =
            Book::open(&self.dir, None)?.locked(|shared| shared.card(device).is_some_and(|card| card.set(pid, bytes)));
        if done { Ok(()) } else { Err(Error::other(format!("device {device} or process {pid}: no such one"))) }
    }

    /// The calls of NVML since the fault `log` was first set, as `CALL [DEVICE]`.
    pub fn calls(&self) -> Vec<String> {
        fs::read_to_string(self.dir.join("calls")).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// Sets NVML's faults from its next call on, and removes all others.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written.
    pub fn set_faults(&self, faults: &[Fault]) -> io::Result<()> {
        let text: String = faults.iter().map(|it| it.line() + "\n").collect();
        let (new, path) = (self.dir.join("faults.new"), self.dir.join("faults"));
        fs::write(&new, text)?;
        fs::rename(new, path)
    }
}

impl From<&crate::gpu::state::Card> for Card {
    fn from(card: &crate::gpu::state::Card) -> Self {
        Self {
            name: card.name().to_owned(),
            uuid: card.uuid().to_owned(),
            total: card.total,
            reserved: card.reserved,
            tenants: card.tenants().iter().map(|it| Tenant { pid: it.pid, used: it.used }).collect(),
        }
    }
}
