//! What queues see of the entries.

/// An entry, as the policies know it: a number that is its own for as long as it hangs in a list.
pub(crate) type Id = u64;

/// No entry.
pub(crate) const NONE: Id = (1 << 39) - 1;

/// The highest count of hits that an entry carries.
pub(crate) const MOST_HITS: u8 = 3;

/// What queues see of the entries: links that are its own, and what the decision needs.
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
    /// How often the entry's key was asked for of late, whichever entry held it.
    fn frequency(&self, node: Self::Node) -> u8;
    /// Changes when frequencies may have become less.
    fn era(&self) -> u32;
    /// Where the entry's hits are counted, for [`Nodes::is_unhit`].
    fn mark(&self, node: &mut Self::Node) -> u64;
    /// Whether an entry's hits are still counted where they were, and there are none.
    fn is_unhit(&self, id: Id, mark: u64) -> bool;
    /// The entry will soon be asked about: what that needs may be fetched meanwhile.
    fn foresee(&self, _node: Self::Node) {}
    /// Whether the entry stays whatever it is worth. One entry at most.
    fn spares(&self, _id: Id) -> bool {
        false
    }
}
