//! gpuwatch reports each alert once: to a user on the terminal, to a program on its standard input; simulated alerts
//! are never reported.

use crate::{
    analysis::culprit,
    helpers::{
        story::{GIB, MIB, Story, counters, hostile, one_rank, steps},
        terminal::{PATIENCE, PROGRAM, Terminal, until},
    },
    house::schemas,
};
use gpuwatch::{
    facts::event::{
        Fact, Line, ProbeId,
        wire::{Bye, Device, EXIT, Hello, History, Live, Oom},
    },
    model::{
        alerts::{Edges, Message, NewAlerts, Policy},
        analysis::episode::Resource,
        findings::findings,
        session::Session,
    },
    storage::sink::delivery::{Hook, LIMIT, Outcome, Program},
};
use serde_json::Value;
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};
use tempfile::TempDir;

/// Returns the alerts of a story, checked every second of its own time.
fn messages(story: &Story) -> Vec<Message> {
    messages_under(&Policy::default(), story)
}

pub(crate) fn messages_under(policy: &Policy, story: &Story) -> Vec<Message> {
    let (mut session, mut news, mut messages) = (Session::default(), NewAlerts::default(), Vec::new());
    for event in &story.events {
        session.apply(event);
        if event.fact == Fact::Second {
            let found = policy.findings(&session);
            messages.extend(news.at(&session, &found));
            assert_eq!(news.at(&session, &found), [], "no alert is sent twice");
        }
    }
    messages
}

fn lines(story: &Story) -> Vec<String> {
    messages(story).into_iter().map(|it| it.line).collect()
}

#[test]
fn growth_that_fills_the_device_alerts_once_per_episode() {
    let mut story = one_rank();
    steps(&mut story, 1..=300, |step| 20 * GIB + step * 4 * MIB);
    let first = lines(&story);
    assert_eq!(first.len(), 1, "{first:?}");
    let line = &first[0];
    assert!(
        line.starts_with("warning: rank 0 on GPU 0: allocated +4.00 MiB/step, tensors-retained, full in "),
        "{line}"
    );
    steps(&mut story, 301..=900, |_| 20 * GIB + 300 * 4 * MIB);
    assert_eq!(lines(&story), first, "no message about a resolved alert");
    steps(&mut story, 901..=1400, |step| 20 * GIB + (step - 600) * 4 * MIB);
    assert_eq!(lines(&story).len(), 2);
}

#[test]
fn growth_of_the_next_run_in_a_process_is_another_alert_though_it_is_raised_at_the_same_step() {
    let mut story = one_rank();
    steps(&mut story, 1..=300, |step| 20 * GIB + step * 4 * MIB);
    steps(&mut story, 1..=300, |step| 20 * GIB + step * 8 * MIB);
    let found = findings(&story.session());
    let raised: Vec<_> = found.all.iter().map(|it| (it.resource, it.first_alert_step)).collect();
    assert!(raised.len() == 2 && raised[0] == raised[1], "{raised:?}");
    let lines = lines(&story);
    assert!(lines.len() == 2 && lines[1].contains("allocated +8.00 MiB/step"), "{lines:?}");
    let mut edges = Edges::default();
    assert_eq!(edges.at(&found).len(), 3, "two raised, one resolved");
    assert_eq!(edges.at(&found), []);
}

/// A story whose job can capture stacks.
fn capturing() -> Story {
    let mut story = one_rank();
    for event in &mut story.events {
        if let Fact::Probe { line, .. } = &mut event.fact
            && let Line::Hello(hello) = &mut **line
        {
            hello.sites = Some("ready".to_owned());
        }
    }
    story
}

#[test]
fn an_alert_waits_for_its_line_but_not_for_long() {
    let leak = |step| 20 * GIB + step * 4 * MIB;
    let mut story = capturing();
    steps(&mut story, 1..=60, leak);
    assert_eq!(lines(&story), [""; 0], "a capture may run");
    let mut answered = capturing();
    steps(&mut answered, 1..=60, leak);
    let at_us = answered.now;
    answered.line(0, Line::Sites(culprit::sites(at_us, 60)));
    steps(&mut answered, 61..=80, leak);
    let [message] = &messages(&answered)[..] else { panic!("{:?}", lines(&answered)) };
    let object = |it: &Message| serde_json::from_str::<Value>(&it.object).unwrap();
    assert_eq!(object(message)["culprit"]["kept"], 41, "{message:?}");
    let mut ended = capturing();
    steps(&mut ended, 1..=60, leak);
    ended.line(0, Line::Bye(Bye { reason: EXIT.into(), ..Bye::default() })).wait(1).add(Fact::Second);
    assert_eq!(lines(&ended).len(), 1, "no capture runs any more");
    steps(&mut story, 61..=300, leak);
    let [message] = &messages(&story)[..] else { panic!("{:?}", lines(&story)) };
    assert!(object(message)["culprit"].is_null(), "{message:?}");
    let mut forbidden = one_rank();
    steps(&mut forbidden, 1..=40, leak);
    assert_eq!(lines(&forbidden).len(), 1, "none can be asked for");
}

#[test]
fn info_findings_start_no_program() {
    let mut story = one_rank();
    steps(&mut story, 1..=600, |step| 20 * GIB + step * 512);
    assert_eq!(findings(&story.session()).all.len(), 1);
    assert_eq!(lines(&story), [""; 0]);
}

#[test]
fn alerts_of_a_backlog_wait_for_its_end() {
    let mut story = one_rank();
    // While a probe's backlog is arriving, it has not sent `live`.
    story.events.retain(|it| !matches!(&it.fact, Fact::Probe { line, .. } if matches!(**line, Line::Live(_))));
    story.line(0, Line::History(History { stride: 1, ..History::default() }));
    steps(&mut story, 1..=300, |step| 20 * GIB + step * 4 * MIB);
    assert_eq!(lines(&story), [""; 0]);
    story.line(0, Line::Live(Live::default())).add(Fact::Second);
    assert_eq!(lines(&story).len(), 1);
}

#[test]
fn an_out_of_memory_error_alerts_even_if_it_ends_the_job() {
    let mut story = one_rank();
    steps(&mut story, 1..=20, |_| 20 * GIB);
    let oom = Oom { step: Some(20), tried: Some(80 << 30), device_free: Some(1 << 30), ..Oom::default() };
    story
        .line(0, Line::Oom(oom))
        .line(0, Line::Bye(Bye { reason: EXIT.to_owned(), ..Bye::default() }))
        .add(Fact::Second);
    assert_eq!(lines(&story), ["critical: rank 0 on GPU 0: oom"]);
}

/// Only the object carries what others wrote, and there JSON escapes it.
#[test]
fn alerts_contain_no_raw_text_of_jobs_in_lines_or_environment() {
    let mut story = hostile();
    let nasty = "\x1b]9;x\x07\u{202e}$(reboot)";
    story.add(Fact::Second);
    for process in 0..9 {
        let mut hello = Hello { protocol: 1, pid: 9, host: nasty.repeat(500), ..Default::default() };
        let named = |ordinal| Device { ordinal, uuid: Some(nasty.repeat(99)), ..Default::default() };
        hello.devices = vec![named(0)];
        story.add(Fact::ProbeFound { probe: ProbeId(20 + process), pid: None, socket: nasty.into() });
        story.line(20 + process, Line::Hello(hello)).line(20 + process, Line::Live(Live::default()));
        for step in 1..100 {
            story.wait(1000).sample(20 + process, step, counters(GIB + step * GIB, GIB));
        }
        let oom = Oom { step: Some(99), message: Some(nasty.repeat(99)), ..Oom::default() };
        story.line(20 + process, Line::Oom(oom));
    }
    story.add(Fact::Second);
    let messages = messages(&story);
    assert!(messages.len() >= 18, "{}", messages.len());
    for message in &messages {
        let plain = |it: &str| it.chars().all(|c| c.is_alphanumeric() || " -+./:,≈".contains(c));
        assert!(plain(&message.line) && message.environment.iter().all(|(_, it)| plain(it)), "{message:?}");
        assert!(!message.line.contains("reboot") && !message.environment.iter().any(|(_, it)| it.contains("reboot")));
        assert!(!message.object.contains(char::is_control) && message.object.len() < 4096, "{}", message.object.len());
        let object: Value = serde_json::from_str(&message.object).unwrap();
        schemas::check("alert", &object);
        assert_eq!((&object["schema"], object["state"].as_str()), (&Value::from(1), Some("active")));
        for (name, value) in &message.environment {
            let name = name.strip_prefix("GPUWATCH_ALERT_").unwrap().to_lowercase();
            let printed = object.get(&name).map(|it| it.as_str().map_or_else(|| it.to_string(), str::to_owned));
            assert!(printed.is_none_or(|it| it == *value || name == "bytes_per_step"), "{name} {value}");
        }
    }
}

/// A message of a real alert.
fn message() -> Message {
    let mut story = one_rank();
    steps(&mut story, 1..=100, |step| 20 * GIB + step * 4 * MIB);
    messages(&story).remove(0)
}

/// A shell's script with its own arguments: `$0` is a folder to write into.
fn script(folder: &Path, text: &str) -> Program {
    Program { path: "/bin/sh".into(), arguments: ["-c", text].iter().map(Into::into).chain([folder.into()]).collect() }
}

#[test]
fn an_alert_program_gets_its_arguments_a_json_object_and_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = script(folder.path(), "cat >> \"$0/in\"; printf '%s|' \"$@\" >> \"$0/args\"; env > \"$0/env\"");
    program.arguments.extend(["two words; rm -rf *", "", "--flag", "$HOME"].map(Into::into));
    let hook = Hook::start(program, 10 * PATIENCE).unwrap();
    let message = message();
    hook.offer(message.clone());
    hook.offer(message.clone());
    assert_eq!(hook.finish(PATIENCE), Outcome { done: 2, ..Outcome::default() });
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(read("in"), format!("{0}\n{0}\n", message.object));
    assert_eq!(read("args"), "two words; rm -rf *||--flag|$HOME|".repeat(2));
    let environment = read("env");
    for (name, value) in &message.environment {
        assert!(environment.contains(&format!("{name}={value}\n")), "{name} {value} in {environment}");
    }
    assert!(environment.contains("GPUWATCH=off\n"), "it is no job to be probed");
}

#[test]
fn a_program_that_takes_too_long_is_killed_with_its_children() {
    let folder = tempfile::tempdir().unwrap();
    // It reads nothing, and leaves the work to a child.
    let program = script(folder.path(), "sleep 1000 & echo $! $$ > \"$0/pids\"; wait");
    // A loaded machine may take long to get the program as far as that.
    let pids = [1, 4, 16, 64].into_iter().find_map(|seconds| {
        let hook = Hook::start(program.clone(), Duration::from_secs(seconds)).unwrap();
        hook.offer(message());
        assert!(until(PATIENCE, || hook.outcome().trouble.is_some()));
        let outcome = hook.finish(PATIENCE);
        assert_eq!((outcome.done, outcome.lost), (0, 0));
        assert!(outcome.complaint().unwrap().contains(&format!("it took longer than {seconds}000 ms")), "{outcome:?}");
        fs::read_to_string(folder.path().join("pids")).ok().filter(|it| it.split_whitespace().count() == 2)
    });
    let pids = pids.expect("both were started");
    for pid in pids.split_whitespace() {
        assert!(until(PATIENCE, || !Path::new(&format!("/proc/{pid}/cwd")).exists()), "{pid} still runs");
    }
}

#[test]
fn an_alert_program_still_running_at_exit_is_killed_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let program = script(folder.path(), "echo > \"$0/begun\"; exec sleep 1000");
    let hook = Hook::start(program, LIMIT).unwrap();
    hook.offer(message());
    assert!(until(PATIENCE, || folder.path().join("begun").exists()));
    let complaint = hook.finish(Duration::from_millis(100)).complaint().unwrap();
    assert!(complaint.contains("was killed: it was still running when gpuwatch ended"), "{complaint}");
}

#[test]
fn alert_programs_run_one_at_a_time_and_dropped_alerts_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    // Reports when it meets another one at work, and works until it is stopped.
    let text = "mkdir \"$0/at-work\" || touch \"$0/met\"; touch \"$0/began\"; \
                until [ -e \"$0/go\" ]; do sleep 0.01; done; rmdir \"$0/at-work\"";
    let hook = Hook::start(script(folder.path(), text), 10 * PATIENCE).unwrap();
    let message = message();
    hook.offer(message.clone());
    assert!(until(PATIENCE, || folder.path().join("began").exists()));
    for _ in 0..20 {
        hook.offer(message.clone());
    }
    assert_eq!(hook.outcome().lost, 4, "sixteen wait");
    fs::write(folder.path().join("go"), "").unwrap();
    let outcome = hook.finish(PATIENCE);
    assert_eq!((outcome.done, outcome.lost, outcome.trouble.clone()), (17, 4, None));
    assert!(outcome.complaint().unwrap().contains("4 alerts were dropped"));
    assert!(!folder.path().join("met").exists());
}

#[test]
fn shutdown_waits_for_alert_programs_only_up_to_its_limit() {
    let folder = tempfile::tempdir().unwrap();
    let hook = Hook::start(script(folder.path(), "touch \"$0/began\"; exec sleep 1000"), 10 * PATIENCE).unwrap();
    (0..3).for_each(|_| hook.offer(message()));
    assert!(until(PATIENCE, || folder.path().join("began").exists()));
    let outcome = hook.finish(Duration::from_millis(200));
    assert_eq!((outcome.done, outcome.lost), (0, 2));
}

#[test]
fn alert_programs_that_fail_are_reported() {
    for (path, arguments, phrase) in [
        ("/nonexistent/program", &[][..], "cannot be started"),
        ("/bin/sh", &["-c", "exit 3"], "exit status: 3"),
        ("/bin/sh", &["-c", "kill -9 $$"], "signal: 9"),
    ] {
        let arguments = arguments.iter().map(Into::into).collect();
        let hook = Hook::start(Program { path: path.into(), arguments }, LIMIT).unwrap();
        hook.offer(message());
        let complaint = hook.finish(PATIENCE).complaint().unwrap();
        assert!(complaint.starts_with("--on-alert: ") && complaint.contains(phrase), "{complaint}");
    }
}

/// A simulated rank that leaks, in a folder of its own; its step is what a screen shows of it.
struct Leak {
    job: Child,
    folder: PathBuf,
    home: TempDir,
}

impl Leak {
    fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("sockets");
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["demo-job", "--rate", "200", "--kind", "leaking", "--directory"]).arg(&folder);
        let job = command.stdin(Stdio::piped()).spawn().unwrap();
        Self { job, folder, home }
    }

    fn folder(&self) -> &str {
        self.folder.to_str().unwrap()
    }
}

impl Drop for Leak {
    fn drop(&mut self) {
        let _ = self.job.kill();
        let _ = self.job.wait();
    }
}

/// How often something was sent to a terminal.
fn sent(terminal: &Terminal, what: &str) -> usize {
    String::from_utf8_lossy(&terminal.bytes()).matches(what).count()
}

/// The highest step in the table of processes.
fn step(terminal: &Terminal) -> u64 {
    let text = terminal.text();
    let row = text.lines().find(|it| it.contains("train.py")).unwrap_or_default();
    row.trim_start_matches('▸').split_whitespace().nth(2).and_then(|it| it.parse().ok()).unwrap_or(0)
}

#[test]
fn the_live_view_shows_a_leak_rings_once_and_starts_the_program() {
    let leak = Leak::start();
    let out = tempfile::tempdir().unwrap();
    let messages = out.path().join("alerts");
    let arguments = [
        "--no-nvml",
        "--bell",
        "--notify",
        "--on-alert",
        "sh",
        "--on-alert-arg",
        "-c",
        "--on-alert-arg=cat >> \"$0\"",
        "--on-alert-arg",
        messages.to_str().unwrap(),
    ];
    let mut terminal = Terminal::start_sized((24, 80), &arguments, &[("GPUWATCH_SOCKET_DIR", leak.folder())]);
    terminal.shows("gpuwatch  1 critical  1 device");
    assert!(until(PATIENCE, || sent(&terminal, "\x07") > 0), "it rings");
    // Seconds later nothing has rung again.
    let then = step(&terminal);
    assert!(until(PATIENCE, || step(&terminal) > then + 600), "{}", terminal.text());
    assert_eq!((sent(&terminal, "\x07"), sent(&terminal, "\x1b]9;gpuwatch: critical: rank 0")), (1, 1));
    terminal.press("a");
    terminal.shows("noticed at step");
    terminal.shows("allocated +4.00 MiB/step, tensors-retained");
    terminal.press("a");
    assert!(until(PATIENCE, || !terminal.text().contains("noticed at step")), "{}", terminal.text());
    terminal.press("q");
    assert_eq!(terminal.ends(PATIENCE), 0);
    let messages = fs::read_to_string(messages).unwrap();
    assert_eq!(messages.lines().count(), 1, "{messages}");
    assert_eq!(serde_json::from_str::<Value>(&messages).unwrap()["cause"], "tensors-retained");
}

#[test]
fn alerts_ring_only_on_request_never_if_silenced_or_simulated() {
    let leak = Leak::start();
    let environment = [("GPUWATCH_SOCKET_DIR", leak.folder())];
    let config = leak.home.path().join("config.toml");
    fs::write(&config, "alerts.silence = ['tensors-retained']").unwrap();
    let silenced = ["--no-nvml", "--bell", "--notify", "--config", config.to_str().unwrap()];
    let watched = [(&["--no-nvml"][..], " critical  "), (&["demo"], " warning  "), (&silenced, " critical  ")];
    for (arguments, worst) in watched {
        let mut terminal = Terminal::start_sized((24, 80), arguments, &environment);
        terminal.shows(worst);
        let then = step(&terminal);
        assert!(until(PATIENCE, || step(&terminal) > then + 12), "{}", terminal.text());
        assert_eq!((sent(&terminal, "\x07"), sent(&terminal, "\x1b]9")), (0, 0), "{arguments:?}");
        terminal.press("q");
        terminal.ends(PATIENCE);
    }
    for command in ["demo", "replay", "record", "once"] {
        for flag in ["--bell", "--notify", "--on-alert=true"] {
            let output = Command::new(PROGRAM).args([command, flag]).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{command} {flag}");
        }
    }
}

#[test]
fn run_starts_the_alert_program_without_a_viewer() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("sockets");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    let messages = home.path().join("alerts");
    // The job continues until the alert has arrived, but not forever.
    let wait = format!("for it in $(seq 2400); do [ -s {messages:?} ] && break; sleep 0.05; done");
    let job = format!("({wait}) | {PROGRAM:?} demo-job --kind leaking --directory {folder:?}; echo out; exit 7");
    let mut command = Command::new(PROGRAM);
    command.args(["run", "--on-alert", "/bin/sh", "--on-alert-arg=-c", "--on-alert-arg=cat >> \"$0\"; echo noise"]);
    command.arg("--on-alert-arg").arg(&messages).args(["--", "sh", "-c", &job]);
    command.env("GPUWATCH_SOCKET_DIR", &folder).env("XDG_STATE_HOME", home.path()).env("GPUWATCH_NO_NVML", "1");
    let output = command.output().unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(7), &b"out\n"[..]));
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(printed.lines().count() == 1 && printed.contains(" · gpuwatch replay "), "one line at the end: {printed}");
    let messages = fs::read_to_string(messages).unwrap();
    let object: Value = serde_json::from_str(&messages).unwrap();
    schemas::check("alert", &object);
    assert_eq!((&object["kind"], &object["cause"]), (&Value::from("growth"), &Value::from("tensors-retained")));

    // The recording has the same alert, as it came, for tools that read it.
    let store = home.path().join("gpuwatch/recordings");
    let file = fs::read_dir(store).unwrap().next().unwrap().unwrap().path();
    let lines = String::from_utf8(zstd::decode_all(fs::File::open(&file).unwrap()).unwrap()).unwrap();
    let lines: Vec<Value> = lines.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let raised = lines.iter().filter(|it| it["type"] == "alert" && it["edge"] == "raised");
    let raised: Vec<&Value> = raised.filter(|it| it["resource"] == object["resource"]).collect();
    assert_eq!(raised.len(), 1, "{raised:#?}");
    assert_eq!((&raised[0]["cause"], &raised[0]["first_alert_step"]), (&object["cause"], &object["first_alert_step"]));
    assert_eq!(lines.last().unwrap()["type"], "closed");
}

#[test]
fn alerts_are_sent_once_and_short_ones_are_complete() {
    let mut story = one_rank();
    steps(&mut story, 1..=600, |step| 20 * GIB + step * MIB);
    let messages = |edges: &mut Edges, story: &Story| {
        let found = findings(&story.session());
        edges.at(&found).into_iter().map(|(edge, it)| (edge, it.resource)).collect::<Vec<_>>()
    };
    let mut edges = Edges::default();
    assert!(messages(&mut edges, &story).contains(&("raised", Some(Resource::Allocated))));
    assert_eq!(messages(&mut edges, &story), []);
    steps(&mut story, 601..=6000, |_| 20 * GIB + 600 * MIB);
    assert!(messages(&mut edges, &story).contains(&("resolved", Some(Resource::Allocated))));
    let late = messages(&mut Edges::default(), &story).into_iter().filter(|it| it.1 == Some(Resource::Allocated));
    assert_eq!(late.map(|it| it.0).collect::<Vec<_>>(), ["raised", "resolved"]);
}

#[test]
fn a_missing_alert_program_is_reported_before_the_job_starts() {
    for program in ["no-such-program", "/etc/passwd", "/", "echo hello"] {
        let output = Command::new(PROGRAM).args(["run", "--on-alert", program, "--", "echo", "ran"]).output().unwrap();
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), &*output.stdout), (Some(2), &b""[..]), "{program}");
        assert!(complaint.contains("--on-alert-arg, one each"), "{complaint}");
    }
    let alone = Command::new(PROGRAM).args(["run", "--on-alert-arg", "x", "--", "true"]).output().unwrap();
    assert_eq!(alone.status.code(), Some(2));
    // A job's own flag of that name is the job's.
    let own = Command::new(PROGRAM).args(["run", "echo", "--on-alert", "x"]).output().unwrap();
    assert_eq!((own.status.code(), &*own.stdout), (Some(0), &b"--on-alert x\n"[..]));
}
