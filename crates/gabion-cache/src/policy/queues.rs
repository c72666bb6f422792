//! The queues of whichever policy was chosen.

use gabion_blocks::Invalid;

use super::choice::Policy;
use super::fifo::Fifo;
use super::lru::Lru;
use super::nodes::{Id, NONE, Nodes};
use super::s3fifo::S3Fifo;
use super::sketch::S3Sketch;

/// A policy with its lists. `bytes = Σ weight of its entries`.
pub(crate) enum Queues {
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

impl Queues {
    pub fn new(policy: Policy) -> Self {
        match policy {
            Policy::Sketch => Self::Sketch(S3Sketch::default()),
            Policy::Lru => Self::Lru(Lru::default()),
            Policy::Fifo => Self::Fifo(Fifo::default()),
            Policy::S3Fifo => Self::S3Fifo(S3Fifo::default()),
        }
    }

    /// Whether an entry that was let go of, from this queue, leaves a ghost; `None` when it leaves none, otherwise what
    /// all ghosts may weigh at a capacity.
    #[inline]
    pub fn ghosts(&self, queue: u8, capacity: u64) -> Option<u64> {
        matches!(self, Self::S3Fifo(_) if S3Fifo::leaves_ghost(queue)).then(|| S3Fifo::ghosts(capacity))
    }

    /// Takes in a new entry, which has no hits. `had_ghost`: that of its key was there, and has gone.
    #[inline]
    pub fn insert<N: Nodes>(&mut self, nodes: &mut N, node: N::Node, had_ghost: bool) {
        match self {
            Self::Sketch(policy) => policy.insert(nodes, node, nodes.weight(node)),
            Self::Lru(policy) => policy.insert(nodes, node),
            Self::Fifo(policy) => policy.insert(nodes, node),
            Self::S3Fifo(policy) => policy.insert(nodes, node, had_ghost),
        }
    }

    /// As [`Queues::insert`], for callers that know the weight, of a key that had no ghost.
    #[inline(always)]
    pub fn insert_weighed<N: Nodes>(&mut self, nodes: &mut N, node: N::Node, weight: u64) {
        match self {
            Self::Sketch(policy) => policy.insert(nodes, node, weight),
            _ => self.insert(nodes, node, false),
        }
    }

    /// The entry was used; only for policies that move on a hit.
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

    /// Evicts the next entry if it, with its weight, `fits`, otherwise the first that does among those that come after,
    /// unless it was hit.
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

    /// How many entries there are.
    pub fn len(&self) -> u64 {
        each!(self, policy => policy.lists().iter().map(|list| list.len).sum())
    }

    /// One of those that have been here for longest; `None` when there is none.
    pub fn oldest(&self) -> Option<Id> {
        each!(self, policy => policy.lists().iter().find_map(|list| list.oldest()))
    }

    /// Walks the lists and checks their equations. Returns the ids found.
    pub fn validate(&self, nodes: &impl Nodes) -> Result<Vec<Id>, Invalid> {
        let mut found = Vec::new();
        each!(self, policy => {
            for (queue, list) in policy.lists().iter().enumerate() {
                list.validate(nodes, queue as u8, &mut found)?;
            }
        });
        Ok(found)
    }
}
