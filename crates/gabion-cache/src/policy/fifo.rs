//! First in, first out.

use super::list::List;
use super::nodes::Nodes;

#[derive(Default)]
pub(crate) struct Fifo {
    list: List,
}

impl Fifo {
    pub fn insert<N: Nodes>(&mut self, nodes: &mut N, node: N::Node) {
        self.list.push(nodes, node, 0);
    }

    pub fn remove<N: Nodes>(&mut self, nodes: &mut N, node: N::Node) {
        self.list.remove(nodes, node);
    }

    pub fn evict<N: Nodes>(&mut self, nodes: &mut N) -> Option<N::Node> {
        let node = self.list.next_out(nodes)?;
        self.list.remove(nodes, node);
        Some(node)
    }

    pub fn list_of(&mut self, _queue: u8) -> &mut List {
        &mut self.list
    }

    pub fn lists(&self) -> [&List; 1] {
        [&self.list]
    }
}
