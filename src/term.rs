//! The terminal: taken, given back.
