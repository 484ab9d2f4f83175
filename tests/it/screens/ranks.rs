//! Ranks side by side: the worst, the median and who holds more than the others; many of them stay readable.

use super::theme;
use crate::story::{fleet, picture, text};
use gpuwatch::screen::ui::{Command, Focus, Motion, Scope, Ui};

#[test]
fn sixty_four_ranks_fit_on_one_screen() {
    let session = fleet(64).session();
    let ui = Ui { scope: Scope::All, focus: Focus::Processes, ..Ui::default() };
    for (width, height) in [(80, 24), (200, 60)] {
        let shown = text(&picture(&session, &ui, &theme("dusk"), width, height));
        insta::assert_snapshot!(format!("fleet-{width}x{height}"), shown);
        assert!(shown.contains(" · rank 5 holds 1.49 × the median"), "{shown}");
        let of = |phrase: &str| {
            let line = shown.lines().find(|it| it.ends_with(phrase)).unwrap_or_default();
            line.split_whitespace().take(3).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(of("worst of 64"), ["57", "60.00", "GiB"], "{shown}");
        assert_eq!(of("median"), ["60", "40.32", "GiB"], "{shown}");
        let rows = shown.lines().filter(|it| it.contains("  python train.")).count();
        assert!(rows >= usize::from(height) - 11, "{rows} of {height}\n{shown}");
        assert!(shown.contains(&format!("rows 1–{rows} ─")), "{shown}");
    }
}

#[test]
fn every_rank_can_be_selected_and_its_position_is_shown() {
    let session = fleet(64).session();
    let mut ui = Ui { scope: Scope::All, focus: Focus::Processes, ..Ui::default() };
    for rank in 0..64 {
        let shown = text(&picture(&session, &ui, &theme("dusk"), 80, 24));
        assert!(shown.lines().any(|it| it.contains(&format!(" {} ", 5000 + rank))), "{rank}\n{shown}");
        ui.update(Command::Move(Motion::Down), &session);
    }
    let shown = text(&picture(&session, &ui, &theme("dusk"), 80, 24));
    assert!(shown.contains("–64 ─"), "{shown}");
}

#[test]
fn two_ranks_have_no_median_and_even_ones_are_called_even() {
    let shown = |ranks| {
        let ui = Ui { scope: Scope::All, ..Ui::default() };
        text(&picture(&fleet(ranks).session(), &ui, &theme("dusk"), 80, 24))
    };
    assert!(!shown(2).contains("median"), "{}", shown(2));
    assert!(shown(4).contains("even: at most 1.00 × the median"), "{}", shown(4));
}
