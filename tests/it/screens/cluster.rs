//! Many machines: as rows and as a map of their ranks, at every size, with hostile names.

/// The ranks of a store, and the past of one.
mod past;

use super::{Theme, theme};
use crate::helpers::story::{styles, text};
use gpuwatch::{
    facts::{
        event::ProbeId,
        text::Foreign,
        units::{Bytes, Stamp},
    },
    model::{
        analysis::severity::Severity,
        cluster::{
            Link,
            overview::{Concern, JobRow, NodeRow, Overview, RankRow, figure::RankFigure},
        },
    },
    screen::{
        theme::ColorDepth,
        ui::{
            Command, Motion, Ui,
            cluster_ui::{self, ClusterCommand, ClusterUi, Opening},
            mouse::{Mouse, Regions, Target},
        },
        view::cluster::paint,
    },
    storage::replay::{Position as Moment, Progress},
};
use ratatui::{
    buffer::Buffer,
    layout::{Position, Rect},
};

const SIZES: [(u16, u16); 4] = [(40, 12), (80, 24), (120, 40), (200, 60)];

const GIB: u64 = 1 << 30;

fn concern(severity: Severity, title: &str) -> Concern {
    Concern { severity, title: title.to_owned() }
}

/// Machines of eight ranks, all of one job: the ninth rank leaks, the thirteenth is slow, and the fourth machine
/// refuses.
fn machines(count: usize) -> Overview {
    let node = |it: usize| NodeRow {
        host: Foreign::new(format!("node{:02}", it + 1)),
        link: Link::Up,
        devices: 8,
        memory: Some((Bytes(500 * GIB), Bytes(640 * GIB))),
        probes: 8,
        worst: (it == 1).then(|| concern(Severity::Critical, "memory grows 4.00 MiB a step")),
        clock_us: Some(if it == 2 { 3_200_000 } else { 40 }),
    };
    let rank = |it: u32| RankRow {
        node: it as usize / 8,
        job: Some(0),
        probe: Some((ProbeId(it % 8), 0)),
        rank: Some(u64::from(it)),
        pid: Some(4000 + it),
        step: Some(10_204 - u64::from(it % 3)),
        figures: [
            (RankFigure::Device, Some(if it == 8 { 0.97 } else { 0.76 + f64::from(it % 5) / 100.0 })),
            (RankFigure::Allocated, Some((60 * GIB + u64::from(it % 7) * GIB / 8) as f64)),
            (RankFigure::Growth, Some(if it == 8 { 4_194_304.0 } else { 0.0 })),
            (RankFigure::StepTime, Some(if it == 12 { 0.61 } else { 0.41 })),
        ]
        .into_iter()
        .collect(),
        worst: match it {
            8 => Some(concern(Severity::Critical, "memory grows 4.00 MiB a step")),
            12 => Some(concern(Severity::Warning, "one rank is slower than the others")),
            _ => None,
        },
        ..RankRow::default()
    };
    let mut nodes: Vec<NodeRow> = (0..count).map(node).collect();
    let mut ranks: Vec<RankRow> = (0..u32::try_from(count * 8).unwrap()).map(rank).collect();
    if let Some(it) = nodes.get_mut(3) {
        let why = "ssh: connect to host node04 port 22: No route to host".to_owned();
        *it = NodeRow { host: it.host.clone(), link: Link::refused(why), ..NodeRow::default() };
        ranks.retain(|rank| rank.node != 3);
    }
    if let Some(it) = ranks.last_mut() {
        it.ended = true;
    }
    let job = JobRow {
        name: "slurm 4242".into(),
        expected: Some(count as u64 * 8),
        findings: vec![concern(Severity::Critical, "memory grows 4.00 MiB a step on rank 8 on node02")],
        ..JobRow::default()
    };
    Overview::new(nodes, vec![job], ranks)
}

fn hostile() -> Overview {
    let mut all = machines(5);
    let escape = "\u{1b}]0;x\u{7}\u{202e}训练".repeat(40);
    for it in &mut all.nodes {
        it.host = escape.as_str().into();
        it.link = Link::incompatible(escape.clone());
        it.clock_us = Some(i64::MIN);
        it.memory = Some((Bytes(u64::MAX), Bytes(u64::MAX)));
    }
    for it in &mut all.jobs {
        it.name = escape.as_str().into();
        it.expected = Some(u64::MAX);
    }
    for it in &mut all.ranks {
        (it.rank, it.step, it.node) = (Some(u64::MAX), Some(u64::MAX), it.node * 3);
        it.figures.set(RankFigure::Allocated, Some(f64::MAX));
        it.figures.set(RankFigure::Full, Some(-1.0));
    }
    all
}

fn picture(overview: &Overview, ui: &ClusterUi, theme: &Theme, (width, height): (u16, u16)) -> (Buffer, Regions) {
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    let drawn = paint(&mut buffer, overview, ui, theme, None);
    (buffer, drawn.regions)
}

fn ui() -> ClusterUi {
    ClusterUi::new(Ui::default())
}

fn shown(overview: &Overview, ui: &ClusterUi, size: (u16, u16)) -> String {
    text(&picture(overview, ui, &theme("dusk"), size).0)
}

#[test]
fn machines_and_maps_look_like_this_at_every_size() {
    for (name, overview) in [("machines", machines(5)), ("map", machines(16))] {
        for size in SIZES {
            let drawn = picture(&overview, &ui(), &theme("dusk"), size).0;
            insta::assert_snapshot!(format!("{name}-{}x{}-text", size.0, size.1), text(&drawn));
            insta::assert_snapshot!(format!("{name}-{}x{}-style", size.0, size.1), styles(&drawn));
        }
    }
    let mut help = ui();
    help.base.help = true;
    insta::assert_snapshot!("machines-help", shown(&machines(5), &help, (120, 40)));
}

#[test]
fn recordings_stand_at_a_moment_at_every_size() {
    let overview = machines(5);
    let ui = ClusterUi::of_recordings(Ui::default());
    let at =
        Moment { at: Stamp(30_000_000), to: Stamp(60_000_000), step: Some(400), percent: 100, ..Moment::default() };
    let drawn = |(width, height), progress: &Progress| {
        let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
        paint(&mut buffer, &overview, &ui, &theme("dusk"), Some(progress));
        text(&buffer)
    };
    let all = drawn((80, 24), &Progress::At(at.clone()));
    assert!(all.contains("║ 1×  0:00:30") && all.contains("step 400") && all.contains("Space play"), "{all}");
    let small = drawn((40, 12), &Progress::At(at.clone()));
    assert!(small.contains("node02") && small.contains("step 400"), "{small}");
    let reading = drawn((80, 24), &Progress::Loading { read: 1, total: 4, preview: false });
    assert!(reading.contains("reading the recording: 25 %"), "{reading}");
    for size in (0..50).step_by(7).flat_map(|width| (0..14).map(move |height| (width, height))) {
        drawn(size, &Progress::At(at.clone()));
    }
}

#[test]
fn machines_that_need_attention_are_first_and_the_reason_of_a_link_is_in_its_row() {
    let all = shown(&machines(5), &ui(), (120, 40));
    let rows: Vec<&str> = all.lines().filter(|it| it.trim_start().starts_with("node")).collect();
    assert!(rows[0].contains("node02") && rows[0].contains("critical: memory grows 4.00 MiB a step"), "{all}");
    assert!(rows[1].contains("node04") && rows[1].contains("refused") && rows[1].contains("ssh: connect"), "{all}");
    assert!(rows.iter().any(|it| it.contains("node03") && it.contains("clock 3.20 s ahead")), "{all}");
    assert!(all.contains("2 need attention") && all.contains("4 up") && all.contains("31 of 40 ranks"), "{all}");
    assert!(all.contains("worst 97 % on node02, median 78 %, 1 outlier"), "{all}");
}

#[test]
fn a_map_has_a_cell_for_each_of_128_ranks_that_reads_without_colours() {
    let overview = machines(16);
    let plain = theme("plain").at(ColorDepth::None).in_ascii();
    for size in [(80, 24), (120, 40)] {
        let (drawn, regions) = picture(&overview, &ui(), &plain, size);
        let all = text(&drawn);
        assert!(all.is_ascii(), "{all}");
        let cells: Vec<_> =
            drawn.area.positions().filter_map(|it| Some((it, regions.at(it).next()?.1.clone()))).collect();
        let first = |place: usize| cells.iter().find(|it| it.1 == Target::Line(place)).unwrap().0;
        let sign = |place: usize| {
            let at = first(place);
            [at.x, at.x + 1].map(|x| drawn.cell((x, at.y)).unwrap().symbol().to_owned()).concat()
        };
        assert!(cells.iter().any(|it| it.1 == Target::Line(119)), "120 ranks of 15 machines");
        assert_eq!([sign(0), sign(1), sign(2), sign(119)], ["9!", "7+", "8 ", "x "], "{all}");
    }
}

#[test]
fn a_cell_that_is_selected_is_described_and_opens_its_machine() {
    let overview = machines(16);
    let mut it = ClusterUi { columns: 39, ..ui() };
    let all = shown(&overview, &it, (80, 24));
    assert!(all.contains("rank 8 on node02, pid 4008, slurm 4242"), "{all}");
    assert!(all.contains("critical: memory grows 4.00 MiB a step · step"), "{all}");
    it.update(Command::Move(Motion::Right), &overview);
    assert!(shown(&overview, &it, (80, 24)).contains("rank 12 on node02"));
    let (drawn, regions) = picture(&overview, &it, &theme("dusk"), (80, 24));
    let at = |wanted: Target| drawn.area.positions().find(|it| regions.at(*it).any(|own| *own.1 == wanted)).unwrap();
    it.mouse(Mouse::Press(at(Target::Line(0))), &regions, &overview);
    assert!(shown(&overview, &it, (80, 24)).contains("rank 8 on node02"));
    it.mouse(Mouse::Double(at(Target::Line(0))), &regions, &overview);
    assert_eq!(it.opening.take(), Some(Opening { node: 1, rank: Some(8) }));
    // The keys of the last line can be clicked.
    let map = Command::Cluster(ClusterCommand::Map);
    it.mouse(Mouse::Press(at(Target::Key(map))), &regions, &overview);
    assert!(shown(&overview, &it, (80, 24)).contains("machines by device"));
    it.mouse(Mouse::Wheel(Position::new(5, 12), false), &regions, &overview);
    assert_eq!(it.node, Some(3), "one row further");
}

#[test]
fn another_figure_has_its_own_worst_rank_and_unknown_figures_are_no_zeros() {
    let overview = machines(16);
    let mut it = ui();
    for _ in 0..6 {
        it.update(Command::Cluster(ClusterCommand::NextFigure), &overview);
    }
    assert_eq!(it.figure, RankFigure::StepTime);
    let all = shown(&overview, &it, (120, 40));
    assert!(all.contains("ranks by step time") && all.contains("worst 610 ms on node02, median 410 ms"), "{all}");
    it.figure = RankFigure::Temperature;
    let all = shown(&overview, &it, (120, 40));
    assert!(all.contains("ranks by temperature") && all.contains(" - - - "), "{all}");
    assert!(!all.contains("median"), "{all}");
}

#[test]
fn no_size_is_too_small_and_no_name_reaches_the_terminal_unescaped() {
    let heights: Vec<u16> = (0..14).chain([20, 24, 40, 100]).collect();
    let widths: Vec<u16> = (0..4).chain([9, 20, 36, 40, 72, 80, 112, 160, 300]).collect();
    let map = ClusterUi { shape: Some(cluster_ui::Shape::Map), ..ui() };
    let mut help = ui();
    help.base.help = true;
    for overview in [Overview::default(), machines(1), machines(70), hostile()] {
        for ui in [&ui(), &map, &help] {
            for size in widths.iter().flat_map(|width| heights.iter().map(move |height| (*width, *height))) {
                let (drawn, regions) = picture(&overview, ui, &theme("dusk"), size);
                let all = text(&drawn);
                assert!(all.chars().all(|c| c == '\n' || !c.is_control()) && !all.contains('\u{202e}'), "{all:?}");
                for at in drawn.area.positions() {
                    assert!(regions.at(at).count() <= 1, "{size:?} {at}");
                    assert!(regions.at(at).all(|it| drawn.area.intersection(it.0) == it.0), "{size:?} {at}");
                }
            }
        }
    }
}

#[test]
fn an_empty_list_shows_why() {
    let mut it = ui();
    it.base.filter.text = "nothing".to_owned();
    assert!(shown(&machines(5), &it, (80, 24)).contains("no machine matches the filter"));
    assert!(shown(&machines(16), &it, (80, 24)).contains("no rank matches the filter"));
    it = ClusterUi { shape: Some(cluster_ui::Shape::Map), ..ui() };
    assert!(shown(&Overview::default(), &it, (80, 24)).contains("no rank yet"));
}
