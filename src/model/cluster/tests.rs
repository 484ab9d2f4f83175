//! The fold of a cluster: the states of links, clocks, and sessions that begin again.

use super::*;
use crate::facts::event::Fact;

fn cluster() -> Cluster {
    Cluster::new(["a", "b"].map(str::to_owned), Stamp(0))
}

fn apply(cluster: &mut Cluster, node: usize, at: u64, what: What) {
    cluster.apply(News { node, at: Stamp(at), what });
}

fn greeting() -> What {
    What::Greeting(Greeting { gpuwatch: "1".into(), host: "a".into(), started_unix_us: 1, monotonic_us: 1 })
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
