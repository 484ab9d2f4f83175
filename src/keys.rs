//! The table of keys.
