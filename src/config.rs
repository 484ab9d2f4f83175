//! Options from flags, environment and defaults.
