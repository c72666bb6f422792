//! S3-FIFO's two queues, with a frequency sketch to decide who enters the second.

use super::Nodes;
use super::list::List;

const SMALL: u8 = 0;
const MAIN: u8 = 1;
/// The small queue's share of the bytes: one in so many.
const SMALL_SHARE: u64 = 9;
/// Whoever was asked for more often than this and still loses is let in once in a while, so that nobody can keep a
/// cache's content in place by learning which keys collide in the sketch.
const WARM: u8 = 5;
const LET_IN: u64 = 128;

pub(crate) struct S3Sketch {
    small: List,
    main: List,
    /// Bytes of both when the latest entry came: what the shares are of, however many go at one time.
    full: u64,
    random: u64,
}

impl Default for S3Sketch {
    fn default() -> Self {
        Self { small: List::default(), main: List::default(), full: 0, random: 0x9E37_79B9_7F4A_7C15 }
    }
}

impl S3Sketch {
    #[inline]
    pub fn insert<N: Nodes>(&mut self, nodes: &mut N, node: N::Node) {
        self.small.push(nodes, node, SMALL);
        self.full = self.small.bytes + self.main.bytes;
    }

    #[inline]
    pub fn remove<N: Nodes>(&mut self, nodes: &mut N, node: N::Node) {
        self.list_of(nodes.queue(node)).remove(nodes, node);
    }

    #[inline]
    pub fn evict<N: Nodes>(&mut self, nodes: &mut N) -> Option<N::Node> {
        let victim = self.choose(nodes);
        // Whoever is next was just looked at, as the neighbour of one that left.
        if let Some(next) = self.small.oldest() {
            nodes.foresee(nodes.node(next));
        }
        victim
    }

    #[inline]
    fn choose<N: Nodes>(&mut self, nodes: &mut N) -> Option<N::Node> {
        let main_share = self.full - self.full / SMALL_SHARE;
        loop {
            let Some(mut candidate) = self.small.next_out(nodes).filter(|_| self.main.bytes <= main_share) else {
                let victim = self.main_victim(nodes).or_else(|| self.small.next_out(nodes))?;
                self.remove(nodes, victim);
                return Some(victim);
            };
            self.small.remove(nodes, candidate);
            let has_room = self.main.bytes + nodes.weight(candidate) <= main_share;
            if nodes.take_hits(&mut candidate) > 0 || has_room {
                self.main.push(nodes, candidate, MAIN);
                continue;
            }
            let Some(victim) = self.main_victim(nodes) else { return Some(candidate) };
            if !self.admits(nodes.frequency(candidate), nodes.frequency(victim)) {
                return Some(candidate);
            }
            self.main.remove(nodes, victim);
            self.main.push(nodes, candidate, MAIN);
            return Some(victim);
        }
    }

    fn admits(&mut self, candidate: u8, victim: u8) -> bool {
        if candidate > victim {
            return true;
        }
        if candidate <= WARM {
            return false;
        }
        // Marsaglia, "Xorshift RNGs", 2003.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random.is_multiple_of(LET_IN)
    }

    /// The main queue's clock: whoever was hit gets another round for each hit.
    fn main_victim<N: Nodes>(&mut self, nodes: &mut N) -> Option<N::Node> {
        loop {
            let mut node = self.main.next_out(nodes)?;
            if nodes.wear(&mut node) == 0 {
                return Some(node);
            }
            self.main.renew(nodes, node);
        }
    }

    #[inline]
    pub fn list_of(&mut self, queue: u8) -> &mut List {
        if queue == SMALL { &mut self.small } else { &mut self.main }
    }

    pub fn lists(&self) -> [&List; 2] {
        [&self.small, &self.main]
    }
}
