//! What huge pages cost and bring on this machine, at this moment: `cargo run --release -p gabion-blocks --example
//! huge_pages`.
//!
//! 64 MiB are touched for the first time on small and on huge pages, moved from small ones onto huge ones, and touched
//! again on both. Run it twice: what the system has at hand changes.

use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use gabion_blocks::system;

const BYTES: usize = 64 << 20;
const SMALL_PAGE: usize = 4096;
const HUGE_PAGE: usize = 2 << 20;
const ROUNDS: u32 = 10;

/// Milliseconds that `work` takes.
fn time(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e3
}

/// Writes to each page once.
fn touch(at: NonNull<u8>) {
    for offset in (0..BYTES).step_by(SMALL_PAGE) {
        // SAFETY: inside the mapping, aligned, and of a type that any bytes are.
        unsafe { at.add(offset).cast::<AtomicU64>().as_ref() }.fetch_add(1, Relaxed);
    }
}

/// Milliseconds that touching what is there already takes.
fn touch_again(at: NonNull<u8>) -> f64 {
    time(|| (0..ROUNDS).for_each(|_| touch(at))) / f64::from(ROUNDS)
}

fn main() -> Result<(), i32> {
    let os = system();
    let (small, huge) = (os.map(BYTES, HUGE_PAGE)?, os.map(BYTES, HUGE_PAGE)?);
    println!("64 MiB, milliseconds");
    println!("first touch, small pages {:9.2}", time(|| touch(small)));
    // SAFETY: the whole of one live mapping.
    unsafe { os.advise_huge(huge, BYTES) };
    println!("first touch, huge pages  {:9.2}", time(|| touch(huge)));
    println!("touch again, small pages {:9.2}", touch_again(small));
    println!("touch again, huge pages  {:9.2}", touch_again(huge));
    let mut moved = false;
    // SAFETY: one huge page of a live mapping.
    let first = time(|| moved = unsafe { os.gather(small, HUGE_PAGE) });
    println!("moved onto a huge page   {first:9.2}{}", if moved { "" } else { " (refused)" });
    // SAFETY: the whole of one live mapping.
    let others = time(|| moved = unsafe { os.gather(small, BYTES) });
    println!("moved onto 31 others     {others:9.2}{}", if moved { "" } else { " (refused)" });
    println!("touch again, moved       {:9.2}", touch_again(small));
    Ok(())
}
