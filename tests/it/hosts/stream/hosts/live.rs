//! `gpuwatch --hosts` in a terminal: the screen of many machines, and the screens of one of them.

use super::{HEADER, Machines};
use crate::{
    helpers::terminal::{PATIENCE, PROGRAM, Terminal},
    house::schemas,
};

impl Machines {
    pub(super) fn watch(&self, hosts: &str, arguments: &[&str]) -> Terminal {
        let transport = self.transport();
        let own = ["--hosts", hosts, "--transport", &transport, "--remote-program", PROGRAM];
        Terminal::start(&[&own, arguments].concat(), &[])
    }
}

/// A title for the terminal's window, and its bytes if it were one.
const TITLE: &str = "\\033]0;owned\\007";
pub(super) const OWNED: &[u8] = b"\x1b]0;owned";

pub(super) fn has(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|it| it == wanted)
}

#[test]
fn a_machine_opens_as_on_one_machine_and_esc_returns_to_all() {
    let machines = Machines::new();
    let _ranks = [
        machines.rank("node1", &["--rank", "0", "--ranks", "2"]),
        machines.rank("node2", &["--rank", "1", "--ranks", "2"]),
    ];
    machines.faulty("node3", &format!("printf 'ssh: {TITLE} no route\\n' >&2; exit 255"));
    let mut terminal = machines.watch("node[1-3]", &[]);
    for phrase in ["machines by device", "node1", "no route", "2 of 2 ranks on 2 machines", "1 needs attention"] {
        terminal.shows(phrase);
    }
    // The machine that refuses is first, and cannot be opened.
    terminal.press("\r");
    terminal.shows("node3 cannot be opened");
    terminal.press("j\r");
    terminal.shows("gpuwatch  node1");
    terminal.shows("1 probe");
    terminal.press("\t\r");
    terminal.shows("─ rank 0 on");
    terminal.press("\x1b");
    terminal.shows("Esc machines");
    terminal.press("\x1b");
    terminal.shows("machines by device");
    terminal.press("m");
    terminal.shows("ranks by device");
    terminal.press(">");
    terminal.shows("ranks by allocated");
    terminal.press("/rank 1\r");
    terminal.shows("rank 1 on node2");
    terminal.press("\r");
    terminal.shows("gpuwatch  node2");
    terminal.press("q");
    assert_eq!(terminal.ends(PATIENCE), 0);
    assert!(!has(&terminal.bytes(), OWNED));
}

#[test]
fn an_alert_of_a_job_reaches_the_terminal_and_the_program_once_while_a_machine_is_open() {
    let machines = Machines::new();
    let _rank = machines.rank("node1", &["--kind", "leaking", "--rate", "200"]);
    let file = machines.path("alerts");
    let hook = ["--on-alert", "sh", "--on-alert-arg=-c", "--on-alert-arg=cat >> \"$0\"", "--on-alert-arg"];
    let mut terminal =
        machines.watch("node1", &[&["--bell", "--notify"][..], &hook, &[file.to_str().unwrap()]].concat());
    terminal.shows("1 up");
    terminal.press("\r");
    terminal.shows("Esc machines");
    let has = |what: &[u8]| has(&terminal.bytes(), what);
    assert!(
        crate::helpers::terminal::until(PATIENCE, || has(b"\x1b]9;gpuwatch: critical: run 0123456789abcdef")),
        "{}",
        terminal.text()
    );
    assert!(has(b"\x07"));
    assert!(crate::helpers::terminal::until(PATIENCE, || file.exists() && !std::fs::read(&file).unwrap().is_empty()));
    terminal.press("q");
    assert_eq!(terminal.ends(PATIENCE), 0);
    let messages = std::fs::read_to_string(file).unwrap();
    assert_eq!(messages.lines().count(), 1, "{messages}");
    let message = serde_json::from_str(&messages).unwrap();
    schemas::check("job-alert", &message);
    assert_eq!((&message["kind"], &message["hosts"][0]), (&"growth".into(), &"node1".into()));
}

#[test]
fn machines_that_fail_have_their_reasons_in_their_rows() {
    test_tiers::change!("waits for a machine that hangs");
    let machines = Machines::new();
    let _rank = machines.rank("good", &[]);
    machines.faulty("hangs", "exec sleep 1000");
    machines.faulty("older", "echo \"error: unrecognized subcommand 'stream'\" >&2; exit 2");
    machines.faulty("chatters", &format!("while :; do printf 'Welcome {TITLE}\\n'; done"));
    let header = HEADER.replace("FORMAT", "1");
    machines.faulty("garbles", &format!("echo '{header}'; printf '{TITLE}garbage\\n'; exec cat"));
    let notice = r#"{"type":"notice","at_us":5,"text":"\u001b]0;owned\u0007"}"#;
    machines.faulty("hostile", &format!("echo '{header}'; echo '{notice}'; exec cat"));
    let mut terminal = machines.watch("hangs,older,chatters,garbles,hostile,good", &[]);
    let row = |name: &str, words: &str| {
        let shows = || terminal.text().lines().any(|it| it.trim_start().starts_with(name) && it.contains(words));
        assert!(crate::helpers::terminal::until(PATIENCE, shows), "{name} {words}\n{}", terminal.text());
    };
    for (name, words) in [
        ("good", "up"),
        ("hangs", "silent"),
        ("hangs", "no line for"),
        ("older", "incompatible"),
        ("chatters", "not a stream of gpuwatch"),
        ("garbles", "line 2 is not a line of a stream"),
        ("hostile", "silent"),
    ] {
        row(name, words);
    }
    // The last state of a machine that is silent can be opened.
    terminal.press("/hostile\r");
    terminal.press("\r");
    terminal.shows("gpuwatch  hostile  silent: no line for");
    terminal.press("q");
    assert_eq!(terminal.ends(PATIENCE), 0);
    assert!(!has(&terminal.bytes(), OWNED));
}

#[test]
fn a_picture_shows_the_machines() {
    let machines = Machines::new();
    let _rank = machines.rank("node1", &[]);
    let file = machines.directory.path().join("all.svg");
    let transport = machines.transport();
    let mut command = std::process::Command::new(PROGRAM);
    command.args(["--hosts", "node1", "--transport", &transport, "--remote-program", PROGRAM, "--screenshot"]);
    let output = command.arg(&file).envs(crate::probe::launch::Home::new().variables()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let svg = std::fs::read_to_string(file).unwrap();
    assert!(svg.contains("node1") && svg.contains("machines"), "{svg}");
}
