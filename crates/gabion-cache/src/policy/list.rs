//! A doubly linked list of entries, newest first, whose links lie in the entries.

use gabion_blocks::Invalid;

use super::nodes::{Id, NONE, Nodes};

/// `bytes = Σ weight`, `len` = how many.
#[derive(Debug, Clone)]
pub(crate) struct List {
    newest: Id,
    oldest: Id,
    pub bytes: u64,
    pub len: u64,
}

impl Default for List {
    fn default() -> Self {
        Self { newest: NONE, oldest: NONE, bytes: 0, len: 0 }
    }
}

impl List {
    #[inline]
    pub fn oldest(&self) -> Option<Id> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// Which goes next: the oldest, or the one after it when the oldest is spared.
    #[inline(always)]
    pub fn next_out<N: Nodes>(&self, nodes: &N) -> Option<N::Node> {
        let oldest = self.oldest()?;
        let next = if nodes.spares(oldest) { nodes.links(nodes.node(oldest)).0 } else { oldest };
        (next != NONE).then(|| nodes.node(next))
    }

    #[inline]
    pub fn push<N: Nodes>(&mut self, nodes: &mut N, node: N::Node, queue: u8) {
        self.push_weighed(nodes, node, queue, nodes.weight(node));
    }

    /// As [`List::push`], for callers that know the weight.
    #[inline(always)]
    pub fn push_weighed<N: Nodes>(&mut self, nodes: &mut N, node: N::Node, queue: u8, weight: u64) {
        nodes.set_queue(node, queue);
        self.link_newest(nodes, node);
        self.bytes += weight;
        self.len += 1;
    }

    #[inline(always)]
    fn link_newest<N: Nodes>(&mut self, nodes: &mut N, node: N::Node) {
        let id = nodes.id(node);
        nodes.set_newer(node, NONE);
        nodes.set_older(node, self.newest);
        if self.newest == NONE {
            self.oldest = id;
        } else {
            nodes.set_newer(nodes.node(self.newest), id);
        }
        self.newest = id;
    }

    #[inline(always)]
    fn unlink<N: Nodes>(&mut self, nodes: &mut N, node: N::Node) {
        let (newer, older) = nodes.links(node);
        if newer == NONE {
            self.newest = older;
        } else {
            nodes.set_older(nodes.node(newer), older);
        }
        if older == NONE {
            self.oldest = newer;
        } else {
            nodes.set_newer(nodes.node(older), newer);
        }
    }

    #[inline]
    pub fn remove<N: Nodes>(&mut self, nodes: &mut N, node: N::Node) {
        self.remove_weighed(nodes, node, nodes.weight(node));
    }

    /// As [`List::remove`], for callers that know the weight.
    #[inline(always)]
    pub fn remove_weighed<N: Nodes>(&mut self, nodes: &mut N, node: N::Node, weight: u64) {
        self.unlink(nodes, node);
        self.bytes -= weight;
        self.len -= 1;
    }

    /// Makes an entry of the list its newest.
    #[inline]
    pub fn renew<N: Nodes>(&mut self, nodes: &mut N, node: N::Node) {
        if self.newest != nodes.id(node) {
            self.unlink(nodes, node);
            self.link_newest(nodes, node);
        }
    }

    /// An entry of the list has another id now; its own links are already in place.
    pub fn renumber<N: Nodes>(&mut self, nodes: &mut N, from: Id, to: N::Node) {
        let (newer, older) = nodes.links(to);
        if newer == NONE {
            debug_assert_eq!(self.newest, from);
            self.newest = nodes.id(to);
        } else {
            nodes.set_older(nodes.node(newer), nodes.id(to));
        }
        if older == NONE {
            debug_assert_eq!(self.oldest, from);
            self.oldest = nodes.id(to);
        } else {
            nodes.set_newer(nodes.node(older), nodes.id(to));
        }
    }

    pub fn validate<N: Nodes>(&self, nodes: &N, queue: u8, found: &mut Vec<Id>) -> Result<(), Invalid> {
        let (mut newer, mut id, mut bytes, mut len) = (NONE, self.newest, 0, 0);
        while id != NONE {
            let node = nodes.node(id);
            let (before, older) = nodes.links(node);
            if before != newer || nodes.queue(node) != queue || len > self.len {
                return Err(Invalid(format!("entry {id} is not where queue {queue} has it")));
            }
            (bytes, len) = (bytes + nodes.weight(node), len + 1);
            found.push(id);
            (newer, id) = (id, older);
        }
        if (newer, bytes, len) != (self.oldest, self.bytes, self.len) {
            return Err(Invalid(format!(
                "queue {queue} counts {} bytes, {} entries: {bytes}, {len}",
                self.bytes, self.len
            )));
        }
        Ok(())
    }
}
