//! The ranks of a store of figures, and the past of one of them: at every size, with every answer.

use super::*;
use gpuwatch::{
    model::cluster::{Answers, Past},
    screen::{
        ui::{Chart, cluster_ui::Shape},
        view::cluster::paint_store,
    },
};

/// A store whose rank 8 grows for half an hour after a gap.
fn answers() -> Answers {
    let points = (0..240).filter(|it| !(60..90).contains(it));
    let value = |it: u64| (60 * GIB + it.saturating_sub(120) * GIB / 16) as f64;
    let points = points.map(|it| (1_700_000_000_000_000 + (it + 1) * 15_000_000, value(it))).collect();
    let past = Past { end_us: Some(1_700_003_600_000_000), points, ..Past::awaited(RankFigure::Allocated, 3600) };
    let store = "http://127.0.0.1:9090".into();
    Answers { store, age_us: Some(3_000_000), past: Some(past), ..Answers::default() }
}

/// The same without a past.
fn rows() -> Answers {
    Answers { past: None, ..answers() }
}

fn of_store() -> ClusterUi {
    ClusterUi { figure: RankFigure::Allocated, ..ClusterUi::of_store(Ui::default()) }
}

/// The worst rank's past is open.
fn opened(overview: &Overview) -> ClusterUi {
    let mut ui = of_store();
    ui.update(Command::Open, overview);
    let opening = ui.opening.take().unwrap();
    ui.open_past(opening, overview);
    ui
}

fn drawn(overview: &Overview, ui: &ClusterUi, answers: &Answers, (width, height): (u16, u16)) -> Buffer {
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    paint_store(&mut buffer, overview, ui, &theme("dusk"), answers);
    buffer
}

fn seen(ui: &ClusterUi, answers: &Answers) -> String {
    text(&drawn(&machines(16), ui, answers, (120, 24)))
}

#[test]
fn the_past_of_a_rank_looks_like_this_at_every_size() {
    let overview = machines(16);
    for size in [(40, 12), (80, 24), (120, 40)] {
        let drawn = drawn(&overview, &opened(&overview), &answers(), size);
        insta::assert_snapshot!(format!("past-{}x{}-text", size.0, size.1), text(&drawn));
        insta::assert_snapshot!(format!("past-{}x{}-style", size.0, size.1), styles(&drawn));
    }
}

#[test]
fn the_first_line_has_the_store_and_the_age_of_its_figures_and_a_failure_has_a_line_of_its_own() {
    let fresh = seen(&of_store(), &rows());
    assert!(fresh.starts_with("gpuwatch  http://127.0.0.1:9090  3 s old  2 need attention  16 machines"), "{fresh}");
    assert!(fresh.contains("Enter history") && !fresh.contains(" up "), "{fresh}");
    let late = Answers { age_us: Some(125_000_000), trouble: Some("it is away\u{1b}[2J".into()), ..rows() };
    let all = seen(&of_store(), &late);
    assert!(all.contains("  2 min old  ") && all.contains("\n it is away\\u{1b}[2J\n"), "{all}");
    assert!(all.contains("rank 8 on node02"), "{all}");
    let nothing = |answers: &Answers| text(&drawn(&Overview::default(), &of_store(), answers, (120, 24)));
    assert!(nothing(&Answers { age_us: None, ..rows() }).contains("\n asking http://127.0.0.1:9090\n"));
    assert!(nothing(&rows()).contains("http://127.0.0.1:9090 has no figures of `gpuwatch serve` with these labels"));
    assert!(nothing(&Answers { age_us: None, ..late }).contains("gpuwatch asks again"));
}

#[test]
fn a_past_without_points_shows_why() {
    let past = |change: fn(&mut Past)| {
        let mut past = Past::awaited(RankFigure::Allocated, 3600);
        change(&mut past);
        seen(&opened(&machines(16)), &Answers { past: Some(past), ..answers() })
    };
    assert!(past(|_| ()).contains("\n asking http://127.0.0.1:9090\n"));
    assert!(past(|it| it.end_us = Some(1)).contains("has no value of the last hour"));
    assert!(past(|it| it.trouble = Some("it is away".into())).contains("\n it is away\n"));
    // An answer for another figure is not this figure's past.
    let other = past(|it| (it.figure, it.end_us) = (RankFigure::Full, Some(1)));
    assert!(other.contains("asking http"), "{other}");
    let mut gone = opened(&machines(16));
    gone.follow(&machines(16), &machines(16), None);
    let all = seen(&gone, &answers());
    assert!(all.contains("allocated, the last hour: a rank without current figures") && all.contains('█'), "{all}");
}

#[test]
fn keys_change_figure_span_and_rank_of_a_past_and_others_are_not_offered() {
    let overview = machines(16);
    let mut it = opened(&overview);
    let all = seen(&it, &answers());
    assert!(all.contains("Esc back  q quit") && !all.contains("freeze") && !all.contains("filter"), "{all}");
    for (command, words) in [
        (Command::Cluster(ClusterCommand::NextFigure), "per step, the last hour: rank 8 "),
        (Command::Chart(Chart::Minus), "per step, the last 6 hours: rank 8 "),
        (Command::Move(Motion::Down), "per step, the last 6 hours: rank 12 "),
        (Command::Move(Motion::Up), "per step, the last 6 hours: rank 8 "),
        (Command::Help, "the history of a rank"),
        (Command::Back, "per step, the last 6 hours: rank 8 "),
        (Command::Back, "ranks by per step"),
    ] {
        it.update(command, &overview);
        let all = seen(&it, &answers());
        assert!(all.contains(words), "{command:?} {words}: {all}");
    }
}

#[test]
fn every_past_is_drawn_at_every_size_without_a_control_character() {
    let endless = Past { points: vec![(0, f64::MIN), (u64::MAX, f64::MAX), (3, 0.0)], ..answers().past.unwrap() };
    let flat = Past { points: vec![(1_700_003_000_000_000, 0.0)], ..answers().past.unwrap() };
    let words = Foreign::new("\u{1b}]0;x\u{7}\u{202e}训练".repeat(40));
    let all = [
        answers(),
        Answers { past: Some(endless), ..answers() },
        Answers { past: Some(flat), trouble: Some(words.clone()), ..answers() },
        Answers { store: words, age_us: Some(u64::MAX), ..rows() },
        Answers::default(),
    ];
    for overview in [machines(16), hostile(), Overview::default()] {
        let map = ClusterUi { shape: Some(Shape::Map), ..of_store() };
        let past = if overview.ranks.is_empty() { of_store() } else { opened(&overview) };
        for (ui, answers) in [&map, &past].into_iter().flat_map(|ui| all.iter().map(move |it| (ui, it))) {
            for size in (0..130).step_by(13).flat_map(|width| (0..14).chain([24, 50]).map(move |it| (width, it))) {
                let all = text(&drawn(&overview, ui, answers, size));
                assert!(all.chars().all(|c| c == '\n' || !c.is_control()) && !all.contains('\u{202e}'), "{all:?}");
            }
        }
    }
}
