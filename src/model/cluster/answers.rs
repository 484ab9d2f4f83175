//! What a store of figures has answered: how old the rows of the screen are, why no newer ones arrive, and the past of
//! a rank.

use super::overview::figure::RankFigure;
use crate::facts::text::Foreign;

/// Points of a past: µs of Unix time, and the worst value of the step that ends there.
pub type History = Vec<(u64, f64)>;

/// What a store without any series of gpuwatch lacks.
pub const NOTHING: &str = "has no figures of `gpuwatch serve` with these labels";

/// The state of a store, beside the rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answers {
    /// Its address.
    pub store: Foreign,
    /// How old the rows are, in µs; `None` before the first answer.
    pub age_us: Option<u64>,
    /// Why the latest question has no answer; `None` if it has one.
    pub trouble: Option<Foreign>,
    /// The past of the rank that is open.
    pub past: Option<Past>,
}

/// The past of a rank's figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Past {
    /// The figure.
    pub figure: RankFigure,
    /// Its length in seconds.
    pub seconds: u64,
    /// Its end, µs of Unix time; `None` before the store answers.
    pub end_us: Option<u64>,
    /// What the store has of it.
    pub points: History,
    /// Why the latest question has no answer.
    pub trouble: Option<Foreign>,
}

impl Past {
    /// Most points of a past.
    pub const POINTS: u64 = 240;

    /// Creates the past that gpuwatch asks for.
    pub fn awaited(figure: RankFigure, seconds: u64) -> Self {
        Self { figure, seconds, end_us: None, points: History::new(), trouble: None }
    }

    /// Returns the time from one point to the next, in seconds.
    pub fn step(seconds: u64, points: u64) -> u64 {
        (seconds / points.max(1)).max(1)
    }

    /// Returns the worst value in each of `columns` equal parts, in order; `None` where the store has none. A point
    /// counts from when the one before was due.
    pub fn columns(&self, columns: usize) -> Vec<Option<f64>> {
        let mut all: Vec<Option<f64>> = vec![None; columns];
        let length_us = self.seconds.max(1) * 1_000_000;
        let begin = self.end_us.unwrap_or_default().saturating_sub(length_us);
        let step_us = Self::step(self.seconds, Self::POINTS) * 1_000_000;
        let column = |us: u64| {
            let part = u128::from(us.min(length_us - 1)) * columns as u128 / u128::from(length_us);
            usize::try_from(part).unwrap_or(0)
        };
        for (at, value) in &self.points {
            let Some(end) = at.checked_sub(begin).filter(|it| (1..=length_us).contains(it)) else { continue };
            let covered = column(end.saturating_sub(step_us))..=column(end - 1);
            for cell in all.get_mut(covered).unwrap_or_default() {
                let is_worse = |known: &f64| self.figure.badness(*value) > self.figure.badness(*known);
                if cell.as_ref().is_none_or(is_worse) {
                    *cell = Some(*value);
                }
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
