//! Least recently used.

use super::list::List;
use super::{Id, Nodes};

#[derive(Default)]
pub(crate) struct Lru {
    list: List,
}

impl Lru {
    pub fn insert(&mut self, nodes: &mut impl Nodes, id: Id) {
        self.list.push(nodes, id, 0);
    }

    pub fn touch(&mut self, nodes: &mut impl Nodes, id: Id) {
        self.list.renew(nodes, id);
    }

    pub fn remove(&mut self, nodes: &mut impl Nodes, id: Id) {
        self.list.remove(nodes, id);
    }

    pub fn evict(&mut self, nodes: &mut impl Nodes) -> Option<Id> {
        let id = self.list.next_out(nodes)?;
        self.list.remove(nodes, id);
        Some(id)
    }

    pub fn list_of(&mut self, _queue: u8) -> &mut List {
        &mut self.list
    }

    pub fn lists(&self) -> [&List; 1] {
        [&self.list]
    }
}
