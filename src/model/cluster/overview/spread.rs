//! How a figure is spread over ranks: worst, median, outliers, and where each value lies between them. Pure.
//!
//! A value is an outlier if it is worse than the median by more than six deviations (the median absolute deviation,
//! MAD, scaled to a standard deviation), by a twentieth of the median, and by the least difference that matters for its
//! unit. So ranks that all read alike have no outliers, however small their spread is.

use super::figure::{RankFigure, Unit};
use crate::model::statistics::{median_f64, middle};

/// Fewest values with outliers.
const LEAST: usize = 4;

/// An outlier is this many deviations from the median.
const DEVIATIONS: f64 = 6.0;

/// The standard deviation of a normal distribution with a MAD of 1.
const SIGMA: f64 = 1.4826;

/// An outlier differs by this part of the median.
const PART: f64 = 0.05;

/// A figure over ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The figure.
    pub figure: RankFigure,
    /// Number of ranks with a value.
    pub count: usize,
    /// The best value.
    pub best: f64,
    /// The median of all ranks with a value.
    pub median: f64,
    /// The worst value.
    pub worst: f64,
    /// The badness above which a value is an outlier; `None` of too few values.
    limit: Option<f64>,
}

impl Spread {
    /// Returns the spread of values; `None` without any.
    pub fn of(figure: RankFigure, values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|it| it.is_finite()).collect();
        values.sort_by(|one, other| figure.badness(*one).total_cmp(&figure.badness(*other)));
        let (best, worst, median) = (*values.first()?, *values.last()?, middle(&values)?);
        let deviation = median_f64(values.iter().map(|it| (it - median).abs()))? * SIGMA;
        let distance = (DEVIATIONS * deviation).max(PART * median.abs()).max(figure.least());
        let limit = (values.len() >= LEAST).then(|| figure.badness(median) + distance);
        Some(Self { figure, count: values.len(), best, median, worst, limit })
    }

    /// Returns whether a value is much worse than the median.
    pub fn is_outlier(&self, value: f64) -> bool {
        self.limit.is_some_and(|it| self.figure.badness(value) > it)
    }

    /// Returns how bad a value is, from 0 to 1: a share by itself, other figures between the best and the worst value.
    pub fn level(&self, value: f64) -> f64 {
        let bad = |it: f64| self.figure.badness(it);
        if self.figure.row().unit == Unit::Share {
            let share = value.clamp(0.0, 1.0);
            return if bad(1.0) > 0.0 { share } else { 1.0 - share };
        }
        let range = bad(self.worst) - bad(self.best);
        if range < self.figure.least() { 0.0 } else { ((bad(value) - bad(self.best)) / range).clamp(0.0, 1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(figure: RankFigure, values: &[f64]) -> Spread {
        Spread::of(figure, values.iter().copied()).unwrap()
    }

    #[test]
    fn the_worst_value_is_the_highest_or_the_lowest_by_figure() {
        let it = spread(RankFigure::StepTime, &[0.1, 0.2, 0.1, f64::NAN]);
        assert_eq!((it.count, it.best, it.median, it.worst), (3, 0.1, 0.1, 0.2));
        let it = spread(RankFigure::Utilisation, &[0.9, 0.3, 0.95]);
        assert_eq!((it.best, it.median, it.worst), (0.95, 0.9, 0.3));
        assert_eq!(Spread::of(RankFigure::Device, []), None);
    }

    #[test]
    fn one_value_far_from_the_others_is_an_outlier_and_even_ones_are_not() {
        let mut values = vec![0.100; 63];
        values.push(0.180);
        let it = spread(RankFigure::StepTime, &values);
        assert!(it.is_outlier(0.180) && !it.is_outlier(0.104) && !it.is_outlier(0.02), "{it:?}");
        // Utilisation is bad where it is low.
        let mut values = vec![0.9; 63];
        values.push(0.2);
        let it = spread(RankFigure::Utilisation, &values);
        assert!(it.is_outlier(0.2) && !it.is_outlier(1.0));
        // Values that vary by themselves need a larger distance.
        let wide: Vec<f64> = (0..64).map(|it| 0.1 + f64::from(it) * 0.01).collect();
        let it = spread(RankFigure::StepTime, &wide);
        assert!(wide.iter().all(|value| !it.is_outlier(*value)));
        assert!(!spread(RankFigure::StepTime, &[0.1, 0.1, 9.0]).is_outlier(9.0), "of three, none is usual");
    }

    #[test]
    fn a_level_is_a_share_or_lies_between_best_and_worst() {
        let it = spread(RankFigure::Device, &[0.2, 0.5]);
        assert_eq!((it.level(0.5), it.level(2.0)), (0.5, 1.0));
        let it = spread(RankFigure::Utilisation, &[0.2, 0.5]);
        assert!((it.level(0.25) - 0.75).abs() < 1e-9);
        let it = spread(RankFigure::Full, &[60.0, 120.0, 180.0]);
        for (value, level) in [(180.0, 0.0), (120.0, 0.5), (60.0, 1.0), (0.0, 1.0)] {
            assert!((it.level(value) - level).abs() < 1e-9, "{value}");
        }
        let even = spread(RankFigure::StepTime, &[0.1, 0.1001]);
        assert_eq!((even.level(0.1), even.level(0.1001)), (0.0, 0.0));
    }
}
