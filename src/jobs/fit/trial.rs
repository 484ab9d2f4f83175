//! One run of the job on a simulated machine.

use super::{
    Alone, Question, Trouble,
    job_report::{self, JobReport, TRAINING},
    ranks::{self, Present},
    stop,
};
use crate::{
    facts::{event::unsuccessful, units::Bytes},
    jobs::simulated::{self, Scratch},
    model::fit::{Device, Need, Technique},
};
use simgpu::Machine;
use std::{
    env,
    ffi::OsString,
    fs::{self, File},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

const MIB: u64 = 1 << 20;

/// Seconds without a CUDA call after which that is reported.
const SILENT: u64 = 60;

/// Seconds between two signs of life of a job that makes no step.
const OFTEN: u64 = 30;

/// Seconds beyond the limit that a job has to end by itself: its account names the line where it was.
const PATIENCE: u64 = 10;

/// Recordings of simulated jobs that are kept, in a folder of their own.
const KEPT: &str = "50";

/// A device on which every job fits.
const PLENTY: u64 = 512 << 30;

/// What every run of one question has in common. Its clones run beside one another.
#[derive(Clone)]
pub(super) struct Bench {
    program: PathBuf,
    libraries: PathBuf,
    scratch: Arc<Scratch>,
    command: Vec<OsString>,
    /// A variable of the environment, and its placeholder in the command.
    set: Option<(String, String)>,
    steps: Option<u32>,
    alone: Alone,
    seconds: u64,
    recording: Option<PathBuf>,
    runs: Arc<AtomicU32>,
    injected: Injected,
    /// The ranks that run, where some are absent.
    pub(super) present: Option<Present>,
}

/// Techniques that a run injects into the job (`probes/python/gpuwatch_probe/_advise.py`).
#[derive(Clone, Debug, Default)]
pub(super) enum Injected {
    /// None: the job is as it is.
    #[default]
    Nothing,
    /// All, without an effect: which ones apply.
    Observers,
    /// These, and what the observers noted for them, as JSON.
    These(Vec<&'static Technique>, String),
}

/// A machine for one run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup<'a> {
    pub(super) device: &'a Device,
    /// Bytes of each device and what lies outside the allocator; `None` of one on which every job fits.
    pub(super) limit: Option<Limit>,
    /// Whether sizes that depend on values are the smallest ones, and loops on them the shortest; otherwise the largest
    /// and long ones.
    pub(super) is_least: bool,
}

/// A device of the requested size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    /// Bytes that one process has there beside what its allocator reserves.
    pub(super) context: u64,
    /// Bytes of each communicator.
    pub(super) communicator: u64,
}

impl Limit {
    /// Returns the limits in which all that is uncertain takes the least (0) or the most (1).
    pub(super) fn of(need: &Need, processes: u64, communicators: u64, most: bool) -> Self {
        let bytes = |it: &crate::model::fit::Overhead| if most { it.high } else { it.low };
        let sum = |is_nccl: bool| {
            need.outside.iter().filter(|it| !it.is_optional && it.name.starts_with("NCCL") == is_nccl).map(bytes).sum()
        };
        let (all, nccl): (u64, u64) = (sum(false), sum(true));
        Self { context: all.div_ceil(processes.max(1)), communicator: nccl.div_ceil(communicators.max(1)) }
    }
}

/// How a run ended.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    /// It made its steps, or came to its end.
    Finished,
    /// Memory ran out, at this line of the job, with the phase where that is not training.
    Full(Option<String>),
    /// It failed after a call that is not simulated: the call, and the job's line.
    Refused(String, Option<String>),
    /// It failed: why, in a sentence, and the end of its output.
    Failed(String),
    /// No process of it used a GPU.
    Unused,
    /// It trains on the CPU, at this line.
    Processor(Option<String>),
    /// It was not over after so many seconds: the steps that ran, unless no process used a GPU, and where it was.
    Late(u64, Option<u64>, Option<String>),
}

/// A run that is over.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) accounts: Vec<JobReport>,
    pub(super) outcome: Outcome,
    /// Whole seconds that it took.
    pub(super) seconds: u64,
    /// How the command ended, unless it succeeded: `exit code 3`.
    pub(super) ending: Option<String>,
}

impl Bench {
    pub(super) fn new(question: &Question) -> Result<Self, Trouble> {
        let slurm = question.ranks.is_some().then(|| ranks::without_srun(&question.command)).flatten();
        let command = slurm.as_ref().unwrap_or(&question.command);
        let torch = simgpu::torch_of(command);
        // simgpu's advice is for its own command line.
        let why = |e: std::io::Error| e.to_string().split("; use --torch").next().unwrap_or_default().to_owned();
        let torch = torch.map_err(|e| Trouble::NoTorch(why(e)))?;
        Ok(Self {
            program: env::current_exe()?,
            libraries: simulated::libraries(&torch)?,
            scratch: Arc::new(Scratch::new("fit")?),
            command: command.clone(),
            set: None,
            steps: question.steps,
            alone: question.alone,
            seconds: question.seconds,
            recording: question.recording.clone(),
            runs: Arc::default(),
            injected: Injected::Nothing,
            present: question.ranks.as_ref().map(|it| Present::new(it, it.nodes.most(), slurm.is_some())),
        })
    }

    /// Sets the varied value for the runs from here on.
    pub(super) fn set(&mut self, value: (String, String)) {
        self.set = Some(value);
    }

    /// Returns the varied value, as `batch=32`.
    pub(super) fn value(&self) -> Option<String> {
        self.set.as_ref().map(|(name, value)| format!("{name}={value}"))
    }

    /// Returns one whose runs inject techniques.
    pub(super) fn with(&self, injected: Injected) -> Self {
        Self { injected, ..self.clone() }
    }

    /// Runs the job. With `is_main`, it is recorded for the user, and its allocations are traced.
    pub(super) fn run(&self, setup: &Setup, is_main: bool, progress: &mut dyn FnMut(&str)) -> Result<Trial, Trouble> {
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        let folder = self.scratch.path().join(format!("run-{number}"));
        let accounts = folder.join("accounts");
        fs::create_dir_all(&accounts)?;
        let Device { driver_name, total, reserved, count, .. } = setup.device;
        let (total, reserved) = if setup.limit.is_some() { (*total, *reserved) } else { (PLENTY, 0) };
        let one = format!("{driver_name}:{total}:{reserved}");
        let ran = self.present.as_ref().map_or(0, Present::count);
        let machine = Machine::new(&vec![one; ran.max(*count as usize)].join(";"), &folder.join("machine"))?;
        let log = folder.join("output");
        let out = File::create(&log)?;
        let mut command = Command::new(&self.program);
        command.args(["run", "--summary", "never"]);
        match &self.recording {
            Some(file) if is_main => drop(command.arg("--output").arg(file)),
            None if is_main => drop(command.args(["--simulated", "--keep", KEPT])),
            _ => drop(command.arg("--output").arg(folder.join("run.jsonl.zst"))),
        }
        command.arg("--").args(self.words());
        for (name, _) in env::vars_os().filter(|it| is_foreign(&it.0)) {
            command.env_remove(name);
        }
        command
            .envs(machine.environment(&self.libraries))
            .env("GPUWATCH", "nosites,noparts")
            .env("GPUWATCH_FIT", &accounts);
        // Live views show what runs on devices, and this job does not.
        command.env("GPUWATCH_SOCKET_DIR", folder.join("sockets"));
        command.env("GPUWATCH_NVML_PATH", self.libraries.join("libnvidia-ml.so.1"));
        if let Some(limit) = setup.limit {
            command.env("SIMGPU_CONTEXT_MB", limit.context.div_ceil(MIB).to_string());
            command.env("SIMGPU_NCCL_MB", limit.communicator.div_ceil(MIB).to_string());
        }
        command.envs(self.steps.map(|it| ("GPUWATCH_FIT_STEPS", it.to_string())));
        command.envs(self.alone.name().map(|it| ("GPUWATCH_FIT_ALONE", it)));
        command.env("GPUWATCH_FIT_SECONDS", self.seconds.to_string());
        command.envs(setup.is_least.then_some(("GPUWATCH_FIT_VALUES", "least")));
        command.envs(is_main.then_some(("GPUWATCH_FIT_TRACE", "1")));
        command.envs(self.present.iter().flat_map(|it| it.variables(*count)));
        command.envs(self.set.clone());
        self.injected.set(&mut command);
        let job = command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out).spawn()?;
        let (mut steps, mut is_late, mut seconds) = (None, false, 0);
        let status = stop::watch(job, |second| {
            seconds = second;
            let now = JobReport::steps_so_far(&accounts);
            let words = match now {
                Some(now) if now > 0 && Some(now) != steps => Some(format!("step {now} after {second} s")),
                None if second == SILENT => {
                    Some(format!("no CUDA call in {SILENT} s; the job may run on the CPU alone"))
                }
                _ if second % OFTEN == 0 => Some(format!("{second} s")),
                _ => None,
            };
            steps = now;
            if let Some(words) = words {
                progress(&words);
            }
            is_late = second >= self.seconds + PATIENCE;
            is_late
        })?;
        if let Some(signal) = stop::asked() {
            return Err(Trouble::Interrupted(signal));
        }
        let signal = status.signal().filter(|it| [libc::SIGINT, libc::SIGTERM, libc::SIGHUP].contains(it));
        if let Some(signal) = signal.filter(|_| !is_late) {
            return Err(Trouble::Interrupted(signal));
        }
        let accounts = JobReport::all(&accounts);
        let outcome = late(&accounts, is_late, self.seconds, steps).unwrap_or_else(|| outcome(status, &accounts, &log));
        Ok(Trial { accounts, outcome, seconds, ending: unsuccessful(status.code(), status.signal()) })
    }

    /// Runs the job, and again with other ranks as long as it shows that those that ran depend on them.
    pub(super) fn run_whole(
        &mut self,
        setup: &Setup,
        is_main: bool,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Trial, Trouble> {
        loop {
            let trial = self.run(setup, is_main, progress)?;
            let Some(present) = &mut self.present else { return Ok(trial) };
            if !present.learn(&trial.accounts, matches!(trial.outcome, Outcome::Failed(_))) {
                return Ok(trial);
            }
            progress(&format!("running ranks {}", present.list()));
        }
    }

    /// Whether the command has a place for a value of that name.
    pub(super) fn has_place(&self, name: &str) -> bool {
        self.command.iter().any(|it| it.to_string_lossy().contains(&place(name)))
    }

    /// Returns the name of a place that the command has, where it has none for that name.
    pub(super) fn other_place(&self, name: &str) -> Option<String> {
        let is_name = |it: &&str| !it.is_empty() && it.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let of = |word: &OsString| {
            let word = word.to_string_lossy();
            let names = word.split('{').skip(1).filter_map(|it| it.split_once('}')).map(|it| it.0);
            names.filter(is_name).map(str::to_owned).next()
        };
        if self.has_place(name) { None } else { self.command.iter().find_map(of) }
    }

    /// The job's words, with the varied value in its place.
    fn words(&self) -> Vec<OsString> {
        let Some((name, value)) = &self.set else { return self.command.clone() };
        let place = place(name);
        let put = |it: &OsString| it.to_str().map_or_else(|| it.clone(), |text| text.replace(&place, value).into());
        self.command.iter().map(put).collect()
    }
}

impl Injected {
    /// Sets a job's environment.
    fn set(&self, command: &mut Command) {
        let (names, notes) = match self {
            Self::Nothing => return,
            Self::Observers => ("none".to_owned(), ""),
            Self::These(all, notes) => (all.iter().map(|it| it.name).collect::<Vec<_>>().join(","), notes.as_str()),
        };
        command.env("GPUWATCH_FIT_TRY", names).env("GPUWATCH_FIT_NOTES", notes);
        let Self::These(all, _) = self else { return };
        for (name, value) in all.iter().flat_map(|it| it.environment) {
            // What the user has set stays.
            let own = env::var(name).ok().filter(|it| !it.is_empty());
            let is_list = name.ends_with("ALLOC_CONF");
            command
                .env(name, own.filter(|_| is_list).map_or_else(|| (*value).to_owned(), |own| format!("{own},{value}")));
        }
    }
}

/// The placeholder of a value of that name.
fn place(name: &str) -> String {
    format!("{{{name}}}")
}

/// Settings of devices, and of other simulated machines, that this machine's take the place of.
fn is_foreign(name: &OsString) -> bool {
    let name = name.to_string_lossy();
    name.starts_with("SIMGPU_") || name.starts_with("GPUWATCH_FIT") || name == "CUDA_VISIBLE_DEVICES"
}

/// Whether a job was ended because of its time.
fn late(accounts: &[JobReport], is_late: bool, seconds: u64, steps: Option<u64>) -> Option<Outcome> {
    let ended = accounts.iter().find(|it| it.ended.as_deref() == Some("time"));
    // What the question is about had been seen before.
    if ended.is_none() && !is_late || accounts.iter().any(|it| it.steady > 0) {
        return None;
    }
    let steps = ended.map(|it| it.steps).or(steps);
    Some(Outcome::Late(seconds, steps, ended.and_then(|it| it.line.clone())))
}

fn outcome(status: ExitStatus, accounts: &[JobReport], log: &Path) -> Outcome {
    let is_on_device = accounts.iter().any(|it| !it.devices.is_empty());
    if let Some(it) = accounts.iter().find(|it| !is_on_device && it.ended.as_deref() == Some("cpu")) {
        return Outcome::Processor(it.line.clone());
    }
    if let Some(it) = accounts.iter().find(|it| it.ended.as_deref() == Some("host")) {
        let at = it.line.as_ref().map_or_else(String::new, |it| format!(" at {it}"));
        let taken = Bytes(it.host_bytes);
        return Outcome::Failed(format!(
            "the job takes {taken} of this machine's own memory{at}, and no more is free: make the model on the meta device \
             (with torch.device(\"meta\"), then to_empty), or plan the job on a larger machine"
        ));
    }
    let of_all = |is: fn(&JobReport) -> bool| {
        let mut trained = accounts.iter().filter(|it| it.steps > 0).peekable();
        trained.peek().is_some() && trained.all(is)
    };
    if !accounts.is_empty() && (of_all(JobReport::is_complete) || status.success()) {
        return Outcome::Finished;
    }
    let errors = || accounts.iter().filter_map(|it| it.error.as_ref());
    if let Some(it) = errors().find(|it| it.is_out_of_memory()) {
        let phase = it.phase.as_ref().filter(|it| it.0 != TRAINING);
        let line = it.line.clone().unwrap_or_else(|| "an unknown line".to_owned());
        return Outcome::Full(Some(phase.map_or_else(|| line.clone(), |it| format!("{line}, in {}", it.0))));
    }
    // What failed later says nothing about training.
    if of_all(|it| it.steady > 0) {
        return Outcome::Finished;
    }
    if let Some(it) = accounts.iter().flat_map(|it| &it.refused).next_back() {
        return Outcome::Refused(it.name.clone(), it.line.clone());
    }
    if accounts.iter().flat_map(|it| &it.devices).any(|it| it.ooms > 0) {
        return Outcome::Full(None);
    }
    if status.success() {
        return Outcome::Unused;
    }
    let output = fs::read(log).unwrap_or_default();
    let how = status.code().map_or_else(|| status.to_string(), |it| format!("exit code {it}"));
    Outcome::Failed(job_report::why(&how, accounts, &String::from_utf8_lossy(&output)))
}
