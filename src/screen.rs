//! The screen: what the user sees and does.

/// Colours by role.
pub mod theme;

/// The state of the user interface: selection, screen, freeze.
pub mod ui;

/// The table of keys.
pub mod keys;

/// Draws the screen.
pub mod view;

/// Draws the screen as SVG.
pub mod picture;

/// The terminal.
pub mod term;

/// What keys do to processes of this machine.
pub mod actions;

/// Where a view acts on processes.
pub mod remote_actions;

/// Carries out what keys request outside the frame.
pub mod effects;

/// The loop that every screen runs in.
pub mod event_loop;
