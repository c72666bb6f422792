//! Sixteen threads on one pool: no two live buffers overlap, nothing is lost, no limit is broken.
//!
//! The seed is printed; `GABION_SEED=n` runs it again, `GABION_STRESS_SECONDS=n` runs longer.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gabion_blocks::os::Twin;
use gabion_blocks::{
    BLOCK_BYTES, BlockError, BlockSet, Buffer, Change, GroupRequest, Piece, Pool, Request, Run, Settings,
};

const MIB: usize = 1 << 20;

/// Xorshift: any numbers do.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Sizes of every tier, small ones more often.
    fn bytes(&mut self) -> usize {
        let top = [300, 5000, 70_000, MIB, 4 * MIB, 10 * MIB][[0, 0, 1, 1, 2, 2, 3, 3, 4, 5][self.below(10)]];
        self.below(top)
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn seed() -> u64 {
    let seed = number("GABION_SEED").unwrap_or_else(|| RandomState::new().build_hasher().finish() | 1);
    println!("GABION_SEED={seed}");
    seed
}

fn duration() -> Duration {
    Duration::from_secs(number("GABION_STRESS_SECONDS").unwrap_or(2))
}

/// A buffer and what it must hold: its stamp in the first and last bytes and at every page.
struct Live {
    buffer: Buffer,
    stamp: u8,
}

impl Live {
    fn places(len: usize) -> impl Iterator<Item = usize> {
        (0..len).step_by(4096).chain(len.checked_sub(1))
    }

    fn new(mut buffer: Buffer, stamp: u8) -> Self {
        let bytes = buffer.as_mut_slice();
        Self::places(bytes.len()).for_each(|at| bytes[at] = stamp);
        Self { buffer, stamp }
    }

    fn check(&self) {
        let bytes = self.buffer.as_slice();
        assert!(Self::places(bytes.len()).all(|at| bytes[at] == self.stamp), "{:?} was overwritten", self.buffer);
    }
}

/// What all threads share.
struct Arena<'a> {
    pool: &'a Pool,
    /// Buffers on their way from one thread to another.
    table: Mutex<Vec<Live>>,
    stop: AtomicBool,
    lent: AtomicU64,
}

fn step(shared: &Arena<'_>, own: &mut Vec<Live>, random: &mut Random) {
    let pool = shared.pool;
    let stamp = random.next() as u8;
    match random.below(20) {
        0..8 => {
            let (bytes, clean) = (random.bytes(), random.below(4) == 0);
            let timeout = (random.below(3) == 0).then_some(Duration::from_millis(2));
            match pool.rent(&Request { bytes, clean, timeout }) {
                Ok(buffer) => {
                    shared.lent.fetch_add(1, Ordering::Relaxed);
                    assert!(!clean || buffer.as_slice().iter().all(|&byte| byte == 0));
                    assert_eq!(pool.owns(buffer.as_ptr()), Some(buffer.capacity()));
                    assert_eq!(pool.lent_at(buffer.as_ptr()), Some(buffer.capacity()));
                    // Perhaps another thread's, or one that is just being cut or made whole.
                    let anywhere = (buffer.as_ptr().addr() & !(BLOCK_BYTES - 1)) + random.below(64) * (64 << 10);
                    pool.lent_at(std::ptr::without_provenance(anywhere));
                    own.push(Live::new(buffer, stamp));
                }
                Err(BlockError::Total { .. } | BlockError::TimedOut { .. }) => own.truncate(own.len() / 2),
                Err(other) => panic!("{other}"),
            }
        }
        8 => {
            let request = GroupRequest { bytes: random.below(14 * MIB), ..GroupRequest::default() };
            if let Ok(group) = pool.rent_group(&request) {
                own.extend(group.into_parts().into_iter().map(|part| Live::new(part, stamp)));
            }
        }
        9..15 if !own.is_empty() => {
            let live = own.swap_remove(random.below(own.len()));
            live.check();
            if random.below(4) == 0 {
                let at = live.buffer.into_raw();
                assert!(pool.owns(at.as_ptr()).is_some() && pool.lent_at(at.as_ptr()).is_some());
                // SAFETY: let go of just now.
                unsafe { pool.return_raw(at) };
            }
        }
        15..18 => {
            let mut table = shared.table.lock().unwrap();
            if table.len() > 30 || (own.is_empty() && !table.is_empty()) {
                let at = random.below(table.len());
                own.push(table.swap_remove(at));
            } else if let Some(live) = own.pop() {
                table.push(live);
            }
        }
        18 => match random.below(60) {
            0 => drop(pool.trim(true)),
            1 => drop(pool.trim(false)),
            2 => pool.look_soon(),
            3 => assert!(pool.stats().mapped <= pool.settings().total_limit),
            4 => {
                let change = Change { arenas: Some(1 << random.below(5)), ..Change::default() };
                pool.configure(&change).unwrap();
            }
            5 => {
                let pool_bytes = [0, 16 * MIB, 200 * MIB][random.below(3)] as u64;
                pool.configure(&Change { pool_bytes: Some(pool_bytes), ..Change::default() }).unwrap();
            }
            6 => {
                let set = BlockSet::new(pool, random.below(2)).unwrap();
                let (number, zero) = set.map().unwrap();
                let block = set.block(number).unwrap();
                let word = random.below(if zero { 500_000 } else { 512 });
                assert_eq!(block.word(word).load(Ordering::Relaxed), 0);
                let run = Run::new(pool, Piece::list(&[&vec![stamp; 1_200_000]])).unwrap();
                assert!(run.bytes().iter().all(|&byte| byte == stamp));
            }
            _ => {}
        },
        _ => own.iter().for_each(Live::check),
    }
}

fn run(pool: &Pool, seed: u64, generations: bool) {
    let shared = Arena { pool, table: Mutex::new(Vec::new()), stop: AtomicBool::new(false), lent: AtomicU64::new(0) };
    let end = Instant::now() + duration();
    std::thread::scope(|scope| {
        let shared = &shared;
        scope.spawn(move || {
            // The equations hold when all is quiet; but whoever checks them meanwhile does no harm.
            while !shared.stop.load(Ordering::Relaxed) {
                let _ = pool.validate();
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        for thread in 0..16_u64 {
            scope.spawn(move || {
                let mut random = Random(seed ^ (thread + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
                let mut own = Vec::new();
                while !shared.stop.load(Ordering::Relaxed) {
                    if generations {
                        // A thread for every hundred steps; what it holds lives on.
                        std::thread::scope(|inner| {
                            inner.spawn(|| (0..100).for_each(|_| step(shared, &mut own, &mut random)));
                        });
                    } else {
                        (0..100).for_each(|_| step(shared, &mut own, &mut random));
                    }
                    if own.len() > 40 {
                        own.drain(..20).for_each(|live| live.check());
                    }
                    if Instant::now() > end {
                        shared.stop.store(true, Ordering::Relaxed);
                    }
                }
                own.iter().for_each(Live::check);
            });
        }
    });
    shared.table.into_inner().unwrap().iter().for_each(Live::check);
    assert!(shared.lent.load(Ordering::Relaxed) > 0);
}

/// Waits until `holds` is content: threads that a scope has waited for may still be on their way out, and the trimmer
/// may have something in hand.
fn eventually(mut holds: impl FnMut() -> Result<(), String>) {
    let mut outcome = holds();
    // Counted by steps: by the clock, time is over for a process that was stopped, before anybody could do anything.
    for _ in 0..12_000 {
        if outcome.is_ok() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
        outcome = holds();
    }
    outcome.unwrap();
}

fn after(pool: Pool, twin: &Twin, limit: u64) {
    eventually(|| {
        pool.validate().map_err(|wrong| wrong.0)?;
        let stats = pool.stats();
        if (stats.live, stats.in_use, stats.held) == (0, 0, 0) { Ok(()) } else { Err(format!("{stats:?}")) }
    });
    assert!(pool.stats().peak <= limit, "{:?}", pool.stats());
    eventually(|| {
        pool.trim(true);
        let stats = pool.stats();
        if stats.mapped == 0 { Ok(()) } else { Err(format!("not trimmed: {stats:?}")) }
    });
    drop(pool);
    assert_eq!(twin.mapped(), 0);
}

fn stress(limit: u64, generations: bool) {
    let twin: &'static Twin = Box::leak(Box::default());
    let mut settings = Settings::default();
    settings.total_limit = limit;
    settings.trim_period = Duration::from_millis(40);
    let pool = Pool::new(twin, settings).unwrap();
    run(&pool, seed(), generations);
    after(pool, twin, limit);
}

#[test]
fn sixteen_threads_under_a_tight_limit() {
    stress(150 << 20, false);
}

#[test]
fn sixteen_threads_without_a_limit() {
    stress(u64::MAX, false);
}

#[test]
fn threads_that_end_while_their_buffers_live() {
    stress(300 << 20, true);
}
