//! One lock's part of the cache, and what is done under that lock.
//!
//! Equations, which [`validate`](crate::core::validate) checks: each entry stands once in the index (segments or
//! stash), once in the queues of its cohort, and once in the wheel if it has an end; summed over all shards,
//! `charged = what the entries weigh + credit + ghosts`.
//!
//! | module | what it holds |
//! |---|---|
//! | `leases` | keys whose values are being made |
//! | `shortage` | sizes that the pile had no room for when it was last asked |
//! | `shard`, `lookup` | the part itself, and reading it without the lock |
//! | `request` | a put on its way |
//! | `locked`, `charge` | under the lock: who leaves, bytes and who is evicted for them |
//! | `trade`, `change` | puts that take the place of entries that leave, and all puts |

mod leases;

mod shortage;

#[expect(clippy::module_inception, reason = "what the folder is named after")]
mod shard;

mod lookup;

mod request;

mod locked;

mod charge;

mod trade;

mod change;

pub(crate) use leases::ENDED;
pub(crate) use locked::Locked;
pub(crate) use lookup::{Look, Sought};
pub(crate) use request::{Lack, Need, Progress, Request, Step, When};
pub use shard::Reason;
pub(crate) use shard::{Aligned, Gone, Ground, Links, Purposes, Shard, State, partition_of};
