//! The fold of a cluster: the states of links, clocks, and sessions that begin again.

use super::*;
use crate::facts::event::Fact;

fn cluster() -> Cluster {
    Cluster::new(["a", "b"].map(str::to_owned), Stamp(0))
}

fn apply(cluster: &mut Cluster, node: usize, at: u64, what: What) {
    cluster.apply(HostUpdate { node, at: Stamp(at), what });
}

fn greeting() -> What {
    What::Greeting(Greeting {
        gpuwatch: "1".into(),
        host: "a".into(),
        started_unix_us: 1,
        monotonic_us: 1,
        boot_id: None,
    })
}

fn links(cluster: &Cluster) -> [&'static str; 2] {
    [cluster.nodes[0].link.name(), cluster.nodes[1].link.name()]
}

#[test]
fn a_machine_that_sends_nothing_is_silent_and_delays_no_other() {
    let mut it = cluster();
    apply(&mut it, 0, 10, greeting());
    assert_eq!(links(&it), ["up", "connecting"]);
    apply(&mut it, 0, SILENT_US - 1, What::Second);
    assert_eq!(links(&it), ["up", "connecting"]);
    apply(&mut it, 0, SILENT_US, What::Event(Event { at: Stamp(1), fact: Fact::Second }));
    apply(&mut it, 0, SILENT_US, What::Second);
    assert_eq!(links(&it), ["up", "silent"]);
    apply(&mut it, 0, 3 * SILENT_US, What::Second);
    assert_eq!(it.nodes[0].link.why().unwrap().raw(), "no line for 10 s");
    apply(&mut it, 0, 3 * SILENT_US, What::Beat { there: Stamp(5), unix_there: 1, unix_here: 1 });
    assert_eq!(links(&it), ["up", "silent"]);
}

#[test]
fn the_reason_of_a_failure_stays_until_the_machine_answers_again() {
    let mut it = cluster();
    apply(&mut it, 1, 10, What::Link(Link::refused("no route".to_owned())));
    apply(&mut it, 1, 20, What::Link(Link::Connecting));
    apply(&mut it, 1, 2 * SILENT_US, What::Second);
    assert_eq!(it.nodes[1].link, Link::refused("no route".to_owned()));
    apply(&mut it, 1, 2 * SILENT_US, greeting());
    assert_eq!(it.nodes[1].link, Link::Up);
}

#[test]
fn a_stream_that_begins_again_replaces_the_session_and_the_clock() {
    let mut it = cluster();
    apply(&mut it, 0, 10, greeting());
    apply(&mut it, 0, 20, What::Event(Event { at: Stamp(7), fact: Fact::Notice("x".into()) }));
    apply(&mut it, 0, 1_000, What::Beat { there: Stamp(400), unix_there: 5, unix_here: 5 });
    assert_eq!((it.nodes[0].session.now, it.nodes[0].age_us(Stamp(300), it.now)), (Stamp(400), Some(100)));
    apply(&mut it, 0, 2_000, What::Link(Link::refused("it ended".to_owned())));
    assert_eq!(it.nodes[0].session.notices.iter().count(), 1, "the last known state stays");
    apply(&mut it, 0, 3_000, greeting());
    assert_eq!(it.nodes[0].session, Session::default());
    assert_eq!(it.nodes[0].age_us(Stamp(300), it.now), None);
}

#[test]
fn news_of_a_machine_that_is_not_in_the_list_changes_nothing() {
    let mut it = cluster();
    apply(&mut it, 7, 10, greeting());
    assert_eq!(links(&it), ["connecting", "connecting"]);
}

#[test]
fn the_beat_with_the_shortest_delay_measures_the_clocks() {
    let mut clock = Clock::default();
    assert_eq!((clock.here(Stamp(5)), clock.wall_ahead_us()), (None, None));
    for delay in [90, 7, 300, 2_000_000] {
        // There, the monotonic clock is 1000 s ahead, and the wall clock 3 s.
        let there = (Stamp(1_000_000_000 + 500), 60_000_000 + 3_000_000);
        clock.beat(there, (Stamp(500 + delay), 60_000_000 + delay));
    }
    assert_eq!(clock.here(Stamp(1_000_000_900)), Some(Stamp(907)));
    assert_eq!(clock.wall_ahead_us(), Some(3_000_000 - 7));
}

#[test]
fn clocks_of_a_hostile_machine_stay_in_range_and_old_beats_are_forgotten() {
    let mut clock = Clock::default();
    clock.beat((Stamp(u64::MAX), u64::MAX), (Stamp(0), 0));
    assert!(clock.here(Stamp(u64::MAX)).is_some());
    clock.beat((Stamp(0), 0), (Stamp(u64::MAX), u64::MAX));
    assert!(clock.here(Stamp(0)).is_some() && clock.wall_ahead_us().is_some());
    for _ in 0..BEATS {
        clock.beat((Stamp(10), 10), (Stamp(15), 10));
    }
    assert_eq!((clock.here(Stamp(10)), clock.beats.len()), (Some(Stamp(15)), BEATS));
}

/// The last hour until second 7200, with these points in seconds.
fn past(points: &[(u64, f64)]) -> Past {
    let points = points.iter().map(|(at, value)| (at * 1_000_000, *value)).collect();
    Past { end_us: Some(7_200_000_000), points, ..Past::awaited(RankFigure::Allocated, 3600) }
}

#[test]
fn a_column_has_its_worst_value_and_a_gap_stays_a_gap() {
    let it = past(&[(3600, 99.0), (3615, 1.0), (3630, 9.0), (3645, 2.0), (7200, 5.0), (7300, 8.0), (1, 8.0)]);
    assert_eq!(it.columns(4), [Some(9.0), None, None, Some(5.0)]);
    let low = Past { figure: RankFigure::Full, ..it };
    assert_eq!(low.columns(4)[0], Some(1.0));
    assert_eq!(past(&[]).columns(3), [None; 3]);
    assert_eq!(past(&[(3615, 1.0)]).columns(0), []);
}

#[test]
fn a_point_fills_more_columns_than_there_are_points() {
    let every: Vec<(u64, f64)> = (1..=240).map(|it| (3600 + it * 15, 1.0)).collect();
    assert!(past(&every).columns(1000).iter().all(Option::is_some));
    assert_eq!(past(&every[..120]).columns(1000).iter().flatten().count(), 500);
}

#[test]
fn a_machine_that_gpuwatch_is_copied_to_is_not_silent_until_the_copy_is_there() {
    let mut it = cluster();
    apply(&mut it, 1, 10, What::Link(Link::Copying));
    apply(&mut it, 1, 9 * SILENT_US, What::Second);
    assert_eq!(links(&it), ["silent", "copying"]);
    assert_eq!(it.nodes[1].link.why(), None);
    apply(&mut it, 1, 9 * SILENT_US, What::Link(Link::Connecting));
    apply(&mut it, 1, 10 * SILENT_US - 1, What::Second);
    assert_eq!(links(&it)[1], "connecting");
    apply(&mut it, 1, 10 * SILENT_US, What::Second);
    assert_eq!(links(&it)[1], "silent");
}
