//! S3-FIFO as published (Yang et al., SOSP 2023): a small queue of 10 %, a main queue, and the keys of who left the small
//! one in a ghost queue of 90 %.

use std::collections::{HashMap, VecDeque};

use super::list::List;
use super::{Id, Nodes};

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

    pub fn insert(&mut self, nodes: &mut impl Nodes, id: Id) {
        let hash = nodes.hash(id);
        let known = self.known.iter().position(|&known| known == hash).map(|at| self.known.remove(at)).is_some();
        let (list, queue) = if known { (&mut self.main, MAIN) } else { (&mut self.small, SMALL) };
        list.push(nodes, id, queue);
    }

    pub fn remove(&mut self, nodes: &mut impl Nodes, id: Id) {
        self.list_of(nodes.queue(id)).remove(nodes, id);
    }

    pub fn evict(&mut self, nodes: &mut impl Nodes, capacity: u64) -> Option<Id> {
        let main = capacity - capacity / 10;
        if self.main.bytes <= main
            && let Some(id) = self.evict_small(nodes, capacity)
        {
            return Some(id);
        }
        self.evict_main(nodes).or_else(|| self.evict_small(nodes, capacity))
    }

    fn evict_small(&mut self, nodes: &mut impl Nodes, capacity: u64) -> Option<Id> {
        while let Some(id) = self.small.next_out(nodes) {
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

    fn evict_main(&mut self, nodes: &mut impl Nodes) -> Option<Id> {
        while let Some(id) = self.main.next_out(nodes) {
            if nodes.wear(id) == 0 {
                self.main.remove(nodes, id);
                return Some(id);
            }
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
