//! Selecting among machines and ranks.

use super::*;
use crate::{
    facts::{event::ProbeId, text::Foreign},
    model::cluster::{
        Link,
        overview::{NodeRow, RankRow, figure::Figures},
    },
    screen::ui::Edit,
};

/// Machines with eight ranks each, all of one job.
fn overview(machines: usize) -> Overview {
    let node = |it: usize| NodeRow {
        host: Foreign::new(format!("node{it}")),
        link: Link::Up,
        devices: 8,
        memory: None,
        probes: 8,
        worst: None,
        clock_us: None,
    };
    let rank = |(it, number): (usize, u32)| RankRow {
        node: it / 8,
        rank: Some(u64::from(number)),
        probe: Some((ProbeId(number % 8), 0)),
        figures: Figures::from_iter([(RankFigure::Device, Some(f64::from(number) / 1000.0))]),
        ..RankRow::default()
    };
    Overview::new((0..machines).map(node).collect(), Vec::new(), (0..machines * 8).zip(0..).map(rank).collect())
}

fn press(ui: &mut ClusterUi, overview: &Overview, commands: &[Command]) {
    for it in commands {
        ui.update(*it, overview);
    }
}

const MAP: Command = Command::Cluster(ClusterCommand::Map);

#[test]
fn many_ranks_begin_as_a_map_and_a_key_shows_the_machines() {
    let (few, many) = (overview(2), overview(16));
    let mut ui = ClusterUi::new(Ui::default());
    assert_eq!((ui.shape(&few), ui.shape(&many)), (Shape::Machines, Shape::Map));
    press(&mut ui, &many, &[MAP]);
    assert_eq!((ui.shape(&few), ui.shape(&many)), (Shape::Machines, Shape::Machines));
}

#[test]
fn the_selection_moves_by_rows_and_cells_and_follows_what_it_is_on() {
    use Motion::{Down, First, Last, Left, Right, Up};

    let all = overview(16);
    let mut ui = ClusterUi { columns: 10, order: Order::Name, ..ClusterUi::new(Ui::default()) };
    press(&mut ui, &all, &[Down, Right, Down, Left, Up, Right, Right].map(Command::Move));
    assert_eq!(ui.rank.map(|it| it.rank), Some(Some(12)));
    // In another order, it is still selected.
    press(&mut ui, &all, &[Command::Order]);
    assert_eq!((ui.order, ui.ranks(&all)[0]), (Order::Attention, 127));
    let opening = Opening { node: 1, rank: Some(12) };
    assert_eq!(ui.selected(&all), Some(opening));
    press(&mut ui, &all, &[Command::Open]);
    assert_eq!(ui.opening.take(), Some(opening));
    press(&mut ui, &all, &[MAP, Command::Move(Last), Command::Move(Down), Command::Move(Up)]);
    assert_eq!(ui.node, Some(14));
    press(&mut ui, &all, &[Command::Move(First), Command::Copy]);
    assert_eq!((ui.node, ui.base.request.take()), (Some(0), Some(Request::Copy("node0".to_owned()))));
}

#[test]
fn a_filter_lists_what_contains_its_text_and_esc_clears_it() {
    let all = overview(16);
    let mut ui = ClusterUi::new(Ui::default());
    press(&mut ui, &all, &[Command::Filter]);
    let typed: Vec<Command> = "RANK 12".chars().map(|it| Command::Edit(Edit::Type(it))).collect();
    press(&mut ui, &all, &typed);
    assert_eq!(ui.ranks(&all).len(), 9, "12 and 120 to 127");
    press(&mut ui, &all, &[Command::Open, Command::Open]);
    assert!(ui.opening.take().is_some() && !ui.base.filter.typing);
    press(&mut ui, &all, &[Command::Back]);
    assert_eq!(ui.ranks(&all).len(), 128);
    ui.base.filter.text = "nothing".to_owned();
    press(&mut ui, &all, &[Command::Open, Command::Move(Motion::Down), MAP, Command::Open]);
    assert_eq!((ui.opening, ui.nodes(&all).len()), (None, 0));
}

#[test]
fn the_figure_is_the_next_in_the_table_and_orders_machines_by_their_worst_rank() {
    let all = overview(3);
    let mut ui = ClusterUi { order: Order::Figure, ..ClusterUi::new(Ui::default()) };
    assert_eq!(ui.nodes(&all), [2, 1, 0]);
    press(&mut ui, &all, &[Command::Cluster(ClusterCommand::NextFigure)]);
    assert_eq!((ui.figure, ui.nodes(&all)), (RankFigure::Allocated, vec![0, 1, 2]));
    press(&mut ui, &all, &[Command::Cluster(ClusterCommand::PreviousFigure)]);
    assert_eq!(ui.figure, RankFigure::Device);
    // A store has only some figures.
    let mut all = all;
    all.ranks[5].figures.set(RankFigure::StepTime, Some(0.1));
    let mut ui = ClusterUi::of_store(Ui::default());
    let figures = [(); 3].map(|()| {
        press(&mut ui, &all, &[Command::Cluster(ClusterCommand::NextFigure)]);
        ui.figure
    });
    assert_eq!(figures, [RankFigure::StepTime, RankFigure::Device, RankFigure::StepTime]);
}

#[test]
fn a_past_opens_on_a_rank_or_on_the_worst_rank_of_a_machine_and_esc_closes_it() {
    let all = overview(2);
    let mut ui = ClusterUi::of_store(Ui::default());
    press(&mut ui, &all, &[Command::Move(Motion::Down), Command::Open]);
    let opening = ui.opening.take().unwrap();
    assert_eq!(opening, Opening { node: 1, rank: None });
    ui.open_past(opening, &all);
    assert_eq!((ui.is_past(), ui.chosen(&all)), (true, Some(15)));
    press(&mut ui, &all, &[Command::Move(Motion::Down), Command::Back]);
    assert_eq!((ui.is_past(), ui.chosen(&all), ui.node), (false, Some(14), Some(1)));
    let mut empty = overview(1);
    empty.ranks.clear();
    ui.open_past(Opening { node: 0, rank: None }, &empty);
    assert!(!ui.is_past() && ui.base.status.as_ref().is_some_and(|it| it.starts_with("node0 has no rank")));
}

#[test]
fn the_selection_stays_on_its_machine_and_its_rank_in_another_answer() {
    let (before, mut now) = (overview(2), overview(3));
    // A machine that comes first moves the others.
    now.nodes.rotate_right(1);
    for it in &mut now.ranks {
        it.node = (it.node + 1) % 3;
    }
    let mut ui = ClusterUi { node: Some(1), rank: Some(before.ranks[9].id()), ..ClusterUi::of_store(Ui::default()) };
    ui.follow(&before, &now, Some(9));
    assert_eq!((ui.node, ui.chosen(&now)), (Some(2), Some(9)));
    ui.follow(&now, &before, None);
    assert_eq!((ui.node, ui.chosen(&before)), (Some(1), None), "the rank is gone");
    ui.follow(&before, &now, Some(9));
    assert_eq!(ui.chosen(&now), Some(9), "and back");
}

#[test]
fn a_span_is_from_a_quarter_of_an_hour_to_a_week() {
    use crate::screen::ui::Chart;

    let mut ui = ClusterUi::of_store(Ui::default());
    let mut spans = Vec::new();
    for _ in 0..5 {
        spans.push(ui.span.seconds());
        press(&mut ui, &overview(1), &[Command::Chart(Chart::Minus)]);
    }
    assert_eq!(spans, [3600, 21_600, 86_400, 604_800, 604_800]);
    press(&mut ui, &overview(1), &[Command::Chart(Chart::Plus); 6]);
    assert_eq!((ui.span.seconds(), ui.span.name()), (900, "15 minutes"));
}
