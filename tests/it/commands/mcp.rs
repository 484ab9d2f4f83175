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
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
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
        client
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.to, "{message}").unwrap();
    }

    fn ask(&mut self, method: &str, parameters: &Value) -> Value {
        self.asked += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": self.asked, "method": method, "params": parameters}));
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap_or_else(|why| panic!("{why}: {line}"));
        assert_eq!(answer["id"], self.asked, "{answer:#}");
        answer
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
fn a_change_is_proven_and_what_runs_ends_with_the_session() {
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
    let running = home.0.path().join("running");
    let sleeps = format!(
        "import os, time\nopen({new:?}, 'w').write(str(os.getpid()))\nos.rename({new:?}, {running:?})\ntime.sleep(1000)\n",
        new = running.with_extension("new")
    );
    fs::write(&script, sleeps).unwrap();
    let call = json!({"name": "fit", "arguments": {"gpu": "16GiB", "command": job(&[])}});
    client.send(&json!({"jsonrpc": "2.0", "id": 99, "method": "tools/call", "params": call}));
    assert!(until(PATIENCE, || running.exists()), "the job does not start");
    let pid = fs::read_to_string(&running).unwrap();
    assert_eq!(client.end(), Some(0));
    assert!(until(PATIENCE, || !Path::new("/proc").join(&pid).exists()), "the job outlives the session");
}
