//! Storms of questions to one job, some of them killed: the job does not notice, no file stays, each answer is true.

use crate::{
    helpers::{
        terminal::{PATIENCE, PROGRAM, until},
        torch,
    },
    house::schemas,
    probe::pytorch::{Job, script},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::{
    fs::{self, File},
    io::BufRead,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

/// The questions and how many steps each may be about.
const KINDS: [(&str, &[&str]); 4] =
    [("whatif", &["1", "5", "20", "60"]), ("sites", &["1", "4", "8", "30"]), ("peak", &["1", "2"]), ("sites", &["8"])];

/// Most questions at the same time.
const AT_ONCE: usize = 8;

/// How often a question is asked whose trace another one keeps from beginning.
const TRIES: usize = 50;

/// Lines of the job after which a killed question may still be the reason of a refusal: its trace is about to end.
const AFTERMATH: usize = 200;

/// The weights of the job, as the allocator rounds them.
const WEIGHTS: u64 = 64 * 64 * 4 + 512;

/// What refuses a second trace.
const OTHER: &str = "its allocations are being traced for another viewer: ask again in a minute";

/// What refuses a look at a step of a job that keeps many blocks, as this one does.
const MANY: &str = " live blocks w";

/// Marsaglia's xorshift: the same storm each time, but for how the programs' turns come.
struct Random(u64);

impl Random {
    /// A number below the limit.
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// A question, from the line of the job at which it was asked.
struct Question {
    kind: &'static str,
    child: Child,
    from: usize,
    /// The line of the job at which it is killed.
    killed_at: Option<usize>,
    files: [PathBuf; 2],
}

/// A question that is over, and the lines of the job between which it was asked.
struct Asked {
    kind: &'static str,
    from: usize,
    to: usize,
    /// Its exit code; `None` if it was killed.
    code: Option<i32>,
    out: String,
    aside: String,
}

/// A job under a storm.
struct Storm {
    job: Job,
    pid: String,
    /// What the job printed.
    lines: Vec<Value>,
    running: Vec<Question>,
    over: Vec<Asked>,
}

impl Storm {
    fn start() -> Self {
        let mut job = Job::start(&[&script("stormed.py")]);
        let pid = job.next()["pid"].to_string();
        Self { job, pid, lines: Vec::new(), running: Vec::new(), over: Vec::new() }
    }

    /// Asks a question, which is killed after so many lines of the job.
    fn ask(&mut self, kind: &'static str, steps: &[&str], killed_after: Option<usize>) {
        let number = self.running.len() + self.over.len();
        let files = ["out", "aside"].map(|it| self.job.home.0.path().join(format!("{number}.{it}")));
        let [out, aside] = files.each_ref().map(|it| File::create(it).unwrap());
        let mut command = Command::new(PROGRAM);
        command.args([kind, &self.pid, "--json", "--steps"]).args(steps).envs(self.job.home.variables());
        let child = command.stdout(out).stderr(aside).spawn().unwrap();
        let from = self.lines.len();
        self.running.push(Question { kind, child, from, killed_at: killed_after.map(|it| from + it), files });
    }

    /// Asks alone, until a trace that another one began is over; its answer.
    fn ask_alone(&mut self, kind: &'static str) -> &Asked {
        for _ in 0..TRIES {
            self.ask(kind, if kind == "peak" { &["4", "--long-pauses"] } else { &["4"] }, None);
            while !self.running.is_empty() {
                self.goes_on();
            }
            if !self.over.last().unwrap().aside.contains(OTHER) {
                break;
            }
        }
        self.over.last().unwrap()
    }

    /// Waits for the job's next line, kills the questions whose time has come, and takes the answers of the others.
    fn goes_on(&mut self) {
        self.lines.push(self.job.next());
        let now = self.lines.len();
        for mut it in std::mem::take(&mut self.running) {
            if it.killed_at.is_some_and(|at| at <= now) {
                it.child.kill().unwrap();
            }
            let is_killed = it.killed_at.is_some_and(|at| at <= now);
            let status = if is_killed { Some(it.child.wait().unwrap()) } else { it.child.try_wait().unwrap() };
            let Some(status) = status else {
                self.running.push(it);
                continue;
            };
            let [out, aside] = it.files.each_ref().map(|it| fs::read_to_string(it).unwrap());
            it.files.iter().for_each(|it| fs::remove_file(it).unwrap());
            self.over.push(Asked { kind: it.kind, from: it.from, to: now, code: status.code(), out, aside });
        }
    }

    /// Files that belong to no living program, beside the job's socket and its answers.
    fn left(&self) -> Vec<PathBuf> {
        let home = self.job.home.0.path();
        let own = format!("{}.sock", self.pid);
        let in_folder =
            |name: &str| fs::read_dir(home.join(name)).into_iter().flatten().map(|entry| entry.unwrap().path());
        let is_left = |it: &PathBuf| {
            let name = it.file_name().unwrap().to_string_lossy().into_owned();
            name != own && !name.ends_with(".replays")
        };
        in_folder("sockets").filter(is_left).chain(in_folder("cache/gpuwatch/whatif")).collect()
    }

    /// Programs that work for this storm, but for the job and its recorder.
    fn others(&self) -> usize {
        let home = self.job.home.0.path().to_string_lossy().into_owned();
        let all = fs::read_dir("/proc").unwrap().flatten().filter(|it| {
            let environment = fs::read(it.path().join("environ")).unwrap_or_default();
            String::from_utf8_lossy(&environment).contains(&home)
        });
        all.count() - 2
    }

    /// Lets the job end; it must have printed what it prints when nobody asks it anything.
    fn end_as_unasked(self) {
        let mut printed = self.lines;
        printed.extend(values(&self.job.finish()));
        let end = printed.iter().find(|it| it["what"] == "end").unwrap();
        let gpu = torch::machine();
        let mut alone = gpu.command(torch::python());
        alone.args([script("stormed.py"), end["steps"].to_string()]);
        let alone = values(&torch::stdout(&alone.output().unwrap()));
        // Its first line has its pid.
        assert!(
            alone[1..] == printed[..],
            "{:?}",
            alone.iter().skip(1).zip(&printed).find(|(one, other)| one != other)
        );
    }
}

/// The lines of a job.
fn values(printed: &str) -> Vec<Value> {
    printed.lines().map(|it| serde_json::from_str(it).unwrap()).collect()
}

/// Checks what a question that was not killed answered.
fn is_true(it: &Asked, all: &[Asked]) {
    let text = format!("{} {:?}: {}\n{}", it.kind, it.code, it.out, it.aside);
    if it.code == Some(1) && it.kind == "peak" && it.aside.contains(MANY) {
        return;
    }
    if it.code == Some(1) {
        assert!(it.kind != "sites" && it.out.is_empty() && it.aside.trim_end().ends_with(OTHER), "{text}");
        assert!(it.aside.lines().count() == 1, "{text}");
        let is_other = |other: &&Asked| !std::ptr::eq(*other, it) && other.kind != "sites";
        let is_meanwhile = |other: &Asked| other.from <= it.to && it.from <= other.to + AFTERMATH;
        assert!(all.iter().filter(is_other).any(is_meanwhile), "nobody else had a trace: {text}");
        return;
    }
    assert_eq!(it.code, Some(0), "{text}");
    let answer: Value = serde_json::from_str(&it.out).expect(&text);
    schemas::check(it.kind, &answer);
    match it.kind {
        "whatif" => {
            let device = &answer["devices"][0];
            assert!(device["refused"].is_null() && device["window"] == true, "{text}");
            assert!(device["cost"]["steps"].as_u64() >= Some(1), "{text}");
        }
        "peak" => {
            let sum: u64 = answer["parts"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
            assert_eq!((&answer["allocated"], &answer["parts"]["weights"]), (&json!(sum), &json!(WEIGHTS)), "{text}");
            assert!(!answer["lines"].as_array().unwrap().is_empty(), "{text}");
        }
        _ => {
            // The output is kept of each step; of the other blocks, which have any length, some of these steps are.
            let sites = answer["sites"].as_array().unwrap();
            let source = fs::read_to_string(script("stormed.py")).unwrap();
            let line = |it: &Value| {
                source.lines().nth(usize::try_from(it["line"].as_u64().unwrap()).unwrap() - 1).unwrap().to_owned()
            };
            let kept = sites.iter().find(|it| line(it).contains("y = net(")).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(kept["bytes_per_step"], json!(2048.0), "{text}");
            assert!(
                sites.iter().all(|it| line(it).contains("y = net(") || line(it).contains("others.append(")),
                "{text}"
            );
        }
    }
}

/// So many questions, every third of which is killed, and then one of each kind that is answered.
fn storm(questions: usize) {
    let mut it = Storm::start();
    let mut random = Random(0x2545_F491_4F6C_DD1D);
    let mut asked = 0;
    while asked < questions || !it.running.is_empty() {
        // One alone has a trace; several at once are refused it.
        let at_once = random.below(AT_ONCE) + 1;
        while asked < questions && it.running.len() < at_once {
            let (kind, steps) = random.pick(&KINDS);
            let within = 1 << (random.below(3) + 1);
            let killed_after = (asked % 3 == 2).then(|| random.below(within));
            it.ask(kind, &[random.pick(steps)], killed_after);
            asked += 1;
        }
        it.goes_on();
    }
    let is_killed = it.over.iter().filter(|it| it.code.is_none()).count();
    assert!(is_killed > questions / 15, "{is_killed} of {questions} were killed");
    it.over.iter().filter(|it| it.code.is_some()).for_each(|question| is_true(question, &it.over));
    // What the killed ones began has ended without them.
    for kind in ["whatif", "peak", "sites"] {
        let answer = it.ask_alone(kind);
        assert_eq!(answer.code, Some(0), "{}", answer.aside);
        is_true(answer, &[]);
    }
    assert!(until(PATIENCE, || it.left().is_empty() && it.others() == 0), "{:?}, {} programs", it.left(), it.others());
    it.end_as_unasked();
}

#[test]
fn a_storm_of_questions_some_of_them_killed_changes_nothing_of_a_job() {
    test_tiers::change!("asks 30 questions");
    storm(30);
}

#[test]
fn a_hundred_questions_of_which_a_third_is_killed_change_nothing_of_a_job() {
    test_tiers::full!("asks 100 questions");
    storm(100);
}

/// Starts `gpuwatch sites` for a process.
fn sites(job: &Job, pid: &str, timeout: &str) -> Child {
    let mut command = Command::new(PROGRAM);
    command.args(["sites", pid, "--steps", "1", "--timeout", timeout]).envs(job.home.variables());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn ended(child: Child) -> (Option<i32>, String) {
    let done = child.wait_with_output().unwrap();
    (done.status.code(), [done.stdout, done.stderr].map(|it| String::from_utf8_lossy(&it).into_owned()).concat())
}

#[test]
fn a_probe_that_is_slow_to_answer_is_waited_for_and_never_said_to_be_missing() {
    let mut job = Job::start(&[&script("stormed.py")]);
    let pid = job.next()["pid"].to_string();
    let process = Pid::from_raw(pid.parse().unwrap()).unwrap();
    kill_process(process, Signal::STOP).unwrap();
    for kind in ["sites", "whatif"] {
        let mut command = Command::new(PROGRAM);
        command.args([kind, &pid, "--timeout", "100ms"]).envs(job.home.variables());
        let done = ended(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        let is_told = done.1.contains(&format!("the probe of process {pid} did not answer in time"));
        assert!(done.0 == Some(1) && is_told && !done.1.contains("no probe"), "{done:?}");
    }
    let patient = sites(&job, &pid, "5m");
    // One that has no probe is searched for as long as one of which nothing is seen.
    let (code, text) = ended(sites(&job, &std::process::id().to_string(), "5m"));
    assert!(code == Some(1) && text.contains("no probe was found in process"), "{text}");
    kill_process(process, Signal::CONT).unwrap();
    let (code, text) = ended(patient);
    assert!(code == Some(0) && text.contains(&format!("asked process {pid}")), "{text}");
    job.ended();
}

#[test]
fn one_viewer_more_than_a_probe_serves_is_told_so() {
    let mut job = Job::start(&[&script("stormed.py")]);
    let pid = job.next()["pid"].to_string();
    let mut viewers = Vec::new();
    let mut line = String::new();
    while !line.contains("as many viewers") {
        let mut viewer = job.connect();
        line.clear();
        viewer.read_line(&mut line).unwrap();
        viewers.push(viewer);
    }
    let (code, text) = ended(sites(&job, &pid, "5m"));
    assert!(code == Some(1) && text.contains("as many viewers as this probe serves are connected"), "{text}");
    viewers.clear();
    assert!(until(PATIENCE, || ended(sites(&job, &pid, "5m")).0 == Some(0)));
    job.ended();
}
