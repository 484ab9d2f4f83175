//! Orders, and what follows from rows.

use super::*;

fn node(host: &str, link: Link, severity: Option<Severity>) -> NodeRow {
    let worst = severity.map(|severity| Concern { severity, title: "x".to_owned() });
    NodeRow { host: host.into(), link, devices: 8, memory: None, probes: 8, worst, clock_us: None }
}

fn rank(node: usize, job: usize, rank: u64, allocated: f64) -> RankRow {
    let figures = [(RankFigure::Allocated, Some(allocated))].into_iter().collect();
    RankRow { node, job: Some(job), rank: Some(rank), step: Some(100), figures, ..RankRow::default() }
}

fn overview(nodes: usize, ranks: Vec<RankRow>) -> Overview {
    let nodes = (0..nodes).map(|it| node(&format!("node{it}"), Link::Up, None));
    Overview::new(nodes.collect(), vec![JobRow::default(), JobRow::default()], ranks)
}

const GIB: f64 = 1_073_741_824.0;

#[test]
fn machines_that_need_attention_come_first() {
    let nodes = vec![
        node("fine", Link::Up, None),
        node("info", Link::Up, Some(Severity::Info)),
        node("refused", Link::refused("no route".to_owned()), None),
        node("new", Link::Connecting, None),
        node("critical", Link::Up, Some(Severity::Critical)),
        node("warning", Link::Up, Some(Severity::Warning)),
    ];
    let it = Overview::new(nodes, Vec::new(), Vec::new());
    let order: Vec<&str> = it.node_order().into_iter().map(|place| it.nodes[place].host.raw()).collect();
    assert_eq!(order, ["critical", "refused", "warning", "info", "fine", "new"]);
}

#[test]
fn ranks_come_by_severity_then_as_outliers_of_their_job_then_by_the_figure() {
    // The ranks of the second job all have more than the outlier of the first.
    let mut ranks: Vec<RankRow> = (0..8).map(|it| rank(0, 0, it, if it == 5 { 2.0 * GIB } else { GIB })).collect();
    ranks.extend((0..4).map(|it| rank(1, 1, it, 40.0 * GIB)));
    ranks[1].worst = Some(Concern { severity: Severity::Critical, title: "x".to_owned() });
    ranks[8].ended = true;
    let it = overview(2, ranks);
    let order = it.rank_order(RankFigure::Allocated);
    assert_eq!(order, [1, 5, 9, 10, 11, 0, 2, 3, 4, 6, 7, 8]);
    assert_eq!(it.outliers(RankFigure::Allocated), [5].into());
    assert_eq!(it.rank_order(RankFigure::Temperature).len(), 12, "ranks without a value are listed");
    let spread = it.spread(RankFigure::Allocated, Some(0)).unwrap();
    assert_eq!((spread.worst, spread.median, spread.count), (2.0 * GIB, GIB, 8));
    assert_eq!(it.spread(RankFigure::Allocated, None).unwrap().count, 11);
}

#[test]
fn a_job_has_its_machines_its_steps_and_how_far_each_rank_is_behind() {
    let mut ranks: Vec<RankRow> = (0..4).map(|it| rank(usize::from(it > 1), 0, it, GIB)).collect();
    ranks[3].step = Some(60);
    ranks[0].step = Some(101);
    let it = overview(2, ranks);
    let job = &it.jobs[0];
    assert_eq!((job.present, job.nodes, job.steps), (4, 2, Some((60, 101))));
    let behind: Vec<_> = it.ranks.iter().map(|it| it.figures.get(RankFigure::Behind)).collect();
    assert_eq!(behind, [Some(0.0), Some(0.0), Some(0.0), Some(40.0)]);
    assert_eq!((it.jobs[1].present, it.jobs[1].steps), (0, None));
}

#[test]
fn rows_that_name_no_machine_and_no_job_change_nothing() {
    let it = overview(1, vec![rank(9, 9, 0, GIB), RankRow::default()]);
    assert_eq!((it.rank_order(RankFigure::Behind).len(), it.jobs[0].present), (2, 0));
    assert_eq!(Overview::default().rank_order(RankFigure::Device), Vec::<usize>::new());
}
