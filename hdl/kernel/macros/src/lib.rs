//! The attribute and derive macros of the rnic hardware language.
