//! The cause that a capture shows. A capture sees the blocks; counters only see how many there are.

use super::{Group, is_held_by_graph, is_ownerless};
use crate::{facts::event::wire::Site, model::analysis::cause::Cause};

/// Returns why a group's memory grows. A tensor with a `grad_fn` is not by itself a retained graph: backward has freed
/// the graph's memory, unless its blocks grow as well.
pub(super) fn cause(group: &Group) -> Cause {
    let site = group.first;
    let is_alone = is_ownerless(site);
    if group.own().1 == 0 {
        Cause::GrowingTensor
    } else if !is_alone && site.holders.iter().any(|it| it.by == "cycle") {
        Cause::ReferenceCycle
    } else if is_alone || is_held_by_graph(site) || !group.graph.is_empty() {
        Cause::GraphRetained
    } else if std::iter::once(&site).chain(&group.others).all(|it| is_of_scalars(it)) {
        Cause::ScalarsRetained
    } else {
        Cause::TensorsRetained
    }
}

/// Whether every tensor in its blocks has one element.
fn is_of_scalars(site: &Site) -> bool {
    !site.owners.is_empty() && site.owners.iter().all(|it| it.shape.iter().all(|size| *size == 1))
}
