//! What keys change in the view: filter, order, refresh rate, copying, the menu of signals; and the table of keys.

use crate::helpers::story::{GIB, MIB, Story, counters, picture, styles, text, usual};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use gpuwatch::{
    facts::event::{Line, ProbeId, wire::Bye},
    model::session::Session,
    screen::{
        keys,
        theme::Theme,
        ui::{
            Command, Edit, Focus, HostCommand, Motion, Request, Scope, Screen, Signal, Start, Subject, Ui,
            alert_list::Allowing,
            process_actions::{Dialog, Starting},
            rows::{self, RowId},
        },
    },
};
use std::time::Duration;

/// Eight ranks on two devices, the later the larger; only rank 5 grows.
fn ranks() -> Session {
    let mut story = Story::default();
    story.device(0, 90 * GIB, &[]).device(1, 90 * GIB, &[(977, 9 * GIB)]);
    for rank in 0..8 {
        story.probe(rank, 4240 + rank, rank % 2, None);
    }
    story.who(977, &["/usr/bin/notebook", "--port", "8888"]);
    for step in 1..200 {
        story.wait(100_000);
        for rank in 0..8 {
            let grown = if rank == 5 { step * 4 * MIB } else { 0 };
            story.sample(rank, step, counters(u64::from(rank + 2) * GIB + grown, GIB));
        }
    }
    story.session()
}

fn typed(ui: &mut Ui, session: &Session, letters: &str) {
    ui.update(Command::Filter, session);
    letters.chars().for_each(|it| ui.update(Command::Edit(Edit::Type(it)), session));
}

fn pids(ui: &Ui, session: &Session) -> Vec<u32> {
    ui.rows(session).iter().filter_map(rows::ProcessRow::pid).collect()
}

fn shown(ui: &Ui, session: &Session) -> String {
    shown_at(ui, session, 120, 40)
}

fn shown_at(ui: &Ui, session: &Session, width: u16, height: u16) -> String {
    text(&picture(session, ui, &Theme::builtin("dusk").unwrap(), width, height))
}

#[test]
fn a_filter_looks_through_command_pid_rank_and_user() {
    let session = ranks();
    for (letters, found) in [
        ("4243", &[4243][..]),
        ("rank 3", &[4243]),
        ("USER ADA", &[977]),
        ("notebook --port", &[977]),
        ("train.py", &[4240, 4241, 4242, 4243, 4244, 4245, 4246, 4247]),
        ("no such thing", &[]),
    ] {
        let mut ui = Ui { scope: Scope::All, ..Ui::default() };
        typed(&mut ui, &session, letters);
        assert_eq!(pids(&ui, &session), found, "{letters}");
        assert!(shown(&ui, &session).contains(&format!("/{letters}█")));
        ui.update(Command::Open, &session);
        assert!(!ui.filter.typing);
        let hidden = format!("/{letters} hides {}", 9 - found.len());
        assert!(shown(&ui, &session).contains(&hidden), "{hidden}\n{}", shown(&ui, &session));
        ui.update(Command::Back, &session);
        assert_eq!(pids(&ui, &session).len(), 9);
    }
}

#[test]
fn a_filter_can_be_deleted_by_character_and_as_a_whole() {
    let session = ranks();
    let mut ui = Ui { scope: Scope::All, ..Ui::default() };
    typed(&mut ui, &session, "4243x");
    ui.update(Command::Edit(Edit::Erase), &session);
    assert_eq!(pids(&ui, &session), [4243]);
    ui.update(Command::Edit(Edit::EraseAll), &session);
    assert_eq!((pids(&ui, &session).len(), ui.filter.typing), (9, true));
    ui.update(Command::Edit(Edit::Erase), &session);
    assert!(!ui.filter.typing, "nothing more to take back");
    typed(&mut ui, &session, &"x".repeat(500));
    assert!(ui.filter.text.len() <= 80);
}

#[test]
fn matches_are_walked_through_on_every_device_round_and_round() {
    let session = ranks();
    let mut ui = Ui::default();
    ui.update(Command::Host(HostCommand::NextMatch), &session);
    assert!(ui.status.as_ref().is_some_and(|it| it.contains("no filter")), "{:?}", ui.status);
    typed(&mut ui, &session, "rank");
    ui.update(Command::Open, &session);
    let mut seen = Vec::new();
    for _ in 0..9 {
        seen.push(ui.chosen(&session).and_then(|it| it.pid()).unwrap());
        assert_eq!(ui.device.as_ref(), ui.chosen(&session).map(|it| it.device()).filter(|_| seen.len() > 1));
        ui.update(Command::Host(HostCommand::NextMatch), &session);
    }
    assert_eq!(seen, [4240, 4241, 4242, 4243, 4244, 4245, 4246, 4247, 4240]);
    ui.update(Command::Host(HostCommand::PreviousMatch), &session);
    ui.update(Command::Host(HostCommand::PreviousMatch), &session);
    assert_eq!(ui.chosen(&session).and_then(|it| it.pid()), Some(4247));
}

#[test]
fn the_sort_order_is_shown_and_unknown_figures_come_last_in_both_directions() {
    let session = ranks();
    let mut ui = Ui { scope: Scope::All, focus: Focus::Processes, ..Ui::default() };
    let by_rank = pids(&ui, &session);
    ui.update(Command::Order, &session);
    assert_eq!(pids(&ui, &session), [4247, 4246, 4245, 4244, 4243, 4242, 4241, 4240, 977]);
    assert!(shown(&ui, &session).contains("processes on all devices by allocated ↓"));
    assert!(shown(&ui, &session).contains("processes by allocated, highest first"));
    ui.update(Command::Invert, &session);
    assert_eq!(pids(&ui, &session), [4240, 4241, 4242, 4243, 4244, 4245, 4246, 4247, 977]);
    let mut seen = Vec::new();
    for _ in 0..17 {
        ui.update(Command::Order, &session);
        seen.push((ui.order.by.name(), pids(&ui, &session).first().copied().unwrap_or_default()));
    }
    assert_eq!(
        seen,
        [
            ("reserved", 4247),
            ("unused", 4240),
            ("per step", 4245),
            ("total", 977),
            ("step", 4240),
            ("step time", 4240),
            ("pid", 977),
            ("command", 977),
            ("user", 977),
            ("idle", 4240),
            ("GPU", 4240),
            ("memory busy", 4240),
            ("CPU", 4240),
            ("I/O wait", 4240),
            ("resident", 4240),
            ("threads", 4240),
            ("rank", 4240)
        ]
    );
    assert_eq!(pids(&ui, &session), by_rank);
}

/// Its figures move, and so do the rows: the one that was selected stays selected.
#[test]
fn the_selected_process_stays_selected_wherever_the_order_takes_it() {
    let session = ranks();
    let mut ui = Ui { scope: Scope::All, focus: Focus::Processes, ..Ui::default() };
    ui.update(Command::Move(Motion::Down), &session);
    let held = ui.chosen(&session).map(|it| it.id());
    assert_eq!(held, Some(RowId::Probed(gpuwatch::facts::event::ProbeId(1), 0)));
    for _ in 0..20 {
        ui.update(Command::Order, &session);
        ui.update(Command::Invert, &session);
        assert_eq!(ui.chosen(&session).map(|it| it.id()), held);
    }
    ui.update(Command::Move(Motion::First), &session);
    assert_eq!(ui.device, ui.chosen(&session).map(|it| it.device().clone()));
}

#[test]
fn the_refresh_rate_changes_within_bounds_where_gpuwatch_reads_the_driver() {
    let session = usual().session();
    let mut ui = Ui::default();
    ui.update(Command::Host(HostCommand::Slower), &session);
    assert_eq!((ui.request.take(), ui.status.is_some()), (None, true));
    ui.interval = Some(Duration::from_millis(300));
    ui.update(Command::Host(HostCommand::Slower), &session);
    assert_eq!(ui.request.take(), Some(Request::Interval(Duration::from_millis(500))));
    assert!(shown(&ui, &session).contains("every 500 ms"));
    for (command, end) in [(Command::Host(HostCommand::Faster), 100), (Command::Host(HostCommand::Slower), 60_000)] {
        for _ in 0..12 {
            ui.update(command, &session);
        }
        assert_eq!(ui.interval, Some(Duration::from_millis(end)));
        ui.request = None;
        ui.update(command, &session);
        assert_eq!(ui.request, None);
    }
}

#[test]
fn the_selection_is_copied_whole_and_without_escapes() {
    let mut story = usual();
    story.who(977, &["/usr/bin/python3.12", "a b\x1b[2J", "--model"]);
    let session = story.session();
    let mut ui = Ui::default();
    ui.update(Command::Copy, &session);
    assert_eq!(ui.request.take(), Some(Request::Copy("GPU-0".to_owned())));
    ui.update(Command::NextBox, &session);
    ui.update(Command::Move(Motion::Last), &session);
    ui.update(Command::Copy, &session);
    let copied = "/usr/bin/python3.12 'a b\\u{1b}[2J' --model";
    assert_eq!(ui.request.take(), Some(Request::Copy(copied.to_owned())));
    ui.update(Command::Copy, &Session::default());
    assert_eq!(ui.request, None);
    assert!(ui.status.is_some_and(|it| it.contains("nothing")));
}

#[test]
fn a_signal_needs_confirmation_and_is_never_sent_in_read_only_views() {
    let session = usual().session();
    let mut ui = Ui { focus: Focus::Processes, ..Ui::default() };
    ui.update(Command::Host(HostCommand::Signal), &session);
    let Some(Request::Hold(subject)) = ui.request.take() else { panic!("{:?}", ui.request) };
    assert_eq!((subject.pid, subject.vouched), (4242, true));
    let user = "ada".into();
    ui.dialog = Some(Dialog { pid: 4242, command: "python train.py".to_owned(), user, place: 0, asked: false });
    for command in [Command::Yes, Command::Move(Motion::Down), Command::Move(Motion::Down), Command::Open] {
        ui.update(command, &session);
        assert_eq!(ui.request, None, "{command:?}");
    }
    let screen = shown(&ui, &session);
    assert!(screen.contains("send KILL to pid 4242?") && screen.contains("ada: python train.py"), "{screen}");
    ui.update(Command::Move(Motion::Down), &session);
    assert!(ui.dialog.as_ref().is_some_and(|it| !it.asked), "anything but a yes takes the question back");
    ui.update(Command::Open, &session);
    ui.update(Command::Yes, &session);
    assert_eq!(ui.request.take(), Some(Request::Send(Signal::Kill)));
    assert_eq!(ui.dialog, None);
    let mut only_read = Ui { no_signals: Some("not from here"), ..Ui::default() };
    only_read.update(Command::Host(HostCommand::Signal), &session);
    assert_eq!((only_read.request, only_read.status.as_deref()), (None, Some("not from here")));
}

#[test]
fn a_probe_is_started_only_after_a_yes_and_only_where_there_is_none() {
    let session = ranks();
    let mut ui = Ui { scope: Scope::All, focus: Focus::Processes, ..Ui::default() };
    ui.update(Command::Host(HostCommand::Attach), &session);
    assert_eq!((ui.request.take(), ui.status.as_deref()), (None, Some("this process has a probe already")));
    ui.update(Command::Move(Motion::Last), &session);
    ui.update(Command::Host(HostCommand::Attach), &session);
    let Some(Request::AskStart(Start::Probe, subject)) = ui.request.take() else { panic!("{:?}", ui.request) };
    assert_eq!((subject.pid, subject.vouched), (977, false));
    let command = || "notebook --port 8888".to_owned();
    let question = || Some(Starting { what: Start::Probe, pid: 977, command: command(), user: "ada".into() });
    ui.starting = question();
    let screen = shown(&ui, &session);
    assert!(screen.contains("Start the probe in pid 977? The job pauses for about a"), "{screen}");
    assert!(screen.contains("ada: notebook --port 8888"), "{screen}");
    ui.update(Command::Move(Motion::Down), &session);
    assert_eq!((&ui.starting, ui.request.take()), (&None, None), "anything but a yes means no");
    ui.starting = question();
    ui.update(Command::Yes, &session);
    assert_eq!((&ui.starting, ui.request.take()), (&None, Some(Request::Start(Start::Probe))));
    let mut only_read = Ui { no_signals: Some("not from here"), ..ui.clone() };
    only_read.update(Command::Host(HostCommand::Attach), &session);
    assert_eq!((only_read.request, only_read.status.as_deref()), (None, Some("this view starts no probes")));
}

#[test]
fn steps_are_traced_only_after_a_yes_and_only_where_there_is_a_probe() {
    let session = ranks();
    let mut ui = Ui { scope: Scope::All, focus: Focus::Processes, ..Ui::default() };
    ui.update(Command::Host(HostCommand::Whatif), &session);
    let Some(Request::AskStart(Start::Trace, subject)) = ui.request.take() else { panic!("{:?}", ui.request) };
    assert!(subject.vouched, "{subject:?}");
    let (pid, command) = (subject.pid, "python train.py".to_owned());
    ui.starting = Some(Starting { what: Start::Trace, pid, command, user: "ada".into() });
    let screen = shown(&ui, &session);
    assert!(screen.contains(&format!("Trace 50 steps of pid {pid} and replay them")), "{screen}");
    ui.update(Command::Open, &session);
    assert_eq!((ui.request.take(), ui.status.as_deref()), (None, Some("nothing was traced")));
    ui.update(Command::Move(Motion::Last), &session);
    ui.update(Command::Host(HostCommand::Whatif), &session);
    assert_eq!((ui.request.take(), ui.status.as_deref()), (None, Some("no probe is in this process: P starts one")));
    ui.update(Command::Move(Motion::First), &session);
    ui.update(Command::Host(HostCommand::Peak), &session);
    let Some(Request::AskStart(Start::Peak, subject)) = ui.request.take() else { panic!("{:?}", ui.request) };
    let command = "python train.py".to_owned();
    ui.starting = Some(Starting { what: Start::Peak, pid: subject.pid, command, user: "ada".into() });
    let screen = shown(&ui, &session);
    assert!(screen.contains("Record the call stacks of one step of pid"), "{screen}");
    ui.update(Command::Yes, &session);
    assert_eq!(ui.request.take(), Some(Request::Start(Start::Peak)));
    let mut only_read = Ui { no_signals: Some("not from here"), ..ui.clone() };
    only_read.update(Command::Host(HostCommand::Whatif), &session);
    assert_eq!((only_read.request, only_read.status.as_deref()), (None, Some("this view traces no jobs")));
}

/// Whatever is pressed in whatever order: nothing falls over, nothing is selected that is not there, and every screen
/// is left again.
#[test]
fn no_sequence_of_keys_leads_to_a_dead_end() {
    let sessions = [Session::default(), usual().session(), crate::helpers::story::hostile().session(), ranks()];
    let mut commands: Vec<Command> = keys::BINDINGS.iter().map(|it| it.command).collect();
    commands.extend(['a', '7', '训', '\u{1b}'].map(|it| Command::Edit(Edit::Type(it))));
    commands.extend([Command::Device(0), Command::Device(8)]);
    commands.retain(|it| *it != Command::Quit);
    // Marsaglia's xorshift: the same order each time.
    let mut random = 88_172_645_463_325_252_u64;
    let mut below = |limit: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random % limit as u64).unwrap()
    };
    for round in 0..40 {
        let mut ui = Ui { interval: Some(Duration::from_secs(1)), ..Ui::default() };
        for turn in 0..200 {
            // Sessions move on under the selection, also to one where nothing of it is left.
            let session = &sessions[(round + turn / 50) % sessions.len()];
            ui.update(commands[below(commands.len())], session);
            let user = || "ada".into();
            match ui.request.take() {
                Some(Request::Hold(Subject { pid, .. })) => {
                    ui.dialog = Some(Dialog { pid, command: String::new(), user: user(), place: 0, asked: false });
                }
                Some(Request::AskAllow(what)) => ui.allowing = Some(Allowing { what, ..Allowing::default() }),
                Some(Request::AskStart(what, Subject { pid, .. })) => {
                    ui.starting = Some(Starting { what, pid, command: String::new(), user: user() });
                }
                _ => {}
            }
            let rows = ui.rows(session);
            assert!(ui.place(&rows) < rows.len().max(1));
            if turn % 40 == 0 {
                let size = [(40, 12), (80, 24), (120, 40), (1, 1)][below(4)];
                picture(session, &ui, &Theme::builtin("mono").unwrap(), size.0, size.1);
            }
        }
        for _ in 0..20 {
            ui.update(Command::Back, &sessions[0]);
        }
        assert_eq!((ui.screen, ui.help, &ui.dialog, ui.filter.text.as_str()), (Screen::Overview, false, &None, ""));
        assert_eq!((ui.explained, &ui.allowing, &ui.starting), (None, &None, &None));
    }
}

/// Where it is not seen which row is selected, none is meant.
#[test]
fn only_a_visibly_selected_process_can_be_signalled() {
    let session = usual().session();
    let mut ui = Ui { focus: Focus::Processes, ..Ui::default() };
    ui.update(Command::Move(Motion::Last), &session);
    ui.update(Command::Host(HostCommand::Signal), &session);
    let Some(Request::Hold(subject)) = ui.request.take() else { panic!("{:?}", ui.request) };
    assert_eq!((subject.pid, subject.vouched), (977, false));
    // What is shown is the device of a process without a run, and no process of it.
    ui.update(Command::Host(HostCommand::Timeline), &session);
    ui.update(Command::Host(HostCommand::Signal), &session);
    assert_eq!(ui.request.take(), None);
    ui.update(Command::Back, &session);
    ui.update(Command::Move(Motion::First), &session);
    ui.update(Command::Host(HostCommand::Timeline), &session);
    ui.update(Command::Host(HostCommand::Signal), &session);
    assert!(matches!(ui.request.take(), Some(Request::Hold(it)) if it.pid == 4242));
    ui.update(Command::Copy, &session);
    assert_eq!(ui.request.take(), Some(Request::Copy("python train.py --rank".to_owned())));
    ui.update(Command::Host(HostCommand::Alerts), &session);
    ui.update(Command::Host(HostCommand::Signal), &session);
    assert_eq!(ui.request, None);
}

/// The list marks a row with `▸`, whichever box is focused; the keys for a process act on that one.
#[test]
fn keys_for_a_process_act_on_the_marked_row_in_every_box() {
    let session = usual().session();
    let pid = |request: Option<Request>| match request {
        Some(Request::Hold(it) | Request::AskStart(_, it)) => Some(it.pid),
        _ => None,
    };
    for last in [false, true] {
        let mut ui = Ui { scope: Scope::All, focus: Focus::Processes, ..Ui::default() };
        if last {
            ui.update(Command::Move(Motion::Last), &session);
        }
        for focus in [Focus::Processes, Focus::Devices, Focus::Ladder, Focus::Alerts] {
            let mut ui = Ui { focus, ..ui.clone() };
            let screen = shown(&ui, &session);
            let below = screen.lines().skip_while(|it| !it.starts_with("─ processes "));
            let row = below.skip(1).find(|it| it.starts_with('▸')).unwrap_or_else(|| panic!("{focus:?}: {screen}"));
            let marked =
                [4242, 4243, 977].into_iter().find(|pid| row.split_whitespace().any(|it| it == pid.to_string()));
            assert!(marked.is_some(), "{screen}");
            ui.update(Command::Host(HostCommand::Signal), &session);
            assert_eq!((pid(ui.request.take()), ui.focus), (marked, focus), "{screen}");
        }
    }
}

#[test]
fn menu_question_and_filter_look_like_this() {
    let session = usual().session();
    let dialog =
        |asked| Dialog { pid: 4242, command: "python train.py".to_owned(), user: "ada".into(), place: 2, asked };
    let menu = Ui { dialog: Some(dialog(false)), ..Ui::default() };
    let question = Ui { dialog: Some(dialog(true)), ..Ui::default() };
    let mut filtered = Ui { scope: Scope::All, ..Ui::default() };
    typed(&mut filtered, &session, "rank");
    filtered.update(Command::Move(Motion::Up), &session);
    for (name, ui) in [("menu", menu), ("question", question), ("filter", filtered)] {
        for theme in ["dusk", "mono"] {
            let drawn = picture(&session, &ui, &Theme::builtin(theme).unwrap(), 80, 24);
            insta::assert_snapshot!(format!("{name}-{theme}"), format!("{}\n{}", text(&drawn), styles(&drawn)));
        }
    }
}

/// Small terminals, too: the question and what it is about come before frame and menu.
#[test]
fn menu_and_question_are_drawn_at_every_size() {
    let session = usual().session();
    for asked in [false, true] {
        let dialog = Dialog { pid: 4242, command: "x ".repeat(4000), user: "ada".into(), place: 2, asked };
        let ui = Ui { dialog: Some(dialog), ..Ui::default() };
        for (width, height) in (0..90).step_by(7).flat_map(|width| (0..30).map(move |height| (width, height))) {
            let screen = text(&picture(&session, &ui, &Theme::builtin("dusk").unwrap(), width, height));
            let is_there = screen.contains("send KILL to pid 4242?") == asked;
            assert!(is_there || width < 30 || height < 2, "{width}x{height}:\n{screen}");
        }
    }
}

/// Each group has its purpose as a heading, and unavailable commands have a reason.
#[test]
fn the_help_is_grouped_and_shows_what_is_unavailable_and_why() {
    let session = usual().session();
    let help = |ui: Ui, width, height| shown_at(&Ui { help: true, ..ui }, &session, width, height);
    let live = Ui { interval: Some(Duration::from_secs(1)), ..Ui::default() };
    let all = help(live.clone(), 120, 60);
    for group in keys::Group::HELP {
        assert!(all.contains(group.name()), "{group:?}: {all}");
    }
    for section in keys::sections() {
        let is_shown = keys::Group::HELP.iter().any(|it| it.name() == section.title);
        assert!(!is_shown || section.keys.iter().all(|it| all.contains(it.1)), "{}: {all}", section.title);
    }
    let unwrapped = |it: &str| it.split_whitespace().collect::<Vec<_>>().join(" ").replace("│ ", "").replace(" │", "");
    let readonly =
        Ui { no_signals: Some("no signals from here"), no_allow: Some("nothing is written"), ..Ui::default() };
    let reported = unwrapped(&help(readonly, 120, 60));
    for what in [
        "Not here: K F9 signal the process (no signals from here)",
        "Not here: A expect it, or not (nothing is written)",
        "Not here: + read devices more often, - read devices less often (no driver is read here",
    ] {
        assert!(reported.contains(what), "{what}: {reported}");
    }
    assert!(!unwrapped(&help(live, 120, 60)).contains("Not here"));
}

/// An unknown key shows a message with the key for help.
#[test]
fn an_unknown_key_answers_briefly() {
    let of = |code, ui: &Ui| keys::unknown(KeyEvent::new(code, KeyModifiers::NONE), ui);
    let ui = Ui::default();
    assert_eq!(of(KeyCode::Char('z'), &ui).as_deref(), Some("z: no such key · ? help"));
    assert_eq!(of(KeyCode::Char('x'), &ui).as_deref(), Some("x: a key of the timeline (t) · ? help"));
    let held = KeyEvent::new(KeyCode::Char('x'), KeyModifiers::CONTROL);
    assert_eq!(keys::unknown(held, &ui).as_deref(), Some("Ctrl-x: no such key · ? help"));
    let mut typing = Ui::default();
    typing.filter.typing = true;
    assert_eq!(of(KeyCode::Char('z'), &typing), None);
}

/// The process lives on after a detach; after its own end, nothing starts there.
#[test]
fn a_process_whose_probe_has_ended_is_offered_another_one() {
    for (reason, message) in [("detached", "its probe has ended: P starts another"), ("exit", "the process has ended")]
    {
        let mut story = Story::default();
        story.device(0, 100 * GIB, &[]).probe(0, 4242, 0, None);
        story.wait(100_000).sample(0, 1, counters(GIB, GIB));
        story.line(0, Line::Bye(Bye { reason: reason.to_owned(), ..Bye::default() }));
        let session = story.session();
        let mut ui = Ui { held: Some(RowId::Probed(ProbeId(0), 0)), ..Ui::default() };
        ui.update(Command::Host(HostCommand::Whatif), &session);
        assert_eq!(ui.status.as_deref(), Some(message));
    }
}
