//! Keys and their commands: what a key does where, and which keys reach a screen.

/// The table itself.
mod table;

pub use crate::screen::keys::table::{BINDINGS, DEVICES};
use crate::screen::ui::{Command, Edit, OpenDialog, Screen, Source, Ui};
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// Where a key has its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyContext {
    /// Wherever no other place has the keys.
    Anywhere,
    /// On the timeline, before those of `Anywhere`.
    Timeline,
    /// In a replay, before those of `Anywhere` and `Timeline`; there, the keys that seek move its cursor.
    Replay,
    /// In a memory snapshot, before those of `Anywhere` that it uses.
    Snapshot,
    /// On the screen of many machines, before those of `Anywhere` that it uses.
    Cluster,
    /// On the same screen of machines' recordings, before those of `Cluster`, of `Replay` and of `Anywhere`.
    Recordings,
    /// On the past of a rank in a store of figures, before those of `Anywhere` that it uses.
    Past,
    /// While a filter is typed; every other key is a character of it.
    Filter,
    /// While the menu of signals is open.
    Signal,
    /// While gpuwatch asks whether to expect an alert; every other key means no.
    Allow,
    /// While gpuwatch asks whether to start a probe or a trace; every other key means no.
    Start,
}

/// The purpose of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Open and close screens.
    Screens,
    /// Move and select.
    Moving,
    /// For the selected process, and for the list.
    Processes,
    /// For the selected alert.
    Alerts,
    /// For the timeline only.
    Timeline,
    /// Display and refresh rate.
    Display,
    /// For a replay only.
    Replay,
    /// For a memory snapshot only.
    Snapshot,
    /// For the screen of many machines only.
    Cluster,
    /// For many machines' recordings, where other keys than in a replay of one machine.
    Recordings,
    /// For the past of a rank only.
    Past,
    /// Answers to questions.
    Asking,
}

impl Group {
    /// The groups of the help, in order.
    pub const HELP: [Self; 6] =
        [Self::Screens, Self::Moving, Self::Processes, Self::Alerts, Self::Timeline, Self::Display];

    /// Returns its heading.
    pub fn name(self) -> &'static str {
        match self {
            Self::Screens => "screens",
            Self::Moving => "move and select",
            Self::Processes => "processes",
            Self::Alerts => "the selected alert",
            Self::Timeline => "on the timeline",
            Self::Display => "display",
            Self::Replay => "in a replay",
            Self::Snapshot => "in a snapshot",
            Self::Cluster => "many machines",
            Self::Recordings => "many machines' recordings",
            Self::Past => "the history of a rank",
            Self::Asking => "questions",
        }
    }
}

/// One line of the help: a command, and its keys.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    /// Where it applies.
    pub place: KeyContext,
    /// Its purpose.
    pub group: Group,
    /// What the key does.
    pub command: Command,
    /// The command of its last key, if that is the opposite.
    opposite: Option<Command>,
    /// Its keys as the help shows them.
    pub keys: &'static str,
    /// The help's text.
    pub help: &'static str,
    codes: &'static [(KeyModifiers, KeyCode)],
    /// The views that have it, of the keys of `Anywhere`.
    views: &'static [View],
    /// Why it is unavailable, whatever is selected; `None` if it is available.
    missing: fn(&Ui) -> Option<&'static str>,
}

/// What the keys of `Anywhere` may apply to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    /// One host, live or in a replay.
    Host,
    /// A memory snapshot.
    Snapshot,
    /// The list of many hosts.
    Cluster,
    /// The history of a rank.
    Past,
}

impl View {
    fn of(ui: &Ui) -> Self {
        match ui.source {
            Source::Snapshot => Self::Snapshot,
            Source::Store if ui.screen == Screen::Timeline => Self::Past,
            Source::Cluster | Source::Recordings | Source::Store => Self::Cluster,
            Source::Live | Source::Replay => Self::Host,
        }
    }
}

const NONE: KeyModifiers = KeyModifiers::NONE;
const CONTROL: KeyModifiers = KeyModifiers::CONTROL;
const SHIFT: KeyModifiers = KeyModifiers::SHIFT;

impl Binding {
    /// Returns why its command is unavailable, whatever is selected; `None` if it is available.
    pub fn unavailable(&self, ui: &Ui) -> Option<&'static str> {
        (self.missing)(ui)
    }

    /// Returns whether it is a key of `Anywhere` that this view has.
    fn is_shared(&self, ui: &Ui) -> bool {
        self.place == KeyContext::Anywhere && self.views.contains(&View::of(ui))
    }

    /// Returns the command of one of its keys.
    fn command_of(&self, pressed: (KeyModifiers, KeyCode)) -> Option<Command> {
        let at = self.codes.iter().position(|it| *it == pressed)?;
        Some(self.opposite.filter(|_| at + 1 == self.codes.len()).unwrap_or(self.command))
    }

    /// Returns the first of its keys with this command, as the help shows it.
    fn first(&self, command: Command) -> Option<&'static str> {
        let at = self.codes.iter().position(|it| self.command_of(*it) == Some(command))?;
        self.keys.split(' ').nth(at)
    }
}

impl KeyContext {
    /// Whether a place also has the keys of another one.
    fn has(self, other: Self) -> bool {
        let is_screen = matches!(self, Self::Timeline | Self::Snapshot | Self::Cluster | Self::Recordings | Self::Past);
        self == other || (is_screen && other == Self::Anywhere) || (self == Self::Recordings && other == Self::Cluster)
    }

    /// Returns whether keys are characters or answers here.
    pub fn is_asking(self) -> bool {
        matches!(self, Self::Filter | Self::Signal | Self::Allow | Self::Start)
    }

    /// Returns the place that has the keys now.
    pub fn of(ui: &Ui) -> Self {
        match ui.open_dialog() {
            Some(OpenDialog::Signal) => Self::Signal,
            Some(OpenDialog::Allow) => Self::Allow,
            Some(OpenDialog::Start) => Self::Start,
            Some(OpenDialog::Filter) => Self::Filter,
            None => Self::of_screen(ui),
        }
    }

    /// Returns the place of the screen, as if no question were open.
    fn of_screen(ui: &Ui) -> Self {
        match ui.source {
            Source::Snapshot => Self::Snapshot,
            Source::Store if ui.screen == Screen::Timeline => Self::Past,
            Source::Cluster | Source::Store => Self::Cluster,
            Source::Recordings => Self::Recordings,
            Source::Live | Source::Replay if ui.screen == Screen::Timeline => Self::Timeline,
            Source::Live | Source::Replay => Self::Anywhere,
        }
    }
}

/// Whether a key moves the timeline's cursor there, also in a replay.
fn seeks(code: KeyCode) -> bool {
    matches!(code, KeyCode::Left | KeyCode::Right | KeyCode::Home | KeyCode::End)
}

/// Whether a replay uses one of the keys of a line.
fn is_taken_by_replay(binding: &Binding, ui: &Ui) -> bool {
    let mut taken =
        BINDINGS.iter().filter(|it| it.place == KeyContext::Replay && ui.is_replay()).flat_map(|it| it.codes);
    taken.any(|it| binding.codes.contains(it) && !(seeks(it.1) && ui.screen == Screen::Timeline))
}

/// Whether a line is of this screen only.
fn is_own(binding: &Binding, ui: &Ui) -> bool {
    binding.place != KeyContext::Anywhere && KeyContext::of_screen(ui).has(binding.place)
}

/// Whether such a line has this key.
fn has_own(pressed: (KeyModifiers, KeyCode), ui: &Ui) -> bool {
    BINDINGS.iter().any(|it| is_own(it, ui) && it.codes.contains(&pressed))
}

/// Returns whether a line applies on the current screen: no key of the screen overrides it, and its command is
/// available.
pub fn reaches(binding: &Binding, ui: &Ui) -> bool {
    if !ui.is_of_one() {
        let is_replays = binding.place == KeyContext::Replay && ui.is_replay();
        return is_own(binding, ui)
            || (is_replays && !binding.codes.iter().any(|it| has_own(*it, ui)))
            || (binding.is_shared(ui) && !is_taken_by_replay(binding, ui));
    }
    if binding.unavailable(ui).is_some() {
        return false;
    }
    if binding.place == KeyContext::Replay {
        return ui.is_replay();
    }
    let here = if ui.screen == Screen::Timeline { KeyContext::Timeline } else { KeyContext::Anywhere };
    let taken = |it: &Binding| it.place == here && it.codes.iter().any(|code| binding.codes.contains(code));
    let is_taken = || BINDINGS.iter().any(taken) || is_taken_by_replay(binding, ui);
    binding.place == here || (binding.place == KeyContext::Anywhere && !is_taken())
}

/// Returns a command's first key as the footer shows it, if it has one on this screen.
pub fn first(command: Command, ui: &Ui) -> Option<&'static str> {
    if let Command::Device(_) = command {
        return Some("0-9");
    }
    BINDINGS.iter().filter(|it| reaches(it, ui)).find_map(|it| it.first(command))
}

/// Returns a key's command, if it has one. Only presses and repeats count.
pub fn command(key: KeyEvent, ui: &Ui) -> Option<Command> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    // Shift is already part of the character.
    let pressed = (key.modifiers - KeyModifiers::SHIFT, key.code);
    let place = KeyContext::of(ui);
    let bound = |applies: &dyn Fn(&Binding) -> bool| {
        BINDINGS.iter().filter(|it| applies(it)).find_map(|it| it.command_of(pressed))
    };
    let bound = || {
        bound(&|it| it.place == place)
            .or_else(|| bound(&|it| it.place == KeyContext::Cluster && place == KeyContext::Recordings))
            .or_else(|| bound(&|it| place.has(KeyContext::Anywhere) && it.is_shared(ui)))
    };
    of_replay(key, ui).or_else(bound).or(match (place, pressed) {
        // These keys quit in every place.
        (_, (CONTROL, KeyCode::Char('c'))) => Some(Command::Quit),
        (_, (CONTROL, KeyCode::Char('z'))) => Some(Command::Suspend),
        (it, (NONE, KeyCode::Char(digit @ '0'..='9'))) if it.has(KeyContext::Anywhere) && !ui.is_of_many() => {
            Some(Command::Device(digit as u8 - b'0'))
        }
        (KeyContext::Filter, (NONE, KeyCode::Char(letter))) => Some(Command::Edit(Edit::Type(letter))),
        // Any other key means no.
        (KeyContext::Allow | KeyContext::Start, _) => Some(Command::Back),
        (KeyContext::Signal, _) if ui.dialog.as_ref().is_some_and(|it| it.asked) => Some(Command::Back),
        _ => None,
    })
}

/// Returns a key's command in a replay.
fn of_replay(key: KeyEvent, ui: &Ui) -> Option<Command> {
    if !ui.is_replay() || KeyContext::of(ui).is_asking() || (seeks(key.code) && ui.screen == Screen::Timeline) {
        return None;
    }
    // With Shift, an arrow is another key.
    let is_arrow = matches!(key.code, KeyCode::Left | KeyCode::Right);
    let pressed = (if is_arrow { key.modifiers } else { key.modifiers - SHIFT }, key.code);
    if ui.is_of_many() && has_own(pressed, ui) {
        return None;
    }
    BINDINGS.iter().filter(|it| it.place == KeyContext::Replay).find_map(|it| it.command_of(pressed))
}

/// Returns the answer to a key without a command; `None` while keys are characters or answers.
pub fn unknown(key: KeyEvent, ui: &Ui) -> Option<String> {
    if key.kind == KeyEventKind::Release || KeyContext::of(ui).is_asking() {
        return None;
    }
    let pressed = (key.modifiers - KeyModifiers::SHIFT, key.code);
    let of = |place: KeyContext| BINDINGS.iter().find(|it| it.place == place && it.codes.contains(&pressed));
    let anywhere = of(KeyContext::Anywhere);
    let is_of_list =
        || of(KeyContext::Cluster).is_some() || anywhere.is_some_and(|it| it.views.contains(&View::Cluster));
    let what = match ui.source {
        Source::Live | Source::Replay if of(KeyContext::Timeline).is_some() => "a key of the timeline (t)",
        Source::Store if is_of_list() => "a key of the list (Esc)",
        Source::Store if anywhere.is_some() => "needs more than figures, as `ssh -t HOST gpuwatch` has",
        _ => "no such key",
    };
    Some(format!("{}: {what} · ? help", name(pressed)))
}

/// Formats a key: `x`, `Ctrl-x`, `Insert`.
fn name((modifiers, code): (KeyModifiers, KeyCode)) -> String {
    let held = [(CONTROL, "Ctrl-"), (KeyModifiers::ALT, "Alt-")];
    let held: String = held.iter().filter(|it| modifiers.contains(it.0)).map(|it| it.1).collect();
    format!("{held}{code}")
}

/// A heading with its keys.
pub struct Section {
    /// Their purpose, or where they apply.
    pub title: &'static str,
    /// Keys and their help texts.
    pub keys: Vec<(&'static str, &'static str)>,
}

/// Returns every key.
pub fn sections() -> Vec<Section> {
    let section = |title, wanted: &dyn Fn(&&Binding) -> bool| {
        let own = BINDINGS.iter().filter(wanted).map(|Binding { keys, help, .. }| (*keys, *help));
        Section { title, keys: own.collect() }
    };
    let mut all: Vec<Section> = Group::HELP.iter().map(|of| section(of.name(), &|it| it.group == *of)).collect();
    if let Some(it) = all.iter_mut().find(|it| it.title == Group::Moving.name()) {
        it.keys.push(DEVICES);
    }
    for group in [Group::Replay, Group::Snapshot, Group::Cluster, Group::Recordings, Group::Past] {
        all.push(section(group.name(), &|it| it.group == group));
    }
    let asking = [
        ("while a filter is typed", KeyContext::Filter),
        ("in the menu of signals", KeyContext::Signal),
        ("before an alert is expected", KeyContext::Allow),
        ("before a probe or a trace is started", KeyContext::Start),
    ];
    all.extend(asking.map(|(title, place)| section(title, &move |it| it.place == place)));
    all
}

/// Returns the same as a Markdown table: a row for each section.
pub fn markdown() -> String {
    let row = |it: &Section| {
        let keys: Vec<String> = it.keys.iter().map(entry).collect();
        format!("| {} | {} |\n", it.title, keys.join(" · "))
    };
    format!("| | |\n|---|---|\n{}", sections().iter().map(row).collect::<String>())
}

fn entry((keys, help): &(&str, &str)) -> String {
    let keys: Vec<_> = keys.split(' ').map(|it| format!("`{it}`")).collect();
    format!("{} {help}", keys.join(" "))
}

#[cfg(test)]
mod tests {
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
            (KeyCode::Char('1'), Some(Command::Device(1))),
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
            (Some(Command::Move(Motion::Up)), Some(Command::Device(2)))
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
}
