//! The screens of a memory snapshot: their look, their keys and clicks, and that they show the figures of `--json`.

use super::theme;
use crate::{
    helpers::{
        story::{styles, text},
        terminal::{PATIENCE, PROGRAM, Terminal, until},
    },
    snapshot::{
        busy::{busy, busy_with},
        writer::{pickle, snapshot},
    },
};
use crossterm::event::KeyEvent;
use gpuwatch::{
    commands,
    facts::{text::Foreign, units::Bytes},
    model::snapshot::{At, Snapshot},
    screen::{
        keys,
        theme::{ColorDepth, Theme},
        ui::{
            Chart, Command, Motion, Request,
            mouse::{Mouse, Regions, Target},
            snapshot_ui::{Order, Page, SnapshotCommand, SnapshotUi},
        },
        view,
    },
    storage::pickle::Progress,
};
use ratatui::{
    buffer::Buffer,
    layout::{Position, Rect},
};
use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::Value;
use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command as Program,
    thread,
};
use tempfile::TempDir;

const SIZES: [(u16, u16); 4] = [(40, 12), (80, 24), (120, 40), (200, 60)];

fn written(bytes: &[u8]) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("snapshot.pickle");
    fs::write(&file, bytes).unwrap();
    (dir, file)
}

fn opened(bytes: &[u8]) -> Snapshot {
    let (_dir, file) = written(bytes);
    commands::snapshot::whole(&file, |_| ()).unwrap()
}

fn ui(snapshot: &Snapshot) -> SnapshotUi {
    let mut ui = SnapshotUi::new(Foreign::new("snapshot.pickle"), None, None);
    ui.refresh(snapshot);
    ui
}

fn drawn(snapshot: &Snapshot, ui: &SnapshotUi, theme: &Theme, (width, height): (u16, u16)) -> (Buffer, Regions) {
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    let regions = view::snapshot::paint(&mut buffer, snapshot, ui, theme).regions;
    (buffer, regions)
}

fn shown(snapshot: &Snapshot, ui: &SnapshotUi, size: (u16, u16)) -> String {
    text(&drawn(snapshot, ui, &theme("dusk"), size).0)
}

/// Presses keys, as they are written in the table.
fn press(ui: &mut SnapshotUi, snapshot: &Snapshot, letters: &str) {
    for letter in letters.chars() {
        let code = match letter {
            '⏎' => crossterm::event::KeyCode::Enter,
            '⎋' => crossterm::event::KeyCode::Esc,
            '⇥' => crossterm::event::KeyCode::Tab,
            '↑' => crossterm::event::KeyCode::Up,
            '↓' => crossterm::event::KeyCode::Down,
            '←' => crossterm::event::KeyCode::Left,
            '→' => crossterm::event::KeyCode::Right,
            it => crossterm::event::KeyCode::Char(it),
        };
        let command = keys::command(KeyEvent::from(code), &ui.base).unwrap_or_else(|| panic!("{letter} means nothing"));
        ui.update(command, snapshot);
    }
}

fn pages(snapshot: &Snapshot) -> Vec<(&'static str, SnapshotUi)> {
    let mut all: Vec<_> = Page::ALL
        .into_iter()
        .map(|(page, name)| {
            let mut ui = ui(snapshot);
            ui.update(Command::Snapshot(SnapshotCommand::Show(page)), snapshot);
            (name, ui)
        })
        .collect();
    let mut help = ui(snapshot);
    help.update(Command::Help, snapshot);
    all.push(("help", help));
    all
}

#[test]
fn every_screen_of_a_snapshot_looks_like_this_at_every_size() {
    let snapshot = opened(&pickle(4, &busy()));
    for (name, ui) in pages(&snapshot) {
        for size in SIZES {
            let name = format!("{}-{}x{}", name.replace(' ', "-"), size.0, size.1);
            insta::assert_snapshot!(format!("{name}-text"), shown(&snapshot, &ui, size));
            if size == (80, 24) {
                let style = |it| styles(&drawn(&snapshot, &ui, &theme(it), size).0);
                insta::assert_snapshot!(format!("{name}-style"), style("dusk"));
                insta::assert_snapshot!(format!("{name}-light-style"), style("paper"));
                let plain = text(&drawn(&snapshot, &ui, &theme("plain").at(ColorDepth::None).in_ascii(), size).0);
                assert!(plain.is_ascii(), "{name}: {plain}");
                insta::assert_snapshot!(format!("{name}-ascii"), plain);
            }
        }
    }
    let mut ui = ui(&snapshot);
    press(&mut ui, &snapshot, "t←←←");
    insta::assert_snapshot!("trace-cursor-120x40-text", shown(&snapshot, &ui, (120, 40)));
}

fn every_size(snapshot: &Snapshot, theme: &Theme) {
    let heights: Vec<u16> = (0..7).chain([8, 11, 12, 16, 20, 24, 40, 100]).collect();
    let widths: Vec<u16> = (0..4).chain([9, 20, 36, 40, 57, 72, 80, 120, 132, 300]).collect();
    for (name, mut ui) in pages(snapshot) {
        for _ in 0..2 {
            for (width, height) in widths.iter().flat_map(|width| heights.iter().map(move |height| (*width, *height))) {
                let (_, regions) = drawn(snapshot, &ui, theme, (width, height));
                let whole = Rect::new(0, 0, width, height);
                for position in whole.positions() {
                    assert!(
                        regions.at(position).all(|it| whole.contains(it.0.as_position())),
                        "{name} {width}x{height}"
                    );
                }
            }
            for command in [
                Command::Chart(Chart::Plus),
                Command::Move(Motion::Down),
                Command::Move(Motion::Right),
                Command::Open,
                Command::Move(Motion::Last),
                Command::Move(Motion::Left),
            ] {
                ui.update(command, snapshot);
            }
        }
    }
}

#[test]
fn no_size_is_too_small_or_too_large_for_any_screen_of_a_snapshot() {
    let theme = theme("dusk").in_ascii();
    every_size(&opened(&pickle(4, &busy())), &theme);
    every_size(&Snapshot::default(), &theme);
    let bytes = pickle(4, &busy());
    every_size(&opened(&bytes[..bytes.len() * 2 / 3]), &theme);
}

#[test]
fn every_snapshot_of_a_folder_is_drawn_on_every_screen() {
    let Some(folder) = env::var_os("GPUWATCH_SNAPSHOTS") else {
        test_tiers::skip!("GPUWATCH_SNAPSHOTS names no folder of snapshots");
    };
    let files = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
    let is_pickle = |it: &PathBuf| it.to_string_lossy().contains(".pickle");
    for file in files.filter(is_pickle) {
        let snapshot = commands::snapshot::whole(&file, |_| ()).unwrap();
        let nothing = snapshot.devices.is_empty();
        for (name, mut ui) in pages(&snapshot) {
            for command in [
                Command::Move(Motion::Down),
                Command::Open,
                Command::Move(Motion::Right),
                Command::Move(Motion::Last),
                Command::Chart(Chart::Plus),
                Command::Move(Motion::Left),
            ] {
                for size in SIZES.into_iter().chain([(0, 0), (20, 6), (57, 19)]) {
                    let picture = shown(&snapshot, &ui, size);
                    let is_whole = size.0 < 80
                        || nothing
                        || name == "help"
                        || picture.contains("device ")
                        || picture.contains("segment");
                    assert!(is_whole, "{} {name}:\n{picture}", file.display());
                }
                ui.update(command, &snapshot);
            }
        }
        assert!(!commands::report::snapshot_page::html(&snapshot, &Foreign::new("x")).is_empty());
    }
}

fn as_json(file: &Path, more: &[&str]) -> Value {
    let output = Program::new(PROGRAM).arg("snapshot").arg(file).arg("--json").args(more).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_screens_show_the_figures_of_the_json() {
    let (_dir, file) = written(&pickle(4, &busy()));
    let snapshot = commands::snapshot::whole(&file, |_| ()).unwrap();
    let all = as_json(&file, &[]);
    let size = |it: &Value| Bytes(it.as_u64().unwrap()).to_string();
    for (place, device) in all["devices"].as_array().unwrap().iter().enumerate() {
        let mut ui = ui(&snapshot);
        ui.update(Command::Device(u8::try_from(place).unwrap()), &snapshot);
        let overview = shown(&snapshot, &ui, (160, 50));
        for figure in ["reserved", "allocated", "stuck", "releasable", "largest_free"] {
            assert!(overview.contains(&size(&device[figure])), "{figure} of device {place}:\n{overview}");
        }
        for (gap, bytes) in device["ladder"].as_object().unwrap() {
            let is_shown = bytes.as_u64().is_none_or(|it| it == 0 || overview.contains(&Bytes(it).to_string()));
            assert!(is_shown, "{gap} of device {place}: {bytes}\n{overview}");
        }
        for part in device["parts"].as_array().unwrap() {
            let is_shown =
                device["parts"].as_array().unwrap().len() == 1 || overview.contains(&size(&part["reserved"]));
            assert!(is_shown, "{part}\n{overview}");
        }
        // Every stack has a row, and the tree has their sum.
        for stack in device["live"].as_array().unwrap() {
            assert!(overview.contains(&size(&stack["bytes"])), "{stack}\n{overview}");
        }
        ui.update(Command::Snapshot(SnapshotCommand::Show(Page::Stacks)), &snapshot);
        let blocks: u64 = device["live"].as_array().unwrap().iter().map(|it| it["blocks"].as_u64().unwrap()).sum();
        let tree = shown(&snapshot, &ui, (160, 50));
        assert!(tree.contains(&format!("{} in {blocks} block", size(&device["allocated"]))), "{tree}");
        ui.update(Command::Snapshot(SnapshotCommand::Peak), &snapshot);
        let trace = shown(&snapshot, &ui, (160, 50));
        match device["peak"].as_object() {
            None => assert!(trace.contains("no trace of allocations"), "{trace}"),
            Some(peak) => {
                let event = peak["event"].as_u64().unwrap() + 1;
                assert!(trace.contains(&format!("event {event}, {}", size(&peak["requested"]))), "{trace}");
                for stack in peak["live"].as_array().unwrap() {
                    assert!(trace.contains(&size(&stack["bytes"])), "{stack}\n{trace}");
                }
            }
        }
        for request in ["4MiB", "512MiB"] {
            let fits = as_json(&file, &["--fits", request])["devices"][place]["fits"]["fits"].as_bool().unwrap();
            ui.request = Some(if request == "4MiB" { 4 << 20 } else { 512 << 20 });
            ui.page = Page::Segments;
            let map = shown(&snapshot, &ui, (160, 50));
            assert!(map.contains(if fits { "MiB?  yes" } else { "MiB?  no" }), "{request}\n{map}");
            assert_eq!(map.contains('●'), fits, "{request}\n{map}");
        }
    }
}

#[test]
fn the_tree_opens_and_closes_and_leads_to_the_flame_graph() {
    let snapshot = opened(&pickle(4, &busy()));
    let mut ui = ui(&snapshot);
    press(&mut ui, &snapshot, "b");
    let selected = |ui: &SnapshotUi| snapshot.trace.stacks.label(ui.profile.tree.get(ui.call).unwrap().frame);
    // The calls common to all of the job's blocks are open, and the first call that branches is selected.
    assert_eq!(selected(&ui), "train.py:80 <module>");
    let rows = ui.rows().len();
    assert!(shown(&snapshot, &ui, (80, 24)).contains("linear.py:134 forward"));
    press(&mut ui, &snapshot, " ");
    assert!(ui.rows().len() < rows && !shown(&snapshot, &ui, (80, 24)).contains("linear.py:134 forward"));
    press(&mut ui, &snapshot, "⏎");
    assert_eq!(ui.rows().len(), rows);
    press(&mut ui, &snapshot, "↓↓");
    assert_eq!(selected(&ui), "linear.py:134 forward");
    press(&mut ui, &snapshot, "c");
    assert_eq!(ui.base.request.take(), Some(Request::Copy("linear.py:134 forward".to_owned())));
    press(&mut ui, &snapshot, "←");
    assert_eq!(selected(&ui), "model.py:12 forward");
    // The same call is selected in the flame graph, and becomes the first one there.
    press(&mut ui, &snapshot, "f⏎");
    assert_eq!(ui.root, ui.call);
    let zoomed = shown(&snapshot, &ui, (80, 24));
    assert!(zoomed.contains("▸model.py:12 forward") && !zoomed.contains("adam.py"), "{zoomed}");
    press(&mut ui, &snapshot, "⎋");
    assert!(shown(&snapshot, &ui, (80, 24)).contains("adam.py"));
    press(&mut ui, &snapshot, "→");
    assert_eq!(selected(&ui), "train.py:40 train");
    // With the allocating lines first, they are the first rows.
    press(&mut ui, &snapshot, "ib");
    let inverted = shown(&snapshot, &ui, (120, 40));
    let first = inverted.lines().find(|it| it.contains("linear.py")).unwrap();
    assert!(first.contains("40.00 MiB") && inverted.contains("by allocating line"), "{inverted}");
    press(&mut ui, &snapshot, "⎋");
    assert_eq!(ui.page, Page::Overview);
}

#[test]
fn a_filter_leaves_out_other_stacks_and_reports_their_bytes() {
    let snapshot = opened(&pickle(4, &busy()));
    let mut ui = ui(&snapshot);
    press(&mut ui, &snapshot, "b/ADAM");
    assert!(shown(&snapshot, &ui, (80, 24)).contains("/ADAM█"));
    press(&mut ui, &snapshot, "⏎");
    let picture = shown(&snapshot, &ui, (80, 24));
    assert!(picture.contains("8.00 MiB in 1 block") && picture.contains("the filter hides 57.00 MiB"), "{picture}");
    press(&mut ui, &snapshot, "f");
    assert!(!shown(&snapshot, &ui, (80, 24)).contains("linear.py"));
    press(&mut ui, &snapshot, "⎋");
    assert!(ui.base.filter.text.is_empty() && ui.page == Page::Flame);
    assert!(shown(&snapshot, &ui, (80, 24)).contains("linear.py"));
    // In the middle of a file's path, too.
    press(&mut ui, &snapshot, "/site-packages⏎");
    assert_eq!(ui.profile.hidden, 17 << 20);
}

#[test]
fn a_filter_on_the_map_keeps_the_segments_that_match_and_dims_other_blocks() {
    let snapshot = opened(&pickle(4, &busy()));
    let filtered = |keys: &str| {
        let mut ui = ui(&snapshot);
        press(&mut ui, &snapshot, keys);
        (shown(&snapshot, &ui, (120, 40)), ui)
    };
    for (filter, found, listed) in [
        ("ADAM", "1 block of 8.00 MiB in 1 of 4 segments matches \"ADAM\"", 1),
        ("data.py", "2 blocks of 16.50 MiB in 2 of 4 segments match", 2),
        ("stream 7", "2 blocks of 32.00 MiB in 1 of 4 segments match", 1),
        ("Private Pool", "2 blocks of 32.00 MiB in 1 of 4 segments match", 1),
        ("pending", "1 block of 512.0 KiB in 1 of 4 segments matches", 1),
        ("stuck", "3 blocks of 16.50 MiB in 2 of 4 segments match", 2),
        ("free", "5 blocks of 52.50 MiB in 4 of 4 segments match", 4),
        // The calls of a pooling layer, not the pools.
        ("pool", "0 blocks of 0 B in 0 of 4 segments match", 0),
    ] {
        let (picture, ui) = filtered(&format!("m/{filter}⏎"));
        assert!(picture.contains(found) && picture.contains("map of device 0"), "{filter}:\n{picture}");
        assert_eq!((ui.page, ui.segments(&snapshot).len()), (Page::Segments, listed), "{filter}");
    }
    // Cells of other blocks are dots.
    let (picture, ui) = filtered("m/adam⏎");
    let map = picture.lines().nth(6).unwrap();
    assert!(map.contains('·') && map.contains('█'), "{picture}");
    for (size, name) in [((40, 12), "40x12"), ((80, 24), "80x24"), ((120, 40), "120x40")] {
        insta::assert_snapshot!(format!("map-filtered-{name}-text"), shown(&snapshot, &ui, size));
    }
    insta::assert_snapshot!("map-filtered-80x24-style", styles(&drawn(&snapshot, &ui, &theme("dusk"), (80, 24)).0));
    // Where nothing matches, the map offers names that do.
    let (picture, ui) = filtered("m/nothing⏎");
    let words: Vec<_> = picture.split_whitespace().collect();
    let offered = words.join(" ");
    assert!(["stream 7", "private pool (0, 1)", "stuck"].iter().all(|it| offered.contains(it)), "{picture}");
    insta::assert_snapshot!("map-unmatched-80x24-text", shown(&snapshot, &ui, (80, 24)));
    // The selected segment stays selected where it matches, and Enter opens the blocks that match.
    let (_, mut ui) = filtered("m↓/stream 7⏎");
    assert_eq!(ui.segment, 0);
    press(&mut ui, &snapshot, "⏎");
    let tree = shown(&snapshot, &ui, (120, 40));
    assert!(tree.contains("16.00 MiB in 1 block") && !tree.contains("the filter hides"), "{tree}");
    press(&mut ui, &snapshot, "⎋⎋");
    assert_eq!((ui.page, ui.segment, ui.segments(&snapshot).len()), (Page::Segments, 1, 4));
    // So does the tree of the whole device.
    let (tree, _) = filtered("b/stream 7⏎");
    assert!(tree.contains("16.00 MiB in 1 block") && tree.contains("the filter hides 49.00 MiB"), "{tree}");
}

#[test]
fn a_file_that_is_read_shows_how_much_of_it_is_read() {
    let nothing = Snapshot::default();
    let reading = |read: u64, total| {
        let progress = Some(Progress { read: read << 20, total });
        SnapshotUi::new(Foreign::new("snapshot.pickle"), progress, None)
    };
    let half = reading(412, Some(1 << 30));
    for (size, name) in [((40, 12), "40x12"), ((80, 24), "80x24"), ((120, 40), "120x40")] {
        insta::assert_snapshot!(format!("reading-{name}-text"), shown(&nothing, &half, size));
    }
    insta::assert_snapshot!("reading-80x24-style", styles(&drawn(&nothing, &half, &theme("dusk"), (80, 24)).0));
    let bar = |ui: &SnapshotUi| shown(&nothing, ui, (100, 24)).matches('━').count();
    assert_eq!([0, 256, 1023, 1024].map(|it| bar(&reading(it, Some(1 << 30)))), [0, 25, 99, 100]);
    // The size of a pipe is not known.
    let pipe = shown(&nothing, &reading(412, None), (80, 24));
    assert!(pipe.contains("reading snapshot.pickle: 412.0 MiB\n") && !pipe.contains('─'), "{pipe}");
    let read = shown(&nothing, &reading(1024, Some(1 << 30)), (80, 24));
    assert!(read.contains("adding up the blocks of snapshot.pickle"), "{read}");
    let ascii = theme("plain").at(ColorDepth::None).in_ascii();
    assert!(text(&drawn(&nothing, &half, &ascii, (80, 24)).0).is_ascii());
    for (width, height) in (0..60).flat_map(|width| (0..20).map(move |height| (width, height))) {
        shown(&nothing, &half, (width, height));
    }
}

/// A file of several megabytes, of which progress is reported.
fn large() -> Vec<u8> {
    let bytes = pickle(4, &snapshot(14_000, 4));
    assert!(bytes.len() > 3 << 20, "{}", bytes.len());
    bytes
}

#[test]
fn a_terminal_shows_how_much_is_read_and_can_be_left_meanwhile() {
    let (dir, bytes) = (tempfile::tempdir().unwrap(), large());
    let fifo = dir.path().join("fifo");
    mkfifoat(CWD, &fifo, Mode::RWXU).unwrap();
    let begin = |end: usize| {
        // The end for reading keeps the pipe open when gpuwatch ends.
        let mut pipe = fs::File::options().read(true).write(true).open(&fifo).unwrap();
        let mut terminal = Terminal::start(&["snapshot", fifo.to_str().unwrap()], &[]);
        let written = bytes[..end].to_vec();
        let writer = thread::spawn(move || pipe.write_all(&written).map(|()| pipe));
        terminal.shows("reading fifo: 2.");
        let pipe = writer.join().unwrap().unwrap();
        terminal.press("?");
        terminal.shows("in a snapshot");
        terminal.press("?");
        (terminal, pipe)
    };
    let (mut terminal, pipe) = begin(5 << 19);
    terminal.press("q");
    assert_eq!(terminal.ends(PATIENCE), 0);
    drop(pipe);
    let (mut terminal, mut pipe) = begin(5 << 19);
    pipe.write_all(&bytes[5 << 19..]).unwrap();
    drop(pipe);
    terminal.shows("memory of device 0");
    terminal.press("q");
    assert_eq!(terminal.ends(PATIENCE), 0);
}

#[test]
fn commands_show_on_a_terminal_how_much_is_read_and_nowhere_else() {
    let (dir, file) = written(&large());
    let (file, to) = (file.to_str().unwrap(), |name: &str| dir.path().join(name).to_str().unwrap().to_owned());
    let (page, picture) = (to("page.html"), to("picture.svg"));
    for arguments in [
        &["snapshot", file, "--text"][..],
        &["snapshot", file, "--json"],
        &["snapshot", file, "--screenshot", &picture],
        &["report", file, "-o", &page],
        &["export", file, "--format", "folded"],
        &["diff", file, file],
        &["whatif", file, "--torch", "/nonexistent/python"],
    ] {
        let mut terminal = Terminal::start(arguments, &[]);
        terminal.ends(PATIENCE);
        let seen = || String::from_utf8_lossy(&terminal.bytes()).into_owned();
        let is_reported = |share: &str| seen().contains(&format!("reading snapshot.pickle: {share} % of "));
        assert!(until(PATIENCE, || is_reported("30") && is_reported("69")), "{arguments:?}: {}", seen());
        assert!(until(PATIENCE, || !terminal.text().contains("reading")), "{arguments:?}: {}", terminal.text());
        let output = Program::new(PROGRAM).args(arguments).output().unwrap();
        assert!(!String::from_utf8_lossy(&output.stderr).contains("reading"), "{arguments:?}: {output:?}");
    }
}

#[test]
fn the_cursor_of_the_trace_moves_by_parts_events_failures_and_to_the_peak() {
    let snapshot = opened(&pickle(4, &busy()));
    let mut ui = ui(&snapshot);
    press(&mut ui, &snapshot, "p");
    let peak = snapshot.devices[0].peak.clone().unwrap();
    assert_eq!((ui.page, ui.event(&snapshot)), (Page::Trace, Some(peak.event)));
    assert!(shown(&snapshot, &ui, (80, 24)).contains("live at the cursor, the peak"));
    press(&mut ui, &snapshot, "]");
    assert_eq!(ui.event(&snapshot), Some(peak.event + 1));
    let failed = shown(&snapshot, &ui, (120, 40));
    assert!(failed.contains(": oom 48.00 MiB") && failed.contains("model.py:30 attention"), "{failed}");
    assert!(failed.contains("live at the peak") && failed.contains("live at the cursor"), "{failed}");
    press(&mut ui, &snapshot, "g{");
    assert!(shown(&snapshot, &ui, (120, 40)).contains("no more failed requests"));
    press(&mut ui, &snapshot, "}");
    assert_eq!(ui.event(&snapshot), Some(peak.event + 1));
    press(&mut ui, &snapshot, "++++");
    assert!(ui.window(&snapshot).len() < 60 && ui.window(&snapshot).contains(&(peak.event + 1)));
    press(&mut ui, &snapshot, "=←");
    assert_eq!(ui.window(&snapshot), 0..snapshot.devices[0].events);
    let here = ui.event(&snapshot).unwrap();
    assert!(here < peak.event);
    // From there to its blocks, and back.
    press(&mut ui, &snapshot, "⏎");
    assert_eq!((ui.page, ui.at), (Page::Stacks, At::Event(here)));
    let bytes = snapshot.moment(&snapshot.devices[0], here).unwrap().bytes;
    let picture = shown(&snapshot, &ui, (120, 40));
    let title = format!("live after event {} of device 0", here + 1);
    assert!(picture.contains(&title) && picture.contains(&Bytes(bytes).to_string()), "{picture}");
    press(&mut ui, &snapshot, "⎋");
    assert_eq!((ui.page, ui.at), (Page::Trace, At::End));
}

#[test]
fn the_map_asks_for_other_sizes_sorts_and_opens_a_segment() {
    let snapshot = opened(&pickle(4, &busy()));
    let mut ui = ui(&snapshot);
    press(&mut ui, &snapshot, "m");
    assert!(
        shown(&snapshot, &ui, (80, 24)).contains("Would a free block hold 512.0 MiB?  no: the largest has 20.00 MiB")
    );
    press(&mut ui, &snapshot, "-----");
    let fits = shown(&snapshot, &ui, (80, 24));
    assert!(fits.contains("Would a free block hold 16.00 MiB?  yes: stream 0 has one of 20.00 MiB"), "{fits}");
    // The free block of the private pool serves no other request.
    assert_eq!(fits.matches('●').count(), 1, "{fits}");
    press(&mut ui, &snapshot, "+");
    assert!(shown(&snapshot, &ui, (80, 24)).contains("Would a free block hold 32.00 MiB?  no"));
    let first = |ui: &SnapshotUi| snapshot.segment(ui.segments(&snapshot)[0]).unwrap().size >> 20;
    assert_eq!(first(&ui), 64);
    press(&mut ui, &snapshot, "ss");
    assert_eq!((ui.order, first(&ui)), (Order::LargestFree, 20));
    press(&mut ui, &snapshot, "sss↓");
    assert_eq!((ui.order, ui.segment), (Order::Stuck, 1));
    press(&mut ui, &snapshot, "↑⏎");
    assert!(matches!(ui.at, At::Segment(_)));
    let tree = shown(&snapshot, &ui, (80, 24));
    assert!(tree.contains("live blocks of segment 0x7f") && tree.contains("48.00 MiB in 2 blocks"), "{tree}");
    press(&mut ui, &snapshot, "⎋⎋");
    assert_eq!(ui.page, Page::Overview);
}

#[test]
fn several_devices_are_listed_and_each_has_its_own_screens() {
    let snapshot = opened(&pickle(4, &busy()));
    let mut ui = ui(&snapshot);
    let first = shown(&snapshot, &ui, (80, 24));
    assert!(first.contains("memory of device 0") && first.contains("device 1"), "{first}");
    press(&mut ui, &snapshot, "↓");
    assert!(shown(&snapshot, &ui, (80, 24)).contains("memory of device 1"));
    for (key, phrase) in [
        ("m", "map of device 1"),
        ("b", "live blocks of device 1"),
        ("f", "6.00 MiB"),
        ("t", "no trace of allocations"),
    ] {
        press(&mut ui, &snapshot, key);
        assert!(shown(&snapshot, &ui, (80, 24)).contains(phrase), "{}", shown(&snapshot, &ui, (80, 24)));
    }
    press(&mut ui, &snapshot, "0");
    assert!(shown(&snapshot, &ui, (80, 24)).contains("trace of device 0"));
}

#[test]
fn clicks_choose_rows_boxes_tabs_and_events() {
    let snapshot = opened(&pickle(4, &busy()));
    let mut ui = ui(&snapshot);
    let click = |ui: &mut SnapshotUi, wanted: &dyn Fn(&Target) -> bool, is_double: bool| {
        let (_, regions) = drawn(&snapshot, ui, &theme("dusk"), (120, 40));
        let at =
            Rect::new(0, 0, 120, 40).positions().find(|it| regions.at(*it).next().is_some_and(|found| wanted(found.1)));
        let at = at.expect("something to click");
        ui.mouse(if is_double { Mouse::Double(at) } else { Mouse::Press(at) }, &regions, &snapshot);
        at
    };
    click(&mut ui, &|it| *it == Target::Line(1), false);
    assert_eq!(ui.device, 1);
    click(&mut ui, &|it| *it == Target::Line(0), false);
    click(&mut ui, &|it| *it == Target::Key(Command::Snapshot(SnapshotCommand::Show(Page::Segments))), false);
    assert_eq!((ui.device, ui.page), (0, Page::Segments));
    click(&mut ui, &|it| *it == Target::Line(2), true);
    assert_eq!((ui.segment, ui.page), (2, Page::Stacks));
    click(&mut ui, &|it| *it == Target::Key(Command::Snapshot(SnapshotCommand::Show(Page::Flame))), false);
    ui.update(Command::Chart(Chart::Reset), &snapshot);
    let last = ui.profile.tree.calls.len() - 1;
    click(&mut ui, &|it| *it == Target::Line(last), false);
    assert_eq!(ui.call, last);
    click(&mut ui, &|it| *it == Target::Key(Command::Snapshot(SnapshotCommand::Show(Page::Trace))), false);
    let at = click(&mut ui, &|it| matches!(it, Target::Run(..)), false);
    assert_eq!(ui.event(&snapshot), Some(0));
    let (_, regions) = drawn(&snapshot, &ui, &theme("dusk"), (120, 40));
    ui.mouse(Mouse::Drag(Position::new(119, at.y)), &regions, &snapshot);
    assert_eq!(ui.event(&snapshot), Some(snapshot.devices[0].events - 1));
    ui.mouse(Mouse::Wheel(at, true), &regions, &snapshot);
    assert!(ui.window(&snapshot).len() < snapshot.devices[0].events);
}

/// A size is its number and its unit, on one line.
#[test]
fn no_number_is_cut_on_any_screen_of_a_snapshot() {
    let snapshot = opened(&pickle(4, &busy()));
    for (name, ui) in pages(&snapshot).into_iter().filter(|it| it.0 != "help") {
        for width in (20..140).chain([160, 200]) {
            for height in [12, 24, 40] {
                for line in shown(&snapshot, &ui, (width, height)).lines() {
                    let words: Vec<_> = line.split_whitespace().collect();
                    for (at, word) in words.iter().enumerate() {
                        let size = word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || "+.".contains(c));
                        let unit = words.get(at + 1).copied().unwrap_or_default();
                        let whole = ["GiB", "MiB", "KiB", "s:", "s…"].iter().any(|it| unit.starts_with(it));
                        assert!(!size || whole, "{name} {width}x{height}: {line}");
                    }
                }
            }
        }
    }
}

#[test]
fn every_screen_shows_that_a_snapshot_is_cut() {
    let bytes = pickle(4, &busy());
    let snapshot = opened(&bytes[..bytes.len() * 2 / 3]);
    for (name, ui) in pages(&snapshot).into_iter().filter(|it| it.0 != "help") {
        let picture = shown(&snapshot, &ui, (80, 24));
        assert!(picture.contains("INCOMPLETE"), "{name}:\n{picture}");
        assert!(picture.contains(&format!("the file ends at byte {}", bytes.len() * 2 / 3)), "{name}:\n{picture}");
        assert!(picture.contains("device 0"), "{name}:\n{picture}");
    }
}

const HOSTILE: [(&str, i64, &str); 8] = [
    ("/home/\u{1b}[2J.py", 1, "<script>alert(1)</script>"),
    ("\u{202e}evil.py", 2, "a\nb"),
    ("/x/\u{7}.py", 3, "</style>&\"'"),
    ("a.py", 4, "\u{9b}31m"),
    ("b.py", 5, "\u{feff}"),
    ("c.py", 6, "训练训练训练训练训练训练训练训练训练训练训练训练训练训练训练训练"),
    ("??", 0, "\u{1b}]0;title\u{7}"),
    ("d.py", 8, ""),
];

#[test]
fn text_from_the_file_moves_no_cursor_and_does_not_become_markup() {
    let snapshot = opened(&pickle(4, &busy_with(&HOSTILE)));
    for (_, mut ui) in pages(&snapshot) {
        ui.name = Foreign::new("\u{1b}[31m<b>.pickle");
        for size in SIZES {
            let picture = shown(&snapshot, &ui, size);
            let is_safe = |c: char| c == '\n' || !(c.is_control() || "\u{202e}\u{feff}".contains(c));
            assert!(picture.chars().all(is_safe), "{picture:?}");
        }
    }
    let page = commands::report::snapshot_page::html(&snapshot, &Foreign::new("\u{1b}<b>.pickle"));
    assert!(!page.contains("<script") && !page.contains("<b>") && !page.contains("</style>&"), "{page}");
    assert!(page.chars().all(|c| c == '\n' || !(c.is_control() || "\u{202e}\u{feff}".contains(c))));
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
}

#[test]
fn the_page_of_a_snapshot_has_its_figures_and_needs_nothing_else() {
    let (dir, file) = written(&pickle(4, &busy()));
    let report = |to: &Path| Program::new(PROGRAM).arg("report").arg(&file).arg("-o").arg(to).output().unwrap();
    let page = dir.path().join("snapshot.html");
    let output = report(&page);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(&page).unwrap();
    let all = as_json(&file, &[]);
    for device in all["devices"].as_array().unwrap() {
        for figure in ["reserved", "allocated", "stuck", "releasable", "largest_free"] {
            assert!(text.contains(&Bytes(device[figure].as_u64().unwrap()).to_string()), "{figure}");
        }
        for stack in device["live"].as_array().unwrap() {
            assert!(text.contains(&format!("<td class=\"n\">{}</td>", Bytes(stack["bytes"].as_u64().unwrap()))));
        }
    }
    let peak = &all["devices"][0]["peak"];
    assert!(text.contains(&format!("data-peak=\"{}\"", peak["event"].as_u64().unwrap() + 1)));
    assert!(text.contains("out of memory at event") && text.contains("model.py:30 attention"), "{text}");
    assert_eq!(text.matches("<section>").count(), 2);
    // Every swatch and part has a colour that the style names.
    for name in text.split("var(--gap-").skip(1).filter_map(|it| it.split(')').next()) {
        assert_eq!(text.matches(&format!("--gap-{name}: ")).count(), 2, "{name}");
    }
    assert!(!text.contains("http://") && !text.contains("https://") && !text.contains("<script"), "{text}");
    let json = dir.path().join("snapshot.json");
    assert!(report(&json).status.success());
    let mut reported: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    // The answer names commands that follow; the report is one of them.
    reported["next"] = all["next"].clone();
    assert!(reported == all && all["next"].to_string().contains("gpuwatch report"), "{}", all["next"]);
    // A truncated file is shown as far as it goes, with a warning.
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() * 2 / 3]).unwrap();
    let cut = dir.path().join("cut.html");
    let output = report(&cut);
    assert_eq!(output.status.code(), Some(1));
    assert!(fs::read_to_string(&cut).unwrap().contains("the file ends at byte"));
}

#[test]
fn a_screenshot_of_a_snapshot_is_of_the_screen_that_was_asked_for() {
    let (dir, file) = written(&pickle(4, &busy()));
    for (screen, phrase) in [
        ("overview", "memory of device 0"),
        ("map", "map of device 0"),
        ("blocks", "live blocks of device 0"),
        ("flame", "linear.py"),
        ("trace", "trace of device 0"),
        ("help", "in a snapshot"),
    ] {
        let to = dir.path().join(format!("{screen}.svg"));
        let mut program = Program::new(PROGRAM);
        program.arg("snapshot").arg(&file).args([
            "--size",
            "100x40",
            "--screen",
            screen,
            "--theme",
            "paper",
            "--screenshot",
        ]);
        let output = program.arg(&to).env("LANG", "C.UTF-8").env_remove("LC_ALL").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let svg = fs::read_to_string(&to).unwrap();
        let letters: String = svg.split('<').filter_map(|it| it.split_once('>')).map(|it| it.1.trim_end()).collect();
        let dense = |it: &str| it.split_whitespace().collect::<String>();
        assert!(dense(&letters).contains(&dense(phrase)), "{screen}: {letters}");
    }
}

#[test]
fn a_snapshot_is_walked_through_in_a_terminal() {
    let (_dir, file) = written(&pickle(4, &busy()));
    let name = file.to_str().unwrap();
    let mut terminal = Terminal::start(&["snapshot", name, "--fits", "16MiB"], &[]);
    terminal.shows("memory of device 0");
    terminal.shows("Would a free block hold 16.00 MiB?  yes");
    // The trace is walked through while the first picture is seen.
    terminal.shows("peak ");
    for (key, phrase) in [
        ("m", "map of device 0"),
        ("/stuck\r", "3 blocks of 16.50 MiB in 2 of 4 segments match"),
        // The segment of the private pool, which the filter left out.
        ("\x1b", "32.00 MiB"),
        ("\r", "live blocks of segment"),
        ("\x1b", "map of device 0"),
        ("b", "live blocks of device 0"),
        ("/adam\r", "the filter hides"),
        ("f", "zoom"),
        ("p", "live at the cursor, the peak"),
        ("]", ": oom 48.00 MiB"),
        ("?", "in a snapshot"),
        ("\x1b", "live at the peak"),
        ("\t", "memory of device 0"),
        ("T", "theme paper"),
        ("x", "x: no such key"),
    ] {
        terminal.press(key);
        terminal.shows(phrase);
    }
    terminal.press("q");
    assert_eq!(terminal.ends(PATIENCE), 0);
    let mut terminal = Terminal::start(&["snapshot", name, "--text"], &[]);
    terminal.shows("live blocks by call stack:");
    assert_eq!(terminal.ends(PATIENCE), 0);
    // Other files open no screen.
    fs::write(&file, b"\x80\x04cos\nsystem\n.").unwrap();
    let mut terminal = Terminal::start(&["snapshot", name], &[]);
    terminal.shows("byte 2 holds GLOBAL");
    assert_eq!(terminal.ends(PATIENCE), 1);
}
