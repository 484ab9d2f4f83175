//! One observation of a series for growth detection.

use crate::{facts::units, model::analysis::packed::Numbers};
use serde::{Deserialize, Serialize};

/// One sample.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Point {
    pub(super) at: u64,
    pub(super) bytes: f64,
    /// Bytes of the remainder after the lengths of batches.
    pub(super) beside: Option<f64>,
    /// The lengths' unit, in bytes; 0 if there is none.
    pub(super) unit: u64,
    pub(super) blocks: Option<f64>,
    /// Whether the lowest count of a tooth was just passed.
    pub(super) ends_tooth: bool,
    /// Whether a tooth begins with it.
    pub(super) begins_tooth: bool,
}

/// Numbers of a packed point.
pub(super) const NUMBERS: usize = 6;

impl Numbers<NUMBERS> for Point {
    fn numbers(&self) -> [u64; NUMBERS] {
        let values = [Some(self.bytes), self.beside, self.blocks];
        let [(bytes, of_bytes), (beside, of_beside), (blocks, of_blocks)] = values.map(packed);
        let flags = of_bytes | of_beside << 2 | of_blocks << 4;
        let flags = flags | u64::from(self.ends_tooth) << 6 | u64::from(self.begins_tooth) << 7;
        [self.at, flags, self.unit, bytes, beside, blocks]
    }

    fn of_numbers(&[at, flags, unit, bytes, beside, blocks]: &[u64; NUMBERS]) -> Self {
        Self {
            at,
            bytes: unpacked(bytes, flags).unwrap_or(0.0),
            beside: unpacked(beside, flags >> 2),
            unit,
            blocks: unpacked(blocks, flags >> 4),
            ends_tooth: flags & 1 << 6 != 0,
            begins_tooth: flags & 1 << 7 != 0,
        }
    }
}

/// Whether a value is known, and whether its number is itself and not its bits.
const KNOWN: u64 = 1;
const WHOLE: u64 = 2;

/// Returns a value's number, and flags. Bytes and blocks are whole numbers, whose differences are small; those of the
/// bits of two floats are not.
fn packed(value: Option<f64>) -> (u64, u64) {
    let Some(value) = value else { return (0, 0) };
    let whole = units::whole(value);
    let is_whole = (whole as f64).to_bits() == value.to_bits();
    if is_whole { (whole, KNOWN | WHOLE) } else { (value.to_bits(), KNOWN) }
}

fn unpacked(number: u64, flags: u64) -> Option<f64> {
    let value = if flags & WHOLE == 0 { f64::from_bits(number) } else { number as f64 };
    (flags & KNOWN != 0).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Whole numbers, and all others.
    fn any_value() -> impl Strategy<Value = f64> {
        prop_oneof![any::<u64>().prop_map(|it| it as f64), any::<f64>(), Just(-0.0), Just(0.0)]
    }

    proptest! {
        #[test]
        fn a_point_is_as_it_was(
            (at, unit, bytes) in (any::<u64>(), any::<u64>(), any_value()),
            (beside, blocks) in (prop::option::of(any_value()), prop::option::of(any_value())),
            (ends_tooth, begins_tooth) in (any::<bool>(), any::<bool>()),
        ) {
            let point = Point { at, bytes, beside, unit, blocks, ends_tooth, begins_tooth };
            let same = Point::of_numbers(&point.numbers());
            // Not by `==`, for which the two zeros are equal.
            prop_assert_eq!(format!("{same:?}"), format!("{point:?}"));
        }
    }
}
