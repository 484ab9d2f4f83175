//! The past of a rank, over the list: which rank, how long, and how to leave.

use super::{ClusterUi, Opening};
use crate::{
    model::cluster::overview::{Overview, RankId, RankRow},
    screen::ui::{Chart, Screen, Source},
};

/// How long a past is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the table has words for each")]
pub enum Span {
    QuarterHour,
    #[default]
    Hour,
    QuarterDay,
    Day,
    Week,
}

impl Span {
    const ALL: [(Self, u64, &'static str); 5] = [
        (Self::QuarterHour, 900, "15 minutes"),
        (Self::Hour, 3600, "hour"),
        (Self::QuarterDay, 6 * 3600, "6 hours"),
        (Self::Day, 86_400, "day"),
        (Self::Week, 7 * 86_400, "week"),
    ];

    fn place(self) -> usize {
        Self::ALL.iter().position(|it| it.0 == self).unwrap_or(0)
    }

    /// Returns its length in seconds.
    pub fn seconds(self) -> u64 {
        Self::ALL.get(self.place()).map_or(0, |it| it.1)
    }

    /// Returns its name, as in `the last hour`.
    pub fn name(self) -> &'static str {
        Self::ALL.get(self.place()).map_or("", |it| it.2)
    }

    /// Returns the next longer or shorter one, or the same if there is none.
    fn next(self, is_longer: bool) -> Self {
        let place = if is_longer { Some(self.place() + 1) } else { self.place().checked_sub(1) };
        place.and_then(|it| Self::ALL.get(it)).map_or(self, |it| it.0)
    }
}

impl ClusterUi {
    /// Returns whether the past of a rank is open.
    pub fn is_past(&self) -> bool {
        self.base.source == Source::Store && self.base.screen == Screen::Timeline
    }

    /// Opens the past of a rank, or of the worst rank of a machine.
    pub fn open_past(&mut self, opening: Opening, overview: &Overview) {
        let of_machine = || {
            let is_there = |it: &usize| overview.ranks.get(*it).is_some_and(|row| row.node == opening.node);
            overview.rank_order(self.figure).into_iter().find(is_there)
        };
        if let Some(row) = opening.rank.or_else(of_machine).and_then(|it| overview.ranks.get(it)) {
            (self.rank, self.base.screen) = (Some(row.id()), Screen::Timeline);
        } else if let Some(node) = overview.nodes.get(opening.node) {
            self.base
                .show_message(format!("{} has no rank with figures: `ssh -t HOST gpuwatch` shows more", node.host));
        }
    }

    /// Returns the place of the rank that the user selected.
    pub fn chosen(&self, overview: &Overview) -> Option<usize> {
        overview.ranks.iter().position(|it| Some(it.id()) == self.rank)
    }

    /// Keeps the selection in the rows of another answer, where places differ; `rank` is the place of the selected rank
    /// there.
    pub fn follow(&mut self, before: &Overview, now: &Overview, rank: Option<usize>) {
        let host = self.node.and_then(|it| before.nodes.get(it)).map(|it| &it.host);
        self.node = host.and_then(|host| now.nodes.iter().position(|it| it.host == *host));
        let row = rank.and_then(|it| now.ranks.get(it));
        // A rank that is gone stays selected, so that its past does not become another one's.
        let gone = |it| RankId { node: usize::MAX, ..it };
        self.rank = self.rank.map(|it| row.map_or(gone(it), RankRow::id));
    }

    pub(super) fn change_span(&mut self, chart: Chart) {
        match chart {
            Chart::Plus | Chart::Minus => self.span = self.span.next(chart == Chart::Minus),
            Chart::Reset | Chart::Axis | Chart::Scale => {}
        }
    }
}
