//! A sawtooth, tooth by tooth: the lowest value between two falls, whatever the distance from one to the next.
//!
//! What is given back at the end of an epoch, or whenever the garbage collector comes by, hides what is kept beside it
//! until then. After each fall it shows.

use super::climb::{Block, Climb, Fading};
use serde::{Deserialize, Serialize};

/// A tooth is at least so high, of the highest lately seen, and a fall is so much of it.
const HALF: f64 = 0.5;

/// Once a tooth has risen by so much of the highest, its lowest value is behind it.
const LEFT: f64 = 0.125;

/// The teeth of one series.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Teeth {
    tooth: Option<Block>,
    top: f64,
    height: Fading,
    climb: Climb,
    is_told: bool,
    is_fresh: bool,
    begins: bool,
}

impl Teeth {
    /// Takes a sample.
    pub(super) fn push(&mut self, at: u64, value: f64) {
        (self.is_fresh, self.begins) = (false, false);
        let Some(mut tooth) = self.tooth else {
            (self.tooth, self.top) = (Some(Block { from: at, to: at, number: 0, low: value }), value);
            return;
        };
        let (height, fall) = (self.top - tooth.low, self.top - value);
        let usual = self.height.highest();
        if height > 0.0 && height >= HALF * usual.unwrap_or(0.0) && fall > HALF * height {
            self.height.tick();
            self.height.note(fall);
            // Where the first tooth began higher than the second one, its beginning was not seen.
            if tooth.number > 0 || value >= tooth.low {
                self.tell(tooth);
            }
            (self.is_told, self.begins) = (false, true);
            tooth = Block { from: at, to: at, number: tooth.number + 1, low: value };
            self.top = value;
        } else if value < tooth.low {
            (tooth.to, tooth.low, self.top) = (at, value, value);
        } else {
            self.top = self.top.max(value);
            if usual.is_some_and(|it| self.top - tooth.low >= LEFT * it) {
                self.tell(Block { to: at, ..tooth });
            }
        }
        self.tooth = Some(tooth);
    }

    fn tell(&mut self, tooth: Block) {
        if !self.is_told {
            self.climb.push(tooth);
            (self.is_told, self.is_fresh) = (true, true);
        }
    }

    /// The tooth whose lowest value the latest sample confirmed.
    pub(super) fn completed(&self) -> Option<Block> {
        self.climb.last().filter(|_| self.is_fresh)
    }

    /// Whether a tooth begins with the latest sample.
    pub(super) fn begins(&self) -> bool {
        self.begins
    }

    /// The lowest values, tooth by tooth.
    pub(super) fn climb(&self) -> &Climb {
        &self.climb
    }
}
