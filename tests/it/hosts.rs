//! Events of this host and of others, on their way to a viewer.

pub(crate) mod probes;
pub(crate) mod stream;
