//! Every key in the table has one meaning in each place.

use super::*;
use crate::{
    facts::text::Foreign,
    screen::ui::{
        Motion, Source, Start,
        alert_list::Allowing,
        cluster_ui,
        process_actions::{Dialog, Starting},
        snapshot_ui::{Page, SnapshotCommand},
    },
    storage::replay::Command as Replay,
};
use std::collections::HashSet;

fn ui(place: KeyContext) -> Ui {
    let mut ui = Ui::default();
    match place {
        KeyContext::Anywhere => {}
        KeyContext::Timeline => ui.screen = Screen::Timeline,
        KeyContext::Replay => ui.source = Source::Replay,
        KeyContext::Snapshot => ui.source = Source::Snapshot,
        KeyContext::Cluster => ui.source = Source::Cluster,
        KeyContext::Recordings => ui.source = Source::Recordings,
        KeyContext::Past => (ui.source, ui.screen) = (Source::Store, Screen::Timeline),
        KeyContext::Filter => ui.filter.typing = true,
        KeyContext::Allow => ui.allowing = Some(Allowing::default()),
        KeyContext::Start => {
            let (command, user) = (String::new(), Foreign::default());
            ui.starting = Some(Starting { what: Start::Probe, pid: 1, command, user });
        }
        KeyContext::Signal => {
            let (command, user) = (String::new(), Foreign::default());
            ui.dialog = Some(Dialog { pid: 1, command, user, place: 0, asked: false });
        }
    }
    ui
}

#[test]
fn no_key_has_two_meanings_in_one_place_and_every_one_is_documented() {
    let mut seen = HashSet::new();
    for binding in BINDINGS {
        assert!(!binding.codes.is_empty() && !binding.keys.is_empty() && !binding.help.is_empty());
        assert_eq!(binding.keys.split(' ').count(), binding.codes.len(), "{}", binding.keys);
        for (modifiers, code) in binding.codes {
            assert!(seen.insert((binding.place, *modifiers, *code)), "{code:?}");
            let key = KeyEvent::new(*code, *modifiers);
            assert_eq!(command(key, &ui(binding.place)), binding.command_of((*modifiers, *code)));
        }
    }
    let commands: HashSet<_> = BINDINGS.iter().map(|it| (it.place, it.command)).collect();
    assert_eq!(commands.len(), BINDINGS.len());
}

#[test]
fn keys_of_a_replay_seek_and_step_and_leave_the_rest_to_the_live_view() {
    let key = |code, modifiers| command(KeyEvent::new(code, modifiers), &ui(KeyContext::Replay));
    assert_eq!(key(KeyCode::Left, NONE), Some(Command::Replay(Replay::Hundredths(-1))));
    assert_eq!(key(KeyCode::Right, KeyModifiers::SHIFT), Some(Command::Replay(Replay::Hundredths(10))));
    assert_eq!(key(KeyCode::Char('M'), KeyModifiers::SHIFT), Some(Command::Replay(Replay::PreviousMark)));
    let others = [
        (KeyCode::Char('q'), Some(Command::Quit)),
        (KeyCode::Char('h'), Some(Command::Move(Motion::Left))),
        (KeyCode::Char('1'), Some(Command::Device(0))),
        (KeyCode::Enter, Some(Command::Open)),
        (KeyCode::Up, Some(Command::Move(Motion::Up))),
    ];
    for (code, own) in others {
        assert_eq!(key(code, NONE), own, "{code:?}");
    }
    assert_eq!(key(KeyCode::Left, CONTROL), None);
    let timeline = Ui { screen: Screen::Timeline, ..ui(KeyContext::Replay) };
    assert_eq!(command(KeyCode::Left.into(), &timeline), Some(Command::Move(Motion::Left)), "the cursor's");
    assert_eq!(command(KeyCode::Char(' ').into(), &timeline), Some(Command::Replay(Replay::Play)));
    let typed = Ui { source: Source::Replay, ..ui(KeyContext::Filter) };
    assert_eq!(command(KeyCode::Char('m').into(), &typed), Some(Command::Edit(Edit::Type('m'))));
}

#[test]
fn keys_of_a_snapshot_come_first_and_keys_without_a_use_there_do_nothing() {
    let key = |code| command(KeyEvent::new(code, NONE), &ui(KeyContext::Snapshot));
    assert_eq!(key(KeyCode::Char('f')), Some(Command::Snapshot(SnapshotCommand::Show(Page::Flame))));
    assert_eq!(key(KeyCode::Char('p')), Some(Command::Snapshot(SnapshotCommand::Peak)));
    assert_eq!(key(KeyCode::Tab), Some(Command::NextBox));
    assert_eq!(
        (key(KeyCode::Up), key(KeyCode::Char('2'))),
        (Some(Command::Move(Motion::Up)), Some(Command::Device(1)))
    );
    for without in ['K', 'w', 'W', 'a', 'A', 'e', 'n'] {
        assert_eq!(key(KeyCode::Char(without)), None, "{without}");
    }
    let shown = BINDINGS.iter().filter(|it| reaches(it, &ui(KeyContext::Snapshot)));
    assert!(shown.clone().all(|it| it.codes.iter().all(|code| key(code.1).is_some() || code.0 != NONE)));
    assert!(shown.count() > 30);
}

#[test]
fn keys_of_many_machines_come_first_and_those_of_one_machine_do_nothing() {
    use cluster_ui::ClusterCommand;

    let key = |code| command(KeyEvent::new(code, NONE), &ui(KeyContext::Cluster));
    assert_eq!(key(KeyCode::Char('m')), Some(Command::Cluster(ClusterCommand::Map)));
    assert_eq!(key(KeyCode::Char('<')), Some(Command::Cluster(ClusterCommand::PreviousFigure)));
    assert_eq!(key(KeyCode::Char('>')), Some(Command::Cluster(ClusterCommand::NextFigure)));
    assert_eq!((key(KeyCode::Char(' ')), key(KeyCode::Enter)), (Some(Command::Freeze), Some(Command::Open)));
    for without in ['K', 'w', 'W', 'P', 'a', 'A', 'e', 'n', 't', 'v', 'V', '1', '+'] {
        assert_eq!(key(KeyCode::Char(without)), None, "{without}");
    }
}

#[test]
fn recordings_of_many_machines_have_a_replays_keys_where_the_screen_has_none() {
    use cluster_ui::ClusterCommand;

    let ui = ui(KeyContext::Recordings);
    let key = |code| command(KeyEvent::new(code, NONE), &ui);
    assert_eq!(key(KeyCode::Char('m')), Some(Command::Cluster(ClusterCommand::Map)));
    assert_eq!(key(KeyCode::Char('>')), Some(Command::Cluster(ClusterCommand::NextFigure)));
    assert_eq!(key(KeyCode::Char('n')), Some(Command::Replay(Replay::NextMark)));
    assert_eq!(key(KeyCode::Char('+')), Some(Command::Replay(Replay::Faster)));
    assert_eq!(key(KeyCode::Char(' ')), Some(Command::Replay(Replay::Play)));
    assert_eq!(key(KeyCode::Left), Some(Command::Replay(Replay::Hundredths(-1))));
    assert_eq!(key(KeyCode::Char('h')), Some(Command::Move(Motion::Left)));
    assert_eq!((key(KeyCode::Enter), key(KeyCode::Char('q'))), (Some(Command::Open), Some(Command::Quit)));
    for without in ['K', 'w', 'a', 't', 'v', '1'] {
        assert_eq!(key(KeyCode::Char(without)), None, "{without}");
    }
    // No line of the help has a key that does something else.
    for binding in BINDINGS.iter().filter(|it| reaches(it, &ui)) {
        let (modifiers, code) = binding.codes[0];
        assert_eq!(command(KeyEvent::new(code, modifiers), &ui), Some(binding.command), "{}", binding.keys);
    }
}

#[test]
fn the_past_of_a_rank_has_keys_of_its_own_and_one_sentence_for_those_of_one_machine() {
    use crate::screen::ui::{Chart, cluster_ui::ClusterCommand};

    let ui = ui(KeyContext::Past);
    let key = |code| command(KeyEvent::new(code, NONE), &ui);
    assert_eq!(key(KeyCode::Char('+')), Some(Command::Chart(Chart::Plus)));
    assert_eq!(key(KeyCode::Char('>')), Some(Command::Cluster(ClusterCommand::NextFigure)));
    assert_eq!((key(KeyCode::Esc), key(KeyCode::Down)), (Some(Command::Back), Some(Command::Move(Motion::Down))));
    for without in ['m', 's', '/', 'c', ' ', 'K', 'w', 'W', 'P', 'a', 't', '1'] {
        assert_eq!(key(KeyCode::Char(without)), None, "{without}");
    }
    assert_eq!(key(KeyCode::Enter), None);
    let list = Ui { source: Source::Store, ..Ui::default() };
    assert_eq!(command(KeyCode::Char('m').into(), &list), Some(Command::Cluster(ClusterCommand::Map)));
    for (letter, words) in [
        ('K', "K: needs more than figures, as `ssh -t HOST gpuwatch` has · ? help"),
        ('m', "m: a key of the list (Esc) · ? help"),
        ('f', "f: a key of the list (Esc) · ? help"),
        ('%', "%: no such key · ? help"),
    ] {
        assert_eq!(unknown(KeyCode::Char(letter).into(), &ui).unwrap(), words);
    }
}

#[test]
fn a_key_that_a_replay_uses_is_not_a_key_of_the_live_view() {
    use Command::{Freeze, Move};
    use Motion::{First, Last, Left, Right};

    let names = |ui: &Ui| {
        let gone = BINDINGS.iter().filter(|it| it.place == KeyContext::Anywhere && is_taken_by_replay(it, ui));
        gone.map(|it| it.command).collect::<Vec<_>>()
    };
    assert_eq!(names(&ui(KeyContext::Replay)), [Move(Left), Move(Right), Move(First), Move(Last), Freeze]);
    let timeline = Ui { screen: Screen::Timeline, ..ui(KeyContext::Replay) };
    assert_eq!(names(&timeline), [Freeze]);
    assert_eq!(names(&Ui::default()), []);
}

#[test]
fn digits_releases_and_shift() {
    let key = |code, modifiers| command(KeyEvent::new(code, modifiers), &Ui::default());
    assert_eq!(key(KeyCode::Char('1'), NONE), Some(Command::Device(1)));
    assert_eq!(key(KeyCode::Char('0'), NONE), Some(Command::Device(0)));
    assert_eq!(key(KeyCode::Char('G'), KeyModifiers::SHIFT), Some(Command::Move(Motion::Last)));
    assert_eq!(key(KeyCode::BackTab, KeyModifiers::SHIFT), Some(Command::PreviousBox));
    assert_eq!(key(KeyCode::Char('x'), NONE), None);
    let release = KeyEvent::new_with_kind(KeyCode::Char('q'), NONE, KeyEventKind::Release);
    assert_eq!(command(release, &Ui::default()), None);
}

#[test]
fn letters_of_a_filter_are_letters_and_a_question_takes_only_a_yes() {
    let typed = |code, modifiers| command(KeyEvent::new(code, modifiers), &ui(KeyContext::Filter));
    assert_eq!(typed(KeyCode::Char('q'), NONE), Some(Command::Edit(Edit::Type('q'))));
    assert_eq!(typed(KeyCode::Char('K'), KeyModifiers::SHIFT), Some(Command::Edit(Edit::Type('K'))));
    assert_eq!(typed(KeyCode::Char('c'), CONTROL), Some(Command::Quit));
    let mut asked = ui(KeyContext::Signal);
    assert_eq!(command(KeyCode::Char('q').into(), &asked), None);
    asked.dialog.as_mut().unwrap().asked = true;
    assert_eq!(command(KeyCode::Char('q').into(), &asked), Some(Command::Back));
    assert_eq!(command(KeyCode::Char('y').into(), &asked), Some(Command::Yes));
}
