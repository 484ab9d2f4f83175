//! The repository itself: layers, documents, schemas, dependencies.

pub(crate) mod book;
pub(crate) mod dependencies;
pub(crate) mod docs;
pub(crate) mod monitors;
pub(crate) mod schemas;
pub(crate) mod threats;
pub(crate) mod tidy;
pub(crate) mod tutorial;
