//! S3-FIFO as published (Yang et al., SOSP 2023): a small queue of 10 %, a main queue, and the keys of who left the small
//! one in a ghost queue of 90 %.

use std::collections::{HashMap, VecDeque};

use super::Nodes;
use super::list::List;

const SMALL: u8 = 0;
const MAIN: u8 = 1;
/// Hits in the small queue that lead to the main one.
const THRESHOLD: u8 = 2;

#[derive(Default)]
pub(crate) struct S3Fifo {
    small: List,
    main: List,
    ghosts: Ghosts,
    /// The key that is about to be inserted has a ghost.
    known: bool,
}

impl S3Fifo {
    /// A key was looked for and is not there.
    pub fn miss(&mut self, hash: u32) {
        self.known = self.ghosts.take(hash);
    }

    pub fn insert(&mut self, nodes: &mut impl Nodes, id: u32) {
        nodes.set_hits(id, 0);
        let known = std::mem::take(&mut self.known);
        let (list, queue) = if known { (&mut self.main, MAIN) } else { (&mut self.small, SMALL) };
        list.push(nodes, id, queue);
    }

    pub fn remove(&mut self, nodes: &mut impl Nodes, id: u32) {
        self.list_of(nodes.queue(id)).remove(nodes, id);
    }

    pub fn evict(&mut self, nodes: &mut impl Nodes, capacity: u64) -> Option<u32> {
        let main = capacity - capacity / 10;
        if self.main.bytes <= main
            && let Some(id) = self.evict_small(nodes, capacity)
        {
            return Some(id);
        }
        self.evict_main(nodes).or_else(|| self.evict_small(nodes, capacity))
    }

    fn evict_small(&mut self, nodes: &mut impl Nodes, capacity: u64) -> Option<u32> {
        while let Some(id) = self.small.oldest() {
            self.small.remove(nodes, id);
            if nodes.hits(id) < THRESHOLD {
                self.ghosts.add(nodes.hash(id), nodes.weight(id), capacity / 10 * 9);
                return Some(id);
            }
            nodes.set_hits(id, 0);
            self.main.push(nodes, id, MAIN);
        }
        None
    }

    fn evict_main(&mut self, nodes: &mut impl Nodes) -> Option<u32> {
        while let Some(id) = self.main.oldest() {
            let hits = nodes.hits(id);
            if hits == 0 {
                self.main.remove(nodes, id);
                return Some(id);
            }
            nodes.set_hits(id, hits - 1);
            self.main.renew(nodes, id);
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
    queue: VecDeque<(u32, u64, u64)>,
    /// Hash to weight and coming.
    known: HashMap<u32, (u64, u64)>,
    bytes: u64,
    comings: u64,
}

impl Ghosts {
    fn add(&mut self, hash: u32, weight: u64, capacity: u64) {
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

    fn take(&mut self, hash: u32) -> bool {
        let Some((weight, _)) = self.known.remove(&hash) else { return false };
        self.bytes -= weight;
        true
    }
}
