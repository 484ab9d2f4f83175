//! Processes that have ended, and processes whose probe ended before them.

use crate::helpers::story::{GIB, MIB, Story, counters, device, picture, text};
use gpuwatch::{
    facts::{
        event::{
            Fact, Line, ProbeId, ProcessInfo,
            wire::{Bye, Counters, Device, Hello, Live, Mark, Oom, OomMessage, PROTOCOL},
        },
        units::{Bytes, Stamp},
    },
    model::{
        analysis::ladder::{Gap, Level},
        findings::{Findings, Kind, findings},
        session::{Session, timeline::Column},
    },
    screen::{
        theme::Theme,
        ui::{Command, Focus, HostCommand, Motion, Screen, Ui, rows::RowId},
    },
};

const SECOND: u64 = 1_000_000;

/// A probe of a process with this start.
fn hello(pid: u32, start_us: u64) -> Line {
    Line::Hello(Hello {
        protocol: PROTOCOL,
        pid,
        start_us: Some(start_us),
        framework: Some("torch".to_owned()),
        argv: ["python", "train.py"].map(str::to_owned).to_vec(),
        devices: vec![Device { ordinal: 0, uuid: Some(device(0).0), ..Device::default() }],
        ..Hello::default()
    })
}

fn begins(story: &mut Story, number: u32, pid: u32, start_us: u64) {
    story.add(Fact::ProbeFound { probe: ProbeId(number), pid: Some(pid), socket: "/tmp/x.sock".into() });
    story.line(number, hello(pid, start_us)).line(number, Line::Live(Live::default()));
}

fn ends(story: &mut Story, number: u32, reason: &str) {
    story.line(number, Line::Bye(Bye { reason: reason.to_owned(), ..Bye::default() }));
}

/// A leaking job of 8 GiB on a device where the driver counts 10 GiB for it.
fn leaking(story: &mut Story, number: u32, steps: std::ops::Range<u64>) {
    for step in steps {
        story.sample(number, step, counters(8 * GIB + step * (GIB / 64), GIB)).wait(SECOND);
    }
    story.device(0, 12 * GIB, &[(42, 10 * GIB)]);
}

fn drawn(session: &Session, ui: &Ui) -> String {
    text(&picture(session, ui, &Theme::builtin("dusk").unwrap(), 120, 40))
}

fn others(found: &Findings) -> Option<Bytes> {
    found.devices[0].ladder.by_gap().iter().find(|it| it.gap == Gap::Others).and_then(|it| it.bytes)
}

fn all() -> Ui {
    Ui { focus: Focus::Processes, ..Ui::default() }
}

#[test]
fn a_process_is_one_row_through_any_number_of_probes() {
    let mut story = Story::default();
    begins(&mut story, 0, 42, 7 * SECOND);
    leaking(&mut story, 0, 1..60);
    for next in 1..4 {
        ends(&mut story, next - 1, if next == 2 { "stop" } else { "detach" });
        let session = story.session();
        // Its allocator is not counted now; the driver still lists it.
        assert!(session.probed(Some(&device(0))).is_empty() && session.as_it_ended().is_none());
        assert_eq!(session.unprobed(None).iter().map(|it| it.1.pid).collect::<Vec<_>>(), [42]);
        let found = findings(&session);
        assert_eq!((others(&found), found.devices[0].processes.len()), (Some(Bytes(10 * GIB)), 0));
        assert_eq!(found.devices[0].ladder.sum(), Bytes(140 * GIB));
        let shown = drawn(&session, &all());
        assert!(
            shown.contains("probe ended:") && !shown.contains("contradict") && !shown.contains("full in"),
            "{shown}"
        );
        assert!(!shown.contains("1 warning") && !shown.contains("1 critical"), "nobody sees whether it lasts: {shown}");
        // The start that another clock computes differs a little.
        begins(&mut story, next, 42, 7 * SECOND + u64::from(next) * 300_000);
        leaking(&mut story, next, 1..60);
        let session = story.session();
        let probed = session.probed(None);
        assert_eq!(probed.iter().map(|it| it.0.probe.0).collect::<Vec<_>>(), [next]);
        assert!(session.unprobed(None).is_empty());
        let found = findings(&session);
        assert_eq!((others(&found), found.devices[0].processes.len()), (Some(Bytes(0)), 1));
        assert!(found.devices[0].ladder.rungs.iter().all(|it| it.inconsistent.is_none()));
        let shown = drawn(&session, &all());
        assert!(!shown.contains("ended") && shown.matches("train.py").count() == 1, "{shown}");
    }
    // The process ends with its last probe: one row, as of any other.
    ends(&mut story, 3, "exit");
    story.device(0, 2 * GIB, &[]);
    let session = story.session();
    assert_eq!(session.probed(None).len(), 1);
    assert!(drawn(&session, &all()).contains("ended: python train.py"));
}

/// A probe that was started at a step of a running job.
fn attaches(story: &mut Story, number: u32, step: u64) {
    let Line::Hello(hello) = hello(42, 7 * SECOND) else { unreachable!() };
    let (unix_us, monotonic_us) = (900 * SECOND, story.now);
    let attached = Hello { unix_us, monotonic_us, attached_us: Some(unix_us), attached_step: Some(step), ..hello };
    story.add(Fact::ProbeFound { probe: ProbeId(number), pid: Some(42), socket: "/tmp/x.sock".into() });
    story.line(number, Line::Hello(attached)).line(number, Line::Live(Live::default()));
}

#[test]
fn the_run_of_a_process_continues_through_its_probes() {
    let mut story = Story::default();
    attaches(&mut story, 0, 1);
    leaking(&mut story, 0, 1..60);
    let mark = Mark { at_us: story.now - 9 * SECOND, name: "epoch".to_owned(), ..Mark::default() };
    story.line(0, Line::Mark(mark));
    ends(&mut story, 0, "detach");
    let (left, back) = (story.now, story.now + 40 * SECOND);
    story.wait(40 * SECOND);
    attaches(&mut story, 1, 100);
    leaking(&mut story, 1, 100..131);
    let session = story.session();
    let run = |session: &Session| session.probed(None)[0].1.timeline.columns().collect::<Vec<_>>();
    let columns = run(&session);
    assert_eq!((columns[0].step, columns.last().unwrap().step), (Some(1), Some(130)));
    // Nothing is known of the time between.
    let is_known = |it: &Column| it.last.get(Level::Allocated).is_some();
    let unknown: Vec<Stamp> = columns.iter().filter(|it| !is_known(it)).map(|it| it.at).collect();
    assert_eq!(unknown, [Stamp(back)]);
    assert!(columns.iter().all(|it| it.at.0 < left || it.at.0 >= back));
    let shown = drawn(&session, &Ui { screen: Screen::Timeline, ..all() });
    assert!(shown.contains("steps 1 – 130 · the whole run"), "{shown}");
    // So do its marks and alerts.
    assert!(shown.contains("◇ epoch") && shown.matches('◆').count() >= 2, "{shown}");
    // A count of steps that begins again is a run of its own.
    ends(&mut story, 1, "detach");
    attaches(&mut story, 2, 1);
    leaking(&mut story, 2, 1..20);
    assert_eq!(run(&story.session())[0].step, Some(1));
    assert_eq!(run(&story.session()).len(), 19);
    let shown = drawn(&story.session(), &Ui { screen: Screen::Timeline, ..all() });
    assert!(!shown.contains("◇ epoch"), "a mark of the run before: {shown}");
}

/// A viewer may see the new probe first, and learn of the old one's end when its socket closes.
#[test]
fn the_run_continues_where_the_new_probe_is_seen_before_the_end_of_the_old_one() {
    let mut story = Story::default();
    attaches(&mut story, 0, 1);
    leaking(&mut story, 0, 1..60);
    let left = story.now;
    story.wait(40 * SECOND);
    attaches(&mut story, 1, 100);
    leaking(&mut story, 1, 100..110);
    ends(&mut story, 0, "detach");
    leaking(&mut story, 1, 110..131);
    let session = story.session();
    let columns: Vec<Column> = session.probed(None)[0].1.timeline.columns().collect();
    assert_eq!((columns[0].step, columns.last().unwrap().step), (Some(1), Some(130)));
    let known = columns.iter().filter(|it| it.last.get(Level::Allocated).is_some());
    assert_eq!(known.count(), 59 + 31, "no sample of either probe is lost");
    assert_eq!(columns.len(), 59 + 31 + 1);
    assert!(columns.iter().all(|it| it.at.0 < left || it.at.0 >= left + 40 * SECOND));
}

/// What happens on the device after the end of a job does not change what was judged of it.
#[test]
fn the_severity_of_an_ended_job_stays() {
    let severity = |used: u64| {
        let mut story = Story::default();
        begins(&mut story, 0, 42, 7 * SECOND);
        for step in 1..60 {
            let own = counters(8 * GIB + step * (GIB / 64), GIB);
            story.sample(0, step, Counters { device_free: Some(128 * GIB), ..own }).wait(SECOND);
        }
        story.device(0, 12 * GIB, &[(42, 10 * GIB)]);
        ends(&mut story, 0, "exit");
        story.device(0, used, &[]);
        let found = findings(&story.session());
        (found.all[0].kind, found.all[0].severity, found.all[0].full_in_steps)
    };
    assert_eq!(severity(GIB).0, Kind::Growth);
    assert_eq!(severity(GIB), severity(139 * GIB));
}

#[test]
fn on_the_timeline_nothing_of_an_ended_job_lasts() {
    let mut story = Story::default();
    begins(&mut story, 0, 42, 7 * SECOND);
    leaking(&mut story, 0, 1..60);
    let shown = |story: &Story| {
        let ui = Ui { screen: Screen::Timeline, ..all() };
        text(&picture(&story.session(), &ui, &Theme::builtin("dusk").unwrap(), 200, 50))
    };
    assert!(shown(&story).contains("since step 4, lasts"), "{}", shown(&story));
    story.line(0, Line::Oom(Oom { step: Some(59), at_us: story.now, ..Oom::default() }));
    ends(&mut story, 0, "exit");
    let shown = shown(&story);
    assert!(shown.contains("since step 4, to the end") && shown.contains("at step 59"), "{shown}");
    assert!(!shown.contains("lasts"), "{shown}");
}

#[test]
fn the_screens_are_about_the_selected_process_also_without_its_probe() {
    let mut story = Story::default();
    begins(&mut story, 0, 42, 7 * SECOND);
    leaking(&mut story, 0, 1..60);
    ends(&mut story, 0, "detach");
    begins(&mut story, 1, 43, 9 * SECOND);
    story.sample(1, 1, counters(GIB, GIB)).sample(1, 2, counters(GIB, GIB));
    story.device(0, 20 * GIB, &[(42, 10 * GIB), (43, 3 * GIB), (44, GIB)]);
    let session = story.session();
    let of = |pid| {
        let session = &session;
        let mut ui = all();
        ui.select_process(&RowId::Unprobed(pid, device(0)), session);
        move |screen| drawn(session, &Ui { screen, ..ui.clone() })
    };
    let left = of(42);
    assert!(left(Screen::Overview).contains("allocated · pid 42 · probe ended"), "{}", left(Screen::Overview));
    assert!(left(Screen::Timeline).contains("timeline · pid 42 on GPU 0"), "{}", left(Screen::Timeline));
    let process = left(Screen::Process);
    assert!(process.contains("probe ended ") && process.contains("─ pid 42 on GPU 0 ─"), "{process}");
    let alerts = left(Screen::Alerts);
    assert!(alerts.contains("until its probe ended") && !alerts.contains("its process ended"), "{alerts}");
    // What has never had a probe has no run; that of its device stands for it.
    let stranger = of(44);
    for screen in [Screen::Overview, Screen::Timeline] {
        let shown = stranger(screen);
        assert!(shown.contains("─ used on the device ─") && !shown.contains("· pid 43 "), "{shown}");
    }
    assert!(stranger(Screen::Process).contains("no probed process here"), "{}", stranger(Screen::Process));
}

#[test]
fn keys_on_the_screen_of_a_process_without_its_probe_reach_the_process() {
    let mut story = Story::default();
    begins(&mut story, 0, 42, 7 * SECOND);
    leaking(&mut story, 0, 1..9);
    ends(&mut story, 0, "detach");
    let session = story.session();
    let mut ui = all();
    ui.update(Command::Open, &session);
    assert_eq!(ui.screen, Screen::Process);
    ui.update(Command::Host(HostCommand::Signal), &session);
    assert!(!drawn(&session, &ui).contains("has ended"), "{}", drawn(&session, &ui));
}

/// The message rounds 139.4775 GiB to 139.48 GiB, which is more than the device has in use.
#[test]
fn a_total_that_a_message_rounds_contradicts_nothing() {
    let (mut story, used) = (Story::default(), 140 * GIB - GIB / 2 - 23 * MIB);
    begins(&mut story, 0, 42, 7 * SECOND);
    story.sample(0, 1, counters(100 * GIB, GIB));
    story.device(0, 101 * GIB, &[(42, 101 * GIB)]).wait(SECOND).sample(0, 2, counters(137 * GIB, 2 * GIB));
    let message = "CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of 139.50 GiB of which \
                   23.00 MiB is free. Including non-PyTorch memory, this process has 139.48 GiB memory in use.";
    story.line(0, Line::Oom(Oom { device_free: Some(23 * MIB), at_us: story.now, ..Oom::default() }));
    story.line(
        0,
        Line::OomMessage(OomMessage { message: message.to_owned(), at_us: story.now, ..OomMessage::default() }),
    );
    story.device(0, used, &[]);
    let ladder = findings(&story.session()).devices[0].ladder.clone();
    assert!(ladder.rungs.iter().all(|it| it.inconsistent.is_none()), "{ladder:#?}");
    assert_eq!(ladder.sum(), Bytes(140 * GIB));
}

#[test]
fn a_process_that_ends_without_its_probe_has_ended() {
    let mut story = Story::default();
    begins(&mut story, 0, 42, 7 * SECOND);
    leaking(&mut story, 0, 1..9);
    ends(&mut story, 0, "detach");
    story.device(0, 2 * GIB, &[]);
    let shown = drawn(&story.session(), &all());
    assert!(shown.contains("ended: python") && !shown.contains("probe ended"), "{shown}");
}

#[test]
fn another_process_with_the_same_pid_is_a_row_of_its_own() {
    let mut story = Story::default();
    begins(&mut story, 0, 42, 7 * SECOND);
    leaking(&mut story, 0, 1..9);
    ends(&mut story, 0, "exit");
    begins(&mut story, 1, 42, 700 * SECOND);
    leaking(&mut story, 1, 1..9);
    let session = story.session();
    assert_eq!(session.probed(None).iter().map(|it| it.0.probe.0).collect::<Vec<_>>(), [1, 0]);
    // A probe that is found again is the same probe.
    story.add(Fact::ProbeGone { probe: ProbeId(1), why: "the connection was reset".into() });
    begins(&mut story, 1, 42, 700 * SECOND);
    assert_eq!(story.session().probed(None).len(), 2);
}

#[test]
fn a_process_that_rests_or_has_ended_has_no_countdown() {
    let mut story = Story::default();
    begins(&mut story, 0, 42, 7 * SECOND);
    leaking(&mut story, 0, 1..60);
    let shown = |story: &Story, screen| drawn(&story.session(), &Ui { screen, ..all() });
    assert!(shown(&story, Screen::Overview).contains("full in") && shown(&story, Screen::Alerts).contains("full in"));
    // A cell of a notebook that has ended: the process stays.
    story.wait(30 * SECOND).device(0, 12 * GIB, &[(42, 10 * GIB)]);
    let overview = shown(&story, Screen::Overview);
    assert!(!overview.contains("full in") && overview.contains("tensors-retained"), "{overview}");
    assert!(shown(&story, Screen::Alerts).contains("at that pace full in"));
    ends(&mut story, 0, "exit");
    assert!(!shown(&story, Screen::Overview).contains("full in"));
    let process = shown(&story, Screen::Process);
    assert!(!process.contains("w which line") && !process.contains("K signal"), "{process}");
}

#[test]
fn an_ended_process_is_cleared_by_a_key_and_by_itself() {
    let mut story = Story::default();
    begins(&mut story, 0, 42, 7 * SECOND);
    leaking(&mut story, 0, 1..60);
    ends(&mut story, 0, "exit");
    story.device(0, 2 * GIB, &[]);
    let mut ui = all();
    let shown = |story: &Story, ui: &Ui| drawn(&story.session(), ui);
    let is_listed =
        |shown: &str| (shown.contains("train.py"), shown.contains("1 critical") || shown.contains("1 warning"));
    assert_eq!(is_listed(&shown(&story, &ui)), (true, true), "it has just ended");
    ui.update(Command::Host(HostCommand::Clear), &story.session());
    assert_eq!(ui.status.take().as_deref(), Some("1 process cleared that had ended"));
    // The screen of a device has a list too, where the one that was selected before is cleared as well.
    let mut device = Ui { focus: Focus::Processes, ..all() };
    device.update(Command::Move(Motion::First), &story.session());
    assert!(device.held.is_some());
    device.screen = Screen::Device;
    device.update(Command::Host(HostCommand::Clear), &story.session());
    assert_eq!(device.status.take().as_deref(), Some("1 process cleared that had ended"));
    let cleared = shown(&story, &ui);
    assert_eq!(is_listed(&cleared), (false, false), "{cleared}");
    assert!(cleared.contains("processes on GPU 0: 0"), "{cleared}");
    ui.screen = Screen::Alerts;
    let alerts = shown(&story, &ui);
    assert!(["0 open, 1 ended", "none is open"].iter().all(|it| alerts.contains(it)), "{alerts}");
    assert!(!alerts.contains("nothing was found"), "{alerts}");
    ui.update(Command::Host(HostCommand::Clear), &story.session());
    assert_eq!(ui.status.take().as_deref(), Some("nothing that has ended is listed"));
    // A view that was frozen earlier clears nothing back.
    let mut earlier = story.session();
    earlier.now = Stamp(SECOND);
    ui.update(Command::Host(HostCommand::Clear), &earlier);
    assert!(!is_listed(&shown(&story, &Ui { screen: Screen::Overview, ..ui.clone() })).0);
    // Another one that ends later is listed.
    begins(&mut story, 1, 43, 900 * SECOND);
    story.sample(1, 1, counters(GIB, GIB)).wait(SECOND);
    ends(&mut story, 1, "exit");
    ui.screen = Screen::Overview;
    assert!(is_listed(&shown(&story, &ui)).0);
    story.wait(400 * SECOND).device(0, 2 * GIB, &[]);
    assert_eq!(is_listed(&shown(&story, &all())), (false, false), "long ago");
}

/// `gpuwatch_probe.stop()` at the end of a script.
#[test]
fn a_job_that_ends_its_probe_itself_keeps_its_alerts() {
    let mut story = Story::default();
    begins(&mut story, 0, 42, 7 * SECOND);
    leaking(&mut story, 0, 1..60);
    ends(&mut story, 0, "stop");
    story.device(0, 2 * GIB, &[]);
    let session = story.session();
    assert!(session.as_it_ended().is_some());
    let shown = drawn(&session, &all());
    assert!(shown.contains("1 critical") || shown.contains("1 warning"), "{shown}");
}

#[test]
fn an_error_stays_open_until_the_user_clears_it() {
    let mut story = Story::default();
    begins(&mut story, 0, 42, 7 * SECOND);
    leaking(&mut story, 0, 1..9);
    story.line(0, Line::Oom(Oom { step: Some(8), tried: Some(GIB), ..Oom::default() }));
    ends(&mut story, 0, "exit");
    story.wait(400 * SECOND).device(0, 2 * GIB, &[]);
    let session = story.session();
    let mut ui = all();
    let shown = drawn(&session, &ui);
    assert!(shown.contains("1 critical") && shown.contains("processes on GPU 0: 0"), "{shown}");
    // Its process is listed as long as it is selected.
    for command in [Command::Host(HostCommand::Alerts), Command::Open] {
        ui.update(command, &session);
    }
    assert_eq!((ui.screen, ui.process(&session).map(|it| it.0.probe)), (Screen::Process, Some(ProbeId(0))));
    ui.update(Command::Back, &session);
    ui.update(Command::Back, &session);
    ui.update(Command::Host(HostCommand::Clear), &session);
    let shown = drawn(&session, &ui);
    assert!(!shown.contains("1 critical") && shown.contains("processes on GPU 0: 0"), "{shown}");
}

#[test]
fn a_process_that_holds_memory_is_listed_however_long_ago_its_connection_broke() {
    let mut story = Story::default();
    begins(&mut story, 0, 42, 7 * SECOND);
    leaking(&mut story, 0, 1..9);
    story.add(Fact::ProbeGone { probe: ProbeId(0), why: "the connection was reset".into() });
    story.wait(400 * SECOND).device(0, 12 * GIB, &[(42, 10 * GIB)]);
    let mut ui = all();
    ui.update(Command::Host(HostCommand::Clear), &story.session());
    assert_eq!(ui.status.take().as_deref(), Some("nothing that has ended is listed"));
    assert!(drawn(&story.session(), &ui).contains("lost: python train.py"));
    // The driver lists it no longer: it is the process that has ended, and said nothing.
    let mut story = Story::default();
    begins(&mut story, 0, 42, 7 * SECOND);
    leaking(&mut story, 0, 1..9);
    story.add(Fact::ProbeGone { probe: ProbeId(0), why: "the process ended without a word: was it killed?".into() });
    story.device(0, 2 * GIB, &[(7, GIB)]);
    assert!(
        drawn(&story.session(), &all()).contains("killed?: python train.py"),
        "{}",
        drawn(&story.session(), &all())
    );
    let process = drawn(&story.session(), &Ui { screen: Screen::Process, ..all() });
    assert!(process.contains("killed? "), "{process}");
}

#[test]
fn an_alert_of_an_earlier_probe_leads_to_its_process() {
    let mut story = Story::default();
    begins(&mut story, 0, 42, 7 * SECOND);
    leaking(&mut story, 0, 1..60);
    ends(&mut story, 0, "detach");
    begins(&mut story, 1, 42, 7 * SECOND);
    story.sample(1, 1, counters(8 * GIB, GIB));
    let mut ui = Ui { screen: Screen::Alerts, ..Ui::default() };
    ui.update(Command::Open, &story.session());
    assert_eq!(ui.process(&story.session()).map(|it| it.0.probe), Some(ProbeId(1)));
    assert_eq!(ui.screen, Screen::Process);
}

#[test]
fn a_zombie_is_named_with_its_parent_and_offered_nothing() {
    let mut story = Story::default();
    let argv = ["python", "ddp.py"].map(Into::into).to_vec();
    let info = ProcessInfo { pid: 42, argv, parent: Some(17), ..ProcessInfo::default() };
    story.add(Fact::Process(info.clone())).device(0, 12 * GIB, &[(42, 10 * GIB)]);
    let shown = |story: &Story| drawn(&story.session(), &all());
    assert!(shown(&story).contains("no probe yet: P, or gpuwatch attach 42, or gpuwatch run -- python ddp.py"));
    // A rank is started by its launcher, and a control character cannot be pasted.
    let strange = vec!["python".into(), "a\u{1b}b.py".into()];
    for it in [ProcessInfo { rank: true, ..info.clone() }, ProcessInfo { argv: strange, ..info.clone() }] {
        story.add(Fact::Process(it));
        let shown = shown(&story);
        assert!(shown.contains("gpuwatch attach 42") && !shown.contains("gpuwatch run"), "{shown}");
    }
    story.add(Fact::Process(ProcessInfo { ended: true, ..info }));
    let shown = shown(&story);
    assert!(shown.contains("zombie of pid 17: python") && !shown.contains("gpuwatch attach"), "{shown}");
    for command in [Command::Host(HostCommand::Signal), Command::Host(HostCommand::Attach)] {
        let mut ui = all();
        ui.update(command, &story.session());
        let words =
            "pid 42 has ended: no signal and no probe reach it; it is listed until its parent, pid 17, waits for it";
        assert_eq!((ui.status.as_deref(), ui.request), (Some(words), None));
    }
}

#[test]
fn users_are_shown_as_soon_as_there_are_several() {
    let mut story = Story::default();
    let info = |pid, user: &str| Fact::Process(ProcessInfo { pid, user: user.into(), ..ProcessInfo::default() });
    begins(&mut story, 0, 42, 7 * SECOND);
    leaking(&mut story, 0, 1..9);
    story.device(0, 12 * GIB, &[(42, 10 * GIB), (43, GIB)]).add(info(42, "ada")).add(info(43, "ada"));
    assert!(!drawn(&story.session(), &all()).contains("user"));
    story.add(info(43, "grace"));
    let shown = drawn(&story.session(), &all());
    assert!(shown.contains("user") && shown.contains("grace") && shown.contains("ada"), "{shown}");
    // Nothing works on the device for two minutes.
    for _ in 0..120 {
        story.wait(SECOND).device(0, GIB, &[(42, 10 * GIB), (43, GIB)]);
    }
    let shown = drawn(&story.session(), &all());
    let row = shown.lines().find(|it| it.contains("grace")).unwrap_or_default();
    assert!(shown.contains("idle") && (row.contains("119 s") || row.contains("2 min")), "{shown}");
}
