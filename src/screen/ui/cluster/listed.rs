//! Which machines and ranks are listed, in which order, and which of them is selected.

use super::{ClusterUi, Order};
use crate::model::cluster::overview::{NodeRow, Overview, RankRow};

impl ClusterUi {
    /// Returns the places of the machines that match the filter, in the chosen order.
    pub fn nodes(&self, overview: &Overview) -> Vec<usize> {
        let mut order = match self.order {
            Order::Attention => overview.node_order(),
            Order::Figure | Order::Name => (0..overview.nodes.len()).collect(),
        };
        if self.order == Order::Figure {
            let mut worst = vec![f64::NEG_INFINITY; overview.nodes.len()];
            for it in overview.ranks.iter().filter(|it| !it.ended) {
                let bad = it.figures.get(self.figure).map(|value| self.figure.badness(value));
                if let Some((worst, bad)) = worst.get_mut(it.node).zip(bad) {
                    *worst = worst.max(bad);
                }
            }
            let bad = |place: &usize| worst.get(*place).copied().unwrap_or(f64::NEG_INFINITY);
            order.sort_by(|one, other| bad(other).total_cmp(&bad(one)));
        }
        let wanted = self.wanted();
        order.retain(|it| overview.nodes.get(*it).is_some_and(|row| matches(&wanted, || of_node(row))));
        order
    }

    /// Returns the places of the ranks that match the filter, in the chosen order.
    pub fn ranks(&self, overview: &Overview) -> Vec<usize> {
        let row = |place: &usize| overview.ranks.get(*place);
        let mut order = match self.order {
            Order::Attention => overview.rank_order(self.figure),
            Order::Figure | Order::Name => (0..overview.ranks.len()).collect(),
        };
        match self.order {
            Order::Attention => {}
            Order::Figure => {
                let value = |it: &RankRow| it.figures.get(self.figure).filter(|_| !it.ended);
                let bad = |place: &usize| row(place).and_then(value).map(|it| self.figure.badness(it));
                let bad = |place: &usize| bad(place).unwrap_or(f64::NEG_INFINITY);
                order.sort_by(|one, other| bad(other).total_cmp(&bad(one)));
            }
            Order::Name => order.sort_by_key(|place| row(place).map(|it| (it.job, it.rank, it.node))),
        }
        let wanted = self.wanted();
        order.retain(|it| row(it).is_some_and(|row| matches(&wanted, || of_rank(row, overview))));
        order
    }

    /// Returns the place of the selected machine in the list.
    pub fn node_place(&self, listed: &[usize]) -> usize {
        listed.iter().position(|it| Some(*it) == self.node).unwrap_or(0)
    }

    /// Returns the place of the selected rank in the list.
    pub fn rank_place(&self, listed: &[usize], overview: &Overview) -> usize {
        let is_selected = |it: &usize| overview.ranks.get(*it).map(RankRow::id) == self.rank;
        listed.iter().position(is_selected).unwrap_or(0)
    }

    fn wanted(&self) -> String {
        self.base.filter.text.trim().to_lowercase()
    }
}

/// Whether the words of a row contain a text.
fn matches(wanted: &str, words: impl FnOnce() -> String) -> bool {
    wanted.is_empty() || words().to_lowercase().contains(wanted)
}

fn of_node(it: &NodeRow) -> String {
    let why = it.link.why().map_or("", |why| why.raw());
    let worst = it.worst.as_ref().map_or_else(String::new, |it| format!("{} {}", it.severity.name(), it.title));
    format!("{} {} {why} {worst}", it.host.raw(), it.link.name())
}

fn of_rank(it: &RankRow, overview: &Overview) -> String {
    let host = overview.nodes.get(it.node).map_or("", |node| node.host.raw());
    let job = it.job.and_then(|job| overview.jobs.get(job)).map_or("", |job| job.name.raw());
    let rank = it.rank.map_or_else(String::new, |rank| format!("rank {rank}"));
    let pid = it.pid.map_or_else(String::new, |pid| format!("pid {pid}"));
    let worst = it.worst.as_ref().map_or_else(String::new, |it| format!("{} {}", it.severity.name(), it.title));
    format!("{host} {rank} {pid} {job} {worst}")
}
