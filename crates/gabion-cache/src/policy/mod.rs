//! Which entry goes when room is needed.
//!
//! A policy's queues are a pure structure over entry ids: they keep their lists in the links of the entries ([`Nodes`])
//! and decide; they neither store nor count anything else. So that what a trace gives can be checked to the miss, the
//! tests feed traces to queues alone, without a cache around them.
//!
//! | policy | on a hit | who goes |
//! |---|---|---|
//! | [`Policy::Sketch`] (default) | a counter, no lock | the tail of the small queue, unless its key was asked for more often than the main queue's candidate |
//! | [`Policy::Lru`] | moves to the front, under the lock | who was not used for longest |
//! | [`Policy::Fifo`] | nothing | who came first |
//! | [`Policy::S3Fifo`] | a counter, no lock | S3-FIFO with its ghost queue |
//!
//! | module | what it holds |
//! |---|---|
//! | `choice` | the policies that a cache has to choose from |
//! | `nodes` | what queues see of the entries |
//! | `list` | a queue, in the links of its entries |
//! | `lru`, `fifo`, `s3fifo`, `sketch` | the queues of each policy |
//! | `queues` | the queues of whichever was chosen |

mod choice;

mod nodes;

mod list;

mod lru;

mod fifo;

mod s3fifo;

mod sketch;

mod queues;

#[cfg(test)]
pub(crate) mod tests;

pub use choice::Policy;
pub(crate) use nodes::{Id, MOST_HITS, NONE, Nodes};
pub(crate) use queues::Queues;
