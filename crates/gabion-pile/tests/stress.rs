//! Threads that put, read, replace, view and remove the same pointers at the same time.
//!
//! The seed is printed; `GABION_SEED` sets it, `GABION_STRESS_SECONDS` how long it goes on (2 by default).

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use gabion_pile::{Pile, PileError, PileOptions, Pointer, ReadBuf, Reading};

/// A small generator (Marsaglia 2003): the same numbers for the same seed, everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

fn number(name: &str, default: u64) -> u64 {
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A payload that shows any mixture: every word is the same number, and the number knows the length.
fn payload(random: &mut Random, bytes: &mut Vec<u8>) {
    let length = match random.below(20) {
        0 => random.below(40_000),
        1 => 1_040_000 + random.below(16_000),
        2..8 => 200 + random.below(900),
        _ => random.below(200),
    };
    // Large ones seldom, or copying would be all that happens.
    let length = if length > 1_000_000 && random.below(40) > 0 { length % 1000 } else { length };
    let stamp = (random.below(1 << 32) << 32) | length;
    bytes.clear();
    bytes.extend(stamp.to_le_bytes().iter().cycle().take(length as usize));
}

fn check(bytes: &[u8]) {
    let (words, _) = bytes.as_chunks::<8>();
    let Some(first) = words.first() else { return };
    assert!(words.iter().all(|word| word == first), "a payload of two pieces");
    let length = u64::from_le_bytes(*first) & 0xFFFF_FFFF;
    assert_eq!(length, bytes.len() as u64, "a payload with another's length");
}

/// Only these may go wrong when others change the same pointers.
fn allowed(error: &PileError) {
    assert!(matches!(error, PileError::Pointer { .. } | PileError::Memory { .. }), "{error}");
}

/// A number that no pile gives out, for places where nothing was put yet.
const NEVER: u64 = 1;

fn work(pile: &Arc<Pile>, places: &[AtomicU64], seed: u64, end: Instant) -> u64 {
    let (mut random, mut bytes, mut buf) = (Random(seed | 1), Vec::new(), ReadBuf::new());
    let (mut steps, mut views) = (0, Vec::new());
    while steps % 64 != 0 || Instant::now() < end {
        steps += 1;
        let place = &places[random.below(places.len() as u64) as usize];
        let pointer = Pointer::from_bits(place.load(Ordering::Acquire)).unwrap();
        match random.below(16) {
            0..3 => {
                payload(&mut random, &mut bytes);
                match pile.put_with_reserve(&bytes, if random.below(8) == 0 { 100 } else { 0 }) {
                    Ok(fresh) => {
                        let old = place.swap(fresh.to_bits(), Ordering::AcqRel);
                        let _ = pile.remove(Pointer::from_bits(old).unwrap()).inspect_err(allowed);
                    }
                    Err(error) => allowed(&error),
                }
            }
            3..7 => {
                payload(&mut random, &mut bytes);
                let _ = pile.replace(pointer, &bytes).inspect_err(allowed);
            }
            7 => drop(pile.remove(pointer).inspect_err(allowed)),
            8 => {
                if let Ok(view) = pile.view(pointer) {
                    check(&view);
                    views.push(view);
                }
                if views.len() > 4 {
                    let view = views.swap_remove(random.below(4) as usize);
                    check(&view);
                }
            }
            9 => {
                if let Ok(popped) = pile.pop(pointer, &mut buf) {
                    check(popped);
                }
            }
            10..12 => match pile.read_or_find(pointer, &mut buf) {
                Ok(Reading::Whole(read)) => check(read),
                Ok(Reading::Long(long)) => {
                    let (first, mut read) = (random.below(long.len() as u64) as usize, Vec::new());
                    if long.append(0, first, &mut read) && long.append(first, long.len() - first, &mut read) {
                        assert!(read.starts_with(long.beginning()));
                        check(&read);
                    }
                }
                Err(error) => allowed(&error),
            },
            _ => match pile.read(pointer, &mut buf) {
                Ok(read) => check(read),
                Err(error) => allowed(&error),
            },
        }
        if steps % 100_000 == 0 {
            pile.compact();
            for pointer in pile.pointers() {
                let _ = pile.size_of(pointer).inspect_err(allowed);
            }
        }
    }
    steps
}

fn stress(max_bytes: Option<u64>, shards: usize) {
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64);
    let seed = number("GABION_SEED", clock);
    println!("GABION_SEED={seed}");
    let pile = Arc::new(Pile::with_options(PileOptions { max_bytes, shards: Some(shards), os: None }).unwrap());
    let places: Vec<AtomicU64> = (0..2000).map(|_| AtomicU64::new(NEVER)).collect();
    let end = Instant::now() + Duration::from_secs(number("GABION_STRESS_SECONDS", 2));
    let steps: u64 = thread::scope(|scope| {
        let (pile, places) = (&pile, &places);
        let threads =
            (0..4_u64).map(|thread| scope.spawn(move || work(pile, places, seed.wrapping_add(thread << 32), end)));
        threads.collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    pile.validate().unwrap();
    println!("{steps} steps, {:?}", pile.stats());
    for place in &places {
        let _ = pile.remove(Pointer::from_bits(place.load(Ordering::Acquire)).unwrap());
    }
    assert_eq!(pile.pointers().count() as u64, pile.len());
    pile.compact();
    pile.validate().unwrap();
    if pile.is_empty() {
        assert_eq!(pile.stats().reserved_bytes, 0);
    }
}

#[test]
fn threads_on_the_same_pointers() {
    stress(None, 2);
}

#[test]
fn threads_on_one_shard_that_is_nearly_full() {
    stress(Some(6 << 20), 1);
}
