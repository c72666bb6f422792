//! S3-FIFO's two queues, with a frequency sketch to decide who enters the second.

use super::list::List;
use super::nodes::{Id, NONE, Nodes};

const SMALL: u8 = 0;
const MAIN: u8 = 1;
/// The small queue's share of the bytes: one in so many.
const SMALL_SHARE: u64 = 9;
/// An entry that was asked for more often than this and still loses is let in once in a while, so that nobody can keep
/// a cache's content in place by learning which keys collide in the sketch.
const WARM: u8 = 5;
const LET_IN: u64 = 128;

pub(crate) struct S3Sketch {
    small: List,
    main: List,
    /// Bytes of both when the latest entry came: what the shares are of, however many go at one time.
    full: u64,
    rival: Rival,
    random: u64,
}

/// Which goes next from the main queue. It stands while that entry is the oldest, unhit, and of the same era: nobody
/// has asked for its key then, so that the frequency is what it was, except for what other keys may have worn off it.
#[derive(Clone, Copy)]
struct Rival {
    id: Id,
    mark: u64,
    frequency: u8,
    era: u32,
}

impl Rival {
    const NOBODY: Self = Self { id: NONE, mark: 0, frequency: 0, era: 0 };
}

impl Default for S3Sketch {
    fn default() -> Self {
        Self {
            small: List::default(),
            main: List::default(),
            full: 0,
            rival: Rival::NOBODY,
            random: 0x9E37_79B9_7F4A_7C15,
        }
    }
}

impl S3Sketch {
    #[inline(always)]
    pub fn insert<N: Nodes>(&mut self, nodes: &mut N, node: N::Node, weight: u64) {
        self.small.push_weighed(nodes, node, SMALL, weight);
        self.full = self.small.bytes + self.main.bytes;
    }

    #[inline]
    pub fn remove<N: Nodes>(&mut self, nodes: &mut N, node: N::Node) {
        self.look_again();
        self.list_of(nodes.queue(node)).remove(nodes, node);
    }

    /// What is known of the main queue's next victim may be another's from now on.
    #[inline]
    pub fn look_again(&mut self) {
        self.rival = Rival::NOBODY;
    }

    /// Evicts the next entry if it, with its weight, is `fit`; otherwise none.
    #[inline(always)]
    pub fn evict<N: Nodes>(&mut self, nodes: &mut N, fit: impl Fn(N::Node, u64) -> bool + Copy) -> Option<N::Node> {
        let victim = self.choose(nodes, fit);
        // The next entry was just looked at, as the neighbour of one that left.
        if let Some(next) = self.small.oldest() {
            nodes.foresee(nodes.node(next));
        }
        victim
    }

    #[inline(always)]
    fn choose<N: Nodes>(&mut self, nodes: &mut N, fit: impl Fn(N::Node, u64) -> bool + Copy) -> Option<N::Node> {
        let main_share = self.full - self.full / SMALL_SHARE;
        loop {
            let candidate = if self.main.bytes <= main_share { self.small.next_out(nodes) } else { None };
            let Some(mut candidate) = candidate else {
                return self.choose_any(nodes, fit).map(|id| nodes.node(id));
            };
            let weight = nodes.weight(candidate);
            let has_room = self.main.bytes + weight <= main_share;
            if nodes.take_hits(&mut candidate) > 0 || has_room {
                self.small.remove_weighed(nodes, candidate, weight);
                self.main.push_weighed(nodes, candidate, MAIN, weight);
                continue;
            }
            let has_rival = self.has_rival(nodes);
            if !has_rival || !self.admits(nodes.frequency(candidate)) {
                if !fit(candidate, weight) {
                    return None;
                }
                self.small.remove_weighed(nodes, candidate, weight);
                return Some(candidate);
            }
            let loser = nodes.node(self.rival.id);
            let lost = nodes.weight(loser);
            if !fit(loser, lost) {
                return None;
            }
            self.small.remove_weighed(nodes, candidate, weight);
            self.look_again();
            self.main.remove_weighed(nodes, loser, lost);
            self.main.push_weighed(nodes, candidate, MAIN, weight);
            return Some(loser);
        }
    }

    /// Which goes while the small queue is empty, or the main one has more than its share.
    #[inline(never)]
    fn choose_any<N: Nodes>(&mut self, nodes: &mut N, fit: impl Fn(N::Node, u64) -> bool + Copy) -> Option<Id> {
        let victim = self.main_victim(nodes).or_else(|| self.small.next_out(nodes))?;
        if !fit(victim, nodes.weight(victim)) {
            return None;
        }
        self.remove(nodes, victim);
        Some(nodes.id(victim))
    }

    /// Finds whom in the main queue a candidate is held against. As long as it is the same one, it is not looked at
    /// again.
    #[inline(always)]
    fn has_rival<N: Nodes>(&mut self, nodes: &mut N) -> bool {
        let known = &self.rival;
        let stands = known.id != NONE && self.main.oldest() == Some(known.id) && known.era == nodes.era();
        stands && !nodes.spares(known.id) && nodes.is_unhit(known.id, known.mark) || self.find_rival(nodes)
    }

    #[inline(never)]
    fn find_rival<N: Nodes>(&mut self, nodes: &mut N) -> bool {
        let Some(mut node) = self.main_victim(nodes) else { return false };
        let (id, mark, frequency) = (nodes.id(node), nodes.mark(&mut node), nodes.frequency(node));
        self.rival = Rival { id, mark, frequency, era: nodes.era() };
        true
    }

    /// Whether a candidate whose key was asked for so often takes the place of its rival.
    #[inline(always)]
    fn admits(&mut self, candidate: u8) -> bool {
        if candidate > self.rival.frequency {
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

    /// The main queue's clock: an entry that was hit gets another round for each hit.
    fn main_victim<N: Nodes>(&mut self, nodes: &mut N) -> Option<N::Node> {
        loop {
            let mut node = self.main.next_out(nodes)?;
            if nodes.wear(&mut node) == 0 {
                return Some(node);
            }
            self.look_again();
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
