//! What the allocated memory of a training process consists of at the end of a step.

use super::json::{Object, digits};
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

/// The parts of the allocated bytes of a device. They sum to `allocated` of the sample that has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Parts {
    /// Bytes of the parameters of optimizers, and of the modules that have one of them.
    pub weights: u64,
    /// Bytes of their gradients.
    pub gradients: u64,
    /// Bytes that the optimizers keep for them between steps.
    pub optimizer: u64,
    /// All other allocated bytes.
    pub retained: u64,
}

impl Parts {
    /// Names on the wire and in exports, in order, with their meanings.
    pub const TABLE: [(&'static str, &'static str); 4] = [
        ("weights", "Bytes of the parameters of optimizers, and of the modules that have one of them."),
        ("gradients", "Bytes of their gradients."),
        ("optimizer", "Bytes that the optimizers keep for them between steps."),
        ("retained", "All other allocated bytes."),
    ];

    /// Returns the parts of allocated bytes of which these three are counted; `None` where they are more.
    pub fn of(allocated: u64, [weights, gradients, optimizer]: [u64; 3]) -> Option<Self> {
        let rest = allocated.checked_sub(weights)?.checked_sub(gradients)?.checked_sub(optimizer)?;
        Some(Self { weights, gradients, optimizer, retained: rest })
    }

    /// Returns the bytes in the order of [`Self::TABLE`].
    pub fn values(&self) -> [u64; 4] {
        [self.weights, self.gradients, self.optimizer, self.retained]
    }

    /// Returns the sum; `None` if it is too large for a number.
    pub fn sum(&self) -> Option<u64> {
        self.values().into_iter().try_fold(0_u64, u64::checked_add)
    }

    /// Appends them as a member of an object.
    pub(super) fn encode(&self, object: &mut Object<'_>) {
        object.name("parts");
        for ((name, _), value) in Self::TABLE.iter().zip(self.values()) {
            object.out.push_str(if *name == Self::TABLE[0].0 { "{\"" } else { ",\"" });
            object.out.push_str(name);
            object.out.push_str("\":");
            digits(value, object.out);
        }
        object.out.push('}');
    }
}
