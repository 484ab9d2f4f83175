//! What screens, `once` and `check` show of a job whose probe was started late: made from events, without a job.

use crate::helpers::story::{GIB, MIB, Story, counters, picture, text};
use gpuwatch::{
    facts::event::wire::{Hello, Line},
    model::{alerts::Policy, session::Session},
    screen::{
        theme::Theme,
        ui::{Focus, Screen, Ui},
    },
};

/// A process that grows from `since` on, whose probe was started before step `first`.
fn attached(first: u64, since: u64) -> Session {
    let mut story = Story::default();
    story.device(0, 90 * GIB, &[]).probe(0, 4240, 0, None);
    let before = story.session().processes[0].hello.clone().unwrap();
    let unix_us = 1_800_000_000_000_000;
    let late = Hello {
        unix_us,
        start_us: Some(unix_us - 7_200_000_000),
        attached_us: Some(unix_us - 60_000_000),
        attached_step: Some(first),
        ..*before
    };
    story.line(0, Line::Hello(late));
    for step in first..first + 400 {
        let grown = step.saturating_sub(since) * 4 * MIB;
        story.wait(100_000).sample(0, step, counters(20 * GIB + grown, GIB));
    }
    story.session()
}

fn since(session: &Session) -> String {
    let findings = Policy::default().findings(session);
    findings.all.iter().find(|it| it.is_own_growth()).unwrap().since()
}

#[test]
fn growth_that_may_be_older_than_the_probe_is_since_attachment() {
    assert_eq!(since(&attached(1, 0)), "attachment");
    assert_eq!(since(&attached(1200, 0)), "attachment");
    assert!(since(&attached(1, 150)).ends_with(" after attachment"), "{}", since(&attached(1, 150)));
    let later = since(&attached(1200, 1350));
    assert!(later.starts_with("step 13"), "{later}");
}

#[test]
fn every_screen_shows_that_a_probe_was_started_late() {
    let session = attached(1200, 0);
    let theme = Theme::builtin("dusk").unwrap();
    let shown = |screen| {
        let ui = Ui { screen, focus: Focus::Processes, ..Ui::default() };
        text(&picture(&session, &ui, &theme, 160, 50))
    };
    let process = shown(Screen::Process);
    assert!(process.contains("up 2 h") && process.contains("attached at step 1200"), "{process}");
    assert!(process.contains("attached ") && process.contains(" ago"), "{process}");
    for screen in [Screen::Alerts, Screen::Timeline] {
        let words = shown(screen);
        assert!(words.contains("since attachment") && !words.contains("since step"), "{words}");
    }
}
