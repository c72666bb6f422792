//! What more threads gain where no memory is touched: two processors may share the units of one core.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use crate::Metric;

const STEPS: u64 = 200_000_000;

/// Steps of four chains of sums, shifts and products, enough of them side by side to keep a core busy, on `threads` at
/// once.
pub fn run(threads: usize) -> Vec<Metric> {
    let barrier = Barrier::new(threads);
    let spans: Vec<(Instant, Instant)> = thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|_| scope.spawn(|| timed(&barrier))).collect();
        started.into_iter().map(|thread| thread.join().expect("a thread panicked")).collect()
    });
    let began = spans.iter().map(|span| span.0).min().expect("one thread at least");
    let ended = spans.iter().map(|span| span.1).max().expect("one thread at least");
    vec![("steps_per_s", threads as f64 * STEPS as f64 / (ended - began).as_secs_f64(), "1/s")]
}

fn timed(barrier: &Barrier) -> (Instant, Instant) {
    barrier.wait();
    let began = Instant::now();
    let [mut a, mut b, mut c, mut d] = black_box([1u64, 2, 3, 4]);
    for step in 0..STEPS {
        a = a.wrapping_mul(31).wrapping_add(step);
        b = b.rotate_left(5) ^ step;
        c = c.wrapping_add(a >> 3);
        d = d.wrapping_mul(17) ^ b;
    }
    black_box([a, b, c, d]);
    (began, Instant::now())
}
