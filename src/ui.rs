//! What the user looks at: selection, screen, freeze.
