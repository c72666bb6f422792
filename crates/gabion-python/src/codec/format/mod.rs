//! Bytes: what starts a value, and how they are appended and read.

pub mod tags;
pub mod writer;
pub mod reader;
