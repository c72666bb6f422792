//! S3-FIFO as published (Yang et al., SOSP 2023): a small queue of 10 %, a main queue, and the keys of who left the small
//! one in a ghost queue of 90 %.

use std::collections::{HashMap, VecDeque};

use super::Nodes;
use super::list::List;

const SMALL: u8 = 0;
const MAIN: u8 = 1;
/// Hits in the small queue that lead to the main one.
const THRESHOLD: u8 = 2;
/// Puts that wait for room at one time, and know that they had a ghost.
const MOST_KNOWN: usize = 15;

#[derive(Default)]
pub(crate) struct S3Fifo {
    small: List,
    main: List,
    ghosts: Ghosts,
    /// Keys that had a ghost and are about to be inserted.
    known: Vec<u64>,
}

impl S3Fifo {
    /// A key was looked for and is not there.
    pub fn miss(&mut self, hash: u64) {
        if self.ghosts.take(hash) {
            // A put that was refused leaves its key here.
            self.known.truncate(MOST_KNOWN);
            self.known.insert(0, hash);
        }
    }

    pub fn insert<N: Nodes>(&mut self, nodes: &mut N, node: N::Node) {
        let hash = nodes.hash(node);
        let known = self.known.iter().position(|&known| known == hash).map(|at| self.known.remove(at)).is_some();
        let (list, queue) = if known { (&mut self.main, MAIN) } else { (&mut self.small, SMALL) };
        list.push(nodes, node, queue);
    }

    pub fn remove<N: Nodes>(&mut self, nodes: &mut N, node: N::Node) {
        self.list_of(nodes.queue(node)).remove(nodes, node);
    }

    pub fn evict<N: Nodes>(&mut self, nodes: &mut N, capacity: u64) -> Option<N::Node> {
        let main = capacity - capacity / 10;
        if self.main.bytes <= main
            && let Some(node) = self.evict_small(nodes, capacity)
        {
            return Some(node);
        }
        self.evict_main(nodes).or_else(|| self.evict_small(nodes, capacity))
    }

    fn evict_small<N: Nodes>(&mut self, nodes: &mut N, capacity: u64) -> Option<N::Node> {
        while let Some(mut node) = self.small.next_out(nodes) {
            self.small.remove(nodes, node);
            if nodes.hits(&mut node) < THRESHOLD {
                self.ghosts.add(nodes.hash(node), nodes.weight(node), capacity / 10 * 9);
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

    pub fn list_of(&mut self, queue: u8) -> &mut List {
        if queue == SMALL { &mut self.small } else { &mut self.main }
    }

    pub fn lists(&self) -> [&List; 2] {
        [&self.small, &self.main]
    }
}

/// Hashes of keys that left, first in, first out, as many as their entries would have filled a share of the cache.
#[derive(Default)]
struct Ghosts {
    /// Hash, weight, and which of the hash's comings it is.
    queue: VecDeque<(u64, u64, u64)>,
    /// Hash to weight and coming.
    known: HashMap<u64, (u64, u64)>,
    bytes: u64,
    comings: u64,
}

impl Ghosts {
    fn add(&mut self, hash: u64, weight: u64, capacity: u64) {
        if weight > capacity || self.known.contains_key(&hash) {
            return;
        }
        while self.bytes + weight > capacity {
            let Some((hash, weight, coming)) = self.queue.pop_front() else { break };
            if self.known.get(&hash).is_some_and(|known| known.1 == coming) {
                self.known.remove(&hash);
                self.bytes -= weight;
            }
        }
        self.comings += 1;
        self.queue.push_back((hash, weight, self.comings));
        self.known.insert(hash, (weight, self.comings));
        self.bytes += weight;
        // Ghosts that were taken leave their place in the queue behind; it must not grow by them without end.
        if self.queue.len() > 2 * self.known.len() + 64 {
            let known = &self.known;
            self.queue.retain(|&(hash, _, coming)| known.get(&hash).is_some_and(|known| known.1 == coming));
        }
    }

    fn take(&mut self, hash: u64) -> bool {
        let Some((weight, _)) = self.known.remove(&hash) else { return false };
        self.bytes -= weight;
        true
    }
}
