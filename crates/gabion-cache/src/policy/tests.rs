//! Policies alone, fed with traces.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::AtomicU64;

use super::{Id, MOST_HITS, NONE, Nodes, Policy, Queues};
use crate::index::sketch;

#[derive(Clone, Default)]
struct Node {
    links: (Id, Id),
    hits: u8,
    queue: u8,
    key: u32,
    weight: u64,
}

/// Entries in a vector, and sketches for up to 1024 of them each.
struct Arena {
    nodes: Vec<Node>,
    sketches: Vec<[AtomicU64; sketch::SKETCH_WORDS]>,
    noted: u64,
    halved: u32,
    period: u64,
}

fn mix(key: u32) -> u64 {
    let mut x = u64::from(key).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x ^= x >> 31;
    x.wrapping_mul(0x94D0_49BB_1331_11EB) >> 24
}

impl Arena {
    fn new(entries: usize) -> Self {
        let count = entries.div_ceil(1024).next_power_of_two();
        let sketches = (0..count).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect();
        Self { nodes: Vec::new(), sketches, noted: 0, halved: 0, period: sketch::SAMPLE * entries as u64 }
    }

    fn note(&mut self, key: u32) {
        let hash = mix(key);
        if sketch::note(&self.sketches[hash as usize % self.sketches.len()], hash, self.noted) {
            self.noted += 1;
            if self.noted >= self.period {
                self.noted /= 2;
                self.halved += 1;
                self.sketches.iter().for_each(|sketch| sketch::halve(sketch, 1));
            }
        }
    }
}

impl Nodes for Arena {
    type Node = Id;
    fn node(&self, id: Id) -> Id {
        id
    }
    fn id(&self, node: Id) -> Id {
        node
    }
    fn links(&self, id: Id) -> (Id, Id) {
        self.nodes[id as usize].links
    }
    fn set_newer(&mut self, id: Id, newer: Id) {
        self.nodes[id as usize].links.0 = newer;
    }
    fn set_older(&mut self, id: Id, older: Id) {
        self.nodes[id as usize].links.1 = older;
    }
    fn weight(&self, id: Id) -> u64 {
        self.nodes[id as usize].weight
    }
    fn hits(&self, id: &mut Id) -> u8 {
        self.nodes[*id as usize].hits
    }
    fn set_hits(&mut self, id: &mut Id, hits: u8) {
        self.nodes[*id as usize].hits = hits;
    }
    fn queue(&self, id: Id) -> u8 {
        self.nodes[id as usize].queue
    }
    fn set_queue(&mut self, id: Id, queue: u8) {
        self.nodes[id as usize].queue = queue;
    }
    fn frequency(&self, id: Id) -> u8 {
        let hash = mix(self.nodes[id as usize].key);
        sketch::estimate(&self.sketches[hash as usize % self.sketches.len()], hash)
    }
    fn era(&self) -> u32 {
        self.halved
    }
    fn mark(&self, id: &mut Id) -> u64 {
        *id
    }
    fn is_unhit(&self, id: Id, mark: u64) -> bool {
        id == mark && self.nodes[id as usize].hits == 0
    }
}

/// Hashes of keys that left, first in, first out, as many as weigh no more than a share of the cache: a plain model.
#[derive(Default)]
pub(crate) struct Ghosts {
    /// Hash, weight, and which of the hash's comings it is.
    queue: VecDeque<(u64, u64, u64)>,
    /// Hash to weight and coming.
    known: HashMap<u64, (u64, u64)>,
    bytes: u64,
    comings: u64,
}

impl Ghosts {
    pub fn add(&mut self, hash: u64, weight: u64, capacity: u64) {
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
    }

    pub fn len(&self) -> u64 {
        self.known.len() as u64
    }

    pub fn take(&mut self, hash: u64) -> bool {
        let Some((weight, _)) = self.known.remove(&hash) else { return false };
        self.bytes -= weight;
        true
    }
}

/// Misses of a policy on a trace of (key, weight).
fn misses(policy: Policy, capacity: u64, trace: impl IntoIterator<Item = (u32, u64)>) -> u64 {
    let mut arena = Arena::new(capacity as usize);
    let (mut queues, mut by_key, mut free) = (Queues::new(policy), HashMap::<u32, Id>::new(), Vec::new());
    let (mut misses, mut ghosts) = (0, Ghosts::default());
    for (key, weight) in trace {
        if policy == Policy::Sketch {
            let saturated = by_key.get(&key).is_some_and(|&id| arena.nodes[id as usize].hits == MOST_HITS);
            if !saturated {
                arena.note(key);
            }
        }
        if let Some(&id) = by_key.get(&key) {
            arena.nodes[id as usize].hits = (arena.nodes[id as usize].hits + 1).min(MOST_HITS);
            queues.touch(&mut arena, id);
            continue;
        }
        misses += 1;
        let had_ghost = ghosts.take(u64::from(key));
        while queues.bytes() + weight > capacity {
            let gone = queues.evict(&mut arena, capacity).expect("there is something");
            if let Some(most) = queues.ghosts(arena.queue(gone), capacity) {
                ghosts.add(u64::from(arena.nodes[gone as usize].key), arena.weight(gone), most);
            }
            by_key.remove(&arena.nodes[gone as usize].key);
            free.push(gone);
        }
        let id = free.pop().unwrap_or_else(|| {
            arena.nodes.push(Node::default());
            arena.nodes.len() as Id - 1
        });
        arena.nodes[id as usize] = Node { key, weight, links: (NONE, NONE), ..Node::default() };
        queues.insert(&mut arena, id, had_ghost);
        by_key.insert(key, id);
    }
    let mut found = queues.validate(&arena).unwrap();
    found.sort_unstable();
    let mut there: Vec<Id> = by_key.into_values().collect();
    there.sort_unstable();
    assert_eq!(found, there);
    misses
}

/// The bytes of a trace of the data folder, or `None`, with the reason printed.
fn trace(name: &str, unpack: &str) -> Option<Vec<u8>> {
    let Some(folder) = std::env::var_os("GABION_DATA") else {
        eprintln!("skipped: GABION_DATA does not name a folder with traces");
        return None;
    };
    let file = PathBuf::from(folder).join("traces").join(name);
    let output = Command::new(unpack).arg("-dc").arg(&file).output();
    let Some(output) = output.ok().filter(|output| output.status.success()) else {
        eprintln!("skipped: {unpack} does not unpack {}", file.display());
        return None;
    };
    Some(output.stdout)
}

pub(crate) fn numbers(name: &str) -> Option<Vec<u32>> {
    let bytes = trace(name, "xz")?;
    Some(bytes.as_chunks::<4>().0.iter().map(|&bytes| u32::from_be_bytes(bytes)).collect())
}

pub(crate) fn oltp() -> Option<Vec<u32>> {
    let text = String::from_utf8(trace("OLTP.lis.zst", "zstd")?).unwrap();
    let runs = text.lines().flat_map(|line| {
        let mut fields = line.split_whitespace().map(|field| field.parse::<u32>().unwrap());
        let (start, count) = (fields.next().unwrap(), fields.next().unwrap());
        start..start + count
    });
    Some(runs.collect())
}

/// Hit rate in hundredths of a percent, rounded.
pub(crate) fn hit_rate(policy: Policy, capacity: u64, trace: &[u32]) -> u64 {
    let missed = misses(policy, capacity, trace.iter().map(|&key| (key, 1)));
    let share = 1.0 - missed as f64 / trace.len() as f64;
    (0..=10_000).find(|&hundredths| hundredths as f64 + 0.5 > share * 10_000.0).unwrap_or(10_000)
}

/// Published hit rates (LRU, FIFO, S3-FIFO), and the bar of the default policy.
fn check(trace: &[u32], capacity: u64, published: [u64; 3], bar: u64) {
    let policies = [Policy::Lru, Policy::Fifo, Policy::S3Fifo];
    assert_eq!(policies.map(|policy| hit_rate(policy, capacity, trace)), published, "at {capacity} entries");
    let own = hit_rate(Policy::Sketch, capacity, trace);
    eprintln!("{capacity} entries: {published:?}, default {own}");
    assert!(own >= bar, "{own} of {bar} at {capacity} entries");
}

#[test]
fn an_hour_of_a_database_gives_the_published_hit_rates() {
    let Some(trace) = oltp() else { return };
    check(&trace, 1000, [3283, 2853, 4084], 3900);
    check(&trace, 5000, [5365, 4968, 5588], 5520);
}

#[test]
fn product_pages_give_the_published_hit_rates() {
    let Some(trace) = numbers("cache2k_web12.trace.xz") else { return };
    check(&trace, 1500, [6943, 6549, 7299], 7250);
}

#[test]
fn a_busy_day_of_a_shop_gives_the_published_hit_rates() {
    let Some(trace) = numbers("cache2k_orm-busy.trace.xz") else { return };
    check(&trace, 5000, [8546, 8429, 8664], 8530);
}

#[test]
fn a_loop_longer_than_the_cache_does_not_empty_it() {
    let trace: Vec<u32> = (0..200).flat_map(|_| 0..1000).collect();
    assert_eq!(hit_rate(Policy::Lru, 512, &trace), 0);
    let own = hit_rate(Policy::Sketch, 512, &trace);
    assert!(own >= 3500, "{own}");
}
