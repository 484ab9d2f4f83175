//! Macros that generate enums and rows from the table of gaps.

/// Generates an enum and the list of all its variants, so that none can be missing there.
macro_rules! listed {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $it:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$of])* $it,)* }

        impl $name {
            /// Every variant, from the inside out.
            pub const ALL: [Self; [$(stringify!($it)),*].len()] = [$(Self::$it),*];
        }
    };
}

/// Generates the enum of gaps and the row of each.
macro_rules! gaps {
    ($($(#[$doc:meta])* $gap:ident { $($field:ident: $value:expr,)* })*) => {
        listed! {
            /// One part of a device's memory between two rungs, from the inside out.
            Gap { $($(#[$doc])* $gap,)* }
        }

        impl Gap {
            /// Returns its row in the table.
            pub const fn row(self) -> &'static Row {
                match self {
                    $(Self::$gap => const { &Row { gap: Self::$gap, $($field: $value,)* } },)*
                }
            }
        }
    };
}
