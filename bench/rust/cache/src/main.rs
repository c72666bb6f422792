//! How fast a cache answers: hits, and read-through at a tenth of the keys, from one and more threads.
//!
//! `gabion-bench-cache SUBJECT CASE THREADS` prints one line of JSON; `bench/run.py cache` runs it. SUBJECT is gabion,
//! floor, or with the feature `peers` `quick_cache` or moka; CASE is hits, hits-tenth or through. Keys are numbers of 4
//! bytes drawn by a Zipf law (0.99) from a million, for hits-tenth from a tenth of that; values have 75 bytes and are
//! copied out.
//!
//! The floor is a hash map that nobody locks and that knows no limit: what memory gives for hits.

#![forbid(unsafe_code)]

mod zipf;

use std::collections::HashMap;
use std::env;
use std::hash::{BuildHasherDefault, Hasher};
use std::hint::black_box;
use std::time::Instant;

use gabion_cache::{Cache, PutOptions, ReadBuf};

const KEYS: usize = 1_000_000;
const VALUE: usize = 75;
const DRAWS: usize = 4_000_000;

/// What each cache can do: put 75 bytes under a number, and copy them out again.
trait Subject: Sync {
    type Scratch: Default;
    /// Has every key up to `keys`.
    fn fill(&mut self, keys: u32) {
        (0..keys).for_each(|key| self.put(key, &value(key)));
    }
    fn put(&self, key: u32, value: &[u8; VALUE]);
    /// The first byte of a copy of the value.
    fn get(&self, key: u32, scratch: &mut Self::Scratch) -> Option<u8>;
}

impl Subject for Cache {
    type Scratch = ReadBuf;

    fn put(&self, key: u32, value: &[u8; VALUE]) {
        (**self).put(&key.to_le_bytes(), value, &PutOptions::default());
    }

    fn get(&self, key: u32, scratch: &mut ReadBuf) -> Option<u8> {
        (**self).get(&key.to_le_bytes(), scratch).map(|value| black_box(value)[0])
    }
}

/// The hash of a number, by one multiplication.
#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(byte.into());
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[derive(Default)]
struct Floor(HashMap<u32, [u8; VALUE], BuildHasherDefault<Mixed>>);

impl Subject for Floor {
    type Scratch = ();

    fn fill(&mut self, keys: u32) {
        self.0.extend((0..keys).map(|key| (key, value(key))));
    }

    fn put(&self, _: u32, _: &[u8; VALUE]) {
        unreachable!("the floor is asked for hits only");
    }

    fn get(&self, key: u32, (): &mut ()) -> Option<u8> {
        self.0.get(&key).map(|value| black_box(&{ *value })[0])
    }
}

#[cfg(feature = "peers")]
mod peers {
    use super::{Subject, VALUE, black_box};

    impl Subject for quick_cache::sync::Cache<u32, [u8; VALUE]> {
        type Scratch = ();

        fn put(&self, key: u32, value: &[u8; VALUE]) {
            self.insert(key, *value);
        }

        fn get(&self, key: u32, (): &mut ()) -> Option<u8> {
            quick_cache::sync::Cache::get(self, &key).map(|value| black_box(&value)[0])
        }
    }

    impl Subject for moka::sync::Cache<u32, [u8; VALUE]> {
        type Scratch = ();

        fn put(&self, key: u32, value: &[u8; VALUE]) {
            self.insert(key, *value);
        }

        fn get(&self, key: u32, (): &mut ()) -> Option<u8> {
            moka::sync::Cache::get(self, &key).map(|value| black_box(&value)[0])
        }
    }
}

fn value(key: u32) -> [u8; VALUE] {
    [key as u8; VALUE]
}

/// Million operations a second, and the share of hits.
fn run(mut subject: impl Subject, keys: usize, through: bool, threads: usize) -> (f64, f64) {
    let draws: Vec<Vec<u32>> = (0..threads).map(|thread| zipf::draws(keys, 0.99, DRAWS, thread as u64)).collect();
    if !through {
        subject.fill(keys as u32);
    }
    let subject = &subject;
    let pass = || {
        std::thread::scope(|scope| {
            let workers: Vec<_> = draws.iter().map(|draws| scope.spawn(|| work(subject, draws, through))).collect();
            workers.into_iter().map(|worker| worker.join().expect("a worker failed")).sum::<usize>()
        })
    };
    pass();
    let began = Instant::now();
    let hits = pass();
    let asked = threads * DRAWS;
    (asked as f64 / began.elapsed().as_secs_f64() / 1e6, hits as f64 / asked as f64)
}

fn work<S: Subject>(subject: &S, draws: &[u32], through: bool) -> usize {
    let (mut scratch, mut hits) = (S::Scratch::default(), 0);
    for &key in draws {
        match subject.get(key, &mut scratch) {
            Some(first) => {
                assert_eq!(first, key as u8);
                hits += 1;
            }
            None if through => subject.put(key, &value(key)),
            None => {}
        }
    }
    hits
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [subject, case, threads] = words.as_slice() else {
        return Err("usage: gabion-bench-cache SUBJECT hits|hits-tenth|through THREADS".into());
    };
    let (through, threads) = (case == "through", threads.parse()?);
    let keys = if case == "hits-tenth" { KEYS / 10 } else { KEYS };
    #[cfg(feature = "peers")]
    let room = if through { keys / 10 } else { keys * 2 };
    let (rate, hits) = match subject.as_str() {
        // 128 bytes are what an entry of this size is charged, so that a tenth of the keys fit.
        "gabion" => run(Cache::new(if through { 12_800_000 } else { 512 << 20 })?, keys, through, threads),
        "floor" if !through => run(Floor::default(), keys, through, threads),
        #[cfg(feature = "peers")]
        "quick_cache" => run(quick_cache::sync::Cache::new(room), keys, through, threads),
        #[cfg(feature = "peers")]
        "moka" => run(moka::sync::Cache::new(room as u64), keys, through, threads),
        other => return Err(format!("{other} is not built in, or not for this case").into()),
    };
    println!(r#"{{"metrics": {{"gets_per_s": [{rate:.3}, "M/s"], "hit_rate": [{hits:.4}, "share"]}}}}"#);
    Ok(())
}
