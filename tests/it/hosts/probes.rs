//! Probes as a viewer meets them: good ones, late ones, hostile ones.

use crate::helpers::terminal::{PATIENCE, PROGRAM, until};
use gpuwatch::{
    facts::event::{DeviceId, Event, Fact, Line, ProbeId},
    model::session::{Session, process::ProbeState},
    sources::{Options, Sources, probe},
};
use gpuwatch_probe::{
    Description, Probe,
    reading::Reading,
    socket,
    wire::{Device, Edge},
};
use std::{
    cell::{Cell, RefCell},
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::{
        fs::{PermissionsExt, chown, symlink},
        net::{UnixListener, UnixStream},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};
use tempfile::TempDir;
use tokio::time::{Instant, timeout_at};

const HELLO: &str = r#"{"type":"hello","protocol":1,"probe":"fake/1","pid":7,"seq":0,"monotonic_us":1,"devices":[]}"#;

/// A directory for sockets: 0700, as probes make them.
fn directory() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    dir
}

/// Watches directories until `enough` events have arrived, and returns all of them.
fn watch(directories: &[&Path], enough: impl Fn(&[Event]) -> bool) -> Vec<Event> {
    watch_with(directories, None, false, enough)
}

/// The same, only of this run, or whole as for a recording.
fn watch_with(
    directories: &[&Path],
    run: Option<&str>,
    recorded: bool,
    enough: impl Fn(&[Event]) -> bool,
) -> Vec<Event> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let directories: Vec<PathBuf> = directories.iter().map(|it| it.to_path_buf()).collect();
    let probes = probe::Options { directories, private_tmp: false, run: run.map(str::to_owned), whole: false };
    runtime.block_on(async {
        let mut sources = Sources::start(Options { probes: Some(probes), recorded, ..Options::default() });
        let end = Instant::now() + PATIENCE;
        let mut printed = Vec::new();
        while !enough(&printed) {
            let Ok(Some(event)) = timeout_at(end, sources.events.recv()).await else {
                panic!("too few events: {printed:#?}");
            };
            printed.push(event);
        }
        printed
    })
}

/// Answers each connection with its own script; keeps what it was asked.
fn fake(path: &Path, scripts: Vec<Vec<u8>>) -> thread::JoinHandle<Vec<String>> {
    let listener = socket::with_address(path, |it| UnixListener::bind(it)).unwrap();
    thread::spawn(move || {
        let answer = |script: Vec<u8>| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            let mut asked = String::new();
            // A viewer that sends no request is not an error.
            let _ = BufReader::new(&stream).read_line(&mut asked);
            // It may have closed in disgust.
            let _ = stream.write_all(&script);
            asked
        };
        scripts.into_iter().map(answer).collect()
    })
}

fn messages(events: &[Event]) -> Vec<String> {
    let message = |it: &Event| match &it.fact {
        Fact::Notice(text) => Some(text.raw().to_owned()),
        Fact::ProbeGone { why, .. } => Some(why.raw().to_owned()),
        _ => None,
    };
    events.iter().filter_map(message).collect()
}

fn samples(events: &[Event]) -> Vec<(ProbeId, u64)> {
    let sample = |it: &Event| match &it.fact {
        Fact::Probe { probe, line } => match &**line {
            Line::Sample(sample) => Some((*probe, sample.seq.unwrap())),
            _ => None,
        },
        _ => None,
    };
    events.iter().filter_map(sample).collect()
}

fn lines(lines: &[&str]) -> Vec<u8> {
    lines.iter().flat_map(|it| [it.as_bytes(), b"\n"].concat()).collect()
}

fn sample(seq: u64) -> String {
    format!("{{\"type\":\"sample\",\"seq\":{seq},\"at_us\":{seq},\"device\":0,\"edge\":\"step\",\"step\":{seq}}}")
}

#[test]
fn a_real_probe_is_found_and_read_from_its_first_step() {
    let dir = directory();
    let description = Description { directories: vec![dir.path().into()], ..Description::default() };
    let probe = Probe::start(description).unwrap();
    for step in 1..=100 {
        let mut reading = Reading { edge: Edge::Step, steps: step, ..Reading::default() };
        reading.put(1, step * 512);
        probe.push(&reading).unwrap();
    }
    let events = watch(&[dir.path()], |it| samples(it).len() == 100);
    let found = events.iter().find_map(|it| match &it.fact {
        Fact::ProbeFound { pid, .. } => Some(*pid),
        _ => None,
    });
    assert_eq!(found, Some(Some(std::process::id())), "the pid is the kernel's word");
    let now = gpuwatch::sources::now();
    assert!(events.iter().all(|it| it.at <= now));
}

#[test]
fn hostile_input_closes_that_connection_with_a_named_reason() {
    let oversized = [b"{\"type\":\"mark\",\"name\":\"".as_slice(), &vec![b'x'; 2 << 20]].concat();
    let after_hello = |bytes: &[u8]| [lines(&[HELLO]), bytes.to_vec()].concat();
    let cases: [(&str, Vec<u8>, &str); 7] = [
        ("garbage", b"\x00\x01garbage\n".to_vec(), "not of the wire"),
        ("no-hello", lines(&[&sample(1)]), "did not begin with a hello"),
        ("half", after_hello(b"{\"type\":\"sam"), "ended inside a line"),
        ("oversized", after_hello(&oversized), "longer than 1 MiB"),
        ("latin", after_hello(b"{\"type\":\"mark\",\"at_us\":1,\"name\":\"\xe4\"}\n"), "not UTF-8"),
        ("object", after_hello(b"[1,2]\n"), "not of the wire"),
        ("killed", after_hello(b""), "without a word"),
    ];
    let dir = directory();
    let good = dir.path().join("good.sock");
    let _good = fake(&good, vec![lines(&[HELLO, &sample(1)])]);
    for (name, script, _) in &cases {
        let _fake = fake(&dir.path().join(format!("{name}.sock")), vec![script.clone()]);
    }
    let all = |events: &[Event]| {
        let messages = messages(events);
        // Two of the cases are closed for the same reason: each reason is not yet each case.
        let named = messages.iter().any(|it| it.contains("garbage.sock"));
        let closed = cases.iter().all(|(_, _, why)| messages.iter().any(|it| it.contains(why)));
        named && closed && !samples(events).is_empty()
    };
    let events = watch(&[dir.path()], all);
    // A notice about unreadable lines names the socket, because there is no other name.
    let garbage = messages(&events).into_iter().find(|it| it.contains("garbage.sock")).unwrap();
    assert!(garbage.contains("the connection was closed"), "{garbage}");
}

/// It closes the connection before it ends, like a probe whose requests stay unanswered.
#[test]
fn another_version_is_named_while_its_process_lives_and_no_longer() {
    let dir = directory();
    let hello = HELLO.replace("\"protocol\":1", "\"protocol\":9");
    let serve = "import socket, sys\n\
        s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen()\n\
        c, _ = s.accept(); c.sendall(sys.argv[2].encode() + b'\\n'); c.close(); s.close(); sys.stdin.read()";
    let mut job = Command::new("python3");
    job.args(["-I", "-S", "-c", serve]).arg(dir.path().join("1.sock")).arg(hello).stdin(Stdio::piped());
    let job = RefCell::new(job.spawn().unwrap());
    let received = |events: &[Event]| events.iter().position(|it| matches!(it.fact, Fact::Probe { .. }));
    let seconds = |events: &[Event]| events.iter().filter(|it| matches!(it.fact, Fact::Second)).count();
    let lives = |events: &[Event]| {
        events.iter().fold(Session::default(), |mut session, it| {
            session.apply(it);
            session
        })
    };
    let ended = Cell::new(false);
    let events = watch(&[dir.path()], |events| {
        let life = lives(events).processes.first().map(|it| it.life.clone());
        let reported = received(events).is_some_and(|it| seconds(&events[it..]) >= 3);
        if reported && !ended.replace(true) {
            assert_eq!(life, Some(ProbeState::Incompatible { protocol: 9 }));
            // No process reaps it: a zombie does not count as alive.
            job.borrow_mut().kill().unwrap();
        }
        matches!(life, Some(ProbeState::Gone { .. }))
    });
    assert!(ended.get(), "it was alive: {events:#?}");
    assert!(messages(&events).iter().any(|it| it.contains("it spoke protocol 9")), "{:?}", messages(&events));
    job.borrow_mut().wait().unwrap();
}

#[test]
fn unknown_types_and_fields_are_ignored() {
    let dir = directory();
    let strange = r#"{"type":"from_the_future","x":[{}]}"#;
    let richer = sample(1).replace("\"device\"", "\"new\":{\"a\":1},\"device\"");
    let bye = r#"{"type":"bye","seq":2,"at_us":2,"reason":"exit"}"#;
    let _fake = fake(&dir.path().join("1.sock"), vec![lines(&[HELLO, strange, &richer, bye])]);
    let is_bye = |it: &Event| matches!(&it.fact, Fact::Probe { line, .. } if matches!(**line, Line::Bye(_)));
    let events = watch(&[dir.path()], |it| it.iter().any(is_bye));
    assert_eq!(samples(&events), [(ProbeId(0), 1)]);
    assert_eq!(messages(&events), Vec::<String>::new());
}

#[test]
fn a_reconnect_asks_for_what_it_missed_and_keeps_its_number() {
    let dir = directory();
    let again = HELLO.replace("\"seq\":0", "\"seq\":5");
    // The second time a probe that does not know `since` sends everything again.
    let scripts = vec![
        lines(&[HELLO, &sample(1), &sample(2), &sample(3)]),
        lines(&[&again, &sample(2), &sample(3), &sample(4), &sample(5)]),
    ];
    let fake = fake(&dir.path().join("1.sock"), scripts);
    let events = watch(&[dir.path()], |it| samples(it).len() == 5);
    let expected: Vec<_> = (1..=5).map(|seq| (ProbeId(0), seq)).collect();
    assert_eq!(samples(&events), expected);
    assert_eq!(fake.join().unwrap(), ["", "since seq=3\n"]);
}

#[test]
fn a_recreated_socket_is_not_a_second_probe() {
    let dir = directory();
    let description = Description { directories: vec![dir.path().into()], ..Description::default() };
    let probe = Probe::start(description).unwrap();
    let push = |steps: std::ops::RangeInclusive<u64>| {
        for step in steps {
            probe.push(&Reading { edge: Edge::Step, steps: step, ..Reading::default() }).unwrap();
        }
    };
    push(1..=10);
    let (removed, pushed) = (Cell::new(false), Cell::new(None));
    let events = watch(&[dir.path()], |events| {
        if samples(events).len() == 10 && !removed.replace(true) {
            fs::remove_file(probe.socket()).unwrap();
        }
        if removed.get() && pushed.get().is_none() && probe.socket().exists() {
            push(11..=20);
            pushed.set(Some(events.len()));
        }
        // By then, the scanner has seen the new socket more than once.
        let later = pushed.get().map_or(&[][..], |at| &events[at..]);
        later.iter().filter(|it| matches!(it.fact, Fact::Second)).count() >= 3 && samples(events).len() >= 20
    });
    let expected: Vec<_> = (1..=20).map(|seq| (ProbeId(0), seq)).collect();
    assert_eq!(samples(&events), expected);
    assert_eq!(events.iter().filter(|it| matches!(it.fact, Fact::ProbeFound { .. })).count(), 1);
}

#[test]
fn a_stale_socket_is_passed_over_and_its_name_may_live_again() {
    let dir = directory();
    let path = dir.path().join("1.sock");
    drop(UnixListener::bind(&path).unwrap());
    assert!(UnixStream::connect(&path).is_err(), "the socket is stale");
    let other = dir.path().join("2.sock");
    let _other = fake(&other, vec![lines(&[HELLO, &sample(1)])]);
    let events = watch(&[dir.path()], |it| samples(it).len() == 1);
    assert!(!messages(&events).iter().any(|it| it.contains("1.sock")), "{:?}", messages(&events));
    fs::remove_file(&path).unwrap();
    fs::remove_file(&other).unwrap();
    let _again = fake(&path, vec![lines(&[HELLO, &sample(7)])]);
    let events = watch(&[dir.path()], |it| !samples(it).is_empty());
    assert_eq!(samples(&events)[0].1, 7);
}

#[test]
fn a_path_may_be_longer_than_an_address() {
    let dir = directory();
    let deep = dir.path().join("d".repeat(120));
    fs::create_dir(&deep).unwrap();
    fs::set_permissions(&deep, fs::Permissions::from_mode(0o700)).unwrap();
    let _fake = fake(&deep.join("1.sock"), vec![lines(&[HELLO, &sample(1)])]);
    watch(&[&deep], |it| !samples(it).is_empty());
}

#[test]
fn a_directory_that_is_not_ours_alone_is_named_once_and_not_entered() {
    let open = directory();
    fs::set_permissions(open.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let _fake = fake(&open.path().join("1.sock"), vec![lines(&[HELLO, &sample(1)])]);
    let place = directory();
    let link = place.path().join("link");
    symlink(open.path(), &link).unwrap();
    let file = place.path().join("file");
    fs::write(&file, "").unwrap();
    let good = directory();
    let hello = HELLO.replace("\"seq\":0", "\"seq\":1");
    let script = || lines(&[&hello, &sample(1)]);
    let _good = fake(&good.path().join("1.sock"), vec![script(), script(), script()]);
    let missing = place.path().join("missing");
    // The good one comes back twice: by then, the directories have been scanned several times.
    let events = watch(&[open.path(), &link, &file, &missing, good.path()], |it| {
        messages(it).iter().filter(|line| line.contains("without a word")).count() == 3
    });
    let notices: Vec<String> = messages(&events).into_iter().filter(|it| it.contains("is not used")).collect();
    assert_eq!(notices.len(), 3, "{notices:#?}");
    for (path, why) in [(open.path(), "mode is 0755"), (&link, "symbolic link"), (&file, "not a directory")] {
        let path = path.display().to_string();
        assert!(notices.iter().any(|it| it.contains(&path) && it.contains(why)), "{why}: {notices:#?}");
    }
    assert_eq!(samples(&events).len(), 1, "the one sample came once, from the good directory");
}

/// Only root can be another user for a test; what is decided about whom is tested beside the code.
#[test]
fn a_directory_and_a_socket_of_another_user_are_refused_by_name() {
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        test_tiers::skip!("only root can become another user");
    }
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (sockets, program) = (place.path().join("sockets"), place.path().join("gpuwatch"));
    fs::create_dir(&sockets).unwrap();
    fs::set_permissions(&sockets, fs::Permissions::from_mode(0o700)).unwrap();
    fs::copy(PROGRAM, &program).unwrap();
    chown(&sockets, Some(NOBODY), Some(NOBODY)).unwrap();
    let mut job = Command::new(&program);
    job.args(["demo-job", "--directory"]).arg(&sockets).uid(NOBODY).gid(NOBODY).current_dir("/").stdin(Stdio::piped());
    let mut job = job.spawn().unwrap();
    let listens = || fs::read_dir(&sockets).unwrap().flatten().any(|it| it.path().extension().is_some());
    let is_there = until(PATIENCE, listens);
    let events = watch(&[&sockets], |it| !messages(it).is_empty());
    let not_ours = messages(&events);
    chown(&sockets, Some(0), Some(0)).unwrap();
    let events = watch(&[&sockets], |it| !messages(it).is_empty());
    job.kill().unwrap();
    job.wait().unwrap();
    assert!(is_there && not_ours[0].contains("is not used"), "{not_ours:?}");
    let messages = messages(&events);
    assert!(messages[0].contains(&format!("is answered by user {NOBODY}, not by you: refused")), "{messages:?}");
    assert!(samples(&events).is_empty());
}

#[test]
fn one_run_can_be_followed_alone() {
    let dir = directory();
    let of = |run: &str, seq| {
        let hello = HELLO.replace("\"pid\"", &format!("\"run\":\"{run}\",\"pid\""));
        vec![lines(&[&hello, &sample(seq)])]
    };
    let _other = fake(&dir.path().join("1.sock"), of("aa", 1));
    let _ours = fake(&dir.path().join("2.sock"), of("bb", 2));
    let events = watch_with(&[dir.path()], Some("bb"), false, |it| messages(it).len() == 1);
    assert_eq!(samples(&events).iter().map(|it| it.1).collect::<Vec<_>>(), [2]);
}

#[test]
fn a_probe_that_names_a_device_later_stays_live() {
    let dir = directory();
    let description = Description { directories: vec![dir.path().into()], ..Description::default() };
    let probe = Probe::start(description).unwrap();
    let hellos = |events: &[Event]| {
        let hello = |it: &&Event| matches!(&it.fact, Fact::Probe { line, .. } if matches!(**line, Line::Hello(_)));
        events.iter().filter(hello).count()
    };
    let is_live = |it: &Event| matches!(&it.fact, Fact::Probe { line, .. } if matches!(**line, Line::Live(_)));
    let added = std::cell::Cell::new(false);
    let events = watch(&[dir.path()], |events| {
        if events.iter().any(is_live) && !added.replace(true) {
            probe.device(Device { ordinal: 1, uuid: Some("GPU-later".into()), ..Device::default() }).unwrap();
        }
        hellos(events) == 2
    });
    let mut session = Session::default();
    for event in &events {
        session.apply(event);
    }
    assert_eq!(session.processes[0].life, ProbeState::Live);
    assert!(session.device(&DeviceId("GPU-later".into())).is_some());
}

/// An inode is free for the next file as soon as its file is gone: what was read before goes by its name.
#[test]
fn a_spill_on_a_used_inode_is_read_too() {
    let dir = directory();
    let spill = |instance: char| {
        let instance = instance.to_string().repeat(32);
        let hello = format!(
            r#"{{"type":"hello","protocol":1,"probe":"fake/1","pid":4194301,"seq":0,"monotonic_us":1,"instance":"{instance}"}}"#
        );
        let text = lines(&[&hello, r#"{"type":"oom","seq":1,"at_us":5,"device":0,"requested":64}"#]);
        (dir.path().join(gpuwatch_probe::error_file::name(4_194_301, &instance)), text)
    };
    let [(first, one), (second, other)] = ['a', 'b'].map(spill);
    assert_eq!(one.len(), other.len());
    let (is_written, is_moved) = (Cell::new(false), Cell::new(false));
    let is_error = |event: &&Event| matches!(&event.fact, Fact::Probe { line, .. } if matches!(**line, Line::Oom(_)));
    let errors = |events: &[Event]| events.iter().filter(is_error).count();
    let events = watch(&[dir.path()], |events| {
        // A spill that is older than its reader is nobody's news.
        if events.iter().any(|it| it.fact == Fact::Second) && !is_written.replace(true) {
            fs::write(dir.path().join("new"), &one).unwrap();
            fs::set_permissions(dir.path().join("new"), fs::Permissions::from_mode(0o600)).unwrap();
            fs::rename(dir.path().join("new"), &first).unwrap();
        }
        if errors(events) == 1 && !is_moved.replace(true) {
            fs::write(&first, &other).unwrap();
            fs::rename(&first, &second).unwrap();
        }
        errors(events) == 2
    });
    assert_eq!(errors(&events), 2);
}

/// Watches probes that have made 300 steps at once, for a screen or whole, until the last step of each is there.
/// Returns the number of samples of all, and whether a probe's reader learned that it lacks some.
fn many(count: u32, recorded: bool) -> (usize, bool) {
    let dir = directory();
    let description = || Description { directories: vec![dir.path().into()], ..Description::default() };
    let probes: Vec<Probe> = (0..count).map(|_| Probe::start(description()).unwrap()).collect();
    // The last step leaves less than the one before.
    let push = |steps: std::ops::RangeInclusive<u64>| {
        for probe in &probes {
            for steps in steps.clone() {
                let mut reading = Reading { edge: Edge::Step, steps, ..Reading::default() };
                reading.put(1, if steps == 300 { 512 } else { 1 << 20 });
                probe.push(&reading).unwrap();
            }
        }
    };
    push(1..=1);
    let is_pushed = Cell::new(false);
    let last = |events: &[Event]| {
        let is_last = |it: &&Event| it.sample().is_some_and(|(_, sample)| sample.step == Some(300));
        events.iter().filter(is_last).count()
    };
    let events = watch_with(&[dir.path()], None, recorded, |events| {
        // The steps are made when all are connected.
        let live = |it: &&Event| it.line().is_some_and(|(_, line)| matches!(line, Line::Live(_)));
        if !is_pushed.get() && events.iter().filter(live).count() == count as usize {
            is_pushed.set(true);
            push(2..=300);
        }
        is_pushed.get() && last(events) == count as usize
    });
    let has_lost = |it: &Event| it.line().is_some_and(|(_, line)| matches!(line, Line::History(it) if it.stride > 1));
    (samples(&events).len(), events.iter().any(has_lost))
}

#[test]
fn more_probes_than_a_node_has_are_thinned_up_to_their_last_steps() {
    assert_eq!(many(16, false), (16 * 300, false));
    let (samples, has_lost) = many(17, false);
    assert!(samples < 17 * 300 && has_lost, "{samples}");
    assert_eq!(many(17, true), (17 * 300, false), "a recording has all");
}
