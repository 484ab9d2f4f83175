//! `gpuwatch once --hosts`: several machines at once, through commands of this machine in place of ssh.

mod hands;
mod live;
mod push;
mod ssh;

use crate::{
    helpers::terminal::{PATIENCE, PROGRAM, until},
    hosts::stream::Rank,
    house::schemas,
    probe::launch::Home,
};
use serde_json::Value;
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Output},
};

/// Machines, each with a home of its own, and the program that reaches them.
pub(super) struct Machines {
    directory: tempfile::TempDir,
}

/// A machine of these tests is a folder with its home; a faulty one has a script in place of gpuwatch.
const REACH: &str = r#"#!/bin/sh
# Runs a command with the home of a machine.
here=$(dirname "$0")/$1
shift
[ -x "$here/faulty" ] && exec "$here/faulty"
PATH=$here/bin:$PATH XDG_CACHE_HOME=$here/cache XDG_CONFIG_HOME=$here/config XDG_STATE_HOME=$here/state \
    TMPDIR=$here/tmp GPUWATCH_SOCKET_DIR=$here/sockets GPUWATCH_NO_NVML=1 exec "$@"
"#;

impl Machines {
    pub(super) fn new() -> Self {
        let it = Self { directory: tempfile::tempdir().unwrap() };
        it.program("reach", REACH);
        it
    }

    fn program(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// A machine that runs this script in place of gpuwatch.
    pub(super) fn faulty(&self, name: &str, script: &str) {
        self.program(&format!("{name}/faulty"), &format!("#!/bin/sh\n{script}\n"));
    }

    /// A rank of a run on a machine.
    pub(super) fn rank(&self, machine: &str, flags: &[&str]) -> Rank {
        let sockets = self.directory.path().join(machine).join("sockets");
        fs::create_dir_all(&sockets).unwrap();
        fs::set_permissions(&sockets, fs::Permissions::from_mode(0o700)).unwrap();
        let directory = sockets.to_str().unwrap();
        Rank::start_in(directory, flags, &[("GPUWATCH_RUN", "0123456789abcdef0123456789abcdef")])
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn transport(&self) -> String {
        format!("{} {{}}", self.path("reach").display())
    }

    /// A gpuwatch that copies itself to these machines.
    fn pushing(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).args(["--transport", &self.transport(), "--push"]).envs(Home::new().variables());
        command
    }

    /// A gpuwatch that reaches these machines.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let transport = self.transport();
        let mut command = Command::new(PROGRAM);
        command.args(arguments).args(["--transport", &transport, "--remote-program", PROGRAM]);
        command.envs(Home::new().variables());
        command
    }

    fn once(&self, hosts: &str, arguments: &[&str]) -> Output {
        self.command(&[&["once", "--hosts", hosts], arguments].concat()).output().unwrap()
    }

    fn json(&self, hosts: &str, arguments: &[&str]) -> Value {
        let output = self.once(hosts, &[&["--json"], arguments].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {errors}"));
        schemas::check("hosts", &json);
        let has_none = json["nodes"].as_array().unwrap().iter().all(|it| it["once"].is_null());
        assert_eq!(output.status.code(), Some(i32::from(has_none)), "{json:#} {errors}");
        json
    }
}

#[test]
fn ranks_of_one_run_on_two_machines_are_one_job() {
    let machines = Machines::new();
    let _ranks = [
        machines.rank("node01", &["--rank", "0", "--ranks", "2"]),
        machines.rank("node02", &["--rank", "1", "--ranks", "2"]),
    ];
    let json = machines.json("node[01-02]", &["--wait", "60s"]);
    assert_eq!(json["schema"], 1);
    for (place, host) in ["node01", "node02"].into_iter().enumerate() {
        let node = &json["nodes"][place];
        assert_eq!((&node["host"], &node["link"], &node["why"]), (&host.into(), &"up".into(), &Value::Null));
        assert_eq!(node["once"]["schema"], 1);
        assert_eq!(node["once"]["probes"][0]["hello"]["rank"], place);
    }
    let jobs = json["jobs"].as_array().unwrap();
    let [job] = &jobs[..] else { panic!("{jobs:#?}") };
    assert_eq!((&job["world_size"], &job["missing"]), (&2.into(), &Value::Array(Vec::new())));
    for (rank, host) in ["node01", "node02"].into_iter().enumerate() {
        let it = &job["ranks"][rank];
        assert_eq!((&it["rank"], &it["host"], &it["alive"]), (&rank.into(), &host.into(), &true.into()));
        assert!(it["step"].as_u64() > Some(0) && it["allocated"].as_u64() > Some(0), "{it}");
    }
}

/// What follows runs as it is written: on the machine, reached in the same way.
#[test]
fn what_follows_runs_on_the_machine_and_asks_for_what_grows_first() {
    let machines = Machines::new();
    let _rank = machines.rank("node01", &["--kind", "leaking"]);
    let begin = |host: &str| format!("{} {host} {PROGRAM} ", machines.path("reach").display());
    let mut next = Value::Null;
    let commands = |next: &Value| -> Vec<String> {
        next.as_array().unwrap().iter().map(|it| it["command"].as_str().unwrap().to_owned()).collect()
    };
    let grows = || {
        let json = machines.json("node[01-02]", &["--wait", "60s"]);
        let pid = &json["nodes"][0]["once"]["probes"][0]["pid"];
        next = json["next"].clone();
        commands(&next).first() == Some(&format!("{}sites {pid}", begin("node01")))
    };
    assert!(until(PATIENCE, grows), "{next:#}");
    let all = commands(&next);
    assert!(all.iter().any(|it| it.starts_with(&format!("{}peak ", begin("node01")))), "{all:?}");
    // The other machine has no device and no job.
    let doctor = all.iter().find(|it| **it == format!("{}doctor --json", begin("node02"))).unwrap_or_else(|| {
        panic!("{all:?}");
    });
    let output = Command::new("sh").args(["-c", doctor]).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    schemas::check("doctor", &report);
    // A gpuwatch that was copied there is gone by then.
    let pushed = machines.pushing(&["once", "--json", "--hosts", "node02", "--wait", "60s"]).output().unwrap();
    let pushed: Value = serde_json::from_slice(&pushed.stdout).unwrap();
    assert_eq!((&pushed["nodes"][0]["link"], &pushed["next"]), (&"up".into(), &Value::Array(Vec::new())));
}

const HEADER: &str =
    r#"{"type":"recording","format":FORMAT,"gpuwatch":"9.8.7","host":"x","started_unix_us":1,"monotonic_us":1}"#;

#[test]
fn machines_that_fail_are_reported_and_delay_no_other() {
    test_tiers::change!("waits 20 s for machines that hang");
    let machines = Machines::new();
    let _rank = machines.rank("good", &[]);
    machines.faulty("hangs", "exec sleep 1000");
    machines.faulty("closes", "exec true");
    machines.faulty("refuses", "echo 'ssh: no \x1b[31mroute' >&2; exit 255");
    machines.faulty("lacks", "echo 'sh: 1: gpuwatch: not found' >&2; exit 127");
    machines.faulty("older", "echo \"error: unrecognized subcommand 'stream'\" >&2; exit 2");
    machines.faulty("newer", &format!("echo '{}'; exec cat", HEADER.replace("FORMAT", "7")));
    machines.faulty("chatters", "while :; do printf 'Welcome \\033]0;x\\007\\n'; done");
    let header = HEADER.replace("FORMAT", "1");
    machines.faulty("garbles", &format!("echo '{header}'; printf '\\033[2Jgarbage\\n'; exec cat"));
    machines.faulty("floods", &format!("echo '{header}'; exec tr '\\0' x </dev/zero"));
    let notice = r#"{"type":"notice","at_us":18446744073709551615,"text":"\u001b[2J"}"#;
    machines.faulty("hostile", &format!("echo Banner; echo '{header}'; echo '{notice}'; exec cat"));
    let hosts = "hangs,closes,refuses,lacks,older,newer,chatters,garbles,floods,hostile,good";
    let output = machines.once(hosts, &["--json", "--wait", "20s"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    let json: Value = serde_json::from_str(&text).unwrap();
    schemas::check("hosts", &json);
    let node = |name: &str| json["nodes"].as_array().unwrap().iter().find(|it| it["host"] == name).unwrap();
    for (name, link, words) in [
        ("hangs", "silent", "no line for"),
        ("closes", "refused", "without a stream of gpuwatch"),
        ("refuses", "refused", "route"),
        ("lacks", "refused", "gpuwatch: not found"),
        ("older", "incompatible", "older"),
        ("newer", "incompatible", "9.8.7"),
        ("chatters", "incompatible", "not a stream of gpuwatch: \"Welcome "),
        ("garbles", "incompatible", "line 2 is not a line of a stream"),
        ("floods", "incompatible", "more than 1 MiB"),
    ] {
        let it = node(name);
        assert_eq!(it["link"], link, "{name}: {}", it["why"]);
        assert!(it["why"].as_str().unwrap().contains(words), "{name}: {}", it["why"]);
        let has_answered = ["garbles", "floods"].contains(&name);
        assert_eq!(it["once"].is_null(), !has_answered, "{name}");
    }
    // One that has sent no more since is silent, and its last state is known.
    assert_eq!((&node("hostile")["link"], &node("good")["link"]), (&"silent".into(), &"up".into()));
    assert_eq!(node("hostile")["once"]["gpuwatch"], "9.8.7");
    assert!(node("good")["once"]["probes"][0]["devices"][0]["step"].as_u64() > Some(0));
}

#[test]
fn the_text_has_a_line_for_each_machine_and_no_escape_sequence() {
    let machines = Machines::new();
    let _rank = machines.rank("node1", &[]);
    machines.faulty("node2", "printf 'ssh: \\033]0;x\\007 no route\\n' >&2; exit 255");
    let output = machines.once("node[1-2]", &["--wait", "60s"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    assert!(text.lines().any(|it| it.starts_with("node1  up ") && it.contains("1 probe")), "{text}");
    assert!(text.lines().any(|it| it.starts_with("node2  refused ") && it.contains("no route")), "{text}");
    assert!(text.contains("run 0123456789abcdef0123456789abcdef: 1 process on 1 machine"), "{text}");
}

#[test]
fn lists_come_from_files_and_from_slurm() {
    let machines = Machines::new();
    let file = machines.directory.path().join("list");
    fs::write(&file, "# all of them\nnode[1-2]\n").unwrap();
    let squeue = "#!/bin/sh\n[ \"$*\" = '--noheader --format=%N --jobs 42' ] && echo 'gpu[08-09]'\n";
    machines.program("bin/squeue", squeue);
    let path = std::env::join_paths(
        std::iter::once(machines.directory.path().join("bin"))
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    );
    let mut command = Command::new(PROGRAM);
    command.args(["once", "--json", "--wait", "60s", "--transport", "false {}", "--slurm", "42", "--hosts", "a,node1"]);
    command.arg("--hosts-file").arg(&file).env("PATH", path.unwrap()).envs(Home::new().variables());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let hosts: Vec<&str> = json["nodes"].as_array().unwrap().iter().map(|it| it["host"].as_str().unwrap()).collect();
    assert_eq!(hosts, ["a", "node1", "node2", "gpu08", "gpu09"]);
    assert!(json["nodes"].as_array().unwrap().iter().all(|it| it["link"] == "refused"));
    for wrong in [["--hosts", "-oProxyCommand=x"], ["--slurm", "7;x"], ["--transport", "a 'b"]] {
        let mut command = Command::new(PROGRAM);
        let output = command.args(["once", "--hosts=x"]).arg(format!("{}={}", wrong[0], wrong[1])).output().unwrap();
        assert!(!output.status.success() && output.stdout.is_empty(), "{wrong:?}");
    }
}

#[test]
fn a_program_that_is_missing_here_is_named_with_what_to_do_without_it() {
    let nothing = tempfile::tempdir().unwrap();
    let cases = [
        (&["--slurm", "42"][..], "there is no squeue on this machine: run gpuwatch where Slurm's commands are"),
        (&["--hosts", "a"], "there is no ssh on this machine: install it, or name another command"),
        (&["--hosts", "a", "--transport", "reach {}"], "there is no reach on this machine: install it, or correct"),
        (&["--hosts", "a", "--push"], "there is no sha256sum on this machine: install it, or copy gpuwatch"),
    ];
    for (arguments, expected) in cases {
        let mut command = Command::new(PROGRAM);
        command.arg("once").args(arguments).env("PATH", nothing.path()).envs(Home::new().variables());
        let output = command.output().unwrap();
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8_lossy(&printed);
        assert!(printed.contains(expected), "{arguments:?}: {printed}");
    }
}
