//! Which line keeps the blocks of a graph.

use super::*;

/// A line that now and then keeps an entry with several tensors, of which one has a graph, has as many rises as it.
#[test]
fn a_graph_of_rare_entries_is_that_of_the_line_that_keeps_them() {
    let entry = Site {
        bytes: 10 << 10,
        blocks: 6,
        owners: vec![owner(&[], false), owner(&[], true)],
        kept: Some(kept(6, "rows.append(entry)")),
        holders: vec![dict(3, None), list(5), global("rows")],
        ..site()
    };
    let graph = |line, blocks| Site { line, blocks, holders: Vec::new(), owners: Vec::new(), autograd: true, ..site() };
    let found = account(&captured(vec![graph(12, 4), graph(13, 2), entry.clone()]), 0);
    let [it] = found.culprits.as_slice() else { panic!("{found:?}") };
    assert_eq!((it.leading().line, it.cause.id()), (6, "graph-retained"), "{}", it.sentence);
    // What rises at other times is another one's.
    assert_eq!(account(&captured(vec![graph(12, 1), entry]), 0).culprits.len(), 2);
}

/// Where the graph is the least of what stays, the tensors are why.
#[test]
fn a_small_graph_beside_large_tensors_is_not_the_cause() {
    let of = |bytes| {
        let graph = Site { line: 12, bytes, holders: Vec::new(), owners: Vec::new(), autograd: true, ..site() };
        cause(vec![graph, in_a_list(vec![owner(&[64, 1000], true)])])
    };
    assert_eq!([of(64 << 20), of(20 << 20), of(1 << 20)], ["graph-retained", "graph-retained", "tensors-retained"]);
}

/// Of what one line keeps, only some may have a graph.
#[test]
fn a_graph_belongs_to_any_tensor_that_the_line_keeps() {
    let plain =
        Site { kept: Some(kept(41, "errors.append(error)")), holders: vec![list(9), global("errors")], ..site() };
    let graph = Site { line: 12, holders: Vec::new(), owners: Vec::new(), autograd: true, ..site() };
    let output = Site { line: 30, owners: vec![owner(&[64, 10], true)], ..plain.clone() };
    let found = account(&captured(vec![graph, plain, output]), 0);
    let [it] = found.culprits.as_slice() else { panic!("{found:?}") };
    assert!(
        it.sentence.contains("keeps 6 blocks a step") && it.sentence.contains("2 of them of its graph"),
        "{}",
        it.sentence
    );
}
