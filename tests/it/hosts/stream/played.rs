//! `gpuwatch replay DIR`: the recordings of several machines on the screen of many machines.

use super::recorded::begun;
use crate::{
    helpers::{
        story::{GIB, MIB, Story, counters},
        terminal::{PATIENCE, PROGRAM, Terminal},
    },
    probe::launch::Home,
};
use gpuwatch::{
    facts::units::Stamp,
    model::{
        cluster::{Cluster, Greeting, HostUpdate, Link, What},
        session::Session,
    },
    storage::{
        recording::{FORMAT, Header},
        replay::{
            Command,
            host_replay::{Recorded, Together},
            recording_set::RecordingSet,
        },
        sink::host_recordings::Nodes,
    },
};
use std::{fs, ops::RangeInclusive, path::Path, process};

const SECOND: u64 = 1_000_000;

/// Rank 2, on the second machine, grows; that machine's link fails after 40 s, and is up again after 50.
fn write(directory: &Path) {
    let mut nodes = begun(directory, |rank, step| 20 * GIB + if rank == 2 { step * MIB } else { 0 });
    let mut link = |second: u64, link| {
        nodes.take(HostUpdate { node: 1, at: Stamp(second * SECOND), what: What::Link(link) });
    };
    link(40, Link::refused("no \u{1b}[31mroute".to_owned()));
    link(50, Link::Up);
    assert!(nodes.finish(Stamp(60 * SECOND)).0);
}

/// The steps and the allocated bytes of every rank, machine by machine.
fn state(cluster: &Cluster) -> Vec<Vec<(Option<u64>, Option<u64>)>> {
    let of = |session: &Session| {
        let all = session.processes.iter().flat_map(|it| &it.devices);
        all.map(|on| (on.step, on.counters.allocated)).collect()
    };
    cluster.nodes.iter().map(|it| of(&it.session)).collect()
}

#[test]
fn every_machine_stands_at_the_same_moment_wherever_the_position_came_from() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let recorded = Recorded::open(folder.path()).unwrap();
    let mut read = Vec::new();
    let total: u64 = recorded.nodes.iter().flatten().map(RecordingSet::bytes).sum();
    let mut together = Together::load(Recorded::open(folder.path()).unwrap(), None, |it| read.push(it));
    assert!(read.is_sorted() && read.last() == Some(&total), "{read:?} of {total}");
    assert_eq!((together.head.from, together.head.to), (Stamp(0), Stamp(60 * SECOND)));

    for second in [60, 12, 45, 44, 0, 41, 60] {
        let at = Stamp(second * SECOND);
        together.seek(at);
        let mut forward = recorded.play();
        forward.advance(at);
        let there = together.cluster();
        assert_eq!(state(there), state(&forward.cluster), "after {second} s");
        let links = |all: &Cluster| all.nodes.iter().map(|it| it.link.clone()).collect::<Vec<_>>();
        assert_eq!(links(there), links(&forward.cluster), "after {second} s");
        assert_eq!(matches!(there.nodes[1].link, Link::Refused { .. }), (40..50).contains(&second));
        // The clocks of the two are 1,000 s apart.
        assert_eq!(there.nodes[1].age_us(Stamp(1_000 * SECOND), at), Some(second * SECOND));
    }
}

#[test]
fn steps_faults_and_the_clock_move_all_machines() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let mut together = played(folder.path());
    let second = |it: &Together| it.head.at.0 / SECOND;
    let steps = |together: &mut Together| {
        let all = state(together.cluster()).concat();
        all.into_iter().map(|it| it.0.unwrap()).collect::<Vec<_>>()
    };
    together.seek(Stamp(45 * SECOND));
    together.update(Command::PreviousTrouble, None);
    assert_eq!(second(&together), 40);
    let (words, warns) = together.position(None).word.unwrap();
    assert!(warns && words.contains("node1: refused: no \\u{1b}[31mroute"), "{words}");
    assert_eq!(steps(&mut together), [400; 4]);

    for place in [None, Some(0), Some(1)] {
        together.update(Command::NextStep, place);
    }
    assert_eq!(steps(&mut together), [403; 4]);
    together.update(Command::PreviousStep, None);
    assert_eq!((steps(&mut together), together.position(None).step), (vec![402; 4], Some(402)));

    together.update(Command::PreviousTrouble, None);
    together.update(Command::PreviousTrouble, None);
    let (words, _) = together.position(None).word.unwrap();
    assert!(words.contains("node1: warning: growth") && words.contains("rank 2"), "{words}");
    together.update(Command::NextTrouble, None);
    assert_eq!(second(&together), 40);
    together.update(Command::Start, None);
    together.update(Command::Play, None);
    together.tick(10 * SECOND);
    assert_eq!((steps(&mut together), together.head.playing), (vec![100; 4], true));
    together.tick(60 * SECOND);
    assert_eq!((steps(&mut together), together.head.playing), (vec![600; 4], false));
    let position = together.position(Some(1));
    assert_eq!((position.step, position.unix_us), (Some(600), Some(1_800_000_060 * SECOND)));
    assert!(position.alerts.iter().all(|it| (Stamp(0)..=position.to).contains(it)) && !position.alerts.is_empty());
}

/// When a recorder starts whose machines may have begun before.
const START: u64 = 100;

/// Begins to record so many machines.
fn created(directory: &Path, machines: usize) -> Nodes {
    let hosts: Vec<String> = (0..machines).map(|it| format!("node{it}")).collect();
    let about = Header {
        format: FORMAT,
        gpuwatch: "0".into(),
        host: "here".into(),
        started_unix_us: 1_800_000_000 * SECOND,
        monotonic_us: START * SECOND,
        name: None,
        writer: None,
    };
    Nodes::create(directory, &hosts, about).unwrap()
}

/// Records a machine with a rank that takes a step in each of these seconds of the recorder's clock.
fn add(nodes: &mut Nodes, node: usize, steps: RangeInclusive<u64>) {
    let at = Stamp(START.max(*steps.start()) * SECOND);
    let greeting = Greeting {
        gpuwatch: "0".into(),
        host: "there".into(),
        started_unix_us: 1_700_000_000 * SECOND,
        monotonic_us: at.0,
        boot_id: None,
    };
    let mut story = Story { now: steps.start() * SECOND, ..Story::default() };
    story.device(0, 80 * GIB, &[]).probe(0, 4240, 0, None);
    for second in steps {
        story.now = second * SECOND;
        story.sample(0, second, counters(GIB, GIB));
    }
    let first = [What::Greeting(greeting), What::Beat { there: at, unix_there: 0, unix_here: 0 }];
    for what in first.into_iter().chain(story.events.into_iter().map(What::Event)) {
        nodes.take(HostUpdate { node, at, what });
    }
}

fn played(directory: &Path) -> Together {
    Together::load(Recorded::open(directory).unwrap(), None, |_| {})
}

#[test]
fn a_link_that_fails_before_the_first_event_or_after_the_last_is_a_moment() {
    let folder = tempfile::tempdir().unwrap();
    let mut nodes = created(folder.path(), 1);
    let failure = |second: u64, why: &str| {
        let link = Link::refused(why.to_owned());
        HostUpdate { node: 0, at: Stamp(second * SECOND), what: What::Link(link) }
    };
    nodes.take(failure(110, "no route"));
    add(&mut nodes, 0, 120..=140);
    nodes.take(failure(150, "it broke off"));
    assert!(nodes.finish(Stamp(160 * SECOND)).0);
    let mut together = played(folder.path());
    assert_eq!((together.head.from, together.head.to), (Stamp(110 * SECOND), Stamp(160 * SECOND)));
    assert_eq!(together.cluster().nodes[0].link, Link::refused("it broke off".to_owned()));
    let moments =
        [(Command::PreviousTrouble, 150, "node0: refused: it broke off"), (Command::Start, 110, "refused: no route")];
    for (command, second, words) in moments {
        together.update(command, None);
        let position = together.position(None);
        assert_eq!(position.at, Stamp(second * SECOND));
        assert!(position.word.is_some_and(|(word, warns)| warns && word.contains(words)), "{words}");
    }
    // The index of a killed recorder lacks the last line.
    let index = folder.path().join("nodes.jsonl");
    let text = fs::read_to_string(&index).unwrap();
    let (rest, last) = text.trim_end().rsplit_once('\n').unwrap();
    assert!(last.contains("closed"));
    fs::write(&index, format!("{rest}\n")).unwrap();
    assert_eq!(played(folder.path()).head.to, Stamp(150 * SECOND));
}

#[test]
fn a_step_is_of_a_machine_that_has_another_in_that_direction() {
    let folder = tempfile::tempdir().unwrap();
    let mut nodes = created(folder.path(), 3);
    // The first machine ends before the last one, and the second has no step.
    let none = RangeInclusive::new(111, 110);
    for (node, steps) in [110..=120, none, 115..=130].into_iter().enumerate() {
        add(&mut nodes, node, steps);
    }
    assert!(nodes.finish(Stamp(140 * SECOND)).0);
    let mut together = played(folder.path());
    let mut go = |from: u64, command: Command, node: Option<usize>| {
        together.seek(Stamp(from * SECOND));
        together.update(command, node);
        let clocks = together.cluster().nodes.iter().map(|it| it.session.now.0 / SECOND).collect::<Vec<_>>();
        (together.head.at.0 / SECOND, clocks)
    };
    let (next, previous) = (Command::NextStep, Command::PreviousStep);
    assert_eq!(go(117, next, None), (118, vec![118, 111, 118]));
    assert_eq!(go(125, next, None), (126, vec![120, 111, 126]), "only the last has more");
    assert_eq!(go(140, next, None), (140, vec![120, 111, 130]), "none has more");
    assert_eq!(go(125, next, Some(0)), (125, vec![120, 111, 125]), "the opened machine has no more");
    assert_eq!(go(125, previous, Some(0)), (119, vec![119, 111, 119]));
    assert_eq!(go(112, previous, Some(2)).0, 112, "it has not begun");
    assert_eq!([next, previous].map(|it| go(112, it, Some(1)).0), [112; 2], "it has no step");
    assert_eq!(go(110, previous, None).0, 110, "it is the first");
}

#[test]
fn before_the_recorder_started_the_wall_clock_is_earlier() {
    let folder = tempfile::tempdir().unwrap();
    let mut nodes = created(folder.path(), 1);
    add(&mut nodes, 0, 40..=130);
    assert!(nodes.finish(Stamp(140 * SECOND)).0);
    let mut together = played(folder.path());
    together.update(Command::Start, None);
    let position = together.position(None);
    assert_eq!((position.at, position.unix_us), (Stamp(40 * SECOND), Some((1_800_000_000 - 60) * SECOND)));
}

#[test]
fn an_alert_that_is_allowed_on_a_machine_leaves_the_list() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let mut terminal = Terminal::start(&["replay", folder.path().to_str().unwrap()], &[]);
    terminal.shows("step 600");
    terminal.shows("1 needs attention");
    terminal.press("\r");
    terminal.shows("Esc machines");
    terminal.press("A");
    terminal.shows("expect ");
    terminal.press("y");
    terminal.shows("is expected from now on");
    terminal.press("\x1b");
    terminal.shows("machines by device");
    terminal.hides("1 needs attention");
    terminal.press("q");
    assert_eq!(terminal.ends(PATIENCE), 0);
}

#[test]
fn a_directory_opens_on_the_screen_of_many_machines() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let shown = folder.path().to_str().unwrap();
    let mut terminal = Terminal::start(&["replay", shown], &[]);
    for phrase in ["machines by device", "node0", "4 of 4 ranks on 2 machines", "step 600", "Space play", "-+ speed"] {
        terminal.shows(phrase);
    }
    // The machine with the growing rank needs attention most.
    terminal.press("\r");
    terminal.shows("gpuwatch  node1");
    terminal.shows("Esc machines");
    terminal.press("[");
    terminal.shows("step 599");
    terminal.press("\x1b");
    terminal.shows("machines by device");
    terminal.shows("step 599");
    terminal.press("{");
    terminal.shows("node1: refused: no \\u{1b}[31mroute");
    terminal.press("m");
    terminal.shows("ranks by device");
    terminal.press(">");
    terminal.shows("ranks by allocated");
    terminal.press("?");
    terminal.shows("next, previous mark");
    // Keys that come together with an escape are another key.
    terminal.press("\x1b");
    terminal.hides("next, previous mark");
    terminal.press("\x1b[H");
    terminal.shows("00:00 ");
    terminal.press("q");
    assert_eq!(terminal.ends(PATIENCE), 0);

    let file = folder.path().join("end.svg");
    let mut command = process::Command::new(PROGRAM);
    command.args(["replay", shown, "--screenshot", file.to_str().unwrap()]);
    let output = command.envs(Home::new().variables()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let svg = std::fs::read_to_string(file).unwrap();
    assert!(svg.contains("node1") && svg.contains("step 600"), "{svg}");
}
