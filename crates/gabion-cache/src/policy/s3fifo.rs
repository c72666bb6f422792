//! S3-FIFO as published (Yang et al., SOSP 2023): a small queue of 10 %, a main queue, and the keys of those that left
//! the small one in a ghost queue of 90 %, which the policy's caller keeps.

use super::list::List;
use super::nodes::Nodes;

const SMALL: u8 = 0;
const MAIN: u8 = 1;
/// Hits in the small queue that lead to the main one.
const THRESHOLD: u8 = 2;

#[derive(Default)]
pub(crate) struct S3Fifo {
    small: List,
    main: List,
}

impl S3Fifo {
    pub fn insert<N: Nodes>(&mut self, nodes: &mut N, node: N::Node, had_ghost: bool) {
        let (list, queue) = if had_ghost { (&mut self.main, MAIN) } else { (&mut self.small, SMALL) };
        list.push(nodes, node, queue);
    }

    pub fn remove<N: Nodes>(&mut self, nodes: &mut N, node: N::Node) {
        self.list_of(nodes.queue(node)).remove(nodes, node);
    }

    pub fn evict<N: Nodes>(&mut self, nodes: &mut N, capacity: u64) -> Option<N::Node> {
        let main = capacity - capacity / 10;
        if self.main.bytes <= main
            && let Some(node) = self.evict_small(nodes)
        {
            return Some(node);
        }
        self.evict_main(nodes).or_else(|| self.evict_small(nodes))
    }

    fn evict_small<N: Nodes>(&mut self, nodes: &mut N) -> Option<N::Node> {
        while let Some(mut node) = self.small.next_out(nodes) {
            self.small.remove(nodes, node);
            if nodes.hits(&mut node) < THRESHOLD {
                return Some(node);
            }
            nodes.set_hits(&mut node, 0);
            self.main.push(nodes, node, MAIN);
        }
        None
    }

    fn evict_main<N: Nodes>(&mut self, nodes: &mut N) -> Option<N::Node> {
        while let Some(mut node) = self.main.next_out(nodes) {
            if nodes.wear(&mut node) == 0 {
                self.main.remove(nodes, node);
                return Some(node);
            }
            self.main.renew(nodes, node);
        }
        None
    }

    /// Whether who was let go of leaves a ghost: it was not in the main queue.
    pub fn leaves_ghost(queue: u8) -> bool {
        queue == SMALL
    }

    /// What all ghosts together may weigh.
    pub fn ghosts(capacity: u64) -> u64 {
        capacity / 10 * 9
    }

    pub fn list_of(&mut self, queue: u8) -> &mut List {
        if queue == SMALL { &mut self.small } else { &mut self.main }
    }

    pub fn lists(&self) -> [&List; 2] {
        [&self.small, &self.main]
    }
}
