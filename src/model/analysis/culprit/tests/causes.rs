//! The cause that a capture shows.

use super::*;

/// The cause of the largest culprit.
fn cause(sites: Vec<Site>) -> &'static str {
    account(&captured(sites), 0).culprits.first().unwrap().cause.id()
}

fn in_a_list(owners: Vec<Owner>) -> Site {
    Site { owners, holders: vec![list(9), global("kept")], kept: Some(kept(41, "kept.append(it)")), ..site() }
}

#[test]
fn tensors_kept_together_are_not_a_graph() {
    let pair = || {
        let act = Site { line: 38, bytes: 8 << 10, ..in_a_list(vec![owner(&[64], false)]) };
        vec![in_a_list(vec![owner(&[64, 1000], false)]), act]
    };
    assert_eq!(cause(pair()), "tensors-retained");
    let clones = Site { blocks: 8 * 140, ..in_a_list(vec![owner(&[64, 64], false), owner(&[64], false)]) };
    assert_eq!(cause(vec![clones]), "tensors-retained");
}

#[test]
fn a_grad_fn_is_a_graph_where_blocks_of_the_graph_grow_with_it() {
    let with_grad = || in_a_list(vec![owner(&[64, 1000], true)]);
    let saved = || Site { line: 12, autograd: true, owners: Vec::new(), ..site() };
    assert_eq!(cause(vec![with_grad(), saved()]), "graph-retained");
    assert_eq!(cause(vec![saved()]), "graph-retained", "nobody else holds it");
    let by_graph = Site { holders: vec![holder("graph", None, None), global("total")], ..saved() };
    assert_eq!(cause(vec![by_graph]), "graph-retained");
    assert_eq!(cause(vec![with_grad()]), "tensors-retained", "backward has freed what its graph held");
}

#[test]
fn single_numbers_are_scalars_and_four_are_not() {
    let of = |shape: &[u64]| cause(vec![Site { bytes: 8 * 512, blocks: 8, ..in_a_list(vec![owner(shape, false)]) }]);
    assert_eq!((of(&[]), of(&[1, 1]), of(&[4])), ("scalars-retained", "scalars-retained", "tensors-retained"));
}

#[test]
fn a_tensor_that_is_made_again_grows_and_a_cycle_is_a_cycle() {
    assert_eq!(cause(vec![Site { blocks: 0, ..in_a_list(vec![owner(&[64, 1000], true)]) }]), "growing-tensor");
    let cycle = holder("cycle", Some("owner"), Some("Node"));
    assert_eq!(cause(vec![Site { holders: vec![cycle], ..site() }]), "reference-cycle");
}
