//! The cache behind its tables: all shards together.
//!
//! | module | what it holds |
//! |---|---|
//! | `core` | what tables share |
//! | `room` | room that a put's own shard cannot give |
//! | `limit` | another limit while the cache is in use |
//! | `attempts` | a put until its end: tried, given room, and tried again |
//! | `calls`, `exchange`, `terms` | what callers ask of a table |
//! | `ahead` | asking memory for entries ahead of their use |
//! | `walk` | walks over all entries |
//! | `validate` | the check that walks everything |

#[expect(clippy::module_inception, reason = "what the folder is named after")]
mod core;

mod room;

mod limit;

mod attempts;

mod calls;

mod exchange;

mod terms;

mod ahead;

mod walk;

mod validate;

pub use ahead::Foreseen;
pub use calls::Standing;
pub(crate) use core::Core;
pub use core::{Departure, Listener};
pub use exchange::Former;
pub(crate) use validate::validate;
