//! `gpuwatch mcp` answers a client as the commands answer a person, and does nothing that it is not allowed to.

use crate::{
    commands::check::{HEALTHY, lines_of, write},
    helpers::{
        terminal::{PROGRAM, until},
        torch,
    },
    house::schemas,
    probe::launch::Home,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

/// Longer than a job needs to start or to end on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A client, and the server that it has started.
struct Client {
    server: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    asked: u64,
}

impl Client {
    fn new(home: &Home, flags: &[&str]) -> Self {
        Self::with_instructions(home, flags).0
    }

    /// Begins a session; also returns what the server tells an assistant.
    fn with_instructions(home: &Home, flags: &[&str]) -> (Self, String) {
        let mut server = Command::new(PROGRAM);
        server.arg("mcp").args(flags).envs(home.variables()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = server.spawn().unwrap();
        let (to, from) = (server.stdin.take().unwrap(), BufReader::new(server.stdout.take().unwrap()));
        let mut client = Self { server, to, from, asked: 0 };
        let about = json!({"name": "test", "version": "1"});
        let begun = client
            .ask("initialize", &json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about}));
        assert_eq!(begun["result"]["serverInfo"]["name"], "gpuwatch", "{begun:#}");
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        let instructions = begun["result"]["instructions"].as_str().unwrap().to_owned();
        (client, instructions)
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.to, "{message}").unwrap();
    }

    fn ask(&mut self, method: &str, parameters: &Value) -> Value {
        self.begin(method, parameters);
        let answer = self.next();
        assert_eq!(answer["id"], self.asked, "{answer:#}");
        answer
    }

    /// Asks without waiting; returns the number of the question.
    fn begin(&mut self, method: &str, parameters: &Value) -> u64 {
        self.asked += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": self.asked, "method": method, "params": parameters}));
        self.asked
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|why| panic!("{why}: {line}"))
    }

    fn call(&mut self, name: &str, arguments: &Value) -> Value {
        self.ask("tools/call", &json!({"name": name, "arguments": arguments}))
    }

    /// The exit code of a call, and its answer as JSON.
    fn answer(&mut self, name: &str, arguments: &Value) -> (String, Value) {
        let called = self.call(name, arguments);
        let texts: Vec<&str> =
            called["result"]["content"].as_array().unwrap().iter().map(|it| it["text"].as_str().unwrap()).collect();
        let answer = serde_json::from_str(texts.last().unwrap()).unwrap_or_else(|why| panic!("{why}: {called:#}"));
        (texts[0].to_owned(), answer)
    }

    /// Closes the session, and returns the exit code.
    fn end(self) -> Option<i32> {
        let Self { mut server, to, .. } = self;
        drop(to);
        server.wait().unwrap().code()
    }
}

#[test]
fn answers_are_those_of_the_commands() {
    let home = Home::new();
    let recording = home.0.path().join("run.jsonl.zst");
    write(&recording, &lines_of(HEALTHY, |_| {}));
    let mut client = Client::new(&home, &[]);
    let listed = client.ask("tools/list", &json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let is_right = |it: &Value| it["annotations"]["readOnlyHint"] == true && it["inputSchema"]["type"] == "object";
    assert!(tools.len() >= 7 && tools.iter().all(is_right), "{listed:#}");
    let (code, checked) = client.answer("check", &json!({"recording": recording}));
    schemas::check("check", &checked);
    assert_eq!((code.as_str(), &checked["verdict"]), ("exit code 0", &json!("pass")), "{checked:#}");
    let (_, compared) = client.answer("diff", &json!({"first": recording, "second": recording}));
    schemas::check("diff", &compared);
    let (_, listed) = client.answer("recordings", &json!({}));
    schemas::check("recordings", &listed);
    let explained = client.call("explain", &json!({"name": "tensors-retained"})).to_string();
    assert!(explained.contains("tensors are kept alive"), "{explained}");
    // A file that is not there is an answer, and so is a name that is none.
    let missing = client.call("peak", &json!({"recording": "/none"}));
    assert!(missing["result"]["isError"] == true && missing.to_string().contains("/none"), "{missing:#}");
    assert_eq!(client.end(), Some(0));
}

#[test]
fn nothing_is_run_unless_it_is_allowed() {
    let home = Home::new();
    let made = home.0.path().join("made");
    let command = json!(["/bin/sh", "-c", format!("touch {}", made.display())]);
    let mut client = Client::new(&home, &[]);
    for (name, arguments) in
        [("fit", json!({"command": command})), ("peak", json!({"recording": "1"})), ("sites", json!({"pid": 1}))]
    {
        let refused = client.call(name, &arguments);
        assert_eq!(refused["error"]["code"], -32602, "{refused:#}");
    }
    let refused = client.call("check", &json!({"recording": "--github"})).to_string();
    assert!(refused.contains("there is no file --github"), "{refused}");
    assert!(!made.exists());
    assert_eq!(client.end(), Some(0));
}

#[test]
fn a_change_is_proven() {
    test_tiers::change!("starts PyTorch");
    let home = Home::new();
    let script = home.0.path().join("train.py");
    // A job may say more than is kept of it.
    let says = "import sys\nfor _ in range(2000):\n    print('x' * 200, file=sys.stderr)\n";
    fs::write(&script, says.to_owned() + include_str!("../fit/job.py")).unwrap();
    let mut client = Client::new(&home, &["--allow-actions"]);
    let python = torch::python();
    let job = |arguments: &[&str]| {
        let words = [python.to_str().unwrap(), script.to_str().unwrap()].into_iter().chain(arguments.iter().copied());
        json!(words.collect::<Vec<_>>())
    };
    let (code, answer) = client.answer("fit", &json!({"gpu": "RTX 3060", "steps": 2, "command": job(&["8"])}));
    schemas::check("fit", &answer);
    assert_eq!((code.as_str(), &answer["fits"]), ("exit code 0", &json!("yes")), "{answer:#}");
    assert_eq!(client.end(), Some(0));
}

/// A job that would run for long, and its process once it runs.
struct LongJob {
    home: Home,
    running: PathBuf,
}

impl LongJob {
    fn new() -> Self {
        let home = Home::new();
        let running = home.0.path().join("running");
        let sleeps = format!(
            "import os, time\nopen('{new}', 'w').write(str(os.getpid()))\nos.rename('{new}', '{running}')\n\
             time.sleep(1000)\n",
            new = running.with_extension("new").display(),
            running = running.display()
        );
        fs::write(home.0.path().join("train.py"), sleeps).unwrap();
        Self { home, running }
    }

    /// Has it run by a call; returns the number of the call, and the job's process.
    fn start(&self, client: &mut Client) -> (u64, String) {
        let _ = fs::remove_file(&self.running);
        let command = json!([torch::python(), self.home.0.path().join("train.py")]);
        let call =
            client.begin("tools/call", &json!({"name": "fit", "arguments": {"gpu": "16GiB", "command": command}}));
        assert!(until(PATIENCE, || self.running.exists()), "the job does not start");
        (call, fs::read_to_string(&self.running).unwrap())
    }
}

fn assert_over(pid: &str) {
    assert!(until(PATIENCE, || !Path::new("/proc").join(pid).exists()), "the job outlives its call");
}

#[test]
fn what_a_call_runs_ends_when_it_is_cancelled_and_when_the_client_is_gone() {
    test_tiers::change!("starts PyTorch's Python three times");
    let job = LongJob::new();
    let mut client = Client::new(&job.home, &["--allow-actions"]);
    let (call, pid) = job.start(&mut client);
    // Others are answered meanwhile.
    assert!(client.ask("tools/list", &json!({}))["result"]["tools"].as_array().unwrap().len() > 7);
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": call}}));
    assert_over(&pid);
    assert!(client.ask("ping", &json!({}))["result"].is_object());
    let (_, pid) = job.start(&mut client);
    assert_eq!(client.end(), Some(0));
    assert_over(&pid);
    // A client that is gone reads nothing more, either.
    let mut client = Client::new(&job.home, &["--allow-actions"]);
    let (_, pid) = job.start(&mut client);
    let Client { mut server, to, from, .. } = client;
    drop((to, from));
    assert_over(&pid);
    assert!(server.wait().unwrap().code().is_some());
}

#[test]
fn calls_at_once_are_all_answered() {
    let home = Home::new();
    let mut client = Client::new(&home, &[]);
    let calls: BTreeSet<u64> =
        (0..6).map(|_| client.begin("tools/call", &json!({"name": "recordings", "arguments": {}}))).collect();
    let answers: Vec<Value> = calls.iter().map(|_| client.next()).collect();
    assert!(answers.iter().all(|it| it["result"]["isError"] == false), "{answers:#?}");
    assert_eq!(answers.iter().filter_map(|it| it["id"].as_u64()).collect::<BTreeSet<_>>(), calls);
    assert_eq!(client.end(), Some(0));
}

#[test]
fn what_is_no_json_is_answered_and_the_session_goes_on() {
    let home = Home::new();
    let mut client = Client::new(&home, &[]);
    for bad in ["{\"jsonrpc\": \"2.0\", \"id\": 1", "nonsense", "{]"] {
        writeln!(client.to, "{bad}").unwrap();
        let answer = client.next();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(-32700)), "{bad}: {answer:#}");
    }
    client.send(&json!([1, 2]));
    assert_eq!(client.next()["error"]["code"], -32600);
    assert!(client.ask("tools/list", &json!({}))["result"]["tools"].is_array());
    assert_eq!(client.end(), Some(0));
}

#[test]
fn an_assistant_is_told_of_no_tool_that_is_not_offered() {
    let home = Home::new();
    for flags in [&[][..], &["--allow-actions"]] {
        let (mut client, instructions) = Client::with_instructions(&home, flags);
        let listed = client.ask("tools/list", &json!({}));
        let is_offered = |name: &str| listed["result"]["tools"].as_array().unwrap().iter().any(|it| it["name"] == name);
        for name in instructions.split('`').skip(1).step_by(2).filter(|it| !it.contains(' ')) {
            assert!(is_offered(name), "{name}: {instructions}");
        }
        assert_eq!(instructions.contains("`fit`"), !flags.is_empty(), "{instructions}");
        assert_eq!(client.end(), Some(0));
    }
}
