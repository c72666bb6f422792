//! A doubly linked list of entries, newest first, whose links lie in the entries.

use super::Nodes;

/// An entry, as the policies know it: a number that is its own for as long as it hangs in a list.
pub(crate) type Id = u64;

/// No entry.
pub(crate) const NONE: Id = (1 << 39) - 1;

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

    /// Who goes next: the oldest, or the one after it when the oldest is spared.
    #[inline]
    pub fn next_out(&self, nodes: &impl Nodes) -> Option<Id> {
        let oldest = self.oldest()?;
        let next = if nodes.spares(oldest) { nodes.links(oldest).0 } else { oldest };
        (next != NONE).then_some(next)
    }

    #[inline]
    pub fn push(&mut self, nodes: &mut impl Nodes, id: Id, queue: u8) {
        nodes.set_queue(id, queue);
        self.link_newest(nodes, id);
        self.bytes += nodes.weight(id);
        self.len += 1;
    }

    #[inline]
    fn link_newest(&mut self, nodes: &mut impl Nodes, id: Id) {
        nodes.set_links(id, NONE, self.newest);
        if self.newest == NONE {
            self.oldest = id;
        } else {
            let older = nodes.links(self.newest).1;
            nodes.set_links(self.newest, id, older);
        }
        self.newest = id;
    }

    #[inline]
    fn unlink(&mut self, nodes: &mut impl Nodes, id: Id) {
        let (newer, older) = nodes.links(id);
        if newer == NONE {
            self.newest = older;
        } else {
            let before = nodes.links(newer).0;
            nodes.set_links(newer, before, older);
        }
        if older == NONE {
            self.oldest = newer;
        } else {
            let after = nodes.links(older).1;
            nodes.set_links(older, newer, after);
        }
    }

    #[inline]
    pub fn remove(&mut self, nodes: &mut impl Nodes, id: Id) {
        self.unlink(nodes, id);
        self.bytes -= nodes.weight(id);
        self.len -= 1;
    }

    /// Makes an entry of the list its newest.
    pub fn renew(&mut self, nodes: &mut impl Nodes, id: Id) {
        if self.newest != id {
            self.unlink(nodes, id);
            self.link_newest(nodes, id);
        }
    }

    /// An entry of the list has another id now; its own links are already in place.
    pub fn renumber(&mut self, nodes: &mut impl Nodes, from: Id, to: Id) {
        let (newer, older) = nodes.links(to);
        if newer == NONE {
            debug_assert_eq!(self.newest, from);
            self.newest = to;
        } else {
            let before = nodes.links(newer).0;
            nodes.set_links(newer, before, to);
        }
        if older == NONE {
            debug_assert_eq!(self.oldest, from);
            self.oldest = to;
        } else {
            let after = nodes.links(older).1;
            nodes.set_links(older, to, after);
        }
    }

    pub fn validate(&self, nodes: &impl Nodes, queue: u8, found: &mut Vec<Id>) -> Result<(), String> {
        let (mut newer, mut id, mut bytes, mut len) = (NONE, self.newest, 0, 0);
        while id != NONE {
            let (before, older) = nodes.links(id);
            if before != newer || nodes.queue(id) != queue || len > self.len {
                return Err(format!("entry {id} is not where queue {queue} has it"));
            }
            (bytes, len) = (bytes + nodes.weight(id), len + 1);
            found.push(id);
            (newer, id) = (id, older);
        }
        if (newer, bytes, len) != (self.oldest, self.bytes, self.len) {
            return Err(format!("queue {queue} counts {} bytes, {} entries: {bytes}, {len}", self.bytes, self.len));
        }
        Ok(())
    }
}
