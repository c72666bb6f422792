//! Which entry goes when room is needed.
//!
//! A policy is a pure structure over entry ids: it keeps its lists in the links of the entries ([`Nodes`]) and decides;
//! it neither stores nor counts anything else. So that what a trace gives can be checked to the miss, the tests feed
//! traces to policies alone, without a cache around them.
//!
//! | mode | on a hit | who goes |
//! |---|---|---|
//! | [`Mode::Sketch`] (default) | a counter, no lock | the tail of the small queue, unless its key was asked for more often than the main queue's candidate |
//! | [`Mode::Lru`] | moves to the front, under the lock | who was not used for longest |
//! | [`Mode::Fifo`] | nothing | who came first |
//! | [`Mode::S3Fifo`] | a counter, no lock | S3-FIFO with its ghost queue |

mod list;

mod lru;

mod fifo;

mod s3fifo;

mod sketch;

#[cfg(test)]
pub(crate) mod tests;

pub(crate) use list::{Id, NONE};

use fifo::Fifo;
use lru::Lru;
use s3fifo::S3Fifo;
use sketch::S3Sketch;

/// The highest count of hits that an entry carries.
pub(crate) const MOST_HITS: u8 = 3;

/// The eviction policy of a cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// S3-FIFO's queues with a frequency sketch in place of its ghost queue.
    ///
    /// New entries pass through a small queue (a ninth of the bytes) on probation. Whoever was hit there, or whose key is
    /// known to the sketch as more frequent than the main queue's next victim, goes on to the main queue, a clock with
    /// two bits. (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023; Einziger, Friedman, Manes,
    /// "`TinyLFU`: a highly efficient cache admission policy", 2017.)
    #[default]
    Sketch,
    /// Least recently used, exact: one order over the whole cache, unless [`CacheOptions::shards`] asks for more. Every hit
    /// takes the lock.
    ///
    /// [`CacheOptions::shards`]: crate::CacheOptions::shards
    Lru,
    /// First in, first out, exact as [`Mode::Lru`] is.
    Fifo,
    /// S3-FIFO as published: small queue 10 %, ghost queue 90 %, two hits to move on; the shares are of what ghosts leave.
    /// A ghost is charged 24 bytes, so that a cache of small values holds fewer of them, and where memory is short the oldest
    /// ghosts go first. It is there to be compared with.
    S3Fifo,
}

impl Mode {
    /// Whether a hit changes the policy's lists.
    #[inline]
    pub(crate) fn moves_on_hit(self) -> bool {
        self == Self::Lru
    }

    /// Whether the victim is exactly determined, so that one order has to hold over all.
    #[inline]
    pub(crate) fn is_exact(self) -> bool {
        self != Self::Sketch
    }

    /// Whether a hit raises the entry's counter.
    #[inline]
    pub(crate) fn counts_hits(self) -> bool {
        matches!(self, Self::Sketch | Self::S3Fifo)
    }
}

/// What a policy sees of the entries: links that are its own, and what the decision needs.
pub(crate) trait Nodes {
    /// An entry at hand, found once for all that is asked of it.
    type Node: Copy;
    fn node(&self, id: Id) -> Self::Node;
    fn id(&self, node: Self::Node) -> Id;
    /// Towards the newer and towards the older neighbour, or [`NONE`].
    fn links(&self, node: Self::Node) -> (Id, Id);
    fn set_newer(&mut self, node: Self::Node, newer: Id);
    fn set_older(&mut self, node: Self::Node, older: Id);
    /// Bytes (or whatever the capacity is measured in).
    fn weight(&self, node: Self::Node) -> u64;
    /// Hits, 0 to [`MOST_HITS`].
    fn hits(&self, node: &mut Self::Node) -> u8;
    fn set_hits(&mut self, node: &mut Self::Node, hits: u8);
    /// Hits so far; there are none from now on.
    #[inline(always)]
    fn take_hits(&mut self, node: &mut Self::Node) -> u8 {
        let hits = self.hits(node);
        if hits > 0 {
            self.set_hits(node, 0);
        }
        hits
    }
    /// Hits so far; there is one less from now on, if there was one.
    #[inline]
    fn wear(&mut self, node: &mut Self::Node) -> u8 {
        let hits = self.hits(node);
        if hits > 0 {
            self.set_hits(node, hits - 1);
        }
        hits
    }
    /// Which of the policy's queues the entry is in.
    fn queue(&self, node: Self::Node) -> u8;
    fn set_queue(&mut self, node: Self::Node, queue: u8);
    /// How often the entry's key was asked for of late, whoever held it.
    fn frequency(&self, node: Self::Node) -> u8;
    /// Changes when frequencies may have become less.
    fn era(&self) -> u32;
    /// Where the entry's hits are counted, for [`Nodes::is_unhit`].
    fn mark(&self, node: &mut Self::Node) -> u64;
    /// Whether an entry's hits are still counted where they were, and there are none.
    fn is_unhit(&self, id: Id, mark: u64) -> bool;
    /// The key's hash, of an entry that had a ghost.
    fn hash(&self, node: Self::Node) -> u64;
    /// The entry will soon be asked about: what that needs may be fetched meanwhile.
    fn foresee(&self, _node: Self::Node) {}
    /// Whether the entry stays whatever it is worth. One entry at most.
    fn spares(&self, _id: Id) -> bool {
        false
    }
}

/// A policy with its lists. `bytes = Σ weight of its entries`.
pub(crate) enum Policy {
    Sketch(S3Sketch),
    Lru(Lru),
    Fifo(Fifo),
    S3Fifo(S3Fifo),
}

/// Calls the same method of whichever policy it is.
macro_rules! each {
    ($self:expr, $policy:ident => $call:expr) => {
        match $self {
            Self::Sketch($policy) => $call,
            Self::Lru($policy) => $call,
            Self::Fifo($policy) => $call,
            Self::S3Fifo($policy) => $call,
        }
    };
}

impl Policy {
    pub fn new(mode: Mode) -> Self {
        match mode {
            Mode::Sketch => Self::Sketch(S3Sketch::default()),
            Mode::Lru => Self::Lru(Lru::default()),
            Mode::Fifo => Self::Fifo(Fifo::default()),
            Mode::S3Fifo => Self::S3Fifo(S3Fifo::default()),
        }
    }

    /// A key that had a ghost is about to be inserted.
    pub fn know(&mut self, hash: u64) {
        if let Self::S3Fifo(policy) = self {
            policy.know(hash);
        }
    }

    /// Whether an entry that was let go of, from this queue, leaves a ghost; `None` when it leaves none, otherwise what all
    /// ghosts may weigh at a capacity.
    #[inline]
    pub fn ghosts(&self, queue: u8, capacity: u64) -> Option<u64> {
        matches!(self, Self::S3Fifo(_) if S3Fifo::leaves_ghost(queue)).then(|| S3Fifo::ghosts(capacity))
    }

    /// Takes in a new entry, which has no hits.
    #[inline]
    pub fn insert<N: Nodes>(&mut self, nodes: &mut N, node: N::Node) {
        match self {
            Self::Sketch(policy) => policy.insert(nodes, node, nodes.weight(node)),
            Self::Lru(policy) => policy.insert(nodes, node),
            Self::Fifo(policy) => policy.insert(nodes, node),
            Self::S3Fifo(policy) => policy.insert(nodes, node),
        }
    }

    /// As [`Policy::insert`], for whoever knows the weight.
    #[inline(always)]
    pub fn insert_weighed<N: Nodes>(&mut self, nodes: &mut N, node: N::Node, weight: u64) {
        match self {
            Self::Sketch(policy) => policy.insert(nodes, node, weight),
            _ => self.insert(nodes, node),
        }
    }

    /// The entry was used; only for modes that move on a hit.
    pub fn touch<N: Nodes>(&mut self, nodes: &mut N, node: N::Node) {
        if let Self::Lru(policy) = self {
            policy.touch(nodes, node);
        }
    }

    /// The entry leaves, whatever the reason.
    #[inline]
    pub fn remove<N: Nodes>(&mut self, nodes: &mut N, node: N::Node) {
        each!(self, policy => policy.remove(nodes, node));
    }

    /// The entry's weight becomes another: called before the weight itself changes.
    #[inline]
    pub fn reweigh<N: Nodes>(&mut self, nodes: &N, node: N::Node, weight: u64) {
        let list = each!(self, policy => policy.list_of(nodes.queue(node)));
        list.bytes = list.bytes + weight - nodes.weight(node);
    }

    /// Chooses who goes, and lets go of it. `capacity` is what the policy may hold.
    #[inline]
    pub fn evict<N: Nodes>(&mut self, nodes: &mut N, capacity: u64) -> Option<N::Node> {
        match self {
            Self::Sketch(policy) => policy.evict(nodes, |_, _| true),
            Self::Lru(policy) => policy.evict(nodes),
            Self::Fifo(policy) => policy.evict(nodes),
            Self::S3Fifo(policy) => policy.evict(nodes, capacity),
        }
    }

    /// Lets go of whoever is next if that one, with its weight, `fits`, otherwise of the first that does among those that come
    /// after, unless it was hit.
    #[inline]
    pub fn evict_like<N: Nodes>(
        &mut self,
        nodes: &mut N,
        fits: impl Fn(N::Node, u64) -> bool + Copy,
    ) -> Option<N::Node> {
        let next = if let Self::Sketch(policy) = self { policy.evict(nodes, fits) } else { None };
        next.or_else(|| self.evict_like_beyond(nodes, fits).map(|id| nodes.node(id)))
    }

    #[inline(never)]
    fn evict_like_beyond<N: Nodes>(&mut self, nodes: &mut N, fits: impl Fn(N::Node, u64) -> bool) -> Option<Id> {
        const LOOKED_AT: usize = 32;
        let found = each!(self, policy => policy.lists().iter().find_map(|list| {
            let newer = |&node: &N::Node| Some(nodes.links(node).0).filter(|&id| id != NONE).map(|id| nodes.node(id));
            let mut next = std::iter::successors(list.oldest().map(|id| nodes.node(id)), newer).take(LOOKED_AT);
            let stays = |node| nodes.hits(&mut { node }) > 0 || nodes.spares(nodes.id(node));
            next.find(|&node| fits(node, nodes.weight(node)) && !stays(node))
        }))?;
        self.remove(nodes, found);
        Some(nodes.id(found))
    }

    /// Entry `from` is now known as `to`; its links were copied.
    pub fn renumber<N: Nodes>(&mut self, nodes: &mut N, from: Id, to: N::Node) {
        if let Self::Sketch(policy) = self {
            policy.look_again();
        }
        each!(self, policy => policy.list_of(nodes.queue(to)).renumber(nodes, from, to));
    }

    /// The weight of all entries.
    #[inline]
    pub fn bytes(&self) -> u64 {
        each!(self, policy => policy.lists().iter().map(|list| list.bytes).sum())
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        each!(self, policy => policy.lists().iter().all(|list| list.len == 0))
    }

    /// Walks the lists and checks their equations. Returns the ids found.
    pub fn validate(&self, nodes: &impl Nodes) -> Result<Vec<Id>, String> {
        let mut found = Vec::new();
        each!(self, policy => {
            for (queue, list) in policy.lists().iter().enumerate() {
                list.validate(nodes, queue as u8, &mut found)?;
            }
        });
        Ok(found)
    }
}
