//! The one door to the atomics of the index. The model checker's tests bring their own in its place.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};
