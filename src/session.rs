//! What is known: the fold over all events.
