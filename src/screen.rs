//! What the user sees and does.

/// Colours by role.
pub mod theme;

/// What the user looks at: selection, screen, freeze.
pub mod ui;

/// The table of keys.
pub mod keys;

/// What is seen.
pub mod view;

/// A picture of the screen as SVG.
pub mod picture;

/// The terminal: taken, given back.
pub mod term;

/// A signal to exactly the process that was meant.
pub mod signal;

/// What keys ask of the world outside the picture, done.
pub mod effects;

/// The loop that every screen runs in.
pub mod event_loop;
