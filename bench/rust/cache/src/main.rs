//! How fast a cache answers: hits, and read-through at a tenth of the keys, from one and more threads.
//!
//! `gabion-bench-cache SUBJECT CASE THREADS` prints one line of JSON; `bench/run.py cache` runs it. SUBJECT is gabion, or with the feature `peers`
//! `quick_cache` or moka; CASE is hits or through. Keys are numbers of 4 bytes drawn by a Zipf law (0.99) from a million,
//! values have 75 bytes and are copied out.

#![forbid(unsafe_code)]

mod zipf;

use std::env;
use std::hint::black_box;
use std::time::Instant;

use gabion_cache::{Cache, PutOptions, ReadBuf};

const KEYS: usize = 1_000_000;
const VALUE: usize = 75;
const DRAWS: usize = 4_000_000;

/// What each cache can do: put 75 bytes under a number, and copy them out again.
trait Subject: Sync {
    type Scratch: Default;
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
fn run(subject: &impl Subject, through: bool, threads: usize) -> (f64, f64) {
    let draws: Vec<Vec<u32>> = (0..threads).map(|thread| zipf::draws(KEYS, 0.99, DRAWS, thread as u64)).collect();
    if !through {
        (0..KEYS as u32).for_each(|key| subject.put(key, &value(key)));
    }
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
        return Err("usage: gabion-bench-cache SUBJECT hits|through THREADS".into());
    };
    let (through, threads) = (case == "through", threads.parse()?);
    #[cfg(feature = "peers")]
    let room = if through { KEYS / 10 } else { KEYS * 2 };
    let (rate, hits) = match subject.as_str() {
        // 128 bytes are what an entry of this size is charged, so that a tenth of the keys fit.
        "gabion" => run(&Cache::new(if through { 12_800_000 } else { 512 << 20 })?, through, threads),
        #[cfg(feature = "peers")]
        "quick_cache" => run(&quick_cache::sync::Cache::new(room), through, threads),
        #[cfg(feature = "peers")]
        "moka" => run(&moka::sync::Cache::new(room as u64), through, threads),
        other => return Err(format!("{other} is not built in").into()),
    };
    println!(r#"{{"metrics": {{"gets_per_s": [{rate:.3}, "M/s"], "hit_rate": [{hits:.4}, "share"]}}}}"#);
    Ok(())
}
