//! What figures mean: the ladder, fragmentation, growth.
