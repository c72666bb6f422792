//! When entries end.
//!
//! | module | what it holds |
//! |---|---|
//! | `clock` | where the time comes from |
//! | `wheel` | the entries by the moment when they end |

mod clock;

mod wheel;

pub use clock::{Clock, ManualClock, SystemClock};
pub(crate) use clock::{LATE, advance, now, roughly};
pub(crate) use wheel::{Due, Hooks, NEVER, Timers, Wheel};
